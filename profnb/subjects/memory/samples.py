"""Events to sampled quantities: memory per allocator, and how full tf.data's buffers are.

Allocators tell their state at each ``MemoryAllocation`` and ``MemoryDeallocation``; an iterator with a
buffer tells ``buffered_elements`` when it is asked and something is in there; a call that tells nothing
found it empty.

Source: openxla/xla tsl profiler/lib/scoped_memory_debug_annotation and bfc_allocator.cc AddTraceMe;
tensorflow/core/kernels/data/prefetch_dataset_op.cc GetTraceMeMetadata (2.21).
"""

import numpy as np

from profnb.subjects.memory.allocators import find_allocators
from profnb.trace.model import Counter, Trace

__all__ = ["BUFFER", "MEMORY", "RESERVED", "find_samples"]

MEMORY, RESERVED = "memory", "reserved memory"
BUFFER = "buffered elements"
_ITERATOR = "Iterator::"


def find_samples(trace: Trace) -> list[Counter]:
    """The quantities that a trace's events tell, ordered by name; none where it has no such events."""
    return [*_memory(trace), *_buffers(trace)]


def _memory(trace: Trace) -> list[Counter]:
    counters = []
    for allocator in find_allocators(trace):
        told = allocator.in_use >= 0
        times = trace.events.begin_ps[allocator.events[told]]
        for name, values in ((MEMORY, allocator.in_use), (RESERVED, allocator.reserved)):
            if name == MEMORY or (values[told] > 0).any():
                column = values[told].astype(np.float64)
                counters.append(Counter(name, allocator.name, "bytes", times, column))
    return counters


def _buffers(trace: Trace) -> list[Counter]:
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
