"""What a capture saw besides the trace, to a small JSON file beside it, and back.

The trace says what ran while it was recorded; how long every step took, what the fits reached, what the
code ran with, its models and its source stand in ``HOST.profnb.json.gz`` beside ``HOST.xplane.pb``.
TensorBoard does not look at it. The file is one object: the options, and a ``Recording`` per run, as
``codec`` writes them within ``limits``. Files of version 1 are read too.

What is written is decoded once before, so that no file is written that would be refused: a part of a
recording that does not pass is left out, and a sentence in the recording says so.
"""

import gzip
import json
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profnb.capture.recording import Recording
from profnb.capture.saved.codec import Codec, Limit
from profnb.capture.saved.limits import CHECKS, LIMITS
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.core.safe_files import whole_file
from profnb.core.sharing import Sharing

_SUFFIX, _TRACE_SUFFIX = ".profnb.json.gz", ".xplane.pb"
_VERSION = 2
_MOST_BYTES, _LEVEL, _MOST_RUNS = 64 << 20, 5, 1000
_LARGEST_PARTS = ("stacks", "source", "models")  # left out first where all would be too large


def sidecar_of(trace: Path) -> Path:
    """The file beside a trace."""
    return trace.with_name(trace.name.removesuffix(_TRACE_SUFFIX) + _SUFFIX)


def write_recordings(trace: Path, options: CaptureOptions, recordings: Sequence[Recording]) -> None:
    """Write what was seen of each run beside its trace.

    Raises:
        OSError: The file cannot be written.
    """
    contents = Codec(LIMITS, CHECKS).encode(options, CaptureOptions)
    runs = [_encode(recording) for recording in recordings[:_MOST_RUNS]]
    contents |= {"profnb": _VERSION, "runs": runs}
    contents = Sharing(has_files=options.source).values(contents)
    runs = contents["runs"]
    text = json.dumps(contents, separators=(",", ":"))
    for part in _LARGEST_PARTS:
        for run in runs if len(text) > _MOST_BYTES else ():
            if run.pop(part, None):
                _say(run, _left_out(part, "the file would be too large"))
        text = json.dumps(contents, separators=(",", ":"))
    packed = gzip.compress(text.encode(), _LEVEL, mtime=0)
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
    try:
        with gzip.open(path) as file:
            text = file.read(_MOST_BYTES + 1)
        return _decode(text)
    except (
        TraceFormatError,
        ArithmeticError,
        AttributeError,
        LookupError,
        ValueError,
        TypeError,
        RecursionError,
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
    ) as error:
        raise TraceFormatError(
            f"{path.name} is not what profnb writes beside a trace (found: {str(error)[:200]}). Remove it "
            "to open the trace alone."
        ) from None


def _decode(text: bytes) -> tuple[CaptureOptions, list[Recording]]:
    if len(text) > _MOST_BYTES:
        raise TraceFormatError(f"more than {_MOST_BYTES:,} bytes")
    contents = json.loads(text)
    version, runs = contents["profnb"], contents["runs"]
    if version not in (1, _VERSION) or not isinstance(runs, list) or len(runs) > _MOST_RUNS:
        raise TraceFormatError(f"version {str(version)[:20]} with {type(runs).__name__} of runs")
    codec = Codec(LIMITS, CHECKS)
    if version == 1:
        runs = [_of_version_1(run) for run in runs]
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
