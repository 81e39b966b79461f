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
from collections.abc import Sequence

import numpy as np

from profnb.core.columns import Int64s, match
from profnb.steps.grouping import Groups
from profnb.trace.model import Trace
from profnb.trace.names import EXAMPLES, NEXT_BATCH

_ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float": 4, "int32": 4, "uint32": 4, "double": 8, "int64": 8, "uint64": 8, "complex64": 8,
}  # fmt: skip
_SHAPE = re.compile(r"\[([^\]]*)\]")
_LONGEST_SIZE = 12  # digits
_MARKERS = frozenset({"TraceContext", "train"})
_FETCH_PREFIX = "IteratorGetNext"
_ROOTS = frozenset({"Iterator::Root", "Iterator::Model"})


def _is_size(text: str) -> bool:
    """Whether a dimension is a number, and one that a tensor could have."""
    return text.isdecimal() and len(text) <= _LONGEST_SIZE


def batch_size_of(shapes: str, types: str, element_bytes: int) -> int | None:
    """How many examples one element holds, or None if it cannot be told.

    Args:
        shapes: For instance ``[?,28,28,1] [?]``.
        types: For instance ``float int64``, one per shape.
        element_bytes: The size of the element that was fetched.
    """
    parts = [part.split(",") for part in _SHAPE.findall(shapes)]
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


def _element_kinds(trace: Trace) -> Sequence[tuple[str, str]]:
    """The distinct (shapes, types) of root iterators."""
    shapes, types = trace.stats.texts("shapes"), trace.stats.texts("types")
    events, at, there = match(shapes.events, types.events)
    rooted = np.flatnonzero(trace.are_named(events, lambda name: name in _ROOTS))
    pairs = zip(
        shapes.values[at[rooted]].tolist(), types.values[there[rooted]].tolist(), strict=True
    )
    return [(shapes.texts[shape], types.texts[kind]) for shape, kind in set(pairs)]


def _marked_batches(trace: Trace) -> tuple[Int64s, Int64s]:
    """The N marked fetches of Keras on JAX that have a size: their events and sizes, each of shape (N,)."""
    batch_sizes = trace.stats.integers("batch_size")
    is_fetch = trace.are_named(batch_sizes.events, lambda name: name == NEXT_BATCH)
    return batch_sizes.events[is_fetch], batch_sizes.values[is_fetch].astype(np.int64)


def _recorded_batch_size(trace: Trace) -> int | None:
    """The batch size that most marked fetches have, or Keras 2 wrote with its step markers; or None."""
    marked, often = np.unique(_marked_batches(trace)[1], return_counts=True)
    if marked.size:
        return int(marked[often.argmax()])
    batch_sizes = trace.stats.integers("batch_size")
    is_marker = trace.are_named(batch_sizes.events, lambda name: name in _MARKERS)
    sizes = np.unique(batch_sizes.values[is_marker].astype(np.int64))
    return int(sizes[0]) if sizes.size == 1 and 0 < sizes[0] < 1 << 31 else None


def _marked_batch_size(trace: Trace) -> int | None:
    """What most of profnb's own markers say, or None."""
    values, often = np.unique(trace.stats.integers(EXAMPLES).values, return_counts=True)
    return int(values[often.argmax()]) if values.size else None


def usual_batch_size(trace: Trace) -> int | None:
    """Examples in most of the elements that were fetched, by steps or between them; None if not told."""
    kinds = _element_kinds(trace)
    sizes = trace.stats.integers("element_size")
    is_fetch = trace.are_named(sizes.events, lambda name: name.startswith(_FETCH_PREFIX))
    values, often = np.unique(sizes.values[is_fetch].astype(np.int64), return_counts=True)
    if not values.size:
        return _recorded_batch_size(trace) or _marked_batch_size(trace)
    size = int(values[often.argmax()])
    batch_sizes = {batch_size_of(shapes, types, size) for shapes, types in kinds} - {None}
    return batch_sizes.pop() if len(batch_sizes) == 1 else None


def examples_per_step(trace: Trace, groups: Groups, count: int) -> Int64s:
    """How many examples each step fetched; 0 where the trace does not tell.

    Args:
        trace: The trace.
        groups: Which step each event belongs to.
        count: The number of steps.

    Returns:
        Examples, shape (count,). A step whose fetches cannot all be read has 0.
    """
    kinds = _element_kinds(trace)
    sizes = trace.stats.integers("element_size")
    is_fetch = trace.are_named(sizes.events, lambda name: name.startswith(_FETCH_PREFIX))
    rows = groups.step[sizes.events]
    chosen = is_fetch & (rows >= 0)
    examples, unreadable = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    answers: dict[int, int | None] = {}
    for row, size in zip(rows[chosen].tolist(), sizes.values[chosen].tolist(), strict=True):
        if size not in answers:
            batch_sizes = {batch_size_of(shapes, types, size) for shapes, types in kinds} - {None}
            answers[size] = batch_sizes.pop() if len(batch_sizes) == 1 else None
        batch = answers[size]
        if batch is None:
            unreadable[row] = True
        else:
            examples[row] += batch
    examples[unreadable] = 0
    fetches, held = _marked_batches(trace)
    if not chosen.any() and fetches.size:
        rows = groups.step[fetches]
        np.add.at(examples, rows[rows >= 0], held[rows >= 0])
    marked = trace.stats.integers(EXAMPLES)
    rows = groups.step[marked.events]
    is_in_step = rows >= 0
    examples[rows[is_in_step]] = marked.values[is_in_step].astype(np.int64)
    return examples
