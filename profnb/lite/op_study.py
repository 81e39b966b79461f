"""Models op by op: which layer each op is from, what the layers' tensors lose, and how long each op takes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from profnb.capture.seams import LITE_OPS
from profnb.core.units import PS_PER_US, longer_text
from profnb.lite.findings import LiteLayer, LiteModel, LiteOp
from profnb.lite.lite_data import LiteData
from profnb.lite.op_layers import Graph, OpLayer, align, assign_layers, read_graph
from profnb.lite.process.interpreters import Bench, InterpreterProcess, InterpreterRefusalError

_PROFILED_RUNS, _LOOKED_INTO = 60, 8
_METHOD = LITE_OPS.attributes[0]  # of the interpreter: lists its ops
_NO_OPS = f"The interpreter hides {LITE_OPS.name}, so {LITE_OPS.lost}."
_MARGIN = 2  # steps: the 1 of a softmax is one beyond its fixed range, and nothing is lost
LayerErrors = dict[tuple[str, str], tuple[float, float]]


class OpStudy:
    """The ops of some models.

    Args:
        bench: Where they are measured.
    """

    def __init__(self, bench: Bench) -> None:
        """Nothing is looked into yet."""
        self._bench = bench
        self._seen: list[LiteModel] = []
        self._graphs: dict[str, Graph] = {}
        self._layers: dict[str, list[OpLayer]] = {}
        self._ops: dict[str, list[LiteOp]] = {}
        self._invoke_ps: dict[str, float] = {}
        self._errors: LayerErrors = {}

    def look_into(
        self,
        process: InterpreterProcess,
        models: Sequence[LiteModel],
        layers: Mapping[str, Sequence[tuple[str, str]]],
    ) -> None:
        """Find the ops of each model, with their layers and who runs them.

        Args:
            process: Where to open them.
            models: One for each file.
            layers: By model names and classes of the layers of the Keras model that it came from.
        """
        self._seen = list(models)
        for one in models:
            name = one.name
            inputs = process.ask("open", **self._bench.place(name, one.threads))["inputs"]
            graph_details = process.ask("graph", id=name, method=_METHOD)
            if graph_details["ops"] is None and _NO_OPS not in self._bench.notes:
                self._bench.notes.append(_NO_OPS)
            graph = self._graphs[name] = read_graph(graph_details, inputs)
            of_model = layers.get(name) or layers.get(name.rpartition(", ")[0], [])
            self._layers[name] = assign_layers(graph, of_model)
            self._ops[name] = list_ops(name, graph, self._layers[name])

    def compare_layers(self, process: InterpreterProcess, data: LiteData) -> None:
        """Find how far each layer's output is from the float model's, and what its range cuts off.

        Args:
            process: In which the models are open.
            data: The examples; the last few are looked at, as calibration took the first.
        """
        base = next((one for one in self._seen if one.kind.endswith("float32")), None)
        if base is None:
            return
        last = slice(max(len(data) - max(_LOOKED_INTO, self._bench.batch), 0), None)
        source = self._bench.write("looked", data, last)
        kept = {}
        for one in self._seen:
            target = str(self._bench.folder / "tensors.npz")
            try:
                process.ask("tensors", id=one.name, source=source, target=target, method=_METHOD)
            except InterpreterRefusalError as error:
                self._bench.notes.append(f"{one.name}: no tensors of its layers ({error}).")
                continue
            with np.load(target, allow_pickle=False) as file:
                kept[one.name] = {int(name[1:]): file[name] for name in file.files}
        self._errors = layer_errors(base.name, kept, self._graphs, self._layers)

    def profile(self, data: LiteData) -> None:
        """Time ops, apart from the runs that were timed; a model that ends its process ends no other's.

        Args:
            data: The examples; one run's are used.
        """
        bench = self._bench
        if bench.engine != "litert":
            bench.notes.append("There are no times of ops: tf.lite lacks LiteRT's profiler.")
            return
        source = bench.write("first", data, slice(0, bench.batch))
        costs, why, left = [], "", list(self._seen)
        while left:
            with bench.begin() as process:
                while left and process.is_alive:
                    try:
                        costs.append(self._profile_one(process, left.pop(0), source))
                    except InterpreterRefusalError as error:  # noqa: PERF203 - each model may
                        why = why or str(error)
        if why:
            bench.notes.append(
                f"No times of ops: ai-edge-litert {bench.version} has no working profiler here ({why})."
            )
        if costs:
            longer = longer_text(min(costs), max(costs))
            bench.notes.append(
                f"Times of ops come from separate runs under the profiler. These runs took {longer}, "
                "counted in whole microseconds."
            )

    def _profile_one(self, process: InterpreterProcess, one: LiteModel, source: str) -> float:
        """Time one model's ops; what the profiler cost, as a part of the time without it."""
        process.ask("open", **self._bench.place(one.name, one.threads))
        profile = process.ask("profile", id=one.name, source=source, runs=_PROFILED_RUNS)
        self._invoke_ps[one.name] = profile["invoke_us"] * PS_PER_US
        graph, ops = self._graphs[one.name], self._ops[one.name]
        self._ops[one.name] = timed_ops(ops, graph, profile["ops"])
        return float(profile["run_us"] * PS_PER_US / one.latency_ps - 1)

    @property
    def ops(self) -> tuple[LiteOp, ...]:
        """The ops of all models."""
        return tuple(op for ops in self._ops.values() for op in ops)

    @property
    def layers(self) -> tuple[LiteLayer, ...]:
        """The layers of all models in the order in which they begin, with what they lose."""
        rows = []
        for model, ops in self._ops.items():
            kinds = {layer.layer: layer.layer_type for layer in self._layers[model]}
            for name in dict.fromkeys(op.layer for op in ops):
                layer_ops = [op for op in ops if op.layer == name and op.kernel != "folded"]
                if layer_ops:
                    spent = float(sum(op.self_ps for op in layer_ops))
                    errors = self._errors.get((model, name), (math.nan, math.nan))
                    row = LiteLayer(name, kinds[name], model, spent, len(layer_ops), *errors)
                    rows.append(row)
        return tuple(rows)

    def with_ops(self, model: LiteModel) -> LiteModel:
        """Add to a model's row what its ops say; it stays as it is where they were not looked into."""
        ops = [op for op in self._ops.get(model.name, ()) if op.kernel != "folded"]
        if not ops:
            return model
        delegated = [op.self_ps for op in ops if op.kernel == "XNNPACK"]
        whole = sum(op.self_ps for op in ops)
        return replace(
            model,
            ops=len(ops),
            delegated_ops=len(delegated),
            delegated_fraction=sum(delegated) / whole if whole > 0 else math.nan,
            profiled_ps=self._invoke_ps.get(model.name, math.nan),
        )


def list_ops(model: str, graph: Graph, layers: Sequence[OpLayer]) -> list[LiteOp]:
    """List the ops of a model, in order, without times.

    Args:
        model: Its name.
        graph: Its ops.
        layers: The layer of each.
    """
    delegated, folded = graph.delegated, graph.folded
    listed = []
    for place, (op, layer) in enumerate(zip(graph.ops, layers, strict=True)):
        kernel = "XNNPACK" if place in delegated else "built-in"
        if place in folded:
            kernel = "folded"
        elif not op["type"].isupper():
            kernel = "custom"
        detail = graph.output_of(op)
        shape = " x ".join(map(str, detail.get("shape", ()))) or "scalar"
        listed.append(LiteOp(
            model, op["index"], op["type"], layer.layer, ", ".join(layer.fused), shape,
            detail.get("dtype", ""), kernel,
        ))  # fmt: skip
    return listed


def timed_ops(
    ops: Sequence[LiteOp], graph: Graph, profiled_ops: Sequence[Sequence[Any]]
) -> list[LiteOp]:
    """Add times to the ops.

    Args:
        ops: The rows.
        graph: What they are of.
        profiled_ops: What the profiler told of each op that ran, see ``op_profiler.profile_ops``.

    Returns:
        An op of a part whose others ran takes no time of its own: it is folded into them.
    """
    time_us = {op.index: 0.0 for op in ops}
    names: dict[int, str] = {}
    ran: dict[int, list[tuple[str, float]]] = {}
    for is_delegated, name, index, part, us in profiled_ops:
        if is_delegated:
            ran.setdefault(int(part), []).append((name, us))
        else:
            time_us[int(index)] = time_us.get(int(index), 0.0) + us
    folded = graph.folded
    parts = [[at for at in part if at not in folded] for part in graph.parts]
    parts = [part for part in parts if part]
    runs = [ran[part] for part in sorted(ran)]
    if len(parts) != len(runs):  # the profiler divides them in another way: all of them, in order
        parts, runs = [sorted(chain.from_iterable(parts))], [list(chain.from_iterable(runs))]
    for part, run in zip(parts, runs, strict=True):
        if not part:
            continue
        places = align([graph.ops[at]["type"] for at in part], [name for name, _ in run])
        for place, (name, us) in zip(places, run, strict=True):
            op = ops[part[place]].index
            time_us[op] += us
            names[op] = name
    return [
        replace(op, self_ps=time_us[op.index] * PS_PER_US, kernel_name=names.get(op.index, ""))
        for op in ops
    ]


def layer_errors(
    base: str,
    kept: Mapping[str, Mapping[int, Any]],
    graphs: Mapping[str, Graph],
    layers: Mapping[str, Sequence[OpLayer]],
) -> LayerErrors:
    """Find by model and layer how far its last output is from the float model's, and what is cut off.

    Args:
        base: The float model.
        kept: By model and tensor the values for a few examples.
        graphs: By model its ops.
        layers: By model the layer of each op.
    """

    def key(detail: Mapping[str, Any]) -> str:
        """A tensor in every kind of the model: the first of what was folded into it."""
        return str(detail.get("name", "")).partition(";")[0]

    errors: LayerErrors = {}
    named = {
        model: {key(graphs[model].tensors[at]): array for at, array in arrays.items()}
        for model, arrays in kept.items()
    }
    expected = named.pop(base, {})
    for model, values in named.items():
        for op, layer in zip(graphs[model].ops, layers[model], strict=True):
            detail = graphs[model].output_of(op)
            one, two = (arrays.get(key(detail)) for arrays in (expected, values))
            if one is not None and two is not None and one.shape == two.shape:
                errors[model, layer.layer] = _distance(one, two, detail)
    return errors


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
