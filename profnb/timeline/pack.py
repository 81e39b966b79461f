"""Marks to the bytes that the browser draws: gzip of one header and columns of 32-bit numbers.

The layout, after decompression: the header's length (uint32, little-endian), the header (JSON,
UTF-8), then the columns that the header counts. A uint32 column of N numbers is stored as four runs
of N bytes, lowest bytes first: neighbours are alike, so that gzip finds more to save (2.7 bytes per
event of a real trace). Times are in units of ``unit_ps`` since ``begin_ps``.

In order: the first mark of each lane (L + 1), then for each of M marks: begin after the previous
mark's in its lane, duration, busy time (0: all of it), time in children, occurrences, name, step + 1,
category (uint8); then for each of F flows the launching mark and the launched mark.
"""

import gzip
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Int64s
from profnb.drawing.theme import colour_of
from profnb.steps.breakdown import CATEGORIES
from profnb.steps.launching import find_launches
from profnb.timeline.marks import Marks, pick_marks
from profnb.timeline.scene import Scene

__all__ = [
    "PackedTimeline",
    "event_details",
    "fit_timeline",
    "line_label",
    "pack_timeline",
    "unit_of",
]

_LONGEST_NAME = 300
_LONGEST_DETAIL = 600
_LARGEST = (1 << 32) - 1
_MOST_STEPS = 20_000
_MOST_FLOWS = 200_000
_MOST_HIDDEN_NAMES = 5_000
# Stats that link events to each other; they tell a person nothing.
_INTERNAL = frozenset({"correlation_id", "group_id", "profnb_marker", "producer_id", "consumer_id"})


@dataclass(frozen=True, slots=True)
class PackedTimeline:
    """What a browser needs to draw one window of a trace.

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


def line_label(scene: Scene, position: int) -> str:
    """What to call a line in the picture: the device's short name, the thread's or stream's name."""
    lines = scene.study.trace.lines
    line = int(scene.lanes.lines[position])
    plane = scene.study.trace.planes[lines.plane[line]]
    name = lines.names[line] or f"thread {lines.ids[line]}"
    others = sum(1 for other in scene.study.trace.planes if other.is_host == plane.is_host)
    short = plane.name.removeprefix("/device:").rpartition("/")[2]
    if not plane.is_host or others > 1:
        name = f"{short} {name}"
    return name[:_LONGEST_NAME]


def event_details(scene: Scene, event: int) -> str:
    """The stats of an event as lines of ``name: value``, for a person to read."""
    lines = []
    for name, value in scene.study.trace.stats.of_event(event).items():
        if name.startswith("_") or name in _INTERNAL or isinstance(value, bytes):
            continue
        lines.append(f"{name}: {value}"[:_LONGEST_DETAIL])
    return "\n".join(lines)[: 4 * _LONGEST_DETAIL]


def _shuffled(column: npt.NDArray[np.integer[Any]]) -> bytes:
    return column.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes()


def _columns(
    scene: Scene, marks: Marks, begin_ps: int, unit_ps: int
) -> tuple[list[bytes], list[int]]:
    """The columns of the marks, and the rows of ``Trace.names`` that they point to."""
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
    names, name = np.unique(scene.study.trace.events.name[marks.event], return_inverse=True)
    step = scene.study.groups.step[marks.event] + 1
    columns = [first_mark, delta, end - begin, busy, children, marks.occurrences, name, step]
    packed = [_shuffled(np.clip(column, 0, _LARGEST)) for column in columns]
    return [*packed, scene.study.categories[marks.event].astype(np.uint8).tobytes()], names.tolist()


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
            "label": line_label(scene, position),
            "plane": trace.planes[trace.lines.plane[line]].name[:_LONGEST_NAME],
            "device": bool(trace.is_device_line[line]),
            "steps": position == lanes.steps_line,
            "busy": int(lanes.busy_ps[position]),
            "events": int(counts[line]),
            "row": int(lanes.first_lane[position]),
        }
        for position, line in enumerate(lanes.lines.tolist())
    ]


def _step_columns(scene: Scene, begin_ps: int, unit_ps: int) -> dict[str, list[int]]:
    steps = scene.study.steps
    shown = slice(0, 0) if steps.is_window else slice(0, _MOST_STEPS)
    return {
        "begin": ((steps.begin_ps[shown] - begin_ps) // unit_ps).tolist(),
        "end": ((steps.end_ps[shown] - begin_ps) // unit_ps).tolist(),
        "num": steps.step_num[shown].tolist(),
        "warm": steps.is_warmup[shown].astype(int).tolist(),
    }


def unit_of(scene: Scene) -> tuple[int, int]:
    """The origin and the unit of a timeline's times, both in picoseconds.

    The unit is a nanosecond, or what makes the span of the trace fit 32 bits (from 4.3 s on).
    """
    events = scene.study.trace.events
    first, last = int(events.begin_ps.min(initial=0)), int(events.end_ps.max(initial=1))
    return first, max(1000, -(-(last - first) // _LARGEST))


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
    marks = pick_marks(trace, lanes, most, window_ps)
    first, unit_ps = unit_of(scene)
    span_ps = int(trace.events.end_ps.max(initial=1)) - first
    columns, names = _columns(scene, marks, first, unit_ps)
    counts = np.bincount(trace.events.name, minlength=len(trace.names))
    if window_ps is None:  # a search finds also what stands inside blocks only
        hidden = np.setdiff1d(np.flatnonzero(counts), names)
        names += hidden[np.argsort(-counts[hidden], kind="stable")][:_MOST_HIDDEN_NAMES].tolist()
    launches, kernels = _flows(scene, marks)
    alone = np.flatnonzero(marks.occurrences == 1)
    longest = alone[np.argsort(-marks.busy_ps[alone], kind="stable")][:most_details]
    details = {int(mark): event_details(scene, int(marks.event[mark])) for mark in longest}
    left_out = int((lanes.lane < 0).sum())
    header = {
        "unit_ps": unit_ps,
        "begin_ps": first,
        "span": -(-span_ps // unit_ps),
        "marks": len(marks),
        "rows": int(lanes.first_lane[-1]),
        "flows": int(launches.size),
        "events": len(trace.events),
        "merged": marks.merged_events,
        "resolution_ps": marks.resolution_ps,
        "names": [trace.names[name][:_LONGEST_NAME] for name in names],
        "counts": counts[names].tolist(),
        "categories": [[name, colour_of(name)] for name in CATEGORIES],
        "lines": _line_headers(scene),
        "steps": _step_columns(scene, first, unit_ps),
        "details": {mark: text for mark, text in details.items() if text},
    }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8", "replace")
    parts: Iterable[bytes] = [
        struct.pack("<I", len(text)), text, *columns, _shuffled(launches), _shuffled(kernels)
    ]  # fmt: skip
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
