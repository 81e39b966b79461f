"""A Keras model beside its conversions: run in this process, and saved as the converter would."""

import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from profnb.capture.seams import FREEZE
from profnb.core.errors import CaptureError
from profnb.lite.lite_data import match_inputs

_BURST = 3


def save_model(model: Any, target: Path, batch: int | None) -> Path:
    """Save it as a SavedModel with this batch or, for None, the one that the model leaves open."""
    if isinstance(model, str | os.PathLike):
        return Path(model)
    archive_of = None
    if type(model).__module__.split(".")[0] == "keras" and getattr(model, "inputs", None):
        export = getattr(sys.modules.get("keras"), "export", None)
        archive_of = getattr(export, "ExportArchive", None)
    # TensorFlow's log writes to the output of when it was imported: "Assets written to" our folder.
    log = logging.getLogger("tensorflow")
    level = log.level
    log.setLevel(max(level, logging.WARNING))
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            if archive_of is None:
                _save_whole(model, target, batch)
            else:
                _archive(archive_of(), model, target, batch)
    finally:
        log.setLevel(level)
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
    from functools import partial

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

        Args:
            model: The model.
            given: The shapes of the arrays that it will get.
            names: Their names, where the user gave some.

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

        def measure() -> float:
            taken = []
            run()
            for _ in range(_BURST):
                begin = time.perf_counter()
                run()
                taken.append(time.perf_counter() - begin)
            return float(np.median(taken))

        for _ in range(_BURST):
            run()
        return measure


def _cast(array: Any, dtype: str, name: str) -> Any:
    """An array in the type of an input.

    Raises:
        ValueError: The input takes whole numbers, and these are none.
    """
    if "int" in dtype and array.dtype.kind == "f" and not np.all(array == np.round(array)):
        raise ValueError(
            f"The model's input {name} takes {dtype}, but the data is {array.dtype} with fractions."
        )
    return array.astype(np.float32 if dtype == "bfloat16" else dtype, copy=False)


def _flat(made: Any) -> list[Any]:
    if isinstance(made, dict):
        return [made[name] for name in sorted(made)]
    return list(made) if isinstance(made, list | tuple) else [made]
