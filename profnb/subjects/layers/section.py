"""Layers as the report shows them: the parts of a step, each layer, and the model as a picture.

The picture has a model, what is inside it, and at the bottom the parts of the step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from profnb.core.block import Block
from profnb.core.columns import Bools, Int64s
from profnb.core.units import MISSING, bar_text, count_text, duration_text, percent_text, rate_text
from profnb.drawing.figures import icicle_figure
from profnb.drawing.markup import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import PART_COLOURS, colour_of
from profnb.subjects.layers.layer_rows import (
    INPUT,
    LAYER_PARTS,
    LOSS,
    METRICS,
    OPTIMIZER,
    OTHERS,
    OUTSIDE,
)
from profnb.subjects.layers.layer_table import LAYERS, SCOPE, LayerTable

_SHOWN_LAYERS, _MOST_LAYERS_SHOWN = 8, 300
_MOST_BLOCKS, _DEEPEST_SHOWN, _SMALLEST, _LONGEST_PATH = 190, 4, 0.0015, 160
_ROW_COLOURS = PART_COLOURS | {OPTIMIZER: PART_COLOURS["update"], OUTSIDE: PART_COLOURS["other"]}


def layer_sections(table: LayerTable, scope: str) -> list[Section]:
    """Show the tables on the layers of a part of the trace; none where no op of it lies in one."""
    named = zip(table.layer, table.layer_type, strict=True)
    is_layer = np.array([name not in OTHERS or kind != "" for name, kind in named], np.bool_)
    if not table.total_ps[is_layer].any():
        return []
    return [_part_section(table, is_layer), _layer_section(table, is_layer, scope)]


def _parts_of_step(table: LayerTable, is_layer: Bools) -> list[tuple[str, int]]:
    """Time of what a step consists of, over all layers; what took none is left out."""
    in_layers = table.layer_part_ps[is_layer].sum(axis=0).tolist()
    others = {
        name: int(table.total_ps[row]) for row, name in enumerate(table.layer) if not is_layer[row]
    }
    parts = [
        ("forward", in_layers[0]), ("backward", in_layers[1]), ("recomputation", in_layers[3]),
        (LOSS, others.get(LOSS, 0)), (OPTIMIZER, others.get(OPTIMIZER, 0) + in_layers[2]),
        (METRICS, others.get(METRICS, 0)), (INPUT, others.get(INPUT, 0)),
        (OUTSIDE, others.get(OUTSIDE, 0) + in_layers[4]),
    ]  # fmt: skip
    return [(name, spent) for name, spent in parts if spent]


def _part_section(table: LayerTable, is_layer: Bools) -> Section:
    """A step's op time: forward, backward, the optimizer and what is no layer."""
    whole, parts = int(table.total_ps.sum()), _parts_of_step(table, is_layer)
    most = max(spent for _, spent in parts)
    flops = np.nansum(table.flops[is_layer], axis=0)
    side = "the device" if table.side == "device" else "the CPU"
    took = duration_text(whole / table.iterations)
    sentence = f"Ops took {took} a step on {side}, all threads and streams added up."
    if not table.has_models:
        sentence += (
            " No live model was known, so layers come from the ops' name scopes. profnb.load(path, "
            "model=model) adds parameters, shapes and operations."
        )
    return Section(
        title="Parts of a step",
        sentence=sentence,
        headings=("", "part", "mean per step", "share", "operations", "achieved"),
        meanings=(
            "", "what of a step's work", "mean time of its ops in a step", "share of the time of all ops",
            "", "",
        ),
        rows=[
            (
                bar_text(spent / most, 12), name, duration_text(spent / table.iterations),
                percent_text(spent / whole), *_achieved(name, spent, flops.tolist(), table.iterations),
            )
            for name, spent in parts
        ],
        numbers=(False, False, True, True, True, True),
        colours=[_ROW_COLOURS[name] for name, _ in parts],
        tab="Layers",
        is_detail=True,
    )  # fmt: skip


def _achieved(name: str, spent: int, flops: Sequence[float], iterations: int) -> tuple[str, str]:
    done = flops[LAYER_PARTS.index(name)] if name in LAYER_PARTS[:2] else 0
    if not done or not spent:
        return MISSING, MISSING
    return rate_text(done, "flop"), rate_text(done * iterations / spent * 1e12, "flop/s")


def _layer_section(table: LayerTable, is_layer: Bools, scope: str) -> Section:
    total = table.total_ps
    rows = [row for row in np.argsort(-total, kind="stable").tolist() if total[row]]
    layers = int(is_layer[rows].sum())
    listed = rows[:_MOST_LAYERS_SHOWN]
    largest = sorted(_parts_of_step(table, is_layer), key=lambda part: -part[1])[:4]
    whole = int(total.sum())
    parts = ", ".join(f"{name} {percent_text(spent / whole)}" for name, spent in largest)
    plural = "layer" if layers == 1 else "layers"
    sentence = f"Of {scope}: {count_text(layers)} {plural} with ops. Shares of op time: {parts}."
    if table.is_estimate[listed].any():
        sentence += " ~ marks layers fused by XLA, with the time shared out by operations."
    if len(rows) > len(listed):
        sentence += f" {count_text(len(rows) - len(listed))} more are in p.layers."

    def colour(row: int) -> str:
        if table.layer_type[row]:
            return _ROW_COLOURS[LAYER_PARTS[int(table.layer_part_ps[row].argmax())]]
        return _ROW_COLOURS.get(table.layer[row], colour_of("all others"))

    return section_of(
        LAYERS,
        table,
        _columns(table, total > 0),
        title="Layers",
        tab="Layers",
        sentence=" ".join((sentence, *table.remarks)),
        bar=Bar.of(total, colour, 8),
        rows=listed,
        is_sortable=True,
        searches=[table.search[row] for row in listed],
        figure=icicle_figure(
            grow_layer_tree(table),
            _ROW_COLOURS,
            title="Where the model's op time goes",
            of_what="op time",
        ),
        shown=_SHOWN_LAYERS,
    )


def _columns(table: LayerTable, has_time: Bools) -> list[str | Shown]:
    """The columns in which anything stands."""
    name, shape = table.layer.__getitem__, table.output_shape.__getitem__
    meaning = LAYERS["layer"].meaning
    took: Bools = np.any(table.layer_part_ps[has_time], axis=0)
    later = ("backward", "recomputation", "update")
    shown = ("forward", *(part for part in later if took[LAYER_PARTS.index(part)]), "total")
    columns: list[str | Shown] = [
        Shown("layer", lambda row: _layer_cell(table, row), sort_key=name, meaning=meaning),
        *(_per_step(table, f"{part}_us") for part in shown),
        "fraction",
    ]
    if not np.isnan(table.parameters[has_time]).all():
        columns.append("parameters")
    if any(table.output_shape):
        meaning = "what it gives back, without the batch"
        output = Shown("output", lambda row: _sizes(shape(row)), True, shape, meaning)  # noqa: FBT003
        columns.append(output)
    if not np.isnan(table.flops_per_second[has_time]).all():
        columns.append("gigaflops_per_second")
    if any(table.bounds.bound_by):
        columns.append("bound_by")
    return columns


def _per_step(table: LayerTable, name: str) -> Shown:
    """A column of times as their mean in a step; of the totals, with a mark where they are estimates."""
    column = LAYERS[name]
    values = column.values(table)
    is_total = name == "total_us"

    def text(row: int) -> str:
        if not values[row] and not is_total:
            return MISSING
        mark = "~ " if is_total and table.is_estimate[row] else ""
        return mark + duration_text(values[row] / table.iterations)

    return Shown(
        column.title, text, is_number=True, sort_key=lambda row: int(values[row]),
        meaning=f"{column.meaning}, a step",
    )  # fmt: skip


def _layer_cell(table: LayerTable, row: int) -> Cell:
    """A layer's name and, fainter, its class, where it lies and whether it is shared."""
    kind = table.layer_type[row]
    above, _, name = table.layer[row].rpartition("/") if kind else ("", "", table.layer[row])
    about = [kind] if kind and kind != SCOPE else []
    inside = above.partition("/")[2] if table.has_models else above
    about += [f"in {inside}"] if inside else []
    about += ["shared"] if table.is_shared[row] else []
    return (name, "", " ".join(about)) if about else name


def _sizes(shape: str) -> str:
    """A shape without the batch: ``(None, 20, 16)`` is 20 x 16."""
    sizes = shape.strip("()").rstrip(",").split(", ")[1:]
    return " x ".join("?" if size == "None" else size for size in sizes) or MISSING


@dataclass(slots=True)
class _Node:
    """A path and what lies under it."""

    row: int = -1
    inside: dict[str, "_Node"] = field(default_factory=dict)
    total_ps: int = 0
    layer_part_ps: Int64s = field(default_factory=lambda: np.zeros(len(LAYER_PARTS), np.int64))


def grow_layer_tree(table: LayerTable) -> list[Block]:
    """Lay out the layers in the order of the model, parts under what they are part of.

    What is deeper than four levels or too small to see is drawn with what it is part of. The lowest level has
    the layer parts: forward, backward, update, recomputation. These are the roles of its blocks; the others
    are "outer layer" and "inner layer" in turn, or what no layer is ("loss", "optimizer", ...).
    """
    root, lowest, total = _Node(), 0, table.total_ps.tolist()
    for row, name in enumerate(table.layer):
        parts = [name] if not table.layer_type[row] and name in OTHERS else name.split("/")
        node = root
        for part in parts[:_DEEPEST_SHOWN]:
            node = node.inside.setdefault(part, _Node())
            node.total_ps += total[row]
        node.row = row if len(parts) <= _DEEPEST_SHOWN else node.row
        node.layer_part_ps += table.layer_part_ps[row]
        lowest = max(lowest, len(parts[:_DEEPEST_SHOWN]))
    blocks = sorted(_lay_out(table, root, "", 0, 0.0, lowest), key=lambda block: -block.width)
    return sorted(blocks[:_MOST_BLOCKS], key=lambda block: (block.level, block.begin))


def _lay_out(
    table: LayerTable, node: _Node, path: str, level: int, at: float, lowest: int
) -> Iterator[Block]:
    """Place what is inside a node from left to right, then its layer parts."""
    whole = int(table.total_ps.sum())

    def block(level: int, label: str, name: str, spent: int, role: str, row: int) -> Block:
        took = f"{duration_text(spent / table.iterations)} a step, {percent_text(spent / whole)}"
        search = table.search[row] if row >= 0 else ""
        return Block(level, at, spent / whole, label, f"{name}: {took}", role, search)

    for name, inner in node.inside.items():
        if inner.total_ps / whole >= _SMALLEST:
            inside = f"{path}/{name}" if path else name
            role = inside if inside in OTHERS else ("outer layer", "inner layer")[level % 2]
            yield block(level, name, inside[:_LONGEST_PATH], inner.total_ps, role, inner.row)
            yield from _lay_out(table, inner, inside, level + 1, at, lowest)
        at += inner.total_ps / whole
    for part, spent in zip(LAYER_PARTS, node.layer_part_ps.tolist(), strict=True):
        if spent / whole >= _SMALLEST and part != "other":
            yield block(lowest, part, f"{path[:_LONGEST_PATH]}, {part}", spent, part, node.row)
        at += spent / whole
