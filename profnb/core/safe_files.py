"""Files that are written or read whole or not at all, and folders that nobody else has.

A full disk, an interrupt or a kernel that dies leaves no half-written file under a name that others read.
What a process that died left in temporary folders is removed by the next one. This is also the one door
through which files of others are read: to open a pipe waits for whoever writes to it, a device may never end,
and a file of 200 GB may hold nothing. So only regular files are opened, and only so much of them is read.
"""

import gzip
import os
import platform
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable

if TYPE_CHECKING:
    from profnb.core.columns import Bytes

_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # not everywhere
_KINDS_OF_FILES = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}  # fmt: skip
_DAMAGED = (
    TraceFormatError, ArithmeticError, AttributeError, LookupError, ValueError, TypeError, RecursionError,
    EOFError, gzip.BadGzipFile, zlib.error,
)  # fmt: skip
_MOST_FOLDERS = 100_000
_KEEPS, _DAY_S = "kept-a-day", 86_400.0
_LEFT = re.compile(r"\.?profnb-([0-9a-f]{8})-(\d+)-")


@contextmanager
def ours_alone(path: Path, writer: str, remedy: str = "") -> Iterator[None]:
    """Refuse a packed file inside the block, if its contents are not what profnb writes there.

    Args:
        path: The file.
        writer: Who writes such files, as "profnb.lite saves".
        remedy: What to do about it, a sentence behind a space.

    Raises:
        TraceFormatError: Reading it raised what damaged contents do.
    """
    try:
        yield
    except _DAMAGED as error:
        what = f"{path.name} is not what {writer} (found: {str(error)[:200]}).{remedy}"
        raise TraceFormatError(what) from None


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Write a file inside the block under another name; it gets its own when the block has ended well.

    A file that was there keeps its permissions and, if the block fails, its content; a new one has those
    that the user's umask gives. Links are followed. What is no file, as a pipe, is written to directly.

    Yields:
        The path to write to, in the same folder and with the same suffix.

    Raises:
        OSError: It cannot be written.
    """
    place = Path(os.path.realpath(target))
    if place.exists() and not place.is_file():
        yield place
        return
    partial = place.with_name(f".profnb-{secrets.token_hex(6)}{place.suffix}")
    try:
        yield partial
        if place.exists():
            shutil.copymode(place, partial)
        partial.replace(place)
    except OSError as error:
        if error.filename == str(partial):  # a name that nobody gave
            error.filename = str(target)
        raise
    finally:
        partial.unlink(missing_ok=True)


def claim_folder(parent: Path, name: str) -> Path:
    """Make a folder of this name, or of one like it where that is taken, and the folders above it.

    Whoever else does the same at the same time, in any process, gets another one.

    Raises:
        OSError: It cannot be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, _MOST_FOLDERS):
        folder = parent / (name if number == 1 else f"{name}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(
        f"{parent} has {_MOST_FOLDERS:,} folders named {name}. Give a folder of this run."
    )


def folder_prefix() -> str:
    """Give how the names of this process's temporary folders begin: they tell whose they are."""
    return f"profnb-{_machine()}-{os.getpid()}-"


def keep_a_day(folder: Path) -> None:
    """Let a temporary folder outlive its process: whoever reads it removes it, or who comes a day later.

    Raises:
        OSError: It cannot be marked so.
    """
    (folder / _KEEPS).touch()


def remove_leftovers(parent: Path) -> None:
    """Remove the temporary folders in a folder whose processes have died; others' are left alone.

    Args:
        parent: Where they are; what is not there or cannot be listed has none.
    """
    if os.name != "posix":  # elsewhere to ask for a process ends it
        return
    with suppress(OSError):
        for folder in parent.iterdir():
            named, kept_since = _LEFT.match(folder.name), 0.0
            if named is None or named[1] != _machine() or _is_alive(int(named[2])):
                continue
            with suppress(OSError):
                kept_since = (folder / _KEEPS).stat().st_mtime
            is_ours = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
            if is_ours and kept_since <= time.time() - _DAY_S:
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


@cache
def _machine() -> str:
    """Tell machines that share a folder apart, and containers that share a machine, without naming them."""
    facts = [platform.node()]
    with suppress(OSError):  # no Linux
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return f"{zlib.crc32(repr(facts).encode('utf-8', 'replace')):08x}"


def is_regular(path: Path) -> bool:
    """Tell whether a path is a file, or a link to one, that reading comes to an end of."""
    return os.path.isfile(path)  # noqa: PTH113 - a path's own method raises where it may not look


def check_regular(path: Path) -> None:
    """Say what stands at a path where a regular file should.

    Raises:
        FileNotFoundError: There is nothing at the path, or a link to nothing.
        TraceFormatError: It is a pipe, a socket, a device or a folder.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        link = " The path is a link to nothing." if path.is_symlink() else ""
        raise FileNotFoundError(f"No file or folder at {printable(str(path))}.{link}") from None
    if not stat.S_ISREG(mode):
        kind = _KINDS_OF_FILES.get(stat.S_IFMT(mode), "something else")
        raise TraceFormatError(f"{printable(path.name)} is {kind}. Give a file.")


def open_regular(path: Path) -> FileIO:
    """Open a regular file to read, without buffer; nothing is waited for.

    Raises:
        FileNotFoundError, TraceFormatError: As ``check_regular`` does.
    """
    check_regular(path)
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | _NO_WAITING))


def read_whole(path: Path, most_bytes: int) -> "Bytes":
    """Read all of a file as it was at one time.

    Args:
        path: The file.
        most_bytes: How many bytes it may have.

    Returns:
        Its bytes, read-only: kernels are compiled once, for arrays that nothing writes to.

    Raises:
        FileNotFoundError: There is nothing at the path, or a link to nothing.
        TraceFormatError: It is no regular file, is larger, or changed meanwhile.
    """
    import numpy as np  # only now: who imports profnb may read nothing

    name = printable(path.name)
    with open_regular(path) as opened:
        before = os.fstat(opened.fileno())
        if before.st_size > most_bytes:
            raise TraceFormatError(
                f"{name} has {before.st_size / 1e9:,.1f} GB; at most {most_bytes / 1e9:,.1f} GB are read. "
                "Record fewer steps."
            )
        recorded = np.empty(before.st_size, np.uint8)
        at = 0
        while at < recorded.size and (count := opened.readinto(recorded[at:])):
            at += count
        after = os.fstat(opened.fileno())
    as_it_was = before.st_size, before.st_mtime_ns
    if at < recorded.size or as_it_was != (after.st_size, after.st_mtime_ns):
        raise TraceFormatError(f"{name} changed during reading. Open the file once it is complete.")
    recorded.flags.writeable = False
    return recorded
