"""Allocators' events to samples: how much memory each held, and had reserved, over time.

Source: openxla/xla tsl profiler/lib/scoped_memory_debug_annotation and bfc_allocator.cc AddTraceMe.
"""

from collections.abc import Sequence

import numpy as np

from profnb.subjects.memory.allocators import Allocator
from profnb.trace.model import Counter, Trace

__all__ = ["MEMORY", "RESERVED", "sample_memory"]

MEMORY, RESERVED = "memory", "reserved memory"


def sample_memory(trace: Trace, allocators: Sequence[Allocator]) -> list[Counter]:
    """What each allocator held at each of its events; none where it has no such events."""
    counters = []
    for allocator in allocators:
        told = allocator.in_use >= 0
        times = trace.events.begin_ps[allocator.events[told]]
        for name, values in ((MEMORY, allocator.in_use), (RESERVED, allocator.reserved)):
            if name == MEMORY or (values[told] > 0).any():
                column = values[told].astype(np.float64)
                counters.append(Counter(name, allocator.name, "bytes", times, column))
    return counters
