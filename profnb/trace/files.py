"""A path, a run folder or a TensorBoard logdir: which files it holds, and which reader opens them.

TensorBoard's layout is ``LOGDIR/plugins/profile/RUN/HOST.xplane.pb``.
"""

import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.regular_files import check_regular, is_regular, read_whole
from profnb.core.whole_files import claim_folder, whole_file
from profnb.tf1.run_metadata import looks_like_run_metadata, read_run_metadata
from profnb.trace.chrome.reader import read_chrome
from profnb.trace.model import Trace
from profnb.trace.runs.grouping_files import TraceFile, group_into_runs
from profnb.trace.runs.masked_trace import masked
from profnb.trace.xplane import read_xplane

_SUFFIX = ".xplane.pb"
# What else a folder may hold that we read; only where there is no XPlane trace.
_OTHER_SUFFIXES = (
    ".pt.trace.json",
    ".pt.trace.json.gz",
    ".trace.json",
    ".trace.json.gz",
    ".run_metadata.pb",
    ".run_metadata.pb.gz",
)
_OTHER_PREFIX = "timeline"
_GZIP = b"\x1f\x8b"
_PIECE, _FIRST_PIECE = 1 << 22, 1 << 12
MOST_BYTES = 2 << 30  # of a trace, inflated or not: no protobuf has more
_SURE_BYTES = 1 << 28  # more than that is counted before it is kept
_MOST_FOLDERS = 20_000


def find_traces(path: str | os.PathLike[str]) -> list[TraceFile]:
    """The traces under a path, each with the run that it is a host's part of, oldest run first.

    Args:
        path: A trace file, a run folder, or a TensorBoard logdir.

    Raises:
        FileNotFoundError: There is nothing at this path.
        TraceFormatError: There is no trace in it.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        check_regular(root)
        return [_trace_file(root)]
    xplanes: list[Path] = []
    others: list[Path] = []
    for number, (folder, _, files) in enumerate(os.walk(root)):
        if number >= _MOST_FOLDERS:
            break
        xplanes.extend(Path(folder, name) for name in files if name.endswith(_SUFFIX))
        others.extend(Path(folder, name) for name in files if _is_other(name))
    paths = [path for path in xplanes if is_regular(path)] or [
        path for path in others if is_regular(path)
    ]
    if not paths:
        raise TraceFormatError(
            f"No *{_SUFFIX}, *.trace.json[.gz] or timeline*.json under {root}. Give a trace file, or a "
            "logdir with plugins/profile/RUN/HOST.xplane.pb below it."
        )
    traces = group_into_runs([_trace_file(file) for file in paths])
    newest = {trace.run: 0.0 for trace in traces}
    for trace in traces:
        newest[trace.run] = max(newest[trace.run], trace.path.stat().st_mtime)
    return sorted(traces, key=lambda trace: (newest[trace.run], trace.run, trace.host))


def _is_other(name: str) -> bool:
    is_timeline = name.startswith(_OTHER_PREFIX) and name.endswith((".json", ".json.gz"))
    return is_timeline or name.endswith(_OTHER_SUFFIXES)


def _trace_file(path: Path) -> TraceFile:
    host = path.name
    for suffix in (_SUFFIX, *_OTHER_SUFFIXES, ".json", ".json.gz"):
        host = host.removesuffix(suffix)
    return TraceFile(path, printable(path.parent.name or "."), printable(host))


def pick_trace(traces: list[TraceFile], run: str | None, host: str | None) -> TraceFile:
    """The trace of the named run and host; the newest run and its first host where not named.

    Raises:
        ValueError: No such run or host; the message lists those there are.
    """
    runs = list(dict.fromkeys(trace.run for trace in traces))
    run = run if run is not None else runs[-1]
    hosts = [trace for trace in traces if trace.run == run]
    if not hosts:  # another folder of a run that lies in several
        of_folder = [trace.run for trace in traces if trace.folder == run]
        hosts = [trace for trace in traces if trace.run in of_folder[:1]]
    if not hosts:
        raise ValueError(f"No run {run!r}; found: {', '.join(runs)}.")
    if host is None:
        return hosts[0]
    for trace in hosts:
        if trace.host == host:
            return trace
    names = ", ".join(trace.host for trace in hosts)
    raise ValueError(f"No host {host!r} in run {run!r}; found: {names}.")


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read one trace file, of any format we know; the content tells which, not the name.

    The file is copied into memory and not mapped: what another program does to it afterwards is nothing to
    the trace, and one that is written while it is read is an error and no end of the process (SIGBUS).

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is no such file.
        TraceFormatError: It is not a trace we can read, or it changed while it was read.
    """
    file = Path(path).expanduser()
    return _read(read_whole(file, MOST_BYTES), printable(file.name))


def _read(recorded: Bytes, source: str) -> Trace:
    """Read bytes by what they are: gzip, JSON, RunMetadata, or else an XSpace."""
    if recorded[:2].tobytes() == _GZIP:
        recorded = _decompress(recorded, source)
        if recorded[:2].tobytes() == _GZIP:  # a file may hold itself, without end
            raise TraceFormatError(f"{source}: gzip inside gzip. Decompress it once and open that.")
    start = recorded[:64].tobytes()
    if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{"):
        return read_chrome(recorded, source)
    if looks_like_run_metadata(recorded):
        return read_run_metadata([recorded], source)
    return read_xplane(recorded, source)


def _decompress(packed: Bytes, source: str) -> Bytes:
    """Inflate gzip to a bound: what a file claims of its size is not believed, and much is counted first."""
    inflated, is_counted = bytearray(), False
    for piece in _inflate(packed, source):
        inflated += piece
        if len(inflated) > _SURE_BYTES and not is_counted:
            is_counted = True
            _check_size(packed, source)
    whole = np.frombuffer(inflated, np.uint8)
    whole.flags.writeable = False
    return whole


def _check_size(packed: Bytes, source: str) -> None:
    size = 0
    for piece in _inflate(packed, source):
        size += len(piece)
        if size > MOST_BYTES:
            raise TraceFormatError(
                f"{source}: more than {MOST_BYTES / 1e9:.1f} GB when decompressed, from "
                f"{packed.size / 1e6:,.1f} MB. Decompress it and cut it, or record fewer steps."
            )


def _inflate(packed: Bytes, source: str) -> Iterator[bytes]:
    """Inflate gzip by pieces, none of them large."""
    done, at, size = 0, 0, _FIRST_PIECE
    inflate = zlib.decompressobj(wbits=31)
    try:
        while at < packed.size:
            left = packed[at : at + size].tobytes()
            at += len(left)
            while left and not inflate.eof:
                piece = inflate.decompress(left, _PIECE)
                left = inflate.unconsumed_tail
                done += len(piece)
                yield piece
            at -= len(inflate.unused_data)
            size = min(2 * size, _PIECE)
            if inflate.eof:
                if packed[at : at + 2].tobytes() != _GZIP:
                    break
                # Another member; pieces begin small, or many tiny members would take quadratic time.
                inflate, size = zlib.decompressobj(wbits=31), _FIRST_PIECE
    except zlib.error as error:
        raise TraceFormatError(
            f"{source}: damaged gzip after {done:,} bytes ({error}). Download or record it again."
        ) from None
    if not inflate.eof:
        raise TraceFormatError(
            f"{source}: the gzip is cut short after {done:,} bytes. Download or record it again."
        )


def write_trace(trace: Trace, logdir: str | os.PathLike[str]) -> Path:
    """Write a trace into a logdir in TensorBoard's layout, as it was read but for what must not leave.

    Returns:
        The file that was written.

    Raises:
        TraceFormatError: The trace did not come from an XPlane file.
        OSError: It cannot be written.
    """
    if trace.recorded is None:
        raise TraceFormatError(f"{trace.source} was not read from an XPlane file.")
    recorded = trace.recorded

    def write(target: Path) -> None:
        with whole_file(target) as partial:
            partial.write_bytes(masked(recorded, trace.sharing))

    return write_into_run(trace, logdir, _SUFFIX, write)


def write_into_run(
    trace: Trace, logdir: str | os.PathLike[str], suffix: str, write: Callable[[Path], object]
) -> Path:
    """Write what was recorded of a trace into a new run of a logdir, in TensorBoard's layout.

    Args:
        trace: The trace, whose host the file is named for as far as that may leave.
        logdir: The logdir.
        suffix: What the file's name ends with.
        write: Writes the file it is given, whole or not at all.

    Returns:
        The file that was written.
    """
    runs = Path(logdir).expanduser() / "plugins" / "profile"
    folder = claim_folder(runs, time.strftime("%Y_%m_%d_%H_%M_%S"))
    host = trace.sharing.text(trace.hostnames[0]) if trace.hostnames else "host"
    target = folder / (re.sub(r"[^\w.-]", "_", host) + suffix)
    try:
        write(target)
    except BaseException:
        folder.rmdir()
        raise
    return target
