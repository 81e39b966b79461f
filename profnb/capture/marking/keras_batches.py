"""Keras' batches to steps: of ``fit``, ``evaluate`` and ``predict``, and single ones.

A batch runs from the end of the callbacks' ``on_*_batch_begin`` to the start of their ``on_*_batch_end``.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.library import Library
from profnb.capture.marking.open_steps import (
    MARKER,
    OpenSteps,
    abandon_marker,
    add_metadata,
    end_marker,
)
from profnb.capture.seams import (
    BATCH_BEGIN,
    BATCH_END,
    CALLBACK_MODEL,
    EPOCH_END,
    ON_BATCH,
    RUN_BEGIN,
    RUN_END,
    STEPS_PER_EXECUTION,
)
from profnb.capture.signals import OwnFaults
from profnb.capture.step_records import KERAS, Marking, OpenStep
from profnb.capture.underway.keras_runs import KerasRuns
from profnb.trace.names import NEXT_BATCH

__all__ = ["KerasBatches"]


class KerasBatches:
    """Sees Keras' batches and epochs.

    Args:
        open_steps: Given each batch.
        abandon_iteration: Called before each: an iteration of the user's own that is open is none.
        door: The profiler that records what Keras does; None where nothing does.

    Attributes:
        keras_runs: Where the fit that runs stands.
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
        self._untraceable: OpenStep | None = None
        self._batches_begun = 0
        self._ending = 0, 0  # callbacks whose epoch ends, and how many steps were recorded by then
        self._iterations: dict[int, int] = {}  # per model, its steps_per_execution
        self._fetching: Any = None  # marks that Keras fetches a batch

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """See Keras' batches inside the block."""
        with ExitStack() as stack:
            for phase in BATCH_BEGIN:
                self._watch_phase(keras, phase, stack)
            stack.enter_context(
                keras.watch(EPOCH_END, before=self._epoch_ends, after=self._epoch_ended)
            )
            stack.enter_context(self.keras_runs.watch(keras))
            yield

    def _watch_phase(self, keras: Library, phase: str, stack: ExitStack) -> None:
        """See "train", "test" or "predict"."""

        def began(_: object) -> None:
            self._batch_began(phase)

        def run_began(_: object) -> None:
            self._batch_abandoned()
            self._open.runs[phase] = self._open.runs.get(phase, 0) + 1
            self._open.is_in_run = self._open.is_here()

        def run_ends(_: object) -> None:
            self._batch_abandoned()
            self._open.is_in_run = False

        batch_end = keras.watch(BATCH_END[phase], before=self._callbacks_ended)
        if keras.take(BATCH_END[phase]) is not None:  # else they would never end
            stack.enter_context(keras.watch(BATCH_BEGIN[phase], after=began))
        stack.enter_context(batch_end)
        stack.enter_context(keras.watch(RUN_BEGIN[phase], before=run_began))
        stack.enter_context(keras.watch(RUN_END[phase], before=run_ends))
        one = keras.watch(ON_BATCH[phase], before=began, after=self._call_ended)
        stack.enter_context(one)

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

    def _batch_began(self, phase: str) -> None:
        self._batch_abandoned()
        if not self._open.is_here():
            return
        self._abandon_iteration()
        door = self._door()
        if door is None:  # Keras on a backend of no profiler: no step, but part of the cell
            self._untraceable = OpenStep(None, KERAS, phase, 0, 0, was_traced=False, step_num=0)
            self._open.parts.step_began(self._untraceable)
            return
        self._open.report()
        if self._open.is_inside_step:
            return
        batch = self._open.batch = self._open.begin(None, KERAS, phase, self._batches_begun)
        with OwnFaults():  # then the step has no marker
            batch.marker = door.mark_step(phase, self._batches_begun, **{MARKER: KERAS})
        self._open.marker_began(batch)
        self._batches_begun += 1

    def _batch_ended(self) -> None:
        if not self._open.is_here():
            return
        if self._untraceable is not None:
            self._open.parts.step_ended(self._untraceable, is_step=True)
            self._untraceable = None
        if self._open.batch is None:
            return
        batch, end_ns = self._open.batch, time.perf_counter_ns()
        self._open.end_marker(batch)
        self._open.batch = None
        self._open.record(batch, end_ns)

    def _batch_abandoned(self, *, failed: bool = False) -> None:
        if not self._open.is_here():
            return
        if self._untraceable is not None:
            self._open.drop(self._untraceable, failed=failed)
            self._untraceable = None
        if self._open.batch is None:
            return
        batch, self._open.batch = self._open.batch, None
        self._open.drop(batch, failed=failed)
        abandon_marker(batch.marker)
        self._batches_begun -= 1
        self._open.records.truncate(batch.first_record)

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
        if not self._open.is_here():
            return
        iterations = self._iterations_of(CALLBACK_MODEL.of(callbacks))
        span = self._open.innermost()
        if span is not None and iterations > 1:
            span.iterations = iterations
            add_metadata(span.marker, profnb_iterations=iterations)
        if span is not None:
            self.keras_runs.batch_ended(span.name, iterations)
        self._batch_ended()
        self._open.report()

    def _call_ended(self, _: object) -> None:
        """A ``train_on_batch`` and the like returned or raised."""
        if self._open.batch is not None and self._open.batch.failed:
            self._batch_abandoned(failed=True)
        else:
            self._batch_ended()

    def _epoch_ends(self, callbacks: object) -> None:
        self._batch_abandoned()
        self._ending = id(callbacks), len(self._open.records)

    def _epoch_ended(self, callbacks: Any) -> None:
        """Keras' own history, which is first told of an epoch, has its number."""
        ending, self._ending = self._ending, (0, 0)
        if not self._open.is_here() or ending[0] != id(callbacks):
            return
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            number = int(CALLBACK_MODEL.of(callbacks).history.epoch[-1]) + 1
            self._open.records.ended_at.append(ending[1])
            self._open.records.ended_epoch.append(number)
