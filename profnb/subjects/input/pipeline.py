"""The iterators of tf.data to a table: what each costs, what it waited for, how full its buffer was."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import (
    Bools,
    Floats,
    Int64s,
    RowColumns,
    flags_at,
    fraction_of,
    look_up,
    ratio,
    sum_by,
)
from profnb.core.table import Table, columns_in
from profnb.steps.spine import Spine
from profnb.subjects.feeds.feeding import QueueUse
from profnb.subjects.input import iterators
from profnb.subjects.input.waiting import Pieces
from profnb.trace.model import Counter, StatColumn, Trace

_BUFFER = "buffered elements"
_ITERATOR = "Iterator::"


@dataclass(frozen=True)
class InputPipeline(RowColumns):
    """One row per iterator, as in ``tree``.

    Its columns are those of ``INPUT_PIPELINE``, each of shape (N,), times in picoseconds.
    """

    tree: iterators.IteratorTree  # the iterators
    dataset: tuple[str, ...]
    function: tuple[str, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    longest_ps: Int64s
    function_occurrences: Int64s
    function_ps: Int64s
    # the ops that took most of that, as (type, time, how often)
    function_ops: tuple[tuple[iterators.OpShare, ...], ...]
    draws: bool  # whether an op of a function draws numbers
    waited_ps: Int64s
    # calls of the function at once, as last set; 0 if the trace does not say, shape (N,)
    parallelism: Int64s
    is_autotuned: Bools
    capacity: Int64s  # elements its buffer can hold; -1 without one, shape (N,)
    buffered: Floats  # mean number of elements in it when it was asked; NaN without any, shape (N,)
    empty_fraction: Floats

    @property
    def kind(self) -> tuple[str, ...]:
        """``Prefetch``, ``ParallelMap``, ``Shuffle``, ..."""
        return tuple(iterators.label_of(path) for path in self.tree.path)

    @property
    def work_ps(self) -> Int64s:
        """Work of each alone, shape (N,): its function where that runs on threads, else its self time."""
        return np.where(self.tree.is_async, self.function_ps, self.self_ps)

    @property
    def mean_ps(self) -> Floats:
        """Mean duration of a call, shape (N,)."""
        return self.total_ps / np.maximum(self.occurrences, 1)

    @property
    def waited_fraction(self) -> Floats:
        """Share of the training's waiting, shape (N,); NaN where it never waited."""
        return fraction_of(self.waited_ps)

    @property
    def elements_per_second(self) -> Floats:
        """Rate of each by itself, if its input kept up, shape (N,); NaN where nothing is known.

        An asynchronous map that ran 100 times, 4 at once, and worked 8 s for that, delivers 100 in 2 s.
        """
        work = self.work_ps / np.where(self.tree.is_async, np.maximum(self.parallelism, 1), 1)
        return ratio(self.occurrences, work) * 1e12

    def name(self, row: int) -> str:
        """``ParallelMap(augment)``, or with the op that its function mostly runs: ``Map (MatMul)``."""
        kind, ops = self.kind[row], self.function_ops[row]
        if self.function[row]:
            return f"{kind}({self.function[row]})"
        return f"{kind} ({ops[0][0]})" if ops else kind


def _last_of(tree: iterators.IteratorTree, stats: StatColumn, missing: int = -1) -> Int64s:
    """The value of a stat at each iterator's last call that has it."""
    values = np.full(len(tree), missing, np.int64)
    node = look_up(tree.events, tree.node, stats.events)
    values[node[node >= 0]] = stats.values[node >= 0].astype(np.int64)
    return values


def _texts_of(trace: Trace, tree: iterators.IteratorTree, stat: str) -> list[str]:
    """The text of a stat at each iterator's last call that has it, else ""."""
    stats = trace.stats.texts(stat)
    return [stats.texts[row] if row >= 0 else "" for row in _last_of(tree, stats).tolist()]


def tabulate_input_pipeline(
    spine: Spine, tree: iterators.IteratorTree, charges: Pieces
) -> InputPipeline:
    """Sum up the iterators of a trace."""
    trace, count = spine.trace, len(tree)
    duration = trace.events.duration_ps[tree.events]
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, tree.node, duration)
    buffered, empty = _fill(trace, tree)
    sizes = [_last_of(tree, trace.stats.integers(f"buffer_{one}")) for one in ("limit", "size")]
    autotune = _texts_of(trace, tree, "autotune")
    dataset = tuple(_texts_of(trace, tree, "name"))
    return InputPipeline(
        tree=tree,
        dataset=dataset,
        function=iterators.name_functions(dataset, spine.recording.datasets),
        occurrences=np.bincount(tree.node, minlength=count),
        total_ps=sum_by(tree.node, duration, count),
        self_ps=sum_by(tree.node, tree.self_ps, count),
        longest_ps=longest,
        function_occurrences=sum_by(tree.run_node, 1, count),
        function_ps=sum_by(tree.run_node, tree.run_busy_ps, count),
        function_ops=iterators.find_function_ops(trace, tree, spine.parent),
        draws=iterators.draws_numbers(trace, tree, spine.parent),
        waited_ps=charges.sum_by_iterator(count).sum(axis=1),
        parallelism=_last_of(tree, trace.stats.integers("parallelism"), 0),
        is_autotuned=np.array([text == "true" for text in autotune], np.bool_),
        capacity=np.maximum(*sizes),
        buffered=buffered,
        empty_fraction=empty,
    )


def _fill(trace: Trace, tree: iterators.IteratorTree) -> tuple[Floats, Floats]:
    """Mean number of buffered elements when asked, and how often there was none."""
    stats = trace.stats.integers("buffered_elements")
    limits = trace.stats.integers("buffer_limit").events if len(stats) else stats.events
    node = look_up(tree.events, tree.node, np.union1d(stats.events, limits))
    has_buffer = flags_at(node[node >= 0], len(tree))
    calls = np.flatnonzero(has_buffer[tree.node]) if tree.node.size else tree.node
    # A call without the stat found nothing in the buffer.
    amount = stats.of(tree.events[calls], 0)
    asked, sums, empties = (
        np.bincount(tree.node[calls], weights, len(tree)) for weights in (None, amount, amount == 0)
    )
    return ratio(sums, asked), ratio(empties, asked)


INPUT_PIPELINE = Table[InputPipeline](
    "input_pipeline",
    "One row per iterator of tf.data, the outermost first.",
    columns_in("""
        iterator = tree.path: its place in the pipeline
        kind: "Prefetch", "ParallelMap", "Shuffle", ...
        dataset: the datasets it was made from, "" if not known
        function: its user's function, "" if not known
        depth = tree.depth: how many iterators ask before it
        occurrences [calls]: how often it was asked
        total_us: time in those calls, waiting included
        self_us: ... less the calls of its input on the same thread
        mean_us [mean call]: mean duration of a call
        max_us = longest_ps: the longest call
        function_occurrences: runs of its function
        function_us: time that threads worked for them
        function_ops: the op types that took most of that
        is_async = tree.is_async: whether threads of its own ask its input
        is_blocking: whether the training waited for it
        waited_us [waited for]: the training's waiting that is charged to it; sums to all waiting
        waited_fraction [of waiting]: share of that
        parallelism >= 1: runs of its function at once
        is_autotuned: whether tf.data sets that
        buffer_capacity [holds] = capacity >= 1: elements its buffer can hold
        buffered_mean [held, mean] = buffered: elements in it when asked, on average
        empty_fraction [empty when asked]: how often it was empty when asked
        elements_per_second: what it could deliver if its input kept up
        """),
    'Unknown values are NaN, or "" for names.',
    values={
        "function_us": lambda t: np.where(t.function_occurrences > 0, t.function_ps, np.nan),
        "function_ops": lambda t: [", ".join(name for name, *_ in ops) for ops in t.function_ops],
        "is_blocking": lambda t: t.waited_ps > 0,
    },
    texts={"buffered_mean": lambda mean: f"{mean:.3g}"},
    other_names={"calls": "occurrences"},
)


def find_buffers(trace: Trace) -> list[Counter]:
    """Count the elements in each buffer whenever it was asked; none without such iterators."""
    stats = trace.stats.integers("buffered_elements")
    if not len(stats):
        return []
    limits = trace.stats.integers("buffer_limit").events  # also of a buffer that is always empty
    on_iterator = trace.names.rows_where(lambda name: name.startswith(_ITERATOR))
    names = np.unique(trace.events.name[np.concatenate([stats.events, limits])])
    counters = []
    for name in names[on_iterator[names]].tolist():
        calls = np.flatnonzero(trace.events.name == name)
        calls = calls[np.argsort(trace.events.begin_ps[calls], kind="stable")]
        series, held = trace.names[name].removeprefix(_ITERATOR), stats.of(calls, 0)
        times, values = trace.events.begin_ps[calls], held.astype(np.float64)
        counters.append(Counter(_BUFFER, series, "", times, values))
    return counters


@dataclass(frozen=True, slots=True)
class BufferSamples:
    """N samples, buffer by buffer, each in time order.

    Its columns are those of ``BUFFERS``, each of shape (N,), times in picoseconds.
    """

    iterator: tuple[str, ...]
    time_ps: Int64s
    held: Floats
    capacity: Floats
    kept_back: Floats
    is_empty: Bools


def tabulate_buffers(
    buffers: Sequence[Counter], table: InputPipeline, queues: Sequence[QueueUse] = ()
) -> BufferSamples | None:
    """The samples of all buffers, then those of all queues; None where there is neither."""
    sizes_of = zip(table.tree.path, table.capacity.tolist(), strict=True)
    capacity = {path: size for path, size in sizes_of if size > 0}
    series = [
        (b.series, b.time_ps, b.value, capacity.get(b.series, np.nan), np.nan, b.value == 0)
        for b in buffers
    ]
    for use in queues:
        record, most = use.record, use.record.capacity if use.record.capacity >= 0 else np.nan
        columns = (use.time_ps, use.held, most, record.min_after_dequeue, use.is_empty)
        series.append((record.name, *columns))
    if not series:
        return None
    names, times, held, holds, kept, is_empty = zip(*series, strict=True)
    sizes = [time.size for time in times]
    return BufferSamples(
        tuple(name for name, size in zip(names, sizes, strict=True) for _ in range(size)),
        np.concatenate(times),
        np.concatenate(held),
        np.repeat(np.array(holds, np.float64), sizes),
        np.repeat(np.array(kept, np.float64), sizes),
        np.concatenate(is_empty),
    )


BUFFERS = Table[BufferSamples](
    "buffers",
    "One row per request to a buffer of tf.data, or look at a queue of TensorFlow 1.",
    columns_in("""
        iterator: its place in the pipeline, or the queue's name
        time_ms: when it was asked
        buffered_elements = held: elements in it then, of a queue by counting, to within one per thread; NaN
            where not known
        capacity: elements it can hold, NaN without a fixed capacity
        min_after_dequeue = kept_back: elements that a queue keeps back to shuffle, NaN for tf.data
        is_empty: whether what was asked for was not there: the step waited for it
        """),
)
