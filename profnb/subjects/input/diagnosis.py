"""Name what starves the training, in a sentence with its numbers, and what to change in the pipeline.

The limit is the iterator that the training waited for longest in the counted steps. Why it is slow follows
from its kind and from the ops that its function ran.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.units import duration_text, percent_text
from profnb.subjects.input.iterators import count_first_fill, keras_array_rows, read_files
from profnb.subjects.input.pipeline import InputPipeline
from profnb.subjects.input.waiting import FUNCTION, Waiting
from profnb.trace.model import Trace
from profnb.trace.names import PYTHON_OPS

BOUND = 0.05
HIGH = 0.2
_FAR_MORE = 5
_KEEPS_UP, _FEW_PREFETCHED, _ONE_THREAD = 1.1, 4, 1.1
_FEWEST_ELEMENTS = 4  # fewer say little about a pipeline, whose buffers fill meanwhile
_SMALL_BUFFER = 32  # filling less than this is not what takes long
_LONG_FIRST, _SHORTEST_FIRST_PS = 0.2, 100_000_000_000
_HAND_OVER_PS = 60_000_000
_READERS = (
    "TFRecord", "TextLine", "FixedLengthRecord", "CSV", "SSTable", "RecordIO", "ArrayRecord",
)  # fmt: skip
_MAPS = ("Map", "ParallelMap", "MapAndBatch")
_DECODERS = ("Decode", "ParseExample", "ParseSingleExample", "ParseSequenceExample")
# Iterators that make nothing: a cache behind them would hold what the one before has made already.
_HANDS_OVER = (
    "Root", "Model", "Prefetch", "MemoryCache", "FileCache", "ForeverRepeat", "FiniteRepeat",
)  # fmt: skip
_CACHES = ("MemoryCache", "FileCache")
_OUTERMOST = ("Root", "Model")
# What the user called to have Python make elements.
_PYTHON_APIS = {"EagerPyFunc": "tf.py_function"}
_THREADED = ("transform", "decode", "small files")
_BATCHING = ("Batch", "PaddedBatch", "ParallelBatch", "MapAndBatch")
# Cause to (what it is, what to change).
CAUSES = {
    "python": (
        "runs Python ({api}), one element at a time (GIL)",
        "Write the function with TensorFlow ops. Or prepare the data once: keep arrays in memory, or read "
        "with tf.data.TFRecordDataset. Python runs one thread at a time, but processes help: "
        "keras.utils.PyDataset(workers=4, use_multiprocessing=True).",
    ),
    "small files": (
        "opens and reads one file per element",
        "Pack the files into TFRecords once and read with tf.data.TFRecordDataset(files, "
        "num_parallel_reads=tf.data.AUTOTUNE), or .cache() after the reading.",
    ),
    "each element": (
        "runs a short function once for each element",
        ".batch(n) before .map(f) calls f once for a whole batch. Most TensorFlow ops take a batch as it is: "
        "casts, arithmetic, strings, tf.io.parse_example.",
    ),
    "sequential map": (
        "runs one element at a time",
        "Use several threads: .map(..., num_parallel_calls=tf.data.AUTOTUNE), after .cache() if the data "
        "fits into memory.",
    ),
    "decode": (
        "decodes longer than a step takes",
        "Decode once: .cache() behind a map that only decodes, in memory or in a file. Filter before, and "
        "draw random numbers in a map after it. Store images smaller, or tf.image.decode_and_crop_jpeg.",
    ),
    "busy": (
        "is the slowest stage",
        "Do less in this stage, or move the costly part into an earlier .map(..., "
        "num_parallel_calls=tf.data.AUTOTUNE).",
    ),
    "transform": (
        "takes longer than the model",
        "Do less per element: .batch() before .map() with a vectorized function, and .cache() for the "
        "unchanging part. Or move the work into the model, onto the device.",
    ),
    "read": (
        "reads files one after another",
        "Read several at once: tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE), or "
        "files.interleave(..., num_parallel_calls=tf.data.AUTOTUNE).",
    ),
    "shuffle": (
        "fills its buffer",
        "Shuffle fewer or smaller elements (file names, not images), with a smaller buffer_size.",
    ),
    "batch": (
        "copies elements into batches",
        "Batch larger pieces, or .batch(..., num_parallel_calls=tf.data.AUTOTUNE).",
    ),
    "no prefetch": (
        "makes each batch between two steps, on their thread",
        "Add .prefetch(tf.data.AUTOTUNE) as the last step of the pipeline.",
    ),
    "bursts": (
        "is fast enough on average, but delivers unevenly into too small a buffer",
        "Let the last step hold more: .prefetch(16), or .prefetch(tf.data.AUTOTUNE), with a buffer that "
        "grows as needed.",
    ),
    "other": ("holds up the steps", ""),  # nothing tells why, so nothing helps for sure
}


@dataclass(frozen=True, slots=True)
class InputDiagnosis:
    """The limit of the training's input."""

    # "high" from 20 % of the time waiting, "moderate" from 5 %, else "none"; also "none" where an element
    # takes less than 60 us to come, where the pipeline makes more than is taken (and the wait is moderate, or
    # it makes five times that), where fewer than four elements were taken, and where no pipeline of the
    # user's is to blame
    severity: str = "none"
    iterator: int = -1  # the row of the iterator that is the limit, or -1 where nothing waits
    cause: str = ""  # a key of ``CAUSES``; "" where nothing waits
    sentence: str = ""  # the answer, with its numbers
    fix: str = ""  # what to change
    limit: str = ""  # which iterator is the limit and why, without numbers; "" where nothing waits


def diagnose_input(
    table: InputPipeline, waiting: Waiting, batch_size: float | None
) -> InputDiagnosis | None:
    """Name the iterator that is the limit, and why; None without elements in the counted steps.

    ``batch_size`` is how many examples an element has, the mean where they differ.
    """
    if not len(table) or not waiting.elements:
        return None
    fraction = waiting.fraction
    waits = f"The steps wait {percent_text(fraction)} of the time for input"
    unit, each = ("examples", batch_size) if batch_size else ("batches", 1)
    model, made = waiting.model_per_second * each, waiting.pipeline_per_second * each
    by_iterator = waiting.charged_ps.sum(axis=1)
    is_far_ahead = waiting.busy_ps * _FAR_MORE * waiting.model_per_second < 1e12
    if (
        not fraction >= BOUND
        or waiting.per_element_ps < _HAND_OVER_PS  # what it costs to hand over, whoever makes it
        or (fraction < HIGH and made > model)
        or waiting.elements < _FEWEST_ELEMENTS
        or (runs_ahead(table) and is_far_ahead)  # it waits for a core, or for what comes seldom
        or not by_iterator.any()
    ):
        rate = "many times that" if made > _FAR_MORE * model else f"{_rate(made)} {unit}/s"
        alone = f"{_rate(model)} {unit}/s"
        return InputDiagnosis(
            sentence=f"{waits}. Training alone could use {alone}; the pipeline can make {rate}."
        )
    row = _limit_of(table, waiting)
    in_function = int(waiting.charged_ps[row, FUNCTION]) * 2 > int(by_iterator[row])
    cause = _cause_of(table, waiting, row, in_function=in_function)
    innocent = _why_innocent(table, waiting, row, cause, in_function=in_function)
    if innocent:
        return InputDiagnosis(sentence=f"{waits}, {innocent}.")
    what, fix = CAUSES[cause]
    python_ops = [name for name, *_ in table.function_ops[row] if name in PYTHON_OPS]
    api = "a generator or PyDataset"
    if python_ops and table.kind[row] != "Generator":
        api = _PYTHON_APIS.get(python_ops[0], "tf.numpy_function")
    what = what.format(api=api)
    if not runs_ahead(table) and cause not in ("no prefetch", "python"):
        fix += f" The input stands still while the model works. {CAUSES['no prefetch'][1]}"
    name = "the pipeline" if table.kind[row] in _OUTERMOST else table.name(row)
    threads = ""
    busy, allowed = float(waiting.threads[row]), int(table.parallelism[row])
    if in_function and cause in _THREADED and busy >= max(allowed, 1) / 2:
        threads = f" ({busy:.1f}{f' of {allowed}' if allowed else ''} threads busy)"
    if cause == "bursts":
        made = 1e12 / waiting.busy_ps * each
    sentence = (
        f"The input delivers {_rate(made)} {unit}/s; training alone could use {_rate(model)} or more. "
        f"{name} {what}: {percent_text(waiting.share_of(row))} of the steady steps' waiting{threads}."
    )
    severity = "high" if fraction >= HIGH else "moderate"
    return InputDiagnosis(severity, row, cause, sentence, fix, f"{name} {what}")


def _why_innocent(
    table: InputPipeline, waiting: Waiting, row: int, cause: str, *, in_function: bool
) -> str:
    """Say why an iterator that was waited for is nothing to change, to end a sentence; "" where it is.

    Keras makes a pipeline of its own for arrays in memory; what feeds a cache runs once; others only wait.
    """
    if row in keras_array_rows(table.tree):
        return "batched from arrays in memory by Keras"
    name = f"most of it for {table.name(row)}"
    above = int(table.tree.parent[row])
    while above >= 0:
        if table.kind[above].startswith(_CACHES):
            return f"{name}. A cache keeps the elements for the next pass"
        above = int(table.tree.parent[above])
    nothing = "no stage of the pipeline stands out"
    if cause == "other" and table.kind[row].startswith(_HANDS_OVER):
        return f"{name}, a stage that only hands over: {nothing}"
    runs_elsewhere = cause == "transform" and not in_function and table.function_occurrences[row]
    if runs_elsewhere and table.work_ps[row] * 10 < waiting.charged_ps[row].sum():
        return f"{name}. The function takes a small part of the wait: {nothing}"
    return ""


def _limit_of(table: InputPipeline, waiting: Waiting) -> int:
    """The row of the iterator that was waited for longest.

    Not one whose function, in which the time was waited, worked for less than half of it (a filter behind a
    map that takes all threads): the next one then, if it is a quarter of the waiting. Where it waits for
    Python that makes its elements, and perhaps for the interpreter's lock, it is that Python.
    """
    by_iterator = waiting.charged_ps.sum(axis=1)
    row, *others = map(int, np.argsort(-by_iterator, kind="stable"))
    in_function = int(waiting.charged_ps[row, FUNCTION])
    is_idle = table.function_occurrences[row] and table.function_ps[row] * 2 < in_function
    is_idle = is_idle and in_function * 2 > by_iterator[row] and table.kind[row] not in _MAPS
    if is_idle and others and 4 * by_iterator[others[0]] >= by_iterator.sum():
        return others[0]
    if in_function * 2 > by_iterator[row]:
        return row
    below = {row}
    below.update(at for at, above in enumerate(table.tree.parent.tolist()) if above in below)
    python = [
        at
        for at in below
        if runs_python(table, at) and 2 * table.total_ps[at] > table.total_ps[row]
    ]
    return max(python, default=row)


def _comes_unevenly(table: InputPipeline, waiting: Waiting, row: int) -> bool:
    """Tell if every stage keeps up with the model on average, and the last buffer is a small, fixed one.

    Where several threads work for the limit's function they may be more than there are cores, and what
    they could make is not known.
    """
    if waiting.threads[row] > _ONE_THREAD:
        return False
    buffers = [row for row, kind in enumerate(table.kind) if kind.startswith("Prefetch")]
    if not buffers or not waiting.busy_ps > 0 or table.is_autotuned[buffers[0]]:
        return False
    keeps_up = 1e12 / waiting.busy_ps > _KEEPS_UP * waiting.model_per_second
    return keeps_up and 0 < int(table.capacity[buffers[0]]) <= _FEW_PREFETCHED


def explain_first_element(trace: Trace, table: InputPipeline, waiting: Waiting) -> str:
    """Say why the first element was long in coming, where that took a fifth of the time; else ""."""
    if waiting.first_ps < _SHORTEST_FIRST_PS:
        return ""
    window_ps = int(trace.events.end_ps.max() - trace.events.begin_ps.min())
    if waiting.first_ps < _LONG_FIRST * window_ps:
        return ""
    took = f"The first element took {duration_text(waiting.first_ps)}"
    for row, kind in enumerate(table.kind):
        capacity = int(table.capacity[row])
        if not kind.startswith("Shuffle") or capacity <= _SMALL_BUFFER:
            continue
        if capacity <= 2 * count_first_fill(trace, table.tree, row):
            return f"{took}: Shuffle fills its buffer of {capacity:,} elements first. {CAUSES['shuffle'][1]}"
    return f"{took}: threads start and buffers fill."


def _rate(value: float) -> str:
    if np.isnan(value):
        return "an unknown number of"
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def _cause_of(table: InputPipeline, waiting: Waiting, row: int, *, in_function: bool) -> str:
    """The first cause that holds, a key of ``CAUSES``."""
    kind, ops, runs = table.kind[row], table.function_ops[row], int(table.function_occurrences[row])
    reads, reading_ps, other_ps = read_files(ops)
    is_map = in_function or kind in _MAPS
    is_parallel = bool(table.tree.is_async[row]) and table.parallelism[row] != 1
    causes = {
        "bursts": _comes_unevenly(table, waiting, row),
        "python": runs_python(table, row),
        "busy": in_function and kind not in _MAPS,
        "small files": is_map and 0 < runs < reads * 2 and reading_ps > other_ps,
        "each element": is_map and _starts_ops(table, row) and runs_in_batch(table, row) > 1,
        "decode": is_map and is_parallel and ops and ops[0][0].startswith(_DECODERS),
        "transform": is_map and is_parallel,
        "sequential map": is_map,
        "read": kind.startswith(_READERS),
        "shuffle": kind.startswith("Shuffle"),
        "batch": kind in _BATCHING,
        "no prefetch": not runs_ahead(table),
        "other": True,
    }
    return next(cause for cause, holds in causes.items() if holds)


def _starts_ops(table: InputPipeline, row: int) -> bool:
    """Tell if an iterator's function mostly starts ops: they are short, and compute for less than half."""
    ops = table.function_ops[row]
    computing = sum(spent for _, spent, _ in ops)
    are_short = all(spent < count * _HAND_OVER_PS for _, spent, count in ops)
    return are_short and 0 < 2 * computing < table.function_ps[row]


def runs_in_batch(table: InputPipeline, row: int) -> float:
    """Count an iterator's function runs for a batch that it, or a later one, makes; 0 where none does."""
    above = row
    while above >= 0 and table.kind[above] not in _BATCHING:
        above = int(table.tree.parent[above])
    runs, batches = table.function_occurrences[row], table.occurrences[above]
    return float(runs / max(batches, 1)) if above >= 0 else 0.0


def runs_python(table: InputPipeline, row: int) -> bool:
    """Tell whether an iterator's elements are made by Python."""
    ops = table.function_ops[row]
    return table.kind[row] == "Generator" or any(name in PYTHON_OPS for name, *_ in ops)


def runs_ahead(table: InputPipeline) -> bool:
    """Tell whether anything of the pipeline works beside the training, as far as was recorded."""
    is_prefetch = (kind.startswith("Prefetch") for kind in table.kind)
    return bool(table.tree.is_async.any()) or any(is_prefetch)
