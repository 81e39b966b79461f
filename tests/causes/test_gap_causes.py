"""Who took a gap between steps: a callback is named where its call lies in the gap and is most of it, and nowhere else."""

import json
import re
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
from test_gaps import NEW_ITERATOR, facts
from traces import event, host, line, read

import profnb
from profnb.capture.parts.part_records import CALLBACKS, CHECKPOINTING, CellPart, CellRecords
from profnb.capture.recording import Recording
from profnb.capture.saved.codec import Codec
from profnb.capture.saved.sidecar import CHECKS, LIMITS
from profnb.capture.step_records import CALL, KERAS, StepRecords
from profnb.report.build import build_report
from profnb.subjects.cell.cell_breakdown import epoch_behind, find_gap_cause
from profnb.subjects.study import Study

MS, NS = 10**9, 10**6
BOOT_NS = 12_345_678_901_234  # what Python's clock reads as the trace begins


def begins(gaps_ms):
    return [sum(10 + gap for gap in gaps_ms[:at]) for at in range(len(gaps_ms) + 1)]


def recorded(gaps_ms, calls, *, kind=KERAS, phase="train", traced=1, late_ms=0, of_steps=slice(None)):
    """What the capture saw: steps of 10 ms, and calls as (part, name, begin, end, time by itself) in milliseconds of the trace."""
    steps = StepRecords(names=[phase])
    for number, at in enumerate(begins(gaps_ms)[of_steps]):
        began = BOOT_NS + int((at + late_ms * (number % 2)) * NS)
        steps.append(began, began + 10 * NS, 0, steps.kinds.index(kind), traced, 0, 1, number, 1)
    rows = list(dict.fromkeys((part, name) for part, name, *_ in calls))
    cell = CellRecords(cells={"c.py": 1})
    for part, name in rows:
        took = [wall * NS for *key, _, _, wall in calls if tuple(key) == (part, name)]
        cell.parts.append(CellPart(part, name, len(took), sum(took), max(took), "c.py", 8))
    for part, name, begin, end, wall in calls:
        for column, value in zip(
            (cell.long_part, cell.long_begin_ns, cell.long_end_ns, cell.long_wall_ns),
            (rows.index((part, name)), BOOT_NS + begin * NS, BOOT_NS + end * NS, wall * NS),
            strict=True,
        ):
            column.append(value)
    return Recording(steps=steps, cell=cell)


def study_of(gaps_ms, recording, iterators=()):
    made = []
    for number, at in enumerate(begins(gaps_ms)):
        made += [event("train", at * MS, 10 * MS, step_num=number, _r=1), event("a/MatMul:MatMul", at * MS, 9 * MS)]
        if number in iterators:
            made.append(event(NEW_ITERATOR, (at + 10) * MS + MS // 2, MS // 10))
    return Study(read(host(line("python", *made))), 0, recording)


ONE_PAUSE = [1] * 39 + [3200] + [1] * 40
AT = 39 * 11 + 10  # when it begins


def paused(*calls, **rest):
    return study_of(ONE_PAUSE, recorded(ONE_PAUSE, calls, **rest))


def said_of(study):
    return facts(study)["pauses"].remark


def test_a_callback_that_is_most_of_a_pause_is_named_with_its_line():
    study = paused((CALLBACKS, "Pause.on_epoch_end", AT + 10, AT + 3010, 3000))
    assert said_of(study) == "1, outside of the steps; the longest 3.20 s, after train step 39: 3.00 s of it `Pause.on_epoch_end`, Cell [1]:8"


def test_saving_a_model_is_named_and_so_are_several_calls_of_one_callback():
    study = paused((CHECKPOINTING, "Model.save", AT + 10, AT + 3010, 3000))
    assert said_of(study).endswith(": 3.00 s of it `Model.save`, Cell [1]:8")
    study = paused(*[(CALLBACKS, "A.on_epoch_end", AT + at, AT + at + 900, 900) for at in (0, 1000, 2000)])
    assert said_of(study).endswith(": 2.70 s of it `A.on_epoch_end`, Cell [1]:8")


@pytest.mark.parametrize(
    ("began", "ended", "wall"),
    [
        (-3500, -500, 3000),  # before the first step
        (AT - 5000, AT - 2000, 3000),  # as long, somewhere else
        (AT - 20, AT + 2980, 2980),  # began before the gap
        (AT + 190, AT + 3230, 3000),  # went on behind it: steps ran inside it
        (AT + 100_000, AT + 103_000, 3000),  # after the last step
        (AT + 10, AT + 3010, 1600),  # half of it, the rest is not the callback's own
        (AT + 10, AT + 1510, 1500),  # less than half
    ],
)
def test_a_callback_elsewhere_or_of_less_than_half_is_not_named(began, ended, wall):
    study = paused((CALLBACKS, "Innocent.on_epoch_end", began, ended, wall))
    assert said_of(study) == "1, outside of the steps; the longest 3.20 s, after train step 39"


def test_two_callbacks_of_which_none_is_most_are_not_named():
    study = paused((CALLBACKS, "A.on_epoch_end", AT, AT + 1500, 1500), (CALLBACKS, "B.on_epoch_end", AT + 1500, AT + 3000, 1500))
    assert "on_epoch_end" not in said_of(study)


GUILTY = (CALLBACKS, "Pause.on_epoch_end", AT + 10, AT + 3010, 3000)


@pytest.mark.parametrize(
    "rest",
    [
        {"traced": 0},  # the trace is of other steps
        {"phase": "test"},
        {"late_ms": 50},  # other times
        {"of_steps": slice(1, None)},  # fewer than the trace has
    ],
)
def test_where_the_timed_steps_are_not_those_of_the_trace_nothing_is_named(rest):
    assert "Pause" not in said_of(paused(GUILTY, **rest))


def test_calls_of_a_function_are_laid_over_each_other_likewise():
    assert "`Pause.on_epoch_end`" in said_of(paused(GUILTY, kind=CALL))


def test_where_they_could_be_laid_over_each_other_in_two_ways_nothing_is_named():
    """A training of two epochs that are alike, of which the trace has one: which one is not known."""
    epoch = [1] * 20 + [3200] + [1] * 20 + [1]
    call = (CALLBACKS, "Pause.on_epoch_end", 20 * 11 + 20, 20 * 11 + 3020, 3000)
    short = epoch[:-1]
    assert find_gap_cause(study_of(short, recorded(short, [call])), 20) is not None
    assert find_gap_cause(study_of(short, recorded(epoch + short, [call])), 20) is None


def test_a_longer_training_whose_other_steps_were_not_traced_is_no_obstacle():
    recording = recorded(ONE_PAUSE + [1] * 30, [GUILTY])
    recording.steps.was_traced[len(ONE_PAUSE) + 1 :] = array("b", [0] * 30)
    assert "`Pause.on_epoch_end`" in said_of(study_of(ONE_PAUSE, recording))


def test_records_without_calls_or_of_others_name_nothing():
    """Files of before calls were kept, and traces of others."""
    recording = recorded(ONE_PAUSE, [GUILTY])
    study = study_of(ONE_PAUSE, recording)
    assert find_gap_cause(study, len(ONE_PAUSE)) is None  # behind the last step
    for cell in (None, CellRecords(), CellRecords(parts=recording.cell.parts)):
        assert "Pause" not in said_of(study_of(ONE_PAUSE, Recording(steps=recording.steps, cell=cell)))
    assert "Pause" not in said_of(study_of(ONE_PAUSE, Recording(cell=recording.cell)))


def test_names_are_data():
    study = paused((CALLBACKS, "<script>`x`" + "y" * 100, AT + 10, AT + 3010, 3000))
    report = build_report(study, title="t", notes=(), overhead_ps=None)
    assert "<script>`" not in str(report.html)
    assert "&lt;script&gt;" in str(report.html)
    assert said_of(study).endswith("…`, Cell [1]:8")


def test_clocks_of_any_machine_and_files_of_any_numbers_do_not_overflow():
    recording = recorded(ONE_PAUSE, [GUILTY])
    end = 1 << 60
    recording.cell.long_begin_ns[0], recording.cell.long_end_ns[0] = -end, end - 1
    assert "Pause" not in said_of(study_of(ONE_PAUSE, recording))
    recording = recorded(ONE_PAUSE, [GUILTY])
    recording.cell.long_wall_ns[0] = end - 1
    find_gap_cause(study_of(ONE_PAUSE, recording), 39)


# A real fit.

SEEN = 0.5  # how much of what was planted is surely charged to it: looks come a few milliseconds apart, on a busy machine half a second


def calls_of(p, hook, began_ns=0, ended_ns=1 << 62):
    """The long calls of a hook that began and ended in a while, by Python's clock: (time by itself, the part)."""
    cell = p.recording.cell
    rows = zip(cell.long_part, cell.long_begin_ns, cell.long_end_ns, cell.long_wall_ns, strict=True)
    return [
        (wall, cell.parts[row]) for row, begin, end, wall in rows
        if cell.parts[row].name == hook and began_ns <= begin and end <= ended_ns
    ]  # fmt: skip


def cause_of_planted(p, row, hook):
    """What the gap behind a step is said to be, into which a call of 1.5 s was planted: that call, or nothing.

    Nothing only where the machine stood still beside the call: then the gap is longer by a twentieth, by one clock or the other.
    """
    steps = p.recording.steps
    [(wall_ns, part)] = calls_of(p, hook, steps.end_ns[row], steps.begin_ns[row + 1])
    assert part.part == CALLBACKS and wall_ns >= SEEN * 1500 * NS
    gap_ps, timed_ps = int(p.study.gaps.duration_ps[row]), (steps.begin_ns[row + 1] - steps.end_ns[row]) * 1000
    cause = find_gap_cause(p.study, row)
    if cause is None:
        assert max(gap_ps, timed_ps) > 1.05 * wall_ns * 1000
    else:
        assert cause.name == part.name
        assert cause.wall_ps >= SEEN * 1500 * MS - max(timed_ps - gap_ps, 0)
    return cause


def longest_pause(p):
    """The gap that the report tells of: the longest of those that are part of no step."""
    pauses, took = p.study.gaps.long, p.study.gaps.duration_ps
    return int(pauses[took[pauses].argmax()])


def ends_of_epochs(p):
    """The epoch that ended behind a step, by its row; the trace has all steps that were timed."""
    assert len(p.steps) == len(p.recording.steps)
    behind = {row: epoch_behind(p.study, row) for row in range(len(p.steps))}
    return {row: epoch for row, epoch in behind.items() if epoch}


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_a_pause_planted_into_a_real_fit(name, tmp_path):
    """1.5 s at the end of the first epoch; as much, by another callback, before the first step and after the last one."""
    keras = pytest.importorskip(name)

    class Pause(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                time.sleep(1.5)

    class Innocent(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            time.sleep(1.5)

        on_train_end = on_train_begin

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    x, y = np.ones((256, 4), "float32"), np.ones((256, 2), "float32")
    with profnb.profile(logdir=str(tmp_path), max_seconds=300) as p:
        model.fit(x, y, batch_size=8, epochs=3, callbacks=[Innocent(), Pause()], verbose=0)
    assert ends_of_epochs(p) == {31: 1, 63: 2, 95: 3}
    steps = p.recording.steps
    [begun] = calls_of(p, "Innocent.on_train_begin", ended_ns=steps.begin_ns[0])
    [over] = calls_of(p, "Innocent.on_train_end", began_ns=steps.end_ns[95])
    assert min(begun[0], over[0]) >= SEEN * 1500 * NS
    [(_, part)] = calls_of(p, "Pause.on_epoch_end", steps.end_ns[31], steps.begin_ns[32])
    assert (Path(part.file).name, part.line) == ("test_gap_causes.py", Pause.on_epoch_end.__code__.co_firstlineno)
    cause = cause_of_planted(p, 31, "Pause.on_epoch_end")
    if cause is not None:
        assert cause.line.endswith(f"test_gap_causes.py:{part.line}")
        assert f"`Pause.on_epoch_end`, {cause.line}" in said_of(p.study) or longest_pause(p) != 31
    again = profnb.load(str(tmp_path)).study
    assert (find_gap_cause(again, 31), said_of(again)) == (cause, said_of(p.study))
    rest = [find_gap_cause(p.study, row) for row in range(95) if row != 31]
    assert not [one for one in rest if one is not None and one.name.startswith("Innocent")]


def ended(gaps_ms, *ends):
    """A recording in which epochs ended behind some steps, as (step, epoch)."""
    found = recorded(gaps_ms, ())
    for step, epoch in ends:
        found.steps.ended_at.append(step + 1)
        found.steps.ended_epoch.append(epoch)
    return found


def test_a_pause_at_the_end_of_an_epoch_says_which_epoch_ended():
    at_end = study_of(ONE_PAUSE, ended(ONE_PAUSE, (19, 4), (39, 5), (59, 6)))
    assert said_of(at_end) == "1, outside of the steps; the longest 3.20 s, after train step 39, at the end of epoch 5"
    inside = study_of(ONE_PAUSE, ended(ONE_PAUSE, (19, 4), (40, 5)))
    assert said_of(inside) == "1, outside of the steps; the longest 3.20 s, after train step 39"
    assert "epoch" not in said_of(study_of(ONE_PAUSE, Recording()))


def test_an_epoch_that_ended_before_any_step_or_behind_the_last_one_is_no_gaps():
    study = study_of(ONE_PAUSE, ended(ONE_PAUSE, (-1, 1), (80, 2)))
    assert "epoch" not in said_of(study)
    assert [epoch_behind(study, row) for row in (0, 39, 79, 80)] == [0, 0, 0, 2]


@pytest.mark.tensorflow
def test_the_epochs_of_a_fit_are_told_as_keras_prints_them():
    keras = pytest.importorskip("keras")

    class Pause(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 4:
                time.sleep(1.5)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((256, 4), "f"), np.ones((256, 1), "f")
    with profnb.profile(source=False, max_steps=1000, max_seconds=300) as p:
        model.fit(x, y, batch_size=8, epochs=6, initial_epoch=3, validation_data=(x[:16], y[:16]), verbose=0, callbacks=[Pause()])
    assert list(p.recording.steps.ended_epoch) == [4, 5, 6]
    behind = ends_of_epochs(p)
    assert behind == {33: 4, 67: 5, 101: 6}  # 32 steps of training and two of validation
    assert {p.steps.phase[row] for row in behind} == {"test"}
    cause = cause_of_planted(p, 67, "Pause.on_epoch_end")
    # What is told is the longest, which on a busy machine may be another: where validation was traced, behind epoch 4.
    longest = longest_pause(p)
    end = f", at the end of epoch {behind[longest]}" if longest in behind else ""
    remark = facts(p.study)["pauses"].remark
    assert f"after {p.steps.phase[longest]} step {p.steps.step_num[longest]}{end}" in remark
    assert longest != 67 or cause is None or cause.text in remark


def test_epochs_are_kept_beside_a_trace():
    found = ended(ONE_PAUSE, (19, 4), (39, 5)).steps
    codec = Codec(LIMITS, CHECKS)
    again = codec.decode(json.loads(json.dumps(codec.encode(found, StepRecords))), StepRecords)
    assert (list(again.ended_at), list(again.ended_epoch)) == ([20, 40], [4, 5])
    old = codec.encode(found, StepRecords)
    del old["ended_at"], old["ended_epoch"]
    assert list(codec.decode(old, StepRecords).ended_at) == []
