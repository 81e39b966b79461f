"""Events to the HLO instructions they ran, and those to the framework's ops.

XLA's events name their instruction (``hlo_op``) and its module, XLA's word for a program (``hlo_module``,
``program_id``): kernels on a GPU's streams, thunks on the threads of a CPU. On a TPU the event's own name is
the instruction's text, ``%fusion.3 = f32[8,128] fusion(...)``. Where the trace holds the module itself, that
tells which op of the framework the instruction came from and which source line of the user's. An instruction
without a name of its own, as fusions often are, takes that of its root, else of whatever inside it has one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from profnb.capture.source.user_code import is_user_file
from profnb.core.columns import Bools, Int64s, RowColumns, distinct_rows, look_up
from profnb.steps.streams import copy_directions, raw_device_lines
from profnb.subjects.xla.hlo_program import PRODUCTS, Served, fused_bodies
from profnb.trace.hlo import HloModule, program_of, read_hlo_modules
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID, HLO_MODULE, XLA_OPS_LINE, is_collective

_LONGEST_OPERATION = 200
_PRODUCT_CALLS = ("gemm", "matmul", "conv", "dot")
# Bits of the float types among PrimitiveType (xla_data.proto).
_FLOAT_BITS = {
    10: 16, 11: 32, 12: 64, 15: 32, 16: 16, 18: 64, **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), 8)
}  # fmt: skip
# Ops that exchange between devices themselves: JAX's, and TensorFlow's.
_EXCHANGING = re.compile(r"p(sum|mean|max|min|permute|broadcast)|all_|reduce_scatter|Collective")
# Where the framework's own code made an op, which tells nothing about the user's.
_FRAMEWORK_FILES = re.compile(r"(tensorflow/python|site-packages|dist-packages)/")
GRAPH = "command_buffer"  # what the graphs' names begin with
_FUSION = "fusion"
_LIBRARY_CALLS = frozenset({"custom-call", "convolution", "dot", "fft", "sort"})
_UNNAMED = re.compile(r"[^A-Za-z0-9_]")
_LAST_NUMBERS = re.compile(r"(_\d+)+$")


@dataclass(frozen=True, slots=True)
class HloOp:
    """One instruction that ran."""

    module: str  # its module's name
    program_id: int  # its module's number, or -1 if the trace does not say
    name: str  # its own name
    row: int = -1  # its row in the module, or -1 where the trace does not hold that
    category: str = ""  # its opcode, what a call calls, or XLA's own category; "" if unknown
    op_name: str = ""  # the framework's op; "" if unknown
    op_type: str = ""  # that op's type; "" if unknown
    source: str = ""  # "file:line" of the user's code; "" if unknown
    # where the framework's op is not known, an op of the scope that it works for all the same; "" if
    # that is not certain
    served: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(op name, op type) for tables of ops; the instruction's own where the op is not known.

        So it is where the compiler made devices exchange what an op has computed: that is not the op.
        """
        scope, _, last = self.op_name.rpartition("/")
        if not self.op_name or self.is_exchange:
            return self.name, self.category
        return self.op_name, self.op_type or (last if scope else "")

    @property
    def is_exchange(self) -> bool:
        """True where it exchanges between devices, and the op that it is for does not."""
        last = self.op_name.rpartition("/")[2]
        return is_collective(self.name) and not _EXCHANGING.match(last)


@dataclass(frozen=True)
class HloOps(RowColumns):
    """The events of a trace that ran HLO instructions."""

    events: Int64s  # their indices, ascending, shape (N,)
    code: Int64s  # row of ``ops`` for each, shape (N,)
    ops: tuple[HloOp, ...]  # the distinct instructions
    # the modules the trace holds, by ``program_id``
    modules: dict[int, HloModule] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()  # a sentence for each module that could not be read

    def codes_of(self, events: Int64s) -> Int64s:
        """The row of ``ops`` for each of some events, or -1."""
        return look_up(self.events, self.code, events)


NO_HLO = HloOps(np.empty(0, np.int64), np.empty(0, np.int64), ())


def width_of_hlo(hlo: HloOps, op: HloOp) -> tuple[str, bool]:
    """Give the width of the numbers an instruction computes with, and whether it multiplies matrices.

    A product is as wide as what it multiplies, whatever it adds up in; other instructions as the widest
    floats they read or write.

    Returns:
        "8-bit", "16-bit", "32-bit", "64-bit", or "unknown" where the trace does not hold the module.
    """
    module = hlo.modules.get(op.program_id)
    if module is None or op.row < 0:
        return "unknown", False
    product = _product_of(module, op.row)
    rows = module.operands_of(product) if product >= 0 else [*module.operands_of(op.row), op.row]
    kinds = (int(module.shapes.element_type[row]) for row in rows if row >= 0)
    widest = max((_FLOAT_BITS.get(kind, 0) for kind in kinds), default=0)
    return f"{widest}-bit" if widest else "unknown", product >= 0


def _product_of(module: HloModule, row: int) -> int:
    """The product of matrices or convolution that an instruction is or contains, or -1."""
    target = module.targets[row].lower()
    if module.opcodes[row] in PRODUCTS or any(word in target for word in _PRODUCT_CALLS):
        return row
    inside = (inner for body in fused_bodies(module, row) for inner in body)
    return next((inner for inner in inside if module.opcodes[inner] in PRODUCTS), -1)


def find_hlo_ops(trace: Trace) -> HloOps:
    """Find every event that ran an HLO instruction."""
    modules, complaints = read_hlo_modules(trace)
    rows: dict[_Instruction, int] = {}
    events, numbers = [], []
    for ran, row, instructions in (_from_stats(trace, modules), _from_names(trace)):
        events.append(ran)
        distinct = [rows.setdefault(one, len(rows)) for one in instructions]
        numbers.append(np.array(distinct, np.int64)[row])
    all_events = np.concatenate(events)
    order = np.argsort(all_events, kind="stable")
    served: dict[int, Served] = {}
    ops = tuple(_describe(*one, modules, served) for one in rows)
    ops = _with_recorded_categories(trace, ops)
    return HloOps(
        all_events[order], np.concatenate(numbers)[order], ops, modules, tuple(complaints)
    )


_Instruction = tuple[str, int, str]
"""(module, its number, instruction)."""
_Ran = tuple[Int64s, Int64s, list[_Instruction]]
"""Events, the row of each, distinct instructions."""


def _from_stats(trace: Trace, programs: dict[int, HloModule]) -> _Ran:
    """Events that carry ``hlo_op``."""
    names = trace.stats.texts("hlo_op")
    if not len(names):
        return names.events, names.events, []
    work = trace.lines.spread(raw_device_lines(trace) | trace.is_host_line)
    launches = trace.stats.integers(CORRELATION_ID).events
    launches = launches[trace.is_host_event[launches]]  # they set the instruction going elsewhere
    work[launches] = False
    chosen = work[names.events]
    events, name = names.events[chosen], names.values[chosen].astype(np.int64)
    modules = trace.stats.texts(HLO_MODULE)
    module = modules.of(events).astype(np.int64)
    program = trace.stats.integers("program_id").of(events)
    in_graph = np.array([text.startswith(GRAPH) for text in names.texts], np.bool_)[name]
    instruction = find_instructions_of_graphs(trace, events, in_graph, program, programs)
    keys, rows = distinct_rows(module, program, name, instruction)
    listed = [
        (
            modules.texts[module_row] if module_row >= 0 else "",
            _program_id(program_id),
            programs[_program_id(program_id)].names[row] if row >= 0 else names.texts[name_row],
        )
        for module_row, program_id, name_row, row in keys
    ]
    return events, rows, listed


def _program_id(bits: int) -> int:
    """An id of 64 bits as the names of modules write it; -1 stays "not recorded"."""
    return bits & (1 << 64) - 1 if bits != -1 else -1


def _instruction_of(text: str) -> str:
    """The instruction that an event of a TPU's is named after: ``%fusion.3 = f32[8] fusion(...)``."""
    return text.partition(" = ")[0].removeprefix("%")[:_LONGEST_OPERATION]


def _from_names(trace: Trace) -> _Ran:
    """Events of a TPU core's line of ops; their names' stats tell the module."""
    lines = trace.lines.names.rows_where(lambda name: name == XLA_OPS_LINE)
    events = trace.lines.events_of(lines & raw_device_lines(trace))
    if not events.size:
        return events, events, []
    modules = {number: name for name, number in filter(None, map(program_of, trace.names.texts))}
    names, rows = np.unique(trace.events.name[events], return_inverse=True)
    programs = trace.name_stats.integers("program_id").of(names.astype(np.int64))
    listed = [
        (modules.get(program, ""), program, _instruction_of(trace.names[row]))
        for row, program in zip(names.tolist(), map(_program_id, programs.tolist()), strict=True)
    ]
    return events, rows, listed


def _describe(
    module_name: str, program_id: int, name: str, modules: dict[int, HloModule],
    served: dict[int, Served],
) -> HloOp:  # fmt: skip
    module = modules.get(program_id)
    row = -1 if module is None else module.row_of.get(name, -1)
    if module is None or row < 0:
        return HloOp(module_name, program_id, name)
    origin, category = _origin(module, row), module.targets[row] or module.opcodes[row]
    op = HloOp(module_name or module.name, program_id, name, row, category)
    if origin < 0:
        if program_id not in served:
            served[program_id] = Served(module)
        return replace(op, served=served[program_id].op_name(row))
    file, line = module.source_files[origin], module.source_lines[origin]
    is_users = line > 0 and file and not _FRAMEWORK_FILES.search(file) and is_user_file(file)
    source = f"{file}:{line}" if is_users else ""
    op_name, op_type = module.op_names[origin], module.op_types[origin]
    return replace(op, op_name=op_name, op_type=op_type, source=source)


def _origin(module: HloModule, row: int) -> int:
    """The instruction that tells where this one comes from: itself, its root, or what is inside it."""
    rows = [row]
    for body in module.called_by(row):
        if body >= 0:
            first, last = module.offsets[body : body + 2].tolist()
            rows += [int(module.roots[body]), *range(last - 1, first - 1, -1)]
    return next((inner for inner in rows if inner >= 0 and module.op_names[inner]), -1)


def _with_recorded_categories(trace: Trace, ops: tuple[HloOp, ...]) -> tuple[HloOp, ...]:
    """Add what the stats of event names tell of instructions whose module is not in the trace."""
    categories = trace.name_stats.texts("hlo_category")
    if not len(categories) or all(op.row >= 0 for op in ops):
        return ops
    names = trace.name_stats.texts("tf_op")
    recorded: dict[str, tuple[str, str]] = {}
    columns = categories.events, categories.values, names.of(categories.events)
    for row, category, op in zip(*(column.tolist() for column in columns), strict=True):
        op_name = names.texts[op].rstrip(":") if op >= 0 else ""
        recorded[_instruction_of(trace.names[row])] = categories.texts[category], op_name
    missing = (op.row < 0 and op.name in recorded for op in ops)
    return tuple(
        HloOp(op.module, op.program_id, op.name, -1, *recorded[op.name]) if is_missing else op
        for op, is_missing in zip(ops, missing, strict=True)
    )


def find_instructions_of_graphs(
    trace: Trace,
    events: Int64s,
    in_graph: Bools,
    program: Int64s,
    programs: Mapping[int, HloModule],
) -> Int64s:
    """Find the instruction of each event that names a graph.

    ``in_graph`` tells which do; ``program`` is each one's program, as 64 bits.

    Returns:
        Rows of the programs' instructions, -1 for other events and where it is not certain, shape (N,).
    """
    rows = np.flatnonzero(in_graph)
    rows = rows[trace.is_device_line[trace.lines.of_event[events[rows]]]]
    rows = rows[copy_directions(trace, events[rows]) < 0]
    instruction = np.full(events.size, -1, np.int64)
    launch = trace.stats.integers(CORRELATION_ID).of(events[rows]).astype(np.int64)
    order = np.lexsort((trace.events.begin_ps[events[rows]], launch))
    rows, launch = rows[order], launch[order]
    instructions_of: dict[tuple[int, ...], Int64s | int] = {}  # every launch of a graph is alike
    for kernels in np.split(rows, np.flatnonzero(np.diff(launch)) + 1):
        module = programs.get(_program_id(int(program[kernels[0]]))) if kernels.size else None
        if module is None:
            continue
        names = trace.events.name[events[kernels]].tolist()
        key = (module.program_id, *names)
        if key not in instructions_of:
            texts = [trace.names[name] for name in names]
            placed = [_place(module, schedule, texts) for schedule in module.schedules]
            most = max((exact for exact, _ in placed), default=0)
            best = [rows for exact, rows in placed if exact == most > 0]
            instructions_of[key] = best[0] if len(best) == 1 else -1
        instruction[kernels] = instructions_of[key]
    return instruction


def _place(module: HloModule, schedule: Int64s, kernels: Sequence[str]) -> tuple[int, Int64s]:
    """Place the kernels of one launch, in the order of their begins, in a schedule.

    Returns:
        How many have their instruction's name, 0 where they do not fit; and the rows of the program's
        instructions, -1 where that is not certain, shape (N,).
    """
    instruction = np.full(len(kernels), -1, np.int64)
    opcodes = [module.opcodes[row] for row in schedule.tolist()]
    fusions = [at for at, opcode in enumerate(opcodes) if opcode == _FUSION]
    names = [_UNNAMED.sub("_", module.names[schedule[at]]) for at in fusions]
    bases = {_LAST_NUMBERS.sub("", name) for name in names}
    of_fusion = [at for at, kernel in enumerate(kernels) if _LAST_NUMBERS.sub("", kernel) in bases]
    exact, first = _first_fusion([kernels[at] for at in of_fusion], names)
    if not exact:
        return 0, instruction
    placed = fusions[first : first + len(of_fusion)]
    instruction[of_fusion] = schedule[placed]
    ends = [-1, *of_fusion, len(kernels)]
    around = [fusions[first - 1] if first else -1, *placed, *fusions[first + len(of_fusion) :][:1]]
    around += [len(opcodes)] * (len(ends) - len(around))
    for (begin, end), (first, last) in zip(pairwise(ends), pairwise(around), strict=False):
        between = range(begin + 1, end)
        calls = [at for at in range(first + 1, last) if opcodes[at] in _LIBRARY_CALLS]
        if len(calls) in (1, len(between)):
            instruction[list(between)] = schedule[calls]
    return exact, instruction


def _first_fusion(kernels: Sequence[str], names: Sequence[str]) -> tuple[int, int]:
    """Place kernels in a row among the fusions: (how many of them have the very name, the first's place).

    Returns:
        0 and -1 where they do not fit, or fit in several places alike.
    """
    bases, wanted = ([_LAST_NUMBERS.sub("", one) for one in texts] for texts in (names, kernels))
    count = len(kernels)
    starts = [at for at in range(len(names) - count + 1) if bases[at : at + count] == wanted]
    exact = [sum(map(str.__eq__, names[at : at + count], kernels)) for at in starts]
    most = max(exact, default=0)
    return (most, starts[exact.index(most)]) if count and exact.count(most) == 1 else (0, -1)
