"""XLA's part of a trace: what its programs cost to compile, and where their time goes.

Programs are HLO modules; an op is an instruction that ran as one piece: a fusion, a library call, a copy.
Times come from the trace; operations and bytes from what XLA recorded with the op or, where it did not,
from the program's shapes (``hlo_costs``).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, look_up
from profnb.steps.compilation import is_compilation
from profnb.steps.nesting import find_parents, self_times
from profnb.subjects.xla.hlo_costs import IN_FLIGHT, Costs
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.trace.hlo import HloModule
from profnb.trace.model import Trace

__all__ = ["XlaModules", "XlaOps", "argument_shapes", "tabulate_xla", "tabulate_xla_modules"]

_LONGEST_PS = 1 << 61
_MOST_ARGUMENTS = 1000
_PARTS = ("FusionCompiler",)  # one kernel of a program, perhaps on a helper thread
_COMPILED_STATS = ("name", "module_name", "hlo_module", "module")


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


@dataclass(frozen=True, slots=True)
class XlaModules:
    """One row per program that was compiled or ran, most time first.

    Attributes:
        module: Names.
        program_id: Ids; -1 where the trace does not say.
        compile_ps: Time of the host in compiling programs of this name; 0 if not while tracing,
            shape (N,).
        compilations: How often a program of this name was compiled, shape (N,).
        executions: Runs on one device: of its most frequent instruction of the entry computation; 0
            where the trace does not hold the program, shape (N,).
        self_ps: Time of its ops, shape (N,).
        instructions: Instructions of the program; -1 where the trace does not hold it, shape (N,).
        buffers: Bytes by kind (argument, output, constant, temporary); None where not saved.
    """

    module: tuple[str, ...]
    program_id: tuple[int, ...]
    compile_ps: Int64s
    compilations: Int64s
    executions: Int64s
    self_ps: Int64s
    instructions: Int64s
    buffers: tuple[dict[str, int] | None, ...]

    def __len__(self) -> int:
        return self.self_ps.size


def tabulate_xla(trace: Trace, hlo: HloOps) -> XlaOps:
    """Sum up the HLO instructions that ran.

    Args:
        trace: The trace.
        hlo: Its HLO instructions.
    """
    begin, end = _by_own_clock(trace, hlo.events)
    offsets = np.searchsorted(hlo.events, trace.lines.offsets)
    own = self_times(begin, end, find_parents(end, offsets))
    on_device = trace.is_device_line[trace.lines.of_event[hlo.events]]
    keys, rows = np.unique(2 * hlo.code + on_device, return_inverse=True)
    total, self_ps = (np.zeros(keys.size, np.int64) for _ in range(2))
    np.add.at(total, rows, end - begin)
    np.add.at(self_ps, rows, own)
    flops, moved = _costs(trace, hlo, keys // 2)
    order = np.argsort(-self_ps, kind="stable")
    return XlaOps(
        tuple(hlo.ops[keys[row] // 2] for row in order),
        (keys % 2 == 1)[order],
        np.bincount(rows, minlength=keys.size)[order],
        total[order],
        self_ps[order],
        flops[order],
        moved[order],
    )


def _by_own_clock(trace: Trace, events: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends, by the device's own clock where it is recorded.

    A TPU's events are placed on the host's clock, which is set anew now and then: their durations jump,
    those of ``device_duration_ps`` do not.
    """
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    offsets = trace.stats.integers("device_offset_ps")
    durations = trace.stats.integers("device_duration_ps")
    own_begin = look_up(offsets.events, offsets.values.astype(np.int64), events)
    own = look_up(durations.events, durations.values.astype(np.int64), events)
    known = (own_begin >= 0) & (own >= 0) & (own < _LONGEST_PS) & (own_begin < _LONGEST_PS)
    return np.where(known, own_begin, begin), np.where(known, own_begin + own, end)


def _costs(trace: Trace, hlo: HloOps, codes: Int64s) -> tuple[Floats, Floats]:
    """Operations and bytes of each instruction: as recorded, else from its program's shapes."""
    flops, moved = (np.full(codes.size, np.nan) for _ in range(2))
    costs = {program: Costs(module) for program, module in hlo.programs.items()}
    for row, code in enumerate(codes.tolist()):
        op = hlo.ops[code]
        if op.row >= 0:
            flops[row] = costs[op.program_id].flops(op.row)
            moved[row] = costs[op.program_id].bytes(op.row)
    for stat, column in (("flops", flops), ("bytes_accessed", moved)):
        recorded = _recorded(trace, hlo, stat)
        known = recorded[codes] > 0
        column[known] = recorded[codes][known]
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


def tabulate_xla_modules(trace: Trace, hlo: HloOps, ops: XlaOps) -> XlaModules:
    """Sum up programs.

    Args:
        trace: The trace.
        hlo: Its HLO instructions.
        ops: The table of them.
    """
    keys: dict[tuple[str, int], int] = {}
    for op in ops.op:
        keys.setdefault((op.module, op.program_id), len(keys))
    for program_id, module in hlo.programs.items():
        keys.setdefault((module.name, program_id), len(keys))
    compiled = _compile_times(trace)
    named = {name for name, _ in keys}
    for name in compiled:
        if name not in named:
            keys.setdefault((name, -1), len(keys))
    own, executions = (np.zeros(len(keys), np.int64) for _ in range(2))
    for row, op in enumerate(ops.op):
        own[keys[op.module, op.program_id]] += ops.self_ps[row]
    plane = trace.lines.plane[trace.lines.of_event[hlo.events]]
    runs, often = np.unique(np.stack([hlo.code, plane]), axis=1, return_counts=True)
    for code, count in zip(runs[0].tolist(), often.tolist(), strict=True):
        op = hlo.ops[code]
        program = hlo.programs.get(op.program_id)
        if program is not None and op.row >= 0 and program.computation_of[op.row] == program.entry:
            at = keys[op.module, op.program_id]
            executions[at] = max(executions[at], count)
    compile_ps, compilations = (np.zeros(len(keys), np.int64) for _ in range(2))
    seen = set()
    for (name, _), at in keys.items():
        if name in compiled and name not in seen:  # several programs of a name share what is known
            seen.add(name)
            compile_ps[at], compilations[at] = compiled[name]
    listed = list(keys)
    order = np.lexsort((-compile_ps, -own))
    programs = [hlo.programs.get(listed[row][1]) for row in order]
    return XlaModules(
        tuple(listed[row][0] for row in order),
        tuple(listed[row][1] for row in order),
        compile_ps[order],
        compilations[order],
        executions[order],
        own[order],
        np.array([-1 if p is None else len(p) for p in programs], np.int64),
        tuple(None if p is None else p.buffers for p in programs),
    )


def _compile_times(trace: Trace) -> dict[str, tuple[int, int]]:
    """(host time, how often) of compiling, by the program's name.

    Events of compiling nest; the outermost one that names the program counts.
    """
    is_compiling = trace.is_host_event & trace.select_names(
        lambda name: is_compilation(name) and not name.startswith(_PARTS)
    )
    found: dict[int, str] = {}
    for stat in _COMPILED_STATS[::-1]:
        column = trace.stats.texts(stat)
        chosen = is_compiling[column.events]
        for event, value in zip(
            column.events[chosen].tolist(), column.values[chosen].tolist(), strict=True
        ):
            found[event] = column.texts[value]
    times: dict[str, tuple[int, int]] = {}
    until: dict[tuple[int, str], int] = {}
    for event in sorted(found):
        name = found[event]
        line = int(trace.lines.of_event[event])
        if int(trace.events.begin_ps[event]) < until.get((line, name), -1):
            continue
        until[line, name] = int(trace.events.end_ps[event])
        spent, often = times.get(name, (0, 0))
        times[name] = spent + int(trace.events.duration_ps[event]), often + 1
    return times


def argument_shapes(module: HloModule) -> tuple[str, ...]:
    """The arguments of a program as XLA writes them: ``f32[32,10]``, in order."""
    if module.entry < 0:
        return ()
    first, last = (int(module.offsets[module.entry + more]) for more in (0, 1))
    rows = [row for row in range(first, last) if module.opcodes[row] == "parameter"]
    rows.sort(key=lambda row: int(module.parameter_numbers[row]))
    return tuple(module.shapes.text(row) for row in rows[:_MOST_ARGUMENTS])
