"""Steps that have begun and not ended, and what may turn out to be one.

Here is what stands in them while ``fit`` runs a batch whose tf.function calls another one. Time runs down::

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

TensorFlow itself writes nothing down when a tape computes a gradient, so eager ones are marked. A loop over
NumPy batches asks no tf.data for elements and calls no ``tf.function``; what it repeats is
``GradientTape.gradient``. While a trace is recorded, an instant marks where a tape is entered, and an event
each gradient, on the thread that runs the code, and only where nothing else makes the step. The latter has a
number for the calls that led to it, so that two tapes in turn can be told from one.

Where the next turn begins (a tape is entered, or a dataset asked for its next element) the capture is told
how many there were, so that an eager training is bounded as any other. Loops without gradients are not: they
may be a look at the data before the training that is to be traced. When tapes were entered and datasets asked
is kept whether a trace is recorded or not, so that turns that are not traced are timed.
"""

import inspect
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import sub
from types import CodeType
from typing import Any

from profnb.capture import seams
from profnb.capture.hook_clock import hook_clock
from profnb.capture.hooks import Library
from profnb.capture.signals import OwnFaults
from profnb.capture.source.source_records import TurnRecords
from profnb.capture.source.user_code import is_own_file
from profnb.capture.step_records import CALL, KINDS, TAPE, USER, WIDTH, OpenStep, StepLog

_CLOCKED_EACH = 16  # steps
MARKER = "profnb_marker"  # the metadata that tells our markers from the user's


class Gaps:
    """Hears of gaps between steps; this one of none.

    Attributes:
        is_on: Whether a gap is heard of right now.
        next_ns: From when on the next one is to be heard of, by ``time.perf_counter_ns``.
    """

    is_on, next_ns = False, sys.maxsize

    def begin(self) -> None:
        """A step has ended."""

    def end(self) -> None:
        """The next one begins."""


class OpenSteps:
    """Keeps what runs on one thread, and the steps that ended there.

    Args:
        is_tracing: Whether the profiler is recording right now.
        on_step: Called after each step with how many like it were recorded under trace; of function
            calls, only those of the function that has taken the most time count.
        gaps: Told when what lies between two steps begins, and ends.

    Attributes:
        log: The steps that ended.
        stack: Markers, calls and iterations that run, outermost first.
        batch: Keras' batch that runs.
        runs: How many fits (evaluates, ...) of Keras began, by phase.
        on_step: As given.
        is_in_run: Whether one runs, which has batches of its own.
        counts_only: Whether no trace is recorded from here on. What ends then is counted, in as few frames as
            can be: a step of half a millisecond may take 2 % longer at most.
        thread: The thread whose steps they are.
        gaps: Told when what lies between two steps begins, and ends.
        next_clocked: From which step on hooks are clocked again.
    """

    def __init__(
        self,
        is_tracing: Callable[[], bool],
        on_step: Callable[[int], None],
        gaps: Gaps | None = None,
    ) -> None:
        """Nothing runs, and the thread is the calling one."""
        self.is_tracing, self.on_step, self.gaps = is_tracing, on_step, gaps or Gaps()
        self.thread = threading.get_ident()
        self.log = StepLog()
        self.stack: list[OpenStep] = []
        self.batch: OpenStep | None = None
        self.runs: dict[str, int] = {}
        self.is_in_run = self.counts_only = False
        # What hooks had taken as each step that is clocked began, and as it began to count only.
        self._took_ns: list[int] = []
        self._counted_from, self._clocked_row, self.next_clocked = sys.maxsize, -1, 0
        hook_clock.is_on = True  # in the call that begins the first step, too
        self._marking_ns: dict[int, int] = {}  # by row, what marking took outside of a traced step
        self._to_report: int | None = None
        self._traced: dict[str, int] = {}  # how many were recorded under trace
        self._total_ns: dict[str, int] = {}

    def is_here(self) -> bool:
        """True on the thread whose steps they are."""
        return threading.get_ident() == self.thread

    @property
    def has_begun(self) -> bool:
        """True where something that may be a first step runs: a batch, a call, a marker, a fit."""
        return self.batch is not None or bool(self.stack) or bool(self.runs)

    @property
    def is_outside(self) -> bool:
        """True where nothing runs that is a step or may turn out to be one."""
        if self.batch is not None:
            return False
        for span in self.stack:  # noqa: SIM110 - as below
            if span.kind is not None:
                return False
        return True

    @property
    def is_inside_step(self) -> bool:
        """True where what begins now is part of a step: of a batch, or of one that has a marker."""
        if self.batch is not None:
            return True
        for span in self.stack:  # noqa: SIM110 - of one or two; a generator takes as long as all the rest
            if span.kind == USER:
                return True
        return False

    def innermost(self) -> OpenStep | None:
        """The batch, else the first step that is marked (Keras 2 marks its own)."""
        return self.batch or next((span for span in self.stack if span.kind == USER), None)

    def begin(
        self, marker: object, kind: str | None, name: str, step_num: int | None = None
    ) -> OpenStep:
        """Something begins; the caller keeps it, on the stack or as the batch."""
        # What a callback calls is the callback's, and no step.
        if self.gaps.is_on and not (self.is_in_run and kind == CALL):
            self.gaps.end()
        span = OpenStep()
        span.marker, span.kind, span.name = marker, kind, name
        span.first_record = first = len(self.log.cells) // WIDTH  # ``len(log)`` is a frame
        span.was_traced = not self.counts_only and self.is_tracing()
        span.step_num = first if step_num is None else step_num
        if hook_clock.is_on or first >= self.next_clocked:
            self.clock_hooks(first)
        span.begin_ns = time.perf_counter_ns()
        return span

    def end_marker(self, span: OpenStep) -> None:
        """End a step's marker of ours, if there is one: what passes then lies behind it in the trace."""
        end_marker(span.marker)
        span.unmarked_ns = time.perf_counter_ns()

    def record(self, span: OpenStep, end_ns: int, *, was_traced: bool = False) -> None:
        """It ended and is a step; steps inside it are none."""
        name = span.name
        was_traced = was_traced or (span.was_traced and self.is_tracing())
        self.log.end_step(
            span.first_record,  # calls inside it are part of it
            span.begin_ns,
            end_ns,
            name,
            KINDS.index(span.kind or CALL),
            was_traced,
            span.retraced,
            span.iterations,
            span.step_num,
            self.runs.get(name, 0) if self.is_in_run else 0,
        )
        if was_traced or (not self.counts_only and self.is_tracing()):
            self._count(span, end_ns, was_traced=was_traced)
        elif end_ns >= self.gaps.next_ns and not self.gaps.is_on:
            self.gaps.begin()

    def _count(self, span: OpenStep, end_ns: int, *, was_traced: bool) -> None:
        """Tell the window of a step; the part of it that is only timed needs none of this."""
        name, traced, total = span.name, self._traced, self._total_ns
        traced[name] = traced.get(name, 0) + was_traced
        total[name] = total.get(name, 0) + end_ns - span.begin_ns
        if span.kind != CALL or total[name] == max(total.values()):
            self._to_report = traced[name]
        before_ns = (span.marked_ns or span.begin_ns) - span.begin_ns
        behind_ns = time.perf_counter_ns() - (span.unmarked_ns or end_ns)
        self._marking_ns[len(self.log) - 1] = before_ns + behind_ns if was_traced else 0

    @property
    def marking_ns(self) -> int:
        """Mean time that marking a traced step took outside of it."""
        traced = [took for row, took in self._marking_ns.items() if took and row < len(self.log)]
        return sum(traced) // max(len(traced), 1)

    def count_only(self) -> None:
        """Record no trace from here on."""
        self.counts_only, self._counted_from = True, len(self._took_ns)
        self._took_ns.append(hook_clock.took_ns[self.thread])
        self.next_clocked = len(self.log) + 1  # the window closes in this
        hook_clock.is_on = False

    def clock_hooks(self, row: int) -> None:
        """Clock the hooks of a step and those between it and the next; behind the window, of a few."""
        if row >= self.next_clocked:
            self._took_ns.append(hook_clock.took_ns[self.thread])
            self._clocked_row = row
            self.next_clocked = row + (_CLOCKED_EACH if self.counts_only else 1)
        hook_clock.is_on = row == self._clocked_row

    @property
    def hooks_ns(self) -> tuple[int, int]:
        """What hooks took for each step that was only counted, and for each before; 0 for none.

        Means without the largest, in which a profiler may have begun or a run ended.
        """
        took, at = [*self._took_ns, hook_clock.took_ns[self.thread]], self._counted_from
        longer = list(map(sub, took[1:], took))
        counted, before = (
            sorted(each)[:-1] for each in (longer[at + 1 :], longer[: max(at - 1, 0)])
        )
        return sum(counted) // max(len(counted), 1), sum(before) // max(len(before), 1)

    def fail(self, span: OpenStep, end_ns: int) -> None:
        """It ended with an exception, and is no step; what it is part of fails instead of it."""
        if self.batch is None and not self.stack:
            self.log.failed.append((span.name, span.begin_ns, end_ns))

    def report(self) -> None:
        """Tell of the last step, which may close the window and take a while."""
        steps, self._to_report = self._to_report, None
        if steps is not None:
            begin_ns = time.perf_counter_ns()
            self.on_step(steps)
            # Closing is no hook's.
            hook_clock.took_ns[self.thread] -= time.perf_counter_ns() - begin_ns
            if not self.gaps.is_on and time.perf_counter_ns() >= self.gaps.next_ns:
                self.gaps.begin()


def add_metadata(trace: Any, **metadata: object) -> None:
    """Add metadata of ours to a trace event; where TensorFlow takes it no more, that is in the notes."""
    with OwnFaults():
        trace.set_metadata(**metadata)


def abandon_marker(trace: Any) -> None:
    """End a marker of ours, if there is one, of what is no step."""
    if trace is not None:
        add_metadata(trace, profnb_abandoned=1)
        end_marker(trace)


def end_marker(trace: Any) -> None:
    """End a marker of ours, if there is one; what goes wrong there is not the user's."""
    if trace is None:
        return
    with OwnFaults():
        trace.__exit__(None, None, None)


_DEPTH, _MOST_SITES = 11, 1000  # three of which are ours
_KERAS_FILES = ("/keras/src/", "/tf_keras/src/")


class TapeWatch:
    """Marks tapes and gradients of one thread, and keeps where turns may have begun.

    Args:
        opened: What runs that is a step itself. Told, while a trace is recorded, where a next turn may begin,
            how often the gradient that was computed most often was, if any was since the last time.
    """

    def __init__(self, opened: OpenSteps) -> None:
        """Start with no tape."""
        self.turns = TurnRecords()
        self._opened, self._is_tracing = opened, opened.is_tracing
        self._iterators = weakref.WeakKeyDictionary[Any, tuple[int, int]]()
        self._asked = 0  # how many iterators were
        self._last_asked: Callable[[], object] = lambda: None
        self._last_known = 0, 0
        self._times: dict[int, int] = {}  # how often each gradient was computed
        self._last_numbers: dict[int, int] = {}  # of which tape the last one was
        self._has_turned = False
        self._is_eager: Any = None
        self._trace_type: Any = None
        self._first_tape: Callable[[], object] | None = None
        self._numbers = weakref.WeakKeyDictionary[Any, int]()
        self._tapes = 0
        self._open: dict[int, Any] = {}  # by the tape's id: the gradient's event
        self._sites: dict[tuple[int, ...], int] = {}
        self._codes: list[CodeType] = []  # of the sites; kept, as they are known by their ids

    @contextmanager
    def watch_turns(self, tensorflow: Library) -> Iterator[None]:
        """See tapes entered and datasets asked inside the block."""
        self._is_eager = tensorflow.take(seams.EXECUTING_EAGERLY)
        self._trace_type = tensorflow.take(seams.TRACE)
        with ExitStack() as stack:
            if self._is_known():
                stack.enter_context(tensorflow.watch(seams.TAPE_ENTER, before=self._entered))
                stack.enter_context(tensorflow.watch(seams.NEXT_ELEMENT, before=self._asks))
            yield

    @contextmanager
    def watch_gradients(self, tensorflow: Library) -> Iterator[None]:
        """See gradients computed inside the block, from the first tape of eager code on."""
        with ExitStack() as stack:
            if self._is_known():
                watching = tensorflow.watch(
                    seams.TAPE_GRADIENT, before=self._gradient_begins, after=self._gradient_ended
                )
                self._first_tape = partial(stack.enter_context, watching)
            yield
        self._first_tape = None

    def _is_known(self) -> bool:
        return self._is_eager is not None and self._trace_type is not None

    def _is_outside(self) -> bool:
        return self._opened.is_outside and bool(self._is_eager())

    def _asks(self, iterator: Any, *_: object) -> None:
        """An element is asked for by eager code: of very many each must cost next to nothing."""
        if not self._opened.is_outside:
            return
        now = time.perf_counter_ns()
        if self._has_turned:
            self._turn_ends()
        if self._last_asked() is not iterator:
            number_and_place = self._iterators.get(iterator)
            if number_and_place is None:
                number_and_place = self._iterators[iterator] = self._asked, self._site()
                self._asked += 1
            self._last_asked, self._last_known = weakref.ref(iterator), number_and_place
        number, place = self._last_known
        self.turns.add(now, place, number, self._is_tracing())

    def _turn_ends(self) -> None:
        if self._has_turned and self._is_tracing() and self._is_outside():
            self._has_turned = False
            self._opened.on_step(max(self._times.values()))

    def _entered(self, tape: object, *_: object) -> None:
        if not self._is_outside():
            return
        now, is_tracing = time.perf_counter_ns(), self._is_tracing()
        self._turn_ends()
        self.turns.add(now, self._site(), -1, is_tracing)
        if is_tracing and self._is_tracing():
            first_tape, self._first_tape = self._first_tape, None
            if first_tape is not None:
                first_tape()
            self._tapes += 1
            self._numbers[tape] = self._tapes
            end_marker(self._mark("GradientTape", profnb_tape=self._tapes))

    def _gradient_begins(self, tape: object, *_: object, **__: object) -> None:
        if self._is_tracing() and self._is_outside():
            number, site = self._numbers.get(tape, 0), self._site()
            # What a persistent tape is asked for again and again is one turn, unless it is the only tape.
            if self._tapes < 2 or not number or self._last_numbers.get(site) != number:
                self._times[site] = self._times.get(site, 0) + 1
            self._last_numbers[site] = number
            self._has_turned = True
            mark = self._mark("GradientTape.gradient", profnb_tape=number, profnb_tape_site=site)
            self._open[id(tape)] = mark

    def _gradient_ended(self, tape: object, *_: object, **__: object) -> None:
        end_marker(self._open.pop(id(tape), None))

    def _mark(self, name: str, **metadata: int) -> Any:
        """Begin an event; where TensorFlow takes it no more, that is in the notes."""
        with OwnFaults():
            return self._trace_type(name, profnb_marker=TAPE, **metadata)
        return None

    def _site(self) -> int:
        """Number the calls that led here, the innermost ones, wherever two stand in one line."""
        frame, places = inspect.currentframe(), list[int]()
        codes: list[CodeType] = []
        while frame is not None and len(codes) < _DEPTH:  # ours too, which are the same each time
            codes.append(frame.f_code)
            places.append(frame.f_lasti)
            frame = frame.f_back
        key = (*map(id, codes), *places)
        site = self._sites.get(key, _MOST_SITES)
        if site == _MOST_SITES > len(self._sites):
            site = self._sites[key] = len(self._sites)
            self._codes += codes
            theirs = (one.co_filename for one in codes if not is_own_file(one.co_filename))
            if any(part in next(theirs, "") for part in _KERAS_FILES):
                self.turns.library_places.append(site)
        return site
