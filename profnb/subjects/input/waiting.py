"""The training's waiting for its input, step by step, and how fast the pipeline could go.

A step's period is its duration and the gap behind it where that belongs to it; the training waits in it
while a call of the outermost iterator runs on its thread. Ten steps of 20 ms that wait 12 ms each: the
pipeline makes 50 elements a second, and a model that never waited would take one every 8 ms, 125 a second.

Where the training does not wait, what the pipeline could make is set by its slowest stage: the iterators
that one thread calls inside each other are one stage; a user's function that runs on other threads is one, as
many times as fast as it runs in parallel. Only the counted steps are looked at, so that a validation does not
speak for the training.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table
from profnb.steps.windows import Gaps, Steps
from profnb.subjects.input.charges import Charges, self_pieces
from profnb.subjects.input.iterators import IteratorTree
from profnb.subjects.input.pipeline import InputPipeline
from profnb.trace.model import Trace

_STARVED = 0.1


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the training waited for elements.

    Attributes:
        step_num: The steps' numbers, shape (S,).
        step_ps: Waiting in the period of each step, shape (S,).
        period_ps: From each step's begin to the next one's where the gap between belongs to it; else its
            duration, shape (S,).
        counted: The steps that averages are of, shape (S,): of the main phase, no warm-up, nor the step in
            which the first element came.
        first_ps: The wait for the very first element, in which buffers fill.
        charged_ps: Waiting in the counted steps that is charged to each iterator's own work and to its
            function, shape (N, 2), columns ``ITERATOR`` and ``FUNCTION``.
        elements: Elements fetched in the counted steps.
        busy_ps: Time of the slowest stage of the pipeline per element; NaN if not known.
        threads: Threads that worked for each iterator's function, on average over the counted steps'
            periods, shape (N,).
    """

    step_num: Int64s
    step_ps: Int64s
    period_ps: Int64s
    counted: Bools
    first_ps: int
    charged_ps: Int64s
    elements: int
    busy_ps: float
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


@dataclass(frozen=True, slots=True)
class _Periods:
    """The steps' periods, and which of them count."""

    begin_ps: Int64s
    period_ps: Int64s
    counted: Bools

    def of(self, times: Int64s) -> Int64s:
        """The step in whose period each time lies, or -1."""
        if not self.begin_ps.size:
            return np.full(times.size, -1)
        row = np.searchsorted(self.begin_ps, times, side="right") - 1
        step = np.maximum(row, 0)
        inside = (row >= 0) & (times < self.begin_ps[step] + self.period_ps[step])
        return np.where(inside, row, -1)

    def counts(self, times: Int64s) -> Bools:
        """Whether each time lies in a counted period."""
        row = self.of(times)
        return (row >= 0) & self.counted[np.maximum(row, 0)] if self.counted.size else row >= 0


def _periods(steps: Steps, gaps: Gaps, counted_rows: Int64s) -> _Periods:
    counted = np.zeros(len(steps), np.bool_)
    counted[counted_rows] = True
    return _Periods(steps.begin_ps, steps.duration_ps + gaps.own_ps, counted)


def find_waiting(
    trace: Trace,
    steps: Steps,
    gaps: Gaps,
    counted_rows: Int64s,
    tree: IteratorTree,
    charges: Charges,
    table: InputPipeline,
) -> Waiting:
    """Assign the training's waiting to steps.

    Args:
        trace: The trace.
        steps: Its steps.
        gaps: What lies between them.
        counted_rows: The steps that averages are of.
        tree: Its iterators.
        charges: The waiting, as ``charge_waiting`` charges it.
        table: The table of iterators.
    """
    periods = _periods(steps, gaps, counted_rows)
    roots = tree.events[tree.parent[tree.node] < 0] if tree.node.size else tree.events
    begins = trace.events.begin_ps[roots]
    first = int(begins.argmin()) if roots.size else -1
    if first >= 0 and periods.counted.sum() > 1:  # in whose wait threads start and buffers fill
        opening = int(periods.of(begins[first : first + 1])[0])
        if opening >= 0:
            periods.counted[opening] = False
    wait = np.zeros(len(steps), np.int64)
    row = periods.of(charges.begin_ps)
    np.add.at(wait, row[row >= 0], charges.duration_ps[row >= 0])
    ran = periods.counts(trace.events.begin_ps[tree.runs]) & (tree.run_node >= 0)
    worked = np.zeros(len(tree), np.int64)
    np.add.at(worked, tree.run_node[ran], tree.run_busy_ps[ran])
    elements = int(periods.counts(begins).sum())
    busy = _stage_times(trace, tree, periods, worked, table.parallelism) / max(elements, 1)
    window = int(periods.period_ps[periods.counted].sum())
    return Waiting(
        step_num=steps.step_num,
        step_ps=np.minimum(wait, periods.period_ps),
        period_ps=periods.period_ps,
        counted=periods.counted,
        first_ps=int(trace.events.duration_ps[roots[first]]) if first >= 0 else 0,
        charged_ps=charges.sum_by_iterator(len(tree), periods.counts(charges.begin_ps)),
        elements=elements,
        busy_ps=float("nan") if np.isnan(busy).all() else float(np.nanmax(busy)),
        threads=worked / window if window else np.full(len(tree), np.nan),
    )


def _stage_times(
    trace: Trace, tree: IteratorTree, periods: _Periods, worked: Int64s, parallelism: Int64s
) -> Floats:
    """Time in the counted steps of each stage.

    Shape (N,): for an asynchronous iterator the longer of the calls on its threads and its function; for the
    outermost one the calls on the training's thread; NaN elsewhere.
    """
    times = np.full(len(tree), np.nan)
    if not tree.events.size:
        return times
    pieces, top = self_pieces(trace, tree)
    begin, end, call = pieces
    feeds = tree.parent[tree.node[top[call]]]  # for which iterator a piece's thread works
    works = ~tree.is_async[tree.node[call]] & periods.counts(begin)
    spent = np.zeros(
        len(tree) + 1, np.int64
    )  # the last one: for the training itself, where feeds is -1
    np.add.at(spent, feeds[works], (end - begin)[works])
    for row in np.flatnonzero(tree.is_async).tolist():
        outer = (tree.above < 0) & (tree.parent[tree.node] == row)
        lines = np.unique(trace.lines.of_event[tree.events[outer]])
        behind = float(spent[row]) / max(lines.size, 1)
        times[row] = max(behind, float(worked[row]) / max(int(parallelism[row]), 1))
    times[tree.parent < 0] = float(spent[-1])
    return times


INPUT_WAITS = Table[Waiting](
    "input_waits",
    "One row per step: how long the training waited for elements of tf.data.",
    (
        Column("step_num", lambda t: t.step_num, "the step's number"),
        Column("wait_ms", lambda t: t.step_ps, "waiting in its period"),
        Column(
            "period_ms",
            lambda t: t.period_ps,
            "its duration and the gap behind it that belongs to it",
        ),
        Column(
            "wait_fraction",
            lambda t: t.step_ps / np.maximum(t.period_ps, 1),
            "share of the period that was waiting",
        ),
        Column("is_counted", lambda t: t.counted, "whether averages and the diagnosis count it"),
    ),
    "What is not counted is warm-up, and the step in which the first element came.",
)
