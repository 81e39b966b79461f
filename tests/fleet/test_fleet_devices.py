"""Several devices of one process: which holds the others up, by traces whose answer a person can compute."""

import gzip
import json
import re

import numpy as np
import pytest

import profnb
from made_devices import EXCHANGE, MS, devices_of
from made_hosts import EVEN, SLOW, STEPS, hosts_of
from profnb.many_traces.fleets import find_fleet
from traces import event, line


def fleet_of(folder, works, **rest):
    file = folder / "one.xplane.pb"
    file.write_bytes(devices_of(works, **rest))
    return profnb.load_fleet(file)


def told_by(folder, works, **rest):
    fleet_of(folder, works, **rest)
    return {one.rule: one for one in profnb.load(folder / "one.xplane.pb").advice}


def test_own_work_waiting_and_exchange_are_what_a_person_computes(tmp_path):
    fleet = fleet_of(tmp_path, SLOW)
    means = fleet.hosts.set_index("host")
    assert list(means.index) == ["GPU:0", "GPU:1", "GPU:2"]
    assert means.own_ms.tolist() == [12, 42, 14]  # the kernel, and the 2 ms between steps
    assert means.wait_ms.tolist() == [30, 0, 28]
    assert means.exchange_ms.tolist() == [EXCHANGE] * 3
    assert means.caused_ms.tolist() == [0, 28, 0]
    assert fleet.stragglers == ("GPU:1",)
    assert "3 devices, 11 steps of 47.0 ms. GPU:1 holds the others up: 28.0 ms a step" in fleet.verdict
    assert "29.0 ms a step more device compute than the median elsewhere. By op, gemm is 29.0 ms longer." in fleet.verdict


def test_a_step_of_a_device_adds_up_exactly(tmp_path):
    rng = np.random.default_rng(0)
    merged = fleet_of(tmp_path, rng.integers(1, 60, (8, 20)).tolist(), late=range(8), copies=[3] * 8)._merged
    assert np.array_equal(merged.own_ps + merged.wait_ps + merged.exchange_ps, merged.step_ps)
    assert np.array_equal(merged.categories_ps.sum(axis=2), merged.own_ps)
    assert np.array_equal(merged.step_ps.sum(axis=1), merged.joints.leave_ps[:, -1] - merged.joints.leave_ps[:, 0])
    assert (merged.wait_ps >= 0).all() and (merged.exchange_ps >= 0).all()
    assert np.unique(merged.step_ps, axis=0).shape[0] == 1  # one clock, and all leave together


def test_the_trace_itself_says_who_holds_the_others_up_and_no_remedy_for_exchange(tmp_path):
    found = told_by(tmp_path, SLOW)
    assert not found.keys() & {"exposed-collectives", "imbalance"}
    straggler = found["straggler"]
    assert straggler.bound_fraction == pytest.approx(28 / 47)
    assert "GPU:1 holds the others up by 28.0 ms a step" in straggler.evidence
    assert "gemm is 29.0 ms longer" in straggler.evidence and "nvidia-smi" in straggler.code


def test_advice_on_a_long_trace_is_of_its_last_collectives(tmp_path, monkeypatch):
    monkeypatch.setattr("profnb.fleet.verdict._MOST_COLLECTIVES", 8)
    works = [[10] * STEPS, [10] * 3 + [40] * (STEPS - 3), [10] * STEPS]
    assert "GPU:1 holds the others up by 30.0 ms a step" in told_by(tmp_path, works)["straggler"].evidence
    works = [[10] * STEPS, [40] * 3 + [10] * (STEPS - 3), [10] * STEPS]
    assert "straggler" not in told_by(tmp_path, works)


def test_where_nobody_is_slow_what_is_exchange_is_told_and_only_that_can_be_gained(tmp_path):
    works = np.random.default_rng(1).permuted(np.tile([10, 10, 10, 40], (40, 1)), axis=1).T.tolist()
    found = told_by(tmp_path, works)  # another is late in each step: waiting that is nobody's
    assert "straggler" not in found
    exchange = found["exposed-collectives"]
    assert exchange.bound_fraction == pytest.approx(5 / 47, abs=0.001)
    assert "5.00 ms of a step (10.6 %) is exchange, 22.5 ms waiting" in exchange.evidence
    long = [[100 + work for work in row] for row in works]
    assert not told_by(tmp_path, long).keys() & {"straggler", "exposed-collectives"}  # 3.4 % is not worth a word


@pytest.mark.parametrize("seed", range(10))
def test_noise_names_no_device(tmp_path, seed):
    works = 10 + np.random.default_rng(seed).exponential(4, (4, 30)).round().astype(int)
    assert fleet_of(tmp_path, works.tolist()).stragglers == ()
    assert "straggler" not in {one.rule for one in profnb.load(tmp_path / "one.xplane.pb").advice}


def test_devices_alike_name_nobody(tmp_path):
    fleet = fleet_of(tmp_path, EVEN)
    assert fleet.stragglers == () and "No device holds the others up" in fleet.verdict


def test_a_device_that_gets_its_work_late_is_the_hosts_matter(tmp_path):
    fleet = fleet_of(tmp_path, EVEN, late=(0, 0, 9))
    assert fleet.stragglers == ("GPU:2",)
    assert "device compute" not in fleet._verdict.why
    assert "gets work last" in fleet.advice[0].code and "nvidia-smi" not in fleet.advice[0].code


def test_a_device_that_copies_more_is_told_so(tmp_path):
    fleet = fleet_of(tmp_path, EVEN, copies=(12, 0, 0))
    assert fleet.stragglers == ("GPU:0",)
    assert "more output than" in fleet._verdict.why and "copies to and from" in fleet.advice[0].code


def test_devices_whose_clocks_are_off_by_microseconds_meet_all_the_same(tmp_path):
    fleet = fleet_of(tmp_path, SLOW, skews=(0, 4_000_000, -3_000_000))
    assert fleet.stragglers == ("GPU:1",) and len(fleet.steps) >= 3 * (STEPS - 2)  # the last may end after the steps


def test_sends_by_twos_are_no_meeting(tmp_path):
    """Stages of a pipeline wait for their neighbour, not for all: no verdict, and it is said."""
    fleet = fleet_of(tmp_path, SLOW, nccl="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    assert not fleet.has_met and fleet.stragglers == ()
    assert "straggler" not in {one.rule for one in profnb.load(tmp_path / "one.xplane.pb").advice}


@pytest.mark.parametrize(("calls", "meets"), [(("nccl:all_to_all",), True), (("nccl:all_to_all", "nccl:send"), False), (("nccl:recv",), False)])
def test_sends_by_twos_of_an_all_to_all_are_a_meeting(tmp_path, calls, meets):
    """NCCL has one kernel for both; what PyTorch called tells, where nothing stands beside the kernels."""
    more = line("thread", *(event(name, 11 * MS, MS) for name in calls), line_id=5)
    file = tmp_path / "one.xplane.pb"
    file.write_bytes(devices_of(SLOW, nccl="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", more=(more,)))
    assert profnb.load_fleet(file).stragglers == (("GPU:1",) if meets else ())


def test_an_exchange_that_lets_the_root_go_early_is_left_out(tmp_path):
    """GPU 0 leaves a broadcast before GPU 1 comes: nobody waits for all, so it joins nothing."""
    fleet = fleet_of(tmp_path, [[10] * STEPS, [40] * STEPS], nccl="ncclDevKernel_Broadcast", rooted=True)
    assert not fleet.has_met and any("ran at different times" in note for note in fleet.notes)


@pytest.mark.parametrize("slower", [14, 30])
def test_groups_that_exchange_apart_wait_for_nobody_of_the_other(tmp_path, slower):
    """Two meshes of two GPUs in one program: their kernels have the same names, and nothing tells the groups."""
    works = [[10] * STEPS, [10] * STEPS, [slower] * STEPS, [slower] * STEPS]
    fleet = fleet_of(tmp_path, works, groups=(0, 0, 1, 1))
    assert fleet.stragglers == () and any("ran at different times" in note for note in fleet.notes)
    assert "straggler" not in {one.rule for one in profnb.load(tmp_path / "one.xplane.pb").advice}


def test_what_only_starts_a_collective_is_no_meeting(tmp_path):
    fleet = fleet_of(tmp_path, SLOW, nccl="all-reduce-start.3")
    assert not fleet.has_met
    assert fleet_of(tmp_path, SLOW, nccl="all-reduce-done.3").stragglers == ("GPU:1",)


def test_devices_without_collectives_cannot_tell_and_it_is_said(tmp_path):
    fleet = fleet_of(tmp_path, SLOW, nccl="another_kernel")
    assert "1 host: the straggler is not known" in fleet.verdict
    assert any("3 devices of this trace worked, but fewer than two took part in collectives" in note for note in fleet.notes)


def test_a_few_steps_are_too_few(tmp_path):
    fleet = fleet_of(tmp_path, [row[:5] for row in SLOW])
    assert fleet.stragglers == () and "too few" in fleet.verdict
    assert told_by(tmp_path, [row[:5] for row in SLOW]).keys() >= {"exposed-collectives"}


def test_a_profile_is_a_fleet_of_its_devices_and_a_path_of_one_trace_stays_a_profile(tmp_path):
    file = tmp_path / "one.xplane.pb"
    file.write_bytes(devices_of(SLOW))
    profile = profnb.load(file)
    fleet = profnb.load_fleet(profile)
    assert fleet.stragglers == ("GPU:1",) and fleet["GPU:0"] is profile
    assert repr(fleet) == "<Fleet of 3 devices>"
    with pytest.raises(KeyError, match="No device 'GPU:9'; there are: GPU:0, GPU:1, GPU:2"):
        fleet["GPU:9"]
    assert find_fleet(file) is None


def test_a_report_of_devices_speaks_of_devices(tmp_path, capsys):
    fleet = fleet_of(tmp_path, SLOW)
    page = fleet.to_html(tmp_path / "page.html").read_text("utf-8")
    text = fleet.summary()
    assert not re.search(r"\bhosts?\b(?! compute)", text)
    assert "Devices" in page and "Clocks" not in page
    fleet.timeline()
    assert "A line per device" in capsys.readouterr().out
    assert json.loads(fleet.to_json())["stragglers"] == ["GPU:1"]


def kineto_of_two_gpus(works):
    """A Kineto trace of one process that drives two GPUs (torch.nn.DataParallel's kind)."""
    events, at, number = [], 10.0, 0

    def add(cat, name, first, last, pid, tid, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": 1e9 + first * 1e3, "dur": (last - first) * 1e3, "args": args})

    for step in range(len(works[0])):
        reached = [at + 1 + own[step] for own in works]
        end = max(reached) + EXCHANGE
        add("user_annotation", f"ProfilerStep#{step}", at, end, 100, 100)
        for one in range(2):
            for name, first, last, stream in (("gemm", at + 1, reached[one], 7), ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", reached[one], end, 9)):
                number += 1
                add("cuda_runtime", "cudaLaunchKernel", at + 0.1 * (number % 4), at + 0.1 * (number % 4) + 0.05, 100, 100, correlation=number)
                add("kernel", name, first, last, one, stream, device=one, stream=stream, correlation=number)
        add("cuda_runtime", "cudaDeviceSynchronize", at + 0.7, end, 100, 100, correlation=10_000 + step)
        at = end + 2
    labels = [{"ph": "M", "name": "process_labels", "pid": one, "tid": 0, "ts": 0, "args": {"labels": f"GPU {one}"}} for one in range(2)]
    told = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}, {"id": 1, "name": "H100"}], "traceEvents": labels + events}
    return gzip.compress(json.dumps(told).encode())


def test_gpus_of_one_pytorch_process_are_a_fleet(tmp_path):
    file = tmp_path / "one.pt.trace.json.gz"
    file.write_bytes(kineto_of_two_gpus(SLOW[:2]))
    fleet = profnb.load_fleet(file)
    assert len(fleet.stragglers) == 1 and fleet.stragglers[0].endswith("1")
    assert fleet.hosts.own_ms.tolist() == pytest.approx([13, 43]) and fleet.hosts.wait_ms.tolist() == pytest.approx([30, 0])
    file.write_bytes(kineto_of_two_gpus(EVEN[:2]))
    assert profnb.load_fleet(file).stragglers == ()


def test_hosts_of_a_run_stay_hosts(tmp_path):
    hosts_of(tmp_path, SLOW)
    assert "3 hosts, 11 common steps" in profnb.load_fleet(tmp_path).verdict
    assert MS  # the unit of both makers
