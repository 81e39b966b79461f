"""Files that are there whole or not at all, and folders that nobody else has.

A full disk, an interrupt or a kernel that dies leaves no half-written file under a name that others read.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["claim_folder", "whole_file"]

_MOST_FOLDERS = 100_000


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
    raise FileExistsError(f"{parent} has {_MOST_FOLDERS:,} folders named {name}.")
