"""Watching each framework, from when the code imports it.

TensorFlow, Keras, JAX and PyTorch need not be imported yet when a capture begins. Their names come from
``seams``; a missing one costs what hangs on it, and one sentence. TensorFlow's profiler starts with its
import, JAX's when its devices are set up, PyTorch's where nothing else is imported or when it begins to work.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import ModuleType

from profnb.capture import seams
from profnb.capture.hooks import Library, explain_missing, on_import
from profnb.capture.machine.network_files import watch_network_files
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.models.model_watch import FitWatch, ModelWatch
from profnb.capture.parts.cell_counters import InFlight, OwnTime, watch_in_flight
from profnb.capture.profiler.doors import Doors
from profnb.capture.profiler.jax_door import watch_fetching
from profnb.capture.profiler.profiler_door import Door
from profnb.capture.profiler.torch_watch import TorchLoops, TorchScopes, unseen_by_torch_compile
from profnb.capture.profiler.window import CodesProfiler, Window
from profnb.capture.recording import Recording
from profnb.capture.seam import Seam
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.source.tape_watch import TapeWatch
from profnb.capture.source.user_code import uses_sessions

JAX, TORCH = "jax", "torch"  # as Keras calls them


class Frameworks:
    """Watches each framework that the code imports, or has imported.

    Args:
        window: Opened when a framework's profiler can start.
        profilers: One for each framework.
        recording: Given fits and messages.
        recorder: Sees steps.
        tapes: Sees eager gradients.
        source: Sees source lines and stacks.
        models: Sees the Keras models and ``torch.nn.Module``s that run.
        session_runs: Opens a block that sees session runs.
        batches_fly: Told of batches of JAX that are still computed when Keras is done with them.
        own_time: Charged with the time that watching takes.
        hook_failed: Given every error of a hook of ours.
        traces: Whether a trace is recorded; without one, steps are only timed.

    Attributes:
        tensorflow: TensorFlow, once it is imported.
        any_imported: Whether there was a framework whose work can be recorded.
        codes_profiler: A profiler that the code starts by itself.
    """

    def __init__(
        self,
        window: Window,
        profilers: Doors,
        recording: Recording,
        *,
        recorder: StepRecorder,
        tapes: TapeWatch,
        source: SourceWatch,
        models: ModelWatch,
        session_runs: Callable[[Library], AbstractContextManager[None]],
        batches_fly: Callable[[InFlight], object],
        own_time: OwnTime,
        hook_failed: Callable[[Exception], object],
        traces: bool,
    ) -> None:
        """Nothing is watched yet."""
        self._window, self._profilers, self._recording = window, profilers, recording
        self._recorder, self._tapes, self._source, self._models = recorder, tapes, source, models
        self._session_runs, self._batches_fly, self._own_time = session_runs, batches_fly, own_time
        self._hook_failed, self._traces = hook_failed, traces
        self._scopes = TorchScopes(profilers.torch, models)
        self._watches, self._window_watches = ExitStack(), ExitStack()
        window.closed = self._window_closed
        self._libraries: list[Library] = []
        self.tensorflow: Library | None = None
        self.any_imported = False
        self._records_torch = self._has_sessions = False
        self._keras_backend = ""
        self.codes_profiler = CodesProfiler(window, profilers, recording, recorder.log)
        self._thread = threading.get_ident()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """See them inside the block, those first that are imported already."""
        seen: dict[str, tuple[Callable[[Library], object], Seam]] = {
            "tensorflow": (self._tensorflow_imported, seams.START),
            "jax": (self._jax_imported, seams.VERSION),
            "torch": (self._torch_imported, seams.VERSION),
            "keras": (self._keras_imported, seams.MODEL),
            "tf_keras": (self._keras_imported, seams.MODEL),
        }
        hooks: dict[str, Callable[[], object]] = {
            name: partial(self._guarded, partial(self._imported, name, *hook))
            for name, hook in seen.items()
        }
        for name in seams.INTERPRETERS:
            invokes = [seam for seam in seams.INVOKES if seam.module == name]
            hook = partial(self._interpreters_imported, invokes)
            hooks[name] = partial(self._guarded, partial(self._imported, name, hook, invokes[0]))
        hooks["torch._dynamo"] = partial(
            self._guarded, lambda: self._watch(unseen_by_torch_compile())
        )
        watches = self._watches, self._window_watches, self.codes_profiler.watches
        with watches[0], watches[1], watches[2], on_import(hooks):
            yield

    def _window_closed(self) -> None:
        """Put back all but what counts and times; who stops a session that was taken over is waited for."""
        if not self._window.may_open_again:
            self._recorder.open.counts_only = True
            self._window_watches.close()
            if not self._profilers.tensorflow.took_over:
                self.codes_profiler.watches.close()
        self._source.read_functions(self._recorder.events.functions.alive)

    def sessions_seen(self) -> None:
        """The code uses sessions of TensorFlow 1, whose runs are hooked from then on."""
        if self.tensorflow is not None and not self._has_sessions:
            self._has_sessions = True
            self._watch(self._session_runs(self.tensorflow))

    def explain_losses(self) -> list[str]:
        """Say what is lost because of names that others changed."""
        if self._traces:
            beside = ["sys", "importlib"]  # Python's own that hold seams
            if seams.SHELL_INSTANCE.owner() is not None:  # no code's own in IPython's place
                beside.append("IPython")
            for name in beside:
                if sys.modules.get(name) is not None:
                    self._look_up(sys.modules[name])
        return explain_missing(self._libraries)

    def _guarded(self, hook: Callable[[], object]) -> None:
        with interrupt_held_back(), self._own_time.part("start"):
            try:
                hook()
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                self._hook_failed(error)

    def _look_up(self, module: ModuleType) -> Library:
        library = Library(module, self._hook_failed)
        self._libraries.append(library)
        return library

    def _imported(self, name: str, hook: Callable[[Library], object], proof: Seam) -> None:
        """Watch a module, unless its import failed half-way, of which the code will say why."""
        module = sys.modules[name]
        if seams.VERSION.of(module) is not None or proof.find(module) is not None:
            hook(self._look_up(module))

    def _watch(self, watching: AbstractContextManager[None], *, in_window: bool = False) -> None:
        """Watch until the capture ends, or until the window closes: not behind that."""
        if in_window and self._window.has_closed:
            return
        try:
            (self._window_watches if in_window else self._watches).enter_context(watching)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def _tensorflow_imported(self, tensorflow: Library) -> None:
        self.tensorflow, self.any_imported = tensorflow, True
        events = self._recorder.events
        self._watch(events.watch_tensorflow(tensorflow))
        if self._traces:
            self._watch(self._tapes.watch_turns(tensorflow))
            self._watch(self._tapes.watch_gradients(tensorflow), in_window=True)
            self._watch(
                tensorflow.watch(seams.TRACE_METADATA, before=events.metadata_set), in_window=True
            )
        if uses_sessions(tensorflow):
            self.sessions_seen()
        if not self._traces:
            return
        self._source.watch_tensorflow(tensorflow)
        network = watch_network_files(self._recording.network_files, self._window.is_open)
        self._watch(network, in_window=True)
        door = self._profilers.tensorflow
        if door.find(tensorflow) and self._backend_of_keras() != TORCH:
            self.codes_profiler.watch(tensorflow, door)
            self._window.open(door)

    def _jax_imported(self, jax: Library) -> None:
        door = self._profilers.jax
        self.any_imported, is_there = True, door.find(jax)
        self._watch(self._recorder.events.watch_jax(jax))
        if not self._traces or not is_there:
            return
        self._source.watch_jax(jax)
        self.codes_profiler.watch(jax, door)
        if door.is_set_up:
            self._window.open(door)
        else:
            is_set_up = partial(self._guarded, self._jax_set_up)
            self._watch(jax.watch(seams.JAX_BACKENDS, after=lambda *_, **__: is_set_up()))

    def _jax_set_up(self) -> None:
        """The code has set up JAX's devices, on whatever thread: from then on there is work to record."""
        if threading.get_ident() != self._thread or self._window.was_opened(self._profilers.jax):
            return
        if self._profilers.jax.is_starting():  # under a name that nobody watches
            self._window.leave(self._profilers.jax)
        else:
            self._window.open(self._profilers.jax)

    def _torch_imported(self, torch: Library) -> None:
        door = self._profilers.torch
        self.any_imported = True
        self._records_torch = door.find(torch) and self._traces
        if self._records_torch:
            self._watch(self._scopes.watch_torch(torch), in_window=True)
        self._watch(TorchLoops(self._recorder, door, self._use_torch).watch(torch))
        if not self._records_torch:
            return
        others = ("tensorflow", "jax", "keras")
        if all(sys.modules.get(name) is None for name in others):
            self._window.open(door)
        for seam in (seams.TORCH_AUTOGRAD_ENTER, seams.TORCH_PROFILE_START):
            self._watch(torch.watch(seam, before=partial(self.codes_profiler.starts, door)))

    def _interpreters_imported(self, invokes: Sequence[Seam], library: Library) -> None:
        """See runs of interpreters, marked by whichever profiler records."""
        self.any_imported = True
        loops, doors = self._recorder.loops, self._profilers

        def begins(*_: object, **__: object) -> None:
            is_jax = self.tensorflow is None and self._window.was_opened(doors.jax)
            door = doors.jax if is_jax else doors.tensorflow
            loops.invoke_begins(door if self._window.was_opened(door) else None)

        for seam in invokes:
            self._watch(
                library.watch(
                    seam,
                    before=begins,
                    came=lambda *_: loops.invoke_ended(),
                    raised=lambda *_, **__: loops.invoke_failed(),
                )
            )

    def _backend_of_keras(self) -> str:
        """Name what Keras 3 runs on, which a process keeps; "" where it is not imported."""
        if self._keras_backend:
            return self._keras_backend
        keras = sys.modules.get("keras")
        backend = None if keras is None else seams.BACKEND.find(keras)
        with contextlib.suppress(Exception):  # a Keras that is being imported
            self._keras_backend = "" if backend is None else str(backend())
        return self._keras_backend

    def door_of_keras(self) -> Door | None:
        """The profiler that records what Keras does; None where nobody does. PyTorch's starts here."""
        backend = self._backend_of_keras()
        if backend != TORCH:
            return self._profilers.jax if backend == JAX else self._profilers.tensorflow
        self._use_torch()
        return self._profilers.torch

    def _use_torch(self) -> None:
        """PyTorch works here: its profiler starts, and stops where time was up."""
        door = self._profilers.torch
        if self._records_torch and not self._window.was_opened(door):
            self._window.open(door)

    def _keras_imported(self, keras: Library) -> None:
        self._watch(watch_in_flight(self._batches_fly, self._hook_failed))
        batches = self._recorder.batches
        self._watch(batches.watch_keras(keras))
        if not batches.run_listeners:
            fits = FitWatch(self._recording.fits)
            batches.run_listeners.append((fits.run_began, fits.run_ended))
            if self._traces:
                batches.run_listeners.append((self._models.run_began, self._models.run_ended))
        hooks = batches.fetching_begins, batches.fetching_ends, self._hook_failed
        self._watch(watch_fetching(*hooks), in_window=True)
        if self._traces:
            self._watch(self._models.watch_calls(keras), in_window=True)
            if self._backend_of_keras() == TORCH:
                self._watch(self._scopes.watch_keras(keras), in_window=True)
