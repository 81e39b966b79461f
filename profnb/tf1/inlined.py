"""A function to a copy of it whose body runs inside a context manager, seen by no traceback.

``capture.hooks.watch`` hooks a call without knowing its arguments; where they must be read, or
replaced, a wrapper function would do, but it stands in every traceback. So the function is compiled anew from
its own source with one statement around its body, ``with around(self, ...) as (...)``. File, line numbers and
columns stay those of the original, and so does every traceback.

The source must be the one that is running: if compiling it unchanged gives other names, constants or lines
than the function has, there is no copy. (Bytecode says less: since Python 3.12 it depends on the
module's imports too.)
"""

import __future__

import ast
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from profnb.core.parsing import parse_again, warned_before

# Given the instance and the arguments' values: a context manager that yields their values to use.
Around = Callable[..., AbstractContextManager[tuple[Any, ...]]]

_AROUND = "profnb_around"
_RUN_ARGUMENTS = ("fetches", "feed_dict", "options", "run_metadata")  # of Session.run, by place
SEEN_ARGUMENTS = _RUN_ARGUMENTS[1:]


def defining_class(of: Any, method: str) -> type | None:
    """Find the class in which a method of a class stands; None where there is none."""
    return next((base for base in getattr(of, "__mro__", ()) if method in vars(base)), None)


def copy_inside(method: Any, around: Around, arguments: Sequence[str]) -> types.FunctionType | None:
    """Copy a method so that its body runs inside ``around(self, *arguments)``.

    With ``arguments=("options",)``, the method on the left is compiled again as on the right. The made-up
    ``make`` is never called: its only use is that ``profnb_around`` is a variable from outside, whose cell
    the copy is given. Lines keep their numbers, so a traceback looks as if nothing had happened::

        900                                        def make(profnb_around):
        901   def run(self, x, options=None):        def run(self, x, options=None):
        902     'Runs.'                                'Runs.'
        903     handle = self._start(x)                with profnb_around(self, options) as (options,):
        903                                              handle = self._start(x)
        904     return handle.get(options)               return handle.get(options)

    A copy of a copy is made from the original again, with both managers around its body, the earlier one
    outside: ``with earlier(self, options) as (options,), around(self, options) as (options,): ...``.

    Args:
        method: A plain Python method without closure, or such a copy, which is then nested inside.
        around: Must not raise when it is entered or left, and must let errors through.
        arguments: Names of the arguments it sees and may replace.

    Returns:
        The copy; None where there is no such method or its source is not at hand.
    """
    if not isinstance(method, types.FunctionType):
        return None
    earlier = vars(method).get(_AROUND)
    if earlier is not None:
        method = inspect.unwrap(method)
        around = functools.partial(_Nested, earlier, around)
    code = method.__code__
    try:
        lines, first = inspect.getsourcelines(method)
        indented = lines[0][:1].isspace()
        tree = parse_again(("if True:\n" if indented else "\n") + "".join(lines))
    except (OSError, SyntaxError, IndexError):
        return None
    ast.increment_lineno(tree, first - 2)
    plain = _compile(tree, code)
    has_arguments = {*arguments} <= {*code.co_varnames[1 : code.co_argcount]}
    if plain is None or _traits(plain) != _traits(code) or code.co_freevars or not has_arguments:
        return None
    _put_inside(tree, code, arguments)
    changed = _compile(tree, code)
    if changed is None or changed.co_freevars != (_AROUND,):
        return None
    copy = types.FunctionType(
        changed, method.__globals__, method.__name__, method.__defaults__, (types.CellType(around),)
    )
    copy.__kwdefaults__ = method.__kwdefaults__
    functools.update_wrapper(copy, method)
    vars(copy)[_AROUND] = around
    return copy


def _traits(code: types.CodeType) -> tuple[object, ...]:
    """Take what tells one source from another, whatever the compiler makes of it."""
    constants = [value for value in code.co_consts if not isinstance(value, types.CodeType)]
    lines = sorted({line for _, _, line in code.co_lines() if line is not None})
    return code.co_names, code.co_varnames, code.co_argcount, constants, lines


def _compile(tree: ast.Module, like: types.CodeType) -> types.CodeType | None:
    """Compile the function in ``tree`` that has the name of ``like``."""
    futures = (getattr(__future__, name) for name in __future__.all_feature_names)
    flags = like.co_flags & sum(feature.compiler_flag for feature in futures)
    with warned_before():
        whole: types.CodeType = compile(
            tree, like.co_filename, "exec", flags=flags, dont_inherit=True
        )
    waiting = [whole]
    while waiting:
        code = waiting.pop()
        if code.co_name == like.co_name:
            return code
        waiting.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
    return None


def _put_inside(tree: ast.Module, code: types.CodeType, arguments: Sequence[str]) -> None:
    """Change the function in ``tree``: a ``with`` around its body, inside a maker of the closure."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    definition = next(node for node in functions if node.name == code.co_name)
    body = definition.body
    has_doc = ast.get_docstring(definition, clean=False) is not None
    inside = body[1:] if has_doc and len(body) > 1 else body
    here = inside[0]
    seen: list[ast.expr] = [
        ast.Name(name, ast.Load()) for name in (code.co_varnames[0], *arguments)
    ]
    given = ast.Tuple([ast.Name(name, ast.Store()) for name in arguments], ast.Store())
    call = ast.Call(ast.Name(_AROUND, ast.Load()), seen, [])
    statement = ast.With([ast.withitem(call, given)], inside)
    definition.body = [*body[: len(body) - len(inside)], statement]
    definition.decorator_list = []
    maker = ast.parse(f"def make({_AROUND}): pass").body[0]
    assert isinstance(maker, ast.FunctionDef)
    maker.body = [definition]
    tree.body = [maker]
    for node in ast.walk(statement):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, here)
    ast.fix_missing_locations(tree)


class _Nested:
    """Two context managers, one inside the other; the inner one sees the outer one's values."""

    def __init__(self, outer: Around, inner: Around, instance: object, *values: object) -> None:
        self._outer, self._make_inner = outer(instance, *values), inner
        self._instance = instance

    def __enter__(self) -> tuple[Any, ...]:
        values = self._outer.__enter__()
        self._inner = self._make_inner(self._instance, *values)
        return self._inner.__enter__()

    def __exit__(self, *error: object) -> None:
        for manager in (self._inner, self._outer):
            manager.__exit__(*error)  # type: ignore[arg-type]


def run_around(run: Any, around: Around) -> Callable[..., Any] | None:
    """A wrapper of ``Session.run`` for where there is no copy: somebody wrapped it, or its source is gone.

    An error that passes through loses the traceback's entry for the wrapper; on Python 3.10, which keeps the
    traceback apart while an error is handled, it has that one entry.

    Args:
        run: Whatever stands in the method's place.
        around: As for ``copy_inside``, given the session, ``feed_dict``, ``options`` and ``run_metadata``.

    Returns:
        The wrapper; None where ``run`` does not take the last two, and so cannot be traced.
    """
    try:
        signature = inspect.signature(run)
        signature.bind("session", "fetches", options=None, run_metadata=None)
    except (TypeError, ValueError):
        return None

    @functools.wraps(run)
    def watched(session: Any, /, *arguments: Any, **keywords: Any) -> Any:
        placed = dict(zip(_RUN_ARGUMENTS, arguments, strict=False)) | keywords
        given = [placed.get(name) for name in SEEN_ARGUMENTS]
        with around(session, *given) as used:
            for name, value in zip(SEEN_ARGUMENTS, used, strict=True):
                at = _RUN_ARGUMENTS.index(name)
                if at < len(arguments):
                    arguments = (*arguments[:at], value, *arguments[at + 1 :])
                elif value is not None or name in keywords:
                    keywords[name] = value
            try:
                return run.__get__(session, type(session))(*arguments, **keywords)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next
                raise

    return watched
