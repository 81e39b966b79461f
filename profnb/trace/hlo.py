"""An XLA program as the profiler saved it: an ``HloProto``, read into columns.

The profiler puts one for each program that ran into the plane ``/host:metadata``, as a stat of an entry
named ``module(program id)``. Instructions of all computations stand one after another; what each computes
stays in the file, where ``subjects.xla.hlo_program`` reads it for the few instructions that it costs.

Source of the field numbers: openxla/xla xla/service/hlo.proto and xla/xla_data.proto (5a3e9fa3).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from profnb.core.columns import Bools, Bytes, Floats, Int64s, look_up
from profnb.core.errors import TraceFormatError
from profnb.trace.model import StringTable, Trace
from profnb.trace.wire import Messages

_STATS = ("Hlo Proto", "hlo_proto")
_PROTO_MODULE, _PROTO_BUFFERS = 1, 3
_MODULE_NAME, _MODULE_COMPUTATIONS, _MODULE_ENTRY, _MODULE_SCHEDULE, _MODULE_FRAMES = 1, 3, 6, 7, 17
_COMPUTATION_NAME, _COMPUTATION_INSTRUCTIONS = 1, 2
_COMPUTATION_ID, _COMPUTATION_ROOT, _COMPUTATION_IS_FUSION = 5, 6, 7
_NAME, _OPCODE, _SHAPE, _METADATA, _PARAMETER_NUMBER = 1, 2, 3, 7, 9
WINDOW, CONVOLUTION, DOT, _TARGET = 15, 16, 30, 28
_ID, _OPERANDS, _CALLED, _BACKEND_CONFIG, _BATCH_GROUPS = 35, 36, 38, 43, 58
_META_OP_TYPE, _META_OP_NAME, _META_FILE, _META_LINE, _META_FRAME = 1, 2, 3, 4, 15
_ELEMENT_TYPE, _DIMENSIONS, _TUPLE_PARTS = 2, 3, 4
_BUFFERS, _HEAPS, _LOCATION_ID, _FREE, _SHARE = 1, 4, 4, 1, 2  # of the assignment of buffers
_MOST_COMPUTATIONS, _MOST_INSTRUCTIONS, _MOST_SHAPES = 1_000_000, 4_000_000, 16_000_000
_DEEPEST_TUPLE = 8
_PROGRAM = re.compile(r"(.*)\((\d{1,20})\)", re.DOTALL)

# Bits of an element by PrimitiveType (xla_data.proto).
_BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16,
    18: 128, 19: 8, 20: 8, 21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 26: 2, 27: 2, 28: 8, 29: 8, 30: 1, 31: 1,
    32: 4, 33: 8
}  # fmt: skip

_NAMES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16",
    11: "f32", 12: "f64", 13: "tuple", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn"
}  # fmt: skip


@dataclass(frozen=True)
class Shapes:
    """N shapes.

    Attributes:
        element_type: ``PrimitiveType``; 13 for a tuple, shape (N,).
        offsets: Shape i has the dimensions ``dimensions[offsets[i]:offsets[i + 1]]``, shape (N + 1,).
        dimensions: Sizes.
        bytes: Size in memory without padding; a tuple's is that of its parts, shape (N,).
        elements: How many elements, 1 for a scalar; a tuple's are those of its first part, shape (N,).
    """

    element_type: Int64s
    offsets: Int64s
    dimensions: Int64s
    bytes: Floats
    elements: Floats

    def of(self, row: int) -> list[int]:
        """Give the dimensions of one shape."""
        return self.dimensions[self.offsets[row] : self.offsets[row + 1]].tolist()

    def text(self, row: int) -> str:
        """Write a shape as XLA does: ``f32[32,10]``."""
        kind = _NAMES.get(int(self.element_type[row]), "?")
        return f"{kind}[{','.join(map(str, self.of(row)))}]"


@dataclass(frozen=True)
class HloModule:
    """One program: I instructions in C computations.

    Attributes:
        name: The module's name.
        program_id: The id that events of this program carry.
        buffer: The bytes it was read from.
        computation_names: Shape (C,).
        offsets: Computation c owns instructions ``offsets[c]:offsets[c + 1]``.
        roots: The instruction whose value each computation returns, or -1, shape (C,).
        is_fused: Whether a computation is the inside of a fusion, shape (C,).
        entry: The computation that runs first, or -1.
        schedules: The instructions of the entry, then of others (bodies of loops), in the order in which they
            run; the entry's as the file has them where it does not say.
        names: Instructions' names.
        opcodes: ``fusion``, ``dot``, ``custom-call``, ...
        op_types: Type of the framework's op an instruction came from; may be "".
        op_names: Its name; may be "".
        source_files: Where the user's code made it; may be "".
        targets: What a ``custom-call`` calls.
        configs: The backend's own words about an instruction, often JSON.
        source_lines: Line of the source file, 0 if unknown, shape (I,).
        parameter_numbers: Of ``parameter`` instructions, shape (I,).
        batch_groups: Of convolutions, at least 1, shape (I,).
        operand_offsets: Instruction i uses ``operands[operand_offsets[i]:operand_offsets[i + 1]]``.
        operands: Instructions.
        called_offsets: Likewise for ``called``.
        called: Computations.
        shapes: What instructions produce.
        parts: The fields ``DOT``, ``CONVOLUTION`` and ``WINDOW`` of each instruction.
        buffers: Bytes by kind ("argument", "output", "constant", "temporary"); None where not saved.
        ids: What the assignment of buffers calls the instructions, shape (I,).
        assignment: The assignment of buffers as it was saved.
    """

    name: str
    program_id: int
    buffer: Bytes
    computation_names: StringTable
    offsets: Int64s
    roots: Int64s
    is_fused: Bools
    entry: int
    schedules: tuple[Int64s, ...]
    names: StringTable
    opcodes: StringTable
    op_types: StringTable
    op_names: StringTable
    source_files: StringTable
    targets: StringTable
    configs: StringTable
    source_lines: Int64s
    parameter_numbers: Int64s
    batch_groups: Int64s
    operand_offsets: Int64s
    operands: Int64s
    called_offsets: Int64s
    called: Int64s
    shapes: Shapes
    parts: dict[int, Messages]
    buffers: dict[str, int] | None
    ids: Int64s
    assignment: Messages

    def __len__(self) -> int:
        return self.source_lines.size

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The instruction of each name; outside fusions where a name stands twice."""
        order = np.argsort(~self.is_fused[self.computation_of], kind="stable").tolist()
        return {self.names[row]: row for row in order}

    @cached_property
    def computation_of(self) -> Int64s:
        """The computation of each instruction, shape (I,)."""
        return np.repeat(np.arange(len(self.computation_names)), np.diff(self.offsets))

    @cached_property
    def temporaries(self) -> list[tuple[int, int]]:
        """The instruction, or -1, and the bytes of each temporary that is there when they take most."""
        logical = self.assignment.split(_BUFFERS, "LogicalBuffer")
        buffers, sizes = logical.numbers(1, 2)
        rows = _rows_of(self.ids, logical.inner(3, "Location").numbers(_LOCATION_ID)[0])
        made_by = dict(zip(buffers.tolist(), rows.tolist(), strict=True))
        size_of = dict(zip(buffers.tolist(), np.maximum(sizes, 0).tolist(), strict=True))
        events = self.assignment.split(_HEAPS, "HeapSimulatorTrace").split(1, "HeapSimulatorEvent")
        columns = np.stack(events.numbers(1, 2, 5), axis=1)
        alive: list[int] = []
        for heap in np.split(columns, events.offsets[1:-1]):
            totals = [total for total, _ in _simulate(heap.tolist(), size_of)]
            peak = totals.index(max(totals)) if totals else 0
            states = islice(_simulate(heap.tolist(), size_of), peak, None)
            alive += next((list(users) for _, users in states), [])
        return [(made_by.get(one, -1), size_of.get(one, 0)) for one in alive]

    def operands_of(self, row: int) -> list[int]:
        """Give the instructions that one uses, in order."""
        return self.operands[self.operand_offsets[row] : self.operand_offsets[row + 1]].tolist()

    def called_by(self, row: int) -> list[int]:
        """Give the computations that an instruction calls."""
        return self.called[self.called_offsets[row] : self.called_offsets[row + 1]].tolist()


def program_of(entry: str) -> tuple[str, int] | None:
    """Split ``module(program id)`` in two."""
    match = _PROGRAM.fullmatch(entry)
    return (match[1], int(match[2])) if match else None


def read_hlo_modules(trace: Trace) -> tuple[dict[int, HloModule], list[str]]:
    """Read the programs saved in a trace.

    Returns:
        Programs by id, and a sentence for each that could not be read.
    """
    modules: dict[int, HloModule] = {}
    complaints = []
    for stat in _STATS:
        for row, blob in trace.name_stats.blobs(stat):
            program = program_of(trace.names[row])
            if program is None or program[1] in modules:
                continue
            try:
                modules[program[1]] = read_hlo_module(blob, *program)
            except TraceFormatError as error:
                name = program[0][:100]
                complaints.append(f"The XLA program {name} in the trace could not be read: {error}")
    return modules, complaints


def read_hlo_module(buffer: Bytes, name: str, program_id: int = 0) -> HloModule:
    """Read one ``HloProto``."""
    proto = Messages.whole(buffer, "HloProto")
    fields = proto.read((), [_PROTO_MODULE, _PROTO_BUFFERS])
    module = proto.within(fields[_PROTO_MODULE], "HloModule")
    head = module.read([_MODULE_ENTRY], [_MODULE_NAME])
    computations = module.split(_MODULE_COMPUTATIONS, "HloComputation").at_most(
        _MOST_COMPUTATIONS, "computations", "program"
    )
    parts = computations.read(
        [_COMPUTATION_ID, _COMPUTATION_ROOT, _COMPUTATION_IS_FUSION], [_COMPUTATION_NAME]
    )
    instructions = computations.split(_COMPUTATION_INSTRUCTIONS, "HloInstruction").at_most(
        _MOST_INSTRUCTIONS, "instructions", "program"
    )
    table = instructions.read(
        [_PARAMETER_NUMBER, _ID, _BATCH_GROUPS],
        [_NAME, _OPCODE, _SHAPE, _METADATA, WINDOW, CONVOLUTION, _TARGET, DOT, _BACKEND_CONFIG],
    )
    metadata = instructions.within(table[_METADATA], "OpMetadata").read(
        [_META_LINE, _META_FRAME], [_META_OP_TYPE, _META_OP_NAME, _META_FILE]
    )
    _place_in_files(module, metadata)
    ids, computation_ids, owner = table[_ID][0], parts[_COMPUTATION_ID][0], instructions.parents
    operand_offsets, operands = instructions.split_numbers(_OPERANDS)
    called_offsets, called = instructions.split_numbers(_CALLED)
    entry = int(_rows_of(computation_ids, head[_MODULE_ENTRY][0])[0])
    schedules = {
        owned: _rows_within(ids, owner, running, np.full(running.size, owned))
        for owned, running in _read_schedules(module, computation_ids)
    }
    offsets = instructions.offsets
    in_file = np.arange(*offsets[entry : entry + 2]) if entry >= 0 else ids[:0]
    first = schedules.pop(entry, in_file)

    assignment = proto.within(fields[_PROTO_BUFFERS], "BufferAssignment")

    def strings(fields: dict[int, Int64s], field: int) -> StringTable:
        return StringTable(buffer, *fields[field])

    return HloModule(
        name=strings(head, _MODULE_NAME)[0] or name,
        program_id=program_id,
        buffer=buffer,
        computation_names=strings(parts, _COMPUTATION_NAME),
        offsets=offsets,
        roots=_rows_within(ids, owner, parts[_COMPUTATION_ROOT][0], np.arange(len(computations))),
        is_fused=parts[_COMPUTATION_IS_FUSION][0] != 0,
        entry=entry,
        schedules=tuple(rows[rows >= 0] for rows in (first, *schedules.values())),
        names=strings(table, _NAME),
        opcodes=strings(table, _OPCODE),
        op_types=strings(metadata, _META_OP_TYPE),
        op_names=strings(metadata, _META_OP_NAME),
        source_files=strings(metadata, _META_FILE),
        targets=strings(table, _TARGET),
        configs=strings(table, _BACKEND_CONFIG),
        source_lines=metadata[_META_LINE][0],
        parameter_numbers=table[_PARAMETER_NUMBER][0],
        batch_groups=np.maximum(table[_BATCH_GROUPS][0], 1),
        operand_offsets=operand_offsets,
        operands=_rows_within(ids, owner, operands, np.repeat(owner, np.diff(operand_offsets))),
        called_offsets=called_offsets,
        called=_rows_of(computation_ids, called),
        shapes=_read_shapes(instructions.within(table[_SHAPE], "Shape")),
        parts={
            field: instructions.within(table[field], kind)
            for field, kind in (
                (DOT, "DotDimensionNumbers"), (CONVOLUTION, "ConvolutionDimensionNumbers"),
                (WINDOW, "Window")
            )
        },
        buffers=_read_buffers(assignment),
        ids=ids,
        assignment=assignment
    )  # fmt: skip


def _read_schedules(module: Messages, computation_ids: Int64s) -> list[tuple[int, Int64s]]:
    """Read computations and the ids of their instructions as they run; none where not saved."""
    entries = module.inner(_MODULE_SCHEDULE, "HloSchedule").split(1, "HloSchedule")
    owners = _rows_of(computation_ids, entries.numbers(1)[0])
    ends, ids = entries.inner(2, "InstructionSequence").split_numbers(1)
    parts = zip(owners.tolist(), np.split(ids, ends[1:-1]), strict=False)
    return [(row, part) for row, part in parts if row >= 0 and part.size]


def _place_in_files(module: Messages, metadata: dict[int, Int64s]) -> None:
    """Fill in the file and line of instructions that have a stack frame instead.

    A frame is the id of a location, and a location names a file and a line in it; ids count from 1.
    """

    def at(ids: Int64s, values: Int64s) -> Int64s:
        return np.append(0, values)[np.where((ids > 0) & (ids <= values.size), ids, 0)]

    index = module.inner(_MODULE_FRAMES, "StackFrameIndex")
    files = index.split(1, "file name")
    location_files, location_lines = index.split(3, "FileLocation").numbers(1, 3)
    location = at(metadata[_META_FRAME][0], index.split(4, "StackFrame").numbers(1)[0])
    file, line = at(location, location_files), metadata[_META_LINE][0]
    rows = (line == 0) & (file > 0) & (file <= len(files))
    line[rows] = at(location, location_lines)[rows]
    metadata[_META_FILE][:, rows] = files.begins[file[rows] - 1], files.ends[file[rows] - 1]


def _rows_of(ids: Int64s, wanted: Int64s) -> Int64s:
    """Find the row of each id, or -1."""
    order = np.argsort(ids, kind="stable")
    return look_up(ids[order], order, wanted)


def _rows_within(ids: Int64s, owner: Int64s, wanted: Int64s, owners: Int64s) -> Int64s:
    """Find the row of each id inside its own computation, where alone ids are unique; or -1."""
    distinct, codes = np.unique(np.concatenate([ids, wanted]), return_inverse=True)
    keys = owner * distinct.size + codes[: ids.size]
    return _rows_of(keys, owners * distinct.size + codes[ids.size :])


def _read_buffers(assignment: Messages) -> dict[str, int] | None:
    """Add up the bytes of the program's buffers by what they hold."""
    if assignment.begins[0] == assignment.ends[0]:
        return None
    allocations = assignment.split(3, "BufferAllocation")
    size, is_thread_local, is_argument, live_out, is_constant = allocations.numbers(2, 3, 5, 7, 12)
    kind = np.select([is_argument != 0, is_constant != 0, live_out != 0], [0, 2, 1], 3)
    size = np.where(is_thread_local, 0, np.maximum(size, 0))
    return {
        name: sum(size[kind == code].tolist())  # sums of hostile sizes would wrap
        for code, name in enumerate(("argument", "output", "constant", "temporary"))
    }


def _simulate(
    events: Sequence[Sequence[int]], size_of: Mapping[int, int]
) -> Iterator[tuple[int, Mapping[int, int]]]:
    """Follow a heap of buffers: after each event the bytes in use, and how many share each that is there."""
    users: dict[int, int] = {}
    place_of: dict[int, int] = {}
    total = 0
    for kind, buffer, shared in events:
        if kind == _FREE:
            place = place_of.pop(buffer, buffer)
            users[place] = users.get(place, 0) - 1
            if users[place] <= 0:
                total -= size_of.get(place, 0) * (users.pop(place) == 0)
        else:
            place = place_of[buffer] = shared if kind == _SHARE and shared in users else buffer
            users[place] = users.get(place, 0) + 1
            total += size_of.get(place, 0) * (users[place] == 1)
        yield total, users


def _read_shapes(shapes: Messages, depth: int = 0) -> Shapes:
    """Read N shapes; tuples deeper than 8 levels count as empty."""
    shapes.at_most(_MOST_SHAPES, "shapes", "program")
    (kinds,) = shapes.numbers(_ELEMENT_TYPE)
    offsets, dimensions = shapes.split_numbers(_DIMENSIONS)
    bits = np.zeros(256)
    bits[list(_BITS)] = list(_BITS.values())
    width = bits[np.clip(kinds, 0, 255)] / 8
    elements = np.ones(len(shapes))
    some = np.flatnonzero(np.diff(offsets))
    with np.errstate(invalid="ignore", over="ignore"):  # hostile sizes; integers would wrap
        if some.size:
            sizes = np.maximum(dimensions.astype(np.float64), 0)
            elements[some] = np.multiply.reduceat(sizes, offsets[some])
        size = np.nan_to_num(elements * width, posinf=np.inf)
    inner = shapes.split(_TUPLE_PARTS, "Shape")
    if len(inner) and depth < _DEEPEST_TUPLE:
        parts = _read_shapes(inner, depth + 1)
        np.add.at(size, inner.parents, parts.bytes)
        tuples = np.flatnonzero(np.diff(inner.offsets))
        elements[tuples] = parts.elements[inner.offsets[tuples]]
    return Shapes(kinds, offsets, dimensions, size, elements)
