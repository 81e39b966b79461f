"""What is kept beside a trace: how much of it at most, and what must hold between its fields.

The same list bounds what is written and what is read.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from profnb.capture.machine.core_waits import CoreWaits
from profnb.capture.machine.machine_records import BoardRecords, MachineRecords
from profnb.capture.machine.machine_watch import MOST_LOOKS
from profnb.capture.machine.network_files import NetworkFiles
from profnb.capture.models.layer_facts import ModelFacts
from profnb.capture.parts.part_records import OTHER, PARTS, CellPart, CellRecords
from profnb.capture.saved.codec import Limit
from profnb.capture.session_records import ROLES, GapPlace, GapRecords, QueueRecord
from profnb.capture.source.source_records import (
    ENTERED,
    MOST_MARKS,
    GraphLines,
    GraphShapes,
    LineRecords,
    SourceRecords,
    StackRecords,
    TurnRecords,
)
from profnb.capture.step_records import StepRecords
from profnb.core.options import CaptureOptions

_NOT_KEPT = Limit(is_kept=False)
_NS, _LINE, _SIZE = 1 << 60, 1 << 30, 1 << 40  # centuries; longer than any file; of one dimension
_STEPS, _ROWS, _PLACES, _OPS, _FRAMES, _LAYERS = 200_000, 500_000, 200_000, 100_000, 200_000, 20_000
_DEEPEST_MODEL, _PARTS, _CALLS, _NODES = 64, 400, 40_000, 1_200

LIMITS: Mapping[str, Limit] = {
    **{
        f"CaptureOptions.{field}": _NOT_KEPT
        for field in CaptureOptions.__dataclass_fields__
        if field not in ("max_steps", "max_seconds", "warmup_steps", "label", "source")
    },
    **{f"Recording.{field}": _NOT_KEPT for field in ("path", "folder", "graph_runs", "graph")},
    **{
        f"Recording.{field}_ns": Limit(least=0)
        for field in ("window", "wall", "overhead", "marking")
    },
    "Recording.cardinalities": Limit(least=0),
    "Recording.file_counts": Limit(least=0, end=_NS),
    "Recording.file_bytes": Limit(least=0, end=_NS),
    "Recording.models": Limit((200,)),
    "FitResult.epochs": Limit(least=0),
    "TracedFunction.code": Limit(least=0, end=_LINE),
    "TracedFunction.tracings": Limit(least=1, end=_SIZE),
    "StepRecords.kinds": _NOT_KEPT,
    **{
        f"StepRecords.{field}": Limit((_STEPS,), -_NS, _NS)
        for field in StepRecords.__dataclass_fields__
        if field != "kinds"
    },
    "StepRecords.iterations": Limit((_STEPS,), 1),
    "StepRecords.ended_at": Limit((_STEPS,), 0, _SIZE),  # of later steps than are kept, too
    "StepRecords.ended_epoch": Limit((_STEPS,), 1, _NS),
    "ModelFacts.layers": Limit((_LAYERS,)),
    "ModelFacts.scopes": Limit((_OPS,)),
    "ModelFacts.again": Limit((_OPS,)),
    "ModelFacts.calls": Limit((_LAYERS,), 0, _SIZE),
    "ModelFacts.ops": Limit((20, 20, _OPS)),
    "LayerFacts.parent": Limit(least=-1, end=_LAYERS),
    "LayerFacts.parameters": Limit(least=-1, end=_NS),
    "LayerFacts.output_shape": Limit((16,), 0, _SIZE),
    "LayerFacts.input_shapes": Limit((10_000, 16), 0, _SIZE),
    "LayerFacts.kernels": Limit((10_000, 16), 0, _SIZE),
    "LayerFacts.numbers": Limit(least=0, end=_SIZE),
    "OpFact.row": Limit(least=-1, end=_LAYERS),
    "SourceRecords.places": Limit((_PLACES,), 0, _LINE),
    "SourceRecords.layers": Limit((_LAYERS,), 0, _PLACES),
    "SourceRecords.texts": Limit((200, 50_000)),
    "SourceRecords.cells": Limit(least=0),
    "LineRecords.time_ns": Limit((_ROWS,), 0, _NS, has_differences=True),
    "LineRecords.code": Limit((_ROWS,), -1),
    "LineRecords.line": Limit((_ROWS,), ENTERED, _LINE),
    "LineRecords.files": Limit((_PLACES,)),
    "LineRecords.untimed": Limit(least=0, end=_LINE),
    **{
        f"GraphLines.{column}": Limit((_OPS,), -1)
        for column in ("op_names", "op_types", "places", "is_outside")
    },
    "GraphLines.calls": Limit((_OPS, 8)),
    **{
        f"GraphShapes.{column}": Limit((4 * _OPS, 1_000), -1, _SIZE)
        for column in GraphShapes.__dataclass_fields__
    },
    "GraphShapes.shapes": Limit((4 * _OPS, 64), 0, _SIZE),
    "CellRecords.wall_ns": Limit(least=0, end=_NS),
    "CellRecords.parts": Limit((_PARTS,)),
    "CellPart.occurrences": Limit(least=0, end=_SIZE),
    "CellPart.wall_ns": Limit(least=0, end=_NS),
    "CellPart.longest_ns": Limit(least=0, end=_NS),
    "CellPart.line": Limit(least=0, end=_LINE),
    "CellRecords.cells": Limit(least=0),
    "CellRecords.tree": Limit((_NODES,)),
    "TreeNode.parent": Limit(least=-1, end=_NODES),
    **{
        f"TreeNode.{field}": Limit(least=0, end=_NS)
        for field in ("self_ns", "occurrences", "looks")
    },
    "TreeNode.line": Limit(least=0, end=_LINE),
    **{f"NetworkFiles.{field}": Limit(least=0, end=_SIZE) for field in ("looks", "found", "files")},
    **{f"CoreWaits.{field}": Limit(least=0, end=_NS) for field in CoreWaits.__dataclass_fields__},
    "TurnRecords.end_ns": Limit(least=-_NS, end=_NS),
    "TurnRecords.library_places": Limit(least=0, end=_LINE),
    "TurnRecords.was_traced": Limit((MOST_MARKS,), 0, 2),
    "TurnRecords.begin_ns": Limit((MOST_MARKS,), -_NS, _NS, has_differences=True),
    "TurnRecords.place": Limit((MOST_MARKS,), 0, _LINE),
    "TurnRecords.iterator": Limit((MOST_MARKS,), -1, _LINE),
    "NetworkFiles.mounts": Limit((100,), 0, _SIZE),
    **{
        f"MachineRecords.{column}": Limit((MOST_LOOKS + 1,), -_NS, _NS, has_differences=True)
        for column in MachineRecords.__dataclass_fields__
        if column not in ("begin_ns", "end_ns", "boards")
    },
    "MachineRecords.begin_ns": Limit(least=-_NS, end=_NS),
    "MachineRecords.end_ns": Limit(least=-_NS, end=_NS),
    "MachineRecords.boards": Limit((16,)),
    **{
        f"BoardRecords.{column}": Limit((MOST_LOOKS + 1,), -1, _NS, has_differences=True)
        for column in BoardRecords.__dataclass_fields__
        if column not in ("name", "index", "memory_bytes")
    },
    "BoardRecords.index": Limit(least=0, end=_LINE),
    "BoardRecords.memory_bytes": Limit(least=-1, end=_NS),
    "CellRecords.long_part": Limit((_CALLS,), 0, _PARTS),
    **{f"CellRecords.long_{end}_ns": Limit((_CALLS,), -_NS, _NS) for end in ("begin", "end")},
    "CellRecords.long_wall_ns": Limit((_CALLS,), 0, _NS),
    "SessionRecords.epoch_ns": Limit(least=-_NS, end=_NS << 1),
    "SessionRecords.queues": Limit((100,)),
    **{
        f"GapRecords.{count}": Limit(least=0, end=_NS)
        for count in (
            "runs",
            "fed",
            "judged",
            "new",
            "fed_bytes",
            "gaps",
            "gap_ns",
            "samples",
            "traced",
            "own_ns",
        )
    },
    "GapRecords.places": Limit((100,)),
    "GapRecords.cells": Limit(least=0),
    **{f"GapPlace.{end}_ns": Limit(least=0, end=_NS) for end in ("wall", "inner")},
    "GapPlace.line": Limit(least=0, end=_LINE),
    "GapPlace.inner_line": Limit(least=0, end=_LINE),
    "QueueRecord.capacity": Limit(least=-1, end=_NS),
    **{
        f"QueueRecord.{count}": Limit(least=0, end=_NS)
        for count in ("min_after_dequeue", "element_bytes", "runner_threads", "files", "file_bytes")
    },
    **{f"QueueRecord.{ops}": Limit((1000,), 0, _NS) for ops in ("dequeues", "enqueues")},
    "QueueRecord.sources": Limit((1000,)),
    **{f"QueueRecord.{end}_ns": Limit((_STEPS,), -_NS, _NS) for end in ("begin", "end")},
    "QueueRecord.elements": Limit((_STEPS,), 0, _LINE),
    "QueueRecord.thread": Limit((_STEPS,), 0, _LINE),
    "StackRecords.begin_ns": Limit(least=0, end=_NS),
    "StackRecords.base": Limit(least=0, end=_FRAMES),
    "StackRecords.time_ns": Limit((_ROWS,), 0, _NS, has_differences=True),
    "StackRecords.stack": Limit((_ROWS,), 0),
    "StackRecords.stacks": Limit((_OPS, 2_000), 0, _FRAMES),
    "StackRecords.frames": Limit((_FRAMES,), 0, _LINE),
}


def _claim(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(what)


def _have_one_length(*columns: Sequence[Any]) -> None:
    _claim(len({len(column) for column in columns}) == 1, "columns of different lengths")


def _are_rows(rows: Sequence[int], least: int, table: Sequence[Any], what: str) -> None:
    _claim(not rows or least <= min(rows) <= max(rows) < len(table), f"{what} that are not there")


def _ascend(times: Sequence[int]) -> None:
    _claim(all(before <= after for before, after in pairwise(times)), "times that run backwards")


def _check_steps(steps: StepRecords) -> None:
    columns = {name: getattr(steps, name) for name in StepRecords.__dataclass_fields__}
    apart = ("names", "kinds", "ended_at", "ended_epoch")
    _have_one_length(*(columns[name] for name in columns if name not in apart))
    _have_one_length(steps.ended_at, steps.ended_epoch)
    _ascend(steps.ended_at)
    _claim(all(map(int.__le__, steps.begin_ns, steps.end_ns)), "steps that end before they begin")
    _are_rows(steps.name, 0, steps.names, "names")
    _are_rows(steps.kind, 0, steps.kinds, "kinds")


def _check_model(model: ModelFacts) -> None:
    depth: list[int] = []
    for row, layer in enumerate(model.layers):
        is_part = 0 <= layer.parent < row or (row == 0 and layer.parent == -1)
        _claim(is_part, f"layer {row} as part of layer {layer.parent}")
        depth.append(depth[layer.parent] + 1 if row else 0)
    _claim(bool(depth) and max(depth) <= _DEEPEST_MODEL, "no layers, or of too many levels")
    _are_rows([*model.scopes.values(), *model.calls], 0, model.layers, "layers")
    _claim(model.again <= model.scopes.keys(), "repeated scopes that are not there")
    facts = (fact.row for graphs in model.ops.values() for ops in graphs for fact in ops.values())
    _are_rows(list(facts), -1, model.layers, "layers of ops")


def _check_lines(lines: LineRecords) -> None:
    _have_one_length(lines.time_ns, lines.code, lines.line)
    _ascend(lines.time_ns)
    _are_rows(lines.code, -1, lines.files, "functions")


def _check_graph(graph: GraphLines) -> None:
    _have_one_length(graph.op_names, graph.op_types, graph.places, graph.is_outside)


def _check_shapes(graph: GraphShapes) -> None:
    _have_one_length(graph.op_names, graph.op_types, graph.inputs, graph.outputs)
    _have_one_length(graph.shapes, graph.dtypes)
    is_whole = all(count >= 0 for count in graph.outputs) and sum(graph.outputs) == len(
        graph.shapes
    )
    _claim(is_whole, "tensors that no op makes")
    for taken in graph.inputs:
        _are_rows(taken, -1, graph.shapes, "tensors")
    _are_rows(list(graph.settings), 0, graph.op_names, "ops with settings")


def _check_source(source: SourceRecords) -> None:
    _are_rows(list(source.layers.values()), 0, source.places, "places of layers")
    for graph in source.graphs:
        _are_rows(graph.places, -1, source.places, "places of ops")


def _check_part(part: CellPart) -> None:
    _claim(part.part in PARTS, "a part of a cell that is none")
    _claim(part.longest_ns <= part.wall_ns, "an occurrence that is longer than all of them")


def _check_cell(cell: CellRecords) -> None:
    whole = sum(part.wall_ns for part in cell.parts)
    _claim(whole == cell.wall_ns, "parts that do not add up to the cell")
    keys = [
        (part.part, part.name, *((part.file, part.line) if part.part == OTHER else ()))
        for part in cell.parts
    ]
    _claim(len(set(keys)) == len(keys), "a part of a cell twice")
    _check_long_calls(cell)


def _check_long_calls(cell: CellRecords) -> None:
    begin, end, wall = cell.long_begin_ns, cell.long_end_ns, cell.long_wall_ns
    _have_one_length(cell.long_part, begin, end, wall)
    _are_rows(cell.long_part, 0, cell.parts, "parts of calls")
    for row, begin_ns, end_ns, wall_ns in zip(cell.long_part, begin, end, wall, strict=True):
        is_so = wall_ns <= min(end_ns - begin_ns, cell.parts[row].longest_ns)
        _claim(is_so, "a call that took longer than it lasted, or than the longest one")


def _check_turns(turns: TurnRecords) -> None:
    _have_one_length(turns.begin_ns, turns.place, turns.iterator, turns.was_traced)
    _ascend(turns.begin_ns)


def _check_network(network: NetworkFiles) -> None:
    most = max((network.found, *network.mounts.values()))
    _claim(most <= network.looks, "files that were found more often than was looked")


def _check_machine(machine: MachineRecords) -> None:
    of_boards = (column for board in machine.boards for column in board.columns())
    _have_one_length(*machine.columns(), *of_boards)
    _ascend(machine.time_ns)


def _check_stacks(stacks: StackRecords) -> None:
    _have_one_length(stacks.time_ns, stacks.stack)
    _ascend(stacks.time_ns)
    is_after = not stacks.time_ns or stacks.begin_ns <= stacks.time_ns[0]
    _claim(is_after, "samples before sampling began")
    _are_rows(stacks.stack, 0, stacks.stacks, "stacks")
    for stack in stacks.stacks:
        _are_rows(stack, 0, stacks.frames, "frames")


def _check_gaps(gaps: GapRecords) -> None:
    _claim(gaps.new <= gaps.judged <= gaps.runs and gaps.fed <= gaps.runs, "more runs fed than ran")


def _check_place(place: GapPlace) -> None:
    _claim(place.role in ROLES, "a statement of a role that is none")


def _check_queue(queue: QueueRecord) -> None:
    _have_one_length(queue.begin_ns, queue.end_ns, queue.elements, queue.thread)
    _claim(all(map(int.__le__, queue.begin_ns, queue.end_ns)), "runs that end before they begin")


CHECKS: Mapping[type, Callable[[Any], None]] = {
    StepRecords: _check_steps,
    ModelFacts: _check_model,
    LineRecords: _check_lines,
    GraphLines: _check_graph,
    GraphShapes: _check_shapes,
    SourceRecords: _check_source,
    StackRecords: _check_stacks,
    GapRecords: _check_gaps,
    GapPlace: _check_place,
    QueueRecord: _check_queue,
    CellPart: _check_part,
    CellRecords: _check_cell,
    NetworkFiles: _check_network,
    MachineRecords: _check_machine,
    TurnRecords: _check_turns,
}
