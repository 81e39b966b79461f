"""Weights, optimizers and random state of a step, put back after it ran.

What a step may change is what its function names: variables of its module, those it closes over, its defaults
and the object it is a method of. What cannot be put back, as an iterator, has the step declined.
"""

import io
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from profnb.core.errors import CaptureError

_DEEPEST = 3


def reached_objects(step: Any) -> dict[str, Any]:
    """The objects that a step's function names, those of functions that it calls too, by name."""
    reached: dict[str, Any] = {}
    _reach(step, reached, _DEEPEST)
    return reached


def _reach(step: Any, reached: dict[str, Any], depth: int) -> None:
    if isinstance(step, partial):
        _add(reached, depth, "", {**dict(enumerate(step.args)), **step.keywords, "func": step.func})
        return
    function = getattr(step, "python_function", None) or getattr(step, "__wrapped__", step)
    owner = getattr(function, "__self__", None)
    if owner is not None:
        reached.setdefault(type(owner).__name__, owner)
        reached.update(getattr(owner, "__dict__", {}))
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    named = {name: cell.cell_contents for name, cell in cells if cell != type(cell)()}
    names = {*code.co_names, *(name for inner in code.co_consts for name in _names_in(inner))}
    named |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    defaults = function.__defaults__ or ()
    optional = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    named |= dict(zip(optional, defaults, strict=True)) | (function.__kwdefaults__ or {})
    _add(reached, depth, function.__qualname__, named)


def _add(reached: dict[str, Any], depth: int, of: str, named: Mapping[Any, Any]) -> None:
    for name, value in named.items():
        key = str(name)
        if key in reached and reached[key] is not value:  # another function's, of the same name
            key = f"{of}.{name}"
        if key not in reached:
            reached[key] = value
            if depth and callable(value) and not isinstance(value, type):
                _reach(value, reached, depth - 1)


def _names_in(constant: Any) -> tuple[str, ...]:
    return getattr(constant, "co_names", ())


@contextmanager
def put_back(step: Any) -> Iterator[None]:
    """Put back, after the block, what a step changes.

    Raises:
        CaptureError: It takes elements of something that cannot be put back.
    """
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        if "numpy" in sys.modules:
            import numpy as np

            stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 - the code's own
        if torch := sys.modules.get("torch"):
            stack.callback(torch.set_rng_state, torch.get_rng_state())
        for name, value in reached_objects(step).items():
            for restore in _restores(name, value):
                stack.callback(restore)
        yield


def _restores(name: str, value: Any) -> Iterator[Callable[[], object]]:
    if isinstance(value, Iterator):
        raise CaptureError(
            f"The step takes elements of `{name}`, which cannot be put back. Give the batch as an argument."
        )
    if isinstance(value, list | dict | set):
        yield _restore_container(value)
    if isinstance(value, list | dict | set | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _restores_of_weights(inner)
    else:
        yield from _restores_of_weights(value)


def _restores_of_weights(value: Any) -> Iterator[Callable[[], object]]:
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    if torch is not None and isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        yield _restore_torch(torch, value)
    elif torch is not None and isinstance(value, torch.Tensor) and value.requires_grad:
        if value.is_leaf:
            yield _restore_torch(torch, value)
    elif tensorflow is not None and isinstance(value, tensorflow.Variable):
        yield _restore_variable(value)
    elif tensorflow is not None and hasattr(value, "variables"):  # of Keras, and modules
        for variable in value.variables:
            yield _restore_variable(variable)


def _restore_torch(torch: Any, value: Any) -> Callable[[], object]:
    is_tensor = isinstance(value, torch.Tensor)
    weights = [value] if is_tensor else list(getattr(value, "parameters", tuple)())
    kept = io.BytesIO()  # where neither PyTorch's allocators nor what counts living tensors see it
    grads = [weight.grad for weight in weights]
    torch.save((value.detach() if is_tensor else value.state_dict(), grads), kept)
    del grads

    def restore() -> None:
        kept.seek(0)
        state, grads = torch.load(kept, weights_only=False)
        if is_tensor:
            value.data.copy_(state)
        else:
            value.load_state_dict(state)
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad

    return restore


def _restore_variable(variable: Any) -> Callable[[], object]:
    before = variable.numpy()
    return lambda: variable.assign(before)


def _restore_container(value: Any) -> Callable[[], object]:
    before = value.copy()

    def restore() -> None:
        value.clear()
        (value.extend if isinstance(value, list) else value.update)(before)

    return restore


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
