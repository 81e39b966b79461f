"""Captures without steps, and work that nobody recorded: each case has its own true sentence."""

import pytest
from advised import advised
from traces import event, host, line, read, ref

from profnb.capture.parts.part_records import CELL, CellRecords, TreeNode
from profnb.capture.source.source_records import SourceRecords
from profnb.capture.recording import NOT_ENDED, Recording
from profnb.capture.marking.trace_events import TracedFunction
from profnb.capture.step_records import StepRecords
from profnb.report.notes import notes_of
from profnb.core.options import CaptureOptions
from profnb.profile import Profile
from profnb.report.build import build_report
from profnb.subjects.study import Study

MS = 10**9


def study_of(*events, **seen):
    return Study(read(host(line("python", *events))), recording=Recording(**seen))


def report_of(study):
    return build_report(study, title="t", notes=notes_of(study), overhead_ps=None, advice=list(advised(study).values()))


def call(at, name):
    return event(name, at * MS, MS, tf_function_call=ref("notTraced-nonXla"))


def records(*traced):
    out = StepRecords(names=["train"])
    for number, one in enumerate(traced):
        out.append(number * 10, number * 10 + 5, 0, 0, one, 0, 1, number, 0)
    return out


def test_a_cell_without_tensorflow_is_said_to_be_python():
    study = study_of(*(event("profnb.clock", at * MS, 1) for at in range(3)), wall_ns=66 * 10**9, environment={"TensorFlow": "2.21.0"})
    report = report_of(study)
    assert report.headline == "No TensorFlow ran: 66.0 s of Python and its calls"
    assert (report.answer, report.shares, report.advice) == ("", (), None)
    assert report.notes == ["No TensorFlow ran during the capture, so there are no steps."]
    assert "host compute" not in report.text()


@pytest.mark.parametrize(("lines", "said"), [(None, ""), (range(0), ""), (range(3), " Your lines are in the source table.")])
def test_the_source_table_is_spoken_of_where_it_has_a_line(lines, said):
    """On Python 3.11 the source is kept, but lines are not followed unless asked for: then the table is empty."""
    study = study_of(event("profnb.clock", 0, 1), wall_ns=10**9, environment={"TensorFlow": "2.21.0"}, source=SourceRecords())
    study.source.lines = lines
    assert notes_of(study)[0] == f"No TensorFlow ran during the capture, so there are no steps.{said}"


@pytest.mark.parametrize(
    "seen",
    [{"wall_ns": 0}, {"wall_ns": 10**9, "closed_by": "the code"}],
    ids=["a saved trace that tells nothing of the code", "the code's own profiler took over"],
)
def test_nothing_is_said_of_code_that_was_not_captured_to_its_end(seen):
    assert "No TensorFlow" not in report_of(study_of(event("profnb.clock", 0, 1), **seen)).headline


def test_one_op_is_enough_to_be_tensorflows():
    study = study_of(event("profnb.clock", 0, 1), event("EagerLocalExecute: AddV2", 5, 5), wall_ns=10**9)
    assert report_of(study).headline.startswith("No steps found")


def test_functions_that_ran_once_are_named():
    tensorflow = {"environment": {"TensorFlow": "2.21.0"}}
    assert any("train_step ran once: no loop, so no steps" in note for note in notes_of(study_of(call(0, "train_step"), **tensorflow)))
    note = notes_of(study_of(*(call(at * 2, name) for at, name in enumerate("abcde")), **tensorflow))[0]
    assert note.startswith("a, b, c and 2 more ran once each")
    assert "Keras fit" not in note


def test_a_window_of_eager_ops_is_not_told_to_use_keras():
    note = notes_of(study_of(event("EagerLocalExecute: MatMul", 0, 5), environment={"TensorFlow": "2.21.0"}))[0]
    assert note.startswith("No loop was found among 1 events")
    assert "Keras fit" not in note


def test_a_window_that_closed_before_the_first_step_had_ended():
    eager = event("EagerLocalExecute: MatMul", 0, 5)
    closed = notes_of(study_of(eager, steps=records(0, 0, 0), closed_by="seconds"))[0]
    assert closed.startswith("The window closed before the first step ended, so none of 3 steps was traced.")
    for seen in ({"steps": records(0, 1), "closed_by": "seconds"}, {"steps": records(0), "closed_by": None}):
        assert not notes_of(study_of(eager, **seen))[0].startswith("The window closed")


def jax(**seen):
    steps = [event("train", at * 10 * MS, 2 * MS, step_num=at, _r=1) for at in range(20)]
    return study_of(*steps, environment={"TensorFlow": "2.21.0", "Keras": "3.15.1", **seen})


def test_keras_on_another_backend_is_never_python_between_steps():
    report = report_of(jax(**{"Keras backend": "jax"}))
    assert report.headline == "20 train steps, median 2.00 ms, one every 9.60 ms"
    assert (report.answer, report.shares, report.advice) == ("", (), None)
    assert any("Keras runs on JAX here" in note for note in report.notes)
    assert not any("Between steps" in note for note in report.notes)


def test_keras_on_tensorflow_is_judged_as_ever():
    report = report_of(jax())
    assert "between steps" in report.answer
    assert [advice.rule for advice in report.advice] == ["python-between-steps"]
    assert not any("Keras runs on" in note for note in report.notes)


@pytest.mark.parametrize(("arguments", "is_said"), [(["_arg_x_0_0:_Arg"], True), ([], False)], ids=["fed", "not fed"])
def test_session_runs_that_were_fed_nothing_are_not_asked_where_their_data_came_from(arguments, is_said):
    made = []
    for at in range(20):
        made.append(event("session_run", at * 10 * MS, 2 * MS, step_num=at, _r=1))
        made += [event(name, at * 10 * MS, MS) for name in ["m:MatMul", *arguments]]
    study = study_of(*made, graph_versions=[3] * 20, environment={"TensorFlow": "2.21.0"})
    assert any("may fetch the data unseen" in note for note in notes_of(study)) is is_said
    code = advised(study)["python-between-steps"].code
    assert code.startswith("Log and fetch every 100 steps.")
    assert ("placeholders" in code) is is_said


def test_a_window_that_was_captured_is_mostly_python_where_no_op_ran_and_another_is_not_explained():
    trace = read(host(line("python", event("a/MatMul:MatMul", 0, 10 * MS), event("b/MatMul:MatMul", 90 * MS, 10 * MS))))
    captured = Study(trace, recording=Recording(wall_ns=100_000_000))
    assert report_of(captured).answer == "Most of it is all others, 80.0 % (no op active: mostly Python)."
    assert "nothing that could explain it was recorded" in report_of(Study(trace)).answer


@pytest.mark.parametrize(
    ("traced", "wall_ms", "said"),
    [
        (10, 100, None),
        (10, 300, "Details cover the first 0.095 s. No step came after that. `-t 1` traces longer."),
        (6, 100, "Details cover the first 6 of 10 steps; all were timed. `-n 10` traces all."),
    ],
)
def test_that_tracing_stopped_is_said_only_where_something_is_missing(traced, wall_ms, said):
    steps = StepRecords(names=["train"])
    for number in range(10):
        steps.append(number * 10_000_000, number * 10_000_000 + 9_000_000, 0, 0, int(number < traced), 0, 1, number, 1)
    trace = read(host(line("python", *(event("train", number * 10 * MS, 9 * MS, step_num=number, _r=1) for number in range(traced)))))
    recording = Recording(steps=steps, closed_by="steps", wall_ns=wall_ms * 10**6, window_ns=95 * 10**6)
    found = [note for note in Profile(trace, recording, CaptureOptions(max_steps=traced)).notes if "Details cover" in note]
    assert found == ([] if said is None else [said])


def test_a_window_without_a_first_step_is_told_once():
    eager = event("EagerLocalExecute: MatMul", 0, 5)
    message = f"{NOT_ENDED} 6 s after tracing began, so tracing stopped inside the step."
    seen = {"steps": records(0, 0, 0), "closed_by": "seconds", "messages": [message], "environment": {"TensorFlow": "2.21.0"}}
    study = study_of(eager, **seen)
    assert notes_of(study)[0] == "None of 3 steps was traced, all were timed; running the cell again skips building, tracing and compiling."
    script = CellRecords()
    script.call("script")  # which builds and compiles anew
    assert notes_of(study_of(eager, cell=script, **seen))[0] == "None of 3 steps was traced, all were timed."
    p = Profile(trace=study.trace, recording=study.recording)
    assert p.notes[:2] == [message, notes_of(study)[0]]
    assert not any("Details cover" in note for note in p.notes)


@pytest.mark.parametrize(
    ("wheres", "title"),
    [(["Cell [3]:2"], "lambda (Cell [3]:2)"), (["Cell [3]:2", "Cell [3]:9"], "<lambda>"), ([""], "<lambda>"), ([], "<lambda>")],
)
def test_steps_of_a_function_without_a_name_are_titled_by_its_line_where_that_is_sure(wheres, title):
    functions = tuple(TracedFunction("<lambda>", row, where=where) for row, where in enumerate(wheres))
    study = study_of(*(call(at * 2, "<lambda>") for at in range(20)), functions=functions)
    assert report_of(study).headline.startswith(f"20 {title} steps, median")


@pytest.mark.parametrize(("rules", "cell", "is_said"), [
    (["python-between-steps"], CellRecords(), False), (["python-between-steps"], None, True), ([], CellRecords(), True),
    ([], CellRecords(tree=[TreeNode(-1, CELL)]), False),  # its tree tells what ran between the steps
])  # fmt: skip
def test_what_fetches_the_data_is_not_asked_where_advice_says_what_took_the_time(rules, cell, is_said):
    study = study_of(*(call(at * 10, "train_step") for at in range(20)), cell=cell)
    assert any("may fetch the data unseen" in note or "may be the cause" in note for note in notes_of(study, rules)) is is_said
