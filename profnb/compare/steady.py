"""One run's steps to the times from step to step that a comparison averages."""

import numpy as np

from profnb.core.columns import Floats
from profnb.steps.step_times import StepTimes
from profnb.subjects.study import Study

__all__ = ["steady_step_times"]

_ENOUGH_UNTRACED = 10


def steady_step_times(study: Study, times: StepTimes) -> tuple[Floats, bool]:
    """The times from iteration to iteration of one run, warm-up left out, in picoseconds.

    Untraced steps are taken where there are enough, because tracing slows steps. A step of several iterations
    (``steps_per_execution``) counts as that many, or it would look slow for doing more.

    Steps that begin at 0, 10 and 25 and last 8, 9 and 7 take 10, 15 and 7: each until the next one begins,
    the last, behind which nothing follows, for its duration.

    Args:
        study: The trace: the phase to compare, and which of its traced steps are no warm-up.
        times: The wall times of the run: the one that was traced, or another run of the same code.

    Returns:
        The times, and whether the steps were traced.
    """
    phase = study.summary.phase
    chosen = np.array([name == phase for name in times.phase], np.bool_)
    chosen[np.flatnonzero(chosen)[: study.warmup_steps]] = False
    chosen &= ~times.retraced
    follows = np.append(np.diff(times.run) == 0, False)
    same = np.append(chosen[1:], False)
    period = np.append(np.diff(times.begin_ps), 0).astype(np.float64)
    period = np.where(follows & same & (period > 0), period, times.duration_ps)
    untraced = chosen & ~times.was_traced
    iterations = max(study.summary.iterations, 1)
    if untraced.sum() >= _ENOUGH_UNTRACED or not times.was_traced.any():
        return period[untraced] / iterations, False
    if not len(study.steps):
        return period[chosen] / iterations, True
    steps, counted = study.steps, study.summary.counted
    return (steps.duration_ps[counted] + study.gaps.own_ps[counted]) / iterations, True
