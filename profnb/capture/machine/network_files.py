"""Files on network mounts that the code reads while it is traced: Google Drive, gcsfuse, NFS, SMB and others.

A trace tells that an op reads a file, not which one. The system tells which files this process has open: a
thread looks at that ten times a second, where anything is mounted over a network at all (elsewhere nothing
runs). A slow file is open for long, so the share of the looks that find one is about the share of time that
goes into reading such files; what passes until it is open is not seen. Code is no data: modules, compiled
libraries and what packages are installed to do not count, nor do files that are open for writing.

Source: proc(5), /proc/PID/mounts, /proc/PID/fd and /proc/PID/fdinfo. There is nothing of the kind on macOS
and Windows, and nothing is said there.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

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
    """Count one look."""
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
