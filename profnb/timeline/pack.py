"""Marks to the bytes that the browser draws: gzip of one header and columns of 32-bit numbers.

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

from profnb.core.columns import Int64s
from profnb.drawing.theme import colour_of
from profnb.steps.activities import CATEGORIES
from profnb.steps.streams import find_launches
from profnb.subjects.study import Study
from profnb.timeline.marks import Marks, pick_marks
from profnb.timeline.scene import Scene, thin_track
from profnb.trace.names import STEPS_LINE

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
    lines = []
    for name, value in scene.study.trace.stats.of_event(event).items():
        if name.startswith("_") or name in _INTERNAL or isinstance(value, bytes):
            continue
        lines.append(f"{name}: {value}"[:_LONGEST_DETAIL])
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
    is_block = marks.occurrences > 1
    busy = np.where(is_block, np.maximum(marks.busy_ps // unit_ps, 1), 0)
    self_ps = np.bincount(
        marks.mark_of_event[marks.mark_of_event >= 0],
        scene.study.self_ps[marks.mark_of_event >= 0],
        len(marks),
    )
    children = (marks.busy_ps - self_ps.astype(np.int64)) // unit_ps
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
    if not name.startswith("$") and ".py(" not in name:
        return False
    match = _FRAME.match(name)
    if match is None:
        return False
    folders, file = match["folders"].strip("/").split("/"), match["file"]
    if "site-packages" in folders or "dist-packages" in folders:
        return True
    if folders == [""]:
        is_builtin = file in ("builtins", "<unknown>")
        return is_builtin or file in sys.stdlib_module_names or file in _WRAPPERS
    return folders[0] in _FRAMEWORKS or folders[0] in sys.stdlib_module_names
