"""Markers and calls to steps: the user's markers, Keras 2's, calls of a ``tf.function``; JAX's step markers.

JAX's markers, ``profnb.step`` among them, are annotations with a step's number.
"""

import inspect
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any

from profnb.capture.library import Library
from profnb.capture.marking.open_steps import (
    MARKER,
    OpenSteps,
    abandon_marker,
    add_metadata,
    end_marker,
)
from profnb.capture.marking.retracings import FunctionLog
from profnb.capture.seams import (
    CALL_FUNCTION,
    FUNCTION_NAME,
    JAX_STEP_ENTER,
    JAX_STEP_EXIT,
    JAX_STEP_INIT,
    TRACE,
    TRACE_METADATA,
    TRACING_COUNT,
)
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import is_own_file
from profnb.capture.step_records import CALL, KERAS, TAPE, USER, OpenStep

_SHORTEST_TRACING_NS = (
    300_000  # of an empty function, TensorFlow 2.15 to 2.21, two slow cores: 3.3 ms
)
_MOST_FUNCTIONS = 1_000


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
        self.functions = FunctionLog()

    @contextmanager
    def watch_tensorflow(self, tensorflow: Library) -> Iterator[None]:
        """See calls of functions, and the user's markers, inside the block.

        TensorFlow opens trace events all the time, one for each constant of an eager loop, so its own class
        stays as it is: of the user's markers the public name is watched.
        """
        hooks = {"before": self._called, "came": self._returned, "raised": self._call_raised}
        marker = tensorflow.take(TRACE)
        self._tracings_of = tensorflow.take(TRACING_COUNT) or self._tracings_of
        with ExitStack() as stack:
            stack.enter_context(tensorflow.watch(CALL_FUNCTION, **hooks))
            if isinstance(marker, type):
                began, ended = (
                    tensorflow.guarded(self._marker_began),
                    tensorflow.guarded(self._marker_ended),
                )
                watched = _watched_marker(marker, began, ended)
                stack.enter_context(tensorflow.replace_everywhere(TRACE, marker, watched))
            yield

    def watch_metadata(self, tensorflow: Library) -> AbstractContextManager[None]:
        """Make outermost calls step markers of the trace, inside the block."""
        return tensorflow.watch(TRACE_METADATA, before=self._metadata_set)

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
            self._marker_ended(marker, failed=kind is not None)

        with ExitStack() as stack:
            stack.enter_context(jax.watch(JAX_STEP_EXIT, after=ended))
            if jax.take(JAX_STEP_EXIT) is not None:  # else they would never end
                stack.enter_context(jax.watch(JAX_STEP_INIT, after=made_one))
                stack.enter_context(jax.watch(JAX_STEP_ENTER, after=began))
            yield

    def mark_began(self, mark: Any, door: Any) -> None:
        """A step of a loop over PyTorch that the user marks began; inside a step there is none."""
        outer = self._open.innermost()
        if outer is None or outer.marker is mark.also:
            mark.begin(door)
        if outer is None:
            self._open.stack.append(self._open.begin(mark, USER, mark.phase, mark.step_num))

    def mark_ended(self, mark: Any, *, failed: bool) -> None:
        """It ends; one that raised is no step."""
        try:
            (abandon_marker if failed else end_marker)(mark.marker)
        finally:  # an interrupt there leaves no step open, which all that follow would be part of
            self._trace_ended(mark, failed=failed)

    def _marker_began(self, marker: object, name: str = "", /, **metadata: Any) -> None:
        """A marker of the user's began."""
        opened = self._open
        if threading.get_ident() != opened.thread or metadata.get(MARKER) in (TAPE, KERAS):
            return
        is_step = "step_num" in metadata or bool(metadata.get("_r"))
        number = metadata.get("step_num")
        number = number if isinstance(number, int) else None
        opened.stack.append(opened.begin(marker, USER if is_step else None, str(name), number))

    def _marker_ended(self, marker: Any, *, failed: bool) -> None:
        self._trace_ended(marker, failed=failed)

    def _called(self, function: Any, *_: object, **__: object) -> None:
        """A ``tf.function`` is called."""
        opened = self._open
        if threading.get_ident() != opened.thread:
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
        if not stack or threading.get_ident() != opened.thread:
            return
        span = stack[-1] if stack[-1].function is function else self._call_of(function)
        if span is None:
            return
        seen = self._functions.get(id(function))
        if seen is not None and (
            not seen.tracings or time.perf_counter_ns() - span.begin_ns > _SHORTEST_TRACING_NS
        ):
            self._see_tracing(function, seen)
        if opened.counts_only and len(stack) == 1:
            stack.pop()
            if opened.batch is None:
                opened.record(span, time.perf_counter_ns())
        else:
            self._span_ended(span, failed=False)

    def _see_tracing(self, function: Any, seen: "_CalledFunction") -> None:
        """A first call, or one that took so long that the function may have been traced in it."""
        tracings = self._tracings_of(function)
        if tracings != seen.tracings:
            seen.tracings = tracings
            self._function_traced(function)

    def _call_raised(self, function: Any, *_: object, **__: object) -> None:
        span = self._call_of(function)
        if span is not None:
            self._span_ended(span, failed=True)

    def _call_of(self, function: Any) -> OpenStep | None:
        """The innermost call that runs here, of a function."""
        if threading.get_ident() != self._open.thread:
            return None
        return next(
            (span for span in reversed(self._open.stack) if span.function is function), None
        )

    def _metadata_set(self, trace: Any, /, **metadata: Any) -> None:
        """TensorFlow says in the trace how a call went; that of an outermost one becomes a step marker."""
        opened = self._open
        if "tf_function_call" not in metadata or threading.get_ident() != opened.thread:
            return
        calls = [span for span in opened.stack if span.function is not None]
        if not calls or opened.is_inside_step or not opened.is_tracing():
            return
        calls[-1].is_marked |= MARKER in metadata  # by a capture inside this capture
        if len(calls) == 1 and not calls[-1].is_marked:
            add_metadata(trace, _r=1, step_num=calls[-1].first_record, **{MARKER: CALL})

    def _function_traced(self, function: Any) -> None:
        """A function was traced, in all that runs now."""
        inside = self._open.innermost()
        with OwnFaults():  # somebody's subclass may do anything
            self.functions.add(function, _calling_frame(), inside.name if inside else "")
        for outer in self._open.stack:
            outer.retraced = True
        if self._open.batch is not None:
            self._open.batch.retraced = True

    def _trace_ended(self, marker: object, *, failed: bool) -> None:
        """A marker ended."""
        if threading.get_ident() == self._open.thread:
            for span in reversed(self._open.stack):
                if span.marker is marker:
                    self._span_ended(span, failed=failed)
                    return

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
        self.name = FUNCTION_NAME.of(function, "")


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


def _calling_frame() -> FrameType | None:
    """The innermost frame that is not ours."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
