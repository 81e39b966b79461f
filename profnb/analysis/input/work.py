"""Events to those that a thread of the input pipeline ran: inside an iterator, or for a user's function."""

import numpy as np

from profnb.analysis.input.iterators import IteratorTree
from profnb.columns import Bools, Int64s, look_up
from profnb.trace.model import Trace

__all__ = ["find_input_work"]


def find_input_work(trace: Trace, tree: IteratorTree, parent: Int64s, wanted: Int64s) -> Bools:
    """Which events lie inside a call of an iterator of tf.data's, or are of a run of its function.

    Args:
        trace: The trace.
        tree: Its iterators.
        parent: Each event's parent on its line, or -1, shape (E,).
        wanted: The events to tell about, shape (N,).

    Returns:
        Shape (N,).
    """
    if not len(tree):
        return np.zeros(wanted.size, np.bool_)
    begin, end, line = trace.events.begin_ps, trace.events.end_ps, trace.lines.of_event
    tops = tree.events[tree.above < 0]
    at = np.searchsorted(tops, wanted, side="right") - 1
    top = tops[np.maximum(at, 0)]
    found: Bools = (at >= 0) & (begin[wanted] < end[top]) & (line[wanted] == line[top])
    if not tree.runs.size:
        return found
    ids = trace.stats.integers("id")
    numbers = ids.values.astype(np.int64)
    owned = np.unique(look_up(ids.events, numbers, tree.runs, 0))
    ones = np.ones(owned.size, np.int64)
    for events in (parent[wanted], wanted):
        rest = np.flatnonzero(~found)
        run = look_up(ids.events, numbers, events[rest], 0)
        found[rest] = (run != 0) & (look_up(owned, ones, run, 0) == 1)
    return found
