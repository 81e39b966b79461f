"""Where a timeline opens: on three steps that are like most, and not on the warm-up."""

import numpy as np

from profnb.subjects.study import Study

_SHOWN = 3


def typical_steps(study: Study) -> tuple[int, int] | None:
    """The first and the last of up to three steps in a row that together take the median of all such threes.

    Only steps that averages are of count, so no warm-up and no step far outside.

    Returns:
        Rows of ``study.steps``; None where there are no steps.
    """
    steps, counted = study.steps, study.summary.counted
    if steps.is_window or not counted.size:
        return None
    for shown in range(min(_SHOWN, counted.size), 1, -1):
        first, last = counted[: 1 - shown], counted[shown - 1 :]
        in_a_row = np.flatnonzero(last - first == shown - 1)
        if in_a_row.size:
            break
    else:
        first = last = counted
        in_a_row = np.arange(counted.size)
    first, last = first[in_a_row], last[in_a_row]
    order = np.argsort(steps.end_ps[last] - steps.begin_ps[first], kind="stable")
    middle = order[(order.size - 1) // 2]
    return int(first[middle]), int(last[middle])
