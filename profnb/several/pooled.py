"""One call for each of many values on the workers of any executor, whatever becomes of a worker."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from typing import TypeVar

from profnb.core.printable import printable

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
MOST_TEXT = 300  # characters of what others say, a worker or a machine


class LostWorkerError(Exception):
    """The worker of a call was lost; its text says how, in one line."""


def call_on_workers(
    executor: Executor, call: Callable[[_Value], _Result], values: Sequence[_Value]
) -> Iterator[tuple[int, _Result | LostWorkerError]]:
    """Call a function with each of N values on an executor's workers.

    Yields:
        As each call is done, the place of its value and what it gave, or that its worker was lost.

    Raises:
        KeyboardInterrupt: It was interrupted. Calls that had not begun are cancelled; those that a worker
            has begun end there, and nobody asks for them.
    """
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
