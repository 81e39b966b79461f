"""Hooks before and after other people's calls, with no frame of ours in their tracebacks.

A wrapper function would stand in every traceback that passes through it, and the user's cell would
no longer fail as it does without the magic. Instead the callable is replaced by an object whose
``__call__`` is a property: Python looks it up when the call is made, that look-up runs the first
hook and returns a C-level ``functools.partial`` of the original, and the second hook runs when that
partial is released, the moment the call returns or raises. A hook that raises is a fault of ours and
not of the user's code: ``hook_failed`` is given the error, which goes no further. Interrupts pass: one
that comes in the second hook, where Python swallows errors, is raised when it is over (``signals.Lost``).

``WatchedCall``, drawn. A call of a watched method ``fit``, from the cell ``model.fit(x)``::

    the cell's code                 Python                           hooks
    ---------------                 ------                           -----
    model.fit               ------> _WatchedMethod.__get__
                            <------ WatchedCall of the bound fit
    (x) is worked out
    ...(x)                  ------> looks up WatchedCall.__call__ -> before(model)
                                    gets a _Call, a C-level partial
                                    of the bound fit; calls it
        fit(model, x) runs, and the frame above it is the cell's
        it returns, or raises
                                    releases the _Call: __del__ ---> after(model)
    goes on                 <------

The traceback of an error in ``fit`` has two entries, the cell's and ``fit``'s. With a wrapper function it
would have three.

Relies on CPython releasing an object as soon as nothing refers to it.
"""

import contextlib
import functools
import importlib.abc
import importlib.util
import inspect
import operator
import pkgutil
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import MethodType, ModuleType
from typing import Any

from profnb.capture.signals import Lost, signal_of

__all__ = [
    "WatchedCall",
    "on_import",
    "replace_attribute",
    "watch_arguments",
    "watch_method",
    "watch_next",
]

Hook = Callable[[], object]
MethodHook = Callable[..., object]


def _nothing(*_: object, **__: object) -> None:
    """The hook that does nothing."""


class _Hooks:
    """What runs around calls, until it ends."""

    __slots__ = ("after", "before", "failed")

    def __init__(self, before: MethodHook, after: MethodHook, failed: MethodHook) -> None:
        self.before, self.after, self.failed = before, after, failed

    def run(self, hook: MethodHook, /, *arguments: Any, **keywords: Any) -> None:
        """Run one of the hooks; its errors stay here, but for what a signal's handler raises meanwhile."""
        try:
            hook(*arguments, **keywords)
        except Exception as error:
            if signal_of(error) is not None:
                raise
            self.failed(error)

    def end(self) -> None:
        """Run nothing any more, though somebody may have kept a watched method."""
        self.before = self.after = _nothing


class _Call(functools.partial[Any]):
    """The original call; the hook after it runs when this is released.

    An interrupt may come before it has all of its own: then nothing runs.
    """

    hooks = _Hooks(_nothing, _nothing, _nothing)
    after: MethodHook = _nothing
    arguments: tuple[Any, ...] = ()
    around: "weakref.ref[_Call] | None" = None  # of another watcher of the same call
    lost: "Lost | None" = None  # of a signal that came here, or in a call inside of this one

    def __del__(self) -> None:
        try:
            self.hooks.run(self.after, *self.arguments)
        except BaseException as error:  # noqa: BLE001 - of a signal: nothing can be raised from here
            self.lost = Lost.of(error)
        if self.lost is not None:
            around = None if self.around is None else self.around()
            if around is None:
                self.lost.raise_after(self)
            else:  # whose hook comes next, and would be where the signal comes
                around.lost = self.lost


class WatchedCall:
    """A callable that behaves as the original one and runs hooks around each call.

    Args:
        call: The original.
        before: Runs before each call.
        after: Runs after each call.
        arguments: What the hooks are given.
        hook_failed: Given the errors of hooks.
    """

    __slots__ = ("__weakref__", "_arguments", "_around", "_call", "_hooks")

    def __init__(
        self,
        call: Callable[..., Any],
        before: MethodHook = _nothing,
        after: MethodHook = _nothing,
        arguments: tuple[Any, ...] = (),
        hook_failed: MethodHook = _nothing,
    ) -> None:
        """Watch ``call``."""
        self._call, self._arguments = call, arguments
        self._hooks = _Hooks(before, after, hook_failed)
        self._around: weakref.ref[_Call] | None = None

    @classmethod
    def of_method(cls, method: Any, hooks: _Hooks, instance: object) -> "WatchedCall":
        """A bound method with the hooks that all of its class share."""
        watched = cls(method, arguments=(instance,))
        watched._hooks = hooks
        return watched

    @property
    def __call__(self) -> Callable[..., Any]:
        """The original, ready to be called once."""
        hooks = self._hooks
        before, after = hooks.before, hooks.after
        if before is not _nothing:
            hooks.run(before, *self._arguments)
        if after is _nothing:
            return self._call
        call = _Call(self._call)
        call.hooks, call.arguments, call.after = hooks, self._arguments, after
        call.around = self._around
        # A method that is watched twice is bound anew for each call.
        if type(self._call) is WatchedCall and self._arguments:
            self._call._around = weakref.ref(call)  # noqa: SLF001 - one of ours
        return call

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The original, for whoever inspects the signature."""
        return self._call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __eq__(self, other: object) -> bool:
        return bool(self._call == (other._call if isinstance(other, WatchedCall) else other))

    def __hash__(self) -> int:
        return hash(self._call)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A copy or a pickle is of the original, by its name where this stands there for it now."""
        call = self._call
        if isinstance(call, MethodType | WatchedCall):
            return call.__reduce__()
        module, name = (str(getattr(call, at, "")) for at in ("__module__", "__qualname__"))
        if getattr(sys.modules.get(module), name, None) is self:
            return pkgutil.resolve_name, (f"{module}:{name}",)
        return _of(call)


# An instance's is the original's; a class body with a docstring cannot say so.
WatchedCall.__doc__ = property(lambda self: self._call.__doc__)  # type: ignore[assignment]


class _Never:
    """Equals nothing, whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


_NEVER = _Never()


class _WatchedNext(WatchedCall):
    """A ``__next__``; the hook after it is given what came, and does not run at the end.

    ``map`` and ``iter``, which are C, call the original and hand on what it gives.
    """

    __slots__ = ()

    @property
    def __call__(self) -> Callable[..., Any]:
        """The original, ready to be called once."""
        hooks, arguments = self._hooks, self._arguments
        hooks.run(hooks.before, *arguments)

        def came(value: Any) -> Any:
            hooks.run(hooks.after, *arguments, value)
            return value

        return functools.partial(next, map(came, iter(self._call, _NEVER)))


class _WatchedMethod:
    """Stands in a class for one of its methods and gives out watched bound methods."""

    def __init__(self, method: Any, hooks: _Hooks, kind: type[WatchedCall]) -> None:
        self._method, self._hooks, self._kind = method, hooks, kind

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._method.__get__(instance, owner)
        if instance is None:
            return method
        return self._kind.of_method(method, self._hooks, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of(self._method)  # a class that is pickled whole (cloudpickle) has its own method


def _of(value: object) -> tuple[Any, ...]:
    """What copies and pickles as a value: without a name of ours, which a receiver may not have."""
    return operator.getitem, ((value,), 0)


@dataclass(eq=False, slots=True)
class _Replaced:
    """An attribute that has another value for a while, and what it had before."""

    owner: object
    name: str
    value: object
    before: object


_MISSING = object()
_replaced: list[_Replaced] = []


@contextmanager
def replace_attribute(owner: object, name: str, value: object) -> Iterator[None]:
    """Give an attribute another value inside the block; it comes back own or inherited, as it was.

    Blocks of the same attribute may overlap: one that began later and lasts longer leaves what stood there
    before both.
    """
    replacement = _Replaced(owner, name, value, vars(owner).get(name, _MISSING))
    setattr(owner, name, value)
    _replaced.append(replacement)
    try:
        yield
    finally:
        _replaced.remove(replacement)
        if vars(owner).get(name) is not value:  # the code inside gave it another, or a later block
            for later in _replaced:
                if later.owner is owner and later.name == name and later.before is value:
                    later.before = replacement.before
        elif replacement.before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, replacement.before)


@contextmanager
def watch_method(
    owner: type,
    name: str,
    before: MethodHook = _nothing,
    after: MethodHook = _nothing,
    hook_failed: MethodHook = _nothing,
) -> Iterator[None]:
    """Run hooks, given the instance, around a method of every instance, inside the block."""
    with _watched(owner, name, _Hooks(before, after, hook_failed), WatchedCall):
        yield


@contextmanager
def watch_next(
    owner: type,
    name: str,
    before: MethodHook = _nothing,
    after: MethodHook = _nothing,
    hook_failed: MethodHook = _nothing,
) -> Iterator[None]:
    """The same around a ``__next__``, but the hook after it is given what came too, and runs only then.

    Where it raises, as at the end, only the hook before it has run.
    """
    with _watched(owner, name, _Hooks(before, after, hook_failed), _WatchedNext):
        yield


@contextmanager
def _watched(owner: type, name: str, hooks: _Hooks, kind: type[WatchedCall]) -> Iterator[None]:
    method = inspect.getattr_static(owner, name)  # as it stands there: it may be watched already
    try:
        with replace_attribute(owner, name, _WatchedMethod(method, hooks, kind)):
            yield
    finally:
        hooks.end()


@contextmanager
def watch_arguments(
    owner: type,
    name: str,
    before: MethodHook = _nothing,
    after: MethodHook = _nothing,
    hook_failed: MethodHook = _nothing,
) -> Iterator[None]:
    """Run hooks, given the instance and the arguments, around a method of every instance, inside the block.

    Only a function in the method's place is given the arguments. An error that passes through it loses the
    traceback's entry for that function on the way (on Python 3.10 the entry stays: there a bare ``raise``
    takes the traceback that the interpreter had kept). The hook after a call does not run if that raised.
    """
    method = inspect.getattr_static(owner, name)
    hooks = _Hooks(before, after, hook_failed)

    @functools.wraps(method)
    def watched(instance: Any, /, *arguments: Any, **keywords: Any) -> Any:
        hooks.run(hooks.before, instance, *arguments, **keywords)
        try:
            result = method.__get__(instance, type(instance))(*arguments, **keywords)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise
        hooks.run(hooks.after, instance, *arguments, **keywords)
        return result

    try:
        with replace_attribute(owner, name, watched):
            yield
    finally:
        hooks.end()


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

        def loaded() -> None:
            vars(loader).pop("exec_module", None)
            hook = self.hooks.pop(name, None)
            if hook is not None:
                hook()

        # Only looking for the module (find_spec) loads nothing and must not use up the hook. A loader of the
        # code's own may have no such method, or let nobody replace it: then it is not told, but it loads.
        with contextlib.suppress(AttributeError, TypeError):
            loader.exec_module = WatchedCall(loader.exec_module, after=loaded)  # type: ignore[method-assign]
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
        with contextlib.suppress(ValueError):  # the code put back the finders that it knew
            sys.meta_path.remove(finder)
