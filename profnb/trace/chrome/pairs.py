"""Begin and end events of a Chrome trace to events with a duration.

On one thread, begins at 0 and 2 and ends at 5 and 9 are the events [2, 5) and [0, 9): an end closes the
innermost begin that is open.
"""

import numpy as np

from profnb.core.columns import Bools, Bytes, Int64s
from profnb.core.jit import compiled


@compiled
def _pair(
    order: Int64s, thread: Int64s, is_begin: Bools, previous: Int64s, partner: Int64s
) -> None:
    """Match begins and ends of one thread like brackets; ``partner`` stays -1 without a match."""
    current, top = np.int64(-1), np.int64(-1)
    for event in order:
        if thread[event] != current:
            current, top = thread[event], np.int64(-1)
        if is_begin[event]:
            previous[event] = top
            top = event
        elif top >= 0:
            partner[top] = event
            partner[event] = top
            top = previous[top]


def close_pairs(
    begin: Int64s, duration: Int64s, phases: Bytes, thread: Int64s, args: Int64s
) -> tuple[Int64s, Int64s, Bytes, list[str]]:
    """Make one event of each begin and its end.

    Args:
        begin: When, shape (E,).
        duration: Durations of the events that have one, shape (E,).
        phases: What kind of event each is, shape (E,); "B" and "E" are paired.
        thread: Whose it is, shape (E,); pairs nest per thread.
        args: Spans of the events' args, shape (E, 2); an event takes its end's where its begin has none.

    Returns:
        The rows that stay, their durations, their phases, and what did not match, in sentences.
    """
    is_begin, is_end = phases == ord("B"), phases == ord("E")
    pairs = np.flatnonzero(is_begin | is_end)
    if not pairs.size:
        return np.arange(phases.size), duration, phases, []
    order = pairs[np.lexsort((pairs, begin[pairs], thread[pairs]))]
    previous, partner = (np.full(phases.size, -1, np.int64) for _ in range(2))
    _pair(order, thread, is_begin, previous, partner)
    matched = is_begin & (partner >= 0)
    open_ = is_begin & (partner < 0)
    stray = int((is_end & (partner < 0)).sum())
    last = np.zeros(int(thread.max()) + 1, np.int64)
    np.maximum.at(last, thread, begin + duration)
    duration = duration.copy()
    duration[matched] = begin[partner[matched]] - begin[matched]
    duration[open_] = last[thread[open_]] - begin[open_]
    # An end may carry the args of its event; they are used where the begin has none.
    lacks = matched & (args[:, 1] == 0)
    args[lacks] = args[partner[lacks]]
    notes = []
    if open_.any():
        notes.append(
            f"{int(open_.sum()):,} events begin and never end; they are drawn to the end of their thread."
        )
    if stray:
        notes.append(f"{stray:,} events end and never began; they are left out.")
    remaining = np.flatnonzero(~is_end)
    return remaining, duration[remaining], phases[remaining], notes
