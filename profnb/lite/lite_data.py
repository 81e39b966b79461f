"""A user's data to arrays: examples, labels, what int8 is calibrated with, and which input gets which."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from profnb.core.safe_files import check_regular

Shapes = Sequence[Sequence[int]]
_MOST_EXAMPLES, _RANDOM = 10_000, 8
_FORMS = "data is (x, y), x alone, a tf.data.Dataset of batches, or an .npz file with x and y"


@dataclass(frozen=True)
class LiteData:
    """Examples and labels.

    Attributes:
        inputs: One array per input of the model, each with N rows; empty for no data.
        names: Their names where the user gave names, else empty.
        labels: N labels or None.
        note: What was left out, or "".
    """

    inputs: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    labels: Any = None
    note: str = ""

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.inputs[0]) if self.inputs else 0

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self.inputs if self.labels is None else (*self.inputs, self.labels)

    def head(self, count: int) -> "LiteData":
        """Take the first of them."""
        labels = None if self.labels is None else self.labels[:count]
        return replace(self, inputs=tuple(one[:count] for one in self.inputs), labels=labels)

    @property
    def digest(self) -> str:
        """A text that tells these data from others."""
        digest = hashlib.sha256()
        for array in self._arrays:
            kind = str((array.shape, array.dtype)).encode()
            digest.update(kind + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16] if self.inputs else ""

    def checked(self) -> "LiteData":
        """Take them, cut where they are too many."""
        for array in self.inputs:
            if array.dtype.kind not in "fiub" or not array.ndim or not len(array):
                raise ValueError(
                    f"The data has an array of type {array.dtype} and shape {tuple(array.shape)}; {_FORMS}."
                )
        counts = list(map(len, self._arrays))
        if len(set(counts)) > 1:
            raise ValueError(f"The data has arrays of {' and '.join(map(str, counts))} examples.")
        if counts[0] <= _MOST_EXAMPLES:
            return self
        note = f"The first {_MOST_EXAMPLES:,} of {counts[0]:,} examples are judged."
        return replace(self.head(_MOST_EXAMPLES), note=note)


def read_data(data: Any) -> LiteData:
    """Read the examples that a user gave; at most 10,000.

    Raises:
        FileNotFoundError: There is nothing at a path.
        ValueError: It is nothing that can be read as examples.
    """
    if data is None:
        return LiteData()
    if isinstance(data, str | Path):
        return _read_file(Path(data).expanduser())
    if hasattr(data, "element_spec"):
        return _read_dataset(data)
    x, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    return LiteData(*_inputs_of(x), None if y is None else np.asarray(y)).checked()


def read_examples(representative: Any, data: LiteData, most: int) -> tuple[list[Any], str]:
    """Read what int8 is calibrated with, one array per input, and where it is from: "given", "data" or "".

    Args:
        representative: Arrays, a dataset, a generator function as TensorFlow's converter takes it, or None
            for the first examples of the data.
        data: The data.
        most: How many at most.

    Raises:
        ValueError: It is nothing that can be read as examples.
    """
    if representative is None:
        return list(data.head(most).inputs), "data" if len(data) else ""
    if not callable(representative):
        return list(read_data(representative).head(most).inputs), "given"
    first = islice(representative(), most)
    rows = [one if isinstance(one, list | tuple) else [one] for one in first]
    if not rows:
        raise ValueError("representative gives no example.")
    columns = zip(*rows, strict=True)
    return [np.concatenate(list(map(np.asarray, column))) for column in columns], "given"


def random_data(details: Sequence[Mapping[str, Any]]) -> LiteData:
    """Make examples where the user gave none: standard normal numbers, zeros for whole ones."""
    random = np.random.default_rng(0)
    made = []
    for one in details:
        size = [_RANDOM, *(max(size, 1) for size in (one["open"] or one["shape"])[1:])]
        values = random.standard_normal(size).astype(np.float32)
        is_float = one["scale"] or one["dtype"].startswith("float")
        made.append(values if is_float else np.zeros(size, one["dtype"]))
    return LiteData(tuple(made))


def padded(data: LiteData, batch: int) -> LiteData:
    """Fill data to a batch at least: the last example again where there are fewer."""
    if len(data) >= batch:
        return data
    rows = np.minimum(np.arange(batch), len(data) - 1)
    return LiteData(tuple(x[rows] for x in data.inputs), data.names, None, data.note)


def _read_file(path: Path) -> LiteData:
    check_regular(path)
    with np.load(path, allow_pickle=False) as file:
        if isinstance(file, np.ndarray):
            return LiteData((file,)).checked()
        arrays = {name: file[name] for name in file.files}
    labels = arrays.pop("y", None)
    if not arrays:
        raise ValueError(f"{path.name} has no arrays but y; {_FORMS}.")
    names = tuple(arrays) if len(arrays) > 1 else ()
    return LiteData(tuple(arrays.values()), names, labels).checked()


def _read_dataset(data: Any) -> LiteData:
    batches: list[tuple[Any, ...]] = []
    names: tuple[str, ...] = ()
    labels: list[Any] = []
    count = 0
    for element in data.as_numpy_iterator():
        x, y = (element[0], element[1]) if isinstance(element, tuple) else (element, None)
        arrays, names = _inputs_of(x)
        batches.append(arrays)
        if y is not None:
            labels.append(np.asarray(y))
        count += len(arrays[0]) if arrays[0].ndim else 0
        if count >= _MOST_EXAMPLES:
            break
    if not batches or not batches[0][0].ndim:
        raise ValueError(f"The dataset gives no batches; {_FORMS}.")
    inputs = tuple(np.concatenate(kept) for kept in zip(*batches, strict=True))
    return LiteData(inputs, names, np.concatenate(labels) if labels else None).checked()


def _inputs_of(x: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    if isinstance(x, Mapping):
        return tuple(np.asarray(one) for one in x.values()), tuple(map(str, x))
    if isinstance(x, list | tuple) and x and all(hasattr(one, "shape") for one in x):
        return tuple(np.asarray(one) for one in x), ()
    return (np.asarray(x),), ()


def match_inputs(
    names: Sequence[str], shapes: Shapes, given: Shapes, called: Sequence[str]
) -> list[int]:
    """Match arrays with the inputs of a model: for each input the array that belongs to it.

    Args:
        names: Of the inputs.
        shapes: Of the inputs; -1 for a size that is open, and the first one is not compared.
        given: The arrays' shapes.
        called: What the user called the arrays; empty for nothing.

    Raises:
        ValueError: They do not fit.
    """

    def text(shape: Sequence[int]) -> str:
        return str(tuple(None if size == -1 else int(size) for size in shape))

    def fits(array: Sequence[int], shape: Sequence[int]) -> bool:
        return len(array) == len(shape) and all(
            want in (-1, have) for have, want in zip(array[1:], shape[1:], strict=True)
        )

    if len(names) != len(given):
        texts = ", ".join(f"{n} {text(s)}" for n, s in zip(names, shapes, strict=True))
        raise ValueError(
            f"The model has {len(names)} inputs ({texts}), and {len(given)} arrays were given."
        )
    order: list[int] = []
    for name, shape in zip(names, shapes, strict=True):
        free = [at for at in range(len(given)) if at not in order]
        fitting = [at for at in free if fits(given[at], shape)]
        parts = re.split(r"[:/]", name.removeprefix("serving_default_"))
        by_name = [at for at in fitting if called and called[at] in parts]
        if not fitting:
            raise ValueError(
                f"The model's input {name} has the shape {text(shape)}; the data has "
                f"{', '.join(str(tuple(map(int, given[at]))) for at in free)}."
            )
        order.append((by_name or fitting)[0])
    return order
