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

from profnb.core.columns import Int8s, Int64s, gather, sum_by
from profnb.core.jit import tiered
from profnb.steps.activities import (
    ACTIVITIES,
    AWAITING,
    CATEGORIES,
    CATEGORY_OF,
    EXCHANGING,
    FIRST_OF_DEVICE,
    XLA_ON_CPU,
    find_activities,
)
from profnb.steps.grouping import Groups
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import HLO_MODULE

Pieces = tuple[Int64s, Int64s, Int64s]  # begins, ends, the event of each


def column_of(category: str) -> str:
    """The name of a category's column: "device compute" becomes ``device_compute_ms``."""
    return f"{category.replace(' ', '_')}_ms"


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Time of each step and gap by category.

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


@tiered
def _walk(
    times: Int64s, order: Int64s, lanes: Int8s, active: Int64s, since: Int64s, highest: Int8s
) -> int:
    """Note when the highest open lane changes, in time order; returns how often.

    ``times`` are begins of N intervals, then their ends, and ``order`` sorts them. ``active`` counts the open
    ones of each lane and comes as zeros; ``highest`` is -1 where none is open.
    """
    count, changes, current = lanes.size, 0, -1
    for index in range(order.size):
        boundary = order[index]
        if boundary < count:
            active[lanes[boundary]] += 1
        else:
            active[lanes[boundary - count]] -= 1
        if index + 1 < order.size and times[order[index + 1]] == times[boundary]:
            continue  # decide when all boundaries of this instant are known
        lane = active.size - 1
        while lane >= 0 and active[lane] == 0:
            lane -= 1
        if lane != current:
            since[changes], highest[changes] = times[boundary], lane
            changes += 1
            current = lane
    return changes


def find_stretches(
    begin_ps: Int64s, end_ps: Int64s, lanes: Int8s, count: int
) -> tuple[Int64s, Int8s]:
    """Find at each time the highest of the lanes that are open.

    Of [0, 9) in lane 1 and [2, 5) in lane 3 these are the stretches [0, 2) of lane 1, [2, 5) of lane 3,
    [5, 9) of lane 1, and from 9 on none: since [0, 2, 5, 9], lanes [1, 3, 1, -1].

    Returns:
        Since when, ascending, and the lane from then on, both of shape (number of stretches,).
    """
    times = np.concatenate([begin_ps, end_ps])
    since, highest = np.empty(times.size, np.int64), np.empty(times.size, np.int8)
    order = np.argsort(times, kind="stable")
    changes = _walk(times, order, lanes, np.zeros(count, np.int64), since, highest)
    return since[:changes], highest[:changes]


def sum_stretches(since: Int64s, lanes: Int8s, edges: Int64s, count: int) -> Int64s:
    """Time of each lane in each of P pieces of time; what lies behind the last one counts as its.

    Returns:
        Picoseconds, shape (P, count).
    """
    cuts = np.sort(np.concatenate([since, edges]))
    begin, duration = cuts[:-1], np.diff(cuts)
    row = np.searchsorted(since, begin, side="right") - 1
    piece = np.minimum(np.searchsorted(edges, begin, side="right") - 1, edges.size - 2)
    lane = np.where(row >= 0, lanes[row], -1) if lanes.size else np.full(begin.size, -1)
    rows = np.where((piece >= 0) & (lane >= 0), piece * count + lane, -1)
    return sum_by(rows, duration, (edges.size - 1) * count).reshape(-1, count)


def break_down_steps(
    trace: Trace,
    steps: Steps,
    groups: Groups,
    device: int | None = None,
    activities: Int8s | None = None,
    host: Pieces | None = None,
) -> StepBreakdown:
    """Charge every picosecond of each step, and of the gap after it, to exactly one category.

    Args:
        trace: The trace.
        steps: S windows, in order and not overlapping.
        groups: Which step each event belongs to; a host event counts only in its own step, or if it
            belongs to none and runs on the thread of the steps, in the gaps.
        device: The plane whose work counts; what the others do is then no part of it. None for all.
        activities: What each event is, as ``find_activities`` finds it for this device, shape (E,).
        host: What ``host_pieces`` finds by these activities.

    Returns:
        Picoseconds per step and category; each row sums to that step's duration.
    """
    count = len(steps)
    if not count:
        none = np.empty((0, len(CATEGORIES)), np.int64)
        return StepBreakdown(none, none, none[:, 0], none[:, 0])
    if activities is None:
        activities = find_activities(trace, steps, device, groups.parent)
    work = np.flatnonzero(activities >= FIRST_OF_DEVICE)
    pieces = [
        _during(steps, trace.events.begin_ps[work], groups.end_ps[work], work),
        host_pieces(trace, steps, groups, activities) if host is None else host,
    ]
    begin, end, events = (np.concatenate(column) for column in zip(*pieces, strict=True))
    edges = np.append(np.stack([steps.begin_ps, steps.end_ps], axis=1).ravel(), steps.end_ps[-1])
    stretches = find_stretches(begin, end, activities[events], len(ACTIVITIES))
    charged = sum_stretches(*stretches, edges, len(ACTIVITIES))
    busy = charged[:, FIRST_OF_DEVICE:].sum(axis=1)
    picoseconds = np.zeros((2 * count, len(CATEGORIES)), np.int64)
    for activity, category in enumerate(CATEGORY_OF.tolist()):
        picoseconds[:, category] += charged[:, activity]
    picoseconds[:, -1] = np.diff(edges) - picoseconds[:, :-1].sum(axis=1)
    return StepBreakdown(picoseconds[::2], picoseconds[1::2], busy[::2], busy[1::2])


def _during(steps: Steps, begin_ps: Int64s, end_ps: Int64s, events: Int64s) -> Pieces:
    """Cut pieces to the time from the first step to the last one."""
    window = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    begin_ps, end_ps = np.clip(begin_ps, *window), np.clip(end_ps, *window)
    some = end_ps > begin_ps
    return begin_ps[some], end_ps[some], events[some]


def host_pieces(trace: Trace, steps: Steps, groups: Groups, activities: Int8s) -> Pieces:
    """Find when each of the host's events is at work for the steps: what is charged where no device runs.

    An event of a step counts inside the host's window of it. What belongs to no step counts on the thread of
    the steps, while the host is between two; waiting for a result or for other workers, and what XLA computes
    on the CPU after the call that asked for it returned, counts whenever it is.
    """
    if not len(steps):
        return (np.empty(0, np.int64),) * 3
    begin_ps, end_ps, line = trace.events.begin_ps, groups.end_ps, trace.lines.of_event
    is_host = (activities > 0) & (activities < FIRST_OF_DEVICE)
    is_anytime = (activities == AWAITING) | (activities == EXCHANGING)
    if not trace.is_device_line.any():
        is_anytime[trace.stats.texts(HLO_MODULE).events] = True
        is_anytime |= trace.select_names(lambda name: name.startswith(XLA_ON_CPU))
    anytime = np.flatnonzero(is_host & is_anytime)
    events = np.flatnonzero(is_host & ~is_anytime)
    parent = groups.parent[events]
    alike = np.flatnonzero((gather(activities, parent) == activities[events]) & (parent >= 0))
    is_hidden = np.zeros(events.size, np.bool_)
    is_hidden[alike] = gather(groups.step, parent[alike]) == groups.step[events[alike]]
    events = events[~is_hidden]
    row = groups.step[events]
    inside, free = events[row >= 0], events[row < 0]
    row = row[row >= 0]
    thread = line[steps.roots[0]] if steps.roots.size else -1
    free = free[line[free] == thread]
    at = np.searchsorted(steps.host_begin_ps, begin_ps[free], side="right") - 1
    free, at = free[at >= 0], at[at >= 0]
    until = np.maximum(steps.end_ps, steps.host_end_ps)
    next_begin = np.append(steps.host_begin_ps[1:], until[-1])
    begin = [
        np.maximum(begin_ps[inside], steps.host_begin_ps[row]),
        np.maximum(begin_ps[free], steps.host_end_ps[at]),
        begin_ps[anytime],
    ]
    end = [
        np.minimum(end_ps[inside], until[row]),
        np.minimum(end_ps[free], next_begin[at]),
        end_ps[anytime],
    ]
    events = np.concatenate([inside, free, anytime])
    return _during(steps, np.concatenate(begin), np.concatenate(end), events)
