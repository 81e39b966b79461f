"""A user's models to findings: converted, tried, timed by turns, judged, looked into."""

import os
import platform
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from profnb.capture.environment import CORES, count_cores, describe_environment
from profnb.capture.models.layer_facts import is_keras
from profnb.core.columns import group
from profnb.core.errors import CaptureError
from profnb.core.safe_files import check_regular, folder_prefix
from profnb.core.units import PS_PER_S, count_text
from profnb.lite import conversion, lite_data
from profnb.lite.advice import advise_lite
from profnb.lite.findings import KERAS, LiteFindings, LiteModel, judge_outputs
from profnb.lite.op_study import LayerKinds, OpStudy
from profnb.lite.process import interpreters
from profnb.lite.process.interpreting import read_arrays, write_examples

_MOST_CALIBRATED = 100
_BURST, _SLOW_BURST, _SLOW_SECONDS = 5, 2, 0.05
_FEWEST_ROUNDS, _MOST_ROUNDS = 30, 300
_JUDGING_SECONDS, _FEWEST_JUDGED, _KERAS_BATCH = 30.0, 200, 128
Process = interpreters.InterpreterProcess
_FLEX = "Select TensorFlow op"
_NO_FLEX = (
    "No interpreter here has TensorFlow's own ops. The model runs in an app with the Flex delegate."
)


def measure_models(
    model: Any, data: Any, kinds: Sequence[str], representative: Any, threads: tuple[int, ...],
    batch_size: int, *, allow: Sequence[str], fixed_batch: bool, seconds: float, label: str | None,
) -> LiteFindings:  # fmt: skip
    """Convert, run and judge; the arguments are those of ``profnb.lite``, checked.

    Raises:
        CaptureError: Nothing could be converted or run.
        ValueError: The data do not fit the models.
    """
    given = lite_data.read_data(data)
    examples, source = lite_data.read_examples(representative, given, _MOST_CALIBRATED)
    with tempfile.TemporaryDirectory(prefix=folder_prefix()) as name:
        converted: list[conversion.Converted] = []
        kerases: list[tuple[str, Any]] = []
        notes: list[str] = []
        layers: dict[str, LayerKinds] = {}
        file = write_examples(Path(name) / "examples.npz", examples) if examples else ""
        job: dict[str, Any] = {"examples": file, "names": list(given.names), "allow": list(allow)}
        sources = _sources(model, Path(name))
        for at, (called, one) in enumerate(sources):
            if isinstance(one, conversion.Converted):
                converted.append(one)
                continue
            plain, trained = conversion.stripped(one)
            if trained:
                what = "trained for int8" if trained == "int8" else trained
                notes.append(f"{called} is {what} with tensorflow-model-optimization.")
            if is_keras(plain, "Model"):
                if len(given):  # a wrong shape is said before anything is converted
                    shapes = [array.shape for array in given.inputs]
                    conversion.KerasSide(plain, shapes, given.names)
                kerases.append((called, plain))
            folder = Path(name) / str(at)
            folder.mkdir()
            job["folder"], job["is_trained"] = str(folder), trained == "int8"
            is_fixed = fixed_batch or batch_size > 1
            made = conversion.convert_model(plain, kinds, job, batch_size, fixed_batch=is_fixed)
            if len(sources) > 1:
                made = [replace(each, name=f"{called} {each.name}") for each in made]
            layers |= {each.name: conversion.layers_of(plain) for each in made}
            converted += made
        if len(kerases) > 1:
            notes.append(f"All models are compared with the Keras model {kerases[0][0]}.")
        paths = {one.name: one.path for one in converted if one.path is not None}
        bench = interpreters.Bench(paths, batch_size, Path(name), interpreters.pick_engine())
        calibrated = (len(examples[0]) if examples else 0, source)
        measuring = _Measuring(bench, converted, given, calibrated, threads, seconds)
        title = label or ", ".join(called for called, _ in sources)
        with redirect_stdout(StringIO()):
            findings = measuring.measure(title, kerases[0][1] if kerases else None, layers, notes)
    if not findings.measured:
        reasons = [f"{one.name}: {one.error}" for one in findings.models if one.error]
        raise CaptureError(" ".join(reasons) or "No model could be run.")
    return findings


def _sources(model: Any, folder: Path) -> list[tuple[str, Any]]:
    """List what was given, under names: Keras models, paths of SavedModels, and files that are converted."""
    if isinstance(model, Mapping) and not model:
        raise ValueError("There is no model: give a Keras model, a SavedModel or a .tflite file.")
    models = model if isinstance(model, list | tuple) else [model]
    named = model.items() if isinstance(model, Mapping) else [("", one) for one in models]
    return [_source(one, folder, str(name)) for name, one in named]


def _source(model: Any, folder: Path, name: str) -> tuple[str, Any]:
    if isinstance(model, bytes | bytearray):
        called = name or "model"
        return called, conversion.read_file(folder / f"{called}.tflite", bytes(model))
    if is_keras(model, "Model"):
        return name or str(model.name), model
    if not isinstance(model, str | os.PathLike):
        raise ValueError(  # noqa: TRY004 - what is given may be of many types
            f"A Keras model, the bytes of a .tflite file or a path is needed, got a {type(model).__name__}."
        )
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "saved_model.pb").exists():
            raise CaptureError(
                f"{path.name} has no saved_model.pb. Give a SavedModel, .keras or .tflite."
            )
        return name or path.name, path
    if path.suffix in (".keras", ".h5"):
        check_regular(path)
        import keras

        return name or path.stem, keras.saving.load_model(path)
    name = name or path.stem
    return name, replace(conversion.read_file(path), name=name)


@dataclass
class _Measuring:
    """One measurement of several models.

    ``calibrated`` tells how many examples int8 was calibrated with, and where they are from; ``data`` is what
    is measured with, by the Keras model too, where it is the ``side``.
    """

    bench: interpreters.Bench
    converted: Sequence[conversion.Converted]
    given: lite_data.LiteData
    calibrated: tuple[int, str]
    threads: tuple[int, ...]
    seconds: float
    data: lite_data.LiteData = field(default_factory=lite_data.LiteData)
    side: conversion.KerasSide | None = None

    def measure(
        self, title: str, keras: Any, layers: Mapping[str, LayerKinds], notes: Sequence[str]
    ) -> LiteFindings:
        """Try, time, judge and look into the models, in this order."""
        bench, study = self.bench, OpStudy(self.bench)
        models, inputs = self._probe()
        usable = [one for one in models if not one.error]
        if not usable:
            return LiteFindings(title, models=tuple(models))
        data = self.given if len(self.given) else lite_data.random_data(inputs[usable[0].name])
        self.data = data = lite_data.padded(data, bench.batch)
        if keras is not None:
            shapes = [x.shape for x in data.inputs]
            self.side = conversion.KerasSide(keras, shapes, data.names)
        for model in usable:  # the models of one conversion have the same inputs
            bench.order = self._match(model, inputs[model.name], data)
        try:
            with bench.begin() as process:
                judged = self._judge(process, self._time(process, usable))
                files = [one for one in judged.models if one.kind != KERAS]
                first = [one for one in files if one.threads == self.threads[0]]
                study.look_into(process, first, layers)
                if len(self.given):
                    study.compare_layers(process, data)
        except interpreters.InterpreterRefusalError as error:
            raise CaptureError(f"The interpreter failed: {error}.") from None
        study.profile(data)
        failed = [one for one in models if one.error]
        rows = [study.with_ops(one) for one in (*judged.models, *failed)]
        findings = replace(
            judged, title=title, models=tuple(rows), ops=study.ops, layers=study.layers,
            environment=self._environment(), batch_size=bench.batch,
            notes=(*notes, *self._remarks(), *bench.notes),
        )  # fmt: skip
        return replace(findings, advice=tuple(advise_lite(findings, self.calibrated)))

    def _probe(self) -> tuple[list[LiteModel], dict[str, list[dict[str, Any]]]]:
        """Each model opened and run once in a process of its own: what it needs, or why it cannot run."""
        bench, again = self.bench, False
        models, inputs = [], {}
        for one in self.converted:
            size, compressed = one.sizes
            model = LiteModel(
                one.name, one.kind or one.name, 0, size, compressed, one.conversion_ps, error=one.error
            )  # fmt: skip
            try:
                if one.path is not None:
                    with bench.begin() as process:
                        answer = process.ask("probe", **bench.place(one.name, self.threads[0]))
                    inputs[one.name], bench.version = answer["inputs"], answer["version"]
                    if answer["memory"]:
                        model = replace(model, memory_bytes=float(answer["memory"]))
            except interpreters.InterpreterRefusalError as error:
                needs_flex = _FLEX in str(error)
                again = again or (needs_flex and bench.engine == "litert")
                why = _NO_FLEX if needs_flex else f"The interpreter cannot run the model: {error}."
                model = replace(model, error=why)
            models.append(model)
        if again and find_spec("tensorflow") is not None:
            bench.engine = "tensorflow"  # the only one with TensorFlow's own ops
            bench.notes.append(
                "TensorFlow's own ops are not in ai-edge-litert, so tf.lite.Interpreter ran all models."
            )
            return self._probe()
        return models, inputs

    def _match(
        self, model: LiteModel, details: Sequence[Mapping[str, Any]], data: lite_data.LiteData
    ) -> list[int]:
        """The order of the arrays as a model takes them."""
        fixed = details[0]["open"][0] if details[0]["open"] else 1
        if fixed not in (-1, self.bench.batch):
            raise ValueError(
                f"{model.name} takes exactly {fixed} example{'s' * (fixed != 1)} a run: "
                f"batch_size={fixed}."
            )
        names = [one["name"] for one in details]
        shapes = [[-1, *(one["open"] or one["shape"])[1:]] for one in details]
        return lite_data.match_inputs(names, shapes, [x.shape for x in data.inputs], data.names)

    def _time(self, process: Process, usable: Sequence[LiteModel]) -> list[LiteModel]:
        """All models by turns, in another order each round, so that drift hits all alike."""
        bench, data, side = self.bench, self.data, self.side
        source = bench.write("first", data, slice(0, bench.batch))
        rows, cost, is_compiled = [], 0.0, True
        for model in usable:
            for threads in self.threads:
                name = model.name
                if len(self.threads) > 1:
                    name += f", {threads} thread{'s' * (threads > 1)}"
                process.ask("open", **bench.place(name, threads))
                answer = process.ask("ready", id=name, source=source)
                cost += answer["seconds"]
                is_compiled = is_compiled and answer["is_compiled"]
                rows.append(replace(model, name=name, threads=threads))
        keras = None if side is None else side.ready([x[: bench.batch] for x in data.inputs])
        cost += keras() if keras else 0.0
        burst = _BURST if cost < _SLOW_SECONDS else _SLOW_BURST
        rounds = int(np.clip(self.seconds / (cost * (burst + 1)), _FEWEST_ROUNDS, _MOST_ROUNDS))
        order, chance = [one.name for one in rows], random.Random(0)  # noqa: S311 - an order, no secret
        times: dict[str, list[float]] = {name: [] for name in (*order, KERAS)}
        for _ in range(rounds):
            chance.shuffle(order)
            answer = process.ask("round", order=order, burst=burst)
            for name, seconds in answer["seconds"].items():
                times[name].append(seconds * PS_PER_S)
            if keras:
                times[KERAS].append(keras() * PS_PER_S)
        bench.notes.append(
            f"All models were timed by turns in {rounds} rounds, each with {burst} runs after an untimed "
            "run. No profiler ran." + ("" if is_compiled else " Times are of Interpreter.invoke.")
        )
        if side is not None:
            rows.insert(0, LiteModel(KERAS, KERAS))
        return [replace(one, round_ps=tuple(times[one.name])) for one in rows]

    def _judge(self, process: Process, rows: Sequence[LiteModel]) -> LiteFindings:
        """Accuracy or error of each model over the data, and how far it agrees with Keras."""
        bench, given, data, side = self.bench, self.given, self.data, self.side
        if not len(given):
            bench.notes.append(
                "No data were given: times are of random input, and nothing was judged."
            )
            return LiteFindings("", models=tuple(rows))
        each = sum(one.latency_ps for one in rows) / PS_PER_S / bench.batch
        count = int(min(len(given), max(_FEWEST_JUDGED, _JUDGING_SECONDS / each)))
        if count < len(given):
            bench.notes.append(
                f"The first {count_text(count)} of {count_text(len(given))} examples are judged: more "
                f"would take longer than {_JUDGING_SECONDS:.0f} s."
            )
        source = bench.write("judged", data, slice(0, count))
        outputs_by_model: dict[str, list[Any]] = {}
        if side is not None:
            outputs_by_model[KERAS] = side.outputs([x[:count] for x in data.inputs], _KERAS_BATCH)
        by_file: dict[Path, list[Any]] = {}
        for one in rows:
            if one.kind != KERAS:
                path = bench.path_of(one.name)
                if path not in by_file:  # threads do not change what comes out
                    target = str(bench.folder / "outputs.npz")
                    process.ask("outputs", id=one.name, source=source, target=target)
                    by_file[path] = read_arrays(target)
                outputs_by_model[one.name] = by_file[path]
        labels = None if given.labels is None else given.labels[:count]
        metric, figures = judge_outputs(outputs_by_model, labels, KERAS)
        models = tuple(replace(one, **figures[one.name]) for one in rows)
        digest = given.head(count).digest
        return LiteFindings("", models=models, metric=metric, examples=count, data_digest=digest)

    def _remarks(self) -> list[str]:
        remarks = group(
            (said, one.name) for one in self.converted for said in (one.remark, one.error) if said
        )
        notes = [f"{', '.join(names)}: {remark}" for remark, names in remarks.items()]
        count, source = self.calibrated
        if source == "data" and any(one.kind == "int8" for one in self.converted):
            notes.append(f"int8 is calibrated with the first {count} examples of the data.")
        return [*notes, *([self.given.note] if self.given.note else [])]

    def _environment(self) -> dict[str, str]:
        package = "ai-edge-litert" if self.bench.engine == "litert" else "tf.lite of TensorFlow"
        described = describe_environment()
        return {
            package: self.bench.version,
            "Machine": f"{platform.machine()} {platform.system()}",
            CORES: str(count_cores()),
            **{name: text for name, text in described.items() if name in ("TensorFlow", "Keras")},
        }
