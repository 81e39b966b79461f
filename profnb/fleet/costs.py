"""What hosts cost one another: how much longer each worked than the others, and what a step would be shorter.

A host's excess is how much longer its own work was than that of the slowest other host, negative where
another's was longer. How sure a median is, the sign test's order statistics tell, which ask nothing of the
values' distribution.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from profnb.core.columns import Int64s
from profnb.fleet.merging import Merged

FEWEST_STEPS = 6  # the sign test cannot exclude zero with fewer
_CONFIDENCE = 0.95


def excess(own_ps: Int64s) -> Int64s:
    """Own work of H hosts beyond the longest of the others, both of shape (H, N)."""
    return np.asarray(own_ps - _longest_other(own_ps))


def _longest_other(values: Int64s) -> Int64s:
    ordered = np.sort(values, axis=0)
    is_longest = np.arange(values.shape[0])[:, None] == values.argmax(axis=0)
    return np.asarray(np.where(is_longest, ordered[-2], ordered[-1]))


def costs_of_each(merged: Merged) -> Int64s:
    """``gains`` of each host alone, of all steps, shape (H, S)."""
    saved = np.zeros_like(merged.own_ps)
    for row, late in enumerate(np.maximum(excess(merged.piece_own_ps), 0)):
        np.add.at(saved[row], merged.step_of, late)
    beside = merged.beside_ps.sum(axis=2)
    shortest = _longest_other(merged.own_ps + beside)
    shortest += np.maximum(merged.exchange_ps - beside, 0)
    return np.asarray(np.maximum(np.minimum(saved, merged.step_ps - shortest), 0))


def gains(merged: Merged, group: Sequence[int]) -> Int64s:
    """What each step would be shorter, were the group no slower than the slowest of the others, shape (S,).

    What the others compute beside collectives, while they wait in them, they have to compute all the same: a
    step is never shorter than all work of one of them and the exchange that nothing hides.
    """
    if not group:
        return np.zeros(merged.step_num.size, np.int64)
    piece_own_ps = merged.piece_own_ps
    rest = [row for row in range(piece_own_ps.shape[0]) if row not in group]
    late = np.maximum(piece_own_ps.max(axis=0) - piece_own_ps[rest].max(axis=0), 0)
    saved = np.zeros(merged.step_num.size, np.int64)
    np.add.at(saved, merged.step_of, late)
    beside = merged.beside_ps.sum(axis=2)
    exposed = np.maximum(merged.exchange_ps - beside, 0)[list(group)].min(axis=0)
    shortest = (merged.own_ps + beside)[rest].max(axis=0) + exposed
    most = merged.step_ps[list(group)].max(axis=0) - shortest
    return np.asarray(np.maximum(np.minimum(saved, most), 0))


def median_interval(values: Int64s) -> tuple[float, float]:
    """Bounds of a median with 95 % confidence; of too few values, everything."""
    count = values.size
    if count < FEWEST_STEPS:
        return -math.inf, math.inf
    ordered = np.sort(values)
    outside = _outside(count)
    return float(ordered[outside - 1]), float(ordered[count - outside])


@cache
def _outside(count: int) -> int:
    """How many of the smallest of so many values may be left out, and of the largest: the sign test."""
    taken = np.arange(1, count // 2)
    # Of the distribution of heads, the logarithm of each probability.
    steps = np.log((count - taken + 1) / taken)
    tail = np.cumsum(np.exp(np.append(0, np.cumsum(steps)) - count * math.log(2)))
    return int((2 * tail <= 1 - _CONFIDENCE).sum())
