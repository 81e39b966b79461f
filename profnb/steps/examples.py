"""Iterator events to the number of examples in each step.

The root iterator of tf.data names the shapes and types of its elements, and each fetch the bytes it
moved. Where the first dimension is known it is the batch size; where only the first dimension is
unknown (``[?,28,28,1] [?]``), the bytes of the element over the bytes of one example give it. Anything
else (strings, ragged or scalar elements) is not guessed. Keras on JAX fetches batches of its own; profnb
marks them in the trace with what Keras says of their size. On PyTorch, profnb's own step markers say it.

Source: traceme_metadata of the root iterator in tensorflow/core/data (shapes, types) and of
IteratorGetNextOp (element_size), seen in traces of TensorFlow 2.20 and 2.21.
"""

import math
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Int64s, match
from profnb.steps.grouping import Groups
from profnb.trace.model import Trace
from profnb.trace.names import EXAMPLES, NEXT_BATCH

_ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float": 4, "int32": 4, "uint32": 4, "double": 8, "int64": 8, "uint64": 8, "complex64": 8,
}  # fmt: skip
_SHAPE_TEXT = re.compile(r"\[([^\]]*)\]")
_SIZE = re.compile(r"\d{1,12}")  # of a dimension: no tensor could have more
_MARKERS = frozenset({"TraceContext", "train"})
_FETCH_PREFIX = "IteratorGetNext"
_ROOTS = frozenset({"Iterator::Root", "Iterator::Model"})
_is_size = _SIZE.fullmatch
_ANY_SIZE = -1


def batch_size_of(shapes: str, types: str, element_bytes: int) -> int | None:
    """Count the examples that one element holds, or None if it cannot be told.

    Args:
        shapes: For instance ``[?,28,28,1] [?]``.
        types: For instance ``float int64``, one per shape.
        element_bytes: The size of the element that was fetched.
    """
    parts = [part.split(",") for part in _SHAPE_TEXT.findall(shapes)]
    kinds = types.split()
    if not parts or len(parts) != len(kinds) or any(part == [""] for part in parts):
        return None
    first = {part[0] for part in parts}
    if len(first) != 1 or not all(_is_size(d) for part in parts for d in part[1:]):
        return None
    batch_dimension = first.pop()
    if _is_size(batch_dimension):
        return int(batch_dimension)
    if any(kind not in _ITEM_BYTES for kind in kinds):
        return None
    example_bytes = sum(
        math.prod(map(int, part[1:])) * _ITEM_BYTES[kind]
        for part, kind in zip(parts, kinds, strict=True)
    )
    count, rest = divmod(element_bytes, example_bytes) if example_bytes else (0, 1)
    return count if rest == 0 and count > 0 else None


def _stats_of(trace: Trace, stat: str, is_meant: Callable[[str], bool]) -> tuple[Int64s, Int64s]:
    """Find the events that have an integer stat and a name that is meant, and the values."""
    column = trace.stats.integers(stat)
    chosen = trace.are_named(column.events, is_meant)
    return column.events[chosen], column.values[chosen].astype(np.int64)


def _fetches(trace: Trace) -> tuple[Int64s, Int64s, Int64s]:
    """Read N fetches of tf.data: events, bytes, examples (-1: not told), each of shape (N,)."""
    shapes, types = trace.stats.texts("shapes"), trace.stats.texts("types")
    events, at, there = match(shapes.events, types.events)
    rooted = np.flatnonzero(trace.are_named(events, lambda name: name in _ROOTS))
    pairs = {
        (shapes.texts[shape], types.texts[kind])
        for shape, kind in zip(
            shapes.values[at[rooted]].tolist(), types.values[there[rooted]].tolist(), strict=True
        )
    }
    fetches, sizes = _stats_of(trace, "element_size", lambda name: name.startswith(_FETCH_PREFIX))
    distinct, row = np.unique(sizes, return_inverse=True)
    answers = []
    for size in distinct.tolist():
        counts = {batch_size_of(*pair, size) for pair in pairs} - {None}
        answers.append(counts.pop() if len(counts) == 1 else _ANY_SIZE)
    return fetches, sizes, np.array(answers, np.int64)[row]


def _most_frequent(values: npt.NDArray[np.generic]) -> int | None:
    distinct, often = np.unique(values, return_counts=True)
    return int(distinct[often.argmax()]) if distinct.size else None


def usual_batch_size(trace: Trace) -> int | None:
    """Count the examples in most of the elements that were fetched; None if not told.

    That is what tf.data fetched, else what most marked fetches of Keras on JAX have, what Keras 2 wrote
    with its step markers, or what profnb wrote with its own.
    """
    _, sizes, examples = _fetches(trace)
    if sizes.size:
        count = int(examples[(sizes == _most_frequent(sizes)).argmax()])
        return None if count == _ANY_SIZE else count
    marked = _most_frequent(_stats_of(trace, "batch_size", lambda name: name == NEXT_BATCH)[1])
    if marked is None:
        written = np.unique(_stats_of(trace, "batch_size", _MARKERS.__contains__)[1])
        marked = int(written[0]) if written.size == 1 and 0 < written[0] < 1 << 31 else None
    return marked or _most_frequent(trace.stats.integers(EXAMPLES).values)


def examples_per_step(trace: Trace, groups: Groups, count: int) -> Int64s:
    """Count the examples that each step fetched; 0 where the trace does not tell.

    Args:
        trace: The trace.
        groups: Which step each event belongs to.
        count: The number of steps.

    Returns:
        Examples, shape (count,). A step whose fetches cannot all be read has 0.
    """
    examples = np.zeros(count, np.int64)
    fetches, _, held = _fetches(trace)
    rows = groups.step[fetches]
    if not (rows >= 0).any():
        fetches, held = _stats_of(trace, "batch_size", lambda name: name == NEXT_BATCH)
        rows = groups.step[fetches]
    np.add.at(examples, rows[rows >= 0], held[rows >= 0])
    examples[rows[(rows >= 0) & (held == _ANY_SIZE)]] = 0
    marked = trace.stats.integers(EXAMPLES)
    rows = groups.step[marked.events]
    examples[rows[rows >= 0]] = marked.values[rows >= 0].astype(np.int64)
    return examples
