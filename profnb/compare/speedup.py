"""Times of two sets of runs to how much faster one is, and how sure that is.

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
programs are called different in at most 5 % (``tests/test_comparison.py``).

Source: Kuensch, "The jackknife and the bootstrap for general stationary observations" (1989); Davison and
Hinkley, "Bootstrap methods", 3.8.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profnb.compare.estimates import Estimate, mann_whitney
from profnb.core.columns import Floats
from profnb.core.units import range_text

_MOST_STEPS = 1000
_SAMPLES = 1000
_FEWEST_STEPS = 2
_FEWEST_RANKED = 4


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
    """How step times of B compare with those of A.

    Attributes:
        ratio: Typical step time of B over that of A; below 1 B is faster. NaN if it cannot be told.
        low: Where its 95 % interval begins.
        high: Where it ends.
        is_different: Whether the interval leaves out 1.
        p_value: Mann and Whitney's, two-sided: of runs if there are four or more on each side, of blocks
            of steps if there is one run each; else NaN, too few runs to rank.
        runs: How many of A and of B.
        steps: How many of A and of B.
    """

    ratio: float
    low: float
    high: float
    is_different: bool
    p_value: float
    runs: tuple[int, int]
    steps: tuple[int, int]

    def times(self, factor: float) -> "Difference":
        """The same of times that are this much larger on the side of B, such as those of one example."""
        low, high = self.low * factor, self.high * factor
        return replace(
            self,
            ratio=self.ratio * factor,
            low=low,
            high=high,
            is_different=not low <= 1 <= high and not math.isnan(low),
        )

    def verdict(self, first: str, second: str, of: str = "") -> str:
        """The answer in a sentence.

        Args:
            first: What A is called.
            second: What B is called.
            of: What the times are of, such as "per example"; "" for a step.
        """
        of = f" {of}" if of else ""
        if math.isnan(self.ratio):
            return f"{first} and {second} cannot be compared: one of them has no steps to average."
        counts = f"{self.runs[0]} + {self.runs[1]} runs"
        single = min(self.runs) == 1
        if single:
            counts = (
                f"{self.steps[0]:,} + {self.steps[1]:,} steps of one run each"
                if max(self.runs) == 1
                else counts
            )
        faster = self.ratio < 1
        factor = 1 / self.ratio if faster else self.ratio
        bounds = (1 / self.high, 1 / self.low) if faster else (self.low, self.high)
        interval = f"95 % interval {range_text(_factor(bounds[0]), _factor(bounds[1]))}, {counts}"
        if not self.is_different:
            sentence = (
                f"No difference that these runs can show: {second} takes {self.ratio:.2f} of the time of "
                f"{first}{of} (95 % interval {range_text(f'{self.low:.2f}', f'{self.high:.2f}')}, {counts})."
            )
        else:
            word = "faster" if faster else "slower"
            sentence = f"{second} is {_factor(factor)}x {word}{of} than {first} ({interval})."
        if single:
            sentence += " Runs differ from each other too, which one run cannot tell: repeat them."
        return sentence


def _factor(value: float) -> str:
    """A factor with three digits at least, and no more after the point than it is worth."""
    return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"


def compare_runs(first: RunSet, second: RunSet, seed: int = 0) -> Difference:
    """Compare the step times of two sets of runs.

    Args:
        first: What to compare with (A).
        second: What is compared (B).
        seed: Of the resampling, so that the same runs give the same answer.
    """
    sides = [
        [np.asarray(steps, np.float64) for steps in side.step_ps if len(steps) >= _FEWEST_STEPS]
        for side in (first, second)
    ]
    runs = len(sides[0]), len(sides[1])
    counts = first.step_count, second.step_count
    if not all(runs):
        nan = float("nan")
        return Difference(nan, nan, nan, is_different=False, p_value=nan, runs=runs, steps=counts)
    random = np.random.default_rng(seed)
    one, two = (estimate_step(side, random) for side in sides)
    low, high = (math.exp(bound) for bound in two.less(one))
    medians = first.medians, second.medians
    samples = medians if max(runs) > 1 else tuple(_block_medians(side[0]) for side in sides)
    can_be_ranked = min(map(len, samples)) >= _FEWEST_RANKED
    return Difference(
        math.exp(two.mean - one.mean), low, high,
        is_different=not low <= 1 <= high,
        p_value=mann_whitney(samples[0], samples[1]) if can_be_ranked else float("nan"),
        runs=runs,
        steps=counts,
    )  # fmt: skip


def estimate_step(runs: Sequence[Floats], random: np.random.Generator | None = None) -> Estimate:
    """The logarithm of the typical step time of one set of runs.

    Args:
        runs: For each run the times of its steps.
        random: For resampling the steps of a single run; the same draws each time by default.
    """
    measured = [np.asarray(steps, np.float64) for steps in runs if len(steps) >= _FEWEST_STEPS]
    if not measured:
        return Estimate(math.nan)
    logs = np.log([np.median(steps) for steps in measured])
    variance = (
        logs.var(ddof=1) / logs.size
        if logs.size > 1
        else _resampled_medians(measured[0], random or np.random.default_rng(0)).var()
    )
    return Estimate(float(logs.mean()), float(variance), _freedom_of(measured))


def _resampled_medians(steps: Floats, random: np.random.Generator) -> Floats:
    """Log medians of a run's steps, resampled in blocks of neighbours; shape (samples,)."""
    steps = _measured_apart(steps)
    if steps.size > _MOST_STEPS:  # neighbours' medians: the typical step stays what it is
        width = -(-steps.size // _MOST_STEPS)
        whole_blocks = steps[: steps.size // width * width]
        steps = np.median(whole_blocks.reshape(-1, width), axis=1)
    length = _block_length(steps.size)
    blocks = -(-steps.size // length)
    starts = random.integers(0, steps.size - length + 1, (_SAMPLES, blocks, 1))
    rows = (starts + np.arange(length)).reshape(_SAMPLES, -1)[:, : steps.size]
    return np.asarray(np.log(np.maximum(np.median(steps[rows], axis=1), 1e-9)))


def _block_length(count: int) -> int:
    """How many neighbours to keep together: steps further apart hardly depend on each other; 20 of 1,000."""
    return min(max(round(2 * math.pow(count, 1 / 3)), 1), count)


def _block_medians(steps: Floats) -> Floats:
    """One median for each block of neighbours, which are nearly independent; what is left over is dropped."""
    steps = _measured_apart(steps)
    length = _block_length(steps.size)
    whole_blocks = steps[: steps.size // length * length]
    return np.asarray(np.median(whole_blocks.reshape(-1, length), axis=1))


def _freedom_of(runs: Sequence[Floats]) -> int:
    """Independent pieces less one: runs, or the blocks of a single one."""
    count = len(runs)
    if count > 1:
        return count - 1
    steps = _measured_apart(runs[0])
    return max(steps.size // _block_length(steps.size) - 1, 1)


def _measured_apart(steps: Floats) -> Floats:
    """One time for each stretch of steps that have the same: those were measured together, as one mean.

    For example 5 5 5 5 7 7 7 7 is 5 7: two things are known, not eight.
    """
    return steps[np.append(True, np.diff(steps) != 0)] if steps.size else steps
