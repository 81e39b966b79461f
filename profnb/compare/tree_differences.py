"""Two trees of the cell's time to what is longer, new or gone: parts that add up to the difference.

A node is the same in both where its path of kinds and names is; siblings of one name count together. Keras
numbers layers without a name through the whole process, so B's are called by the numbers of A's. Where one
side knows nothing below a node, neither side's parts below it are compared; what only one side has is one
part, with all below it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profnb.capture.parts.part_records import CELL, PROFNB
from profnb.causes.cell_tree import LAYER, OP, CellTree
from profnb.compare.differences import listed
from profnb.core.columns import group
from profnb.core.printable import printable
from profnb.core.table import Table, columns_in
from profnb.core.units import PS_PER_MS, duration_text, signed_text

Tree = Sequence[Sequence[Any]]  # nodes: parent, kind, name, occurrences, own time in ms
Path = tuple[tuple[str, str], ...]
LONGER, SHORTER, NEW, GONE = "longer", "shorter", "new", "gone"
_MOST_NODES, _LEAST_SHARE, _MOST_TOLD, _MOST_DIGITS = 300, 0.0005, 3, 10


@dataclass(frozen=True, slots=True)
class PartDifference:
    """A part of the cell in A and in B, without the parts below it that are rows of their own.

    Attributes:
        path: Kind and name of each node, from below the cell on.
        first_ms: Wall time in A; 0 where A has no such part.
        second_ms: Wall time in B.
        status: One of the four words above.
        counts: How often it happened in A and in B; 0 where nobody counted.
    """

    path: Path
    first_ms: float
    second_ms: float
    status: str
    counts: tuple[int, int] = (0, 0)

    @property
    def difference_ms(self) -> float:
        """The time that B spends more on it."""
        return self.second_ms - self.first_ms

    @property
    def part(self) -> str:
        """Its name, or its kind where that says all; of the cell itself "own code"."""
        kind, name = self.path[-1] if self.path else ("own code", "")
        return printable(name or kind)

    @property
    def inside(self) -> str:
        """The parts above it."""
        return " / ".join(printable(name or kind) for kind, name in self.path[:-1])


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node of one tree and its like in the other.

    Attributes:
        most_ps: The longer one's time, with all below it; 0 where nothing is compared.
        difference_ps: How much more B spends on it.
        status: One of the four words above; "" where nothing is compared.
    """

    most_ps: int
    difference_ps: int
    status: str


def tree_rows(tree: CellTree) -> Tree:
    """Give a tree as plain rows, as they are kept: what is too little to be told is its parent's."""
    least = tree.whole_ps * _LEAST_SHARE
    place: dict[int, int] = {-1: -1}
    rows: list[list[Any]] = []
    for at, parent in enumerate(tree.parent.tolist()):
        own_ms = float(tree.self_ps[at]) / PS_PER_MS
        if rows and (tree.wall_ps[at] < least or len(rows) >= _MOST_NODES):
            place[at] = place[parent]
            rows[place[parent]][-1] += own_ms
            continue
        place[at], count = len(rows), int(tree.occurrences[at])
        rows.append([place[parent], tree.kind[at], tree.name[at], count, own_ms])
    return [[*row[:-1], round(row[-1], 4)] for row in rows]


def compare_trees(first: Tree, second: Tree) -> list[PartDifference]:
    """Give the parts whose time differs, the largest difference first; all together are the difference.

    profnb's own time is left out: it is no part of the program.
    """
    columns = [list(zip(*tree, strict=True)) or [()] * 5 for tree in (first, second)]
    columns[1][2] = _numbered_like(*columns[0][1:3], *columns[1][1:3])
    sides = _paths(columns[0]), _paths(columns[1])
    both, closed = sides[0].keys() & sides[1].keys(), _closed(*sides)
    totals: dict[Path, list[list[float]]] = {}
    for side, nodes in enumerate(sides):
        for path, (own_ms, count) in nodes.items():
            above = [path[:at] for at in range(1, len(path) + 1)]
            shown = next((one for one in above if one in closed or one not in both), path)
            row = totals.setdefault(shown, [[0.0, 0.0], [0, 0]])
            row[0][side] += own_ms
            row[1][side] += count if shown == path else 0
    rows = [
        PartDifference(path, one, two, _status(path, sides, two - one), (int(count), int(counts)))
        for path, ((one, two), (count, counts)) in totals.items()
        if one != two
    ]
    return sorted(rows, key=lambda row: -abs(row.difference_ms))


def _status(path: Path, sides: Sequence[dict[Path, Any]], difference: float) -> str:
    if path not in sides[0] or path not in sides[1]:
        return GONE if path in sides[0] else NEW
    return LONGER if difference > 0 else SHORTER


def compare_nodes(trees: Sequence[CellTree]) -> list[list[NodeDifference]]:
    """Compare each node of two trees, with all below it, with its like in the other.

    Args:
        trees: A's and B's.

    Returns:
        A row per node of A, and one per node of B.
    """
    first, second = trees
    names = _numbered_like(first.kind, first.name, second.kind, second.name)
    trees = first, replace(second, name=names)
    paths = [_paths_of(tree.parent.tolist(), tree.kind, tree.name) for tree in trees]
    closed = _closed(*(_paths(zip(*tree_rows(tree), strict=True)) for tree in trees))
    walls: tuple[dict[Path, int], dict[Path, int]] = ({}, {})
    for tree, wall, of_rows in zip(trees, walls, paths, strict=True):
        for path, self_ps in zip(of_rows, tree.self_ps.tolist(), strict=True):
            for depth in range(0 if path is None else len(path) + 1):
                node = (path or ())[:depth]
                wall[node] = wall.get(node, 0) + self_ps

    def difference(path: Path | None) -> NodeDifference:
        if path is None or any(path[:at] in closed for at in range(1, len(path))):
            return NodeDifference(0, 0, "")
        one, two = (wall.get(path, 0) for wall in walls)
        return NodeDifference(max(one, two), two - one, _status(path, walls, two - one))

    return [list(map(difference, of_rows)) for of_rows in paths]


def _paths_of(parent: Sequence[int], kind: Sequence[str], name: Sequence[str]) -> list[Path | None]:
    """The path of each row; None for profnb's own."""
    paths: list[Path | None] = []
    for at, above in enumerate(parent):
        before = () if kind[at] == CELL else paths[above]
        is_left_out = before is None or kind[at] == PROFNB
        node = () if kind[at] == CELL else ((kind[at], name[at]),)
        paths.append(None if is_left_out else (*(before or ()), *node))
    return paths


def _numbered_like(
    first_kinds: Sequence[str], first: Sequence[str], kinds: Sequence[str], second: Sequence[str]
) -> tuple[str, ...]:
    """B's names, its layers by the numbers of A's: dense_12 and dense_13 are A's dense_7 and dense_8.

    Layers of one base name, inside of one model, are as many further on as lets most of them meet.
    """
    layers = [
        {name: name.split("/") for kind, name in zip(of, names, strict=True) if kind == LAYER}
        for of, names in ((first_kinds, first), (kinds, second))
    ]
    for depth in range(max((len(parts) for side in layers for parts in side.values()), default=0)):
        numbers: dict[tuple[str, ...], tuple[set[int], set[int]]] = {}
        of_second: list[tuple[list[str], tuple[str, ...], int]] = []
        for side, of_side in enumerate(layers):
            for parts in of_side.values():
                if depth < len(parts):
                    base, number = _base_and_number(parts[depth])
                    key = *parts[:depth], base
                    numbers.setdefault(key, (set(), set()))[side].add(number)
                    of_second += [(parts, key, number)] if side else []
        shifts = {key: _shift(*both) for key, both in numbers.items()}
        for parts, key, number in of_second:
            if shifts[key]:
                parts[depth] = f"{key[-1]}_{number - shifts[key]}".removesuffix("_0")
    return tuple(
        "/".join(layers[1][name]) if kind == LAYER else name
        for kind, name in zip(kinds, second, strict=True)
    )


def _base_and_number(name: str) -> tuple[str, int]:
    base, _, digits = name.rpartition("_")
    is_numbered = base and digits.isdecimal() and len(digits) < _MOST_DIGITS
    return (base, int(digits)) if is_numbered else (name, 0)


def _shift(first: set[int], second: set[int]) -> int:
    """Find how far B's lie behind A's: as most of them meet, else not at all, else as the first do."""
    if not first or not second:
        return 0
    meeting, usual = Counter(two - one for one in first for two in second), min(second) - min(first)
    return max(meeting, key=lambda shift: (meeting[shift], not shift, -abs(shift - usual)))


def _paths(columns: Iterable[Sequence[Any]]) -> dict[Path, tuple[float, int]]:
    """Own time and count of each path of a tree's columns, siblings of one name together."""
    nodes: dict[Path, tuple[float, int]] = {}
    parents, kinds, names, counts, times = columns
    for path, count, own_ms in zip(_paths_of(parents, kinds, names), counts, times, strict=True):
        if path is not None:
            before = nodes.get(path, (0.0, 0))
            nodes[path] = before[0] + float(own_ms), before[1] + int(count)
    return nodes


def _closed(first: dict[Path, Any], second: dict[Path, Any]) -> set[Path]:
    """Paths that are a leaf on one side and no leaf on the other: what is below is not compared.

    What the traced steps tell (layers, ops) is compared only where both sides have the same kind.
    """

    def kinds_below(nodes: dict[Path, Any]) -> dict[Path, set[str]]:
        kinds = group((path[:-1], path[-1][0]) for path in nodes if path)
        return {path: {LAYER, OP}.intersection(some) for path, some in kinds.items()}

    one, two = kinds_below(first), kinds_below(second)
    return {path for path in first.keys() & second.keys() if one.get(path) != two.get(path)}


PART_DIFFERENCES = Table[Sequence[PartDifference]](
    "parts",
    "One row per part of the cell with a different time, the largest difference first.",
    columns_in("""
        part: its name, or its kind where that says all
        inside: the parts that it is inside of
        first_ms = first_ms: wall time of A's first run, without parts that are rows of their own
        second_ms = second_ms: ... of B's
        difference_ms = difference_ms: how much more B spends on it; all rows add up to the difference
        status: longer, shorter, new or gone
        """),
    "profnb's own time is left out.",
    "c",
)


def difference_sentence(parts: Sequence[PartDifference]) -> str:
    """Name the parts that account for a difference, in a sentence; "" where there are none."""
    if not parts:
        return ""
    whole = sum(part.difference_ms for part in parts)
    word = "longer" if whole > 0 else "shorter"
    leading = [part for part in parts if (part.difference_ms > 0) == (whole > 0)][:_MOST_TOLD]
    times = [f"{part.part} {signed_text(part.difference_ms * PS_PER_MS)}" for part in leading]
    named = listed(times, _MOST_TOLD) or "none"
    return f"In all it takes {duration_text(abs(whole) * PS_PER_MS)} {word}: {named}."
