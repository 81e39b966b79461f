"""Honest hosts: which files are one capture, whose a trace is, and what is never taken for something else."""

from pathlib import Path

import pytest

import profnb
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.profile import Profile
from profnb.trace import files
from profnb.subjects.layers.layer_rows import LayerRows
from profnb.trace.files import read_trace
from profnb.trace.names import is_host_collective, is_host_transfer
from tests.traces import event, host, line, read, xspace

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
    with pytest.raises(TraceFormatError, match="changed while it was read"):
        read_trace(file)


def test_a_trace_that_is_cut_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    real = files.np.empty

    def cuts_first(*shape):
        file.write_bytes(b"")
        return real(*shape)

    monkeypatch.setattr(files.np, "empty", cuts_first)
    with pytest.raises(TraceFormatError, match="changed while it was read"):
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
                                  "CollectiveExecutor::RunClosure", "gloo:all_reduce"])
def test_what_waits_for_others_is_told(name):
    assert is_host_collective(name)


@pytest.mark.parametrize("name", ["a:GatherV2", "a:ReduceJoin", "b:BroadcastTo", "reduce.3", "all", "AllReduce", "embedding/collective:MatMul",
                                  "call-reduce", "fusion.1", "sgd/AllToAllish:Mul"])
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
    assert of.gap_picoseconds[:-1].sum(axis=1).tolist() == [18 * MS] * 7
    assert of.gap_picoseconds[:-1, 2].tolist() == [6 * MS] * 7  # device collectives
    rules = {one.rule: one for one in p.advice}
    assert "idle-cores" not in rules
    assert rules["exposed-collectives"].bound_fraction == pytest.approx(0.76, abs=0.01)
    assert "One trace does not tell" in rules["exposed-collectives"].evidence
    assert rules["python-between-steps"].bound_fraction < 0.16


def test_an_op_that_computes_meanwhile_is_host_compute():
    of = Profile(read(worker(more_ms=20))).study.breakdown
    assert of.of("device collectives").tolist() == [50 * MS] * 8
    assert of.of("host compute").tolist() == [31 * MS] * 8


def test_an_exchange_is_in_no_layers_time():
    rows = LayerRows([], ["net/dense/MatMul", "net/dense/CollectiveReduceV2"])
    assert rows.place("net/dense/MatMul", "MatMul").row != rows.other("outside the model")
    assert rows.place("net/dense/CollectiveReduceV2", "CollectiveReduceV2").row == rows.other("outside the model")
