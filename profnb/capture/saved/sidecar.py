"""All that a capture saw besides the trace, to a small JSON file beside it, and back.

The trace says what ran while it was recorded; how long every step took, what the fits reached, what the
code ran with, its models and its source stand in ``HOST.profnb.json.gz`` beside ``HOST.xplane.pb``.
TensorBoard does not look at it. The file is one object: the options, and a ``Recording`` per run, as
``codec`` writes them within ``LIMITS``.

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
from profnb.capture.machine.waits import NetworkFiles
from profnb.capture.models.layer_facts import ModelFacts
from profnb.capture.parts.part_records import OTHER, PARTS, CellPart, CellRecords, Loads
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

# Centuries; longer than any file; of a dimension.
_MOST_NS, _LINE, _SIZE = 1 << 60, 1 << 30, 1 << 40
_STEPS, _ROWS, _PLACES, _OPS, _FRAMES, _LAYERS = 200_000, 500_000, 200_000, 100_000, 200_000, 20_000
_DEEPEST_MODEL, _PARTS, _CALLS, _NODES = 64, 400, 40_000, 1_200
_LOOKS = Limit((MOST_LOOKS + 1,), -_MOST_NS, _MOST_NS, has_differences=True)

# What each bounds: a field of a class, or a class, for those of its fields that are not named.
_BOUNDS = (
    (Limit(is_kept=False), "CaptureOptions Recording.path Recording.folder Recording.graph_runs "
     "Recording.graph StepRecords.kinds"),
    (Limit(), "CaptureOptions.max_steps CaptureOptions.max_seconds CaptureOptions.warmup_steps "
     "CaptureOptions.label CaptureOptions.source CaptureOptions.steps Recording.graph_versions"),
    # Single numbers: at least 0; times and sums; lines; sizes; rows of tables.
    (Limit(least=0), "Recording FitResult SourceRecords.cells CellRecords.cells GapRecords.cells"),
    (Limit(least=0, end=_MOST_NS), "Recording.file_counts Recording.file_bytes CellRecords.wall_ns CellPart "
     "TreeNode CoreWaits GapRecords GapPlace QueueRecord StackRecords.begin_ns HeldMemory"),
    (Limit(least=0, end=_LINE), "TracedFunction.code LineRecords.untimed CellPart.line TreeNode.line "
     "TurnRecords.library_places BoardRecords.index GapPlace.line GapPlace.inner_line"),
    (Limit(least=0, end=_SIZE), "LayerFacts.numbers CellPart.occurrences NetworkFiles"),
    (Limit(least=1, end=_SIZE), "TracedFunction.tracings Loads"),
    (Limit(least=-_MOST_NS, end=_MOST_NS), "TurnRecords.end_ns"),
    (Limit(least=-_MOST_NS, end=_MOST_NS << 1), "SessionRecords.epoch_ns"),
    (Limit(least=-1, end=_MOST_NS), "LayerFacts.parameters QueueRecord.capacity MemoryPool "
     "MemoryShortage"),
    (Limit(least=-1, end=_LAYERS), "LayerFacts.parent OpFact.row"),
    (Limit(least=-1, end=_NODES), "TreeNode.parent"),
    (Limit(least=0, end=_FRAMES), "StackRecords.base"),
    # How many there may be.
    (Limit((16,)), "MachineRecords.boards CellRecords.loads"),
    (Limit((64,)), "MemoryRecords.pools"),
    (Limit((100,)), "SessionRecords.queues GapRecords.places"),
    (Limit((200,)), "Recording.models"),
    (Limit((500,)), "MemoryRecords.held"),
    (Limit((_PARTS,)), "CellRecords.parts"),
    (Limit((1000,)), "QueueRecord.sources"),
    (Limit((_NODES,)), "CellRecords.tree"),
    (Limit((_LAYERS,)), "ModelFacts.layers"),
    (Limit((_OPS,)), "ModelFacts.scopes ModelFacts.again"),
    (Limit((_PLACES,)), "LineRecords.files"),
    (Limit((_OPS, 8)), "GraphLines.calls"),
    (Limit((20, 20, _OPS)), "ModelFacts.ops"),
    (Limit((200, 50_000)), "SourceRecords.texts"),
    # How many, and of what size.
    (Limit((16,), 0, _SIZE), "LayerFacts.output_shape"),
    (Limit((100,), 0, _SIZE), "NetworkFiles.mounts"),
    (Limit((1000,), 0, _MOST_NS), "QueueRecord.dequeues QueueRecord.enqueues"),
    (Limit((10_000, 16), 0, _SIZE), "LayerFacts.input_shapes LayerFacts.kernels"),
    (Limit((_LAYERS,), 0, _SIZE), "ModelFacts.calls"),
    (Limit((_LAYERS,), 0, _PLACES), "SourceRecords.layers"),
    (Limit((_PLACES,), 0, _LINE), "SourceRecords.places"),
    (Limit((_OPS,), -1), "GraphLines"),
    (Limit((4 * _OPS, 1_000), -1, _SIZE), "GraphShapes"),
    (Limit((4 * _OPS, 64), 0, _SIZE), "GraphShapes.shapes"),
    (Limit((_OPS, 2_000), 0, _FRAMES), "StackRecords.stacks"),
    (Limit((_FRAMES,), 0, _LINE), "StackRecords.frames"),
    (Limit((_CALLS,), 0, _PARTS), "CellRecords.long_part"),
    (Limit((_CALLS,), -_MOST_NS, _MOST_NS), "CellRecords.long_begin_ns CellRecords.long_end_ns"),
    (Limit((_CALLS,), 0, _MOST_NS), "CellRecords.long_wall_ns"),
    # Columns of steps, lines, samples, marks and looks.
    (Limit((_STEPS,), -_MOST_NS, _MOST_NS), "StepRecords QueueRecord.begin_ns QueueRecord.end_ns"),
    (Limit((_STEPS,), 1), "StepRecords.iterations"),
    (Limit((_STEPS,), 0, _SIZE), "StepRecords.ended_at"),  # of later steps than are kept, too
    (Limit((_STEPS,), 1, _MOST_NS), "StepRecords.ended_epoch"),
    (Limit((_STEPS,), 0, _LINE), "QueueRecord.elements QueueRecord.thread"),
    (Limit((_ROWS,), 0, _MOST_NS, has_differences=True), "LineRecords.time_ns StackRecords.time_ns"),
    (Limit((_ROWS,), -1), "LineRecords.code"),
    (Limit((_ROWS,), ENTERED, _LINE), "LineRecords.line"),
    (Limit((_ROWS,), 0), "StackRecords.stack"),
    (Limit((MOST_MARKS,), 0, 2), "TurnRecords.was_traced"),
    (Limit((MOST_MARKS,), -_MOST_NS, _MOST_NS, has_differences=True), "TurnRecords.begin_ns"),
    (Limit((MOST_MARKS,), 0, _LINE), "TurnRecords.place"),
    (Limit((MOST_MARKS,), -1, _LINE), "TurnRecords.iterator"),
    (_LOOKS, "MachineRecords"),
    (replace(_LOOKS, least=-1), "BoardRecords"),
)  # fmt: skip
LIMITS: Mapping[str, Limit] = {name: limit for limit, names in _BOUNDS for name in names.split()}


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
            codec.reader(field, hint, name)(plain)
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
    is_ours = version == _SIDECAR_VERSION and isinstance(runs, list)
    if not is_ours or len(runs) > _MOST_RUNS_KEPT:
        raise TraceFormatError(f"version {str(version)[:20]}, {type(runs).__name__} of runs")
    codec = Codec(LIMITS, CHECKS)
    return codec.decode(contents, CaptureOptions), [codec.decode(run, Recording) for run in runs]


def _claim(is_so: bool, what: str) -> bool:
    """Let what is so be true; so claims can follow each other by ``and``."""
    if not is_so:
        raise ValueError(what)
    return True


def _have_one_length(*columns: Sequence[Any]) -> bool:
    return _claim(len({len(column) for column in columns}) == 1, "columns of different lengths")


def _are_rows(rows: Collection[int], least: int, table: Sequence[Any], what: str) -> bool:
    are_there = not rows or least <= min(rows) <= max(rows) < len(table)
    return _claim(are_there, f"{what} that are not there")


def _ascend(times: Sequence[int], *columns: Sequence[Any]) -> bool:
    """Claim that times ascend, and that there are as many in other columns."""
    ascend = all(before <= after for before, after in pairwise(times))
    return _have_one_length(times, *columns) and _claim(ascend, "times that run backwards")


def _lie_behind(begins: Sequence[int], ends: Sequence[int], what: str) -> bool:
    return _claim(all(map(int.__le__, begins, ends)), f"{what} that end before they begin")


def _check_steps(steps: StepRecords) -> None:
    apart = {"names", "kinds", "ended_at", "ended_epoch"}
    _have_one_length(*(getattr(steps, name) for name in steps.__dataclass_fields__.keys() - apart))
    _ascend(steps.ended_at, steps.ended_epoch)
    _lie_behind(steps.begin_ns, steps.end_ns, "steps")
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


def _check_stacks(stacks: StackRecords) -> None:
    _ascend(stacks.time_ns, stacks.stack)
    is_after = not stacks.time_ns or stacks.begin_ns <= stacks.time_ns[0]
    _claim(is_after, "samples before sampling began")
    _are_rows(stacks.stack, 0, stacks.stacks, "stacks")
    for stack in stacks.stacks:
        _are_rows(stack, 0, stacks.frames, "frames")


CHECKS: Mapping[type, Callable[[Any], object]] = {
    StepRecords: _check_steps,
    ModelFacts: _check_model,
    LineRecords: lambda one: (
        _ascend(one.time_ns, one.code, one.line) and _are_rows(one.code, -1, one.files, "functions")
    ),
    GraphLines: lambda one: _have_one_length(
        one.op_names, one.op_types, one.places, one.is_outside
    ),
    GraphShapes: _check_shapes,
    SourceRecords: _check_source,
    StackRecords: _check_stacks,
    GapRecords: lambda one: _claim(
        one.new <= one.judged <= one.runs and one.fed <= one.runs, "more runs fed than ran"
    ),
    GapPlace: lambda one: _claim(one.role in ROLES, "a statement of a role that is none"),
    QueueRecord: lambda one: (
        _have_one_length(one.begin_ns, one.end_ns, one.elements, one.thread)
        and _lie_behind(one.begin_ns, one.end_ns, "runs")
    ),
    CellPart: lambda one: (
        _claim(one.part in PARTS, "a part of a cell that is none")
        and _claim(one.longest_ns <= one.wall_ns, "an occurrence longer than all of them")
    ),
    CellRecords: _check_cell,
    Loads: lambda one: _claim(one.models <= one.times, "more models than were loaded"),
    NetworkFiles: lambda one: _claim(
        max((one.found, *one.mounts.values())) <= one.looks,
        "files that were found more often than was looked",
    ),
    MachineRecords: lambda one: _ascend(one.time_ns, *one.columns()),
    TurnRecords: lambda one: _ascend(one.begin_ns, one.place, one.iterator, one.was_traced),
}
