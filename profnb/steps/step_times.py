"""Steps seen by the capture to wall times of every step, traced or not.

The capture times every Keras batch, every marker and every ``tf.function`` call. Batches and markers
are steps as they are; of plain calls, each function that repeats is a phase of its own, with the same
rule as for a trace.
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.source.turn_records import TurnRecords
from profnb.capture.step_records import CALL, StepRecords
from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.units import PS_PER_NS
from profnb.steps.finding.cycles import find_phases
from profnb.steps.finding.turn_times import time_turns
from profnb.steps.windows import Steps

__all__ = [
    "NEAR",
    "StepTimes",
    "TracingCost",
    "step_times_of_trace",
    "tracing_cost",
    "turn_step_times",
    "wall_step_times",
]


NEAR, _DISTURBED = 24, 4
_ENOUGH = 5  # fewer steps say too little to compare
_NORMAL_95 = 1.96
_LEAST = 0.001


@dataclass(frozen=True, slots=True)
class StepTimes:
    """N steps in order.

    Attributes:
        begin_ps: Begins since the first step began, shape (N,).
        duration_ps: Wall times, shape (N,).
        was_traced: Whether the whole step was under trace, shape (N,).
        retraced: Whether a ``tf.function`` was traced in it, shape (N,).
        phase: What each step did.
        step_num: The numbers the program gave them, or their order, shape (N,).
        run: Which ``fit`` each belongs to, where Keras ran them, shape (N,).
        first_ns: When the first one began, by ``time.perf_counter_ns``; None where only the trace tells.
        epoch: Which epoch of its ``fit`` ended behind each, 0 where none did, shape (N,); None where nobody
            told.
    """

    begin_ps: Int64s
    duration_ps: Int64s
    was_traced: Bools
    retraced: Bools
    phase: tuple[str, ...]
    step_num: Int64s
    run: Int64s
    first_ns: int | None = None
    epoch: Int64s | None = None

    def __len__(self) -> int:
        return self.duration_ps.size


def wall_step_times(records: StepRecords) -> StepTimes:
    """Pick the steps out of everything the capture timed."""
    begin, end = (np.asarray(c, np.int64) for c in (records.begin_ns, records.end_ns))
    name, kind = np.asarray(records.name, np.int64), np.asarray(records.kind, np.int64)
    traced, retraced = (np.asarray(c, np.bool_) for c in (records.was_traced, records.retraced))
    number, run = (np.asarray(c, np.int64) for c in (records.step_num, records.run))
    is_call = kind == records.kinds.index(CALL)
    if not is_call.all():
        first = np.flatnonzero(~is_call)
        last, label, number = first, name[first], number[first]
    else:
        roots, first_root, label = find_phases(name, begin, end)
        first, last = roots[first_root[:-1]], roots[first_root[1:] - 1]
        number = np.arange(first.size)
    base = int(begin[first[0]]) if first.size else 0
    epoch = np.zeros(first.size, np.int64)
    ended = np.asarray(records.ended_at, np.int64)
    behind = np.searchsorted(last, ended - 1, side="right") - 1
    is_known = (behind >= 0) & (ended <= begin.size)  # a file keeps the first 200,000 steps
    epoch[behind[is_known]] = np.asarray(records.ended_epoch, np.int64)[is_known]
    return StepTimes(
        (begin[first] - base) * 1000,
        (end[last] - begin[first]) * 1000,
        traced[first] & traced[last],
        retraced[first] | retraced[last],
        tuple(records.names[row] for row in label.tolist()),
        number,
        run[first],
        base if first.size else None,
        epoch,
    )


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


def turn_step_times(steps: Steps, records: TurnRecords) -> StepTimes:
    """The turns of an eager loop, traced or not; the traced ones alone where the others cannot be told.

    Args:
        steps: The traced ones.
        records: Where the capture saw turns begin.
    """
    turns = time_turns(steps, records)
    if turns is None:
        return step_times_of_trace(steps)
    none, first_ps = np.zeros(turns.begin_ps.size, np.int64), int(turns.begin_ps[0])
    return StepTimes(
        turns.begin_ps - first_ps,
        turns.duration_ps,
        turns.was_traced,
        none.astype(np.bool_),
        turns.phase,
        np.arange(none.size),
        none,
        first_ps // PS_PER_NS,
    )


def step_times_of_trace(steps: Steps) -> StepTimes:
    """The steps of a saved trace, all of them traced."""
    return StepTimes(
        steps.begin_ps,
        steps.duration_ps,
        np.ones(len(steps), np.bool_),
        steps.is_warmup,
        steps.phase,
        steps.step_num,
        np.zeros(len(steps), np.int64),
    )
