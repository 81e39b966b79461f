"""Idle time of the busiest device: each instant to one cause, the causes to the whole, by hand and on real traces."""

import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.study import Study
from profnb.trace.files import read_trace

MS = 10**9


def idle_of(trace):
    table = Study(trace).device.idle
    rows = zip(IDLE_CAUSES, table.occurrences.tolist(), table.total_ps.tolist(), table.longest_ps.tolist(), strict=True)
    return table, {cause: (n, total / MS, longest / MS) for cause, n, total, longest in rows if n}


def test_each_instant_goes_to_what_the_host_did_then():
    train = [event("train", 0, 30 * MS, step_num=0, _r=1), event("train", 35 * MS, 10 * MS, step_num=1, _r=1)]
    trace = read(
        host(
            line("python", *train),
            line("executor",
                event("IteratorGetNext:IteratorGetNext", 0, 4 * MS),       # 0-4 waiting for input
                event("dense/MatMul:MatMul", 4 * MS, 3 * MS),              # 4-6 launching; 6-7 the kernel runs
                event("cuStreamSynchronize", 12 * MS, 4 * MS),             # 12-14 the copy runs, 14-16 waits
                event("XlaCompile", 20 * MS, 5 * MS),                      # 20-25 compiling, hides the wait below
                event("IteratorGetNextOp::DoCompute", 22 * MS, 6 * MS),    # 25-28 waiting for input
                event("a/Relu:Relu", 40 * MS, 2 * MS)),                    # 40-42 launching
        ),
        gpu(line("Stream #1", event("gemm", 6 * MS, 6 * MS), event("MemcpyD2H", 12 * MS, 2 * MS), event("relu", 42 * MS, 2 * MS))),
    )  # fmt: skip
    table, causes = idle_of(trace)
    assert (table.device, table.window_ps, table.busy_ps) == ("/device:GPU:0", 45 * MS, 10 * MS)
    assert causes == {
        "waiting for input": (2, 7, 4),
        "kernel launch": (2, 4, 2),
        "synchronising copy": (1, 2, 2),
        "compiling": (1, 5, 5),
        "Python between steps": (1, 5, 5),
        "Python in the step": (4, 12, 5),  # 16-20, 28-30, 35-40, 44-45
    }


def test_the_device_with_the_most_work_is_looked_at():
    steps = line("python", event("train", 0, 10 * MS, step_num=0, _r=1))
    trace = read(host(steps), gpu(line("Stream #1", event("k", 0, MS))), gpu(line("Stream #1", event("k", 0, 2 * MS)), number=1))
    table, causes = idle_of(trace)
    assert table.device == "/device:GPU:1"
    assert causes == {"Python in the step": (1, 8, 8)}


def test_a_step_marker_explains_no_idle_time_whatever_it_is_called():
    """A marker that reads like an op is still the step, not something that launches."""
    steps = [event("train:Step", 0, 10 * MS, step_num=0, _r=1), event("train:Step", 15 * MS, 10 * MS, step_num=1, _r=1)]
    trace = read(host(line("python", *steps, event("a/Relu:Relu", 2 * MS, 3 * MS))), gpu(line("Stream #1", event("k", 20 * MS, 5 * MS))))
    _, causes = idle_of(trace)
    assert causes == {"kernel launch": (1, 3, 3), "Python between steps": (1, 5, 5), "Python in the step": (3, 12, 5)}  # 0-2, 5-10, 15-20


def test_an_iterator_of_tf_data_is_no_op_that_launches():
    steps = line("python", event("train", 0, 10 * MS, step_num=0, _r=1))
    pipeline = line("tf_data", event("Iterator::Root::Map", 1 * MS, 4 * MS), event("IteratorToString:IteratorToString", 6 * MS, 1 * MS))
    _, causes = idle_of(read(host(steps, pipeline), gpu(line("Stream #1", event("k", 9 * MS, 1 * MS)))))
    assert causes == {"Python in the step": (1, 9, 9)}


def test_steps_that_take_no_time_have_no_table():
    trace = read(host(line("p", event("train", 5, 0, step_num=0, _r=1))), gpu(line("Stream #1", event("k", 0, 9))))
    assert Study(trace).device.idle is None


def test_without_a_device_there_is_no_table():
    assert Study(read(host(line("p", event("train", 0, 9, step_num=0, _r=1))))).device.idle is None


@pytest.mark.parametrize("path", every_shared_trace())
def test_busy_and_idle_add_up_to_the_window_exactly(path):
    trace = read_trace(path)
    table = Study(trace).device.idle
    if table is not None:
        assert table.busy_ps + table.total_ps.sum() == table.window_ps
        assert (table.longest_ps <= table.total_ps).all()
