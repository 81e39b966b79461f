"""An XLA program as the profiler saved it: an ``HloProto``, read into columns.

The profiler puts one for each program that ran into the plane ``/host:metadata``, as a stat of an entry
named ``module(program id)``. Instructions of all computations stand one after another; what each computes
stays in the file as spans, which ``subjects.xla.hlo_costs`` reads for the few instructions that it costs.

Source of the field numbers: openxla/xla xla/service/hlo.proto and xla/xla_data.proto (5a3e9fa3).
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.core.columns import Bools, Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.trace.hlo_shapes import Shapes, read_shapes
from profnb.trace.model import StringTable, Trace
from profnb.trace.wire import LENGTH, VARINT, read_fields, split_field, split_numbers

_STATS = ("Hlo Proto", "hlo_proto")
_PROTO_MODULE, _PROTO_BUFFERS = 1, 3
_MODULE_NAME, _MODULE_COMPUTATIONS, _MODULE_ENTRY, _MODULE_SCHEDULE, _MODULE_FRAMES = 1, 3, 6, 7, 17
_COMPUTATION_NAME, _COMPUTATION_INSTRUCTIONS = 1, 2
_COMPUTATION_ID, _COMPUTATION_ROOT, _COMPUTATION_IS_FUSION = 5, 6, 7
_NAME, _OPCODE, _SHAPE, _METADATA, _PARAMETER_NUMBER = 1, 2, 3, 7, 9
WINDOW, CONVOLUTION, DOT, _TARGET = 15, 16, 30, 28
_ID, _OPERANDS, _CALLED, _BACKEND_CONFIG = 35, 36, 38, 43
_BATCH_GROUPS = 58
_META_OP_TYPE, _META_OP_NAME, _META_FILE, _META_LINE, _META_FRAME = 1, 2, 3, 4, 15
# Which fields of each message are read, with their wire types.
_COMPUTATION = {
    _COMPUTATION_NAME: LENGTH, _COMPUTATION_ID: VARINT, _COMPUTATION_ROOT: VARINT,
    _COMPUTATION_IS_FUSION: VARINT,
}  # fmt: skip
_INSTRUCTION = {
    _NAME: LENGTH, _OPCODE: LENGTH, _SHAPE: LENGTH, _METADATA: LENGTH, WINDOW: LENGTH,
    CONVOLUTION: LENGTH, _TARGET: LENGTH, DOT: LENGTH, _BACKEND_CONFIG: LENGTH,
    _PARAMETER_NUMBER: VARINT, _ID: VARINT, _BATCH_GROUPS: VARINT,
}  # fmt: skip
_OP_METADATA = {
    _META_OP_TYPE: LENGTH, _META_OP_NAME: LENGTH, _META_FILE: LENGTH, _META_LINE: VARINT,
    _META_FRAME: VARINT,
}  # fmt: skip
_MOST = {"computations": 1_000_000, "instructions": 4_000_000}

_PROGRAM = re.compile(r"(.*)\((\d{1,20})\)", re.DOTALL)


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
        spans: Begin and end of the fields ``DOT``, ``CONVOLUTION`` and ``WINDOW`` of each instruction.
        buffers: Bytes by kind ("argument", "output", "constant", "temporary"); None where not saved.
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
    spans: dict[int, tuple[Int64s, Int64s]]
    buffers: dict[str, int] | None

    def __len__(self) -> int:
        return self.source_lines.size

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The instruction of each name; outside fusions where a name stands twice."""
        fused = np.repeat(self.is_fused, np.diff(self.offsets))
        order = np.argsort(~fused, kind="stable").tolist()
        return {self.names[row]: row for row in order}

    @cached_property
    def computation_of(self) -> Int64s:
        """The computation of each instruction, shape (I,)."""
        return np.repeat(np.arange(len(self.computation_names)), np.diff(self.offsets))

    def operands_of(self, row: int) -> list[int]:
        """The instructions that one uses, in order."""
        operands: list[int] = self.operands[
            self.operand_offsets[row] : self.operand_offsets[row + 1]
        ].tolist()
        return operands

    def called_by(self, row: int) -> list[int]:
        """The computations that an instruction calls."""
        called: list[int] = self.called[
            self.called_offsets[row] : self.called_offsets[row + 1]
        ].tolist()
        return called


def program_of(entry: str) -> tuple[str, int] | None:
    """Split ``module(program id)`` in two."""
    match = _PROGRAM.fullmatch(entry)
    return (match[1], int(match[2])) if match else None


def read_hlo_modules(trace: Trace) -> tuple[dict[int, HloModule], list[str]]:
    """The programs saved in a trace.

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
    """Read one ``HloProto``.

    Args:
        buffer: Its bytes; the module reads text from them later.
        name: What to call it if it has no name.
        program_id: The id that its events carry.

    Raises:
        TraceFormatError: The bytes are not an HloProto, or are damaged.
    """
    whole = np.zeros(1, np.int64), np.full(1, buffer.size, np.int64)
    proto = read_fields(buffer, *whole, {_PROTO_MODULE: LENGTH, _PROTO_BUFFERS: LENGTH}, "HloProto")
    module = _span(proto, _PROTO_MODULE)
    head = read_fields(buffer, *module, {_MODULE_NAME: LENGTH, _MODULE_ENTRY: VARINT}, "HloModule")
    spans = _children(buffer, module, _MODULE_COMPUTATIONS, "HloModule")
    _bound(spans[0].size, "computations")
    computations = read_fields(buffer, *spans, _COMPUTATION, "HloComputation")
    offsets, begins, ends = split_field(buffer, *spans, _COMPUTATION_INSTRUCTIONS, "HloComputation")
    _bound(begins.size, "instructions")
    table = read_fields(buffer, begins, ends, _INSTRUCTION, "HloInstruction")
    metadata = read_fields(buffer, *_span(table, _METADATA), _OP_METADATA, "OpMetadata")
    _place_in_files(buffer, *module, metadata)
    ids, computation_ids = table[:, 2 * _ID], computations[:, 2 * _COMPUTATION_ID]
    operand_offsets, operands = split_numbers(buffer, begins, ends, _OPERANDS, "HloInstruction")
    called_offsets, called = split_numbers(buffer, begins, ends, _CALLED, "HloInstruction")
    owner = np.repeat(np.arange(computation_ids.size), np.diff(offsets))
    entry = int(_rows_of(computation_ids, head[:1, 2 * _MODULE_ENTRY])[0])
    schedules = {
        owned: _rows_within(ids, owner, running, np.full(running.size, owned))
        for owned, running in _read_schedules(buffer, module, computation_ids)
    }
    in_file = np.arange(*offsets[entry : entry + 2]) if entry >= 0 else ids[:0]
    first = schedules.pop(entry, in_file)
    return HloModule(
        name=_strings(buffer, head, _MODULE_NAME)[0] or name,
        program_id=program_id,
        buffer=buffer,
        computation_names=_strings(buffer, computations, _COMPUTATION_NAME),
        offsets=offsets,
        roots=_rows_within(
            ids, owner, computations[:, 2 * _COMPUTATION_ROOT], np.arange(computation_ids.size)
        ),
        is_fused=computations[:, 2 * _COMPUTATION_IS_FUSION] != 0,
        entry=entry,
        schedules=tuple(rows[rows >= 0] for rows in (first, *schedules.values())),
        names=_strings(buffer, table, _NAME),
        opcodes=_strings(buffer, table, _OPCODE),
        op_types=_strings(buffer, metadata, _META_OP_TYPE),
        op_names=_strings(buffer, metadata, _META_OP_NAME),
        source_files=_strings(buffer, metadata, _META_FILE),
        targets=_strings(buffer, table, _TARGET),
        configs=_strings(buffer, table, _BACKEND_CONFIG),
        source_lines=metadata[:, 2 * _META_LINE].copy(),
        parameter_numbers=table[:, 2 * _PARAMETER_NUMBER].copy(),
        batch_groups=np.maximum(table[:, 2 * _BATCH_GROUPS], 1),
        operand_offsets=operand_offsets,
        operands=_rows_within(ids, owner, operands, np.repeat(owner, np.diff(operand_offsets))),
        called_offsets=called_offsets,
        called=_rows_of(computation_ids, called),
        shapes=read_shapes(buffer, *_span(table, _SHAPE)),
        spans={field: _span(table, field) for field in (DOT, CONVOLUTION, WINDOW)},
        buffers=_read_buffers(buffer, *_span(proto, _PROTO_BUFFERS)),
    )


def _read_schedules(
    buffer: Bytes, module: tuple[Int64s, Int64s], computation_ids: Int64s
) -> list[tuple[int, Int64s]]:
    """Computations and the ids of their instructions in the order in which they run; none where not saved."""
    span = _span(
        read_fields(buffer, *module, {_MODULE_SCHEDULE: LENGTH}, "HloModule"), _MODULE_SCHEDULE
    )
    entries = read_fields(
        buffer, *_children(buffer, span, 1, "HloSchedule"), {1: VARINT, 2: LENGTH}, "HloSchedule"
    )
    owners = _rows_of(computation_ids, entries[:, 2].copy())
    ends, ids = split_numbers(buffer, *_span(entries, 2), 1, "InstructionSequence")
    parts = zip(owners.tolist(), np.split(ids, ends[1:-1]), strict=False)
    return [(row, part) for row, part in parts if row >= 0 and part.size]


def _place_in_files(buffer: Bytes, begins: Int64s, ends: Int64s, metadata: Int64s) -> None:
    """Fill in the file and line of instructions that have a stack frame instead.

    A frame is the id of a location, and a location names a file and a line in it; ids count from 1.
    """
    index = _span(
        read_fields(buffer, begins, ends, {_MODULE_FRAMES: LENGTH}, "HloModule"), _MODULE_FRAMES
    )
    files = _children(buffer, index, 1, "StackFrameIndex")
    spans = _children(buffer, index, 3, "StackFrameIndex")
    locations = read_fields(buffer, *spans, {1: VARINT, 3: VARINT}, "FileLocation")
    spans = _children(buffer, index, 4, "StackFrameIndex")
    frames = read_fields(buffer, *spans, {1: VARINT}, "StackFrame")
    frame = metadata[:, 2 * _META_FRAME] - 1
    rows = np.flatnonzero((frame >= 0) & (frame < len(frames)) & (metadata[:, 2 * _META_LINE] == 0))
    location = frames[frame[rows], 2] - 1
    is_there = (location >= 0) & (location < len(locations))
    rows, location = rows[is_there], location[is_there]
    file = locations[location, 2] - 1
    is_there = (file >= 0) & (file < files[0].size)
    rows, location, file = rows[is_there], location[is_there], file[is_there]
    metadata[rows, 2 * _META_LINE] = locations[location, 6]
    metadata[rows, 2 * _META_FILE] = files[0][file]
    metadata[rows, 2 * _META_FILE + 1] = files[1][file]


def _bound(count: int, kind: str) -> None:
    if count > _MOST[kind]:
        raise TraceFormatError(f"It claims {count:,} {kind}, more than any real program has.")


def _children(
    buffer: Bytes, spans: tuple[Int64s, Int64s], field: int, what: str
) -> tuple[Int64s, Int64s]:
    _, begins, ends = split_field(buffer, *spans, field, what)
    return begins, ends


def _span(table: Int64s, field: int) -> tuple[Int64s, Int64s]:
    return table[:, 2 * field].copy(), table[:, 2 * field + 1].copy()


def _strings(buffer: Bytes, table: Int64s, field: int) -> StringTable:
    return StringTable(buffer, *_span(table, field))


def _rows_of(ids: Int64s, wanted: Int64s) -> Int64s:
    """The row of each id, or -1."""
    if not ids.size:
        return np.full(wanted.size, -1)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], wanted), ids.size - 1)
    return np.where(ids[order][at] == wanted, order[at], -1)


def _rows_within(ids: Int64s, owner: Int64s, wanted: Int64s, owners: Int64s) -> Int64s:
    """The row of each id inside its own computation, where alone ids are unique; or -1."""
    distinct, codes = np.unique(np.concatenate([ids, wanted]), return_inverse=True)
    keys = owner * distinct.size + codes[: ids.size]
    return _rows_of(keys, owners * distinct.size + codes[ids.size :])


def _read_buffers(buffer: Bytes, begins: Int64s, ends: Int64s) -> dict[str, int] | None:
    """Bytes of the program's buffers by what they hold, from ``BufferAssignmentProto``."""
    if begins[0] == ends[0]:
        return None
    spans = _children(buffer, (begins, ends), 3, "BufferAssignment")
    size, is_argument, live_out, is_thread_local, is_constant = 2, 5, 7, 3, 12
    wanted = (size, is_argument, live_out, is_thread_local, is_constant)
    table = read_fields(buffer, *spans, dict.fromkeys(wanted, VARINT), "BufferAllocation")
    kinds = {"argument": 0, "output": 0, "constant": 0, "temporary": 0}
    for row in table:
        if row[2 * is_argument]:
            kind = "argument"
        elif row[2 * is_constant]:
            kind = "constant"
        elif row[2 * live_out]:
            kind = "output"
        else:
            kind = "temporary"
        kinds[kind] += 0 if row[2 * is_thread_local] else max(int(row[2 * size]), 0)
    return kinds
