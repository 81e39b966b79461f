"""What was alive when an allocator had most in use, by op, region, type and shape.

What was allocated before the trace began has no name: it is what the allocator held less the named blocks,
mostly weights, optimizer slots and data kept on the device. So the parts of the peak always sum to the
allocator's figure. The official tool names at the peak only what was allocated in the same step; it calls the
rest preallocated. Where the same peak is reached several times, in each step say, we take the first in time,
the official tool the last in the file, thread after thread; the bytes are the same.

Source: openxla/xprof xplane_to_memory_profile.cc (a27d00aa).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.table import Column, Table, of_each
from profnb.core.units import MISSING, count_text
from profnb.steps.windows import Steps
from profnb.subjects.memory.allocators import (
    UNNAMED,
    Allocator,
    step_around,
    texts_of,
)
from profnb.trace.model import Trace

UNATTRIBUTED = "(held since before the trace began)"
# TensorFlow's DataType (tensorflow/core/framework/types.proto).
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 20: "resource",
    21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2", 25: "float8_e4m3fn",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PeakRow:
    """What was alive at the peak, of one op, region, type and shape.

    Attributes:
        allocator: The allocator's name.
        op_name: Who allocated it; ``UNATTRIBUTED`` for what has no name.
        region: "output", "temp", "persist", "dynamic"; "" if no event says.
        dtype: Its type; "" if no event says.
        shape: Its dimensions, ``[512,30,30,32]``; "" if no event says.
        bytes: In all blocks together.
        occurrences: How many blocks; 0 for what has no name.
        is_persistent: Whether it was there before the step of the peak began and after it ended.
        time_ps: When the peak was.
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
    """What was alive when most was in use, most bytes first; the rows sum to the bytes in use.

    An allocator with 30 MB in use at its peak, of which the trace saw two blocks of 8 MB and 2 MB being
    allocated and not yet freed, has three rows: those two, and 20 MB that are ``UNATTRIBUTED``.

    Events without an allocator's name may be of several, whose blocks cannot be told apart: then all is
    one row. A deallocation that was not recorded leaves blocks that cannot have been there: the oldest go.

    Args:
        trace: The trace.
        allocator: The allocator.
        steps: The steps; what outlives the step of the peak on both sides is persistent.
        row: Another moment than the peak.
    """
    row = allocator.peak if row is None else row
    time_ps = int(trace.events.begin_ps[allocator.events[row]])
    alive = allocator.alive_at(row) if allocator.name != UNNAMED else allocator.events[:0]
    newest_first = np.cumsum(allocator.size[alive][::-1])[::-1]
    alive = alive[newest_first <= allocator.in_use[row]]
    begin, end = step_around(trace, allocator, steps, row)
    texts = {
        stat: texts_of(trace, stat, allocator.events[alive])
        for stat in ("tf_op", "region_type", "shape")
    }
    dtypes = trace.stats.integers("data_type").of(allocator.events)
    sums: dict[tuple[str, str, str, str, bool], list[int]] = {}
    for at in alive.tolist():
        event = int(allocator.events[at])
        lasting = bool(begin >= 0 and at < begin and allocator.until[at] >= end)
        key = (
            texts["tf_op"].get(event, ""), texts["region_type"].get(event, ""),
            _DTYPES.get(int(dtypes[at]), ""), texts["shape"].get(event, ""), lasting,
        )  # fmt: skip
        blocks = sums.setdefault(key, [0, 0])
        blocks[0] += int(allocator.size[at])
        blocks[1] += 1
    rows = [
        PeakRow(
            allocator.name, op or "(no op)", region, dtype, shape, total, often, lasting, time_ps
        )
        for (op, region, dtype, shape, lasting), (total, often) in sums.items()
    ]
    rest = int(allocator.in_use[row]) - sum(peak_row.bytes for peak_row in rows)
    if rest:
        unattributed = (allocator.name, UNATTRIBUTED, "", "", "", rest, 0, True, time_ps)
        rows.append(PeakRow(*unattributed))
    return sorted(rows, key=lambda peak_row: -peak_row.bytes)


MEMORY_PEAK = Table[Sequence[PeakRow]](
    "memory_peak",
    "One row per op, region, type and shape alive when most memory was in use, per allocator, most bytes "
    "first.",
    (
        Column("allocator", of_each("allocator"), "the allocator"),
        Column("op_name", of_each("op_name"), "the op that allocated it", "op"),
        Column(
            "region",
            of_each("region"),
            '"output", "temp", "persist", "dynamic", or "" where the trace does not say',
            text=lambda region: region or MISSING,
        ),
        Column("dtype", of_each("dtype"), "its type"),
        Column("shape", of_each("shape"), "its dimensions"),
        Column("bytes", of_each("bytes"), "bytes of all its blocks", "bytes"),
        Column(
            "occurrences",
            of_each("occurrences"),
            "how many blocks; 0 for what was allocated before the trace began",
            "blocks",
            lambda blocks: count_text(blocks) if blocks else MISSING,
        ),
        Column(
            "is_persistent",
            of_each("is_persistent"),
            "whether it outlives the step of the peak on both sides",
        ),
        Column(
            "time_ms",
            of_each("time_ps"),
            "when the allocator had most in use, the first time if there were several",
        ),
    ),
    "The rows of an allocator sum to the bytes in use; what was allocated before the trace began has no name "
    "and stands in a row of its own.",
)
