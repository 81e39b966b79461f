"""Tables of memory."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from profnb.core.units import PS_PER_MS
from profnb.steps.windows import Steps
from profnb.subjects.memory.allocators import Allocator, find_allocators, tabulate_peak
from profnb.subjects.memory.samples import RESERVED, sample_memory
from profnb.subjects.memory.use import MemoryUse
from profnb.trace.model import Trace

__all__ = ["memory_frame", "memory_peak_frame", "memory_summary_frame"]


def memory_frame(trace: Trace, allocators: Sequence[Allocator]) -> pd.DataFrame:
    """One row per allocator and sample of its memory."""
    columns = ["allocator", "time_ms", "in_use_bytes", "reserved_bytes", "fragmentation"]
    parts = [
        pd.DataFrame(
            {
                "allocator": allocator.name,
                "time_ms": trace.events.begin_ps[allocator.events] / PS_PER_MS,
                "in_use_bytes": allocator.in_use.astype(np.float64),
                "reserved_bytes": np.where(allocator.reserved > 0, allocator.reserved, np.nan),
                "fragmentation": allocator.fragmentation,
            }
        )
        for allocator in allocators
    ]
    if not parts:
        samples = [*trace.counters, *sample_memory(trace, find_allocators(trace))]
        reserved = {c.series: c.value for c in samples if c.name == RESERVED}
        parts = [
            pd.DataFrame(
                {
                    "allocator": c.series,
                    "time_ms": c.time_ps / PS_PER_MS,
                    "in_use_bytes": c.value,
                    "reserved_bytes": reserved.get(c.series, np.full(c.value.size, np.nan)),
                    "fragmentation": np.nan,
                }
            )
            for c in samples
            if c.unit == "bytes" and c.name != RESERVED
        ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def memory_peak_frame(trace: Trace, allocators: Sequence[Allocator], steps: Steps) -> pd.DataFrame:
    """One row per op, region, type and shape alive at each allocator's peak."""
    rows = [
        {
            "allocator": allocator.name,
            **asdict(row),
            "time_ms": float(trace.events.begin_ps[allocator.events[allocator.peak]]) / PS_PER_MS,
        }
        for allocator in allocators
        for row in tabulate_peak(trace, allocator, steps)
    ]
    columns = [
        "allocator", "op_name", "region", "dtype", "shape", "bytes", "occurrences", "is_persistent",
        "time_ms",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def memory_summary_frame(uses: Sequence[MemoryUse]) -> pd.DataFrame:
    """One row per allocator."""

    def known(value: float) -> float:
        return float(value) if value > 0 else np.nan

    rows = [
        {
            "allocator": use.allocator.name,
            "peak_bytes": use.peak_bytes,
            "peak_ms": use.peak_ps / PS_PER_MS,
            "lifetime_peak_bytes": known(use.allocator.lifetime_peak),
            "base_bytes": float(use.base_bytes) if use.base_bytes >= 0 else np.nan,
            "limit_bytes": known(use.allocator.limit),
            "fragmentation": float(use.allocator.fragmentation[use.allocator.peak]),
            "growth_bytes_per_step": use.growth_bytes,
            "growth_op": use.growth_op,
            "batch_size": float(use.batch_size) if use.batch_size else np.nan,
            "largest_batch_size": known(use.largest_batch),
        }
        for use in uses
    ]
    columns = [
        "allocator", "peak_bytes", "peak_ms", "lifetime_peak_bytes", "base_bytes", "limit_bytes",
        "fragmentation", "growth_bytes_per_step", "growth_op", "batch_size", "largest_batch_size",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)
