"""Wall times of steps, traced or not, to what tracing cost them."""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.steps.step_times import StepTimes

NEAR, _DISTURBED = 24, 4
_ENOUGH = 5  # fewer steps say too little to compare
_NORMAL_95 = 1.96
_LEAST = 0.001


@dataclass(frozen=True, slots=True)
class TracingCost:
    """What tracing did to the steps.

    Attributes:
        fraction: How much longer a traced step takes than an untraced neighbour: 0.08 is 8 %.
        low: The lower end of its 95 % interval; above 0.
        high: The upper end.
        untraced_ps: The median untraced step, which is what the code takes when nobody looks.
    """

    fraction: float
    low: float
    high: float
    untraced_ps: float


def tracing_cost(times: StepTimes, phase: str | None) -> TracingCost | None:
    """Compare traced and untraced steps of one phase that are neighbours.

    That is the last 24 traced and the first 24 untraced steps of the run (the ``fit``) in which tracing
    stopped, so that the two sides do the same work; the four right behind the stop are left out where
    there are more than that, because buffers fill while tracing stops. Steps in which a function was
    traced do not count. What gets steadily slower or faster on both sides is no cost: the slope within
    the sides is taken off. The interval is Hodges' and Lehmann's of the ratio, by ranks.

    Returns:
        The cost; None where there are fewer than five of each, or where the interval, with the slope or
        without it, holds 0.1 % or less: then nothing shows that tracing cost anything.
    """
    alike = (
        np.array([step_phase == phase for step_phase in times.phase], np.bool_) & ~times.retraced
    )
    under_trace = np.flatnonzero(alike & times.was_traced)
    if not under_trace.size:
        return None
    last = under_trace[-1]
    alike &= (times.run == times.run[last]) & (times.duration_ps > 0)
    before = np.flatnonzero(alike & times.was_traced)[-NEAR:]
    after = np.flatnonzero(alike & ~times.was_traced)
    after = after[after > last]
    after = after[min(_DISTURBED, max(after.size - _ENOUGH, 0)) :][:NEAR]
    if min(before.size, after.size) < _ENOUGH:
        return None
    sides = [np.log(times.duration_ps[rows].astype(np.float64)) for rows in (before, after)]
    plain = _difference(*sides)
    rises = np.concatenate(
        [_rises(rows, side) for rows, side in zip((before, after), sides, strict=True)]
    )
    slope = float(np.median(rises)) if _is_trend(rises, before.size, after.size) else 0.0
    level = _difference(sides[0] - slope * before, sides[1] - slope * after)
    if min(plain[0], level[0]) <= _LEAST:
        return None
    low, middle, high = (float(np.expm1(value)) for value in level)
    return TracingCost(middle, low, high, float(np.median(times.duration_ps[after])))


def _rises(rows: Int64s, values: Floats) -> Floats:
    """The slope between any two of N values, shape (N * (N - 1) / 2,)."""
    one, two = np.triu_indices(rows.size, 1)
    return np.asarray((values[two] - values[one]) / (rows[two] - rows[one]))


def _is_trend(rises: Floats, *sizes: int) -> bool:
    """Whether more of the slopes within sides point one way than chance explains (Kendall), 95 %."""
    chance = sum(size * (size - 1) * (2 * size + 5) / 18 for size in sizes)
    return bool(abs(np.sign(rises).sum()) > _NORMAL_95 * np.sqrt(chance))


def _difference(one: Floats, two: Floats) -> tuple[float, float, float]:
    """(low, middle, high) of how much larger the values of one side are, 95 %."""
    pairs = np.sort((one[:, None] - two[None, :]).ravel())
    spread = _NORMAL_95 * np.sqrt(one.size * two.size * (one.size + two.size + 1) / 12)
    cut = max(int(pairs.size / 2 - spread), 0)
    return float(pairs[cut]), float(np.median(pairs)), float(pairs[pairs.size - 1 - cut])
