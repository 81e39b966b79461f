"""The one door to Numba: how our kernels are compiled.

A kernel is compiled on its first call and kept on disk (``cache``), and lets other threads run while it
works (``nogil``). Numba does not check array bounds; every kernel has to.
"""

from collections.abc import Callable
from typing import TypeVar

from numba import njit

__all__ = ["compiled", "inlined"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def compiled(function: Kernel) -> Kernel:
    """Compile a function over arrays and numbers."""
    kernel: Kernel = njit(cache=True, nogil=True)(function)
    return kernel


def inlined(function: Kernel) -> Kernel:
    """Compile a small function into each kernel that calls it."""
    kernel: Kernel = njit(cache=True, nogil=True, inline="always")(function)
    return kernel
