"""A method that runs a session to a wrapper of it, whose arguments are read or replaced around each call.

``capture.hooks.watch`` hooks a call without knowing its arguments. An error that passes through the wrapper
loses the traceback's entry for it; on Python 3.10, which keeps the traceback apart while an error is
handled, it has that one entry.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

# Given the instance and the arguments' values: a context manager that yields their values to use.
Around = Callable[..., AbstractContextManager[tuple[Any, ...]]]


def defining_class(of: Any, method: str) -> Any:
    """Find the class in which a method of a class stands; None where there is none."""
    return next((base for base in getattr(of, "__mro__", ()) if method in vars(base)), None)


def wrap_run(
    run: Any, around: Around, arguments: Sequence[str], seen: Sequence[str]
) -> Callable[..., Any] | None:
    """Wrap a method, or whatever somebody put in its place.

    Args:
        run: The method.
        around: Entered around each call, given the instance and the values of ``seen``; None for one that is
            not given. Must not raise when it is entered or left, and must let errors through.
        arguments: Names of all arguments, by place.
        seen: Names of those that it sees and may replace.

    Returns:
        The wrapper; None where ``run`` does not take the last two of them, and so cannot be traced.
    """
    try:
        inspect.signature(run).bind_partial(None, **dict.fromkeys(seen[-2:]))
    except (TypeError, ValueError):
        return None

    @functools.wraps(run)
    def wrapped(instance: Any, /, *places: Any, **keywords: Any) -> Any:
        placed = dict(zip(arguments, places, strict=False)) | keywords
        with around(instance, *map(placed.get, seen)) as used:
            for name, value in zip(seen, used, strict=True):
                if value is placed.get(name):
                    continue
                at = arguments.index(name)
                if at < len(places):
                    places = (*places[:at], value, *places[at + 1 :])
                else:
                    keywords[name] = value
            try:
                return run.__get__(instance, type(instance))(*places, **keywords)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next
                raise

    return wrapped
