"""The table of memory."""

import numpy as np
import pandas as pd

from profnb.analysis.samples import RESERVED, find_samples
from profnb.trace.model import Trace

__all__ = ["memory_frame"]

_PS_PER_MS = 1e9


def memory_frame(trace: Trace) -> pd.DataFrame:
    """One row per allocator and sample of its memory."""
    samples = [*trace.counters, *find_samples(trace)]
    reserved = {c.series: c.value for c in samples if c.name == RESERVED}
    parts = [
        pd.DataFrame(
            {
                "allocator": c.series,
                "time_ms": c.time_ps / _PS_PER_MS,
                "in_use_bytes": c.value,
                "reserved_bytes": reserved.get(c.series, np.full(c.value.size, np.nan)),
            }
        )
        for c in samples
        if c.unit == "bytes" and c.name != RESERVED
    ]
    columns = ["allocator", "time_ms", "in_use_bytes", "reserved_bytes"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
