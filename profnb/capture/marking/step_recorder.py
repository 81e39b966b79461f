"""Everything that is a step of one thread, seen with no change to the user's code.

- Keras (3 and 2): a batch of ``fit``, ``evaluate`` or ``predict``, from the end of the callbacks'
  ``on_*_batch_begin`` to the start of their ``on_*_batch_end``, so callbacks are in the gap; and one
  call of ``train_on_batch``, ``test_on_batch`` or ``predict_on_batch``.
- ``tf.profiler.experimental.Trace`` with ``_r`` or ``step_num``: the user's own markers, Keras 2's,
  and ``profnb.step``.
- a ``tf.function`` call: TensorFlow opens a ``Trace`` around each, which is where we see it begin, end
  and be retraced; which function is the step is decided afterwards.
- JAX's step markers, iterations of a loop over PyTorch, session runs, runs of LiteRT's interpreters.

Markers carry ``_r=1`` and ``step_num``, so TensorBoard's profile tab shows the same steps. A batch that
began but never ended (the data ran out, an exception) is marked as abandoned and is no step.
"""

import time
from collections.abc import Callable

from profnb.capture.marking.keras_batches import KerasBatches
from profnb.capture.marking.open_steps import Gaps, OpenSteps, abandon_marker
from profnb.capture.marking.trace_events import TraceEvents
from profnb.capture.signals import OwnFaults
from profnb.capture.step_records import INVOKE, KINDS, RUN, SESSION_RUN, USER, Marking, OpenStep

_RUN_ROW = KINDS.index(RUN)


class OwnLoops:
    """Takes the steps of loops of the user's own: iterations over PyTorch, session runs, LiteRT's runs.

    Args:
        open_steps: Given each of them.
    """

    def __init__(self, open_steps: OpenSteps) -> None:
        """Nothing runs yet."""
        self._open = open_steps
        self._iteration: OpenStep | None = None
        self._iterations_begun = 0
        self._invoke: OpenStep | None = None
        self._invokes_begun = 0
        self._session_run: OpenStep | None = None
        self._session_runs = 0

    def iteration_begins(self, door: Marking) -> None:
        """An iteration begins, unless it is part of a step; one that has not ended is none."""
        self.abandon_iteration()
        if self._open.is_inside_step or self._open.is_in_run:
            return
        self._iteration = self._begin(door, "train", self._iterations_begun)
        self._iterations_begun += 1

    def _begin(self, door: Marking | None, phase: str, number: int) -> OpenStep:
        self._open.report()
        span = self._open.begin(None, USER, phase, number)
        if span.was_traced and door is not None:
            with OwnFaults():  # then the step has no marker
                span.marker = door.mark_step(phase, number)
            span.marked_ns = time.perf_counter_ns()
        self._open.stack.append(span)
        return span

    def iteration_ended(self) -> None:
        """The open iteration has ended, with a step of its optimizer."""
        span, self._iteration = self._iteration, None
        self._end(span)

    def _end(self, span: OpenStep | None) -> None:
        if span is not None and span in self._open.stack:
            end_ns = time.perf_counter_ns()
            self._open.stack.remove(span)  # first: an interrupt behind it leaves no step open
            self._open.end_marker(span)
            self._open.record(span, end_ns)
            self._open.report()

    def abandon_iteration(self) -> None:
        """The open iteration, if there is one, is no step."""
        span, self._iteration = self._iteration, None
        if span is not None and span in self._open.stack:
            self._open.stack.remove(span)
            self._iterations_begun -= 1
            abandon_marker(span.marker)

    def invoke_begins(self, door: Marking | None) -> None:
        """An interpreter begins to run, which is a step unless it is part of one."""
        if self._open.is_here() and not (self._open.is_inside_step or self._open.is_in_run):
            self._invoke = self._begin(door, INVOKE, self._invokes_begun)
            self._invokes_begun += 1

    def invoke_ended(self) -> None:
        """It has run."""
        if self._open.is_here():
            span, self._invoke = self._invoke, None
            self._end(span)

    def invoke_failed(self) -> None:
        """It raised."""
        span, self._invoke = self._invoke, None
        if span is not None and span in self._open.stack:
            self._open.stack.remove(span)
            abandon_marker(span.marker)
            self._open.fail(span, time.perf_counter_ns())

    def run_began(self) -> None:
        """A ``Session.run`` begins."""
        self._session_run = self._open.begin(None, RUN, SESSION_RUN, self._session_runs)

    def run_ended(self, was_traced: bool) -> bool:
        """The session run ended; it is a step unless it is part of one. True if the next may be counted."""
        end_ns = time.perf_counter_ns()
        self._session_runs += 1
        if self._session_run is not None and not self._open.is_inside_step:
            self._open.record(self._session_run, end_ns, was_traced=was_traced)
            self._open.report()
        return self._open.counts_only and not self._open.gaps.is_on

    def run_counted(self, begin_ns: int, end_ns: int) -> bool:
        """A session run began and ended then, in no trace; 0 for the end of one that raised.

        Returns:
            As ``run_ended``.
        """
        opened, number = self._open, self._session_runs
        gaps, (settled, _, late) = opened.gaps, opened.log.stored
        first = settled + len(late)
        if not end_ns:
            run = OpenStep(
                None, RUN, SESSION_RUN, begin_ns, first, was_traced=False, step_num=number
            )
            opened.fail(run, time.perf_counter_ns())
            return True
        self._session_runs = number + 1
        if (opened.batch is None and not opened.stack) or not opened.is_inside_step:
            columns = _RUN_ROW, False, False, 1, number, 0
            opened.log.end_step(first, begin_ns, end_ns, SESSION_RUN, *columns)
            if end_ns >= gaps.next_ns:
                gaps.begin()
        return not gaps.is_on

    def run_failed(self) -> None:
        """The session run raised."""
        if self._session_run is not None:
            self._open.fail(self._session_run, time.perf_counter_ns())


class StepRecorder:
    """Watches one thread's steps.

    Args:
        is_tracing: Whether the profiler is recording right now.
        on_step: Called after each step with how many like it were recorded under trace; of function
            calls, only those of the function that has taken the most time count.
        door_of_keras: The profiler that records what Keras does; None where nothing does.
        gaps: Told when what lies between two steps begins, and ends.

    Attributes:
        open: What has begun and not ended.
        log: The steps that ended.
        events: Those of TensorFlow's trace events and of JAX's markers.
        loops: Those of loops over PyTorch, and session runs.
        batches: Keras'.
    """

    def __init__(
        self,
        is_tracing: Callable[[], bool],
        on_step: Callable[[int], None],
        door_of_keras: Callable[[], Marking | None],
        gaps: Gaps | None = None,
    ) -> None:
        """Start with no steps, on the calling thread."""
        self.open = OpenSteps(is_tracing, on_step, gaps)
        self.log = self.open.log
        self.events = TraceEvents(self.open)
        self.loops = OwnLoops(self.open)
        self.batches = KerasBatches(self.open, self.loops.abandon_iteration, door_of_keras)
