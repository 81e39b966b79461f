"""Settings that were run in rounds, each once a round, to how each stands to the best one, and how surely.

A machine that warms up, slows down or is used by others does so for a whole round, in which the settings
follow each other in random order. So the logarithm of a run's time is that of its setting, plus the round's,
plus chance; what rounds have in common falls out of every difference. Chance is taken to be as large, in
percent, for every setting, and estimated from all of them together: three runs of six settings tell it with
ten degrees of freedom, where each alone would have two. A setting that misses a round (it was traced there,
or failed) is compared by the rounds that it has (least squares).

Bounds of differences to the best hold for all settings at once, in 95 % of the sweeps, whichever setting is
best. With one of k + 1 means as the control, Dunnett's one-sided value is exceeded by the largest of the k
studentized differences in 5 % of all experiments in which nothing differs. Hsu showed that the same value
holds where the control is whatever is best, which nobody knew beforehand: settings that it tells from the
best are surely not the best, and the truly best one is among the others in 95 %. What as many rounds can
show, and how many more it takes to show a difference, is told for a power of 80 %: four times of five.

The time of a setting itself varies with the rounds too; its interval has both variances, by Welch's degrees
of freedom. Simulated (``tests/compare/simulate_sweep.py``): with drift and outliers bounds of all differences
to the best hold in 94 to 97 % of the sweeps; the interval of a setting itself, which has few rounds to go by,
holds its time at the machine's mean speed in 92 to 100 %.

Source: Hsu, "Multiple comparisons" (1996), chapters 4 and 7; Montgomery, "Design and analysis of
experiments", the randomized complete block design; Dunnett, "A multiple comparison procedure for comparing
several treatments with a control" (1955); Hsu, "Constrained simultaneous confidence intervals for multiple
comparisons with the best" (1984).
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from profnb.compare.estimates import Estimate
from profnb.core.columns import Bools, Floats, Int64s

_POWER = 0.8416  # of 80 %: the normal's quantile
MOST_ROUNDS = 200
_QUADRATURE_NODES, _MANY, _LEVEL = 64, 4000, 0.95
TINY = 1e-9  # of logarithms: what rounding makes


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
    def timed_count(self) -> int:
        """Count the settings that have a time."""
        return int(np.isfinite(self.means).sum())

    @property
    def factor(self) -> float:
        """The standard errors that tell two settings apart, all of them at once; NaN for fewer than two."""
        others = self.timed_count - 1
        return dunnett_factor(others, self.freedom) if others > 0 else math.nan

    @cached_property
    def errors(self) -> Floats:
        """The standard errors of the differences of two settings, shape (N, N)."""
        each = np.diag(self.spread)
        return np.sqrt(np.maximum(each[:, None] + each - 2 * self.spread, 0.0))

    def interval(self, row: int) -> tuple[float, float]:
        """Give where the 95 % interval of a setting's own mean begins and ends."""
        mean = Estimate(float(self.means[row]), float(self.spread[row, row]), self.freedom)
        return mean.less(Estimate(0.0, *self.level))


@dataclass(frozen=True)
class Ranking:
    """The standing of N settings to the best of the others, in logarithms of what is wanted large.

    Attributes:
        best: The setting with the largest value.
        low: Where the interval of how far each is behind the best of the others begins, shape (N,): 95 % for
            all settings at once; negative where it may be ahead.
        high: Where it ends.
        shows: The difference that as many rounds show four times of five; NaN where that is not known.
        more_rounds: For each setting how many more rounds would tell it from the best four times of five, if
            it is as far behind as it looks, shape (N,); 0 where it is told already, -1 where two hundred
            would not.
    """

    best: int
    low: Floats
    high: Floats
    shows: float
    more_rounds: Int64s

    @property
    def may_be_best(self) -> Bools:
        """The settings that may be the best, shape (N,)."""
        return np.asarray(~(self.low > 0) & np.isfinite(self.low))


def fit_rounds(rows: Int64s, rounds: Int64s, logs: Floats, count: int) -> RoundFit | None:
    """Fit settings by their runs.

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


def one_round(estimates: Sequence[Estimate]) -> RoundFit:
    """Take settings that were run once: only the variation from step to step is known."""
    means = np.array([one.mean for one in estimates])
    freedom = min((int(one.freedom) for one in estimates if math.isfinite(one.variance)), default=1)
    return RoundFit(means, np.diag([one.variance for one in estimates]), freedom, (0.0, 1), 1)


def rank(fit: RoundFit, values: Floats) -> Ranking | None:
    """Rank settings by how they stand to the best.

    Args:
        fit: Their times.
        values: What is wanted large, its differences being those of the times: logarithms of throughput,
            shape (N,); NaN where there is none.

    Returns:
        The ranking; None where no setting has a time.
    """
    timed = np.flatnonzero(np.isfinite(values))
    if not timed.size:
        return None
    best = int(timed[np.argmax(values[timed])])
    low, high = np.full(values.size, np.nan), np.full(values.size, np.nan)
    more = np.zeros(values.size, np.int64)
    behind = values[timed] - values[timed, None]
    reach = fit.factor * fit.errors[np.ix_(timed, timed)]
    # Whom one of the others surely beats is behind; whom none may beat is not.
    lowest, highest = behind - reach, behind + reach
    for differences in (lowest, highest):
        np.fill_diagonal(differences, -math.inf)
    low[timed] = np.fmax.reduce(lowest, axis=1)
    high[timed] = highest.max(axis=1) if timed.size > 1 else 0.0
    others = timed[timed != best].tolist()
    for row in others:
        if not low[row] > TINY:
            gap, error = float(values[best] - values[row]), float(fit.errors[best, row])
            more[row] = _more_rounds(fit, len(others), gap, error)
    error = float(np.median(fit.errors[best, others])) if others else math.nan
    shows = (fit.factor + _POWER) * error
    return Ranking(best, np.where(np.abs(low) < TINY, 0, low), high, shows, more)


def _more_rounds(fit: RoundFit, others: int, gap: float, error: float) -> int:
    """Find how many more rounds would show a gap four times of five; -1 where two hundred would not."""
    if not (error > 0 and gap > 0) or fit.rounds < 2:
        return -1
    each = fit.freedom / (fit.rounds - 1)

    def shows(more: int) -> bool:
        rounds = fit.rounds + more
        factor = dunnett_factor(others, max(round(each * (rounds - 1)), 1)) + _POWER
        return gap >= factor * error * math.sqrt(fit.rounds / rounds)

    if not shows(MOST_ROUNDS):
        return -1
    return 1 + bisect_left(range(1, MOST_ROUNDS), True, key=shows)  # noqa: FBT003 - what is sought


@cache
def dunnett_factor(others: int, freedom: int) -> float:
    """Give how many standard errors of a difference a mean must lie below the best one.

    The distribution is integrated: with s the ratio of the estimated to the true standard deviation (a chi
    distribution) and z the control's own deviation, the k differences are independent. For means of equally
    many runs, whose differences have a correlation of 1/2. In 95 % of experiments where nothing differs, the
    largest of the differences stays below.

    Args:
        others: How many means are compared with the best one, at least 1.
        freedom: Degrees of freedom of the variance, at least 1.
    """
    z, z_weight = _between(-8.5, 8.5)
    z_weight *= np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    s, s_weight = _chi_nodes(freedom)

    def is_enough(factor: float) -> bool:
        below = np.interp(z[:, None] + math.sqrt(2) * factor * s[None, :], *_normal_table())
        return float(z_weight @ below**others @ s_weight) >= _LEVEL

    low, high = 0.0, 4.0
    while not is_enough(high):
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


@cache
def _normal_table() -> tuple[Floats, Floats]:
    """The normal distribution, so close that a line between two points is off by less than 1e-7."""
    at = np.linspace(-9, 9, 12001)
    return at, np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in at.tolist()])


def _chi_nodes(freedom: int) -> tuple[Floats, Floats]:
    """Of the square root of chi-square over its degrees of freedom."""
    if freedom > _MANY:
        return np.ones(1), np.ones(1)
    reach = 8.5 / math.sqrt(2 * freedom)
    nodes, weights = _between(max(1 - reach, 0.0), 1 + reach)
    half = freedom / 2
    log = (freedom - 1) * np.log(nodes) - half * nodes**2
    log += half * math.log(half) - math.lgamma(half) + math.log(2)
    return nodes, weights * np.exp(log)


def _between(begin: float, end: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_QUADRATURE_NODES)
    half = (end - begin) / 2
    return begin + half * (nodes + 1), weights * half
