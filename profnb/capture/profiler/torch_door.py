"""PyTorch's profiler for one capture: Kineto's JSON.

It records the thread that started it and the backward passes that this one asks for, and only that thread can
stop it.

A step is an event ``ProfilerStep#12``, as PyTorch's own schedule writes it and its tools read it. What else
is known of the step (its phase, that it was given up) stands in a second event that its end has, because an
event of Kineto's has no metadata: ``profnb.step#12 train``.

Kineto frees what it recorded when it stops, and an event that ends while it records again is written where it
began: an event of ours that outlives its session would write into freed memory. So all end before it stops.

A step took the examples that its ``DataLoader`` gave since the step before: several batches, where gradients
are accumulated. Batches of other loaders in between (validation) are nobody's. A batch is a tensor, or
tensors in lists, tuples and dicts; where the first sizes of all agree, that is how many examples it holds. A
loader that does not collate (``batch_size=None``) may give single examples, so there two tensors at least
must agree, unless it is Keras that reads it.
"""

import contextlib
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import replace_attribute
from profnb.capture.profiler.profiler_door import Door, log_held_back
from profnb.capture.signals import OwnFaults
from profnb.core.options import CaptureOptions
from profnb.trace import names

_MOST_FILE_PARTS = 64


class BatchCount:
    """Adds up the examples that loaders give, on one thread."""

    def __init__(self) -> None:
        """None was given yet."""
        self._latest: Any = None  # refers to the loader's iterator that gave the last batch
        self._given: dict[Any, int] = {}  # by such a reference; -1 where a batch was not understood

    def came(self, loader: object, batch: object, *, is_batch: bool) -> None:
        """A loader's iterator gave a batch.

        Args:
            loader: The iterator.
            batch: What it gave.
            is_batch: Whether that is known to be a batch, and no single example.
        """
        is_batch = is_batch or bool(seams.TORCH_COLLATES.of(loader))
        count = count_examples(batch, is_batch=is_batch)
        latest = self._latest = weakref.ref(loader)
        before = self._given.get(latest, 0)
        self._given[latest] = before + count if count and before >= 0 else -1

    def taken(self) -> int:
        """Give how many examples the latest loader has given since the last time; 0 where it is not known."""
        count = self._given.get(self._latest, 0)
        self._given.clear()
        return max(count, 0)


def count_examples(batch: Any, *, is_batch: bool) -> int:
    """Count the examples of a batch; 0 where that cannot be told.

    Args:
        batch: Tensors, in lists, tuples and dicts or not.
        is_batch: Whether it is known to be a batch, and no single example.
    """
    sizes: list[int] = []
    parts = [batch]
    for _ in range(_MOST_FILE_PARTS):
        if not parts:
            break
        part = parts.pop()
        if isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, list | tuple):
            parts.extend(part[: _MOST_FILE_PARTS + 1])
        elif (shape := getattr(part, "shape", None)) is not None:
            if not len(shape):
                return 0
            sizes.append(int(shape[0]))
    if parts or len(set(sizes)) != 1 or (len(sizes) < 2 and not is_batch):
        return 0
    return max(sizes[0], 0)


_NORMAL_LEVEL = 2
_CLOCK_READINGS = 3
_RECORDING: "set[TorchDoor]" = set()  # captures of ours that record PyTorch
_RUN_FOLDER, _TRACE_FILE = "torch", "torch.pt.trace.json"


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Keep the profiler from importing PyTorch's compiler, to ask if it uses CUDA graphs.

    That takes seconds, and what nobody has imported uses none. Code that needs it imports it in its own time.
    """
    torch, give, here = sys.modules.get("torch"), seams.TORCH_LAZY.find(), get_ident()
    if torch is None or give is None or "torch._inductor" in sys.modules:
        yield
        return

    def give_others(name: str) -> Any:
        if name == "_inductor" and get_ident() == here:
            raise AttributeError(name)
        return give(name)

    with replace_attribute(torch, "__getattr__", give_others):
        yield


class TorchDoor(Door):
    """Starts and stops PyTorch's profiler.

    Attributes:
        batches: What loaders have given, for the next step that ends.
    """

    title = "PyTorch"
    is_of_thread = True
    needed = (
        seams.TORCH_PROFILE_START,
        seams.TORCH_PROFILE_STOP,
        seams.TORCH_PROFILE,
        seams.TORCH_PROFILE_EXPORT,
    )

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        super().__init__(options, messages)
        self._running: Any = None
        self._is_lost = False
        self._open: dict[_Event, None] = {}
        self.batches = BatchCount()

    def start(self, folder: str) -> None:
        """Start the profiler.

        Raises:
            RuntimeError: It runs already, for code that has not stopped it, which PyTorch itself would let
                happen: the profiler that came second takes all, and stopping the first one then ends both.
        """
        del folder
        runs = seams.TORCH_RUNS.find() or _runs_here()
        if runs and not _RECORDING:  # which ends as this one starts
            raise RuntimeError("another PyTorch profiler is running: stop that profiler first")
        activities = None  # all that this PyTorch can record
        if not self._options.device_tracer:
            activities = [self._take(seams.TORCH_ACTIVITY).CPU]
        with log_held_back(), _without_compiler(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running = self._take(seams.TORCH_PROFILE)(
                activities=activities,
                with_stack=self._options.python_tracer,
                record_shapes=self._options.host_level > _NORMAL_LEVEL,
                profile_memory=self._options.memory,
            )
            running.start()
        self._running, self._is_lost = running, False
        _RECORDING.add(self)
        if self._options.source or self._options.python:
            # Events whose begin is known by Python's clock; a later reading is the surer one.
            kind = seams.TORCH_FAST_RECORD.find() or self._kind_of_mark()
            for _ in range(_CLOCK_READINGS if kind is not None else 0):
                _Event(kind(f"{names.KINETO_CLOCK}{time.perf_counter_ns()}"), self._open).__exit__()

    def stop(self, folder: Path) -> Path | None:
        """Stop it; the trace that it wrote. A step that is open ends here, and is none.

        Where it runs no more, or on another thread, there is nothing to stop, and where another one has
        taken what it recorded, nothing to write: PyTorch would end the process.
        """
        running, self._running = self._running, None
        _RECORDING.discard(self)
        for event in reversed(tuple(self._open)):
            with contextlib.suppress(Exception):  # the profiler must not be left running
                event.give_up()
        self._open.clear()
        if _runs_here() is False:
            self._messages.append(
                "The code stopped PyTorch's profiler, or runs a profiler on another thread: there is no "
                "trace of PyTorch."
            )
            return None
        target = folder / "plugins" / "profile" / _RUN_FOLDER
        with log_held_back(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepare = seams.TORCH_PREPARE.find()
            if self._is_lost and prepare is not None:
                # Its recording went to another thread's, and PyTorch 2.13 dies without one to end.
                with OwnFaults():
                    prepare(seams.TORCH_PROFILE_INSIDE.of(running))
            running.stop()
            if self._is_lost:
                return None
            target.mkdir(parents=True, exist_ok=True)
            running.export_chrome_trace(str(target / _TRACE_FILE))
        return target / _TRACE_FILE

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A marker in PyTorch's trace, begun; None where none is recorded, or PyTorch has none."""
        kind = self._kind_of_mark()
        if kind is None:
            return None
        return _Marker(kind, phase, step_num, metadata, self.batches, self._open)

    def lose(self) -> None:
        """The code starts a profiler on another thread: PyTorch then drops what this one has recorded."""
        if self.is_running:
            self._is_lost = True
            self._messages.append(
                "The code started its own PyTorch profiler on another thread. Two cannot run "
                "at once, so there is no trace of PyTorch."
            )

    @property
    def is_running(self) -> bool:
        """True while PyTorch's profiler records for us."""
        return self._running is not None and not self._is_lost

    def mark(self, name: str, kind: Any = None) -> Any:
        """An event in PyTorch's trace, begun; None where none is recorded, or PyTorch has none."""
        kind = kind or self._kind_of_mark()
        return None if kind is None else _Event(kind(name), self._open)

    def _kind_of_mark(self) -> Any:
        return self._take(seams.TORCH_RECORD) if self.is_running else None


def _runs_here() -> bool | None:
    """True where a profiler of PyTorch's records this thread; None where this PyTorch does not tell."""
    runs = seams.TORCH_RUNS_HERE.find()
    return None if runs is None else bool(runs())


class _Event:
    """An event, begun; it ends once, by who began it or before the profiler stops.

    It is in the ledger before it begins and until after it has ended: an interrupt may come at any line of
    PyTorch's, and the exception would keep an event alive that nobody ends. One that ends twice ended once.

    Args:
        event: One of PyTorch's kinds.
        all_open: Holds it until it ends.
    """

    __slots__ = "_all_open", "_event"

    def __init__(self, event: Any, all_open: "dict[_Event, None]") -> None:
        self._event, self._all_open = event, all_open
        all_open[self] = None
        event.__enter__()

    def give_up(self) -> None:
        self.__exit__()

    def __exit__(self, *error: object) -> None:
        if self in self._all_open:
            self._event.__exit__(None, None, None)
            self._all_open.pop(self, None)


class _Marker(_Event):
    """A step's marker, begun, that takes metadata as TensorFlow's does."""

    __slots__ = "_batches", "_kind", "_metadata", "_number", "_phase"

    def __init__(
        self,
        kind: Any,
        phase: str,
        step_num: int,
        metadata: dict[str, object],
        batches: BatchCount,
        all_open: dict[_Event, None],
    ) -> None:
        self._kind, self._phase, self._number, self._batches = kind, phase, step_num, batches
        self._metadata = dict(metadata)
        super().__init__(kind(f"{names.KINETO_STEP}{step_num}"), all_open)

    def set_metadata(self, **metadata: object) -> None:
        """Add what is known only now."""
        self._metadata |= metadata

    def give_up(self) -> None:
        self.set_metadata(**{names.IS_ABANDONED: 1})
        self.__exit__()

    def __exit__(self, *error: object) -> None:
        if self not in self._all_open:
            return
        if names.IS_ABANDONED not in self._metadata and (examples := self._batches.taken()):
            self._metadata[names.EXAMPLES] = examples
        words = (f"{name}={value}" for name, value in self._metadata.items())
        try:
            facts = " ".join((f"{names.KINETO_FACTS}{self._number}", self._phase, *words))
            _Event(self._kind(facts), self._all_open).__exit__()
        finally:
            super().__exit__()


class StepMark:
    """A step that ``profnb.step`` marks where PyTorch is: nothing, unless a capture sees it begin and end.

    Args:
        phase: What the step does.
        step_num: Its number.
        also: TensorFlow's marker, where that is imported too, or None.
    """

    def __init__(self, phase: str, step_num: int, also: Any = None) -> None:
        """Nothing is marked yet."""
        self.phase, self.step_num = phase, step_num
        self.marker: Any = None
        self.also = also

    def __enter__(self) -> None:
        """See ``TorchLoops``, which watches it."""
        if self.also is not None:
            self.also.__enter__()

    def __exit__(self, *error: object) -> None:
        """Likewise."""
        if self.also is not None:
            self.also.__exit__(*error)
