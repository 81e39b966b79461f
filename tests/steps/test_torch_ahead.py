"""PyTorch on a GPU returns before the kernels end: step times, headline and categories of hand-made Kineto traces follow the device."""

import json

import numpy as np
import pytest

from profnb.profile import Profile
from profnb.trace.chrome.reader import read_chrome

STEPS = 8


def event(category, name, begin_us, duration_us, tid=1, pid=1, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": begin_us, "dur": duration_us, "args": args}


def profile(*events):
    buffer = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    return Profile(read_chrome(np.frombuffer(buffer, np.uint8), "hand-made"))


def loop(period_us, kernel_us, *, waits):
    """Steps whose op launches a kernel in 100 us; the host waits for it (`loss.item()`), or goes on after 200."""
    events, free = [], 0
    for number in range(STEPS):
        at = number * period_us
        begin = max(at + 90, free)
        free = begin + kernel_us
        host_us = free - at + 10 if waits else 200
        events += [
            event("user_annotation", f"ProfilerStep#{number}", at, host_us),
            event("cpu_op", "aten::mm", at + 10, 90), event("cuda_runtime", "cudaLaunchKernel", at + 80, 10, correlation=number + 1),
            event("kernel", "gemm", begin, kernel_us, tid=7, pid=0, device=0, stream=7, correlation=number + 1),
        ]  # fmt: skip
        if waits:
            events += [event("cpu_op", "aten::item", at + 100, host_us - 105), event("cuda_runtime", "cudaStreamSynchronize", at + 105, host_us - 112)]
    return profile(*events)


def test_where_the_host_runs_ahead_a_step_is_the_period_of_the_kernels():
    """The host is through a step in 250 us, the device needs 1,000."""
    p = loop(250, 1000, waits=False)
    periods = (p.steps.duration_ms + p.steps.gap_ms.fillna(0)).tolist()
    assert periods[1:] == [1.0] * (STEPS - 1)
    assert p.steps.device_compute_ms.sum() == STEPS  # all of it, and each instant once
    assert p.devices.busy_us.tolist() == [1000 * STEPS]
    assert p.summary().startswith(f"{STEPS} ProfilerStep steps, median 1.00 ms. Most of it is device compute, 98.9 %")  # of 8.09 ms
    assert any("ahead of the device" in note for note in p.notes)
    assert not any(advice.rule == "synchronising-reads" for advice in p.advice)


@pytest.mark.parametrize("kernel_us", [1000, 20])
def test_where_the_host_waits_a_step_is_what_the_wall_clock_says(kernel_us):
    p = loop(kernel_us + 150, kernel_us, waits=True)
    assert p.steps.duration_ms.tolist() == [(kernel_us + 100) / 1000] * STEPS
    assert p.steps.gap_ms.tolist()[:-1] == [0.05] * (STEPS - 1)
    assert p.steps.device_compute_ms.sum() == pytest.approx(kernel_us * STEPS / 1000)
    assert not any("ahead of the device" in note for note in p.notes)
    main = p.summary().splitlines()[0]
    assert ("device compute" in main) == (kernel_us == 1000)


def test_a_device_that_idles_between_short_kernels_is_not_said_to_be_the_limit():
    """Launches take 100 us of 200, kernels 20: the host is what takes the time, and steps are its own."""
    p = loop(200, 20, waits=False)
    assert (p.steps.duration_ms + p.steps.gap_ms.fillna(0)).tolist() == pytest.approx([0.2] * STEPS)
    assert "device compute" not in p.summary().splitlines()[0]
    assert p.steps.device_compute_ms.sum() == pytest.approx(0.02 * STEPS)


def backward_loop():
    """The backward pass is another thread's: it launches 600 us of work, and the host goes on after 200."""
    events, free = [], 0
    for number in range(STEPS):
        at = number * 250
        begin = max(at + 90, free)
        free = begin + 1000
        events += [
            event("user_annotation", f"ProfilerStep#{number}", at, 200),
            event("cpu_op", "aten::mm", at + 10, 90), event("cuda_runtime", "cudaLaunchKernel", at + 80, 10, correlation=2 * number + 1),
            event("cpu_op", "aten::mm", at + 110, 70, tid=2), event("cuda_runtime", "cudaLaunchKernel", at + 150, 10, tid=2, correlation=2 * number + 2),
            event("kernel", "gemm", begin, 400, tid=7, pid=0, device=0, stream=7, correlation=2 * number + 1),
            event("kernel", "gemm_backward", begin + 400, 600, tid=7, pid=0, device=0, stream=7, correlation=2 * number + 2),
        ]  # fmt: skip
    return profile(*events)


def test_kernels_belong_to_the_step_whose_thread_launched_them_however_late_they_run():
    """An H200 showed 65 of 138 ms of work in the steps that launched it: the backward pass counted where it ran."""
    p = backward_loop()
    assert p.steps.launched_work_ms.tolist() == [1.0] * STEPS
    periods = (p.steps.duration_ms + p.steps.gap_ms.fillna(0)).tolist()
    assert periods[1:] == [1.0] * (STEPS - 1)
    assert p.devices.busy_us.tolist() == [1000 * STEPS]  # the last backward pass too


def test_kernels_have_the_op_that_launched_them_and_their_launch_shape():
    """Kineto tells the shape in args of its own, and the op by where the launch stands."""
    said = {"registers per thread": 168, "shared memory": 231424, "grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19}
    p = profile(
        event("user_annotation", "ProfilerStep#0", 0, 1000),
        event("cpu_op", "aten::linear", 10, 90), event("cpu_op", "aten::addmm", 20, 70), event("cuda_runtime", "cudaLaunchKernel", 80, 5, correlation=1),
        event("cuda_runtime", "cudaGraphLaunch", 200, 5, correlation=2),
        event("kernel", "gemm", 100, 40, tid=7, pid=0, correlation=1, **said),
        event("kernel", "replayed", 300, 30, tid=7, pid=0, correlation=2),
    )  # fmt: skip
    columns = ["kernel_name", "op_name", "grid", "block", "is_tensor_core_eligible"]
    assert p.kernels[columns].values.tolist() == [["gemm", "aten::addmm", "132,1,1", "384,1,1", True], ["replayed", "replayed", "", "", False]]
    row = p.kernels.iloc[0]
    assert (row.registers_per_thread, row.shared_bytes, row.occupancy_percent) == (168, 231424, 19)
    assert np.isnan(row.dynamic_shared_bytes) and np.isnan(p.kernels.iloc[1].registers_per_thread)


def test_copies_have_their_bytes_and_the_kinds_of_memory():
    p = profile(
        event("cpu_op", "aten::copy_", 0, 100), event("cuda_runtime", "cudaMemcpyAsync", 10, 20, correlation=1),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 20, 10, tid=7, pid=0, correlation=1, bytes=4_000_000),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 40, 5, tid=7, pid=0, bytes=1000),
        event("gpu_memset", "Memset (Device)", 50, 1, tid=7, pid=0, bytes=64),
    )  # fmt: skip
    columns = ["direction", "source_kind", "destination_kind", "bytes"]
    assert p.copies[columns].values.tolist() == [
        ["host to device", "pageable", "device", 4_000_000], ["device to device", "device", "device", 1000], ["set", "", "device", 64],
    ]  # fmt: skip
    assert p.copies.gigabytes_per_second.tolist() == pytest.approx([400, 0.2, 0.064])


@pytest.mark.parametrize(("properties", "speaks"), [([{"id": 0, "computeMajor": 9, "computeMinor": 0, "numSms": 132}], True), ([], False), ([{"id": 0, "computeMajor": 6, "computeMinor": 1}], False)])
def test_mixed_precision_is_offered_where_the_file_says_what_the_device_can_do(properties, speaks):
    """How much faster 16 bits are is the chip's kind alone; its clock, which Kineto does not write, plays no part."""
    events = []
    for number in range(STEPS):
        at = number * 1000
        events += [
            event("user_annotation", f"ProfilerStep#{number}", at, 1000), event("cpu_op", "aten::mm", at, 30),
            event("cuda_runtime", "cudaLaunchKernel", at + 5, 10, correlation=number + 1), event("cuda_runtime", "cudaDeviceSynchronize", at + 30, 960),
            event("kernel", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_ffma_aligna4", at + 20, 950, tid=7, pid=0, correlation=number + 1),
        ]  # fmt: skip
    buffer = json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}).encode()
    p = Profile(read_chrome(np.frombuffer(buffer, np.uint8), "hand-made"))
    assert any(advice.rule == "mixed-precision" for advice in p.advice) == speaks


@pytest.mark.parametrize(("untraced_us", "kernel_us", "speaks"), [(300, 100, True), (300, 400, False)])
def test_tracing_cost_is_told_only_where_the_host_outlasts_the_device(untraced_us, kernel_us, speaks):
    """A host that is through in 300 us while the device needs 400 runs ahead: its steps say nothing of tracing."""
    p = loop(600, kernel_us, waits=True)
    times = p.study.step_times
    assert p.study.tracing_cost is None  # nothing untraced to compare with
    count = 2 * STEPS
    traced = np.arange(count) < STEPS
    begin = np.concatenate([np.arange(STEPS) * 600, STEPS * 600 + np.arange(STEPS) * untraced_us]) * 10**6
    wall = type(times)(
        begin, np.where(traced, 600, untraced_us) * 10**6, traced, np.zeros(count, np.bool_),
        tuple(times.phase[:1]) * count, np.arange(count), np.zeros(count, np.int64),
    )  # fmt: skip
    p.study.__dict__["step_times"] = wall
    p.study.__dict__.pop("tracing_cost", None)
    cost = p.study.tracing_cost
    assert (cost is not None) == speaks
    if cost is not None:
        assert (cost.fraction, cost.untraced_ps) == (pytest.approx(1.0), 300 * 10**6)


@pytest.mark.parametrize("starts_work", [False, True])
def test_a_loop_on_the_cpu_beside_a_gpu_is_told_to_use_it(starts_work):
    """PyTorch's profiler waits for the device as it stops: "a device worked, but the trace has none" was said of an H200."""
    events = []
    for number in range(STEPS):
        events += [event("user_annotation", f"ProfilerStep#{number}", number * 1000, 900), event("cpu_op", "aten::mm", number * 1000 + 10, 800)]
    call = "cudaLaunchKernel" if starts_work else "cudaDeviceSynchronize"
    events.append(event("cuda_runtime", call, STEPS * 1000, 5, correlation=1))
    buffer = json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}).encode()
    p = Profile(read_chrome(np.frombuffer(buffer, np.uint8), "hand-made"))
    assert p.summary().startswith("This training does not use the GPU.") != starts_work
    assert any("CUPTI" in note for note in p.notes) == starts_work
