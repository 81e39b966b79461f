"""``profnb.lite``: models for the device, converted, run and judged beside the Keras model.

Imports nothing heavy before it is called.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profnb.lite.result import LiteResult, is_saved, open_result

KINDS = ("float32", "float16", "dynamic", "int8")
ALLOWED = ("select-tf", "custom")


def lite(
    model: Any,
    data: Any = None,
    kinds: Sequence[str] = KINDS,
    representative: Any = None,
    threads: Sequence[int] = (1,),
    batch_size: int = 1,
    *,
    allow: Sequence[str] = (),
    fixed_batch: bool = False,
    seconds: float = 3.0,
    label: str | None = None,
) -> LiteResult:
    """Convert a model to LiteRT (TensorFlow Lite) and say what each kind costs and gains.

    Needs ``pip install 'profnb[litert]'`` to run the models, and TensorFlow to convert them.

    Args:
        model: A Keras model; the path of a SavedModel, ``.keras`` or ``.tflite`` file or a list of those; the
            bytes of one; several under names (``{"plain": model, "pruned": other}``); or the path of what
            ``save`` wrote, which is opened. What tensorflow-model-optimization wrapped is unwrapped by it.
        data: ``(x, y)``, ``x`` alone, a ``tf.data.Dataset`` of batches, or the path of an ``.npz`` with x
        and y.
            At most 10,000 examples are judged. Without it there are times of random input only.
        kinds: Of "float32", "float16", "dynamic" (weights of 8 bits) and "int8" (all of it).
        representative: What int8 is calibrated with: arrays, a dataset, or a function as TensorFlow's
        converter
            takes it; by default the first 100 examples of the data.
        threads: Threads of the interpreter; each kind is run with each.
        batch_size: Examples of a run.
        allow: "select-tf" for ops that only TensorFlow has, "custom" for ops of the app's own.
        fixed_batch: Whether to convert for exactly this batch; by default as the model says, and for more
            than one example always.
        seconds: How long to time, about, all of them together.
        label: What to call the result.

    Raises:
        CaptureError: Nothing could be converted or run.
        FileNotFoundError: There is nothing at a path.
        TraceFormatError: A saved result is damaged.
        ValueError: An argument cannot be meant, or the data do not fit the model.
    """
    if isinstance(model, str | os.PathLike) and is_saved(Path(model)):
        return open_result(model)
    _check(kinds, threads, batch_size, allow, seconds)
    from profnb.lite.gathering import measure_models

    return measure_models(
        model, data, kinds, representative, tuple(map(int, threads)), batch_size,
        allow=allow, fixed_batch=fixed_batch, seconds=seconds, label=label,
    )  # fmt: skip


def _check(
    kinds: Sequence[str],
    threads: Sequence[int],
    batch_size: int,
    allow: Sequence[str],
    seconds: float,
) -> None:
    if isinstance(kinds, str) or not kinds or set(kinds) - set(KINDS):
        raise ValueError(f"kinds are of {', '.join(KINDS)}, got {kinds!r}.")
    if isinstance(allow, str) or set(allow) - set(ALLOWED):
        raise ValueError(f"allow takes a list of {', '.join(ALLOWED)}, got {allow!r}.")
    if not len(threads) or any(int(one) < 1 for one in threads):
        raise ValueError(f"threads are whole numbers from 1 on, got {tuple(threads)}.")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be more than 0, got {seconds}.")
