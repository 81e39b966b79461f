"""The whole cell's time by name, in one sentence, from the tree of the cell.

Each node belongs to the outermost one above it that a person would name: a callback, with all that it calls,
an own function that runs no steps, training, an import. A run of Keras', its epochs and the function that has
the loop are gone into, as what they hold tells more.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import (
    CALL,
    CELL,
    EAGER,
    EPOCH,
    FRAMEWORK,
    LINES,
    WAITING,
)
from profnb.causes.cell_tree import STEPS, CellTree
from profnb.core.printable import LONGEST_NAME, printable, quoted
from profnb.core.units import count_text, duration_text, percent_text
from profnb.report.cell_picture import look_of
from profnb.subjects.cell.cell_breakdown import kind_title, node_title

_MOST_SAID, _LEAST_SAID, _LEAST_REST = 3, 0.03, 0.005
_MOST_NAMED_LINES, _MOST_PARTS, _WORTH_NAMING, _WORTH_A_REMARK = 3, 2, 0.25, 0.1
_REST = "other parts"
_OUTER = (CELL, CALL, EPOCH)
_CALLED_BY_NAME = (parts.CALLBACKS, parts.CALLS, LINES)


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
        return f"{self.fraction * 100:.0f} %" if self.fraction > 0.005 else "<1 %"

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


def cell_words(tree: CellTree, *, is_cell: bool = True) -> CellWords:
    """The sentence of a cell, or of the window that a trace of others recorded."""
    outer = {row for row in range(len(tree)) if _is_outer(tree, row)}
    named = _named_nodes(tree, outer)
    rows: dict[str, list[int]] = {}
    for row, at in enumerate(named):
        above = int(tree.parent[at])
        whose = above if tree.kind[at] == EAGER and tree.kind[above] == LINES else at
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
    recorded = "" if is_cell else " recorded"
    return CellWords(f"Of {duration_text(tree.whole_ps)}{recorded}:", shares)


def _named_nodes(tree: CellTree, outer: Collection[int]) -> list[int]:
    """Of each node the one above it, or itself, by whose name its time goes."""
    named: list[int] = []
    for row, kind in enumerate(tree.kind):
        above = int(tree.parent[row])
        is_of_above = above >= 0 and (kind in (FRAMEWORK, WAITING) or named[above] not in outer)
        named.append(named[above] if is_of_above else row)
    return named


def _is_outer(tree: CellTree, row: int) -> bool:
    """Tell whether a node is named by what it holds: half of the cell in one function says little."""
    if tree.kind[row] != LINES or not tree.name[row]:
        return tree.kind[row] in (*_OUTER, LINES)
    below = [kind for kind, above in zip(tree.kind, tree.parent, strict=True) if above == row]
    is_large = 2 * tree.wall_ps[row] > tree.whole_ps
    return tree.has_steps(row) or (is_large and not set(below) <= {EAGER, FRAMEWORK, WAITING})


def _title(tree: CellTree, row: int, *, is_outer: bool) -> str:
    kind, name = tree.kind[row], tree.name[row]
    if kind in _CALLED_BY_NAME and name:
        name = name if len(name) <= LONGEST_NAME else name.rpartition(".")[2]
        return f"{quoted(name)}{' itself' * is_outer}"
    if kind == parts.IMPORTS and name:
        return f"{kind} {quoted(name)}"
    if kind == parts.MARKED and name:
        return node_title(kind, printable(name))
    if kind in (LINES, CELL):
        return f"your {kind_title(LINES)}"
    is_set_up = kind == parts.SETTING_UP and tree.kind[int(tree.parent[row])] == CALL
    return kind_title(parts.AROUND if is_set_up or kind in (CALL, EPOCH) else kind)


def _remark(tree: CellTree, node: int, rows: Sequence[int]) -> str:
    """Say more of a part, where more is known."""
    kind = tree.kind[node]
    if kind in (parts.FIRST, parts.SLOW_FIRST):
        return "tracing, compiling"
    if kind in (*STEPS, parts.GAPS) and tree.fraction[node] > _WORTH_A_REMARK:
        return _inside(tree, node)
    if kind in (parts.AROUND, parts.SETTING_UP):
        return _runs(tree, rows)
    return _lines(tree, rows) if kind in (LINES, CELL, EAGER) else ""


def _lines(tree: CellTree, rows: Sequence[int]) -> str:
    """Name the lines that have most of own code, or say that it is ops."""
    eager = [row for row in rows if tree.kind[row] == EAGER]
    whole = tree.self_ps[list(rows)].sum()
    if 2 * tree.self_ps[eager].sum() > whole:
        return "eager ops"
    lines = sorted(
        (row for row in rows if tree.line[row] and not tree.name[row]),
        key=lambda row: -tree.self_ps[row],
    )
    for count in range(1, min(len(lines), _MOST_NAMED_LINES) + 1):
        if 2 * tree.self_ps[lines[:count]].sum() >= whole:
            return f"most of it {' and '.join(tree.line[row] for row in lines[:count])}"
    return ""


def _inside(tree: CellTree, node: int) -> str:
    """Name what most of a node's time goes to, as far down as one node has most; else its largest parts."""
    at, below = node, _largest_below(tree, node)
    while below and 2 * tree.wall_ps[below[0]] > tree.wall_ps[node]:
        at, below = below[0], _largest_below(tree, below[0])
    large = [row for row in below if tree.wall_ps[row] > _WORTH_NAMING * tree.wall_ps[node]]
    parts_of_it = ", ".join(
        f"{_named(tree, row)} {percent_text(float(tree.fraction[row]))}"
        for row in large[: _MOST_PARTS - (at != node)]
    )
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
    below = [row for row in range(node + 1, len(tree)) if tree.parent[row] == node]
    return sorted(below, key=lambda row: -int(tree.wall_ps[row]))


def _runs(tree: CellTree, rows: Sequence[int]) -> str:
    """Count the runs that were set up, where any was more than once: "40 times predict"."""
    runs: dict[str, int] = {}
    for row in rows:
        above = int(tree.parent[row])
        if tree.kind[row] == parts.AROUND and tree.kind[above] == CALL:
            runs[tree.name[above]] = max(
                runs.get(tree.name[above], 0), int(tree.occurrences[above])
            )
    if all(times <= 1 for times in runs.values()):
        return ""
    return ", ".join(f"{count_text(n)} times {name}" if n > 1 else name for name, n in runs.items())
