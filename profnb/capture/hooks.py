"""Other people's calls with hooks of ours around them, and modules that are imported later.

A watched method is a plain function in the method's place (``functools.wraps``): a bound method stays one, is
pickled by its name, and shows the original's signature. It stands there once, however many watch it. An error
that passes through it loses the traceback's entry for it (on Python 3.10 the entry stays: there a bare
``raise`` takes the traceback that the interpreter had kept). A hook that raises is a fault of ours and not of
the user's code: ``hook_failed`` is given the error, which goes no further. What the handler of a signal
raises in a hook does.
"""

import contextlib
import functools
import importlib.abc
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from profnb.capture.signals import signal_of

Hook = Callable[..., object]
Faults = Callable[[Exception], object]
_MISSING: Any = object()


class _Hooks:
    """What runs around the calls of one function: the first to watch is the first to be told.

    Attributes:
        before: Run before each call.
        after: Run after each call.
        came: Run after each call that returned.
        raised: Run after each call that raised.
    """

    __slots__ = ("_given", "after", "before", "came", "placed", "raised")

    def __init__(self) -> None:
        self.before: tuple[Hook, ...] = ()
        self.after: tuple[Hook, ...] = ()
        self.came: tuple[Hook, ...] = ()
        self.raised: tuple[Hook, ...] = ()
        self.placed = contextlib.ExitStack()  # closed when nobody watches any more
        self._given: list[tuple[str, Hook, Faults]] = []

    def add(self, given: Sequence[tuple[str, Hook, Faults]]) -> None:
        self._given += given
        self._combine()

    def remove(self, given: Sequence[tuple[str, Hook, Faults]]) -> None:
        self._given = [one for one in self._given if all(one is not other for other in given)]
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
        hook: Hook
        for hook in (*self.raised, *self.after):
            try:
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

    def run(*arguments: Any, **keywords: Any) -> None:
        try:
            hook(*arguments, **keywords)
        except Exception as error:
            if signal_of(error) is not None:
                raise
            hook_failed(error)

    return run


def _around(  # noqa: C901 - a function for a branch would be a frame in each call
    call: Callable[..., Any], hooks: _Hooks
) -> Callable[..., Any]:
    """A function that calls another one, and hooks around it, with no frame between them and it."""

    @functools.wraps(call)
    def watched(self: Any = _MISSING, /, *arguments: Any, **keywords: Any) -> Any:
        if self is not _MISSING:
            arguments = self, *arguments
        try:
            for hook in hooks.before:
                hook(*arguments, **keywords)
        except Exception as error:
            if not hooks.is_fault(error):
                raise
        try:
            result = call(*arguments, **keywords)
        except BaseException as error:
            without_us(error)
            hooks.call_failed(arguments, keywords)
            raise
        try:
            for hook in hooks.came:
                hook(*arguments, result)
            for hook in hooks.after:
                hook(*arguments, **keywords)
        except Exception as error:
            if not hooks.is_fault(error):
                raise
        return result

    # PyTorch's profiler knows calls of modules by the code that stands in their class, whose variable `self`
    # it reads without asking: so code of one's own, with a variable of that name.
    watched.__code__ = watched.__code__.replace()  # type: ignore[attr-defined]
    watched.profnb_hooks = hooks  # type: ignore[attr-defined]
    return watched


def without_us(error: BaseException) -> None:
    """Let an error that passes through the calling function have no entry for that in its traceback."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


@contextmanager
def watched_call(
    call: Callable[..., Any],
    *,
    before: Hook | None = None,
    after: Hook | None = None,
    hook_failed: Faults,
) -> Iterator[Callable[..., Any]]:
    """A function that does what another one does, and inside the block runs hooks around it.

    Args:
        call: The other one.
        before: Runs before each call, given its arguments.
        after: Runs after each call with the same, whether it returned or raised.
        hook_failed: Given the errors of hooks.
    """
    hooks, mine = _Hooks(), _given(hook_failed, before=before, after=after)
    hooks.add(mine)
    try:
        yield _around(call, hooks)
    finally:
        hooks.remove(mine)


def _given(hook_failed: Faults, **hooks: Hook | None) -> list[tuple[str, Hook, Faults]]:
    return [(at, hook, hook_failed) for at, hook in hooks.items() if hook is not None]


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
            laters = [
                one
                for one in _replaced
                if one.owner is owner and one.name == name and one.before is value
            ]
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
    owner: object,
    name: str,
    *,
    before: Hook | None = None,
    after: Hook | None = None,
    came: Hook | None = None,
    raised: Hook | None = None,
    hook_failed: Faults,
) -> Iterator[None]:
    """Run hooks around a method of every instance, or around a module's function, inside the block.

    Args:
        owner: The class or the module.
        name: What it is called there.
        before: Runs before each call, given its arguments (a method's first is the instance).
        after: Runs after each call with the same, whether it returned or raised.
        came: Runs after each call that returned, given its positional arguments and what came.
        raised: Runs after each call that raised, given its arguments.
        hook_failed: Given the errors of hooks.
    """
    mine = _given(hook_failed, before=before, after=after, came=came, raised=raised)
    hooks: _Hooks | None = getattr(vars(owner).get(name), "profnb_hooks", None)
    if hooks is None:
        hooks = _Hooks()
        original = inspect.getattr_static(owner, name)
        if isinstance(owner, type) and not inspect.isfunction(original):
            original = _bound_anew(original)
        hooks.placed.enter_context(replace_attribute(owner, name, _around(original, hooks)))
    hooks.add(mine)
    try:
        yield
    finally:
        hooks.remove(mine)


def _bound_anew(descriptor: Any) -> Callable[..., Any]:
    """A function that calls what stands in a class and is none: somebody's wrapper, a C function."""

    def call(instance: Any, /, *arguments: Any, **keywords: Any) -> Any:
        return descriptor.__get__(instance, type(instance))(*arguments, **keywords)

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
            hooks.add([("after", loaded, lambda _: None)])
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
