"""Allocators to what their use means: the peak, what is held between steps, what grows, what would fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.table import Column, Table, of_each, sequence_of
from profnb.core.units import bytes_text, percent_text
from profnb.steps.windows import Steps
from profnb.subjects.memory.allocators import Allocator, texts_of
from profnb.trace.model import Trace

_HEADROOM = 0.95
_GROWING_STEPS, _GROWTH_SHARE = 4, 0.7


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
    ops = texts_of(trace, "tf_op", allocator.events[stays])
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
        peak_ps: When: the first of equal peaks (the official tool: the last in the file).
        base_bytes: In use between steps: the least at the counted steps' begins; -1 without steps.
        growth_bytes: How much more each step leaves behind; 0 where it does not go on.
        growth_op: The op that allocates most of what stays; "" if none.
        batch_size: Examples per step, if known.
        largest_batch: How many would fit, if what comes and goes in a step grows with the batch and what
            stays does not, up to 95 % of the limit; 0 where that is not known.
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


def _positive(name: str) -> Callable[[Sequence[MemoryUse]], list[float]]:
    """One field of each row, NaN where it is not positive."""
    return lambda uses: [
        float(value) if value and value > 0 else np.nan for value in sequence_of(uses, name)
    ]


MEMORY_SUMMARY = Table[Sequence[MemoryUse]](
    "memory_summary",
    "One row per allocator.",
    (
        Column("allocator", of_each("allocator.name"), "the allocator"),
        Column("peak_bytes", of_each("peak_bytes"), "the most in use while the trace ran"),
        Column(
            "peak_time_ms",
            of_each("peak_ps"),
            "when; where it was reached several times, the first time",
            alias="peak_ms",
        ),
        Column(
            "lifetime_peak_bytes",
            _positive("allocator.lifetime_peak"),
            "the most ever in use, before the trace too",
        ),
        Column(
            "base_bytes",
            lambda uses: [float(u.base_bytes) if u.base_bytes >= 0 else np.nan for u in uses],
            "in use between steps",
            "between steps",
        ),
        Column("limit_bytes", _positive("allocator.limit"), "the most that it can give"),
        Column(
            "fragmentation",
            of_each("fragmentation"),
            "at the peak: 0 for one free block, near 1 for many small ones",
            text=percent_text,
        ),
        Column(
            "growth_bytes_per_step",
            of_each("growth_bytes"),
            "how much more each step leaves behind, 0 where that does not go on",
            "growth a step",
            lambda growth: bytes_text(growth) if growth else "none",
        ),
        Column("growth_op", of_each("growth_op"), "the op that allocates most of what stays"),
        Column("batch_size", _positive("batch_size"), "examples per step"),
        Column(
            "largest_batch_size",
            _positive("largest_batch"),
            "how many would fit into 95 % of the limit, an estimate: what comes and goes in a step grows "
            "with the batch, what stays does not",
        ),
    ),
    "What is not known is NaN.",
)
