"""Steps seen by the capture to wall times of every step, traced or not.

The capture times every Keras batch, every marker and every ``tf.function`` call. Batches and markers
are steps as they are; of plain calls, each function that repeats is a phase of its own, with the same
rule as for a trace.
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.source.source_records import TurnRecords
from profnb.capture.step_records import CALL, StepRecords
from profnb.core.columns import Bools, Int64s
from profnb.core.units import PS_PER_NS
from profnb.steps.finding.cycles import find_phases
from profnb.steps.finding.turn_times import time_turns
from profnb.steps.windows import Steps


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
