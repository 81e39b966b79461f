"""Turns of eager loops by the wall clock: those that were not traced too, found by those that were."""

import pytest
from advised import advised
from test_loops import make, run, study_of, taped, turns

from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import read_recordings, write_recordings
from profnb.capture.source.source_records import MOST_MARKS, TurnRecords
from profnb.core.options import CaptureOptions
from profnb.profile import Profile
from profnb.report.build import build_report
from profnb.subjects.study import Study

NS = 10**6


def marks(*seen, apart_ms=5000):
    """(milliseconds, place, iterator, whether under trace) by a wall clock five seconds ahead of the trace's."""
    records = TurnRecords()
    for at, place, iterator, traced in seen:
        records.add(int((at + apart_ms) * NS), place, iterator, traced)
    return records


def timed(traced, records, closed_by="steps"):
    return Study(traced.trace, 0, Recording(turns=records, closed_by=closed_by, wall_ns=10**9, window_ns=10**8, environment={"TensorFlow": "2.21.0"}))


def epochs(*begins, count=4, place=1, until=40, period=10):
    """Passes over a dataset, each by a new iterator that is asked once more than it has elements."""
    return [(begin + turn * period, place, number, begin + turn * period < until) for number, begin in enumerate(begins) for turn in range(count + 1)]


def counts(times):
    return {key: sum(own == key for own in zip(times.phase, times.was_traced.tolist(), strict=True)) for key in zip(times.phase, times.was_traced.tolist(), strict=True)}


TRAINED = (make(0), turns(5, 3, "MatMul", "AssignSubVariableOp"))


def test_turns_of_later_epochs_are_timed_until_the_next_one_begins():
    """Of three epochs of four turns three turns are traced; the first element of an epoch comes 15 ms after the last one's end."""
    times = timed(study_of(*TRAINED), marks(*epochs(5, 60, 115, until=35))).step_times
    assert counts(times) == {("train", True): 3, ("train", False): 9}
    assert set(times.duration_ps.tolist()) == {10 * NS * 1000}
    assert times.begin_ps[:5].tolist() == [0, 10 * NS * 1000, 20 * NS * 1000, 30 * NS * 1000, 55 * NS * 1000]
    assert times.was_traced[:4].tolist() == [True, True, True, False]


def test_a_turn_whose_first_op_came_late_is_one_all_the_same():
    seen = [(at - 4 if at == 15 else at, *rest) for at, *rest in epochs(5, 60)]
    assert counts(timed(study_of(make(0), turns(5, 4, "MatMul", "AssignSubVariableOp")), marks(*seen)).step_times) == {("train", True): 4, ("train", False): 4}


def test_datasets_that_are_asked_in_turn_make_one_turn():
    both = [(at + part, 1, part, at < 35) for at in range(5, 85, 10) for part in (0, 1)] + [(85, 1, 0, False)]
    times = timed(study_of(*TRAINED), marks(*both)).step_times
    assert len(times) == 8
    assert set(times.duration_ps.tolist()) == {10 * NS * 1000}


def test_a_validation_that_was_not_traced_is_another_loop():
    two = [*epochs(5, until=35), *[(at, 2, 9, False) for at in range(60, 90, 5)]]
    assert counts(timed(study_of(*TRAINED), marks(*two)).step_times) == {("train", True): 3, ("train", False): 1, ("loop", False): 5}


@pytest.mark.parametrize(("ended_ms", "count"), [(112, 6), (900, 5)])
def test_the_last_turn_of_tapes_ends_where_the_code_did_unless_that_did_more(ended_ms, count):
    traced = study_of(*(taped(at, "AssignSubVariableOp", tape=at) for at in (10, 20, 30, 40)))
    records = marks(*((at, 3, -1, at < 45) for at in range(10, 110, 10)))
    records.end_ns = (ended_ms + 5000) * NS
    assert counts(timed(traced, records).step_times) == {("train", True): 4, ("train", False): count}


def test_a_traced_turn_that_was_not_seen_whole_is_told_by_the_trace():
    """The loop was left after the third element: nobody asked for a fourth."""
    times = timed(study_of(*TRAINED), marks(*epochs(5, count=2))).step_times
    assert counts(times) == {("train", True): 3}
    assert times.duration_ps.tolist() == [10 * NS * 1000, 10 * NS * 1000, 5 * NS * 1000]


@pytest.mark.parametrize(
    "seen",
    [
        [],  # of a saved trace
        epochs(5, 60, count=1, until=35),
        [(at * 100, 1, 0, True) for at in range(2, 20)],  # none of them a traced turn
        epochs(5, 60, 115, until=0),  # all of them began while nothing was traced
    ],
)
def test_what_the_trace_does_not_prove_is_not_told(seen):
    study = timed(study_of(*TRAINED), marks(*seen))
    assert study.step_times.was_traced.tolist() == [True] * 3
    assert study.step_times.first_ns is None
    p = Profile(trace=study.trace, recording=study.recording)
    assert any(note.startswith("Details cover the first ") and "; later passes of the loop were not timed." in note for note in p.notes)
    report = build_report(study, title="t", notes=[], overhead_ps=None)
    assert any("later ones were not timed" in fact.remark for fact in report.facts)


def test_how_many_turns_were_traced_and_what_it_cost_is_said_of_turns():
    """Six traced turns of 10 ms, then twelve of 8."""
    traced = study_of(make(0), turns(5, 6, "MatMul", "AssignSubVariableOp"))
    later = [*[(5 + 10 * at, 1, 0, True) for at in range(6)], *[(65 + 8 * at, 1, 0, False) for at in range(13)]]
    study = timed(traced, marks(*later))
    assert study.tracing_cost.fraction == pytest.approx(0.25)
    p = Profile(trace=study.trace, recording=study.recording)
    assert "Details cover the first 6 of 18 passes of the loop; all were timed. `-n 18` traces all." in p.notes
    assert "untraced passes take 8.00 ms" in p.summary()
    assert "without tracing" not in p.summary().split("\n", 1)[0]  # a step ends with its last op, a turn where the next begins


def test_other_steps_are_timed_as_ever():
    calls = [part for at in range(5) for part in run("MatMul", at * 10)]
    assert timed(study_of(calls), marks(*epochs(5, 60))).step_times.first_ns is None


def test_turns_are_kept_beside_a_trace_and_bounded(tmp_path):
    records = marks(*epochs(5, 60, 115))
    trace = tmp_path / "host.xplane.pb"
    trace.write_bytes(b"")
    write_recordings(trace, CaptureOptions(), [Recording(turns=records)])
    assert read_recordings(trace)[1][0].turns == records
    full = TurnRecords()
    full.begin_ns.extend([0] * MOST_MARKS)
    full.add(1, 0, 0, was_traced=False)
    assert len(full) == MOST_MARKS


@pytest.mark.parametrize(("library", "is_said"), [([1], False), ([], True), ([2], True)])
def test_a_loop_of_keras_own_is_not_to_be_put_into_a_function(library, is_said):
    """Four turns of thirty ops each."""
    loop = study_of(make(0), *(turns(at, 1, *["MatMul"] * 30, period=40)[:-4] for at in (5, 45, 85, 125)), run("Mul", 170))
    records = marks(*epochs(5, 45, 85, 125, count=1))
    records.place[:] = type(records.place)("i", [1] * len(records))
    records.library_places = library
    study = timed(loop, records)
    assert ("eager-ops" in advised(study)) is is_said
