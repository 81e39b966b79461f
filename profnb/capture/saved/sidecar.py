"""What a capture saw besides the trace, to a small JSON file beside it, and back.

The trace says what ran while it was recorded; how long every step took, what the fits reached, what the
code ran with, its models and its source stand in ``HOST.profnb.json.gz`` beside ``HOST.xplane.pb``.
TensorBoard does not look at it. A shared file may hold anything: each value is checked before it is used.
"""

import gzip
import json
import zlib
from array import array
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from profnb.capture.histories import FitResult
from profnb.capture.recording import Recording
from profnb.capture.saved.checked import Checked
from profnb.capture.saved.saved_models import plain_models, read_models
from profnb.capture.saved.saved_source import plain_source, plain_stacks, read_source, read_stacks
from profnb.capture.step_records import StepRecords
from profnb.core.options import CaptureOptions

__all__ = ["read_recordings", "sidecar_of", "write_recordings"]

_SUFFIX, _TRACE_SUFFIX = ".profnb.json.gz", ".xplane.pb"
_VERSION = 1
_LONGEST_NS = 1 << 60
_LARGEST = 1e100
_MOST_BYTES = 64 << 20
_LEVEL = 5
_MOST_STEPS, _MOST_RUNS = 200_000, 1000
_COLUMNS = (
    "begin_ns", "end_ns", "name", "kind", "was_traced", "retraced", "iterations", "step_num", "run",
)  # fmt: skip


def sidecar_of(trace: Path) -> Path:
    """The file beside a trace."""
    return trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + _SUFFIX)


def write_recordings(trace: Path, options: CaptureOptions, recordings: Sequence[Recording]) -> None:
    """Write what was seen of each run beside its trace."""
    told: dict[str, Any] = {
        "profnb": _VERSION,
        "label": options.label,
        "max_steps": options.max_steps,
        "max_seconds": options.max_seconds,
        "warmup_steps": options.warmup_steps,
        "runs": [_plain(recording) for recording in recordings],
    }
    text = json.dumps(told, separators=(",", ":"), default=int)
    if len(text) > _MOST_BYTES:
        for run in told["runs"]:
            run.update(models=[], source=None, stacks=None)
        text = json.dumps(told, separators=(",", ":"), default=int)
    sidecar_of(trace).write_bytes(gzip.compress(text.encode("ascii"), _LEVEL, mtime=0))


def _plain(recording: Recording) -> dict[str, Any]:
    steps = recording.steps
    return {
        "steps": {column: getattr(steps, column)[:_MOST_STEPS].tolist() for column in _COLUMNS},
        "names": list(steps.names),
        "window_ns": recording.window_ns,
        "wall_ns": recording.wall_ns,
        "overhead_ns": recording.overhead_ns,
        "closed_by": recording.closed_by,
        "messages": list(recording.messages),
        "devices": list(recording.devices),
        "environment": recording.environment,
        "datasets": [list(map(list, chain)) for chain in recording.datasets],
        "cardinalities": recording.cardinalities,
        "changing_arguments": {
            name: [[argument, list(values)] for argument, values in found]
            for name, found in recording.changing_arguments.items()
        },
        "fits": [[fit.metrics, fit.epochs, fit.is_continued] for fit in recording.fits],
        "graph_versions": recording.graph_versions,
        "models": plain_models(recording.models),
        "source": plain_source(recording.source),
        "stacks": plain_stacks(recording.stacks),
    }


def read_recordings(trace: Path) -> tuple[CaptureOptions, list[Recording]]:
    """What stands beside a trace.

    Returns:
        How it was captured, and one recording per run, the traced one first; defaults and nothing where there
        is no such file.

    Raises:
        TraceFormatError: There is one, but it is not what profnb writes.
    """
    path = sidecar_of(trace)
    if path == trace or not path.is_file():
        return CaptureOptions(), []
    reader = Checked(path.name)
    try:
        with gzip.open(path) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            reader.refuse(f"more than {_MOST_BYTES:,} bytes")
        told = reader.mapping(json.loads(text))
        if told.get("profnb") != _VERSION:
            reader.refuse(f"version {str(told.get('profnb'))[:20]}")
        label = told.get("label")
        options = CaptureOptions(
            max_steps=reader.number(told.get("max_steps")),
            max_seconds=float(told.get("max_seconds", 0)),
            warmup_steps=reader.number(told.get("warmup_steps")),
            label=None if label is None else reader.text(label),
        )
        runs = [_recording(reader, run) for run in reader.items(told.get("runs"), _MOST_RUNS)]
    except (
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
    ) as error:
        reader.refuse(str(error)[:100])
    return options, runs


def _recording(reader: Checked, value: object) -> Recording:
    run = reader.mapping(value)
    closed_by = run.get("closed_by")
    return Recording(
        steps=_steps(reader, run.get("steps"), run.get("names")),
        window_ns=reader.count(run.get("window_ns")),
        wall_ns=reader.count(run.get("wall_ns")),
        overhead_ns=reader.count(run.get("overhead_ns")),
        closed_by=None if closed_by is None else reader.text(closed_by),
        messages=reader.texts(run.get("messages")),
        devices=tuple(reader.texts(run.get("devices"))),
        environment=reader.named(run.get("environment"), reader.text),
        datasets=tuple(
            tuple((kind, reader.text(own)) for kind, own in map(reader.pair, reader.items(chain)))
            for chain in reader.items(run.get("datasets"))
        ),
        cardinalities=reader.named(run.get("cardinalities"), reader.count),
        changing_arguments=reader.named(run.get("changing_arguments"), partial(_changing, reader)),
        fits=[_fit(reader, fit) for fit in reader.items(run.get("fits"))],
        graph_versions=[reader.number(one) for one in reader.items(run.get("graph_versions"))],
        models=read_models(reader, run.get("models", [])),
        source=read_source(reader, run.get("source")),
        stacks=read_stacks(reader, run.get("stacks")),
    )


def _changing(reader: Checked, value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (argument, tuple(reader.texts(values)))
        for argument, values in map(reader.pair, reader.items(value))
    )


def _fit(reader: Checked, value: object) -> FitResult:
    metrics, epochs, is_continued = reader.items(value, 3)
    return FitResult(reader.named(metrics, _real), reader.count(epochs), bool(is_continued))


def _steps(reader: Checked, columns: object, names: object) -> StepRecords:
    told, steps = reader.mapping(columns), StepRecords(names=reader.texts(names))
    length = len(reader.items(told.get(_COLUMNS[0]), _MOST_STEPS))
    for column in _COLUMNS:
        values = reader.items(told.get(column), _MOST_STEPS)
        if len(values) != length:
            reader.refuse(f"{len(values):,} values of {column} for {length:,} steps")
        own: array[int] = getattr(steps, column)
        own.extend(values)  # refuses what is no number, or too large
    spans = zip(steps.begin_ns, steps.end_ns, strict=True)
    if any(not -_LONGEST_NS < begin <= end < _LONGEST_NS for begin, end in spans):
        reader.refuse("steps that end before they begin, or last for centuries")
    if length and min(steps.iterations) < 1:
        reader.refuse("steps of less than one iteration")
    bounds = {"name": len(steps.names), "kind": len(steps.kinds)}
    for column, most in bounds.items():
        reader.within(getattr(steps, column), 0, most, column)
    return steps


def _real(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    return number if abs(number) < _LARGEST else float("inf") if number > 0 else number
