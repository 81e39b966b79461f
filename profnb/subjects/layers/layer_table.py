"""Times of layers to the table a person reads: with parameters, shapes, operations and memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.core.columns import Bools, Floats, Int64s
from profnb.subjects.layers.flops import backward_factor, forward_flops
from profnb.subjects.layers.layer_rows import OTHERS, Rows
from profnb.subjects.layers.layer_times import LayerTimes
from profnb.subjects.memory.peak import PeakRow

__all__ = ["SCOPE", "LayerTable", "tabulate_layers"]

SCOPE = "name scope"


@dataclass(frozen=True, slots=True)
class LayerTable:
    """One row per layer, in the order of the model, then scopes, then what is neither.

    Attributes:
        layer: Paths of layers, ``model/encoder/dense``, or what else a row is.
        layer_type: The layer's class, "name scope", or "" for what is neither.
        parent: Row of the layer it is part of, or -1, shape (R,).
        phases_ps: Self time of the counted steps by phase (``PHASES``), on the device where there is one,
            else on the host, shape (R, 5). The rows sum to the op time of that side exactly.
        host_ps: Self time on the host, shape (R,).
        device_ps: Self time on devices, shape (R,).
        occurrences: Runs of ops on the side that ``phases_ps`` is of, shape (R,).
        parameters: Of the layer itself, without its parts; NaN where not known, shape (R,).
        output_shape: ``(None, 10)``, or "".
        flops: Operations forward and backward, mean per step, shape (R, 2); NaN where not known.
        peak_bytes: Alive at the memory's peak, of those allocated by the row's ops; NaN where not known or
            none, shape (R,).
        is_shared: Whether a layer is called or held at several places, shape (R,).
        is_estimate: Whether some of the time was shared out by operations, shape (R,).
        search: Words that find the row's ops among all.
        steps: Iterations that the times are of.
        side: "device" or "host".
        has_models: Whether live models told what the layers are.
        remarks: What the numbers do not say, in sentences.
    """

    layer: tuple[str, ...]
    layer_type: tuple[str, ...]
    parent: Int64s
    phases_ps: Int64s
    host_ps: Int64s
    device_ps: Int64s
    occurrences: Int64s
    parameters: Floats
    output_shape: tuple[str, ...]
    flops: Floats
    peak_bytes: Floats
    is_shared: Bools
    is_estimate: Bools
    search: tuple[str, ...]
    steps: int
    side: str
    has_models: bool
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.parent.size

    @property
    def total_ps(self) -> Int64s:
        """Self time of each row over all phases, shape (R,)."""
        total: Int64s = self.phases_ps.sum(axis=1)
        return total

    @property
    def with_parts_ps(self) -> Int64s:
        """Each row's time together with that of its parts, shape (R,)."""
        total = self.total_ps.copy()
        for row in range(len(self) - 1, -1, -1):
            if self.parent[row] >= 0:
                total[self.parent[row]] += total[row]
        return total

    @property
    def fraction(self) -> Floats:
        """Each row's share of all op time, shape (R,); NaN without any."""
        total = self.total_ps
        whole = int(total.sum())
        return total / whole if whole else np.full(len(self), np.nan)

    @property
    def flops_per_second(self) -> Floats:
        """Operations forward and backward over the time of both, shape (R,); NaN where not known."""
        spent = self.phases_ps[:, :2].sum(axis=1)
        done = np.nansum(self.flops, axis=1) * self.steps
        known = (spent > 0) & ~np.isnan(self.flops).any(axis=1)
        return np.where(known, done / np.where(known, spent, 1) * 1e12, np.nan)


def tabulate_layers(
    times: LayerTimes,
    peak: Sequence[PeakRow],
    *,
    batch_size: int | None,
    is_training: bool,
    has_device: bool,
) -> LayerTable:
    """Put together what is known of each layer.

    Args:
        times: The times of the rows.
        peak: What was alive when most memory was in use.
        batch_size: Examples of one iteration; None where not known.
        is_training: Whether the counted steps train, so that there is a way back.
        has_device: Whether the trace has a device.
    """
    rows = times.rows
    order, parent = _order_rows(times)
    position = {row: at for at, row in enumerate(order)}
    side = int(has_device)
    names, kinds = _name_rows(rows)
    flops = _count_flops(times, batch_size, is_training=is_training)
    held = _peak_bytes(times, peak)
    search = _search_words(rows, times.row_of_op)
    layers = [rows.layers[row] if row < len(rows.layers) else None for row in order]
    return LayerTable(
        layer=tuple(names[row] for row in order),
        layer_type=tuple(kinds[row] for row in order),
        parent=np.array([position.get(parent.get(row, -1), -1) for row in order], np.int64),
        phases_ps=times.time_ps[side][order],
        host_ps=times.time_ps[0].sum(axis=1)[order],
        device_ps=times.time_ps[1].sum(axis=1)[order],
        occurrences=times.occurrences[side][order],
        parameters=np.array([_parameters(layer) for layer in layers], np.float64),
        output_shape=tuple(_shape_text(layer) for layer in layers),
        flops=flops[order],
        peak_bytes=held[order],
        is_shared=np.array([layer is not None and layer.is_shared for layer in layers], np.bool_),
        is_estimate=times.is_estimate[order],
        search=tuple(search.get(row, "") for row in order),
        steps=times.steps,
        side="device" if has_device else "host",
        has_models=any(layer is not None for layer in layers),
        remarks=tuple(_remarks(times)),
    )


def _remarks(times: LayerTimes) -> Iterator[str]:
    """What of the models could not be told apart, or was not found."""
    rows = times.rows
    for name, often in rows.alike.items():
        yield (
            f"{often} models named {name} ran with layers named alike, so their rows cannot be told apart: "
            "the time of all stands at one of them. Give the models names, or capture one at a time."
        )
    spent = times.time_ps.sum(axis=(0, 2))
    first = 0
    for model in rows.models:
        own = spent[first : first + len(model.layers)]
        has_only_name = own[0] > 0 and len(own) > 1 and not own[1:].any()
        if has_only_name or (model.is_given and not own.any()):
            yield (
                f"The layers of {model.name} were not found in this trace: it is not the model that ran, or "
                "its layers have other names by now (Keras numbers layers on; name them to be sure)."
            )
        first += len(model.layers)


def _order_rows(times: LayerTimes) -> tuple[list[int], dict[int, int]]:
    """Which rows to show in which order, and the row that each is part of."""
    rows = times.rows
    order: list[int] = []
    parent: dict[int, int] = {}
    first = 0
    for model in rows.models:
        own = range(first, first + len(model.layers))
        if times.time_ps[:, own].any():
            order.extend(own)
            parent |= {row: first + rows.layers[row].parent for row in own[1:]}
        first += len(model.layers)
    scopes = sorted(rows.scopes.items())
    order.extend(row for _, row in scopes)
    for path, row in scopes:
        above = next(
            (path[:at] for at in range(len(path) - 1, 0, -1) if path[:at] in rows.scopes), None
        )
        if above is not None:
            parent[row] = rows.scopes[above]
    others = [rows.other(name) for name in OTHERS]
    order.extend(row for row in others if times.occurrences[:, row].any())
    return order, parent


def _name_rows(rows: Rows) -> tuple[list[str], list[str]]:
    """Names and types of all rows, in their own order."""
    names = (
        [layer.path for layer in rows.layers] + list(OTHERS) + ["/".join(p) for p in rows.scopes]
    )
    kinds = [layer.kind for layer in rows.layers] + [""] * len(OTHERS) + [SCOPE] * len(rows.scopes)
    return names, kinds


def _parameters(layer: LayerFacts | None) -> float:
    return nan if layer is None or layer.parameters < 0 else float(layer.parameters)


def _shape_text(layer: LayerFacts | None) -> str:
    return "" if layer is None or layer.output_shape is None else str(layer.output_shape)


def _count_flops(times: LayerTimes, batch_size: int | None, *, is_training: bool) -> Floats:
    """Operations of a step by row, forward and backward: from shapes, else from XLA's instructions."""
    flops = times.hlo_flops / max(times.steps, 1)
    rows = times.rows
    observed: dict[int, int] = {}
    for place in rows.found:
        observed[place.row] = observed.get(place.row, 0) + (not place.is_again)
    first, alike = 0, rows.alike
    for model, iterations in zip(rows.models, times.iterations, strict=True):
        share = iterations / max(times.steps, 1)
        for at, layer in enumerate(model.layers):
            calls = _calls_of(model, at, observed.get(first + at, 0))
            done = forward_flops(model.layers, at, calls) * (batch_size or nan) * share
            if model.name in alike:  # the time is that of several models
                done = nan
            if not np.isnan(done):
                flops[first + at] = done, done * backward_factor(layer) if is_training else 0.0
        first += len(model.layers)
    return flops


def _calls_of(model: ModelFacts, at: int, observed: int) -> int:
    """How often a step calls a layer: as seen while tracing, else by its graph of layers or its scopes."""
    if at in model.calls:
        return model.calls[at]
    layer = model.layers[at]
    in_graph = len(layer.input_shapes) if layer.is_shared else 1
    return max(in_graph, observed if model.is_uniquified else 0)


def _peak_bytes(times: LayerTimes, peak: Sequence[PeakRow]) -> Floats:
    held = np.full(len(times), np.nan)
    for found in peak:
        row = _row_of(times, found.op_name)
        if row >= 0:
            held[row] = np.nansum([held[row], found.bytes])
    return held


def _row_of(times: LayerTimes, op: str) -> int:
    """The row of the op that allocated something; -1 where it is not known."""
    name, _, op_type = op.partition(":")
    if name in times.row_of_op:
        return times.row_of_op[name]
    if not op_type:
        return -1
    row = times.rows.place(name, op_type).row
    return row if row < len(times) else -1


def _search_words(rows: Rows, row_of_op: Mapping[str, int]) -> dict[int, str]:
    """What all scopes of a row have in common; of what is no layer, the scope of most of its ops."""
    scopes: dict[int, list[str]] = {}
    for place in rows.found:
        scopes.setdefault(place.row, []).append("/".join(place.scope) + "/")
    # Character by character on purpose: the calls of a layer are scopes shared_1/ and shared_3/.
    words = {row: os.path.commonprefix(found) for row, found in scopes.items()}  # noqa: RUF071
    words |= {row: "/".join(path) + "/" for path, row in rows.scopes.items()}
    first, last = rows.other(OTHERS[0]), rows.other(OTHERS[-1])
    heads: dict[int, dict[str, int]] = {}
    for name, row in row_of_op.items():
        head = rows.head_of(name)
        if first <= row <= last and head:
            counts = heads.setdefault(row, {})
            counts[head] = counts.get(head, 0) + 1
    return words | {row: max(counts, key=lambda h: counts[h]) for row, counts in heads.items()}
