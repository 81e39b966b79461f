"""The training's waiting for its input: by the iterator that caused it, and step by step.

While a consumer waits for an asynchronous iterator, what counts is what the threads behind that do at the
time: if the user's function runs, the function is what everybody waits for; else the call of its input
that is running, and if that is itself a wait for an asynchronous iterator, what happens behind that; and so
on to work that somebody does. So every instant of the training's waiting is charged to exactly one
iterator, and the charges add up to the waiting to the picosecond. No peer does this: the official tool's
tf.data analysis, dropped in 2023, named the iterator with the longest self time in the one slowest call.

A step's period is its duration and the gap behind it where that belongs to it; the training waits in it
while a call of the outermost iterator runs on its thread. Ten steps of 20 ms that wait 12 ms each: the
pipeline makes 50 elements a second, and a model that never waited would take one every 8 ms, 125 a second.

Where the training does not wait, what the pipeline could make is set by its slowest stage: the iterators
that one thread calls inside each other are one stage; a user's function that runs on other threads is one, as
many times as fast as it runs in parallel. Only the counted steps are looked at, so that a validation does not
speak for the training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, flags_at, span_at, stable_order, sum_by
from profnb.core.table import Table, columns_in
from profnb.steps.spine import Spine
from profnb.subjects.input.iterators import IteratorTree
from profnb.trace.model import Trace

_STARVED = 0.1
# What time can be charged to, of each iterator: its own work, or its user's function.
ITERATOR, FUNCTION = 0, 1
_SIDES = 2
_LONG_AGO, _FAR_AHEAD = -(1 << 61), 1 << 61


class Pieces(NamedTuple):
    """P stretches of time with a label: a call, or an iterator's part (``_SIDES * iterator + part``)."""

    begin_ps: Int64s
    end_ps: Int64s
    label: Int64s

    @property
    def duration_ps(self) -> Int64s:
        """Their durations, shape (P,)."""
        return self.end_ps - self.begin_ps

    def sum_by_iterator(self, count: int, chosen: Bools | None = None) -> Int64s:
        """Time of each iterator, shape (count, 2), columns ``ITERATOR`` and ``FUNCTION``.

        ``chosen`` tells which stretches count, shape (P,); all of them by default.
        """
        spent = self.duration_ps if chosen is None else self.duration_ps * chosen
        return sum_by(self.label, spent, _SIDES * count).reshape(count, _SIDES)


def self_pieces(trace: Trace, tree: IteratorTree) -> tuple[Pieces, Int64s]:
    """Find the times in which each call itself was running, not a call inside it.

    A call 0-10 with one 3-5 inside it gives (0, 3, outer), (5, 10, outer) and (3, 5, inner).

    Returns:
        The pieces thread by thread, labelled with rows of ``tree.events``; and for each call the outermost
        one on its thread that it lies inside.
    """
    begin, end = trace.events.begin_ps[tree.events], trace.events.end_ps[tree.events]
    above, calls = tree.above, np.arange(begin.size)
    top = np.maximum.accumulate(np.where(above < 0, calls, 0))
    inner = stable_order(above + 1)
    inner = inner[above[inner] >= 0]  # by the call that they lie inside, and by time
    outer = above[inner]
    follows = np.append(False, outer[1:] == outer[:-1])[: inner.size]
    before = np.where(follows, np.append(0, end[inner][:-1])[: inner.size], begin[outer])
    covered = begin.copy()
    covered[outer] = end[inner]  # the last one of several
    pieces = Pieces(
        np.concatenate([before, covered]),
        np.concatenate([begin[inner], end]),
        np.concatenate([outer, calls]),
    )
    lasting = np.flatnonzero(pieces.end_ps > pieces.begin_ps)
    return _those(pieces, lasting[stable_order(top[pieces.label[lasting]])]), top


def _flat(pieces: Pieces) -> Pieces:
    """Pieces in time order, made not to overlap: 0-4 and 2-6 become 0-4 and 4-6."""
    order = np.argsort(pieces.begin_ps, kind="stable")
    begin, end, label = (column[order] for column in pieces)
    begin[1:] = np.maximum(begin[1:], np.maximum.accumulate(end)[:-1])
    return _those(Pieces(begin, end, label), end > begin)


def _those(pieces: Pieces, chosen: Bools | Int64s) -> Pieces:
    return Pieces(*(column[chosen] for column in pieces))


def _replace(pieces: Pieces, wanted: Bools, inside: Pieces) -> Pieces:
    """The wanted pieces replaced by what lies inside them: 0-10 by 2-5 gives 0-2, 2-5, 5-10."""
    first = np.searchsorted(inside.end_ps, pieces.begin_ps, side="right")
    parts = np.searchsorted(inside.begin_ps, pieces.end_ps) - first
    parts[~wanted] = 0
    np.maximum(parts, 0, out=parts)
    # The number of a part inside its piece: 0, 1, ... of the first piece, then of the next.
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    part = np.repeat(first, parts) + number
    lower = np.maximum(inside.begin_ps[part], np.repeat(pieces.begin_ps, parts))
    upper = np.minimum(inside.end_ps[part], np.repeat(pieces.end_ps, parts))
    # What is left of a piece: from its begin to its first part, between parts, from the last to its end.
    before = np.cumsum(parts)
    begin = np.insert(upper, before - parts, pieces.begin_ps)
    end = np.insert(lower, before, pieces.end_ps)
    rows = Pieces(
        np.concatenate([begin, lower]),
        np.concatenate([end, upper]),
        np.concatenate([np.repeat(pieces.label, parts + 1), inside.label[part]]),
    )
    lasting = np.flatnonzero(rows.end_ps > rows.begin_ps)
    return _those(rows, lasting[np.argsort(rows.begin_ps[lasting], kind="stable")])


def charge_waiting(trace: Trace, tree: IteratorTree) -> Pieces:
    """Charge each instant at which the training waits for an element to one iterator.

    One element of ``Range -> Map -> Prefetch``, in milliseconds. The training asks at 9 and has it at 19; the
    thread that fills Prefetch's buffer began on it at 4::

        training's thread                Root      9 ======================== 19
                                         Prefetch   9.5 ============== 18.5
        Prefetch's thread     Map   4 ============================ 18
                              Range 4 ============ 11
        run of Map's function                      11 ============ 18

        charged to                       Root Range Map's function Prefetch Root
                                         9-9.5 -11        -18       -18.5   -19
        milliseconds                      0.5  1.5         7         0.5    0.5

    Root's own time is charged to Root. Prefetch is asynchronous, so its 9 ms are looked behind: its thread is
    in Range until 11, then in Map's function until 18; after that nobody works, and the rest is Prefetch's.
    Together Root 1, Range 1.5, Map's function 7, Prefetch 0.5: the 10 ms that the training waited.

    Returns:
        The charges in time order, which do not overlap: they cover the calls of the outermost iterators.
    """
    pieces, top = self_pieces(trace, tree)
    if not len(tree):
        return pieces
    feeds = tree.parent[tree.node[top[pieces.label]]]  # for which iterator a piece's thread works
    pieces = pieces._replace(label=_SIDES * tree.node[pieces.label] + ITERATOR)
    behind: dict[int, Pieces] = {}
    for asynchronous in np.flatnonzero(tree.is_async)[::-1].tolist():  # the deepest first
        on_threads = _flat(_those(pieces, feeds == asynchronous))
        behind[asynchronous] = _look_behind(on_threads, behind)
        functions = _function_runs(trace, tree, asynchronous)
        if functions.begin_ps.size:
            behind[asynchronous] = _merge(functions, behind[asynchronous])
    waits = _look_behind(_flat(_those(pieces, feeds < 0)), behind)
    inline = (tree.run_node >= 0) & ~tree.is_async[np.maximum(tree.run_node, 0)]
    # Of an iterator that runs its function inline, the function apart from its own work.
    for iterator in np.unique(tree.run_node[inline]).tolist():
        runs = _function_runs(trace, tree, iterator)
        waits = _replace(waits, waits.label == _SIDES * iterator + ITERATOR, runs)
    return waits


def _function_runs(trace: Trace, tree: IteratorTree, iterator: int) -> Pieces:
    """Find the times in which some run of an iterator's function was going on."""
    runs = tree.run_node == iterator
    label = np.full(int(runs.sum()), _SIDES * iterator + FUNCTION)
    return _flat(Pieces(trace.events.begin_ps[tree.runs[runs]], tree.run_end_ps[runs], label))


def _merge(front: Pieces, behind: Pieces) -> Pieces:
    """Two timelines as one, in which the first hides the second: 2-5 before 0-10 gives 0-2, 2-5, 5-10."""
    gaps = Pieces(
        np.concatenate([[_LONG_AGO], front.end_ps]),
        np.concatenate([front.begin_ps, [_FAR_AHEAD]]),
        np.full(front.begin_ps.size + 1, -1),
    )
    filled = _replace(gaps, np.ones(gaps.label.size, np.bool_), behind)
    merged = _flat(Pieces(*map(np.concatenate, zip(filled, front, strict=True))))
    return _those(merged, merged.label >= 0)


def _look_behind(pieces: Pieces, behind: dict[int, Pieces]) -> Pieces:
    """Replace waits for asynchronous iterators by what happened behind them."""
    for asynchronous in sorted(set((pieces.label // _SIDES).tolist()) & set(behind)):
        wanted = pieces.label == _SIDES * asynchronous + ITERATOR
        if wanted.any() and behind[asynchronous].begin_ps.size:
            pieces = _replace(pieces, wanted, behind[asynchronous])
    return pieces


@dataclass(frozen=True, slots=True)
class Waiting:
    """The training's waiting for elements."""

    step_num: Int64s  # the steps' numbers, shape (S,)
    step_ps: Int64s  # waiting in the period of each step, shape (S,)
    # shape (S,): from each step's begin to the next one's where the gap between belongs to it; else
    # its duration
    period_ps: Int64s
    # the steps that averages are of, shape (S,): of the main phase, no warm-up, nor the step in which the
    # first element came
    counted: Bools
    first_ps: int  # the wait for the very first element, in which buffers fill
    # waiting in the counted steps that is charged to each iterator's own work and to its
    # function, shape (N, 2), columns ``ITERATOR`` and ``FUNCTION``
    charged_ps: Int64s
    elements: int  # elements fetched in the counted steps
    busy_ps: float  # time of the slowest stage of the pipeline per element; NaN if not known
    # threads that worked for each iterator's function, on average over the counted steps' periods, shape (N,)
    threads: Floats

    def share_of(self, row: int) -> float:
        """Share of that waiting that is charged to one iterator."""
        return float(self.charged_ps[row].sum() / self.charged_ps.sum())

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


def find_waiting(spine: Spine, tree: IteratorTree, charges: Pieces, parallelism: Int64s) -> Waiting:
    """Assign the training's waiting to steps; ``parallelism`` is calls of each function at once."""
    trace, steps = spine.trace, spine.steps
    counted = flags_at(spine.summary.counted, len(steps))
    begin_ps, period_ps = steps.begin_ps, steps.duration_ps + spine.gaps.own_ps

    def counts(times: Int64s) -> Bools:
        """Tell which times lie in a counted period."""
        return np.append(counted, False)[span_at(begin_ps, begin_ps + period_ps, times)]

    roots = tree.events[tree.parent[tree.node] < 0] if tree.node.size else tree.events
    begins = trace.events.begin_ps[roots]
    first = int(begins.argmin()) if roots.size else -1
    if first >= 0 and counted.sum() > 1:  # in whose wait threads start and buffers fill
        counted &= (begins[first] < begin_ps) | (begins[first] >= begin_ps + period_ps)
    step_of_wait = span_at(begin_ps, begin_ps + period_ps, charges.begin_ps)
    wait = sum_by(step_of_wait, charges.duration_ps, len(steps))
    ran = counts(trace.events.begin_ps[tree.runs])
    worked = sum_by(tree.run_node, tree.run_busy_ps * ran, len(tree))
    elements = int(counts(begins).sum())
    busy = _stage_times(trace, tree, counts, worked, parallelism) / max(elements, 1)
    window = int(period_ps[counted].sum())
    return Waiting(
        step_num=steps.step_num,
        step_ps=np.minimum(wait, period_ps),
        period_ps=period_ps,
        counted=counted,
        first_ps=int(trace.events.duration_ps[roots[first]]) if first >= 0 else 0,
        charged_ps=charges.sum_by_iterator(len(tree), counts(charges.begin_ps)),
        elements=elements,
        busy_ps=float("nan") if np.isnan(busy).all() else float(np.nanmax(busy)),
        threads=worked / window if window else np.full(len(tree), np.nan),
    )


def _stage_times(
    trace: Trace, tree: IteratorTree, counts: Callable[[Int64s], Bools], worked: Int64s,
    parallelism: Int64s,
) -> Floats:  # fmt: skip
    """Time in the counted steps of each stage.

    Shape (N,): for an asynchronous iterator the longer of the calls on its threads and its function; for the
    outermost one the calls on the training's thread; NaN elsewhere.
    """
    times = np.full(len(tree), np.nan)
    if not tree.events.size:
        return times
    (begin, end, call), top = self_pieces(trace, tree)
    feeds = tree.parent[tree.node[top[call]]]  # for which iterator a piece's thread works
    works = ~tree.is_async[tree.node[call]] & counts(begin)
    # By iterator from row 1 on; row 0 is for the training, where feeds is -1.
    spent = sum_by(feeds + 1, (end - begin) * works, len(tree) + 1)
    for row in np.flatnonzero(tree.is_async).tolist():
        outer = (tree.above < 0) & (tree.parent[tree.node] == row)
        lines = np.unique(trace.lines.of_event[tree.events[outer]])
        behind = float(spent[row + 1]) / max(lines.size, 1)
        times[row] = max(behind, float(worked[row]) / max(int(parallelism[row]), 1))
    times[tree.parent < 0] = float(spent[0])
    return times


INPUT_WAITS = Table[Waiting](
    "input_waits",
    "One row per step, with the training's wait for elements of tf.data.",
    columns_in("""
        step_num: the step's number
        wait_ms = step_ps: waiting in its period
        period_ms: its duration and the gap behind it that belongs to it
        wait_fraction: share of the period that was waiting
        is_counted = counted: whether averages and the diagnosis count it
        """),
    "Warm-up and the step of the first element are not counted.",
    values={"wait_fraction": lambda t: t.step_ps / np.maximum(t.period_ps, 1)},
)
