"""The one door to Numba: how our kernels are compiled, and that they run in plain Python until then.

A kernel is compiled on its first call, kept on disk, and lets other threads run while it works (``nogil``).
Numba does not check array bounds; every kernel has to. A kernel allocates nothing.

Compiling a kernel takes as long as running it in plain Python over about a hundred thousand bytes or rows.
The first report on a fresh machine is mostly of a small trace and would wait for ten kernels; so ``tiered``
ones run as they are written, which gives the same numbers, until they have more to do or have run so for
as long as compiling takes. ``profnb.warm`` compiles all in the background, whatever they have to do.

Only what Numba documents is used here. Its settings are everybody's and hold for our kernels only while they
are decorated: the user's own functions keep theirs.
"""

import contextlib
import contextvars
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., object])

_PACKAGE = Path(__file__).parents[1]
# Where kernels stand, and what they read: an edit of any compiles all anew. Numba itself sees edits of a
# kernel's own file only, and not of what it calls in others (numba/numba#1833, #8359).
_SOURCES = (
    "capture/source/source_records", "core/jit", "core/joining", "steps/breakdown", "steps/grouping",
    "steps/nesting", "steps/streams", "subjects/source/code_times", "tf1/run_metadata", "timeline/pack",
    "timeline/scene", "trace/chrome/events", "trace/chrome/json_scan", "trace/chrome/writer", "trace/wire",
    "trace/xplane", "trace/xplane_stats",
)  # fmt: skip
_UNUSED_S = 30 * 86_400
_SMALL_ARRAY = 100_000  # elements of a kernel's largest array
_COMPILING_S = 0.25  # about what compiling a kernel takes
_compiles = contextvars.ContextVar("compiles", default=False)


@cache
def _cache_folder() -> str:
    """Choose where compiled kernels are kept; empty where nothing is writable.

    That is Numba's folder if the user has set one, else beside the package, else in the home folder.
    """
    try:
        sources = [_PACKAGE.joinpath(f"{name}.py").read_bytes() for name in _SOURCES]
    except OSError:  # inside of a zip
        return ""
    versions = f"{sys.version} {numba.__version__}".encode()
    name = f"kernels-{hashlib.sha256(b''.join([versions, *sources])).hexdigest()[:16]}"
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    for base in (numba.config.CACHE_DIR, _PACKAGE / "__pycache__", Path(home, "profnb")):
        if base and _is_writable(folder := Path(base).expanduser() / name):
            with contextlib.suppress(OSError):  # remove what earlier versions have left
                for old in folder.parent.glob("kernels-*"):
                    if old.stat().st_mtime < time.time() - _UNUSED_S:
                        shutil.rmtree(old, ignore_errors=True)
            return str(folder)
    return ""


def _is_writable(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # the folder's time tells when it was used last
        return True
    return False


def compiled(function: Kernel) -> Kernel:
    """Compile a function over arrays and numbers."""
    folder, before = _cache_folder(), numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        kernel: Kernel = numba.njit(nogil=True, cache=bool(folder))(function)
    except RuntimeError:  # Numba was told to keep nothing there
        kernel = numba.njit(nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before
    return kernel


def tiered(function: Kernel) -> Kernel:
    """Compile a function over arrays and numbers, but run it as it is while it has little to do.

    It must come to the same in plain Python, where its integers are NumPy's, or Python's that do not wrap.
    Other kernels cannot call it.
    """
    kernel = compiled(function)
    # Where Numba is switched off it gives the function back.
    return Tiered(kernel) if hasattr(kernel, "py_func") else kernel  # type: ignore[return-value]


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Compile every kernel that is called inside, however little it has to do."""
    token = _compiles.set(True)
    try:
        yield
    finally:
        _compiles.reset(token)


def plain_version(kernel: Any) -> FunctionType:
    """A kernel as a function of plain Python that calls other kernels so, too.

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


class Tiered:
    """A kernel that runs in plain Python while it is not compiled and has little to do.

    Args:
        kernel: What Numba made of the function.

    Attributes:
        kernel: The same.
    """

    def __init__(self, kernel: Any) -> None:
        """Nothing has run."""
        self.kernel = kernel
        self._plain: FunctionType | None = None
        self._spent_s = 0.0

    def __call__(self, *arguments: Any) -> object:
        """Run it with these arguments."""
        size = max((a.size for a in arguments if isinstance(a, np.ndarray)), default=0)
        is_much = size > _SMALL_ARRAY or self._spent_s > _COMPILING_S
        if is_much or _compiles.get() or self.kernel.signatures:
            return self.kernel(*arguments)
        if self._plain is None:
            self._plain = plain_version(self.kernel)
        begin = time.thread_time()
        try:
            with np.errstate(over="ignore"):  # integers wrap, as they do in machine code
                return self._plain(*arguments)
        finally:
            self._spent_s += time.thread_time() - begin


@compiled
def _nothing() -> None:
    pass


def load_compiler() -> Iterator[None]:
    """Have Numba import and set up all that its first compilation needs, which takes a second."""
    with contextlib.suppress(ImportError):  # Numba does without
        importlib.import_module("scipy.linalg")
    yield
    _nothing()
    yield
