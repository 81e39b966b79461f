"""The whole cell's time by name: one sentence and one bar, from the tree of the cell.

Each node belongs to the outermost one above it that a person would name: a callback, with all that it calls,
an own function that runs no steps, training, an import. A run of Keras', its epochs and the function that has
the loop are gone into, as what they hold tells more.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import cycle

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import (
    CALL,
    CELL,
    COMPILATION,
    EAGER,
    EPOCH,
    FRAMEWORK,
    LINES,
    SETTING_UP,
    TRACING,
    WAITING,
)
from profnb.causes.cell_tree import CellTree
from profnb.core.printable import LONGEST_NAME, quoted
from profnb.core.units import count_text, duration_text
from profnb.drawing.theme import CELL_COLOURS, CELL_SHADES

_MOST_SAID, _LEAST_SAID, _LEAST_REST = 5, 0.015, 0.005
_MOST_NAMED_LINES = 3
_REST = "other parts"
# What a sentence calls a node; callbacks and functions are called by their names.
_PART_TITLES = {
    parts.TRAIN: "training",
    parts.VALIDATION: "validation",
    parts.EVALUATION: "evaluation",
    parts.PREDICT: "prediction",
    parts.INPUT: "waiting for data",
    parts.GAPS: "between batches",
    parts.AROUND: "set-up of runs",
    parts.PROFNB: "profnb itself",
    SETTING_UP: "new iterators",
    LINES: "Python",
    CELL: "Python",
}
# Nodes that are no part of a cell by themselves are as colourful as the part that they are of.
_PART_OF = {
    SETTING_UP: parts.AROUND, TRACING: parts.FIRST, COMPILATION: parts.FIRST,
    **dict.fromkeys((LINES, CELL, CALL, EPOCH, EAGER, FRAMEWORK, WAITING), parts.OTHER),
}  # fmt: skip
_OUTER = (CELL, CALL, EPOCH)


@dataclass(frozen=True, slots=True)
class CellShare:
    """A part of the cell in the sentence and the bar.

    Attributes:
        name: What the sentence calls it.
        fraction: Its share of the cell.
        colour: Its colour.
        remark: What more there is to say, in brackets; "" for nothing.
    """

    name: str
    fraction: float
    colour: str
    remark: str = ""

    @property
    def text(self) -> str:
        """As the sentence says it: "training 28 %"."""
        percent = f"{self.fraction * 100:.0f} %" if self.fraction > 0.005 else "<1 %"
        return f"{self.name} {percent}{f' ({self.remark})' if self.remark else ''}"


@dataclass(frozen=True, slots=True)
class CellWords:
    """A cell's time in one sentence and one bar.

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
    """The sentence and the bar of a cell."""
    outer = {row for row in range(len(tree)) if _is_outer(tree, row)}
    named = _named_nodes(tree, outer)
    rows: dict[str, list[int]] = {}
    for row, at in enumerate(named):
        rows.setdefault(_title(tree, at, is_outer=at in outer), []).append(row)
    share = {title: float(tree.self_ps[of].sum()) / tree.whole_ps for title, of in rows.items()}
    order = sorted(share, key=lambda title: -share[title])
    profnb = _PART_TITLES[parts.PROFNB]
    said = [t for t in order if share[t] >= _LEAST_SAID and t != profnb][:_MOST_SAID]
    shades = {part: cycle(colours) for part, colours in CELL_SHADES.items()}
    shares = []
    for title in said:
        largest = max(rows[title], key=lambda row: int(tree.self_ps[row]))
        kind = tree.kind[named[largest]]
        part = _PART_OF.get(kind, kind)
        colour = next(shades[part]) if part in shades else CELL_COLOURS[part]
        shares.append(CellShare(title, share[title], colour, _remark(tree, kind, rows[title])))
    rest = sum(share[title] for title in order if title not in (*said, profnb))
    if rest >= _LEAST_REST:
        shares.append(CellShare(_REST, rest, CELL_COLOURS[_REST]))
    if share.get(profnb):
        shares.append(CellShare(profnb, share[profnb], CELL_COLOURS[parts.PROFNB]))
    return CellWords(f"Of {duration_text(tree.whole_ps)}:", shares)


def _named_nodes(tree: CellTree, outer: Collection[int]) -> list[int]:
    """Of each node the one above it, or itself, by whose name its time goes."""
    named: list[int] = []
    for row, kind in enumerate(tree.kind):
        above = int(tree.parent[row])
        is_told = above >= 0 and (kind in (FRAMEWORK, WAITING) or named[above] not in outer)
        named.append(named[above] if is_told else row)
    return named


def _is_outer(tree: CellTree, row: int) -> bool:
    """Tell whether a node is named by what it holds: half of the cell in one function says little."""
    if tree.kind[row] != LINES:
        return tree.kind[row] in _OUTER
    below = [kind for kind, above in zip(tree.kind, tree.parent, strict=True) if above == row]
    is_large = 2 * tree.wall_ps[row] > tree.whole_ps
    return tree.has_steps(row) or (is_large and not set(below) <= {EAGER, FRAMEWORK, WAITING})


def _title(tree: CellTree, row: int, *, is_outer: bool) -> str:
    kind, name = tree.kind[row], tree.name[row]
    if kind in (parts.CALLBACKS, parts.CALLS, LINES) and name:
        name = name if len(name) <= LONGEST_NAME else name.rpartition(".")[2]
        itself = " itself" if is_outer else ""
        return f"{quoted(name)}{itself}"
    if kind == parts.IMPORTS and name:
        return f"importing {quoted(name)}"
    if kind == parts.MARKED and name:
        return f"steps marked {quoted(name)}"
    if kind in (CALL, EPOCH):
        kind = parts.AROUND
    return _PART_TITLES.get(kind, kind)


def _remark(tree: CellTree, kind: str, rows: Sequence[int]) -> str:
    """Say more of a part, where more is known."""
    if kind == parts.FIRST:
        return "tracing, compiling"
    if kind == parts.AROUND:
        return _runs(tree, rows)
    if kind not in (LINES, CELL):
        return ""
    eager = [row for row in rows if tree.kind[row] == EAGER]
    whole = tree.self_ps[list(rows)].sum()
    if 2 * tree.self_ps[eager].sum() > whole:
        return "ops one by one"
    lines = sorted(
        (row for row in rows if tree.line[row] and not tree.name[row]),
        key=lambda row: -tree.self_ps[row],
    )
    for count in range(1, min(len(lines), _MOST_NAMED_LINES) + 1):
        if 2 * tree.self_ps[lines[:count]].sum() >= whole:
            return f"most of it {' and '.join(tree.line[row] for row in lines[:count])}"
    return ""


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
