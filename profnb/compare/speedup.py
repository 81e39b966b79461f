"""Runs to the times of their steps, and two sets of runs to how much faster one is, and how sure that is.

JAX, and PyTorch on a device, return before a step is computed: some steps then only hand their work over,
others wait for many before them, and the median says how long handing over takes. There each step counts as
the mean of the steps around it, of 32 that follow each other, which is as many as JAX has under way at most,
or of a quarter of the epoch where that is less, so that there is something to tell the spread by; what is
waited for behind an epoch's last step belongs to that epoch.

A run is one training; its steps follow each other and are not independent, and runs differ from each other
(clocks, caches, other programs) by more than their steps tell. So the ratio is of typical step times, the
mean over runs of the logarithm of each run's median, and its interval comes from resampling whole runs, each
with its own steps (the variance of that bootstrap, corrected for the small number of runs, has a closed form:
the runs' variance over their number); it is Student's, with Welch's degrees of freedom. Resampling the steps
inside those runs as well would count their noise twice. Where a side has one run only, blocks of its
neighbouring steps are resampled (a moving-block bootstrap): then only the variation from step to step is
known, and the verdict says so.

Simulated with runs that differ by 0 to 3 %, steps that depend on the one before, drift inside runs and
outliers, the 95 % interval holds the truth in 93 to 97 % of runs by three or more (98 % by two), and equal
programs are called different in at most 5 % (``tests/compare/test_comparison.py``).

Source: Kuensch, "The jackknife and the bootstrap for general stationary observations" (1989); Davison and
Hinkley, "Bootstrap methods", 3.8.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profnb.compare.estimates import NOBODY, OTHER_SIDE, SPREADS, Estimate, Spread, mann_whitney
from profnb.core.columns import Bools, Floats, Int64s, flags_at
from profnb.core.units import percent_text, range_text
from profnb.steps.step_times import StepTimes
from profnb.subjects.study import Study

ENOUGH_UNTRACED = 10
_UNDER_WAY, _LEAST_BLOCKS = 32, 4
_MOST_COMPARED = 1000
_RESAMPLES = 1000
_FEWEST_TO_COMPARE = 2
_FEWEST_RANKED = 4
_VAGUE = 10  # how many times its low end the high end of an interval is that tells nothing
ENOUGH_RUNS = 3  # which tell by themselves how much runs vary


def steady_step_times(study: Study, times: StepTimes) -> tuple[Floats, bool]:
    """Take the times from iteration to iteration of one run, warm-up left out, in picoseconds.

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
    phase, runs_ahead = study.summary.phase, study.program.runs_ahead
    ends_epoch = _ends_an_epoch(times, phase) if runs_ahead else False
    period, chosen, is_measured = pick_steps(times, phase, study.warmup_steps, goes_on=ends_epoch)
    untraced = chosen & ~times.was_traced
    iterations = max(study.summary.iterations, 1)
    if untraced.sum() >= ENOUGH_UNTRACED or not times.was_traced.any():
        taken = untraced
    elif not len(study.steps):
        taken = chosen
    else:
        steps, counted = study.steps, study.summary.counted
        whole = (steps.duration_ps[counted] + study.gaps.own_ps[counted]) / iterations
        return whole, True  # as the devices or the programs took them
    if runs_ahead:
        stretch = np.cumsum(np.append(0, ~is_measured | ends_epoch)[:-1])
        return _settled(period[taken] / iterations, stretch[taken]), taken is chosen
    return period[taken] / iterations, taken is chosen


def pick_steps(
    times: StepTimes, phase: str | None, warmup: int, *, goes_on: Bools | bool = False
) -> tuple[Floats, Bools, Bools]:
    """Pick the steps of a phase that are no warm-up.

    Args:
        times: The wall times of a run.
        phase: The kind of steps.
        warmup: How many of the first ones to leave out.
        goes_on: Steps that last until the next one, whichever it is.

    Returns:
        Of each step its time, until the next one of its run begins or else its duration, and whether it is
        picked, and whether the next one's beginning ends it.
    """
    chosen = np.array([name == phase for name in times.phase], np.bool_)
    if not chosen.size:
        return np.empty(0), chosen, chosen
    chosen[np.flatnonzero(chosen)[:warmup]] = False
    chosen &= ~times.retraced
    is_measured = np.append((np.diff(times.run) == 0) & chosen[1:], False) | goes_on
    period = np.append(np.diff(times.begin_ps), 0)
    is_longer = is_measured & (period > 0)
    return np.where(is_longer, period, times.duration_ps).astype(np.float64), chosen, is_measured


def _ends_an_epoch(times: StepTimes, phase: str | None) -> Bools:
    """Steps that end an epoch in whose fit more steps follow, so that what comes behind is of the fit."""
    rows = np.flatnonzero([name == phase for name in times.phase])
    same_fit, is_apart = np.diff(times.run[rows]) == 0, np.diff(rows) > 1
    is_over = False if times.epoch is None else times.epoch[rows[:-1]] > 0
    return flags_at(rows[:-1][same_fit & (is_apart | is_over)], len(times))


def _settled(period: Floats, stretch: Int64s) -> Floats:
    """The mean around each step, of stretches cut into blocks of as many as may be under way at most."""
    settled = period.astype(np.float64)
    for number in np.unique(stretch):
        rows = np.flatnonzero(stretch == number)
        count = max(rows.size // _UNDER_WAY, min(_LEAST_BLOCKS, rows.size // 2), 1)
        for block in np.array_split(rows, count):
            settled[block] = period[block].mean()
    return settled


@dataclass(frozen=True, slots=True)
class RunSet:
    """The steps of one or several runs of the same code.

    Attributes:
        label: What to call it.
        step_ps: For each run the times of its steps, warm-up left out, in order.
        run_ps: How long each run took as a whole, warm-up included; empty where that is not known.
    """

    label: str
    step_ps: tuple[Floats, ...]
    run_ps: tuple[float, ...] = ()

    @property
    def medians(self) -> Floats:
        """The median step of each run that has any."""
        return np.array([np.median(steps) for steps in self.step_ps if len(steps)])

    @property
    def step_count(self) -> int:
        """Steps in all runs together."""
        return sum(len(steps) for steps in self.step_ps)


@dataclass(frozen=True, slots=True)
class Difference:
    """The step times of B against those of A.

    Attributes:
        ratio: Typical step time of B over that of A; below 1 B is faster. NaN if it cannot be told.
        low: Where its 95 % interval begins.
        high: Where it ends.
        p_value: Mann and Whitney's, two-sided: of runs if there are four or more on each side, of blocks
            of steps if there is one run each; else NaN, too few runs to rank.
        runs: How many of A and of B.
        steps: How many of A and of B.
        spread: How much runs vary, as the history tells where a side has too few; None where nobody asked.
    """

    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    runs: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (0, 0)
    spread: Spread | None = None

    @property
    def is_open(self) -> bool:
        """There is one run a side, and nobody knows how much runs vary: no verdict."""
        return self.spread is not None and self.spread.of == NOBODY

    @property
    def is_different(self) -> bool:
        """The interval leaves out 1; False where there is none, or no verdict."""
        return not (self.is_open or self.low <= 1 <= self.high or math.isnan(self.low))

    def times(self, factor: float) -> "Difference":
        """Take times that are this much larger on the side of B, such as those of one example."""
        low, high = self.low * factor, self.high * factor
        return replace(self, ratio=self.ratio * factor, low=low, high=high)

    def speed_words(self) -> tuple[str, str]:
        """Say how many times faster or slower B is, and the interval: "1.90x faster", "1.80 to 2.00"."""
        sign, ends = (-1, (self.high, self.low)) if self.ratio < 1 else (1, (self.low, self.high))
        factor, low, high = (factor_text(one**sign) for one in (self.ratio, *ends))
        return f"{factor}x {'faster' if sign < 0 else 'slower'}", range_text(low, high)

    def verdict(self, first: str, second: str, of: str = "") -> str:
        """The answer in a sentence.

        Args:
            first: What A is called.
            second: What B is called.
            of: What the times are of, such as "per example"; "" for a step.
        """
        of = f" {of}" if of else ""
        if math.isnan(self.ratio):
            return f"{first} and {second} cannot be compared: one side has no steps to average."
        counts = f"{self.runs[0]} + {self.runs[1]} runs"
        if max(self.runs) == 1:
            counts = f"{self.steps[0]:,} + {self.steps[1]:,} steps"
            counts += "" if self.is_open else " of one run each"
        if self.is_different:
            speed, interval = self.speed_words()
            sentence = f"{second} is {speed}{of} than {first}"
        else:
            said = "One run each is no proof" if self.is_open else "These runs show no difference"
            sentence = f"{said}: {second} takes {self.ratio:.2f} times as long as {first}{of}"
            interval = range_text(f"{self.low:.2f}", f"{self.high:.2f}")
            interval = "wider than tenfold" if self._is_vague else interval
        return f"{sentence} (95 % interval {interval}, {counts}). {self._about_spread()}".rstrip()

    @property
    def _is_vague(self) -> bool:
        """The runs are too few, or too different, to say anything."""
        return self.high > _VAGUE * self.low

    def _about_spread(self) -> str:
        """Say how runs vary, where a side has too few to tell."""
        spread, repeat = self.spread, "Repeat the runs (in a notebook: --repeat 5)."
        if spread is None:
            may_differ = "Other runs may differ more. " * (min(self.runs) == 1)
            return f"{may_differ}{repeat}" if may_differ or self._is_vague else ""
        if not self.is_open:
            return f"{spread.of} vary by {percent_text(math.sqrt(spread.variance))}."
        off = f"{100 * (math.sqrt(self.high / self.low) - 1):.0f} %"
        return f"Even on an idle machine two runs of the same code can differ by {off}. {repeat}"


def factor_text(value: float) -> str:
    """Write a factor with three digits at least, and no more after the point than it is worth."""
    return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"


def compare_runs(
    first: RunSet, second: RunSet, seed: int = 0, spreads: tuple[Spread, Spread] | None = None
) -> Difference:
    """Compare the step times of two sets of runs.

    Args:
        first: What to compare with (A).
        second: What is compared (B).
        seed: Of the resampling, so that the same runs give the same answer.
        spreads: How much runs of A and of B vary, which counts where a side has one or two; None where only
            their steps are to.
    """
    sides = [_measured(side.step_ps) for side in (first, second)]
    runs = len(sides[0]), len(sides[1])
    counts = first.step_count, second.step_count
    if not all(runs):
        return Difference(runs=runs, steps=counts)
    random = np.random.default_rng(seed)
    estimates = [estimate_step(side, random) for side in sides]
    used = [] if spreads is None else _spreads_used(estimates, runs, spreads)
    one, two = (
        spread.widen(estimate, count) if spread is not None else estimate
        for estimate, count, spread in zip(estimates, runs, used or [None] * 2, strict=True)
    )
    spread = max(filter(None, used), key=lambda one: SPREADS.index(one.of), default=None)
    low, high = (math.exp(bound) for bound in two.less(one))
    samples = [first.medians, second.medians]
    if max(runs) == 1:
        samples = [block_medians(side[0]) for side in sides]
    is_ranked = min(map(len, samples)) >= _FEWEST_RANKED
    p_value = mann_whitney(*samples) if is_ranked else math.nan
    return Difference(math.exp(two.mean - one.mean), low, high, p_value, runs, counts, spread)


def _spreads_used(
    estimates: Sequence[Estimate], runs: tuple[int, int], spreads: tuple[Spread, Spread]
) -> list[Spread | None]:
    """Choose how runs vary, for a side with too few to tell: as past ones, else the other side's."""
    used: list[Spread | None] = []
    for at, (count, spread) in enumerate(zip(runs, spreads, strict=True)):
        other, more = estimates[1 - at], runs[1 - at]
        if count >= ENOUGH_RUNS or (spread.of == NOBODY and count > 1):
            used.append(None)
        elif spread.of == NOBODY and more > 1:
            used.append(Spread(other.variance * more, other.freedom / 2, OTHER_SIDE))
        else:
            used.append(spread)
    if used[0] is not None and used[0] == used[1]:  # known once, and not once a side
        half = replace(used[0], freedom=used[0].freedom / 2)
        return [half, half]
    return used


def _measured(runs: Sequence[Floats]) -> list[Floats]:
    return [np.asarray(steps, np.float64) for steps in runs if len(steps) >= _FEWEST_TO_COMPARE]


def estimate_step(runs: Sequence[Floats], random: np.random.Generator | None = None) -> Estimate:
    """Estimate the logarithm of the typical step time of one set of runs.

    Args:
        runs: For each run the times of its steps.
        random: For resampling the steps of a single run; the same draws each time by default.
    """
    measured = _measured(runs)
    if not measured:
        return Estimate(math.nan)
    logs = np.log([np.median(steps) for steps in measured])
    if logs.size > 1:
        variance, freedom = logs.var(ddof=1) / logs.size, logs.size - 1
    else:
        variance = _resampled_medians(measured[0], random or np.random.default_rng(0)).var()
        freedom = max(block_medians(measured[0]).size - 1, 1)  # independent pieces less one
    return Estimate(float(logs.mean()), float(variance), freedom)


def _resampled_medians(steps: Floats, random: np.random.Generator) -> Floats:
    """Log medians of a run's steps, resampled in blocks of neighbours; shape (samples,)."""
    steps = _measured_apart(steps)
    if steps.size > _MOST_COMPARED:  # neighbours' medians: the typical step stays what it is
        width = -(-steps.size // _MOST_COMPARED)
        whole_blocks = steps[: steps.size // width * width]
        steps = np.median(whole_blocks.reshape(-1, width), axis=1)
    length = _block_length(steps.size)
    blocks = -(-steps.size // length)
    starts = random.integers(0, steps.size - length + 1, (_RESAMPLES, blocks, 1))
    rows = (starts + np.arange(length)).reshape(_RESAMPLES, -1)[:, : steps.size]
    return np.asarray(np.log(np.maximum(np.median(steps[rows], axis=1), 1e-9)))


def _block_length(count: int) -> int:
    """Count the neighbours to keep together: steps further apart hardly depend on each other; 20 of 1,000."""
    return min(max(round(2 * math.pow(count, 1 / 3)), 1), count)


def block_medians(steps: Floats) -> Floats:
    """Take one median per block of neighbours, which are nearly independent; what is left over is dropped."""
    steps = _measured_apart(steps)
    length = _block_length(steps.size)
    whole_blocks = steps[: steps.size // length * length]
    return np.asarray(np.median(whole_blocks.reshape(-1, length), axis=1))


def _measured_apart(steps: Floats) -> Floats:
    """One time for each stretch of steps that have the same: those were measured together, as one mean.

    For example 5 5 5 5 7 7 7 7 is 5 7: two things are known, not eight.
    """
    return steps[np.append(True, np.diff(steps) != 0)] if steps.size else steps
