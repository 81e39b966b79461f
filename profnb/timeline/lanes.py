"""Events to the lanes of a picture: one line below the other, one lane per depth of nesting.

Lines stand in the order a person reads them: device streams first, then the thread that runs the
steps, then the rest by busy time. Inside a line an event stands one lane below its parent, or further
down where something that it only partly overlaps still holds the lane, so that events of one lane never
overlap and stand in time order.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int32s, Int64s
from profnb.core.jit import tiered
from profnb.steps.streams import raw_device_lines
from profnb.steps.windows import Steps
from profnb.trace.model import Trace

_MOST_LANES_OF_A_LINE = 128
_EARLIEST = np.int64(np.iinfo(np.int64).min)
_MOST_LINES = 400  # no real host shows more; a hostile file may claim a million


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where each event stands.

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
    _stack(
        events.begin_ps,
        events.end_ps,
        offsets,
        parent,
        np.empty(_MOST_LANES_OF_A_LINE, np.int64),
        depth,
        depths,
        busy,
    )
    of_steps = -1
    if steps.roots.size:
        of_steps = int(np.bincount(trace.lines.of_event[steps.roots]).argmax())
    rank = np.where(raw_device_lines(trace), 0, np.where(trace.is_device_line, 1, 3))
    if of_steps >= 0:
        rank[of_steps] = min(rank[of_steps], 2)
    order = np.lexsort((-busy, rank))
    # Streams and cores keep the recorder's order; busy time would shuffle them from run to run.
    on_device = np.sort(order[rank[order] < 2])
    order[: on_device.size] = on_device[np.argsort(rank[on_device], kind="stable")]
    if len(trace.hostnames) > 1:  # of several hosts: whoever joined them put them in order
        order = np.arange(busy.size)
    lines = order[np.diff(offsets)[order] > 0][:_MOST_LINES]
    first_lane = np.concatenate([np.zeros(1, np.int64), np.cumsum(depths[lines])])
    line_lane = np.full(len(trace.lines), -1, np.int64)
    line_lane[lines] = first_lane[:-1]
    first = line_lane[trace.lines.of_event]
    at = np.flatnonzero(lines == of_steps)
    return Lanes(
        lines=lines,
        first_lane=first_lane,
        lane=np.where(first >= 0, first + depth, -1).astype(np.int32),
        parent=parent,
        busy_ps=busy[lines],
        steps_line=int(at[0]) if at.size else -1,
    )


def busy_in_bins(trace: Trace, lanes: Lanes, position: int, edges_ps: Int64s) -> Floats:
    """How busy a line is in each of B stretches of time.

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
