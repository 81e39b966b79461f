"""Trace events to steps: the user's markers, Keras 2's, calls of a ``tf.function``; JAX's step markers.

TensorFlow opens a ``Trace`` around each call of a function and says there whether it was traced anew. JAX's
markers, ``profnb.step`` among them, are annotations with a step's number.
"""

import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from profnb.capture.marking.retracings import FunctionLog, function_of
from profnb.capture.seams import (
    JAX_STEP_ENTER,
    JAX_STEP_EXIT,
    JAX_STEP_INIT,
    TRACE_EXIT,
    TRACE_INIT,
    TRACE_METADATA,
)
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import is_own_file
from profnb.capture.step_records import CALL, KERAS, TAPE, USER

__all__ = ["TraceEvents"]


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
        self.functions = FunctionLog()

    @contextmanager
    def watch_tensorflow(self, tensorflow: Library) -> Iterator[None]:
        """See TensorFlow's trace events inside the block."""

        def ends(trace: Any, kind: Any = None, *_: Any) -> None:
            if kind is not None and self._open.is_tracing():
                add_metadata(trace, profnb_abandoned=1)

        with ExitStack() as stack:
            watching = tensorflow.watch(TRACE_EXIT, before=ends, after=self._trace_left)
            stack.enter_context(watching)
            if tensorflow.take(TRACE_EXIT) is not None:  # else they would never end
                stack.enter_context(tensorflow.watch(TRACE_INIT, after=self._trace_began))
            stack.enter_context(tensorflow.watch(TRACE_METADATA, before=self._metadata_set))
            yield

    @contextmanager
    def watch_jax(self, jax: Library) -> Iterator[None]:
        """See JAX's step markers, ``profnb.step`` among them, inside the block."""
        made: dict[int, tuple[str, dict[str, Any]]] = {}

        def made_one(marker: Any, name: str = "", *_: Any, **metadata: Any) -> None:
            if MARKER not in metadata:
                made[id(marker)] = str(name), metadata

        def began(marker: Any) -> None:
            name, metadata = made.pop(id(marker), ("", None))
            if metadata is not None:
                self._trace_began(marker, name, **{**metadata, "_r": 1})

        with ExitStack() as stack:
            stack.enter_context(jax.watch(JAX_STEP_EXIT, after=self._trace_left))
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

    def _trace_began(self, trace: object, name: str = "", **metadata: Any) -> None:
        """A trace event began; of most of them there is only the name."""
        opened = self._open
        if threading.get_ident() != opened.thread:
            return
        kind = number = None
        if metadata:
            if metadata.get(MARKER) in (TAPE, KERAS):
                return
            is_marker = "step_num" in metadata or bool(metadata.get("_r"))
            kind = USER if is_marker else CALL if "tf_function_call" in metadata else None
            number = metadata.get("step_num")
            number = number if isinstance(number, int) else None
        opened.stack.append(opened.begin(trace, kind, str(name), number))

    def _metadata_set(self, trace: Any, **metadata: Any) -> None:
        """A trace event is given metadata; that of an outermost call becomes a step marker."""
        opened = self._open
        stack = opened.stack
        if not stack or threading.get_ident() != opened.thread:
            return
        span = stack[-1]
        if span.marker is not trace:
            known = next((span for span in reversed(stack) if span.marker is trace), None)
            if known is None:
                return
            span = known
        span.is_marked |= MARKER in metadata  # by a capture inside this capture
        call = metadata.get("tf_function_call")
        if call is None:
            return
        span.kind = span.kind or CALL
        if str(call).startswith("traced"):
            self._function_traced()
        if opened.is_tracing() and not (span.is_marked or opened.is_inside_step):
            add_metadata(trace, _r=1, step_num=span.first_record, **{MARKER: CALL})

    def _function_traced(self) -> None:
        """A function was traced, in all that runs now."""
        frame, inside = _calling_frame(), self._open.innermost()
        with OwnFaults():  # somebody's subclass may do anything
            self.functions.add(function_of(frame), frame, inside.name if inside else "")
        for outer in self._open.stack:
            outer.retraced = True
        if self._open.batch is not None:
            self._open.batch.retraced = True

    def _trace_left(self, trace: object, kind: object = None, *_: object) -> None:
        self._trace_ended(trace, failed=kind is not None)

    def _trace_ended(self, trace: object, *, failed: bool) -> None:
        opened = self._open
        stack = opened.stack
        if not stack or threading.get_ident() != opened.thread:
            return
        end_ns = time.perf_counter_ns()
        if failed and opened.batch is not None:
            opened.batch.failed_ns = end_ns
        place = len(stack) - 1
        while place >= 0 and stack[place].marker is not trace:  # as a rule it is the last one
            place -= 1
        if place < 0:
            return
        span = stack[place]
        del stack[place:]
        if failed:
            if span.kind is not None or function_of(_calling_frame()) is not None:
                opened.fail(span, end_ns)
        elif span.kind is not None and not opened.is_inside_step:
            opened.record(span, end_ns)
            opened.report()


def _calling_frame() -> FrameType | None:
    """The innermost frame that is not ours."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
