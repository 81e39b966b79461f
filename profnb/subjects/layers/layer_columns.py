"""Times of layers to the columns of the table of layers: with parameters, shapes, operations and memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from math import nan

import numpy as np

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.core.columns import Floats
from profnb.subjects.bounds.op_roofline import OpRoofline
from profnb.subjects.layers.flops import backward_factor, forward_flops
from profnb.subjects.layers.layer_bounds import LayerBounds, bound_layers
from profnb.subjects.layers.layer_rows import OTHERS, LayerRows
from profnb.subjects.layers.layer_table import SCOPE, LayerTable
from profnb.subjects.layers.layer_times import LayerTimes
from profnb.subjects.memory.peak import PeakRow


def tabulate_layers(
    times: LayerTimes,
    peak: Sequence[PeakRow],
    roofline: OpRoofline | None = None,
    *,
    batch_size: int | None,
    is_training: bool,
    has_device: bool,
) -> LayerTable:
    """Put together what is known of each layer.

    Args:
        times: The times of the rows.
        peak: What was alive when most memory was in use.
        roofline: The ops under their roof; None where no op's cost is known.
        batch_size: Examples of one iteration; None where not known.
        is_training: Whether the counted steps train, so that there are gradients.
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
        layer_part_ps=times.time_ps[side][order],
        host_ps=times.time_ps[0].sum(axis=1)[order],
        device_ps=times.time_ps[1].sum(axis=1)[order],
        occurrences=times.occurrences[side][order],
        parameters=np.array([_parameters(layer) for layer in layers], np.float64),
        output_shape=tuple(_shape_text(layer) for layer in layers),
        flops=flops[order],
        bounds=_in_order(bound_layers(times, roofline, has_device=has_device), order),
        peak_bytes=held[order],
        is_shared=np.array([layer is not None and layer.is_shared for layer in layers], np.bool_),
        is_estimate=times.is_estimate[order],
        search=tuple(search.get(row, "") for row in order),
        iterations=times.iterations,
        side="device" if has_device else "host",
        has_models=any(layer is not None for layer in layers),
        remarks=tuple(_remarks(times)),
    )


def _in_order(bounds: LayerBounds, order: Sequence[int]) -> LayerBounds:
    return LayerBounds(
        bounds.bytes[order],
        bounds.intensity[order],
        bounds.bytes_per_second[order],
        bounds.flops_fraction[order],
        bounds.bytes_fraction[order],
    )


def _remarks(times: LayerTimes) -> Iterator[str]:
    """What of the models could not be distinguished, or did not run."""
    rows = times.rows
    for name, often in rows.alike.items():
        yield (
            f"{often} models named {name} ran with layers named alike, so their rows cannot be told apart: "
            "the time of all stands at one of them. Give the models names, or capture one at a time."
        )
    spent = times.time_ps.sum(axis=(0, 2))
    first = 0
    for model in rows.models:
        of_layers = spent[first : first + len(model.layers)]
        is_rest_idle = len(of_layers) > 1 and not of_layers[1:].any()
        has_only_name = of_layers[0] > 0 and is_rest_idle
        if has_only_name or (model.is_given and not of_layers.any()):
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
        layers = range(first, first + len(model.layers))
        if times.time_ps[:, layers].any():
            order.extend(layers)
            parent |= {row: first + rows.layers[row].parent for row in layers[1:]}
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


def _name_rows(rows: LayerRows) -> tuple[list[str], list[str]]:
    """Names and types of all rows, in the order of ``LayerRows``."""
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
    flops = times.hlo_flops / max(times.iterations, 1)
    rows = times.rows
    observed: dict[int, int] = {}
    for place in rows.layer_places:
        observed[place.row] = observed.get(place.row, 0) + (not place.is_again)
    first, alike = 0, rows.alike
    for model, iterations in zip(rows.models, times.model_iterations, strict=True):
        share = iterations / max(times.iterations, 1)
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
    for allocated in peak:
        row = _row_of(times, allocated.op_name)
        if row >= 0:
            held[row] = np.nansum([held[row], allocated.bytes])
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


def _search_words(rows: LayerRows, row_of_op: Mapping[str, int]) -> dict[int, str]:
    """What all scopes of a row have in common; of what is no layer, the scope of most of its ops."""
    scopes: dict[int, list[str]] = {}
    for place in rows.layer_places:
        scopes.setdefault(place.row, []).append("/".join(place.scope) + "/")
    # Character by character on purpose: the calls of a layer are scopes shared_1/ and shared_3/.
    words = {row: os.path.commonprefix(paths) for row, paths in scopes.items()}  # noqa: RUF071
    words |= {row: "/".join(path) + "/" for path, row in rows.scopes.items()}
    first, last = rows.other(OTHERS[0]), rows.other(OTHERS[-1])
    heads: dict[int, dict[str, int]] = {}
    for name, row in row_of_op.items():
        head = rows.head_of(name)
        if first <= row <= last and head:
            counts = heads.setdefault(row, {})
            counts[head] = counts.get(head, 0) + 1
    return words | {row: max(counts, key=lambda h: counts[h]) for row, counts in heads.items()}
