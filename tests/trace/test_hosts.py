"""Honest hosts: which files are one capture, whose a trace is, and what is never taken for something else."""

from pathlib import Path

import json
import os
import subprocess
import sys
import textwrap
import types

import pytest

import profnb
from advised import advised
from profnb.capture.profiler.doors import Doors, _publish
from profnb.capture.profiler import tensorflow_door
from profnb.capture.profiler.tensorflow_door import TensorFlowDoor
from profnb.capture.profiler.profiler_door import Rank, bound_by_steps, find_rank
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.profile import Profile
from profnb.subjects.study import Study
from profnb.trace import files
from profnb.subjects.layers.layer_rows import LayerRows
from profnb.trace.files import read_trace
from profnb.trace.runs import find_traces, pick_trace
from profnb.trace.runs import CaptureTime, read_capture_time
from profnb.trace.names import is_host_collective, is_host_transfer
from traces import event, gpu, host, line, plane, read, xspace

MS = 10**9


def one_step(name="train_step"):
    return host(line("python", event(name, 0, 5 * MS, step_num=1, _r=1)))


def test_a_trace_outlives_what_is_done_to_its_file(tmp_path):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    trace = read_trace(file)
    with file.open("r+b") as opened:  # as TensorFlow's writer does: a mapped page would now end the process
        opened.truncate(0)
    assert trace.names.texts == ["train_step"]
    assert trace.stats.integers("step_num").values.tolist() == [1]


def test_a_trace_that_is_rewritten_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    real, calls = files.os.fstat, []

    def rewrites_between(descriptor):
        if calls:
            file.write_bytes(xspace(one_step("another_step")))
        calls.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(files.os, "fstat", rewrites_between)
    with pytest.raises(TraceFormatError, match="changed during reading"):
        read_trace(file)


def test_a_trace_that_is_cut_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    real = files.np.empty

    def cuts_first(*shape):
        file.write_bytes(b"")
        return real(*shape)

    monkeypatch.setattr(files.np, "empty", cuts_first)
    with pytest.raises(TraceFormatError, match="changed during reading"):
        read_trace(file)


def test_a_folder_may_be_a_path_object(tmp_path):
    assert CaptureOptions(logdir=tmp_path).logdir == str(tmp_path)
    with profnb.profile(logdir=Path(tmp_path)) as p:  # TensorFlow is not needed to say what was asked
        pass
    assert p.options.logdir == str(tmp_path)
    with pytest.raises(ValueError, match="local folder"):
        CaptureOptions(logdir="gs://b/logs")


REDUCE = "CollectiveReduceV2:CollectiveReduceV2"


@pytest.mark.parametrize("name", [REDUCE, "a/b:CollectiveGatherV2", "x:CollectiveBcastSendV2", "c:CollectiveAllToAllV2", "all-reduce.1",
                                  "%all-gather-start.3", "Rendezvous", "loss/HorovodAllreduce_x_0:HorovodAllreduce", "nccl:NcclAllReduce",
                                  "CollectiveExecutor::RunClosure", "gloo:all_reduce", "psum.7", "%psum = f32[8]{0} all-reduce(%x)", "all_gather_invariant.2", "ppermute"])
def test_what_waits_for_others_is_told(name):
    assert is_host_collective(name)


@pytest.mark.parametrize("name", ["a:GatherV2", "a:ReduceJoin", "b:BroadcastTo", "reduce.3", "all", "AllReduce", "embedding/collective:MatMul",
                                  "call-reduce", "fusion.1", "sgd/AllToAllish:Mul", "psum_fusion.1", "upsum.1", "jit(f)/psum", "all_gathered"])
def test_what_only_sounds_so_is_not(name):
    assert not is_host_collective(name)


def test_sending_and_receiving_is_told_but_not_feeding():
    assert all(map(is_host_transfer, ("w/read_S3:_Recv", "w_S3:_Send", "RecvTensor(w;...)", "x:_HostRecv")))
    assert not any(map(is_host_transfer, ("_recv_x_0:_Recv", "_send_y_0:_Send", "a/Recv:MatMul", "recv.1")))


def worker(compute_ms=10, exchange_ms=70, eager_ms=6, steps=8, period_ms=100, more_ms=0):
    """A worker as MultiWorkerMirrored's look: in each step an op of 10 ms and an exchange of 70 ms on its own
    thread, behind the step one more of 6 ms that Python asked for."""
    python, pool, more, exchange = [], [], [], []
    for at in range(steps):
        t = at * period_ms * MS
        inside = (compute_ms + exchange_ms) * MS
        python += [event("train_step", t, inside + 2 * MS, _r=1, step_num=at + 1, tf_function_call="notTraced-nonXla"),
                   event("KernelAndDeviceFunc::Run", t + MS, inside + MS), event("FunctionRun", t + MS, MS // 2, _r=1, _pt=2, _p=at + 7),
                   event("EagerLocalExecute: CollectiveReduceV2", t + inside + 4 * MS, eager_ms * MS)]
        pool += [event("ExecutorState::Process", t + MS, compute_ms * MS, _ct=2, _c=at + 7), event("net/dense/MatMul:MatMul", t + MS, compute_ms * MS)]
        if more_ms:  # another op, while the exchange goes on
            more += [event("ExecutorState::Process", t + 40 * MS, more_ms * MS, _ct=2, _c=at + 7), event("net/more:Conv2D", t + 40 * MS, more_ms * MS)]
        exchange += [event(REDUCE, t + (1 + compute_ms) * MS, exchange_ms * MS, instance_key=2 * at, group_key=1),
                     event(REDUCE, t + inside + 4 * MS, eager_ms * MS, instance_key=2 * at + 1, group_key=1)]
    return host(line("python", *python, line_id=1), line("tf_Compute", *pool, line_id=2), line("collective_ops", *exchange, line_id=3), line("tf_Compute", *more, line_id=4))


def test_waiting_for_workers_is_collectives_in_steps_and_between_them():
    p = Profile(read(worker()))
    of = p.study.breakdown
    # 82 ms a step: 1 ms of Python, the op's 10, the exchange's 70, 1 ms of the frame around both.
    assert of.of("device collectives").tolist() == [70 * MS] * 8
    assert of.of("host compute").tolist() == [11 * MS] * 8
    assert of.of("all others").tolist() == [MS] * 8
    assert p.steps.device_collectives_ms.tolist() == [70] * 8  # a column of p.steps without any device
    assert p.steps.device_compute_ms.isna().all()
    assert of.gap_picoseconds[:-1].sum(axis=1).tolist() == [18 * MS] * 7
    assert of.gap_picoseconds[:-1, 2].tolist() == [6 * MS] * 7  # device collectives
    rules = {one.rule: one for one in p.advice}
    assert "idle-cores" not in rules
    assert rules["exposed-collectives"].bound_fraction == pytest.approx(0.76, abs=0.01)
    assert "One trace does not show" in rules["exposed-collectives"].evidence
    assert rules["python-between-steps"].bound_fraction < 0.16


def test_an_exchange_with_the_optimizers_name_is_none_of_its_ops():
    """As MirroredStrategy names it, whose replicas also give no advice to look at other workers' traces."""
    python, ops = [], []
    for at in range(8):
        t = at * 100 * MS
        python.append(event("train_step", t, 90 * MS, _r=1, step_num=at))
        ops += [event("net/dense/MatMul:MatMul", t, 10 * MS), event("sgd/AssignSubVariableOp:AssignSubVariableOp", t + 80 * MS, 2 * MS)]
        ops += [event(f"sgd/CollectiveReduceV2_{one}:CollectiveReduceV2", t + (10 + 30 * one) * MS, 30 * MS, instance_key=1, group_key=1) for one in (0, 1)]
    rules = {one.rule for one in Profile(read(host(line("python", *python, *ops)))).advice}
    assert not rules & {"large-optimizer", "exposed-collectives", "idle-cores"}


def test_an_op_that_computes_meanwhile_is_host_compute():
    of = Profile(read(worker(more_ms=20))).study.breakdown
    assert of.of("device collectives").tolist() == [50 * MS] * 8
    assert of.of("host compute").tolist() == [31 * MS] * 8


def test_sending_and_receiving_is_a_category_of_its_own_on_workers():
    """A TF1 worker of a cluster waits 6 ms of 10 for a parameter server, 1 ms of them while an op computes."""
    python = [event("session_run", at * 12 * MS, 10 * MS, step_num=at, _r=1) for at in range(6)]
    ops = [one for at in range(6) for one in (event("w/read_S1:_Recv", at * 12 * MS, 3 * MS), event("RecvTensor:RecvTensor", (at * 12 + 3) * MS, 3 * MS),
                                              event("MatMul:MatMul", (at * 12 + 5) * MS, 4 * MS))]
    of = Profile(read(host(line("python", *python, *ops)))).study.breakdown
    assert of.of("device to device").tolist() == [5 * MS] * 6
    assert of.of("host compute").tolist() == [4 * MS] * 6
    assert of.of("all others").tolist() == [MS] * 6


def test_an_exchange_is_in_no_layers_time():
    rows = LayerRows([], ["net/dense/MatMul", "net/dense/CollectiveReduceV2"])
    assert rows.place("net/dense/MatMul", "MatMul").row != rows.other("outside the model")
    assert rows.place("net/dense/CollectiveReduceV2", "CollectiveReduceV2").row == rows.other("outside the model")


PACKED = ["StatefulPartitionedCall/sgd/concat_1", "StatefulPartitionedCall/sgd/CollectiveReduceV2_1", "StatefulPartitionedCall/sgd/split_1"]


def test_packing_what_is_exchanged_is_the_exchange():
    """MirroredStrategy packs all gradients under the optimizer's name, so that its graph has them for the first weight."""
    rows = LayerRows([], [*PACKED, "net/join/concat", "net/CollectiveReduceV2x/concat"])
    outside = rows.other("outside the model")
    assert [rows.place(name, kind).row for name, kind in zip(PACKED, ("ConcatV2", "CollectiveReduceV2", "SplitV"), strict=True)] == [outside] * 3
    assert rows.place("StatefulPartitionedCall/sgd/sub", "Sub").row == rows.other("optimizer")
    for own in ("net/join/concat", "net/CollectiveReduceV2x/concat"):  # a layer's own
        assert rows.place(own, "ConcatV2").row not in (outside, rows.other("optimizer"))
    alone = LayerRows([], [PACKED[0]])
    assert alone.place(PACKED[0], "ConcatV2").row == alone.other("optimizer")  # of an optimizer that exchanges nothing


@pytest.mark.parametrize("is_exchange", [True, False])
def test_packing_of_an_exchange_is_no_optimizer(is_exchange):
    """Of 10 ms 2 are the model's and 8 concatenate in the optimizer's scope: only without an exchange they are its own."""
    python, ops = [], []
    for at in range(8):
        t = at * 20 * MS
        python.append(event("train_step", t, 19 * MS, _r=1, step_num=at))
        ops.append(event("net/dense/MatMul:MatMul", t, 2 * MS))
        ops += [event(f"sgd/concat_{one}:ConcatV2", t + (2 + one) * MS, MS) for one in range(8)]
        if is_exchange:
            ops.append(event("sgd/CollectiveReduceV2_1:CollectiveReduceV2", t + 10 * MS, 2 * MS, instance_key=1, group_key=1))
    rules = {one.rule for one in Profile(read(host(line("python", *python), line("ops", *ops)))).advice}
    assert ("large-optimizer" in rules) is not is_exchange


def beside_a_device(busy_ms=1, exchange_ms=0, launches_ms=0):
    """Six steps of 20 ms: a kernel from 1 ms on, the host exchanging from 5 ms on while it prepares, and then launching."""
    python, pool, exchange, kernels = [], [], [], []
    for at in range(6):
        t = at * 20 * MS
        python.append(event("train_step", t, 20 * MS, _r=1, step_num=at))
        pool += [event("ExecutorState::Process", t, 19 * MS), event("cuLaunchKernel", t + MS // 2, MS // 2, correlation_id=at + 1)]
        if exchange_ms:
            exchange.append(event(REDUCE, t + 5 * MS, exchange_ms * MS, instance_key=at, group_key=1))
        if launches_ms:
            pool.append(event("cuLaunchKernel", t + 8 * MS, launches_ms * MS, correlation_id=100 + at))
            kernels.append(event("k2", t + (8 + launches_ms) * MS, MS // 2, correlation_id=100 + at))
        kernels.append(event("k", t + MS, busy_ms * MS, correlation_id=at + 1))
    return read(host(line("python", *python), line("tf_Compute", *pool), line("more", *exchange)), gpu(line("Stream #1", *sorted(kernels, key=str))))


def test_a_device_that_idles_while_the_host_exchanges_waits_for_no_launch():
    """20 ms less 1 ms of kernel: 10 of exchange, 1 of Python at the end, and 8 of preparing."""
    p = Profile(beside_a_device(exchange_ms=10))
    of_idle = p.idle.set_index("cause").total_us
    assert of_idle["host collectives"] == pytest.approx(6 * 10_000)
    assert of_idle["kernel launch"] == pytest.approx(6 * 8_000)
    assert of_idle.sum() == pytest.approx(6 * 19_000)
    shares = {one.category: one.fraction for one in p.study.summary.shares}
    assert shares["device collectives"] == pytest.approx(0.5)  # as the breakdown has it
    rules = {one.rule: one for one in p.advice}
    assert rules["exposed-collectives"].title == "Find the straggler"
    assert "while the device computes nothing" in rules["exposed-collectives"].evidence
    assert "idle-device" not in rules
    assert "mostly host collectives" in p.summary()


def test_launching_goes_on_while_the_host_exchanges():
    """Calls that launch, 3 ms of the exchange's 10, are launching; the kernel behind them hides half a millisecond."""
    of_idle = Profile(beside_a_device(exchange_ms=10, launches_ms=3)).idle.set_index("cause").total_us
    assert of_idle["host collectives"] == pytest.approx(6 * 6_500)
    assert of_idle["kernel launch"] == pytest.approx(6 * 11_000)


def test_a_device_whose_host_exchanges_nothing_has_no_such_cause():
    of_idle = Profile(beside_a_device()).idle.set_index("cause").total_us
    assert of_idle["host collectives"] == 0
    assert of_idle["kernel launch"] == pytest.approx(6 * 18_000)


SECOND = 10**9


def capture(folder, name, begin_s, end_s=None, hostname=None, steps=5):
    """A trace of one host in a run's folder, recorded from one second to another (since 1970)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.xplane.pb"
    stats = {} if end_s is None else {"profile_start_time": int(begin_s * SECOND), "profile_stop_time": int(end_s * SECOND)}
    file.write_bytes(xspace(worker(steps=steps), plane("Task Environment", stats=stats), hostnames=[hostname or name]))
    return file


def test_when_a_file_was_recorded_is_read_without_the_rest(tmp_path):
    file = capture(tmp_path, "a", 1000, 1002)
    assert read_capture_time(file) == CaptureTime(1000 * SECOND, 1002 * SECOND, "a")
    raw = file.read_bytes()
    for cut in range(0, len(raw), 7):  # damaged: nothing is known, nothing raised
        file.write_bytes(raw[:cut])
        assert read_capture_time(file).begin_ns in (0, 1000 * SECOND)
    file.write_bytes(b"{}")
    assert read_capture_time(file) == CaptureTime()


def test_hosts_whose_captures_overlap_are_one_run_whatever_their_folders(tmp_path):
    runs = tmp_path / "plugins" / "profile"
    for at, folder in enumerate(("05", "06", "06_2")):
        capture(runs / folder, f"worker-{at}", 1000 + at, 1010)
    capture(runs / "20", "worker-0", 1020, 1030)  # the next capture of the first host
    capture(runs / "21", "worker-1", 1021, 1031)
    found = [(one.run, one.host) for one in find_traces(tmp_path)]
    assert sorted(found) == [("05", "worker-0"), ("05", "worker-1"), ("05", "worker-2"), ("20", "worker-0"), ("20", "worker-1")]
    assert pick_trace(find_traces(tmp_path), "06", "worker-2").path.parent.name == "06_2"  # by any of its folders
    p = profnb.load(tmp_path, run="05")
    assert p.other_hosts == 2
    assert "The first of 3 hosts was opened, worker-0; host= (--host) opens a different host, profnb.load_fleet all." in p.notes
    assert "The first of 3 hosts" in p.summary()


def test_captures_of_one_host_one_after_the_other_are_runs_of_their_own(tmp_path):
    for at in range(3):
        capture(tmp_path / "same", f"batch{at}", 1000 + 20 * at, 1010 + 20 * at, hostname="vm")
    assert len({one.run for one in find_traces(tmp_path)}) == 3


def test_a_copy_of_a_capture_is_no_other_host(tmp_path):
    for folder in ("one", "two"):
        capture(tmp_path / folder, "vm", 1000, 1010)
    assert [(one.run, one.host) for one in find_traces(tmp_path)] == [("one", "vm"), ("two", "vm")]


def test_two_processes_of_one_machine_are_told_apart(tmp_path):
    capture(tmp_path / "one", "vm", 1000, 1010)
    capture(tmp_path / "two", "vm", 1001, 1011)
    assert [one.host for one in find_traces(tmp_path)] == ["vm (one)", "vm (two)"]


def test_files_that_tell_no_time_are_a_run_by_their_folder(tmp_path):
    for folder in ("one", "two"):
        for name in ("a", "b"):
            capture(tmp_path / folder, name, 0)
    assert sorted((one.run, one.host) for one in find_traces(tmp_path)) == [("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")]


def test_hosts_of_one_capture_are_no_repeated_runs(tmp_path):
    for side, begin in (("a", 1000), ("b", 2000)):
        for at, folder in enumerate(("05", "06")):
            capture(tmp_path / side / folder, f"worker-{at}", begin + at, begin + 10)
    result = profnb.compare(tmp_path / "a", tmp_path / "b")
    assert [len(result.first), len(result.second)] == [1, 1]
    assert sum("captured on several hosts" in one for one in result.guards) == 2
    files = [str(one.path) for one in find_traces(tmp_path / "a")]
    listed = profnb.compare(files, files)  # also where the user lists them
    assert [len(listed.first), len(listed.second)] == [1, 1]
    assert "compared, 1 more not" in " ".join(listed.guards)


def cluster(kind, index, **tasks):
    return {"TF_CONFIG": json.dumps({"cluster": {name: ["h:1"] * count for name, count in tasks.items()}, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize("said, expected", [
    (cluster("worker", 2, worker=4), Rank("2", 4)),
    (cluster("chief", 0, chief=1, worker=2), Rank("0", 3)),
    (cluster("worker", 1, chief=1, worker=2), Rank("2", 3)),
    (cluster("ps", 1, worker=2, ps=2), Rank("ps1", 4, is_collective=False)),
    (cluster("worker", 1, worker=2, ps=2), Rank("1", 4, is_collective=False)),
    (cluster("worker", 0, worker=1), None),
    ({"RANK": "3", "WORLD_SIZE": "8"}, Rank("3", 8)),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, Rank("1", 4)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, Rank("0", 2)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
    ({"RANK": "3"}, None), ({"RANK": "x", "WORLD_SIZE": "8"}, None), ({}, None),
    ({"TF_CONFIG": "{"}, None), ({"TF_CONFIG": "[]"}, None), ({"TF_CONFIG": '{"cluster": 3, "task": {}}'}, None),
    ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "../x", "index": 0}}'}, None),
])  # fmt: skip
def test_which_process_this_is(said, expected):
    assert find_rank(environment=said) == expected
    assert find_rank(7, said) == Rank("7")


def written(logdir, number, host="vm", run="2026_01_01_00_00_00"):
    """What TensorFlow leaves in a capture's own folder."""
    folder = logdir / f".profnb-{number}"
    file = folder / "plugins" / "profile" / run / f"{host}.xplane.pb"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"%d" % number)
    (folder / "events.out").write_bytes(b"")
    return file, folder


def test_workers_of_one_machine_share_a_run_and_never_a_name(tmp_path):
    kept = [_publish(*written(tmp_path, number), tmp_path, Rank(str(number), 2)) for number in (0, 1)]
    assert [one.name for one in kept] == ["vm_0.xplane.pb", "vm_1.xplane.pb"]
    assert len({one.parent for one in kept}) == 1
    assert [one.read_bytes() for one in kept] == [b"0", b"1"]


def test_a_second_capture_of_a_rank_in_one_second_overwrites_nothing(tmp_path):
    kept = [_publish(*written(tmp_path, number), tmp_path, Rank("0", 2)) for number in (0, 1, 2)]
    assert [one.read_bytes() for one in kept] == [b"0", b"1", b"2"]
    assert {one.name for one in kept} == {"vm_0.xplane.pb"}
    alone = [_publish(*written(tmp_path, number), tmp_path, None) for number in (3, 4)]
    assert [one.read_bytes() for one in alone] == [b"3", b"4"]
    assert {one.name for one in alone} == {"vm.xplane.pb"}


def test_another_hosts_trace_in_the_logdir_is_not_taken_for_mine(tmp_path):
    doors = Doors(CaptureOptions(logdir=tmp_path), [])
    mine, folder = written(tmp_path, 1) if doors.make_folder() else (None, None)
    other = tmp_path / "plugins" / "profile" / "2099_01_01_00_00_00" / "worker-2.xplane.pb"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another's")
    os.utime(other, (4e9, 4e9))
    assert doors.tensorflow._find_trace(folder, "").read_bytes() == b"1"
    assert other.read_bytes() == b"another's"


def test_a_process_of_a_job_says_that_it_is_one_and_what_may_happen_before_it_may(tmp_path, monkeypatch, capsys):
    for name, value in cluster("worker", 1, worker=3).items():
        monkeypatch.setenv(name, value)
    messages = []
    door = TensorFlowDoor(CaptureOptions(), messages)
    door._announce()
    door._announce()
    assert "process 1 of 3" in messages[0] and "load_fleet" in messages[0]
    assert "may end a process" in messages[1] and len(messages) == 2
    assert capsys.readouterr().err.count("may end a process") == 1
    monkeypatch.setenv("TF_CONFIG", cluster("worker", 1, worker=3, ps=1)["TF_CONFIG"])
    quiet = []
    TensorFlowDoor(CaptureOptions(), quiet)._announce()
    assert len(quiet) == 2 and capsys.readouterr().err == ""
    assert "functions that run on workers" in quiet[1]
    monkeypatch.delenv("TF_CONFIG")
    TensorFlowDoor(CaptureOptions(), quiet)._announce()
    assert len(quiet) == 2


def test_a_process_among_others_waits_before_its_profiler_stops(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(tensorflow_door.time, "sleep", done.append)

    def stop():
        door = TensorFlowDoor(CaptureOptions(), [])
        door.functions = (None, lambda: done.append("stopped"))
        door.stop(tmp_path)

    stop()
    assert done == ["stopped"]
    for name, value in cluster("worker", 1, worker=3).items():
        monkeypatch.setenv(name, value)
    stop()
    assert done == ["stopped", 0.5, "stopped"]
    monkeypatch.setenv("TF_CONFIG", cluster("worker", 1, worker=3, ps=1)["TF_CONFIG"])  # exchanges nothing with all
    stop()
    assert done == ["stopped", 0.5, "stopped", "stopped"]


def test_another_frameworks_profiler_tells_of_others_and_of_no_crash(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    messages = []
    doors = Doors(CaptureOptions(), messages)
    monkeypatch.setattr(doors.torch, "start", lambda folder: None)
    doors.start(doors.torch, "")
    assert len(messages) == 1 and "process 1 of 4" in messages[0]
    doors.tensorflow._announce()  # which starts later, and may do harm
    assert len(messages) == 2 and "may end a process" in capsys.readouterr().err


class _Jobs:
    """What jax and torch know of their job where the program itself gave the number."""

    class State:
        process_id, num_processes = 2, 3

    class Unset:
        process_id = num_processes = None


@pytest.mark.parametrize("module, names, expected", [
    ("jax._src.distributed", {"global_state": _Jobs.State}, Rank("2", 3)),
    ("jax._src.distributed", {"global_state": _Jobs.Unset}, None),
    ("torch.distributed", {"is_initialized": lambda: True, "get_rank": lambda: 1, "get_world_size": lambda: 2}, Rank("1", 2)),
    ("torch.distributed", {"is_initialized": lambda: True, "get_rank": lambda: 0, "get_world_size": lambda: 1}, None),
    ("torch.distributed", {"is_initialized": lambda: False}, None), ("torch.distributed", {}, None),
])  # fmt: skip
def test_which_process_this_is_by_its_framework(monkeypatch, module, names, expected):
    monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**names))
    assert find_rank(environment={}) == expected
    assert find_rank(environment={"RANK": "0", "WORLD_SIZE": "5"}) == Rank("0", 5)  # the launcher's word counts


def test_ranks_trace_the_same_steps_unless_seconds_were_asked_for(monkeypatch):
    assert bound_by_steps(CaptureOptions()).max_seconds == 20
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert bound_by_steps(CaptureOptions()).max_seconds == 120
    assert bound_by_steps(CaptureOptions(max_seconds=5)).max_seconds == 5


RANKED = """
    import sys
    import tensorflow as tf
    import profnb
    @tf.function
    def train_step(x):
        return tf.reduce_sum(x @ x)
    train_step(tf.ones((8, 8)))
    sys.stdin.readline()
    with profnb.profile(logdir=sys.argv[1]) as p:
        for _ in range(5 + int(sys.argv[2])):
            train_step(tf.ones((8, 8)))
    print(p.recording.path, len(p.steps), p.recording.path.exists(), flush=True)
"""


@pytest.mark.tensorflow
@pytest.mark.long
def test_two_processes_of_one_machine_keep_their_own_traces(tmp_path):
    code = textwrap.dedent(RANKED)
    jobs = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
        for rank in (0, 1)
    ]  # fmt: skip
    told = [job.communicate("\n", timeout=300)[0].split() for job in jobs]
    assert [Path(path).name.endswith(f"_{rank}.xplane.pb") for rank, (path, *_) in enumerate(told)] == [True, True]
    assert [rest for _, *rest in told] == [["5", "True"], ["6", "True"]]
    assert len(find_traces(tmp_path)) == 2
    assert [len(profnb.load(path).steps) for path, *_ in told] == [5, 6]


def replicas(count):
    """Six calls of a JAX program that a CPU runs for some devices at once, each of which waits for the last in psum."""
    calls, threads = [], [[] for _ in range(count)]
    for step in range(6):
        at = step * 20 * MS
        calls += [event("train", at, 19 * MS, step_num=step, _r=1), event("PjitFunction(f)", at, 18 * MS)]
        for one, own in enumerate(threads):
            stats = {"hlo_module": "jit_f", "run_id": step - 3, "device_ordinal": one}
            own += [event("dot.1", at + MS, (2 + one) * MS, **stats), event("psum.7", at + (3 + one) * MS, (12 - one) * MS, **stats)]
    return read(host(line("python", *calls), *(line("pool", *own, line_id=2 + one) for one, own in enumerate(threads))))


def test_devices_of_one_cpu_are_replicas_and_no_workers():
    """jax.pmap on four CPU devices: one process, whose steps are its calls', however many programs each runs."""
    study = Study(replicas(4))
    assert study.steps.duration_ps.tolist() == [19 * MS] * 6 and study.steps.steps_ahead == 0
    assert study.summary.shares[0].category == "device collectives"
    assert "exposed-collectives" not in advised(study)
    alone = Study(replicas(1))  # one of several processes: its peers have traces of their own
    assert "exposed-collectives" in advised(alone)
