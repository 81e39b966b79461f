"""Two trees of a cell's time to the parts that differ: they add up, whatever each side knows below a node."""

import html
import json
import re

import numpy as np
import pytest

from profnb.compare.part_section import SLOWER, markdown, part_section
from profnb.compare.tree_differences import compare_nodes, compare_trees, difference_sentence
from profnb.report.cell_picture import difference_picture


def tree(callback=20.0, steps=200.0, epochs=3, extra=()):
    return [
        [-1, "cell", "", 0, 5.0], [0, "call", "fit", 1, 1.0], [1, "epoch", "", epochs, 0.0], [2, "train steps", "", 300, steps],
        [2, "callbacks", "Score.on_epoch_end", epochs, callback], [0, "profnb", "page", 1, 50.0], *extra,
    ]  # fmt: skip


def whole(nodes):
    return sum(row[-1] for row in nodes if row[1] != "profnb")


def named(parts):
    return [(part.part, round(part.difference_ms, 6), part.status) for part in parts]


def test_what_is_longer_shorter_new_and_gone():
    one = tree(extra=[[0, "own lines", "load", 2, 30.0]])
    two = tree(callback=320.0, steps=190.0, extra=[[0, "own lines", "plot", 1, 40.0]])
    parts = compare_trees(one, two)
    assert named(parts) == [("Score.on_epoch_end", 300, "longer"), ("plot", 40, "new"), ("load", -30, "gone"), ("train steps", -10, "shorter")]
    assert parts[0].inside == "fit / epoch"
    assert parts[0].counts == (3, 3)
    assert sum(part.difference_ms for part in parts) == pytest.approx(whole(two) - whole(one))
    assert difference_sentence(parts) == "In all it takes 300 ms longer: Score.on_epoch_end +300 ms and plot +40.0 ms."
    assert difference_sentence(compare_trees(two, one)) == "In all it takes 300 ms shorter: Score.on_epoch_end -300 ms and plot -40.0 ms."


def test_equal_trees_have_no_differences_and_profnbs_own_time_is_none():
    slower = tree()
    slower[5] = [0, "profnb", "page", 1, 900.0]
    assert compare_trees(tree(), slower) == []
    assert difference_sentence([]) == ""


def test_siblings_of_one_name_count_together_and_in_any_order():
    one = tree(extra=[[0, "own lines", "load", 1, 10.0], [0, "own lines", "load", 1, 20.0]])
    two = tree(extra=[[0, "own lines", "load", 2, 30.0]])
    assert compare_trees(one, two) == []


def test_what_one_side_does_not_know_is_no_part():
    """The steps of one side were traced, those of the other were not: what computes below them is not compared."""
    traced = tree(steps=0.0, extra=[[3, "host compute", "", 0, 150.0], [3, "input", "", 0, 70.0]])
    assert named(compare_trees(tree(), traced)) == [("train steps", 20, "longer")]
    layers = tree(steps=0.0, extra=[[3, "host compute", "", 0, 0.0], [6, "layer", "dense", 0, 200.0]])
    ops = tree(steps=0.0, extra=[[3, "host compute", "", 0, 0.0], [6, "op", "MatMul", 0, 210.0]])
    assert named(compare_trees(layers, ops)) == [("host compute", 10, "longer")]


def test_what_is_new_is_one_part_with_all_below_it():
    two = tree(extra=[[2, "callbacks", "Plot.on_epoch_end", 3, 1.0], [6, "call", "predict", 3, 4.0], [7, "set-up", "", 3, 30.0]])
    (part,) = compare_trees(tree(), two)
    assert (part.part, part.difference_ms, part.status) == ("Plot.on_epoch_end", 35, "new")


def test_a_damaged_trees_names_command_nothing():
    parts = compare_trees(tree(), tree(extra=[[0, "own lines", "a|b\n<img>\x1b[0m", 1, 40.0]]))
    text = markdown("B is 2x slower.", ["Versions differ."], ("a|1", "b"), parts)
    assert "a\\|b" in text
    assert "\x1b" not in text
    assert "\\<img\\>" in text


def test_markdown_has_the_verdict_three_parts_the_rest_and_their_sum():
    many = tree(callback=320.0, steps=190.0, extra=[[0, "own lines", "plot", 1, 40.0], [0, "own lines", "more", 1, 3.0]])
    text = markdown("B is 1.31x slower.", ["Versions differ."], ("main", "pr_1"), compare_trees(tree(), many), SLOWER)
    assert text == (
        "> [!CAUTION]\n> **B is 1.31x slower.**\n\n> Versions differ.\n\n"
        "**In all it takes 333 ms longer: Score.on\\_epoch\\_end +300 ms, plot +40.0 ms and more +3.00 ms.**\n\n"
        "| part of the cell | main | pr\\_1 | difference |\n| --- | ---: | ---: | ---: |\n"
        "| fit / epoch / Score.on\\_epoch\\_end | 20.0 ms | 320 ms | +300 ms |\n| plot | 0 ms | 40.0 ms | +40.0 ms |\n"
        "| fit / epoch / train steps | 200 ms | 190 ms | -10.0 ms |\n| all else that differs | 0 ms | 3.00 ms | +3.00 ms |\n"
        "| **together** | 220 ms | 553 ms | +333 ms |\n"
    )


def test_the_section_shows_bars_to_the_largest_difference():
    section = part_section(("a", "b"), compare_trees(tree(), tree(callback=320.0, steps=190.0)))
    assert [row[-2] for row in section.rows] == ["+300 ms", "-10.0 ms"]
    assert section.rows[0][0] == "█" * 8


def drawn(rows):
    """A tree of rows as they are kept, in picoseconds."""
    from profnb.causes.cell_tree import CellTree

    parent, kind, name, count, own_ms = zip(*rows, strict=True)
    depth, wall = [0] * len(rows), [int(own * 1e9) for own in own_ms]
    for at in range(1, len(rows)):
        depth[at] = depth[parent[at]] + 1
    for at in range(len(rows) - 1, 0, -1):
        wall[parent[at]] += wall[at]
    numbers = [np.array(values, np.int64) for values in (parent, depth, count, [own * 1e9 for own in own_ms], wall, [0] * len(rows))]
    return CellTree(numbers[0], numbers[1], kind, name, ("",) * len(rows), *numbers[2:], numbers[-1])


def test_each_node_is_held_against_its_like():
    """The callback takes 300 ms longer, so do the epoch, the fit and the cell; profnb's own time is in neither."""
    slower = tree(callback=320.0)
    slower[5] = [0, "profnb", "page", 1, 900.0]
    one, two = compare_nodes([drawn(tree()), drawn(slower)])
    assert [node.difference_ps // 10**9 for node in one] == [300, 300, 300, 0, 300, 0] == [node.difference_ps // 10**9 for node in two]
    assert one[5].status == two[5].status == ""
    new = compare_nodes([drawn(tree()), drawn(tree(extra=[[0, "own lines", "plot", 1, 40.0]]))])[1][-1]
    assert (new.status, new.difference_ps, new.most_ps) == ("new", 40 * 10**9, 40 * 10**9)


def test_both_trees_are_drawn_on_one_scale():
    """A takes 276 ms, B 576, so A's cell is 276 / 576 of the width; what is longer in B is red in both."""
    picture = difference_picture([drawn(tree()), drawn(tree(callback=320.0))], ("a", "b"))
    one, two = (json.loads(html.unescape(text)) for text in re.findall(r"data-tree='([^']*)'", picture))
    assert (one["nodes"][0][2], two["nodes"][0][2]) == (276 * 10**6 // 576, 10**6)
    for side, times in ((one, "20.0 ms, +300 ms"), (two, "320 ms, +300 ms")):
        callback = next(node for node in side["nodes"] if node[3] == "callback Score.on_epoch_end" or "Score" in node[3])
        assert side["looks"][callback[4]][0] == "longer in b"
        assert callback[5].endswith(times)
        steps = next(node for node in side["nodes"] if node[3] == "train steps")
        assert side["looks"][steps[4]] == ["holds others", ""]
    order = [[node[3] for node in sorted(side["nodes"], key=lambda node: node[1]) if "steps" in node[3] or "Score" in node[3]] for side in (one, two)]
    assert order[0] == order[1]  # one order, though the longest is another one


def of_layers(**spent):
    below = [[6, "layer", name.replace("__", "/"), 0, ms] for name, ms in spent.items()]
    return tree(steps=0.0, extra=[[3, "host compute", "", 0, 0.0], *below])


@pytest.mark.parametrize(
    "second, expected",
    [
        ({"dense_12": 10, "dense_13": 25, "conv2d_4": 30}, [("dense_8", 5, "longer")]),  # made again in this process
        ({"dense_7": 10, "dense_8": 25, "conv2d": 30}, [("dense_8", 5, "longer")]),  # in another one
        ({"dense_8": 10, "dense_9": 25, "conv2d": 30}, [("dense_8", 5, "longer")]),  # whose numbers overlap
        ({"dense_12": 10, "dense_13": 20, "dense_14": 9, "conv2d": 30}, [("dense_9", 9, "new")]),
        ({"dense_12": 10, "conv2d": 30, "head": 2}, [("dense_8", -20, "gone"), ("head", 2, "new")]),
    ],
)
def test_layers_that_keras_numbers_anew_are_the_same(second, expected):
    one = of_layers(dense_7=10, dense_8=20, conv2d=30)
    assert named(compare_trees(one, of_layers(**second))) == expected
    nodes = compare_nodes([drawn(one), drawn(of_layers(**second))])
    assert {node.status for node in nodes[1]} >= {status for _, _, status in expected if status != "gone"}
    assert sum(node.status == "new" for node in nodes[1]) == sum(status == "new" for _, _, status in expected)


def test_layers_inside_of_a_model_that_is_numbered_anew_are_the_same():
    one, two = of_layers(sequential__dense=10, sequential__dense_1=20), of_layers(sequential_3__dense_6=10, sequential_3__dense_7=26)
    assert named(compare_trees(one, two)) == [("sequential/dense_1", 6, "longer")]


def test_the_names_of_a_users_functions_are_theirs():
    one, two = tree(extra=[[0, "own lines", "load_1", 1, 30.0]]), tree(extra=[[0, "own lines", "load_2", 1, 30.0]])
    assert [part.status for part in compare_trees(one, two)] == ["gone", "new"]
