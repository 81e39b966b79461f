"""What a capture saw besides the trace, to a small JSON file beside it, and back.

The trace says what ran while it was recorded; how long every step took, what the fits reached and what the
code ran with stand in ``HOST.profnb.json`` beside ``HOST.xplane.pb``. TensorBoard does not look at it.
A shared file may hold anything: each value is checked before it is used.
"""

import json
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from profnb.capture.histories import FitResult
from profnb.capture.recording import Recording
from profnb.capture.records import StepRecords
from profnb.errors import TraceFormatError
from profnb.options import CaptureOptions

__all__ = ["read_recordings", "sidecar_of", "write_recordings"]

_SUFFIX, _TRACE_SUFFIX = ".profnb.json", ".xplane.pb"
_VERSION = 1
_LONGEST_NS = 1 << 60
_LARGEST = 1e100
_MOST_BYTES = 256 << 20
_MOST_STEPS, _MOST_RUNS, _MOST_ITEMS, _LONGEST = 200_000, 1000, 10_000, 2000
_COLUMNS = (
    "begin_ns", "end_ns", "name", "kind", "was_traced", "retraced", "iterations", "step_num", "run",
)  # fmt: skip


def sidecar_of(trace: Path) -> Path:
    """The file beside a trace."""
    return trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + _SUFFIX)


def write_recordings(trace: Path, options: CaptureOptions, recordings: Sequence[Recording]) -> None:
    """Write what was seen of each run beside its trace."""
    told = {
        "profnb": _VERSION,
        "label": options.label,
        "max_steps": options.max_steps,
        "max_seconds": options.max_seconds,
        "warmup_steps": options.warmup_steps,
        "runs": [_plain(recording) for recording in recordings],
    }
    sidecar_of(trace).write_text(json.dumps(told, separators=(",", ":")), encoding="utf-8")


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
    reader = _Reader(path.name)
    try:
        if path.stat().st_size > _MOST_BYTES:
            reader.refuse(f"{path.stat().st_size:,} bytes")
        told = reader.mapping(json.loads(path.read_bytes()))
        if told.get("profnb") != _VERSION:
            reader.refuse(f"version {str(told.get('profnb'))[:20]}")
        label = told.get("label")
        options = CaptureOptions(
            max_steps=reader.number(told.get("max_steps")),
            max_seconds=float(told.get("max_seconds", 0)),
            warmup_steps=reader.number(told.get("warmup_steps")),
            label=None if label is None else reader.text(label),
        )
        runs = [reader.recording(run) for run in reader.items(told.get("runs"), _MOST_RUNS)]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        reader.refuse(str(error)[:100])
    return options, runs


class _Reader:
    """Values of one file, each checked."""

    def __init__(self, source: str) -> None:
        self._source = source

    def refuse(self, found: str) -> NoReturn:
        raise TraceFormatError(
            f"{self._source} is not what profnb writes beside a trace (found: {found}). Remove it to open "
            "the trace alone."
        )

    def mapping(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
            self.refuse(f"{type(value).__name__} where an object belongs")
        return value

    def items(self, value: object, most: int = _MOST_ITEMS) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            self.refuse(f"{type(value).__name__} where a list of at most {most:,} belongs")
        return value

    def text(self, value: object) -> str:
        if not isinstance(value, str):
            self.refuse(f"{type(value).__name__} where text belongs")
        return value[:_LONGEST].encode("utf-8", "replace").decode("utf-8")  # no lone surrogates

    def count(self, value: object) -> int:
        number = self.number(value)
        if number < 0:
            self.refuse(f"{number} where nothing below 0 belongs")
        return number

    def number(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
            self.refuse(f"{str(value)[:40]!r} where a whole number belongs")
        return value

    def texts(self, value: object) -> list[str]:
        return [self.text(item) for item in self.items(value)]

    def named(self, value: object, read: Callable[[object], Any]) -> dict[str, Any]:
        return {self.text(name): read(item) for name, item in self.mapping(value).items()}

    def pair(self, value: object) -> tuple[str, Any]:
        first, second = self.items(value, 2)
        return self.text(first), second

    def recording(self, value: object) -> Recording:
        run = self.mapping(value)
        closed_by = run.get("closed_by")
        return Recording(
            steps=self.steps(run.get("steps"), run.get("names")),
            window_ns=self.count(run.get("window_ns")),
            wall_ns=self.count(run.get("wall_ns")),
            overhead_ns=self.count(run.get("overhead_ns")),
            closed_by=None if closed_by is None else self.text(closed_by),
            messages=self.texts(run.get("messages")),
            devices=tuple(self.texts(run.get("devices"))),
            environment=self.named(run.get("environment"), self.text),
            datasets=tuple(
                tuple((kind, self.text(own)) for kind, own in map(self.pair, self.items(chain)))
                for chain in self.items(run.get("datasets"))
            ),
            cardinalities=self.named(run.get("cardinalities"), self.count),
            changing_arguments=self.named(run.get("changing_arguments"), self.changing),
            fits=[self.fit(fit) for fit in self.items(run.get("fits"))],
            graph_versions=[self.number(one) for one in self.items(run.get("graph_versions"))],
        )

    def changing(self, value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return tuple(
            (argument, tuple(self.texts(values)))
            for argument, values in map(self.pair, self.items(value))
        )

    def fit(self, value: object) -> FitResult:
        metrics, epochs, is_continued = self.items(value, 3)
        return FitResult(self.named(metrics, _real), self.count(epochs), bool(is_continued))

    def steps(self, columns: object, names: object) -> StepRecords:
        told, steps = self.mapping(columns), StepRecords(names=self.texts(names))
        length = len(self.items(told.get(_COLUMNS[0]), _MOST_STEPS))
        for column in _COLUMNS:
            values = self.items(told.get(column), _MOST_STEPS)
            if len(values) != length:
                self.refuse(f"{len(values):,} values of {column} for {length:,} steps")
            own: array[int] = getattr(steps, column)
            own.extend(values)  # refuses what is no number, or too large
        spans = zip(steps.begin_ns, steps.end_ns, strict=True)
        if any(not -_LONGEST_NS < begin <= end < _LONGEST_NS for begin, end in spans):
            self.refuse("steps that end before they begin, or last for centuries")
        if length and min(steps.iterations) < 1:
            self.refuse("steps of less than one iteration")
        bounds = {"name": len(steps.names), "kind": len(steps.kinds)}
        for column, most in bounds.items():
            own = getattr(steps, column)
            if own and not 0 <= min(own) <= max(own) < most:
                self.refuse(f"{column} outside 0 to {most - 1}")
        return steps


def _real(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    return number if abs(number) < _LARGEST else float("inf") if number > 0 else number
