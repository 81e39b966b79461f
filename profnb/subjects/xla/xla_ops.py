"""HLO instructions that ran to the tables of XLA's ops and of its programs, and its time as a tree.

An op is an instruction that ran as one piece: a fusion, a library call, a copy. Times come from the trace;
operations and bytes from what XLA recorded with the op or, where it did not, from the module's shapes
(``hlo_program``). A program is what XLA calls a module: what each cost to compile, to run and to hold.

A fusion runs what several ops of the framework asked for, as one piece; how long each of them took nobody
can know. In the tree its time is shared out by the operations that each does inside it, or by the elements
that each makes where it does none, and marked as an estimate.
"""

from dataclasses import dataclass
from functools import partial
from math import nan

import numpy as np

from profnb.core.block import Block
from profnb.core.columns import Bools, Floats, Int64s, RowColumns, fraction_of, group, ratio, sum_by
from profnb.core.table import Table, columns_in
from profnb.core.units import PS_PER_S, duration_text, percent_text, rate_text
from profnb.steps.activities import is_compilation
from profnb.steps.nesting import find_parents, self_times
from profnb.steps.streams import by_device_clock, find_executions
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.subjects.xla.hlo_program import IN_FLIGHT, Costs, fused_bodies
from profnb.trace.hlo import HloModule
from profnb.trace.model import Trace

_MOST_ARGUMENTS = 1000
_PARTS_OF_COMPILING = ("FusionCompiler",)  # one kernel of a module, perhaps on a helper thread
_COMPILED_STATS = ("name", "module_name", "hlo_module", "module")
Amounts = dict[str, float]

_BUFFERS = ("argument", "output", "constant", "temporary")
_MOST_OPS_DRAWN = 40
_MOST_PARTS = 4
_DEEPEST_LEVEL = 2


@dataclass(frozen=True, slots=True)
class OpWork(RowColumns):
    """N ops and what each does; NaN for what is not known."""

    occurrences: Int64s  # how often each ran, over all devices, shape (N,)
    self_ps: Int64s  # time in it alone, in all runs, shape (N,)
    flops: Floats  # floating-point operations of one run, shape (N,)
    bytes: Floats  # bytes that one run reads and writes, shape (N,)

    @property
    def flops_per_second(self) -> Floats:
        """Operations that each reached while it ran, shape (N,)."""
        return ratio(self.flops * self.occurrences, self.self_ps / PS_PER_S)

    @property
    def bytes_per_second(self) -> Floats:
        """Bytes that each reached while it ran, shape (N,)."""
        return ratio(self.bytes * self.occurrences, self.self_ps / PS_PER_S)


@dataclass(frozen=True, slots=True)
class XlaOps(OpWork):
    """One row per HLO instruction and side, most self time first."""

    op: tuple[HloOp, ...]  # the instructions
    is_device: Bools  # whether it ran on a device, shape (N,)
    total_ps: Int64s  # time in it and in what it called on the same line, shape (N,)

    @property
    def fraction(self) -> Floats:
        """Each row's share of the self time of all rows, shape (N,); NaN without any."""
        return fraction_of(self.self_ps)


def tabulate_xla(trace: Trace, hlo: HloOps) -> XlaOps:
    """Sum up the HLO instructions that ran."""
    begin, end = by_device_clock(trace, hlo.events)
    offsets = np.searchsorted(hlo.events, trace.lines.offsets)
    event_self_ps = self_times(begin, end, find_parents(end, offsets))
    on_device = trace.is_device_line[trace.lines.of_event[hlo.events]]
    is_run = ~on_device  # a library's call is one run, and may be several kernels on a device
    is_run[on_device] = find_executions(trace, hlo.events[on_device], hlo.code[on_device])
    keys, rows = np.unique(2 * hlo.code + on_device, return_inverse=True)
    total, self_ps = (sum_by(rows, took, keys.size) for took in (end - begin, event_self_ps))
    flops, moved = _costs(trace, hlo, keys // 2)
    order = np.argsort(-self_ps, kind="stable")
    return XlaOps(
        np.bincount(rows[is_run], minlength=keys.size)[order],
        self_ps[order],
        flops[order],
        moved[order],
        tuple(hlo.ops[keys[row] // 2] for row in order),
        (keys % 2 == 1)[order],
        total[order],
    )


def _costs(trace: Trace, hlo: HloOps, codes: Int64s) -> tuple[Floats, Floats]:
    """Operations and bytes of each instruction: as recorded, else from its module's shapes."""
    flops, moved = np.full((2, codes.size), np.nan)
    costs = {number: Costs(module) for number, module in hlo.modules.items()}
    ops = [hlo.ops[code] for code in codes.tolist()]
    for row, op in enumerate(ops):
        if op.row >= 0:
            flops[row] = costs[op.program_id].flops(op.row)
            moved[row] = costs[op.program_id].bytes(op.row)
    for stat, column in (("flops", flops), ("bytes_accessed", moved)):
        recorded = _recorded(trace, hlo, stat)[codes]
        np.copyto(column, recorded, where=recorded > 0)
    moved[np.array([op.category in IN_FLIGHT for op in ops], np.bool_)] = np.nan
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
    "One row per XLA op (an HLO instruction run as one piece) and side, most self time first.",
    columns_in("""
        module = op.module: the XLA program it is of
        program_id = op.program_id: that program's number, -1 if unknown
        hlo_op = op.name: the HLO instruction
        category = op.category: its opcode, or the library that it calls
        op_name = op.op_name: the framework's op that it came from
        op_type: that op's type
        source = op.source: your "file:line" that made the op
        side: "device" or "host"
        occurrences [runs]: how often it ran, over all devices
        total_us: time in it and in what it called
        self_us [own time]: time in it alone
        fraction [share]: of the self time of all rows
        flops: floating-point operations of one run, NaN if not known
        bytes: bytes that one run reads and writes, NaN if not known
        gigaflops_per_second [operations] = flops_per_second: operations that it reached while it ran
        gigabytes_per_second [memory] = bytes_per_second: bytes that it reached while it ran
        """),
    "Operations and bytes are XLA's records, or come from the shapes in the saved program.",
    values={
        "op_type": lambda t: [op.key[1] if op.op_name else "" for op in t.op],
        "side": lambda t: np.where(t.is_device, "device", "host"),
    },
    texts={"gigaflops_per_second": lambda value: rate_text(value or None, "flop/s")},
)


@dataclass(frozen=True, slots=True)
class XlaModules(RowColumns):
    """One row per module (an XLA program) that was compiled or ran, most time first.

    Its columns are those of ``XLA_MODULES``, each of shape (N,), times in picoseconds. -1 where not known.
    """

    module: tuple[str, ...]
    program_id: tuple[int, ...]
    # time of the host in compiling modules of this name; 0 if not while tracing, shape (N,)
    compile_ps: Int64s
    compilations: Int64s
    # runs on one device: of its most frequent instruction of the entry computation; 0 where the trace does
    # not hold the module, shape (N,)
    occurrences: Int64s
    self_ps: Int64s
    instructions: Int64s
    # bytes by kind (argument, output, constant, temporary); None where not saved
    buffers: tuple[dict[str, int] | None, ...]


def tabulate_xla_modules(trace: Trace, hlo: HloOps, ops: XlaOps) -> XlaModules:
    """Sum up modules."""
    compiled = compilations(trace)
    ran = [(op.module, op.program_id) for op in ops.op]
    keys = dict.fromkeys([*ran, *((module.name, at) for at, module in hlo.modules.items())])
    named = {name for name, _ in keys}
    keys |= dict.fromkeys((name, -1) for name in compiled if name not in named)
    rows = {key: row for row, key in enumerate(keys)}
    occurrences, compile_ps, often = np.zeros((3, len(rows)), np.int64)
    self_ps = sum_by(np.array([rows[key] for key in ran], np.int64), ops.self_ps, len(rows))
    plane = trace.lines.plane[trace.lines.of_event[hlo.events]]
    runs, counts = np.unique(np.stack([hlo.code, plane]), axis=1, return_counts=True)
    for code, count in zip(runs[0].tolist(), counts.tolist(), strict=True):
        op = hlo.ops[code]
        saved = hlo.modules.get(op.program_id)
        if saved is not None and op.row >= 0 and saved.computation_of[op.row] == saved.entry:
            at = rows[op.module, op.program_id]
            occurrences[at] = max(occurrences[at], count)
    for (name, _), at in rows.items():
        if name in compiled:  # modules of a name share what is recorded of it
            events = compiled.pop(name)
            compile_ps[at], often[at] = trace.events.duration_ps[events].sum(), len(events)
    listed = list(rows)
    order = np.lexsort((-compile_ps, -self_ps))
    ordered = [hlo.modules.get(listed[row][1]) for row in order]
    return XlaModules(
        tuple(listed[row][0] for row in order),
        tuple(listed[row][1] for row in order),
        compile_ps[order],
        often[order],
        occurrences[order],
        self_ps[order],
        np.array([-1 if m is None else len(m) for m in ordered], np.int64),
        tuple(None if m is None else m.buffers for m in ordered),
    )


def compilations(trace: Trace) -> dict[str, list[int]]:
    """Find the events in which the host compiled, by the module's name.

    Events of compiling nest; the outermost one that names the module counts.
    """
    is_compiling = trace.is_host_event & trace.select_names(
        lambda name: is_compilation(name) and not name.startswith(_PARTS_OF_COMPILING)
    )
    events = np.flatnonzero(is_compiling)
    columns = [trace.stats.texts(stat) for stat in _COMPILED_STATS]
    rows = np.stack([column.of(events).astype(np.int64) for column in columns], axis=1)
    of_module: dict[str, list[int]] = {}
    until: dict[tuple[int, str], int] = {}
    for event, of_event in zip(events.tolist(), rows.tolist(), strict=True):
        named = (c.texts[row] for c, row in zip(columns, of_event, strict=True) if row >= 0)
        name, line = next(named, None), int(trace.lines.of_event[event])
        begin = int(trace.events.begin_ps[event])
        if name is not None and begin >= until.get((line, name), begin):
            until[line, name] = int(trace.events.end_ps[event])
            of_module.setdefault(name, []).append(event)
    return of_module


def argument_shapes(module: HloModule) -> tuple[str, ...]:
    """The arguments of a module as XLA writes them: ``f32[32,10]``, in order."""
    return tuple(module.shapes.text(row) for row in _arguments(module))


def argument_names(module: HloModule) -> tuple[str, ...]:
    """The arguments' names in the function that was compiled, in order; "" where that is not known."""
    return tuple(module.op_names[row] for row in _arguments(module))


def _arguments(module: HloModule) -> list[int]:
    if module.entry < 0:
        return []
    rows = range(*module.offsets[module.entry : module.entry + 2].tolist())
    parameters = [row for row in rows if module.opcodes[row] == "parameter"]
    return sorted(parameters, key=module.parameter_numbers.__getitem__)[:_MOST_ARGUMENTS]


def _buffer(kind: str, modules: XlaModules) -> Floats:
    """Bytes of one kind of buffer, NaN where the module is not saved."""
    return np.array([nan if b is None else b[kind] for b in modules.buffers], np.float64)


XLA_MODULES = Table[XlaModules](
    "xla_modules",
    "One row per XLA program, with the cost of compiling, running and holding it, most self time first.",
    columns_in("""
        module [program]: its name
        program_id: its number, -1 where the trace does not say
        occurrences [runs] >= 1: how often it ran on one device
        self_us [time]: time of its ops
        compilations: how often it was compiled
        compile_ms [compiling] >= 1: host time that took, NaN if it was not compiled while the trace ran
        instructions >= 1: HLO instructions in it
        argument_bytes [arguments]: bytes of what it is given
        output_bytes: bytes of what it gives back
        constant_bytes: bytes of its constants
        temporary_bytes: bytes that it needs while it runs
        """),
    "Instructions and sizes are NaN for a program that the trace lacks.",
    values={f"{kind}_bytes": partial(_buffer, kind) for kind in _BUFFERS},
)


def grow_xla_tree(ops: XlaOps, hlo: HloOps) -> list[Block]:
    """Lay out the longest ops, module by module; what is left over is one block per module.

    Three levels, by role: "module"; "hlo op", "hlo op of no category" and "other hlo ops"; "framework op".
    """
    whole = int(ops.self_ps.sum())
    if not whole:
        return []
    rows_of_module = group(((op.module, op.program_id), row) for row, op in enumerate(ops.op))
    totals = {key: int(ops.self_ps[rows].sum()) for key, rows in rows_of_module.items()}
    blocks: list[Block] = []
    ends = [0.0, 0.0, 0.0]  # where the next block of each level begins

    def add(
        level: int, spent_ps: float, name: str, role: str, about: str = "", remark: str = ""
    ) -> None:
        width = spent_ps / whole
        label = name.rpartition("/")[2] if level == _DEEPEST_LEVEL else name
        hover = f"{name[:160]}{about}: {duration_text(spent_ps)}, {percent_text(width)}{remark}"
        blocks.append(Block(level, ends[level], width, label, hover, role))
        ends[level + 1 :] = [ends[level]] * (_DEEPEST_LEVEL - level)
        ends[level] += width

    for key in sorted(rows_of_module, key=lambda key: -totals[key]):
        left = totals[key]
        add(0, left, key[0], "module")
        for row in rows_of_module[key]:
            op, spent_ps = ops.op[row], int(ops.self_ps[row])
            if row >= _MOST_OPS_DRAWN or not spent_ps:
                continue
            left -= spent_ps
            role = "hlo op" if op.category else "hlo op of no category"
            add(1, spent_ps, op.name, role, f" ({op.category})" if op.category else "")
            for name, share in _parts(op, hlo):  # the framework's ops that it works for
                remark = ", shared out by its operations" if share < 1 else ""
                add(2, share * spent_ps, name, "framework op", remark=remark)
        if left > 0:
            add(1, left, "other ops", "other hlo ops")
    return blocks


def parts_of_fusion(op: HloOp, module: HloModule, costs: Costs) -> tuple[Amounts, bool]:
    """Sum up what each of the framework's ops does inside an instruction, by name.

    Returns:
        Operations and True; elements made and False where none does any operation.
    """
    done: Amounts = {}
    made: Amounts = {}
    for row in (row for body in fused_bodies(module, op.row) for row in body):
        name = module.op_names[row]
        if name and module.opcodes[row] not in ("parameter", "constant"):
            done[name] = done.get(name, 0.0) + costs.flops(row)
            made[name] = made.get(name, 0.0) + float(module.shapes.elements[row])
    return (done, True) if sum(done.values()) > 0 else (made, False)


def _parts(op: HloOp, hlo: HloOps) -> list[tuple[str, float]]:
    """The framework's ops inside one of XLA's, and the share of its time each is given."""
    module = hlo.modules.get(op.program_id) if op.row >= 0 else None
    weights = {} if module is None else parts_of_fusion(op, module, Costs(module))[0]
    whole = sum(weights.values())
    if not whole > 0 or len(weights) < 2:
        return [(op.op_name, 1.0)] if op.op_name else []
    order = sorted(weights, key=lambda name: -weights[name])
    parts = [(name, weights[name] / whole) for name in order[:_MOST_PARTS] if weights[name]]
    rest = 1.0 - sum(share for _, share in parts)
    return [*parts, ("others", rest)] if rest > 0.005 else parts
