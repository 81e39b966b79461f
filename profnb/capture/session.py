"""Running code to one bounded trace: the only door to the profilers.

A ``Capture`` starts the profiler of the framework that does the work, closes the window by itself after a
number of steps or seconds, and keeps timing steps until it is finished. It never fails the code it surrounds:
what goes wrong with a profiler is said in ``messages``. No framework need be imported yet; the capture begins
when one is. A profiler session that is already running is stopped, its trace saved where its owner asked, and
that is said.

TensorFlow, Keras, JAX and PyTorch are watched from when the code imports them. Their names come from
``seams``; a missing one costs what hangs on it, and one sentence. TensorFlow's profiler starts with its
import, JAX's when its devices are set up, PyTorch's where nothing else is imported or when it begins to work.
"""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import ModuleType

from profnb.capture import seams
from profnb.capture.environment import describe_environment, explain_nothing, list_devices
from profnb.capture.hooks import Library, explain_missing, on_import
from profnb.capture.journal.journal import Journal
from profnb.capture.machine.machine_watch import MachineWatch
from profnb.capture.machine.waits import watch_network_files
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.marking.trace_events import find_changing_arguments
from profnb.capture.memory.python_objects import PythonObjects
from profnb.capture.models.load_watch import LoadWatch
from profnb.capture.models.model_watch import FitWatch, ModelWatch
from profnb.capture.parts.cell_counters import CallClock, InFlight, OwnTime, watch_in_flight
from profnb.capture.parts.part_records import PROFNB, shorten_parts
from profnb.capture.profiler.doors import Doors
from profnb.capture.profiler.jax_door import watch_fetching
from profnb.capture.profiler.profiler_door import Door, first_line
from profnb.capture.profiler.torch_watch import TorchLoops, TorchScopes, unseen_by_torch_compile
from profnb.capture.profiler.window import CodesProfiler, Window
from profnb.capture.recording import Recording
from profnb.capture.seam import Seam
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.source.stacks import Sampler
from profnb.capture.source.user_code import is_session_file, uses_sessions
from profnb.capture.step_records import KINDS, RUN, Standing, recent_step_ns
from profnb.core.options import CaptureOptions
from profnb.tf1.session_runs import GraphRuns

JAX, TORCH = "jax", "torch"  # as Keras calls them
_MODEL_CODE = re.compile("tensorflow|keras")  # a file in which graphs and models are made and run


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
        self._traces = traces
        messages, failed = self.recording.messages, self._hook_failed
        self._hook_error: Exception | None = None
        self.own_time = OwnTime()
        self.sampler = Sampler(self._code_seen)
        self._gaps = CallClock()
        self.profilers = Doors(options, messages)
        self.source = SourceWatch(
            self.sampler, has_lines=options.source and traces, has_stacks=options.python and traces
        )
        self._window = window = Window(
            options,
            self.recording,
            self.profilers,
            self.source,
            self.own_time,
            lambda: self.recorder.open.has_begun,
            failed,
        )
        self.recorder = StepRecorder(
            window.is_open, window.step_recorded, self._door_of_keras, self._gaps
        )
        self.recording.turns = self.recorder.tapes.turns
        self.graph_runs = GraphRuns(
            options.max_steps if traces else 0,
            options.max_seconds,
            self._session_runs_begin,
            self.recorder.session_runs,
            failed,
            partial(self.own_time.part, "session runs"),
        )
        self.machine = MachineWatch()
        self.python_objects = PythonObjects(messages)
        self.models, self._loads = ModelWatch(), LoadWatch()
        self._scopes = TorchScopes(self.profilers.torch, self.models)
        self._hooks = ExitStack()  # until it ends
        self._window_hooks = ExitStack()  # until the window closes
        window.closed = self._window_closed
        self._libraries: list[Library] = []
        self._tensorflow: Library | None = None  # once it is imported
        # Batches of JAX that were still computed when Keras was done with them, and since when.
        self._flying: list[tuple[int, InFlight]] = []
        self._any_imported = self._records_torch = self._has_sessions = False
        self._keras_backend = ""
        self._codes_profiler = CodesProfiler(
            window, self.profilers, self.recording, self.recorder.log
        )
        self._thread = threading.get_ident()
        self.journal = Journal(
            options,
            self.sampler,
            self.recorder.log,
            self.own_time,
            lambda: self.machine.records,
            self.recording,
            failed,
        )
        self._watches = ExitStack()
        self._began_ns = 0
        self._code_began = 0, 0  # when, and what the profiler had taken by then

    def _code_seen(self, file: str) -> None:
        """The sampler has met code of a file."""
        if is_session_file(file):
            self._sessions_seen()

    def standing(self) -> Standing:
        """Say where it stands now; any thread may ask."""
        return Standing(
            time.perf_counter_ns() - self._code_began[0] if self._code_began[0] else 0,
            self._window.is_open(),
            self._window.has_closed,
            self._window.traced_steps,
            self.options.max_steps,
            recent_step_ns(self.recorder.log),
            self.recorder.batches.keras_runs.now,
        )

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
        self._began_ns = time.perf_counter_ns()
        with self.own_time.part("start"):
            if self._traces:
                self._watches.enter_context(self.machine.watch())
                if self.options.memory:
                    self._watches.enter_context(self.python_objects.watch())
            self._watches.enter_context(self._watch_frameworks())
            if not self._traces:
                self.recorder.open.count_only()
            if not self._window.is_open():
                self.source.begin_without_trace()
            self.sampler.start()
            self.journal.start()
        self._code_began = time.perf_counter_ns(), self.recording.overhead_ns

    def _abandon(self) -> None:
        """Close what was opened; the code will not run."""
        try:
            self._window.close(None)
        finally:
            self._window.stop_clock()
            self._watches.close()
            self._gaps.stop(0)
            self.sampler.stop()
            self.journal.remove()
            self.recording.discard()

    def finish(self) -> Recording:
        """End the capture and say what it left behind."""
        began_ns, overhead_before_ns = self._code_began
        inside_ns = self.recording.overhead_ns - overhead_before_ns
        ended_ns = self.recording.turns.end_ns = time.perf_counter_ns()
        self.recording.wall_ns = ended_ns - began_ns - inside_ns
        self.journal.end()
        self.graph_runs.see_gaps(self.sampler.end(), has_source=self.options.source)
        timed = self._gaps.stop(self.sampler.base)
        looks = self.sampler.stop()
        try:
            self._window.close(None)
            self._codes_profiler.choose_trace()
            self.source.end()
        finally:
            self._window.stop_clock()
            self._watches.close()
        runs, recording = self.graph_runs, self.recording
        self.recorder.batches.end_failed_batch()
        from profnb.capture.parts.cell_division import CellCounts, divide_cell  # it needs NumPy

        log = self.recorder.log
        recording.steps = log.records()
        counts = CellCounts(
            self._began_ns,
            ended_ns,
            log,
            self.own_time.spans,
            self.recording.turns,
            self._flying,
            self.recorder.open.hooks_ns,
            int(sum(one.took_s for one in (self.sampler, self.journal, self.machine)) * 1e9),
        )
        cell = divide_cell(counts, looks, timed)
        cell.loads = self._loads.records()
        self.source.add_places((part.file, part.line) for part in cell.parts if part.file)
        recording.marking_ns = self.recorder.open.marking_ns
        recording.machine = self.machine.records if len(self.machine.records) else None
        has_reason = bool(recording.messages)
        recording.messages.extend(self._explain_losses())
        try:
            has_run = bool(len(log)) or any(
                _MODEL_CODE.search(file) for _, file, *_ in looks.frames
            )
            recording.source, recording.stacks = self.source.finish(
                looks, runs.graph, self.models.living(), has_run=has_run
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            recording.messages.append(
                f"Source lines could not be read ({first_line(error)}). Run again with --no-source."
            )
        recording.graph_runs, recording.graph = runs.runs, runs.graph
        recording.graph_versions = runs.graph_versions
        recording.sessions = runs.records if runs.ended else None
        recording.messages.extend(self.source.messages)
        if self._traces:
            recording.messages.extend(runs.explain())
        if self._tensorflow is not None and len(recording.steps):
            recording.devices = list_devices()
        recording.environment = describe_environment() | runs.environment
        recording.changing_arguments = find_changing_arguments(self.recorder.events.functions.alive)
        recording.functions = self.recorder.events.functions.listed()
        if not (self._any_imported or has_reason):
            recording.messages.append(explain_nothing())
        recording.cell = shorten_parts(cell, self.source.folder)
        recording.cell.add(PROFNB, "stop", time.perf_counter_ns() - ended_ns)
        return recording

    def _explain_losses(self) -> list[str]:
        """Say what is lost because of names that others changed, and because of faults of ours."""
        if self._traces:
            beside = ["sys", "importlib"]  # Python's own that hold seams
            if seams.SHELL_INSTANCE.owner() is not None:  # no code's own in IPython's place
                beside.append("IPython")
            for name in beside:
                if sys.modules.get(name) is not None:
                    self._look_up(sys.modules[name])
        sentences = explain_missing(self._libraries)
        if self._hook_error is not None:
            error = f"{type(self._hook_error).__name__}: {first_line(self._hook_error)}"
            sentences.append(
                f"profnb failed in a part ({error}): this result may be incomplete. Your code ran as "
                "usual."
            )
        return sentences

    def _hook_failed(self, error: Exception) -> None:
        """Keep the first error only: a hook that fails does so each time."""
        self._hook_error = self._hook_error or error

    def _session_runs_begin(self) -> bool:
        """Make way for FULL_TRACE, unless the window holds steps of another kind."""
        log = self.recorder.log
        pairs = zip(log.column("kind"), log.column("was_traced"), strict=True)
        if sum(traced for kind, traced in pairs if KINDS[kind] != RUN) > 1:
            return False
        self._window.close("session runs")
        self.recording.closed_by = "session runs"
        log.set_traced()  # by the profiler, whose trace is not the one to be shown
        return True

    # Frameworks.

    @contextmanager
    def _watch_frameworks(self) -> Iterator[None]:
        """See each framework inside the block, those first that are imported already."""
        seen: dict[str, tuple[Callable[[Library], object], Seam]] = {
            "tensorflow": (self._tensorflow_imported, seams.START),
            "jax": (self._jax_imported, seams.VERSION),
            "torch": (self._torch_imported, seams.VERSION),
            "keras": (self._keras_imported, seams.MODEL),
            "tf_keras": (self._keras_imported, seams.MODEL),
        }
        for seam in seams.INVOKES:
            seen[seam.module] = self._interpreters_imported, seam
        hooks: dict[str, Callable[[], object]] = {
            name: partial(self._guarded, partial(self._imported, name, *hook))
            for name, hook in seen.items()
        }
        hooks["torch._dynamo"] = partial(
            self._guarded, lambda: self._watch(unseen_by_torch_compile())
        )
        watches = self._hooks, self._window_hooks, self._codes_profiler.watches
        with watches[0], watches[1], watches[2], on_import(hooks):
            yield

    def _window_closed(self) -> None:
        """Put back all but what counts and times; who stops a session that was taken over is waited for."""
        if not self._window.may_open_again:
            self.recorder.open.count_only()
            self._window_hooks.close()
            if not self.profilers.tensorflow.took_over:
                self._codes_profiler.watches.close()
        self.source.read_functions(self.recorder.events.functions.alive)

    def _sessions_seen(self) -> None:
        """The code uses sessions of TensorFlow 1, whose runs are hooked from then on."""
        if self._tensorflow is not None and not self._has_sessions:
            self._has_sessions = True
            self._watch(self.graph_runs.watch(self._tensorflow))

    def _guarded(self, hook: Callable[[], object]) -> None:
        with interrupt_held_back(), self.own_time.part("start"):
            try:
                hook()
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                self._hook_failed(error)

    def _look_up(self, module: ModuleType) -> Library:
        library = Library(module, self._hook_failed, self._thread)
        self._libraries.append(library)
        return library

    def _imported(self, name: str, hook: Callable[[Library], object], proof: Seam) -> None:
        """Watch a module, unless its import failed half-way, of which the code will say why."""
        module = sys.modules[name]
        if seams.VERSION.of(module) is not None or proof.find(module) is not None:
            library = self._look_up(module)
            self._watch(self._loads.watch(library))
            hook(library)

    def _watch(self, watching: AbstractContextManager[None], *, in_window: bool = False) -> None:
        """Watch until the capture ends, or until the window closes: not behind that."""
        if in_window and self._window.has_closed:
            return
        try:
            (self._window_hooks if in_window else self._hooks).enter_context(watching)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def _tensorflow_imported(self, tensorflow: Library) -> None:
        self._tensorflow, self._any_imported = tensorflow, True
        events, tapes = self.recorder.events, self.recorder.tapes
        self._watch(events.watch_tensorflow(tensorflow))
        if uses_sessions(tensorflow):
            self._sessions_seen()
        if not self._traces:
            return
        self._watch(tapes.watch_turns(tensorflow))
        self._watch(tapes.watch_gradients(tensorflow), in_window=True)
        metadata = tensorflow.watch(seams.TRACE_METADATA, before=events.metadata_set)
        self._watch(metadata, in_window=True)
        self.source.trace_type = tensorflow.take(seams.TRACE)
        network = watch_network_files(self.recording.network_files, self._window.is_open)
        self._watch(network, in_window=True)
        door = self.profilers.tensorflow
        if door.find(tensorflow) and self._backend_of_keras() != TORCH:
            self._codes_profiler.watch(tensorflow, door)
            self._window.open(door)

    def _jax_imported(self, jax: Library) -> None:
        door = self.profilers.jax
        self._any_imported, is_there = True, door.find(jax)
        self._watch(self.recorder.events.watch_jax(jax))
        if not self._traces or not is_there:
            return
        self.source.trace_type = self.source.trace_type or jax.take(seams.JAX_ANNOTATION)
        self._codes_profiler.watch(jax, door)
        if door.is_set_up:
            self._window.open(door)
        else:
            is_set_up = partial(self._guarded, self._jax_set_up)
            self._watch(jax.watch(seams.JAX_BACKENDS, after=lambda *_, **__: is_set_up()))

    def _jax_set_up(self) -> None:
        """The code has set up JAX's devices: from then on there is work to record."""
        if self._window.was_opened(self.profilers.jax):
            return
        if self.profilers.jax.is_starting():  # under a name that nobody watches
            self._window.leave(self.profilers.jax)
        else:
            self._window.open(self.profilers.jax)

    def _torch_imported(self, torch: Library) -> None:
        door = self.profilers.torch
        self._any_imported = True
        self._records_torch = door.find(torch) and self._traces
        if self._records_torch:
            self._watch(self._scopes.watch_torch(torch), in_window=True)
        self._watch(TorchLoops(self.recorder, door, self._scopes, self._use_torch).watch(torch))
        if not self._records_torch:
            return
        others = ("tensorflow", "jax", "keras")
        if all(sys.modules.get(name) is None for name in others):
            self._window.open(door)
        for seam in (seams.TORCH_AUTOGRAD_ENTER, seams.TORCH_PROFILE_START):
            starts = partial(self._codes_profiler.starts, door)
            self._watch(torch.watch(seam, on_any_thread=True, before=starts))

    def _interpreters_imported(self, library: Library) -> None:
        """See runs of interpreters, marked by whichever profiler records."""
        self._any_imported = True
        loop, doors = self.recorder.invokes, self.profilers

        def begins(*_: object, **__: object) -> None:
            is_jax = self._tensorflow is None and self._window.was_opened(doors.jax)
            door = doors.jax if is_jax else doors.tensorflow
            loop.begin(door if self._window.was_opened(door) else None)

        def raised(*_: object, **__: object) -> None:
            loop.abandon(failed=True)

        for seam in (one for one in seams.INVOKES if one.module == library.module.__name__):
            ended = library.watch(seam, before=begins, came=lambda *_: loop.end(), raised=raised)
            self._watch(ended)

    def _backend_of_keras(self) -> str:
        """Name what Keras 3 runs on, which a process keeps; "" where it is not imported."""
        if self._keras_backend:
            return self._keras_backend
        keras = sys.modules.get("keras")
        backend = None if keras is None else seams.BACKEND.find(keras)
        with contextlib.suppress(Exception):  # a Keras that is being imported
            self._keras_backend = "" if backend is None else str(backend())
        return self._keras_backend

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
        if self._records_torch and not self._window.was_opened(door):
            self._window.open(door)

    def _keras_imported(self, keras: Library) -> None:
        self._watch(watch_in_flight(keras, self._flying))
        batches = self.recorder.batches
        self._watch(batches.watch_keras(keras))
        self._watch(FitWatch(self.recording.fits).watch(keras))
        hooks = batches.fetching_begins, batches.fetching_ends, self._hook_failed
        self._watch(watch_fetching(*hooks), in_window=True)
        if self._traces:
            self._watch(self.models.watch_runs(keras))
            self._watch(self.models.watch_calls(keras), in_window=True)
            if self._backend_of_keras() == TORCH:
                self._watch(self._scopes.watch_keras(keras), in_window=True)
