"""Where an epoch ends: between which steps the program makes a new iterator of tf.data."""

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.steps.windows import Steps
from profnb.trace.model import Trace

_MAKES_ITERATOR = ("MakeIterator", "EagerLocalExecute: MakeIterator")


def iterators_made(trace: Trace, steps: Steps) -> Int64s:
    """When the thread of the steps made iterators, in time order; nothing without steps of a thread."""
    if not steps.roots.size:
        return np.empty(0, np.int64)
    making = np.flatnonzero(trace.select_names(lambda name: name in _MAKES_ITERATOR))
    line = trace.lines.of_event[steps.roots[0]]
    is_own: Bools = trace.is_host_event[making] & (trace.lines.of_event[making] == line)
    return trace.events.begin_ps[making[is_own]]


def find_epoch_ends(trace: Trace, steps: Steps) -> Bools:
    """After which steps a new iterator is made before the next one begins, shape (S,).

    Python's ``for`` over a dataset makes one each time it begins, and so does Keras for each epoch and each
    validation. Only what the thread of the steps does counts; without steps of a thread none is told.
    """
    ends = np.zeros(len(steps), np.bool_)
    if not steps.roots.size:
        return ends
    begins = iterators_made(trace, steps)
    row = np.searchsorted(steps.host_begin_ps, begins, side="right") - 1
    inside = (row >= 0) & (row < len(steps) - 1)
    row, begins = row[inside], begins[inside]
    ends[row[begins >= steps.host_end_ps[row]]] = True
    return ends
