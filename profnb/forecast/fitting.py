"""``profnb.fits``: what was given, to a forecast: which batches are run, and where.

A model of Keras' is saved, and each batch runs in a fresh process, whose memory is measured. A step of
PyTorch's runs here, on small batches, measured by its allocators, one of TensorFlow 1 by the RunMetadata of
its session runs; of a step of JAX's XLA's plan is read, and on a CPU it runs, too; any other runs here, and
the process' memory is measured. To plan takes no memory: XLA plans a large batch of JAX's as well.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from profnb.capture.machine.memory_limits import find_limit, resident_bytes
from profnb.core.errors import CaptureError
from profnb.core.safe_files import folder_prefix
from profnb.core.units import bytes_text, count_text, counted_text
from profnb.forecast import meters
from profnb.forecast.kept_state import KeptState

if TYPE_CHECKING:
    from profnb.forecast.memory_forecast import MemoryForecast

_FIRST, _MOST_BATCH, _EXAMPLES = 8, 1 << 16, 64
_LEAST_POINTS = 4
_GROWTH = 8  # times the first peak: results, or the update of the weights, hide small batches
_LEAST_PEAK = 16e6  # bytes: a process takes memory in pieces
_GPU, _GIVEN_LIMIT = "the GPU", "the given limit"
_EVEN = 0.9  # of what each example adds, what it added without the last batch
_SHARE = 10  # of the limit, the part that measuring may take
_PROCESSES = 3  # that each run the largest batch
_PLANNED = 8  # times the largest batch that ran, the one that is planned only
_Limit = tuple[int, str] | None  # the most memory there may be, and what sets that
_Meter = Callable[[int], tuple[float, float]]  # what is there before, what comes on top


@dataclass(frozen=True)
class _Measuring:
    """How the memory of a step is measured.

    Attributes:
        meter: Measures a batch of a size.
        how: How, in a sentence.
        limit: The most memory there may be.
        held_bytes: What a process holds besides; None where an allocator tells, which has no more.
        plan: Plans a batch of a size without running it; None where nobody does.
        runs: How often the largest batch is measured; the middle counts.
    """

    meter: _Meter
    how: str
    limit: _Limit
    held_bytes: int | None = None
    plan: Callable[[int], float] | None = None
    runs: int = 1


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
    ``profnb.fits(step, batch)``; what the step changes is put back.

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
    is_model = hasattr(model, "train_on_batch")
    if not (is_model or callable(model)):
        raise CaptureError(
            f"fits takes a compiled Keras model or a function that takes a step, got {type(model).__name__}."
        )
    if is_model and getattr(model, "optimizer", None) is None:
        raise CaptureError("The model is not compiled. Call model.compile(...) first.")
    batch = (x, y) if is_model else x if isinstance(x, tuple) else (x,)
    arrays = _arrays_of(batch)
    if any(None in tuple(one.shape) for one in arrays):
        raise CaptureError(
            "The batch has sequences of several lengths. Pad all to the same length."
        )
    counts = sorted({int(one.shape[0]) for one in arrays})
    if len(counts) != 1 or not counts[0]:
        sizes = " and ".join(map(str, counts or [0]))
        raise CaptureError(
            f"The arrays have {sizes} examples. Give arrays of one length: the batch alone, without weights, "
            "and sequences padded."
        )
    policy = getattr(getattr(model, "dtype_policy", None), "name", "")
    with _measuring_of(model, batch, _limit(limit_bytes)) as measuring:
        batches, before, peaks = _measure(measuring, chosen)
        if measuring.plan is not None:
            _add_planned(batches, peaks, measuring.plan)
        held = None if measuring.held_bytes is None else measuring.held_bytes + int(before)
        inputs = None if "mixed" in str(policy) else sum(map(_bytes_of, arrays)) / counts[0]
        return make_forecast(batches, peaks, measuring.limit, [measuring.how], held, inputs)


@contextmanager
def _measuring_of(model: Any, batch: tuple[Any, ...], limit: _Limit) -> Iterator[_Measuring]:
    """Choose how a model or a step is measured; what it changes is as before behind the block."""
    if hasattr(model, "train_on_batch"):
        how = "Measured in a fresh process: the most memory it took while it trained on a batch."
        with _saved(model, *batch) as meter:
            held_bytes = sum(map(_bytes_of, _arrays_of(batch)))
            yield _Measuring(meter, how, limit, held_bytes, runs=_PROCESSES)
        return
    if _is_jax_step(model, batch):
        how = (
            "XLA's own plan of the step's memory, or what a run on the CPU took, if that is more. "
            "The largest batch was only planned."
        )
        is_run_here = sys.modules["jax"].default_backend() == "cpu"  # as uneven as a process
        planned: dict[int, float] = {}

        def run(size: int) -> tuple[float, float]:
            planned[size], peak = meters.planned_peak(model, _resized(batch, size))
            return 0.0, peak

        def plan(size: int) -> float:
            return planned.get(size) or meters.planned_peak(model, _shapes(batch, size))[0]

        limit = _beside_process(limit, 0.0)
        yield _Measuring(run, how, limit, 0 if is_run_here else None, plan)
        return
    with put_back(model) as kept:
        peak, held = meters.resident_peak, None if kept.holds_torch or kept.sessions else 0
        how = "Measured in this process, whose freed memory may hide some of a step's."
        if kept.holds_torch:
            how = "Measured by PyTorch's allocators; libraries and data of the process come on top."
            peak, limit = meters.torch_peak, _beside_process(limit, meters.living_bytes())
        elif kept.sessions:
            how = "Measured by RunMetadata of the session's runs, with variables and what is fed."
            peak, limit = meters.session_peak, _beside_process(limit, 0.0)
        yield _Measuring(
            lambda size: peak(partial(model, *_resized(batch, size))), how, limit, held
        )


@contextmanager
def put_back(step: Any) -> Iterator[KeptState]:
    """Put back, after the block, what a step changes.

    That is what its function names: variables of its module, those it closes over, its defaults and the
    object it is a method of.

    Raises:
        CaptureError: It uses something that cannot be put back, as an iterator.
    """
    kept = KeptState({"step": step})
    for path, what in kept.unsafe.items():
        raise CaptureError(
            f"fits cannot restore `{path}` ({what}). Give a step without it, and the batch as an argument."
        )
    try:
        yield kept
    finally:
        kept.put_back()


def _is_jax_step(step: Any, arguments: tuple[Any, ...]) -> bool:
    """Tell whether a step is one of JAX's: compiled by it, or given its arrays."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return False
    leaves = jax.tree_util.tree_leaves(arguments)
    return hasattr(step, "lower") or any(isinstance(leaf, jax.Array) for leaf in leaves)


def _measure(
    measuring: _Measuring, chosen: list[int] | None
) -> tuple[list[int], float, list[float]]:
    """Measure batches one after the other, none that would take more than a tenth of the limit.

    Args:
        measuring: How.
        chosen: Which; None for as many as it takes to see how memory grows.

    Returns:
        The batches; what was there before the first, and what each took on top.
    """
    most = measuring.limit[0] / _SHARE if measuring.limit else float("inf")
    is_process = measuring.held_bytes is not None
    origin = [0] if is_process else []
    batches: list[int] = []
    peaks: list[float] = []
    first_held, size = 0.0, _FIRST
    while chosen is None or len(batches) < len(chosen):
        size = chosen[len(batches)] if chosen else size
        slope, _ = meters.lay_line(origin + batches, [*origin, *peaks], is_process=is_process)
        if slope * size > most and len(batches) >= _LEAST_POINTS - 1:
            break
        if slope * size > most:
            raise CaptureError(
                f"A batch of {count_text(size)} would take more than a tenth of the "
                f"{bytes_text(most * _SHARE)} there are. Give smaller batch_sizes."
            )
        try:
            held, more = measuring.meter(size)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(
                f"The step cannot run with {counted_text(size, 'example')} ({type(error).__name__}: "
                f"{str(error)[:200]}). Give other batch_sizes, or a batch that it takes."
            ) from error
        first_held = first_held if batches else held
        batches.append(size)
        # What a smaller batch left in the process is used anew (what a recurrent layer stacked).
        peaks.append(max(more + held - first_held, 0.0))
        before, last = (
            meters.lay_line(batches[:end], peaks[:end], is_process=is_process)[0]
            for end in (-1, None)
        )
        is_even = len(peaks) >= _LEAST_POINTS and before >= _EVEN * last
        is_enough = is_even and peaks[-1] - peaks[0] >= _GROWTH * max(peaks[0], _LEAST_PEAK)
        if chosen is None and (is_enough or size >= _MOST_BATCH):
            break
        size *= 2
    again = (sum(measuring.meter(batches[-1])) for _ in range(measuring.runs - 1))
    peaks[-1] = median([peaks[-1], *(both - first_held for both in again)])  # it weighs most
    if chosen is None:  # small batches tell little: a process' memory grows in steps
        batches, peaks = batches[-_LEAST_POINTS:], peaks[-_LEAST_POINTS:]
    return batches, first_held, peaks


def _add_planned(batches: list[int], peaks: list[float], plan: Callable[[int], float]) -> None:
    """Add a large batch as it is planned, with as much more as runs of small ones say."""
    large = _PLANNED * batches[-1]
    more = [peak - plan(size) for size, peak in zip(batches, peaks, strict=True)]
    slope, _ = meters.lay_line(batches, more, is_process=True)
    peaks.append(plan(large) + more[-1] + max(slope, 0.0) * (large - batches[-1]))
    batches.append(large)


def _beside_process(limit: _Limit, living: float) -> _Limit:
    """Take from a limit on the process what no allocator tells of: libraries and data."""
    resident = resident_bytes()
    if limit is None or resident is None or limit[1] in (_GPU, _GIVEN_LIMIT):
        return limit
    return max(limit[0] - max(resident - int(living), 0), 0), limit[1]


def _limit(limit_bytes: int | None) -> _Limit:
    """The most memory there may be: as it was given, the GPU's, else the process'."""
    if limit_bytes is not None:
        return int(limit_bytes), _GIVEN_LIMIT
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1]), _GPU
    limit = find_limit()
    return None if limit is None else (limit.limit_bytes, limit.of)


def _arrays_of(part: Any) -> list[Any]:
    """The arrays of a batch: those in lists, tuples and dicts too."""
    if isinstance(part, dict | list | tuple):
        inside = part.values() if isinstance(part, dict) else part
        return [array for one in inside for array in _arrays_of(one)]
    return [part] if len(getattr(part, "shape", ())) else []


def _bytes_of(array: Any) -> int:
    item = getattr(array.dtype, "itemsize", None) or array.dtype.size
    return prod(int(size or 1) for size in array.shape) * int(item)


def _named(side: str, part: Any) -> dict[str, Any]:
    """The arrays of one side of the examples by the names that the fresh process knows them by."""
    if isinstance(part, dict):
        return {f"{side}.{name}": one for name, one in part.items()}
    listed = part if isinstance(part, list | tuple) else [] if part is None else [part]
    return {f"{side}{at}": one for at, one in enumerate(listed)}


@contextmanager
def _saved(model: Any, x: Any, y: Any) -> Iterator[_Meter]:
    """Save a model and some examples, and give what measures a batch of it in a new process."""
    import numpy as np

    sides = _named("x", x), _named("y", y)
    if not all(sides):
        raise CaptureError("fits takes x and y of one example or more.")
    given = sides[0] | sides[1]
    examples = {name: np.asarray(part[:_EXAMPLES]) for name, part in given.items()}
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
        command += [str(folder / "model.keras"), str(folder / "examples.npz")]

        def meter(size: int) -> tuple[float, float]:
            with subprocess.Popen(  # noqa: S603 - this Python
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, env=settings
            ) as process:  # fmt: skip
                try:
                    answer = _ask(process, size)
                finally:
                    process.kill()
            return float(answer["before"]), float(answer["more"])

        yield meter


def _ask(process: Any, size: int) -> dict[str, Any]:
    """Tell a process its batch, and wait for the answer; what the framework prints is none."""
    with suppress(BrokenPipeError):  # it has ended
        process.stdin.write(f"{size}\n")
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


def _shapes(batch: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """The shapes that a batch of JAX's has with so many examples."""
    jax: Any = sys.modules["jax"]

    def shape_of(part: Any) -> Any:
        shape = getattr(part, "shape", ())
        return jax.ShapeDtypeStruct((size, *shape[1:]), part.dtype) if len(shape) else part

    return tuple(jax.tree_util.tree_map(shape_of, batch))


def _resized(batch: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """The batch with so many examples: its own, again and again."""
    return tuple(_resize(part, size) for part in batch)


def _resize(part: Any, size: int) -> Any:
    if isinstance(part, dict):
        return {name: _resize(one, size) for name, one in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(_resized(tuple(part), size))
    shape: Any = getattr(part, "shape", ())
    if not len(shape):
        return part
    import numpy as np

    rows = np.resize(np.arange(int(shape[0])), size)
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.is_tensor(part):
        return tensorflow.gather(part, rows)
    return part[rows]
