"""Sweeps: settings parsed, bound, applied, run in an order that spreads drift; throughput, intervals, the front; a real sweep."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from simulate_sweep import CASES, simulate

from profnb.compare.ranking import rank
from profnb.compare.ranking import dunnett_factor
from profnb.compare.ranking import fit_rounds
from profnb.compare.sweeps import SweepPoint, tabulate_sweep
from profnb.compare.sweeps import settings_table
from profnb.capture.models.layer_facts import FitResult
from profnb.comparison import compare
from profnb.capture import seams
from profnb.capture.switches import switched, set_threads, switches_of
from profnb.sweep import Sweep, combine, run_order
from profnb.compare.sweep_section import sweep_bundle, sweep_figures, sweep_text

pytest.importorskip("IPython")
from IPython.core.error import UsageError  # noqa: E402

from profnb.magic.magic_options import parse_settings  # noqa: E402

MS = 1e9


def point(size, step_ms, accuracy=None, memory=math.nan, runs=3, **more):
    fits = [] if accuracy is None else [[FitResult({"accuracy": accuracy}, 1, False)]] * runs
    steps = tuple(np.full(30, step_ms * MS) * (1 + 0.01 * run) for run in range(runs))
    return SweepPoint({"batch_size": size}, steps, (step_ms * 30 * MS,) * runs, False, size, fits, memory, **more)


def test_settings_are_literals_where_they_are_some():
    assert parse_settings(["batch_size=32,64", "jit_compile=False,True", "rate=1e-3", "policy=float32,mixed_float16", "shape=(3,3),(5,5)"]) == {
        "batch_size": [32, 64], "jit_compile": [False, True], "rate": [1e-3], "policy": ["float32", "mixed_float16"], "shape": [(3, 3), (5, 5)],
    }  # fmt: skip


@pytest.mark.parametrize("text", [["batch_size"], ["=3"], ["a b=3"], ["a="], ["a=1", "a=2"], ["1a=2"]])
def test_settings_that_cannot_be_meant(text):
    with pytest.raises(UsageError):
        parse_settings(text)


def test_combinations_and_an_order_that_spreads_drift():
    settings = combine({"a": [1, 2], "b": ["x", "y"]})
    assert settings == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    order = list(run_order(6, 4))
    rounds = [order[at : at + 6] for at in range(0, 24, 6)]
    assert all(sorted(one) == list(range(6)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    # A machine that becomes slower by 1 % a run does so for every setting alike.
    means = [np.mean([at for at, row in enumerate(order) if row == chosen]) for chosen in range(6)]
    assert np.ptp(means) < 6


def test_throughput_its_interval_and_the_front_by_hand():
    table = tabulate_sweep([point(32, 4.0, 0.90), point(64, 5.0, 0.88), point(128, 16.0, 0.85), point(256, 16.0, 0.80)])
    assert table.unit == "examples"
    assert table.per_second.tolist() == pytest.approx([32 / 4 * 1e3 / 1.01, 64 / 5 * 1e3 / 1.01, 128 / 16 * 1e3 / 1.01, 256 / 16 * 1e3 / 1.01], rel=1e-3)
    assert (table.low < table.per_second).all()
    assert (table.high > table.per_second).all()
    assert (table.metric, table.against) == ("accuracy", "accuracy")
    assert table.is_best.tolist() == [True, True, False, True]  # the third is slower and worse than the second


def test_without_metrics_memory_is_what_throughput_is_weighed_against():
    table = tabulate_sweep([point(32, 4.0, memory=1e6), point(64, 8.0, memory=2e6), point(128, 8.0, memory=3e6)])
    assert table.against == "memory"
    assert table.is_best.tolist() == [True, False, True]
    alone = tabulate_sweep([point(32, 4.0), point(64, 4.0)])
    assert (alone.against, alone.is_best.tolist()) == ("", [False, True])
    worse = tabulate_sweep([point(32, 4.0, 0.9), point(64, 4.0, 0.9)], metric="loss")
    assert np.isnan(worse.quality).all()


def test_what_is_not_known_is_missing_and_failures_are_said():
    points = [point(32, 4.0), SweepPoint({"batch_size": 64}, error="ValueError: too\nlarge")]
    table = tabulate_sweep(points)
    assert np.isnan(table.per_second[1])
    assert any("batch_size=64: ValueError: too large" in note for note in table.notes)
    frame = settings_table(table).frame(table)
    assert frame.error.tolist() == ["", "ValueError: too\nlarge"]
    assert "—" in sweep_text(table)
    nothing = tabulate_sweep([SweepPoint({"a": 1}, error="x")])
    assert "No setting has a finished run" in sweep_text(nothing)
    assert sweep_figures(nothing) == {}


@pytest.mark.parametrize("others", [[], [SweepPoint({"batch_size": 64}, error="ValueError: too large")]], ids=["alone", "the only one that ran"])
def test_one_setting_is_not_the_fastest_of_any(others):
    table = tabulate_sweep([point(32, 4.0, 0.9), *others])
    text = sweep_text(table)
    assert table.equals == 0
    assert ". No other setting ran." in text and "batch_size=32: 7," in text
    assert not any(word in text for word in ("fastest ", "tied", "cannot tell", "Worth"))


def test_cells_without_steps_are_timed_as_a_whole():
    table = tabulate_sweep([SweepPoint({"a": 1}, (np.ones(1),), (2e12, 2.2e12)), SweepPoint({"a": 2}, (np.ones(1),), (4e12, 4.1e12))])
    assert table.unit == "runs"
    assert table.per_second.tolist() == pytest.approx([0.477, 0.247], abs=0.001)


def test_what_chance_could_be_is_called_neither_fastest_nor_best():
    def noisy(size, step_ms, *accuracies):
        factors = {1: (0.9, 1.0, 1.1), 2: (1.1, 0.9, 1.0), 3: (1.0, 1.1, 0.9)}[size]
        runs = [np.full(30, step_ms * MS) * factor for factor in factors]
        fits = [[FitResult({"accuracy": value}, 1, False)] for value in accuracies]
        return SweepPoint({"n": size}, runs, [1e12] * 3, False, 32, fits)

    table = tabulate_sweep([noisy(1, 4.0, 0.90, 0.80, 0.85), noisy(2, 4.1, 0.84, 0.88, 0.86), noisy(3, 8.0, 0.87, 0.88, 0.86)])
    assert table.equals == 1
    assert "but another setting may be as fast" in sweep_text(table)
    assert table.is_best.tolist() == [True, True, False]  # the third is surely slower, and surely no better
    better = tabulate_sweep([noisy(1, 4.0, 0.70, 0.71, 0.70), noisy(3, 8.0, 0.87, 0.88, 0.86)])
    assert better.is_best.tolist() == [True, True]
    assert better.equals == 0


def runs_of(name, *step_ms, batch=32, rounds=()):
    steps = [np.full(30, value * MS) for value in step_ms]
    return SweepPoint({"n": name}, steps, [1e12] * len(steps), False, batch, step_rounds=rounds)


def test_what_a_round_has_in_common_does_not_count():
    # By hand: the differences of logarithms are 0.5 and 0.7, so 0.6, with a standard error of 0.1 and one degree of freedom.
    fit = fit_rounds(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.0, 1.0, 0.5, 1.7]), 2)
    assert fit.means.tolist() == pytest.approx([0.5, 1.1])
    assert fit.errors[0, 1] == pytest.approx(0.1)
    assert fit.freedom == 1
    assert fit.factor == pytest.approx(6.314, abs=0.001)  # Student's, one-sided
    ranking = rank(fit, -fit.means)
    assert ranking.low.tolist() == pytest.approx([-0.6 - 0.6314, 0.6 - 0.6314], abs=1e-4)
    assert ranking.may_be_best.tolist() == [True, True]
    # A machine that becomes twice as slow hides a tenth, unless rounds are compared.
    slower = tabulate_sweep([runs_of("a", 10, 14.1, 20), runs_of("b", 11, 15.4, 22)])
    assert slower.equals == 0
    assert "n=a is fastest: " in sweep_text(slower)


def test_a_setting_that_misses_a_round_is_compared_by_those_it_has():
    table = tabulate_sweep([runs_of("a", 10, 14, 20), runs_of("b", 15.4, 22.1, rounds=(1, 2)), runs_of("c", 12, 16.8, 24.1)])
    assert table.equals == 0
    assert table.rounds == 3
    # Without the first round, the quickest one, b would look slower than it is: 1.1 times a.
    assert table.step_ps[1] / table.step_ps[0] == pytest.approx(1.1, abs=0.01)
    assert np.isfinite(table.low).all()


def test_ties_and_what_more_rounds_would_tell_are_said():
    tie = tabulate_sweep([runs_of("a", 10.00, 10.01, 10.00), runs_of("b", 10.01, 10.00, 10.02), runs_of("c", 12, 12.01, 12.0)])
    assert tie.equals == 1
    assert "A tie: n=b is at most 0." in sweep_text(tie)
    rows = {line[0]: line for line in sweep_text(tie).splitlines() if re.match("[abc] +3 ", line)}
    assert [re.split("  +", rows[name])[-1] for name in "abc"] == ["fastest, tied", "tied", "17 % slower"]  # 10 ms against 12
    widths = sweep_figures(tie)["Throughput"]["data"][0]["marker"]["line"]["width"]
    assert [bool(width) for width in widths] == [False, True, False]
    noisy = tabulate_sweep([runs_of("a", 9.5, 10.5, 10.1), runs_of("b", 10.6, 10.4, 10.0), runs_of("c", 16, 15, 16.5)])
    assert noisy.equals == 1
    more = int(noisy.ranking.more_rounds[1])
    assert more > 0
    text = " ".join(sweep_text(noisy).split())
    assert f"{more} more rounds (--repeat) would tell n=b from the fastest, with a chance of 80 %" in text
    same = tabulate_sweep([runs_of("a", 9, 11, 10), runs_of("b", 11, 9, 10)])
    assert same.ranking.more_rounds.tolist() == [0, -1]
    assert "too close to the fastest to tell apart, even with 200 more rounds" in " ".join(sweep_text(same).split())
    for table in (tabulate_sweep([runs_of("a", 10, 11)]), tabulate_sweep([runs_of("a", 10), runs_of("b", 11)])):
        assert not any("round" in note for note in table.notes)


@pytest.mark.long
def test_more_rounds_are_enough_rounds():
    """As many more as it says show the difference four times of five, and one less does not."""
    chance, gap = np.random.default_rng(5), 0.05
    rows, block = np.tile(np.arange(4), 3), np.repeat(np.arange(3), 4)
    fit = fit_rounds(rows, block, np.where(rows == 0, 0, gap) + chance.normal(0, 0.04, rows.size), 4)
    exact = replace(fit, means=np.array([0, gap, gap, gap]), spread=np.eye(4) * 0.04**2 / 3)
    more = int(rank(exact, -exact.means).more_rounds[1])
    assert more > 0
    shown = {rounds: 0 for rounds in (3, 3 + more)}
    for rounds in shown:
        rows, block = np.tile(np.arange(4), rounds), np.repeat(np.arange(rounds), 4)
        for _ in range(300):
            one = fit_rounds(rows, block, np.where(rows == 0, 0, gap) + chance.normal(0, 0.04, rows.size), 4)
            shown[rounds] += not rank(one, -one.means).may_be_best[1]
    assert shown[3] / 300 < 0.6
    assert 0.7 <= shown[3 + more] / 300 <= 0.9


@pytest.mark.parametrize(("others", "freedom", "factor"), [(1, 10, 1.81), (2, 10, 2.15), (3, 10, 2.34), (5, 10, 2.56), (1, 5, 2.02), (9, 20, 2.60), (4, 100000, 2.16)])
def test_factors_are_dunnetts(others, freedom, factor):
    """His table of one-sided values for 5 %."""
    assert dunnett_factor(others, freedom) == pytest.approx(factor, abs=0.006)


@pytest.mark.parametrize(("others", "runs"), [(2, 3), (5, 3), (9, 4)])
def test_factors_are_scipys(others, runs):
    stats = pytest.importorskip("scipy.stats")
    samples = np.random.default_rng(0).normal(size=(others + 1, runs))
    found = stats.dunnett(*samples[1:], control=samples[0], alternative="less", random_state=np.random.default_rng(1))
    reach = found.confidence_interval(0.95).high - (samples[1:].mean(axis=1) - samples[0].mean())
    error = np.sqrt(samples.var(axis=1, ddof=1).mean() * 2 / runs)
    assert dunnett_factor(others, (others + 1) * (runs - 1)) == pytest.approx(reach[0] / error, abs=0.01)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_simulated_sweeps_say_what_is_true(case):
    covers, wrong, _, own = simulate(5, 3, sweeps=500, **CASES[case])
    assert 0.93 <= covers <= 0.98
    assert wrong <= 0.07
    assert 0.9 <= own


def test_one_run_says_that_it_is_one():
    assert any("--repeat 3" in note for note in tabulate_sweep([point(32, 4.0, runs=1)]).notes)
    assert not any("--repeat 3" in note for note in tabulate_sweep([point(32, 4.0, runs=3)]).notes)


def test_a_sweep_is_shown_as_escaped_tables_and_valid_figures():
    go = pytest.importorskip("plotly.graph_objects")
    evil = "<script>alert(1)</script>"
    points = [SweepPoint({evil: evil}, point(3, 2.0).step_ps, (1e9,), True, 3, [[FitResult({evil: value}, 1, True)]], 1e6) for value in (0.1, 0.2)]
    table = tabulate_sweep(points, metric=evil)
    html = sweep_bundle(table)["text/html"]
    assert "<script>" not in html
    assert html.count("data-figure=") == 2
    figures = sweep_figures(table)
    assert list(figures) == ["Throughput", "Throughput and its price"]
    for figure in figures.values():
        assert "<script>" not in str(figure)
        go.Figure({"data": figure["data"], "layout": figure["layout"]})


def test_switches_are_applied_only_where_the_cell_does_not_read_them():
    setting = {"jit_compile": True, "batch_size": 3, "prefetch": 2, "intra_op_threads": 1}
    assert switches_of(setting, frozenset({"batch_size"})) == {"jit_compile": True, "prefetch": 2}
    assert switches_of(setting, frozenset({"batch_size", "jit_compile"})) == {"prefetch": 2}


@pytest.mark.tensorflow
def test_switches_hold_for_the_run_and_are_gone_afterwards():
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    methods = vars(keras.Model).get("compile"), vars(keras.Model).get("fit")

    def policy():
        found = getattr(keras.mixed_precision, "dtype_policy", None) or keras.mixed_precision.global_policy
        return found().name

    def model():
        made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
        made.compile("sgd", "mse")
        return made

    before = policy()
    with switched({"jit_compile": True, "steps_per_execution": 3, "mixed_precision": "mixed_bfloat16", "prefetch": 2}):
        seen = [policy(), bool(model().jit_compile), int(model().steps_per_execution) if hasattr(model(), "steps_per_execution") else 3]
        explicit = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
        explicit.compile("sgd", "mse", jit_compile=False)
        assert not explicit.jit_compile
        data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 2)))).repeat(6)
        explicit.fit(data, verbose=0)
    assert seen == ["mixed_bfloat16", True, 3]
    assert policy() == before
    assert (vars(keras.Model).get("compile"), vars(keras.Model).get("fit")) == methods
    with pytest.raises(RuntimeError, match="mine"), switched({"jit_compile": True}):
        raise RuntimeError("mine")
    assert vars(keras.Model).get("compile") == methods[0]


@pytest.mark.tensorflow
@pytest.mark.parametrize(("missing", "idle"), [
    (seams.COMPILE, {"jit_compile"}), (seams.FIT, {"prefetch"}), (seams.DATASET, {"prefetch"}), (seams.SET_POLICY, {"mixed_precision"}), (seams.POLICY, {"mixed_precision"}),
])  # fmt: skip
def test_a_switch_whose_name_is_missing_has_no_effect_and_stops_nothing(monkeypatch, missing, idle):
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    find = seams.Seam.find
    monkeypatch.setattr(seams.Seam, "find", lambda seam, root=None: None if seam is missing else find(seam, root))
    values = {"jit_compile": False, "prefetch": 2, "mixed_precision": "float32"}
    with switched(values) as applied:
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        model.fit(tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 2)))), verbose=0)
    assert values.keys() - applied == idle


@pytest.mark.tensorflow
def test_threads_that_cannot_be_set_have_no_effect_and_stop_nothing(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    given = []
    monkeypatch.setattr(tf.config.threading, "set_inter_op_parallelism_threads", given.append)
    monkeypatch.delattr(tf.config.threading, "set_intra_op_parallelism_threads")
    with set_threads({"intra_op_threads": 2, "inter_op_threads": 3}) as applied:
        assert given == [3]
    assert applied == {"inter_op_threads"}
    monkeypatch.delattr(tf.config, "threading")
    with set_threads({"inter_op_threads": 3}) as applied:
        pass
    assert applied == set()


SETUP = """
import keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).random((128, 64), "float32"); y = (x.sum(1) > 32).astype("int64")
"""
FIT = """
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
made.append(width)
model.fit(x, y, batch_size=batch_size, epochs=3, verbose=0)
"""


@pytest.fixture
def shell():
    module = pytest.importorskip("IPython.core.interactiveshell")
    shell = module.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "profnb")
    assert shell.run_cell(SETUP).success
    shell.user_ns["made"] = []
    shell.user_ns.pop("batch_size", None)
    return shell


@pytest.mark.tensorflow
@pytest.mark.newest
def test_a_real_sweep_runs_every_setting_and_says_which_was_fastest(shell, capsys):
    shell.user_ns["width"] = "as it was"
    assert shell.run_cell("%%tfsweep batch_size=16,32 width=4 --repeat 3 -o found\n" + FIT).success
    found = shell.user_ns["found"]
    assert sorted(shell.user_ns["made"]) == [4] * 6
    assert shell.user_ns["width"] == "as it was"
    assert "batch_size" not in shell.user_ns
    assert found.runs.tolist() == [2] * 2  # the first of each is traced, all of it
    assert found.error.tolist() == [""] * 2
    assert sorted(zip(found.batch_size, found.width, strict=True)) == [(16, 4), (32, 4)]
    assert (found.examples_per_second > 0).all()
    assert ((found.low <= found.examples_per_second) & (found.examples_per_second <= found.high)).all()
    best = found.loc[found.examples_per_second.idxmax()]
    assert found.accuracy.between(0, 1).all()
    out = capsys.readouterr().out
    assert f"batch_size={best.batch_size} width={best.width} is fastest" in out
    assert all(profile.recordings for profile in shell.user_ns["_tfsweep"].profiles)


@pytest.mark.tensorflow
@pytest.mark.slow
def test_failures_and_interrupts_keep_what_is_done(shell, capsys):
    cell = "tf.ones(3) + 1\nmade.append(n)\nif n == {when}: raise {error}"
    shell.run_cell("%%tfsweep n=1,2 --repeat 2 -o found\n" + cell.format(when=2, error="ValueError('two')"))
    found = shell.user_ns["found"]
    assert found.error.tolist() == ["", "ValueError: two"]
    assert found.runs.tolist()[1] == 0
    assert shell.user_ns["made"].count(2) == 1  # it would fail again
    shell.user_ns["made"].clear()
    shell.run_cell("%%tfsweep n=1,2 --repeat 3\n" + "tf.ones(3) + 1\nmade.append(n)\nif len(made) == 4: raise KeyboardInterrupt")
    assert len(shell.user_ns["made"]) == 4
    assert sum(len(profile.recordings) for profile in shell.user_ns["_tfsweep"].profiles) == 3
    assert "Interrupted; the 3 runs of 6 so far are kept." in capsys.readouterr().out


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_step_of_several_iterations_counts_as_many(shell):
    cell = FIT.replace("width", "16").replace("batch_size=batch_size, epochs=3", "batch_size=8, epochs=4").replace("made.append(16)\n", "")
    assert shell.run_cell("%%tfsweep steps_per_execution=1,8 --repeat 3 -q -o found\n" + cell).success
    found = shell.user_ns["found"].set_index("steps_per_execution")
    one, eight = shell.user_ns["_tfsweep"].profiles
    assert [set(p.steps.iterations) for p in (one, eight)] == [{1}, {8}]
    compared = compare(one, eight)
    # Eight examples an iteration; and the times compared are of iterations, eight of which a step took.
    assert (found.examples_per_second * found.step_ms).tolist() == pytest.approx([8000, 8000])
    for own, iterations in zip(compared.runs, (1, 8), strict=True):
        assert all(iterations * steps.sum() <= whole for steps, whole in zip(own.step_ps[-len(own.run_ps) :], own.run_ps, strict=True))
    assert any("per iteration" in guard for guard in compared.guards)


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_switch_without_effect_and_one_with_a_value_that_cannot_be(shell):
    cell = FIT.replace("width", "16").replace("batch_size=batch_size, epochs=3", "batch_size=64").replace("made.append(16)\n", "")
    shell.run_cell("%%tfsweep prefetch=0,2 -q\n" + cell)
    assert any("prefetch had no effect" in note for note in shell.user_ns["_tfsweep"].notes)
    shell.run_cell("%%tfsweep mixed_precision=float32,bogus -q -o found\n" + cell)
    found = shell.user_ns["found"]
    assert found.error[0] == ""
    assert "bogus" in found.error[1]
    assert not any("had no effect" in note for note in shell.user_ns["_tfsweep"].notes)


@pytest.mark.parametrize("line", ["nothing=1,2", "n=1 --repeat 0", "n", "n=1 -o 3x", "n=1 -n 0"])
def test_sweeps_that_cannot_be_meant(shell, line, capsys):
    assert not shell.run_cell("%%tfsweep n=1,2\nn = 5\nmade.append(n)").success
    assert "gives n a value" in capsys.readouterr().err
    assert not shell.run_cell(f"%%tfsweep {line}\nmade.append(n)").success
    assert "UsageError" in capsys.readouterr().err
    assert shell.user_ns["made"] == []


@pytest.mark.tensorflow
@pytest.mark.long
def test_threads_are_set_in_fresh_processes(shell):
    cell = """
import os, keras, numpy as np
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(8)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 64), "float32"), np.ones((64, 8), "float32"), batch_size=2, verbose=0)
"""
    shell.run_cell("%%tfsweep intra_op_threads=1,2 -q -o found\n" + cell)
    found = shell.user_ns["found"]
    assert found.error.tolist() == ["", ""]
    assert found.runs.tolist() == [1, 1]
    threads = [[r.environment["Intra-op threads"] for r in p.recordings] for p in shell.user_ns["_tfsweep"].profiles]
    assert threads == [["1"], ["2"]]
    assert not any("had no effect" in note for note in shell.user_ns["_tfsweep"].notes)
    shell.run_cell("%%tfsweep intra_op_threads=1 -q\nmade.append(1)")
    assert shell.user_ns["_tfsweep"].errors[0].endswith("NameError: name 'made' is not defined")


@pytest.mark.tensorflow
def test_a_backend_that_is_not_installed_is_said_without_a_process(shell, monkeypatch, capsys):
    import importlib.util

    from profnb.capture.switches import missing_backend

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest))
    assert missing_backend("torch") == "PyTorch is not installed here: pip install 'profnb[torch]', then run the cell again."
    assert missing_backend("tensorflow") == missing_backend("no backend") == missing_backend("") == ""
    shell.run_cell("%%tfsweep backend=torch -o found\nmade.append(1)")
    assert shell.user_ns["found"].runs.tolist() == [0]
    assert "Note: backend=torch: PyTorch is not installed here: pip install 'profnb[torch]'" in capsys.readouterr().out


def test_the_error_of_a_fresh_process_is_the_cells(tmp_path):
    import subprocess

    from profnb.capture.switches import ERROR, _failure

    done = subprocess.CompletedProcess([], 1, "printed\n", "\x1b[31mlast words\x1b[0m\n")
    assert _failure(tmp_path, done) == "The cell's fresh process ended with code 1.\nlast words"
    assert "signal 11" in _failure(tmp_path, subprocess.CompletedProcess([], -11, "", ""))
    (tmp_path / ERROR).write_text("RuntimeError: only here and there")
    assert _failure(tmp_path, done) == "RuntimeError: only here and there"
    (tmp_path / ERROR).write_text("NameError: name 'x' is not defined")
    assert "the cell must import and make everything anew" in _failure(tmp_path, done)


def test_what_backends_learned_of_one_seed_is_not_weighed():
    def of(name, step_ms, *losses):
        fits = [[FitResult({"loss": loss}, 1, False)] for loss in losses]
        return SweepPoint({"backend": name}, [np.full(30, step_ms * MS)] * len(losses), [1e12] * len(losses), False, 32, fits)

    seeded = tabulate_sweep([of("tensorflow", 8.0, 0.1, 0.1, 0.1), of("jax", 4.0, 0.2, 0.2, 0.2)])
    assert (seeded.against, seeded.is_best.tolist()) == ("", [False, True])
    assert any("may be chance" in note for note in seeded.notes)
    drawn = tabulate_sweep([of("tensorflow", 8.0, 0.1, 0.11, 0.12), of("jax", 4.0, 0.2, 0.21, 0.22)])
    assert (drawn.against, drawn.is_best.tolist()) == ("loss", [True, True])
    assert not any("may be chance" in note for note in drawn.notes)


def test_a_row_of_a_sweep_that_goes_on_has_its_rate():
    sweep = Sweep([{"n": 1}, {"n": 2}])
    assert sweep.row_words(0) == ("n=1", "0", "—", "")
    sweep.errors[1] = "ValueError: two"
    assert sweep.row_words(1) == ("n=2", "0", "—", "failed")
    assert runs_of("a", 10, 40).typical_ps == pytest.approx(20 * MS)
    assert np.isnan(SweepPoint({"n": 1}).typical_ps)


def test_one_setting_has_the_winners_colour_and_it_is_the_headlines():
    from profnb.compare.sweep_section import _BEST, sweep_figures

    table = tabulate_sweep([point(32, 4.0, 0.90), point(64, 5.0, 0.88), point(128, 16.0, 0.85), point(256, 16.0, 0.80)])
    assert table.is_best.sum() > 1  # several are worth their price; one is the fastest
    colours = sweep_figures(table)["Throughput"]["data"][0]["marker"]["color"]
    assert colours.count(_BEST) == 1
    assert sweep_text(table).startswith(f"batch_size={table.points[colours.index(_BEST)].setting['batch_size']} is fastest")


def test_an_interval_that_leaves_the_axis_says_how_far_it_goes():
    from profnb.compare.sweep_section import sweep_figures

    random = np.random.default_rng(0)
    wild = SweepPoint({"n": 1}, [random.normal(factor * MS, 0.01 * MS, 40) for factor in (1.0, 2.5)], [1e12] * 2, False, 32)
    calm = SweepPoint({"n": 2}, [random.normal(MS, 0.01 * MS, 40) for _ in range(2)], [1e12] * 2, False, 32)
    table = tabulate_sweep([wild, calm])
    figure = sweep_figures(table)["Throughput"]
    end = figure["layout"]["xaxis"]["range"][1]
    bars = figure["data"][0]
    assert table.high[0] > end  # hand-made to do so
    ends = [rate + more for rate, more in zip(bars["x"], bars["error_x"]["array"], strict=True)]
    assert [each > end for each in ends] == (table.high > end).tolist()  # the chart marks what goes on
    labels = figure["layout"]["yaxis"]["ticktext"]
    assert labels[0].startswith("n=1") and labels[1].startswith("n=2")
    assert ["→" in label for label in labels] == (table.high > end).tolist()
    assert any("→" in label for label in labels)
