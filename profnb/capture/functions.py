"""tf.functions that live in a namespace to the arguments for which they were traced anew.

A ``tf.function`` knows the signatures it was traced for; an argument that differs between them is why it was.
"""

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["ChangingArguments", "find_changing_arguments"]

# By the function's name: its arguments that changed, each with the distinct values it was traced for.
ChangingArguments = dict[str, tuple[tuple[str, tuple[str, ...]], ...]]

_SIGNATURES = "pretty_printed_concrete_signatures"
_FEWEST_TRACINGS = 3
_MOST_VALUES, _MOST_ATTRIBUTES, _LONGEST = 8, 300, 120
_ARGUMENT = re.compile(r"^  (\S+) \([A-Z_]+\): (.*)$", re.MULTILINE)
_TENSOR = re.compile(r"TensorSpec\(shape=(.*?), dtype=(?:tf\.)?(\w+)(?:, name=[^)]*)?\)")
_LITERAL = re.compile(r"Literal\[(.*)\]")


def find_changing_arguments(namespace: Mapping[str, object]) -> ChangingArguments:
    """Why functions of a namespace, and of the objects in it, were traced three times or more."""
    found: ChangingArguments = {}
    for function in _functions(namespace):
        with contextlib.suppress(Exception):  # somebody's subclass may do anything
            if function.experimental_get_tracing_count() < _FEWEST_TRACINGS:
                continue
            changing = _compare(getattr(function, _SIGNATURES)())
            if changing:
                found[function.python_function.__name__] = changing
    return found


def _is_function(value: object) -> bool:
    return inspect.getattr_static(type(value), _SIGNATURES, None) is not None


def _functions(namespace: Mapping[str, object]) -> Iterator[Any]:
    for value in list(namespace.values()):
        if _is_function(value):
            yield value
        elif not isinstance(value, type) and type(value).__module__ != "builtins":
            own = getattr(value, "__dict__", None)
            if not isinstance(own, dict):
                continue
            yield from (one for one in list(own.values())[:_MOST_ATTRIBUTES] if _is_function(one))
            methods = [name for name, one in vars(type(value)).items() if _is_function(one)]
            for name in methods[:_MOST_ATTRIBUTES]:
                with contextlib.suppress(Exception):  # likewise
                    yield getattr(value, name)


def _compare(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The arguments that differ between the signatures that TensorFlow printed."""
    values: dict[str, dict[str, None]] = {}
    for block in text.split("Input Parameters:")[1:]:
        for name, kind in _ARGUMENT.findall(block.partition("Output Type:")[0]):
            values.setdefault(name, {})[_plain(kind)] = None
    return tuple(
        (name, tuple(list(kinds)[:_MOST_VALUES]))
        for name, kinds in values.items()
        if len(kinds) > 1
    )


def _plain(kind: str) -> str:
    """``float32(3, 4)`` for a TensorSpec, ``2`` for a literal."""
    return _LITERAL.sub(r"\1", _TENSOR.sub(r"\2\1", kind))[:_LONGEST]
