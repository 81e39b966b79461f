"""How full tf.data's buffers, and the queues of TensorFlow 1, were: one series of samples each.

A call of an iterator with a buffer has the stat buffered_elements if something is in there; a call without it
found the buffer empty.

Source: tensorflow/core/kernels/data/prefetch_dataset_op.cc GetTraceMeMetadata (2.21).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table
from profnb.subjects.feeds.feeding import QueueUse
from profnb.trace.model import Counter, Trace

_BUFFER = "buffered elements"
_ITERATOR = "Iterator::"


def find_buffers(trace: Trace) -> list[Counter]:
    """How many elements each buffer held whenever it was asked; none without such iterators."""
    stats = trace.stats.integers("buffered_elements")
    if not len(stats):
        return []
    limits = trace.stats.integers("buffer_limit").events  # also of a buffer that is always empty
    held = np.zeros(len(trace.events), np.float64)
    held[stats.events] = stats.values.astype(np.float64)
    on_iterator = trace.names.rows_where(lambda name: name.startswith(_ITERATOR))
    names = np.unique(trace.events.name[np.concatenate([stats.events, limits])])
    counters = []
    for name in names[on_iterator[names]].tolist():
        calls = np.flatnonzero(trace.events.name == name)
        calls = calls[np.argsort(trace.events.begin_ps[calls], kind="stable")]
        series = trace.names[name].removeprefix(_ITERATOR)
        counters.append(Counter(_BUFFER, series, "", trace.events.begin_ps[calls], held[calls]))
    return counters


@dataclass(frozen=True, slots=True)
class BufferSamples:
    """N samples, buffer by buffer, each in time order.

    Attributes:
        iterator: The iterator with the buffer, or the queue, one per sample.
        time_ps: When it was asked, shape (N,).
        held: Elements in the buffer then, shape (N,); NaN where not known.
        capacity: Elements it can hold, shape (N,); NaN without a fixed capacity.
        kept_back: Elements that a queue keeps back to shuffle, shape (N,); NaN for buffers of tf.data.
        is_empty: Whether it held too few for what was asked then, shape (N,).
    """

    iterator: tuple[str, ...]
    time_ps: Int64s
    held: Floats
    capacity: Floats
    kept_back: Floats
    is_empty: Bools


def tabulate_buffers(
    buffers: Sequence[Counter], capacity: Mapping[str, int], queues: Sequence[QueueUse] = ()
) -> BufferSamples | None:
    """The samples of all buffers, then those of all queues; None where there is neither.

    Args:
        buffers: One series per iterator.
        capacity: How much the buffer of each iterator holds, by its place, where that is known.
        queues: The queues.
    """
    if not buffers and not queues:
        return None
    names = [*(buffer.series for buffer in buffers), *(queue.record.name for queue in queues)]
    sizes = [*(buffer.value.size for buffer in buffers), *(q.time_ps.size for q in queues)]
    holds = [
        *(capacity.get(buffer.series, np.nan) for buffer in buffers),
        *(q.record.capacity if q.record.capacity >= 0 else np.nan for q in queues),
    ]
    kept = [*(np.nan for _ in buffers), *(q.record.min_after_dequeue for q in queues)]
    return BufferSamples(
        tuple(name for name, size in zip(names, sizes, strict=True) for _ in range(size)),
        np.concatenate([*(buffer.time_ps for buffer in buffers), *(q.time_ps for q in queues)]),
        np.concatenate([*(buffer.value for buffer in buffers), *(q.held for q in queues)]),
        np.repeat(np.array(holds, np.float64), sizes),
        np.repeat(np.array(kept, np.float64), sizes),
        np.concatenate([*(buffer.value == 0 for buffer in buffers), *(q.is_empty for q in queues)]),
    )


BUFFERS = Table[BufferSamples](
    "buffers",
    "One row per time that a buffer of tf.data was asked, or a queue of TensorFlow 1 was looked at.",
    (
        Column("iterator", lambda t: t.iterator, "its place in the pipeline, or the queue's name"),
        Column("time_ms", lambda t: t.time_ps, "when it was asked"),
        Column(
            "buffered_elements",
            lambda t: t.held,
            "elements in it then, of a queue by counting, to within one per thread; NaN where not known",
        ),
        Column(
            "capacity", lambda t: t.capacity, "elements it can hold, NaN without a fixed capacity"
        ),
        Column(
            "min_after_dequeue",
            lambda t: t.kept_back,
            "elements that a queue keeps back to shuffle, NaN for tf.data",
        ),
        Column(
            "is_empty",
            lambda t: t.is_empty,
            "whether what was asked for was not there: the step waited for it",
        ),
    ),
)
