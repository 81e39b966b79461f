"""The traced window of a capture: opened with a profiler, closed by steps, by seconds, or by the code's own.

It closes by itself, on a thread of its own where time is up, and once: a window that has closed stays so. How
its end is found, for ``-t 10``, on the cell's own time::

    the profiler starts           the timer is set to 10 s
    the first step ends           it is set anew: what was traced and compiled before does not count
    10 s later, inside a step     2 s more, and the step that ends meanwhile closes the window
    no step has ended at all      2 s more each time, for 60 s at most, while the process grows little

It is bounded in events too. No profiler tells how many it holds, but what it holds is memory that it
allocated: 91 bytes for an event of eager ops, 148 for one of tf.data's (TensorFlow 2.21). Stopping, reading
and showing take 2.5 us for the former and up to 8 for the latter, whose threads go on meanwhile. How much is
allocated a step is learned from step to step and from longer stretch to longer stretch; of the last three
the smallest one counts, so that what a model allocates once does not, and no more than the processor time of
all threads can have recorded. The window closes with the step after which all that would take a twentieth
of the cell so far, and a quarter of a second.

TensorFlow and JAX allow one profiler per process. When the surrounded code starts its own, the window closes
first, so that code runs as it would have without us; when it has stopped, the window opens anew if little was
traced before. At the end the trace of most steps is the one to show: the last window's, an earlier one's, or
the code's own.
"""

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from profnb.capture.environment import allocated_bytes
from profnb.capture.hooks import Library
from profnb.capture.machine.memory_limits import resident_bytes
from profnb.capture.machine.waits import CoreClock
from profnb.capture.parts.cell_counters import OwnTime
from profnb.capture.profiler.doors import Doors
from profnb.capture.profiler.profiler_door import Door, first_line
from profnb.capture.profiler.tensorflow_door import is_called_by_a_capture
from profnb.capture.recording import NOT_ENDED, Recording
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.step_records import StepLog
from profnb.core.options import CaptureOptions

# How long a first step may take, in bounds of the window, and how much the process may grow meanwhile.
_LONGEST_WAIT, _MOST_GROWTH = 6, 1_500_000_000
_LONGEST_STOP_S = 120
_BYTES_AN_EVENT, _S_AN_EVENT = 100, 5e-6  # of stopping, reading and showing; see above
_LEAST_STOP_S, _STOP_SHARE = 0.25, 0.05
_FEWEST_TRACED = 4  # whatever they take
_STRETCHES = 3  # in each of which the process has to grow: in two it does by chance, as pools of threads fill
_EVENTS_A_S = 500_000  # of processor time; the most seen were 390,000, of tf.data's functions
_ENOUGH_STEPS = 10  # to show: no others are traced instead of them
_EARLIER = "earlier.xplane.pb"  # the trace of a window that the code's own profiler ended
_ENDS_THERE = "Your code started {} itself, so details end there; all steps were timed."
_NEVER_STOPPED = (
    f"A profiler had not started or stopped after {_LONGEST_STOP_S} seconds on another thread and left no "
    "trace. Restart the kernel if this persists."
)


class _Growth:
    """Follows what is allocated with each step that is traced."""

    def __init__(self) -> None:
        """No step has ended."""
        self._looked = 0, 0  # steps, and bytes in use then
        self._next = 1
        self._rates = (0.0,) * _STRETCHES  # bytes a step

    def of_steps(self, steps: int) -> float:
        """Estimate the bytes that so many steps hold; looked at anew now and then."""
        if steps >= self._next:
            before, bytes_before = self._looked
            now = allocated_bytes()
            if before:
                rate = max(now - bytes_before, 0) / (steps - before)
                self._rates = *self._rates[1:], rate
            self._looked, self._next = (steps, now), max(steps + 1, steps * 8 // 5)
        return min(self._rates) * steps


class Window:
    """Opens and closes.

    Args:
        options: What bounds it.
        recording: Told how long it was, what it cost and where the trace is.
        profilers: What records.
        source: What sees source lines while it is open.
        own_time: Charged with the time that stopping takes.
        has_begun: Whether something that may be a first step runs.
        hook_failed: Given every error of ours while it closes.

    Attributes:
        traced_steps: How many steps were recorded in it so far.
        closed: Called when it has closed.
        has_closed: Whether it has.
    """

    def __init__(
        self,
        options: CaptureOptions,
        recording: Recording,
        profilers: Doors,
        source: SourceWatch,
        own_time: OwnTime,
        has_begun: Callable[[], bool],
        hook_failed: Callable[[Exception], object],
    ) -> None:
        """Nothing is recorded yet."""
        self._options, self._recording, self._profilers = options, recording, profilers
        self._source, self._own_time, self._has_begun = source, own_time, has_begun
        self._hook_failed = hook_failed
        self._cores = CoreClock()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._since_ns: int | None = None
        self._is_due = False
        self._resident_before, self._cpu_before_s = 0, 0.0
        self._growth = _Growth()
        self._last_step_ns = self.traced_steps = 0
        self._opened: set[str] = set()  # titles of the profilers that were started, or tried
        self.closed: Callable[[], object] = lambda: None
        self.has_closed = False

    def is_open(self) -> bool:
        """True while a profiler records."""
        return self._since_ns is not None

    def was_opened(self, door: Door) -> bool:
        """Tell if this profiler was started in it, or tried to."""
        return door.title in self._opened

    def leave(self, door: Door) -> None:
        """Never start a profiler beside the code's own, which sets up its devices inside of its lock."""
        if self._may_open(door) and not self.was_opened(door):
            self._opened.add(door.title)
            self._recording.messages.append(
                f"The code started its own {door.title} profiler before profnb's. So {door.title}'s steps "
                "are timed here, and not traced."
            )

    def _may_open(self, door: Door) -> bool:
        is_asked = self._options.backend in (None, door.title.lower())
        return is_asked and not self.has_closed

    def open(self, door: Door) -> None:
        """Start a profiler, and the clock that stops it; an interrupt waits until both run.

        Where another one runs already, it joins that one's window. A window that has closed stays so.
        """
        with interrupt_held_back(), self._lock:
            if self._may_open(door):
                self._open(door)

    def _open(self, door: Door) -> None:
        recording = self._recording
        begin_ns = time.perf_counter_ns()
        is_first = self._since_ns is None
        self._opened.add(door.title)
        try:
            recording.folder = recording.folder or self._profilers.make_folder()
            self._profilers.start(door, recording.folder)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            recording.messages.append(
                f"The {door.title} profiler did not start ({first_line(error)}), so the code ran without a "
                "profiler. Restart the kernel if this persists."
            )
            return
        if not is_first:
            recording.overhead_ns += time.perf_counter_ns() - begin_ns
            return
        self._since_ns = time.perf_counter_ns()
        try:
            if self._profilers.runs(self._profilers.tensorflow):
                self._profilers.tensorflow.note_ignored_options()
            self._source.begin()
            self._resident_before, self._cpu_before_s = resident_bytes() or 0, time.process_time()
            self._cores.begin()
            now = self._since_ns = time.perf_counter_ns()
            recording.overhead_ns += now - begin_ns
            self._set_timer(self._options.max_seconds)
        except Exception:
            self.close("a fault")
            raise

    @property
    def may_open_again(self) -> bool:
        """True where the code's own profiler closed it, before there was enough to show."""
        is_of_code = self.has_closed and self._recording.closed_by == "the code"
        return is_of_code and self.traced_steps < _ENOUGH_STEPS

    def open_again(self, door: Door) -> bool:
        """The code has stopped a profiler of its own: record what follows, if little was before.

        Returns:
            Whether it records again; what was traced before is then of no trace any more.
        """
        if not self.may_open_again:
            return False
        self.stop_clock()
        self._growth, self._is_due = _Growth(), False
        self._last_step_ns = self.traced_steps = self._recording.window_ns = 0
        self.has_closed, self._recording.closed_by, self._recording.path = False, None, None
        self.open(door)
        return self.is_open()

    def _set_timer(self, seconds: float) -> None:
        seconds = min(seconds, threading.TIMEOUT_MAX)
        self._timer = threading.Timer(seconds, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    def _time_is_up(self) -> None:
        """Let a running step end, for a fifth of the window at most, then close."""
        if self._profilers.is_of_thread:  # which this is not
            self._is_due = True
            return
        if not self._last_step_ns and self._has_begun() and self._may_wait():
            self._set_timer(self._options.max_seconds / 5)
            return
        idle_ns = time.perf_counter_ns() - self._last_step_ns
        if not self._is_due and self._last_step_ns and idle_ns < self._options.max_seconds * 2e8:
            self._is_due = True
            self._set_timer(self._options.max_seconds / 5)
        else:
            self.close("seconds")

    def _may_wait(self) -> bool:
        """Tell if the window stays open for a first step that is still being traced, compiled or run.

        For six times the bound at most, and not while the trace grows fast: a step of many small ops
        fills the memory.
        """
        since = self._since_ns
        if since is None:
            return False
        waited_s = (time.perf_counter_ns() - since) / 1e9
        grown = (resident_bytes() or 0) - self._resident_before
        if waited_s < _LONGEST_WAIT * self._options.max_seconds and grown < _MOST_GROWTH:
            return True
        why = ""
        if grown >= _MOST_GROWTH:
            why = f" while this process grew by {grown / 1e9:.1f} GB"
        self._recording.messages.append(
            f"{NOT_ENDED} {waited_s:.3g} s after tracing began{why}, so tracing stopped inside the step. "
            "-t SECONDS waits longer (up to six times SECONDS)."
        )
        return False

    def _holds_enough(self) -> bool:
        """Tell if stopping now would take as long as it may."""
        if self._since_ns is None or not self._options.bounds_events:
            return False
        grown = self._growth.of_steps(self.traced_steps) / _BYTES_AN_EVENT
        events = min(grown, (time.process_time() - self._cpu_before_s) * _EVENTS_A_S)
        elapsed_s = (time.perf_counter_ns() - self._since_ns) / 1e9
        may_take_s = max(_LEAST_STOP_S, _STOP_SHARE * elapsed_s)
        return self.traced_steps >= _FEWEST_TRACED and events * _S_AN_EVENT >= may_take_s

    def stop_clock(self) -> None:
        """It closes by itself no more."""
        if self._timer is not None:
            self._timer.cancel()

    def step_recorded(self, traced_steps: int) -> None:
        """A step ended, of whose kind so many were recorded under trace by now."""
        is_first = not self._last_step_ns
        self.traced_steps = max(self.traced_steps, traced_steps)
        self._last_step_ns = time.perf_counter_ns()
        if is_first and self._since_ns is not None and self._timer is not None:
            self._timer.cancel()  # the bound counts from here
            self._set_timer(self._options.max_seconds)
        if traced_steps >= self._options.max_steps:
            self.close("steps")
        elif self._is_due:
            self.close("seconds")
        elif self._holds_enough():
            self.close("events")

    def close(self, closed_by: str | None) -> None:
        """Stop the profilers, if one runs; ``closed_by`` says what ended it, None for the capture's end.

        The capture's end, and code that starts a profiler of its own, wait for another thread that is
        stopping them: its trace is not there before, and no other profiler can start.
        """
        if self._since_ns is None and closed_by not in (None, "the code"):
            return
        with interrupt_held_back(), self._own_time.part("stop"):
            if not self._lock.acquire(timeout=_LONGEST_STOP_S):
                self._recording.messages.append(_NEVER_STOPPED)
                return
            try:
                if self._since_ns is not None:  # no other thread was faster
                    self._close(closed_by, self._since_ns)
            finally:
                self._lock.release()

    def _close(self, closed_by: str | None, since_ns: int) -> None:
        now = time.perf_counter_ns()
        recording = self._recording
        recording.window_ns += now - since_ns
        recording.closed_by = closed_by
        self._since_ns, self.has_closed = None, True
        recording.core_waits = self._cores.end()
        for end in (self._source.end, self._stop_profilers, self.closed):
            try:
                end()
            except Exception as error:  # noqa: BLE001, PERF203 - no profiler must be left running
                self._hook_failed(error)
        recording.overhead_ns += time.perf_counter_ns() - now

    def _stop_profilers(self) -> None:
        self._recording.path = self._profilers.stop(Path(self._recording.folder or ""))


class CodesProfiler:
    """Makes way for a profiler that the code starts by itself.

    Args:
        window: Closed as it starts.
        profilers: Ours.
        recording: Given the trace to show, and messages.
        log: The steps.

    Attributes:
        watches: What sees it started and stopped; closed when nobody needs to know any more.
    """

    def __init__(
        self, window: Window, profilers: Doors, recording: Recording, log: StepLog
    ) -> None:
        """None runs."""
        self._window, self._profilers = window, profilers
        self._recording, self._log = recording, log
        self.watches = ExitStack()
        self._thread = threading.get_ident()
        self._runs: tuple[str, int] | None = None  # where it writes, and since when
        self._ran: tuple[str, int, int] | None = None  # where the last one wrote, begin and end
        self._message = self._of_whom = ""
        self._earlier: list[int] = []  # of each step, whether a window before traced it

    def watch(self, library: Library, door: Door) -> None:
        """See a library's started and stopped, for which we have a door."""
        starting = {"before": partial(self.starts, door)}
        stopping = {"before": partial(self._stops, door), "after": partial(self._stopped, door)}
        both = starting, stopping
        for seam, function, hooks in zip(door.needed, door.functions, both, strict=True):
            self.watches.enter_context(library.watch_everywhere(seam, function, **hooks))

    def starts(self, door: Door, logdir: object = "", *_: object, **__: object) -> None:
        """The code starts one."""
        is_here = threading.get_ident() == self._thread
        if is_here and door is not self._profilers.torch:
            self._runs = str(logdir), time.perf_counter_ns()
        if door is self._profilers.torch and not is_here:
            self._profilers.torch.lose()
        elif self._profilers.runs(door):
            is_ours, was_open = is_called_by_a_capture(), self._window.is_open()
            self._window.close("the code")
            if was_open:
                self._of_whom = "a profnb capture" if is_ours else f"{door.title}'s profiler"
                self._message = _ENDS_THERE.format(self._of_whom)
        elif door is self._profilers.jax and not self._profilers.jax.is_set_up:
            self._window.leave(door)

    def _stops(self, door: Door, *_: object, **__: object) -> None:
        if self._profilers.runs(door):
            self._window.close("the code")
        if door is self._profilers.tensorflow and self._runs is None:
            self._profilers.tensorflow.give_back()

    def _stopped(self, door: Door, *_: object, **__: object) -> None:
        """The code has stopped a profiler of its own, which has written its trace."""
        if self._runs is None or threading.get_ident() != self._thread:
            return
        (logdir, begin_ns), self._runs = self._runs, None
        self._ran = logdir, begin_ns, time.perf_counter_ns()
        log, earlier = self._log, self._recording.path
        if self._window.open_again(door):
            traced = log.column("was_traced").tolist()
            if earlier is not None and sum(traced) > sum(self._earlier):
                earlier.replace(Path(self._recording.folder or "") / _EARLIER)
                self._earlier = traced
            log.set_traced()
            self._message = (
                f"Your code ran {self._of_whom} itself; details cover the steps after that."
            )

    def choose_trace(self) -> None:
        """Take the trace of more steps where the last window has none: the code's own, or an earlier one.

        And say what became of the code's own profiler.
        """
        log, folder = self._log, Path(self._recording.folder or "")
        if self._ran is not None and not self._window.traced_steps:
            logdir, *span = self._ran
            traces = Path(logdir).glob("plugins/profile/*/*.xplane.pb")
            written = max(traces, key=lambda trace: trace.stat().st_mtime, default=None)
            steps = log.steps_within(*span)
            if sum(self._earlier) >= max(sum(steps), 1):
                self._recording.path = folder / _EARLIER
                log.set_traced(self._earlier)
                self._message = _ENDS_THERE.format(self._of_whom)
            elif written is not None and self._recording.folder is not None:
                self._recording.path = folder / written.name
                shutil.copyfile(written, self._recording.path)
                log.set_traced(steps)
                whom = self._of_whom
                self._message = f"Your code ran {whom} itself; details come from its trace."
            self._recording.closed_by = "the code"
        if self._message:
            self._recording.messages.append(self._message)
