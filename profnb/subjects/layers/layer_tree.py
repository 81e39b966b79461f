"""The table of layers as a picture: a model, what is inside it, and at the bottom the parts of the step."""

from dataclasses import dataclass, field

from profnb.core.block import Block
from profnb.core.units import duration_text, percent_text
from profnb.subjects.layers.layer_rows import LAYER_PARTS, OTHERS
from profnb.subjects.layers.layer_table import LayerTable

_MOST_BLOCKS, _DEEPEST = 190, 4
_SMALLEST = 0.0015
_LONGEST = 160


@dataclass(slots=True)
class _Node:
    """A path and what lies under it."""

    row: int = -1
    inside: dict[str, "_Node"] = field(default_factory=dict)
    total_ps: int = 0
    layer_part_ps: list[int] = field(default_factory=lambda: [0] * len(LAYER_PARTS))


def grow_layer_tree(table: LayerTable) -> list[Block]:
    """Lay out the layers in the order of the model, parts under what they are part of.

    What is deeper than four levels or too small to see is drawn with what it is part of. The lowest level has
    the layer parts: forward, backward, update, recomputation. These are the roles of its blocks; the others
    are "outer layer" and "inner layer" in turn, or what no layer is ("loss", "optimizer", ...).
    """
    whole = int(table.total_ps.sum())
    if not whole:
        return []
    root = _Node()
    for row, name in enumerate(table.layer):
        spent = table.layer_part_ps[row].tolist()
        parts = [name] if not table.layer_type[row] and name in OTHERS else name.split("/")
        node = root
        for depth, part in enumerate(parts):
            if depth < _DEEPEST:
                node = node.inside.setdefault(part, _Node())
            node.total_ps += sum(spent) if depth < _DEEPEST else 0
        node.row = row if len(parts) <= _DEEPEST else node.row
        node.layer_part_ps = [a + b for a, b in zip(node.layer_part_ps, spent, strict=True)]
    blocks: list[Block] = []
    deepest = _depth(root)
    _lay_out(table, root, "", 0, 0.0, whole, deepest, blocks)
    blocks.sort(key=lambda block: -block.width)
    return sorted(blocks[:_MOST_BLOCKS], key=lambda block: (block.level, block.begin))


def _depth(node: _Node) -> int:
    return max((1 + _depth(inner) for inner in node.inside.values()), default=0)


def _lay_out(
    table: LayerTable, node: _Node, path: str, level: int, begin: float, whole: int, lowest: int,
    blocks: list[Block],
) -> None:  # fmt: skip
    """Place what is inside a node from left to right, then its layer parts."""
    at = begin
    for name, inner in node.inside.items():
        width = inner.total_ps / whole
        if width >= _SMALLEST:
            inside = f"{path}/{name}" if path else name
            search = table.search[inner.row] if inner.row >= 0 else ""
            hover = _hover(inside[:_LONGEST], inner.total_ps / table.iterations, width)
            role = inside if inside in OTHERS else ("outer layer", "inner layer")[level % 2]
            blocks.append(Block(level, at, width, name, hover, role, search))
            _lay_out(table, inner, inside, level + 1, at, whole, lowest, blocks)
        at += width
    for layer_part, spent in zip(LAYER_PARTS, node.layer_part_ps, strict=True):
        width = spent / whole
        if width >= _SMALLEST and layer_part != "other":
            search = table.search[node.row] if node.row >= 0 else ""
            hover = _hover(f"{path[:_LONGEST]}, {layer_part}", spent / table.iterations, width)
            blocks.append(Block(lowest, at, width, layer_part, hover, layer_part, search))
        at += width


def _hover(text: str, step_ps: float, width: float) -> str:
    return f"{text}: {duration_text(step_ps)} a step, {percent_text(width)}"
