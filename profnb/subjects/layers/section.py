"""Layers as the report shows them: the parts of a step, each layer, and the model as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.units import MISSING, bar_text, count_text, duration_text, percent_text, rate_text
from profnb.drawing.html_table import Cell
from profnb.drawing.section import Section
from profnb.drawing.theme import colour_of
from profnb.subjects.layers.layer_chart import PART_COLOURS, layer_figure
from profnb.subjects.layers.layer_rows import (
    INPUT,
    LOSS,
    METRICS,
    OPTIMIZER,
    OTHERS,
    OUTSIDE,
    PHASES,
)
from profnb.subjects.layers.layer_table import SCOPE, LayerTable
from profnb.subjects.layers.layer_tree import grow_layer_tree
from profnb.subjects.study import Study

__all__ = ["layer_sections"]

_HEADINGS = (
    "", "layer", "forward", "backward", "recomputed", "update", "self", "share", "parameters", "output",
    "achieved",
)  # fmt: skip
_SHOWN, _MOST_ROWS = 20, 300


@dataclass(frozen=True, slots=True)
class _Values:
    """Columns of the table that are worked out from others, once for all rows."""

    total: Int64s
    fraction: Floats
    rate: Floats

    @classmethod
    def of(cls, table: LayerTable) -> "_Values":
        return cls(table.total_ps, table.fraction, table.flops_per_second)


def layer_sections(study: Study) -> list[Section]:
    """The tables on layers; none where no op lies in one."""
    table = study.layers.table
    is_layer = np.array(
        [name not in OTHERS or kind != "" for name, kind in _named(table)], np.bool_
    )
    if not table.total_ps[is_layer].any():
        return []
    return [_part_section(table, is_layer), _layer_section(table, is_layer)]


def _named(table: LayerTable) -> list[tuple[str, str]]:
    return list(zip(table.layer, table.layer_type, strict=True))


def _parts_of_step(table: LayerTable, is_layer: Bools) -> list[tuple[str, int]]:
    """Time of what a step consists of, over all layers; what took none is left out."""
    in_layers = table.phases_ps[is_layer].sum(axis=0).tolist()
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
    """Where a step's op time goes: forward, backward, the optimizer and what is no layer."""
    whole = int(table.total_ps.sum()) or 1
    parts = _parts_of_step(table, is_layer)
    most = max(spent for _, spent in parts)
    flops = np.nansum(table.flops[is_layer], axis=0)
    return Section(
        title="Parts of a step",
        sentence=_part_sentence(table),
        headings=("", "part", "mean per step", "share", "operations", "achieved"),
        rows=[
            (
                bar_text(spent / most, 12), name, duration_text(spent / table.steps),
                percent_text(spent / whole), *_achieved(name, spent, flops.tolist(), table.steps),
            )
            for name, spent in parts
        ],
        numbers=(False, False, True, True, True, True),
        colours=[PART_COLOURS[name] for name, _ in parts],
        tab="Layers",
        is_detail=True,
    )  # fmt: skip


def _part_sentence(table: LayerTable) -> str:
    side = "the device" if table.side == "device" else "the CPU"
    whole = duration_text(int(table.total_ps.sum()) / table.steps)
    sentence = f"Ops took {whole} a step on {side}, all threads and streams added up."
    if not table.has_models:
        sentence += (
            " No live model was known, so layers are told by the ops' name scopes alone; "
            "profnb.load(path, model=model) adds parameters, shapes and operations."
        )
    return sentence


def _achieved(name: str, spent: int, flops: Sequence[float], steps: int) -> tuple[str, str]:
    if name not in PHASES[:2] or not spent:
        return MISSING, MISSING
    done = flops[PHASES.index(name)]
    if not done:
        return MISSING, MISSING
    return rate_text(done, "flop"), rate_text(done * steps / spent * 1e12, "flop/s")


def _layer_section(table: LayerTable, is_layer: Bools) -> Section:
    values = _Values.of(table)
    total = values.total
    rows = [row for row in np.argsort(-total, kind="stable").tolist() if total[row]]
    layers = int(is_layer[rows].sum())
    listed = rows[:_MOST_ROWS]
    most = int(total[rows[0]]) or 1
    largest = sorted(_parts_of_step(table, is_layer), key=lambda part: -part[1])[:4]
    whole = int(total.sum())
    parts = ", ".join(f"{name} {percent_text(spent / whole)}" for name, spent in largest)
    plural = "layer" if layers == 1 else "layers"
    sentence = f"{count_text(layers)} {plural} with ops of their own; of op time: {parts}."
    if table.is_estimate[listed].any():
        sentence += " ~ marks what XLA ran in one piece with others, shared out by operations."
    if len(rows) > len(listed):
        sentence += f" {count_text(len(rows) - len(listed))} more are in p.layers."
    columns = _columns(table, values)
    return Section(
        title="Layers",
        sentence=" ".join((sentence, *table.remarks)),
        headings=[_HEADINGS[column] for column in columns],
        rows=[_picked(_layer_cells(table, row, most, values), columns) for row in listed],
        numbers=[column > 1 for column in columns],
        colours=[_row_colour(table, row) for row in listed],
        tab="Layers",
        figure=layer_figure(grow_layer_tree(table)),
        searches=[table.search[row] for row in listed],
        sort_keys=[_picked(_sort_keys(table, row, values), columns) for row in listed],
        shown=_SHOWN,
    )  # fmt: skip


def _columns(table: LayerTable, values: _Values) -> list[int]:
    """The columns in which anything stands."""
    rows = values.total > 0
    has = {
        "backward": table.phases_ps[rows, 1].any(),
        "recomputed": table.phases_ps[rows, 3].any(),
        "update": table.phases_ps[rows, 2].any(),
        "parameters": not np.isnan(table.parameters[rows]).all(),
        "output": any(table.output_shape),
        "achieved": not np.isnan(values.rate[rows]).all(),
    }
    return [column for column, name in enumerate(_HEADINGS) if has.get(name, True)]


def _picked(values: Sequence[Any], columns: Sequence[int]) -> list[Any]:
    return [values[column] for column in columns]


def _row_colour(table: LayerTable, row: int) -> str:
    if table.layer_type[row]:
        return PART_COLOURS[PHASES[int(table.phases_ps[row].argmax())]]
    return PART_COLOURS.get(table.layer[row], colour_of("all others"))


def _layer_cells(table: LayerTable, row: int, most: int, values: _Values) -> Sequence[Cell]:
    phases = table.phases_ps[row].tolist()
    kind = table.layer_type[row]
    above, _, name = table.layer[row].rpartition("/") if kind else ("", "", table.layer[row])
    about = [kind] if kind and kind != SCOPE else []
    inside = above.partition("/")[2] if table.has_models else above
    about += [f"in {inside}"] if inside else []
    about += ["shared"] if table.is_shared[row] else []
    mark = "~ " if table.is_estimate[row] else ""
    return (
        bar_text(int(values.total[row]) / most, 8),
        (name, "", " ".join(about)) if about else name,
        *(
            duration_text(spent / table.steps) if spent else MISSING
            for spent in (phases[0], phases[1], phases[3], phases[2])
        ),
        mark + duration_text(int(values.total[row]) / table.steps),
        percent_text(float(values.fraction[row])),
        count_text(float(table.parameters[row])),
        _sizes(table.output_shape[row]),
        rate_text(values.rate[row] or None, "flop/s"),
    )


def _sizes(shape: str) -> str:
    """A shape without the batch: ``(None, 20, 16)`` is 20 x 16."""
    sizes = shape.strip("()").rstrip(",").split(", ")[1:]
    return " x ".join("?" if size == "None" else size for size in sizes) or MISSING


def _sort_keys(table: LayerTable, row: int, values: _Values) -> Sequence[float | str | None]:
    """What each column is sorted by; None where it is not known."""
    phases = table.phases_ps[row].tolist()
    total = int(values.total[row])

    def known(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    return (
        total, table.layer[row], phases[0], phases[1], phases[3], phases[2], total,
        total, known(table.parameters[row]), table.output_shape[row],
        known(values.rate[row]),
    )  # fmt: skip
