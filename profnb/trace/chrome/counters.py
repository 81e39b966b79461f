"""Samples in a Chrome trace to counters: its counter events, and PyTorch's memory records."""

import sys

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s
from profnb.trace.chrome.event_args import ChromeStats
from profnb.trace.chrome.events import RawEvents
from profnb.trace.chrome.writer import ADDED
from profnb.trace.model import Counter

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
    """PyTorch's ``[memory]`` instants: bytes in use per device.

    The total is taken where every record has it; else changes are added up: +100, +50, -100 bytes are
    100, 150, 50 bytes in use.
    """
    if _MEMORY_RECORD not in raw.names:
        return []
    is_record = raw.is_instant & (raw.name == raw.names.index(_MEMORY_RECORD))
    events = np.flatnonzero(is_record)
    begins, ends = raw.args_spans()
    stats = ChromeStats(buffer, begins, ends, {})

    def column(name: str, missing: int) -> Int64s:
        stat = stats.integers(name)
        values = np.full(is_record.size, missing, np.int64)
        values[stat.events] = stat.values.astype(np.int64)
        return values[events]

    device, kind = column("Device Id", -1), column("Device Type", 0)
    change, total = column("Bytes", 0), column("Total Allocated", -1)
    counters = []
    for device_type, device_id in sorted(set(zip(kind.tolist(), device.tolist(), strict=True))):
        records = np.flatnonzero((kind == device_type) & (device == device_id))
        records = records[np.argsort(raw.begin_ps[events[records]], kind="stable")]
        has_total = total[records] >= 0
        values = total[records] if has_total.all() else np.cumsum(change[records])
        name = f"GPU:{device_id}" if device_type else "CPU"
        times = raw.begin_ps[events[records]]
        counters.append(Counter("memory", name, "bytes", times, values.astype(np.float64)))
    return counters
