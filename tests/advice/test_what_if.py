"""What a change would save: by trees made by hand, of real programs, and of traces that others recorded."""

from dataclasses import replace

import numpy as np
import pytest
from made_cell import MINE, Cell, fit_whose_callback_predicts
from traces import event, gpu, host, line, read

import profnb
from profnb.capture import environment
from profnb.advice.cell_model import Model
from profnb.causes.cell_tree import CellTree, grow_tree
from profnb.capture.environment import Costs
from profnb.capture.environment import TRACED_CALLS, costs_here, typical_costs
from profnb.advice.replay import once, replay, scale
from profnb.advice.what_if import compiled_at, what_if
from profnb.causes.numbers import CALL_PS
from profnb.steps.program_kind import JAX, PYTORCH, TENSORFLOW, ProgramKind
from profnb.subjects.study import Study

MS = 10**9  # in picoseconds
CALLBACK = 2


def tree_of(*rows, looks=()):
    """A tree of (parent, kind, name, milliseconds alone, occurrences), each behind the one above."""
    parent, kind, name, self_ms, times = zip(*rows, strict=True)
    self_ps, parent = np.array(self_ms, np.int64) * MS, np.array(parent, np.int64)
    depth, wall, own_looks = np.zeros(len(rows), np.int64), self_ps.copy(), np.zeros(len(rows), np.int64)
    own_looks[: len(looks)] = looks
    seen = np.where(own_looks > 0, self_ps, 0)
    for row in range(len(rows) - 1, 0, -1):
        wall[parent[row]] += wall[row]
        seen[parent[row]] += seen[row]
    for row in range(1, len(rows)):
        depth[row] = depth[parent[row]] + 1
    return CellTree(parent, depth, kind, name, ("",) * len(rows), np.array(times, np.int64), self_ps, wall, own_looks, seen)


TREE = tree_of(
    (-1, "cell", "", 50, 0),
    (0, "call", "fit", 0, 1),
    (1, "callbacks", "Score.on_epoch_end", 10, 4),
    (2, "call", "predict", 390, 4),
    (1, "epoch", "", 0, 10),
    (4, "set-up", "", 150, 0),
    (4, "epoch ends", "", 50, 10),
    (4, "train steps", "", 0, 100),
    (7, "input", "", 100, 0),
    (7, "host compute", "", 250, 0),
)  # fmt: skip


def saved(edits, before=None):
    found = replay(TREE, edits, before)
    return found.low_ps / MS, found.high_ps / MS


def test_what_is_removed_saves_all_of_it_with_what_it_calls():
    assert saved([scale(TREE, [CALLBACK], 0, 0)]) == (400, 400)
    assert TREE.rows_below(CALLBACK).tolist() == [2, 3]


def test_what_is_done_once_leaves_the_first_time_and_a_little_for_each_other():
    edit = once(TREE, [5, 6], 10, (0.0, 2 * MS), "")
    assert saved([edit]) == (200 - 20 - 18, 200 - 20)
    dear = once(TREE, [5], 10, (100 * MS, 100 * MS), "")  # no more than it takes now
    assert saved([dear]) == (0, 0)


def test_what_remains_in_part_saves_a_range():
    assert saved([scale(TREE, [8], 0.25, 0.5, "")]) == (50, 75)


def test_a_node_is_taken_once_by_the_first_edit_that_names_it():
    outer, inner = scale(TREE, [CALLBACK], 0, 0), scale(TREE, [3], 0, 0)
    assert saved([inner, outer]) == saved([outer, inner]) == (400, 400)
    assert saved([outer], replay(TREE, [inner])) == (10, 10)
    assert saved([outer], replay(TREE, [outer])) == (0, 0)
    half = scale(TREE, [CALLBACK], 0.5, 0.5, "")
    assert saved([half], replay(TREE, [inner])) == (5, 5)


def test_looks_make_the_range_as_wide_as_chance_does():
    """Of 1,000 ms that 100 looks divide, a node that half of them met is 500 ms, give or take 98; no more is promised than it took."""
    tree = tree_of((-1, "cell", "", 0, 0), (0, "own lines", "f", 500, 0), (0, "own lines", "g", 500, 0), looks=(0, 50, 50))
    found = replay(tree, [scale(tree, [1], 0, 0)])
    assert (found.low_ps / MS, found.high_ps / MS) == pytest.approx((402, 500))
    assert replay(tree, [scale(tree, [1, 2], 0, 0)]).low_ps / MS == 1_000  # all of what they divide is certain
    some = replay(tree, [scale(tree, [1], 0, 0.4)])  # 400, give or take 100 for the remedy and 98 for chance: 140
    assert (some.low_ps / MS, some.high_ps / MS) == pytest.approx((260, 500), abs=0.1)


def test_the_own_function_that_takes_much_of_what_is_waited_for():
    rows = (-1, "cell", "", 0, 0), (0, "input", "", 100, 0), (1, "own lines", "bags", 250, 0), (1, "own lines", "", 400, 0), (0, "own lines", "g", 900, 0)
    name, share, _ = Model(tree_of(*rows)).own_within([1])
    assert (name, share) == ("`bags`", pytest.approx(250 / 750))
    assert Model(tree_of(*rows[:2], (1, "own lines", "bags", 30, 0))).own_within([1]) is None  # less than a quarter
    assert Model(tree_of(*rows)).own_within([]) is None


def test_the_changes_of_a_tree_by_hand(monkeypatch):
    model = Model(TREE, cores=2)
    monkeypatch.setattr("profnb.advice.cell_model.typical_costs", lambda: Costs((MS, 2 * MS), (MS, 3 * MS), MS))

    def saves(**changes):
        return what_if(model, changes).saves_ms

    assert saves(without="Score.on_epoch_end") == saves(without="on_epoch_end") == (400, 400)
    assert saves(without="predict") == (390, 390)
    assert saves(epochs_restart_free=True) == (200 - 20 - 27, 200 - 20 - 9)
    assert saves(epochs_restart_free=False) == (0, 0)
    assert saves(input=0) == (100, 100)
    assert saves(input=0.5, without="predict") == (440, 440)
    assert saves(cores=8) == (0, (100 + 250) * 3 / 4)
    assert saves(launch=0) == saves(device=0.5) == (0, 0)
    assert saves(compiled="Score.on_epoch_end") == (0, 400 - 4)  # nobody knows here what of it computes
    told = what_if(model, {"without": "predict"})
    assert told.wall_ms == 1_000
    assert told.because == "`predict` took 390 ms, with all calls below."
    assert str(told) == f"saves 390 ms of 1.00 s: {told.because}"
    assert str(what_if(model, {"cores": 8})).startswith("saves 0 to 262 ms of 1.00 s: ")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "found nothing"),
        ({"speed": 2}, "found speed"),
        ({"without": "<b>evil"}, r"called '<b>evil'. The largest nodes: fit, Score.on_epoch_end, predict"),
        ({"input": -1}, "got -1"),
        ({"device": "fast"}, "got 'fast'"),
        ({"launch": True}, "got True"),
        ({"cores": 0}, "got 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_says_so(changes, words):
    with pytest.raises(ValueError, match=words):
        what_if(Model(TREE, cores=2), changes)


def test_names_are_data():
    evil = "f\x1b[31m<b>"
    model = Model(tree_of((-1, "cell", "", 0, 0), (0, "own lines", evil, 100, 0)))
    for change in ({"without": evil}, {"compiled": evil}):
        assert "\x1b" not in str(what_if(model, change))
    with pytest.raises(ValueError) as caught:
        what_if(model, {"without": "g"})
    assert "\x1b" not in str(caught.value)


def test_what_a_call_costs_is_said_to_be_measured_only_where_it_was():
    model = Model(tree_of((-1, "cell", "", 0, 0), (0, "own lines", "f", 100, 0)))
    assert "costs 20.0 to 500 µs as a rule." in what_if(model, {"compiled": "f"}).because


def test_how_often_a_function_ran_is_told_by_what_stands_beside_it():
    tree = tree_of(
        (-1, "cell", "", 0, 0), (0, "own lines", "loop", 0, 0), (1, "own lines", "score", 5, 0), (1, "function calls", "train", 5, 200),
    )  # fmt: skip
    assert tree.times_of(2) == 200
    assert TREE.times_of(8) == 100
    assert tree_of((-1, "cell", "", 5, 0)).times_of(0) == 1


def test_compiling_costs_once_what_some_eager_calls_take():
    """Beside 200 steps a call takes 5 ms; where it makes variables it is traced twice."""
    tree = tree_of(
        (-1, "cell", "", 0, 0), (0, "own lines", "loop", 0, 0), (1, "own lines", "score", 1000, 0), (1, "function calls", "train", 5, 200),
        (0, "own lines", "step", 900, 100), (4, "building models", "layers", 100, 0), (0, "own lines", "uncounted", 500, 0),
    )  # fmt: skip
    few, many = TRACED_CALLS
    costs = {name: [ps / MS for ps in compiled_at(Model(tree), row).once_ps] for name, row in (("score", 2), ("step", 4), ("uncounted", 6))}
    # Nobody knows without a trace what of it computes, and is traced as fast as anything.
    assert costs == {"score": [0, many * 5], "step": [0, 2 * many * 10], "uncounted": [0, 0]}
    with_trace = Model(tree)
    vars(with_trace)["kernel_shares"] = lambda took_ps: (0.0, 0.5)
    assert [ps / MS for ps in compiled_at(with_trace, 2).once_ps] == [few * 5 / 2, many * 5]
    edit = replace(scale(tree, [2], 0.0, 0.2), once_ps=(20 * MS, 40 * MS))
    found = replay(tree, [edit])
    assert (found.low_ps / MS, found.high_ps / MS) == (800, 1000)  # of the cell as it runs again
    assert found.once_ps == (20 * MS, 40 * MS)
    assert replay(tree, [edit], replay(tree, [scale(tree, [2], 0, 0)])).once_ps == (0, 0)


def test_a_tree_of_made_looks_has_its_times():
    cell = Cell()
    with cell.run("fit"):
        for _ in range(5):
            cell.step(10)
            cell.epoch_ends()
            cell.callback("Score.on_epoch_end", 20)
    records = cell.records()
    saved = what_if(Model(grow_tree(records, None)), {"without": "Score.on_epoch_end"})
    assert saved.saves_ms == pytest.approx((100, 100))  # all that was looked at between steps is that callback's
    assert saved.wall_ms == 150
    assert MINE.rpartition("/")[2] in grow_tree(records, None).line[4]


# What things cost here.


@pytest.mark.tensorflow
def test_costs_are_measured_once_where_tensorflow_runs():
    pytest.importorskip("tensorflow")
    costs = costs_here()
    assert costs.is_measured
    assert costs is costs_here()
    for low, high in (costs.call_ps, costs.restart_ps):
        assert 0 < low <= high


def test_costs_are_a_wide_range_where_nothing_can_be_measured(monkeypatch):
    monkeypatch.setattr(environment, "_measured", lambda: 1 / 0)
    costs_here.cache_clear()
    assert costs_here() == typical_costs()
    costs_here.cache_clear()
    assert not typical_costs().is_measured


# Of programs and traces.


@pytest.mark.tensorflow
def test_a_change_of_a_real_cell():
    p, _ = fit_whose_callback_predicts(epochs=4)
    tree = p.cell_tree.set_index("name")
    hook = p.what_if(without="Score.on_epoch_end")
    assert hook.wall_ms == pytest.approx(tree.wall_ms.iloc[0])
    without_us = 1 - tree.self_ms[tree.kind == "profnb"].sum() / hook.wall_ms  # a saving is a share of the cell without profnb
    took = tree.wall_ms["Score.on_epoch_end"] / without_us
    assert hook.saves_ms[0] <= took <= hook.saves_ms[1] * (1 + 1e-9) or took == pytest.approx(hook.wall_ms)
    assert p.what_if(without="predict").saves_ms[1] <= hook.saves_ms[1] + 1e-6
    restarts = p.what_if(epochs_restart_free=True)
    assert 0 <= restarts.saves_ms[0] <= restarts.saves_ms[1] < hook.wall_ms
    with pytest.raises(ValueError, match="Score.on_epoch_end"):
        p.what_if(without="nobody")


def test_a_change_of_a_trace_that_another_program_recorded(cpu_trace_path):
    p = profnb.load(cpu_trace_path)
    tree = p.cell_tree
    found = p.what_if(input=0)
    assert found.saves_ms == pytest.approx([tree.self_ms[tree.kind == "input"].sum()] * 2)
    assert found.wall_ms == pytest.approx(tree.wall_ms[0])


def test_a_change_of_a_device_leaves_what_the_host_does_behind_it(shared_traces):
    p = profnb.load(shared_traces / "gpu-cnn-batch128")
    computing = p.cell_tree.set_index("kind").wall_ms["device compute"]
    assert p.what_if(device=0.5).saves_ms == pytest.approx((0, computing / 2))  # launching takes as long as the steps
    assert p.what_if(device=0).saves_ms[1] == pytest.approx(computing)
    assert "the host's own work beside needs 100.0 % of the saving" in p.what_if(device=0.5).because
    assert p.what_if(device=2).saves_ms == (0, 0)


def test_a_faster_device_saves_what_the_host_waits_for():
    """Steps of 10 ms: the host launches for 2 and waits for 8, in which the device computes."""
    ms = 10**9
    steps = [one for n in range(8) for one in (
        event("train", n * 10 * ms, 10 * ms, step_num=n, _r=1), event("cuLaunchKernel", n * 10 * ms, 2 * ms, correlation_id=n),
        event("cuStreamSynchronize", (n * 10 + 2) * ms, 8 * ms))]  # fmt: skip
    kernels = [event("gemm", (n * 10 + 2) * ms, 8 * ms, correlation_id=n, group_id=n) for n in range(8)]
    p = profnb.Profile(read(host(line("python", *steps)), gpu(line("Stream #1", *kernels))))
    assert p.what_if(device=0.5).saves_ms == pytest.approx((32, 32))
    assert p.what_if(device=0.25).saves_ms == pytest.approx((48, 48))


def test_nothing_recorded_is_nothing_to_change():
    with pytest.raises(ValueError, match="Nothing was recorded"):
        profnb.Profile().what_if(input=0)


@pytest.mark.parametrize("framework", [JAX, PYTORCH, TENSORFLOW])
def test_a_call_costs_what_one_of_the_framework_does(framework):
    study = Study(read(host(line("python", event("train", 0, MS, step_num=0, _r=1)))))
    study.program = ProgramKind(framework)
    costs = Model(TREE, study).costs
    assert costs == replace(typical_costs(), call_ps=CALL_PS.get(framework, typical_costs().call_ps))
