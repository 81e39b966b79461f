"""What a user gives as data, to arrays: the examples, their labels, and what int8 is calibrated with."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from profnb.core.safe_files import check_regular

_MOST, _RANDOM = 10_000, 8
_FORMS = "data is (x, y), x alone, a tf.data.Dataset of batches, or an .npz file with x and y"


@dataclass(frozen=True)
class GivenData:
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
        """How many examples there are."""
        return len(self.inputs[0]) if self.inputs else 0

    def head(self, count: int) -> "GivenData":
        """The first of them."""
        labels = None if self.labels is None else self.labels[:count]
        return GivenData(tuple(one[:count] for one in self.inputs), self.names, labels, self.note)

    @property
    def digest(self) -> str:
        """Tells these data from others."""
        digest = hashlib.sha256()
        for array in (*self.inputs, *([] if self.labels is None else [self.labels])):
            digest.update(
                str((array.shape, array.dtype)).encode() + np.ascontiguousarray(array).tobytes()
            )
        return digest.hexdigest()[:16] if self.inputs else ""


def read_data(data: Any) -> GivenData:
    """The examples that a user gave; at most 10,000 are read.

    Raises:
        FileNotFoundError: There is nothing at a path.
        ValueError: It is nothing that can be read as examples.
    """
    if data is None:
        return GivenData()
    if isinstance(data, str | Path):
        return _read_file(Path(data).expanduser())
    if hasattr(data, "element_spec"):
        return _read_dataset(data)
    is_pair = isinstance(data, tuple) and len(data) == 2
    x, y = data if is_pair else (data, None)
    inputs, names = _inputs_of(x)
    labels = None if y is None else np.asarray(y)
    return _checked(inputs, names, labels)


def read_examples(representative: Any, data: GivenData, most: int) -> tuple[list[Any], str]:
    """What int8 is calibrated with, one array per input, and where it is from: "given", "data" or "".

    Args:
        representative: Arrays, a dataset, a generator function as TensorFlow's converter takes it, or None
        for
            the first examples of the data.
        data: The data.
        most: How many at most.

    Raises:
        ValueError: It is nothing that can be read as examples.
    """
    if representative is None:
        return list(data.head(most).inputs), "data" if len(data) else ""
    if callable(representative):
        rows = [
            one if isinstance(one, list | tuple) else [one]
            for one in islice(representative(), most)
        ]
        if not rows:
            raise ValueError("representative gives no example.")
        return [
            np.concatenate([np.asarray(row[at]) for row in rows]) for at in range(len(rows[0]))
        ], "given"
    return list(read_data(representative).head(most).inputs), "given"


def random_data(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> GivenData:
    """Examples where the user gave none: standard normal numbers, zeros for whole ones."""
    random = np.random.default_rng(0)
    made = []
    for shape, dtype in zip(shapes, dtypes, strict=True):
        size = [_RANDOM, *(max(one, 1) for one in shape[1:])]
        values = random.standard_normal(size).astype(np.float32)
        made.append(values if dtype.startswith("float") else np.zeros(size, dtype))
    return GivenData(tuple(made))


def write_examples(path: Path, inputs: Any) -> str:
    """Write arrays where a process of ours reads them; the path as text."""
    arrays: dict[str, Any] = {f"x{at}": np.asarray(array) for at, array in enumerate(inputs)}
    np.savez(path, **arrays)
    return str(path)


def read_arrays(path: str) -> list[Any]:
    """What ``write_examples`` or a process of ours wrote."""
    with np.load(path, allow_pickle=False) as file:
        return [file[f"x{at}"] for at in range(len(file.files))]


def _read_file(path: Path) -> GivenData:
    check_regular(path)
    with np.load(path, allow_pickle=False) as file:
        if isinstance(file, np.ndarray):
            return _checked((file,), (), None)
        arrays = {name: file[name] for name in file.files}
    labels = arrays.pop("y", None)
    if not arrays:
        raise ValueError(f"{path.name} has no arrays but y; {_FORMS}.")
    return _checked(tuple(arrays.values()), tuple(arrays) if len(arrays) > 1 else (), labels)


def _read_dataset(data: Any) -> GivenData:
    inputs: list[list[Any]] = []
    names: tuple[str, ...] = ()
    labels: list[Any] = []
    count = 0
    for element in data.as_numpy_iterator():
        x, y = (element[0], element[1]) if isinstance(element, tuple) else (element, None)
        arrays, names = _inputs_of(x)
        inputs = inputs or [[] for _ in arrays]
        for kept, array in zip(inputs, arrays, strict=True):
            kept.append(array)
        if y is not None:
            labels.append(np.asarray(y))
        count += len(arrays[0]) if arrays[0].ndim else 0
        if count >= _MOST:
            break
    if not inputs or not inputs[0][0].ndim:
        raise ValueError(f"The dataset gives no batches; {_FORMS}.")
    joined = tuple(np.concatenate(kept) for kept in inputs)
    return _checked(joined, names, np.concatenate(labels) if labels else None)


def _inputs_of(x: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    if isinstance(x, Mapping):
        return tuple(np.asarray(one) for one in x.values()), tuple(map(str, x))
    if isinstance(x, list | tuple) and x and all(hasattr(one, "shape") for one in x):
        return tuple(np.asarray(one) for one in x), ()
    return (np.asarray(x),), ()


def _checked(inputs: tuple[Any, ...], names: tuple[str, ...], labels: Any) -> GivenData:
    for array in inputs:
        if array.dtype.kind not in "fiub" or not array.ndim or not len(array):
            raise ValueError(
                f"The data has an array of type {array.dtype} and shape {tuple(array.shape)}; {_FORMS}."
            )
    counts = [len(one) for one in (*inputs, *([] if labels is None else [labels]))]
    if len(set(counts)) > 1:
        raise ValueError(f"The data has arrays of {' and '.join(map(str, counts))} examples.")
    given = GivenData(inputs, names, labels)
    if counts[0] <= _MOST:
        return given
    note = f"The first {_MOST:,} of {counts[0]:,} examples are judged."
    return GivenData(given.head(_MOST).inputs, names, given.head(_MOST).labels, note)


def padded(data: GivenData, batch: int) -> GivenData:
    """Data with at least a batch: the last example again where there are fewer."""
    if len(data) >= batch:
        return data
    rows = np.minimum(np.arange(batch), len(data) - 1)
    return GivenData(tuple(x[rows] for x in data.inputs), data.names, None, data.note)


def plain_array(array: Any) -> Any:
    """An array in a type that the interpreter's process casts from."""
    return array.astype(np.float32) if array.dtype == np.float64 else array
