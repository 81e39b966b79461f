"""JAX's profiler for one capture: the same XPlane as TensorFlow's, from a recorder of JAX's own.

Starting it sets up JAX's devices. Code that has only imported JAX may still choose them (``jax.config``,
``jax.distributed``), so the profiler starts when the code itself has set them up.
"""

import inspect
import time
from pathlib import Path
from typing import Any

from profnb.capture.library import Library
from profnb.capture.parts.cell_counters import is_in_flight
from profnb.capture.profiler.held_back import profiler_log_held_back
from profnb.capture.seams import (
    JAX_ANNOTATION,
    JAX_IS_SET_UP,
    JAX_LIVE,
    JAX_OPTIONS,
    JAX_START,
    JAX_STEP,
    JAX_STOP,
)
from profnb.core.options import CaptureOptions

_PATIENCE_S, _PAUSE_S = 10, 0.0005


class JaxDoor:
    """Starts and stops JAX's profiler.

    Args:
        options: What to record.
        messages: Where what went wrong is said.
    """

    title = "JAX"
    is_of_thread = False

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        self._options, self._messages = options, messages
        self._jax: Library | None = None
        self._runs = False

    def find(self, jax: Library) -> tuple[Any, Any] | None:
        """The functions that start and stop the profiler; None where one is missing."""
        self._jax = jax
        start, stop = jax.take(JAX_START), jax.take(JAX_STOP)
        return None if start is None or stop is None else (start, stop)

    @property
    def is_set_up(self) -> bool:
        """Whether the code has set up JAX's devices."""
        is_set_up = None if self._jax is None else self._jax.take(JAX_IS_SET_UP)
        return is_set_up is not None and bool(is_set_up())

    def is_starting(self) -> bool:
        """Whether the profiler is being started further out on this thread, by whatever name."""
        return self._jax is not None and _is_called(self._jax.take(JAX_START))

    def start(self, folder: str) -> None:
        """Start the profiler.

        Raises:
            RuntimeError: It runs already, for code that has not stopped it.
        """
        assert self._jax is not None
        keywords: dict[str, Any] = {}
        make = self._jax.take(JAX_OPTIONS)
        if make is not None:
            options = keywords["profiler_options"] = make()
            options.host_tracer_level = self._options.host_level
            options.python_tracer_level = int(self._options.python_tracer)
        with profiler_log_held_back():
            self._jax.take(JAX_START)(self._folder(folder), **keywords)
        self._runs = True

    def stop(self, folder: Path) -> Path | None:
        """Stop it when what the code has started is computed; the trace that it wrote, if any.

        JAX returns before a step is computed, up to 32 of them: without waiting, the last steps of a window
        have begun and done nothing. What is not computed in ten seconds may itself wait for something that
        the code does later (a callback, another process).
        """
        assert self._jax is not None
        live = self._jax.take(JAX_LIVE)
        left = [] if live is None else list(live())
        until = time.monotonic() + _PATIENCE_S
        while any(map(is_in_flight, left)) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        self._runs = False
        with profiler_log_held_back():
            self._jax.take(JAX_STOP)()
        traces = sorted(Path(self._folder(str(folder))).glob("plugins/profile/*/*.xplane.pb"))
        if not traces:
            self._messages.append("JAX's profiler stopped but left no trace.")
        return traces[-1] if traces else None

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A marker in JAX's trace, begun; None where none is recorded, or JAX has none."""
        kind = None if self._jax is None or not self._runs else self._jax.take(JAX_STEP)
        return None if kind is None else _begun(kind(phase, step_num=step_num, **metadata))

    def mark(self, name: str) -> Any:
        """An event in JAX's trace, begun; None where none is recorded, or JAX has none."""
        kind = None if self._jax is None or not self._runs else self._jax.take(JAX_ANNOTATION)
        return None if kind is None else _begun(kind(name))

    @staticmethod
    def _folder(folder: str) -> str:
        """A folder beside what another profiler writes: both name a run by the second."""
        return str(Path(folder) / "jax")


def _is_called(function: Any) -> bool:
    """Whether a function is being called further out on this thread."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _begun(annotation: Any) -> Any:
    annotation.__enter__()
    return annotation
