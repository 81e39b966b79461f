"""A regular file to its bytes, and nothing else: the one door through which files of others are read.

To open a pipe waits for whoever writes to it, a device may never end, and a file of 200 GB may hold nothing.
So only regular files are opened, and only so much of them is read.
"""

import os
import stat
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable

if TYPE_CHECKING:
    from profnb.core.columns import Bytes

_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # not everywhere
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def is_regular(path: Path) -> bool:
    """Tell whether a path is a file, or a link to one, that reading comes to an end of."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # nothing there, a link to nothing, or no name of a file
        return False


def check_regular(path: Path) -> None:
    """Say what stands at a path where a regular file should.

    Raises:
        FileNotFoundError: There is nothing at the path, or a link to nothing.
        TraceFormatError: It is a pipe, a socket, a device or a folder.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        link = " It is a link to nothing." if path.is_symlink() else ""
        raise FileNotFoundError(f"No file or folder at {printable(str(path))}.{link}") from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
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
        raise TraceFormatError(
            f"{name} changed while it was read. Open it once it is written to its end."
        )
    recorded.flags.writeable = False
    return recorded
