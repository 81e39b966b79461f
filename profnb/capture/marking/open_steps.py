"""What has begun and not ended: steps, and what may turn out to be one.

What it holds while ``fit`` runs a batch whose tf.function calls another one. Time runs down::

    what happens                            batch       stack                     records
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

import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

from profnb.capture.parts.part_clock import PartClock
from profnb.capture.signals import OwnFaults
from profnb.capture.step_records import CALL, USER, OpenStep, StepRecords

__all__ = ["MARKER", "OpenSteps", "abandon_marker", "add_metadata", "end_marker"]

MARKER = "profnb_marker"  # the metadata that tells our markers from the user's


class OpenSteps:
    """What runs on one thread, and the steps that ended there.

    Args:
        is_tracing: Whether the profiler is recording right now.
        on_step: Called after each step with how many like it were recorded under trace; of function
            calls, only those of the function that has taken the most time count.
        parts: Told of each step, and of what may turn out to be one.

    Attributes:
        records: The steps that ended.
        stack: Markers, calls and iterations that run, outermost first.
        batch: Keras' batch that runs.
        runs: How many fits (evaluates, ...) of Keras began, by phase.
        is_in_run: Whether one runs, which has batches of its own.
    """

    def __init__(
        self,
        is_tracing: Callable[[], bool],
        on_step: Callable[[int], None],
        parts: PartClock,
    ) -> None:
        """Nothing runs, and the thread is the calling one."""
        self.is_tracing, self._on_step, self.parts = is_tracing, on_step, parts
        self._thread = threading.get_ident()
        self.records = StepRecords()
        self.stack: list[OpenStep] = []
        self.batch: OpenStep | None = None
        self.runs: dict[str, int] = {}
        self.is_in_run = False
        self._marking_ns = array("q")  # per record, what marking it took outside of it
        self._to_report: int | None = None
        self._code_of_name: dict[str, int] = {}
        self._traced: list[int] = []  # per name, how many were recorded under trace
        self._total_ns: list[int] = []

    def is_here(self) -> bool:
        """Whether this is the thread whose steps they are."""
        return threading.get_ident() == self._thread

    @property
    def has_begun(self) -> bool:
        """Whether a batch, a call or a marker runs."""
        return self.batch is not None or bool(self.stack)

    @property
    def is_outside(self) -> bool:
        """Whether nothing runs that is a step or may turn out to be one."""
        is_alone = not self.stack or all(span.kind is None for span in self.stack)
        return self.batch is None and is_alone

    @property
    def is_inside_step(self) -> bool:
        """Whether what begins now is part of a step: of a batch, or of one that has a marker."""
        return self.batch is not None or any(span.kind == USER for span in self.stack)

    def innermost(self) -> OpenStep | None:
        """The batch, else the first step that is marked (Keras 2 marks its own)."""
        return self.batch or next((span for span in self.stack if span.kind == USER), None)

    def begin(
        self, marker: object, kind: str | None, name: str, step_num: int | None = None
    ) -> OpenStep:
        """Something begins; the caller keeps it, on the stack or as the batch."""
        first = len(self.records)
        number = first if step_num is None else step_num
        span = OpenStep(
            marker, kind, name, time.perf_counter_ns(), first, self.is_tracing(), number
        )
        self.parts.step_began(span)
        return span

    def marker_began(self, span: OpenStep) -> None:
        """A marker of ours has begun: what passed since its step did lies before it in the trace."""
        span.marked_ns = time.perf_counter_ns()

    def end_marker(self, span: OpenStep) -> None:
        """End a step's marker of ours, if there is one: what passes then lies behind it in the trace."""
        end_marker(span.marker)
        span.unmarked_ns = time.perf_counter_ns()

    def record(self, span: OpenStep, end_ns: int, *, was_traced: bool = False) -> None:
        """It ended and is a step; steps inside it are none."""
        self.parts.step_ended(span, is_step=True)
        code = self._code_of_name.setdefault(span.name, len(self.records.names))
        if code == len(self.records.names):
            self.records.names.append(span.name)
            self._traced.append(0)
            self._total_ns.append(0)
        self.records.truncate(span.first_record)  # calls inside it are part of it
        was_traced |= span.was_traced and self.is_tracing()
        self.records.append(
            span.begin_ns,
            end_ns,
            code,
            self.records.kinds.index(span.kind or CALL),
            was_traced,
            span.retraced,
            span.iterations,
            span.step_num,
            self.runs.get(span.name, 0),
        )
        self._traced[code] += was_traced
        self._total_ns[code] += end_ns - span.begin_ns
        if span.kind != CALL or self._total_ns[code] == max(self._total_ns):
            self._to_report = self._traced[code]
        del self._marking_ns[span.first_record :]
        before_ns = (span.marked_ns or span.begin_ns) - span.begin_ns
        behind_ns = time.perf_counter_ns() - (span.unmarked_ns or end_ns)
        self._marking_ns.append(before_ns + behind_ns if was_traced else 0)

    @property
    def marking_ns(self) -> int:
        """What marking a traced step took outside of it, on average."""
        traced = [took for took in self._marking_ns[: len(self.records)] if took]
        return sum(traced) // max(len(traced), 1)

    def drop(self, span: OpenStep, *, failed: bool = False) -> None:
        """It ended and is no step."""
        self.parts.step_ended(span, is_step=False, failed=failed)

    def report(self) -> None:
        """Tell of the last step, which may close the window and take a while.

        Never from a hook that runs as an object is released: an interrupt there would be lost.
        """
        steps, self._to_report = self._to_report, None
        if steps is not None:
            self._on_step(steps)


def add_metadata(trace: Any, **metadata: object) -> None:
    """Add metadata of ours to a trace event; where TensorFlow takes it no more, that is in the notes."""
    with OwnFaults():
        trace.set_metadata(**metadata)


def abandon_marker(trace: Any) -> None:
    """End a marker of ours, if there is one, of what is no step."""
    add_metadata(trace, profnb_abandoned=1)
    end_marker(trace)


def end_marker(trace: Any) -> None:
    """End a marker of ours, if there is one; what goes wrong there is not the user's."""
    if trace is None:
        return
    with OwnFaults():
        trace.__exit__(None, None, None)
