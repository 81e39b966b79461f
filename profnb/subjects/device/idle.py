"""Idle stretches of the busiest device to what the host was doing at that time.

A device is idle where nothing runs on any of its streams, between the begin of the first step and the
end of the last one, gaps between steps included. Every instant of that is charged to exactly one cause,
the first of these that holds:

- **compiling**: XLA compiles a program on some host thread;
- **waiting for input**: a thread waits in ``IteratorGetNext`` for the next element;
- **copying input**: the host is in a call that copies to the device;
- **synchronising copy**: the host copies back, or waits in a ``...Synchronize`` call, while the device
  has nothing to do;
- **host compute**: an op computes on the CPU;
- **kernel launch**: the host prepares device work and launches it, kernel by kernel;
- **Python in the step**: a step is running, and none of these was recorded;
- **Python between steps**: no step is running;
- **unknown**: the host was not recorded.

The causes sum to the idle time to the picosecond. Holistic Trace Analysis splits the idle time of a
stream by the order of launches only; no tool for TensorFlow splits it at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int8s, Int64s
from profnb.core.table import Column, Table
from profnb.steps.activities import (
    ACTIVITIES,
    COMPILING,
    COPYING_IN,
    COPYING_OUT,
    HOST_COMPUTE,
    NOTHING,
    SYNCHRONISING,
    WAITING_FOR_INPUT,
)
from profnb.steps.breakdown import find_stretches, sum_stretches
from profnb.steps.streams import (
    COLLECTIVE,
    COMPUTE,
    COPY,
    busiest_device,
    kinds_of_work,
    raw_device_lines,
)
from profnb.steps.windows import Steps
from profnb.trace.model import Trace

__all__ = ["IDLE", "IDLE_CAUSES", "UTILIZATION", "WORK", "IdleTable", "attribute_idle"]

IDLE_CAUSES = (
    "compiling",
    "waiting for input",
    "copying input",
    "synchronising copy",
    "host compute",
    "kernel launch",
    "Python in the step",
    "Python between steps",
    "unknown",
)
WORK = ("compute", "collectives", "copies")
# Lanes of the sweep, a lower one wins: the device's work, then causes; _STEP says that a step is running,
# _NOTHING that the window is open.
(
    _COMPUTING,
    _EXCHANGING,
    _COPYING,
    _COMPILING,
    _INPUT,
    _COPYING_IN,
    _SYNCHRONISING,
    _CPU,
    _LAUNCHING,
) = range(9)
_STEP, _NOTHING = 9, 10
_LANE_OF_WORK = {COMPUTE: _COMPUTING, COLLECTIVE: _EXCHANGING, COPY: _COPYING}
_BINS = 96
# What the host does, as the breakdown of a step has it too.
_LANE_OF_ACTIVITY = {
    NOTHING: _NOTHING,
    COMPILING: _COMPILING,
    WAITING_FOR_INPUT: _INPUT,
    COPYING_IN: _COPYING_IN,
    COPYING_OUT: _SYNCHRONISING,
    SYNCHRONISING: _SYNCHRONISING,
    HOST_COMPUTE: _CPU,
}


@dataclass(frozen=True, slots=True)
class IdleTable:
    """Why the busiest device was idle; rows as ``IDLE_CAUSES``.

    Attributes:
        device: The device's plane.
        occurrences: Uninterrupted stretches per cause, shape (9,).
        total_ps: Their sum, shape (9,).
        longest_ps: The longest of them, shape (9,).
        busy_ps: Time during which the device ran something.
        window_ps: From the first step's begin to the last one's end; busy and idle add up to it.
        bin_begin_ps: Begins of B equal pieces of the window, shape (B,).
        bins_ps: What each piece went to, shape (B, 12): the device's work as ``WORK``, then idle time as
            ``IDLE_CAUSES``; each row sums to its piece.
    """

    device: str
    occurrences: Int64s
    total_ps: Int64s
    longest_ps: Int64s
    busy_ps: int
    window_ps: int
    bin_begin_ps: Int64s
    bins_ps: Int64s


def _tell_unknown(column: Int64s, *, has_host: bool) -> Int64s:
    """Sums by lane with one more: what nothing explains in a step, where the host is not recorded."""
    result = np.concatenate([column, np.zeros_like(column[..., :1])], axis=-1)
    if not has_host:
        result[..., [_STEP, -1]] = result[..., [-1, _STEP]]
    return result


def attribute_idle(trace: Trace, steps: Steps, activities: Int8s) -> IdleTable | None:
    """Charge the idle time of the busiest device to causes.

    Args:
        trace: The trace.
        steps: Its steps; they set the window that is looked at.
        activities: What each event is, as index into ``ACTIVITIES``, for the busiest device, shape (E,).

    Returns:
        The table, or None if no device ran anything or there are no steps.
    """
    plane = busiest_device(trace)
    if plane is None or not len(steps):
        return None
    window = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    if window[1] <= window[0]:
        return None
    events, line = trace.events, trace.lines.of_event
    of_activity = np.array(
        [_LANE_OF_ACTIVITY.get(row, _LAUNCHING) for row in range(len(ACTIVITIES))], np.int8
    )
    lanes = np.where(trace.is_host_event, of_activity[activities], _NOTHING).astype(np.int8)
    work = np.flatnonzero(raw_device_lines(trace)[line] & (trace.lines.plane[line] == plane))
    of_kind = np.array([_LANE_OF_WORK[kind] for kind in (COMPUTE, COPY, COLLECTIVE)], np.int8)
    lanes[work] = of_kind[kinds_of_work(trace, work)]
    lanes[steps.roots] = _NOTHING
    chosen = np.flatnonzero(lanes != _NOTHING)
    kinds = [lanes[chosen], np.full(len(steps), _STEP, np.int8), np.full(1, _NOTHING, np.int8)]
    begins = [events.begin_ps[chosen], steps.begin_ps, np.array(window[:1])]
    ends = [events.end_ps[chosen], steps.end_ps, np.array(window[1:])]
    lane = np.concatenate(kinds)
    begin = np.clip(np.concatenate(begins), *window)
    end = np.clip(np.concatenate(ends), *window)
    some = end > begin
    begin, end, lane = begin[some], end[some], lane[some]
    since, highest = find_stretches(begin, end, _NOTHING - lane, _NOTHING + 1)
    lowest = np.where(highest >= 0, _NOTHING - highest, -1).astype(np.int8)
    edges = np.linspace(*window, min(_BINS, window[1] - window[0]) + 1).astype(np.int64)
    edges[[0, -1]] = window
    bins = sum_stretches(since, lowest, edges, _NOTHING + 1)
    occurrences, longest = (np.zeros(_NOTHING + 1, np.int64) for _ in range(2))
    np.add.at(occurrences, lowest[:-1], 1)
    np.maximum.at(longest, lowest[:-1], np.diff(since))
    has_host = steps.roots.size > 0 and bool(trace.is_host_event[steps.roots[0]])
    occurrences, longest, bins = (
        _tell_unknown(c, has_host=has_host) for c in (occurrences, longest, bins)
    )
    total = bins.sum(axis=0)
    return IdleTable(
        device=trace.planes[plane].name,
        occurrences=occurrences[3:],
        total_ps=total[3:],
        longest_ps=longest[3:],
        busy_ps=int(total[:3].sum()),
        window_ps=window[1] - window[0],
        bin_begin_ps=edges[:-1],
        bins_ps=bins,
    )


def _fraction(part_ps: Int64s, whole_ps: int) -> Floats:
    return part_ps / whole_ps if whole_ps else np.full(part_ps.size, np.nan)


def _share_names() -> list[str]:
    return [f"{name}_fraction".replace(" ", "_").lower() for name in (*WORK, *IDLE_CAUSES)]


def _share_of_bins(at: int) -> "Callable[[IdleTable], Floats]":
    return lambda idle: idle.bins_ps[:, at] / np.maximum(idle.bins_ps.sum(axis=1), 1)


IDLE = Table[IdleTable](
    "idle",
    "One row per cause for which the busiest device was idle between the first step's begin and the last "
    "one's end; no row without a device.",
    (
        Column("cause", lambda _: IDLE_CAUSES, "what the host did then", "what the host did then"),
        Column("occurrences", lambda t: t.occurrences, "how many idle stretches", "times"),
        Column(
            "total_us",
            lambda t: t.total_ps,
            "time of all of them; the totals add up to the idle time exactly",
            "total",
        ),
        Column("longest_us", lambda t: t.longest_ps, "the longest of them", "longest"),
        Column(
            "idle_fraction",
            lambda t: _fraction(t.total_ps, int(t.total_ps.sum())),
            "share of the idle time",
            "of idle",
        ),
        Column(
            "window_fraction", lambda t: _fraction(t.total_ps, t.window_ps), "share of the window"
        ),
    ),
)
UTILIZATION = Table[IdleTable](
    "utilization",
    "One row per piece of the window from the first step's begin to the last one's end (at most 96): what "
    "the busiest device did then, and why it was idle; no row without a device.",
    (
        Column("begin_ms", lambda t: t.bin_begin_ps, "begin of the piece"),
        *(
            Column(name, _share_of_bins(at), f"share of {what}; the shares of a row sum to 1")
            for at, (name, what) in enumerate(
                zip(_share_names(), (*WORK, *IDLE_CAUSES), strict=True)
            )
        ),
    ),
)
