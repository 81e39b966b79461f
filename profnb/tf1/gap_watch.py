"""Session runs to what Python did between them: which statements, and whether they made what is fed.

A thread of its own samples the stack of the one that runs the session, every 5 ms and only between two runs;
so the samples say what TensorFlow waited for, on any version of Python, and cost a thousandth. A gap's time
is divided among its samples; what lies after the last run is no gap. Pauses (ten times the median, and more
than 100 ms) are left out, as everywhere.

Of the arrays that are fed it is told whether they were made for the run. One that was fed before is not, nor
is a part of one, nor one that still lives three runs later: it was made beforehand, and is kept. Of several
those count that hold most of the bytes (labels are often a part of an array that is kept).
"""

import contextlib
import inspect
import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from profnb.capture.seams import CURRENT_FRAMES
from profnb.capture.session_records import RUN_ITSELF, GapRecords
from profnb.capture.source.kept_source import shorten_files
from profnb.capture.source.stacks import frames_of
from profnb.capture.source.user_code import is_user_file, number_cells
from profnb.tf1.gap_roles import Stack, tell_roles

__all__ = ["GapWatch", "shorten_gaps"]

_PERIOD_S = 0.005
_MOST_SAMPLES, _MOST_CALLS, _MOST_LOOKED_AT = 20_000, 32, 256
_DEEPEST = 60
_RUNS_LATER = 3
_FAR_LONGER, _SHORTEST_PAUSE_NS = 10, 100_000_000
_Key = tuple[tuple[int, int], ...]


class GapWatch:
    """Watches the gaps between the session runs of the thread that calls it.

    Attributes:
        records: What was found; complete after ``finish``.
    """

    def __init__(self) -> None:
        """Nothing has run yet."""
        self.records = GapRecords()
        self._codes: dict[int, CodeType] = {}
        self._calls: dict[_Key, None] = {}
        self._gap_began_ns = 0  # 0 while a run is on
        self._samples: list[tuple[int, _Key]] = []  # of this gap
        self._gaps: list[tuple[int, dict[_Key, int], int]] = []
        self._roots: dict[int, weakref.ref[Any]] = {}
        self._waiting: deque[tuple[int, list[tuple[weakref.ref[Any], int]], int]] = deque()
        self._stopping = threading.Event()
        self._sampler: threading.Thread | None = None
        self._has_stopped = False

    def run_begins(self, feed_dict: object) -> None:
        """A run begins, on this thread; the gap before it ends."""
        now = time.perf_counter_ns()
        began, self._gap_began_ns = self._gap_began_ns, 0
        records = self.records
        records.runs += 1
        if began and len(self._gaps) < _MOST_SAMPLES:
            self._gaps.append(self._divide(began, now))
        if records.runs <= _MOST_LOOKED_AT:
            self._look_at(feed_dict)
            if len(self._calls) < _MOST_CALLS:
                frames = _frames_above()
                self._calls[self._key_of(frames)] = None
                frames.clear()

    def run_ended(self) -> None:
        """The run ended; a gap begins."""
        self._samples = []
        self._gap_began_ns = time.perf_counter_ns()
        if self._sampler is None and not self._has_stopped:
            self._start()

    def _start(self) -> None:
        frames_now = CURRENT_FRAMES.find()
        self._has_stopped = frames_now is None
        if frames_now is not None:
            self._sampler = threading.Thread(
                target=self._sample,
                args=(threading.get_ident(), frames_now),
                name="profnb",
                daemon=True,
            )
            self._sampler.start()

    def _sample(self, thread: int, frames_now: Any) -> None:
        taken = 0
        while taken < _MOST_SAMPLES and not self._stopping.wait(_PERIOD_S):
            began = self._gap_began_ns
            if not began:
                continue
            frames = frames_of(thread, frames_now)
            key = self._key_of(frames)
            frames.clear()  # they keep what is bound in them
            now = time.perf_counter_ns()
            if self._gap_began_ns == began:
                self._samples.append((now, key))
                taken += 1

    def _key_of(self, frames: list[FrameType]) -> _Key:
        """The frames from the user's outermost one on, the outermost first."""
        frame_keys: list[tuple[int, int]] = []
        depth = 0
        for at, frame in enumerate(frames):
            code = frame.f_code
            self._codes[id(code)] = code
            frame_keys.append((id(code), frame.f_lasti))
            if is_user_file(code.co_filename):
                depth = at + 1
        return tuple(reversed(frame_keys[:depth]))

    def _divide(self, began: int, ended: int) -> tuple[int, dict[_Key, int], int]:
        """A gap's time among its samples: each has what passed since the one before, the last the rest."""
        samples, shares, at = self._samples, dict[_Key, int](), began
        for row, (now, key) in enumerate(samples):
            until = ended if row == len(samples) - 1 else min(now, ended)
            shares[key] = shares.get(key, 0) + max(until - at, 0)
            at = max(until, at)
        return ended - began, shares, len(samples)

    # What is fed.

    def _look_at(self, feed_dict: object) -> None:
        arrays = [
            value
            for value in (feed_dict.values() if isinstance(feed_dict, Mapping) else ())
            if _is_array(value) and value.size > 1
        ]
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
        for root, size in [sized_root for sized_root in roots if not self._was_fed(sized_root[0])]:
            with contextlib.suppress(TypeError):  # a class that cannot be referred to so
                self._roots[id(root)] = weakref.ref(root)
                first_fed.append((self._roots[id(root)], size))
        self._waiting.append((records.runs, first_fed, sum(size for _, size in roots)))

    def _was_fed(self, root: object) -> bool:
        reference = self._roots.get(id(root))
        return reference is not None and reference() is root

    def finish(self) -> GapRecords:
        """End; no reference to code or arrays is kept."""
        if self._sampler is not None:
            self._stopping.set()
            self._sampler.join()
            self._sampler = None
        self._has_stopped, self._gap_began_ns = True, 0
        gaps, self._gaps = self._gaps, []
        if gaps:
            usual = statistics.median(took for took, *_ in gaps)
            limit = max(usual * _FAR_LONGER, _SHORTEST_PAUSE_NS)
            gaps = [gap for gap in gaps if gap[0] <= limit]
            self._keep(gaps)
        self._codes.clear()
        self._calls.clear()
        self._roots.clear()
        self._waiting.clear()
        return self.records

    def _keep(self, gaps: list[tuple[int, dict[_Key, int], int]]) -> None:
        records = self.records
        records.gaps, records.gap_ns = len(gaps), sum(took for took, *_ in gaps)
        records.samples = sum(count for *_, count in gaps)
        sums: dict[_Key, int] = {}
        for _, shares, _ in gaps:
            for key, took in shares.items():
                sums[key] = sums.get(key, 0) + took
        seen = sum(sums.values())
        if seen:  # gaps between two samples stand for those that were met
            scale = records.gap_ns / seen
            stacks = {self._stack_of(key): took for key, took in sums.items()}
            calls = [self._stack_of(call) for call in self._calls if call]
            records.places = tell_roles(calls, stacks, scale)

    def _stack_of(self, key: _Key) -> Stack:
        return tuple((self._codes[code], offset) for code, offset in key)


def shorten_gaps(records: GapRecords, *, has_source: bool) -> GapRecords:
    """The same records with files by their short names, and without the code's texts where not asked for."""
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


def _frames_above() -> list[FrameType]:
    """The frames of this thread above the watch's own, the innermost first.

    A frame in a list that is bound in it would live on, with all that is fed, until it is collected.
    """
    frames: list[FrameType] = []
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_array(value: object) -> Any:
    """Whether it is an array of NumPy's, or one that says of itself what one does."""
    return hasattr(value, "nbytes") and hasattr(value, "size") and hasattr(value, "dtype")


def _root_of(array: Any) -> Any:
    """The array whose memory it is."""
    while _is_array(getattr(array, "base", None)):
        array = array.base
    return array
