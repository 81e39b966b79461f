"""Events to those that a thread of the input pipeline ran: inside an iterator, or for a user's function."""

import numpy as np

from profnb.analysis.iterators import IteratorTree
from profnb.columns import Bools, Int64s
from profnb.trace.model import Trace

__all__ = ["find_input_work"]


def find_input_work(trace: Trace, tree: IteratorTree, parent: Int64s) -> Bools:
    """Which events lie inside a call of an iterator of tf.data's, or are of a run of its function.

    Args:
        trace: The trace.
        tree: Its iterators.
        parent: Each event's parent on its line, or -1, shape (E,).

    Returns:
        Shape (E,).
    """
    events = trace.events
    found: Bools = np.zeros(len(events), np.bool_)
    if not len(tree):
        return found
    tops = tree.events[tree.above < 0]
    at = np.searchsorted(tops, np.arange(len(events)), side="right") - 1
    top = tops[np.maximum(at, 0)]
    found = (
        (at >= 0)
        & (events.begin_ps < events.end_ps[top])
        & (trace.lines.of_event == trace.lines.of_event[top])
    )
    if tree.runs.size:
        ids = trace.stats.integers("id")
        run = np.zeros(len(events), np.int64)
        run[ids.events] = ids.values.astype(np.int64)
        owned = np.unique(run[tree.runs])
        owned = owned[owned != 0]
        if owned.size:
            near = np.minimum(np.searchsorted(owned, run), owned.size - 1)
            is_run = owned[near] == run
            found |= is_run | ((parent >= 0) & is_run[np.maximum(parent, 0)])
    return found
