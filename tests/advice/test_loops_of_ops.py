"""Loops of small ops in a step: what else computes meanwhile, and what recording their many pieces adds, is no time of theirs."""

import pytest
from advised import alone
from traces import event, host, line, read

from profnb.capture.recording import Recording
from profnb.capture.step_records import KERAS, StepRecords
from profnb.causes.python_work import shares_of_calls
from profnb.subjects.ops.op_execution import find_loop
from profnb.subjects.study import Study

US, MS, NS = 10**6, 10**9, 10**6
LOOP = [(at, at + 8, f"map/while/body/_{at}/Add:Add") for at in range(100, 500, 10)]  # 40 turns of 10 us


def study_of(pieces, steps=8, untraced_us=0):
    """Steps of 1 ms: each piece of the executor's as (begin, end, the op in it), in us; of a loop where its name says so."""
    ran, seen = [], StepRecords(names=["train"])
    for at in range(steps):
        ran.append(event("train", at * MS, MS, step_num=at, _r=1))
        turn = 0
        for begin, end, name in pieces:
            turn += "while" in name
            place = at * MS + begin * US, (end - begin) * US
            ran += [event("ExecutorState::Process", *place, iter_num=turn if "while" in name else 0), event(name, place[0], place[1])]
    for at in range(2 * steps if untraced_us else 0):
        is_traced = at < steps
        took = 1000 if is_traced else untraced_us
        begin = at * NS if is_traced else steps * NS + (at - steps) * untraced_us * 1000
        seen.append(begin, begin + took * 1000, 0, seen.kinds.index(KERAS), is_traced, False, 1, at, 1)
    return Study(read(host(line("python", *ran))), 0, Recording(steps=seen) if untraced_us else None)


def test_a_loop_that_is_most_of_a_step_goes_and_less_of_what_lies_around_it():
    """0.4 of the step by 40 turns: done at once 0.01 stays, and of the 0.6 around it no more goes than a quarter of 0.4."""
    study = study_of(LOOP)
    assert find_loop(study).share == pytest.approx(0.398, abs=0.011)
    low, high = alone(study)["loop-of-ops"]
    assert 0.27 < low < 0.31
    assert 0.45 < high < 0.5


def test_what_other_ops_compute_between_two_loops_is_no_time_of_theirs():
    """The second loop begins 0.4 ms later, and a product takes what lies between."""
    again = [(begin + 400, end + 400, name.replace("map/", "map_1/")) for begin, end, name in LOOP[20:]]
    study = study_of([*LOOP[:20], (300, 700, "dense/MatMul:MatMul"), *again])
    assert find_loop(study).share == pytest.approx(0.39, abs=0.03)
    assert alone(study)["loop-of-ops"][1] < 0.5


def test_a_product_that_takes_all_of_a_step_beside_a_short_loop_is_left_alone():
    study = study_of([*LOOP[:3], (130, 990, "dense/MatMul:MatMul")])
    assert alone(study).get("loop-of-ops", (0, 0))[1] < 0.05


def test_what_recording_the_turns_added_is_no_time_of_theirs():
    """Untraced the steps take 0.7 ms: of 1 ms the loop's 80 pieces of 81 added 0.3, of its 0.4."""
    study = study_of(LOOP, untraced_us=700)
    assert study.tracing_cost is not None
    assert find_loop(study).share < 0.25


def test_fewer_calls_spare_nothing_between_the_turns_of_a_loop():
    """Threads that a call wakes are awake in all its later turns; ops in a row without a loop may each have waited for one."""
    in_a_row = [(begin, end, f"dense_{begin}/Relu:Relu") for begin, end, _ in LOOP]
    assert shares_of_calls(study_of(LOOP))[1] < 0.05
    assert shares_of_calls(study_of(in_a_row))[1] > 0.3
