"""Events to marks, and those to the bytes that the browser draws: gzip of a header and columns of numbers.

A timeline of a million events cannot show them all at once, and a saved notebook cannot hold them. Events
shorter than the resolution that follow one another closely inside the same longer one become a block that
says how many they are; nothing is left out. The resolution is the finest at which the marks fit a number.

The layout, after decompression: the header's length (uint32, little-endian), the header (JSON,
UTF-8), then the columns that the header counts. A column of N numbers below 2**32 is stored as up to
four runs of N bytes, lowest bytes first: neighbours are alike, so that gzip finds more to save (2.7
bytes per event of a real trace). How many runs is in the header's ``widths``: no more than the largest
number needs, so that a browser unpacks less. Times are in units of ``unit_ps`` since ``begin_ps``.

In order: the first mark of each lane (L + 1), then for each of M marks: begin after the previous
mark's in its lane, duration, busy time (0: all of it), time in children, occurrences, name, step + 1,
category; then for each of F flows the launching mark and the launched mark; then for each track
of sampled values the time after the sample before it, and the value as (value - least) / scale.
"""

import gzip
import json
import re
import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Int32s, Int64s, RowColumns
from profnb.core.jit import tiered
from profnb.drawing.theme import colour_of
from profnb.steps.activities import CATEGORIES
from profnb.steps.streams import find_launches
from profnb.subjects.study import Study
from profnb.timeline.scene import Lanes, Scene, thin_track
from profnb.trace.model import Trace
from profnb.trace.names import STEPS_LINE

# A block spans at most this many resolutions, so that zooming in still shows where time went.
_BLOCK_SPAN = 8
# How often to halve the distance to a resolution that is too fine: to an eighth is fine enough.
_REFINEMENTS = 3
_LANE, _BEGIN, _END, _BUSY, _OCCURRENCES, _EVENT = range(6)  # the first columns of Marks


@dataclass(frozen=True, slots=True)
class Marks(RowColumns):
    """M marks, lane after lane, in time order inside a lane.

    Attributes:
        lane: The lane, shape (M,), ascending.
        begin_ps: Begins, shape (M,).
        end_ps: Ends, shape (M,).
        busy_ps: Sum of the durations of the events in it, shape (M,).
        occurrences: How many events it stands for, shape (M,); 1 for an event of its own.
        event: The event, or the longest of a block, shape (M,).
        mark_of_event: The mark of each event of the trace, or -1 outside the window, shape (E,).
        resolution_ps: Shorter events may be in blocks; 0 where every event has its own mark.
    """

    lane: Int64s
    begin_ps: Int64s
    end_ps: Int64s
    busy_ps: Int64s
    occurrences: Int64s
    event: Int64s
    mark_of_event: Int64s
    resolution_ps: int

    @property
    def merged_events(self) -> int:
        """Count the events that stand in blocks."""
        return int(self.occurrences[self.occurrences > 1].sum())


@tiered
def _merge(
    begin: Int64s, end: Int64s, offsets: Int64s, parent: Int32s, lanes: Int32s,
    resolution: int, window_begin: int, window_end: int, mark_of_event: Int64s, block: Int64s,
    around: Int64s, marked: Int64s,
) -> int:  # fmt: skip
    """Fill the marks in the order of the events; returns how many, or -1 when there is no room.

    At a resolution of 10, events [0, 4), [6, 9), [30, 60) and [62, 65) of one lane become three marks: the
    first two are short and 2 apart, so they are one block [0, 9) that is busy for 7; [30, 60) is long and
    has its own mark; [62, 65) is short, but a block does not reach across a long event.

    ``block`` is the open block of each lane, ``around`` the nearest event around each that is long enough to
    have a mark of its own; both come filled with -1. ``marked`` has a row for each of the first columns of
    ``Marks``, and room for as many marks as there may be.
    """
    mark_count = 0
    for line in range(offsets.size - 1):
        for event in range(offsets[line], offsets[line + 1]):
            lane = lanes[event]
            if lane < 0 or begin[event] >= window_end or end[event] < window_begin:
                continue
            owner = parent[event]
            if owner >= 0:
                is_long = end[owner] - begin[owner] >= resolution
                around[event] = owner if is_long else around[owner]
            duration = end[event] - begin[event]
            is_short = duration < resolution
            mark = block[lane]
            if is_short and mark >= 0:
                longest = marked[_EVENT, mark]
                joins = (
                    begin[event] - marked[_END, mark] < resolution
                    and (end[event] - marked[_BEGIN, mark]) // _BLOCK_SPAN <= resolution
                    and around[longest] == around[event]
                )
                if joins:
                    mark_of_event[event] = mark
                    if end[event] > marked[_END, mark]:
                        marked[_END, mark] = end[event]
                    marked[_BUSY, mark] += duration
                    marked[_OCCURRENCES, mark] += 1
                    if duration > end[longest] - begin[longest]:
                        marked[_EVENT, mark] = event
                    continue
            if mark_count == marked.shape[1]:
                return -1
            mark_of_event[event] = mark_count
            marked[_LANE, mark_count], marked[_EVENT, mark_count] = lane, event
            marked[_BEGIN, mark_count], marked[_END, mark_count] = begin[event], end[event]
            marked[_BUSY, mark_count], marked[_OCCURRENCES, mark_count] = duration, 1
            block[lane] = mark_count if is_short else -1
            mark_count += 1
    return mark_count


def merge_events(
    trace: Trace, lanes: Lanes, resolution_ps: int, most: int,
    window_ps: tuple[int, int] | None = None,
) -> Marks | None:  # fmt: skip
    """Turn the events of a window into marks.

    Args:
        trace: The trace.
        lanes: Where its events stand.
        resolution_ps: Shorter events may merge; 0 merges none.
        most: How many marks there may be.
        window_ps: Only events that touch [begin, end); everything by default.

    Returns:
        The marks, or None if there would be more than ``most``.
    """
    events = trace.events
    window = window_ps or (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
    marked = np.empty((_EVENT + 1, min(most, len(events))), np.int64)
    mark_of_event = np.full(len(events), -1, np.int64)
    count = _merge(
        events.begin_ps, events.end_ps, trace.lines.offsets, lanes.parent, lanes.lane,
        resolution_ps, *window, mark_of_event, np.full(int(lanes.first_lane[-1]), -1, np.int64),
        np.full(len(events), -1, np.int64), marked,
    )  # fmt: skip
    if count < 0:
        return None
    order = np.argsort(marked[_LANE, :count], kind="stable")
    rank = np.full(count + 1, -1, np.int64)  # of each mark by lane; the last is for no mark
    rank[order] = np.arange(count)
    lane, begin, end, busy, occurrences, event = marked[:, order]
    return Marks(lane, begin, end, busy, occurrences, event, rank[mark_of_event], resolution_ps)


def pick_marks(
    trace: Trace, lanes: Lanes, most: int, window_ps: tuple[int, int] | None = None
) -> Marks:
    """Find the finest marks of a window that number at most ``most``, or one per lane if that is more."""
    most = max(most, int(lanes.first_lane[-1]))
    marks = merge_events(trace, lanes, 0, most, window_ps)
    if marks is not None:
        return marks
    duration = trace.events.duration_ps
    if window_ps is not None:
        begin, end = window_ps
        duration = duration[(trace.events.begin_ps < end) & (trace.events.end_ps >= begin)]
    # Half of the room for events of their own is a first guess that is seldom far off.
    rank = max(duration.size - most // 2, 0)
    resolution = max(int(np.partition(duration, rank)[rank]), 1)
    too_fine = 0
    # At the latest when everything in a lane is one block there are few enough.
    while (marks := merge_events(trace, lanes, resolution, most, window_ps)) is None:
        too_fine, resolution = resolution, 2 * resolution
    for _ in range(_REFINEMENTS):
        middle = (too_fine + resolution) // 2
        finer = merge_events(trace, lanes, middle, most, window_ps)
        if finer is None:
            too_fine = middle
        else:
            marks, resolution = finer, middle
    return marks


_OPENS_ON = 3  # steps
_LONGEST_EVENT_NAME = 300
_LONGEST_DETAIL = 600
_LARGEST_WORD = (1 << 32) - 1
_MOST_STEPS = 20_000
_MOST_FLOWS = 200_000
_MOST_HIDDEN_NAMES = 5_000
_FEWEST_SAMPLES, _MARKS_PER_SAMPLE = 400, 80  # of each track
# Stats that link events to each other; they tell a person nothing.
_INTERNAL = frozenset({"correlation_id", "group_id", "profnb_marker", "producer_id", "consumer_id"})
# Kineto names a Python frame ``torch/nn/modules/module.py(1779): _call_impl``; TensorFlow and JAX write
# ``$pjit.py:120 cache_miss``, without the folder: a framework's only where no user would call a file so.
_FRAME = re.compile(
    r"\$?(?P<folders>(?:[^/(]*/)*)(?P<file>[\w<>.-]+?)(?:\.py)?(?:\(\d+\): |:\d+ | )"
)
_FRAMEWORKS = {
    "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "flax", "optax", "torch", "torchvision", "lightning",
    "transformers", "accelerate", "IPython", "ipykernel", "tornado", "traitlets", "numpy", "tqdm", "absl",
}  # fmt: skip
# Files that pass a call on, in TensorFlow, Keras and JAX.
_WRAPPERS = {
    "traceback_utils", "tf_method_target", "polymorphic_function", "tracing_compilation", "atomic_function",
    "concrete_function", "def_function", "pjit", "pxla", "tree_util", "xla_bridge", "sharding_impls",
    "named_sharding", "api_util", "linear_util", "partial_eval", "interpreters", "custom_derivatives",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedTimeline:
    """One window of a trace, as a browser needs it to draw.

    Attributes:
        data: The bytes described in this module's docstring.
        marks: How many marks it holds.
        merged_events: How many events of the trace stand in blocks.
        resolution_ps: Events shorter than this may stand in blocks.
        left_out_events: Events on lines beyond the most that are shown.
    """

    data: bytes
    marks: int
    merged_events: int
    resolution_ps: int
    left_out_events: int


def event_details(scene: Scene, event: int) -> str:
    """Write the stats of an event as lines of ``name: value``, for a person to read."""
    lines = [
        f"{name}: {value}"[:_LONGEST_DETAIL]
        for name, value in scene.study.trace.stats.of_event(event).items()
        if not (name.startswith("_") or name in _INTERNAL or isinstance(value, bytes))
    ]
    return "\n".join(lines)[: 4 * _LONGEST_DETAIL]


def _shuffled(column: npt.NDArray[np.integer[Any]]) -> tuple[int, bytes]:
    """Split a column of numbers below 2**32 into runs of bytes: how many it needs, and the runs."""
    width = -(-int(column.max(initial=0)).bit_length() // 8)
    return width, column.astype("<u4").view(np.uint8).reshape(-1, 4).T[:width].tobytes()


def _name_rows(scene: Scene, marks: Marks) -> Int64s:
    """For each mark the row of ``Trace.names``; on a device's own line of steps, past them, the step.

    That line counts from 1 in each capture; the ruler has the numbers that the program gave. The
    last row is for what stands there and is no step of the ruler.
    """
    trace, steps = scene.study.trace, scene.study.steps
    rows = trace.events.name[marks.event].astype(np.int64)
    of_steps = trace.lines.names.rows_where(lambda name: name == STEPS_LINE) & trace.is_device_line
    counted = of_steps[trace.lines.of_event[marks.event]]
    step = scene.study.groups.step[marks.event][counted].astype(np.int64)
    rows[counted] = len(trace.names) + np.where(step < 0, len(steps), step)
    return rows


def _name_text(scene: Scene, row: int) -> str:
    names, numbers = scene.study.trace.names, scene.study.steps.step_num
    if row < len(names):
        return names[row][:_LONGEST_EVENT_NAME]
    step = row - len(names)
    return f"step {numbers[step]}" if step < len(numbers) else "outside the steps"


def _columns(
    scene: Scene, marks: Marks, begin_ps: int, unit_ps: int
) -> tuple[list[tuple[int, bytes]], list[int]]:
    """The columns of the marks, and the names that they point to, as ``_name_rows`` has them."""
    lane_count = int(scene.lanes.first_lane[-1])
    first_mark = np.searchsorted(marks.lane, np.arange(lane_count + 1))
    begin = (marks.begin_ps - begin_ps) // unit_ps
    end = np.maximum((marks.end_ps - begin_ps + unit_ps - 1) // unit_ps, begin)
    delta = np.diff(begin, prepend=0)
    starts = first_mark[:-1][first_mark[:-1] < first_mark[1:]]
    delta[starts] = begin[starts]
    busy = np.where(marks.occurrences > 1, np.maximum(marks.busy_ps // unit_ps, 1), 0)
    is_marked = marks.mark_of_event >= 0
    of_marks, self_ps = marks.mark_of_event[is_marked], scene.study.self_ps[is_marked]
    self_ps = np.bincount(of_marks, self_ps, len(marks)).astype(np.int64)
    children = (marks.busy_ps - self_ps) // unit_ps
    names, name = np.unique(_name_rows(scene, marks), return_inverse=True)
    step = scene.study.groups.step[marks.event].astype(np.int64) + 1
    category = scene.study.categories[marks.event].astype(np.int64)
    columns = [
        first_mark, delta, end - begin, busy, children, marks.occurrences, name, step, category
    ]  # fmt: skip
    return [_shuffled(np.clip(column, 0, _LARGEST_WORD)) for column in columns], names.tolist()


def _flows(scene: Scene, marks: Marks) -> tuple[Int64s, Int64s]:
    launch, kernel = (marks.mark_of_event[events] for events in find_launches(scene.study.trace))
    are_marked = (launch >= 0) & (kernel >= 0)
    launch, kernel = launch[are_marked][:_MOST_FLOWS], kernel[are_marked][:_MOST_FLOWS]
    alone = (marks.occurrences[launch] == 1) & (marks.occurrences[kernel] == 1)
    return launch[alone], kernel[alone]


def _line_headers(scene: Scene) -> list[dict[str, Any]]:
    trace, lanes = scene.study.trace, scene.lanes
    counts = np.diff(trace.lines.offsets)
    return [
        {
            "label": scene.names[position],
            "recorded": scene.recorded_name(line),
            "derived": scene.derived[position],
            "plane": trace.planes[trace.lines.plane[line]].name[:_LONGEST_EVENT_NAME],
            "device": bool(trace.is_device_line[line]),
            "steps": position == lanes.steps_line,
            "busy": int(lanes.busy_ps[position]),
            "events": int(counts[line]),
            "row": int(lanes.first_lane[position]),
        }
        for position, line in enumerate(lanes.lines.tolist())
    ]


def _track_columns(
    scene: Scene, most: int, window_ps: tuple[int, int] | None, begin_ps: int, unit_ps: int
) -> tuple[list[dict[str, Any]], list[tuple[int, bytes]]]:
    """Make a header of each track, and its two columns."""
    headers: list[dict[str, Any]] = []
    columns: list[tuple[int, bytes]] = []
    for whole in scene.tracks:
        least, largest = float(whole.value.min()), float(whole.value.max())
        is_exact = bool((whole.value % 1 == 0).all()) and largest - least <= _LARGEST_WORD
        scale = 1.0 if is_exact else max((largest - least) / _LARGEST_WORD, np.finfo(float).tiny)
        track = thin_track(whole, most, window_ps)
        time = np.clip((track.time_ps - begin_ps) // unit_ps, 0, _LARGEST_WORD)
        value = np.clip(np.rint((track.value - least) / scale), 0, _LARGEST_WORD)
        columns += [_shuffled(np.diff(time, prepend=0)), _shuffled(value.astype(np.int64))]
        headers.append(
            {
                "label": track.label[:_LONGEST_EVENT_NAME],
                "title": track.title[:_LONGEST_EVENT_NAME],
                "unit": track.unit[:_LONGEST_EVENT_NAME],
                "samples": len(track),
                "held": track.is_held,
                "least": least,
                "largest": largest,
                "scale": scale,
                "thinned": track.left_out,
            }
        )
    return headers, columns


def _step_columns(scene: Scene, begin_ps: int, unit_ps: int) -> dict[str, list[int]]:
    steps = scene.study.steps
    shown = slice(0, 0) if steps.is_window else slice(0, _MOST_STEPS)
    return {
        "begin": ((steps.begin_ps[shown] - begin_ps) // unit_ps).tolist(),
        "end": ((steps.end_ps[shown] - begin_ps) // unit_ps).tolist(),
        "num": steps.step_num[shown].tolist(),
        "warm": steps.is_warmup[shown].astype(int).tolist(),
    }


def typical_steps(study: Study) -> tuple[int, int] | None:
    """Find up to three steps in a row that together take the median of all such: a timeline opens there.

    Only steps that averages are of count, so no warm-up and no step far outside.

    Returns:
        Rows of ``study.steps``, of the first and of the last; None where there are no steps.
    """
    steps, counted = study.steps, study.summary.counted
    if steps.is_window or not counted.size:
        return None
    for shown in range(min(_OPENS_ON, counted.size), 1, -1):
        first, last = counted[: 1 - shown], counted[shown - 1 :]
        in_a_row = np.flatnonzero(last - first == shown - 1)
        if in_a_row.size:
            break
    else:
        first = last = counted
        in_a_row = np.arange(counted.size)
    first, last = first[in_a_row], last[in_a_row]
    order = np.argsort(steps.end_ps[last] - steps.begin_ps[first], kind="stable")
    middle = order[(order.size - 1) // 2]
    return int(first[middle]), int(last[middle])


def unit_of(scene: Scene) -> tuple[int, int]:
    """Find the origin and the unit of a timeline's times, both in picoseconds.

    The unit is a nanosecond, or what makes the span of the trace fit 32 bits (from 4.3 s on).
    """
    events = scene.study.trace.events
    first, last = int(events.begin_ps.min(initial=0)), int(events.end_ps.max(initial=1))
    return first, max(1000, -(-(last - first) // _LARGEST_WORD))


def pack_timeline(
    scene: Scene, most: int, most_details: int, window_ps: tuple[int, int] | None = None
) -> PackedTimeline:
    """Pack a window of a trace.

    Args:
        scene: The trace, what was found in it, and its lanes.
        most: How many marks at most.
        most_details: For how many of the longest marks to include the event's stats.
        window_ps: Only events that touch [begin, end); everything by default.
    """
    trace, lanes = scene.study.trace, scene.lanes
    sharing = trace.sharing
    marks = pick_marks(trace, lanes, most, window_ps)
    first, unit_ps = unit_of(scene)
    span_ps = int(trace.events.end_ps.max(initial=1)) - first
    columns, names = _columns(scene, marks, first, unit_ps)
    counts = np.bincount(trace.events.name, minlength=len(trace.names))
    counts = np.append(counts, np.ones(len(scene.study.steps) + 1, np.int64))
    if window_ps is None:  # a search finds also what stands inside blocks only
        hidden = np.setdiff1d(np.flatnonzero(counts[: len(trace.names)]), names)
        names += hidden[np.argsort(-counts[hidden], kind="stable")][:_MOST_HIDDEN_NAMES].tolist()
    launches, kernels = _flows(scene, marks)
    alone = np.flatnonzero(marks.occurrences == 1)
    longest = alone[np.argsort(-marks.busy_ps[alone], kind="stable")][:most_details]
    details = {int(mark): event_details(scene, int(marks.event[mark])) for mark in longest}
    left_out = int((lanes.lane < 0).sum())
    most_samples = max(_FEWEST_SAMPLES, most // _MARKS_PER_SAMPLE)
    tracks, samples = _track_columns(scene, most_samples, window_ps, first, unit_ps)
    columns += [_shuffled(launches), _shuffled(kernels), *samples]
    header = {
        "widths": [width for width, _ in columns],
        "unit_ps": unit_ps,
        "begin_ps": first,
        "span": -(-span_ps // unit_ps),
        "marks": len(marks),
        "rows": int(lanes.first_lane[-1]),
        "flows": int(launches.size),
        "events": len(trace.events),
        "merged": marks.merged_events,
        "resolution_ps": marks.resolution_ps,
        "names": sharing.values([_name_text(scene, name) for name in names]),
        "counts": counts[names].tolist(),
        "wrappers": [
            at for at, row in enumerate(names) if is_framework_frame(_name_text(scene, row))
        ],
        "categories": [[name, colour_of(name)] for name in CATEGORIES],
        "lines": sharing.values(_line_headers(scene)),
        "steps": _step_columns(scene, first, unit_ps),
        "opens": typical_steps(scene.study),
        "tracks": sharing.values(tracks),
        "details": {mark: sharing.text(text) for mark, text in details.items() if text},
    }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8", "replace")
    parts = [struct.pack("<I", len(text)), text, *(runs for _, runs in columns)]
    data = gzip.compress(b"".join(parts), 6 if len(marks) < 300_000 else 4, mtime=0)
    return PackedTimeline(data, len(marks), marks.merged_events, marks.resolution_ps, left_out)


def fit_timeline(scene: Scene, most: int, most_details: int, most_bytes: int) -> PackedTimeline:
    """Pack the whole trace with as much detail as fits into a number of bytes."""
    packed = pack_timeline(scene, most, most_details)
    while len(packed.data) > most_bytes and packed.marks > scene.lanes.first_lane[-1]:
        share = most_bytes / len(packed.data)
        most = int(min(packed.marks * share * 0.95, packed.marks - 1))
        most_details = int(most_details * share)
        packed = pack_timeline(scene, most, most_details)
    return packed


def is_framework_frame(name: str) -> bool:
    """Tell whether an event is a Python frame of a framework or of Python's own library."""
    match = _FRAME.match(name) if name.startswith("$") or ".py(" in name else None
    if match is None:
        return False
    folders, file = match["folders"].strip("/").split("/"), match["file"]
    if "site-packages" in folders or "dist-packages" in folders:
        return True
    if folders == [""]:
        is_builtin = file in ("builtins", "<unknown>")
        return is_builtin or file in sys.stdlib_module_names or file in _WRAPPERS
    return folders[0] in _FRAMEWORKS or folders[0] in sys.stdlib_module_names
