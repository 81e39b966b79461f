"""tf.functions that were traced: which they were, from where, and the arguments for which they were anew.

A ``tf.function`` knows the signatures it was traced for; an argument that differs between them is why it was.
Functions are told apart by object, not by name: each new Keras model has train and test functions of its own.
"""

import contextlib
import inspect
import re
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from profnb.capture.seams import PYTHON_FUNCTION, SIGNATURES, TRACING_COUNT
from profnb.capture.source.user_code import is_user_file, user_place

__all__ = [
    "ChangingArguments",
    "FunctionLog",
    "TracedFunction",
    "find_changing_arguments",
    "function_of",
]

# By the function's name: its arguments that changed, each with the distinct values it was traced for.
ChangingArguments = dict[str, tuple[tuple[str, tuple[str, ...]], ...]]

_MOST_FUNCTIONS = 1000
_KERAS = ("keras", "tf_keras")
_FEWEST_TRACINGS = 3
_MOST_VALUES, _LONGEST = 8, 120
_ARGUMENT = re.compile(r"^  (\S+) \([A-Z_]+\): (.*)$", re.MULTILINE)
_TENSOR = re.compile(r"TensorSpec\(shape=(.*?), dtype=(?:tf\.)?(\w+)(?:, name=[^)]*)?\)")
_LITERAL = re.compile(r"Literal\[(.*)\]")


@dataclass(slots=True)
class TracedFunction:
    """One ``tf.function`` object that was traced.

    Attributes:
        name: Its Python function's.
        code: Row of the first one that was made of the same code; a ``tf.function`` that a loop makes anew in
            each turn has one code and many objects.
        is_keras: Whether its code is Keras' own.
        file: Where it is defined; "" where that is not the user's code.
        line: Likewise; 0 for none.
        caller_file: The innermost line of the user's that ran as it was first seen traced; "" without one.
        caller_line: Likewise; 0 for none.
        phase: What Keras ran then: "train", "test", "predict"; "" outside of its steps.
        tracings: How often it was traced.
    """

    name: str
    code: int
    is_keras: bool = False
    file: str = ""
    line: int = 0
    caller_file: str = ""
    caller_line: int = 0
    phase: str = ""
    tracings: int = 1


class FunctionLog:
    """The tf.functions that are traced, without keeping them alive.

    Attributes:
        alive: Those that live.
        listed: Each that was traced, in order.
    """

    def __init__(self) -> None:
        """None was."""
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self.listed: list[TracedFunction] = []
        self._rows: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._codes: dict[CodeType, int] = {}

    def add(self, function: Any, frame: FrameType | None, phase: str) -> None:
        """A function was traced, called from a frame, in a step of a phase or in none."""
        if function is None:
            return
        row = self._rows.get(function)
        if row is not None:
            self.listed[row].tracings += 1
            return
        row = len(self.listed)
        if row >= _MOST_FUNCTIONS:
            return
        self.alive.add(function)
        self._rows[function] = row
        inner = inspect.unwrap(PYTHON_FUNCTION.of(function, None))
        code = getattr(inner, "__code__", None)
        package = str(getattr(inner, "__module__", "")).partition(".")[0]
        traced = TracedFunction(str(getattr(inner, "__name__", "")), row, package in _KERAS)
        if code is not None:
            traced.code = self._codes.setdefault(code, row)
            if is_user_file(code.co_filename):
                traced.file, traced.line = code.co_filename, code.co_firstlineno
        traced.caller_file, traced.caller_line = user_place(frame) or ("", 0)
        traced.phase = phase
        self.listed.append(traced)


def function_of(frame: FrameType | None) -> object:
    """The tf.function whose call a frame is; None if it is no such call."""
    owner = frame.f_locals.get("self") if frame is not None else None
    is_function = inspect.getattr_static(type(owner), SIGNATURES.attributes[0], None) is not None
    return owner if is_function else None


def find_changing_arguments(functions: Iterable[Any]) -> ChangingArguments:
    """Why functions were traced three times or more; of several of one name, the one most often traced."""
    reasons: ChangingArguments = {}
    most: dict[str, int] = {}
    for function in functions:
        with contextlib.suppress(Exception):  # somebody's subclass may do anything
            count = TRACING_COUNT.of(function)()
            name = PYTHON_FUNCTION.of(function).__name__
            if count < max(_FEWEST_TRACINGS, most.get(name, 0)):
                continue
            changing = _compare(SIGNATURES.of(function)())
            if changing:
                reasons[name], most[name] = changing, count
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
