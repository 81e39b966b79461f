"""Files to findings: each is tried, then all are timed by turns, judged, and looked into op by op."""

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
from profnb.core.safe_files import folder_prefix
from profnb.core.units import PS_PER_S
from profnb.lite.advice import advise_lite
from profnb.lite.conversion import Converted
from profnb.lite.findings import KERAS, LiteFindings, LiteModel
from profnb.lite.given import (
    GivenData,
    padded,
    random_data,
)
from profnb.lite.input_order import match_inputs
from profnb.lite.measured.bench import Bench
from profnb.lite.measured.keras_side import KerasSide
from profnb.lite.measured.op_study import OpStudy
from profnb.lite.measured.outputs import judge_models
from profnb.lite.process.interpreters import (
    InterpreterProcess,
    InterpreterRefusalError,
    pick_engine,
)

_BURST, _SLOW_BURST, _SLOW_SECONDS = 5, 2, 0.05
_FEWEST_ROUNDS, _MOST_ROUNDS = 30, 300
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
        with TemporaryDirectory(prefix=folder_prefix()) as name:
            self._bench = Bench(self._converted, self._batch, Path(name), pick_engine())
            self._study = OpStudy(self._bench)
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
            self._bench.order = self._match(inputs, usable, data)
            try:
                judged = self._run_all(usable, data, side, layers)
            except InterpreterRefusalError as error:
                raise CaptureError(f"The interpreter failed: {error}.") from None
            self._study.profile(data)
        failed = [one for one in models if one.error]
        rows = map(self._study.with_ops, (*judged.models, *failed))
        findings = replace(
            judged, title=title, models=tuple(rows), ops=self._study.ops, layers=self._study.layers,
            environment=self._environment(), batch_size=self._batch,
            notes=(*notes, *self._remarks(), *self._bench.notes),
        )  # fmt: skip
        return replace(findings, advice=tuple(advise_lite(findings, self._calibrated)))

    def _run_all(
        self,
        usable: Sequence[LiteModel],
        data: GivenData,
        side: KerasSide | None,
        layers: Mapping[str, Sequence[tuple[str, str]]],
    ) -> LiteFindings:
        """What one process tells of all models: times, what comes out, ops, and errors of layers."""
        with self._bench.begin() as process:
            rows = self._time(process, usable, data, side)
            judged = judge_models(self._bench, process, rows, self._given, data, side)
            first = [
                one
                for one in judged.models
                if one.kind != KERAS and one.threads == self._threads[0]
            ]
            self._study.look_into(process, first, layers)
            if len(self._given):
                self._study.compare_layers(process, data)
            return judged

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
                    with self._bench.begin() as process:
                        answer = process.ask(
                            "probe",
                            id=one.name,
                            **self._bench.place(one.path, self._threads[0]),
                        )
                    inputs[one.name], self._bench.version = answer["inputs"], answer["version"]
                    if answer["memory"]:
                        model = replace(model, memory_bytes=float(answer["memory"]))
                except InterpreterRefusalError as error:
                    again = again or (_FLEX in str(error) and self._bench.engine == "litert")
                    why = (
                        _NO_FLEX
                        if _FLEX in str(error)
                        else f"The interpreter cannot run it: {error}."
                    )
                    model = replace(model, error=why)
            models.append(model)
        if again and _has_tensorflow():
            self._bench.engine = "tensorflow"  # the only one with TensorFlow's own ops
            self._bench.notes.append(
                "TensorFlow's own ops are not in ai-edge-litert, so tf.lite.Interpreter ran all models."
            )
            return self._probe()
        return models, inputs

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

    def _time(
        self,
        process: InterpreterProcess,
        usable: Sequence[LiteModel],
        data: GivenData,
        side: KerasSide | None,
    ) -> list[LiteModel]:
        """All models by turns, in another order each round, so that drift hits all alike."""
        source = self._bench.write("first", data, slice(0, self._batch))
        rows, cost, is_compiled = [], 0.0, True
        for model in usable:
            for threads in self._threads:
                name = (
                    model.name
                    if len(self._threads) == 1
                    else f"{model.name}, {_threads_text(threads)}"
                )
                place = self._bench.place(self._bench.path_of(model), threads)
                process.ask("open", id=name, **place)
                answer = process.ask("ready", id=name, source=source)
                cost += answer["seconds"]
                is_compiled = is_compiled and answer["is_compiled"]
                rows.append(replace(model, name=name, threads=threads))
        keras = None if side is None else side.ready([x[: self._batch] for x in data.inputs])
        cost += keras() if keras else 0.0
        burst = _BURST if cost < _SLOW_SECONDS else _SLOW_BURST
        rounds = int(np.clip(self._seconds / (cost * (burst + 1)), _FEWEST_ROUNDS, _MOST_ROUNDS))
        order, chance = [one.name for one in rows], random.Random(0)  # noqa: S311 - an order, no secret
        times: dict[str, list[float]] = {name: [] for name in (*order, KERAS)}
        for _ in range(rounds):
            chance.shuffle(order)
            answer = process.ask("round", order=order, burst=burst)
            for name, seconds in answer["seconds"].items():
                times[name].append(seconds * PS_PER_S)
            if keras:
                times[KERAS].append(keras() * PS_PER_S)
        self._bench.notes.append(
            f"Times: {rounds} rounds of all models by turns, {burst} runs each after one that is "
            f"not timed, without a "
            "profiler" + ("." if is_compiled else ", by Interpreter.invoke.")
        )
        timed = [replace(one, round_ps=tuple(times[one.name])) for one in rows]
        if side is not None:
            timed.insert(0, LiteModel(KERAS, KERAS, round_ps=tuple(times[KERAS])))
        return timed

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
        package = "ai-edge-litert" if self._bench.engine == "litert" else "tf.lite of TensorFlow"
        cores = getattr(os, "sched_getaffinity", None)
        settings = {
            package: self._bench.version,
            "Machine": f"{platform.machine()} {platform.system()}",
        }
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
