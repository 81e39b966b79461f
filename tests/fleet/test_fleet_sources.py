"""Hosts of other programs than TensorFlow's: ranks of PyTorch as Kineto writes them."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

import profnb

STEPS, EXCHANGE = 12, 5


def times_of(works):
    """When each rank begins and arrives in each step, and when all leave: shapes (H, S), (H, S), (S,); in ms."""
    at, begin, arrive, leave = 10, [], [], []
    for step in range(len(works[0])):
        begin.append(at)
        arrive.append([at + 1 + work[step] for work in works])
        leave.append(max(arrive[-1]) + EXCHANGE)
        at = leave[-1] + 2
    return begin, list(zip(*arrive, strict=True)), leave


def kineto_ranks(folder, works, *, numbers=True, groups=None, shifts=()):
    """A Kineto trace per rank of data-parallel training: kernels, then one all-reduce that waits for the slowest rank."""
    begin, arrive, leave = times_of(works)
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(len(works)):
        shift = (shifts[rank] if shifts else 0) * 1e6
        events = []

        def add(cat, name, first, last, pid, tid, **args):
            events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": 1e9 + shift + first * 1e3, "dur": (last - first) * 1e3, "args": args})

        for step, start in enumerate(begin):
            end, reached = leave[step] + 1, arrive[rank][step]
            name = f"ProfilerStep#{step + 5}" if numbers else "train"
            add("user_annotation", name, start, end, 100, 100)
            for at, (kernel, first, last, more) in enumerate((
                ("gemm", start + 1, reached, {}),
                ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", reached, leave[step],
                 {"Collective name": "allreduce", "Process Group Ranks": str(groups[rank] if groups else list(range(len(works)))), "Group size": len(works)}),
            )):  # fmt: skip
                number = 10 * step + at + 1
                add("cpu_op", "aten::linear" if not at else "c10d::allreduce_", start + 0.2 + 0.2 * at, start + 0.35 + 0.2 * at, 100, 100, **{"External id": number})
                add("cuda_runtime", "cudaLaunchKernel", start + 0.25 + 0.2 * at, start + 0.3 + 0.2 * at, 100, 100, correlation=number, **{"External id": number})
                add("kernel", kernel, first, last, 0, 7, device=0, stream=7, correlation=number, **{"External id": number}, **more)
            add("cuda_runtime", "cudaDeviceSynchronize", start + 0.7, end, 100, 100, correlation=10 * step + 9)
        meta = [{"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "python"}}, {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}]
        file = folder / f"node_{rank}.pt.trace.json"
        file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100", "numSms": 132}], "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(works)}, "traceEvents": meta + events}))
        files.append(file)
    return files


EVEN = [[10] * STEPS for _ in range(3)]
SLOW = [[10] * STEPS, [40] * STEPS, [12] * STEPS]


def test_ranks_of_pytorch_are_a_fleet_by_their_steps(tmp_path):
    """A step is 1 ms until the kernel, the kernel, 5 ms of exchange and 2 ms until the next one."""
    fleet = profnb.load_fleet(kineto_ranks(tmp_path, SLOW))
    means = fleet.hosts
    assert means.own_ms.tolist() == pytest.approx([13, 43, 15])
    assert means.wait_ms.tolist() == pytest.approx([30, 0, 28])
    assert means.exchange_ms.tolist() == pytest.approx([5, 5, 5])
    assert fleet.stragglers == ("node_1",)
    assert "29.0 ms a step more device compute than the median elsewhere. By op, aten::linear is 29.0 ms longer." in fleet.verdict
    assert profnb.load_fleet(kineto_ranks(tmp_path / "even", EVEN)).stragglers == ()


def test_clocks_of_ranks_do_not_count(tmp_path):
    own = profnb.load_fleet(kineto_ranks(tmp_path, SLOW))
    shifted = profnb.load_fleet(kineto_ranks(tmp_path / "shifted", SLOW, shifts=(0, 3, -7)))
    assert shifted.stragglers == own.stragglers
    assert shifted.hosts.own_ms.tolist() == pytest.approx(own.hosts.own_ms.tolist())


def test_ranks_of_two_process_groups_are_two_fleets(tmp_path):
    """Their kernels have the same names and their steps the same numbers: only the groups tell them apart."""
    files = kineto_ranks(tmp_path, [*SLOW, *EVEN[:2]], groups=([0, 1, 2],) * 3 + ([3, 4],) * 2)
    fleet = profnb.load_fleet(files)
    assert fleet.hosts.host.tolist() == ["node_0", "node_1", "node_2"]
    assert any("this covers 3 of 5 hosts" in note for note in fleet.notes)
    assert any("exchange among themselves" in note for note in fleet.notes)


def gloo_ranks(folder, works, *, groups=None, name="worker"):
    """A Kineto trace per rank as PyTorch writes them on CPUs: the exchange is an annotation on a backend's thread."""
    begin, arrive, leave = times_of(works)
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(len(works)):
        events = []

        def add(cat, event, first, last, tid=100):
            events.append({"ph": "X", "cat": cat, "name": event, "pid": 100, "tid": tid, "ts": 1e9 + first * 1e3, "dur": (last - first) * 1e3, "args": {"External id": len(events)}})

        for step, start in enumerate(begin):
            reached = arrive[rank][step]
            add("user_annotation", f"ProfilerStep#{step + 5}", start, leave[step] + 1)
            add("cpu_op", "aten::mm", start + 1, reached)
            add("user_annotation", "gloo:all_reduce", reached, leave[step], tid=200 + step % 2)
            add("cpu_op", "aten::copy_", reached + 1, reached + 2)  # computes while the exchange goes on
        config = [{"pg_name": str(at), "pg_size": len(ranks), "ranks": ranks} for at, ranks in enumerate(groups or [list(range(len(works)))])]
        file = folder / f"{name}{rank}.1600000000000.pt.trace.json"
        info = {"backend": "gloo", "rank": len(works) - 1 - rank, "world_size": len(works), "pg_config": config}
        file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "distributedInfo": info, "traceEvents": events}))
        files.append(file)
    return files


def test_ranks_of_pytorch_on_cpus_are_a_fleet(tmp_path):
    """Their own rank in distributedInfo counts, which here is the other way round than the files' names."""
    fleet = profnb.load_fleet(gloo_ranks(tmp_path, SLOW))
    assert fleet.hosts["rank"].tolist() == [0, 1, 2]
    assert fleet.hosts.host.tolist() == ["worker2.1600000000000", "worker1.1600000000000", "worker0.1600000000000"]
    # From one exchange's end to the next's begin: 2 ms until the step, 1 in it, and the work; the copy inside is work too.
    assert fleet.hosts.own_ms.tolist() == pytest.approx([15, 43, 13])
    assert (fleet.hosts.own_ms + fleet.hosts.wait_ms + fleet.hosts.exchange_ms).tolist() == pytest.approx([48, 48, 48])
    assert fleet.stragglers == ("worker1.1600000000000",)
    assert profnb.load_fleet(gloo_ranks(tmp_path / "even", EVEN)).stragglers == ()


def test_a_wait_for_other_ranks_is_collectives_where_no_op_computes(tmp_path):
    of = profnb.load(gloo_ranks(tmp_path, SLOW)[0]).study.breakdown
    assert (of.of("device collectives") / 1e9).tolist() == pytest.approx([34] * STEPS)  # 30 ms of waiting and 5 of exchange, less the copy
    assert (of.of("host compute") / 1e9).tolist() == pytest.approx([11] * STEPS)


def test_collectives_of_several_groups_that_do_not_say_which_are_matched_with_nobodys(tmp_path):
    same = [[0, 1, 2], [2, 1, 0], [0, 1, 2]]
    assert profnb.load_fleet(gloo_ranks(tmp_path / "alike", SLOW, groups=same[::2])).stragglers  # two groups of the same ranks
    fleet = profnb.load_fleet(gloo_ranks(tmp_path / "other", SLOW, groups=[[0, 1, 2], [0, 1]]))
    assert not fleet.has_met
    assert any("do not name the group" in note for note in fleet.notes)


@pytest.mark.parametrize("told", [3, None, [], {"rank": "0"}, {"rank": -1, "pg_config": 7}, {"rank": True, "pg_config": [7, {"ranks": "x"}, {"ranks": [1]}]}, {"rank": 10**9}])
def test_what_a_job_says_of_itself_may_be_anything(tmp_path, told):
    file = gloo_ranks(tmp_path, SLOW)[0]
    file.write_text(json.dumps({**json.loads(file.read_text()), "distributedInfo": told}))
    trace = profnb.load(file).trace
    assert (trace.rank in (-1, 1), trace.process_groups) == (True, 0)

RANKS = Path(__file__).parents[1] / "data" / "ranks"


@pytest.fixture(params=["torch", "jax"])
def recorded_ranks(request, tmp_path):
    """Two ranks as tests/data/record_ranks.py recorded them: the second sleeps 50 ms a step, in Python before the exchange."""
    if request.param == "torch":
        return sorted(RANKS.glob("torch_*"))
    for file in RANKS.glob("jax_*"):
        (tmp_path / file.name.removesuffix(".xz")).write_bytes(lzma.decompress(file.read_bytes()))
    return sorted(tmp_path.glob("jax_*"))


def test_recorded_ranks_are_a_fleet(recorded_ranks):
    fleet = profnb.load_fleet(recorded_ranks)
    assert fleet.hosts["rank"].tolist() == [0, 1]
    assert [one.partition(".")[0][-2:] for one in fleet.hosts.host] == ["_0", "_1"]
    assert fleet.stragglers == (fleet.hosts.host[1],)
    assert 45 < fleet.hosts.caused_ms[1] < 70  # 50 and what a sleep takes longer on a machine with two cores
    assert fleet.hosts.caused_ms[0] < 5
    assert "a step more Python inside the step" in fleet.verdict
    assert len(fleet.steps) == 2 * 11
    sums = fleet.hosts.own_ms + fleet.hosts.wait_ms + fleet.hosts.exchange_ms
    assert sums.tolist() == pytest.approx(fleet.hosts.step_ms.tolist())


def test_the_waiting_of_a_recorded_rank_is_no_ops_and_no_layers(recorded_ranks):
    p = profnb.load(recorded_ranks[0])
    assert p.study.summary.shares[0].category == "device collectives"
    assert p.study.summary.shares[0].fraction > 0.7
    rows = p.ops[~p.ops.op_name.str.contains("all-reduce") & ~p.ops.op_type.str.contains("allreduce")]
    assert rows.self_us.sum() / 1e3 < 12 * 15  # of 12 steps of 50 ms and more
    rules = {one.rule for one in p.advice}
    assert "exposed-collectives" in rules and "idle-cores" not in rules


def test_kernels_of_nccl_as_recorded_wait_as_long_as_a_rank_comes_late(shared_traces, tmp_path):
    """A rank's trace as PyTorch wrote it, all-reduces and all-to-alls, and again with each exchange begun 3 ms later."""
    told = json.loads(gzip.decompress((shared_traces / "kineto" / "control.json.gz").read_bytes()))
    kernels = [one for one in told["traceEvents"] if one.get("cat", "").lower() == "kernel" and one["name"].startswith("nccl")]
    kernels.sort(key=lambda one: one["ts"])
    late_us = [min(3000, one["dur"] - 1) for one in kernels]
    files = [tmp_path / f"node_{rank}.pt.trace.json" for rank in range(2)]
    files[0].write_text(json.dumps({**told, "distributedInfo": {"rank": 0}}))
    for one, late in zip(kernels, late_us, strict=True):
        one["ts"], one["dur"] = one["ts"] + late, one["dur"] - late
    files[1].write_text(json.dumps({**told, "distributedInfo": {"rank": 1}}))
    fleet = profnb.load_fleet(files)
    waits = fleet.collectives[fleet.collectives.host == "node_0"].wait_ms
    assert len(waits) == 59 and waits.tolist() == pytest.approx([late / 1e3 for late in late_us[1:]], abs=1e-3)
    assert fleet.collectives[fleet.collectives.host == "node_1"].wait_ms.max() == 0
    # Its compute stays where it was, and most of what it waits beside that: a step would hardly be shorter.
    assert fleet.stragglers == () and "while they compute" in fleet.verdict
    assert (fleet.hosts.low_ms > 0).tolist() == [False, True]
    merged = fleet._merged
    assert (merged.own_ps + merged.wait_ps + merged.exchange_ps == merged.step_ps).all()
    files[1].write_text(files[0].read_text())
    assert profnb.load_fleet(files).stragglers == ()  # the same rank twice


def test_ranks_beyond_the_highest_are_missed_where_a_trace_tells_how_many_there_are(tmp_path):
    *kept, last = kineto_ranks(tmp_path, [[10] * STEPS for _ in range(4)])
    assert not any("no trace of rank" in note for note in profnb.load_fleet(tmp_path).notes)
    last.unlink()
    assert any("no trace of rank 3:" in note for note in profnb.load_fleet(tmp_path).notes)
    for file in kept:  # a number that cannot be is no number
        file.write_text(file.read_text().replace('"world_size": 4', '"world_size": -4'))
    assert not any("no trace of rank" in note for note in profnb.load_fleet(tmp_path).notes)
