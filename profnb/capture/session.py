"""Running code to one bounded trace: the only door to the TensorFlow profiler.

A ``Capture`` starts the profiler, closes the window by itself after a number of steps or seconds, and
keeps timing steps until it is finished. It never fails the code it surrounds: what goes wrong with
the profiler is said in ``messages``. TensorFlow and Keras need not be imported yet; the capture
begins when they are. Their names come from ``seams``; a missing one costs what hangs on it, and one sentence.

TensorFlow allows one profiler session per process. A session that is already running is stopped, its
trace saved where its owner asked, and that is said; when the surrounded code starts a profiler of its
own, our window closes first, so that code runs as it would have without us.
"""

import contextlib
import sys
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
from profnb.capture.histories import watch_fits
from profnb.capture.hooks import WatchedCall, on_import, replace_attribute
from profnb.capture.library import Library, explain_missing
from profnb.capture.machine.core_waits import CoreClock
from profnb.capture.machine.machine_watch import MachineWatch
from profnb.capture.machine.network_files import watch_network_files
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.marking.step_records import RUN
from profnb.capture.models.model_watch import ModelWatch
from profnb.capture.parts.part_clock import PartClock
from profnb.capture.parts.part_records import shorten_parts
from profnb.capture.parts.part_watch import PartWatch
from profnb.capture.profiler.doors import Door, Doors
from profnb.capture.profiler.fetched_batches import watch_fetching
from profnb.capture.profiler.held_back import interrupt_held_back
from profnb.capture.profiler.profiler_door import first_line, is_called_by_a_capture
from profnb.capture.profiler.torch_loops import TorchLoops
from profnb.capture.profiler.torch_scopes import TorchScopes
from profnb.capture.recording import NOT_ENDED, Recording
from profnb.capture.retracings import find_changing_arguments
from profnb.capture.seams import (
    BACKEND,
    JAX_BACKENDS,
    JAX_START,
    JAX_STOP,
    MODEL,
    SHELL,
    START,
    STOP,
    TORCH_AUTOGRAD_ENTER,
    TORCH_PROFILE_START,
    VERSION,
    Seam,
)
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.source.tape_watch import TapeWatch
from profnb.capture.underway.standing import Standing, recent_step_ns
from profnb.core.options import CaptureOptions
from profnb.tf1.session_runs import GraphRuns

__all__ = ["Capture", "Recording"]

JAX, TORCH = "jax", "torch"  # as Keras calls them
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
        self.profilers = Doors(options, self.recording.messages)
        self.parts = PartClock()
        self.recorder = StepRecorder(
            self._is_tracing, self._step_recorded, self.parts, self._door_of_keras
        )
        self._tapes = TapeWatch(
            lambda: self.recorder.is_outside, self._is_tracing, self._step_recorded
        )
        self.recording.turns = self._tapes.turns
        self._traces = traces
        self.graph_runs = GraphRuns(
            options.max_steps if traces else 0,
            options.max_seconds,
            self._session_runs_begin,
            self.recorder.loops.run_began,
            self.recorder.loops.run_ended,
            self.recorder.loops.run_failed,
            self._hook_failed,
            partial(self.parts.own, "session runs"),
        )
        self.machine = MachineWatch()
        self.models = ModelWatch()
        self._scopes = TorchScopes(
            self.profilers.torch, self.models, self.recording.messages, self._hook_failed
        )
        self.source = SourceWatch(
            has_lines=options.source and traces, has_stacks=options.python and traces
        )
        self._part_watch = PartWatch(
            self.parts,
            self._hook_failed,
            lambda *, is_importing: self.source.see_exceptions(are_seen=not is_importing),
        )
        self._cores = CoreClock()
        self._watches = ExitStack()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._libraries: list[Library] = []
        self._tensorflow: Library | None = None
        self._others: set[str] = set()  # titles of other frameworks that were imported
        self._hook_error: Exception | None = None
        self._tracing_since_ns: int | None = None
        self._is_due = False
        self._resident_before = 0
        self._last_step_ns = self._traced_steps = 0
        self._opened: set[str] = set()  # titles of the profilers that were started, or tried
        self._thread = threading.get_ident()
        self._code_began = 0, 0  # when, and what the profiler had taken by then

    def _is_tracing(self) -> bool:
        return self._tracing_since_ns is not None

    def standing(self) -> Standing:
        """Where it stands now; any thread may ask."""
        return Standing(
            time.perf_counter_ns() - self._code_began[0] if self._code_began[0] else 0,
            self._is_tracing(),
            bool(self.recording.window_ns),
            self._traced_steps,
            self.options.max_steps,
            recent_step_ns(self.recorder.records),
            self.recorder.batches.keras_runs.now,
        )

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
        hooks |= {"jax": self._jax_imported, "torch": self._torch_imported}
        hooks |= {name: partial(self._keras_imported, name) for name in ("keras", "tf_keras")}
        hooks = {name: partial(self._guarded, hook) for name, hook in hooks.items()}
        with self.parts.own("start"):
            self._watches.enter_context(self._part_watch.watch_imports())
            if self._traces:
                self._watches.enter_context(self.machine.watch())
            self._watches.enter_context(on_import(hooks))
            if not self._is_tracing():
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
        self.recording.cell = shorten_parts(self.parts.finish(), self.source.folder)
        return self.recording

    def _finish(self) -> None:
        began_ns, overhead_before_ns = self._code_began
        inside_ns = self.recording.overhead_ns - overhead_before_ns
        ended_ns = self._tapes.turns.end_ns = time.perf_counter_ns()
        self.recording.wall_ns = ended_ns - began_ns - inside_ns
        try:
            self._close_window(None)
            self.source.end()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._watches.close()
        runs, recording = self.graph_runs, self.recording
        recording.machine = self.machine.records if len(self.machine.records) else None
        recording.messages.extend(self._explain_losses())
        try:
            recording.source, recording.stacks = self.source.finish(
                runs.graph, self.models.living()
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            recording.messages.append(
                f"Source lines could not be read ({first_line(error)}); --no-source leaves them out."
            )
        recording.graph_runs, recording.graph = runs.runs, runs.graph
        recording.graph_versions = runs.graph_versions
        recording.sessions = runs.finish(has_source=self.options.source) if runs.ended else None
        recording.messages.extend(self.source.messages)
        if self._traces:
            recording.messages.extend(runs.explain())
        if self._tensorflow is not None and len(recording.steps):
            recording.devices = list_devices()
        recording.environment = describe_environment() | runs.environment
        recording.changing_arguments = find_changing_arguments(self.recorder.events.functions.alive)
        recording.functions = self.recorder.events.functions.listed()
        if not (self._tensorflow or self._others or self.recording.messages):
            self.recording.messages.append(explain_nothing())

    def _explain_losses(self) -> list[str]:
        """What is lost because of names that others changed, and because of faults of ours."""
        for name in ("sys", SHELL.module):
            if self._traces and name in sys.modules:
                self._look_up(sys.modules[name])
        sentences = explain_missing(self._libraries)
        if self._hook_error is not None:
            error = f"{type(self._hook_error).__name__}: {first_line(self._hook_error)}"
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
        self._watch(self.recorder.events.watch_tensorflow(tensorflow))
        if self._traces:
            self._watch(self._tapes.watch(tensorflow))
        self._watch(self.graph_runs.watch(tensorflow))
        if not self._traces:
            return
        self._watch(self.source.watch_tensorflow(tensorflow))
        self._watch(watch_network_files(self.recording.network_files, self._is_tracing))
        door = self.profilers.tensorflow
        functions = door.find(tensorflow)
        if functions is None or self._backend_of_keras() == TORCH:
            return
        self._watch_everywhere(START, functions[0], partial(self._code_starts, door))
        self._watch_everywhere(STOP, functions[1], partial(self._code_stops, door))
        self._open_window(door)

    def _jax_imported(self) -> None:
        jax = sys.modules["jax"]
        if VERSION.of(jax) is None:
            return  # its import failed half-way
        library, door = self._look_up(jax), self.profilers.jax
        self._others.add(door.title)
        functions = door.find(library)
        self._watch(self.recorder.events.watch_jax(library))
        if not self._traces or functions is None:
            return
        self.source.watch_jax(library)
        self._watch_everywhere(JAX_START, functions[0], partial(self._code_starts, door))
        self._watch_everywhere(JAX_STOP, functions[1], partial(self._code_stops, door))
        if door.is_set_up:
            self._open_window(door)
        elif library.take(JAX_BACKENDS) is not None:
            watched = WatchedCall(
                library.take(JAX_BACKENDS),
                after=partial(self._guarded, self._jax_set_up),
                hook_failed=self._hook_failed,
            )
            owner, (name,) = JAX_BACKENDS.owner(), JAX_BACKENDS.attributes
            self._watch(replace_attribute(owner, name, watched))

    def _jax_set_up(self) -> None:
        """The code has set up JAX's devices, on whatever thread: from then on there is work to record."""
        door = self.profilers.jax
        is_here = threading.get_ident() == self._thread
        if is_here and not self.profilers.runs(door) and not self._was_opened(door):
            self._open_window(door)

    def _torch_imported(self) -> None:
        torch = sys.modules["torch"]
        if VERSION.of(torch) is None:
            return  # its import failed half-way
        library, door = self._look_up(torch), self.profilers.torch
        self._others.add(door.title)
        has_all = door.find(library)
        if self._traces and has_all:
            self._watch(self._scopes.watch_torch(library))
        loops = TorchLoops(self.recorder, door, self._use_torch, self._hook_failed)
        self._watch(loops.watch(library))
        if not self._traces or not has_all:
            return
        others = ("tensorflow", "jax", "keras")
        if all(sys.modules.get(name) is None for name in others):
            self._open_window(door)
        self._watch(library.watch(TORCH_AUTOGRAD_ENTER, before=partial(self._code_starts, door)))
        self._watch(library.watch(TORCH_PROFILE_START, before=partial(self._code_starts, door)))

    def _backend_of_keras(self) -> str:
        """What Keras 3 runs on; "" where it is not imported."""
        keras = sys.modules.get("keras")
        backend = None if keras is None else BACKEND.find(keras)
        with contextlib.suppress(Exception):  # a Keras that is being imported
            return "" if backend is None else str(backend())
        return ""

    def _door_of_keras(self) -> Door | None:
        """The profiler that records what Keras does; None where nobody does. PyTorch's starts here."""
        backend = self._backend_of_keras()
        if backend != TORCH:
            return self.profilers.jax if backend == JAX else self.profilers.tensorflow
        self._use_torch()
        return self.profilers.torch

    def _use_torch(self) -> None:
        """PyTorch works here: its profiler starts, and stops where time was up."""
        door = self.profilers.torch
        if self._traces and door.title in self._others and not self._was_opened(door):
            self._open_window(door)

    def _was_opened(self, door: Door) -> bool:
        return door.title in self._opened

    def _watch_everywhere(self, seam: Seam, function: Any, hook: Callable[[], object]) -> None:
        """Watch a function of a profiler under every module that holds it by its name.

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
        self._watch(self.recorder.batches.watch_keras(keras))
        self._watch(watch_fits(keras, self.recording.fits.append))
        batches = self.recorder.batches
        hooks = batches.fetching_begins, batches.fetching_ends, self._hook_failed
        self._watch(watch_fetching(*hooks))
        if self._traces:
            self._watch(self.models.watch(keras))
            if self._backend_of_keras() == TORCH:
                self._watch(self._scopes.watch_keras(keras))
            self._watch(self.source.watch_keras(keras))

    # The window.

    def _open_window(self, door: Door) -> None:
        """Start a profiler, and the clock that stops it; an interrupt waits until both run.

        Where another one runs already, it joins that one's window. A window that has closed stays so.
        """
        options, recording = self.options, self.recording
        if recording.window_ns or self.options.backend not in (None, door.title.lower()):
            return
        begin_ns = time.perf_counter_ns()
        is_first = self._tracing_since_ns is None
        self._opened.add(door.title)
        with interrupt_held_back():
            try:
                recording.folder = recording.folder or self.profilers.make_folder()
                self.profilers.start(door, recording.folder)
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                recording.messages.append(
                    f"The {door.title} profiler did not start ({first_line(error)}), so the code ran "
                    "without it. Restart the kernel if this persists."
                )
                return
            if not is_first:
                recording.overhead_ns += time.perf_counter_ns() - begin_ns
                return
            self._tracing_since_ns = time.perf_counter_ns()
            try:
                self.profilers.note_ignored_options()
                self.source.begin()
                self._resident_before = resident_bytes()
                self._cores.begin()
                now = self._tracing_since_ns = time.perf_counter_ns()
                recording.overhead_ns += now - begin_ns
                self._set_timer(options.max_seconds)
            except Exception:
                self._close_window("a fault")
                raise

    def _set_timer(self, seconds: float) -> None:
        seconds = min(seconds, threading.TIMEOUT_MAX)
        self._timer = threading.Timer(seconds, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    def _time_is_up(self) -> None:
        """Let a running step end, for a fifth of the window at most, then close."""
        if self.profilers.is_of_thread:  # which this is not
            self._is_due = True
            return
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
            f"{NOT_ENDED} {waited_s:.0f} s after tracing began{why}, so tracing stopped "
            "without it. -t SECONDS changes how long it may take (six times that)."
        )
        return False

    def _step_recorded(self, traced_steps: int) -> None:
        is_first = not self._last_step_ns
        self._traced_steps = max(self._traced_steps, traced_steps)
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
            recording.core_waits = self._cores.end()
            try:
                self.source.end()
            except Exception as error:  # noqa: BLE001 - the profiler must not be left running
                self._hook_failed(error)
            try:
                recording.path = self.profilers.stop(Path(recording.folder or ""))
            except Exception as error:  # noqa: BLE001 - likewise
                self._hook_failed(error)
            recording.overhead_ns += time.perf_counter_ns() - now

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

    def _code_starts(self, door: Door, _: object = None) -> None:
        if self.profilers.runs(door):
            is_ours = is_called_by_a_capture()
            self._close_window("the code")
            what = "a profnb capture" if is_ours else f"a {door.title} profiler"
            self.recording.messages.append(
                f"The code started {what} of its own, and only one profiler can run: this trace ends "
                "there, and steps after it are timed but not traced."
            )

    def _code_stops(self, door: Door) -> None:
        if self.profilers.runs(door):
            self._close_window("the code")
        if door is self.profilers.tensorflow:
            self.profilers.tensorflow.give_back()
