"""A trace to what its picture is made from: lanes that its events stand in, what they are called, tracks.

Lines stand one below the other, one lane per depth of nesting, in the order a person reads them: device
streams first, then the thread that runs the steps, then the rest by busy time. Inside a line an event
stands one lane below its parent, or further down where something that it only partly overlaps still holds
the lane, so that events of one lane never overlap and stand in time order.

Lines are called in words that a person knows where the recorder wrote those of a thread pool. The
recorder's own name of a thread or a stream stays what is shown when a lane is pointed at.

Tracks stand below the lanes: memory, buffers, whatever a trace counts. A long series is thinned so that every
peak and every low stays: of each stretch of samples the first, the least, the most and the last.

Source: the names in traces of TensorFlow 2.2 to 2.21 and JAX.
"""

import re
from collections import Counter as Tally
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from profnb.core.columns import Floats, Int32s, Int64s
from profnb.core.jit import tiered
from profnb.steps.streams import raw_device_lines
from profnb.steps.windows import Steps
from profnb.subjects.memory.allocators import other_counters, sample_memory
from profnb.subjects.study import Study
from profnb.trace.model import Counter, Trace

_MOST_LANES_OF_A_LINE = 128
_EARLIEST = np.int64(np.iinfo(np.int64).min)
_MOST_THREADS_DRAWN = 400  # no real host shows more; a hostile file may claim a million
_LONGEST_THREAD = 300
_NUMBERED_THREAD = re.compile(r"(.+?)/-?\d+$")
_STREAM = re.compile(r"Stream #(\d+)\((\w+(?:,\w+)*)\)$")
_PYTHON_THREAD = re.compile(r"python[\d.]*$")
_POOLS = {
    "tf_Compute": "TensorFlow worker",
    "tf_data_private_threadpool": "tf.data worker",
    "tf_data_iterator_resource": "tf.data background",
    "tf_data_iterator_get_next": "tf.data next element",
    "tf_pjrt_thread_pool": "PjRt worker",
    "py_xla_execute": "XLA launcher",
    "tf_GPU_Event_Manager": "GPU event manager",
}
_EIGEN = re.compile(r"tf_numa_-?\d+_Eigen$")
_GPU_PRIVATE = re.compile(r"tf_gpu_private_\d+$")  # TF_GPU_THREAD_MODE=gpu_private
_OF_STREAMS = {
    "Compute": "compute",
    "Kernel": "compute",
    "MemcpyH2D": "copies in",
    "MemcpyD2H": "copies out",
    "MemcpyD2D": "copies inside",
    "MemcpyP2P": "copies to devices",
}
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
    queues = [Counter(_QUEUE, q.record.name, "", q.time_ps, q.held) for q in study.input.queues]
    recorded = other_counters(study.trace, allocators)
    recorded.sort(key=lambda c: not c.series.startswith(("GPU", "TPU")))  # else as recorded
    counters = [*memory, *study.input.buffers, *queues, *recorded]
    counters = [counter for counter in counters if counter.name != _RESERVED]
    labels = [_label_of(counter) for counter in counters]
    unique = [label if labels.count(label) == 1 else "" for label in labels]
    tracks = map(_track_of, counters, unique)
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
    is_held = counter.unit == "bytes"
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
    time_ps, value = track.time_ps[rows], track.value[rows]
    return replace(track, time_ps=time_ps, value=value, left_out=inside - rows.size)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The place of each event.

    Attributes:
        lines: The G lines that are shown, in reading order, as indices into ``Trace.lines``: those
            that have events, up to 400.
        first_lane: Line g owns lanes ``first_lane[g]:first_lane[g + 1]``, shape (G + 1,).
        lane: The lane of each event, shape (E,); -1 on a line that is not shown.
        parent: Index of each event's parent on its line, or -1, shape (E,).
        busy_ps: Time during which anything runs on the line, shape (G,).
        steps_line: Position in ``lines`` of the thread that runs the steps, or -1.
    """

    lines: Int64s
    first_lane: Int64s
    lane: Int32s
    parent: Int32s
    busy_ps: Int64s
    steps_line: int


@tiered
def _stack(
    begin: Int64s, end: Int64s, offsets: Int64s, parent: Int32s, held_until: Int64s, depth: Int32s,
    depths: Int64s, busy: Int64s,
) -> None:  # fmt: skip
    """Depth of each event, lanes and busy time of each line; the last lane takes what is deeper."""
    most = held_until.size
    for line in range(offsets.size - 1):
        used = 0
        covered_until = _EARLIEST
        for event in range(offsets[line], offsets[line + 1]):
            lane = depth[parent[event]] + 1 if parent[event] >= 0 else 0
            while lane < used and lane < most - 1 and held_until[lane] > begin[event]:
                lane += 1
            if lane >= most:
                lane = most - 1
            while used <= lane:
                held_until[used] = _EARLIEST
                used += 1
            depth[event] = lane
            if end[event] > held_until[lane]:
                held_until[lane] = end[event]
            if end[event] > covered_until:
                start = begin[event]
                if covered_until > start:
                    start = covered_until
                busy[line] += end[event] - start
                covered_until = end[event]
        depths[line] = used


def lay_out_lanes(trace: Trace, steps: Steps, parent: Int32s) -> Lanes:
    """Find the lane of every event.

    Args:
        trace: The trace.
        steps: Its steps; the line that holds most of their roots comes right after the devices.
        parent: Index of each event's parent on its line, or -1, shape (E,).
    """
    events, offsets = trace.events, trace.lines.offsets
    depth = np.zeros(len(events), np.int32)
    depths, busy = np.zeros(len(trace.lines), np.int64), np.zeros(len(trace.lines), np.int64)
    held_until = np.empty(_MOST_LANES_OF_A_LINE, np.int64)
    _stack(events.begin_ps, events.end_ps, offsets, parent, held_until, depth, depths, busy)
    of_steps = -1
    rank = np.where(raw_device_lines(trace), 0, np.where(trace.is_device_line, 1, 3))
    if steps.roots.size:
        of_steps = int(np.bincount(trace.lines.of_event[steps.roots]).argmax())
        rank[of_steps] = min(rank[of_steps], 2)
    order = np.lexsort((-busy, rank))
    # Streams and cores keep the recorder's order; busy time would shuffle them from run to run.
    on_device = np.sort(order[rank[order] < 2])
    order[: on_device.size] = on_device[np.argsort(rank[on_device], kind="stable")]
    if len(trace.hostnames) > 1:  # of several hosts: whoever joined them put them in order
        order = np.arange(busy.size)
    lines = order[np.diff(offsets)[order] > 0][:_MOST_THREADS_DRAWN]
    first_lane = np.append(0, np.cumsum(depths[lines]))
    line_lane = np.full(len(trace.lines), -1, np.int64)
    line_lane[lines] = first_lane[:-1]
    first = line_lane[trace.lines.of_event]
    return Lanes(
        lines=lines,
        first_lane=first_lane,
        lane=np.where(first >= 0, first + depth, -1).astype(np.int32),
        parent=parent,
        busy_ps=busy[lines],
        steps_line=int(np.append(np.flatnonzero(lines == of_steps), -1)[0]),
    )


def busy_in_bins(trace: Trace, lanes: Lanes, position: int, edges_ps: Int64s) -> Floats:
    """Measure how busy a line is in each of B stretches of time.

    Args:
        trace: The trace.
        lanes: Its lanes.
        position: Which of ``lanes.lines``.
        edges_ps: B + 1 ascending times.

    Returns:
        Busy fraction of each stretch in 0..1, shape (B,).
    """
    line = lanes.lines[position]
    on_line = slice(trace.lines.offsets[line], trace.lines.offsets[line + 1])
    outer = np.flatnonzero(lanes.parent[on_line] < 0) + on_line.start
    begin, end = trace.events.begin_ps[outer], np.maximum.accumulate(trace.events.end_ps[outer])
    begin = np.maximum(begin, np.concatenate([begin[:1], end[:-1]]))  # partial overlaps count once
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(end - begin, 0))])
    ended = np.searchsorted(end, edges_ps, side="right")
    running = np.minimum(ended, max(begin.size - 1, 0))
    partial = np.clip(edges_ps - begin[running], 0, end[running] - begin[running])
    busy = before[ended] + np.where(ended < begin.size, partial, 0)
    widths = np.maximum(np.diff(edges_ps), 1)
    return np.asarray(np.clip(np.diff(busy) / widths, 0.0, 1.0), np.float64)


class Scene:
    """A study with its lanes and tracks, which are laid out once.

    Attributes:
        study: The trace and what is worked out from it.
    """

    def __init__(self, study: Study) -> None:
        """Nothing is laid out yet."""
        self.study = study.recorded

    @cached_property
    def lanes(self) -> Lanes:
        """The place of each event."""
        return lay_out_lanes(self.study.trace, self.study.steps, self.study.parent)

    def recorded_name(self, line: int) -> str:
        """A thread's or a stream's own name."""
        lines = self.study.trace.lines
        return (lines.names[line] or f"thread {lines.ids[line]}")[:_LONGEST_THREAD]

    @cached_property
    def names(self) -> list[str]:
        """The words for each of the G lines that are shown; a pool's threads are numbered in order."""
        trace, lanes = self.study.trace, self.lanes
        planes_of_kind = Tally(plane.is_host for plane in trace.planes)
        entries: list[tuple[str, bool]] = []
        for position, line in enumerate(lanes.lines.tolist()):
            plane = trace.planes[trace.lines.plane[line]]
            runs_steps = position == lanes.steps_line
            name, is_numbered = _known_name(self.recorded_name(line), runs_steps=runs_steps)
            if not plane.is_host or planes_of_kind[True] > 1:
                name = f"{_short_plane(plane.name)} {name}".strip()
            entries.append((name[:_LONGEST_THREAD], is_numbered))
        sizes, numbers = Tally(entries), Tally[str]()
        names = []
        for name, is_numbered in entries:
            is_one_of_several = is_numbered and sizes[name, is_numbered] > 1
            numbers[name] += is_one_of_several
            names.append(f"{name} {numbers[name]}" if is_one_of_several else name)
        return names

    @cached_property
    def derived(self) -> list[str]:
        """The device whose work each of the G lines only repeats in other words; "" for all others."""
        trace, raw = self.study.trace, raw_device_lines(self.study.trace)
        return [
            _short_plane(trace.planes[trace.lines.plane[line]].name)[:_LONGEST_THREAD]
            if trace.is_device_line[line] and not raw[line]
            else ""
            for line in self.lanes.lines.tolist()
        ]

    @cached_property
    def tracks(self) -> list[Track]:
        """The quantities that were sampled."""
        return find_tracks(self.study)


def _short_plane(name: str) -> str:
    return name.removeprefix("/device:").rpartition("/")[2]


def _known_name(name: str, *, runs_steps: bool) -> tuple[str, bool]:
    """Find the words for a thread or stream, and tell whether several of the kind are to be numbered."""
    stream = _STREAM.match(name)
    if stream:
        kinds = dict.fromkeys(_OF_STREAMS.get(kind, kind) for kind in stream[2].split(","))
        words = "compute" if "compute" in kinds else ", ".join(kinds)
        return f"{words} #{stream[1]}", False
    if _PYTHON_THREAD.match(name):
        return ("Python (steps)" if runs_steps else "Python"), not runs_steps
    thread = _NUMBERED_THREAD.match(name)
    if not thread:
        return name, False
    pool = _POOLS.get(thread[1], thread[1])
    for pattern, words in ((_EIGEN, "intra-op worker"), (_GPU_PRIVATE, "gpu_private worker")):
        pool = words if pattern.match(pool) else pool
    return pool, True
