"""Keras on JAX fetching a batch: marked in the trace, inside of the step, where Keras does it.

On TensorFlow and PyTorch events of their own tell (``IteratorGetNext``, ``enumerate(DataLoader)#...``). On
JAX Keras calls ``next`` of an iterator of its own making, so that one is put into another that marks its
calls, with no frame of ours in their tracebacks (see ``hooks``).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from profnb.capture.hooks import WatchedCall, replace_attribute
from profnb.capture.seams import JAX_BATCHES

__all__ = ["watch_fetching"]

Hook = Callable[[], object]


def watch_fetching(
    before: Hook, after: Hook, hook_failed: Callable[[Exception], object]
) -> AbstractContextManager[None]:
    """Run hooks around each batch that Keras' trainer on JAX fetches, inside the block."""
    owner = JAX_BATCHES.owner()
    if owner is None or JAX_BATCHES.of(owner) is None:
        return nullcontext()
    (name,) = JAX_BATCHES.attributes
    original = JAX_BATCHES.of(owner)

    def made(epochs: Any) -> Any:
        try:
            batches = original(epochs)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise
        return _Batches(batches, before, after, hook_failed)

    return replace_attribute(owner, name, made)


class _Batches:
    """Iterates what another does; hooks run around each ``next``."""

    __slots__ = ("_batches", "_hooks")

    def __init__(self, batches: Any, *hooks: Callable[..., object]) -> None:
        self._batches, self._hooks = batches, hooks

    @property
    def __iter__(self) -> Callable[[], "_Fetching"]:
        return lambda: _Fetching(iter(self._batches), *self._hooks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class _Fetching:
    """An iterator whose ``__next__`` is looked up anew for each call, as ``WatchedCall.__call__`` is."""

    __slots__ = ("_next",)

    def __init__(
        self,
        batches: Iterator[Any],
        before: Hook,
        after: Hook,
        hook_failed: Callable[[Exception], object],
    ) -> None:
        self._next = WatchedCall(
            batches.__next__, before=before, after=after, hook_failed=hook_failed
        )

    def __iter__(self) -> "_Fetching":
        return self

    @property
    def __next__(self) -> Callable[[], Any]:
        return self._next.__call__
