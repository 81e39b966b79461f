"""Allocators' events to samples: how much memory each held, and had reserved, over time.

Source: openxla/xla tsl profiler/lib/scoped_memory_debug_annotation and bfc_allocator.cc AddTraceMe.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table
from profnb.subjects.memory.allocators import Allocator
from profnb.trace.model import Counter, Trace

_IN_USE, _RESERVED = "memory", "reserved memory"


def sample_memory(trace: Trace, allocators: Sequence[Allocator]) -> list[Counter]:
    """What each allocator held at each of its events; none where it has no such events."""
    counters = []
    for allocator in allocators:
        with_use = allocator.in_use >= 0
        times = trace.events.begin_ps[allocator.events[with_use]]
        for name, values in ((_IN_USE, allocator.in_use), (_RESERVED, allocator.reserved)):
            if name == _IN_USE or (values[with_use] > 0).any():
                column = values[with_use].astype(np.float64)
                counters.append(Counter(name, allocator.name, "bytes", times, column))
    return counters


@dataclass(frozen=True, slots=True)
class MemorySamples:
    """N samples, allocator by allocator, each in time order.

    Attributes:
        allocator: The allocator of each sample.
        time_ps: When, shape (N,).
        in_use: Bytes in use, shape (N,).
        reserved: Bytes reserved, shape (N,); NaN where only the use was recorded.
        fragmentation: 0 for one free block, near 1 for many small ones, shape (N,); NaN likewise.
    """

    allocator: tuple[str, ...]
    time_ps: Int64s
    in_use: Floats
    reserved: Floats
    fragmentation: Floats


def tabulate_samples(trace: Trace, allocators: Sequence[Allocator]) -> MemorySamples | None:
    """The samples of all allocators, from their events or, without any, from a trace's counters.

    Returns:
        The samples, or None where the trace has neither.
    """
    series = [
        (
            allocator.name,
            trace.events.begin_ps[allocator.events],
            allocator.in_use.astype(np.float64),
            np.where(allocator.reserved > 0, allocator.reserved, np.nan),
            allocator.fragmentation,
        )
        for allocator in allocators
    ] or _series_of_counters(trace.counters)
    if not series:
        return None
    names, *columns = zip(*series, strict=True)
    allocator = (name for name, times in zip(names, columns[0], strict=True) for _ in times)
    return MemorySamples(tuple(allocator), *(np.concatenate(column) for column in columns))


def _series_of_counters(
    counters: Sequence[Counter],
) -> list[tuple[str, Int64s, Floats, Floats, Floats]]:
    """Each counter of bytes with the one of reserved bytes beside it, where there is one."""
    reserved = {c.series: c.value for c in counters if c.name == _RESERVED}
    series = []
    for counter in counters:
        if counter.unit == "bytes" and counter.name != _RESERVED:
            missing = np.full(counter.value.size, np.nan)
            beside = reserved.get(counter.series, missing)
            series.append((counter.series, counter.time_ps, counter.value, beside, missing))
    return series


MEMORY = Table[MemorySamples](
    "memory",
    "One row per allocator and sample.",
    (
        Column("allocator", lambda t: t.allocator, "the allocator"),
        Column("time_ms", lambda t: t.time_ps, "when"),
        Column("in_use_bytes", lambda t: t.in_use, "bytes in use"),
        Column(
            "reserved_bytes",
            lambda t: t.reserved,
            "bytes reserved, NaN where only the use was recorded",
        ),
        Column(
            "fragmentation",
            lambda t: t.fragmentation,
            "0 for one free block, near 1 for many small ones; NaN likewise",
        ),
    ),
    "From the allocators' events (XPlane), from the allocations of session runs (TF1), or from the counters "
    "of a Chrome trace; no row where there are none.",
)
