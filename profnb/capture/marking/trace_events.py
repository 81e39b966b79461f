"""Trace events to steps: the user's markers, Keras 2's, calls of a ``tf.function``; JAX's step markers.

TensorFlow opens a ``Trace`` around each call of a function and says there whether it was traced anew. JAX's
markers, ``profnb.step`` among them, are annotations with a step's number.
"""

import inspect
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
from profnb.capture.step_records import CALL, TAPE, USER

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

        def began(trace: Any, /, *arguments: Any, **metadata: Any) -> None:
            name = arguments[0] if arguments else metadata.pop("name", "")
            self._trace_began(trace, name, metadata)

        def metadata_set(trace: Any, /, *_: Any, **metadata: Any) -> None:
            self._metadata_set(trace, metadata)

        def ends(trace: Any, kind: Any, *_: Any) -> None:
            if kind is not None:
                add_metadata(trace, profnb_abandoned=1)

        def ended(trace: Any, kind: Any, *_: Any) -> None:
            self._trace_ended(trace, failed=kind is not None)

        with ExitStack() as stack:
            stack.enter_context(tensorflow.watch_arguments(TRACE_EXIT, before=ends, after=ended))
            if tensorflow.take(TRACE_EXIT) is not None:  # else they would never end
                stack.enter_context(tensorflow.watch_arguments(TRACE_INIT, after=began))
            stack.enter_context(tensorflow.watch_arguments(TRACE_METADATA, before=metadata_set))
            yield

    @contextmanager
    def watch_jax(self, jax: Library) -> Iterator[None]:
        """See JAX's step markers, ``profnb.step`` among them, inside the block."""
        made: dict[int, tuple[str, dict[str, Any]]] = {}

        def made_one(marker: Any, /, name: str = "", *_: Any, **metadata: Any) -> None:
            if not self._is_of_batch(marker) and MARKER not in metadata:
                made[id(marker)] = str(name), metadata

        def began(marker: Any) -> None:
            name, metadata = made.pop(id(marker), ("", None))
            if metadata is not None:
                self._trace_began(marker, name, {**metadata, "_r": 1})

        def ended(marker: Any, kind: Any = None, *_: Any) -> None:
            self._trace_ended(marker, failed=kind is not None)

        with ExitStack() as stack:
            stack.enter_context(jax.watch_arguments(JAX_STEP_EXIT, after=ended))
            if jax.take(JAX_STEP_EXIT) is not None:  # else they would never end
                stack.enter_context(jax.watch_arguments(JAX_STEP_INIT, after=made_one))
                stack.enter_context(jax.watch_arguments(JAX_STEP_ENTER, after=began))
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

    def _is_of_batch(self, trace: object) -> bool:
        batch = self._open.batch
        return batch is not None and batch.marker in (None, trace)

    def _trace_began(self, trace: object, name: str, metadata: dict[str, Any]) -> None:
        if not self._open.is_here() or self._is_of_batch(trace):
            return
        if metadata.get(MARKER) == TAPE:
            return
        is_marker = "step_num" in metadata or bool(metadata.get("_r"))
        kind = USER if is_marker else CALL if "tf_function_call" in metadata else None
        number = metadata.get("step_num")
        number = number if isinstance(number, int) else None
        self._open.stack.append(self._open.begin(trace, kind, str(name), number))

    def _metadata_set(self, trace: Any, metadata: dict[str, Any]) -> None:
        """A trace event is given metadata; that of an outermost call becomes a step marker."""
        stack, batch = self._open.stack, self._open.batch
        call = metadata.get("tf_function_call")
        span = next((span for span in reversed(stack) if span.marker is trace), None)
        if span is None or not self._open.is_here():
            return
        span.is_marked |= MARKER in metadata  # by a capture inside this capture
        if call is None:
            return
        span.kind = span.kind or CALL
        if str(call).startswith("traced"):
            frame, inside = _calling_frame(), self._open.innermost()
            with OwnFaults():  # somebody's subclass may do anything
                self.functions.add(function_of(frame), frame, inside.name if inside else "")
            for outer in stack:
                outer.retraced = True
            if batch is not None:
                batch.retraced = True
        if not (span.is_marked or self._open.is_inside_step):
            add_metadata(trace, _r=1, step_num=span.first_record, **{MARKER: CALL})

    def _trace_ended(self, trace: object, *, failed: bool) -> None:
        if not self._open.is_here():
            return
        end_ns = time.perf_counter_ns()
        stack, batch = self._open.stack, self._open.batch
        if failed and batch is not None:
            batch.failed = True
        place = next((i for i in reversed(range(len(stack))) if stack[i].marker is trace), None)
        if place is None:
            return
        span = stack[place]
        del stack[place:]
        if span.kind is not None and not failed and not self._open.is_inside_step:
            self._open.record(span, end_ns)
            self._open.report()
            return
        failed &= span.kind is not None or function_of(_calling_frame()) is not None
        self._open.drop(span, failed=failed)


def _calling_frame() -> FrameType | None:
    """The innermost frame that is not ours."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
