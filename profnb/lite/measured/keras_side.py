"""The Keras model itself, in this process: its outputs, its time, its layers."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from profnb.lite.input_order import match_inputs

_BURST = 3


def layers_of(model: Any) -> list[tuple[str, str]]:
    """Names and classes of a model's layers in order, those of models inside it in their place."""
    layers: list[tuple[str, str]] = []
    for layer in getattr(model, "layers", ()):
        inner = layers_of(layer) if getattr(layer, "layers", None) else []
        layers += inner or [(str(layer.name), type(layer).__name__)]
    return [one for one in layers if one[1] != "InputLayer"]


class KerasSide:
    """A Keras model as inference runs it: a ``tf.function`` of ``model(x, training=False)``.

    Attributes:
        layers: Names and classes.
    """

    def __init__(self, model: Any, given: Sequence[Sequence[int]], names: Sequence[str]) -> None:
        """Nothing runs yet.

        Args:
            model: The model.
            given: The shapes of the arrays that it will get.
            names: Their names, where the user gave some.

        Raises:
            ValueError: The arrays do not fit its inputs.
        """
        self.model, self.layers = model, layers_of(model)
        self._specs = list(getattr(model, "inputs", None) or [])
        shapes = [[-1 if size is None else size for size in one.shape] for one in self._specs]
        called = [str(one.name) for one in self._specs]
        self.order = (
            match_inputs(called, shapes, given, names) if self._specs else list(range(len(given)))
        )
        self._run: Callable[..., Any] | None = None

    def arrays(self, inputs: Sequence[Any]) -> list[Any]:
        """The arrays in the order and with the types of the model's inputs."""
        if not self._specs:
            return list(inputs)
        return [
            _cast(inputs[at], str(getattr(spec.dtype, "name", spec.dtype)), spec.name)
            for at, spec in zip(self.order, self._specs, strict=True)
        ]

    def _call(self, arrays: Sequence[Any]) -> Any:
        if self._run is None:
            model, is_single = self.model, len(arrays) == 1

            def run(*x: Any) -> Any:
                return model(x[0] if is_single else list(x), training=False)

            tensorflow = sys.modules.get("tensorflow")
            self._run = (
                run if tensorflow is None else tensorflow.function(run, reduce_retracing=True)
            )
        return self._run(*arrays)

    def outputs(self, inputs: Sequence[Any], batch: int) -> list[Any]:
        """What comes out for all examples, one array per output, as 32-bit floats."""
        arrays = self.arrays(inputs)
        kept_by_output: list[list[Any]] = []
        for begin in range(0, len(arrays[0]), batch):
            made = self._call([one[begin : begin + batch] for one in arrays])
            flat = _flat(made)
            kept_by_output = kept_by_output or [[] for _ in flat]
            for kept, one in zip(kept_by_output, flat, strict=True):
                kept.append(np.asarray(one, np.float32))
        return [np.concatenate(kept) for kept in kept_by_output]

    def ready(self, inputs: Sequence[Any]) -> Callable[[], float]:
        """A function that runs it a few times on these inputs and gives the median of the seconds."""
        arrays = [_tensor(one) for one in self.arrays(inputs)]
        for _ in range(_BURST):
            _wait(self._call(arrays))

        def measure() -> float:
            taken = []
            _wait(self._call(arrays))
            for _ in range(_BURST):
                begin = time.perf_counter()
                _wait(self._call(arrays))
                taken.append(time.perf_counter() - begin)
            return float(np.median(taken))

        return measure


def _cast(array: Any, dtype: str, name: str) -> Any:
    """An array in the type of an input.

    Raises:
        ValueError: The input takes whole numbers, and these are none.
    """
    if "int" in dtype and array.dtype.kind == "f" and not np.all(array == np.round(array)):
        raise ValueError(
            f"The model's input {name} takes {dtype}; the data is {array.dtype} with fractions."
        )
    return array.astype(np.float32 if dtype == "bfloat16" else dtype, copy=False)


def _tensor(array: Any) -> Any:
    tensorflow = sys.modules.get("tensorflow")
    return array if tensorflow is None else tensorflow.constant(array)


def _flat(made: Any) -> list[Any]:
    if isinstance(made, dict):
        return [made[name] for name in sorted(made)]
    return list(made) if isinstance(made, list | tuple) else [made]


def _wait(made: Any) -> None:
    """Until the outputs are there."""
    for one in _flat(made):
        np.asarray(one)
