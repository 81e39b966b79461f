"""Advice on Python functions that a step's graph calls: of the guilty, and silent on pipelines' and on small ones."""

import pytest
import recorded
from advised import advised
from traces import event, host, line, read

from profnb.subjects.study import Study

MS = 10**9


def study_of(functions, ops=((0, 2),), steps=12, beside=(), others=(), phase=lambda _: "train"):
    """Steps of 10 ms: ``functions`` gives those of a step, as (begin, end) in ms; ops on the graph's thread, others on another's."""
    python, graph, elsewhere = [], [], []
    for at in range(steps):
        begin = at * 10
        python.append(event(phase(at), begin * MS, 10 * MS, step_num=at, _r=1, _pt=15, _p=at))
        graph.append(event("ExecutorState::Process", begin * MS, 10 * MS, _ct=15, _c=at))
        both = [("a/MatMul:MatMul", *span) for span in ops] + [("metric/PyFunc:PyFunc", *span) for span in functions(at)] + list(others)
        graph += [event(name, round((begin + a) * MS), round((b - a) * MS)) for name, a, b in sorted(both, key=lambda one: one[1])]
        elsewhere += [event(name, round((begin + a) * MS), round((b - a) * MS), _ct=15, _c=at) for name, a, b in beside]
    return Study(read(host(line("python", *python), line("executor", *graph, line_id=2), line("other", *elsewhere, line_id=3))))


def said(study):
    return advised(study).get("python-in-the-step")


def test_a_function_that_each_step_calls_is_named_with_its_time():
    found = said(study_of(lambda _: [(3, 6)]))
    assert found.bound_fraction == pytest.approx(0.3)
    assert found.saves_ms[0] == pytest.approx(12 * 10 * 0.3 * 0.6)
    assert "calls Python once (metric/PyFunc), 3.00 ms each time. For 30.0 % of the time no other op of the step runs" in found.evidence
    assert "calls Python 3 times (" in said(study_of(lambda _: [(3, 4), (5, 6), (7, 8)])).evidence


def test_the_function_that_takes_most_is_named_and_only_those_of_the_steps_spoken_of_count():
    study = study_of(lambda _: [(3, 6)], others=[("small/PyFunc:PyFunc", 7, 7.5)])
    assert "calls Python 2 times (metric/PyFunc), 1.75 ms each time. For 35.0 % of the time no other op of the step runs" in said(study).evidence
    first = study_of(lambda _: [(7, 9)], others=[("a_large/PyFunc:PyFunc", 3, 6)])
    assert "(a_large/PyFunc)" in said(first).evidence
    validation = study_of(lambda at: [(3, 6)] if at < 12 else [(2, 3), (3, 4), (4, 5), (5, 6)], steps=16, phase=lambda at: "train" if at < 12 else "test")
    assert "calls Python once (metric/PyFunc), 3.00 ms each time. For 30.0 %" in said(validation).evidence


@pytest.mark.parametrize(
    "study",
    [
        lambda: study_of(lambda _: [(3, 3.6)]),  # 6 %, of which two fifths may stay
        lambda: study_of(lambda at: [(3, 9)] if at % 4 == 0 else []),  # a summary now and then: 15 %
        lambda: study_of(lambda at: [(3, 9.5)] if at < 3 else [(3, 3.5)]),  # it waited for a core in three of twelve steps
        lambda: study_of(lambda _: [(3, 6)], beside=[("b/MatMul:MatMul", 2.5, 6.5)]),  # others compute meanwhile
        lambda: study_of(lambda _: []),
    ],
    ids=["small", "now and then", "a busy machine", "beside others", "none"],
)
def test_functions_that_cost_the_steps_little_are_left_alone(study):
    assert said(study()) is None


@pytest.mark.parametrize("name", ["pipeline-py-function", "pipeline-generator", "python-input-slow", "keras-generator"])
def test_functions_of_the_input_are_not_the_steps(name):
    assert said(recorded.program(name).study) is None
