"""TensorFlow's profiler for one capture: started into a folder of its own, stopped, its trace kept."""

import inspect
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from profnb.capture.library import Library
from profnb.capture.profiler.held_back import profiler_log_held_back
from profnb.capture.profiler.ranks import Rank, find_rank
from profnb.capture.seams import ALREADY_RUNNING, PROFILER_OPTIONS, START, STOP, TRACE, VERSION
from profnb.capture.source.user_code import is_own_file
from profnb.core.options import CaptureOptions
from profnb.core.safe_files import folder_prefix

_QUIET_S = 0.5
_STARTS = ("_start_taking_over", "start")  # what calls a profiler of another capture


class ProfilerDoor:
    """Starts and stops the profiler.

    Args:
        options: What to record, and where to.
        messages: Where what went wrong is said.
    """

    title = "TensorFlow"
    is_of_thread = False

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        self._options, self._messages = options, messages
        self._tensorflow: Library | None = None
        self._start: Any = None
        self._stop: Any = None
        self._log: list[bytes] = []
        self.took_over = False
        self.rank: Rank | None = find_rank(options.rank)
        self._has_told = self._has_warned = False

    def find(self, tensorflow: Library) -> tuple[Any, Any] | None:
        """The functions that start and stop the profiler; None where one is missing."""
        self._tensorflow = tensorflow
        self._start, self._stop = tensorflow.take(START), tensorflow.take(STOP)
        return None if self._start is None or self._stop is None else (self._start, self._stop)

    def start(self, folder: str) -> None:
        """Start the profiler, taking over a session that is running already."""
        self._announce()
        with profiler_log_held_back() as log:
            self._start_taking_over(folder)
        self._log = log

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A marker in TensorFlow's trace, begun; None where it has none."""
        kind = None if self._tensorflow is None else self._tensorflow.take(TRACE)
        return None if kind is None else kind(phase, step_num=step_num, _r=1, **metadata)

    def mark(self, name: str) -> None:
        """Nothing: TensorFlow's own events tell what it fetches."""

    def stop(self, folder: Path) -> Path | None:
        """Stop it; the trace that it wrote, if any.

        Among others it waits a little first, so that nobody is in a collective any more: all ranks stop at
        one step. That it helps is not shown: 3 of 1,174 stops ended a process then, 9 of 1,255 beside them
        did without waiting (docs/what-was-tried.md).
        """
        if self.rank is not None and self.rank.is_collective:
            time.sleep(_QUIET_S)
        with profiler_log_held_back():
            self._stop()
        return self._find_trace(folder)

    def give_back(self) -> None:
        """Start a session for code that means to stop one that was taken over."""
        if self.took_over:
            self.took_over = False
            with profiler_log_held_back():
                self._start(tempfile.mkdtemp(prefix=folder_prefix()))

    def note_ignored_options(self) -> None:
        """TensorFlow 2.20 and 2.21 cannot read the options that their own API takes.

        They log it, but a log level may hide that.
        """
        options, default = self._options, CaptureOptions()
        asked = (options.host_level, options.python_tracer, options.device_tracer)
        if asked == (default.host_level, default.python_tracer, default.device_tracer):
            return
        version = str(VERSION.find())
        logged = any(b"_tracer_level expects" in line for line in self._log)
        if logged or version.startswith(("2.20.", "2.21.")):
            self._messages.append(
                f"TensorFlow {version} ignored the profiler options it was given (a defect of 2.20 "
                "and 2.21), so this trace has host level 2, the device, and no Python calls."
            )

    def _announce(self) -> None:
        """What a process of a job has to know before TensorFlow's profiler starts."""
        self.tell_of_others()
        if self.rank is not None and self.rank.is_collective and not self._has_warned:
            self._has_warned = True
            self._warn_of_crash()

    def tell_of_others(self) -> None:
        """Say that others are not shown here."""
        if self.rank is None or self._has_told:
            return
        self._has_told = True
        many = f" of {self.rank.processes:,}" if self.rank.processes else ""
        kept = "" if self._options.logdir else " Each has to keep its trace in one logdir for that."
        self._messages.append(
            f"This is process {self.rank.name}{many} of its job, and shows only itself; "
            f"profnb.load_fleet(logdir) shows all.{kept}"
        )
        if not self.rank.is_collective:
            self._messages.append(
                "This job has parameter servers: its workers do not go through common steps. The steps here "
                "are what this process ran, on a coordinator only the functions that it sent to workers, and "
                "not all steps of the training."
            )

    def _warn_of_crash(self) -> None:
        """Say, before it may happen and only then, what no result can say afterwards.

        Stopping, TensorFlow pairs the ends of events with their begins on other threads through pointers that
        may have been freed (TraceMeRecorder::Consume): collectives over gRPC are such events, and between
        one stop of a rank in a hundred and one in twelve ended with SIGSEGV or SIGABRT, also without profnb
        (TensorFlow 2.21; docs/what-was-tried.md).
        """
        self._messages.append(
            "TensorFlow's profiler may end a process that runs collectives with others when it stops "
            "(a defect of TensorFlow's; in our tests up to one stop in twelve): save checkpoints before a "
            "capture, and capture few steps."
        )
        if sys.stderr is not None:
            sys.stderr.write(f"profnb: {self._messages[-1]}\n")
            sys.stderr.flush()

    def _start_taking_over(self, folder: str) -> None:
        assert self._tensorflow is not None
        asked = self._options
        levels = (asked.host_level, int(asked.python_tracer), int(asked.device_tracer))
        options_type = self._tensorflow.take(PROFILER_OPTIONS)
        options = None
        if options_type is not None:
            options = options_type(**dict(zip(PROFILER_OPTIONS.keywords, levels, strict=True)))
        already_running = self._tensorflow.take(ALREADY_RUNNING) or _NeverRaisedError
        try:
            self._start(folder, options)
        except already_running:
            self._stop()
            self.took_over = True
            self._messages.append(
                "A TensorFlow profiler was already running (started by earlier code and never "
                "stopped); it was stopped, its trace saved to its own logdir, and this capture "
                "started."
            )
            self._start(folder, options)

    def _find_trace(self, folder: Path) -> Path | None:
        traces = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
        if not traces:
            self._messages.append(
                f"The TensorFlow profiler stopped but left no trace in "
                f"{self._options.logdir or folder}. Check that "
                "the folder is writable and the disk is not full."
            )
            return None
        return traces[-1]


def is_called_by_a_capture() -> bool:
    """Whether the code that starts a profiler is a capture's, inside of the code that another surrounds."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        if frame.f_code.co_name in _STARTS:
            return True
        frame = frame.f_back
    return False


class _NeverRaisedError(Exception):
    """Stands for an error that TensorFlow does not have any more."""


def first_line(error: Exception) -> str:
    """What an error says, in one line of 200 characters at most."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
