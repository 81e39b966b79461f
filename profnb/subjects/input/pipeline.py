"""The iterators of tf.data to a table: what each costs, what it waited for, how full its buffer was."""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, look_up
from profnb.steps.nesting import find_parents
from profnb.subjects.input.charges import Pieces
from profnb.subjects.input.iterators import IteratorTree, label_of
from profnb.trace.model import StatColumn, Trace
from profnb.trace.op_names import parse_op

__all__ = ["InputPipeline", "tabulate_input_pipeline"]

_FUNCTION_WORK = ("ExecutorState::Process", "ExecutorDoneCallback")
_MOST_OPS = 3


@dataclass(frozen=True)
class InputPipeline:
    """One row per iterator, as in ``tree``.

    Attributes:
        tree: The iterators.
        dataset: The names of the datasets they were made from; "" if the trace does not say.
        calls: How often each was asked, shape (N,).
        total_ps: Time in those calls, waiting included, shape (N,).
        self_ps: ... less the calls of its input on the same thread, shape (N,).
        longest_ps: The longest call, shape (N,).
        runs: Runs of its user's function, shape (N,).
        function_ps: Time that threads worked for them, shape (N,).
        function_ops: The ops that took most of that, as (type, time, how often).
        waited_ps: The training's waiting that is charged to it, shape (N,).
        waited_function_ps: The part of that charged to its user's function, shape (N,).
        parallelism: Calls of the function at once, as last set; 0 if the trace does not say, shape (N,).
        is_autotuned: Whether tf.data sets that itself, shape (N,).
        capacity: Elements its buffer can hold; -1 without one, shape (N,).
        buffered: Mean number of elements in it when it was asked; NaN without any, shape (N,).
        empty_fraction: How often it was empty when asked; NaN without a buffer, shape (N,).
    """

    tree: IteratorTree
    dataset: tuple[str, ...]
    calls: Int64s
    total_ps: Int64s
    self_ps: Int64s
    longest_ps: Int64s
    runs: Int64s
    function_ps: Int64s
    function_ops: tuple[tuple[tuple[str, int, int], ...], ...]
    waited_ps: Int64s
    waited_function_ps: Int64s
    parallelism: Int64s
    is_autotuned: Bools
    capacity: Int64s
    buffered: Floats
    empty_fraction: Floats

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def kind(self) -> tuple[str, ...]:
        """``Prefetch``, ``ParallelMap``, ``Shuffle``, ..."""
        return tuple(label_of(path) for path in self.tree.path)

    @property
    def elements_per_second(self) -> Floats:
        """What each could deliver by itself, if its input kept up, shape (N,); NaN if nothing tells."""
        own = np.where(self.tree.is_async, 0, self.self_ps).astype(np.float64)
        spread = self.function_ps / np.maximum(self.parallelism, 1)
        work = np.where(self.tree.is_async, spread, own)
        return np.where(work > 0, self.calls / np.where(work > 0, work, 1) * 1e12, np.nan)


def _last_of(tree: IteratorTree, found: StatColumn, missing: int = -1) -> Int64s:
    """The value of a stat at each iterator's last call that has it."""
    values = np.full(len(tree), missing, np.int64)
    node = look_up(tree.events, tree.node, found.events)
    values[node[node >= 0]] = found.values[node >= 0].astype(np.int64)
    return values


def _texts_of(trace: Trace, tree: IteratorTree, stat: str) -> list[str]:
    """The text of a stat at each iterator's last call that has it, else ""."""
    found = trace.stats.texts(stat)
    return [found.texts[row] if row >= 0 else "" for row in _last_of(tree, found).tolist()]


def tabulate_input_pipeline(trace: Trace, tree: IteratorTree, charges: Pieces) -> InputPipeline:
    """Sum up the iterators of a trace.

    Args:
        trace: The trace.
        tree: Its iterators.
        charges: What ``charge_waiting`` found.
    """
    count = len(tree)
    duration = trace.events.duration_ps[tree.events]
    total, own, longest, runs, function = (np.zeros(count, np.int64) for _ in range(5))
    np.add.at(total, tree.node, duration)
    np.add.at(own, tree.node, tree.self_ps)
    np.maximum.at(longest, tree.node, duration)
    known = tree.run_node >= 0
    np.add.at(runs, tree.run_node[known], 1)
    np.add.at(function, tree.run_node[known], tree.run_busy_ps[known])
    charged = np.zeros(2 * count, np.int64)
    np.add.at(charged, charges[2], charges[1] - charges[0])
    buffered, empty = _fill(trace, tree)
    parallelism = _last_of(tree, trace.stats.integers("parallelism"), 0)
    limit = _last_of(tree, trace.stats.integers("buffer_limit"))
    size = _last_of(tree, trace.stats.integers("buffer_size"))
    autotune = _texts_of(trace, tree, "autotune")
    return InputPipeline(
        tree=tree,
        dataset=tuple(_texts_of(trace, tree, "name")),
        calls=np.bincount(tree.node, minlength=count),
        total_ps=total,
        self_ps=own,
        longest_ps=longest,
        runs=runs,
        function_ps=function,
        function_ops=_function_ops(trace, tree),
        waited_ps=charged[0::2] + charged[1::2],
        waited_function_ps=charged[1::2],
        parallelism=parallelism,
        is_autotuned=np.array([text == "true" for text in autotune], np.bool_),
        capacity=np.maximum(limit, size),
        buffered=buffered,
        empty_fraction=empty,
    )


def _fill(trace: Trace, tree: IteratorTree) -> tuple[Floats, Floats]:
    """Mean number of buffered elements when asked, and how often there was none."""
    sums, empties, asked = (np.zeros(len(tree)) for _ in range(3))
    found = trace.stats.integers("buffered_elements")
    value = np.zeros(len(trace.events), np.int64)
    value[found.events] = found.values.astype(np.int64)
    told = np.union1d(
        found.events, trace.stats.integers("buffer_limit").events if len(found) else []
    )
    holds = np.zeros(len(tree), np.bool_)
    node = look_up(tree.events, tree.node, told)
    holds[node[node >= 0]] = True
    calls = np.flatnonzero(holds[tree.node]) if tree.node.size else tree.node
    amount = value[tree.events[calls]]  # a call that tells nothing found nothing in the buffer
    np.add.at(asked, tree.node[calls], 1)
    np.add.at(sums, tree.node[calls], amount)
    np.add.at(empties, tree.node[calls], amount == 0)
    some = asked > 0
    whole = np.where(some, asked, 1)
    return np.where(some, sums / whole, np.nan), np.where(some, empties / whole, np.nan)


def _function_ops(trace: Trace, tree: IteratorTree) -> tuple[tuple[tuple[str, int, int], ...], ...]:
    """The ops inside each iterator's function that took most time: (type, time, how often)."""
    empty: list[dict[str, tuple[int, int]]] = [{} for _ in range(len(tree))]
    if tree.runs.size:
        ids = trace.stats.integers("id")
        step = np.zeros(len(trace.events), np.int64)
        step[ids.events] = ids.values.astype(np.int64)
        order = np.argsort(step[tree.runs], kind="stable")
        sorted_ids = step[tree.runs][order]
        parents = find_parents(trace.events.end_ps, trace.lines.offsets)
        types = [_op_type(text) for text in trace.names.texts]
        is_op = np.array([text != "" for text in types] or [False], np.bool_)
        is_work = trace.select_names(lambda name: name in _FUNCTION_WORK)
        ops = np.flatnonzero(is_op[trace.events.name] & (parents >= 0) & trace.is_host_event)
        ops = ops[is_work[parents[ops]]]
        wanted = step[parents[ops]]
        at = np.minimum(np.searchsorted(sorted_ids, wanted), sorted_ids.size - 1)
        kept = (sorted_ids[at] == wanted) & (wanted != 0)
        nodes = tree.run_node[order[at[kept]]]
        owned = nodes >= 0
        pairs = nodes[owned] * len(types) + trace.events.name[ops[kept][owned]]
        distinct, row, often = np.unique(pairs, return_inverse=True, return_counts=True)
        spent = np.zeros(distinct.size, np.int64)
        np.add.at(spent, row, trace.events.duration_ps[ops[kept][owned]])
        for pair, time, count in zip(
            distinct.tolist(), spent.tolist(), often.tolist(), strict=True
        ):
            node, name = divmod(pair, len(types))
            before = empty[node].get(types[name], (0, 0))
            empty[node][types[name]] = before[0] + time, before[1] + count
    return tuple(
        tuple(
            (name, *sums)
            for name, sums in sorted(found.items(), key=lambda item: -item[1][0])[:_MOST_OPS]
        )
        for found in empty
    )


def _op_type(text: str) -> str:
    parsed = parse_op(text)
    return parsed[1] if parsed is not None and parsed[1] != "Dataset" else ""
