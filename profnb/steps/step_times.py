"""Steps seen by the capture to wall times of every step, traced or not.

The capture times every Keras batch, every marker and every ``tf.function`` call. Batches and markers
are steps as they are; of plain calls, each function that repeats is a phase of its own, with the same
rule as for a trace.

Of an eager loop a trace tells where each turn's last op ended; the wall clock saw only where turns began.
So a turn's time is its period here: until the next element is asked for, or the next tape is entered. The
traced turns are laid over those that the capture saw, which proves that both speak of the same loop and
tells the phases::

    capture   ask  ask  ask  ask  ask  ask  ask(ends)     ask  ask ...
    turns     |0   |1   |2   |3   |4   |5   |             |6   |7
    trace     [ 0 ][ 1 ][ 2 ][ 3 ]       the window closed

The last time an iterator is asked it has nothing more, or its loop was left: no turn is known to begin there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.capture.source.source_records import TurnRecords
from profnb.capture.step_records import CALL, StepRecords
from profnb.core.columns import Bools, Int64s, RowColumns, flags_at
from profnb.core.units import PS_PER_NS
from profnb.steps.finding.calls import find_phases
from profnb.steps.program_kind import ProgramKind
from profnb.steps.windows import Steps

_NEAR_PS, _NEAR_OF_TURN, _ALIKE = 2_000_000_000, 0.25, 0.9
_CANDIDATES = 8
_CLOCKS_PS = 100_000_000  # what two clocks of one machine may drift apart while a trace is recorded
_LONG_LAST = 3  # times the median: the last turn and what the code did behind it
_UNNAMED_LOOP = "loop"


@dataclass(frozen=True, slots=True)
class StepTimes(RowColumns):
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


def step_times_of_trace(steps: Steps) -> StepTimes:
    """Take the steps of a saved trace, all of them traced."""
    every, one_run = np.ones(len(steps), np.bool_), np.zeros(len(steps), np.int64)
    return StepTimes(
        steps.begin_ps, steps.duration_ps, every, steps.is_warmup, steps.phase, steps.step_num, one_run
    )  # fmt: skip


def wall_step_times(records: StepRecords) -> StepTimes:
    """Pick the steps out of everything the capture timed."""
    columns = ("begin_ns", "end_ns", "name", "kind", "step_num", "run", "ended_at", "ended_epoch")
    begin, end, name, kind, number, run, ended, ended_epoch = (
        np.asarray(getattr(records, column), np.int64) for column in columns
    )
    traced, retraced = (np.asarray(c, np.bool_) for c in (records.was_traced, records.retraced))
    is_call = kind == records.kinds.index(CALL)
    if is_call.all():
        turns = find_phases(name, begin, end)
        first, last, label = turns.first, turns.last, turns.anchor
        number = np.arange(first.size)
    else:
        first = last = np.flatnonzero(~is_call)
        label, number = name[first], number[first]
    base = int(begin[first[0]]) if first.size else 0
    epoch = np.zeros(first.size, np.int64)
    behind = np.searchsorted(last, ended - 1, side="right") - 1
    is_known = (behind >= 0) & (ended <= begin.size)  # a file keeps the first 200,000 steps
    epoch[behind[is_known]] = ended_epoch[is_known]
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


class _Turns(NamedTuple):
    """N turns that the capture saw: begins, ends, places, and which began while a trace was recorded."""

    begin_ps: Int64s
    end_ps: Int64s
    place: Int64s
    is_traced: Bools


def turn_step_times(program: ProgramKind, steps: Steps, records: TurnRecords) -> StepTimes | None:
    """Time all turns of an eager loop, traced or not.

    Returns:
        None where the traced turns are not found again among those that the capture saw. A traced one that
        it did not see whole (the last before a loop was left) is told by the trace.
    """
    if (program.is_taped and program.asks_for_elements) or not len(records):
        return None
    turns = _seen_turns(records, are_tapes=program.is_taped)
    match = _match_turns(steps.host_begin_ps, turns)
    if match is None:
        return None
    row, apart_ps = match
    alone = np.flatnonzero(row < 0)
    is_seen = flags_at(row[row >= 0], turns.begin_ps.size)
    of_place: dict[int, Counter[str]] = {}
    for turn, name in zip(row.tolist(), steps.phase, strict=True):
        if turn >= 0:
            of_place.setdefault(int(turns.place[turn]), Counter())[name] += 1
    usual = {place: phases.most_common(1)[0][0] for place, phases in of_place.items()}
    phase = [usual.get(place, _UNNAMED_LOOP) for place in turns.place.tolist()]
    phase += [steps.phase[at] for at in alone.tolist()]
    begin_ps = np.append(turns.begin_ps, steps.host_begin_ps[alone] - apart_ps)
    duration_ps = np.append(turns.end_ps - turns.begin_ps, steps.duration_ps[alone])
    order = np.argsort(begin_ps, kind="stable")
    first_ps, none = int(begin_ps.min()), np.zeros(order.size, np.int64)
    return StepTimes(
        begin_ps[order] - first_ps,
        duration_ps[order],
        np.append(is_seen, np.ones(alone.size, np.bool_))[order],
        none.astype(np.bool_),
        tuple(phase[at] for at in order.tolist()),
        np.arange(none.size),
        none,
        first_ps // PS_PER_NS,
    )


def _seen_turns(records: TurnRecords, *, are_tapes: bool) -> _Turns:
    iterator = np.asarray(records.iterator, np.int64)
    rows = np.flatnonzero((iterator < 0) == are_tapes)
    iterator, begin_ps = iterator[rows], np.asarray(records.begin_ns, np.int64)[rows] * PS_PER_NS
    place, is_traced = (np.asarray(c)[rows] for c in (records.place, records.was_traced))
    place = place.astype(np.int64)
    is_last = np.zeros(rows.size, np.bool_)
    if not are_tapes:  # the last row of each iterator
        order = np.argsort(iterator, kind="stable")
        is_last[order] = np.append(iterator[order[1:]] != iterator[order[:-1]], True)[: order.size]
    kept = np.flatnonzero(~is_last)
    series = place if are_tapes else _series(place, iterator)
    turns = find_phases(series[kept])
    sizes = np.diff(turns.first_root)
    first, until = kept[turns.first], kept[turns.last] + 1
    usual = {anchor: sizes[turns.anchor == anchor].max() for anchor in set(turns.anchor.tolist())}
    for turn, anchor in enumerate(turns.anchor.tolist()):
        # Of those asked in turn some were asked for the last time in this one.
        while sizes[turn] < usual[anchor] and until[turn] < rows.size:
            if not is_last[until[turn]] or series[until[turn]] == series[first[turn]]:
                break
            until[turn] += 1
    ends_ps = np.append(begin_ps, records.end_ns * PS_PER_NS)[until]
    begins = begin_ps[first]
    usual_ps = float(np.median(ends_ps - begins)) if begins.size else 0.0
    is_known = (until < rows.size) | (ends_ps - begins <= _LONG_LAST * usual_ps)
    is_known &= ends_ps > begins
    first = first[is_known]
    return _Turns(
        begins[is_known], ends_ps[is_known], place[first], is_traced[first].astype(np.bool_)
    )


def _series(place: Int64s, iterator: Int64s) -> Int64s:
    """Number what each of N askings belongs to: one loop over new iterators in each epoch is one.

    Iterators of one place that are asked in turn (``zip``) are several.
    """
    iterators, first, row = np.unique(iterator, return_index=True, return_inverse=True)
    last = np.zeros(iterators.size, np.int64)
    np.maximum.at(last, row, np.arange(iterator.size))
    code = np.zeros(iterators.size, np.int64)
    free: dict[int, list[int]] = {}  # by place: where the last iterator of each series ends
    for at in np.argsort(first).tolist():
        ends = free.setdefault(int(place[first[at]]), [])
        series = next((n for n, end in enumerate(ends) if end < first[at]), len(ends))
        ends[series : series + 1] = [int(last[at])]
        code[at] = int(place[first[at]]) * iterators.size + series
    return np.asarray(code[row])


def _match_turns(traced_ps: Int64s, turns: _Turns) -> tuple[Int64s, int] | None:
    """Find (the row of each of S traced turns, -1 for none of its own, how much the trace's clock is ahead).

    The two clocks differ by a constant: the one under which most of the traced turns begin each in a turn of
    its own that began under trace. An op never begins before its turn, and may begin late where another
    program had the processor: the turn whose op came soonest tells the clocks apart. None where that is not
    so for nine of ten of either.
    """
    if not turns.begin_ps.size:
        return None
    usual = float(np.median(turns.end_ps - turns.begin_ps))
    widest = min(_NEAR_PS, _NEAR_OF_TURN * usual)
    least = max(_ALIKE * (max(traced_ps.size, int(turns.is_traced.sum())) - 1), 1)
    # How long before its turn an op may seem to begin.
    for near in (min(widest, _CLOCKS_PS), widest):
        best, row, apart = 0, np.zeros(0, np.int64), 0
        for offset in _offsets(traced_ps, turns.begin_ps[turns.is_traced]):
            seen = _around(turns, traced_ps - offset, near)
            count = np.unique(seen[(seen >= 0) & turns.is_traced[seen]]).size
            if count > best:
                best, row, apart = count, seen, offset
        if best >= least:
            kept = row >= 0
            apart += int((traced_ps[kept] - apart - turns.begin_ps[row[kept]]).min())
            return _around(turns, traced_ps - apart, near), apart
    return None


def _offsets(traced_ps: Int64s, seen_ps: Int64s) -> Iterator[int]:
    """Guess how much the trace's clock may be ahead, given S traced turns and those seen under trace.

    First as if either had all of the other, then as if it lacked some at the begin; then, as if some were
    missing in between, each of the first ones against each.
    """
    for shift in sorted(range(1 - _CANDIDATES, _CANDIDATES), key=abs):
        one, other = traced_ps[max(shift, 0) :], seen_ps[max(-shift, 0) :]
        both = min(one.size, other.size)
        if both:
            yield int((one[:both] - other[:both]).min())
    for turn in seen_ps[:_CANDIDATES].tolist():
        for first in traced_ps[:_CANDIDATES].tolist():
            yield first - turn


def _around(turns: _Turns, at_ps: Int64s, near: float) -> Int64s:
    """Find the turn in which each of some times lies, or a little before which; -1 where none is."""
    row = np.searchsorted(turns.begin_ps, at_ps + near, side="right") - 1
    lead_ps = np.minimum(near, _NEAR_OF_TURN * (turns.end_ps - turns.begin_ps)[row])
    inside = (row >= 0) & (at_ps + lead_ps < turns.end_ps[row])
    return np.where(inside, row, -1)
