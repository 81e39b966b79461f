"""All that a capture saw besides the trace, to a small JSON file beside it, and back.

The trace says what ran while it was recorded; how long every step took, what the fits reached, what the
code ran with, its models and its source stand in ``HOST.profnb.json.gz`` beside ``HOST.xplane.pb``.
TensorBoard does not look at it. The file is one object: the options, and a ``Recording`` per run, as
``codec`` writes them within ``LIMITS``. Files of version 1 are read too.

What is written is decoded once before, so that no file is written that would be refused: a part of a
recording that does not pass is left out, and a sentence in the recording says so.

One list bounds what is written and what is read: how much of it at most, and what must hold between fields.
"""

import gzip
import json
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from profnb.capture.machine.machine_watch import MOST_LOOKS, MachineRecords
from profnb.capture.machine.network_files import NetworkFiles
from profnb.capture.models.layer_facts import ModelFacts
from profnb.capture.parts.part_records import OTHER, PARTS, CellPart, CellRecords
from profnb.capture.recording import ROLES, GapPlace, GapRecords, QueueRecord, Recording
from profnb.capture.saved.codec import Codec, Limit
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
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.core.safe_files import ours_alone, whole_file
from profnb.core.sharing import Sharing

_SIDECAR_SUFFIX, _TRACE_SUFFIX = ".profnb.json.gz", ".xplane.pb"
_SIDECAR_VERSION = 2
_LARGEST_SIDECAR, _GZIP_LEVEL, _MOST_RUNS_KEPT = 64 << 20, 5, 1000
_LARGEST_PARTS = ("stacks", "source", "models")  # left out first where all would be too large


_NOT_KEPT = Limit(is_kept=False)
_MOST_NS, _LINE, _SIZE = (
    1 << 60,
    1 << 30,
    1 << 40,
)  # centuries; longer than any file; of one dimension
_STEPS, _ROWS, _PLACES, _OPS, _FRAMES, _LAYERS = 200_000, 500_000, 200_000, 100_000, 200_000, 20_000
_DEEPEST_MODEL, _PARTS, _CALLS, _NODES = 64, 400, 40_000, 1_200
_COUNT, _TIME, _NUMBER = (
    Limit(least=0, end=_MOST_NS),
    Limit(least=-_MOST_NS, end=_MOST_NS),
    Limit(least=0),
)
_LINE_NUMBER, _SMALL = Limit(least=0, end=_LINE), Limit(least=0, end=_SIZE)
_LOOKS = Limit((MOST_LOOKS + 1,), -_MOST_NS, _MOST_NS, has_differences=True)
_SAMPLES = Limit((_ROWS,), 0, _MOST_NS, has_differences=True)

# By field, and by class for those of its fields that are not named.
LIMITS: Mapping[str, Limit] = {
    "CaptureOptions": _NOT_KEPT,
    **dict.fromkeys(
        ("CaptureOptions.max_steps", "CaptureOptions.max_seconds", "CaptureOptions.warmup_steps",
         "CaptureOptions.label", "CaptureOptions.source", "CaptureOptions.steps"), Limit(),
    ),
    "Recording": _NUMBER,
    **dict.fromkeys(
        ("Recording.path", "Recording.folder", "Recording.graph_runs", "Recording.graph"), _NOT_KEPT
    ),
    "Recording.file_counts": _COUNT,
    "Recording.file_bytes": _COUNT,
    "Recording.graph_versions": Limit(),
    "Recording.models": Limit((200,)),
    "FitResult": _NUMBER,
    "TracedFunction.code": _LINE_NUMBER,
    "TracedFunction.tracings": Limit(least=1, end=_SIZE),
    "StepRecords": Limit((_STEPS,), -_MOST_NS, _MOST_NS),
    "StepRecords.kinds": _NOT_KEPT,
    "StepRecords.iterations": Limit((_STEPS,), 1),
    "StepRecords.ended_at": Limit((_STEPS,), 0, _SIZE),  # of later steps than are kept, too
    "StepRecords.ended_epoch": Limit((_STEPS,), 1, _MOST_NS),
    "ModelFacts.layers": Limit((_LAYERS,)),
    "ModelFacts.scopes": Limit((_OPS,)),
    "ModelFacts.again": Limit((_OPS,)),
    "ModelFacts.calls": Limit((_LAYERS,), 0, _SIZE),
    "ModelFacts.ops": Limit((20, 20, _OPS)),
    "LayerFacts.parent": Limit(least=-1, end=_LAYERS),
    "LayerFacts.parameters": Limit(least=-1, end=_MOST_NS),
    "LayerFacts.output_shape": Limit((16,), 0, _SIZE),
    "LayerFacts.input_shapes": Limit((10_000, 16), 0, _SIZE),
    "LayerFacts.kernels": Limit((10_000, 16), 0, _SIZE),
    "LayerFacts.numbers": _SMALL,
    "OpFact.row": Limit(least=-1, end=_LAYERS),
    "SourceRecords.places": Limit((_PLACES,), 0, _LINE),
    "SourceRecords.layers": Limit((_LAYERS,), 0, _PLACES),
    "SourceRecords.texts": Limit((200, 50_000)),
    "SourceRecords.cells": _NUMBER,
    "LineRecords.time_ns": _SAMPLES,
    "LineRecords.code": Limit((_ROWS,), -1),
    "LineRecords.line": Limit((_ROWS,), ENTERED, _LINE),
    "LineRecords.files": Limit((_PLACES,)),
    "LineRecords.untimed": _LINE_NUMBER,
    "GraphLines": Limit((_OPS,), -1),
    "GraphLines.calls": Limit((_OPS, 8)),
    "GraphShapes": Limit((4 * _OPS, 1_000), -1, _SIZE),
    "GraphShapes.shapes": Limit((4 * _OPS, 64), 0, _SIZE),
    "CellRecords.wall_ns": _COUNT,
    "CellRecords.parts": Limit((_PARTS,)),
    "CellRecords.cells": _NUMBER,
    "CellRecords.tree": Limit((_NODES,)),
    "CellRecords.long_part": Limit((_CALLS,), 0, _PARTS),
    "CellRecords.long_begin_ns": Limit((_CALLS,), -_MOST_NS, _MOST_NS),
    "CellRecords.long_end_ns": Limit((_CALLS,), -_MOST_NS, _MOST_NS),
    "CellRecords.long_wall_ns": Limit((_CALLS,), 0, _MOST_NS),
    "CellPart": _COUNT,
    "CellPart.occurrences": _SMALL,
    "CellPart.line": _LINE_NUMBER,
    "TreeNode": _COUNT,
    "TreeNode.parent": Limit(least=-1, end=_NODES),
    "TreeNode.line": _LINE_NUMBER,
    "NetworkFiles": _SMALL,
    "NetworkFiles.mounts": Limit((100,), 0, _SIZE),
    "CoreWaits": _COUNT,
    "HeldMemory": _COUNT,
    "MemoryRecords.held": Limit((500,)),
    "MemoryRecords.pools": Limit((64,)),
    "MemoryPool": Limit(least=-1, end=_MOST_NS),
    "MemoryShortage": Limit(least=-1, end=_MOST_NS),
    "TurnRecords.end_ns": _TIME,
    "TurnRecords.library_places": _LINE_NUMBER,
    "TurnRecords.was_traced": Limit((MOST_MARKS,), 0, 2),
    "TurnRecords.begin_ns": Limit((MOST_MARKS,), -_MOST_NS, _MOST_NS, has_differences=True),
    "TurnRecords.place": Limit((MOST_MARKS,), 0, _LINE),
    "TurnRecords.iterator": Limit((MOST_MARKS,), -1, _LINE),
    "MachineRecords": _LOOKS,
    "MachineRecords.boards": Limit((16,)),
    "BoardRecords": replace(_LOOKS, least=-1),
    "BoardRecords.index": _LINE_NUMBER,
    "SessionRecords.epoch_ns": Limit(least=-_MOST_NS, end=_MOST_NS << 1),
    "SessionRecords.queues": Limit((100,)),
    "GapRecords": _COUNT,
    "GapRecords.places": Limit((100,)),
    "GapRecords.cells": _NUMBER,
    "GapPlace": _COUNT,
    "GapPlace.line": _LINE_NUMBER,
    "GapPlace.inner_line": _LINE_NUMBER,
    "QueueRecord": _COUNT,
    "QueueRecord.capacity": Limit(least=-1, end=_MOST_NS),
    "QueueRecord.dequeues": Limit((1000,), 0, _MOST_NS),
    "QueueRecord.enqueues": Limit((1000,), 0, _MOST_NS),
    "QueueRecord.sources": Limit((1000,)),
    "QueueRecord.begin_ns": Limit((_STEPS,), -_MOST_NS, _MOST_NS),
    "QueueRecord.end_ns": Limit((_STEPS,), -_MOST_NS, _MOST_NS),
    "QueueRecord.elements": Limit((_STEPS,), 0, _LINE),
    "QueueRecord.thread": Limit((_STEPS,), 0, _LINE),
    "StackRecords.begin_ns": _COUNT,
    "StackRecords.base": Limit(least=0, end=_FRAMES),
    "StackRecords.time_ns": _SAMPLES,
    "StackRecords.stack": Limit((_ROWS,), 0),
    "StackRecords.stacks": Limit((_OPS, 2_000), 0, _FRAMES),
    "StackRecords.frames": Limit((_FRAMES,), 0, _LINE),
}  # fmt: skip


def sidecar_of(trace: Path) -> Path:
    """Name the file beside a trace."""
    return trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + _SIDECAR_SUFFIX)


def write_recordings(trace: Path, options: CaptureOptions, recordings: Sequence[Recording]) -> None:
    """Write what was seen of each run beside its trace.

    Raises:
        OSError: The file cannot be written.
    """
    contents = Codec(LIMITS, CHECKS).encode(options, CaptureOptions)
    runs = [_encode(recording) for recording in recordings[:_MOST_RUNS_KEPT]]
    contents |= {"profnb": _SIDECAR_VERSION, "runs": runs}
    contents = Sharing(has_files=options.source).values(contents)
    runs = contents["runs"]
    text = json.dumps(contents, separators=(",", ":"))
    for part in _LARGEST_PARTS:
        for run in runs if len(text) > _LARGEST_SIDECAR else ():
            if run.pop(part, None):
                _say(run, _left_out(part, "the file would be too large"))
        text = json.dumps(contents, separators=(",", ":"))
    packed = gzip.compress(text.encode(), _GZIP_LEVEL, mtime=0)
    with whole_file(sidecar_of(trace)) as partial:
        partial.write_bytes(packed)  # it holds source, so it is at most the user's and the group's
        partial.chmod(stat.S_IMODE(partial.stat().st_mode) & ~stat.S_IRWXO)


def _encode(recording: Recording) -> dict[str, Any]:
    codec, run = Codec(LIMITS, CHECKS), {}
    sentences = []
    for field, hint, name in codec.fields(Recording):
        plain = codec.encode(getattr(recording, field.name), hint, name)
        try:
            codec.decode_field(plain, field, hint, name)
        except TraceFormatError as error:
            sentences.append(_left_out(field.name, str(error)))
        else:
            run[field.name] = plain
    cut = codec.cut.items()
    sentences += [f"Of {name}, {kept:,} are kept beside the trace." for name, kept in cut]
    _say(run, *sentences)
    return run


def _left_out(part: str, why: str) -> str:
    return f"The {part} of this run were not kept beside the trace: {why}."


def _say(run: dict[str, Any], *sentences: str) -> None:
    """Put sentences in front of a run's messages, of which there may be only so many."""
    messages = [*sentences, *run.get("messages", ())]
    run["messages"] = messages[: LIMITS.get("Recording.messages", Limit()).items[0]]


def read_recordings(trace: Path) -> tuple[CaptureOptions, list[Recording]]:
    """Read what stands beside a trace.

    Returns:
        How it was captured, and one recording per run, the traced one first; defaults and nothing where there
        is no such file.

    Raises:
        TraceFormatError: There is one, but it is not what profnb writes.
    """
    path = sidecar_of(trace)
    if path == trace or not path.is_file():
        return CaptureOptions(), []
    with ours_alone(path, "profnb writes beside a trace", " Remove it to open the trace alone."):
        with gzip.open(path) as file:
            text = file.read(_LARGEST_SIDECAR + 1)
        return _decode(text)


def _decode(text: bytes) -> tuple[CaptureOptions, list[Recording]]:
    if len(text) > _LARGEST_SIDECAR:
        raise TraceFormatError(f"more than {_LARGEST_SIDECAR:,} bytes")
    contents = json.loads(text)
    version, runs = contents["profnb"], contents["runs"]
    if (
        version not in (1, _SIDECAR_VERSION)
        or not isinstance(runs, list)
        or len(runs) > _MOST_RUNS_KEPT
    ):
        raise TraceFormatError(f"version {str(version)[:20]} with {type(runs).__name__} of runs")
    runs = map(_of_version_1, runs) if version == 1 else runs
    codec = Codec(LIMITS, CHECKS)
    return codec.decode(contents, CaptureOptions), [codec.decode(run, Recording) for run in runs]


def _of_version_1(run: dict[str, Any]) -> dict[str, Any]:
    """A run as version 1 wrote it (profnb before its first release) in the form of today."""
    fits = [
        dict(zip(("metrics", "epochs", "is_continued"), fit, strict=True)) for fit in run["fits"]
    ]
    run |= {"steps": run["steps"] | {"names": run["names"]}, "fits": fits}
    for model in run.get("models", ()):
        scopes = model["scopes"]
        model["scopes"] = {scope: row for scope, row, _ in scopes}
        model["again"] = [scope for scope, _, is_again in scopes if is_again]
        for graphs in model["ops"].values():
            graphs[:] = [
                {name: {"part": part, "row": row, "scope": scope} for name, part, row, scope in ops}
                for ops in graphs
            ]
    source = run.get("source")
    if source is not None:
        source["places"] = [[source["files"][file], line] for file, line in source["places"]]
    return run


def _claim(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(what)


def _have_one_length(*columns: Sequence[Any]) -> None:
    _claim(len({len(column) for column in columns}) == 1, "columns of different lengths")


def _are_rows(rows: Collection[int], least: int, table: Sequence[Any], what: str) -> None:
    _claim(not rows or least <= min(rows) <= max(rows) < len(table), f"{what} that are not there")


def _ascend(times: Sequence[int], *columns: Sequence[Any]) -> None:
    """Claim that times ascend, and that there are as many in other columns."""
    _have_one_length(times, *columns)
    _claim(all(before <= after for before, after in pairwise(times)), "times that run backwards")


def _check_steps(steps: StepRecords) -> None:
    apart = {"names", "kinds", "ended_at", "ended_epoch"}
    _have_one_length(*(getattr(steps, name) for name in steps.__dataclass_fields__.keys() - apart))
    _ascend(steps.ended_at, steps.ended_epoch)
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
    _ascend(lines.time_ns, lines.code, lines.line)
    _are_rows(lines.code, -1, lines.files, "functions")


def _check_shapes(graph: GraphShapes) -> None:
    _have_one_length(graph.op_names, graph.op_types, graph.inputs, graph.outputs)
    _have_one_length(graph.shapes, graph.dtypes)
    made = sum(graph.outputs) if min(graph.outputs, default=0) >= 0 else -1
    _claim(made == len(graph.shapes), "tensors that no op makes")
    for taken in graph.inputs:
        _are_rows(taken, -1, graph.shapes, "tensors")
    _are_rows(graph.settings, 0, graph.op_names, "ops with settings")


def _check_source(source: SourceRecords) -> None:
    _are_rows(source.layers.values(), 0, source.places, "places of layers")
    for graph in source.graphs:
        _are_rows(graph.places, -1, source.places, "places of ops")


def _check_part(part: CellPart) -> None:
    _claim(part.part in PARTS, "a part of a cell that is none")
    _claim(part.longest_ns <= part.wall_ns, "an occurrence that is longer than all of them")


def _check_cell(cell: CellRecords) -> None:
    whole = sum(part.wall_ns for part in cell.parts)
    _claim(whole == cell.wall_ns, "parts that do not add up to the cell")
    keys = {
        (part.part, part.name, *((part.file, part.line) if part.part == OTHER else ()))
        for part in cell.parts
    }
    _claim(len(keys) == len(cell.parts), "a part of a cell twice")
    columns = cell.long_part, cell.long_begin_ns, cell.long_end_ns, cell.long_wall_ns
    _have_one_length(*columns)
    _are_rows(cell.long_part, 0, cell.parts, "parts of calls")
    for row, begin_ns, end_ns, wall_ns in zip(*columns, strict=True):
        is_so = wall_ns <= min(end_ns - begin_ns, cell.parts[row].longest_ns)
        _claim(is_so, "a call that took longer than it lasted, or than the longest one")


def _check_network(network: NetworkFiles) -> None:
    most = max((network.found, *network.mounts.values()))
    _claim(most <= network.looks, "files that were found more often than was looked")


def _check_machine(machine: MachineRecords) -> None:
    _ascend(machine.time_ns, *machine.columns())


def _check_stacks(stacks: StackRecords) -> None:
    _ascend(stacks.time_ns, stacks.stack)
    is_after = not stacks.time_ns or stacks.begin_ns <= stacks.time_ns[0]
    _claim(is_after, "samples before sampling began")
    _are_rows(stacks.stack, 0, stacks.stacks, "stacks")
    for stack in stacks.stacks:
        _are_rows(stack, 0, stacks.frames, "frames")


def _check_gaps(gaps: GapRecords) -> None:
    _claim(gaps.new <= gaps.judged <= gaps.runs and gaps.fed <= gaps.runs, "more runs fed than ran")


def _check_queue(queue: QueueRecord) -> None:
    _have_one_length(queue.begin_ns, queue.end_ns, queue.elements, queue.thread)
    _claim(all(map(int.__le__, queue.begin_ns, queue.end_ns)), "runs that end before they begin")


CHECKS: Mapping[type, Callable[[Any], None]] = {
    StepRecords: _check_steps,
    ModelFacts: _check_model,
    LineRecords: _check_lines,
    GraphLines: lambda one: _have_one_length(
        one.op_names, one.op_types, one.places, one.is_outside
    ),
    GraphShapes: _check_shapes,
    SourceRecords: _check_source,
    StackRecords: _check_stacks,
    GapRecords: _check_gaps,
    GapPlace: lambda one: _claim(one.role in ROLES, "a statement of a role that is none"),
    QueueRecord: _check_queue,
    CellPart: _check_part,
    CellRecords: _check_cell,
    NetworkFiles: _check_network,
    MachineRecords: _check_machine,
    TurnRecords: lambda one: _ascend(one.begin_ns, one.place, one.iterator, one.was_traced),
}
