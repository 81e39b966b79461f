"""Events to sampled quantities: memory per allocator, and how full tf.data's buffers are.

Allocators tell their state at each ``MemoryAllocation`` and ``MemoryDeallocation``; an iterator with a
buffer tells ``buffered_elements`` when it is asked and something is in there; a call that tells nothing
found it empty.

Source: openxla/xla tsl profiler/lib/scoped_memory_debug_annotation and bfc_allocator.cc AddTraceMe;
tensorflow/core/kernels/data/prefetch_dataset_op.cc GetTraceMeMetadata (2.21).
"""

import numpy as np

from profnb.columns import Int64s
from profnb.trace.model import Counter, Trace

__all__ = ["BUFFER", "MEMORY", "RESERVED", "find_samples"]

MEMORY, RESERVED = "memory", "reserved memory"
BUFFER = "buffered elements"
_MEMORY_EVENTS = frozenset({"MemoryAllocation", "MemoryDeallocation"})
_UNNAMED = "allocator"
_ITERATOR = "Iterator::"


def find_samples(trace: Trace) -> list[Counter]:
    """The quantities that a trace's events tell, ordered by name; none where it has no such events."""
    return [*_memory(trace), *_buffers(trace)]


def _column(trace: Trace, stat: str, events: Int64s, missing: int) -> Int64s:
    found = trace.stats.integers(stat)
    values = np.full(len(trace.events), missing, np.int64)
    values[found.events] = found.values.astype(np.int64)
    return values[events]


def _memory(trace: Trace) -> list[Counter]:
    events = np.flatnonzero(trace.select_names(lambda name: name in _MEMORY_EVENTS))
    if not events.size:
        return []
    events = events[np.argsort(trace.events.begin_ps[events], kind="stable")]
    names = trace.stats.texts("allocator_name")
    code = np.full(len(trace.events), -1, np.int64)
    code[names.events] = names.values
    in_use = _column(trace, "bytes_allocated", events, -1)
    reserved = _column(trace, "bytes_reserved", events, -1)
    counters = []
    for allocator in np.unique(code[events]).tolist():
        own = (code[events] == allocator) & (in_use >= 0)
        series = names.texts[allocator] if allocator >= 0 else _UNNAMED
        times = trace.events.begin_ps[events[own]]
        for name, values in ((MEMORY, in_use[own]), (RESERVED, reserved[own])):
            if name == MEMORY or (values > 0).any():
                counters.append(Counter(name, series, "bytes", times, values.astype(np.float64)))
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
