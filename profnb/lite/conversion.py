"""A Keras model, a SavedModel or files to ``.tflite`` files, one per kind; the Keras model beside them.

A Keras model is saved as TensorFlow's own ``TFLiteConverter.from_keras_model`` saves it, so that the files
are those that it gives. The converter runs in a process of its own (``converting``): it prints to standard
error, and calibrating a loop ends it (TensorFlow 2.21: an LSTM to int8).
"""

import gzip
import inspect
import json
import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from profnb.capture.models.layer_facts import is_keras
from profnb.capture.profiler.profiler_door import log_quieted
from profnb.capture.seams import FREEZE
from profnb.core.errors import CaptureError
from profnb.core.safe_files import read_whole
from profnb.core.units import PS_PER_S
from profnb.lite.lite_data import match_inputs
from profnb.lite.process.interpreters import own_environment, why_it_ended
from profnb.lite.process.interpreting import median_seconds

_OPEN_BATCH = re.compile(r"element_shape to be static|requires element_shape")
_LOOPS = {"LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional"}
_IDENTIFIER = b"TFL3"
_SMALLEST_MODEL, _LARGEST_MODEL = 32, 2 << 30  # what a flatbuffer may have


@dataclass(frozen=True)
class Converted:
    """One kind of a model.

    Attributes:
        name: What it is called.
        kind: How it was converted; "" for a file that was there.
        path: Its file; None where it could not be made.
        conversion_ps: What converting took; NaN for a file that was there.
        error: Why there is no file, or "".
        remark: What differs from what was asked for, or "".
    """

    name: str
    kind: str = ""
    path: Path | None = None
    conversion_ps: float = math.nan
    error: str = ""
    remark: str = ""

    @property
    def sizes(self) -> tuple[float, float]:
        """Bytes, as they are and compressed with gzip."""
        if self.path is None:
            return math.nan, math.nan
        content = self.path.read_bytes()
        return float(len(content)), float(len(gzip.compress(content)))


def read_file(path: Path, content: bytes | None = None) -> Converted:
    """Read a ``.tflite`` file that is there.

    Raises:
        FileNotFoundError: It is not there.
        TraceFormatError: It is no regular file.
        CaptureError: It is none, or was cut short.
    """
    flatbuffer = read_whole(path, _LARGEST_MODEL).tobytes() if content is None else content
    if flatbuffer[4:8] != _IDENTIFIER or len(flatbuffer) < _SMALLEST_MODEL:
        raise CaptureError(
            f"{path.name} is not a .tflite model: TFL3 is missing at byte 4 of {len(flatbuffer):,} bytes. "
            "Give the file that the converter wrote."
        )
    if content is not None:
        path.write_bytes(content)
    return Converted(path.stem, path=path)


def stripped(model: Any) -> tuple[Any, str]:
    """Take from a model what tensorflow-model-optimization wraps layers in while it trains.

    Returns:
        The model, and whether it was "pruned", "clustered", trained for "int8", or "".

    Raises:
        CaptureError: It has wrapped layers, and the package is not installed.
    """
    wrappers = {type(layer).__name__ for layer in getattr(model, "layers", ())}
    kinds = {"PruneLowMagnitude": "pruned", "ClusterWeights": "clustered"}
    wrapper_kind = next((kinds[name] for name in wrappers if name in kinds), "")
    if not wrapper_kind:
        return model, "int8" if any(name.startswith("QuantizeWrapper") for name in wrappers) else ""
    if find_spec("tensorflow_model_optimization") is None:
        raise CaptureError(
            f"The model is {wrapper_kind} with tensorflow-model-optimization. Install the package: pip "
            "install tensorflow-model-optimization."
        )
    import tensorflow_model_optimization as optimization

    if wrapper_kind == "pruned":
        return optimization.sparsity.keras.strip_pruning(model), wrapper_kind
    plain = optimization.clustering.keras.strip_clustering(model)
    # Its layers still hold tensors of the graph that they were trained in; a clone with the weights does not.
    kind = next(one for one in type(plain).__mro__ if one.__name__ == "Model")
    clone = sys.modules[kind.__module__.split(".")[0]].models.clone_model(plain)
    clone.set_weights(plain.get_weights())
    return clone, wrapper_kind


def convert_model(
    model: Any, kinds: Sequence[str], job: dict[str, Any], batch_size: int, *, fixed_batch: bool
) -> list[Converted]:
    """Convert a model to each kind, as a job for ``converting`` says.

    Of the job's ``folder``: int8 is calibrated with ``examples``, a file with one array per input, called
    ``names`` where the user gave some; training that saw to the ranges (``is_trained``) needs none. Ops that
    TensorFlow Lite does not have are those of ``allow``.
    """
    folder = Path(job["folder"])
    keras: Any = sys.modules.get("keras")
    is_three = type(model).__module__.startswith("keras.src") and hasattr(keras, "backend")
    if is_keras(model, "Model") and is_three and keras.backend.backend() == "torch":
        return list(_exported(model, kinds, folder))

    saved = save_model(model, folder / "saved_model", batch_size if fixed_batch else None)
    done = _run_converter(job, saved, kinds)
    again = [one.kind for one in done if one.path is None and _OPEN_BATCH.search(one.error)]
    if again and is_keras(model, "Model") and not fixed_batch:
        remark = (
            f"Loops need a fixed batch size, so the converted models take exactly {batch_size} "
            f"example{'s' * (batch_size > 1)}."
        )
        saved = save_model(model, folder / "fixed", batch_size)
        fixed = {
            one.kind: replace(one, remark=f"{remark} {one.remark}".strip())
            for one in _run_converter(job, saved, again)
        }
        done = [fixed.get(one.kind, one) for one in done]
    has_loop = bool({type(layer).__name__ for layer in getattr(model, "layers", ())} & _LOOPS)
    return [
        one if one.path else replace(one, error=_explain(one.error, has_loop=has_loop))
        for one in done
    ]


def _exported(model: Any, kinds: Sequence[str], folder: Path) -> Iterator[Converted]:
    """Export by Keras itself, for a backend that TensorFlow's converter does not know."""
    for kind in kinds:
        target = folder / f"{kind}.tflite"
        if kind != "float32":
            yield Converted(kind, kind, error="Keras exports float32 only from its torch backend.")
            continue
        try:
            with redirect_stdout(StringIO()):
                model.export(str(target), format="litert")
        except (ValueError, ImportError, RuntimeError) as error:
            why = " ".join(str(error).split())[:300]
            yield Converted(kind, kind, error=f"Keras could not export the model: {why}")
        else:
            yield Converted(kind, kind, target)


def _run_converter(job: dict[str, Any], saved: Path, kinds: Sequence[str]) -> list[Converted]:
    """Each kind in turn; where the process ends at one, another goes on with the rest."""
    folder, wanted = Path(job["folder"]), list(kinds)
    results: dict[str, Converted] = {}
    if not job["examples"] and not job["is_trained"]:
        wanted = [kind for kind in kinds if kind != "int8"]
        error = "int8 needs examples for calibration: give data or representative."
        results["int8"] = Converted("int8", "int8", error=error)
    while wanted:
        text = json.dumps({**job, "saved_model": str(saved), "kinds": wanted})
        (folder / "job.json").write_text(text, encoding="utf-8")
        ended = subprocess.run(  # noqa: S603 - our own module, by this Python
            [sys.executable, "-m", "profnb.lite.process.converting", str(folder)],
            capture_output=True,
            text=True,
            errors="replace",
            env=own_environment(),
            check=False,
        )
        for written in [at for kind in wanted if (at := folder / f"{kind}.json").exists()]:
            kind, conversion = written.stem, json.loads(written.read_text(encoding="utf-8"))
            written.unlink()
            seconds, error, remark = (conversion[one] for one in ("seconds", "error", "remark"))
            path = None if error else written.with_suffix(".tflite")
            results[kind] = Converted(kind, kind, path, seconds * PS_PER_S, error, remark)
            wanted.remove(kind)
        if not wanted:
            break
        if ended.returncode == 0:
            raise CaptureError(
                "The converter ended without a result. Try a smaller model, or another TensorFlow."
            )
        failed = wanted.pop(0)
        last = (ended.stderr.strip().splitlines() or [""])[-1][:200]
        why = why_it_ended(ended.returncode) if ended.returncode < 0 else last
        results[failed] = Converted(failed, failed, error=f"TensorFlow's converter {why}")
    return [results[kind] for kind in kinds]


def _explain(error: str, *, has_loop: bool) -> str:
    """Say what a converter says, in a sentence that names the op and what allows it."""
    means = {
        "select-tf": "keeps TensorFlow's own (the app then needs the Flex delegate)",
        "custom": "leaves them to kernels of the app",
    }
    for allowed, ops in (
        ("select-tf", re.findall(r"TF Select ops: ([\w:., ]+)", error)[:1]),
        ("custom", re.findall(r"Custom ops: ([\w:., ]+)", error)[:1]),
        ("select-tf", sorted(set(re.findall(r"'tf\.(\w+)' op is neither", error)))),
    ):
        if ops:
            listed = ", ".join(ops).strip()
            return f"TensorFlow Lite has no op for {listed}; allow=('{allowed}',) {means[allowed]}."
    if "ended with signal" in error and has_loop:
        return (
            f"{error}. The converter cannot calibrate the loop of an LSTM or GRU; unroll=True removes the "
            "loop."
        )
    return " ".join(error.split())[:400]


_BURST = 3


def save_model(model: Any, target: Path, batch: int | None) -> Path:
    """Save it as a SavedModel with this batch or, for None, the one that the model leaves open."""
    if isinstance(model, str | os.PathLike):
        return Path(model)
    archive_of = None
    if type(model).__module__.split(".")[0] == "keras" and getattr(model, "inputs", None):
        export = getattr(sys.modules.get("keras"), "export", None)
        archive_of = getattr(export, "ExportArchive", None)
    with log_quieted(logging.WARNING):  # "Assets written to" our folder
        if archive_of is None:
            _save_whole(model, target, batch)
        else:
            _archive(archive_of(), model, target, batch)
    return target


def _save_whole(model: Any, target: Path, batch: int | None) -> None:
    """A SavedModel of a model of Keras 2, or of one without known inputs."""
    import tensorflow as tf

    inputs = getattr(model, "inputs", None)
    if not inputs or batch is None:
        try:
            options = tf.saved_model.SaveOptions(save_debug_info=True)
            tf.saved_model.save(model, str(target), options=options)
        except ValueError:
            if not inputs:
                raise
        else:
            return
    # What cannot be saved whole, as where clustering was undone: the function with its weights inside.
    with suppress(ImportError):
        import_module(FREEZE.module)
    freeze = FREEZE.find()
    if freeze is None:
        raise CaptureError(f"TensorFlow {tf.__version__} hides {FREEZE.name}, so {FREEZE.lost}.")
    specs = [
        tf.TensorSpec([batch, *one.shape[1:]], one.dtype, f"input_{at}")
        for at, one in enumerate(inputs)
    ]
    call = tf.function(lambda *x: model(x[0] if len(x) == 1 else list(x), training=False))
    frozen = freeze(call.get_concrete_function(*specs))
    holder = tf.Module()
    holder.call = tf.function(lambda *x: frozen(*x)[0] if len(frozen.outputs) == 1 else frozen(*x))
    tf.saved_model.save(holder, str(target), signatures=holder.call.get_concrete_function(*specs))


def _archive(archive: Any, model: Any, target: Path, batch: int | None) -> None:
    """As ``TFLiteKerasModelConverterV2._convert_keras_to_saved_model`` does it."""
    import tensorflow as tf

    archive.track(model)
    signature = tf.nest.map_structure(
        lambda x: tf.TensorSpec(
            x.shape if batch is None else [batch, *x.shape[1:]], dtype=x.dtype, name=x.name
        ),
        model.inputs,
    )
    if len(signature) > 1:
        signature = [signature]
    archive.add_endpoint("serve", partial(model.__call__, training=False), signature)
    write = archive.write_out
    quiet = {"verbose": False} if "verbose" in inspect.signature(write).parameters else {}
    write(str(target), **quiet)


def layers_of(model: Any) -> list[tuple[str, str]]:
    """List names and classes of a model's layers in order, those of models inside it in their place."""
    layers: list[tuple[str, str]] = []
    for layer in getattr(model, "layers", ()):
        inner = layers_of(layer) if getattr(layer, "layers", None) else []
        layers += inner or [(str(layer.name), type(layer).__name__)]
    return [one for one in layers if one[1] != "InputLayer"]


class KerasSide:
    """A Keras model as inference runs it: a ``tf.function`` of ``model(x, training=False)``."""

    def __init__(self, model: Any, given: Sequence[Sequence[int]], names: Sequence[str]) -> None:
        """Nothing runs yet.

        ``given`` and ``names`` are of the arrays that it will get; no names where the user gave none.

        Raises:
            ValueError: The arrays do not fit its inputs.
        """
        self._specs = list(getattr(model, "inputs", None) or [])
        shapes = [[-1 if size is None else size for size in one.shape] for one in self._specs]
        called = [str(one.name) for one in self._specs]
        self._order = match_inputs(called, shapes, given, names) if self._specs else []
        self._tensorflow = sys.modules.get("tensorflow")

        def run(*x: Any) -> Any:
            return model(x[0] if len(x) == 1 else list(x), training=False)

        self._run: Callable[..., Any] = run
        if self._tensorflow is not None:
            self._run = self._tensorflow.function(run, reduce_retracing=True)

    def _arrays(self, inputs: Sequence[Any]) -> list[Any]:
        """The arrays in the order and with the types of the model's inputs."""
        if not self._specs:
            return list(inputs)
        return [
            _cast(inputs[at], str(getattr(spec.dtype, "name", spec.dtype)), spec.name)
            for at, spec in zip(self._order, self._specs, strict=True)
        ]

    def outputs(self, inputs: Sequence[Any], batch: int) -> list[Any]:
        """Run it on all examples: one array per output, as 32-bit floats."""
        arrays = self._arrays(inputs)
        batches = []
        for begin in range(0, len(arrays[0]), batch):
            made = self._run(*(one[begin : begin + batch] for one in arrays))
            batches.append([np.asarray(one, np.float32) for one in _flat(made)])
        return [np.concatenate(kept) for kept in zip(*batches, strict=True)]

    def ready(self, inputs: Sequence[Any]) -> Callable[[], float]:
        """Make a function that runs it a few times on these inputs and gives the median of the seconds."""
        arrays = self._arrays(inputs)
        if self._tensorflow is not None:
            arrays = [self._tensorflow.constant(one) for one in arrays]

        def run() -> None:
            for one in _flat(self._run(*arrays)):  # until the outputs are there
                np.asarray(one)

        for _ in range(_BURST):
            run()
        return partial(median_seconds, run, _BURST)


def _cast(array: Any, dtype: str, name: str) -> Any:
    if "int" in dtype and array.dtype.kind == "f" and not np.all(array == np.round(array)):
        raise ValueError(
            f"The model's input {name} takes {dtype}, but the data is {array.dtype} with fractions."
        )
    return array.astype(np.float32 if dtype == "bfloat16" else dtype, copy=False)


def _flat(made: Any) -> list[Any]:
    if isinstance(made, dict):
        made = [made[name] for name in sorted(made)]
    return list(made) if isinstance(made, list | tuple) else [made]
