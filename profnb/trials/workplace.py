"""A temporary working folder, and an end after a time, for runs that are to leave nothing behind."""

import _thread
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from profnb.core.errors import CaptureError
from profnb.core.safe_files import folder_prefix
from profnb.core.units import bytes_text

_MOST_FOLDER_BYTES = 1 << 28


@contextmanager
def working_elsewhere(needed: Sequence[Path]) -> Iterator[Path]:
    """Work in a temporary folder inside the block, with copies of what is needed there.

    Raises:
        CaptureError: That is too large to copy.
    """
    size = sum(
        file.stat().st_size
        for path in needed
        for file in (path, *path.rglob("*"))
        if file.is_file()
    )
    if size > _MOST_FOLDER_BYTES:
        raise CaptureError(
            f"The code writes files and names {bytes_text(size)} of others: too much to copy."
        )
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix=folder_prefix(), ignore_cleanup_errors=True) as name:
        for path in needed:
            if path.is_dir():
                shutil.copytree(path, Path(name) / path.name, symlinks=True)
            else:
                shutil.copy2(path, Path(name) / path.name)
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


@dataclass
class Cut:
    """Whether a block was ended before its end."""

    has_come: bool = False


@contextmanager
def cut_after(seconds: float) -> Iterator[Cut]:
    """Interrupt the block, as a user would, after so many seconds; whoever asks can tell it from the user."""
    cut, lock, is_open = Cut(), threading.Lock(), True

    def end() -> None:
        with lock:
            if is_open:
                cut.has_come = True
                _thread.interrupt_main()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    try:
        timer.start()
        yield cut
        with lock:
            is_open = False
    except KeyboardInterrupt:
        if not cut.has_come:
            raise
    finally:
        is_open = False
        timer.cancel()
