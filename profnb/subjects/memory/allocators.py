"""Allocators' events to columns: how much each had in use, and reserved, after every allocation.

An event says the allocator's state after it, and which block it is of.

Source: xla/tsl/framework/bfc_allocator.cc AddTraceMe; openxla/xprof xplane_to_memory_profile.cc (a27d00aa).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, look_up
from profnb.core.table import Column, Table
from profnb.steps.windows import Steps
from profnb.trace.model import Counter, Trace

UNNAMED = "allocator"
_ALLOCATION, _DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
_STATS = (
    "bytes_allocated",
    "bytes_reserved",
    "bytes_available",
    "allocation_bytes",
    "addr",
    "peak_bytes_in_use",
)
_LARGEST = 1 << 60
_IN_USE, _RESERVED = "memory", "reserved memory"


@dataclass(frozen=True)
class Allocator:
    """One allocator's M events, in time order.

    Attributes:
        name: ``GPU_0_bfc``, ``mklcpu``, ...
        events: Indices of the events, shape (M,).
        is_allocation: Whether each allocates, shape (M,).
        in_use: Bytes in use after each, shape (M,); -1 where the event does not say.
        reserved: Bytes reserved, shape (M,).
        available: Bytes it could still give, shape (M,); -1 where the event does not say.
        fragmentation: 0 for one free block, near 1 for many small ones, shape (M,); NaN if the event does not
            say.
        size: Bytes of the block, shape (M,).
        until: The row at which a block is freed; M where it is not, and for deallocations, shape (M,).
        lifetime_peak: The most that was ever in use, before the trace too; -1 if no event says.
    """

    name: str
    events: Int64s
    is_allocation: Bools
    in_use: Int64s
    reserved: Int64s
    available: Int64s
    fragmentation: Floats
    size: Int64s
    until: Int64s
    lifetime_peak: int

    def __len__(self) -> int:
        return self.events.size

    @property
    def peak(self) -> int:
        """The row at which most was in use, the first of several."""
        return int(self.in_use.argmax())

    @property
    def limit(self) -> int:
        """The most that it can ever give; -1 if no event says."""
        has_both = (self.available >= 0) & (self.in_use >= 0)
        has_both &= (self.available < _LARGEST) & (self.in_use < _LARGEST)
        return int((self.available + self.in_use)[has_both].max()) if has_both.any() else -1

    @property
    def is_device(self) -> bool:
        """Whether it manages the memory of a GPU or TPU."""
        return self.name.startswith(("GPU_", "gpu_async", "cuda_malloc", "TPU"))

    def alive_at(self, row: int) -> Int64s:
        """The allocations whose blocks were in use right after a row."""
        rows = np.arange(len(self))
        return np.flatnonzero(self.is_allocation & (rows <= row) & (self.until > row))


def find_allocators(trace: Trace) -> list[Allocator]:
    """The allocators of a trace, by name; none where it has no memory events."""
    is_memory = trace.select_named(_ALLOCATION, _DEALLOCATION)
    events = np.flatnonzero(is_memory)
    if not events.size:
        return []
    events = events[np.argsort(trace.events.begin_ps[events], kind="stable")]
    names = trace.stats.texts("allocator_name")
    code = names.of(events)
    columns = {stat: trace.stats.integers(stat).of(events) for stat in _STATS}
    fragmentation = trace.stats.numbers("fragmentation").of(events, np.nan)
    allocates = trace.select_named(_ALLOCATION)
    allocators = []
    for number in np.unique(code).tolist():
        chosen = code == number
        chosen_events = events[chosen]
        is_allocation = allocates[chosen_events]
        allocators.append(
            Allocator(
                name=names.texts[number] if number >= 0 else UNNAMED,
                events=chosen_events,
                is_allocation=is_allocation,
                in_use=columns["bytes_allocated"][chosen],
                reserved=columns["bytes_reserved"][chosen],
                available=columns["bytes_available"][chosen],
                fragmentation=fragmentation[chosen],
                size=np.maximum(columns["allocation_bytes"][chosen], 0),
                until=_freed_at(columns["addr"][chosen], is_allocation),
                lifetime_peak=int(columns["peak_bytes_in_use"][chosen].max()),
            )
        )
    with_use = [allocator for allocator in allocators if (allocator.in_use >= 0).any()]
    return sorted(with_use, key=lambda allocator: allocator.name)


def _freed_at(address: Int64s, is_allocation: Bools) -> Int64s:
    """For each allocation the row of the next event of the same block, which frees it; else M."""
    count = address.size
    order = np.lexsort((np.arange(count), address))
    until = np.full(count, count, np.int64)
    same = address[order][1:] == address[order][:-1]
    until[order[:-1][same]] = order[1:][same]
    return np.where(is_allocation, until, count)


def texts_of(trace: Trace, stat: str, events: Int64s) -> dict[int, str]:
    """The text of a stat of each event that has it."""
    texts = trace.stats.texts(stat)
    rows = look_up(texts.events, texts.values.astype(np.int64), events)
    return {
        event: texts.texts[row]
        for event, row in zip(events.tolist(), rows.tolist(), strict=True)
        if row >= 0
    }


def step_around(trace: Trace, allocator: Allocator, steps: Steps, row: int) -> tuple[int, int]:
    """The rows between which the step of a moment lies; (-1, -1) outside of steps."""
    times = trace.events.begin_ps[allocator.events]
    step = int(np.searchsorted(steps.begin_ps, times[row], side="right")) - 1
    if steps.is_window or step < 0 or times[row] >= steps.end_ps[step]:
        return -1, -1
    begin = int(np.searchsorted(times, steps.begin_ps[step]))
    return begin, int(np.searchsorted(times, steps.end_ps[step]))


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
