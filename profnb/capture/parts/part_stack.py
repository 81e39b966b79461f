"""A stack of what runs on one thread, and the time that each of it took by itself: the sum is exact."""

import heapq
import inspect
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CellPart, CellRecords
from profnb.capture.source.user_code import number_cells, user_place
from profnb.capture.step_records import OpenStep

__all__ = ["MOST_ROWS", "STEP", "Open", "PartStack", "Place", "Row", "running_line"]

Place = tuple[str, int] | None

MOST_ROWS = 300
STEP = "step"
_MOST_STRETCHES = 50_000
# Parts in which nested occurrences are one: the outermost says what it is.
_MERGED = (parts.IMPORTS, parts.BUILDING, parts.CHECKPOINTING, parts.INPUT, parts.PROFNB)
# Parts that are few and long, each with a line of its own; of others the first one's line is taken.
_PLACED = (parts.IMPORTS, parts.BUILDING, parts.CHECKPOINTING)
# Parts that stand between steps, of which the longest are kept with their times, so many of each row.
_TIMED, _LONG_NS, _MOST_LONG = (parts.CALLBACKS, parts.CHECKPOINTING), 1_000_000, 64


class Open:
    """Something that began and has not ended.

    Attributes:
        part: Part, or what its end decides: ``STEP``, ``_RUN``.
        name: See ``CellPart``.
        begin_ns: When it began.
        place: The line that caused it.
        span: The step, of a step.
        self_ns: Time with it on top of the stack that is not charged yet.
        depth: How many of the same part began inside it.
        stretches: Begins and ends of ``self_ns`` where that may be other Python; None elsewhere.
        kept: Time of calls that are steps if this is none: row to what ``Row`` holds.
    """

    __slots__ = (
        "begin_ns", "depth", "kept", "name", "part", "place", "self_ns", "span", "stretches",
    )  # fmt: skip

    def __init__(
        self, part: str, name: str, begin_ns: int, place: Place = None, span: OpenStep | None = None
    ) -> None:
        """It has just begun."""
        self.part, self.name, self.begin_ns = part, name, begin_ns
        self.place, self.span = place, span
        self.self_ns = self.depth = 0
        self.stretches: list[int] | None = None
        self.kept: dict[tuple[str, str], Row] | None = None


class Row:
    """One row of the result in the making."""

    __slots__ = ("first_ns", "longest_ns", "occurrences", "place", "wall_ns")

    def __init__(self, first_ns: int) -> None:
        """Nothing is in it."""
        self.first_ns, self.occurrences, self.wall_ns, self.longest_ns = first_ns, 0, 0, 0
        self.place: Place = None

    def add(
        self, first_ns: int, occurrences: int, wall_ns: int, longest_ns: int, at: Place
    ) -> None:
        """Add occurrences that began at some time, at some line: the longest one's counts."""
        self.first_ns = min(self.first_ns, first_ns)
        if at is not None and (self.place is None or longest_ns > self.longest_ns):
            self.place = at
        self.occurrences += occurrences
        self.wall_ns += wall_ns
        self.longest_ns = max(self.longest_ns, longest_ns)


class PartStack:
    """One thread's wall time as parts, from ``begin`` to ``finish``; other threads are not looked at."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._thread = 0
        self._stack: list[Open] = []
        self._rows: dict[tuple[str, str], Row] = {}
        self._begin_ns = self._last_ns = 0
        self._stretches = 0
        # Of each row, a heap of (time by itself, begin, end).
        self._long: dict[tuple[str, str], list[tuple[int, int, int]]] = {}

    def begin(self) -> None:
        """Start, on the calling thread."""
        self._thread = threading.get_ident()
        self._begin_ns = self._last_ns = time.perf_counter_ns()
        cell = Open(parts.OTHER, "", self._begin_ns)
        cell.stretches = []
        self._stack = [cell]

    def finish(self) -> CellRecords:
        """Stop; what has not ended ends now.

        Returns:
            The parts; without any if the clock was not started.
        """
        if not self._stack:
            return CellRecords()
        self._tick()
        self._close_from(1)
        (cell,), self._stack = self._stack, []
        row = self._row((cell.part, cell.name), cell.begin_ns)
        row.add(cell.begin_ns, 0, cell.self_ns, 0, None)
        order = sorted(self._rows.items(), key=lambda item: item[1].first_ns)
        listed = [
            CellPart(*key, row.occurrences, row.wall_ns, row.longest_ns, *(row.place or ("", 0)))
            for key, row in order
            if row.wall_ns or row.occurrences
        ]
        files = {part.file for part in listed}
        stretches = cell.stretches or []
        long = sorted(
            (begin_ns, end_ns, wall_ns, row)
            for row, part in enumerate(listed)
            for wall_ns, begin_ns, end_ns in self._long.get((part.part, part.name), ())
        )
        return CellRecords(
            self._last_ns - self._begin_ns,
            listed,
            array("q", stretches[0::2]),
            array("q", stretches[1::2]),
            {file: number for file, number in number_cells().items() if file in files},
            array("i", (row for *_, row in long)),
            array("q", (begin_ns for begin_ns, *_ in long)),
            array("q", (end_ns for _, end_ns, *_ in long)),
            array("q", (wall_ns for *_, wall_ns, _ in long)),
        )

    # Time.

    def _tick(self) -> int:
        """Charge the top of the stack with the time until now."""
        now, last, top = time.perf_counter_ns(), self._last_ns, self._stack[-1]
        self._last_ns = now
        top.self_ns += now - last
        if top.stretches is not None and self._stretches < _MOST_STRETCHES:
            top.stretches += (last, now)
            self._stretches += 1
        return now

    def _is_running_here(self) -> bool:
        return bool(self._stack) and threading.get_ident() == self._thread

    def _row(self, key: tuple[str, str], first_ns: int) -> Row:
        row = self._rows.get(key)
        if row is None and len(self._rows) >= MOST_ROWS:
            key = key[0], ""
            row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(first_ns)
        return row

    def _charge(self, part: str, name: str, one: Open, since_ns: int | None = None) -> None:
        """Charge what has not been charged of something as one occurrence of a part."""
        wall_ns, one.self_ns = one.self_ns, 0
        if wall_ns >= _LONG_NS and part in _TIMED and name:
            self._keep_long((part, name), (wall_ns, one.begin_ns, self._last_ns))
        row = self._rows.get((part, name))
        if row is not None and wall_ns <= row.longest_ns:  # as most are: nothing else can change
            row.occurrences += 1
            row.wall_ns += wall_ns
            return
        first_ns = one.begin_ns if since_ns is None else since_ns
        self._row((part, name), first_ns).add(first_ns, 1, wall_ns, wall_ns, one.place)

    def _keep_long(self, key: tuple[str, str], call: tuple[int, int, int]) -> None:
        """Keep a call that ends now, if it is one of the longest of its row."""
        if key not in self._long and len(self._long) >= MOST_ROWS:
            return
        longest = self._long.setdefault(key, [])
        keep = heapq.heappush if len(longest) < _MOST_LONG else heapq.heappushpop
        keep(longest, call)

    # What begins and ends.

    def enter(self, part: str, name: str = "", place: Place = None) -> bool:
        """A part begins; inside itself it only goes on, and the answer is False.

        Args:
            part: One of ``PARTS``.
            name: Which one.
            place: Its line, where that is known; else the line that runs.
        """
        if not self._is_running_here():
            return False
        top = self._stack[-1]
        if top.part == part and (part in _MERGED or top.name == name):
            top.depth += 1
            return False
        now = self._tick()
        is_new = part in _PLACED or (part, name) not in self._rows
        if place is None and is_new and part != parts.PROFNB:
            place = running_line()
        self._stack.append(Open(part, name, now, place))
        return True

    def leave(self, part: str, find_name: Callable[[], str] | None = None) -> bool:
        """The innermost one of a part ends, and all that began inside it; False if it goes on.

        Args:
            part: One of ``PARTS``.
            find_name: Tells what it is called, where that was not known as it began.
        """
        if not self._is_running_here():
            return False
        stack = self._stack
        at = len(stack) - 1
        while at > 0 and stack[at].part != part:  # as a rule it is the last one
            at -= 1
        if at <= 0:
            return False
        if stack[at].depth:
            stack[at].depth -= 1
            return False
        self._tick()
        if find_name is not None:
            stack[at].name = find_name()
        self._close_from(at)
        return True

    @contextmanager
    def profnb_part(self, name: str) -> Iterator[None]:
        """What runs inside the block is profnb itself."""
        self.enter(parts.PROFNB, name)
        try:
            yield
        finally:
            self.leave(parts.PROFNB)

    def _close_from(self, at: int) -> None:
        """Close what stands at a place of the stack, and what began inside it and was cut off there."""
        while len(self._stack) > at:
            self._close(self._stack.pop())

    def _close(self, one: Open) -> None:
        """Charge what has left the stack."""
        self._charge(one.part, one.name, one)


def running_line() -> Place:
    """The innermost line of the user's that runs."""
    return user_place(inspect.currentframe())
