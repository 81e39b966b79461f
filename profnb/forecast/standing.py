"""Weights, optimizers and random state of a step, put back after it ran.

What a step may change is what its function names: variables of its module, those it closes over, its defaults
and the object it is a method of. What cannot be put back, as an iterator, has the step declined.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from profnb.core.errors import CaptureError
from profnb.forecast.kept_state import KeptState, names_read_by

_DEEPEST = 3


def reached_objects(step: Any) -> dict[str, Any]:
    """The objects that a step's function names, those of functions that it calls too, by name."""
    reached: dict[str, Any] = {}
    _reach(step, reached, _DEEPEST)
    return reached


def _reach(step: Any, reached: dict[str, Any], depth: int) -> None:
    for name, value in (names_read_by(step) or {}).items():
        if any(one is value for one in reached.values()):
            continue
        reached[name if name not in reached else f"{getattr(step, '__qualname__', '')}.{name}"] = (
            value
        )
        if name == type(value).__name__:  # what it is a method of
            reached.update(getattr(value, "__dict__", {}))
        if depth and callable(value) and not isinstance(value, type):
            _reach(value, reached, depth - 1)


@contextmanager
def put_back(step: Any) -> Iterator[None]:
    """Put back, after the block, what a step changes.

    Raises:
        CaptureError: It takes elements of something that cannot be put back.
    """
    kept = KeptState({"step": step})
    if kept.iterators:
        raise CaptureError(
            f"The step takes elements of `{kept.iterators[0]}`, which cannot be put back. Give the batch "
            "as an argument."
        )
    try:
        yield
    finally:
        kept.put_back()


def is_jax_step(step: Any, arguments: tuple[Any, ...]) -> bool:
    """Tell whether a step is one of JAX's: compiled by it, or given its arrays."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return False
    leaves = jax.tree_util.tree_leaves(arguments)
    return hasattr(step, "lower") or any(isinstance(leaf, jax.Array) for leaf in leaves)


def is_torch_step(step: Any) -> bool:
    """Tell whether a step reaches modules or optimizers of PyTorch's."""
    torch: Any = sys.modules.get("torch")
    kinds = () if torch is None else (torch.nn.Module, torch.optim.Optimizer, torch.Tensor)
    reached: Mapping[str, Any] = reached_objects(step)
    return bool(kinds) and any(isinstance(value, kinds) for value in reached.values())
