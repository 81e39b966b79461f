"""Events to the iterators that they ran for: inside of a call of one, or in a run of its user's function."""

import numpy as np

from profnb.core.columns import Int64s, look_up
from profnb.steps.nesting import last_around
from profnb.subjects.input.iterators import IteratorTree
from profnb.trace.model import Trace

__all__ = ["NOT_INPUT", "NO_FUNCTION", "find_input_work"]

NOT_INPUT, NO_FUNCTION = -2, -1


def find_input_work(trace: Trace, tree: IteratorTree, parent: Int64s, wanted: Int64s) -> Int64s:
    """What the input pipeline ran: inside a call of an iterator of tf.data's, or in a run of its function.

    Args:
        trace: The trace.
        tree: Its iterators.
        parent: Each event's parent on its line, or -1, shape (E,).
        wanted: The events to tell about, shape (N,).

    Returns:
        The iterator whose function an event is of; ``NO_FUNCTION`` where it is tf.data's own or not known,
        ``NOT_INPUT`` for all else, shape (N,).
    """
    found = np.full(wanted.size, NOT_INPUT, np.int64)
    if not len(tree):
        return found
    found[last_around(trace, tree.events[tree.above < 0], wanted) >= 0] = NO_FUNCTION
    if not tree.runs.size:
        return found
    run = last_around(trace, tree.runs, wanted)
    found[run >= 0] = tree.run_node[run[run >= 0]]
    ids = trace.stats.integers("id")
    numbers = ids.values.astype(np.int64)
    own = look_up(ids.events, numbers, tree.runs, 0)
    owned, first = np.unique(own[own != 0], return_index=True)
    node = tree.run_node[np.flatnonzero(own != 0)[first]]
    for events in (parent[wanted], wanted):
        rest = np.flatnonzero(found < 0)
        at = look_up(ids.events, numbers, events[rest], 0)
        found[rest] = np.where(
            at != 0, look_up(owned, np.maximum(node, NO_FUNCTION), at, NOT_INPUT), found[rest]
        ).clip(found[rest])
    return found
