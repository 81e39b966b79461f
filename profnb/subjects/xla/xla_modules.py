"""XLA's programs (its word is HLO module): what each cost to compile, to run and to hold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table
from profnb.steps.activities import is_compilation
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.subjects.xla.xla_ops import XlaOps
from profnb.trace.hlo import HloModule
from profnb.trace.model import Trace

_MOST_ARGUMENTS = 1000
_PARTS = ("FusionCompiler",)  # one kernel of a module, perhaps on a helper thread
_COMPILED_STATS = ("name", "module_name", "hlo_module", "module")


@dataclass(frozen=True, slots=True)
class XlaModules:
    """One row per module (an XLA program) that was compiled or ran, most time first.

    Attributes:
        module: Names.
        program_id: Ids; -1 where the trace does not say.
        compile_ps: Time of the host in compiling modules of this name; 0 if not while tracing,
            shape (N,).
        compilations: How often a module of this name was compiled, shape (N,).
        occurrences: Runs on one device: of its most frequent instruction of the entry computation; 0
            where the trace does not hold the module, shape (N,).
        self_ps: Time of its ops, shape (N,).
        instructions: Instructions of the module; -1 where the trace does not hold it, shape (N,).
        buffers: Bytes by kind (argument, output, constant, temporary); None where not saved.
    """

    module: tuple[str, ...]
    program_id: tuple[int, ...]
    compile_ps: Int64s
    compilations: Int64s
    occurrences: Int64s
    self_ps: Int64s
    instructions: Int64s
    buffers: tuple[dict[str, int] | None, ...]

    def __len__(self) -> int:
        return self.self_ps.size


def tabulate_xla_modules(trace: Trace, hlo: HloOps, ops: XlaOps) -> XlaModules:
    """Sum up modules.

    Args:
        trace: The trace.
        hlo: Its HLO instructions.
        ops: The table of them.
    """
    keys: dict[tuple[str, int], int] = {}
    for op in ops.op:
        keys.setdefault((op.module, op.program_id), len(keys))
    for program_id, module in hlo.modules.items():
        keys.setdefault((module.name, program_id), len(keys))
    compiled = _compile_times(trace)
    named = {name for name, _ in keys}
    for name in compiled:
        if name not in named:
            keys.setdefault((name, -1), len(keys))
    self_ps, occurrences = (np.zeros(len(keys), np.int64) for _ in range(2))
    for row, op in enumerate(ops.op):
        self_ps[keys[op.module, op.program_id]] += ops.self_ps[row]
    plane = trace.lines.plane[trace.lines.of_event[hlo.events]]
    runs, often = np.unique(np.stack([hlo.code, plane]), axis=1, return_counts=True)
    for code, count in zip(runs[0].tolist(), often.tolist(), strict=True):
        op = hlo.ops[code]
        saved = hlo.modules.get(op.program_id)
        if saved is not None and op.row >= 0 and saved.computation_of[op.row] == saved.entry:
            at = keys[op.module, op.program_id]
            occurrences[at] = max(occurrences[at], count)
    compile_ps, compilations = (np.zeros(len(keys), np.int64) for _ in range(2))
    seen = set()
    for (name, _), at in keys.items():
        if name in compiled and name not in seen:  # modules of a name share what is recorded of it
            seen.add(name)
            compile_ps[at], compilations[at] = compiled[name]
    listed = list(keys)
    order = np.lexsort((-compile_ps, -self_ps))
    ordered = [hlo.modules.get(listed[row][1]) for row in order]
    return XlaModules(
        tuple(listed[row][0] for row in order),
        tuple(listed[row][1] for row in order),
        compile_ps[order],
        compilations[order],
        occurrences[order],
        self_ps[order],
        np.array([-1 if m is None else len(m) for m in ordered], np.int64),
        tuple(None if m is None else m.buffers for m in ordered),
    )


def _compile_times(trace: Trace) -> dict[str, tuple[int, int]]:
    """(host time, how often) of compiling, by the module's name.

    Events of compiling nest; the outermost one that names the module counts.
    """
    is_compiling = trace.is_host_event & trace.select_names(
        lambda name: is_compilation(name) and not name.startswith(_PARTS)
    )
    module_of_event: dict[int, str] = {}
    for stat in _COMPILED_STATS[::-1]:
        column = trace.stats.texts(stat)
        chosen = is_compiling[column.events]
        for event, value in zip(
            column.events[chosen].tolist(), column.values[chosen].tolist(), strict=True
        ):
            module_of_event[event] = column.texts[value]
    times: dict[str, tuple[int, int]] = {}
    until: dict[tuple[int, str], int] = {}
    for event in sorted(module_of_event):
        name = module_of_event[event]
        line = int(trace.lines.of_event[event])
        if int(trace.events.begin_ps[event]) < until.get((line, name), -1):
            continue
        until[line, name] = int(trace.events.end_ps[event])
        spent, often = times.get(name, (0, 0))
        times[name] = spent + int(trace.events.duration_ps[event]), often + 1
    return times


def argument_shapes(module: HloModule) -> tuple[str, ...]:
    """The arguments of a module as XLA writes them: ``f32[32,10]``, in order."""
    return tuple(module.shapes.text(row) for row in _arguments(module))


def argument_names(module: HloModule) -> tuple[str, ...]:
    """The arguments' names in the function that was compiled, in order; "" where that is not known."""
    return tuple(module.op_names[row] for row in _arguments(module))


def _arguments(module: HloModule) -> list[int]:
    if module.entry < 0:
        return []
    first, last = (int(module.offsets[module.entry + more]) for more in (0, 1))
    rows = [row for row in range(first, last) if module.opcodes[row] == "parameter"]
    rows.sort(key=lambda row: int(module.parameter_numbers[row]))
    return rows[:_MOST_ARGUMENTS]


def _if_positive(values: Int64s) -> Floats:
    return np.where(values > 0, values, np.nan)


def _buffer(kind: str) -> Callable[[XlaModules], Floats]:
    """Bytes of one kind of buffer, NaN where the module is not saved."""

    def values(modules: XlaModules) -> Floats:
        sizes = [np.nan if b is None else float(b[kind]) for b in modules.buffers]
        return np.array(sizes, np.float64)

    return values


XLA_MODULES = Table[XlaModules](
    "xla_modules",
    "One row per XLA program: what it cost to compile, to run and to hold; most self time first.",
    (
        Column("module", lambda t: t.module, "its name", "program"),
        Column("program_id", lambda t: t.program_id, "its number, -1 where the trace does not say"),
        Column(
            "occurrences",
            lambda t: _if_positive(t.occurrences),
            "how often it ran on one device",
            "runs",
            alias="executions",
        ),
        Column("self_us", lambda t: t.self_ps, "time of its ops", "time"),
        Column("compilations", lambda t: t.compilations, "how often it was compiled"),
        Column(
            "compile_ms",
            lambda t: _if_positive(t.compile_ps),
            "host time that took, NaN if it was not compiled while the trace ran",
            "compiling",
        ),
        Column("instructions", lambda t: _if_positive(t.instructions), "HLO instructions in it"),
        Column("argument_bytes", _buffer("argument"), "bytes of what it is given", "arguments"),
        Column("output_bytes", _buffer("output"), "bytes of what it gives back"),
        Column("constant_bytes", _buffer("constant"), "bytes of its constants"),
        Column("temporary_bytes", _buffer("temporary"), "bytes that it needs while it runs"),
    ),
    "Instructions and sizes are NaN where the program is not saved in the trace.",
)
