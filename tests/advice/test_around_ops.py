"""Time in which TensorFlow works and no op that it records runs: the calls' own, and the executor's between the ops of one call."""

import pytest
from advised import advised
from traces import event, gpu, host, line, plane, read

from profnb.report.build import build_report
from profnb.causes.python_work import share_around_calls, share_around_ops
from profnb.subjects.study import Study

MS = 10**9


def study_of(*calls, beside=(), devices=()):
    """Eight steps of 10 ms with these calls on Python's thread: begin, end and the ops of its executor, in ms."""
    python, executor, others = [], [], []
    for at in range(8):
        python.append(event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1, _pt=15, _p=at, profnb_marker="keras"))
        for begin, end, *ops in calls:
            python.append(event("EagerKernelExecute", (at * 10 + begin) * MS, (end - begin) * MS))
            executor.append(event("ExecutorState::Process", (at * 10 + begin) * MS, (end - begin) * MS, _ct=15, _c=at))
            executor += [event("dense/MatMul:MatMul", round((at * 10 + first) * MS), round((last - first) * MS)) for first, last in ops]
        others += [event("EagerKernelExecute", (at * 10 + begin) * MS, (end - begin) * MS) for begin, end in beside]
    return Study(read(host(line("python", *python), line("executor", *executor, line_id=2), line("other", *others, line_id=3)), *devices))


@pytest.mark.parametrize(("calls", "of_ops", "of_calls"), [
    (((0, 8, (1, 2)),), 0.7, 0.7),
    (((0, 8, (1, 2), (6, 7)),), 0.6, 0.2),  # from 2 to 6 its ops are chosen and handed on: in a loop of many calls as in one
    (((0, 8, (0, 4), (4, 8)),), 0.0, 0.0),
    (((0, 8),), 0.8, 0.8),
    (((0, 2), (2, 8, (3, 4), (6, 7))), 0.6, 0.4),  # the first call has no ops
    (((0, 4, (1, 2)), (4, 8, (5, 6))), 0.6, 0.6),  # from 2 to 5 one call ends and another begins
    (((0, 4, (1, 2), (3, 4)), (4, 8, (5, 6), (7, 8))), 0.4, 0.2),
])  # fmt: skip
def test_what_is_a_calls_own_comes_before_its_first_op_or_after_its_last(calls, of_ops, of_calls):
    study = study_of(*calls)
    assert share_around_ops(study) == pytest.approx(of_ops)
    assert share_around_calls(study) == pytest.approx(of_calls)


def test_a_call_on_another_thread_joins_no_ops():
    """The pipeline's long call is none of the step's: what lies between two of the step's calls stays theirs."""
    study = study_of((0, 4, (1, 2)), (4, 8, (5, 6)), beside=[(0, 3)])
    assert share_around_calls(study) == pytest.approx(0.6)


@pytest.mark.parametrize(("ops", "is_of_calls"), [([(3, 3.5)], True), ([(0.1 + at / 10, 0.15 + at / 10) for at in range(78)], False)])
def test_fewer_calls_are_said_to_leave_a_quarter_at_least_of_what_lies_between_the_ops_of_one(ops, is_of_calls):
    """A turn of 10 ms: 2 of Python, and a call of 8 of which nearly all, or less than half, is around its ops."""
    study = study_of((0, 8, *ops))
    advice = advised(study)["python-between-steps"]
    assert share_around_ops(study) > 0.35
    assert "Python ran for 20.0 % of the time" in advice.evidence
    assert ("TensorFlow spent 75.0 % on starting and ending calls" in advice.evidence) == is_of_calls
    whole = 0.95 if is_of_calls else 0.225  # of which one of 16 calls stays at least, and a quarter of them at most
    short = 0 if is_of_calls else 0.8 - 0.025  # ops of 50 us, and what lies between ops: a quarter of them stays at least
    assert advice.bound_fraction == pytest.approx(whole * 15 / 16 + short * 3 / 4)
    assert advice.saves_ms[0] == pytest.approx(80 * whole * 3 / 4)


def test_the_kernel_of_an_op_that_python_ran_is_an_op():
    """Of ten executions of 900 us the kernels take 800: mostly ops, where TensorFlow records no event with the op's name."""
    python = []
    for at in range(8):
        python.append(event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1))
        for number in range(10):
            begin = at * 10 * MS + number * MS
            python += [
                event("TFE_Py_FastPathExecute_C", begin, 9 * MS // 10),
                event("EagerLocalExecute: MatMul", begin, 9 * MS // 10),
                event("EagerKernelExecute", begin + MS // 20, 8 * MS // 10),
                event("KernelAndDeviceFunc::Run", begin + MS // 20, 8 * MS // 10),
            ]
    study = Study(read(host(line("python", *python))))
    assert share_around_ops(study) == pytest.approx(0.1)
    assert share_around_calls(study) == pytest.approx(0.1)
    as_function = [(name.replace("MatMul", "__inference_step_7"), *rest) for name, *rest in python]
    assert share_around_ops(Study(read(host(line("python", *as_function))))) == pytest.approx(0.9)


def jax_loop(runs_us):
    """Twenty calls of 500 us in steps of 1 ms, whose program runs on another thread for so long."""
    python, programs = [], []
    for at in range(20):
        python += [event("PjitFunction(update)", at * MS, MS // 2)] * 2
        programs.append(event("fusion", at * MS + MS // 4, runs_us * MS // 1000, hlo_op="fusion", hlo_module="jit_update", program_id=3))
    return Study(read(plane("/host:metadata"), host(line("python", *python), line("tf_XLAPjRtCpuClient/1", *programs, line_id=2))))


@pytest.mark.parametrize(("runs_us", "is_outside"), [(100, True), (400, False)])
def test_jax_that_starts_programs_is_not_ops_that_compute(runs_us, is_outside):
    study = jax_loop(runs_us)
    around = share_around_ops(study)
    assert (around > next(share.fraction for share in study.summary.shares if share.category == "host compute") / 2) is is_outside
    answer = build_report(study, title="t", notes=(), overhead_ps=None).answer
    assert ("JAX at work on the CPU, mostly outside of recorded ops" in answer) is is_outside
    assert share_around_calls(study) == 0.0


def test_where_a_device_works_or_the_framework_records_all_its_ops_nobody_is_around_them():
    assert share_around_ops(study_of((0, 8))) == pytest.approx(0.8)
    kernels = line("Stream #1(Compute)", *(event("sgemm", at * 10 * MS, MS) for at in range(8)), line_id=7)
    assert share_around_ops(study_of((0, 8), devices=[gpu(kernels)])) == 0.0
    torch = [event("ProfilerStep#1", at * 10 * MS, 10 * MS, step_num=at, _r=1) for at in range(8)]
    aten = [event("aten::mm", at * 10 * MS, 8 * MS) for at in range(8)]
    study = Study(read(host(line("python", *(one for pair in zip(torch, aten, strict=True) for one in pair)))))
    assert study.program.framework != "TensorFlow" and share_around_ops(study) == 0.0
