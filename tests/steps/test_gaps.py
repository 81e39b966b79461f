"""Gaps between steps: one set of them for tables, sentences and bounds; pauses and ends of epochs stand apart."""

import numpy as np
import pytest
from advised import advised
from traces import event, host, line, read

from profnb.capture.recording import Recording
from profnb.capture.step_records import USER, StepRecords
from profnb.report.notes import notes_of
from profnb.report.build import build_report
from profnb.report.step_chart import step_chart
from profnb.report.text import answer_text, fact_rows, headline_text
from profnb.steps.windows import GAP_KINDS, is_pause
from profnb.steps.untraced import TracingCost
from profnb.subjects.advising import period_ps
from profnb.subjects.study import Study

MS = 10**9
NEW_ITERATOR = "EagerLocalExecute: MakeIterator"


def loop(gaps_ms, step_ms=10, phases=None, iterators=(), work=0.9):
    """Steps with the given gaps behind them, most of each an op; ``iterators``: after which steps one is made."""
    made, at = [], 0
    for number, gap in enumerate([*gaps_ms, 0]):
        phase = phases[number] if phases else "train"
        made.append(event(phase, at, step_ms * MS, step_num=number, _r=1))
        made.append(event("a/MatMul:MatMul", at, int(step_ms * work * MS)))
        at += step_ms * MS
        if number in iterators:
            made.append(event(NEW_ITERATOR, at + int(gap * MS) // 4, int(gap * MS) // 2))
        at += int(gap * MS)
    return Study(read(host(line("python", *made))))


def kinds(study):
    return [GAP_KINDS[kind] for kind in study.gaps.kind]


def rules(study):
    return advised(study)


def facts(study):
    return {fact.name: fact for fact in fact_rows(study, None)}


def test_one_pause_of_three_seconds_is_no_cost_of_the_eighty_steps_around_it():
    study = loop([0.07] * 39 + [3200] + [0.07] * 40, work=0.95)
    assert kinds(study).count("pause") == 1
    assert study.summary.shares[0].category == "host compute"
    assert sum(s.fraction for s in study.summary.shares if s.category == "between steps") < 0.01
    assert period_ps(study) == 81 * 10 * MS + 79 * int(0.07 * MS)
    assert "python-between-steps" not in rules(study)
    assert facts(study)["pauses"].remark.endswith("the longest 3.20 s, after train step 39")


def test_the_pause_is_out_of_the_axis_of_the_chart_and_written_there():
    report = build_report(loop([0.07] * 39 + [3200] + [0.07] * 40), title="t", notes=(), overhead_ps=None)
    layout = report.figures["Steps"]["layout"]
    assert layout["yaxis"]["range"][1] < 12
    assert [(note["x"], note["text"]) for note in layout["annotations"]] == [(39, "‖ 3.20 s pause")]


@pytest.mark.parametrize(
    ("gaps_ms", "pauses"),
    [
        ([1] * 20, 0),
        ([1] * 19 + [99], 0),  # not long
        ([20] * 19 + [190], 0),  # not far outside
        ([1] * 19 + [101], 1),
        ([1, 1, 500], 1),
        ([1, 500], 0),  # too few to tell
        ([1, 1, 500] * 10, 0),  # frequent: of the loop
        ([1] * 45 + [500] * 5, 5),
        ([1] * 44 + [500] * 6, 0),
    ],
)
def test_a_pause_is_long_far_outside_and_rare(gaps_ms, pauses):
    assert is_pause(np.array(gaps_ms, np.int64) * MS).sum() == pauses


def test_a_slow_callback_after_each_step_is_still_python_between_steps():
    study = loop([8] * 40)
    assert set(kinds(study)) == {"in the loop", "last"}
    python = (40 * 8 + 41 * 1) / (40 * 18 + 10)
    found = rules(study)["python-between-steps"]  # of which two fifths stay at most
    assert found.bound_fraction == pytest.approx(python)
    assert found.saves_ms[0] == pytest.approx(730 * python * 0.6)
    assert "epoch-ends" not in rules(study)
    assert not {"pauses", "between epochs"} & set(facts(study))


def test_what_runs_every_tenth_step_is_not_told_to_return_to_python_less_often():
    """40 steps of 10 ms, wholly at work; 0.1 ms behind 36 of them, 50 ms behind every tenth but the last."""
    found = rules(loop(([0.1] * 9 + [50]) * 3 + [0.1] * 9, work=1))["python-between-steps"]
    assert "97.7 % of this Python follows only 3 of 40 steps, 50.0 ms each time." in found.evidence
    assert "less often" in found.code
    assert found.saves_ms[0] == 0  # it may be another program's
    assert "steps_per_execution" not in found.code
    assert "tf.function" not in found.code


def behind(steps, ms, others_ms):
    """39 gaps, those behind ``steps`` of another length."""
    return [ms if step in steps else others_ms for step in range(39)]


@pytest.mark.parametrize("steps", [(7,), (3, 30), (9, 10, 11), (2, 13, 17, 36), (1, 5, 20, 22, 35), (0, 10, 20, 23, 38)])
def test_few_long_gaps_at_no_regular_distance_may_be_another_programs(steps):
    """A processor that others had for 90 ms: nothing of the program's need have run there."""
    found = rules(loop(behind(steps, 90, 0.1), work=1))["python-between-steps"]
    assert f"of this Python follows only {len(steps)} of 40 steps, 90.0 ms each time." in found.evidence
    assert "another program" in found.code
    assert "several steps" not in found.code


@pytest.mark.parametrize("gaps_ms", [[8] * 40, [8, 3] * 20, [0.5, 0.5, 0.5, 20] * 10, [4] * 36 + [30] * 3])
def test_what_runs_after_each_step_or_many_keeps_the_remedy_of_each_step(gaps_ms):
    found = rules(loop(gaps_ms, work=1))["python-between-steps"]
    assert "of this Python runs after" not in found.evidence
    assert "several steps" in found.code


def test_the_advice_and_the_table_speak_of_the_same_gaps():
    """31 gaps of which two are 900 and 190 ms (a fit's end, validation set up): the sum of both rows is the advice's share."""
    study = loop([3] * 15 + [900] + [3] * 8 + [190] + [3] * 15, phases=["train"] * 16 + ["test"] * 9 + ["train"] * 16)
    shares = {share.category: share.fraction for share in study.summary.shares}
    found = rules(study)["python-between-steps"]
    assert "29.8 % of the time from step to step" in found.evidence
    assert shares["between steps"] + shares["all others"] == pytest.approx(0.2976, abs=1e-3)
    assert shares["between steps"] == pytest.approx(3 * 30 / (3 * 30 + 10 * 32), rel=1e-6)
    assert kinds(study).count("before another phase") == 2


def test_ends_of_epochs_are_told_apart_and_have_their_own_advice():
    study = loop(([1] * 15 + [60]) * 5 + [1] * 15, iterators=range(15, 90, 16))
    assert kinds(study).count("between epochs") == 5
    found = rules(study)["epoch-ends"]
    assert found.bound_fraction == pytest.approx(300 / (300 + 90 + 960), rel=0.01)
    assert "5 passes over the data each waited for a new iterator: 300 ms in all, usually 60.0 ms." in found.evidence
    assert found.saves_ms[0] == 0  # all of it may be Python of callbacks
    assert "validation_freq" not in found.code
    assert "on_epoch_end" not in found.code.replace("keeps", "")[: found.code.index("keeps")]
    assert study.summary.median_gap_ps == 1 * MS
    assert facts(study)["between epochs"].value == "300 ms"


def test_a_long_first_end_of_an_epoch_is_none_of_the_others():
    """300 ms in all, 200 of them the first time, when things are set up."""
    assert "epoch-ends" not in rules(loop([*[1] * 15, 200, *([1] * 15 + [25]) * 4, *[1] * 15], iterators=range(15, 90, 16)))


def test_validation_between_epochs_is_named_in_the_remedy():
    study, changes = with_validation(epochs=6)
    assert "validation_freq" in rules(study)["epoch-ends"].code
    assert kinds(study).count("between epochs") == len(changes)


def test_validations_and_what_comes_after_a_training_are_no_ends_of_its_epochs():
    study, changes = with_validation(epochs=2, after=("test", "predict"))
    assert len(changes) == 5
    assert "epoch-ends" not in rules(study)


def with_validation(epochs, after=()):
    """Epochs of 8 steps with a validation of 4 behind each, then passes of 4; and after which steps another begins."""
    passes = [*([("train", 8), ("test", 4)] * epochs), *((phase, 4) for phase in after)]
    phases = [phase for phase, steps in passes for _ in range(steps)]
    changes = np.cumsum([steps for _, steps in passes])[:-1] - 1
    return loop([40 if at in changes else 1 for at in range(len(phases) - 1)], phases=phases, iterators=changes.tolist()), changes


def test_ends_of_epochs_that_cost_little_or_are_short_are_not_advised_against():
    assert "epoch-ends" not in rules(loop(([1] * 15 + [12]) * 5 + [1] * 15, iterators=range(15, 90, 16)))
    assert "epoch-ends" not in rules(loop([8] * 40))


def test_a_new_iterator_after_every_step_is_a_cost_of_each_step_without_the_remedies_of_a_loop():
    study = loop([30] * 20, iterators=range(20))
    assert set(kinds(study)) == {"in the loop", "last"}
    assert not {"python-between-steps", "epoch-ends"} & set(rules(study))
    assert study.summary.median_gap_ps == 30 * MS


def test_an_iterator_made_inside_a_step_or_on_another_thread_ends_no_epoch():
    inside = [event(NEW_ITERATOR, at * 20 * MS + 2 * MS, MS) for at in range(10)]
    elsewhere = [event(NEW_ITERATOR, at * 20 * MS + 12 * MS, MS) for at in range(3)]
    steps = [event("train", at * 20 * MS, 10 * MS, step_num=at, _r=1) for at in range(10)]
    study = Study(read(host(line("python", *steps, *inside), line("other", *elsewhere, line_id=2))))
    assert set(kinds(study)) == {"in the loop", "last"}


def test_the_gap_of_a_step_has_its_kind_in_the_table():
    from profnb.steps.spine import STEPS

    table = STEPS.frame(loop([1, 1, 1, 60, 1, 1], iterators=[3]))
    assert table.gap_kind.tolist() == ["in the loop"] * 3 + ["between epochs"] + ["in the loop"] * 2 + ["last"]


# Warm-up.


@pytest.mark.parametrize(
    ("first_ms", "makes_iterator", "is_warm_up"),
    [(304, True, True), (60, True, True), (40, True, False), (60, False, False), (304, False, True), (290, False, False)],
)
def test_a_first_step_is_warm_up_where_it_behaves_like_it(first_ms, makes_iterator, is_warm_up):
    """Steps of 10 ms: five times that after a new iterator, 30 times that whatever it did."""
    made = [event(NEW_ITERATOR, 0, MS)] if makes_iterator else []
    made += [event("test", 2 * MS, first_ms * MS, step_num=0, _r=1)]
    made += [event("test", (first_ms + at * 12) * MS, 10 * MS, step_num=at, _r=1) for at in range(1, 16)]
    study = Study(read(host(line("python", *made))))
    assert study.steps.is_warmup.tolist() == [is_warm_up] + [False] * 15


def test_a_first_step_of_a_later_epoch_is_warm_up_likewise_and_of_few_steps_none():
    def made(count):
        steps = [event("train", at * 100 * MS, (80 if at == count - 3 else 10) * MS, step_num=at, _r=1) for at in range(count)]
        return Study(read(host(line("python", *steps, event(NEW_ITERATOR, (count - 3) * 100 * MS - 50 * MS, MS)))))

    assert np.flatnonzero(made(12).steps.is_warmup).tolist() == [9]
    assert not made(4).steps.is_warmup.any()


def test_a_slow_step_in_the_middle_is_no_warm_up():
    assert not loop([1] * 20, iterators=[]).steps.is_warmup.any()
    steps = [event("train", at * 500 * MS, (400 if at == 7 else 10) * MS, step_num=at, _r=1) for at in range(12)]
    assert not Study(read(host(line("python", *steps)))).steps.is_warmup.any()


def headline(study):
    return build_report(study, title="t", notes=(), overhead_ps=None).headline


def test_where_gaps_are_most_of_the_time_the_headline_says_how_often_a_step_comes():
    """Steps of 10 ms with 30 ms behind 40 of 41: one every 39.3 ms, of which the share of the gaps is."""
    study = loop([30] * 40)
    assert study.summary.mean_period_ps == pytest.approx(period_ps(study) / 41)
    assert headline(study) == "41 train steps, median 10.0 ms, one every 39.3 ms"
    assert headline(loop([4] * 40)) == "41 train steps, median 10.0 ms"
    assert headline(loop([0.07] * 39 + [3200] + [0.07] * 40)) == "81 train steps, median 10.0 ms"  # a pause is of no step


def fed(last, waits, gap_ms=5, size_ms=5):
    """Thirty turns of a step, a gap of Python and, where ``waits`` says so, 5 ms of waiting for an element that takes 15 to make."""
    events, work, made = [], [], "::Prefetch" if last == "Prefetch" else ""
    for at in range(30):
        begin, wait = at * 15 * MS, 5 * MS if waits(at) else MS // 10
        events += [event("train", begin, size_ms * MS, step_num=at, _r=1), event("a/MatMul:MatMul", begin, size_ms * MS)]
        events.append(event("Iterator::Root", begin + (size_ms + gap_ms) * MS, wait, id=1))
        events.append(event(f"Iterator::Root::{last}", begin + (size_ms + gap_ms) * MS + 1000, wait - 2000, id=2))
        if made:
            work.append(event("Iterator::Root::Prefetch::Map", begin, 15 * MS - 1000, id=3, name="MapDataset:1"))
    return Study(read(host(line("python", *events), *([line("tf_data", *work, line_id=2)] if work else []))))


def test_less_python_between_steps_gains_nothing_where_each_waits_for_a_pipeline_that_works_ahead():
    paced = fed("Prefetch", lambda at: True)
    assert paced.input.diagnosis.severity == "high"
    assert "python-between-steps" not in rules(paced)
    assert "input-bound" in rules(paced)


@pytest.mark.parametrize(("last", "waits"), [("Map", lambda at: True), ("Prefetch", lambda at: at % 2), ("Prefetch", lambda at: False)])
def test_it_does_where_nothing_works_ahead_or_only_some_steps_wait(last, waits):
    assert "python-between-steps" in rules(fed(last, waits))


def predict_loop(step_ms=10, gap_ms=300, count=20, **rest):
    """`predict` of one batch, 20 times: half of each gap makes an iterator, a quarter traces a function of the dataset's."""
    made, at = [], 0
    for number in range(count):
        made.append(event("predict", at, step_ms * MS, step_num=number, _r=1))
        made.append(event("a/MatMul:MatMul", at, step_ms * MS))
        at += step_ms * MS
        made.append(event(rest.get("between", NEW_ITERATOR), at, gap_ms * MS // 2))
        made.append(event("made:TensorSliceDataset", at, gap_ms * MS // 2))
        made.append(event("tf.function-graph_building", at + gap_ms * MS // 2, gap_ms * MS // 4))
        at += gap_ms * MS
    return Study(read(host(line("python", *made))))


def test_what_sets_up_each_predict_of_a_loop_is_no_host_compute_of_its_step():
    study = predict_loop()
    shares = {share.category: share.mean_ps for share in study.summary.shares}
    counted = len(study.summary.counted)
    gaps = counted - (study.summary.counted[-1] == len(study.steps) - 1)  # of the last step no gap is known
    assert shares["host compute"] == 10 * MS
    assert shares["work between steps"] == pytest.approx(225 * MS * gaps / counted)
    assert shares["between steps"] == pytest.approx(75 * MS * gaps / counted)
    assert sum(shares.values()) * counted == 10 * MS * counted + 300 * MS * gaps
    text = answer_text(study.summary)
    assert text.startswith("Most of it is work between steps, 7")
    assert "a new iterator of the input is made before each step" in text
    chart = step_chart(study.steps, study.breakdown, study.gaps)
    assert dict(chart.stacks)["work between steps"][3] == pytest.approx(225)


def test_ops_between_steps_without_a_new_iterator_are_host_compute_as_before():
    study = predict_loop(between="EagerLocalExecute: ArgMax")
    shares = {share.category: share.mean_ps for share in study.summary.shares}
    assert "work between steps" not in shares
    assert shares["host compute"] == pytest.approx((10 + 150 * 19 / 20) * MS)


def test_a_loop_of_evaluations_is_not_told_to_make_epochs_of_a_fit_longer():
    study = loop(([1] * 7 + [60]) * 5 + [1] * 7, phases=["test"] * 48, iterators=range(7, 48, 8))
    found = rules(study)["epoch-ends"]
    assert "fit(" not in found.code
    assert "validation_freq" not in found.code
    assert "evaluate" in found.code


def marked(count=20, took=20, work=0, gap=1, **rest):
    """Steps marked by hand of 20 ms, in which an op runs for some of them."""
    made = []
    for number in range(count):
        at = number * (took + gap) * MS
        made.append(event("train", at, took * MS, step_num=number, _r=1, **rest))
        if work:
            made.append(event("a/MatMul:MatMul", at, work * MS))
    return Study(read(host(line("python", *made))), recording=Recording(steps=steps_seen(count)))


def steps_seen(count):
    found = StepRecords(names=["train"])
    for number in range(count):
        found.append(number * 21_000_000, number * 21_000_000 + 20_000_000, 0, found.kinds.index(USER), 1, 0, 1, number, 0)
    return found


def test_untraced_steps_that_take_as_long_show_no_cost_of_tracing():
    seen = steps_seen(20)
    for number in range(5):
        seen.append((20 + number) * 21_000_000, (20 + number) * 21_000_000 + 20_000_000, 0, seen.kinds.index(USER), 0, 0, 1, 20 + number, 0)
    told = facts(Study(marked().trace, recording=Recording(steps=seen)))["steps traced"]
    assert (told.value, told.remark) == ("20 of 25", "as fast as the untraced ones beside them")


def test_python_inside_of_marked_steps_is_told_apart_from_that_between_them():
    found = rules(marked())["python-between-steps"]
    assert found.title == "Do less Python in the steps"
    beside = rules(marked(work=1, gap=1))["python-between-steps"]
    assert beside.title == "Do less Python in the steps"


def test_python_beside_long_gaps_is_between_the_steps():
    found = rules(marked(took=2, gap=30))["python-between-steps"]
    assert found.title == "Do less Python between the steps"
    assert "100" in found.code


@pytest.mark.parametrize(
    ("untraced_ms", "high", "is_said"),
    [
        (14, 0.9, True),
        (14, 0.5, False),  # 57 % longer: more than tracing is known to cost; the steps were slow for another reason
        (8, 1.08, False),
    ],
)
def test_the_headline_leads_with_untraced_steps_only_where_tracing_explains_all_of_the_difference(untraced_ms, high, is_said):
    study = loop([0.1] * 20, step_ms=22)
    study.tracing_cost = TracingCost(0.4, 0.09, high, untraced_ms * MS)
    said = headline_text(study)
    assert ("without tracing (22.0 ms traced)" in said) is is_said


def test_ends_of_epochs_that_are_pauses_are_told_once():
    told = facts(loop([1] * 15 + [600] + [1] * 15, iterators=[15]))
    assert "between epochs" not in told
    assert told["pauses"].value == "600 ms"
    assert told["pauses"].remark.endswith("after train step 15, between epochs")
    told = facts(loop([1] * 15 + [600] + [1] * 5 + [40] + [1] * 15, iterators=[15, 21]))
    assert told["between epochs"].value == "640 ms"  # of one of them only the pause was told


def test_many_other_kinds_of_steps_are_counted_not_listed():
    phases = ["train"] * 8 + [f"run {number}" for number in range(9)] + ["train"] * 8
    noted = [note for note in notes_of(loop([0.1] * 24, phases=phases)) if "also holds" in note]
    assert noted == [
        "Averages are of train steps. The trace also holds 1 run 0, 1 run 1, 1 run 2, 1 run 3 steps and 5 of 5 other kinds."
    ]
    few = notes_of(loop([0.1] * 9, phases=["train"] * 9 + ["test"]))
    assert "Averages are of train steps. The trace also holds 1 test step." in few
