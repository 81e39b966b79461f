"""Advice: each rule speaks where it should and is silent where it should not; real programs are in test_advice_gains."""

from dataclasses import replace
from pathlib import Path

import pytest
from advised import advised
import recorded
from advised import advised, alone
from programs import F32, metadata_plane, op, parameter, program, shape
from test_input_pipeline import starved
from test_memory import training
from advised import advised
from traces import event, gpu, host, line, read

import profnb
from profnb.advice.cell_model import Model
from profnb.causes.cell_tree import grow_tree
from profnb.advice.advise import RULES
from profnb.report.build import build_report
from profnb.report.text import headline_text
from profnb.steps.finding.loops import EAGER_TAPES
from profnb.steps.program_kind import ProgramKind
from profnb.subjects.device.precision import ops_without_tensor_cores
from profnb.subjects.advising import covered_share, op_events
from profnb.subjects.study import Study
from profnb.capture.source.source_records import GraphShapes, SourceRecords
from profnb.advice.replay import replay
from profnb.advice.rules.python_rules import small_batches
from profnb.causes.compiled_again import find_retracing
from profnb.causes.pieces import find_uncompilable
from profnb.capture.recording import Recording
from profnb.capture.marking.trace_events import TracedFunction

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
US, MS = 10**6, 10**9
T4 = {"clock_rate": 1_590_000, "core_count": 40, "memory_bandwidth": 320_064_000_000, "compute_cap_major": 7, "compute_cap_minor": 5,
      "memory_size": 16 * 10**9}  # fmt: skip


def steps_of(count=10, period=10 * MS, busy=0.95, **stats):
    return [event("train", at * period, int(period * busy), step_num=at, _r=1, **stats) for at in range(count)]


def on_gpu(work, host_events=(), steps=None, others=()):
    """Ten steps of 10 ms; ``work`` makes the device events of one from its begin."""
    made = [one for at in range(10) for one in work(at * 10 * MS)]
    called = [one for at in range(10) for one in (host_events(at * 10 * MS) if host_events else [])]
    devices = [gpu(line("Stream #1", *made), stats=T4), *others]
    return Study(read(host(line("python", *(steps or steps_of())), line("launcher", *called, line_id=2)), *devices))


def busy(at, name="volta_h884gemm", op="dense/MatMul:MatMul", share=0.9):
    return [event(name, at + MS // 10, int(share * 9.5 * MS), tf_op=op)]


def test_a_busy_device_with_tensor_cores_needs_no_advice():
    assert advised(on_gpu(busy)) == {}


def test_launch_bound():
    def kernels(at):
        return [event("tiny", at + n * 100 * US + 20 * US, 3 * US, correlation_id=at // MS * 1000 + n, tf_op="a/Relu:Relu") for n in range(80)]

    def launches(at):
        return [event("cuLaunchKernel", at + n * 100 * US, 90 * US, correlation_id=at // MS * 1000 + n) for n in range(80)]

    found = advised(on_gpu(kernels, launches))["launch-bound"]
    # The host launches 90 of each 100 us, 80 times in 10 ms, and a kernel of 3 us runs meanwhile; two fifths of it or a call remain.
    low, high = found.saves_ms[0] / found.wall_ms, found.bound_fraction
    assert (low, high) == (pytest.approx(0.7 * 0.6, abs=0.02), pytest.approx(0.7, abs=0.02))
    assert "jit_compile=True" in found.code


def test_mixed_precision_on_a_device_that_has_it_and_not_where_it_is_used():
    found = advised(on_gpu(lambda at: busy(at, "volta_sgemm_128x64_nn")))
    share = 0.9 * 9.5 / 9.95  # of the time; half to an eighth of it remains
    assert found["mixed-precision"].bound_fraction == pytest.approx(share * 7 / 8, abs=0.01)
    assert found["mixed-precision"].saves_ms[0] == pytest.approx(share / 2 * found["mixed-precision"].wall_ms, rel=0.01)
    assert "8 times as fast" in found["mixed-precision"].evidence
    assert "mixed-precision" not in advised(on_gpu(lambda at: busy(at, "relu_kernel_float", "a/Relu:Relu")))
    limiting, idling = (advised(on_gpu(lambda at, share=share: busy(at, "volta_sgemm_128x64_nn", share=share))) for share in (0.8, 0.78))
    assert "mixed-precision" in limiting
    assert "mixed-precision" not in idling


def layers(middle, stats=T4, helper=False):
    """Three layers with 16-bit weights; the kernels of the middle one, of given weights, run on the ordinary cores."""
    casts = {"m/mid/MatMul/Cast": middle, "m/last/MatMul/Cast": "[64,10]", "m/conv/Conv2D/Cast": "[3,3,3,32]"}
    shapes = casts | {"m/conv/Conv2D": "[32,30,30,32]", "m/mid/MatMul": "[32,64]", "m/last/MatMul": "[32,10]"}

    def work(at):
        made = [event("cutlass_bf16_simt_gemm", at + MS, MS, tf_op="m/conv/Conv2D:Conv2D"), event("cutlass_bf16_simt_gemm", at + 8 * MS, MS, tf_op="m/last/MatMul:MatMul")]
        if helper:
            return [*made, event("volta_h884gemm", at + 2 * MS, 3 * MS, tf_op="m/mid/MatMul:MatMul"), event("splitKreduce", at + 6 * MS, MS, tf_op="m/mid/MatMul:MatMul")]
        return [*made, event("cutlass_bf16_simt_gemm", at + 2 * MS, 4 * MS, tf_op="m/mid/MatMul:MatMul")]

    memory = [event("MemoryAllocation", (n + 1) * 100 * US, 1, tf_op=op, shape=text) for n, (op, text) in enumerate(shapes.items())]
    devices = gpu(line("Stream #1", *(one for at in range(10) for one in work(at * 10 * MS))), stats=stats)
    return Study(read(host(line("python", *steps_of()), line("memory", *memory, line_id=2)), devices))


def test_missed_tensor_cores_name_the_dimension():
    found = advised(layers("[100,64]"))["missed-tensor-cores"]
    assert found.bound_fraction == pytest.approx(4 / 9.95 * 7 / 8, abs=0.01)
    assert "m/mid has 100 inputs." in found.evidence
    assert "m/mid has 100 inputs and 68 outputs." in advised(layers("[100,68]"))["missed-tensor-cores"].evidence


def test_missed_tensor_cores_are_not_said_of_even_dimensions_of_the_datas_own_of_helpers_or_of_amd():
    amd = {**T4, "device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4}
    for study in (layers("[64,64]"), layers("[100,64]", helper=True), layers("[100,64]", amd)):
        assert "missed-tensor-cores" not in advised(study)
    listed = ops_without_tensor_cores(layers("[100,64]", helper=True).device.kernels)
    assert sorted(listed) == ["m/conv/Conv2D", "m/last/MatMul"]


def test_ops_without_tensor_cores_are_listed_on_nvidia_only():
    def titles(study):
        return [section.title for section in build_report(study, title="t", notes=(), overhead_ps=None).sections]

    assert "Ops without tensor cores" in titles(layers("[64,64]"))
    assert "Ops without tensor cores" not in titles(layers("[64,64]", {**T4, "device_vendor": "AMD"}))


def sentences(study):
    return " ".join(part.sentence for part in build_report(study, title="", notes=(), overhead_ps=None).sections)


def test_tensor_cores_are_spoken_of_where_there_are_some_and_names_tell_of_them():
    assert "in tensor cores" in sentences(layers("[64,64]"))
    assert "tensor cores" not in sentences(layers("[64,64]", {**T4, "compute_cap_major": 6}))
    session = sentences(session_run([("dense/MatMul:MatMul", 1, 80)], [("dense/MatMul:MatMul", 90, 9)]))
    assert "1 kernel, 9.00 ms in all. " in session
    assert "tensor cores" not in session
    of_pytorch = sentences(on_gpu(lambda at: busy(at, "volta_sgemm_128x32_nt", "")))
    assert ": 0.0 % in tensor cores" in of_pytorch  # which kernels are products is not known without their ops


def test_launching_sets_the_pace_only_where_the_device_waits_longer_for_it_than_it_works():
    assert "launching, not computing, sets the pace" in sentences(launching(8))
    loading = [one for at in range(10) for one in (event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1), event("IteratorGetNext", at * 10 * MS, 9 * MS))]
    kernels = [event("k", at * 10 * MS + 9 * MS + n * 10 * US, 5 * US, correlation_id=at * 100 + n + 1) for at in range(10) for n in range(90)]
    calls = [event("cuLaunchKernel", at * 10 * MS + 9 * MS + n * 10 * US - 7 * US, 6 * US, correlation_id=at * 100 + n + 1) for at in range(10) for n in range(90)]
    waiting = sentences(Study(read(host(line("python", *loading), line("l", *calls, line_id=2)), gpu(line("Stream #1", *kernels), stats=T4))))
    assert "took longer than their kernels." in waiting
    assert "sets the pace" not in waiting


def test_copying_input_from_pageable_memory_and_pinned():
    """3 of 9.95 ms are copies with nothing else on the device; details of the copies are told where they were recorded."""
    def work(**details):
        return lambda at: [event("MemcpyH2D", at + MS // 10, 3 * MS, **details), *busy(at + 4 * MS, share=0.5)]

    found = advised(on_gpu(work(memcpy_details="kind_src:pageable kind_dst:device size:4000000 dest:0 async:1")))["copying-input"]
    assert found.bound_fraction == pytest.approx(0.3, abs=0.02)
    assert "30.2 % of the time the device computed nothing while data moved to the device, 40.0 MB of it from pageable memory." in found.evidence
    assert found.saves_ms[0] == pytest.approx(found.saves_ms[1] * 0.6)  # computing takes longer, and hides them
    found = advised(on_gpu(work(memcpy_details="kind_src:pinned kind_dst:device size:4000000 dest:0 async:1")))["copying-input"]
    assert "pageable" not in found.evidence
    assert advised(on_gpu(work()))["copying-input"].bound_fraction == pytest.approx(0.3, abs=0.02)


def test_copies_that_take_longer_than_computing_are_hidden_by_so_much_only():
    """5.6 of 9.95 ms are copies, 1.9 the kernel: without narrower numbers 3.7 remain, with a fourth of the bytes none."""
    found = advised(on_gpu(lambda at: [event("MemcpyH2D", at + MS // 10, 5600 * US), *busy(at + 6 * MS, share=0.2)]))["copying-input"]
    assert found.saves_ms[0] / found.wall_ms == pytest.approx(1.9 / 9.95, abs=0.02)
    assert found.bound_fraction == pytest.approx(5.6 / 9.95, abs=0.02)


def test_copying_input_that_compute_hides_or_that_is_small_is_not_said():
    def work(size):
        return lambda at: [*busy(at, share=0.8), event("MemcpyH2D", at + 2 * MS, size)]

    def other_stream(at):
        return [event("MemcpyH2D", at + 2 * MS, 4 * MS)]

    copies = [one for at in range(10) for one in other_stream(at * 10 * MS)]
    kernels = [one for at in range(10) for one in busy(at * 10 * MS)]
    study = Study(read(host(line("python", *steps_of())), gpu(line("Stream #1", *kernels), line("Stream #2", *copies, line_id=2), stats=T4)))
    assert "copying-input" not in advised(study)
    assert "copying-input" not in advised(on_gpu(lambda at: [*busy(at), event("MemcpyH2D", at + 9 * MS, 400 * US)]))


def test_a_call_of_the_host_that_copies_while_the_device_has_nothing_is_copying_input():
    """The call blocks for 4 ms, the device's own copy takes 1 of them."""
    def work(at):
        return [event("MemcpyH2D", at + 3 * MS, MS, correlation_id=at + 1), *busy(at + 5 * MS, share=0.4)]

    found = advised(on_gpu(work, lambda at: [event("MemcpyH2D", at + MS, 4 * MS, correlation_id=at + 1, group_id=0)]))
    assert "launch-bound" not in found


def test_a_wait_for_input_is_said_without_iterators_of_tf_data_from_a_twentieth_on_by_the_middle():
    def waits(size, *inside):
        return on_gpu(lambda at: busy(at + 3 * MS, share=0.5), steps=[one for at in range(10) for one in (
            event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1), event("IteratorGetNext:IteratorGetNext", at * 10 * MS, size),
            *(event(name, at * 10 * MS, size, id=1) for name in inside))])  # fmt: skip

    found = advised(waits(2 * MS))["waiting-for-input"]
    assert found.saves_ms == (0, pytest.approx(20))  # why is not known
    assert "does not show how batches are made" in found.evidence
    assert "waiting-for-input" in advised(waits(1100 * US))
    assert "waiting-for-input" not in advised(waits(900 * US))
    assert "waiting-for-input" not in advised(waits(2 * MS, "Iterator::Root"))  # other rules say what tf.data tells


def feeding(wait_us, environment=None):
    """Ten steps of 10 ms that wait for their input first; then the device works."""
    steps = [one for at in range(10) for one in (event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1), event("IteratorGetNext:IteratorGetNext", at * 10 * MS, wait_us * US))]
    work = [one for at in range(10) for one in busy(at * 10 * MS + MS, share=0.5)]
    return advised(Study(read(host(line("python", *steps)), gpu(line("Stream #1", *work), stats=T4)), recording=Recording(environment=environment or {})))


def test_in_a_loop_of_keras_waiting_is_said_from_a_millisecond_a_batch_on_and_in_its_words():
    found = feeding(1300, environment={"Keras backend": "jax"})["waiting-for-input"]
    assert "Keras makes each batch" in found.evidence
    assert "keras.utils.PyDataset" in found.code
    assert "waiting-for-input" not in feeding(900, environment={"Keras backend": "jax"})
    own = feeding(1300)["waiting-for-input"]
    assert "Keras" not in own.evidence + own.code


@pytest.mark.parametrize(("kind", "is_told"), [("_SingleProcessDataLoaderIter", True), ("_MultiProcessingDataLoaderIter", False)])
def test_a_loader_of_pytorch_without_workers_is_named(kind, is_told):
    study = on_gpu(lambda at: busy(at + 5 * MS, op="aten::mm", share=0.4), steps=[one for at in range(10) for one in (
        event("ProfilerStep", at * 10 * MS, 10 * MS, step_num=at, _r=1), event(f"enumerate(DataLoader)#{kind}.__next__", at * 10 * MS, 4 * MS))])  # fmt: skip
    found = advised(study)["waiting-for-input"]
    assert found.saves_ms[1] == pytest.approx(40)  # of 100 ms
    assert ("has no workers" in found.evidence) == is_told
    assert ("num_workers=4" if is_told else "persistent_workers=True") in found.code


@pytest.mark.parametrize("slow", ["_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"])
def test_of_two_loaders_the_one_that_the_steps_wait_for_is_meant(slow):
    """One without workers and one with, as for training and validation: one takes 4 ms of each step, the other 10 us."""
    took = {kind: 4 * MS if kind == slow else MS // 100 for kind in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")}
    study = on_gpu(lambda at: busy(at + 5 * MS, op="aten::mm", share=0.4), steps=[one for at in range(10) for one in (
        event("ProfilerStep", at * 10 * MS, 10 * MS, step_num=at, _r=1),
        *(event(f"enumerate(DataLoader)#{kind}.__next__", at * 10 * MS + (kind != slow) * 5 * MS, ps) for kind, ps in took.items()))])  # fmt: skip
    found = advised(study)["waiting-for-input"]
    has_workers = slow.startswith("_Multi")
    assert ("has no workers" in found.evidence, "workers did not have the batch ready" in found.evidence) == (not has_workers, has_workers)
    assert ("num_workers=4" in found.code, "Use more workers" in found.code) == (not has_workers, has_workers)


LAUNCHES = "cuLaunchKernel"


def launching(threads, name="tf_Compute", call=90 * US, op="a/Relu:Relu", planes=T4, per_step=80, kernel=3 * US):
    """Kernels of 3 us, each launched by a call of 90 us, by so many threads in turns."""
    kernels, lines = [], [[] for _ in range(threads)]
    for step in range(10):
        for n in range(per_step):
            at, number = step * 10 * MS + n * 100 * US, step * 1000 + n
            kernels.append(event("tiny", at + 20 * US, kernel, correlation_id=number, tf_op=op))
            lines[n % threads].append(event(LAUNCHES, at, call, correlation_id=number))
    threads_of = [line(f"{name}/{at}", *events, line_id=10 + at) for at, events in enumerate(lines)]
    return Study(read(host(line("python", *steps_of()), *threads_of), gpu(line("Stream #1", *kernels), stats=planes)))


def test_threads_of_their_own_are_proposed_where_the_pool_launches():
    """The host launches for 70 % of the time. Fusing saves more of it, so threads are what to do where XLA cannot."""
    study = launching(8)
    assert alone(study)["gpu-thread-mode"] == pytest.approx((0.7 * 0.2, 0.7 * 0.5), abs=0.02)
    found = advised(study)
    assert list(found) == ["launch-bound"]
    assert "jit_compile=True" in found["launch-bound"].code and "TF_GPU_THREAD_MODE" in found["launch-bound"].code
    assert "gpu-thread-mode" in alone(launching(4))
    slow = advised(launching(8, call=40 * US, kernel=50 * US))["gpu-thread-mode"]  # kernels outlast their launches
    assert "TF_GPU_THREAD_MODE" in slow.code and "jit_compile" not in slow.code


@pytest.mark.parametrize(
    "study",
    [
        lambda: launching(2, "tf_gpu_private_0"),  # it is set already
        lambda: launching(8, "tf_gpu_private_0"),
        lambda: launching(1),
        lambda: launching(3),
        lambda: launching(8, per_step=8, call=US),  # launching is small
        lambda: launching(8, "thread", op="jit(f)/dot_general:"),
        lambda: launching(8, "thread", op="aten::relu"),
        lambda: launching(8, planes={"device_vendor": "AMD"}),
    ],
)
def test_threads_of_their_own_are_not_advised_where_they_are_set_or_would_not_help(study):
    assert "gpu-thread-mode" not in advised(study())


def test_an_idle_device_gets_its_cause_and_a_remedy_once():
    def long_launches(name, **stats):
        made = [event(name, at * 10 * MS + MS, 6 * MS, **stats) for at in range(10)]
        return advised(on_gpu(lambda at: busy(at + 7 * MS, share=0.2), lambda at: [], steps=[
            one for at in range(10) for one in (event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1), made[at])]))  # fmt: skip

    found = long_launches("ExecutorState::Process")["idle-device"]
    assert found.title == "Launch fewer, larger kernels"
    assert found.bound_fraction == pytest.approx(0.6 / 2, rel=0.02)  # half of it, of a remedy that nothing measured
    assert "jit_compile" in found.code
    nothing = advised(on_gpu(lambda at: busy(at, share=0.2)))["idle-device"]
    assert nothing.title == "Give the device more to do"
    assert "idle-device" not in advised(launching(8))  # launch-bound says it
    assert "idle-device" not in advised(on_gpu(lambda at: busy(at, share=0.6)))


def test_an_idle_device_whose_host_was_not_recorded_is_idle_for_an_unknown_cause():
    steps = line("Steps", *(event(str(at), at * 10 * MS, 10 * MS) for at in range(10)), line_id=9)
    kernels = line("Stream #1", *(event("k", at * 10 * MS, MS) for at in range(10)))
    found = advised(Study(read(gpu(kernels, steps, stats=T4))))["idle-device"]
    assert (found.saves_ms[0], found.bound_fraction) == (0, pytest.approx(0.9, abs=0.01))
    assert "nothing recorded says why" in found.evidence


def test_a_window_without_steps_gets_no_advice_per_step():
    """Four kernels in a second."""
    calls = line("python", *(event(LAUNCHES, at * 300 * MS, 200 * MS, correlation_id=at + 1) for at in range(4)))
    kernels = line("Stream #1", *(event("k", at * 300 * MS + MS, US, correlation_id=at + 1) for at in range(4)))
    found = advised(Study(read(host(calls), gpu(kernels, stats=T4))))
    assert list(found) == ["idle-device"]
    assert found["idle-device"].saves_ms[0] == 0
    assert "no steps were found" in found["idle-device"].evidence


def test_synchronising_reads():
    found = advised(on_gpu(lambda at: busy(at, share=0.6), lambda at: [event("cuStreamSynchronize", at + 6 * MS, 3 * MS)]))
    reads = found["synchronising-reads"]
    assert reads.bound_fraction == pytest.approx(0.3, abs=0.04)
    assert reads.saves_ms[0] == pytest.approx(reads.saves_ms[1] * 0.6 / 0.99, rel=0.02)


def test_python_between_steps():
    steps = [event("train", at * 10 * MS, 6 * MS, step_num=at, _r=1) for at in range(10)]
    found = advised(on_gpu(lambda at: busy(at, share=0.6), steps=steps))
    assert found["python-between-steps"].bound_fraction == pytest.approx(0.36, abs=0.05)
    few = [event("train", at * 10 * MS, 6 * MS, step_num=at, _r=1) for at in range(3)]
    assert "python-between-steps" not in advised(Study(read(host(line("python", *few)))))


def test_collectives_that_nothing_hides_and_uneven_devices():
    work = lambda at: [*busy(at, share=0.6), event("ncclDevKernel_AllReduce", at + 6 * MS, 3 * MS)]  # noqa: E731
    assert advised(on_gpu(work))["exposed-collectives"].bound_fraction == pytest.approx(0.3, abs=0.02)
    other = gpu(line("Stream #1", *(event("k", at * 10 * MS, 2 * MS) for at in range(10))), number=1, stats=T4)
    assert "imbalance" in advised(on_gpu(busy, others=[other]))
    same = gpu(line("Stream #1", *(one for at in range(10) for one in busy(at * 10 * MS))), number=1, stats=T4)
    assert "imbalance" not in advised(on_gpu(busy, others=[same]))
    copies = gpu(line("Stream #1", *(event("MemcpyD2D", at * 10 * MS, 2 * MS) for at in range(10))), number=1, stats=T4)
    assert "imbalance" not in advised(on_gpu(busy, others=[copies]))  # one device works, the other holds data
    assert "imbalance" not in advised(on_gpu(lambda at: busy(at, share=0.5), others=[other]))  # both wait for the host


def compiling(times, *programs):
    """Ten steps of 10 ms; the first ones compile for 20 ms more."""
    begins = [at * 10 * MS + min(at, times) * 20 * MS for at in range(10)]
    steps = [event("train", begin, (29 if at < times else 9) * MS, step_num=at, _r=1) for at, begin in enumerate(begins)]
    events = [event("GpuCompiler::Compile", begin, 20 * MS, name="step") for begin in begins[:times]]
    return Study(read(host(line("python", *steps), line("compiler", *events, line_id=2)), *programs))


def test_recompiling_and_a_single_compilation():
    advice = advised(compiling(5))["recompiling"]
    # At least what four compilings took; at most all but usual steps, of 9.8 ms with their gaps.
    assert advice.saves_ms == (pytest.approx(4 * 20), pytest.approx(5 * 29 - 5 * 9.8))
    assert "recompiling" not in advised(compiling(2))


def test_what_one_step_compiles_for_several_shapes_is_its_due():
    steps = [event("train", at * 200 * MS, (190 if at == 0 else 9) * MS, step_num=at, _r=1) for at in range(10)]
    events = [event("GpuCompiler::Compile", at * 30 * MS, 20 * MS, name="clip") for at in range(6)]
    study = Study(read(host(line("python", *steps), line("compiler", *events, line_id=2))))
    assert study.xla.modules.compilations.tolist() == [6]
    assert "recompiling" not in advised(study)


def session_run(ops, kernels):
    """One run of a TF1 session: a graph's ops, and what its device ran."""
    events = [event("_SOURCE:NoOp", 0, US), *(event(name, at * MS, size * MS) for name, at, size in ops)]
    made = [event(name, at * MS, size * MS) for name, at, size in kernels]
    return Study(read(host(line("ops", event("session_run", 0, 100 * MS, step_num=0, _r=1), *events)), gpu(line("stream:12", *made), stats=T4)))


def test_one_op_that_takes_long_to_launch_in_the_only_run_is_named_and_not_called_many_small_kernels():
    many = [(f"dense_{n}/MatMul:MatMul", 81 + n, 1) for n in range(10)]
    work = [("k", 95, 2)]
    first = advised(session_run([("dense/MatMul:MatMul", 1, 80), *many], work))["idle-device"]
    assert first.title == "Record a later run"
    assert "dense/MatMul took 80.0 ms" in first.evidence
    assert first.saves_ms[0] == 0
    alike = advised(session_run([(f"dense_{n}/MatMul:MatMul", 1 + 9 * n, 9) for n in range(10)], work))["idle-device"]
    assert alike.title == "Launch fewer, larger kernels"
    steps = [event("train", at * 100 * MS, 99 * MS, step_num=at, _r=1) for at in range(3)]
    each = [event(name, (at + 100 * n) * MS, size * MS) for n in range(3) for name, at, size in [("dense/MatMul:MatMul", 1, 80), *many]]
    kernels = [event("k", (100 * n + 95) * MS, 2 * MS) for n in range(3)]
    of_three = advised(Study(read(host(line("python", *steps, *each)), gpu(line("Stream #1", *kernels), stats=T4))))["idle-device"]
    assert of_three.title == "Launch fewer, larger kernels"  # in each step: no first run


def test_sessions_of_tensorflow_1_get_no_words_of_keras_or_of_functions():
    study = session_run([("dense/MatMul:MatMul", 1 + 9 * n, 9) for n in range(10)], [("k", 95, 2)])
    assert study.program.framework == "TensorFlow 1"
    advice = advised(study)["idle-device"]
    assert "global_jit_level" in advice.code
    for word in ("model.compile", "keras", "tf.function", "steps_per_execution"):
        assert word not in advice.code


def test_the_optimizer_is_not_said_where_xla_compiled_it_or_one_op_is_most_of_it():
    def on(name, *ops, **stats):
        made = [event(op, at * 10 * MS + first * MS, size * MS, **stats) for at in range(10) for op, first, size in ops]
        return Study(read(host(line(name, *steps_of(), *made))))

    small = [(f"adam/AssignAdd_{n}:AssignAddVariableOp", 1 + n, 1) for n in range(4)]
    rest = ("dense/MatMul:MatMul", 5, 4)
    assert "large-optimizer" in advised(on("python", *small, rest))
    assert "large-optimizer" not in advised(on("python", ("adam/ApplyAdam:ApplyAdam", 1, 4), rest))
    assert "large-optimizer" not in advised(on("python", ("sgd/AssignSub:AssignSubVariableOp", 1, 4), rest))
    jax = on("python", *small, rest, ("PjitFunction(f)", 9, 1))
    assert jax.program.framework == "JAX"
    assert "large-optimizer" not in advised(jax)


def test_a_large_optimizer():
    def ops(name):
        made = [event(f"{name}/AssignAdd_{n}:AssignAddVariableOp", at * 10 * MS + (1 + n) * MS, MS) for at in range(10) for n in range(4)]
        rest = [event("dense/MatMul:MatMul", at * 10 * MS + 5 * MS, 4 * MS) for at in range(10)]
        return Study(read(host(line("python", *steps_of(), *made, *rest))))

    advice = advised(ops("adam"))["large-optimizer"]
    # Of four ops one pass remains; XLA may take 1.7 times as long for the product, of which nothing would be left.
    assert advice.saves_ms == (0, pytest.approx(0.75 * 40, rel=0.01))
    assert "large-optimizer" not in advised(ops("dense_2"))


def test_a_larger_batch_is_told_of_an_idle_device_with_room():
    trace = training()
    kernels = [event("k", at * 10 * MS, 2 * MS) for at in range(8)]
    steps = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1, batch_size=32) for at in range(8)]
    from test_memory import MB, allocate, free

    memory = [one for at in range(8) for one in (
        allocate(at * 10 * MS + MS, 8 * MB, 28 * MB, 1), free(at * 10 * MS + 4 * MS, 8 * MB, 20 * MB, 1))]  # fmt: skip
    study = Study(read(host(line("python", *steps), line("t", *memory, line_id=2)), gpu(line("Stream #1", *kernels), stats=T4)))
    found = advised(study)["larger-batch"]
    assert "now 32" in found.evidence and "batch_size=64" in found.code
    # 2 of 10 ms are kernels of 2 ms, which grow with the batch; the device idles for the rest, half of which is saved.
    assert found.bound_fraction == pytest.approx(0.8 / 2, abs=0.01)
    assert found.saves_ms[0] == pytest.approx(found.saves_ms[1], rel=0.03)
    assert "larger-batch" not in advised(Study(trace))  # no device, no idle time of one


def test_input_bound_by_hand_and_ranked():
    found = list(advised(Study(starved())).values())
    assert found[0].rule == "input-bound"
    assert [sum(a.saves_ms) for a in found] == sorted((sum(a.saves_ms) for a in found), reverse=True)
    assert all(0 < a.bound_fraction <= 1 for a in found)


def test_every_rule_says_when_it_speaks_and_none_fails_on_nothing():
    bare = Study(read(host(line("python", *steps_of()))))
    for rule in RULES:
        assert rule.__doc__
        assert all(one.rule == "python-between-steps" for one in rule(Model(grow_tree(None, bare), bare)))


# More rules by hand.


def test_layout_changes():
    def work(at):
        return [*busy(at, share=0.5), event("void nchwToNhwcKernel<float>", at + 6 * MS, 3 * MS, tf_op="conv/Conv2D:Conv2D")]

    found = advised(on_gpu(work))["layout-changes"]
    assert found.bound_fraction == pytest.approx(0.3, abs=0.03)
    assert found.saves_ms[0] == pytest.approx(found.saves_ms[1] / 2)
    assert "layout-changes" not in advised(on_gpu(busy))


def on_cpu(ops, environment=None, **recorded):
    steps = steps_of()
    work = [line(f"worker {at}", *(event(name, begin * 10 * MS + MS, size) for begin in range(10)), line_id=10 + at) for at, (name, size) in enumerate(ops)]
    return Study(read(host(line("python", *steps), *work)), recording=Recording(environment=environment or {}, **recorded))


def test_fewer_threads_than_cores_and_more_ops_at_once_than_cores():
    one = [("a/MatMul:MatMul", 8 * MS)]
    found = advised(on_cpu(one, {"CPU cores": "4", "Intra-op threads": "1"}))["idle-cores"]
    assert found.saves_ms == (pytest.approx(80 / 2), pytest.approx(80 * 3 / 4))  # of two cores' worth at least
    assert "idle-cores" not in advised(on_cpu(one, {"CPU cores": "4", "Intra-op threads": "default"}))
    assert "idle-cores" not in advised(on_cpu(one, {"CPU cores": "one", "Intra-op threads": "1"}))
    assert "idle-cores" not in advised(on_cpu([("a/MatMul:MatMul", 40 * US)], {"CPU cores": "4", "Intra-op threads": "1"}))
    many = [(f"{at}/MatMul:MatMul", 8 * MS) for at in range(8)]
    found = advised(on_cpu(many, {"CPU cores": "2"}))["oversubscribed"]
    assert "On average 8.0 ops ran at once on 2 cores" in found.evidence
    assert found.bound_fraction == pytest.approx(0.8 * 0.75, abs=0.03)
    assert "oversubscribed" not in advised(on_cpu(many, {"CPU cores": "8"}))


def graph_given(*shapes):
    """The graph of the steps' function: arguments of these shapes, and one that it closes over."""
    kinds, captured = ("Placeholder",) * (len(shapes) + 1), {len(shapes): "captured"}
    names, taken = tuple(f"x{at}" for at in range(len(kinds))), ((),) * len(kinds)
    return GraphShapes(names, kinds, taken, (1,) * len(kinds), (*shapes, (9, 9)), ("float32",) * len(kinds), captured, "__inference_train_5")


@pytest.mark.parametrize(("shapes", "op_ps", "high"), [
    (((1, 28), (1,)), 40 * US, 99.5 * 15 / 16),  # steps of 10 ms whose ops are all short; all but a sixteenth
    (((2, 28), ()), 4 * MS, 59.5 * 15 / 16),  # an op that computes for long remains
    (((28, 28),), 40 * US, None),  # no tiny batch
    (((None, 28),), 40 * US, None),  # of any size
    (((), (1,)), 40 * US, None),  # numbers are no examples
    (((1, 28),), 9 * MS, None),  # ops compute for most of the time
])  # fmt: skip
def test_steps_of_a_few_examples_are_told_to_take_more(shapes, op_ps, high):
    steps = [event("EagerLocalExecute: __inference_train_5", at * 10 * MS, 5 * MS) for at in range(10)]
    work = line("worker", *(event("a/MatMul:MatMul", at * 10 * MS + MS, op_ps) for at in range(10)), line_id=10)
    source = SourceRecords(shapes=[graph_given(*shapes)])
    study = Study(read(host(line("python", *steps_of()), line("calls", *steps, line_id=2), work)), recording=Recording(source=source))
    model = Model(grow_tree(None, study), study)
    proposed = list(small_batches(model))
    assert bool(proposed) == (high is not None)
    for one in proposed:
        assert model.saves_ms(replay(model.tree, one.edits))[1] == pytest.approx(high, rel=0.02)
        assert f"has {shapes[0][0]} example" in one.evidence


def test_what_fusing_could_save_is_the_time_in_which_nothing_else_runs():
    ops = [line("w", *(event(f"a/Mul_{n}:Mul", at * 10 * MS + MS + n * 200 * US, 200 * US) for at in range(10) for n in range(20)), line_id=5),
           line("v", *(event("b/MatMul:MatMul", at * 10 * MS + MS, 2 * MS) for at in range(10)), line_id=6)]  # fmt: skip
    found = advised(Study(read(host(line("python", *steps_of()), *ops))))["small-ops-without-xla"]
    # 4 ms of them, 2 ms beside the product; of 20 one pass remains.
    assert found.bound_fraction == pytest.approx(2 / 9.95 * 0.95, abs=0.01)
    assert "20 element-wise ops a step" in found.evidence


@pytest.mark.parametrize(("product_us", "each_us", "is_said"), [(4000, 150, True), (4500, 125, False)])
def test_fusing_is_said_where_it_saves_more_than_products_may_lose(product_us, each_us, is_said):
    work = [event(f"a/Mul_{n}:Mul", at * 10 * MS + 5 * MS + n * each_us * US, each_us * US) for at in range(10) for n in range(20)]
    work += [event("b/MatMul:MatMul", at * 10 * MS + 100 * US, product_us * US) for at in range(10)]
    found = advised(Study(read(host(line("python", *steps_of()), line("w", *sorted(work, key=lambda one: one[1]), line_id=5)))))
    # The products take up to 1.7 times as long, of the others one pass to a half remains: in the middle 7.8 or 2.4 % are saved.
    assert ("small-ops-without-xla" in found) is is_said


@pytest.mark.parametrize(("gap_ms", "each_us", "stalled_ms", "is_said"), [
    (0, 50, 0, True),  # 1 ms of them in each step of 2 ms
    (70, 50, 0, False),  # a callback of 70 ms in each step: 1 of 72 ms
    (30, 50, 0, False),  # 1 of 32 ms
    (5, 50, 0, True),
    (0, 10, 0, False),  # 0.2 ms of 0.7
    (0, 10, 200, False),  # the same, but that one op waited for a core in one step
])  # fmt: skip
def test_small_ops_are_spoken_of_where_they_matter_in_the_typical_step(gap_ms, each_us, stalled_ms, is_said):
    period, ops, markers = (2 + gap_ms) * MS, [], []
    for number in range(10):
        at = number * period + (stalled_ms * MS if number > 4 else 0)
        stalled = stalled_ms * MS if number == 4 else 0
        markers.append(event("train", at, 2 * MS + stalled, step_num=number, _r=1))
        ops += [event(f"a/Mul_{n}:Mul", at + n * 60 * US, each_us * US) for n in range(19)]
        ops.append(event("a/Mul_19:Mul", at + 19 * 60 * US, each_us * US + stalled))
        ops.append(event("b/MatMul:MatMul", at + stalled + 1300 * US, 500 * US))
    found = advised(Study(read(host(line("python", *markers), line("w", *ops, line_id=5)))))
    assert ("small-ops-without-xla" in found) is is_said


@pytest.mark.parametrize(("op_type", "step", "is_said"), [("PyFunc", 3, False), ("StringFormat", 9, False), ("LookupTableFindV2", 0, False), ("MatMul", 3, True)])
def test_xla_is_not_asked_to_compile_a_step_with_an_op_that_it_has_no_kernel_for(op_type, step, is_said):
    ops, markers = [], []
    for number in range(10):
        at = number * 2 * MS
        markers.append(event("train", at, 2 * MS, step_num=number, _r=1))
        ops += [event(f"adam/update/Mul_{n}:Mul", at + n * 60 * US, 40 * US) for n in range(20)]
    ops.append(event(f"x/a:{op_type}", step * 2 * MS + 1300 * US, 5 * US))
    ops.sort(key=lambda one: one[1])
    found = advised(Study(read(host(line("python", *markers), line("w", *ops, line_id=5)))))
    rule = "small-ops-without-xla" if is_said else "large-optimizer"  # the same ops: one advice
    assert [one for one in found if one in ("small-ops-without-xla", "large-optimizer")] == [rule]
    code = found[rule].code
    assert code.startswith("model.compile(..., jit_compile=True) or" if is_said else "A larger batch runs the optimizer less often.")
    # The optimizer computes for 8 of 20 ms; of a larger batch a half or a fifth of that remains.
    assert is_said or found[rule].saves_ms == (pytest.approx(8 * 0.5), pytest.approx(8 * 0.8))
    assert is_said or f"XLA cannot compile this step: the step runs `{op_type}`." in code


@pytest.mark.parametrize("name", ["pipeline-py-function", "pipeline-small-files", "python-input-slow"])
def test_what_a_pipeline_runs_on_its_own_threads_hinders_no_compiling(name):
    study = recorded.program(name).study
    assert any(op_type.startswith(("PyFunc", "EagerPyFunc", "ReadFile")) for _, op_type in study.ops.runs.keys)
    assert find_uncompilable(study) == ""


def test_a_growing_graph_by_its_versions():
    grown = on_cpu([("a/MatMul:MatMul", MS)], graph_versions=[20, 27, 34, 41, 48])
    # Of 9.5 ms in a run the op of 1 ms and a call of 0.02 to 0.5 ms remain; of 4.5 ms between them a tenth or all.
    assert advised(grown)["growing-graph"].saves_ms == (pytest.approx(95 - 10 - 5), pytest.approx(95 - 10 - 0.2 + 4.05))
    assert "growing-graph" not in advised(on_cpu([("a/MatMul:MatMul", MS)], graph_versions=[20, 27, 27, 27, 27]))


def test_the_argument_that_traces_a_function_anew_is_named():
    steps = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1) for at in range(10)]
    calls = [event("scaled", at * 10 * MS + MS, 6 * MS, tf_function_call="traced-nonXla") for at in range(10)]
    recording = Recording(changing_arguments={"scaled": (("factor", ("1", "2", "3", "4", "5")),)})
    study = Study(read(host(line("python", *steps, *calls))), recording=recording)
    assert "argument factor was 1, 2, 3, 4, ..." in advised(study)["retracing"].evidence


def test_what_is_traced_because_its_caller_is_does_not_change_from_call_to_call():
    """Five new models: ``fit`` traces ``outer`` for each, of 40 calls, and inside it ``inner``, which nobody else calls."""
    def study(inner):
        steps = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1) for at in range(40)]
        events = []
        for at in range(40):
            kind = "notTraced-nonXla" if at % 8 else "traced-nonXla"
            events.append(event("outer", at * 10 * MS + MS, 7 * MS, tf_function_call=kind))
            if at % 8 == 0:
                events += [event("inner", at * 10 * MS + begin * MS, MS, tf_function_call="traced-nonXla") for begin in inner]
        return Study(read(host(line("python", *steps, *events))))

    assert find_retracing(study(inner=(2,))) is None
    found = find_retracing(study(inner=(2, 4, 6)))  # three times in one tracing of its caller: its arguments change
    assert (found.function, found.traced, found.calls) == ("inner", 10, 15)


def test_the_argument_whose_shape_compiles_anew_is_named():
    def of(size):
        return program("step", {"main": [parameter("x", 0, shape(F32, size, 16)), op("t", "tanh", shape(F32, size, 16), "x")]}, "main")

    programs = metadata_plane(**{f"step{size}": (size, of(size)) for size in (8, 9)})
    assert "argument 1 had several shapes (f32[8,16], f32[9,16])" in advised(compiling(5, programs))["recompiling"].evidence


def test_a_program_compiled_again_with_the_shapes_it_had_is_not_told_to_fix_its_shapes():
    text = program("step", {"main": [parameter("x", 0, shape(F32, 8, 16)), op("t", "tanh", shape(F32, 8, 16), "x")]}, "main")
    found = advised(compiling(5, metadata_plane(step1=(1, text), step2=(2, text))))["recompiling"]
    assert "the shapes are the same" in found.evidence
    assert "shape" not in found.code
    assert "or each call makes a new function" in advised(compiling(5))["recompiling"].evidence  # no program is saved


def test_coverage_counts_what_overlaps_once_and_only_inside_the_steps():
    steps = [event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1) for at in range(4)]
    ops = [line("a", event("a:Mul", 2 * MS, 4 * MS), line_id=2), line("b", event("b:Mul", 4 * MS, 4 * MS), event("c:Mul", 38 * MS, 10 * MS), line_id=3)]
    study = Study(read(host(line("python", *steps), *ops)))
    assert covered_share(study, op_events(study, lambda *_: True)) == pytest.approx((6 + 2) / 40)
    assert covered_share(study, op_events(study, lambda name, _: name == "b")) == pytest.approx(4 / 40)


def test_what_tracing_costs_is_no_advice_but_the_headline_leads_with_the_untraced_time():
    def measured(traced_us, untraced_us=1000):
        records = Recording().steps
        records.names.append("train")
        for at in range(20):
            size = traced_us if at < 10 else untraced_us
            records.append(at * 2_000_000, at * 2_000_000 + size * 1000, 0, 0, int(at < 10), 0, 1, at, 1)
        return on_cpu([("a/MatMul:MatMul", 8 * MS)], steps=records)

    def said(study):
        return build_report(study, title="t", notes=(), overhead_ps=None).headline

    assert "profiling-overhead" not in advised(measured(1600))
    assert "median 8.00 ms without tracing (9.50 ms traced)" in said(measured(10_000, untraced_us=8000))
    assert "without tracing" not in said(measured(9_800, untraced_us=9_400))
    assert "without tracing" not in said(measured(16_000, untraced_us=10_000))  # what the trace shows took less
    assert "without tracing" not in said(measured(1000))
    slow_at_first = measured(1200)  # the steps beside each other tell of 20 %; the trace holds steps of 9.5 ms
    assert slow_at_first.tracing_cost.fraction == pytest.approx(0.2)
    assert "median 9.50 ms" in said(slow_at_first)
    assert "without tracing" not in said(slow_at_first)
    study = measured(10_000, untraced_us=8000)
    assert "without tracing" in headline_text(study)
    for other in ({"phase": "session_run"}, {"origin": EAGER_TAPES}):  # the clock times the call, not its ops
        study.program = ProgramKind(**other)
        assert "without tracing" not in headline_text(study)


# The thresholds of the host's rules, from both sides.


def loop(count, size, gap, waits=(), on_device=True):
    """Steps that are busy from begin to end, with gaps between them; a device's work, or the host's."""
    steps = [event("train", at * (size + gap), size, step_num=at, _r=1) for at in range(count)]
    work = [event("a/MatMul:MatMul", at * (size + gap), size) for at in range(count)]
    waiting = [event(name, at * (size + gap) + begin, duration, id=1) for at in range(count) for name, begin, duration in waits]
    if on_device:
        return Study(read(host(line("python", *steps, *waiting)), gpu(line("Stream #1", *work), stats=T4)))
    return Study(read(host(line("python", *steps, *waiting), line("worker", *work, line_id=2))))


@pytest.mark.parametrize(
    ("count", "size", "gap", "expected"),
    [
        (11, 100 * US, 22 * US, 1 / 6),  # ten gaps in eleven steps
        (11, 90 * MS, 11 * MS, 0.1),  # 110 of 1,100 ms
        (11, 90 * MS, 6 * MS, None),  # 60 of 1,050, of which half may stay
        (5, 6 * MS, 4 * MS, 16 / 46),
        (4, 6 * MS, 4 * MS, None),
    ],
)
def test_python_between_steps_is_said_from_five_steps_on(count, size, gap, expected):
    found = advised(loop(count, size, gap)).get("python-between-steps")
    assert (found and found.bound_fraction) == (expected and pytest.approx(expected))


def test_waiting_for_data_is_not_python_between_steps():
    """Of a gap of 4 ms the training waits 3.6: 3.6 of 96 ms are left. What it waits inside of a step is not taken off again."""
    assert "python-between-steps" not in advised(loop(10, 6 * MS, 4 * MS, [("Iterator::Root", 6 * MS, 3600 * US)]))
    inside = [(name, MS, 3 * MS) for name in ("Iterator::Root", "IteratorGetNextOp::DoCompute")]
    found = advised(loop(10, 6 * MS, 4 * MS, inside, on_device=False))["python-between-steps"]
    assert found.bound_fraction == pytest.approx(36 / 96)


def test_on_a_cpu_what_is_idle_inside_the_steps_counts_as_python_and_on_a_device_it_does_not():
    """Steps of 9.5 of 10 ms, of which ops take 5: 4.5 ms inside and half a ms between; 9 gaps in ten steps."""
    found = advised(on_cpu([("a/MatMul:MatMul", 5 * MS)]))["python-between-steps"]
    assert found.bound_fraction == pytest.approx((10 * 4.5 + 9 * 0.5) / 99.5)
    assert "python-between-steps" not in advised(on_gpu(lambda at: busy(at, share=0.5)))


@pytest.mark.parametrize(
    ("busy_us", "cores", "threads", "expected"),
    [(2985, "4", "1", 0.3 * 0.75), (700, "4", "1", None), (5000, "4", "3", 50 / 99.5 / 4), (5000, "4", "4", None), (5000, "999999", "1", 50 / 99.5), (5000, "1000000", "1", None)],
)  # fmt: skip
def test_idle_cores_are_said_of_a_cpu_that_computes_so_long_that_they_save_a_twentieth(busy_us, cores, threads, expected):
    study = on_cpu([("a/MatMul:MatMul", busy_us * US)], {"CPU cores": cores, "Intra-op threads": threads})
    found = advised(study).get("idle-cores")
    assert (found and found.bound_fraction) == (expected and pytest.approx(expected, rel=1e-5))


def test_idle_cores_are_not_said_of_python_that_an_op_calls():
    """It runs, or sleeps, on one core, however many threads an op may use; what computes beside it counts alone."""
    few = {"CPU cores": "4", "Intra-op threads": "1"}
    assert "idle-cores" not in advised(on_cpu([("a/EagerPyFunc:EagerPyFunc", 8 * MS)], few))
    study = on_cpu([("a/PyFunc:PyFunc", 3 * MS), ("a/MatMul:MatMul", 7 * MS)], few)
    assert advised(study)["idle-cores"].bound_fraction == pytest.approx(0.75 * 0.4, abs=0.03)


def test_idle_cores_are_not_said_beside_a_device():
    study = Study(read(host(line("python", *steps_of()), line("w", *busy(0, "a/MatMul:MatMul", share=10), line_id=2)), gpu(line("Stream #1", *busy(0)))), recording=Recording(environment={"CPU cores": "4", "Intra-op threads": "1"}))
    assert not {"idle-cores", "oversubscribed"} & advised(study).keys()


def beside(ops, others):
    """Steps on a CPU of two cores with ops of 4 ms in each, and other events, a thread each."""
    lines = [line(f"other {at}", *events, line_id=40 + at) for at, events in enumerate(others)]
    work = [line(f"worker {at}", *(event(f"{at}/MatMul:MatMul", begin * 10 * MS + MS, 4 * MS) for begin in range(10)), line_id=10 + at) for at in range(ops)]
    return advised(Study(read(host(line("python", *steps_of()), *work, *lines)), recording=Recording(environment={"CPU cores": "2"})))


def test_one_and_a_half_times_as_many_ops_as_cores_are_too_many():
    assert beside(3, [])["oversubscribed"].bound_fraction == pytest.approx(40 / 99.5 / 3)
    assert "oversubscribed" not in beside(2, [])


def test_what_taking_turns_costs_is_paid_by_compute_and_input():
    """8 ops at once on 2 cores for 4 ms a step, then 2 ms of waiting for input: three quarters of 6 ms."""
    waits = [event("IteratorGetNextOp::DoCompute", at * 10 * MS + 6 * MS, 2 * MS) for at in range(10)]
    assert beside(8, [waits])["oversubscribed"].bound_fraction == pytest.approx(0.75 * 60 / 99.5)


def test_only_ops_inside_the_steps_take_turns_and_iterators_are_none():
    after = [[event("b/MatMul:MatMul", 98 * MS, 10 * MS), event("c/MatMul:MatMul", 120 * MS, 50 * MS)] for _ in range(20)]
    iterators = [[event("Iterator::Root::Map", at * 10 * MS + MS, 4 * MS, id=n) for at in range(10)] for n in range(8)]
    assert "oversubscribed" not in beside(1, after)
    assert "oversubscribed" not in beside(1, iterators)


def test_ops_before_the_first_counted_step_take_no_turns():
    """Step 0 compiles and is warm-up: what runs at once there does not count."""
    steps = steps_of()
    early = [line(f"early {at}", event("b/MatMul:MatMul", MS, 8 * MS), line_id=40 + at) for at in range(20)]
    work = line("worker", *(event("a/MatMul:MatMul", at * 10 * MS + MS, 4 * MS) for at in range(1, 10)), line_id=2)
    study = Study(read(host(line("python", *steps), line("compiler", event("XlaCompile:#x#", MS, MS), line_id=3), work, *early)), recording=Recording(environment={"CPU cores": "2"}))
    assert study.summary.counted[0] == 1
    assert "oversubscribed" not in advised(study)


def beside_a_gpu(*more, planes=(gpu(),)):
    """Ten steps of an op on the CPU, with a GPU beside it on which nothing was recorded."""
    steps = [event("train", at * 100 * US, 90 * US, _r=1, step_num=at) for at in range(10)]
    ops = [event("conv/Conv2D:Conv2D", at * 100 * US, 80 * US) for at in range(10)]
    return Study(read(host(line("python", *steps, *ops, *more)), *planes))


def test_a_gpu_that_is_not_used_is_the_first_advice_and_the_headline():
    study = beside_a_gpu()
    first = next(iter(advised(study).values()))
    assert first.rule == "unused-gpu"
    assert first.bound_fraction == pytest.approx(0.6, abs=0.01)  # 80 of 99 us, less a call of 20 at least
    assert first.saves_ms[0] == pytest.approx(0.48 * first.wall_ms, rel=0.02)
    assert build_report(study, title="t", notes=(), overhead_ps=None).alarm.startswith("This training does not use the GPU.")


@pytest.mark.parametrize(
    "study",
    [
        lambda: beside_a_gpu(event("cuLaunchKernel", 0, US)),  # it worked, and was not recorded
        lambda: beside_a_gpu(event("MemoryAllocation", 0, 0, allocator_name="GPU_0_bfc", bytes_allocated=64, bytes_available=0)),
        lambda: beside_a_gpu(planes=(gpu(line("Stream #1", event("k", 0, US))),)),
        lambda: beside_a_gpu(planes=()),  # there is none
        lambda: Study(read(host(line("python", *(event("train", at * 100 * US, 90 * US, _r=1, step_num=at) for at in range(10)))), gpu())),  # no op
    ],
)
def test_a_gpu_that_worked_or_had_nothing_to_do_is_not_called_unused(study):
    assert "unused-gpu" not in advised(study())


# Each framework's words.


@pytest.mark.parametrize(
    ("name", "tf_op", "framework"),
    [
        ("PjitFunction(f)", "jit(f)/dot_general:", "JAX"),
        ("aten::mm", "aten::mm", "PyTorch"),
        ("ExecutorState::Process", "a/Relu:Relu", "TensorFlow"),
        ("thread", "a/Relu:Relu", "TensorFlow"),
        ("thread", "jit_f", "JAX"),
        ("ExecutorState::Process", "jit_f", "TensorFlow"),  # a program of XLA's, of a user's function
        ("something", "something", ""),
    ],
)
def test_a_trace_tells_whose_words_to_use(name, tf_op, framework):
    study = Study(read(host(line("python", event(name, 0, MS))), gpu(line("Stream #1", event("k", 0, MS, tf_op=tf_op)))))
    assert study.program.framework == framework


@pytest.mark.parametrize("op", ["jit(f)/dot_general:", "aten::relu", "something"])
def test_no_words_of_tensorflow_where_it_was_not_at_work(op):
    found = advised(launching(8, "thread", op=op))
    assert next(iter(found)) == "launch-bound"
    for advice in found.values():
        for word in ("TensorFlow", "tf.", "model.compile", "steps_per_execution", "profnb.step"):
            assert word not in f"{advice.title} {advice.evidence} {advice.code}"


def test_a_program_that_was_captured_is_tensorflows():
    study = Study(read(host(line("python", *steps_of()))), recording=Recording(environment={"TensorFlow": "2.21"}))
    assert study.program.framework == "TensorFlow"


# Facts: recorded runs of one program that differ in one thing.

PAIRS = SHARED / "gpu-cnn-pairs"


@pytest.mark.skipif(not PAIRS.exists(), reason="needs the shared traces")
@pytest.mark.parametrize("name", sorted(path.name for path in PAIRS.glob("*.pb")) or ["none"])
def test_advice_on_recorded_pairs_is_what_made_them_faster(name):
    """Private threads: 3.4 ms instead of 4.1, mixed precision: 7.0; what is bounded saves no more than that."""
    study = profnb.load(PAIRS / name).study
    found = advised(study)
    assert next(iter(found)) == "launch-bound"
    assert "mixed-precision" not in found
    assert ("gpu-thread-mode" in alone(study)) == ("global" in name) == ("TF_GPU_THREAD_MODE" in found["launch-bound"].code)
    assert "missed-tensor-cores" not in found


@pytest.mark.skipif(not PAIRS.exists(), reason="needs the shared traces")
@pytest.mark.parametrize(
    ("path", "required", "forbidden"),
    [
        ("judged/tf1-tfrecords-input.json", {"waiting-for-input"}, {"idle-device"}),
        ("judged/kineto-sglang-decode.json.gz", {"idle-device"}, {"launch-bound", "synchronising-reads"}),
        ("judged/kineto-h100-vit.json.gz", {"idle-device"}, {"mixed-precision"}),
        ("judged/kineto-mi300-timesformer.json.gz", {"idle-device"}, {"launch-bound"}),
        ("judged/jax-mi300-conv.xplane.pb", {"synchronising-reads"}, {"imbalance", "missed-tensor-cores", "gpu-thread-mode"}),
        ("gpu-cnn-batch512/host.xplane.pb", {"copying-input", "launch-bound"}, {"missed-tensor-cores"}),
        ("gpu-windows/host.xplane.pb", {"idle-device"}, {"launch-bound", "gpu-thread-mode"}),
    ],
)
def test_advice_on_traces_read_by_hand(path, required, forbidden):
    found = advised(profnb.load(SHARED / path).study)
    assert required <= found.keys()
    assert not forbidden & found.keys()


def functions(*calls, traced=(), name="scaled"):
    """A step for each call, of 9 ms if that traces and else of 3; ``calls`` are which tracing of its object each one was, 0 for none."""
    steps = [event("train", at * 10 * MS, (9 if count else 3) * MS, step_num=at, _r=1) for at, count in enumerate(calls)]
    events = [
        event(name, at * 10 * MS + MS, 6 * MS if count else MS, tf_function_call="traced-nonXla" if count else "notTraced-nonXla", tracing_count=count or 1)
        for at, count in enumerate(calls)
    ]  # fmt: skip
    return Study(read(host(line("python", *steps, *events))), recording=Recording(functions=tuple(traced)))


def test_a_function_that_is_traced_anew_is_told_where_it_stands():
    study = functions(1, 2, 3, 4, 5, 0, 0, traced=[TracedFunction("scaled", 0, False, "f.py:7", "f.py:20", "", 5)])
    found = advised(study)["retracing"]
    assert "scaled was traced anew in 4 of 7 recorded calls" in found.evidence and "traced took 24.0 ms in all" in found.evidence  # the first is its due
    assert found.saves_ms == pytest.approx((4 * 6, 4 * 6))  # steps of 9 ms become ones of 3
    assert "input_signature" in found.code
    assert found.where == "f.py:7"
    assert advised(functions(1, 2, 3, 4))["retracing"].where == ""
    assert "python-between-steps" not in advised(functions(*range(1, 10)))  # what Python does in each step is to trace
    assert "python-between-steps" in advised(functions(1, *[0] * 9))


@pytest.mark.parametrize(("calls", "is_told"), [
    ((1, *[0] * 7, 2, *[0] * 7, 3, *[0] * 7, 4, *[0] * 3), True),  # a number that grows from epoch to epoch
    ((1, 2, 3, 4, *[0] * 30), False),  # four lengths, all met by now
])  # fmt: skip
def test_tracing_that_goes_on_is_told_however_seldom_it_is(calls, is_told):
    assert ("retracing" in advised(functions(*calls))) == is_told


def test_where_each_call_traces_what_stays_is_a_call_of_the_function_and_what_lies_beside_it():
    """Nine steps of 9 ms, of which a call that traces takes 6; the first is its due."""
    found = advised(functions(*range(1, 10)))["retracing"]
    assert found.saves_ms == pytest.approx((8 * (6 - 0.5), 8 * (6 - 0.02)))  # a call costs 0.02 to 0.5 ms as a rule


def test_a_keras_function_whose_batches_change_is_told_to_give_them_one_shape():
    found = advised(functions(1, 2, 3, 4, 5, name="one_step_on_data"))["retracing"]
    assert "drop_remainder" in found.code
    assert "input_signature" not in found.code


@pytest.mark.parametrize("calls", [
    (1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0),  # four objects of one name: first tracings all
    (1, 1, 1, 1, 1, 1),
    (1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0),  # four objects, each for a full batch and for the last one
    (1, 2, 0, 0, 0, 0),
    (5, 0, 0, 0, 0, 0),
    (0, 0, 0, 0),
])  # fmt: skip
@pytest.mark.parametrize("name", ["scaled", "one_step_on_data"])
def test_first_tracings_of_several_functions_are_nobodys_retracing(calls, name):
    assert "retracing" not in advised(functions(*calls, name=name))


def test_a_function_that_a_loop_makes_anew_is_told_to_be_made_once():
    one = TracedFunction("scaled", 0, False, "f.py:7", "f.py:20")
    found = advised(functions(1, 1, 1, 1, traced=[one] * 4))["retracing"]
    assert found.title == "Define scaled once"
    assert "scaled was a new tf.function in 4 of 4 recorded calls" in found.evidence and "took 18.0 ms in all" in found.evidence
    assert "before the loop" in found.code
    assert found.where == "f.py:7"
    layers = [TracedFunction("scaled", 0, False, "f.py:7", "f.py:20")] * 4
    assert "retracing" not in advised(functions(1, 1, 1, 1, *[0] * 20, traced=layers))  # objects that are called on
    different = [TracedFunction("scaled", at, False, f"f.py:{7 + at}", "f.py:20") for at in range(4)]
    assert "retracing" not in advised(functions(1, 1, 1, 1, traced=different))  # four functions of one name
    keras = [TracedFunction("one_step_on_data", 0, True, "", "f.py:20")] * 4
    assert "retracing" not in advised(functions(1, 1, 1, 1, traced=keras, name="one_step_on_data"))


def test_tracings_of_keras_that_nothing_tells_apart_are_not_called_retracing():
    steps = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1) for at in range(10)]
    def study(name):
        return Study(read(host(line("python", *steps, *[event(name, at * 10 * MS + MS, 6 * MS, tf_function_call="traced-nonXla") for at in range(10)]))))

    assert "retracing" in advised(study("scaled"))
    assert "retracing" not in advised(study("multi_step_on_iterator"))


def test_ops_of_a_validation_do_not_make_threads_that_are_not_there():
    """Two cores, one op at a time, most of them in test steps: as many at work at once as before."""
    def loop(phases):
        at, steps, ops = 0, [], []
        for number, phase in enumerate(phases):
            steps.append(event(phase, at, 10 * MS, step_num=number, _r=1))
            ops.append(event("a/MatMul:MatMul", at + MS, 8 * MS))
            at += 11 * MS
        trace = read(host(line("python", *steps), line("w", *ops, line_id=2)))
        return advised(Study(trace, 0, Recording(environment={"CPU cores": "2"})))

    assert "oversubscribed" not in loop((["train"] * 4 + ["test"] * 40) * 3)


def test_python_that_dispatches_eager_ops_inside_steps_is_not_told_as_python_between_them():
    def loop(name, gap=0):
        at, events, kernels = 0, [], []
        for number in range(10):
            events.append(event("train", at, 8 * MS, step_num=number, _r=1))
            events += [event(name, at + n * 200 * US, 120 * US) for n in range(40)]
            kernels += [event("a/Mul:Mul", at + n * 200 * US + 20 * US, 80 * US) for n in range(40)]
            at += 8 * MS + gap
        return advised(Study(read(host(line("python", *events), line("w", *kernels, line_id=2)))))

    assert "eager-ops" in loop("EagerLocalExecute: Mul")
    assert "python-between-steps" not in loop("EagerLocalExecute: Mul")
    assert "python-between-steps" in loop("EagerLocalExecute: Mul", 5 * MS)
    assert "python-between-steps" in loop("FunctionRun")


@pytest.mark.parametrize(
    ("op", "count", "us", "said"),
    [
        ("AssignAddVariableOp", 30, 40, "fuses the optimizer's ops"),
        ("AssignAddVariableOp", 7, 1000, "fuses the optimizer's ops"),
        ("ResourceApplyAdam", 30, 40, "fuses the optimizer's ops"),
        ("ResourceApplyAdam", 7, 1000, ""),  # one op for each variable already, bound by its memory
    ],
)
def test_the_optimizers_ops_are_fused_unless_each_is_a_long_pass_over_its_variable(op, count, us, said):
    def of_step(at):
        return [event(f"adam/update_{n}:{op}", at * 10 * MS + n * us * MS // 1000, us * MS // 1000) for n in range(count)]

    rest = [event("dense/MatMul:MatMul", at * 10 * MS + 8 * MS, MS // 2) for at in range(10)]
    study = Study(read(host(line("python", *steps_of(), *(one for at in range(10) for one in of_step(at)), *rest))))
    found = advised(study).get("large-optimizer")
    assert (found is not None) is bool(said)
    if found is not None:
        assert said in found.code
        assert f"{count} a step, of {'1.00 ms' if us == 1000 else '40.0 µs'} on average." in found.evidence
