"""Events of a line to their parents, and to their self time.

On one line events normally nest: a call contains the calls it makes. An event's parent is the
shortest earlier event that contains it; an event that only partly overlaps an earlier one is not
its child. Self time is the duration less the part covered by direct children, so on a line it is
never negative and, where events nest, self times sum to the line's busy time exactly.

    a  [0, 100)     parent -1   self 100 - 40 - 20 = 40
    b  [10, 50)     parent a    self  40 - 10      = 30
    c  [20, 30)     parent b    self               = 10
    d  [60, 80)     parent a    self               = 20     40 + 30 + 10 + 20 = 100

Source: the stack walk of openxla/xla xla/tsl/profiler/utils/group_events.cc (ConnectIntraThread).
"""

import numpy as np

from profnb.core.columns import Bools, Int32s, Int64s
from profnb.core.jit import tiered
from profnb.trace.model import Trace


@tiered
def _find_parents(end: Int64s, offsets: Int64s, parent: Int32s) -> None:
    for line in range(offsets.size - 1):
        current = -1
        for event in range(offsets[line], offsets[line + 1]):
            while current >= 0 and end[current] < end[event]:
                current = parent[current]
            parent[event] = current
            current = event


def find_parents(end_ps: Int64s, offsets: Int64s) -> Int32s:
    """Find the parent of each event on its own line, or -1.

    Args:
        end_ps: E ends, of events that stand in time order inside a line, longest first at equal
            begins (as in a trace).
        offsets: Line l owns events ``offsets[l]:offsets[l + 1]``, shape (L + 1,).

    Returns:
        Index of each event's parent, shape (E,), int32. A parent stands before its children.
    """
    parent = np.empty(end_ps.size, np.int32)
    _find_parents(end_ps, offsets, parent)
    return parent


@tiered
def _self_times(
    begin: Int64s, end: Int64s, parent: Int32s, covered_until: Int64s, self_ps: Int64s
) -> None:
    """Take from each event's duration what its children cover; ``covered_until`` comes as its begin."""
    for event in range(begin.size):
        owner = parent[event]
        if owner >= 0:
            start = covered_until[owner]
            if begin[event] > start:
                start = begin[event]
            if end[event] > start:
                self_ps[owner] -= end[event] - start
                covered_until[owner] = end[event]


def self_times(begin_ps: Int64s, end_ps: Int64s, parent: Int32s) -> Int64s:
    """Take from each event's duration the part that its direct children cover.

    Returns:
        Self time in picoseconds, shape (E,), int64, never negative.
    """
    self_ps = end_ps - begin_ps
    _self_times(begin_ps, end_ps, parent, begin_ps.copy(), self_ps)
    return self_ps


def last_around(trace: Trace, around: Int64s, wanted: Int64s) -> Int64s:
    """Find the outer event that each event lies inside of, or is itself.

    On one line the outer events 4 and 9 last [0, 10) and [20, 30): event 9 is in row 1, event 6 at 7 is in
    row 0, event 8 at 15 is in none.

    Returns:
        Row of ``around``, or -1, shape (M,).
    """
    at = np.searchsorted(around, wanted, side="right") - 1
    if not around.size:
        return at
    outer = around[np.maximum(at, 0)]
    begin, end, line = trace.events.begin_ps, trace.events.end_ps, trace.lines.of_event
    is_inside = (at >= 0) & (line[outer] == line[wanted]) & (begin[wanted] < end[outer])
    return np.where(is_inside, at, -1)


def nearest_of(parent: Int64s | Int32s, is_wanted: Bools) -> Int64s:
    """Find the innermost of some events around each event, itself included, or -1."""
    nearest = np.where(is_wanted, np.arange(is_wanted.size), parent)
    while (waiting := np.flatnonzero((nearest >= 0) & ~is_wanted[nearest])).size:
        nearest[waiting] = nearest[nearest[waiting]]
    return nearest


def outermost_of(chosen: Bools, parent: Int32s) -> Int64s:
    """Take those of the chosen events that lie inside of no other chosen one, in order."""
    events = np.flatnonzero(chosen)
    return events[~is_inside(parent, chosen, events)]


def has_inside(parent: Int32s, marked: Bools) -> Bools:
    """Tell of each event whether it is marked or has anything marked inside."""
    result = marked.copy()
    inner: Int64s | Int32s = np.flatnonzero(marked)
    while inner.size:  # one level further out each time
        owner = parent[inner]
        inner = owner[(owner >= 0) & ~result[owner]]
        result[inner] = True
    return result


def is_inside(parent: Int32s, marked: Bools, events: Int64s) -> Bools:
    """Tell of each of some events whether it lies inside anything marked."""
    result = np.zeros(events.size, np.bool_)
    rows, owner = np.arange(events.size), parent[events]
    while rows.size:  # one level further out each time
        result[rows[(owner >= 0) & marked[owner]]] = True
        goes_on = (owner >= 0) & ~marked[owner]
        rows, owner = rows[goes_on], parent[owner[goes_on]]
    return result
