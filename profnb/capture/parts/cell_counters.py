"""Exact counters of a cell's time: what profnb itself took, and batches that JAX still computes.

JAX returns before a step is computed, up to 32 of them. Behind the last batch of an epoch the code then waits
for training: in the validation, whose own work comes behind, or where the epoch ends. A thread that does
nothing else waits too and takes the time, so the clock can charge training with it, and nothing that the
code does is put off.
"""

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from profnb.capture.hooks import watch
from profnb.capture.seams import JAX_STATE, JAX_STATE_SYNC
from profnb.capture.signals import signal_of

_LONGEST_START_S = 0.05


class OwnTime:
    """Times profnb itself on the thread that makes it: of blocks inside each other the outermost counts.

    Attributes:
        spans: What was done, and its begin and end by ``time.perf_counter_ns``, in order.
    """

    def __init__(self) -> None:
        """Nothing was done yet."""
        self.spans: list[tuple[str, int, int]] = []
        self._thread = threading.get_ident()
        self._depth = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what runs inside the block as profnb itself."""
        if threading.get_ident() != self._thread:
            yield
            return
        begin_ns = time.perf_counter_ns()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.spans.append((name, begin_ns, time.perf_counter_ns()))


class InFlight:
    """Work that was asked for and is not done.

    Attributes:
        ended_ns: When it was done, by ``time.perf_counter_ns``; None before.
    """

    __slots__ = ("_has_begun", "ended_ns")

    def __init__(self, array: Any) -> None:
        """Wait for an array on another thread, from now on."""
        self.ended_ns: int | None = None
        self._has_begun = _thread.allocate_lock()
        self._has_begun.acquire()
        _thread.start_new_thread(self._wait, (array.block_until_ready,))
        # The next step may be given the array's memory: by then the wait must have begun.
        self._has_begun.acquire(timeout=_LONGEST_START_S)

    def _wait(self, until_ready: Callable[[], object]) -> None:
        begin_ns = time.perf_counter_ns()
        try:
            self._has_begun.release()
            until_ready()
            self.ended_ns = time.perf_counter_ns()
        except Exception:  # noqa: BLE001 - it failed, or is gone: for the code to find, not for us
            self.ended_ns = begin_ns


def watch_in_flight(
    began: Callable[[InFlight], object], hook_failed: Callable[[Exception], object]
) -> AbstractContextManager[None]:
    """Tell, inside the block, where Keras on JAX has no batch to compute for now and some are in flight.

    Args:
        began: Is given them.
        hook_failed: Is given what a hook raised.
    """
    owner = JAX_STATE_SYNC.owner()
    if owner is None or JAX_STATE_SYNC.of(owner) is None:
        return nullcontext()

    def batches_are_over(model: Any, *_: object, **__: object) -> None:
        state = JAX_STATE.of(model)
        arrays = [one for kind in state.values() for one in kind] if isinstance(state, dict) else []
        if arrays and is_in_flight(arrays[-1]):  # all of a step's are at once
            began(InFlight(arrays[-1]))

    return watch(
        owner, JAX_STATE_SYNC.attributes[0], before=batches_are_over, hook_failed=hook_failed
    )


def is_in_flight(array: Any) -> bool:
    """Tell whether JAX has still to compute an array."""
    try:
        return not array.is_ready()
    except Exception as error:  # it is gone, as an interrupted fit's are
        if signal_of(error):
            raise
        return False
