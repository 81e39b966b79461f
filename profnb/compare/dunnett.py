"""How far apart the best of several means and another must be to be surely different, all of them at once.

With one of k + 1 means as the control, Dunnett's one-sided value is exceeded by the largest of the k
studentized differences in 5 % of all experiments in which nothing differs. Hsu showed that the same value
holds where the control is whatever is best, which nobody knew beforehand: settings that it tells from the
best are surely not the best, and the truly best one is among the others in 95 %.

The distribution is integrated: with s the ratio of the estimated to the true standard deviation (a chi
distribution) and z the control's own deviation, the k differences are independent. For means of equally many
runs, whose differences have a correlation of 1/2.

Source: Dunnett, "A multiple comparison procedure for comparing several treatments with a control" (1955);
Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best" (1984).
"""

import math
from functools import cache

import numpy as np

from profnb.core.columns import Floats

_NODES, _MANY, _LEVEL = 64, 4000, 0.95


@cache
def dunnett_factor(others: int, freedom: int, level: float = _LEVEL) -> float:
    """How many standard errors of a difference a mean must lie below the best one.

    Args:
        others: How many means are compared with the best one, at least 1.
        freedom: Degrees of freedom of the variance, at least 1.
        level: In how many experiments the largest of the differences stays below, where nothing differs.
    """
    low, high = 0.0, 4.0
    while _probability(high, others, freedom) < level:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        if _probability(middle, others, freedom) < level:
            low = middle
        else:
            high = middle
    return high


def _probability(factor: float, others: int, freedom: int) -> float:
    """That none of the studentized differences is larger."""
    z, z_weight = _normal_nodes()
    s, s_weight = _chi_nodes(freedom)
    reach = z[:, None] + math.sqrt(2) * factor * s[None, :]
    below = np.interp(reach, *_normal_table())
    return float(z_weight @ below**others @ s_weight)


@cache
def _normal_table() -> tuple[Floats, Floats]:
    """The normal distribution, so close that a line between two points is off by less than 1e-7."""
    at = np.linspace(-9, 9, 12001)
    return at, np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in at.tolist()])


@cache
def _normal_nodes() -> tuple[Floats, Floats]:
    nodes, weights = _between(-8.5, 8.5)
    weights *= np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    return nodes, weights


@cache
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
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = (end - begin) / 2
    return begin + half * (nodes + 1), weights * half
