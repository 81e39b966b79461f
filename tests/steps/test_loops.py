"""Eager loops: their steps, what is input and what is Python in them, and when eager ops are advised against."""

import pytest
from advised import advised
from traces import event, gpu, host, line, read

from profnb.steps.activities import CATEGORIES
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
    return advised(study)


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
    assert "over the function that runs these ops" in found.code
    variables = [part for at in range(600) for part in run("VarHandleOp" if at % 25 == 0 else "Mul", at)]
    assert "eager-ops" not in rules(study_of(variables))




def taped(at, *after, tape=1, site=0, forward=("MatMul",), inside=()):
    """A turn with a tape: entered at ``at``, ops of 1 ms from 1 ms on, a gradient of 2 ms, then ops of 1 ms."""
    made = [event("GradientTape", at * MS, 1, profnb_marker="tape", profnb_tape=tape)]
    for number, op in enumerate(forward):
        made += run(op, at + 1 + number)
    begin = at + 1 + len(forward)
    made.append(event("GradientTape.gradient", begin * MS, 2 * MS, profnb_marker="tape", profnb_tape=tape, profnb_tape_site=site))
    made += run("MatMul", begin) + list(inside)
    for number, op in enumerate(after):
        made += run(op, begin + 2 + number)
    return made


def test_a_turn_with_a_gradient_is_a_step_from_its_tape_to_what_follows_the_gradient():
    """The constant of the next batch is no part of it."""
    parts = [part for at in range(10, 50, 10) for part in (taped(at, "AssignSubVariableOp", tape=at), [event("tf.constant", (at + 8) * MS, MS)])]
    steps = study_of(*parts).steps
    assert steps.begin_ps.tolist() == [10 * MS, 20 * MS, 30 * MS, 40 * MS]
    assert steps.end_ps.tolist() == [15 * MS, 25 * MS, 35 * MS, 45 * MS]
    assert phases(steps) == {"train": 4}
    assert "GradientTape" in steps.origin


def test_what_follows_the_last_turn_of_an_epoch_is_no_part_of_it():
    epochs = [taped(at, "AssignSubVariableOp", tape=at) for at in (10, 20, 30, 100, 110, 120)]
    evaluation = [run("Sum", at) for at in (*range(40, 90), *range(130, 180))]
    parts = sorted((one for part in (*epochs, *evaluation) for one in part), key=lambda one: (one[1], -one[2]))
    assert study_of(parts).steps.end_ps.tolist() == [at * MS for at in (15, 25, 35, 105, 115, 125)]


def test_two_gradients_in_turn_are_one_step_and_those_of_one_line_are_steps_each():
    pairs = [part for at in range(10, 110, 20) for part in (taped(at, "AssignSubVariableOp", tape=at), taped(at + 8, tape=at + 1, site=1))]
    steps = study_of(*pairs).steps
    assert steps.begin_ps.tolist() == [at * MS for at in range(10, 110, 20)]
    assert steps.end_ps.tolist() == [(at + 12) * MS for at in range(10, 110, 20)]
    alone = [part for at in range(10, 110, 20) for part in (taped(at, tape=at), taped(at + 8, tape=at + 1))]
    assert phases(study_of(*alone).steps) == {"loop": 10}


def test_gradients_applied_now_and_then_are_training_in_each_turn_and_longer_where_they_are():
    parts = [taped(at * 10, "Add", *(["AssignAddVariableOp", "ResourceApplyAdam"] if at % 4 == 3 else []), tape=at + 1) for at in range(12)]
    steps = study_of(*parts).steps
    assert phases(steps) == {"train": 12}
    assert [int(end // MS) % 10 for end in steps.end_ps] == [5, 5, 5, 7] * 3


def test_one_gradient_or_gradients_of_other_lines_are_no_loop():
    assert study_of(taped(10, "AssignSubVariableOp")).steps.is_window
    assert study_of(*(taped(at, tape=at, site=at) for at in range(10, 50, 10))).steps.is_window


def test_a_tape_that_was_entered_before_the_trace_began_or_only_once_leaves_the_gradient_to_begin_the_turn():
    one = taped(10, tape=5)
    again = [taped(at, tape=5)[1:] for at in (20, 30)]
    assert study_of(one, *again).steps.begin_ps.tolist() == [10 * MS, 22 * MS, 32 * MS]
    assert study_of(*(taped(at, tape=0)[1:] for at in (20, 30))).steps.begin_ps.tolist() == [22 * MS, 32 * MS]


def test_all_that_a_persistent_tape_is_asked_for_is_one_turn():
    """Three turns, in each of which one tape is asked for five gradients, of 2 ms and 1 ms apart."""
    parts = []
    for turn in range(3):
        at = 10 + turn * 30
        parts.append(taped(at, tape=turn + 1))
        parts += [taped(at + 3 * more, tape=turn + 1)[3:] for more in range(1, 5)]
        parts.append(run("AssignSubVariableOp", at + 18))
    steps = study_of(*parts).steps
    assert steps.begin_ps.tolist() == [10 * MS, 40 * MS, 70 * MS]
    assert steps.end_ps.tolist() == [29 * MS, 59 * MS, 89 * MS]


def test_a_gradient_in_a_turn_that_asks_for_its_element_makes_no_step_of_its_own():
    inside = [part for at in range(20, 60, 10) for part in (ask(at), taped(at + 3, "AssignSubVariableOp", tape=at))]
    plain = [part for at in range(20, 60, 10) for part in (ask(at), run("AssignSubVariableOp", at + 3))]
    for parts in (inside, plain):
        steps = study_of(make(0), *parts, ask(60, brings=False)).steps
        assert steps.begin_ps.tolist() == [20 * MS, 30 * MS, 40 * MS, 50 * MS]
        assert "GradientTape" not in steps.origin


def test_training_on_batches_of_python_and_validation_by_tf_data_are_both_found():
    epoch = [*(taped(at, "AssignSubVariableOp", tape=at) for at in range(10, 60, 10)), make(60), turns(65, 3, "MatMul")]
    study = study_of(*epoch, *(taped(at, "AssignSubVariableOp", tape=at) for at in range(110, 140, 10)))
    assert phases(study.steps) == {"train": 8, "loop": 3}
    assert len(study.step_times) == 11
    assert (study.steps.begin_ps[1:] >= study.steps.end_ps[:-1]).all()


def test_what_marks_steps_or_calls_functions_comes_before_gradients():
    calls = [event("step", (at + 7) * MS, MS, tf_function_call="notTraced-nonXla") for at in range(10, 40, 10)]
    made = [part for at in range(10, 40, 10) for part in taped(at, tape=at)]
    assert phases(study_of(sorted([*made, *calls], key=lambda one: (one[1], -one[2]))).steps) == {"step": 3}


def test_tapes_on_several_threads_make_steps_of_the_one_that_has_most():
    other = line("other", *taped(15, tape=90), *taped(25, tape=91), line_id=2)
    steps = study_of(*(taped(at, tape=at) for at in (10, 20, 30)), others=[other]).steps
    assert steps.begin_ps.tolist() == [10 * MS, 20 * MS, 30 * MS]


def test_new_iterators_of_validation_are_no_reason_to_repeat_a_dataset_that_does_not_feed_the_training():
    def epochs(part):
        return [one for at in range(0, 400, 100) for one in (*part(at), make(at + 50), turns(at + 65, 3, "MatMul", iterator=8))]

    by_python = study_of(*epochs(lambda at: [taped(at + turn, "AssignSubVariableOp", tape=at + turn + 1) for turn in (0, 10, 20)]))
    assert phases(by_python.steps) == {"train": 12, "loop": 12}
    assert by_python.gaps.between_epochs.size
    assert "epoch-ends" not in rules(by_python)


def executed(name, at_us, kernel_us, start_us=20):
    """An op that Python executes: half of the starting before its kernel, half after it."""
    took = kernel_us + start_us
    return [
        event("TFE_Py_FastPathExecute_C", at_us * US, took * US),
        event(f"EagerLocalExecute: {name}", at_us * US, took * US),
        event("EagerKernelExecute", (at_us + start_us // 2) * US, kernel_us * US),
        event("KernelAndDeviceFunc::Run", (at_us + start_us // 2) * US, kernel_us * US),
    ]


def eager_steps(kernel_us, pause_us, devices=()):
    """Ten steps of 10 ms: 40 ops, each 20 us of starting, its kernel, and Python up to the next; the rest of a step is other Python."""
    parts = []
    for number in range(10):
        parts.append([event("train", number * 10 * MS, 10 * MS, step_num=number, _r=1)])
        parts += [executed("MatMul", number * 10_000 + n * (20 + kernel_us + pause_us), kernel_us) for n in range(40)]
    return Study(read(host(line("python", *(one for part in parts for one in part))), *devices))


def test_what_eager_ops_cost_is_their_starting_and_the_python_from_one_to_the_next():
    found = rules(eager_steps(kernel_us=10, pause_us=100))["eager-ops"]
    # 30 us of each op, kernels of 10 among them, and 100 us between them 39 times, of 10 ms; a call of 0.02 to 0.5 ms stays.
    assert found.bound_fraction == pytest.approx((40 * 30 + 39 * 100 - 20) / 10_000, abs=1e-3)
    assert found.saves_ms[0] == pytest.approx(10 * (40 * 20 + 39 * 100 - 500) / 1000, abs=0.1)
    assert "Python ran 40 ops a step one by one. Starting ops took 47.0 % of the time" in found.evidence


@pytest.mark.parametrize(
    ("kernel_us", "pause_us", "saved_us"),
    [
        (200, 5, 40 * 20 + 39 * 5),  # beside 8 ms of kernels, which stay
        (180, 50, 40 * 20 + 39 * 50),
    ],
)
def test_kernels_and_other_python_stay_where_eager_ops_are_compiled(kernel_us, pause_us, saved_us):
    found = rules(eager_steps(kernel_us, pause_us))
    assert found["eager-ops"].bound_fraction == pytest.approx((saved_us - 20) / 10_000, abs=0.012)  # other Python, at the end, may take a part
    other = rules(eager_steps(kernel_us=5, pause_us=220))  # whatever Python does between them, it is not coming to the next op
    assert list(other) == ["python-between-steps"]


def test_what_a_tf_function_saves_holds_pauses_that_a_slow_machine_makes():
    parts = []
    for number in range(10):
        parts.append([event("train", number * 10 * MS, 10 * MS, step_num=number, _r=1)])
        pauses = [100] * 38 + [1500]  # Python calls a layer
        at = number * 10_000
        for pause in [*pauses, 0]:
            parts.append(executed("MatMul", at, 10))
            at += 30 + pause
    found = rules(Study(read(host(line("python", *(one for part in parts for one in part))))))["eager-ops"]
    assert found.bound_fraction == pytest.approx((40 * 30 + 38 * 100 + 1500 - 20) / 10_000, abs=1e-3)
    assert "took 46.0 % of the time" in found.evidence


def test_eager_ops_that_waited_for_a_core_in_a_few_steps_are_not_told_to_be_costly():
    """Starting takes 2 % of each step; in four of ten an execution stands still for 5 ms more, which is a fifth of all time."""
    parts = []
    for number in range(10):
        parts.append([event("train", number * 10 * MS, 10 * MS, step_num=number, _r=1)])
        parts += [executed("MatMul", number * 10_000 + n * 230, 10, start_us=10) for n in range(20)]
        parts.append(executed("Relu", number * 10_000 + 4_800, 10, start_us=5000 if number % 3 == 0 else 10))
    assert "eager-ops" not in rules(Study(read(host(line("python", *(one for part in parts for one in part))))))


def test_starting_that_a_devices_work_hides_costs_nothing():
    def study(busy_us):
        work = [event("volta_sgemm", number * 10 * MS, busy_us * US) for number in range(10)]
        return eager_steps(10, 100, devices=[gpu(line("Stream #1(Compute)", *work, line_id=7))])

    assert "eager-ops" not in rules(study(9_900))
    assert rules(study(2_000))["eager-ops"].bound_fraction == pytest.approx(0.8 * 0.52, abs=0.11)


def gap_loop(ops, *, gap_ms=9, op="MatMul", pause_us=20, marked="user"):
    """Twelve marked steps of 1 ms that a function makes; behind each, ops that Python runs one by one in a gap."""
    parts = []
    for number in range(12):
        begin = number * (1 + gap_ms)
        parts += [
            [event("train", begin * MS, MS, step_num=number, _r=1, profnb_marker=marked), event("EagerLocalExecute: __inference_step_7", begin * MS, MS)],
            [event("a/MatMul:MatMul", begin * MS, MS)],
            *(executed(op, begin * 1000 + 1000 + at * (30 + pause_us), 10) for at in range(ops)),
        ]
    return study_of(*parts)


def test_ops_between_the_steps_of_an_own_loop_are_eager_ops_and_coming_from_one_to_the_next_is_no_other_python():
    """Behind eleven of twelve steps of 1 ms: ops of 30 us and pauses of 20, together 3.0 of 9 ms."""
    found = rules(gap_loop(60))
    assert "Python ran 60 ops a step one by one between the steps" in found["eager-ops"].evidence
    assert found["python-between-steps"].bound_fraction == pytest.approx(11 * 6 / (11 * 9 + 12), abs=0.01)
    whole = rules(gap_loop(175))
    assert whole["eager-ops"].bound_fraction == pytest.approx(11 * (175 * 30 + 174 * 20) / 111_000, abs=0.01)
    assert "python-between-steps" not in whole
    assert "eager-ops" not in rules(gap_loop(60, marked="keras"))  # a callback of a fit has a name


def test_few_ops_between_the_steps_are_not_what_takes_the_time():
    """Fifteen ops of 30 us in a gap of 9 ms; the rest is Python, two fifths of which may remain."""
    found = rules(gap_loop(15, pause_us=500))
    assert "eager-ops" not in found
    python = 11 * (9 - 15 * 0.03) / (11 * 9 + 12)
    assert found["python-between-steps"].bound_fraction == pytest.approx(python, abs=0.01)
    assert found["python-between-steps"].saves_ms[0] == pytest.approx(111 * python * 0.6, abs=1)
