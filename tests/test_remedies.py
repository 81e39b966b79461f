"""What helps against Python between steps: by what ran them, and a callback only where it was measured."""

import pytest
from test_gap_causes import recorded, study_of
from traces import event, host, line, read

from profnb.capture.parts.part_records import EVALUATION, PREDICT, TRAIN, CellPart, CellRecords
from profnb.capture.recording import Recording
from profnb.capture.step_records import CALL, KERAS, USER
from profnb.advice.step_findings import find_all
from profnb.subjects.study import Study

MS, NS = 10**9, 10**6
GAPS = [8] * 40


def study(*hooks, gap=8, kind=KERAS, phase="train", name=None, run=1, versions=None, ran=TRAIN):
    """40 steps of 10 ms with gaps; hooks as (name, calls, milliseconds a call)."""
    recording = recorded([gap] * 40, [], kind=kind, phase=phase)
    recording.steps.run[:] = type(recording.steps.run)("i", [run] * 41)
    parts = [CellPart(ran, name, 41, 410 * NS, 10 * NS, "c.py", 5)] if name else []
    parts += [CellPart("callbacks", hook, calls, int(calls * ms * NS), int(ms * NS), "c.py", 8) for hook, calls, ms in hooks]
    recording.cell = CellRecords(sum(part.wall_ns for part in parts), parts, cells={"c.py": 1})
    recording.environment = {"TensorFlow": "2.21.0", "Keras": "3.15.1"} if versions is None else versions
    if phase == "train":
        return study_of([gap] * 40, recording)
    made = [one for at in range(41) for one in (
        event(phase, at * (10 + gap) * MS, 10 * MS, step_num=at, _r=1), event("a/MatMul:MatMul", at * (10 + gap) * MS, 9 * MS))]  # fmt: skip
    return Study(read(host(line("python", *made))), 0, recording)


def said(of):
    [found] = [advice for advice in find_all(of) if advice.rule == "python-between-steps"]
    return found


def test_a_callback_that_takes_most_of_it_is_named_with_its_line():
    found = said(study(("Slow.on_train_batch_end", 41, 7.5), name="fit"))
    assert "Most of it is `Slow.on_train_batch_end`, 7.50 ms in each of 41 calls." in found.evidence
    assert found.code == "Do less in `Slow.on_train_batch_end`, or do it after every 100th batch only."
    assert found.where == "Cell [1]:8"


@pytest.mark.parametrize(("kind", "told"), [
    ("ProgbarLogger", "verbose=2"), ("TensorBoard", 'update_freq="epoch"'), ("ModelCheckpoint", 'save_freq="epoch"'), ("BackupAndRestore", 'save_freq="epoch"')])  # fmt: skip
def test_callbacks_of_keras_have_an_argument_for_it(kind, told):
    assert told in said(study((f"{kind}.on_train_batch_end", 41, 7), name="fit")).code


@pytest.mark.parametrize("hook", [
    ("Slow.on_train_batch_end", 41, 3),  # the smaller part of it
    ("Slow.on_epoch_end", 1, 900),  # not after each batch
    ("on_train_batch_end", 41, 9),  # no hook's name
    ("Slow.on_train_batch_ended", 41, 9),
])  # fmt: skip
def test_callbacks_that_are_not_most_of_it_are_not_named(hook):
    found = said(study(hook, name="fit"))
    assert "Most of it" not in found.evidence
    assert "steps_per_execution=16" in found.code
    assert found.where == ""


def test_a_fit_returns_to_python_less_often_and_nothing_is_logged_that_nobody_logs():
    found = said(study(name="fit"))
    assert found.code.startswith("model.compile(..., steps_per_execution=16)")
    assert "og every" not in found.code
    assert "unrolled_steps_per_execution" in found.code
    assert "larger batch" not in found.code


@pytest.mark.parametrize("versions", [{"TensorFlow": "2.15.0", "Keras": "2.15.0"}, {"Keras": "3.6.0"}, {"Keras": "3.15.1", "tf_keras": "2.21.0"}, {}, {"Keras": "dev"}])
def test_unrolling_is_told_only_to_a_keras_that_can(versions):
    assert "unrolled" not in said(study(name="fit", versions={"TensorFlow": "2.21.0"} | versions)).code
    assert "unrolled" in said(study(name="fit", versions={"Keras": "3.7.0"})).code


@pytest.mark.parametrize(("phase", "method", "part"), [("predict", "predict", PREDICT), ("test", "evaluate", EVALUATION)])
def test_a_predict_is_told_of_larger_batches(phase, method, part):
    found = said(study(phase=phase, name=method, ran=part))
    assert found.code.startswith("A larger batch makes fewer steps")
    assert "og every" not in found.code


@pytest.mark.parametrize("of", [
    lambda: study(name="train_on_batch", run=0),
    lambda: study(name="train_on_batch", run=1),  # behind a fit
    lambda: study(kind=USER, run=0),
    lambda: study(kind=CALL, run=0),
    lambda: study(phase="predict", name="predict_on_batch", run=0, ran=PREDICT),
])  # fmt: skip
def test_loops_of_ones_own_are_not_told_of_what_fit_takes(of):
    found = said(of())
    assert "steps_per_execution" not in found.code
    assert "og every" not in found.code
    assert "prepare it once" in found.code


def test_what_a_loop_itself_takes_goes_into_one_function_or_into_fit():
    assert said(study(kind=CALL, run=0, gap=2)).code.startswith("Data that Python")
    short = study_short(CALL)
    assert said(short).code == "Put the loop, or several steps of it, into one tf.function."


def study_short(kind):
    """Steps of 1 ms with gaps of half of it."""
    steps = [one for at in range(20) for one in (event("step", at * 3 * MS // 2, MS, step_num=at, _r=1), event("a/MatMul:MatMul", at * 3 * MS // 2, MS))]
    recording = Recording(environment={"TensorFlow": "2.21.0"})
    recording.steps.names = ["step"]
    for at in range(20):
        recording.steps.append(at * 3 * NS // 2, at * 3 * NS // 2 + NS, 0, recording.steps.kinds.index(kind), 1, 0, 1, at, 0)
    return Study(read(host(line("python", *steps))), 0, recording)


def test_where_nobody_knows_who_ran_the_steps_both_remedies_have_their_condition():
    found = said(study_of(GAPS, Recording()))
    assert "Where Keras' fit runs the steps" in found.code
    assert "a loop of your own" in found.code
    assert "og every" not in found.code


def test_steps_that_keras_2_marks_itself_are_no_loop_of_ones_own():
    assert "steps_per_execution" in said(study(kind=USER, run=1, name="fit")).code


def saving(*parts, hook="", gap=8):
    """40 steps of 10 ms with gaps, and parts of the cell that save: (name, calls, milliseconds a call)."""
    made = study(*([(hook, 41, 0.1)] if hook else []), gap=gap, name="fit")
    made.recording.cell.parts.extend(CellPart("checkpointing", name, calls, int(calls * ms * NS), int(ms * NS), "c.py", 3) for name, calls, ms in parts)
    return made


def test_saving_after_each_batch_is_named_with_the_callback_that_does_it():
    found = said(saving(("Model.save_weights", 40, 7), hook="ModelCheckpoint.on_train_batch_end"))
    assert "Most of it is `ModelCheckpoint`, which saves the model: 7.00 ms in each of 40 calls." in found.evidence
    assert found.code == 'ModelCheckpoint(..., save_freq="epoch") saves once an epoch.'
    by_hand = said(saving(("Checkpoint.save", 40, 7)))
    assert "Most of it is saving by `Checkpoint.save`: 7.00 ms in each of 40 calls." in by_hand.evidence
    assert by_hand.code.startswith("Save every few minutes")
    assert by_hand.where == "Cell [1]:3"


@pytest.mark.parametrize("part", [("Model.save_weights", 10, 7), ("Model.save_weights", 40, 3), ("Model.load_weights", 40, 7)])
def test_saving_that_is_seldom_or_short_and_loading_are_not_named(part):
    found = said(saving(part))
    assert "Most of it" not in found.evidence
    assert "steps_per_execution=16" in found.code


def test_a_callback_that_runs_ops_is_bounded_by_its_own_time():
    """Of 18 ms from step to step 8 are between steps, 4 of them ops that the callback runs."""
    made = [one for at in range(41) for one in (
        event("train", at * 18 * MS, 10 * MS, step_num=at, _r=1), event("a/MatMul:MatMul", at * 18 * MS, 9 * MS), event("Hist:Hist", (at * 18 + 11) * MS, 4 * MS))]  # fmt: skip
    of = study(("Hist.on_train_batch_end", 41, 7), name="fit")
    found = said(Study(read(host(line("python", *made))), 0, of.recording))
    assert found.bound_fraction == pytest.approx(7 / 18, abs=0.02)
    assert found.evidence == "39.3 % of the time passes between steps in `Hist.on_train_batch_end`, 7.00 ms each time, with the ops that it runs."
