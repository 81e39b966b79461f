"""One call for each of many values on the workers of any executor, and traces that are read there.

What is worked out from an opened trace refers to itself, so only a collection frees it. Arrays do not count
for Python's own collections, so a hundred opened traces of 24 MB would hold gigabytes.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import TypeVar

from profnb.core.errors import ProfnbError
from profnb.core.printable import printable
from profnb.loading import load
from profnb.profile import Profile

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
MOST_TEXT = 300  # characters of what others say, a worker or a machine
_EACH_BYTES = 100_000_000  # a collection takes a tenth of a second: not after each small trace


class LostWorkerError(Exception):
    """The worker of a call was lost; its text says how, in one line."""


def call_on_workers(
    executor: Executor | None, call: Callable[[_Value], _Result], values: Sequence[_Value]
) -> Iterator[tuple[int, _Result | LostWorkerError]]:
    """Call a function with each of N values on an executor's workers, or here without one.

    Yields:
        As each call is done, the place of its value and what it gave, or that its worker was lost.

    Raises:
        KeyboardInterrupt: It was interrupted. Calls that had not begun are cancelled; those that a worker
            has begun end there, and nobody asks for them.
    """
    if executor is None:
        yield from enumerate(map(call, values))
        return
    tasks: dict[Future[_Result], int] = {}
    try:
        for at, value in enumerate(values):
            try:
                tasks[executor.submit(call, value)] = at
            except Exception as error:  # noqa: BLE001, PERF203 - a pool that broke takes no more
                yield at, _lost(error)
        for future in as_completed(tasks):
            result: _Result | LostWorkerError
            try:
                result = future.result()
            except Exception as error:  # noqa: BLE001 - of the executor: its worker was lost
                result = _lost(error)
            yield tasks[future], result
    finally:
        for future in tasks:
            future.cancel()


def _lost(error: Exception) -> LostWorkerError:
    said = f"The worker was lost ({type(error).__name__}: {error!s})"
    return LostWorkerError(printable(said.replace("\n", " "))[:MOST_TEXT])


class _Opened:
    """Bytes of the files that were opened since the last collection."""

    size = 0


def read_and_free(path: str, read: Callable[[Profile], _Result]) -> _Result | str:
    """Open a trace, read something off it, and free its memory.

    Returns:
        What was read; where the trace cannot be read, the error's text.
    """
    try:
        return read(load(path))
    except (ProfnbError, OSError, ValueError) as error:
        return str(error)
    finally:
        file = Path(path)
        _Opened.size += file.stat().st_size if file.is_file() else 0
        if _Opened.size >= _EACH_BYTES:
            _Opened.size = 0
            gc.collect()
