"""Session runs to what Python did between them: which statements, and whether they made what is fed.

The looks at the cell's thread (``capture.source.stacks``) that fall between two runs say what TensorFlow
waited for. A gap's time is divided among its looks; what lies after the last run is no gap. Pauses (ten times
the median, and more than 100 ms) are left out, as everywhere.

Of the arrays that are fed it is told whether they were made for the run. One that was fed before is not, nor
is a part of one, nor one that still lives three runs later: it was made beforehand, and is kept. Of several
those count that hold most of the bytes (labels are often a part of an array that is kept).
"""

import contextlib
import inspect
import statistics
import time
import weakref
from bisect import bisect
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from profnb.capture.recording import RUN_ITSELF, GapRecords
from profnb.capture.source.stacks import Looks, frames_above
from profnb.capture.source.user_code import is_user_file, number_cells, shorten_files
from profnb.tf1.gap_statements import Stack, tell_roles

_MOST_GAPS, _MOST_CALLS_IN_GAP, _MOST_LOOKED_AT = 20_000, 32, 256
_RUNS_LATER = 3
_PAUSE_TIMES, _SHORTEST_PAUSE_NS = 10, 100_000_000


class GapWatch:
    """Watches the gaps between the session runs of the thread that calls it.

    Attributes:
        records: What was found; complete after ``finish``.
    """

    def __init__(self) -> None:
        """Nothing has run yet."""
        self.records = GapRecords()
        self._calls: dict[Stack, None] = {}
        # Begins and ends of gaps, in turn; while no run is on the last one is a begin.
        self._gap_ns = deque[int]()
        self._fed: dict[int, weakref.ref[Any]] = {}  # the arrays whose memory was fed, by id
        self._waiting: deque[tuple[int, list[tuple[weakref.ref[Any], int]], int]] = deque()

    def run_begins(self, feed_dict: object) -> None:
        """A run begins; the gap before it ends."""
        self.run_failed(time.perf_counter_ns())
        self.records.runs += 1
        if self.records.runs <= _MOST_LOOKED_AT:
            self._look_at(feed_dict)
            if len(self._calls) < _MOST_CALLS_IN_GAP:
                stack = tuple(frames_above(inspect.currentframe()))[::-1]
                self._calls[_users(stack)] = None

    def run_ended(self) -> None:
        """The run ended; a gap begins."""
        if len(self._gap_ns) % 2 == 0 and len(self._gap_ns) < 2 * _MOST_GAPS:
            self._gap_ns.append(time.perf_counter_ns())

    def run_failed(self, begin_ns: int) -> None:
        """A run began then that did not end, and so no gap begins."""
        if len(self._gap_ns) % 2:
            self._gap_ns.append(begin_ns)

    @property
    def spans(self) -> deque[int] | None:
        """Where a run's begin and end can be put, if they are all that there is to see of runs by now."""
        if self.records.runs < _MOST_LOOKED_AT:
            return None
        return self._gap_ns if len(self._gap_ns) < 2 * _MOST_GAPS else deque(maxlen=0)

    # What is fed.

    def _look_at(self, feed_dict: object) -> None:
        fed = feed_dict.values() if isinstance(feed_dict, Mapping) else ()
        arrays = [value for value in fed if _is_array(value) and value.size > 1]
        records = self.records
        if arrays:
            records.fed += 1
            records.fed_bytes = max(records.fed_bytes, sum(int(a.nbytes) for a in arrays))
        while self._waiting and self._waiting[0][0] <= records.runs - _RUNS_LATER:
            _, made, whole = self._waiting.popleft()
            records.judged += 1
            records.new += sum(size for array, size in made if array() is None) * 2 > whole
        if not arrays:
            return
        roots = [(_root_of(array), int(array.nbytes)) for array in arrays]
        first_fed: list[tuple[weakref.ref[Any], int]] = []
        fed_before = [id(root) for root, _ in roots if self._is_fed(root)]
        for root, size in roots:
            if id(root) in fed_before:
                continue
            with contextlib.suppress(TypeError):  # a class that cannot be referred to so
                self._fed[id(root)] = weakref.ref(root)
                first_fed.append((self._fed[id(root)], size))
        self._waiting.append((records.runs, first_fed, sum(size for _, size in roots)))

    def _is_fed(self, root: object) -> bool:
        reference = self._fed.get(id(root))
        return reference is not None and reference() is root

    def finish(self, looks: Looks) -> GapRecords:
        """End; no reference to code or arrays is kept.

        Args:
            looks: What the cell's thread did, look by look.
        """
        gaps = list(zip(*[iter(self._gap_ns)] * 2, strict=False))[:_MOST_GAPS]
        usual = statistics.median(end - begin for begin, end in gaps) if gaps else 0
        limit = max(usual * _PAUSE_TIMES, _SHORTEST_PAUSE_NS)
        self._divide([(begin, end) for begin, end in gaps if end - begin <= limit], looks)
        self._calls.clear()
        self._fed.clear()
        self._waiting.clear()
        return self.records

    def _divide(self, gaps: list[tuple[int, int]], looks: Looks) -> None:
        """Divide gaps among their looks: each has what passed since the one before, the last the rest."""
        records, sums = self.records, Counter[int]()
        for begin, end in gaps:
            at = begin
            first, last = bisect(looks.time_ns, begin), bisect(looks.time_ns, end)
            for look in range(first, last):
                until = end if look == last - 1 else looks.time_ns[look]
                sums[looks.stack[look]] += until - at
                at = until
            records.samples += last - first
        records.gaps, records.gap_ns = len(gaps), sum(end - begin for begin, end in gaps)
        if seen := sum(sums.values()):  # gaps between two looks stand for those that were met
            stacks = Counter[Stack]()
            for row, took in sums.items():
                stacks[_users(looks.stack_of(row))] += took
            calls = [call for call in self._calls if call]
            records.places = tell_roles(calls, stacks, records.gap_ns / seen)


def shorten_gaps(records: GapRecords, *, has_source: bool) -> GapRecords:
    """Give the files of records by their short names, and leave out the code's texts where not asked for."""
    folder = ""
    with contextlib.suppress(OSError):  # the folder is gone
        folder = str(Path.cwd())
    files = [file for place in records.places for file in (place.file, place.inner_file) if file]
    names, cells = {"": "", **shorten_files(files, folder)}, number_cells()
    places = [
        replace(
            place,
            file=names[place.file],
            text=place.text if has_source or place.role == RUN_ITSELF else "",
            inner_file=names[place.inner_file],
            inner_text=place.inner_text if has_source else "",
        )
        for place in records.places
    ]
    numbers = {names[file]: cells[file] for file in files if file in cells}
    return replace(records, places=places, cells=numbers)


def _users(stack: Stack) -> Stack:
    """Cut a stack to what begins with the user's outermost frame."""
    rows = (row for row, (code, _) in enumerate(stack) if is_user_file(code.co_filename))
    return stack[next(rows, len(stack)) :]


def _is_array(value: object) -> Any:
    """Tell whether it is an array of NumPy's, or one that says of itself what one does."""
    return hasattr(value, "nbytes") and hasattr(value, "size") and hasattr(value, "dtype")


def _root_of(array: Any) -> Any:
    """Find the array whose memory it is."""
    while _is_array(getattr(array, "base", None)):
        array = array.base
    return array
