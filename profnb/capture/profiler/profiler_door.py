"""TensorFlow's profiler for one capture: started into a folder of its own, stopped, its trace kept."""

import inspect
import sys
import tempfile
from pathlib import Path
from typing import Any

from profnb.capture.library import Library
from profnb.capture.profiler.held_back import profiler_log_held_back
from profnb.capture.profiler.ranks import Rank, find_rank
from profnb.capture.seams import ALREADY_RUNNING, PROFILER_OPTIONS, START, STOP, VERSION
from profnb.capture.source.user_code import is_own_file
from profnb.core.options import CaptureOptions
from profnb.core.whole_files import claim_folder

_SUFFIX = ".xplane.pb"

__all__ = ["ProfilerDoor", "first_line", "is_called_by_a_capture"]


class ProfilerDoor:
    """Starts and stops the profiler.

    Args:
        options: What to record, and where to.
        messages: Where what went wrong is said.
    """

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        self._options, self._messages = options, messages
        self._tensorflow: Library | None = None
        self._start: Any = None
        self._stop: Any = None
        self._took_over = False
        self._logdir: Path | None = None
        self.rank: Rank | None = find_rank(options.rank)
        self._has_told = False

    def find(self, tensorflow: Library) -> tuple[Any, Any] | None:
        """The functions that start and stop the profiler; None where one is missing."""
        self._tensorflow = tensorflow
        self._start, self._stop = tensorflow.take(START), tensorflow.take(STOP)
        return None if self._start is None or self._stop is None else (self._start, self._stop)

    def make_folder(self) -> str:
        """A folder that is this capture's alone.

        TensorFlow names a run by the second in which it ends, so that two captures, of one kernel or of
        several, may write to one file. Inside of the logdir what is written need only be renamed.
        """
        if self._options.logdir is None:
            return tempfile.mkdtemp(prefix="profnb-")
        logdir = self._logdir = Path(self._options.logdir).expanduser().absolute()
        logdir.mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix=".profnb-", dir=logdir)

    def start(self, folder: str) -> list[bytes]:
        """Start the profiler, taking over a session that is running already; what it logged."""
        self._tell_of_others()
        with profiler_log_held_back() as log:
            self._start_taking_over(folder)
        return log

    def stop(self, folder: Path) -> Path | None:
        """Stop it; the trace that it wrote, if any."""
        with profiler_log_held_back():
            self._stop()
        return self._find_trace(folder)

    def give_back(self) -> None:
        """Start a session for code that means to stop one that was taken over."""
        if self._took_over:
            self._took_over = False
            with profiler_log_held_back():
                self._start(tempfile.mkdtemp(prefix="profnb-"))

    def note_ignored_options(self, log: list[bytes]) -> None:
        """TensorFlow 2.20 and 2.21 cannot read the options that their own API takes.

        They log it, but a log level may hide that.
        """
        options, default = self._options, CaptureOptions()
        asked = (options.host_level, options.python_tracer, options.device_tracer)
        if asked == (default.host_level, default.python_tracer, default.device_tracer):
            return
        version = str(VERSION.find())
        logged = any(b"_tracer_level expects" in line for line in log)
        if logged or version.startswith(("2.20.", "2.21.")):
            self._messages.append(
                f"TensorFlow {version} ignored the profiler options it was given (a defect of 2.20 "
                "and 2.21), so this trace has host level 2, the device, and no Python calls."
            )

    def _tell_of_others(self) -> None:
        """Say that others are not shown here, and what stopping may do to a process that works with them."""
        if self.rank is None or self._has_told:
            return
        self._has_told = True
        many = f" of {self.rank.processes:,}" if self.rank.processes else ""
        kept = "" if self._options.logdir else " Each has to keep its trace in one logdir for that."
        self._messages.append(
            f"This is process {self.rank.name}{many} of its job, and shows only itself; "
            f"profnb.load_fleet(logdir) shows all.{kept}"
        )
        if self.rank.is_collective:
            self._warn_of_crash()
        else:
            self._messages.append(
                "This job has parameter servers: its workers do not go through common steps. The steps here "
                "are what this process ran, on a coordinator only the functions that it sent to workers, and "
                "not all steps of the training."
            )

    def _warn_of_crash(self) -> None:
        """Say, before it may happen and only then, what no result can say afterwards.

        Stopping, TensorFlow pairs the ends of events with their begins on other threads through pointers that
        may have been freed (TraceMeRecorder::Consume): collectives over gRPC are such events, and about
        one in twelve captures of a rank ended with SIGSEGV or SIGABRT, also without profnb (TensorFlow 2.21).
        """
        self._messages.append(
            "TensorFlow's profiler may end a process that runs collectives with others when it stops "
            "(a defect of TensorFlow's; in our tests one capture in twelve): save checkpoints before a "
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
            self._took_over = True
            self._messages.append(
                "A TensorFlow profiler was already running (started by earlier code and never "
                "stopped); it was stopped, its trace saved to its own logdir, and this capture "
                "started."
            )
            self._start(folder, options)

    def _find_trace(self, folder: Path) -> Path | None:
        found = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
        if not found:
            self._messages.append(
                f"The TensorFlow profiler stopped but left no trace in {self._logdir or folder}. Check that "
                "the folder is writable and the disk is not full."
            )
            return None
        if self._logdir is None:
            return found[-1]
        try:
            return _publish(found[-1], folder, self._logdir, self.rank)
        except OSError as error:
            self._messages.append(
                f"The trace could not be kept in {self._logdir} ({first_line(error)}); this result has it."
            )
            return found[-1]


def _publish(trace: Path, folder: Path, logdir: Path, rank: Rank | None) -> Path:
    """Move a run from the folder it was written to into the logdir; where its trace is then.

    The processes of a job share the folder of the second in which they end, as TensorFlow's own do, and each
    has a name of its own there, HOST_RANK. Who is alone, or finds its name taken, gets a folder of its own.
    """
    runs, host = logdir / "plugins" / "profile", trace.name.removesuffix(_SUFFIX)
    name = host if rank is None else f"{host}_{rank.name}"
    run = _share_folder(runs, trace.parent.name, name) if rank is not None else None
    run = run or claim_folder(runs, trace.parent.name)
    for file in trace.parent.iterdir():
        is_own = file.name.startswith(f"{host}.")
        file.replace(run / (name + file.name.removeprefix(host) if is_own else file.name))
    for file in folder.iterdir():  # an empty event file, by which TensorBoard knows a logdir
        if file.is_file():
            file.replace(logdir / file.name)
    return run / f"{name}{_SUFFIX}"


def _share_folder(runs: Path, run: str, name: str) -> Path | None:
    """A run's folder, in which a name is now taken by an empty file; None where it was taken already."""
    folder = runs / run
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / f"{name}{_SUFFIX}").touch(exist_ok=False)
    except FileExistsError:
        return None
    return folder


def is_called_by_a_capture() -> bool:
    """Whether the code that starts a profiler is a capture's, inside of the code that another surrounds."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        if frame.f_code.co_name == "_start_taking_over":
            return True
        frame = frame.f_back
    return False


class _NeverRaisedError(Exception):
    """Stands for an error that TensorFlow does not have any more."""


def first_line(error: Exception) -> str:
    """What an error says, in one line of 200 characters at most."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
