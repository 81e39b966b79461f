"""Idle time of the busiest device: each instant to one cause, the causes to the whole, by hand and on real traces."""

import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

from profnb.subjects.device.idle import IDLE, IDLE_CAUSES, UTILIZATION
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
                event("a/Relu:Relu", 40 * MS, 2 * MS),                     # 40-42 launching
                event("XlaCompile", 42 * MS, MS)),                         # behind a kernel; makes this a warm-up step too
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


def test_what_is_aside_and_warm_up_is_left_out_as_in_the_headline():
    """Six steps of 10 ms with 4 of work, gaps of 10; the second takes 200 ms, the first compiles."""
    begins = [0, 20, 240, 260, 280, 300, 320]
    durations = [10, 200, 10, 10, 10, 10, 10]
    steps = [event("train", at * MS, size * MS, step_num=n, _r=1) for n, (at, size) in enumerate(zip(begins, durations, strict=True))]
    kernels = [event("k", at * MS, 4 * MS) for at in begins]
    study = Study(read(host(line("python", *steps), line("c", event("XlaCompile", 5 * MS, MS))), gpu(line("Stream #1", *kernels))))
    assert study.summary.counted.tolist() == [2, 3, 4, 5, 6]
    assert study.summary.aside.tolist() == [1]
    table, causes = idle_of(study.trace)
    assert causes == {"Python in the step": (5, 30, 6), "Python between steps": (4, 40, 10)}
    assert (table.window_ps, table.aside_ps) == (90 * MS, 240 * MS)
    assert table.bins_ps.sum() == 330 * MS  # the picture over time has everything
    shares = {share.category: share.fraction for share in study.summary.shares}
    assert shares["between steps"] == pytest.approx(40 / 90)


def test_work_that_is_not_the_steps_explains_no_idle_time():
    """A thread that makes batches ahead computes while the device idles: nobody waits for it."""
    steps = [event("train", 0, 10 * MS, step_num=0, _r=1, _pt=1, _p=7)]
    ahead = line("tf_data", event("GatherV2:GatherV2", MS, 8 * MS))
    linked = line("executor", event("ExecutorState::Process", 5 * MS, 2 * MS, _ct=1, _c=7))
    launch = event("cuLaunchKernel", 9 * MS, MS // 10, correlation_id=1)
    trace = read(host(line("python", *steps, launch), ahead, linked), gpu(line("Stream #1", event("k", 9 * MS, MS, correlation_id=1))))
    _, causes = idle_of(trace)
    assert causes == {"kernel launch": (1, 2, 2), "Python in the step": (2, 7, 5)}


@pytest.mark.parametrize("name", ["$api.py:2551 block_until_ready", "BufferSequencingEvent::Execute", "np.asarray(jax.Array)"])
def test_jax_waiting_for_a_result_of_a_device_that_has_nothing_to_do_is_output(name):
    """Two calls of 1 ms with 1 ms of work; for 8 of the 10 ms between them the host waits."""
    calls = [part for at in (0, 12) for part in (
        event("PjitFunction(f)", at * MS, MS), event("cuLaunchKernel", at * MS, MS // 2, correlation_id=at + 1), event(name, (at + 1) * MS, 9 * MS))]  # fmt: skip
    kernels = [event("gemm", (at + 1) * MS, MS, correlation_id=at + 1) for at in (0, 12)]
    study = Study(read(host(line("python", *calls)), gpu(line("Stream #1", *kernels))))
    assert {s.category for s in study.summary.shares[:1]} == {"output"}
    _, causes = idle_of(study.trace)
    assert causes["synchronising copy"] == (1, 8, 8)
    assert causes["Python between steps"] == (1, 2, 2)


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


@pytest.mark.parametrize("unit", [1, MS])
def test_what_the_device_did_over_time_is_a_table_of_shares_in_plain_columns(unit):
    """96 pieces of a step: a kernel in the first 24, a copy in the next 24, then nothing."""
    work = line("Stream #1", event("k", 0, 24 * unit), event("MemcpyD2H", 24 * unit, 24 * unit))
    study = Study(read(host(line("python", event("train", 0, 96 * unit, step_num=0, _r=1))), gpu(work)))
    frame = UTILIZATION.frame(study.device.idle)
    shares = frame.drop(columns="begin_ms")
    assert list(shares)[:4] == ["compute_fraction", "collectives_fraction", "copies_fraction", "compiling_fraction"]
    assert (shares.sum(axis=1) == 1).all()
    assert (shares > 0).sum()[lambda count: count > 0].to_dict() == {"compute_fraction": 24, "copies_fraction": 24, "python_in_the_step_fraction": 48}


def test_pieces_begin_and_end_with_the_window_to_the_picosecond_hours_into_a_recording():
    """A float has no odd picosecond after two and a half hours."""
    begin, size = (1 << 53) + 1, 96_000_000_001
    steps = line("python", event("train", begin, size, step_num=0, _r=1))
    table, _ = idle_of(read(host(steps), gpu(line("Stream #1", event("k", begin, size)))))
    assert (table.bin_begin_ps[0], table.bins_ps.sum()) == (begin, size)


@pytest.mark.filterwarnings("error")
def test_a_device_that_is_never_idle_has_no_shares_of_its_idle_time():
    trace = read(host(line("python", event("train", 0, 9, step_num=0, _r=1))), gpu(line("Stream #1", event("k", 0, 9))))
    frame = IDLE.frame(Study(trace).device.idle)
    assert frame.idle_fraction.isna().all() and not frame.window_fraction.any()


def test_steps_that_take_no_time_have_no_table():
    trace = read(host(line("p", event("train", 5, 0, step_num=0, _r=1))), gpu(line("Stream #1", event("k", 0, 9))))
    assert Study(trace).device.idle is None


def test_one_step_that_takes_no_time_takes_no_table_from_the_others():
    steps = [event("train", 0, 9, step_num=0, _r=1), event("train", 9, 0, step_num=1, _r=1)]
    table, _ = idle_of(read(host(line("p", *steps)), gpu(line("Stream #1", event("k", 0, 4)))))
    assert (table.busy_ps, table.window_ps) == (4, 9)


def test_no_piece_over_time_is_shorter_than_a_picosecond_wherever_the_window_begins():
    table, _ = idle_of(read(host(line("p", event("train", 50, 10, step_num=0, _r=1))), gpu(line("Stream #1", event("k", 50, 4)))))
    assert table.bin_begin_ps.tolist() == list(range(50, 60))


def test_without_a_device_there_is_no_table():
    assert Study(read(host(line("p", event("train", 0, 9, step_num=0, _r=1))))).device.idle is None


@pytest.mark.parametrize("path", every_shared_trace())
def test_busy_and_idle_add_up_to_the_window_exactly(path):
    trace = read_trace(path)
    table = Study(trace).device.idle
    if table is not None:
        assert table.busy_ps + table.total_ps.sum() == table.window_ps
        assert (table.longest_ps <= table.total_ps).all()
