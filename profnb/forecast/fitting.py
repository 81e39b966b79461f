"""``profnb.fits``: what was given, to a forecast: which batches are run, and where.

A model of Keras' is saved and runs in a fresh process, whose memory is measured. A step of PyTorch's runs
here, on small batches, measured by its allocators; a step of JAX's is compiled and does not run; any other
step runs here, and the process' memory is measured.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.machine.memory_limits import find_limit, resident_bytes
from profnb.core.errors import CaptureError
from profnb.core.safe_files import folder_prefix
from profnb.core.units import bytes_text, count_text
from profnb.forecast.meters import living_bytes, planned_peak, resident_peak, torch_peak
from profnb.forecast.standing import is_jax_step, is_torch_step, put_back

if TYPE_CHECKING:
    from profnb.forecast.memory_forecast import MemoryForecast

_FIRST, _MOST_BATCH, _EXAMPLES = 8, 1 << 16, 64
_LEAST_POINTS, _VISIBLE = 4, 128e6  # bytes that a process grows by, for its grain not to matter
_GPU, _GIVEN_LIMIT = "the GPU", "the given limit"
_SHARE = 10  # of the limit, the part that measuring may take
_Meter = Callable[[int], tuple[float, float]]  # what is there before, what comes on top


def fits(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_sizes: Sequence[int] | None = None,
    limit_bytes: int | None = None,
) -> "MemoryForecast":
    """Forecast the memory of a step at any batch size, and the largest batch that fits.

    A few small batches run, which take at most a tenth of the limit: of a compiled Keras model in a process
    of its own, on copies of its weights. Of your own loop give the step and a batch,
    ``profnb.fits(step, batch)``; what the step changes is put back, and a step of JAX's does not run at all.

    Args:
        model: A compiled Keras model; or a function that takes a batch and trains on it.
        x: Examples for the model, an array or several; or the batch that the step takes, or a tuple of them.
        y: Their targets.
        batch_sizes: The batch sizes to run, three or more; by default 8, 16, 32 ... until the step shows.
        limit_bytes: The most memory there may be; by default the GPU's, the container's or the machine's.

    Returns:
        The forecast: ``largest_batch``, ``peak_bytes(batch)``, ``because`` and a chart.

    Raises:
        CaptureError: The step cannot run, or changes what cannot be put back; the message says why.
        ValueError: The batch sizes are fewer than three that differ, or not positive.
    """
    from profnb.forecast.memory_forecast import make_forecast

    chosen = None if batch_sizes is None else sorted({int(size) for size in batch_sizes})
    if chosen is not None and (len(chosen) < _LEAST_POINTS - 1 or chosen[0] < 1):
        raise ValueError(f"batch_sizes takes three positive sizes or more, got {batch_sizes}.")
    limit = _limit(limit_bytes)
    if hasattr(model, "train_on_batch"):
        bases = [sum(int(getattr(part, "nbytes", 0)) for side in (x, y) for part in _parts(side))]
        with _saved(model, x, y) as meter:
            batches, peaks = _measure(meter, chosen, limit, bases)
        how = "Measured in a fresh process: the most memory it took while it trained on a batch."
        return make_forecast(batches, peaks, limit, [how], bases)
    if not callable(model):
        raise CaptureError(
            f"fits takes a compiled Keras model or a function that takes a step, got {type(model).__name__}."
        )
    return _forecast_step(model, x if isinstance(x, tuple) else (x,), chosen, limit)


def _forecast_step(
    step: Any, batch: tuple[Any, ...], chosen: list[int] | None, limit: tuple[int, str] | None
) -> "MemoryForecast":
    from profnb.forecast.memory_forecast import make_forecast

    if is_jax_step(step, batch):
        limit = _beside_process(limit, 0.0)

        def plan_at(size: int) -> tuple[float, float]:
            return 0.0, planned_peak(step, _resized(batch, size, is_shape=True))

        batches, peaks = _measure(plan_at, chosen, limit, [])
        how = "XLA's own plan of the step's memory, compiled at each size; nothing ran."
        return make_forecast(batches, peaks, limit, [how])
    is_torch = is_torch_step(step)
    limit = _beside_process(limit, living_bytes()) if is_torch else limit
    with put_back(step):

        def run_at(size: int) -> tuple[float, float]:
            sized = _resized(batch, size)
            run = partial(step, *sized)
            try:
                return (0.0, torch_peak(run)) if is_torch else resident_peak(run)
            except CaptureError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {str(error)[:200]}"
                raise CaptureError(
                    f"The step cannot run with {count_text(size)} examples ({what})."
                ) from error

        bases: list[int] = [] if is_torch else [0]
        batches, peaks = _measure(run_at, chosen, limit, bases)
    how = (
        "Measured by PyTorch's allocators; libraries and data of the process come on top."
        if is_torch
        else "Measured in this process, whose freed memory may hide some of a step's."
    )
    return make_forecast(batches, peaks, limit, [how], bases)


def _measure(
    meter: _Meter, chosen: list[int] | None, limit: tuple[int, str] | None, bases: list[int]
) -> tuple[list[int], list[float]]:
    """Measure batches one after the other, none that would take more than a tenth of the limit.

    Args:
        meter: Measures one.
        chosen: Which; None for as many as it takes to see how memory grows.
        limit: The most memory there may be, and what sets that.
        bases: What stays in use; of a process what was there before the first batch is added.
    """
    most = limit[0] / _SHARE if limit else float("inf")
    batches: list[int] = []
    peaks: list[float] = []
    size = chosen[0] if chosen else _FIRST
    while chosen is None or len(batches) < len(chosen):
        size = chosen[len(batches)] if chosen else size
        if len(batches) > 1 or (batches and bases):
            first = (batches[0], peaks[0]) if len(batches) > 1 else (0, 0.0)
            slope = (peaks[-1] - first[1]) / (batches[-1] - first[0])
            if slope * size > most and len(batches) >= _LEAST_POINTS - 1:
                break
            if slope * size > most:
                raise CaptureError(
                    f"A batch of {count_text(size)} would take more than a tenth of the "
                    f"{bytes_text(most * _SHARE)} there are. Give smaller batch_sizes."
                )
        batches.append(size)
        before, more = meter(size)
        if bases and len(peaks) == 0:
            bases.append(int(before))
        peaks.append(more)
        is_visible = peaks[-1] - peaks[0] >= (_VISIBLE if bases else 0)
        is_enough = len(batches) >= _LEAST_POINTS and is_visible
        if chosen is None and (is_enough or size >= _MOST_BATCH):
            break
        is_tiny = bool(bases) and peaks[-1] - peaks[0] < _VISIBLE / 8
        size *= 8 if is_tiny and len(batches) > 1 else 2
    if bases and chosen is None:  # a process' memory grows in steps: small batches tell little
        batches, peaks = batches[-_LEAST_POINTS:], peaks[-_LEAST_POINTS:]
    return batches, peaks


def _beside_process(limit: tuple[int, str] | None, living: float) -> tuple[int, str] | None:
    """Take from a limit on the process what no allocator tells of: libraries and data."""
    resident = resident_bytes()
    if limit is None or resident is None or limit[1] in (_GPU, _GIVEN_LIMIT):
        return limit
    return max(limit[0] - max(resident - int(living), 0), 0), limit[1]


def _limit(limit_bytes: int | None) -> tuple[int, str] | None:
    """The most memory there may be: as it was given, the GPU's, else the process'."""
    if limit_bytes is not None:
        return int(limit_bytes), _GIVEN_LIMIT
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1]), _GPU
    limit = find_limit()
    return None if limit is None else (limit.limit_bytes, limit.of)


def _parts(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


@contextmanager
def _saved(model: Any, x: Any, y: Any) -> Iterator[_Meter]:
    """Save a model and some examples, and start a process that runs it."""
    import numpy as np

    if getattr(model, "optimizer", None) is None:
        raise CaptureError("The model is not compiled. Call model.compile(...) first.")
    sides = {"x": _parts(x), "y": _parts(y)}
    examples = {
        f"{side}{at}": np.asarray(part[:_EXAMPLES])
        for side, listed in sides.items()
        for at, part in enumerate(listed)
    }
    if not sides["x"] or not sides["y"] or not all(map(len, examples.values())):
        raise CaptureError("fits takes x and y of one example or more.")
    with tempfile.TemporaryDirectory(prefix=folder_prefix()) as name:
        folder = Path(name)
        try:
            model.save(folder / "model.keras")
        except Exception as error:
            raise CaptureError(
                f"The model cannot be saved ({str(error)[:200]}). Give your own step: "
                "profnb.fits(step, batch)."
            ) from error
        save: Any = np.savez
        save(folder / "examples.npz", **examples)
        settings = os.environ | {"KERAS_BACKEND": sys.modules["keras"].backend.backend()}
        command = [sys.executable, "-m", "profnb.forecast.fresh_process"]
        process = subprocess.Popen(  # noqa: S603 - this Python
            [*command, str(folder / "model.keras"), str(folder / "examples.npz")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=settings,
        )  # fmt: skip
        try:
            _answer_of(process, "")
            yield partial(_ask, process)
        finally:
            process.kill()
            process.communicate()


def _ask(process: Any, size: int) -> tuple[float, float]:
    answer = _answer_of(process, f"{size}\n")
    return float(answer["before"]), float(answer["more"])


def _answer_of(process: Any, line: str) -> dict[str, Any]:
    """Send a line, and wait for the answer; what the framework prints is none."""
    if line:
        process.stdin.write(line)
        process.stdin.flush()
    for answer in process.stdout:
        if answer.startswith("profnb "):
            values: dict[str, Any] = json.loads(answer.removeprefix("profnb "))
            if "error" in values:
                raise CaptureError(
                    f"The model cannot be run in a process of its own ({values['error']}). Give your own "
                    "step: profnb.fits(step, batch)."
                )
            return values
    raise CaptureError(
        "The process that ran the model ended without an answer. Give smaller batch_sizes."
    )


def _resized(batch: tuple[Any, ...], size: int, *, is_shape: bool = False) -> tuple[Any, ...]:
    """The batch with so many examples: its own, again and again; where shapes will do, those."""
    return tuple(_resize(part, size, is_shape=is_shape) for part in batch)


def _resize(part: Any, size: int, *, is_shape: bool) -> Any:
    import numpy as np

    if isinstance(part, dict):
        return {name: _resize(one, size, is_shape=is_shape) for name, one in part.items()}
    shape: Any = getattr(part, "shape", ())
    if not len(shape):
        is_listed = isinstance(part, list | tuple)
        return type(part)(_resized(tuple(part), size, is_shape=is_shape)) if is_listed else part
    if is_shape:
        return sys.modules["jax"].ShapeDtypeStruct((size, *shape[1:]), part.dtype)
    rows = np.resize(np.arange(int(shape[0])), size)
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.is_tensor(part):
        return tensorflow.gather(part, rows)
    return part[rows]
