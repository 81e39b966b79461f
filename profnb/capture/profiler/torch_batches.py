"""Batches of PyTorch's ``DataLoader`` to how many examples a step took.

A batch is a tensor, or tensors in lists, tuples and dicts; where the first sizes of all agree, that is how
many examples it holds. A loader that does not collate (``batch_size=None``) may give single examples, so
there two tensors at least must agree, unless it is Keras that reads it.

A step took what its loader gave since the step before: several batches, where gradients are accumulated.
Batches of other loaders in between (validation) are nobody's.
"""

import weakref
from typing import Any

from profnb.capture.seams import TORCH_COLLATES

_MOST_PARTS = 64


class BatchCount:
    """Adds up the examples that loaders give, on one thread."""

    def __init__(self) -> None:
        """None was given yet."""
        self._latest: Any = None  # refers to the loader's iterator that gave the last batch
        self._given: dict[Any, int] = {}  # by such a reference; -1 where a batch was not understood

    def came(self, loader: object, batch: object, *, is_batch: bool) -> None:
        """A loader's iterator gave a batch.

        Args:
            loader: The iterator.
            batch: What it gave.
            is_batch: Whether that is known to be a batch, and no single example.
        """
        is_batch = is_batch or bool(TORCH_COLLATES.of(loader))
        count = count_examples(batch, is_batch=is_batch)
        latest = self._latest = weakref.ref(loader)
        before = self._given.get(latest, 0)
        self._given[latest] = before + count if count and before >= 0 else -1

    def taken(self) -> int:
        """What the latest loader has given since this was asked last; 0 where it is not known."""
        count = self._given.get(self._latest, 0)
        self._given.clear()
        return max(count, 0)


def count_examples(batch: Any, *, is_batch: bool) -> int:
    """How many examples a batch holds; 0 where that cannot be told.

    Args:
        batch: Tensors, in lists, tuples and dicts or not.
        is_batch: Whether it is known to be a batch, and no single example.
    """
    sizes: list[int] = []
    parts = [batch]
    for _ in range(_MOST_PARTS):
        if not parts:
            break
        part = parts.pop()
        if isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, list | tuple):
            parts.extend(part[: _MOST_PARTS + 1])
        elif (shape := getattr(part, "shape", None)) is not None:
            if not len(shape):
                return 0
            sizes.append(int(shape[0]))
    if parts or len(set(sizes)) != 1 or (len(sizes) < 2 and not is_batch):
        return 0
    return max(sizes[0], 0)
