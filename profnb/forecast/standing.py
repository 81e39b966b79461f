"""Weights, optimizers and random state of a step, put back after it ran.

What a step may change is what its function names: variables of its module, those it closes over, its defaults
and the object it is a method of. What cannot be put back, as an iterator, has the step declined.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from profnb.core.errors import CaptureError
from profnb.forecast.kept_state import KeptState


@contextmanager
def put_back(step: Any) -> Iterator[KeptState]:
    """Put back, after the block, what a step changes.

    Raises:
        CaptureError: It uses something that cannot be put back.
    """
    kept = KeptState({"step": step})
    for path, what in kept.unsafe.items():
        raise CaptureError(
            f"fits cannot restore `{path}` ({what}). Give a step without it, and the batch as an argument."
        )
    try:
        yield kept
    finally:
        kept.put_back()


def is_jax_step(step: Any, arguments: tuple[Any, ...]) -> bool:
    """Tell whether a step is one of JAX's: compiled by it, or given its arrays."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return False
    leaves = jax.tree_util.tree_leaves(arguments)
    return hasattr(step, "lower") or any(isinstance(leaf, jax.Array) for leaf in leaves)
