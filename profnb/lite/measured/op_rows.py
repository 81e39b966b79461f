"""Graphs, layers and what the profiler told to the rows of ops and layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from profnb.core.units import PS_PER_US
from profnb.lite.findings import LiteLayer, LiteModel, LiteOp
from profnb.lite.measured.op_layers import Graph, OpLayer, align

_MARGIN = 2  # steps: the 1 of a softmax is one beyond its fixed range, and nothing is lost
LayerErrors = dict[tuple[str, str], tuple[float, float]]


def list_ops(model: str, graph: Graph, layers: Sequence[OpLayer]) -> list[LiteOp]:
    """The ops of a model, in order, without times.

    Args:
        model: Its name.
        graph: Its ops.
        layers: The layer of each.
    """
    delegated, folded = graph.delegated, graph.folded
    listed = []
    for place, (op, layer) in enumerate(zip(graph.ops, layers, strict=True)):
        detail = graph.tensors.get(op["outputs"][0], {}) if op["outputs"] else {}
        kernel = "XNNPACK" if place in delegated else "built-in"
        if place in folded:
            kernel = "folded"
        elif not op["type"].isupper():
            kernel = "custom"
        shape = " x ".join(map(str, detail.get("shape", ()))) or "scalar"
        fused = ", ".join(layer.fused)
        listed.append(
            LiteOp(
                model,
                op["index"],
                op["type"],
                layer.layer,
                fused,
                shape,
                detail.get("dtype", ""),
                kernel,
            )
        )
    return listed


def timed_ops(
    ops: Sequence[LiteOp], graph: Graph, profiled_ops: Sequence[Sequence[Any]]
) -> list[LiteOp]:
    """The ops with their times.

    Args:
        ops: The rows.
        graph: What they are of.
        profiled_ops: What the profiler told of each op that ran, see ``op_profiler.profile_ops``.

    Returns:
        An op of a part whose others ran takes no time of its own: it is folded into them.
    """
    time = {op.index: 0.0 for op in ops}
    names: dict[int, list[str]] = {}
    ran: dict[int, list[tuple[str, float]]] = {}
    for is_delegated, name, index, part, us in profiled_ops:
        if is_delegated:
            ran.setdefault(int(part), []).append((name, us))
        else:
            time[int(index)] = time.get(int(index), 0.0) + us
    folded = graph.folded
    parts = [[at for at in part if at not in folded] for part in graph.parts]
    parts = [part for part in parts if part]
    runs = [ran[part] for part in sorted(ran)]
    if len(parts) != len(runs):  # the profiler divides them in another way: all of them, in order
        parts, runs = (
            [sorted(at for part in parts for at in part)],
            [[one for run in runs for one in run]],
        )
    for part, run in zip(parts, runs, strict=True):
        if not part:
            continue
        for place, (name, us) in zip(
            align([graph.ops[at]["type"] for at in part], [n for n, _ in run]), run, strict=True
        ):
            op = ops[part[place]].index
            time[op] += us
            names.setdefault(op, []).append(name)
    return [
        replace(
            op,
            self_ps=time[op.index] * PS_PER_US,
            kernel_name=names[op.index][-1] if op.index in names else "",
        )
        for op in ops
    ]


def with_ops(model: LiteModel, ops: Sequence[LiteOp], profiled_ps: float) -> LiteModel:
    """A model's row with what its ops say.

    Args:
        model: The row.
        ops: Its ops; none where it did not run.
        profiled_ps: Mean time of a run under the profiler; NaN where there was none.
    """
    listed = [op for op in ops if op.kernel != "folded"]
    if not listed:
        return model
    inside = sum(op.self_ps for op in listed if op.kernel == "XNNPACK")
    whole = sum(op.self_ps for op in listed)
    return replace(
        model,
        ops=len(listed),
        delegated_ops=sum(op.kernel == "XNNPACK" for op in listed),
        delegated_fraction=inside / whole if whole > 0 else math.nan,
        profiled_ps=profiled_ps,
    )


def layer_rows(
    model: str, ops: Sequence[LiteOp], layers: Sequence[OpLayer], errors: LayerErrors
) -> list[LiteLayer]:
    """The layers of a model in the order in which they begin."""
    kinds = {layer.layer: layer.layer_type for layer in layers}
    rows = []
    for name in dict.fromkeys(op.layer for op in ops):
        layer_ops = [op for op in ops if op.layer == name and op.kernel != "folded"]
        if layer_ops:
            spent = float(sum(op.self_ps for op in layer_ops))
            error, clipped = errors.get((model, name), (math.nan, math.nan))
            rows.append(LiteLayer(name, kinds[name], model, spent, len(layer_ops), error, clipped))
    return rows


def layer_errors(
    base: str,
    kept: Mapping[str, Mapping[int, Any]],
    graphs: Mapping[str, Graph],
    layers: Mapping[str, Sequence[OpLayer]],
) -> LayerErrors:
    """By model and layer how far the layer's last output is from the float model's, and what is cut off.

    Args:
        base: The float model.
        kept: By model and tensor the values for a few examples.
        graphs: By model its ops.
        layers: By model the layer of each op.
    """
    errors: LayerErrors = {}
    named = {
        model: {_key(graphs[model].tensors[at]["name"]): array for at, array in arrays.items()}
        for model, arrays in kept.items()
    }
    expected = named.get(base, {})
    for model, tensor_values in named.items():
        if model == base:
            continue
        for op, layer in zip(graphs[model].ops, layers[model], strict=True):
            detail = graphs[model].tensors.get(op["outputs"][0], {}) if op["outputs"] else {}
            name = _key(detail.get("name", ""))
            if (
                name in expected
                and name in tensor_values
                and expected[name].shape == tensor_values[name].shape
            ):
                errors[model, layer.layer] = _distance(expected[name], tensor_values[name], detail)
    return errors


def _key(name: str) -> str:
    """What a tensor is called in every kind of the model: the first of what was folded into it."""
    return name.partition(";")[0]


def _distance(expected: Any, actual: Any, detail: Mapping[str, Any]) -> tuple[float, float]:
    """The relative error, and the share of values that the tensor's type and scale cannot hold."""
    size = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64))))
    error = float(np.sqrt(np.mean(np.square(actual.astype(np.float64) - expected))))
    clipped = math.nan
    if detail["scale"] and np.dtype(detail["dtype"]).kind in "iu":
        limits = np.iinfo(detail["dtype"])
        low = (limits.min - detail["zero"] - _MARGIN) * detail["scale"]
        high = (limits.max - detail["zero"] + _MARGIN) * detail["scale"]
        clipped = float(np.mean((expected < low) | (expected > high)))
    return (error / size if size else math.nan), clipped
