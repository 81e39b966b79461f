"""The one door to Numba: how our kernels are compiled.

A kernel is compiled on its first call and kept on disk (``_KernelCache``), and lets other threads run while
it works (``nogil``). Numba does not check array bounds; every kernel has to. A kernel allocates nothing: its
arrays are its caller's, so Numba need not count references to them (``_nrt``), which at each call of one
kernel by another took longer than the call.
"""

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numba import njit
from numba.core import config, types
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.types.misc import unliteral
from numba.core.typing import BaseContext

from profnb.core.tiers import FirstCalls

__all__ = ["compiled", "inner", "load_compiler", "tiered"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def _codes(kernel: Dispatcher) -> list[CodeType]:
    """The code of a kernel and of the functions and comprehensions written inside it."""
    codes = [kernel.py_func.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes


def _reads(kernel: Dispatcher) -> Iterator[tuple[str, Any]]:
    """What a kernel may read from outside itself, by name; a superset, as attributes are names too."""
    names, cells = kernel.py_func.__globals__, kernel.py_func.__closure__ or ()
    for code in _codes(kernel):
        yield from ((name, names[name]) for name in code.co_names if name in names)
    yield from zip(
        kernel.py_func.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True
    )


def _content(value: object) -> bytes:
    """A constant as bytes that are the same in every process. Kernels read numbers and arrays."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    if isinstance(value, ModuleType):  # NumPy: no kernel names ours through its module
        return value.__name__.encode()
    return repr(value).encode()


@cache
def _how() -> bytes:
    """What this file says of compiling, which makes machine code faster or slower; nothing inside a zip."""
    try:
        return Path(__file__).read_bytes()
    except OSError:
        return b""


def _fingerprint(kernel: Dispatcher) -> str:
    """A hash of all that makes a kernel's machine code.

    That is, of the kernel and of each that it calls, in whatever file: byte code, constants, the values of
    globals, and how Numba is to compile it. It is the same where only comments or other functions differ.
    """
    digest = hashlib.sha256(_how())
    kernels = [kernel]
    for each in kernels:
        digest.update(f"{each.py_func.__qualname__} {sorted(each.targetoptions.items())}".encode())
        for code in _codes(each):
            constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
            digest.update(code.co_code)
            digest.update(repr((code.co_names, code.co_varnames, constants)).encode())
        for name, value in _reads(each):
            digest.update(name.encode())
            if not isinstance(value, Dispatcher):
                digest.update(_content(value))
            elif value not in kernels:
                kernels.append(value)
    return digest.hexdigest()


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, keyed in addition by the content of what the kernel calls.

    Numba itself only sees edits of the file that the kernel stands in: what it calls in other files, or
    reads from them, would stay as it was when the kernel was compiled (numba/numba#1833, #8359).
    """

    def __init__(self, kernel: Dispatcher) -> None:
        super().__init__(kernel.py_func)
        self._kernel = kernel

    def _index_key(self, sig: object, codegen: object) -> tuple[object, ...]:
        """Under what a compiled signature is kept; asked for on a first call, not on import."""
        return *super()._index_key(sig, codegen), _fingerprint(self._kernel)


# What kernels have no need of: closures, ``with``, literals, constructs that Numba rewrites or inlines.
_NEEDLESS_PASSES = frozenset(
    {
        "DeadBranchPrune",
        "DumpParforDiagnostics",
        "FindLiterallyCalls",
        "GenericRewrites",
        "InlineClosureLikes",
        "InlineInlinables",
        "InlineOverloads",
        "LiteralPropagationSubPipelinePass",
        "LiteralUnroll",
        "MakeFunctionToJitFunction",
        "NoPythonSupportedFeatureValidation",
        "NopythonRewrites",
        "RewriteDynamicRaises",
        "RewriteSemanticConstants",
        "WithLifting",
    }
)


class _KernelFlags(Flags):  # type: ignore[misc]
    """Flags of which Numba need not compare every one.

    It does so thousands of times a kernel, to learn whether an operator is compiled already. What the
    kernels' flags differ in, wrappers, makes no difference to that.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KernelFlags)

    def __hash__(self) -> int:
        return 1


_PLAIN = types.Number, types.Array  # of which no operator asks whether they are literal


class _KernelTyping(BaseContext):  # type: ignore[misc]
    """Numba's context of types, shared, that looks up once what an operator makes of its operands' types.

    A kernel adds two integers a hundred times, and types are propagated until nothing changes.
    """

    _signatures: ClassVar[dict[tuple[object, ...], object]] = {}

    def __init__(self, shared: BaseContext) -> None:
        self.__dict__ = shared.__dict__

    def load_additional_registries(self) -> None:
        """The shared context has loaded them."""

    def resolve_function_type(
        self, func: object, args: tuple[object, ...], kws: dict[str, object]
    ) -> object:
        """The signature of a function of Numba's for some types; other kernels are asked each time."""
        if kws or not isinstance(func, types.Function):
            return super().resolve_function_type(func, args, kws)
        if all(isinstance(each, _PLAIN) for each in args):
            args = tuple(unliteral(each) for each in args)
        key = (func, args)
        signature = self._signatures.get(key)
        if signature is None:
            signature = super().resolve_function_type(func, args, kws)
            if signature is not None:
                self._signatures[key] = signature
        return signature


class _KernelTarget(CPUContext):  # type: ignore[misc]
    """Numba's context of machine code, shared, which was refreshed when compiling began.

    Each access to an array looks for a replacement of what arrays are, does not find one, and would refresh
    all that Numba knows to look again.
    """

    def __init__(self, shared: CPUContext) -> None:
        self.__dict__ = shared.__dict__

    def refresh(self) -> None:
        """Nothing new comes while a kernel is compiled."""


class _LonelyLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Machine code of a kernel that neither calls nor is called by another.

    LLVM optimizes it whole, and need not have simplified it before; of others that decides what is inlined.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout  # noqa: SLF001


def _is_lonely(function: FunctionType) -> bool:
    """Whether a kernel calls no other."""
    names = function.__globals__
    return not any(isinstance(names.get(name), Dispatcher) for name in function.__code__.co_names)


class _KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler without what costs kernels time and gains them nothing.

    That is vectorizing too: our loops branch at every element. Its settings are Numba's and global, but
    whoever compiles holds Numba's lock, and they are put back.
    """

    def define_pipelines(self) -> list[PassManager]:
        """Numba's passes without the needless ones."""
        lean = PassManager("kernel")
        for manager in super().define_pipelines():
            for each, description in manager.passes:
                if each.__name__ not in _NEEDLESS_PASSES:
                    lean.add_pass(each, description)
        lean.finalize()
        return [lean]

    def _compile_core(self) -> object:
        state = self.state
        state.flags = _KernelFlags(state.flags)
        state.typingctx = _KernelTyping(state.typingctx)
        state.targetctx = _KernelTarget(state.targetctx)
        if not state.flags.no_cpython_wrapper and _is_lonely(state.func_id.func):
            name = state.func_id.func_qualname
            state.library = _LonelyLibrary(state.targetctx.codegen(), name)
            state.library.enable_object_caching()
        vectorizers = config.LOOP_VECTORIZE, config.SLP_VECTORIZE
        config.LOOP_VECTORIZE = config.SLP_VECTORIZE = 0
        try:
            return super()._compile_core()
        finally:
            config.LOOP_VECTORIZE, config.SLP_VECTORIZE = vectorizers


def load_compiler() -> Iterator[None]:
    """Import what Numba imports when it first compiles: SciPy, where there is any, and then its own."""
    with contextlib.suppress(ImportError):
        importlib.import_module("scipy.linalg")
    yield
    with global_compiler_lock:
        cpu_target.target_context.refresh()
    yield


def _compile(function: Kernel, **options: str | bool) -> Kernel:
    # No C code calls a kernel, so none has to be callable from there.
    kernel: Kernel = njit(
        nogil=True, no_cfunc_wrapper=True, _nrt=False, pipeline_class=_KernelCompiler, **options
    )(function)
    if isinstance(kernel, Dispatcher):  # else Numba is switched off
        # Where neither the package nor the home folder is writable there is nowhere to keep it.
        with contextlib.suppress(RuntimeError):
            kernel._cache = _KernelCache(kernel)  # type: ignore[attr-defined] # noqa: SLF001
    return kernel


def compiled(function: Kernel) -> Kernel:
    """Compile a function over arrays and numbers."""
    return _compile(function)


def tiered(function: Kernel) -> Kernel:
    """Compile a function over arrays and numbers, but run it as it is while it has little to do.

    It must come to the same in plain Python, where its integers are NumPy's, or Python's that do not wrap.
    """
    kernel = _compile(function)
    if isinstance(kernel, Dispatcher):
        # Numba asks this method of the kernel, by name, what to call where no machine code fits.
        kernel._compile_for_args = FirstCalls(kernel, kernel._compile_for_args)  # type: ignore[attr-defined] # noqa: SLF001
    return kernel


def inner(function: Kernel) -> Kernel:
    """Compile a function that kernels alone call, never Python."""
    return _compile(function, no_cpython_wrapper=True)
