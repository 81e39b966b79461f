"""The first sentence of a report: said of the guilty with the tables' own numbers, and of the innocent not at all."""

import pytest
from conftest import every_shared_trace
from test_report import profile_of
from traces import event, gpu, host, line, read

import profnb
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.core.units import percent_text
from profnb.profile import Profile
from profnb.report.build import build_report
from profnb.causes.python_work import share_around_ops
from profnb.subjects.study import Study
from profnb.trace.files import read_trace

US, MS = 10**6, 10**9


def lead(profile):
    return profile._report.lead


def steps(*inside, count=10, took=90):
    """Steps every 100 us, each with these events: name, begin and duration in us."""
    for at in range(count):
        yield event("train", at * 100 * US, took * US, step_num=at, _r=1)
        for name, begin, duration in inside:
            yield event(name, (at * 100 + begin) * US, duration * US)


def kernels(begin, duration, count=10):
    return [event("kernel", (at * 100 + begin) * US, duration * US) for at in range(count)]


def test_an_idle_device_comes_first_with_what_the_host_did():
    """The device works 20 of every 100 us; for 60 before that the host waits for its next element."""
    profile = profile_of(host(line("python", *steps(("IteratorGetNext", 0, 60)))), gpu(line("Stream #1", *kernels(60, 20))))
    idle = profile.idle.set_index("cause").window_fraction
    assert lead(profile).startswith(f"The GPU is idle {percent_text(idle.sum())} of the time, mostly because the next batch is not there yet (")
    assert f"({percent_text(idle['waiting for input'])})" in lead(profile)


def test_a_busy_device_is_not_called_idle():
    profile = profile_of(host(line("python", *steps(took=100))), gpu(line("Stream #1", *kernels(2, 96))))
    assert lead(profile).startswith("Most of a step is device compute, ")
    assert "idle" not in lead(profile)


def test_two_causes_are_both_said_where_neither_is_most_of_it():
    inside = ("IteratorGetNext", 0, 25), ("a/MatMul:MatMul", 25, 25)
    profile = profile_of(host(line("python", *steps(*inside))), gpu(line("Stream #1", *kernels(70, 25))))
    assert "most often because the next batch is not there yet (" in lead(profile)
    assert ". Second cause: the host is still launching kernels (" in lead(profile)


def test_why_is_not_invented_where_the_host_was_not_recorded():
    step_line = line("Steps", *(event(str(at), at * 100 * US, 90 * US, step_num=at) for at in range(10)))
    profile = profile_of(gpu(step_line, line("Stream #1", *kernels(0, 40))))
    if profile._report.lead and "idle" in lead(profile):
        assert lead(profile).endswith("; why was not recorded.")


def test_of_the_cpu_the_kind_of_op_that_takes_most_is_named_with_its_share_of_the_ops():
    profile = profile_of(host(line("python", *steps(("a/MatMul:MatMul", 0, 60), ("b/Relu:Relu", 60, 20)))))
    assert lead(profile) == "Most of a step is host compute, 80.8 % (ops computing on the CPU); MatMul takes 75.0 % of the ops' time."


def test_the_only_kind_of_op_is_no_news():
    assert "takes" not in lead(profile_of(host(line("python", *steps(("a/MatMul:MatMul", 0, 60))))))


def test_nothing_is_said_first_where_nothing_is_known():
    assert lead(Profile(recording=None)) == ""
    assert lead(profile_of(host(line("python")))) == ""


def test_a_device_that_was_not_recorded_stands_above_the_answer_and_its_repair_in_the_notes():
    report = profile_of(host(line("python", *steps(("cuLaunchKernel", 5, 60)))), gpu())._report
    assert report.unmeasured.endswith("despite work: device times are absent, not zero.")
    assert any("libcupti is missing" in note for note in report.notes)
    html = report.html
    assert html.index("despite work") < html.index("libcupti is missing") < html.index(report.lead[:20])


def test_a_device_that_did_not_work_is_no_alarm():
    report = profile_of(host(line("python", *steps(("a/MatMul:MatMul", 5, 60)))), gpu())._report
    assert report.unmeasured == ""


def test_dropped_events_are_said_first():
    report = profile_of(host(line("python", *steps(("a/MatMul:MatMul", 5, 60)))), errors=["dropped 12 events"])._report
    assert report.unmeasured == "Events were dropped because a buffer was full, so counts and times are too low."


@pytest.mark.parametrize("path", every_shared_trace())
def test_the_numbers_of_the_sentence_are_those_of_the_tables(path):
    profile = Profile(read_trace(path))
    said, idle = lead(profile), profile.study.device.idle
    if not said:
        return
    if " idle " in said:
        whole = idle.total_ps.sum() / idle.window_ps
        assert whole >= 0.1
        assert percent_text(whole) in said
        largest = int(idle.total_ps.argmax())
        assert IDLE_CAUSES[largest] == "unknown" or f"({percent_text(idle.total_ps[largest] / idle.window_ps)})" in said
    else:
        assert idle is None or idle.total_ps.sum() < 0.1 * idle.window_ps
        assert percent_text(profile.study.summary.shares[0].fraction) in said


def test_the_sentence_of_the_recorded_cpu_trace(cpu_trace_path):
    assert lead(profnb.load(cpu_trace_path)) == (
        "Most of a step is host compute, 81.4 % (TensorFlow at work on the CPU, mostly outside of recorded ops); "
        "FusedConv2D takes 28.8 % of the ops' time."
    )


@pytest.mark.parametrize(("op_ms", "around", "meaning"), [
    (1, 0.7, "TensorFlow at work on the CPU, mostly outside of recorded ops"), (4, 0.4, "ops computing on the CPU"), (7, 0.1, "ops computing on the CPU")])  # fmt: skip
def test_ops_are_said_to_compute_where_they_are_half_of_what_tensorflow_does(op_ms, around, meaning):
    """TensorFlow is at work for 8 of each step's 10 ms. What the pipeline does beside it belongs to no step."""
    steps = [one for at in range(8) for one in (event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1, _pt=15, _p=at), event("TFE_Py_ExecuteCancelable", at * 10 * MS, 8 * MS))]
    work = [one for at in range(8) for one in (event("ExecutorState::Process", (at * 10 + 1) * MS, 7 * MS, _ct=15, _c=at), event("dense/MatMul:MatMul", (at * 10 + 1) * MS, op_ms * MS))]
    beside = [event("decode/Cast:Cast", at * 10 * MS, 9 * MS) for at in range(8)]
    study = Study(read(host(line("python", *steps), line("executor", *work, line_id=2), line("tf_data", *beside, line_id=3))))
    assert share_around_ops(study) == pytest.approx(around)
    assert build_report(study, title="t", notes=(), overhead_ps=None).answer == f"Most of it is host compute, 80.0 % ({meaning})."
