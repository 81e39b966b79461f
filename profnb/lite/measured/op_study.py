"""Models op by op: which layer each op is from, what the layers' tensors lose, and how long each op takes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from profnb.capture.seams import LITE_OPS
from profnb.core.units import PS_PER_US, longer_text
from profnb.lite.findings import LiteLayer, LiteModel, LiteOp
from profnb.lite.given import GivenData
from profnb.lite.measured.bench import Bench
from profnb.lite.measured.op_layers import Graph, OpLayer, assign_layers, read_graph
from profnb.lite.measured.op_rows import (
    LayerErrors,
    layer_errors,
    layer_rows,
    list_ops,
    timed_ops,
    with_ops,
)
from profnb.lite.process.interpreters import InterpreterProcess, InterpreterRefusalError

_PROFILED_RUNS, _LOOKED_INTO = 60, 8
_METHOD = LITE_OPS.attributes[0]  # of the interpreter: lists its ops
_NO_OPS = f"The interpreter hides {LITE_OPS.name}, so {LITE_OPS.lost}."


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
        """The ops of each model, with their layers and who runs them.

        Args:
            process: Where to open them.
            models: One for each file.
            layers: By model names and classes of the layers of the Keras model that it came from.
        """
        self._seen = list(models)
        for one in models:
            inputs = process.ask("open", id=one.name, **self._bench.place_of(one))["inputs"]
            graph_details = process.ask("graph", id=one.name, method=_METHOD)
            graph = read_graph(graph_details, inputs)
            if graph_details["ops"] is None and _NO_OPS not in self._bench.notes:
                self._bench.notes.append(_NO_OPS)
            of_model = layers.get(one.name) or layers.get(one.name.rpartition(", ")[0], [])
            op_layers = assign_layers(graph, of_model)
            self._graphs[one.name], self._layers[one.name] = graph, op_layers
            self._ops[one.name] = list_ops(one.name, graph, op_layers)

    def compare_layers(self, process: InterpreterProcess, data: GivenData) -> None:
        """How far each layer's output is from the float model's, and what its range cuts off.

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

    def profile(self, data: GivenData) -> None:
        """Times of ops, apart from the runs that were timed; a model that ends its process ends no other's.

        Args:
            data: The examples; one run's are used.
        """
        if self._bench.engine != "litert":
            self._bench.notes.append(
                "Times of ops come from LiteRT's profiler, which tf.lite does not have."
            )
            return
        source = self._bench.write("first", data, slice(0, self._bench.batch))
        costs, why, left = [], "", list(self._seen)
        while left:
            with self._bench.begin() as process:
                while left and process.is_alive:
                    try:
                        costs.append(self._profile_one(process, left.pop(0), source))
                    except InterpreterRefusalError as error:  # noqa: PERF203 - each model may
                        why = why or str(error)
        if why:
            self._bench.notes.append(
                f"No times of ops: ai-edge-litert {self._bench.version} has no profiler that works "
                f"here ({why})."
            )
        if costs:
            longer = longer_text(min(costs), max(costs))
            self._bench.notes.append(
                f"Times of ops are of runs of their own: with the profiler those took {longer}, and it "
                "counts whole microseconds."
            )

    def _profile_one(self, process: InterpreterProcess, one: LiteModel, source: str) -> float:
        """What the profiler cost, as a part of the time without it."""
        process.ask("open", id=one.name, **self._bench.place_of(one))
        profile = process.ask("profile", id=one.name, source=source, runs=_PROFILED_RUNS)
        self._invoke_ps[one.name] = profile["invoke_us"] * PS_PER_US
        graph = self._graphs[one.name]
        self._ops[one.name] = timed_ops(self._ops[one.name], graph, profile["ops"])
        return float(profile["run_us"] * PS_PER_US / one.latency_ps - 1)

    @property
    def ops(self) -> tuple[LiteOp, ...]:
        """The ops of all models."""
        return tuple(op for ops in self._ops.values() for op in ops)

    @property
    def layers(self) -> tuple[LiteLayer, ...]:
        """The layers of all models, with what they lose."""
        return tuple(
            row
            for name, ops in self._ops.items()
            for row in layer_rows(name, ops, self._layers[name], self._errors)
        )

    def with_ops(self, model: LiteModel) -> LiteModel:
        """A model's row with what its ops say; as it is where they were not looked into."""
        profiled_ps = self._invoke_ps.get(model.name, math.nan)
        return with_ops(model, self._ops.get(model.name, ()), profiled_ps)
