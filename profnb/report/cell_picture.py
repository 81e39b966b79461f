"""The tree of the cell in a sentence, as an icicle, the first picture of a report, and beside another one.

Each node lies under the one above it, as wide as its share. Nodes next to each other abut; what is left of a
node without others below it is its own time. The script draws the picture. Without it the largest nodes
stand in a table of text bars.

In a sentence, each node belongs to the outermost one above it that a person would name: a callback, with all
that it calls, an own function that runs no steps, training, an import. A run of Keras', its epochs and the
function that has the loop are gone into, as what they hold tells more.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from profnb.capture.parts import part_records as parts
from profnb.causes.cell_tree import CELL_TREE, LAYER, OP, STEPS, CellTree
from profnb.compare.tree_differences import GONE, NEW, compare_nodes
from profnb.core.columns import group
from profnb.core.printable import LONGEST_NAME, printable, quoted
from profnb.core.units import bar_text, count_text, duration_text, percent_text, signed_text
from profnb.drawing.markup import Cell, html_table, json_attribute
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import CELL_COLOURS
from profnb.steps.activities import CATEGORIES
from profnb.subjects.cell.cell_breakdown import kind_title, node_title

_TAB = "Tree"
_MOST_DRAWN, _MOST_LISTED, _LEAST_LISTED, _SHOWN = 400, 12, 0.02, 8
_MILLION = 1_000_000  # widths are whole millionths of the cell, so that neighbours abut
_BAR_LENGTH, _INDENT = 24, "\u00a0\u00a0"
_WARM_UP = (parts.FIRST, parts.SLOW_FIRST, parts.TRACING, parts.COMPILATION)
_HOLDS, _HELD = (parts.CELL, parts.CALL, parts.EPOCH), "holds others"
_TITLES = {
    **dict.fromkeys(_WARM_UP, "tracing, compiling"),
    **dict.fromkeys(STEPS[:-2], "steps"),
    **dict.fromkeys((parts.AROUND, parts.SETTING_UP), kind_title(parts.AROUND)),
    **dict.fromkeys((parts.LINES, parts.OTHER, parts.EAGER, parts.FRAMEWORK, parts.WAITING), "Python"),
    **dict.fromkeys((parts.IMPORTS, parts.BUILDING), "imports, building"),
}  # fmt: skip
_GROWN, _SHRUNK, _LEAST_SEEN = "#c62828", "#2e7d32", 0.005  # of the longer cell
_COLUMNS = "repeat(auto-fit,minmax(min(420px,100%),1fr))"
_BESIDE = f"display:grid;grid-template-columns:{_COLUMNS};gap:0 14px"
Places = Callable[[str], str]
_MOST_SAID, _LEAST_SAID, _LEAST_REST = 3, 0.03, 0.005
_MOST_NAMED_LINES, _MOST_PARTS, _WORTH_NAMING, _WORTH_A_REMARK = 3, 2, 0.25, 0.1
_REST = "other parts"
_NAMELESS = ("others", "unnamed")
_OF_ABOVE = {parts.EAGER, parts.FRAMEWORK, parts.WAITING}
_CALLED_BY_NAME = (parts.CALLBACKS, parts.CALLS, parts.LINES)


def cell_picture(tree: CellTree, places: Places) -> Markup:
    """The icicle, with a table of its largest nodes inside for pages that run no script.

    Args:
        tree: The tree.
        places: Where a layer's ops are: words to search; "" for nowhere.
    """
    titles = [tree.whole, *map(tree.title, range(1, len(tree)))]
    look = [look_of(tree, row) for row in range(len(tree))]
    wall_ps, whole_ps = tree.wall_ps.tolist(), tree.whole_ps or 1
    times = [f"{duration_text(one)}, {percent_text(one / whole_ps)}" for one in wall_ps]
    return icicle(tree, titles, look, times, places=places)


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
    pictures = Markup("")
    for tree, label, nodes in zip(trees, labels, compare_nodes(trees), strict=True):
        look, times = [], []
        for node, time in zip(nodes, map(duration_text, tree.wall_ps.tolist()), strict=True):
            is_seen = abs(node.difference_ps) >= _LEAST_SEEN * wide_ps
            sign = int(np.sign(node.difference_ps)) * is_seen
            more = node.status if node.status in (NEW, GONE) else signed_text(node.difference_ps)
            look.append(looks.get(sign, (_HELD, "")))
            times.append(f"{time}, {more}" if sign else time)
        titles, order = [label, *map(tree.title, range(1, len(tree)))], [n.most_ps for n in nodes]
        picture = icicle(tree, titles, look, times, order=order, wide_ps=wide_ps)
        pictures += Markup('<div style="min-width:0">{}</div>').format(picture)
    return Markup('<div style="{}">{}</div>').format(_BESIDE, pictures)


def _begins(tree: CellTree, size: Sequence[int]) -> list[int]:
    """Place each node in the picture: below one node the largest first, the rest and profnb last."""

    def order(row: int) -> tuple[bool, int]:
        return tree.kind[row] == parts.PROFNB or tree.title(row) == "others", -size[row]

    begin = [0] * len(tree)
    rows_below = group((above, row) for row, above in enumerate(tree.parent.tolist()))
    for above, rows in rows_below.items():
        at = begin[above] if above >= 0 else 0
        for row in sorted(rows, key=order):
            begin[row] = at
            at += int(tree.wall_ps[row])
    return begin


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
    """Describe a node under the pointer, and to readers."""
    title, times = tree.title(row), int(tree.occurrences[row])
    line = "" if title == tree.line[row] else tree.line[row]
    often = f"{count_text(times)} times" if times > 1 else ""
    return " · ".join(filter(None, (_kind_beside(tree, row), line, often, time)))


def _kind_beside(tree: CellTree, row: int) -> str:
    """Name a node's kind, where its title does not say it."""
    kind = kind_title(tree.kind[row])
    return "" if not row or set(kind.split()) <= set(tree.title(row).split()) else kind


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
    if kind == OP and name not in _NAMELESS:
        return f"Ops\t{name}"
    if kind == parts.EAGER:
        return "Ops"
    if kind == parts.INPUT:
        return "Input"
    if kind in (*STEPS, *CATEGORIES, parts.GAPS):
        return "Steps"
    return "Source" if tree.line[row] else ""


def _largest(tree: CellTree) -> Markup:
    listed = [row for row in _order(tree) if tree.fraction[row] >= _LEAST_LISTED][:_MOST_LISTED]
    headings = ("", f"part of {tree.whole}", "time", "share")
    rows: list[list[Cell]] = []
    for row in listed:
        share, time = float(tree.fraction[row]), duration_text(int(tree.wall_ps[row]))
        bar = bar_text(share, _BAR_LENGTH), f"color:{_colour(tree, row)}"
        title = _INDENT * int(tree.depth[row]) + tree.title(row)
        rows.append([bar, title, time, percent_text(share)])
    return html_table(headings, rows, (False, False, True, True))


def _colour(tree: CellTree, row: int) -> str:
    return look_of(tree, row)[1] or CELL_COLOURS[parts.CELL]


def _order(tree: CellTree) -> list[int]:
    """The nodes as they stand in the picture, from top to bottom and from left to right."""
    begin = _begins(tree, tree.wall_ps.tolist())
    return sorted(range(len(tree)), key=lambda row: (begin[row], int(tree.depth[row])))


def tree_section(tree: CellTree) -> Section:
    """The tree as a table."""

    def node(row: int) -> Cell:
        return _INDENT * int(tree.depth[row]) + tree.title(row), "", _kind_beside(tree, row)

    def occurrences(row: int) -> str:
        return count_text(int(tree.occurrences[row]) or None)

    return section_of(
            CELL_TREE,
            tree,
            (
                Shown("node", node, sort_key=tree.title, meaning=CELL_TREE["name"].meaning),
                "wall_ms fraction self_ms",
                Shown(
                    "times", occurrences, is_number=True,
                    sort_key=lambda row: float(tree.occurrences[row]) or None,
                    meaning=CELL_TREE["occurrences"].meaning,
                ),
                "line",
            ),
            title=_TAB,
            tab=_TAB,
            sentence=f"{duration_text(tree.whole_ps)} of {tree.whole}. A node includes the nodes below.",
            bar=Bar(lambda row: float(tree.fraction[row]), lambda row: _colour(tree, row), 8),
            rows=_order(tree),
            is_sortable=True,
            shown=_SHOWN,
            is_detail=tree.is_recorded,
        )  # fmt: skip


def _share_text(fraction: float) -> str:
    """Write a share as a sentence says it: without a fraction of a per cent."""
    return f"{fraction * 100:.0f} %" if fraction > 0.005 else "<1 %"


@dataclass(frozen=True, slots=True)
class CellShare:
    """A part of the cell in the sentence.

    Attributes:
        name: What the sentence calls it.
        fraction: Its share of the cell.
        colour: The colour that it has in the picture; "" for what only holds others.
        remark: What more there is to say, in brackets; "" for nothing.
        node: The largest node of ``p.cell_tree`` that it is of; None for several small ones.
    """

    name: str
    fraction: float
    colour: str
    remark: str = ""
    node: int | None = None

    @property
    def percent(self) -> str:
        """Its share as the sentence says it."""
        return _share_text(self.fraction)

    @property
    def text(self) -> str:
        """As the sentence says it: "train steps 28 %"."""
        return f"{self.name} {self.percent}{f' ({self.remark})' if self.remark else ''}"


@dataclass(frozen=True, slots=True)
class CellWords:
    """A cell's time in one sentence.

    Attributes:
        head: How it begins: "Of 20.4 s:".
        shares: What it names, the largest first, then the rest and profnb itself: of the whole all but
            what rounds to nothing.
    """

    head: str
    shares: Sequence[CellShare]

    @property
    def text(self) -> str:
        """The sentence."""
        return f"{self.head} {', '.join(share.text for share in self.shares)}."


def cell_words(tree: CellTree) -> CellWords:
    """The sentence of a cell, or of the window that a trace of others recorded."""
    outer = {row for row in range(len(tree)) if _is_outer(tree, row)}
    named = _named_nodes(tree, outer)
    rows: dict[str, list[int]] = {}
    for row, at in enumerate(named):
        above = int(tree.parent[at])
        whose = above if tree.kind[at] == parts.EAGER and tree.kind[above] == parts.LINES else at
        rows.setdefault(_title(tree, whose, is_outer=whose in outer), []).append(row)
    share = {title: float(tree.self_ps[of].sum()) / tree.whole_ps for title, of in rows.items()}
    order = sorted(share, key=lambda title: -share[title])
    said = [t for t in order if share[t] >= _LEAST_SAID and t != parts.PROFNB][:_MOST_SAID]
    shares = []
    for title in said:
        node = named[max(rows[title], key=lambda row: int(tree.self_ps[row]))]
        (_, colour), remark = look_of(tree, node), _remark(tree, node, rows[title])
        shares.append(CellShare(title, share[title], colour, remark, node))
    rest = sum(share[title] for title in order if title not in (*said, parts.PROFNB))
    if rest >= _LEAST_REST:
        shares.append(CellShare(_REST, rest, ""))
    if share.get(parts.PROFNB):
        (node, *_) = rows[parts.PROFNB]
        _, colour = look_of(tree, node)
        shares.append(CellShare(parts.PROFNB, share[parts.PROFNB], colour, "", node))
    return CellWords(f"Of {duration_text(tree.whole_ps)}{' recorded' * tree.is_recorded}:", shares)


def longest_text(tree: CellTree) -> str:
    """Say what took longest by its own name, each without the nodes below, and what comes only once."""
    kinds = LAYER, OP, *_CALLED_BY_NAME
    rows = [row for row in tree.rows(*kinds) if tree.name[row] or tree.line[row]]
    spent = {
        _named(tree, same[0]): float(tree.self_ps[same].sum()) / (tree.whole_ps or 1)
        for title, same in group((tree.title(row), row) for row in rows).items()
        if title not in _NAMELESS
    }
    longest = sorted(spent.items(), key=lambda one: -one[1])[:_MOST_SAID]
    named = [f"{name} {_share_text(share)}" for name, share in longest if share >= _LEAST_SAID]
    first = float(tree.self_ps[tree.with_below(tree.rows(*_WARM_UP))].sum()) / (tree.whole_ps or 1)
    said = [f"Longest by name: {', '.join(named)} of {tree.whole}."] if named else []
    if first >= _WORTH_NAMING:
        said.append(f"First steps and compiling ({_share_text(first)}) come once: train longer.")
    return " ".join(said)


def _named_nodes(tree: CellTree, outer: Collection[int]) -> list[int]:
    """Of each node the one above it, or itself, by whose name its time goes."""
    named = [0]
    for row, kind in enumerate(tree.kind[1:], 1):
        above = named[int(tree.parent[row])]
        is_own = kind not in (parts.FRAMEWORK, parts.WAITING) and above in outer
        named.append(row if is_own else above)
    return named


def _is_outer(tree: CellTree, row: int) -> bool:
    """Tell whether a node is named by what it holds: half of the cell in one function says little."""
    if tree.kind[row] != parts.LINES or not tree.name[row]:
        return tree.kind[row] in (*_HOLDS, parts.LINES)
    below = [kind for kind, above in zip(tree.kind, tree.parent, strict=True) if above == row]
    is_large = 2 * tree.wall_ps[row] > tree.whole_ps
    return tree.has_steps(row) or (is_large and not set(below) <= _OF_ABOVE)


def _title(tree: CellTree, row: int, *, is_outer: bool) -> str:
    kind, name = tree.kind[row], tree.name[row]
    if kind in _CALLED_BY_NAME and name:
        name = name if len(name) <= LONGEST_NAME else name.rpartition(".")[2]
        return f"{quoted(name)}{' itself' * is_outer}"
    if kind == parts.IMPORTS and name:
        return f"{kind} {quoted(name)}"
    if kind == parts.MARKED and name:
        return node_title(kind, printable(name))
    if kind in (parts.LINES, parts.CELL):
        return f"your {kind_title(parts.LINES)}"
    is_set_up = kind == parts.SETTING_UP and tree.kind[int(tree.parent[row])] == parts.CALL
    return kind_title(parts.AROUND if is_set_up or kind in (parts.CALL, parts.EPOCH) else kind)


def _remark(tree: CellTree, node: int, rows: Sequence[int]) -> str:
    """Say more of a part, where more is known."""
    kind = tree.kind[node]
    if kind in (parts.FIRST, parts.SLOW_FIRST):
        return "tracing, compiling"
    if kind in (parts.AROUND, parts.SETTING_UP):
        return _runs(tree, rows)
    if kind in (parts.LINES, parts.CELL, parts.EAGER):
        return _lines(tree, rows)
    is_asked = kind in STEPS or not tree.name[node]
    return _inside(tree, node) if is_asked and tree.fraction[node] > _WORTH_A_REMARK else ""


def _lines(tree: CellTree, rows: Sequence[int]) -> str:
    """Name the lines that have most of own code, or say that it is ops."""
    eager = [row for row in rows if tree.kind[row] == parts.EAGER]
    whole = tree.self_ps[list(rows)].sum()
    if 2 * tree.self_ps[eager].sum() > whole:
        return "eager ops"
    lines = [row for row in rows if tree.line[row] and not tree.name[row]]
    lines.sort(key=lambda row: -tree.self_ps[row])
    for count in range(1, min(len(lines), _MOST_NAMED_LINES) + 1):
        if 2 * tree.self_ps[lines[:count]].sum() >= whole:
            return f"most of it {' and '.join(tree.line[row] for row in lines[:count])}"
    return ""


def _inside(tree: CellTree, node: int) -> str:
    """Name what most of a node's time goes to, as far down as one node has most, and its largest parts."""
    at, below = node, _largest_below(tree, node)
    while below and 2 * tree.wall_ps[below[0]] > tree.wall_ps[node]:
        at, below = below[0], _largest_below(tree, below[0])
    large = [row for row in below if tree.wall_ps[row] > _WORTH_NAMING * tree.wall_ps[node]]
    if not tree.name[at]:  # a name is what a reader can look for, however small
        large = large or [row for row in below if tree.title(row) not in _NAMELESS]
    shares = [(row, float(tree.fraction[row])) for row in large[: _MOST_PARTS - (at != node)]]
    parts_of_it = ", ".join(f"{_named(tree, row)} {_share_text(one)}" for row, one in shares)
    if at == node:
        return parts_of_it
    name = _named(tree, at)
    return f"{name}: {parts_of_it}" if parts_of_it else f"most of it {name}"


def _named(tree: CellTree, row: int) -> str:
    """A node's title, in backticks where it is a name: of a layer the last part of its path."""
    title, last = tree.title(row), tree.title(row).rpartition("/")[2]
    title = title if last.isdigit() else last
    return quoted(title) if tree.name[row] else title


def _largest_below(tree: CellTree, node: int) -> list[int]:
    """Find the parts of a node: what a line calls of a framework is the line's."""
    below = (row for row in range(node + 1, len(tree)) if tree.parent[row] == node)
    parts_of_it = [row for row in below if tree.kind[row] not in _OF_ABOVE]
    return sorted(parts_of_it, key=lambda row: -int(tree.wall_ps[row]))


def _runs(tree: CellTree, rows: Sequence[int]) -> str:
    """Count the runs that were set up, where any was more than once: "40 times predict"."""
    runs: dict[str, int] = {}
    for row in rows:
        above = int(tree.parent[row])
        if tree.kind[row] == parts.AROUND and tree.kind[above] == parts.CALL:
            name, times = tree.name[above], int(tree.occurrences[above])
            runs[name] = max(runs.get(name, 0), times)
    if all(times <= 1 for times in runs.values()):
        return ""
    return ", ".join(f"{count_text(n)} times {name}" if n > 1 else name for name, n in runs.items())
