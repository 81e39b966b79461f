"""The sentence of a cell, from its tree: who is named, what is put together, what adds up."""

import json
import re
from html import unescape

import pytest

from profnb.causes.cell_tree import grow_tree
from profnb.capture.parts.part_records import (
    AROUND, CALLBACKS, CALLS, COMPILATION, FIRST, GAPS, IMPORTS, MARKED, PREDICT, PROFNB, TRACING, TRAIN, VALIDATION, CellRecords,
)  # fmt: skip
from profnb.capture.parts.part_records import CALL, CELL
from profnb.capture.parts.part_records import EAGER, EPOCH, FRAMEWORK, LINES, SETTING_UP, TreeNode
from profnb.report.cell_picture import cell_picture, cell_words, longest_text

MS = 1_000_000
FILE = "<ipython-input-5-a>"


def tree(*rows, whole=""):
    """Of nodes behind the cell: depth, kind, name, milliseconds by itself, and how often or which line."""
    nodes, at_depth = [TreeNode(-1, CELL, whole)], {0: 0}
    for depth, kind, name, ms, *rest in rows:
        times, line = (rest[0], 0) if kind != LINES else (0, rest[0] if rest else 0)
        at_depth[depth] = len(nodes)
        nodes.append(
            TreeNode(at_depth[depth - 1], kind, name, FILE if line else "", line, times, ms * MS)
        )
    cells = {FILE: 5}
    return grow_tree(CellRecords(sum(n.self_ns for n in nodes), cells=cells, tree=nodes), None)


def words(*rows):
    return cell_words(tree(*rows))


def test_what_ran_has_its_name_and_what_took_longest_in_it_is_said_by_name():
    rows = (1, LINES, "count_words", 500, 3), (2, EAGER, "", 100, 0), (1, CALLS, "step", 300, 5), (1, LINES, "", 60, 4), (1, LINES, "plot", 40, 9)
    script = tree(*rows, whole="script")
    assert (script.title(0), script.whole, tree(*rows).whole) == ("script", "the script", "the cell")
    assert longest_text(script) == "Longest by name: `count_words` 50 %, `step` 30 %, Cell [5]:4 6 % of the script."
    assert longest_text(tree((1, FIRST, "", 600, 1), (1, TRAIN, "", 400, 9))) == "First steps and compiling (60 %) come once: train longer."
    compiled = tree((1, COMPILATION, "", 500, 1), (1, TRACING, "", 100, 1), (1, TRAIN, "", 400, 9))
    assert longest_text(compiled) == "First steps and compiling (60 %) come once: train longer."


def test_a_node_leads_to_where_the_report_has_more_of_it():
    ran = tree((1, LINES, "train", 100, 3), (2, EAGER, "", 100, 0), (1, TRAIN, "", 100, 9), (1, IMPORTS, "", 50, 1))
    picture = str(cell_picture(ran, lambda name: ""))
    nodes = json.loads(unescape(re.search("data-tree='(.*?)'>", picture)[1]))["nodes"]
    assert {node[3]: node[7] for node in nodes if node[8]} == {"train": "Source", "eager ops": "Ops", "train steps": "Steps", "imports": ""}


def test_callbacks_and_functions_are_named_and_what_they_call_is_theirs():
    said = words(
        (1, CALL, "fit", 0, 1), (2, EPOCH, "", 0, 10), (3, TRAIN, "", 2800, 100), (3, GAPS, "", 50, 99),
        (3, CALLBACKS, "Score.on_epoch_end", 300, 10), (4, CALL, "predict", 0, 10), (5, PREDICT, "", 3700, 90), (5, AROUND, "", 900, 10),
        (3, CALL, "validation", 0, 10), (4, VALIDATION, "", 1200, 10), (4, AROUND, "", 500, 10),
        (1, LINES, "report", 200, 3), (2, EAGER, "", 250, 0), (1, PROFNB, "stop", 100, 1),
    )  # fmt: skip
    assert said.text == (
        "Of 10.0 s: `Score.on_epoch_end` 49 %, train steps 28 %, validation steps 12 %, other parts 10 %, profnb 1 %."
    )
    assert sum(share.fraction for share in said.shares) == pytest.approx(1)


def test_a_function_that_has_the_loop_is_gone_into():
    said = words(
        (1, LINES, "train", 100, 3), (2, CALLS, "step", 600, 50), (2, FRAMEWORK, "", 50, 0), (2, LINES, "plot", 200, 9), (2, EAGER, "", 50, 0),
    )  # fmt: skip
    assert said.text == "Of 1.00 s: `step` 60 %, `train` itself 20 %, `plot` 20 %."


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (((1, CALL, "predict", 0, 40), (2, AROUND, "", 8000, 40), (2, SETTING_UP, "", 1000, 0), (2, PREDICT, "", 1000, 40)),
         "set-up of runs 90 % (40 times predict), predict steps 10 %."),
        (((1, CALL, "fit", 0, 1), (2, AROUND, "", 9000, 1), (2, TRAIN, "", 1000, 40)), "set-up of runs 90 %, train steps 10 %."),
        (((1, IMPORTS, "pandas", 9000, 0), (1, LINES, "", 1000, 4)), "imports `pandas` 90 %, your own lines 10 % (most of it Cell [5]:4)."),
    ],
)  # fmt: skip
def test_what_more_there_is_to_say(rows, text):
    assert words(*rows).text.partition(": ")[2] == text


def test_lines_of_the_cell_are_python_and_where_most_of_it_is():
    said = words(
        (1, LINES, "", 10, 1),
        (1, LINES, "", 520, 3),
        (1, LINES, "", 420, 7),
        (1, PROFNB, "stop", 50, 1),
    )
    assert said.text == "Of 1.00 s: your own lines 95 % (most of it Cell [5]:3), profnb 5 %."


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (((1, MARKED, "augment", 600, 9), (1, MARKED, "step", 400, 9)), "augment steps 60 %, steps 40 %."),
        (((1, TRAIN, "", 0, 9), (2, "host compute", "", 0, 0), (3, "layer", "net/conv2d", 600, 0), (3, "layer", "net/dense", 400, 0)), "train steps 100 % (most of it `conv2d`)."),
        (((1, TRAIN, "", 0, 9), (2, "host compute", "", 0, 0), (3, "layer", "net/conv2d", 500, 0), (3, "layer", "net/4", 400, 0), (3, "layer", "b", 100, 0)), "train steps 100 % (host compute: `conv2d` 50 %)."),
        (((1, LINES, "update", 10, 6), (2, EAGER, "", 900, 0), (2, FIRST, "f", 90, 1)), "`update` itself 91 % (eager ops), first steps 9 % (tracing, compiling)."),
    ],
)  # fmt: skip
def test_steps_and_functions_have_the_names_that_their_user_gave_them(rows, text):
    assert words(*rows).text.partition(": ")[2] == text
