"""JAX's profiler for one capture: the same XPlane as TensorFlow's, from a recorder of JAX's own.

Starting it sets up JAX's devices. Code that has only imported JAX may still choose them (``jax.config``,
``jax.distributed``), so the profiler starts when the code itself has set them up.

Keras fetching a batch is marked in the trace, inside of the step, where Keras does it. On TensorFlow and
PyTorch events of their own tell (``IteratorGetNext``, ``enumerate(DataLoader)#...``). On JAX Keras calls
``next`` of an iterator of its own making, so that one is put into another that marks its calls (see
``hooks``). How many examples a batch holds is what Keras' adapter of the data says: of arrays and datasets of
one shape, not of a generator or a PyDataset.
"""

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import guarded, replace_attribute, without_us
from profnb.capture.parts.cell_counters import is_in_flight
from profnb.capture.profiler.profiler_door import Door, log_held_back
from profnb.capture.seam import Seam
from profnb.capture.source.user_code import outward

_PATIENCE_S, _PAUSE_S = 10, 0.0005
_FOLDER = "jax"  # beside what another profiler writes: both name a run by the second


class JaxDoor(Door):
    """Starts and stops JAX's profiler."""

    title = "JAX"
    needed = (seams.JAX_START, seams.JAX_STOP)
    _runs = False

    @property
    def is_set_up(self) -> bool:
        """True where the code has set up JAX's devices."""
        is_set_up = self._take(seams.JAX_IS_SET_UP)
        return is_set_up is not None and bool(is_set_up())

    def is_starting(self) -> bool:
        """Tell if the profiler is being started further out on this thread, by whatever name."""
        code = getattr(inspect.unwrap(self._take(seams.JAX_START)), "__code__", None)
        return any(frame.f_code is code for frame in outward(inspect.currentframe()))

    def start(self, folder: str) -> None:
        """Start the profiler.

        Raises:
            RuntimeError: It runs already, for code that has not stopped it.
        """
        keywords: dict[str, Any] = {}
        make = self._take(seams.JAX_OPTIONS)
        if make is not None:
            options = keywords["profiler_options"] = make()
            options.host_tracer_level = self._options.host_level
            options.python_tracer_level = int(self._options.python_tracer)
        with log_held_back():
            self.functions[0](str(Path(folder) / _FOLDER), **keywords)
        self._runs = True

    def stop(self, folder: Path) -> Path | None:
        """Stop it when what the code has started is computed; the trace that it wrote, if any.

        JAX returns before a step is computed, up to 32 of them: without waiting, the last steps of a window
        have begun and done nothing. What is not computed in ten seconds may itself wait for something that
        the code does later (a callback, another process).
        """
        live = self._take(seams.JAX_LIVE)
        left = [] if live is None else list(live())
        until = time.monotonic() + _PATIENCE_S
        while any(map(is_in_flight, left)) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        self._runs = False
        state = self._take(seams.JAX_SESSION)
        session = getattr(state, "profile_session", None)
        if hasattr(session, "stop") and hasattr(session, "stop_and_export"):
            state.profile_session = _TraceAlone(session)
        with log_held_back():
            self.functions[1]()
        return self._find_trace(folder / _FOLDER, "JAX's profiler stopped but left no trace.")

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A marker in JAX's trace, begun; None where none is recorded, or JAX has none."""
        return self._begin(seams.JAX_STEP, phase, step_num=step_num, **metadata)

    def mark(self, name: str) -> Any:
        """An event in JAX's trace, begun; None where none is recorded, or JAX has none."""
        return self._begin(seams.JAX_ANNOTATION, name)

    def _begin(self, seam: Seam, name: str, **metadata: object) -> Any:
        kind = self._take(seam) if self._runs else None
        if kind is None:
            return None
        annotation = kind(name, **metadata)
        annotation.__enter__()
        return annotation


class _TraceAlone:
    """A session of JAX's profiler that writes its trace, and not the same once more for Chrome.

    Of 20,000 programs that took 1.4 s instead of 5.1.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def stop_and_export(self, folder: str) -> None:
        written = Path(folder) / f"plugins/profile/{time.time_ns()}/jax.xplane.pb"
        written.parent.mkdir(parents=True)
        written.write_bytes(self._session.stop())


def watch_fetching(
    before: Callable[[int | None], object],
    after: Callable[[], object],
    hook_failed: Callable[[Exception], object],
) -> AbstractContextManager[None]:
    """Run hooks around each batch that Keras' trainer on JAX fetches, inside the block.

    Args:
        before: Is given how many examples the batch will hold; None where Keras does not know.
        after: Runs when the batch is there, or there is none.
        hook_failed: Is given what a hook raised.
    """
    owner = seams.JAX_BATCHES.owner()
    original = seams.JAX_BATCHES.of(owner)
    if original is None:
        return nullcontext()
    hooks = guarded(before, hook_failed), guarded(after, hook_failed)

    def made(epochs: Any) -> Any:
        try:
            batches = original(epochs)
        except BaseException as error:
            without_us(error)
            raise
        return _Batches(batches, seams.JAX_ADAPTER.of(epochs), *hooks)

    return replace_attribute(owner, seams.JAX_BATCHES.attributes[0], made)


class _Batches:
    """Iterates what another does; hooks run around each ``next``."""

    __slots__ = ("_adapter", "_after", "_batches", "_before")

    def __init__(self, batches: Any, adapter: Any, *hooks: Callable[..., object]) -> None:
        self._batches, self._adapter = batches, adapter
        self._before, self._after = hooks

    def __iter__(self) -> "_Fetching":
        return _Fetching(iter(self._batches), self._adapter, self._before, self._after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class _Fetching:
    """An iterator that runs hooks around each ``next`` of another one.

    The first is told the examples of one batch after the other: of the last one what is left.
    """

    __slots__ = ("_adapter", "_after", "_batches", "_before", "_left")

    def __init__(self, batches: Iterator[Any], adapter: Any, *hooks: Callable[..., object]) -> None:
        self._batches, self._adapter = batches, adapter
        self._before, self._after = hooks
        self._left = _number(seams.ADAPTER_BATCHES, adapter) or 0

    def __iter__(self) -> "_Fetching":
        return self

    def __next__(self) -> Any:
        self._left -= 1
        is_rest = self._left == 0 and _number(seams.ADAPTER_HAS_REST, self._adapter)
        self._before(_number(seams.ADAPTER_REST if is_rest else seams.ADAPTER_SIZE, self._adapter))
        try:
            return next(self._batches)
        except BaseException as error:
            without_us(error)
            raise
        finally:
            self._after()


def _number(seam: Seam, adapter: Any) -> int | None:
    """A number of the adapter's; None where it has none, or raises that it does not know."""
    value = seam.of(adapter)
    return value if isinstance(value, int) else None
