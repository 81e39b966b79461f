"""Models that are loaded from files or bytes: how often, and how many different ones."""

import os
from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import Library
from profnb.capture.parts.part_records import Loads
from profnb.capture.seam import Seam

_MOST_SOURCES = 1000
_SOURCE_KEYWORDS = "filepath", "export_dir", "model_path", "model_content"
_PUBLIC = {"load_model_from_hdf5": "load_model", "load_partial": "load"}  # what is called of these


class LoadWatch:
    """Counts what loads models on the thread of the cell."""

    def __init__(self) -> None:
        """None was loaded."""
        self._times: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._watched: set[Seam] = set()

    @contextmanager
    def watch(self, library: Library) -> Iterator[None]:
        """See models being loaded inside the block; a function that two libraries have is seen once."""
        with ExitStack() as stack:
            for seam in set(seams.LOADS) - self._watched:
                if library.take(seam) is not None:
                    self._watched.add(seam)
                    loads = partial(self._loads, seam)
                    stack.enter_context(library.watch(seam, before=loads))
            yield

    def _loads(self, seam: Seam, *arguments: Any, **keywords: Any) -> None:
        name = _PUBLIC.get(seam.name, seam.name)
        by_name = [keywords[key] for key in _SOURCE_KEYWORDS if key in keywords]
        given = [*arguments["." in name :], *by_name]
        if given and isinstance(given[0], str | bytes | os.PathLike):
            source, times = _source_of(given[0]), self._times[name]
            if source in times or len(times) < _MOST_SOURCES:
                times[source] = times.get(source, 0) + 1

    def records(self) -> list[Loads]:
        """Give what was seen."""
        return [Loads(name, sum(times.values()), len(times)) for name, times in self._times.items()]


def _source_of(given: str | bytes | os.PathLike[str]) -> Hashable:
    """Tell a model from others, and from what its file held before."""
    if isinstance(given, bytes):
        return len(given), hash(given)
    try:
        file = Path(os.fsdecode(given)).stat()
    except (OSError, ValueError):  # of a file system that only the loader knows
        return os.fspath(given)
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns
