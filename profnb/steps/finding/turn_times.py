"""Turns of eager loops to wall times, traced or not.

A trace tells where each turn's last op ended; the wall clock saw only where turns began. So a turn's time is
its period here: until the next element is asked for, or the next tape is entered. The traced turns are laid
over those that the capture saw, which proves that both speak of the same loop and tells the phases::

    capture   ask  ask  ask  ask  ask  ask  ask(ends)     ask  ask ...
    turns     |0   |1   |2   |3   |4   |5   |             |6   |7
    trace     [ 0 ][ 1 ][ 2 ][ 3 ]       the window closed

The last time an iterator is asked it has nothing more, or its loop was left: no turn is known to begin there.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from profnb.capture.source.source_records import TurnRecords
from profnb.core.columns import Bools, Int64s
from profnb.core.units import PS_PER_NS
from profnb.steps.finding.cycles import find_phases
from profnb.steps.finding.loops import EAGER_TAPES, EAGER_TURNS
from profnb.steps.windows import Steps

_NEAR_PS, _NEAR_OF_TURN, _ALIKE = 2_000_000_000, 0.25, 0.9
_CANDIDATES = 8
_CLOCKS_PS = 100_000_000  # what two clocks of one machine may drift apart while a trace is recorded
_LONG_LAST = 3  # times the median: the last turn and what the code did behind it
_UNKNOWN = "loop"


class _Turns(NamedTuple):
    """N turns that the capture saw: begins, ends, places, and which began while a trace was recorded."""

    begin_ps: Int64s
    end_ps: Int64s
    place: Int64s
    is_traced: Bools


class TurnTimes(NamedTuple):
    """N turns in order of their begins.

    Attributes:
        begin_ps: Begins by the wall clock, shape (N,).
        duration_ps: Times until the next one began, shape (N,).
        was_traced: Whether the trace has it, shape (N,).
        phase: What each did.
    """

    begin_ps: Int64s
    duration_ps: Int64s
    was_traced: Bools
    phase: tuple[str, ...]


def time_turns(steps: Steps, records: TurnRecords) -> TurnTimes | None:
    """Times of all turns of an eager loop.

    Args:
        steps: The traced ones.
        records: Where the capture saw turns begin.

    Returns:
        None where the traced turns are not found again among those that the capture saw. A traced one that
        it did not see whole (the last before a loop was left) is told by the trace.
    """
    if steps.origin not in (EAGER_TURNS, EAGER_TAPES) or not len(records):
        return None
    turns = _turns(records, are_tapes=steps.origin == EAGER_TAPES)
    match = _match_turns(steps.host_begin_ps, turns)
    if match is None:
        return None
    row, apart_ps = match
    alone = np.flatnonzero(row < 0)
    is_seen = np.zeros(turns.begin_ps.size, np.bool_)
    is_seen[row[row >= 0]] = True
    begin_ps = np.append(turns.begin_ps, steps.host_begin_ps[alone] - apart_ps)
    duration_ps = np.append(turns.end_ps - turns.begin_ps, steps.duration_ps[alone])
    phase = (*_phases(steps, row, turns.place), *(steps.phase[at] for at in alone.tolist()))
    order = np.argsort(begin_ps, kind="stable")
    was_traced = np.append(is_seen, np.ones(alone.size, np.bool_))
    return TurnTimes(
        begin_ps[order],
        duration_ps[order],
        was_traced[order],
        tuple(phase[at] for at in order.tolist()),
    )


def _turns(records: TurnRecords, *, are_tapes: bool) -> _Turns:
    iterator = np.asarray(records.iterator, np.int64)
    record_rows = np.flatnonzero((iterator < 0) == are_tapes)
    iterator, begin_ps = (
        iterator[record_rows],
        np.asarray(records.begin_ns, np.int64)[record_rows] * PS_PER_NS,
    )
    place, is_traced = (np.asarray(c)[record_rows] for c in (records.place, records.was_traced))
    is_last = np.zeros(record_rows.size, np.bool_)
    if not are_tapes:  # the last row of each iterator
        order = np.argsort(iterator, kind="stable")
        is_last[order] = np.append(iterator[order[1:]] != iterator[order[:-1]], True)[: order.size]
    kept = np.flatnonzero(~is_last)
    series = place.astype(np.int64) if are_tapes else _series(place, iterator)
    codes = np.unique(series[kept], return_inverse=True)[1].astype(np.int64)
    at = np.arange(kept.size)
    turns = find_phases(codes, at, at + 1)
    sizes = np.diff(turns.first_root)
    first = kept[turns.roots[turns.first_root[:-1]]]
    until = kept[turns.roots[turns.first_root[1:] - 1]] + 1
    usual = {anchor: sizes[turns.anchor == anchor].max() for anchor in set(turns.anchor.tolist())}
    for turn, anchor in enumerate(turns.anchor.tolist()):
        # Of those asked in turn some were asked for the last time in this one.
        while sizes[turn] < usual[anchor] and until[turn] < record_rows.size:
            if not is_last[until[turn]] or series[until[turn]] == series[first[turn]]:
                break
            until[turn] += 1
    ends_ps = np.append(begin_ps, records.end_ns * PS_PER_NS)[until]
    begins = begin_ps[first]
    usual_ps = float(np.median(ends_ps - begins)) if begins.size else 0.0
    is_known = (until < record_rows.size) | (ends_ps - begins <= _LONG_LAST * usual_ps)
    is_known &= ends_ps > begins
    was_traced = np.asarray(is_traced[first], np.bool_)
    at_place = np.asarray(place[first], np.int64)
    return _Turns(begins[is_known], ends_ps[is_known], at_place[is_known], was_traced[is_known])


def _series(place: Int64s, iterator: Int64s) -> Int64s:
    """A number for what each of N askings belongs to: one loop over new iterators in each epoch is one.

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
    """(the row of each of S traced turns, -1 for none of its own, by how much the trace's clock is ahead).

    The two clocks differ by a constant: the one under which most of the traced turns begin each in a turn of
    its own that began under trace. An op never begins before its turn, and may begin late where another
    program had the processor: the turn whose op came soonest tells the clocks apart. None where that is not
    so for nine of ten of either.
    """
    if not turns.begin_ps.size:
        return None
    usual = float(np.median(turns.end_ps - turns.begin_ps))
    near = min(_NEAR_PS, _NEAR_OF_TURN * usual)
    return _match_within(min(near, _CLOCKS_PS), traced_ps, turns) or _match_within(
        near, traced_ps, turns
    )


def _match_within(near: float, traced_ps: Int64s, turns: _Turns) -> tuple[Int64s, int] | None:
    """The same, given how long before its turn an op may seem to begin."""
    best, match = 0, (np.zeros(0, np.int64), 0)
    for apart in _offsets(traced_ps, turns.begin_ps[turns.is_traced]):
        row = _around(turns, traced_ps - apart, near)
        count = np.unique(row[(row >= 0) & turns.is_traced[row]]).size
        if count > best:
            best, match = count, (row, apart)
    least = _ALIKE * (max(traced_ps.size, int(turns.is_traced.sum())) - 1)
    if best < max(least, 1):
        return None
    row, apart = match
    kept = row >= 0
    apart += int((traced_ps[kept] - apart - turns.begin_ps[row[kept]]).min())
    return _around(turns, traced_ps - apart, near), apart


def _offsets(traced_ps: Int64s, seen_ps: Int64s) -> Iterator[int]:
    """By how much the trace's clock may be ahead, given S traced turns and those seen under trace.

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
    """The turn in which each of some times lies, or a little before which; -1 where none is."""
    row = np.searchsorted(turns.begin_ps, at_ps + near, side="right") - 1
    lead_ps = np.minimum(near, _NEAR_OF_TURN * (turns.end_ps - turns.begin_ps)[row])
    inside = (row >= 0) & (at_ps + lead_ps < turns.end_ps[row])
    return np.where(inside, row, -1)


def _phases(steps: Steps, row: Int64s, place: Int64s) -> tuple[str, ...]:
    """What each of N turns did: what most of the traced ones of the same place did."""
    seen: dict[int, Counter[str]] = {}
    for turn, phase in zip(row.tolist(), steps.phase, strict=True):
        if turn >= 0:
            seen.setdefault(int(place[turn]), Counter())[phase] += 1
    usual = {at: phases.most_common(1)[0][0] for at, phases in seen.items()}
    return tuple(usual.get(at, _UNKNOWN) for at in place.tolist())
