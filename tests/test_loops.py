"""Eager loops: their steps, what is input and what is Python in them, and when eager ops are advised against."""

import pytest
from traces import event, host, line, read

from profnb.report.ranking import advise
from profnb.steps.breakdown import CATEGORIES
from profnb.steps.finding.sources import find_steps
from profnb.subjects.study import Study

US, MS = 10**6, 10**9


def ask(at, took=2, iterator=7, brings=True):
    """A call for the next element: in Python, the fetch in the runtime, the iterator."""
    sizes = {"element_size": 8} if brings else {}
    return [
        event("TFE_Py_FastPathExecute_C", at * MS, took * MS),
        event("EagerLocalExecute: IteratorGetNext", at * MS, took * MS),
        event("IteratorGetNextOp::DoCompute", at * MS, took * MS, id=99, **sizes),
        event("Iterator::Root", at * MS, took * MS, id=iterator),
    ]


def run(op, at, took=1):
    return [
        event("TFE_Py_FastPathExecute_C", at * MS, took * MS),
        event(f"EagerLocalExecute: {op}", at * MS, took * MS),
        event("KernelAndDeviceFunc::Run", int((at + took / 4) * MS), took * MS // 2),
    ]


def make(at):
    return run("MakeIterator", at)


def turns(begin, count, *ops, iterator=7, period=10):
    """So many turns: an element, then ops of 1 ms from 3 ms on; at last the call that brings nothing."""
    made = []
    for at in range(begin, begin + count * period, period):
        made += ask(at, iterator=iterator)
        for number, op in enumerate(ops):
            made += run(op, at + 3 + number)
    return made + ask(begin + count * period, iterator=iterator, brings=False)


def study_of(*parts, others=()):
    return Study(read(host(line("python", *(one for part in parts for one in part)), *others)))


def phases(steps):
    return {phase: steps.phase.count(phase) for phase in dict.fromkeys(steps.phase)}


def rules(study):
    return {advice.rule: advice for advice in advise(study)}


def test_a_turn_of_an_eager_loop_is_a_step_to_the_last_thing_that_tensorflow_does_in_it():
    steps = study_of(make(0), turns(5, 3, "MatMul", "ReluGrad", "AssignSubVariableOp")).steps
    assert steps.begin_ps.tolist() == [5 * MS, 15 * MS, 25 * MS]
    assert steps.end_ps.tolist() == [11 * MS, 21 * MS, 31 * MS]
    assert phases(steps) == {"train": 3}
    assert "eager loop" in steps.origin


def test_a_loop_over_a_dataset_with_nothing_but_python_in_it():
    """2 of 10 ms wait for the element, the rest is Python's; the call that brings no element is no step."""
    study = study_of(make(0), turns(5, 20))
    assert phases(study.steps) == {"loop": 20}
    shares = {share.category: share.fraction for share in study.summary.shares}
    whole = 19 * 10 + 2
    assert shares == {"between steps": pytest.approx(19 * 8 / whole), "input": pytest.approx(20 * 2 / whole)}


def test_sleeping_in_a_thread_of_the_pipeline_is_no_host_compute():
    asleep = [
        event("PyFunc:PyFunc", at * 10 * MS, 9 * MS) for at in range(22)
    ]
    mapped = [event("InstantiatedCapturedFunction::RunWithBorrowedArgs", at * 10 * MS, 9 * MS) for at in range(22)]
    ran = [event("Sleep:Sleep", at * 10 * MS, 9 * MS) for at in range(22)]
    others = [
        line("tf_data_private_threadpool/7", *asleep, line_id=2),
        line("inter_op", *(one for pair in zip(mapped, ran, strict=True) for one in pair), line_id=3),
    ]
    window = Study(read(host(line("python", *ask(0), *run("MatMul", 5, 4)), *others)))
    assert window.steps.is_window
    spent = dict(zip(CATEGORIES, window.breakdown.picoseconds[0].tolist(), strict=True))
    assert (spent["host compute"], spent["input"]) == (4 * MS, 2 * MS)


def test_an_op_of_a_step_on_a_thread_of_its_own_is_host_compute_still():
    window = Study(read(host(line("python", event("a:Op", 0, MS)), line("inter_op", event("b:Op", 2 * MS, 3 * MS), line_id=2))))
    assert window.breakdown.of("host compute").tolist() == [4 * MS]


def test_training_and_validation_in_eager_loops_are_two_phases():
    epoch = [make(0), turns(5, 4, "MatMul", "AssignSubVariableOp"), make(60), turns(65, 3, "MatMul", iterator=8)]
    assert phases(study_of(*epoch).steps) == {"train": 4, "loop": 3}


def test_accumulated_gradients_are_training_in_each_turn():
    parts = [make(0)]
    for at in range(12):
        parts += [ask(10 + at * 10), run("MatMul", 14 + at * 10)]
        parts += [run("ResourceApplyAdam", 16 + at * 10)] if at % 4 == 3 else []
    assert phases(study_of(*parts).steps) == {"train": 12}


def test_two_iterators_that_take_turns_make_one_step():
    parts = [make(0), make(2)]
    for at in range(10, 110, 10):
        parts += [ask(at), ask(at + 3, iterator=8), run("Mul", at + 6)]
    study = study_of(*parts, ask(110, brings=False))
    assert phases(study.steps) == {"loop": 10}
    assert study.steps.duration_ps.tolist() == [7 * MS] * 10


def test_a_loop_inside_a_loop_leaves_the_outer_ones_steps():
    parts = [make(0)]
    for at in range(100, 500, 100):
        parts += [ask(at), run("AssignSubVariableOp", at + 5), make(at + 10), turns(at + 20, 3, iterator=8)]
    assert phases(study_of(*parts).steps) == {"train": 4, "loop": 12}


def test_a_loop_that_is_left_ends_with_as_much_as_the_others():
    parts = [make(0), *(part for at in range(10, 60, 10) for part in (ask(at), run("MatMul", at + 4)))]
    steps = study_of(*parts, run("Sum", 500), run("Sum", 600)).steps
    assert len(steps) == 5
    assert int(steps.end_ps[-1]) == 55 * MS


def test_one_element_is_no_loop_and_functions_come_first():
    assert study_of(make(0), ask(5), run("MatMul", 9)).steps.is_window
    calls = [event("step", at * MS, 2 * MS, tf_function_call="notTraced-nonXla") for at in range(3, 63, 10)]
    study = study_of(sorted([*make(0), *turns(5, 6), *calls], key=lambda one: one[1]))
    assert phases(study.steps) == {"step": 6}


def test_elements_whose_sizes_nobody_tells_count_all():
    parts = [make(0), *(ask(at, brings=False) for at in range(10, 60, 10))]
    assert len(find_steps(study_of(*parts).trace)) == 5


def test_eager_ops_are_advised_against_in_a_loop_and_python_is_not_blamed_for_their_dispatch():
    ops = ["MatMul"] * 30
    made = [make(0)]
    for at in range(10, 410, 40):
        made += [ask(at), *(run(op, at + 2 + number) for number, op in enumerate(ops))]
    found = rules(study_of(*made))
    assert "Python ran 31 ops a step one by one" in found["eager-ops"].evidence or "Python ran 30 ops a step" in found["eager-ops"].evidence
    assert "model.compile" not in found.get("python-between-steps", found["eager-ops"]).code


def test_eager_ops_are_advised_against_in_a_window_but_not_where_a_model_is_made():
    many = [part for at in range(600) for part in run("MatMul", at)]
    found = rules(study_of(many))["eager-ops"]
    assert "Python ran 600 ops one by one in 600 ms" in found.evidence
    assert "that runs them" in found.code
    variables = [part for at in range(600) for part in run("VarHandleOp" if at % 25 == 0 else "Mul", at)]
    assert "eager-ops" not in rules(study_of(variables))
    assert "eager-ops" not in rules(study_of(many[: 3 * 100]))


