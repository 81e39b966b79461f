"""The tree of the cell as an icicle, the first picture of a report, as a table, and beside another one.

Each node lies under the one above it, as wide as its share. Nodes next to each other abut; what is left of a
node without others below it is its own time. The script draws the picture. Without it the largest nodes
stand in a table of text bars.
"""

from collections.abc import Callable, Sequence

import numpy as np
from markupsafe import Markup

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CALL, CELL, COMPILATION, EPOCH, LINES
from profnb.causes.cell_tree import CELL_TREE, LAYER, OP, STEPS, CellTree
from profnb.compare.tree_differences import GONE, NEW, compare_nodes
from profnb.core.units import (
    MISSING,
    bar_text,
    count_text,
    duration_text,
    percent_text,
    signed_text,
)
from profnb.drawing.drawn_tables import Cell, html_table
from profnb.drawing.markup import json_attribute
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import CELL_COLOURS
from profnb.steps.activities import CATEGORIES
from profnb.subjects.cell.cell_breakdown import kind_title

_TAB = "Cell"
_MOST_DRAWN, _MOST_LISTED, _LEAST_LISTED, _SHOWN = 400, 12, 0.02, 8
_MILLION = 1_000_000  # widths are whole millionths of the cell, so that neighbours abut
_BAR_LENGTH, _INDENT = 24, "\u00a0\u00a0"
_HOLDS, _HELD = (CELL, CALL, EPOCH), "holds others"
_TITLES = {
    **dict.fromkeys((parts.FIRST, parts.SLOW_FIRST, parts.TRACING, COMPILATION), "tracing, compiling"),
    **dict.fromkeys(STEPS[:-2], "steps"),
    **dict.fromkeys((parts.AROUND, parts.SETTING_UP), kind_title(parts.AROUND)),
    **dict.fromkeys((LINES, parts.OTHER, parts.EAGER, parts.FRAMEWORK, parts.WAITING), "Python"),
    **dict.fromkeys((parts.IMPORTS, parts.BUILDING), "imports, building"),
}  # fmt: skip
_GROWN, _SHRUNK, _LEAST_SEEN = "#c62828", "#2e7d32", 0.005  # of the longer cell
_BESIDE = (
    "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:0 14px"
)
Places = Callable[[str], str]


def cell_picture(tree: CellTree, whole: str, places: Places) -> Markup:
    """The icicle, with a table of its largest nodes inside for pages that run no script.

    Args:
        tree: The tree.
        whole: What all of it is: "the cell".
        places: Where a layer's ops are: words to search; "" for nowhere.
    """
    wall_ps = tree.wall_ps.tolist()
    return icicle(
        tree,
        [whole, *map(tree.title, range(1, len(tree)))],
        [look_of(tree, row) for row in range(len(tree))],
        [f"{duration_text(one)}, {percent_text(one / (tree.whole_ps or 1))}" for one in wall_ps],
        places=places,
    )


def icicle(
    tree: CellTree,
    titles: Sequence[str],
    look: Sequence[tuple[str, str]],
    times: Sequence[str],
    *,
    places: Places = lambda _: "",
    order: Sequence[int] = (),
    wide_ps: int = 0,
) -> Markup:
    """Draw a tree of N nodes.

    Args:
        tree: The tree.
        titles: What each node is called.
        look: The entry of each in the legend, and its colour.
        times: What is said of its time.
        places: Where a layer's ops are.
        order: The largest number stands first; by default a node's time.
        wide_ps: What is as wide as the picture; the whole tree by default.
    """
    begin = _begins(tree, order or tree.wall_ps.tolist())
    largest = sorted(range(len(tree)), key=lambda row: -int(tree.wall_ps[row]))
    drawn = sorted(row for row in largest[:_MOST_DRAWN] if row == 0 or tree.wall_ps[row] > 0)
    place = {row: at for at, row in enumerate(drawn)}
    looks = list(dict.fromkeys(look[row] for row in drawn))
    whole_ps = wide_ps or max(tree.whole_ps, 1)
    data = {
        "looks": looks,
        "nodes": [
            [
                place.get(int(tree.parent[row]), -1),
                begin[row] * _MILLION // whole_ps,
                (begin[row] + int(tree.wall_ps[row])) * _MILLION // whole_ps,
                titles[row],
                looks.index(look[row]),
                _about(tree, row, times[row]),
                _time_itself(tree, row),
                _leads_to(tree, row, places),
                row,
            ]
            for row in drawn
        ],
    }
    return Markup('<div class="profnb-icicle" data-tree={}>{}</div>').format(
        json_attribute(data), _largest(tree)
    )


def difference_picture(trees: Sequence[CellTree], labels: Sequence[str]) -> Markup:
    """Two trees side by side on one scale: what B takes longer for is red, what it takes less for is green.

    Args:
        trees: A's and B's.
        labels: What they are called.
    """
    wide_ps = max(1, *(tree.whole_ps for tree in trees))
    looks = {1: (f"longer in {labels[1]}", _GROWN), -1: (f"shorter in {labels[1]}", _SHRUNK)}
    pictures = []
    for tree, label, nodes in zip(trees, labels, compare_nodes(trees), strict=True):
        signs = [
            int(np.sign(node.difference_ps)) * (abs(node.difference_ps) >= _LEAST_SEEN * wide_ps)
            for node in nodes
        ]
        times = [
            f"{duration_text(wall_ps)}, "
            + (node.status if node.status in (NEW, GONE) else signed_text(node.difference_ps))
            if sign
            else duration_text(wall_ps)
            for wall_ps, node, sign in zip(tree.wall_ps.tolist(), nodes, signs, strict=True)
        ]
        picture = icicle(
            tree,
            [label, *map(tree.title, range(1, len(tree)))],
            [looks.get(sign, (_HELD, "")) for sign in signs],
            times,
            order=[node.most_ps for node in nodes],
            wide_ps=wide_ps,
        )
        pictures.append(Markup('<div style="min-width:0">{}</div>').format(picture))
    return Markup('<div style="{}">{}</div>').format(_BESIDE, Markup("").join(pictures))


def _begins(tree: CellTree, size: Sequence[int]) -> list[int]:
    """Where each node begins in the picture: below one node the largest first, the rest and profnb last."""
    below: dict[int, list[int]] = {}
    for row, above in enumerate(tree.parent.tolist()):
        below.setdefault(above, []).append(row)
    begin = [0] * len(tree)
    for above, rows in below.items():
        at = begin[above] if above >= 0 else 0
        for row in sorted(rows, key=lambda row: (_is_last(tree, row), -size[row])):
            begin[row] = at
            at += int(tree.wall_ps[row])
    return begin


def _is_last(tree: CellTree, row: int) -> bool:
    return tree.kind[row] == parts.PROFNB or tree.title(row) == "others"


def look_of(tree: CellTree, row: int) -> tuple[str, str]:
    """A node's entry in the legend, and its colour; layers and ops have those of what they are below."""
    while tree.kind[row] in (LAYER, OP) and row > 0:
        row = int(tree.parent[row])
    kind = tree.kind[row]
    is_divided = tree.self_ps[row] == 0 and row + 1 < len(tree) and tree.parent[row + 1] == row
    if kind in _HOLDS or (is_divided and kind not in CATEGORIES):
        return _HELD, ""
    return _TITLES.get(kind, kind_title(kind)), CELL_COLOURS[kind]


def _about(tree: CellTree, row: int, time: str) -> str:
    """What is said of a node under the pointer, and to readers."""
    title, times = tree.title(row), int(tree.occurrences[row])
    said = [
        _kind_beside(tree, row),
        "" if title == tree.line[row] else tree.line[row],
        f"{count_text(times)} times" if times > 1 else "",
        time,
    ]
    return " · ".join(part for part in said if part)


def _kind_beside(tree: CellTree, row: int) -> str:
    """What a node is, where its title does not say it."""
    kind = kind_title(tree.kind[row])
    return "" if set(kind.split()) <= set(tree.title(row).split()) else kind


def _time_itself(tree: CellTree, row: int) -> str:
    """A node's own time, where it holds others; "" for none."""
    self_ps = int(tree.self_ps[row])
    return duration_text(self_ps) if 0 < self_ps < tree.wall_ps[row] else ""


def _leads_to(tree: CellTree, row: int, places: Places) -> str:
    """The tab, and behind a tab character the words, by which a report has more of a node; "" for none."""
    kind, name = tree.kind[row], tree.name[row]
    if kind == LAYER:
        words = places(name)
        return f"Ops\t{words}" if words else "Layers"
    if kind == OP and name not in ("others", "unnamed"):
        return f"Ops\t{name}"
    if kind == parts.INPUT:
        return "Input"
    if kind in (*STEPS, *CATEGORIES, parts.GAPS):
        return "Steps"
    return "Source" if tree.line[row] else ""


def _largest(tree: CellTree) -> Markup:
    listed = [row for row in _order(tree) if tree.fraction[row] >= _LEAST_LISTED][:_MOST_LISTED]
    rows: list[list[Cell]] = [
        [
            (bar_text(float(tree.fraction[row]), _BAR_LENGTH), f"color:{_colour(tree, row)}"),
            _INDENT * int(tree.depth[row]) + tree.title(row),
            duration_text(int(tree.wall_ps[row])),
            percent_text(float(tree.fraction[row])),
        ]
        for row in listed
    ]
    return html_table(("", "part of the cell", "time", "share"), rows, (False, False, True, True))


def _colour(tree: CellTree, row: int) -> str:
    return look_of(tree, row)[1] or CELL_COLOURS[CELL]


def _order(tree: CellTree) -> list[int]:
    """The nodes as they stand in the picture, from top to bottom and from left to right."""
    begin = _begins(tree, tree.wall_ps.tolist())
    return sorted(range(len(tree)), key=lambda row: (begin[row], int(tree.depth[row])))


def tree_section(tree: CellTree, whole: str, *, is_detail: bool) -> Section:
    """The tree as a table."""

    def node(row: int) -> Cell:
        return _INDENT * int(tree.depth[row]) + tree.title(row), "", _kind_beside(tree, row)

    def occurrences(row: int) -> str:
        return count_text(int(tree.occurrences[row])) if tree.occurrences[row] else MISSING

    order: Sequence[int] = _order(tree)
    return section_of(
            CELL_TREE,
            tree,
            (
                Shown("node", node, sort_key=tree.title, meaning=CELL_TREE["name"].meaning),
                "wall_ms",
                "fraction",
                "self_ms",
                Shown(
                    "times", occurrences, is_number=True,
                    sort_key=lambda row: float(tree.occurrences[row]) or None,
                    meaning=CELL_TREE["occurrences"].meaning,
                ),
                "line",
            ),
            title=_TAB,
            tab=_TAB,
            sentence=f"{duration_text(tree.whole_ps)} of {whole}. A node holds those below it.",
            bar=Bar(lambda row: float(tree.fraction[row]), lambda row: _colour(tree, row), 8),
            rows=order,
            is_sortable=True,
            shown=_SHOWN,
            is_detail=is_detail,
        )  # fmt: skip
