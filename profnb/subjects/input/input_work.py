"""Events to the iterators that they ran for: inside of a call of one, or in a run of its user's function."""

import numpy as np

from profnb.core.columns import Int32s, Int64s
from profnb.steps.nesting import last_around
from profnb.subjects.input.iterators import IteratorTree
from profnb.trace.model import Trace

NOT_INPUT, NO_FUNCTION = -2, -1


def find_input_work(trace: Trace, tree: IteratorTree, parent: Int32s, wanted: Int64s) -> Int64s:
    """What the input pipeline ran: inside a call of an iterator of tf.data's, or in a run of its function.

    Args:
        trace: The trace.
        tree: Its iterators.
        parent: Each event's parent on its line, or -1, shape (E,).
        wanted: The events in question, shape (N,).

    Returns:
        The iterator whose function an event is of; ``NO_FUNCTION`` where it is tf.data's own or not known,
        ``NOT_INPUT`` for all else, shape (N,).
    """
    iterator = np.full(wanted.size, NOT_INPUT, np.int64)
    if not len(tree):
        return iterator
    iterator[last_around(trace, tree.events[tree.above < 0], wanted) >= 0] = NO_FUNCTION
    if not tree.runs.size:
        return iterator
    run = last_around(trace, tree.runs, wanted)
    iterator[run >= 0] = tree.run_node[run[run >= 0]]
    # What the executor does for a run on another thread has the run's id, or is inside an event that has it.
    for events in (parent[wanted], wanted):
        rest = np.flatnonzero((iterator < 0) & (events >= 0))
        run_of = tree.run_of_event[events[rest]]
        rest, run_of = rest[run_of >= 0], run_of[run_of >= 0]
        iterator[rest] = np.maximum(iterator[rest], tree.run_node[run_of])
    return iterator
