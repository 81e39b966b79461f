"""Sweeps on the workers of an executor: what is sent, what comes back, rounds as blocks, workers that differ or are lost, interrupts."""

import pickle
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import numpy as np
import pytest

from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions
from profnb.many_traces import sweep_rounds
from profnb.many_traces.sweep_rounds import Crew
from profnb.many_traces.sweep_rounds import FreshRound, RoundResult, run_round, run_rounds
from profnb.sweep import Sweep

pytest.importorskip("IPython")
from IPython.core.error import UsageError  # noqa: E402

from profnb.magic import sweep_magic  # noqa: E402

CELL = """
import keras, numpy as np
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 8), "float32"), np.ones((64, 2), "float32"), batch_size=batch_size, epochs=3, verbose=0)
"""


def fresh_round(number, rows, *, traces=False):
    return FreshRound(number, "body", tuple((row, {"n": row}) for row in rows), CaptureOptions(), traces, f"{number}")


class AtOnce(Executor):
    """Makes each task when it is submitted, some of them on a worker that is lost."""

    def __init__(self, loses=(), breaks_at=None):
        self.loses, self.breaks_at, self.sent = loses, breaks_at, []

    def submit(self, function, /, *args, **kwargs):
        if len(self.sent) == self.breaks_at:
            raise BrokenProcessPool("no more")
        self.sent.append(args[0])
        future = Future()
        if args[0].number in self.loses:
            future.set_exception(BrokenProcessPool("it was\nkilled"))
        else:
            future.set_result(function(*pickle.loads(pickle.dumps(args)), **kwargs))
        return future


def test_a_round_is_all_its_settings_on_one_worker_and_comes_back_as_bytes(monkeypatch):
    seen = []

    def run(body, setting, folder, options, *, traces):
        seen.append((setting, traces))
        if setting["n"] == 1:
            raise CaptureError("It failed.")
        (folder / "job.json").write_text("{}")
        (folder / "plugins").mkdir()
        (folder / "plugins" / "a.xplane.pb").write_bytes(b"trace")

    monkeypatch.setattr(sweep_rounds, "run_fresh", run)
    result = pickle.loads(pickle.dumps(run_round(fresh_round(3, [2, 1], traces=True))))
    assert seen == [({"n": 2}, True), ({"n": 1}, True)]
    assert [(one.row, one.files, one.error) for one in result.runs] == [(2, {"plugins/a.xplane.pb": b"trace"}, ""), (1, {}, "It failed.")]
    assert result.number == 3 and result.host and result.begin_s <= result.end_s


def test_a_worker_makes_one_run_at_a_time(monkeypatch):
    now, most = [], []

    def run(body, setting, folder, options, *, traces):
        now.append(1)
        most.append(len(now))
        time.sleep(0.02)
        now.pop()

    monkeypatch.setattr(sweep_rounds, "run_fresh", run)
    with ThreadPoolExecutor(4) as executor:
        rounds = [fresh_round(at, [0, 1]) for at in range(4)]
        done = list(run_rounds(executor, rounds))
    assert max(most) == 1 and len(most) == 8 and len(done) == 4


def test_rounds_of_lost_workers_say_so_and_the_others_count(monkeypatch):
    monkeypatch.setattr(sweep_rounds, "run_fresh", lambda *args, **kwargs: None)
    done = {one.number: result for one, result in run_rounds(AtOnce(loses={1}, breaks_at=3), [fresh_round(at, [0]) for at in range(4)])}
    assert [isinstance(done[at], RoundResult) for at in range(4)] == [True, False, True, False]
    assert done[1] == "The worker was lost (BrokenProcessPool: it was killed)"


def test_what_has_not_begun_is_cancelled_when_nobody_wants_it(monkeypatch):
    made, may_end = [], threading.Event()

    def run(body, setting, folder, options, *, traces):
        made.append(setting)
        if len(made) > 1:
            assert may_end.wait(60)

    monkeypatch.setattr(sweep_rounds, "run_fresh", run)
    with ThreadPoolExecutor(1) as executor:
        rounds = run_rounds(executor, [fresh_round(at, [0]) for at in range(50)])
        next(rounds)
        rounds.close()
        may_end.set()
    assert len(made) <= 2


def result_of(number, host, *, cpu="x", begin=0.0, end=1.0):
    return RoundResult(number, host, cpu, begin, end, ())


def crew(*results):
    made = Crew()
    for result, environment in results:
        made.add(result, environment)
    return made


def test_machines_that_differ_are_said_and_those_that_do_not_are_not():
    one, other = {"TensorFlow": "2.15", "CPU cores": "4"}, {"TensorFlow": "2.21", "CPU cores": "4"}
    told = " ".join(crew((result_of(1, "a"), one), (result_of(2, "b", cpu="y"), other), (result_of(3, "b", cpu="y", begin=2, end=3), other)).notes)
    assert "Rounds were run by 2 machines (b 2, a 1)" in told
    assert "The workers differ: processor (x on a; y on b), TensorFlow (2.15 on a; 2.21 on b)." in told
    assert "at a time" not in told
    told = " ".join(crew((result_of(1, "a"), one), (result_of(2, "b"), one)).notes)
    assert "differ:" not in told and "2 machines" in told
    assert crew((result_of(1, "a"), one), (result_of(2, "a", begin=1, end=2), one)).notes == []


def test_workers_that_share_a_machine_at_a_time_are_said():
    same = crew((result_of(1, "a"), {}), (result_of(2, "a", begin=0.5, end=1.5), {}))
    assert same.notes == ["Several workers made runs on a at a time and may have slowed each other. One worker a machine gives cleaner times."]
    assert crew((result_of(0, "a"), {}), (result_of(0, "a", begin=0.5, end=1.5), {})).notes == []  # traced: not compared


class Shell:
    def __init__(self, **names):
        self.user_ns = names


@pytest.mark.parametrize(("found", "said"), [(None, "pool is not defined"), (3, "pool is int")])
def test_what_is_no_executor_is_said(found, said):
    with pytest.raises(UsageError, match=said):
        sweep_magic._executor_of(Shell(pool=found) if found else Shell(), "pool")


def test_an_executor_and_a_dask_client_are_taken():
    with ThreadPoolExecutor(1) as executor:
        assert sweep_magic._executor_of(Shell(pool=executor), "pool") is executor
        client = SimpleNamespace(get_executor=lambda: executor)
        assert sweep_magic._executor_of(Shell(pool=client), "pool") is executor


def swept(monkeypatch, executor, repeat, *, fails=(), interrupts_at=None):
    """A sweep over three settings whose runs take n ms a step, and what was sent to the executor."""
    taken = []

    def take(self, row, folder, number):
        taken.append((row, number))
        if interrupts_at is not None and len(taken) > interrupts_at:
            raise KeyboardInterrupt

    def run(body, setting, folder, options, *, traces):
        if setting["n"] in fails:
            raise CaptureError("It failed.")

    monkeypatch.setattr(Sweep, "_take", take)
    monkeypatch.setattr(sweep_rounds, "run_fresh", run)
    sweep = Sweep([{"n": at} for at in range(3)])
    arguments = SimpleNamespace(executor="pool", steps=20, repeat=repeat, quiet=True)
    said = sweep_magic._run_elsewhere(Shell(pool=executor), sweep, arguments, "n", frozenset())
    return sweep, taken, said


def test_traces_come_first_one_by_one_and_then_whole_rounds(monkeypatch):
    executor = AtOnce()
    sweep, taken, said = swept(monkeypatch, executor, 3)
    assert [(one.number, one.traces, len(one.runs)) for one in executor.sent] == [(0, True, 1)] * 3 + [(1, False, 3), (2, False, 3)]
    assert sorted(taken) == [(row, at) for row in range(3) for at in range(3)]
    assert sorted(row for row, _ in executor.sent[3].runs) == [0, 1, 2] and said == ""
    assert len({one.token for one in executor.sent}) == 5


def test_a_single_run_of_each_is_one_round_on_one_worker(monkeypatch):
    executor = AtOnce()
    swept(monkeypatch, executor, 1)
    assert [(one.number, one.traces, len(one.runs)) for one in executor.sent] == [(0, True, 3)]


def test_a_setting_that_failed_is_not_run_again_and_a_lost_round_is_said(monkeypatch):
    executor = AtOnce(loses={2})
    sweep, taken, _ = swept(monkeypatch, executor, 3, fails={1})
    assert sweep.errors == ["", "It failed.", ""]
    assert [len(one.runs) for one in executor.sent] == [1, 1, 1, 2, 2]
    assert sweep.crew.notes == ["Round 2: The worker was lost (BrokenProcessPool: it was killed)"]


def test_an_interrupt_keeps_what_is_done(monkeypatch):
    _, taken, said = swept(monkeypatch, AtOnce(), 3, interrupts_at=4)
    assert said.startswith("Interrupted; the 3 runs of 9 so far are kept.")


def test_rounds_keep_their_numbers_where_a_setting_misses_one(monkeypatch):
    """A worker that is half as fast ran round 2 without the second setting: it is compared by the others."""
    steps = lambda ms: SimpleNamespace(steps=np.full(30, ms))  # noqa: E731
    profile = SimpleNamespace(
        study=SimpleNamespace(summary=SimpleNamespace(batch_size=8), memory=SimpleNamespace(use=[])), recordings=[None] * 3, repeats=[steps(1), steps(2)],
        steady_step_times=[(np.full(30, 1e9), False), (np.full(30, 2e9), False)], steady_rounds=[1, 2], run_ps=np.array([1e9, 2e9]),
    )  # fmt: skip
    for one in profile.repeats:
        one.fits = []
    profile.recordings = profile.repeats
    sweep = Sweep([{"n": 1}])
    sweep.profiles[0] = profile
    sweep._rounds[0] = [1, 3]
    point = sweep._point(0)
    assert list(point.step_rounds) == [1, 3] and list(point.run_rounds) == [1, 3]
    sweep._rounds[0] = []
    assert list(sweep._point(0).step_rounds) == [1, 2]


@pytest.fixture
def shell():
    module = pytest.importorskip("IPython.core.interactiveshell")
    shell = module.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "profnb")
    return shell


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_real_sweep_on_a_pool_of_threads(shell, capsys):
    with ThreadPoolExecutor(2) as pool:
        shell.user_ns["pool"] = pool
        assert shell.run_cell("%%tfsweep batch_size=8,16 prefetch=2 --executor pool --repeat 2 -o found\n" + CELL).success
    found, sweep = shell.user_ns["found"], shell.user_ns["_tfsweep"]
    assert found.error.tolist() == ["", ""]
    assert found.runs.tolist() == [1, 1]
    assert [set(profile.recordings[1].environment) >= {"TensorFlow"} for profile in sweep.profiles] == [True, True]
    assert [profile.study.summary.batch_size for profile in sweep.profiles] == [8, 16]
    assert any("prefetch had no effect" in note for note in sweep.notes)  # there is no dataset
    assert "is fastest" in capsys.readouterr().out


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_real_sweep_on_dasks_workers(shell):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster, distributed.Client(cluster) as client:
        shell.user_ns["pool"] = client
        assert shell.run_cell("%%tfsweep batch_size=8,16 --executor pool --repeat 3 -q -o found\n" + CELL).success
    found, sweep = shell.user_ns["found"], shell.user_ns["_tfsweep"]
    assert found.error.tolist() == ["", ""] and found.runs.tolist() == [2, 2]
    assert sorted(sweep._rounds[0]) == sorted(sweep._rounds[1]) == [1, 2]
