"""Threads that waited while a trace was recorded: for a free core, and for files on network mounts.

A trace has no event for it: an op that waits for a core lasts as long as one that computes. The system keeps
for each thread how long it ran and how long it was ready and did not; both are read as the window opens and
as it closes. What other programs took is what the cores did less what this process did.

A trace tells that an op reads a file, not which one. The system tells which files this process has open: a
thread looks at that ten times a second, where anything is mounted over a network at all (elsewhere nothing
runs). A slow file is open for long, so the share of the looks that find one is about the share of time that
goes into reading such files; what passes until it is open is not seen. Code is no data: modules, compiled
libraries and what packages are installed to do not count, nor do files that are open for writing.

Source: proc(5), /proc/stat, /proc/PID/task/TID/schedstat, /proc/PID/mounts, /proc/PID/fd and
/proc/PID/fdinfo.
There is nothing of the kind on macOS and Windows, and nothing is said there.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

THREADS, CORES = Path("/proc/self/task"), Path("/proc/stat")
_IDLE = 3, 4  # and waiting for a disk; columns behind the eighth are in the first ones already
_MOST_THREADS = 2000


@dataclass
class CoreWaits:
    """Processor time in the traced window, of this process and of others; 0 where nobody could tell.

    Attributes:
        wall_ns: How long the window was.
        ran_ns: Processor time of those threads of this process that were there at its end.
        waited_ns: How long they were ready to run and had no core.
        others_ns: Processor time of all other programs.
        cores: How many cores the machine has.
    """

    wall_ns: int = 0
    ran_ns: int = 0
    waited_ns: int = 0
    others_ns: int = 0
    cores: int = 0

    @property
    def waited_fraction(self) -> float:
        """Seconds that they waited for each second that they ran; 0 where that is not known."""
        return self.waited_ns / self.ran_ns if self.ran_ns > 0 else 0.0

    @property
    def others_cores(self) -> float:
        """Cores that other programs had on average; 0 where that is not known."""
        return self.others_ns / self.wall_ns if self.wall_ns > 0 else 0.0


class CoreClock:
    """Reads both as a window opens and closes."""

    def __init__(self) -> None:
        """Nothing was read."""
        self._before = _Reading({}, 0, 0, 0, 0)

    def begin(self) -> None:
        """The window opens."""
        self._before = _read()

    def end(self) -> CoreWaits:
        """The window closes."""
        before, now = self._before, _read()
        if not now.threads or not before.threads:
            return CoreWaits()
        both = [(one, before.threads.get(name, (0, 0))) for name, one in now.threads.items()]
        ran_ns, waited_ns = (
            sum(max(one[at] - earlier[at], 0) for one, earlier in both) for at in (0, 1)
        )
        others_ns = 0
        if now.busy_ns and before.busy_ns:
            others_ns = max(now.busy_ns - before.busy_ns - (now.own_ns - before.own_ns), 0)
        return CoreWaits(now.at_ns - before.at_ns, ran_ns, waited_ns, others_ns, now.cores)


class _Reading(NamedTuple):
    threads: dict[str, tuple[int, int]]  # nanoseconds run, and waited, of each of this process
    busy_ns: int  # of all cores, since the machine began
    cores: int
    own_ns: int  # processor time of this process
    at_ns: int


def _read() -> _Reading:
    threads: dict[str, tuple[int, int]] = {}
    with suppress(OSError):
        for thread in islice(THREADS.iterdir(), _MOST_THREADS):
            with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                schedstat = (thread / "schedstat").read_text("ascii").split()
                threads[thread.name] = int(schedstat[0]), int(schedstat[1])
    busy_ns = cores = 0
    with suppress(OSError, ValueError, IndexError, AttributeError):
        lines = CORES.read_text("ascii").splitlines()
        ticks = [int(text) for text in lines[0].split()[1:9]]
        spent = sum(count for at, count in enumerate(ticks) if at not in _IDLE)
        busy_ns = spent * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        cores = max(sum(line.startswith("cpu") for line in lines) - 1, 0)
    return _Reading(threads, busy_ns, cores, time.process_time_ns(), time.perf_counter_ns())


MOUNTS, OPEN_FILES = Path("/proc/self/mounts"), Path("/proc/self/fd")
# File systems of other machines. Not those that clusters are built on (Lustre, GPFS), which are fast, nor 9p,
# which sandboxes mount everything by.
_NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "davfs", "fuse.drive", "fuse.gcsfuse",
    "fuse.s3fs", "fuse.sshfs", "fuse.rclone", "fuse.goofys", "fuse.blobfuse", "fuse.blobfuse2",
    "fuse.mount-s3", "fuse.google-drive-ocamlfuse", "fuse.davfs",
})  # fmt: skip
_SOURCES = ("drive", "gcsfuse", "s3fs", "goofys", "mountpoint-s3")  # mounted as plain "fuse"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_CODE = re.compile(r"\.(py|pyc|so|dll|ipynb)(\.[\d.]+)?$|/(site|dist)-packages/")
_HOME = re.compile(r"^/(home|Users)/[^/]+")
_PERIOD_S, _LEAST_IDLE = 0.1, 200  # times what a look took
_MOST_FILES_ASKED, _LONGEST_PLACE = 10_000, 100
_ACCESS, _READS_ONLY = 0o3, 0o0


@dataclass
class NetworkFiles:
    """Looks that found files on network mounts open for reading.

    Attributes:
        looks: How often was looked while the window was open; 0 where nothing is mounted over a network.
        found: In how many of the looks such a file was open.
        files: How many different ones, ten thousand at most.
        mounts: Where they lie, the user's name left out: in how many looks each, by "/content/drive
            (fuse.drive)".
    """

    looks: int = 0
    found: int = 0
    files: int = 0
    mounts: dict[str, int] = field(default_factory=dict)


def network_mounts(text: str) -> dict[str, str]:
    """The network mounts of a table of mounts: kind of file system by the place.

    Args:
        text: What ``/proc/self/mounts`` holds: source, place, kind, options and two numbers a line.
    """
    mounts = {}
    for line in text.splitlines():
        source, place, kind = [*line.split(" "), "", "", ""][:3]
        if kind in _NETWORK_FILE_SYSTEMS or (kind == "fuse" and source in _SOURCES):
            place = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), place)
            mounts[place.rstrip("/") or "/"] = kind if kind != "fuse" else f"fuse.{source}"
    return mounts


@contextmanager
def watch_network_files(records: NetworkFiles, is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Look for such files while something else runs, if there are network mounts.

    Args:
        records: Where it is counted.
        is_wanted: Whether a look counts now.
    """
    mounts: dict[str, str] = {}
    with suppress(OSError, UnicodeError):
        mounts = network_mounts(MOUNTS.read_text("utf-8", "surrogateescape"))
    if not mounts:
        yield
        return
    ended = threading.Event()

    def look_on() -> None:
        files: set[str] = set()
        while True:
            took = time.thread_time()
            if is_wanted():
                _look(records, mounts, files)
            took = time.thread_time() - took
            if ended.wait(max(_PERIOD_S, _LEAST_IDLE * took)):
                return

    looking = threading.Thread(target=look_on, name="profnb", daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def _look(records: NetworkFiles, mounts: dict[str, str], files: set[str]) -> None:
    places: set[str] = set()
    with suppress(OSError):
        for opened in list(OPEN_FILES.iterdir()):
            with suppress(OSError, ValueError, IndexError):  # closed meanwhile
                path = str(opened.readlink())
                below = [one for one in mounts if path.startswith(f"{one.rstrip('/')}/")]
                if below and not _CODE.search(path) and _is_read(opened.name):
                    places.add(max(below, key=len))
                    if len(files) < _MOST_FILES_ASKED:
                        files.add(path)
    records.looks += 1
    records.found += bool(places)
    records.files = len(files)
    for place in places:
        shown = f"{_HOME.sub('~', place)[:_LONGEST_PLACE]} ({mounts[place]})"
        records.mounts[shown] = records.mounts.get(shown, 0) + 1


def _is_read(number: str) -> bool:
    fdinfo = (OPEN_FILES.with_name("fdinfo") / number).read_text("ascii")
    flags = next(line for line in fdinfo.splitlines() if line.startswith("flags:"))
    return int(flags.split()[1], 8) & _ACCESS == _READS_ONLY
