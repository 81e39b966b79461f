"""Samples in a Chrome trace to counters: its counter events, and PyTorch's memory records."""

import sys

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s
from profnb.trace.chrome.event_args import ChromeStats
from profnb.trace.chrome.events import RawEvents
from profnb.trace.chrome.writer import ADDED
from profnb.trace.model import Counter

__all__ = ["read_counters"]

_MEMORY_RECORD = "[memory]"
_BYTE_WORDS = ("byte", "memory", "alloc")
_MOST_SAMPLES = 2_000_000
_LARGEST = sys.float_info.max


def read_counters(raw: RawEvents, buffer: Bytes) -> tuple[Counter, ...]:
    """The counters of a trace, on the clock of ``raw.begin_ps``."""
    return (*_sampled(raw, buffer), *_memory_records(raw, buffer))


def _sampled(raw: RawEvents, buffer: Bytes) -> list[Counter]:
    """One counter per name and member of its args."""
    added = raw.categories.index(ADDED) if ADDED in raw.categories else -1
    events = np.flatnonzero(raw.is_counter & (raw.category != added))[:_MOST_SAMPLES]
    samples: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for event in events[np.argsort(raw.begin_ps[events], kind="stable")].tolist():
        for series, value in raw.args_of(buffer, event).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                if abs(value) > _LARGEST:  # infinite, or digits past what a float holds
                    continue
                key = raw.names[raw.name[event]], series
                times, values = samples.setdefault(key, ([], []))
                times.append(int(raw.begin_ps[event]))
                values.append(float(value))
    return [
        _counter(name, series, np.array(times, np.int64), np.array(values, np.float64))
        for (name, series), (times, values) in samples.items()
    ]


def _counter(name: str, series: str, times: Int64s, values: Floats) -> Counter:
    text = f"{name} {series}".lower()
    unit = "bytes" if any(word in text for word in _BYTE_WORDS) else ""
    return Counter(name, series, unit, times, values)


def _memory_records(raw: RawEvents, buffer: Bytes) -> list[Counter]:
    """PyTorch's ``[memory]`` instants: bytes in use per device, as it says or as they add up."""
    if _MEMORY_RECORD not in raw.names:
        return []
    is_record = raw.is_instant & (raw.name == raw.names.index(_MEMORY_RECORD))
    events = np.flatnonzero(is_record)
    begins, ends = raw.args_spans()
    stats = ChromeStats(buffer, begins, ends, {})

    def column(name: str, missing: int) -> Int64s:
        found = stats.integers(name)
        values = np.full(is_record.size, missing, np.int64)
        values[found.events] = found.values.astype(np.int64)
        return values[events]

    device, kind = column("Device Id", -1), column("Device Type", 0)
    change, total = column("Bytes", 0), column("Total Allocated", -1)
    counters = []
    for place in sorted(set(zip(kind.tolist(), device.tolist(), strict=True))):
        own = np.flatnonzero((kind == place[0]) & (device == place[1]))
        own = own[np.argsort(raw.begin_ps[events[own]], kind="stable")]
        said = total[own] >= 0
        values = total[own] if said.all() else np.cumsum(change[own])
        name = f"GPU:{place[1]}" if place[0] else "CPU"
        times = raw.begin_ps[events[own]]
        counters.append(Counter("memory", name, "bytes", times, values.astype(np.float64)))
    return counters
