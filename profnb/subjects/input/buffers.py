"""How full tf.data's buffers were: one series of samples per iterator with a buffer.

An iterator with a buffer tells buffered_elements when it is asked and something is in there; a call that
tells nothing found it empty.

Source: tensorflow/core/kernels/data/prefetch_dataset_op.cc GetTraceMeMetadata (2.21).
"""

import numpy as np

from profnb.trace.model import Counter, Trace

__all__ = ["BUFFER", "find_buffers"]

BUFFER = "buffered elements"
_ITERATOR = "Iterator::"


def find_buffers(trace: Trace) -> list[Counter]:
    """How many elements each buffer held whenever it was asked; none without such iterators."""
    found = trace.stats.integers("buffered_elements")
    if not len(found):
        return []
    limits = trace.stats.integers(
        "buffer_limit"
    ).events  # so even one that is always empty is known
    held = np.zeros(len(trace.events), np.float64)
    held[found.events] = found.values.astype(np.float64)
    on_iterator = trace.names.rows_where(lambda name: name.startswith(_ITERATOR))
    names = np.unique(trace.events.name[np.concatenate([found.events, limits])])
    counters = []
    for name in names[on_iterator[names]].tolist():
        calls = np.flatnonzero(trace.events.name == name)
        calls = calls[np.argsort(trace.events.begin_ps[calls], kind="stable")]
        series = trace.names[name].removeprefix(_ITERATOR)
        counters.append(Counter(BUFFER, series, "", trace.events.begin_ps[calls], held[calls]))
    return counters
