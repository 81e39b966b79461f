"""How settings stand to the best one: which may be it, how far behind others are, and what more rounds tell.

Bounds hold for all settings at once, in 95 % of the sweeps, whichever setting is best (``dunnett``). What as
many rounds can show, and how many more it takes to show a difference, is told for a power of 80 %: four times
of five.
"""

import math
from dataclasses import dataclass

import numpy as np

from profnb.compare.dunnett import dunnett_factor
from profnb.compare.rounds import RoundFit
from profnb.core.columns import Bools, Floats, Int64s

_POWER = 0.8416  # of 80 %: the normal's quantile
MOST_ROUNDS = 200
_SAME = 1e-9


@dataclass(frozen=True)
class Ranking:
    """How N settings stand to the best of the others, in logarithms of what is wanted large.

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
        """Which settings may be the best, shape (N,)."""
        return np.asarray(~(self.low > 0) & np.isfinite(self.low))


def rank(fit: RoundFit, values: Floats) -> Ranking | None:
    """How settings stand to the best.

    Args:
        fit: Their times.
        values: What is wanted large, its differences being those of the times: logarithms of throughput,
            shape (N,); NaN where there is none.

    Returns:
        The ranking; None where no setting has a time.
    """
    timed_rows = np.flatnonzero(np.isfinite(values))
    if not timed_rows.size:
        return None
    best = int(timed_rows[np.argmax(values[timed_rows])])
    low, high = np.full(values.size, np.nan), np.full(values.size, np.nan)
    more = np.zeros(values.size, np.int64)
    reaches = []
    for row in timed_rows.tolist():
        others = timed_rows[timed_rows != row]
        if not others.size:
            low[row], high[row] = -math.inf, 0.0
            continue
        reach = np.array([fit.factor * fit.error(row, other) for other in others.tolist()])
        behind = values[others] - values[row]
        # Whom one of the others surely beats is behind; whom none may beat is not.
        low[row] = float(np.nanmax(behind - reach)) if not np.isnan(reach).all() else -math.inf
        high[row] = float((behind + reach).max())
        if row != best:
            error = fit.error(best, row)
            reaches.append(error)
            gap = float(values[best] - values[row])
            more[row] = (
                0 if low[row] > _SAME else _more_rounds(fit, timed_rows.size - 1, gap, error)
            )
    shows = (fit.factor + _POWER) * float(np.median(reaches)) if reaches else math.nan
    return Ranking(best, np.where(np.abs(low) < _SAME, 0, low), high, shows, more)


def _more_rounds(fit: RoundFit, others: int, gap: float, error: float) -> int:
    """How many more rounds would show a gap four times of five; -1 where two hundred would not."""
    if not (error > 0 and gap > 0) or fit.rounds < 2:
        return -1
    each = fit.freedom / (fit.rounds - 1)

    def shows(more: int) -> bool:
        rounds = fit.rounds + more
        factor = dunnett_factor(others, max(round(each * (rounds - 1)), 1)) + _POWER
        return gap >= factor * error * math.sqrt(fit.rounds / rounds)

    low, high = 0, MOST_ROUNDS
    if not shows(high):
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high
