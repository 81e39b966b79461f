"""Running code to one bounded trace: the only door to the TensorFlow profiler.

A ``Capture`` starts the profiler, closes the window by itself after a number of steps or seconds, and
keeps timing steps until it is finished. It never fails the code it surrounds: what goes wrong with
the profiler is said in ``messages``. TensorFlow and Keras need not be imported yet; the capture
begins when they are. Their names come from ``seams``; a missing one costs what hangs on it, and one sentence.

TensorFlow allows one profiler session per process. A session that is already running is stopped, its
trace saved where its owner asked, and that is said; when the surrounded code starts a profiler of its
own, our window closes first, so that code runs as it would have without us.
"""

import inspect
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from profnb.capture.environment import (
    describe_environment,
    explain_nothing,
    list_devices,
    resident_bytes,
)
from profnb.capture.held_back import interrupt_held_back, profiler_log_held_back
from profnb.capture.histories import watch_fits
from profnb.capture.hooks import WatchedCall, on_import, replace_attribute
from profnb.capture.library import Library, explain_missing
from profnb.capture.markers import StepRecorder
from profnb.capture.models.model_watch import ModelWatch
from profnb.capture.parts.part_clock import PartClock
from profnb.capture.parts.part_watch import PartWatch
from profnb.capture.recording import Recording
from profnb.capture.retracings import find_changing_arguments
from profnb.capture.seams import (
    ALREADY_RUNNING,
    MODEL,
    PROFILER_OPTIONS,
    SHELL,
    START,
    STOP,
    VERSION,
    Seam,
)
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.source.tape_watch import TapeWatch
from profnb.capture.source.user_code import is_own_file
from profnb.capture.step_records import RUN
from profnb.core.options import CaptureOptions
from profnb.core.whole_files import claim_folder
from profnb.tf1.session_runs import GraphRuns

__all__ = ["Capture", "Recording"]

# How long a first step may take, in bounds of the window, and how much the process may grow meanwhile.
_LONGEST_WAIT, _MOST_GROWTH = 6, 1_500_000_000


class Capture:
    """One bounded capture around running code.

    Args:
        options: What to record and for how long.
        traces: Whether to record a trace; without one, steps are only timed.
    """

    def __init__(self, options: CaptureOptions, *, traces: bool = True) -> None:
        """Prepare; nothing starts before ``start``."""
        self.options = options
        self.recording = Recording()
        self.parts = PartClock()
        self.recorder = StepRecorder(self._is_tracing, self._step_recorded, self.parts)
        self._tapes = TapeWatch(lambda: self._is_tracing() and self.recorder.is_outside)
        self._traces = traces
        self.graph_runs = GraphRuns(
            options.max_steps if traces else 0,
            options.max_seconds,
            self._session_runs_begin,
            self.recorder.run_began,
            self.recorder.run_ended,
            self.recorder.run_failed,
        )
        self.models = ModelWatch()
        self.source = SourceWatch(
            has_lines=options.source and traces, has_stacks=options.python and traces
        )
        self._part_watch = PartWatch(
            self.parts,
            self._hook_failed,
            lambda *, is_importing: self.source.see_exceptions(are_seen=not is_importing),
        )
        self._watches = ExitStack()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._libraries: list[Library] = []
        self._tensorflow: Library | None = None
        self._hook_error: Exception | None = None
        self._start_profiler: Any = None
        self._stop_profiler: Any = None
        self._tracing_since_ns: int | None = None
        self._is_due = False
        self._took_over = False
        self._resident_before = 0
        self._last_step_ns = 0
        self._code_began = 0, 0  # when, and what the profiler had taken by then
        self._logdir: Path | None = None

    def _is_tracing(self) -> bool:
        return self._tracing_since_ns is not None

    # Begin and end.

    def start(self) -> None:
        """Begin: now, or when the code imports TensorFlow; nothing is left open where that fails."""
        try:
            with interrupt_held_back():
                self._start()
        except BaseException:
            with interrupt_held_back():
                self._abandon()
            raise

    def _start(self) -> None:
        self.parts.begin()
        self.recording.steps = self.recorder.records
        hooks: dict[str, Callable[[], object]] = {"tensorflow": self._tensorflow_imported}
        hooks |= {name: partial(self._keras_imported, name) for name in ("keras", "tf_keras")}
        hooks = {name: partial(self._guarded, hook) for name, hook in hooks.items()}
        with self.parts.own("start"):
            self._watches.enter_context(self._part_watch.watch_imports())
            self._watches.enter_context(on_import(hooks))
            if self._tensorflow is None:
                self.source.begin_without_trace()
        self._code_began = time.perf_counter_ns(), self.recording.overhead_ns

    def _abandon(self) -> None:
        """Close what was opened; the code will not run."""
        try:
            self._close_window(None)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._watches.close()
            self.recording.discard()

    def _guarded(self, hook: Callable[[], object]) -> None:
        with self.parts.own("start"):
            try:
                hook()
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                self._hook_failed(error)

    def finish(self) -> Recording:
        """End the capture and say what it left behind."""
        with self.parts.own("stop"):
            self._finish()
        self.recording.cell = self.parts.finish()
        return self.recording

    def _finish(self) -> None:
        began_ns, overhead_before_ns = self._code_began
        inside_ns = self.recording.overhead_ns - overhead_before_ns
        self.recording.wall_ns = time.perf_counter_ns() - began_ns - inside_ns
        try:
            self._close_window(None)
            self.source.end()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._watches.close()
        runs, recording = self.graph_runs, self.recording
        recording.messages.extend(self._explain_losses())
        try:
            recording.source, recording.stacks = self.source.finish(
                runs.graph, self.models.living()
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            recording.messages.append(
                f"Source lines could not be read ({_first_line(error)}); --no-source leaves them out."
            )
        recording.graph_runs, recording.graph = runs.runs, runs.graph
        recording.graph_versions = runs.graph_versions
        recording.messages.extend(self.source.messages)
        if self._traces:
            recording.messages.extend(runs.explain())
        if self._tensorflow is not None and len(recording.steps):
            recording.devices = list_devices()
        recording.environment = describe_environment()
        recording.changing_arguments = find_changing_arguments(self.recorder.traced_functions)
        if self._tensorflow is None and not self.recording.messages:
            self.recording.messages.append(explain_nothing())

    def _explain_losses(self) -> list[str]:
        """What is lost because of names that others changed, and because of faults of ours."""
        for name in ("sys", SHELL.module):
            if self._traces and name in sys.modules:
                self._look_up(sys.modules[name])
        sentences = explain_missing(self._libraries)
        if self._hook_error is not None:
            error = f"{type(self._hook_error).__name__}: {_first_line(self._hook_error)}"
            sentences.append(
                f"A hook of profnb's failed ({error}), so this result may lack something; the code ran "
                "as without it."
            )
        return sentences

    def _look_up(self, module: ModuleType) -> Library:
        library = Library(module, self._hook_failed)
        self._libraries.append(library)
        return library

    def _hook_failed(self, error: Exception) -> None:
        """Keep the first error only: a hook that fails does so each time."""
        self._hook_error = self._hook_error or error

    def _watch(self, watching: AbstractContextManager[None]) -> None:
        try:
            self._watches.enter_context(watching)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def _tensorflow_imported(self) -> None:
        module = sys.modules["tensorflow"]
        if VERSION.of(module) is None and START.find(module) is None:
            return  # its import failed half-way; the code will say why
        tensorflow = self._tensorflow = self._look_up(module)
        self._watch(self._part_watch.watch_tensorflow(tensorflow))
        self._watch(self.recorder.watch_tensorflow(tensorflow))
        if self._traces:
            self._watch(self._tapes.watch(tensorflow))
        self._watch(self.graph_runs.watch(tensorflow))
        if not self._traces:
            return
        self._watch(self.source.watch_tensorflow(tensorflow))
        self._start_profiler, self._stop_profiler = tensorflow.take(START), tensorflow.take(STOP)
        if self._start_profiler is None or self._stop_profiler is None:
            return
        self._watch_everywhere(START, self._start_profiler, self._code_starts)
        self._watch_everywhere(STOP, self._stop_profiler, self._code_stops)
        self._open_window()

    def _watch_everywhere(self, seam: Seam, function: Any, hook: Callable[[], object]) -> None:
        """Watch a function of the profiler under every module that holds it by its name.

        It is public in several places (``tf.compat.v2`` too), its own module calls it, and a
        notebook may have imported it by name.
        """
        watched = WatchedCall(function, before=hook, hook_failed=self._hook_failed)
        (name,) = seam.attributes
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and vars(module).get(name) is function:
                self._watch(replace_attribute(module, name, watched))

    def _keras_imported(self, name: str) -> None:
        if MODEL.find(sys.modules[name]) is None and VERSION.of(sys.modules[name]) is None:
            return  # its import failed half-way
        keras = self._look_up(sys.modules[name])
        self._watch(self._part_watch.watch_keras(keras))
        self._watch(self.recorder.watch_keras(keras))
        self._watch(watch_fits(keras, self.recording.fits.append))
        if self._traces:
            self._watch(self.models.watch(keras))
            self._watch(self.source.watch_keras(keras))

    # The window.

    def _open_window(self) -> None:
        """Start the profiler, and the clock that stops it; an interrupt waits until both run."""
        options, recording = self.options, self.recording
        begin_ns = time.perf_counter_ns()
        with interrupt_held_back():
            try:
                folder = recording.folder = self._make_folder()
                with profiler_log_held_back() as log:
                    self._start_taking_over(folder)
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                recording.messages.append(
                    f"The TensorFlow profiler did not start ({_first_line(error)}), so the code ran "
                    "without it. Restart the kernel if this persists."
                )
                return
            self._tracing_since_ns = time.perf_counter_ns()
            try:
                self._note_ignored_options(log)
                self.source.begin()
                self._resident_before = resident_bytes()
                now = self._tracing_since_ns = time.perf_counter_ns()
                recording.overhead_ns += now - begin_ns
                self._set_timer(options.max_seconds)
            except Exception:
                self._close_window("a fault")
                raise

    def _make_folder(self) -> str:
        """A folder that is this capture's alone.

        TensorFlow names a run by the second in which it ends, so that two captures, of one kernel or of
        several, may write to one file. Inside of the logdir what is written need only be renamed.
        """
        if self.options.logdir is None:
            return tempfile.mkdtemp(prefix="profnb-")
        logdir = self._logdir = Path(self.options.logdir).expanduser().absolute()
        logdir.mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix=".profnb-", dir=logdir)

    def _note_ignored_options(self, log: list[bytes]) -> None:
        """TensorFlow 2.20 and 2.21 cannot read the options that their own API takes.

        They log it, but a log level may hide that.
        """
        options, default = self.options, CaptureOptions()
        asked = (options.host_level, options.python_tracer, options.device_tracer)
        if asked == (default.host_level, default.python_tracer, default.device_tracer):
            return
        version = str(VERSION.find())
        logged = any(b"_tracer_level expects" in line for line in log)
        if logged or version.startswith(("2.20.", "2.21.")):
            self.recording.messages.append(
                f"TensorFlow {version} ignored the profiler options it was given (a defect of 2.20 "
                "and 2.21), so this trace has host level 2, the device, and no Python calls."
            )

    def _start_taking_over(self, logdir: str) -> None:
        assert self._tensorflow is not None
        asked = self.options
        levels = (asked.host_level, int(asked.python_tracer), int(asked.device_tracer))
        options_type = self._tensorflow.take(PROFILER_OPTIONS)
        options = None
        if options_type is not None:
            options = options_type(**dict(zip(PROFILER_OPTIONS.keywords, levels, strict=True)))
        already_running = self._tensorflow.take(ALREADY_RUNNING) or _NeverRaisedError
        try:
            self._start_profiler(logdir, options)
        except already_running:
            self._stop_profiler()
            self._took_over = True
            self.recording.messages.append(
                "A TensorFlow profiler was already running (started by earlier code and never "
                "stopped); it was stopped, its trace saved to its own logdir, and this capture "
                "started."
            )
            self._start_profiler(logdir, options)

    def _set_timer(self, seconds: float) -> None:
        seconds = min(seconds, threading.TIMEOUT_MAX)
        self._timer = threading.Timer(seconds, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    def _time_is_up(self) -> None:
        """Let a running step end, for a fifth of the window at most, then close."""
        if not self._last_step_ns and self.recorder.has_begun and self._may_wait():
            self._set_timer(self.options.max_seconds / 5)
            return
        idle_ns = time.perf_counter_ns() - self._last_step_ns
        if not self._is_due and self._last_step_ns and idle_ns < self.options.max_seconds * 2e8:
            self._is_due = True
            self._set_timer(self.options.max_seconds / 5)
        else:
            self._close_window("seconds")

    def _may_wait(self) -> bool:
        """Whether the window stays open for a first step that is still being traced, compiled or run.

        For six times the bound at most, and not while the trace grows fast: a step of many small ops
        fills the memory.
        """
        since = self._tracing_since_ns
        if since is None:
            return False
        waited_s = (time.perf_counter_ns() - since) / 1e9
        grown = resident_bytes() - self._resident_before
        if waited_s < _LONGEST_WAIT * self.options.max_seconds and grown < _MOST_GROWTH:
            return True
        why = (
            "" if grown < _MOST_GROWTH else f", in which this process grew by {grown / 1e9:.1f} GB"
        )
        self.recording.messages.append(
            f"The first step had not ended {waited_s:.0f} s after tracing began{why}, so tracing stopped "
            "without it. -t SECONDS changes how long it may take (six times that)."
        )
        return False

    def _step_recorded(self, traced_steps: int) -> None:
        is_first = not self._last_step_ns
        self._last_step_ns = time.perf_counter_ns()
        if is_first and self._tracing_since_ns is not None and self._timer is not None:
            self._timer.cancel()  # the bound counts from here
            self._set_timer(self.options.max_seconds)
        if traced_steps >= self.options.max_steps:
            self._close_window("steps")
        elif self._is_due:
            self._close_window("seconds")

    def _close_window(self, closed_by: str | None) -> None:
        if self._tracing_since_ns is None:
            return
        with interrupt_held_back(), self.parts.own("stop"), self._lock:
            if self._tracing_since_ns is None:  # another thread was faster
                return
            now = time.perf_counter_ns()
            recording = self.recording
            recording.window_ns += now - self._tracing_since_ns
            recording.closed_by = closed_by
            self._tracing_since_ns = None
            try:
                self.source.end()
            except Exception as error:  # noqa: BLE001 - the profiler must not be left running
                self._hook_failed(error)
            try:
                with profiler_log_held_back():
                    self._stop_profiler()
                self._find_trace()
            except Exception as error:  # noqa: BLE001 - likewise
                recording.messages.append(
                    f"The TensorFlow profiler did not stop cleanly ({_first_line(error)}), so there "
                    "is no trace. The code's own results are complete."
                )
            recording.overhead_ns += time.perf_counter_ns() - now

    def _find_trace(self) -> None:
        recording, folder = self.recording, Path(self.recording.folder or "")
        found = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
        if not found:
            recording.messages.append(
                f"The TensorFlow profiler stopped but left no trace in {self._logdir or folder}. Check that "
                "the folder is writable and the disk is not full."
            )
            return
        recording.path = found[-1]
        if self._logdir is None:
            return
        try:
            recording.path = _publish(found[-1], folder, self._logdir)
        except OSError as error:
            recording.messages.append(
                f"The trace could not be kept in {self._logdir} ({_first_line(error)}); this result has it."
            )

    def _session_runs_begin(self) -> bool:
        """Make way for FULL_TRACE, unless the window holds steps of another kind."""
        steps = self.recorder.records
        kinds = (steps.kinds[kind] for kind in steps.kind)
        others = [kind for kind, traced in zip(kinds, steps.was_traced, strict=True) if traced]
        if len(others) - others.count(RUN) > 1:
            return False
        self._close_window("session runs")
        self.recording.closed_by = "session runs"
        for row in range(len(steps)):  # by the profiler, whose trace is not the one to be shown
            steps.was_traced[row] = 0
        return True

    # The code's own use of the profiler.

    def _code_starts(self) -> None:
        if self._is_tracing():
            is_ours = _is_called_by_a_capture()
            self._close_window("the code")
            what = "a profnb capture" if is_ours else "a TensorFlow profiler"
            self.recording.messages.append(
                f"The code started {what} of its own, and only one profiler can run: this trace ends "
                "there, and steps after it are timed but not traced."
            )

    def _code_stops(self) -> None:
        if self._is_tracing():
            self._close_window("the code")
        if self._took_over:  # the session it means to stop was ours to replace: give it one
            self._took_over = False
            with profiler_log_held_back():
                self._start_profiler(tempfile.mkdtemp(prefix="profnb-"))


def _publish(trace: Path, folder: Path, logdir: Path) -> Path:
    """Move a run from the folder it was written to into the logdir; where its trace is then."""
    run = claim_folder(logdir / "plugins" / "profile", trace.parent.name)
    for file in trace.parent.iterdir():
        file.replace(run / file.name)
    for file in folder.iterdir():  # an empty event file, by which TensorBoard knows a logdir
        if file.is_file():
            file.replace(logdir / file.name)
    return run / trace.name


def _is_called_by_a_capture() -> bool:
    """Whether the code that starts a profiler is a capture's, inside of the code that another surrounds."""
    frame = inspect.currentframe()
    while frame is not None and is_own_file(frame.f_code.co_filename):
        if frame.f_code.co_name == "_start_taking_over":
            return True
        frame = frame.f_back
    return False


class _NeverRaisedError(Exception):
    """Stands for an error that TensorFlow does not have any more."""


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
