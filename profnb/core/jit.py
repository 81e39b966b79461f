"""The one door to Numba: how our kernels are compiled.

A kernel is compiled on its first call and kept on disk (``cache``), and lets other threads run while it
works (``nogil``). Numba does not check array bounds; every kernel has to.
"""

from collections.abc import Callable
from typing import TypeVar

from numba import njit

__all__ = ["compiled", "inlined"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def _compile(function: Kernel, **options: str) -> Kernel:
    try:
        kernel: Kernel = njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # nowhere to keep it: neither the package nor the home folder is writable
        kernel = njit(nogil=True, **options)(function)
    return kernel


def compiled(function: Kernel) -> Kernel:
    """Compile a function over arrays and numbers."""
    return _compile(function)


def inlined(function: Kernel) -> Kernel:
    """Compile a small function into each kernel that calls it."""
    return _compile(function, inline="always")
