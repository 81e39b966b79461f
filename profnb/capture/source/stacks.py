"""One thread's stack, looked at from the cell's first line to its last.

A thread of its own takes the frames of the cell's thread (``sys._current_frames``), traced or not: who called
whom, in the user's own names and lines, without anything being hooked. A look stands for the time since the
look before it, by the clock: plain Python gives the interpreter's lock away every 5 ms only, and then half of
the looks come late.

**The rate.** A look costs the cell what waking up and looking take of a core, some 30 to 80 us, and where the
cell's thread holds the lock all the time (eager ops, plain Python) a forced change of threads besides. All
looks together may take a hundredth of the cell. So the next one comes at the earliest after 5 ms, after a
hundred times what a look has cost, and after a five-hundredth of the cell so far: a cell of ten seconds gets
some 500 to 1,500 looks, one of an hour 5,000.

Measured (2 cores, medians of alternating pairs, ``tests/benchmarks/after_window.py``): see ``docs/speed.md``.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

import _thread
import gc
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, compress, repeat, starmap, takewhile
from operator import attrgetter, is_not, methodcaller
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from profnb.capture.seams import CURRENT_FRAMES
from profnb.capture.source.source_records import LEFT, LineRecords, StackRecords
from profnb.capture.source.user_code import is_own_file, is_user_file

_FASTEST_S, _IN_WINDOW_S = 0.005, 0.001  # between looks; where --python asks for more of them
_COST_SHARE, _LOOKS = 0.01, 500
# A forced change of threads: 0.28 to 0.35 ms of an eager step (reference/sampled-tree.md).
_LATE_S, _FORCED_S = 0.001, 0.0003
_DEEPEST_STACK, _MOST_KEPT = 2_000, 1_000_000  # frames of a stack; of all distinct ones
_MOST_LOOKS = 500_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Looks:
    """Looks as they were taken, with the code itself.

    Attributes:
        time_ns: When, by the clock ``time.perf_counter_ns``.
        stack: Which stack each met, a row of ``keys``.
        keys: The distinct stacks, the innermost frame first: id of its code, instruction, and so on.
        codes: The code by its id.
    """

    time_ns: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("i"))
    keys: list[tuple[int, ...]] = field(default_factory=list)
    codes: dict[int, CodeType] = field(default_factory=dict)

    def stack_of(self, row: int) -> tuple[tuple[CodeType, int], ...]:
        """The frames of a stack, the outermost first: code and instruction."""
        key = self.keys[row]
        return tuple((self.codes[key[at]], key[at + 1]) for at in range(len(key) - 2, -1, -2))


class Sampler:
    """Looks at the stack of the thread that calls ``start``, until ``stop``.

    Args:
        code_seen: Told of each file whose code was met for the first time.

    Attributes:
        is_dense: Whether a look is taken every millisecond, whatever it costs: the user asked for it.
        base: How many frames called the cell.
        took_s: What looking took of the cell.
    """

    def __init__(self, code_seen: Callable[[str], object] = lambda _: None) -> None:
        """Nothing is looked at yet."""
        self.is_dense, self.took_s = False, 0.0
        self._code_seen = code_seen
        self._stacks: dict[tuple[int, ...], int] = {(): 0}  # what is too much is an empty stack
        self._codes: dict[int, CodeType] = {}
        self._time_ns, self._stack = array("q"), array("i")
        self._begin_ns = self._kept = self.base = 0
        self._running = _thread.allocate_lock()
        self._sampler: threading.Thread | None = None
        self._frames_now: Any = None

    def start(self) -> None:
        """Begin."""
        self._frames_now = CURRENT_FRAMES.find()
        if self._frames_now is None:
            return
        frames = frames_of(threading.get_ident(), self._frames_now)[::-1]
        files = (frame.f_code.co_filename for frame in frames)
        callers = enumerate((file for file in files if not is_own_file(file)), 1)
        self.base = max((at for at, file in callers if is_user_file(file)), default=0)
        frames.clear()  # they keep what is bound in them
        self._running.acquire()
        self._begin_ns = time.perf_counter_ns()
        self._sampler = threading.Thread(
            target=self._look_on, args=(threading.get_ident(),), name="profnb", daemon=True
        )
        self._sampler.start()

    def _look_on(self, thread: int) -> None:
        clock, took = time.perf_counter, time.thread_time
        began, cost, period, used = clock(), 0.0, _FASTEST_S, took()
        due = began + period
        while not self._is_over(_IN_WINDOW_S if self.is_dense else period):
            late = clock() - due
            self._look(thread)
            if len(self._stack) >= _MOST_LOOKS:
                return
            used, before = took(), used
            one = used - before + (_FORCED_S if late > _LATE_S else 0.0)
            self.took_s += one
            cost += (one - cost) / min(len(self._stack), 16)  # the mean, or about the last 16's
            now = clock()
            period = max(_FASTEST_S, cost / _COST_SHARE, (now - began) / _LOOKS)
            due = now + period

    def _is_over(self, period_s: float) -> bool:
        """Wait for the next look; whether there is none any more."""
        return self._running.acquire(timeout=period_s)

    def _look(self, thread: int) -> None:
        frames = frames_of(thread, self._frames_now)
        now = time.perf_counter_ns()
        places = list(map(attrgetter("f_code", "f_lasti"), frames))
        frames.clear()  # they keep what is bound in them
        codes = self._codes
        key: list[int] = []
        for code, offset in places:
            if id(code) not in codes:
                codes[id(code)] = code
                self._code_seen(code.co_filename)
            key += id(code), offset
        row = self._stacks.get(tuple(key), 0)
        if not row and self._kept < _MOST_KEPT:
            self._kept += len(places)
            row = self._stacks[tuple(key)] = len(self._stacks)
        self._stack.append(row)
        self._time_ns.append(now)

    def since(self, first: int, first_stack: int) -> Looks:
        """The looks from one on, and the stacks from one on; any thread may ask."""
        time_ns = self._time_ns[first:]
        keys = list(self._stacks)[first_stack:]
        return Looks(time_ns, self._stack[first : first + len(time_ns)], keys, self._codes)

    def end(self) -> Looks:
        """Look no more; what was seen, with its code, until ``stop``."""
        if self._sampler is not None:
            self._running.release()
            self._sampler.join()
            self._sampler = None
        return Looks(self._time_ns, self._stack, list(self._stacks), dict(self._codes))

    def stop(self) -> StackRecords:
        """End; no reference to code is kept."""
        looks = self.end()
        records = StackRecords(self._begin_ns, self._time_ns, self._stack, base=self.base)
        name_frames(looks, records)
        self._stacks.clear()
        self._codes.clear()
        return records


def name_frames(looks: Looks, records: StackRecords) -> None:
    """Give records the stacks of looks, by the names of functions; profnb's own are left out.

    What a function leaves to be freed as it returns (an iterator, whose threads end) is its own, though its
    frame has gone: where the innermost frame is the user's, and called it in other looks of the same stack.
    """
    frames: dict[tuple[int, int], int] = {}
    lines: dict[tuple[int, int], int] = {}  # by instruction: it stands in thousands of stacks
    names, called = _names_of(looks.codes.values()), _called_at(looks)
    for row in range(len(looks.keys)):
        stack, path = [], looks.stack_of(row)
        left = called.get(looks.keys[row])
        for code, offset in path if left is None else (*path, (looks.codes[left], 0)):
            if (line := lines.get((id(code), offset))) is None:
                line = -1 if is_own_file(code.co_filename) else line_at(code, offset)
                lines[id(code), offset] = line
            if line < 0:
                continue
            stack.append(frames.setdefault((id(code), line), len(frames)))
            if len(frames) > len(records.frames):
                place = code.co_filename, code.co_firstlineno, line
                records.frames.append((names[id(code)], *place))
        records.stacks.append(tuple(stack))


def _called_at(looks: Looks) -> dict[tuple[int, ...], int]:
    """By stack, the code that its innermost frame calls there, where that frame is the user's."""
    stacks = set(looks.keys)
    users = {number for number, code in looks.codes.items() if is_user_file(code.co_filename)}
    called: dict[tuple[int, ...], int] = {}
    for key in looks.keys:
        for at in range(2, len(key), 2):
            if key[at] in users and key[at:] in stacks:
                called[key[at:]] = key[at - 2]
    return called


def _names_of(codes: Iterable[CodeType]) -> dict[int, str]:
    """Name each code object, with its class: ``Model.fit``.

    Python 3.10 does not know the class: a function of that code does, unless a decorator renamed it.
    """
    names = {id(code): str(getattr(code, "co_qualname", code.co_name)) for code in codes}
    if sys.version_info < (3, 11) and names:
        for function in gc.get_objects():
            if type(function) is FunctionType and id(code := function.__code__) in names:
                name = function.__qualname__
                if name.rpartition(".")[2] == code.co_name:
                    names[id(code)] = name
    return names


def frames_of(thread: int, frames_now: Callable[[], dict[int, FrameType]]) -> list[FrameType]:
    """The frames of a thread, the innermost first, taken in one piece.

    All in one call of C code, in which the interpreter does not change threads: walking from frame to frame
    in Python, the other thread runs on in between, and Python 3.11 then crashes now and then. There an object
    being made may also set off the garbage collector, whose finalizers let the other thread run, or wait for
    ever for a lock that is held here (python/cpython 106883); so the collector is off within the same call.
    """
    enabled: list[bool] = []
    off = chain(map(enabled.append, _calls(gc.isenabled)), _calls(gc.disable))
    on = map(methodcaller("__call__"), compress((gc.enable,), enabled))
    innermost = map(methodcaller("get", thread), _calls(frames_now))
    stack = accumulate(chain(innermost, repeat("f_back", _DEEPEST_STACK - 1)), getattr)
    walk = takewhile(partial(is_not, None), stack)  # the outermost has no f_back
    return [frame for frame in list(chain(off, walk, on)) if frame is not None]


def frames_above(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    """Code and instruction of a frame of the calling thread, and of those above it."""
    for _ in range(_DEEPEST_STACK):
        if frame is None:
            return
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back


def _calls(function: Callable[[], _T]) -> Iterator[_T]:
    """Call a function when its result is asked for."""
    return starmap(function, [()])


def line_at(code: CodeType, offset: int) -> int:
    """The line of an instruction; the function's first where that is not known."""
    return line_among(code.co_lines(), offset) or code.co_firstlineno


def line_among(lines: Iterable[tuple[int, int, int | None]], offset: int) -> int:
    """The line of an instruction, of lines as code objects list them; 0 where that is not known."""
    return next((line or 0 for first, last, line in lines if first <= offset < last), 0)


def looks_between(looks: StackRecords, begin_ns: int, end_ns: int) -> StackRecords:
    """The looks of some time, which share the stacks of all.

    Args:
        looks: All of them.
        begin_ns: From when, by the clock ``time.perf_counter_ns``.
        end_ns: Until when.
    """
    first = bisect_left(looks.time_ns, begin_ns)
    rows = slice(first, max(bisect_left(looks.time_ns, end_ns), first))
    return replace(looks, begin_ns=begin_ns, time_ns=looks.time_ns[rows], stack=looks.stack[rows])


def lines_of_stacks(stacks: StackRecords) -> LineRecords:
    """Find the line of the user's own that the thread was in, sample by sample."""
    files: dict[str, int] = {}
    innermost: list[tuple[int, int]] = []
    for stack in stacks.stacks:
        frames = (stacks.frames[frame] for frame in reversed(stack))
        place = next(((file, line) for _, file, _, line in frames if is_user_file(file)), None)
        at = (-1, LEFT) if place is None else (files.setdefault(place[0], len(files)), place[1])
        innermost.append(at)
    lines = LineRecords(files=list(files), is_sampled=True)
    lines.time_ns.extend(stacks.time_ns)
    lines.code.extend(innermost[stack][0] for stack in stacks.stack)
    lines.line.extend(innermost[stack][1] for stack in stacks.stack)
    return lines
