"""One run's steps to the times from step to step that a comparison averages.

JAX, and PyTorch on a device, return before a step is computed: some steps then only hand their work over,
others wait for many before them, and the median says how long handing over takes. There each step counts as
the mean of the steps around it, of 32 that follow each other, which is as many as JAX has under way at most,
or of a quarter of the epoch where that is less, so that there is something to tell the spread by; what is
waited for behind an epoch's last step belongs to that epoch.
"""

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.steps.step_times import StepTimes
from profnb.subjects.study import Study

_ENOUGH_UNTRACED = 10
_UNDER_WAY, _LEAST_BLOCKS = 32, 4


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
    if not len(times):  # nobody times the calls of an unmarked loop on JAX
        return np.empty(0), False
    phase = study.summary.phase
    chosen = np.array([name == phase for name in times.phase], np.bool_)
    chosen[np.flatnonzero(chosen)[: study.warmup_steps]] = False
    chosen &= ~times.retraced
    follows = np.append(np.diff(times.run) == 0, False)
    same = np.append(chosen[1:], False)
    period = np.append(np.diff(times.begin_ps), 0).astype(np.float64)
    is_measured = follows & same
    if study.runs_ahead:
        is_measured |= _ends_an_epoch(times, phase)
    period = np.where(is_measured & (period > 0), period, times.duration_ps)
    untraced = chosen & ~times.was_traced
    iterations = max(study.summary.iterations, 1)
    if untraced.sum() >= _ENOUGH_UNTRACED or not times.was_traced.any():
        taken = untraced
    elif not len(study.steps):
        taken = chosen
    else:
        steps, counted = study.steps, study.summary.counted
        whole = (steps.duration_ps[counted] + study.gaps.own_ps[counted]) / iterations
        return whole, True  # as the devices or the programs took them
    if study.runs_ahead:
        stretch = np.cumsum(np.append(0, ~is_measured | _ends_an_epoch(times, phase))[:-1])
        return _settled(period[taken] / iterations, stretch[taken]), taken is chosen
    return period[taken] / iterations, taken is chosen


def _ends_an_epoch(times: StepTimes, phase: str | None) -> Bools:
    """Which steps end an epoch in whose fit more steps follow, so that what comes behind is of the fit."""
    is_of_phase = np.array([name == phase for name in times.phase], np.bool_)
    last = np.zeros(len(times), np.bool_)
    rows = np.flatnonzero(is_of_phase)
    same_fit = np.diff(times.run[rows]) == 0
    is_next = np.diff(rows) == 1
    ended = np.zeros(len(times), np.bool_) if times.epoch is None else times.epoch > 0
    last[rows[:-1][same_fit & (~is_next | ended[rows[:-1]])]] = True
    return last


def _settled(period: Floats, stretch: Int64s) -> Floats:
    """The mean around each step, of stretches cut into blocks of as many as may be under way at most."""
    settled = period.astype(np.float64)
    for number in np.unique(stretch):
        rows = np.flatnonzero(stretch == number)
        count = max(rows.size // _UNDER_WAY, min(_LEAST_BLOCKS, rows.size // 2), 1)
        for block in np.array_split(rows, count):
            settled[block] = period[block].mean()
    return settled
