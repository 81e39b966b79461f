"""Opened traces to free memory: what is worked out from one refers to itself, so only a collection frees it.

Arrays do not count for Python's own collections, so a hundred opened traces of 24 MB would hold gigabytes.
"""

import gc
import os
from pathlib import Path

_EACH_BYTES = 100_000_000  # a collection takes a tenth of a second: not after each small trace


class _Opened:
    """Bytes of the files that were opened since the last collection."""

    size = 0


def let_go(path: str | os.PathLike[str]) -> None:
    """Say that a trace was opened and is not wanted any more.

    Args:
        path: Its file.
    """
    file = Path(path)
    _Opened.size += file.stat().st_size if file.is_file() else 0
    if _Opened.size >= _EACH_BYTES:
        _Opened.size = 0
        gc.collect()
