"""Settings that were run in rounds, each once a round, to how they differ and how sure that is.

A machine that warms up, slows down or is used by others does so for a whole round, in which the settings
follow each other in random order. So the logarithm of a run's time is that of its setting, plus the round's,
plus chance; what rounds have in common falls out of every difference. Chance is taken to be as large, in
percent, for every setting, and estimated from all of them together: three runs of six settings tell it with
ten degrees of freedom, where each alone would have two. A setting that misses a round (it was traced there,
or failed) is compared by the rounds that it has (least squares).

Differences to the best hold for all settings at once (``best_setting``, ``dunnett``). The time of a setting
itself varies with the rounds too; its interval has both variances, by Welch's degrees of freedom.

Simulated (``tests/simulate_sweep.py``): with drift and outliers the bounds of all differences to the best
hold in 94 to 97 % of the sweeps; the interval of a setting itself, which has few rounds to go by, holds its
time at the machine's mean speed in 92 to 100 %.

Source: Hsu, "Multiple comparisons" (1996), chapters 4 and 7; Montgomery, "Design and analysis of
experiments", the randomized complete block design.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.compare.dunnett import dunnett_factor
from profnb.compare.estimates import Estimate, student_factor
from profnb.core.columns import Bools, Floats, Int64s


@dataclass(frozen=True)
class RoundFit:
    """N settings.

    Attributes:
        means: The mean logarithm of each one's time, over all rounds, shape (N,); NaN where there is none.
        spread: Variances of them without what rounds have in common, and their covariances, shape (N, N).
        freedom: Degrees of freedom of that.
        level: Variance of what all of them have in common, and its degrees of freedom.
        rounds: How many rounds there are.
    """

    means: Floats
    spread: Floats
    freedom: int
    level: tuple[float, int]
    rounds: int

    @property
    def is_timed(self) -> Bools:
        """Which settings have a time, shape (N,)."""
        return np.isfinite(self.means)

    @property
    def factor(self) -> float:
        """How many standard errors tell two settings apart, all of them at once; NaN for fewer than two."""
        others = int(self.is_timed.sum()) - 1
        return dunnett_factor(others, self.freedom) if others > 0 else math.nan

    def error(self, one: int, other: int) -> float:
        """The standard error of the difference of two settings."""
        variance = self.spread[one, one] + self.spread[other, other] - 2 * self.spread[one, other]
        return math.sqrt(max(float(variance), 0.0)) if math.isfinite(variance) else math.nan

    def interval(self, row: int) -> tuple[float, float]:
        """Where the 95 % interval of a setting's own mean begins and ends."""
        variances = [float(self.spread[row, row]), self.level[0]]
        reach = student_factor(variances, [self.freedom, self.level[1]]) * math.sqrt(sum(variances))
        return float(self.means[row]) - reach, float(self.means[row]) + reach


def fit_rounds(rows: Int64s, rounds: Int64s, logs: Floats, count: int) -> RoundFit | None:
    """Settings by their runs.

    Args:
        rows: The setting of each run, shape (R,).
        rounds: The round of each run, shape (R,).
        logs: The logarithm of its time, shape (R,).
        count: How many settings there are.

    Returns:
        The settings; None where too few runs tell how much chance makes of a difference.
    """
    settings, row = np.unique(rows, return_inverse=True)
    numbers, block = np.unique(rounds, return_inverse=True)
    freedom = logs.size - settings.size - numbers.size + 1
    if freedom < 1 or numbers.size < 2:
        return None
    table = np.zeros((settings.size, numbers.size))
    np.add.at(table, (row, block), 1.0)
    of_block = table.sum(axis=0)
    block_mean = np.bincount(block, logs) / of_block
    matrix = np.diag(table.sum(axis=1)) - (table / of_block) @ table.T
    inverse = np.linalg.pinv(matrix, hermitian=True)
    setting_effects = inverse @ (np.bincount(row, logs) - table @ block_mean)
    of_rounds = block_mean - (setting_effects @ table) / of_block
    residuals = logs - setting_effects[row] - of_rounds[block]
    variance = float((residuals**2).sum()) / freedom
    level = float(of_rounds.mean()), float(of_rounds.var(ddof=1)) / numbers.size
    means, spread = np.full(count, np.nan), np.full((count, count), np.nan)
    means[settings] = setting_effects + level[0]
    spread[np.ix_(settings, settings)] = variance * inverse
    return RoundFit(means, spread, freedom, (level[1], numbers.size - 1), numbers.size)


def of_single_runs(estimates: Sequence[Estimate]) -> RoundFit:
    """Settings that were run once: only the variation from step to step is known."""
    means = np.array([one.mean for one in estimates])
    freedom = min((one.freedom for one in estimates if math.isfinite(one.variance)), default=1)
    return RoundFit(means, np.diag([one.variance for one in estimates]), freedom, (0.0, 1), 1)
