"""Two studies to what each layer took in either, matched by name: what two frameworks have in common.

Ops of two frameworks are not alike, layers are. A layer is matched by its path, in which the numbers that
Keras gives are replaced by ranks (see ``op_differences``); where each side has one model at the top, the
models may be called differently. JAX tells whose weights an update is of, PyTorch does not: all updates are
the optimizer's row on both sides.

The interval of a ratio comes from blocks of neighbouring steps of one run each: it tells the variation from
step to step, not from run to run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.compare.estimates import estimate_mean
from profnb.compare.op_differences import rank_scopes
from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table, of_each
from profnb.core.units import signed_text
from profnb.subjects.layers.layer_rows import LAYER_PARTS, OPTIMIZER, OTHERS
from profnb.subjects.layers.layer_table import SCOPE, LayerTable
from profnb.subjects.study import Study

_MOST_BLOCKS, _LEAST_STEPS = 6, 3
_FORWARD, _UPDATE = LAYER_PARTS.index("forward"), LAYER_PARTS.index("update")
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """A layer in A and in B, or what else a step consists of; times are op times of a mean step.

    Attributes:
        layer: Its path, as A has it if A has it.
        layer_type: Its class; "" where neither tells it.
        first_forward_ps: Forward ops in A; NaN where A has no such layer.
        first_backward_ps: All other ops of it in A, gradients above all; without updates of weights.
        first_parameters: Its own in A; NaN where not known.
        second_forward_ps: As above, of B.
        second_backward_ps: Likewise.
        second_parameters: Likewise.
        ratio: Time in B over that in A; NaN where one of them has none.
        low: Where its 95 % interval begins; NaN where there are too few steps.
        high: Where it ends.
        status: "both", "only in A" or "only in B".
        is_layer: Whether it is a layer; else loss, metrics, optimizer, input, outside the model.
    """

    layer: str
    layer_type: str
    first_forward_ps: float
    first_backward_ps: float
    first_parameters: float
    second_forward_ps: float
    second_backward_ps: float
    second_parameters: float
    ratio: float
    low: float
    high: float
    status: str
    is_layer: bool

    @property
    def first_ps(self) -> float:
        """Time in A; NaN where A has no such layer."""
        return self.first_forward_ps + self.first_backward_ps

    @property
    def second_ps(self) -> float:
        """Time in B; NaN where B has no such layer."""
        return self.second_forward_ps + self.second_backward_ps

    @property
    def difference_ps(self) -> float:
        """How much more B spends on it; NaN where one of them has no such layer."""
        return self.second_ps - self.first_ps


@dataclass(slots=True)
class _Row:
    layer: str
    layer_type: str
    is_layer: bool
    parameters: float
    forward_ps: float
    backward_ps: float
    blocks_ps: Floats


def compare_layers(first: Study, second: Study) -> list[LayerDifference]:
    """The layers of both in the order of A's model, B's others, and what is no layer.

    Nothing where one of them has no layer in which an op ran.
    """
    sides = [_rows_of(study) for study in (first, second)]
    if not all(any(row.is_layer for row in rows.values()) for rows in sides):
        return []
    if all(len(_tops(rows)) == 1 for rows in sides):
        sides = [{_without_top(key, row): row for key, row in rows.items()} for rows in sides]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    rows = [_difference(sides[0].get(key), sides[1].get(key)) for key in keys]
    return sorted(rows, key=lambda row: not row.is_layer)


def layer_guards(rows: Sequence[LayerDifference]) -> list[str]:
    """That the two models are not alike, in sentences: their parameters, where both are known."""
    layers = [row for row in rows if row.is_layer]
    counts = [
        sum(count for row in layers if not np.isnan(count := getattr(row, name)))
        for name in ("first_parameters", "second_parameters")
    ]
    if not all(counts) or counts[0] == counts[1]:
        return []
    return [f"The models differ: {counts[0]:,.0f} and {counts[1]:,.0f} parameters."]


def op_time(study: Study) -> float:
    """Op time of a mean step, in picoseconds, on the device where there is one."""
    table = study.layers.table
    return float(table.total_ps.sum()) / max(table.iterations, 1)


def _rows_of(study: Study) -> dict[str, _Row]:
    """What a mean step consists of, by path; what took no time is left out."""
    table = study.layers.table
    blocks = _blocks_of(study, len(table))
    is_layer = [
        name not in OTHERS or kind != ""
        for name, kind in zip(table.layer, table.layer_type, strict=True)
    ]
    updates = table.layer_part_ps[:, _UPDATE].copy()
    spent = _without_updates(table)
    rows: dict[str, _Row] = {}
    paths = rank_scopes([f"{name}/" for name in table.layer])
    for at, path in enumerate(paths):
        parts = table.layer_part_ps[at] / max(table.iterations, 1)
        layer_ps = float(spent[at]) / max(table.iterations, 1)
        if table.layer[at] == OPTIMIZER or not layer_ps:
            continue
        kind = "" if table.layer_type[at] == SCOPE else table.layer_type[at]
        rows[path] = _Row(
            table.layer[at], kind, is_layer[at], float(table.parameters[at]),
            float(parts[_FORWARD]), layer_ps - float(parts[_FORWARD]), blocks[0][:, at],
        )  # fmt: skip
    named = [at for at, name in enumerate(table.layer) if name == OPTIMIZER]
    of_optimizer = float(updates.sum() + spent[named].sum()) / max(table.iterations, 1)
    if of_optimizer:
        shared = blocks[1].sum(axis=1) + blocks[0][:, named].sum(axis=1)
        rows[OPTIMIZER] = _Row(
            OPTIMIZER,
            "",
            is_layer=False,
            parameters=_NAN,
            forward_ps=0.0,
            backward_ps=of_optimizer,
            blocks_ps=shared,
        )
    return rows


def _without_updates(table: LayerTable) -> Int64s:
    without: Int64s = table.total_ps - table.layer_part_ps[:, _UPDATE]
    return without


def _blocks_of(study: Study, rows: int) -> tuple[Floats, Floats]:
    """Time of each row in a mean step of each block of steps, without and only of updates, shape (B, R)."""
    counted = study.summary.counted
    count = min(_MOST_BLOCKS, counted.size // _LEAST_STEPS)
    layer_ps, updates = np.zeros((count, rows)), np.zeros((count, rows))
    for at, block in enumerate(np.array_split(counted, count) if count else ()):
        table = study.layers.table_of(block, study.events_of(block))
        if table.layer != study.layers.table.layer:
            return np.zeros((0, rows)), np.zeros((0, rows))
        steps = max(table.iterations, 1)
        layer_ps[at] = _without_updates(table) / steps
        updates[at] = table.layer_part_ps[:, _UPDATE] / steps
    return layer_ps, updates


def _tops(rows: dict[str, _Row]) -> set[str]:
    """The scopes at the top that layers lie in; "" where one lies in none."""
    return {
        key.split("/")[0] if "/" in key.strip("/") else ""
        for key, row in rows.items()
        if row.is_layer
    }


def _without_top(key: str, row: _Row) -> str:
    return key.partition("/")[2] if row.is_layer else key


def _difference(one: _Row | None, two: _Row | None) -> LayerDifference:
    shown = one or two
    assert shown is not None
    ratio = low = high = _NAN
    if one is not None and two is not None:
        ratio = (two.forward_ps + two.backward_ps) / (one.forward_ps + one.backward_ps)
        sides = [row.blocks_ps for row in (two, one)]
        if all(len(blocks) > 1 and (blocks > 0).all() for blocks in sides):
            estimates = [estimate_mean(np.log(blocks).tolist()) for blocks in sides]
            low, high = (float(np.exp(bound)) for bound in estimates[0].less(estimates[1]))
    kinds = [row.layer_type for row in (one, two) if row is not None and row.layer_type]

    def of(row: _Row | None) -> tuple[float, float, float]:
        return (_NAN,) * 3 if row is None else (row.forward_ps, row.backward_ps, row.parameters)

    status = "both" if one and two else "only in A" if one else "only in B"
    return LayerDifference(
        shown.layer,
        kinds[0] if kinds else "",
        *of(one),
        *of(two),
        ratio,
        low,
        high,
        status,
        shown.is_layer,
    )


LAYER_DIFFERENCES = Table[Sequence[LayerDifference]](
    "layers",
    "One row per layer of either side in the order of A's model, then what is no layer.",
    (
        Column("layer", of_each("layer"), "its path, as A has it if A has it"),
        Column("layer_type", of_each("layer_type"), 'its class, "" where not known'),
        Column(
            "first_forward_us", of_each("first_forward_ps"), "its forward ops in a mean step of A"
        ),
        Column(
            "first_backward_us",
            of_each("first_backward_ps"),
            "its other ops, gradients above all, without updates of weights",
        ),
        Column("second_forward_us", of_each("second_forward_ps"), "its forward ops in B"),
        Column("second_backward_us", of_each("second_backward_ps"), "its other ops in B"),
        Column(
            "difference_us",
            of_each("difference_ps"),
            "how much more B spends on it",
            text=signed_text,
        ),
        Column("ratio", of_each("ratio"), "time in B over that in A"),
        Column(
            "low",
            of_each("low"),
            "where its 95 % interval begins, by blocks of steps of one run each",
        ),
        Column("high", of_each("high"), "where it ends"),
        Column("first_parameters", of_each("first_parameters"), "its own parameters in A"),
        Column("second_parameters", of_each("second_parameters"), "... in B"),
        Column("status", of_each("status"), '"both", "only in A" or "only in B"'),
    ),
    "Times are op times, all threads and streams added up, of the traced run of each side; NaN where a side "
    "has no such layer with ops. Updates of all weights are the optimizer's.",
    "c",
)
