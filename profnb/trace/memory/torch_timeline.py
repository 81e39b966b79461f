"""PyTorch's memory timeline (``export_memory_timeline``) to a ``Trace``: bytes by kind of tensor, over time.

A ``.json`` or ``.json.gz`` has the bytes of each kind at each microsecond of a change, a ``.raw.json.gz``
each change by itself, in nanoseconds. As in PyTorch's own picture, what is in use is the sum over the kinds,
after all changes of a moment. No device or line is told, so a kind stands where an allocator has an op.

Source: torch/profiler/_memory_profiler.py, ``MemoryProfileTimeline`` (2.11, where it is deprecated).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.units import PS_PER_NS
from profnb.trace.chrome.event_args import parse_value
from profnb.trace.memory.allocations import Allocations
from profnb.trace.model import Counter, Trace
from profnb.trace.nvidia.records import trace_of

# In the order of _CATEGORY_TO_COLORS, whose last is a tensor of no known kind.
KINDS = (
    "parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients", "autograd detail",
    "unknown kind",
)  # fmt: skip
_BEGIN = re.compile(
    rb"\s*\[\s*\[\s*(?:-?\d|\])"
)  # a list of lists of numbers; Chrome's lists hold objects
_MOST_TIMELINE_BYTES, _MOST_MOMENTS = 256 << 20, 1_000_000
_LAST_MOMENT_NS, _MOST_IN_USE = 1 << 61, 1 << 55


def is_memory_timeline(head: bytes) -> bool:
    """Tell whether JSON begins as a list of lists of numbers."""
    return _BEGIN.match(head) is not None


def read_memory_timeline(buffer: Bytes, source: str) -> Trace:
    """Read a memory timeline, of bytes by kind or of each change.

    Args:
        buffer: The whole file, unpacked.
        source: Its name, for messages.

    Raises:
        TraceFormatError: It is none, is damaged, or tells of no memory.
    """
    whole = parse_value(buffer.tobytes()) if buffer.size <= _MOST_TIMELINE_BYTES else []
    if not whole:
        raise TraceFormatError(
            "An empty or cut-off memory timeline of PyTorch, or more than "
            f"{_MOST_TIMELINE_BYTES / 1e6:,.0f} MB. Export fewer steps."
        )
    match whole:
        case [[*moments], [[*_], *_] as rows]:
            times, held, blocks = _summed(moments, rows)
        case _:
            times, held, blocks = _changes(whole)
    if held.size and float(np.abs(held).max()) * len(KINDS) > _MOST_IN_USE:
        raise TraceFormatError(
            "A memory timeline of more bytes than any device has. Export the timeline again."
        )
    held, blocks = np.maximum(held, 0), np.maximum(blocks, 0)
    before = np.vstack([np.zeros_like(held[:1]), held[:-1]])
    moment, kind = np.nonzero(held != before)
    if not moment.size:
        raise TraceFormatError(
            "A memory timeline without an allocation. Export the device that works, of a profile with "
            "record_shapes, profile_memory and with_stack."
        )
    is_last = np.append(moment[1:] != moment[:-1], True)  # of what changes at one moment
    records = Allocations(
        "PyTorch", 0, times[moment], np.where(held, held, -before)[moment, kind],
        np.where(is_last, held.sum(axis=1)[moment], -1), kind, [KINDS[one] for one in kind.tolist()],
        blocks[moment, kind],
    ).records()  # fmt: skip
    trace = trace_of(source, "PyTorch's memory timeline", [records])
    since = (times - times[moment[0]])[moment[0] :] * PS_PER_NS
    counters = [
        Counter("held", name, "bytes", since, column[moment[0] :].astype(np.float64))
        for name, column in zip(KINDS, held.T, strict=True)
        if column.any()
    ]
    return replace(trace, counters=tuple(counters))


def _integers(rows: object, width: int) -> Int64s:
    """Give rows of as many integers each as an array, shape (N, width)."""
    listed = rows if isinstance(rows, list) else [None]
    is_whole = all(
        isinstance(row, list)
        and len(row) == width
        and all(type(one) is int and abs(one) < _LAST_MOMENT_NS for one in row)
        for row in listed
    )
    if not is_whole or len(listed) > _MOST_MOMENTS:
        raise TraceFormatError(
            f"No memory timeline of PyTorch, or more than {_MOST_MOMENTS:,} changes. profnb opens what "
            "`export_memory_timeline` wrote."
        )
    return np.array(listed, np.int64).reshape(-1, width)


def _summed(times: Sequence[object], rows: object) -> tuple[Int64s, Int64s, Int64s]:
    """Read the bytes of each kind by moment: moments in ns, and bytes and blocks, each (moments, kinds)."""
    times_us = _integers([[one] for one in times], 1)[:, 0]
    held = _integers(rows, 1 + len(KINDS))[:, 1:]  # a picture's lower edge comes first
    if times_us.size != len(held) or times_us.max(initial=0) >= _LAST_MOMENT_NS // 1000:
        raise TraceFormatError(
            "A memory timeline with other times than sizes. Export the timeline again."
        )
    order = np.argsort(times_us, kind="stable")
    return times_us[order] * 1000, held[order], np.zeros_like(held)


def _changes(rows: object) -> tuple[Int64s, Int64s, Int64s]:
    """Add up the changes of each kind; what was there before has the time -1, and comes first."""
    table = _integers(rows, 4)
    table = table[np.argsort(table[:, 0], kind="stable")]
    times, _, size, kind = table.T
    if (
        not ((kind >= 0) & (kind < len(KINDS))).all()
        or np.abs(size).sum(dtype=np.float64) > _MOST_IN_USE
    ):
        raise TraceFormatError(
            "A memory timeline with a kind or size that no tensor has. Export the timeline again."
        )
    changes = np.zeros((len(table), len(KINDS)), np.int64)
    changes[np.arange(len(table)), kind] = size
    recorded = times[times >= 0]
    times = np.maximum(times, recorded.min() if recorded.size else 0)
    last = np.flatnonzero(np.append(np.diff(times) != 0, True))
    return times[last], np.cumsum(changes, axis=0)[last], np.cumsum(np.sign(changes), axis=0)[last]
