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

Keras tells its callbacks how many epochs there will be and how many batches each has, where it knows that. An
epoch whose length nobody knew beforehand has told it when it is over.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from profnb.capture import seams
from profnb.capture.hook_clock import hook_clock
from profnb.capture.hooks import Library
from profnb.capture.marking.open_steps import (
    MARKER,
    Gaps,
    OpenSteps,
    TapeWatch,
    abandon_marker,
    add_metadata,
    end_marker,
)
from profnb.capture.marking.trace_events import TraceEvents
from profnb.capture.signals import OwnFaults
from profnb.capture.step_records import (
    INVOKE,
    KERAS,
    KINDS,
    RUN,
    SESSION_RUN,
    TRAIN,
    USER,
    WIDTH,
    KerasRun,
    KerasRunSeen,
    Marking,
    OpenStep,
)
from profnb.trace.names import NEXT_BATCH


class KerasRuns:
    """Follows the runs of one thread.

    Attributes:
        running: Those that run; an evaluation in a fit stands behind it.
        is_validation: Whether the run that began last is the validation of a fit.
    """

    def __init__(self) -> None:
        """None runs yet."""
        self.running: list[KerasRun] = []
        self._begun = self._fit_callbacks = 0
        self.is_validation = False

    @property
    def now(self) -> KerasRun | None:
        """The innermost run, as it stands now; any thread may ask."""
        for run in map(replace, self.running[-1:]):
            if run.batches:  # the last execution of an epoch may be shorter
                run.batches_ended = min(run.batches_ended, run.batches)
            return run
        return None

    @property
    def is_running(self) -> bool:
        """True while one runs."""
        return bool(self.running)

    def run_began(self, phase: str, callbacks: Any) -> None:
        """Keras tells its callbacks that a run begins."""
        if phase == TRAIN:
            self.running.clear()  # one that failed is over, though nobody told
            self._fit_callbacks = id(callbacks)
        is_inside = bool(self.running)
        self.is_validation = is_inside and id(callbacks) == self._fit_callbacks
        parameters = seams.CALLBACK_PARAMS.of(callbacks)
        parameters = parameters if isinstance(parameters, dict) else {}
        self._begun += 1
        epochs = _count(parameters.get("epochs")) if phase == TRAIN else 1
        # A validation is told of by the fit's own callbacks, whose parameters are the fit's.
        batches = 0 if self.is_validation else _count(parameters.get("steps"))
        self.running.append(KerasRun(phase, self._begun, epochs, batches))

    def run_ended(self, phase: str) -> None:
        """It ended."""
        for at in range(len(self.running) - 1, -1, -1):
            if self.running[at].phase == phase:
                del self.running[at:]
                return

    def epoch_ended(self, callbacks: Any, epoch: object) -> None:
        """An epoch of the fit that runs has ended, which tells with which one it began."""
        if not self.running or self.running[0].phase != TRAIN:
            return
        del self.running[1:]  # what ran in the fit is over by then
        run = self.running[0]
        run.batches = run.batches or run.batches_ended
        if isinstance(epoch, int):
            run.first_epoch = epoch - run.epochs_ended
        run.epochs_ended, run.batches_ended = run.epochs_ended + 1, 0
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            run.loss = float(seams.CALLBACK_MODEL.of(callbacks).history.history["loss"][-1])


class KerasBatches:
    """Sees Keras' batches and epochs.

    Args:
        open_steps: Given each batch.
        abandon_iteration: Called before each: an iteration of the user's own that is open is none.
        door: The profiler that records what Keras does; None where nothing does.

    Attributes:
        keras_runs: How far the fit that runs is.
    """

    def __init__(
        self,
        open_steps: OpenSteps,
        abandon_iteration: Callable[[], None],
        door: Callable[[], Marking | None],
    ) -> None:
        """Nothing is watched yet."""
        self._open, self._abandon_iteration, self._door = open_steps, abandon_iteration, door
        self.keras_runs = KerasRuns()
        self._batches_begun = self._run_began_ns = 0
        self._ending = 0, 0  # callbacks whose epoch ends, and how many steps were recorded by then
        self._callbacks: Callable[[], object] = lambda: None  # those whose batch ended last
        self._knows_door = False
        self._iterations = 1  # in one step of theirs: steps_per_execution
        self._fetching: Any = None  # marks that Keras fetches a batch

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """See Keras' runs, and the batches of those kinds that have begun, inside the block."""
        with ExitStack() as stack:
            for phase in seams.RUN_BEGIN:
                one_began = partial(self._batch_began, phase)
                one = keras.watch(seams.ON_BATCH[phase], before=one_began, after=self._call_ended)
                stack.enter_context(one)
                if keras.take(seams.RUN_END[phase]) is not None:  # else they would never end
                    began = partial(self._run_began, phase, keras, stack)
                    stack.enter_context(keras.watch(seams.RUN_BEGIN[phase], before=began))
            yield

    def _run_began(
        self, phase: str, keras: Library, stack: ExitStack, callbacks: Any, *_: object, **__: object
    ) -> None:
        self.end_failed_batch()
        if phase not in self._open.runs:
            self._watch_phase(keras, phase, stack)
        number = self._open.runs[phase] = self._open.runs.get(phase, 0) + 1
        self.keras_runs.run_began(phase, callbacks)
        if not self._open.is_in_run:
            self._run_began_ns = time.perf_counter_ns()
        self._open.is_in_run = True
        self._open.log.runs.append(KerasRunSeen(phase, number, self.keras_runs.is_validation))
        self._knows_door = False

    def _watch_phase(self, keras: Library, phase: str, stack: ExitStack) -> None:
        """See the batches of "train", "test" or "predict" from their first run on."""
        if keras.take(seams.BATCH_END[phase]) is not None:  # else they would never end
            began = partial(self._batch_began, phase)
            stack.enter_context(keras.watch(seams.BATCH_BEGIN[phase], after=began))
        stack.enter_context(keras.watch(seams.BATCH_END[phase], before=self._callbacks_ended))
        ended = partial(self._run_ended, phase)
        stack.enter_context(
            keras.watch(seams.RUN_END[phase], before=self._batch_abandoned, after=ended)
        )
        if phase == TRAIN:
            epochs = keras.watch(seams.EPOCH_END, before=self._epoch_ends, after=self._epoch_ended)
            stack.enter_context(epochs)

    def _run_ended(self, phase: str, *_: object, **__: object) -> None:
        self.keras_runs.run_ended(phase)
        self._open.is_in_run = self.keras_runs.is_running
        if not self._open.is_in_run:
            self._open.log.run_spans.append((self._run_began_ns, time.perf_counter_ns()))

    def end_failed_batch(self) -> None:
        """The batch that is open, if one is, was cut off by an exception that ended its run."""
        batch = self._open.batch
        self._batch_abandoned()
        if batch is not None and batch.failed_ns:
            self._open.fail(batch, batch.failed_ns)

    def fetching_begins(self, examples: int | None) -> None:
        """Keras on JAX fetches a batch of so many examples, as far as is known."""
        if self._open.is_here() and self._open.is_tracing():
            door = self._door()
            self._fetching = None if door is None else door.mark(NEXT_BATCH)
            if examples is not None and self._fetching is not None:
                add_metadata(self._fetching, batch_size=examples)

    def fetching_ends(self) -> None:
        """It is there, or there is none."""
        if self._fetching is not None and self._open.is_here():
            fetching, self._fetching = self._fetching, None
            end_marker(fetching)

    def _batch_began(self, phase: str, *_: object, **__: object) -> None:
        opened = self._open
        if opened.counts_only and opened.batch is None and not opened.stack:
            opened.batch = opened.begin(None, KERAS, phase, self._batches_begun)
            self._batches_begun += 1
            return
        if opened.batch is not None:
            self._batch_abandoned()
        self._abandon_iteration()
        if self._knows_door and not opened.is_tracing():
            door = None
        else:
            door, self._knows_door = self._door(), True  # PyTorch's starts there
        opened.report()
        if opened.is_inside_step:
            return
        batch = opened.batch = opened.begin(None, KERAS, phase, self._batches_begun)
        if batch.was_traced and door is not None:
            with OwnFaults():  # then the step has no marker
                batch.marker = door.mark_step(phase, self._batches_begun, **{MARKER: KERAS})
            batch.marked_ns = time.perf_counter_ns()
        self._batches_begun += 1

    def _batch_ended(self) -> None:
        opened = self._open
        batch = opened.batch
        if batch is None:
            return
        end_ns = time.perf_counter_ns()
        if batch.marker is not None:
            opened.end_marker(batch)
        opened.batch = None
        opened.record(batch, end_ns)

    def _batch_abandoned(self, *_: object, **__: object) -> None:
        if self._open.batch is None:
            return
        batch, self._open.batch = self._open.batch, None
        abandon_marker(batch.marker)
        self._batches_begun -= 1
        self._open.log.truncate(batch.first_record)

    def _callbacks_ended(self, callbacks: Any, *_: object, **__: object) -> None:
        opened = self._open
        if callbacks is not self._callbacks():  # as a rule they are those of the batch before
            self._callbacks = weakref.ref(callbacks)
            # An int in Keras 3, a variable of its own in Keras 2.
            steps = seams.STEPS_PER_EXECUTION.of(seams.CALLBACK_MODEL.of(callbacks))
            self._iterations = _count(steps) or 1
        iterations = self._iterations
        span = opened.batch or opened.innermost()
        if span is not None:
            if iterations > 1:
                span.iterations = iterations
                add_metadata(span.marker, profnb_iterations=iterations)
            for run in self.keras_runs.running[-1:]:
                if run.phase == span.name:
                    run.batches_ended += iterations
        batch = opened.batch
        if opened.counts_only and batch is not None and batch.marker is None:
            opened.batch = None
            opened.record(batch, time.perf_counter_ns())  # a frame less than below
        else:
            self._batch_ended()
            opened.report()

    def _call_ended(self, *_: object, **__: object) -> None:
        """A ``train_on_batch`` and the like returned or raised."""
        if self._open.batch is not None and self._open.batch.failed_ns:
            self.end_failed_batch()
        else:
            self._batch_ended()
            if not self._open.counts_only:
                self._open.report()

    def _epoch_ends(self, callbacks: object, *_: object, **__: object) -> None:
        self._batch_abandoned()
        self._ending = id(callbacks), len(self._open.log)

    def _epoch_ended(self, callbacks: Any, epoch: object = None, *_: object, **__: object) -> None:
        """Keras' own history, which is first told of an epoch, has its number."""
        ending, self._ending = self._ending, (0, 0)
        self.keras_runs.epoch_ended(callbacks, epoch)
        if ending[0] != id(callbacks):
            return
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            number = int(seams.CALLBACK_MODEL.of(callbacks).history.epoch[-1]) + 1
            self._open.log.ended_at.append(ending[1])
            self._open.log.ended_epoch.append(number)


def _count(value: Any) -> int:
    """A parameter of Keras' that is a count; 0 where it is none, or not known."""
    try:
        return max(int(value), 0)
    except (TypeError, ValueError, OverflowError):
        return 0


_RUN_ROW = KINDS.index(RUN)


class OwnLoop:
    """Takes the steps that a loop of the user's own makes: iterations over PyTorch, runs of LiteRT's.

    Args:
        open_steps: Given each of them.
        phase: What they are called.
    """

    def __init__(self, open_steps: OpenSteps, phase: str) -> None:
        """Nothing runs yet."""
        self._open, self._phase = open_steps, phase
        self._step: OpenStep | None = None
        self._begun = 0

    def begin(self, door: Marking | None) -> None:
        """A step begins, unless it is part of another."""
        opened = self._open
        if opened.is_inside_step or opened.is_in_run:
            return
        opened.report()
        step = self._step = opened.begin(None, USER, self._phase, self._begun)
        if step.was_traced and door is not None:
            with OwnFaults():  # then the step has no marker
                step.marker = door.mark_step(self._phase, self._begun)
            step.marked_ns = time.perf_counter_ns()
        opened.stack.append(step)
        self._begun += 1

    def end(self) -> None:
        """The open step, if there is one, has ended."""
        end_ns, step = time.perf_counter_ns(), self._taken()
        if step is not None:
            if step.marker is not None:
                self._open.end_marker(step)
            self._open.record(step, end_ns)
            self._open.report()

    def abandon(self, *, failed: bool = False) -> None:
        """The open step, if there is one, is none, or raised."""
        step = self._taken()
        if step is not None:
            self._begun -= not failed
            abandon_marker(step.marker)
        if step is not None and failed:
            self._open.fail(step, time.perf_counter_ns())

    def _taken(self) -> OpenStep | None:
        """Take the open step off the stack, first of all: an interrupt behind it leaves no step open."""
        step, self._step = self._step, None
        if step is None or step not in self._open.stack:
            return None
        self._open.stack.remove(step)
        return step


class SessionRuns:
    """Takes the session runs that are steps.

    Args:
        open_steps: Given each of them.
    """

    def __init__(self, open_steps: OpenSteps) -> None:
        """Nothing runs yet."""
        self._open = open_steps
        self._session_run: OpenStep | None = None
        self._session_runs = 0

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
        """A session run began and ended then, in no trace, told of here alone; 0 for the end if it raised.

        Returns:
            As ``run_ended``.
        """
        opened, number = self._open, self._session_runs
        gaps, log = opened.gaps, opened.log
        if not end_ns:
            run = OpenStep()
            run.name, run.begin_ns = SESSION_RUN, begin_ns
            opened.fail(run, time.perf_counter_ns())
            return True
        self._session_runs = number + 1
        first = len(log.cells) // WIDTH
        if hook_clock.is_on or first >= opened.next_clocked:
            opened.clock_hooks(first)
        if (opened.batch is None and not opened.stack) or not opened.is_inside_step:
            log.end_step(first, begin_ns, end_ns, SESSION_RUN, _RUN_ROW, 0, 0, 1, number, 0)
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
        tapes: Eager gradients.
        iterations: Those of loops over PyTorch.
        invokes: Runs of interpreters.
        session_runs: Those of TensorFlow 1.
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
        self.events, self.tapes = TraceEvents(self.open), TapeWatch(self.open)
        self.iterations, self.invokes = OwnLoop(self.open, TRAIN), OwnLoop(self.open, INVOKE)
        self.session_runs = SessionRuns(self.open)
        self.batches = KerasBatches(self.open, self.iterations.abandon, door_of_keras)
