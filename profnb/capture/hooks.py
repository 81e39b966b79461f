"""Other people's calls with hooks of ours around them, and libraries that are imported later.

A watched method is a plain function in the method's place (``functools.wraps``): a bound method stays one, is
pickled by its name, and shows the original's signature. It stands there once, however many watch it. An error
that passes through it loses the traceback's entry for it. A hook that raises is a fault of ours:
``hook_failed`` is given the error, which goes no further. What the handler of a signal raises in it does.
"""

import contextlib
import functools
import importlib.abc
import importlib.util
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any

from profnb.capture.hook_clock import hook_clock
from profnb.capture.seam import Seam
from profnb.capture.seams import SEAMS
from profnb.capture.signals import OwnFaults, signal_of

Hook = Callable[..., object]
Faults = Callable[[Exception], object]
_Listed = tuple[tuple[int, Hook], ...]
_MISSING: Any = object()


class _Hooks:
    """Hooks around the calls of one function: the first to watch is the first to be told.

    Attributes:
        before: Run before each call; each with its thread, 0 for any.
        after: Run after each call.
        came: Run after each call that returned.
        raised: Run after each call that raised.
    """

    __slots__ = ("_given", "after", "before", "came", "placed", "raised")

    def __init__(self) -> None:
        self.before: _Listed = ()
        self.after: _Listed = ()
        self.came: _Listed = ()
        self.raised: _Listed = ()
        self.placed = contextlib.ExitStack()  # closed when nobody watches any more
        self._given: list[tuple[str, tuple[int, Hook], Faults]] = []

    @contextmanager
    def run(self, failed: Faults, hooks: Mapping[str, Hook], thread: int = 0) -> Iterator[None]:
        """Run these, too, inside the block."""
        mine = [(at, (thread, hook), failed) for at, hook in hooks.items()]
        self._given += mine
        self._combine()
        try:
            yield
        finally:
            self._given = [one for one in self._given if all(one is not other for other in mine)]
            self._combine()
            if not self._given:
                self.placed.close()

    def _combine(self) -> None:
        for at in ("before", "after", "came", "raised"):
            setattr(self, at, tuple(hook for when, hook, _ in self._given if when == at))

    def is_fault(self, error: Exception) -> bool:
        """One has raised: all are told who watch, unless it was a signal's handler, whose error goes on."""
        if signal_of(error) is not None:
            return False
        for hook_failed in {id(one[2]): one[2] for one in self._given}.values():
            hook_failed(error)
        return True

    def call_failed(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Run what runs after a call that raised."""
        here = get_ident()
        for thread, hook in (*self.raised, *self.after):
            try:
                if thread in (0, here):
                    hook(*arguments, **keywords)
            except Exception as error:  # noqa: PERF203 - each for itself
                if not self.is_fault(error):
                    raise


def guarded(hook: Hook, hook_failed: Faults) -> Hook:
    """Keep the faults of a hook from the code around it.

    Args:
        hook: What runs.
        hook_failed: Given its errors.
    """
    faults = OwnFaults(hook_failed)

    def run(*arguments: Any, **keywords: Any) -> None:
        with faults:
            hook(*arguments, **keywords)

    return run


def _around(call: Callable[..., Any], hooks: _Hooks) -> Callable[..., Any]:  # noqa: C901 - as below
    """A function that calls another one, and hooks around it, with no frame between them and it."""

    @functools.wraps(call)
    def watched(  # noqa: C901, PLR0912 - a function for a branch would be a frame in each call
        self: Any = _MISSING, /, *arguments: Any, **keywords: Any
    ) -> Any:
        hooks_ns = -time.perf_counter_ns() if hook_clock.is_on else 0
        if self is not _MISSING:
            arguments = self, *arguments
        here = get_ident()
        try:
            for thread, hook in hooks.before:
                if thread == here or not thread:
                    hook(*arguments, **keywords)
        except Exception as error:
            if not hooks.is_fault(error):
                raise
        if hooks_ns:
            hooks_ns += time.perf_counter_ns()
        try:
            result = call(*arguments, **keywords)
        except BaseException as error:
            without_us(error)
            hooks.call_failed(arguments, keywords)
            raise
        if hooks_ns:
            hooks_ns -= time.perf_counter_ns()
        try:
            for thread, hook in hooks.came:
                if thread == here or not thread:
                    hook(*arguments, result)
            for thread, hook in hooks.after:
                if thread == here or not thread:
                    hook(*arguments, **keywords)
        except Exception as error:
            if not hooks.is_fault(error):
                raise
        if hooks_ns:
            hook_clock.took_ns[here] += hooks_ns + time.perf_counter_ns()
        return result

    # PyTorch's profiler knows calls of modules by the code that stands in their class, whose variable `self`
    # it reads without asking: so code of one's own, with a variable of that name.
    watched.__code__ = watched.__code__.replace()  # type: ignore[attr-defined]
    watched.profnb_hooks = hooks  # type: ignore[attr-defined]
    return watched


def without_us(error: BaseException) -> None:
    """Let an error that passes through the calling function have no entry for that in its traceback.

    Called in the handler that raises it again with a bare ``raise``.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
        if sys.version_info < (3, 11):  # there the interpreter keeps the traceback beside its error
            import ctypes

            caught = [ctypes.py_object(one) for one in (type(error), error, error.__traceback__)]
            for one in caught:
                ctypes.pythonapi.Py_IncRef(one)  # which the next call keeps
            ctypes.pythonapi.PyErr_SetExcInfo(*caught)


@contextmanager
def watched_call(
    call: Callable[..., Any], *, hook_failed: Faults, **hooks: Hook
) -> Iterator[Callable[..., Any]]:
    """Make a function that does what another one does, and inside the block runs hooks around it.

    Args:
        call: The other one.
        hook_failed: Given the errors of hooks.
        hooks: As those of ``watch``.
    """
    around = _Hooks()
    with around.run(hook_failed, hooks):
        yield _around(call, around)


@dataclass(eq=False, slots=True)
class _Replaced:
    """An attribute that has another value for a while, and what it had before."""

    owner: object
    name: str
    value: object
    before: object
    is_aside: bool = False

    def is_in_place(self) -> bool:
        return vars(self.owner).get(self.name) is self.value

    def put_back(self) -> None:
        if self.before is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


_MOST_COVERED = 100
_replaced: list[_Replaced] = []
_covered: list[_Replaced] = []  # are over, but stood under a value of the code's own as they ended


@contextmanager
def replace_attribute(owner: object, name: str, value: object) -> Iterator[None]:
    """Give an attribute another value inside the block; it comes back own or inherited, as it was.

    Blocks of the same attribute may overlap: one that began later and lasts longer leaves what stood there
    before both. Where the code has put a value of its own over ours and puts ours back after the block (a
    ``mock.patch`` that one cell starts and another stops), ``put_back_uncovered`` sees it.
    """
    put_back_uncovered()
    replacement = _Replaced(owner, name, value, vars(owner).get(name, _MISSING))
    setattr(owner, name, value)
    _replaced.append(replacement)
    try:
        yield
    finally:
        _replaced.remove(replacement)
        if replacement.is_in_place():
            replacement.put_back()
        elif not replacement.is_aside:
            same = [one for one in _replaced if one.owner is owner and one.name == name]
            laters = [one for one in same if one.before is value]
            for later in laters:
                later.before = replacement.before
            if not laters:
                _covered.append(replacement)
                del _covered[:-_MOST_COVERED]


def put_back_uncovered(*_: object) -> None:
    """Put back what was ours where the code's own value above it has gone."""
    for replacement in [one for one in _covered if one.is_in_place()]:
        _covered.remove(replacement)
        replacement.put_back()


def put_aside(*_: object) -> None:
    """Put back all that has another value, for a while: something reads the code and must not read ours."""
    for replacement in reversed(_replaced):
        if replacement.is_in_place():
            replacement.put_back()
            replacement.is_aside = True


def put_again(*_: object) -> None:
    """Give what was put aside its other value again, unless its block has ended or the code has set it."""
    for replacement in [one for one in _replaced if one.is_aside]:
        replacement.is_aside = False
        if vars(replacement.owner).get(replacement.name, _MISSING) is replacement.before:
            setattr(replacement.owner, replacement.name, replacement.value)


@contextmanager
def watch(
    owner: object, name: str, *, hook_failed: Faults, thread: int = 0, **hooks: Hook
) -> Iterator[None]:
    """Run hooks around a method of every instance, or around a module's function, inside the block.

    Args:
        owner: The class or the module.
        name: Its attribute.
        hook_failed: Given the errors of hooks.
        thread: Whose calls are seen; 0 for those of any.
        hooks: ``before`` runs before each call, given its arguments (a method's first is the instance);
            ``after`` after each call with the same, whether it returned or raised; ``came`` after each call
            that returned, given its positional arguments and what came; ``raised`` after each call that
            raised, given its arguments.
    """
    around: _Hooks | None = getattr(vars(owner).get(name), "profnb_hooks", None)
    if around is None:
        around = _Hooks()
        original = inspect.getattr_static(owner, name)
        if isinstance(owner, type) and not inspect.isfunction(original):
            original = bound_anew(original)
        around.placed.enter_context(replace_attribute(owner, name, _around(original, around)))
    with around.run(hook_failed, hooks, thread):
        yield


def bound_anew(descriptor: Any) -> Callable[..., Any]:
    """Make a function of what stands in a class and is none: somebody's wrapper, a C function."""

    def call(instance: Any, /, *arguments: Any, **keywords: Any) -> Any:
        try:
            return descriptor.__get__(instance, type(instance))(*arguments, **keywords)
        except BaseException as error:
            without_us(error)
            raise

    return functools.update_wrapper(call, descriptor)


class _ImportFinder(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and asks its loader to tell when it has run."""

    def __init__(self, hooks: dict[str, Hook]) -> None:
        self.hooks = hooks
        self._finding: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name not in self.hooks or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader

        def loaded(*_: object) -> None:
            vars(loader).pop("exec_module", None)
            hook = self.hooks.pop(name, None)
            if hook is not None:
                hook()

        # Only looking for the module (find_spec) loads nothing and must not use up the hook. A loader of the
        # code's own may have no such method, or let nobody replace it: then it is not told, but it loads.
        with contextlib.suppress(AttributeError, TypeError):
            hooks = _Hooks()
            hooks.after = ((0, loaded),)
            loader.exec_module = _around(loader.exec_module, hooks)  # type: ignore[method-assign]
        return spec


@contextmanager
def on_import(hooks: Mapping[str, Hook]) -> Iterator[None]:
    """Run a hook as soon as a module has been imported, or at once if it already is.

    Args:
        hooks: Module name to hook; a hook runs at most once and must not raise.
    """
    waiting = {name: hook for name, hook in hooks.items() if name not in sys.modules}
    for name, hook in hooks.items():
        if name not in waiting:
            hook()
    finder = _ImportFinder(waiting)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        waiting.clear()  # a module may have been found here that is loaded later
        with contextlib.suppress(ValueError):  # the code put back the finders that it knew
            sys.meta_path.remove(finder)


_HOOK_TITLES = {
    "tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch", "keras": "Keras", "sys": "Python",
    "importlib": "Python", "ai_edge_litert.interpreter": "LiteRT",
}  # fmt: skip


class Library:
    """One imported library in one capture.

    Args:
        module: tensorflow, jax, torch, keras, tf_keras, IPython, or what of Python holds seams.
        hook_failed: Given every error of a hook of ours.
        thread: Whose calls are watched; by default the calling one's.

    Attributes:
        module: The library.
        missing: Its seams that are not there.
        changed: Its seams that cannot be called any more as they were.
    """

    def __init__(
        self, module: ModuleType, hook_failed: Faults = lambda _: None, thread: int = 0
    ) -> None:
        """Look up every seam of the library."""
        self.module, self.hook_failed, self.thread = module, hook_failed, thread or get_ident()
        self._values = {seam: seam.find(self.root(seam)) for seam in SEAMS if self._has(seam)}
        there = {seam: value for seam, value in self._values.items() if value is not None}
        self.missing = [seam for seam in self._values if seam not in there]
        self.changed = [seam for seam, value in there.items() if seam.is_changed(value)]

    def root(self, seam: Seam) -> ModuleType | None:
        """Give the module that a seam is looked up in; None for one inside of the library, which it names."""
        return None if seam.module.startswith(f"{self.module.__name__}.") else self.module

    def _has(self, seam: Seam) -> bool:
        """A library has a seam by its name, which tf_keras shares, or in a module inside."""
        name = self.module.__name__
        is_its = seam.module == name.removeprefix("tf_") or seam.module.startswith(f"{name}.")
        if not is_its or seam.is_on_objects:
            return False
        beside = Seam(seam.only_with, "")
        return not seam.only_with or beside.find(self.root(beside)) is not None

    def take(self, seam: Seam) -> Any:
        """The value of a seam; None where it is missing or changed."""
        return None if seam in self.changed else self._values.get(seam)

    def watch(
        self, seam: Seam, *, on_any_thread: bool = False, **hooks: Hook
    ) -> AbstractContextManager[None]:
        """Run hooks around a method, given its arguments, on the thread; see ``watch`` above."""
        if self.take(seam) is None:
            return nullcontext()
        owner, thread = seam.owner(self.root(seam)), 0 if on_any_thread else self.thread
        settings: Any = {"hook_failed": self.hook_failed, "thread": thread, **hooks}
        return self._entered(watch(owner, seam.attributes[0], **settings))

    @contextmanager
    def watch_everywhere(self, seam: Seam, function: Any, **hooks: Hook) -> Iterator[None]:
        """Run hooks around a function of a profiler, under every module that holds it by its name.

        It is public in several places (``tf.compat.v2`` too), its own module calls it, and a notebook may
        have imported it, under any name.
        """
        with (
            watched_call(function, hook_failed=self.hook_failed, **hooks) as watched,
            self.replace_everywhere(seam, function, watched),
        ):
            yield

    @contextmanager
    def replace_everywhere(
        self, seam: Seam, value: object, other: object, but_in: tuple[str, ...] = ()
    ) -> Iterator[None]:
        """Give every name that holds a value another one, inside the block.

        Args:
            seam: Its names in modules; a notebook may have it under any.
            value: What is replaced.
            other: What stands there instead.
            but_in: How the names of modules begin that keep it.
        """
        with ExitStack() as stack:
            for module, name in _held_by_modules(value, seam.attributes):
                if not module.__name__.startswith(but_in):
                    stack.enter_context(self._entered(replace_attribute(module, name, other)))
            yield

    @contextmanager
    def _entered(self, hooking: AbstractContextManager[None]) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(hooking)
            except Exception as error:  # noqa: BLE001 - a class that does not let itself be changed
                self.hook_failed(error)
            yield


def _held_by_modules(value: object, names: Iterable[str]) -> list[tuple[ModuleType, str]]:
    """The modules that hold a value by one of some names, or a notebook by any, and that name.

    There are thousands, at each capture's begin: no loop of Python's is around them.
    """
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    holders = [
        (module, name) for name in names for module in modules if vars(module).get(name) is value
    ]
    main = sys.modules.get("__main__")
    if isinstance(main, ModuleType):
        holders += [(main, name) for name, held in list(vars(main).items()) if held is value]
    return list({(id(module), name): (module, name) for module, name in holders}.values())


def explain_missing(libraries: Iterable[Library]) -> list[str]:
    """One sentence about all that is missing or changed, if anything: "Keras 4.0.0 hides ..., so ..."."""
    clauses = []
    for library in libraries:
        module, verbs = library.module, []
        if library.missing:
            names = (seam.first_missing(library.root(seam)) for seam in library.missing)
            verbs.append(f"hides {_listed(names)}")
        if library.changed:
            verbs.append(f"has changed {_listed(seam.name for seam in library.changed)}")
        if verbs:
            title = _HOOK_TITLES.get(module.__name__, module.__name__)
            version = str(getattr(module, "__version__", ""))
            losses = _listed(seam.lost for seam in (*library.missing, *library.changed))
            clauses.append(f"{f'{title} {version}'.strip()} {' and '.join(verbs)}, so {losses}")
    return ["; ".join(clauses) + "."] if clauses else []


def _listed(words: Iterable[str]) -> str:
    """Distinct words: ``a``, ``a and b``, ``a, b and c``."""
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} and {last}" if others else last
