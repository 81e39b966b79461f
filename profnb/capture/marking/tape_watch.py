"""Eager gradients to markers in the trace: TensorFlow itself writes nothing down when a tape computes one.

A loop over NumPy batches asks no tf.data for elements and calls no ``tf.function``; what it repeats is
``GradientTape.gradient``. While a trace is recorded, an instant marks where a tape is entered, and an event
each gradient, on the thread that runs the code, and only where nothing else makes the step. The latter has
a number for the calls that led to it, so that two tapes in turn can be told from one.

Where the next turn begins (a tape is entered, or a dataset asked for its next element) the capture is told
how many there were, so that an eager training is bounded as any other. Loops without gradients are not: they
may be a look at the data before the training that is to be traced. When tapes were entered and datasets asked
is kept whether a trace is recorded or not, so that turns that are not traced are timed.

Attributes of the watch: ``turns``.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from types import CodeType
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import Library
from profnb.capture.marking.open_steps import OpenSteps, end_marker
from profnb.capture.signals import OwnFaults
from profnb.capture.source.source_records import TurnRecords
from profnb.capture.source.user_code import callers
from profnb.capture.step_records import TAPE

_DEPTH, _MOST_SITES = 8, 1000
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
        self._sites: dict[tuple[tuple[int, int], ...], int] = {}
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
                hooks = {"before": self._gradient_begins, "after": self._gradient_ended}
                watching = tensorflow.watch(seams.TAPE_GRADIENT, **hooks)
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
        calls = [(frame.f_code, frame.f_lasti) for frame in islice(callers(), _DEPTH)]
        key = tuple((id(code), at) for code, at in calls)
        site = self._sites.get(key, _MOST_SITES)
        if site == _MOST_SITES > len(self._sites) and calls:
            site = self._sites[key] = len(self._sites)
            self._codes += [code for code, _ in calls]
            if any(part in calls[0][0].co_filename for part in _KERAS_FILES):
                self.turns.library_places.append(site)
        return site
