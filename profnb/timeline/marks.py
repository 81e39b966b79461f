"""Events to the marks of a timeline: every event longer than a resolution, and blocks of the rest.

A timeline of a million events cannot show them all at once, and a saved notebook cannot hold them.
Events shorter than the resolution that follow one another closely inside the same longer one become a
block that says how many they are; nothing is left out. The resolution is the finest at which the
marks fit a given number.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int32s, Int64s, RowColumns
from profnb.core.jit import tiered
from profnb.timeline.scene import Lanes
from profnb.trace.model import Trace

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
    rank = np.full(
        count + 1, -1, np.int64
    )  # where each mark stands by lane; the last is for no mark
    rank[order] = np.arange(count)
    lane, begin, end, busy, occurrences, event = marked[:, order]
    return Marks(lane, begin, end, busy, occurrences, event, rank[mark_of_event], resolution_ps)


def pick_marks(
    trace: Trace, lanes: Lanes, most: int, window_ps: tuple[int, int] | None = None
) -> Marks:  # fmt: skip
    """Find the finest marks of a window that number at most ``most``, or one per lane if that is more.

    Args:
        trace: The trace.
        lanes: Where its events stand.
        most: How many marks there should be at most.
        window_ps: Only events that touch [begin, end); everything by default.
    """
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
    while marks is None:  # at the latest when everything in a lane is one block
        marks = merge_events(trace, lanes, resolution, most, window_ps)
        if marks is None:
            too_fine, resolution = resolution, 2 * resolution
    for _ in range(_REFINEMENTS):
        middle = (too_fine + resolution) // 2
        finer = merge_events(trace, lanes, middle, most, window_ps)
        if finer is None:
            too_fine = middle
        else:
            marks, resolution = finer, middle
    return marks
