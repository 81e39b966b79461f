"""HLO instructions that ran to the table of XLA's ops: how long each took, and what it computed and moved.

An op is an instruction that ran as one piece: a fusion, a library call, a copy. Times come from the trace;
operations and bytes from what XLA recorded with the op or, where it did not, from the module's shapes
(``hlo_costs``).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table, sequence_of
from profnb.core.units import rate_text
from profnb.steps.nesting import find_parents, self_times
from profnb.steps.streams import by_device_clock, find_executions
from profnb.subjects.xla.hlo_costs import IN_FLIGHT, Costs
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.trace.model import Trace


@dataclass(frozen=True, slots=True)
class XlaOps:
    """One row per HLO instruction and side, most self time first.

    Attributes:
        op: The instructions.
        is_device: Whether it ran on a device, shape (N,).
        occurrences: How often, over all devices, shape (N,).
        total_ps: Time in it and in what it called on the same line, shape (N,).
        self_ps: Time in it alone, shape (N,).
        flops: Floating-point operations of one run; NaN if not known, shape (N,).
        bytes: Bytes that one run reads and writes; NaN if not known, shape (N,).
    """

    op: tuple[HloOp, ...]
    is_device: Bools
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    flops: Floats
    bytes: Floats

    def __len__(self) -> int:
        return self.occurrences.size

    @property
    def fraction(self) -> Floats:
        """Each row's share of the self time of all rows, shape (N,); NaN without any."""
        whole = int(self.self_ps.sum())
        return self.self_ps / whole if whole else np.full(len(self), np.nan)

    @property
    def flops_per_second(self) -> Floats:
        """Achieved rate while it ran, shape (N,); NaN if not known."""
        return _rate(self.flops * self.occurrences, self.self_ps)

    @property
    def bytes_per_second(self) -> Floats:
        """Achieved rate while it ran, shape (N,); NaN if not known."""
        return _rate(self.bytes * self.occurrences, self.self_ps)


def _rate(amount: Floats, picoseconds: Int64s) -> Floats:
    seconds = np.where(picoseconds > 0, picoseconds, 1) / 1e12
    return np.where(picoseconds > 0, amount / seconds, np.nan)


def tabulate_xla(trace: Trace, hlo: HloOps) -> XlaOps:
    """Sum up the HLO instructions that ran.

    Args:
        trace: The trace.
        hlo: Its HLO instructions.
    """
    begin, end = by_device_clock(trace, hlo.events)
    offsets = np.searchsorted(hlo.events, trace.lines.offsets)
    event_self_ps = self_times(begin, end, find_parents(end, offsets))
    on_device = trace.is_device_line[trace.lines.of_event[hlo.events]]
    is_run = ~on_device  # a library's call is one run, and may be several kernels on a device
    is_run[on_device] = find_executions(trace, hlo.events[on_device], hlo.code[on_device])
    keys, rows = np.unique(2 * hlo.code + on_device, return_inverse=True)
    total, self_ps = (np.zeros(keys.size, np.int64) for _ in range(2))
    np.add.at(total, rows, end - begin)
    np.add.at(self_ps, rows, event_self_ps)
    flops, moved = _costs(trace, hlo, keys // 2)
    order = np.argsort(-self_ps, kind="stable")
    return XlaOps(
        tuple(hlo.ops[keys[row] // 2] for row in order),
        (keys % 2 == 1)[order],
        np.bincount(rows[is_run], minlength=keys.size)[order],
        total[order],
        self_ps[order],
        flops[order],
        moved[order],
    )


def _costs(trace: Trace, hlo: HloOps, codes: Int64s) -> tuple[Floats, Floats]:
    """Operations and bytes of each instruction: as recorded, else from its module's shapes."""
    flops, moved = (np.full(codes.size, np.nan) for _ in range(2))
    costs = {number: Costs(module) for number, module in hlo.modules.items()}
    for row, code in enumerate(codes.tolist()):
        op = hlo.ops[code]
        if op.row >= 0:
            flops[row] = costs[op.program_id].flops(op.row)
            moved[row] = costs[op.program_id].bytes(op.row)
    for stat, column in (("flops", flops), ("bytes_accessed", moved)):
        recorded = _recorded(trace, hlo, stat)
        is_recorded = recorded[codes] > 0
        column[is_recorded] = recorded[codes][is_recorded]
    in_flight = [hlo.ops[code].category in IN_FLIGHT for code in codes.tolist()]
    moved[np.array(in_flight, np.bool_)] = np.nan
    return flops, moved


def _recorded(trace: Trace, hlo: HloOps, stat: str) -> Floats:
    """A cost that XLA wrote with the op's name or its events, per instruction; NaN if none."""
    values = np.full(len(hlo.ops), np.nan)
    by_name = trace.name_stats.integers(stat)
    if len(by_name) and len(hlo):
        of_name = np.full(len(trace.names), np.nan)
        of_name[by_name.events] = by_name.values.astype(np.float64)
        values[hlo.code] = of_name[trace.events.name[hlo.events]]
    by_event = trace.stats.integers(stat)
    code = hlo.codes_of(by_event.events)
    values[code[code >= 0]] = by_event.values[code >= 0].astype(np.float64)
    return values


XLA = Table[XlaOps](
    "xla",
    "One row per XLA op (an HLO instruction that ran as one piece) and side, most self time first.",
    (
        Column("module", lambda t: sequence_of(t.op, "module"), "the XLA program it is of"),
        Column(
            "program_id",
            lambda t: sequence_of(t.op, "program_id"),
            "that program's number, -1 if unknown",
        ),
        Column("hlo_op", lambda t: sequence_of(t.op, "name"), "the HLO instruction"),
        Column(
            "category",
            lambda t: sequence_of(t.op, "category"),
            "its opcode, or the library that it calls",
        ),
        Column(
            "op_name",
            lambda t: sequence_of(t.op, "op_name"),
            "the framework's op that it came from",
        ),
        Column(
            "op_type", lambda t: [op.key[1] if op.op_name else "" for op in t.op], "that op's type"
        ),
        Column(
            "source", lambda t: sequence_of(t.op, "source"), 'your "file:line" that made the op'
        ),
        Column("side", lambda t: np.where(t.is_device, "device", "host"), '"device" or "host"'),
        Column(
            "occurrences", lambda t: t.occurrences, "how often it ran, over all devices", "runs"
        ),
        Column("total_us", lambda t: t.total_ps, "time in it and in what it called"),
        Column("self_us", lambda t: t.self_ps, "time in it alone", "own time"),
        Column("fraction", lambda t: t.fraction, "of the self time of all rows", "share"),
        Column(
            "flops", lambda t: t.flops, "floating-point operations of one run, NaN if not known"
        ),
        Column("bytes", lambda t: t.bytes, "bytes that one run reads and writes, NaN if not known"),
        Column(
            "gigaflops_per_second",
            lambda t: t.flops_per_second,
            "operations that it reached while it ran",
            "operations",
            lambda value: rate_text(value or None, "flop/s"),
        ),
        Column(
            "gigabytes_per_second",
            lambda t: t.bytes_per_second,
            "bytes that it reached while it ran",
            "memory",
        ),
    ),
    "Operations and bytes are as XLA recorded them, or from the shapes in the saved program.",
)
