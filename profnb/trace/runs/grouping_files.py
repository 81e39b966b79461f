"""Trace files to runs: the captures of which each file is one host's part.

A folder of TensorBoard's layout is named by the second in which a host stopped, so one capture of several
hosts may lie in several folders. Files are of one run if they lie in one folder, or if their captures
overlapped in time. Two captures of one host that did not overlap are never of one run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from profnb.core.printable import printable
from profnb.trace.runs.capture_times import CaptureTime, read_capture_time


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One host's trace on disk.

    Attributes:
        path: The file.
        run: The capture that it is a part of, by the name of the folder that holds its first file; printable.
        host: The file's name without its suffix, printable; with its folder where two are called alike.
        time: When and where it was recorded, as far as it tells.
    """

    path: Path
    run: str
    host: str
    time: CaptureTime = field(default_factory=CaptureTime)

    @property
    def folder(self) -> str:
        """The name of the folder that holds it."""
        return printable(self.path.parent.name or ".")


@dataclass(slots=True)
class _Run:
    files: list[TraceFile] = field(default_factory=list)

    def takes(self, file: TraceFile) -> bool:
        """Whether a file is another host's part of this run."""
        is_linked = False
        for run_file in self.files:
            if _is_another_capture(run_file, file):
                return False
            same_folder = run_file.path.parent == file.path.parent
            is_copy = run_file.time == file.time and not same_folder
            is_linked |= same_folder or (run_file.time.overlaps(file.time) and not is_copy)
            if is_copy and run_file.host == file.host:
                return False
        return is_linked


def _is_another_capture(one: TraceFile, two: TraceFile) -> bool:
    """Whether two captures are of one host and one after the other."""
    both = one.time.is_known and two.time.is_known
    if not both or one.time.overlaps(two.time):
        return False
    return (one.time.hostname or one.host) == (two.time.hostname or two.host)


def group_into_runs(files: Sequence[TraceFile]) -> list[TraceFile]:
    """The same files, each with the run that it is of and a host's name that is its own in that run.

    Args:
        files: In any order; their ``run`` is not looked at.
    """
    timed = [replace(file, time=read_capture_time(file.path)) for file in files]
    timed.sort(key=lambda file: (file.time.begin_ns, file.folder, file.host))
    runs: list[_Run] = []
    for file in timed:
        run = next((run for run in reversed(runs) if run.takes(file)), None)
        if run is None:
            runs.append(run := _Run())
        run.files.append(file)
    return [
        file for run, name in zip(runs, _names(runs), strict=True) for file in _named(run, name)
    ]


def _names(runs: Sequence[_Run]) -> list[str]:
    """What each run is called: its first folder, with the file's name where several are of that folder."""
    first = [min(file.folder for file in run.files) for run in runs]
    return [
        name
        if first.count(name) == 1 or len(run.files) > 1 or _is_elsewhere(run, runs)
        else f"{name}/{run.files[0].host}"
        for name, run in zip(first, runs, strict=True)
    ]


def _is_elsewhere(run: _Run, runs: Sequence[_Run]) -> bool:
    """Whether no other run has a file in this run's folders: only their last parts are called alike."""
    folders = {file.path.parent for file in run.files}
    return all(
        other is run or folders.isdisjoint(file.path.parent for file in other.files)
        for other in runs
    )


def _named(run: _Run, name: str) -> list[TraceFile]:
    return [replace(file, run=name) for file in name_hosts(run.files)]


def name_hosts(files: Sequence[TraceFile]) -> list[TraceFile]:
    """Files with a host's name each that is its own, by their folder where two are called alike."""
    hosts = [file.host for file in files]
    return [
        replace(
            file, host=file.host if hosts.count(file.host) == 1 else f"{file.host} ({file.folder})"
        )
        for file in files
    ]


def runs_of(files: Sequence[TraceFile]) -> dict[str, list[TraceFile]]:
    """The files of each run, in the order in which they come."""
    runs: dict[str, list[TraceFile]] = {}
    for file in files:
        runs.setdefault(file.run, []).append(file)
    return runs
