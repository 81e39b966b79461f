"""Markers and calls to steps: the user's markers, Keras 2's, calls of a ``tf.function``; JAX's step markers.

JAX's markers, ``profnb.step`` among them, are annotations with a step's number.

Of functions that are traced it is kept which they were, from where, and the arguments for which they were
anew: a ``tf.function`` knows the signatures it was traced for; an argument that differs between them is why
it was. Functions are told apart by object, not by name: each new Keras model has train and test functions of
its own.
"""

import inspect
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import Library, guarded
from profnb.capture.marking.open_steps import MARKER, OpenSteps, add_metadata
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import (
    callers,
    file_title,
    is_user_file,
    number_cells,
    user_place,
)
from profnb.capture.step_records import CALL, KERAS, TAPE, USER, OpenStep

_MOST_FUNCTIONS = 1_000
# By the function's name: its arguments that changed, each with the distinct values it was traced for.
ChangingArguments = dict[str, tuple[tuple[str, tuple[str, ...]], ...]]

Place = tuple[str, int]

_FEWEST_TRACINGS = 3
_MOST_VALUES, _LONGEST_VALUE = 8, 120
_ARGUMENT = re.compile(r"^  (\S+) \([A-Z_]+\): (.*)$", re.MULTILINE)
_TENSOR = re.compile(r"TensorSpec\(shape=(.*?), dtype=(?:tf\.)?(\w+)(?:, name=[^)]*)?\)")
_LITERAL = re.compile(r"Literal\[(.*)\]")


class TraceEvents:
    """Sees trace events begin and end.

    Args:
        open_steps: Given each of them.

    Attributes:
        functions: The ``tf.function``s that were traced.
    """

    def __init__(self, open_steps: OpenSteps) -> None:
        """Nothing is watched yet."""
        self._open = open_steps
        self._tracings_of: Callable[[Any], int] = lambda _: 0
        self._functions: dict[int, _CalledFunction] = {}  # by id
        self._call_code: CodeType | None = None  # of our frame around a call
        self.functions = FunctionLog()

    @contextmanager
    def watch_tensorflow(self, tensorflow: Library) -> Iterator[None]:
        """See calls of functions, and the user's markers, inside the block.

        TensorFlow opens trace events all the time, one for each constant of an eager loop, so its own class
        stays as it is: of the user's markers the public name is watched.
        """
        hooks: Any = {"before": self._called, "came": self._returned, "raised": self._call_raised}
        marker = tensorflow.take(seams.TRACE)
        self._tracings_of = tensorflow.take(seams.TRACING_COUNT) or self._tracings_of
        traced = guarded(self._graph_traced, tensorflow.hook_failed)
        callbacks = tensorflow.take(seams.TRACED_CALLBACKS)
        with ExitStack() as stack:
            stack.enter_context(tensorflow.watch(seams.CALL_FUNCTION, **hooks))
            self._call_code = getattr(seams.CALL_FUNCTION.find(), "__code__", None)
            if isinstance(callbacks, list):
                callbacks.append(traced)
                stack.callback(guarded(callbacks.remove, tensorflow.hook_failed), traced)
            if isinstance(marker, type):
                began = guarded(self._marker_began, tensorflow.hook_failed)
                ended = guarded(self.marker_ended, tensorflow.hook_failed)
                watched = _watched_marker(marker, began, ended)
                replaced = tensorflow.replace_everywhere(
                    seams.TRACE, marker, watched, but_in=("tensorflow.python",)
                )
                stack.enter_context(replaced)
            yield

    @contextmanager
    def watch_jax(self, jax: Library) -> Iterator[None]:
        """See JAX's step markers, ``profnb.step`` among them, inside the block."""
        made: dict[int, tuple[str, dict[str, Any]]] = {}

        def made_one(marker: Any, name: str = "", /, *_: Any, **metadata: Any) -> None:
            if MARKER not in metadata:
                made[id(marker)] = str(name), metadata

        def began(marker: Any) -> None:
            name, metadata = made.pop(id(marker), ("", None))
            if metadata is not None:
                self._marker_began(marker, name, **{**metadata, "_r": 1})

        def ended(marker: Any, kind: object = None, *_: object) -> None:
            self.marker_ended(marker, failed=kind is not None)

        if jax.take(seams.JAX_STEP_EXIT) is None:  # they would never end
            yield
            return
        with (
            jax.watch(seams.JAX_STEP_EXIT, after=ended),
            jax.watch(seams.JAX_STEP_INIT, after=made_one),
            jax.watch(seams.JAX_STEP_ENTER, after=began),
        ):
            yield

    def _marker_began(self, marker: object, name: str = "", /, **metadata: Any) -> None:
        """A marker of the user's began."""
        opened = self._open
        if threading.get_ident() != opened.thread or metadata.get(MARKER) in (TAPE, KERAS):
            return
        is_step = "step_num" in metadata or bool(metadata.get("_r"))
        number = metadata.get("step_num")
        number = number if isinstance(number, int) else None
        opened.stack.append(opened.begin(marker, USER if is_step else None, str(name), number))

    def marker_ended(self, marker: object, *, failed: bool) -> None:
        """A marker of the user's ended."""
        if threading.get_ident() == self._open.thread:
            for span in reversed(self._open.stack):
                if span.marker is marker:
                    self._span_ended(span, failed=failed)
                    return

    def _called(self, function: Any, *_: object, **__: object) -> None:
        """A ``tf.function`` is called; of one in a batch that is only counted, it is told if it is traced."""
        opened, batch = self._open, self._open.batch
        if opened.counts_only and batch is not None and not (batch.has_traced or opened.stack):
            return
        seen = self._functions.get(id(function))
        if seen is None or seen.function() is not function:
            if len(self._functions) >= _MOST_FUNCTIONS:
                self._functions.clear()
            seen = _CalledFunction(function, self._tracings_of(function))
            self._functions[id(function)] = seen
        span = opened.begin(None, CALL, seen.name)
        span.function = function
        opened.stack.append(span)

    def _returned(self, function: Any, *_: object) -> None:
        opened, stack = self._open, self._open.stack
        if not stack:
            return
        span = stack[-1] if stack[-1].function is function else self._call_of(function)
        if span is None:
            return
        if span.has_traced and (seen := self._functions.get(id(function))) is not None:
            before, seen.tracings = seen.tracings, self._tracings_of(function)
            if seen.tracings != before:
                self._function_traced(function)
        if opened.counts_only and len(stack) == 1:
            stack.pop()
            if opened.batch is None:
                opened.record(span, time.perf_counter_ns())
        else:
            self._span_ended(span, failed=False)

    def _call_raised(self, function: Any, *_: object, **__: object) -> None:
        span = self._call_of(function)
        if span is not None:
            self._span_ended(span, failed=True)
        elif self._open.batch is not None:
            self._open.batch.failed_ns = time.perf_counter_ns()

    def _call_of(self, function: Any) -> OpenStep | None:
        """The innermost call that runs, of a function."""
        return next(
            (span for span in reversed(self._open.stack) if span.function is function), None
        )

    def metadata_set(self, trace: Any, /, **metadata: Any) -> None:
        """TensorFlow says in the trace how a call went; that of an outermost one becomes a step marker."""
        opened = self._open
        if "tf_function_call" not in metadata:
            return
        calls = [span for span in opened.stack if span.function is not None]
        if not calls or opened.is_inside_step or not opened.is_tracing():
            return
        calls[-1].is_marked |= MARKER in metadata  # by a capture inside this capture
        if len(calls) == 1 and not calls[-1].is_marked:
            add_metadata(trace, _r=1, step_num=calls[-1].first_record, **{MARKER: CALL})

    def _graph_traced(self, *_: object) -> None:
        """TensorFlow has traced a graph, in all that runs now: calls in a batch count from then on."""
        opened, batch = self._open, self._open.batch
        if not opened.is_here():
            return
        if batch is not None and not batch.has_traced:
            batch.has_traced = True
            ours = [] if opened.stack else [*callers()]
            for frame in reversed([one for one in ours if one.f_code is self._call_code]):
                self._called(frame.f_locals["self"])
        for span in opened.stack:
            span.has_traced = True

    def _function_traced(self, function: Any) -> None:
        """A function was traced, in all that runs now."""
        inside = self._open.innermost()
        with OwnFaults():  # somebody's subclass may do anything
            self.functions.add(function, next(callers(), None), inside.name if inside else "")
        for outer in self._open.stack:
            outer.retraced = True
        if self._open.batch is not None:
            self._open.batch.retraced = True

    def _span_ended(self, span: OpenStep, *, failed: bool) -> None:
        """A marker or a call ended, and what had begun inside of it."""
        end_ns = time.perf_counter_ns()
        opened, stack = self._open, self._open.stack
        while stack.pop() is not span:  # as a rule it is the last one
            pass
        if failed:
            if opened.batch is not None:
                opened.batch.failed_ns = end_ns
            if span.kind is not None:
                opened.fail(span, end_ns)
        elif span.kind is not None and not opened.is_inside_step:
            opened.record(span, end_ns)
            opened.report()


class _CalledFunction:
    """A ``tf.function`` that was called.

    Attributes:
        function: The function, if it lives.
        name: What it is called.
        tracings: How often it had been traced when that was last asked.
    """

    __slots__ = "function", "name", "tracings"

    def __init__(self, function: Any, tracings: int) -> None:
        self.function, self.tracings = weakref.ref(function), tracings
        self.name = seams.FUNCTION_NAME.of(function, "")


def _watched_marker(marker: type, began: Any, ended: Any) -> type:
    """A class of markers that tells as one begins, and ends."""

    class Marker(marker):  # type: ignore[misc]
        def __init__(self, name: str, **metadata: Any) -> None:
            super().__init__(name, **metadata)
            began(self, name, **metadata)

        def __exit__(self, *raised: object) -> Any:
            failed = bool(raised) and raised[0] is not None
            if failed:
                add_metadata(self, profnb_abandoned=1)
            try:
                return super().__exit__(*raised)
            finally:
                ended(self, failed=failed)

    Marker.__name__, Marker.__qualname__ = marker.__name__, marker.__qualname__
    Marker.__module__, Marker.__doc__ = marker.__module__, marker.__doc__
    return Marker


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
    """Knows the tf.functions that are traced, without keeping them alive."""

    def __init__(self) -> None:
        """None was."""
        self._seen: list[tuple[TracedFunction, Place | None, Place | None]] = []
        self._tracings: list[int] = []
        self._rows: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._codes: dict[CodeType, int] = {}

    @property
    def alive(self) -> list[Any]:
        """Those that live."""
        return list(self._rows)

    def add(self, function: Any, frame: FrameType | None, phase: str) -> None:
        """A function was traced, called from a frame, in a step of a phase or in none."""
        row = self._rows.get(function)
        if row is not None:
            self._tracings[row] += 1
            return
        row = len(self._seen)
        if row >= _MOST_FUNCTIONS:
            return
        self._rows[function] = row
        inner = inspect.unwrap(seams.PYTHON_FUNCTION.of(function, None))
        code = getattr(inner, "__code__", None)
        package = str(getattr(inner, "__module__", "")).partition(".")[0]
        place = None
        if code is not None and is_user_file(code.co_filename):
            place = code.co_filename, code.co_firstlineno
        row = row if code is None else self._codes.setdefault(code, row)
        name, is_keras = str(getattr(inner, "__name__", "")), package in seams.KERAS_LIBRARIES
        traced = TracedFunction(name, row, is_keras, phase=phase)
        self._seen.append((traced, place, user_place(frame)))
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
    """Find why functions were traced three times or more; of one name, the one most often traced."""
    reasons: ChangingArguments = {}
    most: dict[str, int] = {}
    for function in functions:
        with OwnFaults():  # somebody's subclass may do anything
            count = seams.TRACING_COUNT.of(function)()
            name = seams.PYTHON_FUNCTION.of(function).__name__
            if count < max(_FEWEST_TRACINGS, most.get(name, 0)):
                continue
            changing = _compare(seams.SIGNATURES.of(function)())
            if changing:
                reasons[name], most[name] = changing, count
    return reasons


def _compare(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The arguments that differ between the signatures that TensorFlow printed."""
    values: dict[str, dict[str, None]] = {}
    for block in text.split("Input Parameters:")[1:]:
        for name, kind in _ARGUMENT.findall(block.partition("Output Type:")[0]):
            plain = _LITERAL.sub(r"\1", _TENSOR.sub(r"\2\1", kind))  # "float32(3, 4)", or "2"
            values.setdefault(name, {})[plain[:_LONGEST_VALUE]] = None
    return tuple(
        (name, tuple(list(kinds)[:_MOST_VALUES]))
        for name, kinds in values.items()
        if len(kinds) > 1
    )
