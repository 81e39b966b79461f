"""How full tf.data's buffers were: one series of samples per iterator with a buffer.

A call of an iterator with a buffer has the stat buffered_elements if something is in there; a call without it
found the buffer empty.

Source: tensorflow/core/kernels/data/prefetch_dataset_op.cc GetTraceMeMetadata (2.21).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table
from profnb.trace.model import Counter, Trace

__all__ = ["BUFFERS", "BufferSamples", "find_buffers", "tabulate_buffers"]

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
        iterator: The iterator with the buffer, one per sample.
        time_ps: When it was asked, shape (N,).
        held: Elements in the buffer then, shape (N,).
        capacity: Elements it can hold, shape (N,); NaN without a fixed capacity.
    """

    iterator: tuple[str, ...]
    time_ps: Int64s
    held: Floats
    capacity: Floats


def tabulate_buffers(
    buffers: Sequence[Counter], capacity: Mapping[str, int]
) -> BufferSamples | None:
    """The samples of all buffers; None where there is no buffer.

    Args:
        buffers: One series per iterator.
        capacity: How much the buffer of each iterator holds, by its place, where that is known.
    """
    if not buffers:
        return None
    holds = [capacity.get(buffer.series, np.nan) for buffer in buffers]
    return BufferSamples(
        tuple(buffer.series for buffer in buffers for _ in buffer.value),
        np.concatenate([buffer.time_ps for buffer in buffers]),
        np.concatenate([buffer.value for buffer in buffers]),
        np.repeat(np.array(holds, np.float64), [buffer.value.size for buffer in buffers]),
    )


BUFFERS = Table[BufferSamples](
    "buffers",
    "One row per time that an iterator of tf.data with a buffer was asked.",
    (
        Column("iterator", lambda t: t.iterator, "its place in the pipeline"),
        Column("time_ms", lambda t: t.time_ps, "when it was asked"),
        Column("buffered_elements", lambda t: t.held, "elements in its buffer then"),
        Column(
            "capacity", lambda t: t.capacity, "elements it can hold, NaN without a fixed capacity"
        ),
    ),
)
