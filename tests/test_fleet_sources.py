"""Hosts of other programs than TensorFlow's: ranks of PyTorch as Kineto writes them."""

import json

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
    assert fleet.stragglers == ("node_1.pt",)
    assert "29.0 ms a step more device compute than the others' median. By op, gemm is 29.0 ms longer." in fleet.verdict
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
    assert fleet.hosts.host.tolist() == ["node_0.pt", "node_1.pt", "node_2.pt"]
    assert any("this is of 3 of 5 hosts" in note for note in fleet.notes)
    assert any("exchange among themselves" in note for note in fleet.notes)
