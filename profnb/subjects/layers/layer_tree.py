"""The table of layers as a picture: a model, what is inside it, and at the bottom the parts of the step."""

from dataclasses import dataclass, field

from profnb.subjects.layers.layer_rows import OTHERS, PHASES
from profnb.subjects.layers.layer_table import LayerTable

__all__ = ["LayerBlock", "grow_layer_tree"]

_MOST_BLOCKS, _DEEPEST = 190, 4
_SMALLEST = 0.0015


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """One block of the picture.

    Attributes:
        level: How many blocks lie above it.
        label: Name of the layer, or of the part of the step.
        path: The layer's whole path, or what else the row is.
        begin: Where it begins, as share of all op time in 0..1; a block lies under what it is part of.
        width: Its share of all op time.
        time_ps: Its time a step.
        phase: Part of the step, for blocks of the lowest level; "" for layers.
        search: Words that find its ops; "" if none are known.
    """

    level: int
    label: str
    path: str
    begin: float
    width: float
    time_ps: float
    phase: str = ""
    search: str = ""


@dataclass(slots=True)
class _Node:
    """A path and what lies under it."""

    row: int = -1
    inside: dict[str, "_Node"] = field(default_factory=dict)
    time: int = 0
    phases: list[int] = field(default_factory=lambda: [0] * len(PHASES))


def grow_layer_tree(table: LayerTable) -> list[LayerBlock]:
    """Lay out the layers in the order of the model, parts under what they are part of.

    What is deeper than four levels or too small to see is drawn with what it is part of. The lowest level
    tells the parts of the step: forward, backward, update, recomputation.
    """
    whole = int(table.total_ps.sum())
    if not whole:
        return []
    root = _Node()
    for row, name in enumerate(table.layer):
        spent = table.phases_ps[row].tolist()
        parts = [name] if not table.layer_type[row] and name in OTHERS else name.split("/")
        node = root
        for depth, part in enumerate(parts):
            if depth < _DEEPEST:
                node = node.inside.setdefault(part, _Node())
            node.time += sum(spent) if depth < _DEEPEST else 0
        node.row = row if len(parts) <= _DEEPEST else node.row
        node.phases = [a + b for a, b in zip(node.phases, spent, strict=True)]
    blocks: list[LayerBlock] = []
    deepest = _depth(root)
    _lay_out(table, root, "", 0, 0.0, whole, deepest, blocks)
    blocks.sort(key=lambda block: -block.width)
    return sorted(blocks[:_MOST_BLOCKS], key=lambda block: (block.level, block.begin))


def _depth(node: _Node) -> int:
    return max((1 + _depth(inner) for inner in node.inside.values()), default=0)


def _lay_out(
    table: LayerTable, node: _Node, path: str, level: int, begin: float, whole: int, lowest: int,
    blocks: list[LayerBlock],
) -> None:  # fmt: skip
    """Place what is inside a node from left to right, then its own time."""
    at = begin
    for name, inner in node.inside.items():
        width = inner.time / whole
        if width >= _SMALLEST:
            inside = f"{path}/{name}" if path else name
            search = table.search[inner.row] if inner.row >= 0 else ""
            time_ps = inner.time / table.steps
            blocks.append(LayerBlock(level, name, inside, at, width, time_ps, search=search))
            _lay_out(table, inner, inside, level + 1, at, whole, lowest, blocks)
        at += width
    for phase, spent in zip(PHASES, node.phases, strict=True):
        width = spent / whole
        if width >= _SMALLEST and phase != "other":
            search = table.search[node.row] if node.row >= 0 else ""
            time_ps = spent / table.steps
            blocks.append(LayerBlock(lowest, phase, path, at, width, time_ps, phase, search))
        at += width
