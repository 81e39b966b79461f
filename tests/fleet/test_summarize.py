"""Many traces to one row each: here, on the workers of an executor, with broken files and lost workers among them."""

import os
import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import numpy as np
import pytest

import profnb
from profnb.many_traces.summaries import _STEP_PARTS, summarize_trace
from traces import event, host, line, xspace

MS = 10**9


def trace(file, step_ms=10, steps=8):
    """Steps of an op each, with 2 ms of Python behind every one."""
    python = [event("train", at * (step_ms + 2) * MS, step_ms * MS, step_num=at, _r=1) for at in range(steps)]
    ops = [event("dense/MatMul:MatMul", at * (step_ms + 2) * MS, step_ms * MS) for at in range(steps)]
    file.write_bytes(xspace(host(line("python", *python, *ops)), hostnames=["a"]))
    return file


@pytest.fixture
def folder(tmp_path):
    for at in range(9):
        trace(tmp_path / f"t{at}.xplane.pb", 10 + at)
    (tmp_path / "t4.xplane.pb").write_bytes(b"no trace")
    return tmp_path


def test_a_row_says_what_a_person_computes(folder):
    table = profnb.summarize(folder).set_index("path")
    row = table.loc[str(folder / "t3.xplane.pb")]
    assert (row.steps, row.median_ms, row.period_ms, row.phase, row.host, row.error) == (8, 13, 14.75, "train", "a", "")
    assert (row.host_compute_ms, row.between_steps_ms) == (13, 1.75)  # the last step has no gap behind it
    parts = [f"{name.replace(' ', '_')}_ms" for name in _STEP_PARTS]
    assert np.allclose(table[parts].sum(axis=1)[table.error == ""], table.period_ms[table.error == ""])


def test_a_broken_file_is_a_row_that_says_why(folder):
    table = profnb.summarize(folder)
    broken = table[table.path.str.endswith("t4.xplane.pb")].iloc[0]
    assert len(table) == 9 and "t4.xplane.pb" in broken.error and np.isnan(broken.median_ms)
    assert (table.error != "").sum() == 1
    gone = profnb.summarize([folder / "t0.xplane.pb", folder / "nowhere.xplane.pb"])
    assert gone.error.tolist()[0] == "" and "nowhere" in gone.error.tolist()[1]


def test_an_executor_gives_the_same_rows_in_the_same_order(folder):
    with ThreadPoolExecutor(2) as executor:
        assert profnb.summarize(folder, executor=executor).equals(profnb.summarize(folder))


class LosesWorkers(Executor):
    """Loses the worker of every third trace, and takes no more after the sixth."""

    def __init__(self):
        self.count = 0

    def submit(self, function, path):
        self.count += 1
        if self.count > 6:
            raise BrokenProcessPool("A child process terminated abruptly")
        future = Future()
        if self.count % 3 == 0:
            future.set_exception(BrokenProcessPool("A process in the process pool was terminated abruptly"))
        else:
            future.set_result(pickle.loads(pickle.dumps(function(path))))
        return future


def test_a_lost_worker_costs_its_rows_and_no_other(folder):
    table = profnb.summarize(folder, executor=LosesWorkers())
    lost = table.error.str.startswith("The worker was lost (BrokenProcessPool")
    assert np.flatnonzero(lost).tolist() == [2, 5, 6, 7, 8]
    assert table.steps[~lost & (table.error == "")].tolist() == [8, 8, 8]


def test_what_travels_is_small(tmp_path):
    file = trace(tmp_path / "t.xplane.pb", steps=500)
    assert len(pickle.dumps(summarize_trace(str(file)))) < 2_000 < os.path.getsize(file)


@pytest.mark.slow
def test_a_process_pool_gives_the_same_rows(folder):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert profnb.summarize(folder, executor=executor).equals(profnb.summarize(folder))


@pytest.mark.slow
def test_dask_gives_the_same_rows(folder):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            assert profnb.summarize(folder, executor=client.get_executor()).equals(profnb.summarize(folder))
