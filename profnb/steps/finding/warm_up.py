"""Which steps are warm-up: a function was traced or compiled in them, or they behave like it.

Threads start and buffers fill in the first step after a new iterator of the input is made: where that takes
five times the median of its phase or more, of five steps at least, it is warm-up. So is the first step of a
phase that takes 30 times the median, whatever it did. As many more as were asked for are too.
"""

import numpy as np

from profnb.core.columns import Bools
from profnb.steps.compilation import was_compiled_during
from profnb.steps.finding.epochs import iterators_made
from profnb.steps.windows import Steps
from profnb.trace.model import Trace

_FEWEST, _FAR_LONGER, _FAR_BEYOND = 5, 5, 30


def find_warm_up(trace: Trace, steps: Steps, warmup_steps: int) -> Bools:
    """Which steps averages leave out, shape (S,).

    Args:
        trace: The trace.
        steps: Its steps.
        warmup_steps: How many at the start of each phase are asked to be left out.
    """
    if steps.is_window:
        return np.zeros(len(steps), np.bool_)
    flags = was_compiled_during(trace, steps.begin_ps, steps.end_ps)
    has_new_iterator = np.append(_makes_iterator_before(trace, steps), steps.ends_epoch[:-1])
    for phase in set(steps.phase):
        rows = steps.rows_of(phase, warm_up=True)
        flags[rows[:warmup_steps]] = True
        steady = rows[~flags[rows]]
        if steady.size < _FEWEST:
            continue
        duration = steps.duration_ps[steady]
        usual = np.median(duration)
        flags[steady[(duration >= _FAR_LONGER * usual) & has_new_iterator[steady]]] = True
        flags[rows[0]] |= steps.duration_ps[rows[0]] >= _FAR_BEYOND * usual
    return flags


def _makes_iterator_before(trace: Trace, steps: Steps) -> bool:
    """Whether an iterator is made on the thread of the steps before the first one."""
    return bool((iterators_made(trace, steps) < steps.host_begin_ps[:1]).any())
