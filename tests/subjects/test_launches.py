"""Launches, streams, use over time and the breakdown of each device: by hand, and sums on real traces."""

import gzip
import json

import numpy as np
import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

import profnb
from profnb.steps.breakdown import column_of
from profnb.steps.activities import CATEGORIES
from profnb.subjects.study import Study
from profnb.subjects.device.devices import DEVICE_STEPS
from profnb.subjects.device.idle import UTILIZATION
from profnb.subjects.device.launches import LAUNCHES, STREAMS
from profnb.report.build import build_report

US = 10**6
MS = 10**9


@pytest.fixture
def study():
    steps = [event("train", at * MS, 900 * US, step_num=at, _r=1) for at in range(2)]
    launches = [event("cudaLaunchKernel", at * MS + n * 100 * US, 10 * US, correlation_id=10 * at + n) for at in range(2) for n in range(3)]
    work = []
    for at in range(2):
        for n, (delay, duration) in enumerate([(0, 5 * US), (20 * US, 30 * US), (40 * US, 8 * US)]):
            work.append(event(f"k{n}", at * MS + n * 100 * US + 10 * US + delay, duration, correlation_id=10 * at + n))
    copies = [event("MemcpyH2D", 500 * US, 100 * US), event("MemcpyH2D", MS + 500 * US, 100 * US)]
    other = [event("k9", 600 * US, 50 * US)]
    return Study(read(
        host(line("python", *steps), line("launcher", *launches)),
        gpu(line("Stream #1", *work), line("Stream #2", *copies)),
        gpu(line("Stream #7", *other), number=1),
    ))  # fmt: skip


def test_launches_by_hand(study):
    table = LAUNCHES.frame(study.device.launches).set_index("device")
    first, second = table.loc["/device:GPU:0"], table.loc["/device:GPU:1"]
    assert (first.kernels, first.kernels_per_step, first.launch_us, first.delay_us) == (6, 3, 10, 20)
    assert (first.launched_fraction, second.launched_fraction) == (1, 0)
    assert first.tiny_fraction == pytest.approx(2 / 3)
    assert first.shorter_than_launch_fraction == pytest.approx(2 / 3)
    assert np.isnan(second.launch_us)
    assert np.isnan(second.shorter_than_launch_fraction)


def test_streams_by_hand(study):
    table = STREAMS.frame(study.device.streams)
    assert list(zip(table.stream, table.kernels, table.copies, table.busy_us, strict=True)) == [
        ("Stream #2", 0, 2, 200), ("Stream #1", 6, 0, 86), ("Stream #7", 1, 0, 50),
    ]  # fmt: skip
    assert table.busy_fraction[0] == pytest.approx(200 / 1900)


def test_each_device_has_a_breakdown_of_its_own(study):
    table = DEVICE_STEPS.frame(study).set_index(["device", "step_num"])
    assert table.loc[("/device:GPU:0", 0), "device_compute_ms"] == pytest.approx(0.043)
    assert table.loc[("/device:GPU:0", 0), "input_ms"] == pytest.approx(0.1)
    assert table.loc[("/device:GPU:1", 0), "device_compute_ms"] == pytest.approx(0.05)
    assert table.loc[("/device:GPU:1", 0), "kernel_launch_ms"] == 0  # they launch on the other device
    assert table.loc[("/device:GPU:1", 1), "device_compute_ms"] == 0
    assert study.breakdown.of("device compute").tolist() == [43 * US, 43 * US]  # the busiest device's


def test_use_over_time_by_hand(study):
    table = UTILIZATION.frame(study.device.idle)
    assert len(table) == 96
    piece = 1.9 / 96
    assert (table.compute_fraction * piece).sum() == pytest.approx(0.086)
    assert (table.copies_fraction * piece).sum() == pytest.approx(0.2)
    at = int(0.55 / piece)
    assert table.copies_fraction[at] == pytest.approx(1)


@pytest.mark.parametrize("path", every_shared_trace())
def test_sums_on_real_traces(path):
    profile = profnb.load(path)
    steps = profile.device_steps
    columns = [column_of(category) for category in CATEGORIES]
    assert np.allclose(steps[columns].astype(float).sum(axis=1), steps.duration_ms.astype(float), atol=1e-9, rtol=0)
    used = profile.utilization
    if used.empty:
        return
    assert np.allclose(used.drop(columns="begin_ms").sum(axis=1), 1)
    idle = profile.study.device.idle
    assert int(idle.bins_ps.sum()) == idle.window_ps + idle.aside_ps
    if not idle.aside_ps:
        assert idle.bins_ps[:, 3:].sum(axis=0).tolist() == idle.total_ps.tolist()
    assert (profile.streams.busy_fraction <= 1 + 1e-9).all()


def test_the_report_has_a_tab_for_what_there_is(study):
    report = build_report(study, title="t", notes=(), overhead_ps=None)
    tabs = [part.tab for part in report.sections]
    assert tabs == ["Ops", "Device", "Device", "Device", "Device", "Kernels", "Kernels"]
    assert 'data-tab="Device"' in report.html
    assert 'data-tab="XLA"' not in report.html
    assert "2 devices worked" in report.text()


def graph_study(call, kernel, steps=4):
    """Steps of 1 ms: a graph call of `call` us that starts ten kernels of `kernel` us, one behind another, and a single small one."""
    marks = [event("train", at * MS, 900 * US, step_num=at, _r=1) for at in range(steps)]
    calls = [event("cudaGraphLaunch", at * MS, call * US, correlation_id=2 * at + 1) for at in range(steps)]
    calls += [event("cudaLaunchKernel", at * MS + 700 * US, 9 * US, correlation_id=2 * at + 2) for at in range(steps)]
    work = [event(f"k{n}", at * MS + (200 + n * kernel) * US, kernel * US, correlation_id=2 * at + 1) for at in range(steps) for n in range(10)]
    small = [event("s", at * MS + 720 * US, 2 * US, correlation_id=2 * at + 2) for at in range(steps)]
    return Study(read(host(line("python", *marks), line("launcher", *sorted(calls, key=lambda e: e[1]))), gpu(line("Stream #1", *sorted(work + small, key=lambda e: e[1])))))


def test_one_call_that_starts_a_graph_is_one_call():
    study = graph_study(call=50, kernel=20)  # each kernel is shorter than the call, all of them are not
    row = LAUNCHES.frame(study.device.launches).iloc[0]
    assert (row.kernels, row.calls, row.launched_fraction) == (44, 8, 1)
    assert row.launch_us == (50 + 9) / 2
    assert row.delay_us == (150 + 11) / 2  # to the first kernel of each
    assert row.shorter_than_launch_fraction == 0.5  # the small ones'
    assert not study.device.launches.sets_the_pace
    text = build_report(study, title="t", notes=(), overhead_ps=None).text()
    assert "50.0 % of the 8 launch calls took longer than their kernels." in text
    guilty = graph_study(call=190, kernel=10)
    assert LAUNCHES.frame(guilty.device.launches).shorter_than_launch_fraction[0] == 1
    assert guilty.device.launches.sets_the_pace


def test_few_long_graphs_outweigh_many_short_kernels():
    """Most calls are longer than their kernel, most kernels are of one graph: its calls set no pace."""
    study = Study(read(
        host(line("a", event("train", 0, 900 * US, step_num=0, _r=1)), line("b", *[event("hipLaunchKernel", n * 20 * US, 10 * US, correlation_id=n) for n in range(8)], event("hipGraphLaunch", 200 * US, 50 * US, correlation_id=9))),
        gpu(line("Stream #1", *[event("k", (n * 20 + 11) * US, US, correlation_id=n) for n in range(8)], *[event("g", (260 + n) * US, US, correlation_id=9) for n in range(544)])),
    ))  # fmt: skip
    launches = study.device.launches
    assert launches.longer_fraction.tolist() == [8 / 9]
    assert not launches.sets_the_pace


def test_graph_launches_of_a_real_trace_equal_the_file(shared_traces):
    path = shared_traces / "judged" / "kineto-sglang-decode.json.gz"
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    call = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime" and "correlation" in e["args"]}
    started = {}
    for kernel in kernels:
        started.setdefault(kernel["args"]["correlation"], []).append(kernel["dur"])
    longer = sum(call[number]["dur"] > sum(durations) for number, durations in started.items() if number in call)
    launches = profnb.load(path).launches.iloc[0]
    assert (launches.kernels, launches.calls) == (len(kernels), len(started.keys() & call.keys()))
    assert max(len(durations) for durations in started.values()) == 544
    assert launches.shorter_than_launch_fraction == pytest.approx(longer / launches.calls)
