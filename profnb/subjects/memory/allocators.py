"""Allocators' events to memory: how much was in use over time, what was alive at the peak, what grows.

Each allocation and deallocation tells the allocator's state after it, and which block it is of. What was
allocated before the trace began has no name: it is what the allocator held less what is known, mostly
weights, optimizer slots and data kept on the device. So the parts of the peak always sum to the allocator's
own figure.

The official tool names at the peak only what was allocated in the same step; it calls the rest preallocated.

Source: xla/tsl/framework/bfc_allocator.cc AddTraceMe; openxla/xprof xplane_to_memory_profile.cc (a27d00aa).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, look_up
from profnb.steps.windows import Steps
from profnb.trace.model import Trace

__all__ = [
    "UNATTRIBUTED",
    "Allocator",
    "PeakRow",
    "find_allocators",
    "step_around",
    "tabulate_peak",
    "texts_of",
]

UNATTRIBUTED = "(held since before the trace began)"
_ALLOCATION, _DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
_UNNAMED = "allocator"
# TensorFlow's DataType (tensorflow/core/framework/types.proto).
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 20: "resource",
    21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2", 25: "float8_e4m3fn",
}  # fmt: skip
_STATS = (
    "bytes_allocated",
    "bytes_reserved",
    "bytes_available",
    "allocation_bytes",
    "addr",
    "peak_bytes_in_use",
)
_LARGEST = 1 << 60


@dataclass(frozen=True)
class Allocator:
    """One allocator's M events, in time order.

    Attributes:
        name: ``GPU_0_bfc``, ``mklcpu``, ...
        events: Indices of the events, shape (M,).
        is_allocation: Whether each allocates, shape (M,).
        in_use: Bytes in use after each, shape (M,); -1 where it is not told.
        reserved: Bytes reserved, shape (M,).
        available: Bytes it could still give, shape (M,); -1 where it is not told.
        fragmentation: 0 for one free block, near 1 for many small ones, shape (M,); NaN if not told.
        size: Bytes of the block, shape (M,).
        until: The row at which a block is freed; M where it is not, and for deallocations, shape (M,).
        lifetime_peak: The most that was ever in use, before the trace too; -1 if not told.
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
        """The most that it can ever give; -1 if not told."""
        known = (self.available >= 0) & (self.in_use >= 0)
        known &= (self.available < _LARGEST) & (self.in_use < _LARGEST)
        return int((self.available + self.in_use)[known].max()) if known.any() else -1

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
    is_memory = trace.select_names(lambda name: name in (_ALLOCATION, _DEALLOCATION))
    events = np.flatnonzero(is_memory)
    if not events.size:
        return []
    events = events[np.argsort(trace.events.begin_ps[events], kind="stable")]
    names = trace.stats.texts("allocator_name")
    code = np.full(len(trace.events), -1, np.int64)
    code[names.events] = names.values
    columns = {stat: _column(trace, stat) for stat in _STATS}
    fragmentation = _fractions(trace, events)
    allocates = trace.select_names(lambda name: name == _ALLOCATION)
    found = []
    for number in np.unique(code[events]).tolist():
        chosen = code[events] == number
        own = events[chosen]
        is_allocation = allocates[own]
        found.append(
            Allocator(
                name=names.texts[number] if number >= 0 else _UNNAMED,
                events=own,
                is_allocation=is_allocation,
                in_use=columns["bytes_allocated"][own],
                reserved=columns["bytes_reserved"][own],
                available=columns["bytes_available"][own],
                fragmentation=fragmentation[chosen],
                size=np.maximum(columns["allocation_bytes"][own], 0),
                until=_freed_at(columns["addr"][own], is_allocation),
                lifetime_peak=int(columns["peak_bytes_in_use"][own].max()),
            )
        )
    told = [allocator for allocator in found if (allocator.in_use >= 0).any()]
    return sorted(told, key=lambda allocator: allocator.name)


def _column(trace: Trace, stat: str) -> Int64s:
    found = trace.stats.integers(stat)
    values = np.full(len(trace.events), -1, np.int64)
    values[found.events] = found.values.astype(np.int64)
    return values


def _fractions(trace: Trace, events: Int64s) -> Floats:
    found = trace.stats.numbers("fragmentation")
    by_event = np.full(len(trace.events), np.nan)
    by_event[found.events] = found.values
    return by_event[events]


def _freed_at(address: Int64s, is_allocation: Bools) -> Int64s:
    """For each allocation the row of the next event of the same block, which frees it; else M."""
    count = address.size
    order = np.lexsort((np.arange(count), address))
    until = np.full(count, count, np.int64)
    same = address[order][1:] == address[order][:-1]
    until[order[:-1][same]] = order[1:][same]
    return np.where(is_allocation, until, count)


@dataclass(frozen=True, slots=True)
class PeakRow:
    """What was alive at the peak, of one op, region, type and shape.

    Attributes:
        op_name: Who allocated it; ``UNATTRIBUTED`` for what has no name.
        region: "output", "temp", "persist", "dynamic"; "" if not told.
        dtype: Its type; "" if not told.
        shape: Its dimensions, ``[512,30,30,32]``; "" if not told.
        bytes: In all blocks together.
        occurrences: How many blocks; 0 for what has no name.
        is_persistent: Whether it was there before the step of the peak began and after it ended.
    """

    op_name: str
    region: str
    dtype: str
    shape: str
    bytes: int
    occurrences: int
    is_persistent: bool


def tabulate_peak(
    trace: Trace, allocator: Allocator, steps: Steps, row: int | None = None
) -> list[PeakRow]:
    """What was alive when most was in use, most bytes first; the rows sum to the bytes in use.

    Events without an allocator's name may be of several, whose blocks cannot be told apart: then all is
    one row. A deallocation that was not recorded leaves blocks that cannot have been there: the oldest go.

    Args:
        trace: The trace.
        allocator: The allocator.
        steps: The steps; what outlives the step of the peak on both sides is persistent.
        row: Another moment than the peak.
    """
    row = allocator.peak if row is None else row
    alive = allocator.alive_at(row) if allocator.name != _UNNAMED else allocator.events[:0]
    newest_first = np.cumsum(allocator.size[alive][::-1])[::-1]
    alive = alive[newest_first <= allocator.in_use[row]]
    begin, end = step_around(trace, allocator, steps, row)
    texts = {
        stat: texts_of(trace, stat, allocator.events[alive])
        for stat in ("tf_op", "region_type", "shape")
    }
    kinds = _column(trace, "data_type")
    sums: dict[tuple[str, str, str, str, bool], list[int]] = {}
    for at in alive.tolist():
        event = int(allocator.events[at])
        lasting = bool(begin >= 0 and at < begin and allocator.until[at] >= end)
        key = (
            texts["tf_op"].get(event, ""), texts["region_type"].get(event, ""),
            _DTYPES.get(int(kinds[event]), ""), texts["shape"].get(event, ""), lasting,
        )  # fmt: skip
        found = sums.setdefault(key, [0, 0])
        found[0] += int(allocator.size[at])
        found[1] += 1
    rows = [
        PeakRow(op or "(no op)", region, dtype, shape, total, often, lasting)
        for (op, region, dtype, shape, lasting), (total, often) in sums.items()
    ]
    rest = int(allocator.in_use[row]) - sum(found.bytes for found in rows)
    if rest:
        rows.append(PeakRow(UNATTRIBUTED, "", "", "", rest, 0, is_persistent=True))
    return sorted(rows, key=lambda found: -found.bytes)


def texts_of(trace: Trace, stat: str, events: Int64s) -> dict[int, str]:
    """The text of a stat of each event that has it."""
    found = trace.stats.texts(stat)
    rows = look_up(found.events, found.values.astype(np.int64), events)
    return {
        event: found.texts[row]
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
