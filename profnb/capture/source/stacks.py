"""Running Python to samples of one thread's stack: a sampling profiler of a thread of its own.

A sample a millisecond, taken by another thread, costs the same whatever the code does, gives whole stacks,
and leaves the interpreter's one profile hook to the user's own profiler. Measured with TensorFlow 2.21 on
two cores, it slows eager loops and a ``fit`` of tiny batches by 1 to 5 % (8 % where ops take 15 us); the
standard library's cProfile slows them by 52 and 76 %, all of it in Python, which is then no longer in
proportion.

The other thread needs the interpreter's lock. TensorFlow gives it away while it works, plain Python only
when asked to and by default after 5 ms: then callbacks of up to 3 ms were never met, though they took 87 %
of the time. So the interpreter is told to give way sooner while samples are taken
(``sys.setswitchinterval``): with 50 us, callbacks of 0.2, 1 and 3 ms are found with 36, 71 and 84 % of the
time where they take 33, 71 and 87 %. What passed since the sample before is counted as the sample's.
"""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, chain, compress, repeat, starmap, takewhile
from operator import attrgetter, is_not, methodcaller
from types import CodeType, FrameType
from typing import Any, TypeVar

from profnb.capture.seams import CURRENT_FRAMES, SET_SWITCH_INTERVAL
from profnb.capture.source.source_records import LEFT, LineRecords, StackRecords
from profnb.capture.source.user_code import is_own_file, is_user_file

__all__ = ["StackSampler", "frames_of", "line_at", "lines_of_stacks"]

_PERIOD_S = 0.001
_SWITCH_S = 0.00005
_DEEPEST = 250
_T = TypeVar("_T")
_MOST_SAMPLES = 500_000


class StackSampler:
    """Samples the stack of the thread that calls ``start``, until ``stop``."""

    def __init__(self) -> None:
        """Nothing is sampled yet."""
        self._records = StackRecords()
        self._stacks: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        self._stopping = threading.Event()
        self._sampler: threading.Thread | None = None
        self._switch_s = 0.0
        self._frames_now: Any = None

    def start(self) -> None:
        """Begin."""
        self._frames_now, switch = CURRENT_FRAMES.find(), SET_SWITCH_INTERVAL.find()
        if self._frames_now is None:
            return
        if switch is not None:
            self._switch_s = sys.getswitchinterval()
            switch(min(self._switch_s, _SWITCH_S))
        self._sampler = threading.Thread(
            target=self._sample, args=(threading.get_ident(),), name="profnb", daemon=True
        )
        self._sampler.start()

    def _sample(self, thread: int) -> None:
        records, stacks, codes = self._records, self._stacks, self._codes
        stopping, sleep, clock = self._stopping, time.sleep, time.perf_counter_ns
        read = attrgetter("f_code", "f_lasti")
        records.begin_ns = clock()
        while not stopping.is_set():
            sleep(_PERIOD_S)
            frames = frames_of(thread, self._frames_now)
            now = clock()
            key: list[int] = []
            for code, offset in list(map(read, frames)):
                codes[id(code)] = code
                key += id(code), offset
            frames.clear()  # they keep what is bound in them
            records.time_ns.append(now)
            records.stack.append(stacks.setdefault(tuple(key), len(stacks)))
            if len(records) >= _MOST_SAMPLES:
                break

    def stop(self) -> StackRecords:
        """End; no reference to code is kept."""
        if self._sampler is not None:
            self._stopping.set()
            self._sampler.join()
            self._sampler = None
            if self._switch_s:
                sys.setswitchinterval(self._switch_s)
            self._name_frames()
        return self._records

    def _name_frames(self) -> None:
        frames: dict[tuple[int, int], int] = {}
        for key in self._stacks:
            row = []
            for at in range(len(key) - 2, -1, -2):
                code, offset = key[at : at + 2]
                if is_own_file(self._codes[code].co_filename):
                    continue
                place = code, line_at(self._codes[code], offset)
                number = frames.setdefault(place, len(frames))
                if number == len(self._records.frames):
                    running = self._codes[code]
                    name = getattr(running, "co_qualname", running.co_name)
                    frame = name, running.co_filename, running.co_firstlineno, place[1]
                    self._records.frames.append(frame)
                row.append(number)
            self._records.stacks.append(tuple(row))
        self._stacks.clear()
        self._codes.clear()


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
    stack = accumulate(chain(innermost, repeat("f_back", _DEEPEST - 1)), getattr)
    walk = takewhile(partial(is_not, None), stack)  # the outermost has no f_back
    return [frame for frame in list(chain(off, walk, on)) if frame is not None]


def _calls(function: Callable[[], _T]) -> Iterator[_T]:
    """What a function gives back, called when asked for."""
    return starmap(function, [()])


def line_at(code: CodeType, offset: int) -> int:
    """The line of an instruction."""
    for first, last, line in code.co_lines():
        if first <= offset < last:
            return line or code.co_firstlineno
    return code.co_firstlineno


def lines_of_stacks(stacks: StackRecords) -> LineRecords:
    """Which line of the user's own the thread was in, sample by sample."""
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
