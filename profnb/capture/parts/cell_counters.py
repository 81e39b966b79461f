"""Exact counters of a cell's time: profnb itself, batches that JAX still computes, calls between two steps.

JAX returns before a step is computed, up to 32 of them. Behind the last batch of an epoch the code then waits
for training: in the validation, whose own work comes behind, or where the epoch ends. A thread that does
nothing else waits too and takes the time, so the clock can charge training with it, and nothing that the
code does is put off.

Python that holds the interpreter's lock for less than 5 ms lets no other thread look at it: a look that is
due meanwhile comes when the next call of a framework lets go of the lock, and shows that call. So between
some steps the interpreter itself tells of calls and returns (``sys.setprofile``, of the cell's thread alone,
and only where nobody else uses it). The time from one to the next belongs to what was innermost meanwhile: a
function of the user's, a callback's hook, what saves, or what runs ops.

So many gaps are told that all together cost a 300th of the cell, some 500 in each tenfold of its time. An
event costs 0.3 us, one of the functions above some 5 (two shared cores, 26 November 2026); one gap may have
20,000 events.
"""

import _thread
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from inspect import currentframe
from types import CodeType, FrameType
from typing import Any

from profnb.capture.hooks import Library
from profnb.capture.marking.open_steps import Gaps
from profnb.capture.parts.stack_parts import enters_framework, is_named
from profnb.capture.seams import CALL_EVENTS, JAX_STATE, JAX_STATE_SYNC
from profnb.capture.signals import OwnFaults
from profnb.capture.source.source_records import StackRecords
from profnb.capture.source.stacks import Looks, frames_above, name_frames
from profnb.capture.source.user_code import is_own_file, is_user_file

_LONGEST_START_S = 0.05


class OwnTime:
    """Times profnb itself on the thread that makes it: of blocks inside each other the outermost counts.

    Attributes:
        spans: What was done, and its begin and end by ``time.perf_counter_ns``, in order.
    """

    def __init__(self) -> None:
        """Nothing was done yet."""
        self.spans: list[tuple[str, int, int]] = []
        self._thread = threading.get_ident()
        self._depth = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what runs inside the block as profnb itself."""
        if threading.get_ident() != self._thread:
            yield
            return
        begin_ns = time.perf_counter_ns()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.spans.append((name, begin_ns, time.perf_counter_ns()))


class InFlight:
    """Work that was asked for and is not done.

    Attributes:
        ended_ns: When it was done, by ``time.perf_counter_ns``; None before.
    """

    __slots__ = ("_has_begun", "ended_ns")

    def __init__(self, array: Any) -> None:
        """Wait for an array on another thread, from now on."""
        self.ended_ns: int | None = None
        self._has_begun = _thread.allocate_lock()
        self._has_begun.acquire()
        _thread.start_new_thread(self._wait, (array.block_until_ready,))
        # The next step may be given the array's memory: by then the wait must have begun.
        self._has_begun.acquire(timeout=_LONGEST_START_S)

    def _wait(self, until_ready: Callable[[], object]) -> None:
        begin_ns = time.perf_counter_ns()
        try:
            self._has_begun.release()
            until_ready()
            self.ended_ns = time.perf_counter_ns()
        except Exception:  # noqa: BLE001 - it failed, or is gone: for the code to find, not for us
            self.ended_ns = begin_ns


def watch_in_flight(
    keras: Library, flying: list[tuple[int, InFlight]]
) -> AbstractContextManager[None]:
    """List, inside the block, what is in flight when Keras on JAX has no batch to compute, and since when."""

    def batches_are_over(model: Any, *_: object, **__: object) -> None:
        state = JAX_STATE.of(model)
        arrays = [one for kind in state.values() for one in kind] if isinstance(state, dict) else []
        if arrays and is_in_flight(arrays[-1]):  # all of a step's are at once
            batches = InFlight(arrays[-1])
            flying.append((time.perf_counter_ns(), batches))

    return keras.watch(JAX_STATE_SYNC, before=batches_are_over)


def is_in_flight(array: Any) -> bool:
    """Tell whether JAX has still to compute an array."""
    with OwnFaults():  # it is gone, as an interrupted fit's are
        return not array.is_ready()
    return False


_CELL_PER_COST, _EVENT_NS, _MOST_EVENTS = 300, 300, 20_000
_GAPS, _MOST_PLACES_CLOCKED = 200, 10_000
# The time is over in a long gap, mostly, and the next gap would be told, never the long one: so up to four
# more are left out. Multiples of the golden ratio lie evenly between whole numbers.
_SKIPS, GOLDEN = 5, 0.618034
_LATER_NS = 100_000_000  # until somebody else's profiler is asked for again
_UNNAMED, _NAMED, _FRAMEWORK = range(3)


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """Times of what gaps between steps were spent on.

    Attributes:
        stacks: A stack each, and when its gap began.
        took_ns: How long it was the innermost in that gap.
    """

    stacks: StackRecords = field(default_factory=StackRecords)
    took_ns: Sequence[int] = ()


class CallClock(Gaps):
    """Tells what runs in gaps between steps, on the thread that calls it.

    Attributes:
        is_on: Whether a gap is told right now.
        next_ns: From when on the next one is, by ``time.perf_counter_ns``.
    """

    def __init__(self) -> None:
        """Nothing is told yet."""
        self.is_on, self.next_ns = False, 0
        self._began_ns = time.perf_counter_ns()
        self._spent_ns = self._events = self._count = self._skip = 0
        self._gap_ns = self._since_ns = 0
        self._place = 0  # a row of those seen; 0 where there are too many
        self._places: dict[tuple[int, ...], int] = {(): 0}
        self._inside: FrameType | None = None  # what runs ops: what it calls is told of no more
        self._codes: dict[int, CodeType] = {}
        self._kinds: dict[int, int] = {}
        self._took: Counter[tuple[int, int]] = Counter()  # by gap and place
        self._hook = self._hear
        self._set_profile = CALL_EVENTS.find()

    def begin(self) -> None:
        """A step has ended."""
        if self._skip:
            self._skip -= 1
            return
        now = time.perf_counter_ns()
        # TensorFlow's and JAX's tracers of Python are known by what they set for new threads.
        is_used = sys.getprofile() is not None or threading.getprofile() is not None
        if is_used or self._set_profile is None:
            self.next_ns = now + _LATER_NS
            return
        self.is_on, self._gap_ns, self._inside, self._events = True, now, None, 0
        self._go_to(currentframe())
        self._since_ns = time.perf_counter_ns()
        self._spent_ns += self._since_ns - now
        self._set_profile(self._hook)

    def end(self) -> None:
        """The next step begins, or the cell is over."""
        if sys.getprofile() == self._hook:
            self._set_profile(None)
            self._charge(time.perf_counter_ns())
        self.is_on, self._inside = False, None
        self._spent_ns += self._events * _EVENT_NS
        self._count += 1
        self._skip = int(self._count * GOLDEN % 1 * _SKIPS)
        now = time.perf_counter_ns()
        self.next_ns = max(
            self._began_ns + self._spent_ns * _CELL_PER_COST, now + (now - self._began_ns) // _GAPS
        )

    def _charge(self, now: int) -> None:
        self._took[self._gap_ns, self._place] += now - self._since_ns

    def _hear(self, frame: FrameType, event: str, _: object) -> None:
        """The interpreter calls, or returns."""
        self._events += 1
        if event not in ("call", "return"):
            return
        inside = self._inside
        if inside is not None:
            if frame is not inside or event == "call":
                return
            self._inside = None
        code = frame.f_code
        kind = self._kinds.get(id(code))
        if kind is None:
            self._codes[id(code)] = code
            kind = self._kinds[id(code)] = _kind_of(code)
        if kind == _UNNAMED:
            return
        now = time.perf_counter_ns()
        self._charge(now)
        if event == "call" and kind == _FRAMEWORK:
            self._inside = frame
        if self._events > _MOST_EVENTS:
            self._set_profile(None)
            return
        self._go_to(frame if event == "call" else frame.f_back)
        self._since_ns = time.perf_counter_ns()
        self._spent_ns += self._since_ns - now

    def _go_to(self, frame: FrameType | None) -> None:
        key: list[int] = []
        for code, offset in frames_above(frame):
            self._codes.setdefault(id(code), code)
            key += id(code), offset + (not key)  # behind what was called there last
        rows, place = self._places, tuple(key)
        self._place = rows.get(place, 0)
        if not self._place and len(rows) < _MOST_PLACES_CLOCKED:
            self._place = rows[place] = len(rows)

    def stop(self, base: int) -> TimedCalls:
        """End, and give what was told; no code is kept.

        Args:
            base: How many frames called the cell.
        """
        if self.is_on:
            self.end()
        records = StackRecords(self._began_ns, base=base)
        for gap_ns, place in self._took:
            records.time_ns.append(gap_ns)
            records.stack.append(place)
        looks = Looks(records.time_ns, records.stack, list(self._places), self._codes)
        name_frames(looks, records)
        calls = TimedCalls(records, list(self._took.values()))
        for kept in (self._took, self._codes, self._places):
            kept.clear()
        return calls


def _kind_of(code: CodeType) -> int:
    name, file = str(getattr(code, "co_qualname", code.co_name)), code.co_filename
    if code.co_name.startswith("<") or is_own_file(file):  # a comprehension is its function's
        return _UNNAMED
    if is_user_file(file) or is_named(name, file):
        return _NAMED
    return _FRAMEWORK if enters_framework(name, file) else _UNNAMED
