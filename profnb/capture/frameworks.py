"""What is watched in each framework, from when the code imports it.

TensorFlow, Keras, JAX and PyTorch need not be imported yet when a capture begins. Their names come from
``seams``; a missing one costs what hangs on it, and one sentence. TensorFlow's profiler starts with its
import, JAX's when its devices are set up, PyTorch's where nothing else is imported or when it begins to work.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from profnb.capture.hooks import on_import
from profnb.capture.library import Library, explain_missing, modules_beside
from profnb.capture.machine.network_files import watch_network_files
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.models.model_watch import FitWatch, ModelWatch
from profnb.capture.parts.cell_counters import InFlight, OwnTime, watch_in_flight
from profnb.capture.profiler.codes_profiler import CodesProfiler
from profnb.capture.profiler.doors import Door, Doors
from profnb.capture.profiler.fetched_batches import watch_fetching
from profnb.capture.profiler.torch_compiling import unseen_by_torch_compile
from profnb.capture.profiler.torch_loops import TorchLoops
from profnb.capture.profiler.torch_scopes import TorchScopes
from profnb.capture.profiler.window import Window
from profnb.capture.recording import Recording
from profnb.capture.seams import (
    BACKEND,
    JAX_BACKENDS,
    JAX_START,
    JAX_STOP,
    MODEL,
    START,
    STOP,
    TORCH_AUTOGRAD_ENTER,
    TORCH_PROFILE_START,
    VERSION,
)
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.source.tape_watch import TapeWatch
from profnb.capture.source.user_code import uses_sessions

JAX, TORCH = "jax", "torch"  # as Keras calls them


@dataclass(frozen=True, slots=True)
class Watchers:
    """What sees a framework at work, one for each kind of fact.

    Attributes:
        own_time: Charged with the time that watching takes.
        batches_fly: Told of batches of JAX that are still computed when Keras is done with them.
        recorder: Steps.
        tapes: Eager gradients.
        session_runs: Opens a block that sees session runs.
        source: Source lines and stacks.
        models: Keras models and ``torch.nn.Module``s that ran.
        scopes: Calls of PyTorch's layers.
    """

    own_time: OwnTime
    batches_fly: Callable[[InFlight], object]
    recorder: StepRecorder
    tapes: TapeWatch
    session_runs: Callable[[Library], AbstractContextManager[None]]
    source: SourceWatch
    models: ModelWatch
    scopes: TorchScopes


class Frameworks:
    """Watches each framework that the code imports, or has imported.

    Args:
        watchers: What sees them at work.
        window: Opened when a framework's profiler can start.
        profilers: One for each framework.
        recording: Given fits and messages.
        hook_failed: Given every error of a hook of ours.
        traces: Whether a trace is recorded; without one, steps are only timed.

    Attributes:
        tensorflow: TensorFlow, once it is imported.
        codes_profiler: A profiler that the code starts by itself.
    """

    def __init__(
        self,
        watchers: Watchers,
        window: Window,
        profilers: Doors,
        recording: Recording,
        hook_failed: Callable[[Exception], object],
        *,
        traces: bool,
    ) -> None:
        """Nothing is watched yet."""
        self._to, self._window, self._profilers = watchers, window, profilers
        self._recording, self._hook_failed, self._traces = recording, hook_failed, traces
        self._watches, self._window_watches = ExitStack(), ExitStack()
        window.closed = self._window_closed
        self._libraries: list[Library] = []
        self.tensorflow: Library | None = None
        self._others: set[str] = set()  # titles of other frameworks that were imported
        self._records_torch = self._has_sessions = False
        self._keras_backend = ""
        log = watchers.recorder.log
        self.codes_profiler = CodesProfiler(window, profilers, recording, log)
        self._thread = threading.get_ident()

    @property
    def any_imported(self) -> bool:
        """Whether there was a framework whose work can be recorded."""
        return self.tensorflow is not None or bool(self._others)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """See them inside the block, those first that are imported already."""
        hooks: dict[str, Callable[[], object]] = {"tensorflow": self._tensorflow_imported}
        hooks |= {"jax": self._jax_imported, "torch": self._torch_imported}
        hooks["torch._dynamo"] = self._torch_compile_imported
        hooks |= {name: partial(self._keras_imported, name) for name in ("keras", "tf_keras")}
        hooks = {name: partial(self._guarded, hook) for name, hook in hooks.items()}
        watches = self._watches, self._window_watches, self.codes_profiler.watches
        with watches[0], watches[1], watches[2], on_import(hooks):
            yield

    def _window_closed(self) -> None:
        """Put back all but what counts and times; who stops a session that was taken over is waited for."""
        if not self._window.may_open_again:
            self._to.recorder.count_only()
            self._window_watches.close()
            if not self._profilers.tensorflow.took_over:
                self.codes_profiler.watches.close()
        self._to.source.read_functions(list(self._to.recorder.events.functions.alive))

    def sessions_seen(self) -> None:
        """The code uses sessions of TensorFlow 1, whose runs are hooked from then on."""
        if self.tensorflow is not None and not self._has_sessions:
            self._has_sessions = True
            self._watch(self._to.session_runs(self.tensorflow))

    def explain_losses(self) -> list[str]:
        """What is lost because of names that others changed."""
        for module in modules_beside() if self._traces else ():
            self._look_up(module)
        return explain_missing(self._libraries)

    def _guarded(self, hook: Callable[[], object]) -> None:
        with interrupt_held_back(), self._to.own_time.part("start"):
            try:
                hook()
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                self._hook_failed(error)

    def _look_up(self, module: ModuleType) -> Library:
        library = Library(module, self._hook_failed)
        self._libraries.append(library)
        return library

    def _watch(self, watching: AbstractContextManager[None], *, in_window: bool = False) -> None:
        """Watch until the capture ends, or until the window closes: not behind that."""
        if in_window and self._window.has_closed:
            return
        try:
            (self._window_watches if in_window else self._watches).enter_context(watching)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def _tensorflow_imported(self) -> None:
        module = sys.modules["tensorflow"]
        if VERSION.of(module) is None and START.find(module) is None:
            return  # its import failed half-way; the code will say why
        tensorflow = self.tensorflow = self._look_up(module)
        events = self._to.recorder.events
        self._watch(events.watch_tensorflow(tensorflow))
        if self._traces:
            self._watch(self._to.tapes.watch_turns(tensorflow))
            self._watch(self._to.tapes.watch_gradients(tensorflow), in_window=True)
            self._watch(events.watch_metadata(tensorflow), in_window=True)
        if uses_sessions(tensorflow):
            self.sessions_seen()
        if not self._traces:
            return
        self._to.source.watch_tensorflow(tensorflow)
        network = watch_network_files(self._recording.network_files, self._window.is_open)
        self._watch(network, in_window=True)
        door = self._profilers.tensorflow
        functions = door.find(tensorflow)
        if functions is None or self._backend_of_keras() == TORCH:
            return
        self.codes_profiler.watch(tensorflow, door, (START, STOP), functions)
        self._window.open(door)

    def _jax_imported(self) -> None:
        jax = sys.modules["jax"]
        if VERSION.of(jax) is None:
            return  # its import failed half-way
        library, door = self._look_up(jax), self._profilers.jax
        self._others.add(door.title)
        functions = door.find(library)
        self._watch(self._to.recorder.events.watch_jax(library))
        if not self._traces or functions is None:
            return
        self._to.source.watch_jax(library)
        self.codes_profiler.watch(library, door, (JAX_START, JAX_STOP), functions)
        if door.is_set_up:
            self._window.open(door)
        else:
            is_set_up = partial(self._guarded, self._jax_set_up)
            self._watch(library.watch(JAX_BACKENDS, after=lambda *_, **__: is_set_up()))

    def _jax_set_up(self) -> None:
        """The code has set up JAX's devices, on whatever thread: from then on there is work to record."""
        if threading.get_ident() != self._thread or self._window.was_opened(self._profilers.jax):
            return
        if self._profilers.jax.is_starting():  # under a name that nobody watches
            self._window.leave(self._profilers.jax)
        else:
            self._window.open(self._profilers.jax)

    def _torch_imported(self) -> None:
        torch = sys.modules["torch"]
        if VERSION.of(torch) is None:
            return  # its import failed half-way
        library, door = self._look_up(torch), self._profilers.torch
        self._others.add(door.title)
        self._records_torch = door.find(library) and self._traces
        if self._records_torch:
            self._watch(self._to.scopes.watch_torch(library), in_window=True)
        loops = TorchLoops(self._to.recorder, door, self._use_torch, self._hook_failed)
        self._watch(loops.watch(library))
        if not self._records_torch:
            return
        others = ("tensorflow", "jax", "keras")
        if all(sys.modules.get(name) is None for name in others):
            self._window.open(door)
        for seam in (TORCH_AUTOGRAD_ENTER, TORCH_PROFILE_START):
            self._watch(library.watch(seam, before=partial(self.codes_profiler.starts, door)))

    def _torch_compile_imported(self) -> None:
        self._watch(unseen_by_torch_compile())

    def _backend_of_keras(self) -> str:
        """What Keras 3 runs on, which a process keeps; "" where it is not imported."""
        if self._keras_backend:
            return self._keras_backend
        keras = sys.modules.get("keras")
        backend = None if keras is None else BACKEND.find(keras)
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

    def _keras_imported(self, name: str) -> None:
        if MODEL.find(sys.modules[name]) is None and VERSION.of(sys.modules[name]) is None:
            return  # its import failed half-way
        keras = self._look_up(sys.modules[name])
        self._watch(watch_in_flight(self._to.batches_fly, self._hook_failed))
        self._watch(self._to.recorder.batches.watch_keras(keras))
        batches = self._to.recorder.batches
        if not batches.run_listeners:
            fits = FitWatch(self._recording.fits)
            batches.run_listeners.append((fits.run_began, fits.run_ended))
            if self._traces:
                models = self._to.models
                batches.run_listeners.append((models.run_began, models.run_ended))
        hooks = batches.fetching_begins, batches.fetching_ends, self._hook_failed
        self._watch(watch_fetching(*hooks), in_window=True)
        if self._traces:
            self._watch(self._to.models.watch_calls(keras), in_window=True)
            if self._backend_of_keras() == TORCH:
                self._watch(self._to.scopes.watch_keras(keras), in_window=True)
