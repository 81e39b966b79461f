"""How busy each device was, by hand and against a sweep of its own over every real trace."""

import numpy as np
import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

import profnb
from profnb.steps.streams import covered_ps
from profnb.subjects.device.devices import tabulate_devices
from profnb.steps.streams import raw_device_lines
from profnb.steps.finding.sources import find_steps
from profnb.profile import Profile
from profnb.trace.files import read_trace

MS = 10**9


def test_overlap_counts_once_and_collectives_are_hidden_behind_compute():
    trace = read(
        host(line("python", event("train", 0, 100 * MS, step_num=0, _r=1))),
        gpu(line("Stream #1", event("gemm", 0, 30 * MS), event("gemm", 50 * MS, 10 * MS)),
            line("Stream #2", event("ncclDevKernel_AllReduce", 20 * MS, 20 * MS), event("MemcpyH2D", 35 * MS, 10 * MS))),
        gpu(line("Stream #1", event("gemm", 90 * MS, 10 * MS)), number=1),
        gpu(number=2),
    )  # fmt: skip
    devices = Profile(trace).devices
    assert devices.device.tolist() == ["/device:GPU:0", "/device:GPU:1"]
    assert devices.busy_us.tolist() == [55_000, 10_000]  # 0-45 and 50-60; 90-100
    assert devices.compute_us.tolist() == [40_000, 10_000]
    assert devices.copy_us.tolist() == [10_000, 0]
    assert devices.collective_us.tolist() == [20_000, 0]
    assert devices.hidden_collective_fraction.tolist()[0] == 0.5
    assert np.isnan(devices.hidden_collective_fraction[1])
    assert devices.utilization_fraction.tolist() == [0.55, 0.1]
    table = tabulate_devices(trace, find_steps(trace))
    assert table.imbalance == pytest.approx(55 / 32.5 - 1)
    text = Profile(trace).summary()
    assert "2 devices worked. The busiest worked 69.2 % longer than the mean." in text


def test_intervals_that_nest_overlap_and_touch():
    cover = lambda *spans: covered_ps(*(np.array(column, np.int64) for column in zip(*spans, strict=True)))
    assert cover((0, 10), (2, 5), (8, 12), (12, 13), (20, 21)) == 14
    assert covered_ps(np.empty(0, np.int64), np.empty(0, np.int64)) == 0


@pytest.mark.parametrize("path", every_shared_trace())
def test_busy_time_equals_a_plain_sweep_on_every_trace(path):
    trace = read_trace(path)
    steps = find_steps(trace)
    table = tabulate_devices(trace, steps)
    work = np.flatnonzero(raw_device_lines(trace)[trace.lines.of_event])
    for name, busy in zip(table.device, table.busy_ps.tolist(), strict=True):
        total, until = 0, int(steps.begin_ps[0])
        own = [e for e in work.tolist() if trace.planes[trace.lines.plane[trace.lines.of_event[e]]].name == name]
        for e in sorted(own, key=lambda e: trace.events.begin_ps[e]):
            begin, end = max(int(trace.events.begin_ps[e]), until), min(int(trace.events.end_ps[e]), int(steps.end_ps[-1]))
            total, until = total + max(end - begin, 0), max(until, end)
        assert busy == total


def test_eight_v100_of_which_three_worked(shared_traces):
    devices = profnb.load(shared_traces / "gpu-v100x8-bert").devices
    assert devices.device.tolist() == ["/device:GPU:1", "/device:GPU:4", "/device:GPU:6"]
