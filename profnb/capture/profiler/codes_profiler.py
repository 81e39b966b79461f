"""A profiler that the code starts by itself, beside ours.

TensorFlow and JAX allow one profiler per process. When the surrounded code starts its own, our window closes
first, so that code runs as it would have without us; when it has stopped, our window opens anew if little was
traced before. At the end the trace of most steps is the one to show: the last window's, an earlier one's, or
the code's own.
"""

import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from profnb.capture.library import Library
from profnb.capture.profiler.doors import Door, Doors
from profnb.capture.profiler.profiler_door import is_called_by_a_capture
from profnb.capture.profiler.window import Window
from profnb.capture.recording import Recording
from profnb.capture.seams import Seam
from profnb.capture.step_records import StepLog

_EARLIER = "earlier.xplane.pb"  # the trace of a window that the code's own profiler ended
_ENDS_THERE = "Your code started {} itself, so details end there; all steps were timed."


class CodesProfiler:
    """Makes way for it.

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

    def watch(
        self, library: Library, door: Door, seams: Sequence[Seam], functions: Sequence[Any]
    ) -> None:
        """See one started and stopped.

        Args:
            library: Whose it is.
            door: Ours for the same.
            seams: The names of the functions that start and stop it.
            functions: These functions.
        """
        starting = {"before": partial(self.starts, door)}
        stopping = {"before": partial(self._stops, door), "after": partial(self._stopped, door)}
        for seam, function, hooks in zip(seams, functions, (starting, stopping), strict=True):
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
            log.forget_traced()
            self._message = (
                f"Your code ran {self._of_whom} itself; details cover the steps after that."
            )

    def choose_trace(self) -> None:
        """Where the last window has no step, take the trace of more steps: the code's own, or an earlier one.

        And say what became of the code's own profiler.
        """
        log, folder = self._log, Path(self._recording.folder or "")
        if self._ran is not None and not self._window.traced_steps:
            logdir, *span = self._ran
            traces = Path(logdir).glob("plugins/profile/*/*.xplane.pb")
            written = sorted(traces, key=lambda trace: trace.stat().st_mtime)
            steps = log.steps_within(*span)
            if sum(self._earlier) >= max(sum(steps), 1):
                self._recording.path = folder / _EARLIER
                log.set_traced(self._earlier)
                self._message = _ENDS_THERE.format(self._of_whom)
            elif written and self._recording.folder is not None:
                self._recording.path = folder / written[-1].name
                shutil.copyfile(written[-1], self._recording.path)
                log.set_traced(steps)
                whom = self._of_whom
                self._message = f"Your code ran {whom} itself; details come from its trace."
            self._recording.closed_by = "the code"
        if self._message:
            self._recording.messages.append(self._message)
