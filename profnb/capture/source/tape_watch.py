"""Eager gradients to markers in the trace: TensorFlow itself writes nothing down when a tape computes one.

A loop over NumPy batches asks no tf.data for elements and calls no ``tf.function``; what it repeats is
``GradientTape.gradient``. While a trace is recorded, an instant marks where a tape is entered, and an event
each gradient, on the thread that runs the code, and only where nothing else makes the step. The latter has
a number for the calls that led to it, so that two tapes in turn can be told from one.
"""

import contextlib
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.library import Library
from profnb.capture.seams import EXECUTING_EAGERLY, TAPE_ENTER, TAPE_GRADIENT, TRACE
from profnb.capture.source.user_code import is_own_file
from profnb.capture.step_records import TAPE

__all__ = ["TapeWatch"]

_DEPTH, _MOST_SITES = 8, 1000


class TapeWatch:
    """Marks tapes and gradients of one thread.

    Args:
        is_wanted: Whether a trace is being recorded and nothing runs that is a step itself.
    """

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        """Start with no tape, on the calling thread."""
        self._is_wanted = is_wanted
        self._thread = threading.get_ident()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._tapes = 0
        self._open: dict[
            int, Any
        ] = {}  # by the tape's id: the event of the gradient being computed
        self._sites: dict[tuple[tuple[str, int, int], ...], int] = {}

    @contextmanager
    def watch(self, tensorflow: Library) -> Iterator[None]:
        """See TensorFlow's tapes inside the block."""
        is_eager, trace_type = tensorflow.take(EXECUTING_EAGERLY), tensorflow.take(TRACE)

        def is_seen() -> bool:
            return threading.get_ident() == self._thread and self._is_wanted() and bool(is_eager())

        def entered(tape: object) -> None:
            if is_seen():
                self._tapes += 1
                self._numbers[tape] = self._tapes
                _end(_begin(trace_type, "GradientTape", profnb_tape=self._tapes))

        def gradient_begins(tape: object) -> None:
            if is_seen():
                number, site = self._numbers.get(tape, 0), self._site()
                self._open[id(tape)] = _begin(
                    trace_type, "GradientTape.gradient", profnb_tape=number, profnb_tape_site=site
                )

        def gradient_ended(tape: object) -> None:
            if threading.get_ident() == self._thread:
                _end(self._open.pop(id(tape), None))

        with ExitStack() as stack:
            if is_eager is not None and trace_type is not None:
                stack.enter_context(tensorflow.watch(TAPE_ENTER, before=entered))
                stack.enter_context(
                    tensorflow.watch(TAPE_GRADIENT, before=gradient_begins, after=gradient_ended)
                )
            yield

    def _site(self) -> int:
        """A number for the calls that led here, the innermost ones, wherever two stand in one line."""
        frame = inspect.currentframe()
        calls: list[tuple[str, int, int]] = []
        while frame is not None and len(calls) < _DEPTH:
            code = frame.f_code
            if not is_own_file(code.co_filename):
                calls.append((code.co_filename, code.co_firstlineno, frame.f_lasti))
            frame = frame.f_back
        if len(self._sites) >= _MOST_SITES:
            return self._sites.get(tuple(calls), _MOST_SITES)
        return self._sites.setdefault(tuple(calls), len(self._sites))


def _begin(trace_type: Any, name: str, **metadata: int) -> Any:
    """Begin an event; where TensorFlow takes it no more, that is in the notes."""
    with contextlib.suppress(Exception):
        return trace_type(name, profnb_marker=TAPE, **metadata)
    return None


def _end(marker: Any) -> None:
    if marker is not None:
        with contextlib.suppress(Exception):
            marker.__exit__(None, None, None)
