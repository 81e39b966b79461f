"""Running code to steps: every step is timed, and marked in the trace while one is recorded.

Where steps come from, with no change to the user's code:

- Keras (3 and 2): a batch of ``fit``, ``evaluate`` or ``predict``, from the end of the callbacks'
  ``on_*_batch_begin`` to the start of their ``on_*_batch_end``, so callbacks are in the gap; and one
  call of ``train_on_batch``, ``test_on_batch`` or ``predict_on_batch``.
- ``tf.profiler.experimental.Trace`` with ``_r`` or ``step_num``: the user's own markers, Keras 2's,
  and ``profnb.step``.
- a ``tf.function`` call: TensorFlow opens a ``Trace`` around each, which is where we see it begin, end
  and be retraced; which function is the step is decided afterwards.

Markers carry ``_r=1`` and ``step_num``, so TensorBoard's profile tab shows the same steps. A batch that
began but never ended (the data ran out, an exception) is marked as abandoned and is no step.

What ``StepRecorder`` holds while ``fit`` runs a batch whose tf.function calls another one. Time runs down::

    what happens                            _batch      _stack                    records
    ------------                            ------      ------                    -------
    on_train_batch_begin returns            train 7     -                         0..6
      Trace("train_function") begins        train 7     train_function            0..6
        Trace("augment") begins             train 7     train_function, augment   0..6
          set_metadata("notTraced-...")     train 7     train_function, augment   0..6
        ends: inside a step, so no step     train 7     train_function            0..6
      ends: likewise                        train 7     -                         0..6
    on_train_batch_end begins               -           -                         0..7 (keras, "train")

Without Keras, the outermost call is the step, and the calls inside it are part of it: what was recorded since
it began (``first_record``) is taken back when it ends::

    Trace("outer") begins, first_record 3   -           outer                     0..2
      Trace("inner") begins and ends        -           outer                     0..3 (call, "inner")
      Trace("inner") begins and ends        -           outer                     0..4 (call, "inner")
    ends                                    -           -                         0..3 (call, "outer")
"""

import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Protocol

from profnb.capture.library import Library
from profnb.capture.parts.part_clock import PartClock
from profnb.capture.retracings import FunctionLog, function_of
from profnb.capture.seams import (
    BATCH_BEGIN,
    BATCH_END,
    EPOCH_END,
    JAX_STEP_ENTER,
    JAX_STEP_EXIT,
    JAX_STEP_INIT,
    ON_BATCH,
    RUN_BEGIN,
    RUN_END,
    STEPS_PER_EXECUTION,
    TRACE_EXIT,
    TRACE_INIT,
    TRACE_METADATA,
)
from profnb.capture.source.user_code import is_own_file
from profnb.capture.step_records import CALL, KERAS, RUN, TAPE, USER, OpenStep, StepRecords
from profnb.trace.names import NEXT_BATCH

__all__ = ["StepRecorder"]

_MARKER = "profnb_marker"  # the metadata that tells our markers from the user's


class _Door(Protocol):
    """A profiler that takes marks; see ``profiler``."""

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A step's marker, begun; None where there is none."""

    def mark(self, name: str) -> Any:
        """An event, begun; None where there is none."""


class StepRecorder:
    """Watches one thread's steps.

    Args:
        is_tracing: Whether the profiler is recording right now.
        on_step: Called after each step with how many like it were recorded under trace; of function
            calls, only those of the function that has taken the most time count.
        parts: Told of each step, and of what may turn out to be one.
        door_of_keras: The profiler that records what Keras does; None where nothing does.
    """

    def __init__(
        self,
        is_tracing: Callable[[], bool],
        on_step: Callable[[int], None],
        parts: PartClock,
        door_of_keras: Callable[[], "_Door | None"],
    ) -> None:
        """Start with no steps, on the calling thread."""
        self._parts = parts
        self.records = StepRecords()
        self.functions = FunctionLog()
        self._is_tracing, self._on_step = is_tracing, on_step
        self._thread = threading.get_ident()
        self._stack: list[OpenStep] = []
        self._batch: OpenStep | None = None
        self._untraceable: OpenStep | None = None
        self._session_run: OpenStep | None = None
        self._iteration: OpenStep | None = None  # of a loop over PyTorch
        self._iterations_begun = 0
        self._is_in_run = False  # of Keras, which has batches of its own
        self._session_runs = 0
        self._batches_begun = 0
        self._to_report: int | None = None
        self._ending = 0, 0  # callbacks whose epoch ends, and how many steps were recorded by then
        self._runs: dict[str, int] = {}  # per phase, how many fits (evaluates, ...) began
        self._iterations: dict[int, int] = {}  # per model, its steps_per_execution
        self._code_of_name: dict[str, int] = {}
        self._door_of_keras = door_of_keras
        self._fetching: Any = None  # marks that Keras fetches a batch
        self._traced: list[int] = []  # per name, how many were recorded under trace
        self._total_ns: list[int] = []

    def _begin(
        self, marker: object, kind: str | None, name: str, step_num: int | None = None
    ) -> OpenStep:
        first = len(self.records)
        number = first if step_num is None else step_num
        span = OpenStep(
            marker, kind, name, time.perf_counter_ns(), first, self._is_tracing(), number
        )
        self._parts.step_began(span)
        return span

    @property
    def has_begun(self) -> bool:
        """Whether something that may be a first step is running: a batch, a call, a marker, a fit."""
        return self._batch is not None or bool(self._stack) or bool(self._runs)

    @property
    def is_outside(self) -> bool:
        """Whether nothing runs that is a step or may turn out to be one."""
        return self._batch is None and all(span.kind is None for span in self._stack)

    def _phase(self) -> str:
        marked = (span for span in self._stack if span.kind == USER)  # Keras 2 marks its own steps
        span = self._batch or next(marked, None)
        return span.name if span is not None else ""

    def _inside_step(self) -> bool:
        return self._batch is not None or any(span.kind == USER for span in self._stack)

    def _record(self, span: OpenStep, end_ns: int, *, was_traced: bool = False) -> None:
        self._parts.step_ended(span, is_step=True)
        code = self._code_of_name.setdefault(span.name, len(self.records.names))
        if code == len(self.records.names):
            self.records.names.append(span.name)
            self._traced.append(0)
            self._total_ns.append(0)
        self.records.truncate(span.first_record)  # calls inside it are part of it
        was_traced |= span.was_traced and self._is_tracing()
        self.records.append(
            span.begin_ns,
            end_ns,
            code,
            self.records.kinds.index(span.kind or CALL),
            was_traced,
            span.retraced,
            span.iterations,
            span.step_num,
            self._runs.get(span.name, 0),
        )
        self._traced[code] += was_traced
        self._total_ns[code] += end_ns - span.begin_ns
        if span.kind != CALL or self._total_ns[code] == max(self._total_ns):
            self._to_report = self._traced[code]

    def _report(self) -> None:
        """Tell of the last step, which may close the window and take a while.

        Never from a hook that runs as an object is released: an interrupt there would be lost.
        """
        steps, self._to_report = self._to_report, None
        if steps is not None:
            self._on_step(steps)

    # Trace events: the user's markers, Keras 2's, and tf.function's calls.

    def _trace_began(self, trace: object, name: str, metadata: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread or self._batch_marker_is(trace):
            return
        if metadata.get(_MARKER) == TAPE:
            return
        is_marker = "step_num" in metadata or bool(metadata.get("_r"))
        kind = USER if is_marker else CALL if "tf_function_call" in metadata else None
        number = metadata.get("step_num")
        number = number if isinstance(number, int) else None
        self._stack.append(self._begin(trace, kind, str(name), number))

    def _batch_marker_is(self, trace: object) -> bool:
        return self._batch is not None and self._batch.marker in (None, trace)

    def _metadata_set(self, trace: Any, metadata: dict[str, Any]) -> None:
        """A trace event is given metadata; that of an outermost call becomes a step marker."""
        call = metadata.get("tf_function_call")
        span = next((span for span in reversed(self._stack) if span.marker is trace), None)
        if span is None or threading.get_ident() != self._thread:
            return
        span.is_marked |= _MARKER in metadata  # by a capture inside this capture
        if call is None:
            return
        span.kind = span.kind or CALL
        if str(call).startswith("traced"):
            frame = _calling_frame()
            with contextlib.suppress(Exception):  # somebody's subclass may do anything
                self.functions.add(function_of(frame), frame, self._phase())
            for outer in self._stack:
                outer.retraced = True
            if self._batch is not None:
                self._batch.retraced = True
        if not (span.is_marked or self._inside_step()):
            _mark(trace, _r=1, step_num=span.first_record, **{_MARKER: CALL})

    def _trace_ended(self, trace: object, failed: bool) -> None:
        if threading.get_ident() != self._thread:
            return
        end_ns = time.perf_counter_ns()
        if failed and self._batch is not None:
            self._batch.failed = True
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index].marker is trace:
                span = self._stack[index]
                del self._stack[index:]
                if span.kind is not None and not failed and not self._inside_step():
                    self._record(span, end_ns)
                    self._report()
                    return
                failed &= span.kind is not None or function_of(_calling_frame()) is not None
                self._parts.step_ended(span, is_step=False, failed=failed)
                return

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
                _mark(trace, profnb_abandoned=1)

        def ended(trace: Any, kind: Any, *_: Any) -> None:
            self._trace_ended(trace, kind is not None)

        with ExitStack() as stack:
            stack.enter_context(tensorflow.watch_arguments(TRACE_EXIT, before=ends, after=ended))
            if tensorflow.take(TRACE_EXIT) is not None:  # else they would never end
                stack.enter_context(tensorflow.watch_arguments(TRACE_INIT, after=began))
            stack.enter_context(tensorflow.watch_arguments(TRACE_METADATA, before=metadata_set))
            yield

    # JAX's own step markers.

    @contextmanager
    def watch_jax(self, jax: Library) -> Iterator[None]:
        """See JAX's step markers, ``profnb.step`` among them, inside the block."""
        made: dict[int, tuple[str, dict[str, Any]]] = {}

        def made_one(marker: Any, /, name: str = "", *_: Any, **metadata: Any) -> None:
            if not self._batch_marker_is(marker) and _MARKER not in metadata:
                made[id(marker)] = str(name), metadata

        def began(marker: Any) -> None:
            name, metadata = made.pop(id(marker), ("", None))
            if metadata is not None:
                self._trace_began(marker, name, {**metadata, "_r": 1})

        def ended(marker: Any, kind: Any = None, *_: Any) -> None:
            self._trace_ended(marker, kind is not None)

        with ExitStack() as stack:
            stack.enter_context(jax.watch_arguments(JAX_STEP_EXIT, after=ended))
            if jax.take(JAX_STEP_EXIT) is not None:  # else they would never end
                stack.enter_context(jax.watch_arguments(JAX_STEP_INIT, after=made_one))
                stack.enter_context(jax.watch_arguments(JAX_STEP_ENTER, after=began))
            yield

    # Loops over PyTorch.

    def iteration_begins(self, door: "_Door") -> None:
        """An iteration begins, unless it is part of a step; one that has not ended is none."""
        self.abandon_iteration()
        if self._inside_step() or self._is_in_run:
            return
        self._report()
        number = self._iterations_begun
        span = self._begin(None, USER, "train", number)
        with contextlib.suppress(Exception):  # then the step has no marker
            span.marker = door.mark_step("train", number)
        self._iterations_begun += 1
        self._iteration = span
        self._stack.append(span)

    def iteration_ended(self) -> None:
        """The open iteration has ended, with a step of its optimizer."""
        span, self._iteration = self._iteration, None
        if span is not None and span in self._stack:
            end_ns = time.perf_counter_ns()
            _end(span.marker)
            self._stack.remove(span)
            self._record(span, end_ns)
            self._report()

    def abandon_iteration(self) -> None:
        """The open iteration, if there is one, is no step."""
        span, self._iteration = self._iteration, None
        if span is not None and span in self._stack:
            _mark(span.marker, profnb_abandoned=1)
            _end(span.marker)
            self._stack.remove(span)
            self._parts.step_ended(span, is_step=False)
            self._iterations_begun -= 1

    def mark_began(self, mark: Any) -> None:
        """A step that the user marks began."""
        if not self._inside_step():
            self._stack.append(self._begin(mark, USER, mark.phase, mark.step_num))

    def mark_ended(self, mark: Any) -> None:
        """It ends."""
        _end(mark.marker)
        self._trace_ended(mark, failed=False)

    # Session runs.

    def run_began(self) -> None:
        """A ``Session.run`` begins."""
        self._session_run = self._begin(None, RUN, "session_run", self._session_runs)

    def run_ended(self, was_traced: bool) -> None:
        """The session run ended; it is a step unless it is part of one."""
        end_ns = time.perf_counter_ns()
        self._session_runs += 1
        if self._session_run is not None and not self._inside_step():
            self._record(self._session_run, end_ns, was_traced=was_traced)
            self._report()
        elif self._session_run is not None:
            self._parts.step_ended(self._session_run, is_step=False)

    def run_failed(self) -> None:
        """The session run raised."""
        if self._session_run is not None:
            self._parts.step_ended(self._session_run, is_step=False, failed=True)

    # Keras batches.

    def _batch_began(self, phase: str) -> None:
        self._batch_abandoned()
        if threading.get_ident() != self._thread:
            return
        self.abandon_iteration()
        door = self._door_of_keras()
        if door is None:  # Keras on a backend of no profiler: no step, but part of the cell
            self._untraceable = OpenStep(None, KERAS, phase, 0, 0, was_traced=False, step_num=0)
            self._parts.step_began(self._untraceable)
            return
        self._report()
        if self._inside_step():
            return
        self._batch = self._begin(None, KERAS, phase, self._batches_begun)
        with contextlib.suppress(Exception):  # then the step has no marker
            self._batch.marker = door.mark_step(phase, self._batches_begun, **{_MARKER: KERAS})
        self._batches_begun += 1

    def _batch_ended(self) -> None:
        if self._untraceable is not None and threading.get_ident() == self._thread:
            self._parts.step_ended(self._untraceable, is_step=True)
            self._untraceable = None
        if self._batch is None or threading.get_ident() != self._thread:
            return
        batch, end_ns = self._batch, time.perf_counter_ns()
        _end(batch.marker)
        self._batch = None
        self._record(batch, end_ns)

    def _batch_abandoned(self, _: object = None, *, failed: bool = False) -> None:
        if self._untraceable is not None and threading.get_ident() == self._thread:
            self._parts.step_ended(self._untraceable, is_step=False, failed=failed)
            self._untraceable = None
        if self._batch is None or threading.get_ident() != self._thread:
            return
        batch, self._batch = self._batch, None
        self._parts.step_ended(batch, is_step=False, failed=failed)
        _mark(batch.marker, profnb_abandoned=1)
        _end(batch.marker)
        self._batches_begun -= 1
        self.records.truncate(batch.first_record)

    def _iterations_of(self, model: Any) -> int:
        """A model's steps_per_execution: an int in Keras 3, a variable of its own in Keras 2."""
        iterations = self._iterations.get(id(model))
        if iterations is None:
            try:
                iterations = max(int(STEPS_PER_EXECUTION.of(model)), 1)
            except (TypeError, ValueError):
                iterations = 1
            self._iterations[id(model)] = iterations
        return iterations

    def _callbacks_ended(self, callbacks: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        iterations = self._iterations_of(getattr(callbacks, "model", None))
        marked = (span for span in self._stack if span.kind == USER)  # Keras 2 marks its own steps
        span = self._batch or next(marked, None)
        if span is not None and iterations > 1:
            span.iterations = iterations
            _mark(span.marker, profnb_iterations=iterations)
        self._batch_ended()
        self._report()

    def _call_ended(self, _: object) -> None:
        """A ``train_on_batch`` and the like returned or raised."""
        if self._batch is not None and self._batch.failed:
            self._batch_abandoned(failed=True)
        else:
            self._batch_ended()

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """See Keras' batches inside the block."""
        with ExitStack() as stack:
            for phase in BATCH_BEGIN:

                def began(_: object, phase: str = phase) -> None:
                    self._batch_began(phase)

                def run_began(_: object, phase: str = phase) -> None:
                    self._batch_abandoned()
                    self._runs[phase] = self._runs.get(phase, 0) + 1
                    self._is_in_run = threading.get_ident() == self._thread

                def run_ends(_: object) -> None:
                    self._batch_abandoned()
                    self._is_in_run = False

                batch_end = keras.watch(BATCH_END[phase], before=self._callbacks_ended)
                if keras.take(BATCH_END[phase]) is not None:  # else they would never end
                    stack.enter_context(keras.watch(BATCH_BEGIN[phase], after=began))
                stack.enter_context(batch_end)
                stack.enter_context(keras.watch(RUN_BEGIN[phase], before=run_began))
                stack.enter_context(keras.watch(RUN_END[phase], before=run_ends))
                one = keras.watch(ON_BATCH[phase], before=began, after=self._call_ended)
                stack.enter_context(one)
            stack.enter_context(
                keras.watch(EPOCH_END, before=self._epoch_ends, after=self._epoch_ended)
            )
            yield

    def fetching_begins(self) -> None:
        """Keras on JAX fetches a batch."""
        if threading.get_ident() == self._thread and self._is_tracing():
            door = self._door_of_keras()
            self._fetching = None if door is None else door.mark(NEXT_BATCH)

    def fetching_ends(self) -> None:
        """It is there, or there is none."""
        if self._fetching is not None and threading.get_ident() == self._thread:
            fetching, self._fetching = self._fetching, None
            _end(fetching)

    def _epoch_ends(self, callbacks: object) -> None:
        self._batch_abandoned()
        self._ending = id(callbacks), len(self.records)

    def _epoch_ended(self, callbacks: Any) -> None:
        """Keras' own history, which is first told of an epoch, has its number."""
        ending, self._ending = self._ending, (0, 0)
        if threading.get_ident() != self._thread or ending[0] != id(callbacks):
            return
        with contextlib.suppress(Exception):  # anybody's callbacks; the user's code comes first
            number = int(callbacks.model.history.epoch[-1]) + 1
            self.records.ended_at.append(ending[1])
            self.records.ended_epoch.append(number)


def _mark(trace: Any, **metadata: object) -> None:
    """Add metadata of ours to a trace event; where TensorFlow takes it no more, that is in the notes."""
    with contextlib.suppress(Exception):
        trace.set_metadata(**metadata)


def _end(trace: Any) -> None:
    with contextlib.suppress(Exception):
        trace.__exit__(None, None, None)


def _calling_frame() -> FrameType | None:
    """The innermost frame that is not ours."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
