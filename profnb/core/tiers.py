"""Kernels in two tiers: plain Python while there is little to do, machine code from then on.

Compiling a kernel takes as long as running it in plain Python over about a hundred thousand bytes or rows.
The first report on a fresh machine is mostly of a small trace and would wait for ten kernels; so a kernel's
first calls run as they are written, which gives the same numbers, until it has more to do or has run so for
as long as compiling takes. ``profnb.warm`` compiles all in the background, whatever they have to do.
"""

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

__all__ = ["FirstCalls", "compiling", "plain_version"]

_SMALL = 100_000  # elements of a kernel's largest array
_PATIENCE_S = 0.25  # about what compiling a kernel takes
_compiles = contextvars.ContextVar("compiles", default=False)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Compile every kernel that is called inside, however little it has to do."""
    token = _compiles.set(True)
    try:
        yield
    finally:
        _compiles.reset(token)


def plain_version(kernel: Any) -> FunctionType:
    """A kernel as a function of plain Python that calls its inner kernels so, too.

    Args:
        kernel: What Numba made of a function, which it keeps as ``py_func``.
    """
    function = kernel.py_func
    names = {
        name: plain_version(value) if hasattr(value, "py_func") else value
        for name, value in function.__globals__.items()
        if name in function.__code__.co_names or name == "__builtins__"
    }
    return FunctionType(function.__code__, names, function.__name__)


class FirstCalls:
    """Stands where Numba looks for what a kernel's call runs that is not compiled yet.

    Args:
        kernel: The kernel.
        compile_for: Its method that compiles it for some arguments and returns what to call.
    """

    def __init__(self, kernel: object, compile_for: Callable[..., object]) -> None:
        """Nothing has run."""
        self._kernel, self._compile_for = kernel, compile_for
        self._plain: FunctionType | None = None
        self._spent_s = 0.0

    def __call__(self, *arguments: Any) -> object:
        """What is to be called with these arguments."""
        size = max((a.size for a in arguments if isinstance(a, np.ndarray)), default=0)
        if _compiles.get() or size > _SMALL or self._spent_s > _PATIENCE_S:
            return self._compile_for(*arguments)
        return self._run

    def _run(self, *arguments: Any) -> object:
        if self._plain is None:
            self._plain = plain_version(self._kernel)
        begin = time.thread_time()
        try:
            with np.errstate(over="ignore"):  # integers wrap, as they do in machine code
                return self._plain(*arguments)
        finally:
            self._spent_s += time.thread_time() - begin
