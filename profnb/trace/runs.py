"""Traces on disk: a path, a run's folder or a TensorBoard logdir to trace files, each with its run.

TensorBoard's layout is ``LOGDIR/plugins/profile/RUN/HOST.xplane.pb``. A run is a capture of which each file
is one host's part. Its folder is named by the second in which a host stopped, so one capture of several
hosts may lie in several folders. Files are of one run if they lie in one folder, or if their captures
overlapped in time. Two captures of one host that did not overlap are never of one run.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from profnb.core.columns import group
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import check_regular, is_regular, open_regular
from profnb.trace.model import Trace
from profnb.trace.wire import LENGTH, read_plain_varint
from profnb.trace.xplane import read_xplane

XPLANE_SUFFIX = ".xplane.pb"
TRACE_SUFFIXES = (
    XPLANE_SUFFIX, ".trace.json", ".trace.json.gz", ".run_metadata.pb", ".run_metadata.pb.gz",
)  # fmt: skip
EVENT_FILE = ".tfevents."
Named = TypeVar("Named")
_TIMELINE = re.compile(r"timeline.*\.json(\.gz)?", re.DOTALL)
_TRACE_SUFFIXES = re.compile(
    r"(\.xplane\.pb|((\.pt)?\.trace)?\.json(\.gz)?|\.run_metadata\.pb(\.gz)?)\Z"
)
_MOST_FOLDERS = 20_000
# TensorFlow and JAX write when the profiler started and stopped into a plane of its own (xla
# profiler/utils/xplane_schema.h: kTaskEnvPlaneName).
_ENVIRONMENT, _START, _STOP = "Task Environment", "profile_start_time", "profile_stop_time"
_PLANE, _HOSTNAME = 1, 4  # fields of XSpace
_HEAD, _LONGEST_PLANE, _LONGEST_HOSTNAME, _MOST_FIELDS = 64, 1 << 20, 1 << 10, 100_000


@dataclass(frozen=True, slots=True)
class CaptureTime:
    """The time and place of a recording.

    Attributes:
        begin_ns: When the profiler started, by the host's clock, in nanoseconds since 1970; 0 if unknown.
        end_ns: When it stopped; 0 if unknown.
        hostname: The host; "" if unknown.
    """

    begin_ns: int = 0
    end_ns: int = 0
    hostname: str = ""

    @property
    def is_known(self) -> bool:
        """Tell whether both times are."""
        return 0 < self.begin_ns < self.end_ns

    def overlaps(self, other: "CaptureTime") -> bool:
        """Tell whether both were being recorded at some time, as far as their clocks agree."""
        if not self.is_known or not other.is_known:
            return False
        return self.begin_ns < other.end_ns and other.begin_ns < self.end_ns


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One host's trace on disk.

    Attributes:
        path: The file.
        run: The capture that it is a part of, by the name of the folder that holds its first file; printable.
        host: The file's name without its suffix, printable; with its folder where two are called alike.
        time: When and where it was recorded, as far as it tells.
        beside: Further files that are read with it: all event files of a folder are one run.
    """

    path: Path
    run: str
    host: str
    time: CaptureTime = field(default_factory=CaptureTime)
    beside: tuple[Path, ...] = ()

    @property
    def folder(self) -> str:
        """The name of the folder that holds it."""
        return printable(self.path.parent.name or ".")


def find_traces(path: str | os.PathLike[str]) -> list[TraceFile]:
    """Find the traces under a path, each with the run that it is a host's part of, oldest run first.

    Args:
        path: A trace file, a run folder, or a TensorBoard logdir. Only where there is no XPlane trace are
            others looked at.

    Raises:
        FileNotFoundError: There is nothing at this path.
        TraceFormatError: There is no trace in it.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        check_regular(root)
        return [_trace_file(root)]
    listed = [file for file in _walked(root) if is_trace_name(file.name) and is_regular(file)]
    files = prefer(listed, lambda file: file.name)
    if not files:
        raise TraceFormatError(
            f"No *{XPLANE_SUFFIX}, *.trace.json[.gz] or timeline*.json under {root}. Give a trace file, or "
            "a logdir with plugins/profile/RUN/HOST.xplane.pb."
        )
    together = [[file] for file in files]
    if EVENT_FILE in files[0].name:
        together = list(group((file.parent, file) for file in sorted(files)).values())
    trace_files = [replace(_trace_file(first), beside=(*others,)) for first, *others in together]
    traces = _group_into_runs(trace_files)
    times = group((trace.run, trace.path.stat().st_mtime) for trace in traces)
    newest = {run: max(each) for run, each in times.items()}
    return sorted(traces, key=lambda trace: (newest[trace.run], trace.run, trace.host))


def _walked(root: Path) -> list[Path]:
    folders = islice(os.walk(root), _MOST_FOLDERS)
    return [Path(folder, name) for folder, _, names in folders for name in names]


def is_trace_name(name: str) -> bool:
    """Tell whether a file in a folder is called as traces are."""
    is_timeline = _TIMELINE.fullmatch(name) is not None
    return name.endswith(TRACE_SUFFIXES) or is_timeline or EVENT_FILE in name


def prefer(files: Sequence[Named], name_of: Callable[[Named], str]) -> Sequence[Named]:
    """Keep of a folder's files the kind that tells most; a logdir has an event file beside every trace."""
    return (
        [file for file in files if name_of(file).endswith(XPLANE_SUFFIX)]
        or [file for file in files if EVENT_FILE not in name_of(file)]
        or files
    )


def event_files(path: str | os.PathLike[str]) -> list[Path]:
    """Find the event files of a folder or of a trace's logdir; of a file itself, those of its run."""
    root = Path(path).expanduser()
    if root.is_dir():
        listed = _walked(root)
    else:
        in_logdir = root.parents[3:4] if root.parent.parent.name == "profile" else root.parents[:1]
        listed = [file for folder in in_logdir for file in folder.iterdir()]
    return sorted(file for file in listed if EVENT_FILE in file.name and is_regular(file))


def _trace_file(path: Path) -> TraceFile:
    return TraceFile(
        path, printable(path.parent.name or "."), printable(_TRACE_SUFFIXES.sub("", path.name))
    )


def pick_trace(traces: list[TraceFile], run: str | None, host: str | None) -> TraceFile:
    """Choose the trace of the named run and host; the newest run and its first host where not named.

    Raises:
        ValueError: No such run or host; the message lists those there are.
    """
    runs = runs_of(traces)
    run = run if run is not None else [*runs][-1]
    # Else another folder of a run that lies in several.
    hosts = runs.get(run) or next((runs[one.run] for one in traces if one.folder == run), [])
    if not hosts:
        raise ValueError(f"No run {run!r}; found: {', '.join(runs)}.")
    picked = next((trace for trace in hosts if host in (None, trace.host)), None)
    if picked is None:
        names = ", ".join(trace.host for trace in hosts)
        raise ValueError(f"No host {host!r} in run {run!r}; found: {names}.")
    return picked


def runs_of(files: Sequence[TraceFile]) -> dict[str, list[TraceFile]]:
    """Give the files of each run, in the order in which they come."""
    return group((file.run, file) for file in files)


def _group_into_runs(files: Sequence[TraceFile]) -> list[TraceFile]:
    """Give each file, in any order, the run that it is of and a host's name that is its own in that run.

    A run is called by its first folder, with the file's name where several are of that folder.
    """
    timed = [replace(file, time=read_capture_time(file.path)) for file in files]
    timed.sort(key=lambda file: (file.time.begin_ns, file.folder, file.host))
    runs: list[list[TraceFile]] = []
    for file in timed:
        run = next((run for run in reversed(runs) if _is_part(run, file)), None)
        if run is None:
            runs.append(run := [])
        run.append(file)
    names = [min(file.folder for file in run) for run in runs]
    named = []
    for run, name in zip(runs, names, strict=True):
        folders = {file.path.parent for file in run}
        is_shared = len(run) == 1 < names.count(name) and any(
            other is not run and not folders.isdisjoint(file.path.parent for file in other)
            for other in runs
        )
        run_name = f"{name}/{run[0].host}" if is_shared else name
        named += [replace(file, run=run_name) for file in name_hosts(run)]
    return named


def _is_part(run: Sequence[TraceFile], file: TraceFile) -> bool:
    """Tell whether a file is another host's part of a run."""
    is_linked = False
    for other in run:
        overlaps = other.time.overlaps(file.time)
        if other.time.is_known and file.time.is_known and not overlaps:
            is_same_host = (other.time.hostname or other.host) == (file.time.hostname or file.host)
            if is_same_host:  # one capture after the other
                return False
        same_folder = other.path.parent == file.path.parent
        is_copy = other.time == file.time and not same_folder
        if is_copy and other.host == file.host:
            return False
        is_linked |= same_folder or (overlaps and not is_copy)
    return is_linked


def name_hosts(files: Sequence[TraceFile]) -> list[TraceFile]:
    """Give each file a host's name that is its own, by their folder where two are called alike."""
    hosts = [file.host for file in files]
    return [
        file if hosts.count(file.host) == 1 else replace(file, host=f"{file.host} ({file.folder})")
        for file in files
    ]


def capture_time(trace: Trace) -> CaptureTime:
    """Tell when and on which host a trace was recorded, as far as it says."""
    environment = (plane.stats for plane in trace.planes if plane.name == _ENVIRONMENT)
    stats = next(environment, {})
    begin, end = (
        time_ns if isinstance(time_ns := stats.get(name), int) else 0 for name in (_START, _STOP)
    )
    return CaptureTime(begin, end, trace.hostnames[0] if trace.hostnames else "")


def read_capture_time(file: Path) -> CaptureTime:
    """Tell when and where a file was recorded; of what is no XSpace, or a damaged one, nothing is known.

    Only the plane that says so and the hosts' names are read; all else is skipped by its length.
    """
    kept = bytearray()
    try:
        with open_regular(file) as opened:
            size, at = os.fstat(opened.fileno()).st_size, 0
            for _ in range(_MOST_FIELDS):
                if at >= size:
                    break
                opened.seek(at)
                head = opened.read(_HEAD)
                key, inner = read_plain_varint(head, 0, len(head))
                length, inner = read_plain_varint(head, inner, len(head))
                first, at = at, at + inner + length
                if key & 7 != LENGTH or at > size:  # an XSpace has nothing else
                    return CaptureTime()
                longest = {_PLANE: _LONGEST_PLANE, _HOSTNAME: _LONGEST_HOSTNAME}.get(key >> 3, -1)
                is_meant = key >> 3 == _HOSTNAME or _ENVIRONMENT.encode() in head
                if length <= longest and is_meant:
                    opened.seek(first)
                    kept += opened.read(at - first)
        return capture_time(read_xplane(np.frombuffer(bytes(kept), np.uint8), file.name))
    except (TraceFormatError, PermissionError, FileNotFoundError, ValueError):
        return CaptureTime()
