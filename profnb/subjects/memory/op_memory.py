"""Memory of session runs by op (TF1): what each allocated, and which held what at the peak.

As tfprof's view of bytes has it: requested, peak and residual bytes are sums over allocators, with what the
op keeps for good. Each is the sum of an op's executions in a run, and the mean of the runs.

Source: tensorflow/core/profiler/internal/tfprof_node.cc, ExecStep::AddMemoryStats (2.21).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.table import Table, field_column
from profnb.core.units import PS_PER_NS
from profnb.subjects.memory.peak import PeakRow
from profnb.tf1.nodes import GraphStats
from profnb.trace.model import Trace
from profnb.trace.names import GROUP_ID

_SUMS = ("total_bytes", "peak_bytes", "live_bytes")  # without what is kept for good
_KEPT, _OUTPUT, _TEMP = "persistent_bytes", "output_bytes", "temp_bytes"


@dataclass(frozen=True, slots=True)
class OpMemory:
    """What one op allocates in a run.

    Attributes:
        op_name: The op.
        op_type: Its type.
        occurrences: Executions, in all runs.
        requested_bytes: What it allocated, freed or not.
        peak_bytes: What its executions held at most.
        residual_bytes: What was left of that when they ended.
        output_bytes: What their outputs hold, their own or passed on.
        temp_bytes: Scratch space.
    """

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
    type_of = type_of[allocates][first]
    rows = [
        OpMemory(
            names.texts[ops[row]],
            types.texts[type_of[row]] if type_of[row] >= 0 else "",
            int(count),
            *values,
        )
        for row, (count, *values) in enumerate(
            zip(np.bincount(op), *(one.tolist() for one in sums), strict=True)
        )
    ]
    return sorted(rows, key=lambda row: -row.requested_bytes)


def tabulate_run_peaks(trace: Trace) -> list[PeakRow]:
    """List who held memory when most of an allocator was in use, in the run with most, by allocator."""
    if not isinstance(trace.stats, GraphStats):
        return []
    rows = [
        PeakRow(
            allocator, op, "", "", "", sum(blocks), len(blocks), is_persistent=False,
            time_ps=(when_us * 1000 - trace.epoch_ns) * PS_PER_NS,
        )
        for allocator, (when_us, blocks_of) in sorted(trace.stats.peaks().items())
        for op, blocks in blocks_of.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.allocator, -row.bytes))


OP_MEMORY = Table[Sequence[OpMemory]](
    "op_memory",
    "One row per op of session runs (TF1) that allocated memory, most first.",
    (
        field_column("op_name", "the op", "op"),
        field_column("op_type", "its type"),
        field_column("occurrences", "executions in all runs"),
        field_column("requested_bytes", "what it allocated in a run, freed or not", "requested"),
        field_column("peak_bytes", "what its executions held at most", "peak"),
        field_column("residual_bytes", "what was left when they ended", "residual"),
        field_column("output_bytes", "what their outputs hold, passed on ones too", "output"),
        field_column("temp_bytes", "scratch space"),
    ),
    "Sums over an op's executions in a run, means over runs, as tfprof's view of bytes.",
)
