"""The input pipeline: what each iterator costs, how long the training waits, and which iterator is the limit.

A step's period runs from its begin to the next step's; the training waits in it while a call of the outermost
iterator runs on its thread. What the model could eat is what it would do without that waiting. What the
pipeline can make is set by its slowest stage: the iterators that one thread calls inside each other are one
stage, a user's function that runs on other threads is one, as many times as fast as it runs in parallel.
"""

from dataclasses import dataclass

import numpy as np

from profnb.analysis.iterators import IteratorTree, label_of
from profnb.analysis.nesting import find_parents
from profnb.analysis.op_names import parse_op
from profnb.analysis.steps import Steps
from profnb.analysis.waiting import Pieces, self_pieces
from profnb.columns import Bools, Floats, Int64s
from profnb.trace.model import Trace

__all__ = ["InputPipeline", "Waiting", "find_waiting", "tabulate_input_pipeline"]

_STARVED = 0.1
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
        busy_ps: Time of its stage per element of the training, in which other stages go on, shape (N,).
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
    busy_ps: Floats

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


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the training waited for elements.

    Attributes:
        step_ps: Waiting in the period of each step, shape (S,).
        period_ps: From each step's begin to the next one's; its duration for the last, shape (S,).
        counted: The steps that averages are of, shape (S,): no warm-up, nor the step in which the first
            element came.
        first_ps: The wait for the very first element, in which buffers fill.
        charged_ps: Waiting in the counted steps by label of ``charge_waiting``, shape (2 * N,).
        elements: Elements fetched in the counted steps.
        busy_ps: Time of the slowest stage of the pipeline per element; NaN if nothing tells.
        slowest: The iterator of that stage, or -1.
        threads: Threads that worked for each iterator's function, on average from the first step's begin to
            the last one's end, shape (N,).
    """

    step_ps: Int64s
    period_ps: Int64s
    counted: Bools
    first_ps: int
    charged_ps: Int64s
    elements: int
    busy_ps: float
    slowest: int
    threads: Floats

    @property
    def fraction(self) -> float:
        """Share of the counted steps' periods that was spent waiting; NaN without any."""
        whole = int(self.period_ps[self.counted].sum())
        return float(self.step_ps[self.counted].sum() / whole) if whole else float("nan")

    @property
    def per_element_ps(self) -> float:
        """Mean wait for an element in the counted steps; 0 without any."""
        return float(self.step_ps[self.counted].sum() / self.elements) if self.elements else 0.0

    @property
    def starved(self) -> int:
        """Counted steps that waited for more than a tenth of their period."""
        wait, period = self.step_ps[self.counted], self.period_ps[self.counted]
        return int((wait > _STARVED * period).sum())

    @property
    def model_per_second(self) -> float:
        """Elements a second that the training would take if it never waited; NaN if not known."""
        free = int((self.period_ps - self.step_ps)[self.counted].sum())
        return self.elements / free * 1e12 if free > 0 and self.elements else float("nan")

    @property
    def pipeline_per_second(self) -> float:
        """Elements a second that the pipeline can make.

        While the training waits the pipeline does all it can, so the rate is what was fetched; else it
        is set by the slowest stage, and at least what was fetched.
        """
        period = int(self.period_ps[self.counted].sum())
        if not period or not self.elements:
            return float("nan")
        fetched = self.elements / period * 1e12
        if self.fraction > _STARVED or np.isnan(self.busy_ps):
            return fetched
        return max(fetched, 1e12 / self.busy_ps) if self.busy_ps > 0 else float("nan")


def _last_of(trace: Trace, tree: IteratorTree, stat: str, missing: int) -> Int64s:
    """The value of an integer stat at each iterator's last call that has it."""
    found = trace.stats.integers(stat)
    values = np.full(len(tree), missing, np.int64)
    at = np.searchsorted(tree.events, found.events)
    known = at < tree.events.size
    known[known] = tree.events[at[known]] == found.events[known]
    values[tree.node[at[known]]] = found.values[known].astype(np.int64)
    return values


def _texts_of(trace: Trace, tree: IteratorTree, stat: str) -> list[str]:
    found = trace.stats.texts(stat)
    values = [""] * len(tree)
    at = np.searchsorted(tree.events, found.events)
    for row, event, text in zip(
        at.tolist(), found.events.tolist(), found.values.tolist(), strict=True
    ):
        if row < tree.events.size and tree.events[row] == event:
            values[int(tree.node[row])] = found.texts[text]
    return values


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
    parallelism = _last_of(trace, tree, "parallelism", 0)
    limit = _last_of(trace, tree, "buffer_limit", -1)
    size = _last_of(trace, tree, "buffer_size", -1)
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
        busy_ps=_stage_times(trace, tree, function, parallelism),
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
    at = np.searchsorted(tree.events, told)
    at = at[at < tree.events.size]
    holds[tree.node[at]] = True
    calls = np.flatnonzero(holds[tree.node]) if tree.node.size else tree.node
    amount = value[tree.events[calls]]  # a call that tells nothing found nothing in the buffer
    np.add.at(asked, tree.node[calls], 1)
    np.add.at(sums, tree.node[calls], amount)
    np.add.at(empties, tree.node[calls], amount == 0)
    some = asked > 0
    whole = np.where(some, asked, 1)
    return np.where(some, sums / whole, np.nan), np.where(some, empties / whole, np.nan)


def _stage_times(trace: Trace, tree: IteratorTree, function: Int64s, parallelism: Int64s) -> Floats:
    """Time of the stage behind each asynchronous iterator, and of the training's own (row 0), per element.

    Shape (N,): for an asynchronous iterator the longer of the calls on its threads and its function; for the
    outermost one the calls on the training's thread; NaN elsewhere.
    """
    times = np.full(len(tree), np.nan)
    if not tree.events.size:
        return times
    pieces, top = self_pieces(trace, tree)
    node = tree.node[pieces[2]]
    feeds = tree.parent[tree.node[top[pieces[2]]]]
    works = ~tree.is_async[node]
    elements = max(int((tree.parent[tree.node] < 0).sum()), 1)
    spent = np.zeros(len(tree) + 1, np.int64)
    np.add.at(spent, feeds[works], (pieces[1] - pieces[0])[works])
    threads = np.ones(len(tree))
    for row in np.flatnonzero(tree.is_async).tolist():
        outer = (tree.above < 0) & (tree.parent[tree.node] == row)
        lines = np.unique(trace.lines.of_event[tree.events[outer]])
        threads[row] = max(lines.size, 1)
    at_once = np.maximum(parallelism, 1)
    for row in np.flatnonzero(tree.is_async).tolist():
        behind = float(spent[row]) / threads[row]
        times[row] = max(behind, float(function[row]) / at_once[row]) / elements
    times[np.flatnonzero(tree.parent < 0)] = float(spent[-1]) / elements
    return times


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
        for node, name, spent in zip(
            nodes.tolist(), trace.events.name[ops[kept]].tolist(),
            trace.events.duration_ps[ops[kept]].tolist(), strict=True,
        ):  # fmt: skip
            if node >= 0:
                time, often = empty[node].get(types[name], (0, 0))
                empty[node][types[name]] = time + spent, often + 1
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


def find_waiting(
    trace: Trace, steps: Steps, tree: IteratorTree, charges: Pieces, table: InputPipeline
) -> Waiting:
    """Assign the training's waiting to steps.

    Args:
        trace: The trace.
        steps: Its steps.
        tree: Its iterators.
        charges: What ``charge_waiting`` found.
        table: The table of iterators.
    """
    roots = tree.events[tree.parent[tree.node] < 0] if tree.node.size else tree.events
    begins = np.sort(trace.events.begin_ps[roots])
    first = roots[np.argmin(trace.events.begin_ps[roots])] if roots.size else -1
    period = steps.duration_ps.copy()
    if len(steps) > 1:
        period[:-1] = np.diff(steps.begin_ps)
    closes = steps.begin_ps + period
    counted = ~steps.is_warmup if (~steps.is_warmup).any() else np.ones(len(steps), np.bool_)

    def step_of(times: Int64s) -> Int64s:
        row = np.searchsorted(steps.begin_ps, times, side="right") - 1
        inside = (row >= 0) & (times < closes[np.maximum(row, 0)]) if len(steps) else row >= 0
        return np.where(inside, row, -1)

    if first >= 0:  # in whose wait threads start and buffers fill
        opening = int(step_of(trace.events.begin_ps[first : first + 1])[0])
        if opening >= 0 and counted.sum() > 1:
            counted[opening] = False
    wait = np.zeros(len(steps), np.int64)
    charged = np.zeros(2 * len(tree), np.int64)
    row = step_of(charges[0])
    np.add.at(wait, row[row >= 0], (charges[1] - charges[0])[row >= 0])
    kept = row >= 0
    kept[kept] = counted[row[kept]]
    np.add.at(charged, charges[2][kept], (charges[1] - charges[0])[kept])
    fetched = step_of(begins)
    fetched = fetched[fetched >= 0]
    begin = trace.events.begin_ps[tree.runs]
    ran = step_of(begin) >= 0 if tree.runs.size else tree.runs < 0
    ran &= tree.run_node >= 0
    worked = np.zeros(len(tree), np.int64)
    np.add.at(worked, tree.run_node[ran], tree.run_busy_ps[ran])
    window = int(closes[-1] - steps.begin_ps[0]) if len(steps) else 0
    busy = table.busy_ps
    slowest = int(np.nanargmax(busy)) if busy.size and not np.isnan(busy).all() else -1
    return Waiting(
        step_ps=np.minimum(wait, period),
        period_ps=period,
        counted=counted,
        first_ps=int(trace.events.duration_ps[first]) if first >= 0 else 0,
        charged_ps=charged,
        elements=int(counted[fetched].sum()),
        busy_ps=float(busy[slowest]) if slowest >= 0 else float("nan"),
        slowest=slowest,
        threads=worked / window if window else np.full(len(tree), np.nan),
    )
