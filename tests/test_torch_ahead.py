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
