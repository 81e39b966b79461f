"""Files to findings: each is tried, then all are timed by turns, judged, and looked into op by op."""

import math
import os
import platform
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from profnb.capture.environment import CORES, describe_environment
from profnb.core.errors import CaptureError
from profnb.core.units import PS_PER_S, PS_PER_US, count_text
from profnb.lite.advice import advise_lite
from profnb.lite.conversion import Converted
from profnb.lite.findings import KERAS, LiteFindings, LiteModel, LiteOp
from profnb.lite.given import (
    GivenData,
    padded,
    plain_array,
    random_data,
    read_arrays,
    write_examples,
)
from profnb.lite.judging import judge_outputs
from profnb.lite.keras_side import KerasSide
from profnb.lite.op_layers import Graph, OpLayer, assign_layers, match_inputs, read_graph
from profnb.lite.op_rows import LayerErrors, layer_errors, layer_rows, list_ops, timed_ops, with_ops
from profnb.lite.process.interpreters import (
    InterpreterProcess,
    InterpreterRefusalError,
    pick_engine,
)

__all__ = ["Measuring"]

_BURST, _SLOW_BURST, _SLOW_SECONDS = 5, 2, 0.05
_FEWEST_ROUNDS, _MOST_ROUNDS, _PROFILED_RUNS = 30, 300, 60
_JUDGING_SECONDS, _FEWEST_JUDGED = 30.0, 200
_LOOKED_INTO = 8
_KERAS_BATCH = 128
_FLEX = "Select TensorFlow op"
_NO_FLEX = (
    "No interpreter here has TensorFlow's own ops; in an app that links the Flex delegate the "
    "model runs."
)


class Measuring:
    """One measurement of several models.

    Args:
        converted: The models.
        given: The data; may be none.
        calibrated: How many examples int8 was calibrated with, and where they are from.
        threads: Threads of the interpreters.
        batch: Examples of a run.
        seconds: How long to time, about.
    """

    def __init__(
        self, converted: Sequence[Converted], given: GivenData, calibrated: tuple[int, str],
        threads: tuple[int, ...], batch: int, seconds: float,
    ) -> None:  # fmt: skip
        """Nothing has run yet."""
        self._converted, self._given, self._calibrated = converted, given, calibrated
        self._threads, self._batch, self._seconds = threads, batch, seconds
        self._engine = pick_engine()
        self._notes: list[str] = []
        self._graphs: dict[str, Graph] = {}
        self._layers: dict[str, list[OpLayer]] = {}
        self._invoke_ps: dict[str, float] = {}
        self._order: list[int] = []  # of the arrays, as the interpreters' inputs come
        self._version = ""

    def measure(
        self,
        title: str,
        keras: Any,
        layers: Mapping[str, Sequence[tuple[str, str]]],
        notes: Sequence[str],
    ) -> LiteFindings:
        """Everything, in order.

        Args:
            title: What the models are called.
            keras: The Keras model that they are compared with; None for files.
            layers: By model names and classes of the layers of the Keras model that it came from.
            notes: What is to be said first.

        Raises:
            ValueError: The data do not fit the models.
        """
        with TemporaryDirectory(prefix="profnb-lite-") as name:
            self._folder = Path(name)
            models, inputs = self._probe()
            usable = [one for one in models if not one.error]
            if not usable:
                return LiteFindings(title, models=tuple(models))
            data = self._given if len(self._given) else random_data(*_of(inputs[usable[0].name]))
            data = padded(data, self._batch)
            side = (
                None
                if keras is None
                else KerasSide(keras, [x.shape for x in data.inputs], data.names)
            )
            self._order = self._match(inputs, usable, data)
            try:
                judged, ops, seen, errors = self._run_all(usable, data, side, layers)
            except InterpreterRefusalError as error:
                raise CaptureError(f"The interpreter failed: {error}.") from None
            self._profile(seen, data, ops)
        failed = [one for one in models if one.error]
        rows = [
            with_ops(one, ops.get(one.name, ()), self._invoke_ps.get(one.name, math.nan))
            for one in (*judged.models, *failed)
        ]
        findings = replace(
            judged, title=title, models=tuple(rows), ops=tuple(op for one in ops.values() for op in one),
            environment=self._environment(), batch_size=self._batch,
            layers=tuple(
                row for one in seen
                for row in layer_rows(one.name, ops[one.name], self._layers[one.name], errors)
            ),
            notes=(*notes, *self._remarks(), *self._notes),
        )  # fmt: skip
        return replace(findings, advice=tuple(advise_lite(findings, self._calibrated)))

    def _run_all(
        self,
        usable: Sequence[LiteModel],
        data: GivenData,
        side: KerasSide | None,
        layers: Mapping[str, Sequence[tuple[str, str]]],
    ) -> tuple[LiteFindings, dict[str, list[LiteOp]], list[LiteModel], LayerErrors]:
        """What one process tells of all models: times, what comes out, ops, and errors of layers."""
        with InterpreterProcess(self._engine) as process:
            rows = self._time(process, usable, data, side)
            judged = self._judge(process, rows, data, side)
            ops, seen = self._look_into(process, judged.models, layers)
            return judged, ops, seen, self._errors(process, seen, data)

    def _probe(self) -> tuple[list[LiteModel], dict[str, list[dict[str, Any]]]]:
        """Each model opened and run once in a process of its own: what it needs, or why it cannot run."""
        models, inputs, again = [], {}, False
        for one in self._converted:
            size, compressed = one.sizes
            model = LiteModel(
                one.name,
                one.kind or one.name,
                0,
                size,
                compressed,
                one.conversion_ps,
                error=one.error,
            )
            if one.path is not None:
                try:
                    with InterpreterProcess(self._engine) as process:
                        told = process.ask(
                            "probe", id=one.name, **self._place(one.path, self._threads[0])
                        )
                    inputs[one.name], self._version = told["inputs"], told["version"]
                    if told["memory"]:
                        model = replace(model, memory_bytes=float(told["memory"]))
                except InterpreterRefusalError as error:
                    again = again or (_FLEX in str(error) and self._engine == "litert")
                    why = (
                        _NO_FLEX
                        if _FLEX in str(error)
                        else f"The interpreter cannot run it: {error}."
                    )
                    model = replace(model, error=why)
            models.append(model)
        if again and _has_tensorflow():
            self._engine = "tensorflow"  # the only one with TensorFlow's own ops
            self._notes.append(
                "TensorFlow's own ops are not in ai-edge-litert, so tf.lite.Interpreter ran all models."
            )
            return self._probe()
        return models, inputs

    def _place(self, path: Path, threads: int) -> dict[str, Any]:
        return {"path": str(path), "threads": threads, "batch": self._batch}

    def _match(
        self,
        inputs: Mapping[str, list[dict[str, Any]]],
        usable: Sequence[LiteModel],
        data: GivenData,
    ) -> list[int]:
        """The order of the arrays, by the first model; the models of one conversion have the same inputs."""
        order: list[int] = []
        for model in usable:
            details = inputs[model.name]
            fixed = details[0]["open"][0] if details[0]["open"] else 1
            if fixed not in (-1, self._batch):
                raise ValueError(
                    f"{model.name} takes exactly {fixed} example{'s' * (fixed != 1)} a run: "
                    f"batch_size={fixed}."
                )
            names = [one["name"] for one in details]
            shapes = [one["open"] or one["shape"] for one in details]
            shapes = [[-1, *shape[1:]] for shape in shapes]
            order = match_inputs(names, shapes, [x.shape for x in data.inputs], data.names)
        return order

    def _write(self, name: str, data: GivenData, rows: Any) -> str:
        arrays = [plain_array(data.inputs[at][rows]) for at in self._order]
        return write_examples(self._folder / f"{name}.npz", arrays)

    def _time(
        self,
        process: InterpreterProcess,
        usable: Sequence[LiteModel],
        data: GivenData,
        side: KerasSide | None,
    ) -> list[LiteModel]:
        """All models by turns, in another order each round, so that drift hits all alike."""
        paths = {one.name: one.path for one in self._converted}
        source = self._write("first", data, slice(0, self._batch))
        rows, cost, is_compiled = [], 0.0, True
        for model in usable:
            for threads in self._threads:
                name = (
                    model.name
                    if len(self._threads) == 1
                    else f"{model.name}, {_threads_text(threads)}"
                )
                path = paths[model.name]
                assert path is not None
                process.ask("open", id=name, **self._place(path, threads))
                told = process.ask("ready", id=name, source=source)
                cost += told["seconds"]
                is_compiled = is_compiled and told["is_compiled"]
                rows.append(replace(model, name=name, threads=threads))
        keras = None if side is None else side.ready([x[: self._batch] for x in data.inputs])
        cost += keras() if keras else 0.0
        burst = _BURST if cost < _SLOW_SECONDS else _SLOW_BURST
        rounds = int(np.clip(self._seconds / (cost * (burst + 1)), _FEWEST_ROUNDS, _MOST_ROUNDS))
        order, chance = [one.name for one in rows], random.Random(0)  # noqa: S311 - an order, no secret
        times: dict[str, list[float]] = {name: [] for name in (*order, KERAS)}
        for _ in range(rounds):
            chance.shuffle(order)
            told = process.ask("round", order=order, burst=burst)
            for name, seconds in told["seconds"].items():
                times[name].append(seconds * PS_PER_S)
            if keras:
                times[KERAS].append(keras() * PS_PER_S)
        self._notes.append(
            f"Times: {rounds} rounds of all models by turns, {burst} runs each after one that is "
            f"not timed, without a "
            "profiler" + ("." if is_compiled else ", by Interpreter.invoke.")
        )
        timed = [replace(one, round_ps=tuple(times[one.name])) for one in rows]
        if side is not None:
            timed.insert(0, LiteModel(KERAS, KERAS, round_ps=tuple(times[KERAS])))
        return timed

    def _judge(
        self,
        process: InterpreterProcess,
        rows: Sequence[LiteModel],
        data: GivenData,
        side: KerasSide | None,
    ) -> LiteFindings:
        """Accuracy or error of each, and how far it agrees with the Keras model."""
        if not len(self._given):
            self._notes.append(
                "No data were given: times are of random input, and nothing was judged."
            )
            return LiteFindings("", models=tuple(rows))
        each = sum(one.latency_ps for one in rows) / PS_PER_S / self._batch
        count = int(min(len(self._given), max(_FEWEST_JUDGED, _JUDGING_SECONDS / each)))
        if count < len(self._given):
            self._notes.append(
                f"The first {count_text(count)} of {count_text(len(self._given))} examples are judged: more "
                f"would take longer than {_JUDGING_SECONDS:.0f} s."
            )
        source = self._write("judged", data, slice(0, count))
        found: dict[str, list[Any]] = {}
        if side is not None:
            found[KERAS] = side.outputs([x[:count] for x in data.inputs], _KERAS_BATCH)
        by_file: dict[Path, list[Any]] = {}
        for one in rows:
            if one.kind != KERAS:
                path = self._path_of(one)
                if path not in by_file:  # threads do not change what comes out
                    target = str(self._folder / "outputs.npz")
                    process.ask("outputs", id=one.name, source=source, target=target)
                    by_file[path] = read_arrays(target)
                found[one.name] = by_file[path]
        labels = None if self._given.labels is None else self._given.labels[:count]
        judged = judge_outputs(found, labels, KERAS)
        models = [replace(one, **judged.figures[one.name]) for one in rows]
        digest = self._given.head(count).digest
        return LiteFindings(
            "", models=tuple(models), metric=judged.metric, examples=count, data_digest=digest
        )

    def _look_into(
        self,
        process: InterpreterProcess,
        rows: Sequence[LiteModel],
        layers: Mapping[str, Sequence[tuple[str, str]]],
    ) -> tuple[dict[str, list[LiteOp]], list[LiteModel]]:
        """The ops of each kind, with their layers and who runs them; of the first number of threads."""
        seen = [one for one in rows if one.kind != KERAS and one.threads == self._threads[0]]
        ops: dict[str, list[LiteOp]] = {}
        for one in seen:
            inputs = process.ask("open", id=one.name, **self._open_again(one))["inputs"]
            graph = read_graph(process.ask("graph", id=one.name), inputs)
            of_model = layers.get(one.name) or layers.get(one.name.rpartition(", ")[0], [])
            found = assign_layers(graph, of_model)
            self._graphs[one.name], self._layers[one.name] = graph, found
            ops[one.name] = list_ops(one.name, graph, found)
        return ops, seen

    def _open_again(self, one: LiteModel) -> dict[str, Any]:
        return self._place(self._path_of(one), one.threads)

    def _path_of(self, one: LiteModel) -> Path:
        called = {each.name: each.path for each in self._converted}
        path = called.get(one.name) or called[one.name.rpartition(", ")[0]]
        assert path is not None
        return path

    def _errors(
        self, process: InterpreterProcess, seen: Sequence[LiteModel], data: GivenData
    ) -> LayerErrors:
        """By model and layer how far its output is from the float model's, and what its range cuts off."""
        base = next((one for one in seen if one.kind.endswith("float32")), None)
        if base is None or not len(self._given):
            return {}
        last = slice(
            max(len(data) - max(_LOOKED_INTO, self._batch), 0), None
        )  # calibration took the first
        source = self._write("looked", data, last)
        kept = {}
        for one in seen:
            target = str(self._folder / "tensors.npz")
            try:
                process.ask("tensors", id=one.name, source=source, target=target)
            except InterpreterRefusalError as error:
                self._notes.append(f"{one.name}: no tensors of its layers ({error}).")
                continue
            with np.load(target, allow_pickle=False) as file:
                kept[one.name] = {int(name[1:]): file[name] for name in file.files}
        return layer_errors(base.name, kept, self._graphs, self._layers)

    def _profile(
        self, seen: Sequence[LiteModel], data: GivenData, ops: dict[str, list[LiteOp]]
    ) -> None:
        """Times of ops, apart from the runs that were timed; each model in a process of its own."""
        if self._engine != "litert":
            self._notes.append(
                "Times of ops come from LiteRT's profiler, which tf.lite does not have."
            )
            return
        source = self._write("first", data, slice(0, self._batch))
        costs, why, left = [], "", list(seen)
        while left:
            with InterpreterProcess(self._engine) as process:  # ended by one model, it is made anew
                while left and process.is_alive:
                    one = left.pop(0)
                    try:
                        process.ask("open", id=one.name, **self._open_again(one))
                        told = process.ask(
                            "profile", id=one.name, source=source, runs=_PROFILED_RUNS
                        )
                    except InterpreterRefusalError as error:
                        why = why or str(error)
                        continue
                    self._invoke_ps[one.name] = told["invoke_us"] * PS_PER_US
                    costs.append(told["run_us"] * PS_PER_US / one.latency_ps - 1)
                    ops[one.name] = timed_ops(ops[one.name], self._graphs[one.name], told["ops"])
        if why:
            self._notes.append(
                f"No times of ops: ai-edge-litert {self._version} has no profiler that works here ({why})."
            )
        if costs:
            low, high = (f"{100 * cost:,.0f}" for cost in (min(costs), max(costs)))
            self._notes.append(
                f"Times of ops are of runs of their own: the profiler made those {low} to {high} "
                f"% longer, and it "
                "counts whole microseconds."
            )

    def _remarks(self) -> list[str]:
        remarks: dict[str, list[str]] = {}
        for one in self._converted:
            if one.remark:
                remarks.setdefault(one.remark, []).append(one.name)
            if one.error:
                remarks.setdefault(one.error, []).append(one.name)
        notes = [f"{', '.join(names)}: {remark}" for remark, names in remarks.items()]
        count, source = self._calibrated
        if source == "data" and any(one.kind == "int8" for one in self._converted):
            notes.append(f"int8 is calibrated with the first {count} examples of the data.")
        return [*notes, *([self._given.note] if self._given.note else [])]

    def _environment(self) -> dict[str, str]:
        package = "ai-edge-litert" if self._engine == "litert" else "tf.lite of TensorFlow"
        cores = getattr(os, "sched_getaffinity", None)
        settings = {package: self._version, "Machine": f"{platform.machine()} {platform.system()}"}
        settings[CORES] = str(len(cores(0)) if cores else os.cpu_count() or 1)
        return settings | {
            k: v for k, v in describe_environment().items() if k in ("TensorFlow", "Keras")
        }


def _threads_text(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def _has_tensorflow() -> bool:
    return find_spec("tensorflow") is not None


def _of(details: Sequence[Mapping[str, Any]]) -> tuple[list[list[int]], list[str]]:
    """Shapes and types of inputs."""
    return [one["open"] or one["shape"] for one in details], [
        "float32" if one["scale"] else one["dtype"] for one in details
    ]
