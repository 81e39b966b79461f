"""The tree of a cell: by made looks to the nanosecond, of real programs, and of traces that others recorded."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_cell import CELL, MINE, NEXT_ELEMENT, TENSORFLOW, TRAINER, Cell, fit_whose_callback_predicts, keras_run, saves

import profnb
from profnb.capture.parts.part_records import FIRST, FRAMEWORK, CellRecords, PREDICT, PROFNB, TRAIN, TreeNode
from profnb.capture.parts.tree_paths import common_path, divided
from profnb.capture.parts.stack_parts import part_of_stack
from profnb.capture.parts.part_records import TRACING, NodeKey
from profnb.capture.parts.part_records import LINES
from profnb.capture.step_records import CALL, USER
from profnb.causes.cell_tree import _steps_of, _with_waits, grow_tree
from profnb.steps.windows import Steps

ITERATOR = ("OwnedIterator.__init__", f"{TENSORFLOW}/data/ops/iterator_ops.py", 700, 730)
TRACES = ("trace_function", f"{TENSORFLOW}/eager/polymorphic_function/tracing_compilation.py", 100, 120)


def own(name, line=20):
    return (name, MINE, line, line + 2)


@pytest.fixture
def cell():
    return Cell()


def test_what_a_callback_calls_is_below_it_and_a_validation_below_its_epoch(cell):
    def predicts():
        with cell.run("predict"):
            cell.work(3)
            cell.step(20, name="predict")

    cell.work(1)
    with cell.run("fit"):
        cell.work(5)
        for _ in range(2):
            cell.step(10)
            cell.step(10)
            with cell.run("evaluate"):
                cell.work(4)
                cell.step(6, name="test")
            cell.epoch_ends()
            cell.callback("Score.on_epoch_end", 7, inside=predicts)
    callback = "call fit > epoch > callbacks Score.on_epoch_end"
    assert cell.tree() == {
        "own lines": (1, 0),
        "call fit > around steps": (5, 1),
        "call fit > epoch > train steps": (40, 4),
        "call fit > epoch > call validation > around steps": (8, 2),
        "call fit > epoch > call validation > validation steps": (12, 2),
        callback: (14, 2),
        f"{callback} > call predict > around steps": (6, 2),
        f"{callback} > call predict > predict steps": (40, 2),
    }


def test_own_functions_are_named_though_nothing_marks_them(cell):
    """A loop of a compiled step and a function that nobody compiled."""
    for _ in range(5):
        with cell.within(own("fit_it", 10)):
            cell.step(2, CALL, "train")
            cell.work(8, own("score"))
            cell.work(1)
    assert cell.tree() == {
        "own lines fit_it": (5, 0),
        "own lines fit_it > function calls train": (10, 5),
        "own lines fit_it > own lines score": (40, 0),
    }


def test_what_steps_call_is_below_them(cell):
    """Steps that the user marks, in which an own function runs, and one traces."""
    for number in range(4):
        with cell.within(own("loop", 10)):
            with_tracing = [own("forward"), TRACES] if not number else [own("forward")]
            begin = cell.now
            cell.work(10, *with_tracing)
            cell.log.end_step(len(cell.log), begin, cell.now, "train", 1, 0, 0, 1, number, 0)
            cell.work(1)
    assert cell.tree() == {
        "own lines loop": (4, 0),
        "own lines loop > marked steps train > own lines forward": (30, 0),
        "own lines loop > marked steps train > own lines forward > tracing": (10, 0),
    }


def test_iterators_that_are_made_anew_are_in_the_epochs_that_make_them(cell):
    with cell.run("fit"):
        cell.work(6, ITERATOR)
        for _ in range(3):
            cell.step(2)
            cell.step(2)
            cell.epoch_ends()
            cell.work(30, ITERATOR)
    assert cell.tree() == {
        "call fit > set-up": (36, 0),
        "call fit > epoch > train steps": (12, 6),
        "call fit > epoch > set-up": (60, 0),
    }


def test_one_loop_that_calls_fit_from_two_functions_has_both(cell):
    for name, ms in (("first", 10), ("second", 30)):
        with cell.within(own(name, len(name))), cell.run("fit"):
            for _ in range(2):
                cell.step(ms)
    assert cell.tree() == {
        "own lines first > call fit > epoch > train steps": (20, 0),
        "own lines second > call fit > epoch > train steps": (60, 0),
    }


def test_without_a_look_the_tree_is_what_was_counted(cell):
    with cell.run("fit"):
        for _ in range(3):
            cell.step(5, looks=False)
            cell.work(1, looks=False)
        cell.epoch_ends()
    assert cell.tree() == {
        "call fit > epoch > train steps": (15, 3),
        "call fit > epoch > gaps": (2, 2),
        "cell": (1, 0),
    }


def test_a_recursive_function_is_one_node_and_the_callers_of_the_capture_are_none():
    deep = [own("main", 1), *[own("visit")] * 900, saves()]
    names = [place.name for place in part_of_stack(deep, base=1).path]
    assert names == ["visit", "Model.save_weights"]


def test_lines_of_the_cell_itself_are_nodes_and_expressions_inside_of_functions_are_not():
    assert part_of_stack([CELL]).path == (NodeKey(LINES, "", CELL[1], CELL[3]),)
    inside = part_of_stack([CELL, own("train.<locals>.Net.call"), own("<listcomp>", 30)]).path
    assert inside == (NodeKey(LINES, "Net.call", MINE, 20),)


def test_a_wait_inside_of_a_fit_is_below_the_fit():
    path = part_of_stack([CELL, keras_run("fit"), NEXT_ELEMENT]).path
    assert [place.kind for place in path] == ["call", "input"]
    assert [place.kind for place in part_of_stack([keras_run("fit"), ("error_handler", TRAINER, 1, 1), TRACES]).path] == ["call", TRACING]


def test_ways_in_common_and_shares_by_hand():
    a, b, c = (NodeKey(LINES, name) for name in "abc")
    assert common_path([(a, b, c), (a, b), (a, b, a)]) == (a, b)
    assert common_path([]) == ()
    assert dict(divided(10, {"x": 1, "y": 2})) == {"y": 7, "x": 3}
    assert sum(part for _, part in divided(10**18 + 7, dict.fromkeys(range(13), 1))) == 10**18 + 7


def test_too_many_ways_are_charged_to_what_is_above(cell):
    for number in range(1_500):
        cell.work(1, own(f"f{number}", number + 1))
    tree = cell.records().tree
    assert len(tree) == 1_000
    assert tree[0].self_ns == 501 * 1_000_000


def test_a_kind_of_steps_of_the_users_own(cell):
    with cell.within(own("loop", 10)):
        cell.step(10, USER, "augment")
        cell.step(10, USER, "augment")
    assert cell.tree() == {"own lines loop > marked steps augment": (20, 2)}


# As a table.


@pytest.mark.tensorflow
def test_the_tree_of_a_real_fit_whose_callback_predicts(tmp_path):
    p, Score = fit_whose_callback_predicts(epochs=3)
    tree = p.cell_tree
    assert tree.self_ms.sum() == pytest.approx(tree.wall_ms[0]) == pytest.approx(p.cell_breakdown.wall_ms.sum())
    assert tree.fraction[0] == 1
    by_kind = tree.set_index("kind")
    assert by_kind.occurrences["epoch"] == 3
    hook = tree[tree.name == f"{Score.__name__}.on_epoch_end"].iloc[0]
    assert (hook.kind, hook.occurrences) == ("callbacks", 3)
    assert hook.line.endswith(f":{Score.on_epoch_end.__code__.co_firstlineno}")
    predict = tree[tree.name == "predict"].iloc[0]
    assert predict.parent == hook.node
    steps = tree[tree.kind == "predict steps"].iloc[0]
    assert steps.parent == predict.node
    assert steps.wall_ms >= tree[tree.parent == steps.node].wall_ms.sum() - 1e-9
    assert (tree.low_ms <= tree.wall_ms + 1e-9).all() and (tree.wall_ms <= tree.high_ms + 1e-9).all()
    again = profnb.load(p.save(tmp_path)).cell_tree
    what = ["kind", "name", "line", "parent", "occurrences"]
    assert again[what].fillna(-1).equals(tree[what].fillna(-1))
    assert again.self_ms.tolist() == pytest.approx(tree.self_ms.tolist())


def test_the_tree_of_a_trace_that_another_program_recorded(cpu_trace_path):
    p = profnb.load(cpu_trace_path)
    tree = p.cell_tree
    assert tree.self_ms.sum() == pytest.approx(tree.wall_ms[0])
    steps = p.steps
    assert tree.wall_ms[0] == pytest.approx(steps.duration_ms.sum() + steps.gap_ms.fillna(0).sum())
    assert {"host compute"} <= set(tree.kind)
    for row in tree[tree.parent.notna()].itertuples():
        assert row.wall_ms <= tree.wall_ms[row.parent] + 1e-9


@pytest.mark.tensorflow
def test_steps_that_wait_for_a_further_pass_count_and_those_that_trace_do_not():
    """Of six steps the first is slow, the third waits behind the end of an epoch, the fifth traces."""
    begin = np.arange(6, dtype=np.int64) * 100
    steps = Steps.between(begin, begin + 50, ("train",) * 6, "by hand")
    warm, ends = np.zeros((2, 6), np.bool_)
    warm[[0, 2, 4]], ends[1] = True, True
    steps = replace(steps, is_warmup=warm, ends_epoch=ends)
    assert _steps_of(SimpleNamespace(steps=steps), "train").tolist() == [1, 2, 3, 5]
    assert _steps_of(SimpleNamespace(steps=steps), "test").size == 0


@pytest.mark.parametrize("is_below", [True, False], ids=["in a function that the step calls", "by the step itself"])
def test_a_step_that_looks_saw_waits_nowhere_else(is_below):
    """Four steps of 50: looks saw all 200 of them in the framework, and the 600 of `validate` are its own."""
    begin = np.arange(4, dtype=np.int64) * 100
    study = SimpleNamespace(steps=Steps.between(begin, begin + 50, ("train",) * 4, "by hand"), program=SimpleNamespace(has_device=False))
    nodes = [TreeNode(-1, "cell"), TreeNode(0, LINES, "train"), TreeNode(1, TRAIN, occurrences=4)]
    nodes += [TreeNode(2, LINES, "one_epoch")] * is_below + [TreeNode(2 + is_below, FRAMEWORK, self_ns=200)]
    nodes += [TreeNode(1, LINES, "validate"), TreeNode(len(nodes), FRAMEWORK, self_ns=600)]
    assert [node.self_ns for node in _with_waits(nodes, study)] == [node.self_ns for node in nodes]


def test_the_parts_of_a_cell_are_those_of_its_tree():
    """Steps, what profnb did and the whole take as long in both: what is below a step is the step's."""
    records = fit_whose_callback_predicts(epochs=3)[0].recording.cell
    of_tree, of_parts, steps = Counter(), Counter(), (TRAIN, PREDICT, FIRST, PROFNB)
    for node in records.tree:
        at = node
        while at.kind not in steps and at.parent >= 0:
            at = records.tree[at.parent]
        of_tree[at.kind] += node.self_ns
    for part in records.parts:
        of_parts[part.part] += part.wall_ns
    assert of_tree.total() == of_parts.total() == records.wall_ns
    for kind in steps:
        # What profnb's threads took is taken from each node and each part: a nanosecond is rounded in each.
        assert of_tree[kind] == pytest.approx(of_parts[kind], abs=len(records.tree), rel=0), kind


def test_a_chain_as_deep_as_a_file_may_hold_is_asked_from_its_end():
    """Somebody shared it: no question goes as deep into Python's own stack."""
    deep = [TreeNode(-1, "cell"), *(TreeNode(row, LINES, f"f{row}", self_ns=1000) for row in range(1199))]
    tree = grow_tree(CellRecords(1_199_000, tree=deep), None)
    assert len(tree.rows_above(1199)) == 1200
    assert not tree.is_inside(1199, (CALL,), 0)
    assert (tree.times_of(1199), tree.line_above(1199), tree.named("f1198")) == (1, "", [1199])
