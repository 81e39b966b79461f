"""Allocators' events to columns: how much each had in use, and reserved, after every allocation.

An event says the allocator's state after it, and which block it is of.

Source: xla/tsl/framework/bfc_allocator.cc AddTraceMe; openxla/xprof xplane_to_memory_profile.cc (a27d00aa).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Table, columns_in
from profnb.steps.nesting import find_parents, nearest_of
from profnb.steps.windows import Steps
from profnb.trace.model import Counter, Trace
from profnb.trace.names import ALLOCATION, DEALLOCATION

UNNAMED = "allocator"
ALLOCATOR_EVENTS = frozenset({ALLOCATION, DEALLOCATION})
_STATS = (
    "bytes_allocated", "bytes_reserved", "bytes_available", "allocation_bytes", "addr", "peak_bytes_in_use"
)  # fmt: skip
_MOST_IN_USE = 1 << 60
_IN_USE, _RESERVED = "memory", "reserved memory"


@dataclass(frozen=True)
class Allocator:
    """One allocator's M events, in time order."""

    name: str  # ``GPU_0_bfc``, ``mklcpu``, ..
    events: Int64s  # indices of the events, shape (M,)
    is_allocation: Bools  # whether each allocates, shape (M,)
    in_use: Int64s  # bytes in use after each, shape (M,); -1 where the event does not say
    reserved: Int64s  # bytes reserved, shape (M,)
    available: Int64s  # bytes it could still give, shape (M,); -1 where the event does not say
    # 0 for one free block, near 1 for many small ones, shape (M,); NaN if the event does not say
    fragmentation: Floats
    size: Int64s  # bytes of the block, shape (M,)
    # the row at which a block is freed; M where it is not, and for deallocations, shape (M,)
    until: Int64s
    lifetime_peak: int  # the most that was ever in use, before the trace too; -1 if no event says
    op: Int64s  # the event of the op around each, of PyTorch's, shape (M,); else -1
    op_names: Sequence[str]  # the op that each is of, M texts; "" where nobody tells

    def __len__(self) -> int:
        return self.events.size

    @property
    def peak(self) -> int:
        """The row at which most was in use, the first of several."""
        return int(self.in_use.argmax())

    @property
    def limit(self) -> int:
        """The most that it can ever give; -1 if no event says."""
        both = np.stack([self.available, self.in_use])
        has_both = ((both >= 0) & (both < _MOST_IN_USE)).all(axis=0)
        return int(both.sum(axis=0)[has_both].max(initial=-1))

    @property
    def is_device(self) -> bool:
        """True for the memory of a GPU or TPU."""
        return self.name.startswith(("GPU_", "gpu_async", "cuda_malloc", "TPU"))

    def alive_at(self, row: int) -> Int64s:
        """The allocations whose blocks were in use right after a row."""
        is_alive = self.is_allocation & (self.until > row)
        return np.flatnonzero(is_alive[: row + 1])


def find_allocators(trace: Trace) -> list[Allocator]:
    """Find the allocators of a trace, by name; none where it has no memory events."""
    events = np.flatnonzero(trace.select_named(*ALLOCATOR_EVENTS))
    events = events[np.argsort(trace.events.begin_ps[events], kind="stable")]
    names = trace.stats.texts("allocator_name")
    code = names.of(events)
    columns = [trace.stats.integers(stat).of(events) for stat in _STATS]
    fragmentation = trace.stats.numbers("fragmentation").of(events, np.nan)
    allocates = trace.select_named(ALLOCATION)[events]
    op_names, op = texts_of(trace, "tf_op", events), np.full(events.size, -1)
    if events.size and trace.is_op_name is not None:  # PyTorch's stand inside of their ops
        parent = find_parents(trace.events.end_ps, trace.lines.offsets)
        op = nearest_of(parent, trace.by_name(trace.is_op_name))[events]
        for at, name in enumerate(np.where(op >= 0, trace.events.name[op], -1).tolist()):
            op_names[at] = op_names[at] or (trace.names[name] if name >= 0 else "")
    allocators = []
    for number in np.unique(code[columns[0] >= 0]).tolist():
        chosen = code == number
        in_use, reserved, available, size, address, peak = (column[chosen] for column in columns)
        allocators.append(
            Allocator(
                names.texts[number] if number >= 0 else UNNAMED, events[chosen], allocates[chosen],
                in_use, reserved, available, fragmentation[chosen], np.maximum(size, 0),
                _freed_at(address, allocates[chosen]), int(peak.max()), op[chosen],
                list(compress(op_names, chosen.tolist())),
            )
        )  # fmt: skip
    return sorted(allocators, key=lambda allocator: allocator.name)


def _freed_at(address: Int64s, is_allocation: Bools) -> Int64s:
    """For each allocation the row of the next event of the same block, which frees it; else M."""
    count = address.size
    order = np.argsort(address, kind="stable")
    until = np.full(count, count, np.int64)
    same = address[order][1:] == address[order][:-1]
    until[order[:-1][same]] = order[1:][same]
    return np.where(is_allocation, until, count)


def texts_of(trace: Trace, stat: str, events: Int64s) -> list[str]:
    """Read the text of a stat of each event; "" where it has none."""
    column = trace.stats.texts(stat)
    return [column.texts[row] if row >= 0 else "" for row in column.of(events).tolist()]


def step_around(trace: Trace, allocator: Allocator, steps: Steps, row: int) -> tuple[int, int]:
    """Find the rows between which the step of a moment lies; (-1, -1) outside of steps."""
    times = trace.events.begin_ps[allocator.events]
    step = int(np.searchsorted(steps.begin_ps, times[row], side="right")) - 1
    if steps.is_window or step < 0 or times[row] >= steps.end_ps[step]:
        return -1, -1
    begin = int(np.searchsorted(times, steps.begin_ps[step]))
    return begin, int(np.searchsorted(times, steps.end_ps[step]))


def sample_memory(trace: Trace, allocators: Sequence[Allocator]) -> list[Counter]:
    """Count what each allocator held at each of its events; none where it has no such events."""
    counters = []
    for allocator in allocators:
        rows = np.flatnonzero(allocator.in_use >= 0)
        times = trace.events.begin_ps[allocator.events[rows]]
        for name, column in ((_IN_USE, allocator.in_use), (_RESERVED, allocator.reserved)):
            values = column[rows].astype(np.float64)
            if name == _IN_USE or (values > 0).any():
                counters.append(Counter(name, allocator.name, "bytes", times, values))
    return counters


def other_counters(trace: Trace, allocators: Sequence[Allocator]) -> list[Counter]:
    """List what a trace counted, without what its allocators' events tell too."""
    twice = (_IN_USE, _RESERVED) if allocators else ()
    return [counter for counter in trace.counters if counter.name not in twice]


@dataclass(frozen=True, slots=True)
class MemorySamples:
    """N samples, allocator by allocator, each in time order.

    Its columns are those of ``MEMORY``, each of shape (N,), times in picoseconds.
    """

    allocator: tuple[str, ...]
    time_ps: Int64s
    in_use: Floats
    reserved: Floats
    fragmentation: Floats


def tabulate_samples(trace: Trace, allocators: Sequence[Allocator]) -> MemorySamples | None:
    """Tabulate all allocators' samples, from events or else a trace's counters; None where it has neither."""
    begin_ps, series = trace.events.begin_ps, []
    for allocator in allocators:
        rows = allocator.in_use >= 0
        reserved = np.where(allocator.reserved > 0, allocator.reserved, np.nan)[rows]
        in_use = allocator.in_use[rows].astype(np.float64)
        columns = begin_ps[allocator.events[rows]], in_use, reserved, allocator.fragmentation[rows]
        series.append((allocator.name, columns))
    counters = other_counters(trace, allocators)
    reserved_of = {c.series: c.value for c in counters if c.name == _RESERVED}
    for counter in counters:
        if counter.unit == "bytes" and counter.name != _RESERVED:
            missing = np.full(counter.value.size, np.nan)
            reserved = reserved_of.get(counter.series, missing)
            series.append((counter.series, (counter.time_ps, counter.value, reserved, missing)))
    if not series:
        return None
    names = (name for name, (times, *_) in series for _ in times)
    return MemorySamples(
        tuple(names), *map(np.concatenate, zip(*(s for _, s in series), strict=True))
    )


MEMORY = Table[MemorySamples](
    "memory",
    "One row per allocator and sample.",
    columns_in("""
        allocator: the allocator, or a kind of tensor that was counted by itself
        time_ms: when
        in_use_bytes = in_use: bytes in use
        reserved_bytes = reserved: bytes reserved, NaN where only the use was recorded
        fragmentation: 0 for one free block, near 1 for many small ones; NaN likewise
        """),
    "From the allocators' events (XPlane), from the allocations of session runs (TF1), or from the "
    "counters of a Chrome trace. No row without any.",
)
