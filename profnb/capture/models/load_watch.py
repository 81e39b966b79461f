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

_MOST_SOURCES = 1000
_PUBLIC = {"load_model_from_hdf5": "load_model", "load_partial": "load"}  # what is called of these


class LoadWatch:
    """Counts what loads models, on any thread."""

    def __init__(self) -> None:
        """None was loaded."""
        self._times: dict[str, dict[Hashable, int]] = defaultdict(dict)

    @contextmanager
    def watch(self, library: Library) -> Iterator[None]:
        """See models being loaded inside the block."""
        with ExitStack() as stack:
            for seam in seams.LOADS:
                if library.take(seam) is not None:
                    loads = partial(self._loads, _PUBLIC.get(seam.name, seam.name))
                    stack.enter_context(library.watch(seam, on_any_thread=True, before=loads))
            yield

    def _loads(self, name: str, *arguments: Any, **keywords: Any) -> None:
        given = [*arguments, *keywords.values()]
        sources = [_source_of(one) for one in given if isinstance(one, str | bytes | os.PathLike)]
        if sources and len(times := self._times[name]) < _MOST_SOURCES:
            times[sources[0]] = times.get(sources[0], 0) + 1

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
