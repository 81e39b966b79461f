"""The file of a journal: records that are appended, two places for what is newest, and who still writes it.

A process may be killed at any moment. What it had handed to the system by then stays, so the records of a
write are whole, or the last ones, and cut; they have a length and a checksum. The newest state is one of
them. A full disk, or a file that has reached its bound, ends the records: then two places at the begin hold
that state, the older one is written over.

The records of a write are handed over at once: each call to the system gives the interpreter away and has to
get it back from the code that runs.

Nothing is mapped into memory: to write to a mapped page for which a full disk has no room ends the process.

Whoever writes holds a lock of its process, which no fork inherits and the system takes back however the
process ends: a file that can be locked is one of a process that died. Source: fcntl(2), "Advisory record
locking".
"""

import fcntl
import json
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from profnb.capture.machine.waits import MOUNTS, network_mounts
from profnb.core.errors import TraceFormatError
from profnb.core.safe_files import ours_alone, read_whole

MOST_BYTES = 8 << 20
_MAGIC, _VERSION = b"profnbJ", 3
_SUFFIX = ".profnb-journal"
_KEPT_S = 86_400.0
_HEAD = struct.Struct("<II")  # of what one write appends: length, checksum
_RECORD = struct.Struct("<cI")  # kind, length
_NEWEST_STATE = b"N"
_PLACE, _PLACES, _FIRST_RECORD = 128, (64, 192), 320
_PROCESS_BEGAN = time.time_ns()  # a process' id may be that of one that died, as in a container


class Newest(NamedTuple):
    """The newest state of a capture.

    Attributes:
        sequence: How often it was written.
        time_ns: When, by ``time.perf_counter_ns``.
        epoch_ns: When, in nanoseconds since 1970.
        steps: How many steps had ended.
        step_ended_ns: When the last one had.
        resident_bytes: Memory of the process; -1 where nobody could tell.
        peak_bytes: The most of it that was seen.
        stack: The row of the stack that the cell's thread was in; 0 for none.
    """

    sequence: int = 0
    time_ns: int = 0
    epoch_ns: int = 0
    steps: int = 0
    step_ended_ns: int = 0
    resident_bytes: int = -1
    peak_bytes: int = -1
    stack: int = 0


_NEWEST = struct.Struct(f"<{len(Newest._fields)}q")
_SUM = struct.Struct("<I")


class JournalFile:
    """A journal that this process writes.

    Raises:
        OSError: There is no folder for it.
    """

    def __init__(self) -> None:
        """Make the file, in the first folder that lets."""
        self._process, self.size, self.is_full = os.getpid(), _FIRST_RECORD, False
        self._added = bytearray()
        self.path = Path()
        for folder in folders():
            with suppress(OSError):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                name = f"{self._process}-{_PROCESS_BEGAN}-{time.monotonic_ns()}{_SUFFIX}"
                self.path = folder / name
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
                self._file = os.open(self.path, flags, 0o600)
                break
        else:
            raise OSError("no folder for a journal can be written")
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._file, _MAGIC + bytes([_VERSION]), 0)
        except OSError:
            self.remove()
            raise

    def append(self, kind: bytes, content: bytes) -> None:
        """Add a record to the next write."""
        self._added += _RECORD.pack(kind, len(content)) + content

    def append_json(self, kind: bytes, value: object) -> None:
        """Add a record of plain values to the next write."""
        self.append(kind, json.dumps(value, default=asdict).encode())

    def commit(self, newest: Newest) -> None:
        """Append what was added and the newest state; that alone, over the last but one, to a full file."""
        packed = _NEWEST.pack(*newest)
        if not self.is_full:
            self.append(_NEWEST_STATE, packed)
            head = _HEAD.pack(len(self._added), zlib.crc32(self._added))
            self.is_full = not self._append(head + self._added)
        self._added.clear()
        if self.is_full:
            with suppress(OSError):
                place = _PLACES[newest.sequence % 2]
                os.pwrite(self._file, _SUM.pack(zlib.crc32(packed)) + packed, place)

    def _append(self, block: bytes) -> bool:
        """Append to the file; whether it is there: nothing follows what was cut."""
        at, self.size = self.size, self.size + len(block)
        with suppress(OSError):  # the disk is full
            return self.size <= MOST_BYTES and os.pwrite(self._file, block, at) == len(block)
        return False

    def remove(self) -> None:
        """Let the file go; a fork leaves it to the process that it came from."""
        if os.getpid() == self._process:
            with suppress(OSError):
                self.path.unlink()
        with suppress(OSError):
            os.close(self._file)


def folders() -> list[Path]:
    """The folders of journals: in the user's cache, if it is on this machine, and among what is temporary.

    None where the environment says ``PROFNB_JOURNALS=0``.
    """
    if os.environ.get("PROFNB_JOURNALS") == "0":
        return []
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    listed = [Path(cache).expanduser() / "profnb" / "journals"]
    listed.append(Path(tempfile.gettempdir()) / f"profnb-journals-{os.getuid()}")
    return [folder for folder in listed if not _is_remote(folder)]


def _is_remote(folder: Path) -> bool:
    """Tell whether a folder is of another machine, which may take long to answer."""
    with suppress(OSError, UnicodeError):
        mounts = network_mounts(MOUNTS.read_text("utf-8", "surrogateescape"))
        return any(folder.is_relative_to(place) for place in mounts)
    return False


def journals_left() -> list[Path]:
    """The journals whose processes died, the newest first; those of more than a day are removed."""
    left = []
    for folder in folders():
        with suppress(OSError):
            for path in folder.glob(f"*{_SUFFIX}"):
                with suppress(OSError):
                    facts = path.lstat()
                    is_ours = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid()
                    if not is_ours or not _is_left(path):
                        continue
                    if facts.st_mtime < time.time() - _KEPT_S:
                        path.unlink()
                    else:
                        left.append((facts.st_mtime_ns, path))
    return [path for _, path in sorted(left, reverse=True)]


def _is_left(path: Path) -> bool:
    """Tell whether nobody writes a journal any more."""
    if path.name.startswith(f"{os.getpid()}-{_PROCESS_BEGAN}-"):
        return False  # to ask would take back the lock of this process
    opened = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(opened)
    return True


def read_journal(path: Path) -> tuple[Newest, list[tuple[bytes, bytes]]]:
    """Read what a journal has, up to where it was cut.

    Returns:
        The newest state, and kind and content of each record.

    Raises:
        TraceFormatError: It is none, of another version, or cut before anything was kept.
    """
    with ours_alone(path, "profnb writes while a cell runs"):
        whole = read_whole(path, MOST_BYTES).tobytes()
        if not whole.startswith(_MAGIC + bytes([_VERSION])):
            raise TraceFormatError("another version, or no journal")
        records = list(_records(whole))
        states = [state for place in _PLACES for state in _newest_at(whole, place)]
        packed = [each for kind, each in records if kind == _NEWEST_STATE]
        states += [Newest(*_NEWEST.unpack(each)) for each in packed if len(each) == _NEWEST.size]
        if not states:
            raise TraceFormatError("a journal that was cut")
        return max(states, key=lambda state: state.sequence), records


def _newest_at(whole: bytes, place: int) -> Iterator[Newest]:
    packed = whole[place + _SUM.size : place + _SUM.size + _NEWEST.size]
    if len(packed) == _NEWEST.size and _SUM.pack(zlib.crc32(packed)) == whole[place:][: _SUM.size]:
        yield Newest(*_NEWEST.unpack(packed))


def _records(whole: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = _FIRST_RECORD
    while at + _HEAD.size <= len(whole):
        length, checksum = _HEAD.unpack_from(whole, at)
        at += _HEAD.size + length
        content = whole[at - length : at]
        if len(content) < length or zlib.crc32(content) != checksum:
            return
        yield from _records_of(content)


def _records_of(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(content):
        kind, length = _RECORD.unpack_from(content, at)
        at += _RECORD.size + length
        yield kind, content[at - length : at]


def as_json(content: bytes) -> Any:
    """The plain values of a record."""
    return json.loads(content)
