"""Which steps are warm-up: a function was traced or compiled in them, or they are asked to be left out."""

import numpy as np

from profnb.core.columns import Bools
from profnb.steps.compilation import was_compiled_during
from profnb.steps.windows import Steps
from profnb.trace.model import Trace

__all__ = ["find_warm_up"]


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
    for phase in set(steps.phase):
        flags[steps.rows_of(phase, warm_up=True)[:warmup_steps]] = True
    return flags
