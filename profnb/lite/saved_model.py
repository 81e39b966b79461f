"""A Keras model to a SavedModel, as TensorFlow's own ``TFLiteConverter.from_keras_model`` saves it."""

import inspect
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from profnb.capture.seams import FREEZE
from profnb.core.errors import CaptureError


def save_model(model: Any, target: Path, batch: int | None) -> Path:
    """A SavedModel of it, with this batch or, for None, the one that the model leaves open."""
    if isinstance(model, str | os.PathLike):
        return Path(model)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), _without_remarks():
        if type(model).__module__.split(".")[0] == "keras" and "keras" in sys.modules:
            archive_of = getattr(
                getattr(sys.modules["keras"], "export", None), "ExportArchive", None
            )
            if archive_of is not None and getattr(model, "inputs", None):
                _archive(archive_of(), model, target, batch)
                return target
        _save_whole(model, target, batch)
    return target


@contextmanager
def _without_remarks() -> Iterator[None]:
    """TensorFlow's log writes to the output of when it was imported: "Assets written to" our folder."""
    log = logging.getLogger("tensorflow")
    level = log.level
    log.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        log.setLevel(level)


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
    quiet = (
        {"verbose": False} if "verbose" in inspect.signature(archive.write_out).parameters else {}
    )
    archive.write_out(str(target), **quiet)
