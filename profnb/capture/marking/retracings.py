"""tf.functions that were traced: which they were, from where, and the arguments for which they were anew.

A ``tf.function`` knows the signatures it was traced for; an argument that differs between them is why it was.
Functions are told apart by object, not by name: each new Keras model has train and test functions of its own.
"""

import inspect
import re
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from profnb.capture.seams import PYTHON_FUNCTION, SIGNATURES, TRACING_COUNT
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import file_title, is_user_file, number_cells, user_place

# By the function's name: its arguments that changed, each with the distinct values it was traced for.
ChangingArguments = dict[str, tuple[tuple[str, tuple[str, ...]], ...]]

Place = tuple[str, int]

_MOST_FUNCTIONS = 1000
_KERAS = ("keras", "tf_keras")
_FEWEST_TRACINGS = 3
_MOST_VALUES, _LONGEST = 8, 120
_ARGUMENT = re.compile(r"^  (\S+) \([A-Z_]+\): (.*)$", re.MULTILINE)
_TENSOR = re.compile(r"TensorSpec\(shape=(.*?), dtype=(?:tf\.)?(\w+)(?:, name=[^)]*)?\)")
_LITERAL = re.compile(r"Literal\[(.*)\]")


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """One ``tf.function`` object that was traced.

    Attributes:
        name: Its Python function's.
        code: Row of the first one that was made of the same code; a ``tf.function`` that a loop makes anew in
            each turn has one code and many objects.
        is_keras: Whether its code is Keras' own.
        where: The line at which it is defined, "Cell [3]:8"; "" where that is not the user's code.
        caller: The innermost line of the user's that ran as it was first seen traced; "" without one.
        phase: What Keras ran then: "train", "test", "predict"; "" outside of its steps.
        tracings: How often it was traced.
    """

    name: str
    code: int
    is_keras: bool = False
    where: str = ""
    caller: str = ""
    phase: str = ""
    tracings: int = 1


class FunctionLog:
    """The tf.functions that are traced, without keeping them alive.

    Attributes:
        alive: Those that live.
    """

    def __init__(self) -> None:
        """None was."""
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: list[tuple[TracedFunction, Place | None, Place | None]] = []
        self._tracings: list[int] = []
        self._rows: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._codes: dict[CodeType, int] = {}

    def add(self, function: Any, frame: FrameType | None, phase: str) -> None:
        """A function was traced, called from a frame, in a step of a phase or in none."""
        if function is None:
            return
        row = self._rows.get(function)
        if row is not None:
            self._tracings[row] += 1
            return
        row = len(self._seen)
        if row >= _MOST_FUNCTIONS:
            return
        self.alive.add(function)
        self._rows[function] = row
        inner = inspect.unwrap(PYTHON_FUNCTION.of(function, None))
        code = getattr(inner, "__code__", None)
        package = str(getattr(inner, "__module__", "")).partition(".")[0]
        place = None
        if code is not None and is_user_file(code.co_filename):
            place = code.co_filename, code.co_firstlineno
        row = row if code is None else self._codes.setdefault(code, row)
        traced = TracedFunction(str(getattr(inner, "__name__", "")), row, package in _KERAS)
        self._seen.append((replace(traced, phase=phase), place, user_place(frame)))
        self._tracings.append(1)

    def listed(self) -> tuple[TracedFunction, ...]:
        """Each that was traced, in order, with lines as the report names them."""
        cells = number_cells()

        def text_of(place: Place | None) -> str:
            return f"{file_title(place[0], cells)}:{place[1]}" if place else ""

        return tuple(
            replace(traced, where=text_of(place), caller=text_of(caller), tracings=count)
            for (traced, place, caller), count in zip(self._seen, self._tracings, strict=True)
        )


def find_changing_arguments(functions: Iterable[Any]) -> ChangingArguments:
    """Why functions were traced three times or more; of several of one name, the one most often traced."""
    reasons: ChangingArguments = {}
    most: dict[str, int] = {}
    for function in functions:
        with OwnFaults():  # somebody's subclass may do anything
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
