"""Turns of eager loops that the trace has, laid over those that the capture saw begin: by times whose answer a person can give."""

from types import SimpleNamespace

import numpy as np
import pytest

from profnb.capture.source.source_records import TurnRecords
from profnb.core.units import PS_PER_MS
from profnb.steps.finding.loops import EAGER_TAPES
from profnb.steps.program_kind import ProgramKind
from profnb.steps.step_times import turn_step_times

AHEAD_MS = 86_400_000  # the trace's clock is a day ahead


def timed(begins_ms, traced_ms, traced=None, end_ms=None):
    """The turns' rows of (begin in ms, time in ms, was_traced), of turns seen at begins_ms and of ops traced at traced_ms."""
    records = TurnRecords(end_ns=int((begins_ms[-1] + 20 if end_ms is None else end_ms) * 1e6))
    for at, begin in enumerate(begins_ms):
        records.add(int(begin * 1e6), 0, -1, traced is None or at in traced)
    begin_ps = np.array([(at + AHEAD_MS) * PS_PER_MS for at in traced_ms], np.int64)
    steps = SimpleNamespace(host_begin_ps=begin_ps, duration_ps=np.full(begin_ps.size, 9 * PS_PER_MS), phase=("train",) * begin_ps.size)
    found = turn_step_times(ProgramKind(origin=EAGER_TAPES), steps, records)
    return found and list(zip((found.begin_ps / PS_PER_MS + found.first_ns / 1e6).round(3).tolist(), (found.duration_ps / PS_PER_MS).round(3).tolist(), found.was_traced.tolist()))


def whole(begins, traced=None):
    """Each of those turns until the next one, the last of 20 ms."""
    lengths = [*np.diff(begins).tolist(), 20]
    return [(begin, length, traced is None or at in traced) for at, (begin, length) in enumerate(zip(begins, lengths))]


BEGINS = [0, 20, 41, 65, 84, 107, 126, 150, 171, 190]


@pytest.mark.parametrize(
    "late_ms",
    [
        [0.01] * 10,
        [0, 17, 10, 3, 12, 3, 3, 3, 8, 0.5],
        [9, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [6, 6, 6, 6, 6, 6, 6, 6, 0, 6],
        [15, 14, 13, 16, 12, 15, 14, 13, 16, 0.1],
        [19, 0, 0, 0, 18, 0, 0, 0, 0, 18],
    ],
)
def test_each_traced_turn_is_the_one_that_was_seen_however_late_its_op_came(late_ms):
    """Behind each begin another program had the processor for some milliseconds, before the turn's first op."""
    assert timed(BEGINS, [begin + late for begin, late in zip(BEGINS, late_ms)]) == whole(BEGINS)


@pytest.mark.parametrize("seed", range(20))
def test_delays_as_chance_gives_them_make_no_turn_of_their_own(seed):
    rng = np.random.default_rng(seed)
    begins = np.cumsum(rng.uniform(15, 40, 30)).round(3).tolist()
    begins = [round(begin - begins[0], 3) for begin in begins]
    lengths = [*np.diff(begins).tolist(), 20]
    late = [float(rng.uniform(0, 0.9) * length) if rng.random() < 0.4 else 0.02 for length in lengths]
    found = timed(begins, [begin + own for begin, own in zip(begins, late)])
    assert [row[::2] for row in found] == [(begin, True) for begin in begins]


def test_turns_behind_the_window_are_timed_and_not_traced():
    traced = range(4)
    late = [4, 0, 12, 0]
    assert timed(BEGINS, [BEGINS[at] + late[at] for at in traced], traced) == whole(BEGINS, traced)


def test_a_turn_that_the_trace_lacks_is_timed_all_the_same():
    kept = [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert timed(BEGINS, [BEGINS[at] + 0.1 for at in kept]) == whole(BEGINS, kept)


def test_a_turn_that_was_not_seen_whole_is_told_by_the_trace():
    """The code goes on for a second behind the last turn: when that ended only the trace can say."""
    found = timed(BEGINS, BEGINS, end_ms=1200)
    assert found == [*whole(BEGINS)[:-1], (190, 9, True)]


@pytest.mark.parametrize("traced_ms", [[0, 3, 6, 9, 12, 15, 18, 21], [0, 900, 1800, 2700, 3600]])
def test_turns_of_another_loop_are_not_mixed_with_these(traced_ms):
    assert timed(BEGINS, traced_ms) is None
