"""tf.data datasets that live in a namespace to the names of their users' functions.

The trace names an iterator's dataset by the kind of its op and its place in the pipeline, counted from the
source: ``ParallelMapDatasetV2:3``. The dataset object, where it still lives, knows the function that was
given to ``map``. Attributes that it keeps for itself are read with care: where one is missing, there is no
name.
"""

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from profnb.capture.seams import (
    CARDINALITY,
    DATASET_FUNCTIONS,
    DATASET_INPUTS,
    DATASET_TENSORS,
    WRAPPED_FUNCTION,
)
from profnb.capture.source.user_code import file_title, is_user_file, number_cells

Chain = tuple[tuple[str, str], ...]
_MOST_DATASETS, _LONGEST_CHAIN = 50, 100
_MOST_LOOKED_AT = 100  # files; on a network each takes a while


def describe_datasets(namespace: Mapping[str, object]) -> tuple[Chain, ...]:
    """The straight pipelines of a namespace, each from its source on.

    Returns:
        For each dataset (kind, name of the user's function or "") of every transformation, for instance
        ``(("Range", ""), ("Map", "augment"), ("Batch", ""))``.
    """
    return _describe(namespace, _name_of)


def locate_datasets(namespace: Mapping[str, object]) -> tuple[Chain, ...]:
    """The same with the line of each function, "Cell [3]:8", in its place; "" where it is not the user's."""
    cells = number_cells()

    def line_of(function: object) -> str:
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if code is None or not is_user_file(code.co_filename):
            return ""
        return f"{file_title(code.co_filename, cells)}:{code.co_firstlineno}"

    return _describe(namespace, line_of)


def _describe(
    namespace: Mapping[str, object], text_of: Callable[[object], str]
) -> tuple[Chain, ...]:
    chains: list[Chain] = []
    for value in list(namespace.values()):
        if len(chains) >= _MOST_DATASETS:
            break
        if _is_dataset(value):
            links = _walk(value)
            if any(map(_name_of, (function for _, function in links))):
                chains.append(tuple((kind, text_of(function)) for kind, function in links))
    return tuple(chains)


def _is_dataset(value: object) -> bool:
    return str(type(value).__module__).startswith("tensorflow.python.data")


def _named_datasets(namespace: Mapping[str, object]) -> list[tuple[str, object]]:
    """The datasets of a namespace with the names that a user gave them."""
    items = list(namespace.items())
    return [(name, value) for name, value in items if name[:1] != "_" and _is_dataset(value)]


def count_elements(namespace: Mapping[str, object]) -> dict[str, int]:
    """How many elements the datasets of a namespace have, by their names there; unknown ones are left out."""
    counts: dict[str, int] = {}
    for name, value in _named_datasets(namespace):
        if len(counts) >= _MOST_DATASETS:
            break
        with contextlib.suppress(Exception):  # of a graph, or somebody's subclass
            counts[name] = int(CARDINALITY.of(value)().numpy())
    return {name: count for name, count in counts.items() if count >= 0}


def find_files(namespace: Mapping[str, object]) -> tuple[dict[str, int], dict[str, int]]:
    """The files whose names the datasets of a namespace begin with: how many, and their mean size in bytes.

    Returns:
        Both by the dataset's name there; without those of which no file is there (any more).
    """
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for name, value in _named_datasets(namespace):
        if len(counts) >= _MOST_DATASETS:
            break
        with contextlib.suppress(Exception):  # of a graph, or somebody's subclass
            files = _names_in(value)
            size = mean_size(files)
            if size is not None:
                counts[name], sizes[name] = len(files), size
    return counts, sizes


def _names_in(dataset: object) -> list[bytes]:
    """The texts that a straight pipeline begins with."""
    at = dataset
    for _ in range(_LONGEST_CHAIN):
        listed = DATASET_INPUTS.of(at)()
        if len(listed) != 1:
            break
        at = listed[0]
    for tensor in DATASET_TENSORS.of(at, ()):
        if tensor.dtype.name == "string" and tensor.shape.rank == 1:
            return list(tensor.numpy())
    return []


def mean_size(files: Sequence[bytes]) -> int | None:
    """The mean size of files in bytes, of at most a hundred of them; None where one is not there."""
    if not files:
        return None
    chosen = files[:: -(-len(files) // _MOST_LOOKED_AT)]
    try:
        return sum(Path(os.fsdecode(file)).stat().st_size for file in chosen) // len(chosen)
    except (OSError, ValueError):
        return None


def _walk(dataset: object) -> list[tuple[str, object]]:
    """Each transformation's kind and the user's function, from the source on; none unless it is straight."""
    links: list[tuple[str, object]] = []
    at: object | None = dataset
    while at is not None and len(links) < _LONGEST_CHAIN:
        kind = type(at).__name__.lstrip("_").partition("Dataset")[0]
        links.append((kind, _function_of(at)))
        inputs = DATASET_INPUTS.of(at)
        try:
            listed = inputs() if callable(inputs) else ()
        except Exception:  # noqa: BLE001 - somebody's subclass may do anything
            return []
        if len(listed) > 1:
            return []
        at = listed[0] if listed else None
    return links[::-1]


def _function_of(dataset: object) -> object:
    for attribute in DATASET_FUNCTIONS.attributes:
        function = WRAPPED_FUNCTION.of(getattr(dataset, attribute, None))
        if isinstance(getattr(function, "__name__", None), str):
            return function
    return None


def _name_of(function: object) -> str:
    return str(getattr(function, "__name__", ""))
