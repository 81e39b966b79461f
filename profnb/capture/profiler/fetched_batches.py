"""Keras on JAX fetching a batch: marked in the trace, inside of the step, where Keras does it.

On TensorFlow and PyTorch events of their own tell (``IteratorGetNext``, ``enumerate(DataLoader)#...``). On
JAX Keras calls ``next`` of an iterator of its own making, so that one is put into another that marks its
calls (see ``hooks``). How many examples a batch holds is what
Keras' adapter of the data says: of arrays and datasets of one shape, not of a generator or a PyDataset.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from profnb.capture.hooks import guarded, replace_attribute, without_us
from profnb.capture.seams import (
    ADAPTER_BATCHES,
    ADAPTER_HAS_REST,
    ADAPTER_REST,
    ADAPTER_SIZE,
    JAX_ADAPTER,
    JAX_BATCHES,
    Seam,
)

Hook = Callable[[], object]
SizeHook = Callable[[int | None], object]


def watch_fetching(
    before: SizeHook, after: Hook, hook_failed: Callable[[Exception], object]
) -> AbstractContextManager[None]:
    """Run hooks around each batch that Keras' trainer on JAX fetches, inside the block.

    Args:
        before: Is given how many examples the batch will hold; None where Keras does not know.
        after: Runs when the batch is there, or there is none.
        hook_failed: Is given what a hook raised.
    """
    owner = JAX_BATCHES.owner()
    if owner is None or JAX_BATCHES.of(owner) is None:
        return nullcontext()
    (name,) = JAX_BATCHES.attributes
    original = JAX_BATCHES.of(owner)

    def made(epochs: Any) -> Any:
        try:
            batches = original(epochs)
        except BaseException as error:
            without_us(error)
            raise
        adapter = JAX_ADAPTER.of(epochs)
        sizes = partial(_Sizes, adapter, before)
        return _Batches(batches, lambda: guarded(sizes(), hook_failed), guarded(after, hook_failed))

    return replace_attribute(owner, name, made)


class _Sizes:
    """Tells a hook the examples of one batch after the other: of the last one what is left."""

    __slots__ = ("_adapter", "_before", "_left")

    def __init__(self, adapter: Any, before: SizeHook) -> None:
        self._adapter, self._before = adapter, before
        self._left = self._find_number(ADAPTER_BATCHES) or 0

    def __call__(self) -> None:
        self._left -= 1
        is_rest = self._left == 0 and self._find_number(ADAPTER_HAS_REST)
        self._before(self._find_number(ADAPTER_REST if is_rest else ADAPTER_SIZE))

    def _find_number(self, seam: Seam) -> int | None:
        """A number of the adapter's; None where it has none, or raises that it does not know."""
        value = seam.of(self._adapter)
        return value if isinstance(value, int) else None


class _Batches:
    """Iterates what another does; hooks run around each ``next``."""

    __slots__ = ("_after", "_batches", "_make_before")

    def __init__(self, batches: Any, make_before: Callable[[], Hook], after: Hook) -> None:
        self._batches, self._make_before, self._after = batches, make_before, after

    def __iter__(self) -> "_Fetching":
        return _Fetching(iter(self._batches), self._make_before(), self._after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class _Fetching:
    """An iterator that runs hooks around each ``next`` of another one."""

    __slots__ = ("_after", "_batches", "_before")

    def __init__(self, batches: Iterator[Any], before: Hook, after: Hook) -> None:
        self._batches, self._before, self._after = batches, before, after

    def __iter__(self) -> "_Fetching":
        return self

    def __next__(self) -> Any:
        self._before()
        try:
            return next(self._batches)
        except BaseException as error:
            without_us(error)
            raise
        finally:
            self._after()
