"""Steps seen by the capture to wall times of every step, traced or not.

The capture times every Keras batch, every marker and every ``tf.function`` call. Batches and markers
are steps as they are; of plain calls, each function that repeats is a phase of its own, with the same
rule as for a trace.
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.step_records import CALL, StepRecords
from profnb.core.columns import Bools, Int64s
from profnb.steps.finding.cycles import find_phases
from profnb.steps.windows import Steps

__all__ = [
    "StepTimes",
    "TracingCost",
    "step_times_of_trace",
    "tracing_cost",
    "wall_step_times",
]


_NEAR = 100
_ENOUGH = 5  # a median of fewer steps says too little to compare


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
    """

    begin_ps: Int64s
    duration_ps: Int64s
    was_traced: Bools
    retraced: Bools
    phase: tuple[str, ...]
    step_num: Int64s
    run: Int64s

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
    base = begin[first[0]] if first.size else 0
    return StepTimes(
        (begin[first] - base) * 1000,
        (end[last] - begin[first]) * 1000,
        traced[first] & traced[last],
        retraced[first] | retraced[last],
        tuple(records.names[row] for row in label.tolist()),
        number,
        run[first],
    )


@dataclass(frozen=True, slots=True)
class TracingCost:
    """What tracing did to the steps.

    Attributes:
        fraction: How much longer a traced step takes than an untraced one: 0.08 is 8 %.
        untraced_ps: The median untraced step, which is what the code takes when nobody looks.
    """

    fraction: float
    untraced_ps: float


def tracing_cost(times: StepTimes, phase: str | None) -> TracingCost | None:
    """Compare the medians of traced and untraced steps of one phase.

    Only steps of one run (the ``fit`` in which tracing stopped) near the end of the window are
    compared, so that the two sides do the same work, and none in which a function was traced. None
    unless there are at least five of each.
    """
    alike = np.array([own == phase for own in times.phase], np.bool_) & ~times.retraced
    under_trace = np.flatnonzero(alike & times.was_traced)
    if not under_trace.size:
        return None
    last = under_trace[-1]
    alike &= times.run == times.run[last]
    before = np.flatnonzero(alike & times.was_traced)[-_NEAR:]
    after = np.flatnonzero(alike & ~times.was_traced)
    after = after[after > last][:_NEAR]
    if min(before.size, after.size) < _ENOUGH:
        return None
    untraced_ps = float(np.median(times.duration_ps[after]))
    traced_ps = float(np.median(times.duration_ps[before]))
    return TracingCost(traced_ps / untraced_ps - 1, untraced_ps) if untraced_ps else None


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
