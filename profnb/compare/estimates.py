"""A few values to an estimate of their mean: its interval, and which of two samples is larger.

Intervals are Student's, with Welch's degrees of freedom where two means are compared.

Source: Welch, "The generalization of Student's problem" (1947); Mann and Whitney (1947).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profnb.core.columns import Floats

# Student's t, 97.5 %, for 1, 2, ... degrees of freedom; further on it is near the normal's 1.96.
_STUDENT = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
)  # fmt: skip


THIS_CODE, OTHER_SIDE, OTHER_CODE, NOBODY = SPREADS = (
    "Past runs of this code", "Runs of the other side", "Past runs of other code on this machine", "Nobody",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and how sure it is.

    Attributes:
        mean: The mean; NaN if there is none.
        variance: Of the mean; NaN where one value cannot tell it.
        freedom: Its degrees of freedom.
    """

    mean: float
    variance: float = math.nan
    freedom: float = 1

    @property
    def interval(self) -> tuple[float, float]:
        """Begin and end of the 95 % interval."""
        return self.less(Estimate(0.0, 0.0))

    def less(self, other: "Estimate") -> tuple[float, float]:
        """Give the 95 % interval of the difference: this mean less the other's."""
        variances = [self.variance, other.variance]
        factor = student_factor(variances, [self.freedom, other.freedom])
        reach = factor * math.sqrt(sum(variances))
        return self.mean - other.mean - reach, self.mean - other.mean + reach

    def exceeds(self, other: "Estimate") -> bool:
        """Tell whether it is surely larger: the 95 % interval of the difference lies above 0."""
        return self.less(other)[0] > 0


@dataclass(frozen=True, slots=True)
class Spread:
    """The variation of a value from run to run, as other runs tell.

    Attributes:
        variance: Of one run's value.
        freedom: Its degrees of freedom.
        of: Who tells it: one of ``SPREADS``.
    """

    variance: float
    freedom: float
    of: str

    def widen(self, estimate: Estimate, runs: int) -> Estimate:
        """Give an estimate from one or two runs the spread that other runs had.

        That of runs holds the scatter of their steps already; that of nobody's is added to it.
        """
        if self.of == NOBODY:
            both = (estimate.variance, estimate.freedom), (self.variance, self.freedom)
            variance = estimate.variance + self.variance
            freedom = variance**2 / sum(one**2 / of for one, of in both)  # Satterthwaite (1946)
            return replace(estimate, variance=variance, freedom=freedom)
        freedom = self.freedom + runs - 1
        squares = self.freedom * self.variance + (runs - 1) * runs * estimate.variance
        variance = squares / freedom / runs
        if runs == 1:
            variance = max(variance, estimate.variance)
        return replace(estimate, variance=variance, freedom=freedom)


# Where no other run tells it. Of eight recorded programs, each alone on its machine, 95 of 100 pairs of runs
# are within 8 % of each other (tests/benchmarks/history.py). On a busy machine runs vary by tens of per cent.
UNKNOWN_SPREAD = Spread(0.027**2, 60, NOBODY)


def estimate_mean(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent values, of runs for instance."""
    if not len(values):
        return Estimate(math.nan)
    variance = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else math.nan
    return Estimate(float(np.mean(values)), variance, max(len(values) - 1, 1))


def student_factor(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Give the standard errors that a 95 % interval reaches: Student's, with Welch's degrees of freedom.

    Args:
        variances: Of each side's mean.
        freedoms: Each side's degrees of freedom.
    """
    parts = [variance**2 / free for variance, free in zip(variances, freedoms, strict=True)]
    if not sum(parts):
        return 1.96
    freedom = max(sum(variances) ** 2 / sum(parts), 1.0)
    # In 1 / freedom the factor is nearly a line.
    reciprocals = 1 / np.arange(1.0, len(_STUDENT) + 1)
    return float(np.interp(1 / freedom, [0.0, *reciprocals[::-1]], [1.96, *_STUDENT[::-1]]))


def mann_whitney(first: Floats, second: Floats) -> float:
    """Test by Mann and Whitney whether one sample tends to larger values: the two-sided p-value.

    By the normal approximation with a correction for ties and continuity; NaN for an empty sample.
    """
    n, m = len(first), len(second)
    if not n or not m:
        return float("nan")
    pooled = np.concatenate([first, second])
    _, inverse, tied = np.unique(pooled, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(tied) - (tied - 1) / 2)[inverse]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    total = n + m
    ties = float((tied.astype(np.float64) ** 3 - tied).sum())
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    z = max(abs(u - n * m / 2) - 0.5, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))
