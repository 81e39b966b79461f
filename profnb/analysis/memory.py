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

from profnb.analysis.steps import Steps
from profnb.columns import Bools, Floats, Int64s
from profnb.trace.model import Trace

__all__ = [
    "UNATTRIBUTED",
    "Allocator",
    "MemoryUse",
    "PeakRow",
    "find_allocators",
    "find_growth",
    "measure_memory",
    "step_around",
    "tabulate_peak",
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
_HEADROOM = 0.95
_LARGEST = 1 << 60
_GROWING_STEPS, _GROWTH_SHARE = 4, 0.7


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
        stat: _texts(trace, stat, allocator.events[alive])
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


def _texts(trace: Trace, stat: str, events: Int64s) -> dict[int, str]:
    """The text of a stat of each event that has it."""
    found = trace.stats.texts(stat)
    if not len(found):
        return {}
    at = np.minimum(np.searchsorted(found.events, events), len(found) - 1)
    known = found.events[at] == events
    return {
        event: found.texts[value]
        for event, value in zip(
            events[known].tolist(), found.values[at[known]].tolist(), strict=True
        )
    }


def step_around(trace: Trace, allocator: Allocator, steps: Steps, row: int) -> tuple[int, int]:
    """The rows between which the step of a moment lies; (-1, -1) outside of steps."""
    times = trace.events.begin_ps[allocator.events]
    step = int(np.searchsorted(steps.begin_ps, times[row], side="right")) - 1
    if steps.is_window or step < 0 or times[row] >= steps.end_ps[step]:
        return -1, -1
    begin = int(np.searchsorted(times, steps.begin_ps[step]))
    return begin, int(np.searchsorted(times, steps.end_ps[step]))


def find_growth(trace: Trace, allocator: Allocator, steps: Steps) -> tuple[float, str]:
    """How much more is in use after each step than after the one before, where that goes on.

    Returns:
        Bytes per step, and the op that allocates most of what stays; (0, "") where most steps do not
        grow.
    """
    counted = np.flatnonzero(~steps.is_warmup)
    if steps.is_window or counted.size < _GROWING_STEPS:
        return 0.0, ""
    times = trace.events.begin_ps[allocator.events]
    at = np.searchsorted(times, np.append(steps.begin_ps[counted], steps.end_ps[counted[-1]]))
    inside = at > 0
    level = allocator.in_use[at[inside] - 1].astype(np.float64)
    change = np.diff(level)
    if not change.size or (change > 0).mean() < _GROWTH_SHARE:
        return 0.0, ""
    first, last = int(at[0]), int(at[-2])
    rows = np.arange(len(allocator))
    stays = np.flatnonzero(
        allocator.is_allocation
        & (rows >= first)
        & (rows < last)
        & (allocator.until >= len(allocator))
    )
    ops = _texts(trace, "tf_op", allocator.events[stays])
    totals: dict[str, int] = {}
    for row in stays.tolist():
        op = ops.get(int(allocator.events[row]), "")
        totals[op] = totals.get(op, 0) + int(allocator.size[row])
    return float(np.median(change)), max(totals, key=lambda op: totals[op]) if totals else ""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """An allocator's peak, and what it means.

    Attributes:
        allocator: The allocator.
        peak_bytes: The most in use while the trace ran.
        peak_ps: When, for the first time.
        base_bytes: In use between steps: the least at the counted steps' begins; -1 without steps.
        growth_bytes: How much more each step leaves behind; 0 where it does not go on.
        growth_op: The op that allocates most of what stays; "" if none.
        batch_size: Examples per step, if known.
        largest_batch: How many would fit, if what comes and goes in a step grows with the batch and what
            stays does not, up to 95 % of the limit; 0 where it cannot be told.
    """

    allocator: Allocator
    peak_bytes: int
    peak_ps: int
    base_bytes: int
    growth_bytes: float
    growth_op: str
    batch_size: int | None
    largest_batch: int


def measure_memory(
    trace: Trace, allocator: Allocator, steps: Steps, batch_size: int | None
) -> MemoryUse:
    """Find an allocator's peak, what it holds between steps, whether that grows, and what would fit.

    Args:
        trace: The trace.
        allocator: The allocator.
        steps: The steps.
        batch_size: Examples per step, if known.
    """
    row = allocator.peak
    peak = int(allocator.in_use[row])
    growth, op = find_growth(trace, allocator, steps)
    times = trace.events.begin_ps[allocator.events]
    counted = steps.begin_ps[~steps.is_warmup] if not steps.is_window else steps.begin_ps[:0]
    at = np.searchsorted(times, counted)
    at = at[at > 0]
    base = int(allocator.in_use[at - 1].min()) if at.size else -1
    largest = 0
    if batch_size and base >= 0 and peak > base and allocator.is_device and allocator.limit > 0:
        room = _HEADROOM * allocator.limit - base
        largest = max(int(batch_size * room / (peak - base)), 0)
    return MemoryUse(allocator, peak, int(times[row]), base, growth, op, batch_size, largest)
