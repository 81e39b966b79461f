"""Sampled quantities to the tracks below the lanes: memory, buffers, whatever a trace counts.

A long series is thinned so that every peak and every low stays: of each stretch of samples the
first, the least, the most and the last.
"""

from dataclasses import dataclass, replace

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.subjects.memory.allocators import sample_memory
from profnb.subjects.study import Study
from profnb.trace.model import Counter

_MEMORY_TRACK, _RESERVED, _BUFFER = "memory", "reserved memory", "buffered elements"
_QUEUE = "queued elements"
_TRACK_TITLES = {_MEMORY_TRACK: "memory in use"}
_MOST_TRACKS = 24


@dataclass(frozen=True, slots=True)
class Track:
    """One quantity over time.

    Attributes:
        label: What is counted and of what, in few characters.
        title: The same in full.
        unit: "bytes", another unit, or "" for a plain number.
        time_ps: When, ascending, shape (N,).
        value: How much, finite, shape (N,).
        is_held: Whether the last value holds until the trace ends, as an allocator's does.
        left_out: How many samples were thinned out.
    """

    label: str
    title: str
    unit: str
    time_ps: Int64s
    value: Floats
    is_held: bool
    left_out: int = 0

    def __len__(self) -> int:
        return self.time_ps.size


def find_tracks(study: Study) -> list[Track]:
    """Devices' memory first, then buffers and queues, then other counters; up to 24."""
    allocators = sorted(study.memory.allocators, key=lambda a: not a.is_device)
    memory = sample_memory(study.trace, allocators)
    queues = [
        Counter(_QUEUE, queue.record.name, "", queue.time_ps, queue.held)
        for queue in study.input.queues
    ]
    recorded = [c for c in study.trace.counters if not (memory and c.unit == "bytes")]
    recorded.sort(key=lambda c: not c.series.startswith(("GPU", "TPU")))  # else as recorded
    counters = [*memory, *study.input.buffers, *queues, *recorded]
    counters = [counter for counter in counters if counter.name != _RESERVED]
    labels = [_label_of(counter) for counter in counters]
    tracks = [
        _track_of(counter, label if labels.count(label) == 1 else "")
        for counter, label in zip(counters, labels, strict=True)
    ]
    return [track for track in tracks if len(track)][:_MOST_TRACKS]


def _label_of(counter: Counter) -> str:
    if counter.name == _MEMORY_TRACK:
        return f"{counter.series} memory"
    if counter.name == _BUFFER:
        return f"{counter.series.rpartition('::')[2]} buffer"
    return f"{counter.series} {counter.name}".strip()


def _track_of(counter: Counter, label: str) -> Track:
    is_known = np.isfinite(counter.value)
    time_ps, value = counter.time_ps[is_known], counter.value[is_known]
    order = np.argsort(time_ps, kind="stable")
    title = f"{counter.series} {_TRACK_TITLES.get(counter.name, counter.name)}".strip()
    is_held = counter.name == _MEMORY_TRACK
    return Track(label or title, title, counter.unit, time_ps[order], value[order], is_held)


def thin_track(track: Track, most: int, window_ps: tuple[int, int] | None = None) -> Track:
    """The samples of a window, and the one before it, thinned to about so many."""
    rows = np.arange(len(track))
    if window_ps is not None:
        first = int(np.searchsorted(track.time_ps, window_ps[0], side="right")) - 1
        last = int(np.searchsorted(track.time_ps, window_ps[1], side="left")) + 1
        rows = rows[max(first, 0) : last]
    inside = rows.size
    if inside > most:
        starts = np.linspace(0, inside, max(most // 4, 1), endpoint=False).astype(np.int64)
        part = np.searchsorted(starts, np.arange(inside), side="right") - 1
        by_value = np.lexsort((track.value[rows], part))
        ends = np.append(starts[1:], inside) - 1
        chosen = np.concatenate([starts, by_value[starts], by_value[ends], ends])
        rows = rows[np.unique(chosen)]
    return replace(
        track, time_ps=track.time_ps[rows], value=track.value[rows], left_out=inside - rows.size
    )
