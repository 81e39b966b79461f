"""tf.functions that were traced anew to the arguments for which they were.

A ``tf.function`` knows the signatures it was traced for; an argument that differs between them is why it was.
"""

import contextlib
import inspect
import re
from collections.abc import Iterable
from types import FrameType
from typing import Any

from profnb.capture.seams import PYTHON_FUNCTION, SIGNATURES, TRACING_COUNT

__all__ = ["ChangingArguments", "find_changing_arguments", "function_of"]

# By the function's name: its arguments that changed, each with the distinct values it was traced for.
ChangingArguments = dict[str, tuple[tuple[str, tuple[str, ...]], ...]]

_FEWEST_TRACINGS = 3
_MOST_VALUES, _LONGEST = 8, 120
_ARGUMENT = re.compile(r"^  (\S+) \([A-Z_]+\): (.*)$", re.MULTILINE)
_TENSOR = re.compile(r"TensorSpec\(shape=(.*?), dtype=(?:tf\.)?(\w+)(?:, name=[^)]*)?\)")
_LITERAL = re.compile(r"Literal\[(.*)\]")


def function_of(frame: FrameType | None) -> object:
    """The tf.function whose call a frame is; None if it is no such call."""
    owner = frame.f_locals.get("self") if frame is not None else None
    is_function = inspect.getattr_static(type(owner), SIGNATURES.attributes[0], None) is not None
    return owner if is_function else None


def find_changing_arguments(functions: Iterable[Any]) -> ChangingArguments:
    """Why functions were traced three times or more."""
    reasons: ChangingArguments = {}
    for function in functions:
        with contextlib.suppress(Exception):  # somebody's subclass may do anything
            if TRACING_COUNT.of(function)() < _FEWEST_TRACINGS:
                continue
            changing = _compare(SIGNATURES.of(function)())
            if changing:
                reasons[PYTHON_FUNCTION.of(function).__name__] = changing
    return reasons


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
