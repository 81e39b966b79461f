"""An allocator's peak and what was alive then, what grows, what would fit.

What was allocated before the trace began has no name: it is what the allocator held less the named blocks,
mostly weights, optimizer slots and data kept on the device. So the parts of the peak always sum to the
allocator's figure. The official tool names at the peak only what was allocated in the same step; it calls the
rest preallocated. Where the same peak is reached several times, in each step say, we take the first in time,
the official tool the last in the file, thread after thread; the bytes are the same.

Of session runs (TF1) each op has what it allocated, and which held what at the peak. As tfprof's view of
bytes has it, requested, peak and residual bytes are sums over allocators, with what the op keeps for good.
Each is the sum of an op's executions in a run, and the mean of the runs.

Source: openxla/xprof xplane_to_memory_profile.cc (a27d00aa); of session runs
tensorflow/core/profiler/internal/tfprof_node.cc, ExecStep::AddMemoryStats (2.21).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.machine.memory_limits import batch_that_fits
from profnb.capture.memory.memory_records import BlockSums
from profnb.core.table import Table, columns_in
from profnb.core.units import MISSING, PS_PER_NS, bytes_text, count_text, percent_text
from profnb.steps.windows import Steps
from profnb.subjects.memory.allocators import UNNAMED, Allocator, step_around, texts_of
from profnb.tf1.nodes import TENSOR_TYPES, GraphStats
from profnb.trace.memory.allocations import BLOCKS
from profnb.trace.model import Trace
from profnb.trace.names import GROUP_ID

UNATTRIBUTED = "(held since before the trace began)"
_HEADROOM = 0.95
_GROWING_STEPS, _GROWTH_SHARE = 4, 0.7
_SUMS = ("total_bytes", "peak_bytes", "live_bytes")  # without what is kept for good
_KEPT, _OUTPUT, _TEMP = "persistent_bytes", "output_bytes", "temp_bytes"


@dataclass(frozen=True, slots=True)
class PeakRow:
    """Blocks that were alive at the peak, of one op, region, type and shape.

    Its fields are the columns of ``MEMORY_PEAK``; ``op_name`` is ``UNATTRIBUTED`` for what has no name.
    """

    allocator: str
    op_name: str
    region: str
    dtype: str
    shape: str
    bytes: int
    occurrences: int
    is_persistent: bool
    time_ps: int


def tabulate_peak(
    trace: Trace, allocator: Allocator, steps: Steps, row: int | None = None
) -> list[PeakRow]:
    """List what was alive when most was in use, most bytes first; the rows sum to the bytes in use.

    An allocator with 30 MB in use at its peak, of which the trace saw two blocks of 8 MB and 2 MB being
    allocated and not yet freed, has three rows: those two, and 20 MB that are ``UNATTRIBUTED``.

    Events without an allocator's name may be of several, whose blocks cannot be told apart: then all is
    one row. A deallocation that was not recorded leaves blocks that cannot have been there: the oldest go.
    """
    row = allocator.peak if row is None else row
    time_ps = int(trace.events.begin_ps[allocator.events[row]])
    alive = allocator.alive_at(row) if allocator.name != UNNAMED else allocator.events[:0]
    newest_first = np.cumsum(allocator.size[alive][::-1])[::-1]
    alive = alive[newest_first <= allocator.in_use[row]]
    events = allocator.events[alive]
    begin, end = step_around(trace, allocator, steps, row)
    lasting = (begin >= 0) & (alive < begin) & (allocator.until[alive] >= end)
    op = [allocator.op_names[at] or "(no op)" for at in alive.tolist()]
    region, shape = (texts_of(trace, stat, events) for stat in ("region_type", "shape"))
    kinds = trace.stats.integers("data_type").of(events)
    dtype = [TENSOR_TYPES[k] if 0 < k < len(TENSOR_TYPES) else "" for k in kinds.tolist()]
    sums = BlockSums()
    numbers = (lasting, allocator.size[alive], trace.stats.integers(BLOCKS).of(events, 1))
    columns = (op, region, dtype, shape, *(column.tolist() for column in numbers))
    for *key, size, count in zip(*columns, strict=True):
        sums.count(tuple(key), size, count)
    if rest := int(allocator.in_use[row]) - sum(size for size, _ in sums.values()):
        sums.count((UNATTRIBUTED, "", "", "", True), rest, 0)
    rows = [
        PeakRow(allocator.name, op_name, region, dtype, shape, *size_and_count, lasts, time_ps)
        for (op_name, region, dtype, shape, lasts), size_and_count in sums.items()
    ]
    return sorted(rows, key=lambda peak_row: -peak_row.bytes)


MEMORY_PEAK = Table[Sequence[PeakRow]](
    "memory_peak",
    "One row per op, region, type and shape alive when most memory was in use, per allocator, most bytes "
    "first.",
    columns_in("""
        allocator: the allocator
        op_name [op]: the op that allocated it
        region: "output", "temp", "persist", "dynamic", or "" where the trace does not say
        dtype: its type
        shape: its dimensions
        bytes: bytes of all its blocks
        occurrences [blocks]: how many blocks; 0 where nobody counted them, or from before the trace
        is_persistent: whether it outlives the step of the peak on both sides
        time_ms: when the allocator had most in use, the first time if there were several
        """),
    "The rows of an allocator sum to the bytes in use. Memory from before the trace has no name and a row "
    "alone.",
    texts={
        "region": lambda region: region or MISSING,
        "occurrences": lambda blocks: count_text(blocks) if blocks else MISSING,
    },
)


def find_memory_growth(trace: Trace, allocator: Allocator, steps: Steps) -> tuple[float, str]:
    """Measure how much more is in use after each step than after the one before, where that goes on.

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
    is_kept = allocator.is_allocation & (allocator.until >= len(allocator))
    stays = first + np.flatnonzero(is_kept[first:last])
    totals: Counter[str] = Counter()
    for row, size in zip(stays.tolist(), allocator.size[stays].tolist(), strict=True):
        totals[allocator.op_names[row]] += size
    return float(np.median(change)), max(totals, key=totals.__getitem__, default="")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """An allocator's peak, and what it means; its fields are columns of ``MEMORY_SUMMARY``.

    Not known: -1 for ``base_bytes``, the least in use at the counted steps' begins; 0 for the largest batch.
    """

    allocator: Allocator
    peak_bytes: int
    peak_ps: int
    base_bytes: int
    growth_bytes: float
    growth_op: str
    batch_size: int | None
    largest_batch: int

    @property
    def fragmentation(self) -> float:
        """The allocator's fragmentation at the peak; NaN if no event says."""
        return float(self.allocator.fragmentation[self.allocator.peak])


def measure_memory(
    trace: Trace, allocator: Allocator, steps: Steps, batch_size: int | None
) -> MemoryUse:
    """Find an allocator's peak, what it holds between steps, whether that grows, and what would fit."""
    row = allocator.peak
    peak = int(allocator.in_use[row])
    growth, op = find_memory_growth(trace, allocator, steps)
    times = trace.events.begin_ps[allocator.events]
    counted = steps.begin_ps[~steps.is_warmup] if not steps.is_window else steps.begin_ps[:0]
    at = np.searchsorted(times, counted)
    at = at[at > 0]
    base = int(allocator.in_use[at - 1].min()) if at.size else -1
    largest = 0
    if batch_size and base >= 0 and peak > base and allocator.is_device and allocator.limit > 0:
        each = (peak - base) / batch_size
        largest = batch_that_fits(_HEADROOM * allocator.limit, base, each)
    return MemoryUse(allocator, peak, int(times[row]), base, growth, op, batch_size, largest)


MEMORY_SUMMARY = Table[Sequence[MemoryUse]](
    "memory_summary",
    "One row per allocator.",
    columns_in("""
        allocator = allocator.name: the allocator
        peak_bytes: the most in use while the trace ran
        peak_time_ms = peak_ps: when; where it was reached several times, the first time
        lifetime_peak_bytes = allocator.lifetime_peak >= 1: the most ever in use, before the trace too
        base_bytes [between steps] >= 0: in use between steps
        limit_bytes = allocator.limit >= 1: the most that it can give
        fragmentation: at the peak: 0 for one free block, near 1 for many small ones
        growth_bytes_per_step [growth a step] = growth_bytes: how much more each step leaves behind, 0 where
            that does not go on
        growth_op: the op that allocates most of what stays
        batch_size >= 1: examples per step
        largest_batch_size = largest_batch >= 1: how many would fit into 95 % of the limit, an estimate:
            what comes and goes in a step grows with the batch, what stays does not
        """),
    "Unknown values are NaN.",
    texts={
        "fragmentation": percent_text,
        "growth_bytes_per_step": lambda growth: bytes_text(growth) if growth else "none",
    },
)


@dataclass(frozen=True, slots=True)
class OpMemory:
    """Memory that one op allocates in a run; its fields are the columns of ``OP_MEMORY``."""

    op_name: str
    op_type: str
    occurrences: int
    requested_bytes: float
    peak_bytes: float
    residual_bytes: float
    output_bytes: float
    temp_bytes: float


def tabulate_op_memory(trace: Trace) -> list[OpMemory]:
    """Tabulate the ops that allocated, most requested bytes first; none without session runs."""
    if not isinstance(trace.stats, GraphStats):
        return []
    stats, every = trace.stats, np.arange(len(trace.events))
    columns = {key: stats.integers(key).of(every, 0) for key in (*_SUMS, _KEPT, _OUTPUT, _TEMP)}
    for key in _SUMS:
        columns[key] = columns[key] + columns[_KEPT]
    names, types = stats.texts("name"), stats.texts("op")
    name, type_of = names.of(every), types.of(every)
    allocates = np.any([column != 0 for column in columns.values()], axis=0) & (name >= 0)
    runs = max(np.unique(stats.integers(GROUP_ID).values).size, 1)
    ops, first, op = np.unique(name[allocates], return_index=True, return_inverse=True)
    sums = [np.bincount(op, columns[key][allocates]) / runs for key in (*_SUMS, _OUTPUT, _TEMP)]
    kinds = [types.texts[row] if row >= 0 else "" for row in type_of[allocates][first].tolist()]
    op_names = [names.texts[row] for row in ops.tolist()]
    rows = map(OpMemory, op_names, kinds, np.bincount(op).tolist(), *(one.tolist() for one in sums))
    return sorted(rows, key=lambda row: -row.requested_bytes)


def tabulate_run_peaks(trace: Trace) -> list[PeakRow]:
    """List who held memory when most of an allocator was in use, in the run with most, by allocator."""
    if not isinstance(trace.stats, GraphStats):
        return []
    rows = [
        PeakRow(
            allocator, op, "", "", "", sum(blocks), len(blocks), is_persistent=False,
            time_ps=(when_us * 1000 - trace.epoch_ns) * PS_PER_NS
        )
        for allocator, (when_us, blocks_of) in sorted(trace.stats.peaks().items())
        for op, blocks in blocks_of.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.allocator, -row.bytes))


OP_MEMORY = Table[Sequence[OpMemory]](
    "op_memory",
    "One row per op of session runs (TF1) that allocated memory, most first.",
    columns_in("""
        op_name [op]: the op
        op_type: its type
        occurrences: executions in all runs
        requested_bytes: what it allocated in a run, freed or not
        peak_bytes: what its executions held at most
        residual_bytes: what was left when they ended
        output_bytes: what their outputs hold, passed on ones too
        temp_bytes: scratch space
        """),
    "Sums over an op's executions in a run, means over runs, as tfprof's view of bytes.",
)
