"""Steps and their events to where the time went: nine categories that add up exactly.

Each instant of a step, and of the gap after it, is charged to the one category with the highest priority
among what was active at that instant; instants at which nothing was active are "all others" in a step and
"between steps" in a gap. A device counts by the clock, whichever step launched what it runs: host work
hidden behind it costs the step nothing, and work that outlives its step is charged where it runs. The host
counts for the step it works for, and what the thread of the steps does between steps for the gap. What only
frames of the Python tracer cover stays in "all others".

On a trace with a device the host mostly prepares and launches the device's work; that is "kernel launch".
Only an op that computes on the CPU is "host compute". A call that copies is input, output or device to
device by what it copies. Without a device all work of ops is host compute.

    device   |     [k1 of step 0          ][k2 of step 1      ]         compute 22 + 19
    host     | [step 0]   [step 1]  ...
    charged  |  launch, then compute to the end of k2, whichever step launched it

Departures from the official tool, each on purpose: on a device it drops every host event (launch, host
compute and input are then always 0) and the gap between steps; it never reports compilation; it takes
``MemcpyH2D`` for compute because it looks for ``MEMCPYHToD``; and there a wait or a launch hides a copy or a
collective that the device runs, where here the device comes first.

Source: EventType and the sweep in openxla/xprof xprof/utils/event_span.{h,cc} (a27d00aa); category
names: https://www.tensorflow.org/guide/profiler.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int8s, Int64s
from profnb.core.jit import compiled
from profnb.steps.activities import (
    ACTIVITIES,
    AWAITING,
    CATEGORIES,
    FIRST_OF_DEVICE,
    find_activities,
)
from profnb.steps.grouping import Groups
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import HLO_MODULE

__all__ = [
    "CATEGORIES",
    "StepBreakdown",
    "break_down_steps",
    "categorize_events",
    "category_column",
    "host_pieces",
]


def category_column(category: str) -> str:
    """The name of a category's column: "device compute" becomes ``device_compute_ms``."""
    return f"{category.replace(' ', '_')}_ms"


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Where each step's time went.

    Attributes:
        picoseconds: Shape (S, 9), int64, columns as ``CATEGORIES``; each row sums to its step.
        gap_picoseconds: The gaps after the steps likewise, shape (S, 9); "all others" is what nothing but
            Python explains. The last row is 0.
        busy_ps: Time of each step in which the device ran anything, shape (S,).
        gap_busy_ps: Time of each gap likewise, shape (S,).
    """

    picoseconds: Int64s
    gap_picoseconds: Int64s
    busy_ps: Int64s
    gap_busy_ps: Int64s

    def of(self, category: str) -> Int64s:
        """One category's picoseconds per step, shape (S,)."""
        return self.picoseconds[:, CATEGORIES.index(category)]


def categorize_events(trace: Trace, steps: Steps, parent: Int64s) -> Int8s:
    """The category each event is charged to where nothing of higher priority runs.

    Args:
        trace: The trace.
        steps: Its steps.
        parent: Index of each event's parent on its line, or -1, shape (E,).

    Returns:
        Index into ``CATEGORIES``, shape (E,), int8; what is no work (markers, frames of the Python
        tracer, lines that repeat others) is "all others".
    """
    of_lane = [CATEGORIES.index("all others"), *(CATEGORIES.index(name) for name in ACTIVITIES[1:])]
    return np.array(of_lane, np.int8)[find_activities(trace, steps, None, parent)]


@compiled
def _sweep(
    times: Int64s, order: Int64s, lanes: Int8s, edges: Int64s, active: Int64s, charged: Int64s,
    first_of_device: int, busy: Int64s,
) -> None:  # fmt: skip
    """Walk the boundaries in time order and charge each stretch to the highest active lane.

    Args:
        times: Begins of the N intervals, then their ends, shape (2N,).
        order: What sorts them.
        lanes: The intervals' lanes, shape (N,).
        edges: Bounds of the P pieces that time is divided into, ascending, shape (P + 1,).
        active: How many intervals of each lane are open: zeros.
        charged: Where time is added up, shape (P, lanes).
        first_of_device: Lanes from here on are the device's.
        busy: Where the device's time is added up, shape (P,).
    """
    count = lanes.size
    highest = 0
    before = edges[0]
    piece = 0
    for index in range(order.size):
        boundary = order[index]
        now = times[boundary]
        while before < now:
            while piece < edges.size - 2 and edges[piece + 1] <= before:
                piece += 1
            until = now
            if piece < edges.size - 2 and edges[piece + 1] < now:
                until = edges[piece + 1]
            if highest > 0:
                charged[piece, highest] += until - before
                if highest >= first_of_device:
                    busy[piece] += until - before
            before = until
        active[lanes[boundary if boundary < count else boundary - count]] += (
            1 if boundary < count else -1
        )
        highest = active.size - 1
        while highest > 0 and active[highest] == 0:
            highest -= 1


def break_down_steps(
    trace: Trace, steps: Steps, groups: Groups, device: int | None = None
) -> StepBreakdown:
    """Charge every picosecond of each step, and of the gap after it, to exactly one category.

    Args:
        trace: The trace.
        steps: S windows, in order and not overlapping.
        groups: Which step each event belongs to; a host event counts only in its own step, or if it
            belongs to none and runs on the thread of the steps, in the gaps.
        device: The plane whose work counts; what the others do is then no part of it. None for all.

    Returns:
        Picoseconds per step and category; each row sums to that step's duration.
    """
    count = len(steps)
    if not count:
        none = np.empty((0, len(CATEGORIES)), np.int64)
        return StepBreakdown(none, none, none[:, 0], none[:, 0])
    lanes = find_activities(trace, steps, device, groups.parent)
    window = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    pieces = [
        _device_pieces(trace, groups, np.flatnonzero(lanes >= FIRST_OF_DEVICE), window),
        host_pieces(trace, steps, groups, lanes),
    ]
    begin, end, events = (np.concatenate(column) for column in zip(*pieces, strict=True))
    times = np.concatenate([begin, end])
    edges = np.append(np.stack([steps.begin_ps, steps.end_ps], axis=1).ravel(), steps.end_ps[-1])
    charged = np.zeros((2 * count, len(ACTIVITIES)), np.int64)
    busy = np.zeros(2 * count, np.int64)
    active = np.zeros(len(ACTIVITIES), np.int64)
    order = np.argsort(times, kind="stable")
    _sweep(times, order, lanes[events], edges, active, charged, FIRST_OF_DEVICE, busy)
    picoseconds = np.zeros((2 * count, len(CATEGORIES)), np.int64)
    for column, category in enumerate(ACTIVITIES[1:], start=1):
        picoseconds[:, CATEGORIES.index(category)] += charged[:, column]
    picoseconds[:, -1] = np.diff(edges) - picoseconds[:, :-1].sum(axis=1)
    return StepBreakdown(picoseconds[::2], picoseconds[1::2], busy[::2], busy[1::2])


_XLA_ON_CPU = "ThunkExecutor::Execute"  # with "(wait for completion)": its own threads compute
Pieces = tuple[Int64s, Int64s, Int64s]  # begins, ends, the event of each


def _device_pieces(trace: Trace, groups: Groups, events: Int64s, window: tuple[int, int]) -> Pieces:
    begin = np.clip(trace.events.begin_ps[events], *window)
    end = np.clip(groups.end_ps[events], *window)
    some = end > begin
    return begin[some], end[some], events[some]


def host_pieces(trace: Trace, steps: Steps, groups: Groups, lanes: Int8s) -> Pieces:
    """When each of the host's events is at work for the steps: what is charged where no device runs.

    An event of a step counts inside the host's window of it. What belongs to no step counts on the thread of
    the steps, while the host is between two; waiting for a result, and what XLA computes on the CPU after the
    call that asked for it returned, counts whenever it is.

    Args:
        trace: The trace.
        steps: Its steps.
        groups: Which step each event belongs to.
        lanes: What each event is, shape (E,).
    """
    is_host = (lanes > 0) & (lanes < FIRST_OF_DEVICE)
    is_anytime = lanes == AWAITING
    if not trace.is_device_line.any():
        is_anytime[trace.stats.texts(HLO_MODULE).events] = True
        is_anytime |= trace.select_names(lambda name: name.startswith(_XLA_ON_CPU))
    parent = np.maximum(groups.parent, 0)
    hidden = (groups.parent >= 0) & (lanes[parent] == lanes) & (groups.step[parent] == groups.step)
    anytime = np.flatnonzero(is_host & is_anytime)
    events = np.flatnonzero(is_host & ~is_anytime & ~hidden)
    row = groups.step[events]
    own = events[row >= 0]
    row = row[row >= 0]
    own_begin = np.maximum(trace.events.begin_ps[own], steps.host_begin_ps[row])
    own_end = np.minimum(groups.end_ps[own], np.maximum(steps.end_ps, steps.host_end_ps)[row])
    thread = trace.lines.of_event[steps.roots[0]] if steps.roots.size else -1
    free = events[(groups.step[events] < 0) & (trace.lines.of_event[events] == thread)]
    at = np.searchsorted(steps.host_begin_ps, trace.events.begin_ps[free], side="right") - 1
    free, at = free[at >= 0], at[at >= 0]
    next_begin = np.append(steps.host_begin_ps[1:], max(steps.end_ps[-1], steps.host_end_ps[-1]))
    free_begin = np.maximum(trace.events.begin_ps[free], steps.host_end_ps[at])
    free_end = np.minimum(groups.end_ps[free], next_begin[at])
    begin = np.concatenate([own_begin, free_begin, trace.events.begin_ps[anytime]])
    end = np.concatenate([own_end, free_end, groups.end_ps[anytime]])
    window = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    begin, end = np.clip(begin, *window), np.clip(end, *window)
    some = end > begin
    return begin[some], end[some], np.concatenate([own, free, anytime])[some]
