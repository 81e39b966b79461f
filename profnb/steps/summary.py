"""Steps and their breakdown to the few numbers a person reads first.

Averages speak of one phase (training if there is any) and leave warm-up steps out, and the one step among
many that takes so much longer that it alone would decide where the time goes. The period of a
step is its duration plus the gap to the next step where that belongs to it (``windows``), so shares of
categories and gap add up to the wall time of the loop, and examples per second are what the wall clock
would say of it; ends of epochs and pauses are no part of a step.

Examples: the root iterator of tf.data names the shapes and types of its elements, and each fetch the bytes it
moved. Where the first dimension is known it is the batch size; where only the first dimension is
unknown (``[?,28,28,1] [?]``), the bytes of the element over the bytes of one example give it. Anything
else (strings, ragged or scalar elements) is not guessed. Keras on JAX fetches batches of its own; profnb
marks them in the trace with what Keras says of their size. On PyTorch, profnb's own step markers say it.

Source: traceme_metadata of the root iterator in tensorflow/core/data (shapes, types) and of
IteratorGetNextOp (element_size), seen in traces of TensorFlow 2.20 and 2.21.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Bools, Int64s, match, sum_by
from profnb.core.units import PS_PER_S
from profnb.steps.activities import CATEGORIES
from profnb.steps.breakdown import StepBreakdown
from profnb.steps.grouping import Groups
from profnb.steps.windows import Gaps, Steps
from profnb.trace.model import Trace
from profnb.trace.names import EXAMPLES, NEXT_BATCH

_ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float": 4, "int32": 4, "uint32": 4, "double": 8, "int64": 8, "uint64": 8, "complex64": 8,
}  # fmt: skip
_SHAPE_TEXT = re.compile(r"\[([^\]]*)\]")
_SIZE = re.compile(r"\d{1,12}")  # of a dimension: no tensor could have more
_MARKERS = frozenset({"TraceContext", "train"})
_FETCH_PREFIX = "IteratorGetNext"
_ROOTS = frozenset({"Iterator::Root", "Iterator::Model"})
_is_size = _SIZE.fullmatch
_ANY_SIZE = -1


def batch_size_of(shapes: str, types: str, element_bytes: int) -> int | None:
    """Count the examples that one element holds, or None if it cannot be told.

    Args:
        shapes: For instance ``[?,28,28,1] [?]``.
        types: For instance ``float int64``, one per shape.
        element_bytes: The size of the element that was fetched.
    """
    parts = [part.split(",") for part in _SHAPE_TEXT.findall(shapes)]
    kinds = types.split()
    if not parts or len(parts) != len(kinds) or any(part == [""] for part in parts):
        return None
    first = {part[0] for part in parts}
    if len(first) != 1 or not all(_is_size(d) for part in parts for d in part[1:]):
        return None
    batch_dimension = first.pop()
    if _is_size(batch_dimension):
        return int(batch_dimension)
    if any(kind not in _ITEM_BYTES for kind in kinds):
        return None
    example_bytes = sum(
        math.prod(map(int, part[1:])) * _ITEM_BYTES[kind]
        for part, kind in zip(parts, kinds, strict=True)
    )
    count, rest = divmod(element_bytes, example_bytes) if example_bytes else (0, 1)
    return count if rest == 0 and count > 0 else None


def _stats_of(trace: Trace, stat: str, is_meant: Callable[[str], bool]) -> tuple[Int64s, Int64s]:
    """Find the events that have an integer stat and a name that is meant, and the values."""
    column = trace.stats.integers(stat)
    chosen = trace.are_named(column.events, is_meant)
    return column.events[chosen], column.values[chosen].astype(np.int64)


def _fetches(trace: Trace) -> tuple[Int64s, Int64s, Int64s]:
    """Read N fetches of tf.data: events, bytes, examples (-1: not told), each of shape (N,)."""
    shapes, types = trace.stats.texts("shapes"), trace.stats.texts("types")
    events, at, there = match(shapes.events, types.events)
    rooted = np.flatnonzero(trace.are_named(events, lambda name: name in _ROOTS))
    rows = shapes.values[at[rooted]].tolist(), types.values[there[rooted]].tolist()
    pairs = {(shapes.texts[one], types.texts[two]) for one, two in zip(*rows, strict=True)}
    fetches, sizes = _stats_of(trace, "element_size", lambda name: name.startswith(_FETCH_PREFIX))
    distinct, row = np.unique(sizes, return_inverse=True)
    answers = []
    for size in distinct.tolist():
        counts = {batch_size_of(*pair, size) for pair in pairs} - {None}
        answers.append(counts.pop() if len(counts) == 1 else _ANY_SIZE)
    return fetches, sizes, np.array(answers, np.int64)[row]


def _most_frequent(values: npt.NDArray[np.generic]) -> int | None:
    distinct, often = np.unique(values, return_counts=True)
    return int(distinct[often.argmax()]) if distinct.size else None


def usual_batch_size(trace: Trace) -> int | None:
    """Count the examples in most of the elements that were fetched; None if not told.

    That is what tf.data fetched, else what most marked fetches of Keras on JAX have, what Keras 2 wrote
    with its step markers, or what profnb wrote with its own.
    """
    _, sizes, examples = _fetches(trace)
    if sizes.size:
        count = int(examples[(sizes == _most_frequent(sizes)).argmax()])
        return None if count == _ANY_SIZE else count
    marked = _most_frequent(_stats_of(trace, "batch_size", lambda name: name == NEXT_BATCH)[1])
    if marked is None:
        written = np.unique(_stats_of(trace, "batch_size", _MARKERS.__contains__)[1])
        marked = int(written[0]) if written.size == 1 and 0 < written[0] < 1 << 31 else None
    return marked or _most_frequent(trace.stats.integers(EXAMPLES).values)


def examples_per_step(trace: Trace, groups: Groups, count: int) -> Int64s:
    """Count the examples that each step fetched; 0 where the trace does not tell.

    Returns:
        Examples, shape (count,). A step whose fetches cannot all be read has 0.
    """
    fetches, _, held = _fetches(trace)
    rows = groups.step[fetches]
    if not (rows >= 0).any():
        fetches, held = _stats_of(trace, "batch_size", lambda name: name == NEXT_BATCH)
        rows = groups.step[fetches]
    examples = sum_by(rows, held, count)
    examples[rows[(rows >= 0) & (held == _ANY_SIZE)]] = 0
    marked = trace.stats.integers(EXAMPLES)
    rows = groups.step[marked.events]
    examples[rows[rows >= 0]] = marked.values[rows >= 0].astype(np.int64)
    return examples


GAP, GAP_WORK = "between steps", "work between steps"
OTHERS = CATEGORIES[-1]
_OF_HOST = [CATEGORIES.index(name) for name in ("host compute", "kernel launch", "compilation")]
_FEWEST_STEPS, _ASIDE_FACTOR, _ASIDE_SHARE = 5, 5, 0.1


@dataclass(frozen=True, slots=True)
class Share:
    """One category's part of the average period.

    Attributes:
        category: One of the nine categories; "between steps" for Python there; "work between steps" for what
            the host runs and traces in gaps in which a new iterator is made.
        mean_ps: Mean per step in picoseconds.
        fraction: Share of all steps and gaps together.
    """

    category: str
    mean_ps: float
    fraction: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers that the headline says.

    Attributes:
        phase: The phase it speaks of; None without events.
        counted: Rows of the steps that the averages are of.
        aside: Rows of the few steps that took many times as long and would decide the shares: left out of the
            averages.
        warm_up: Rows of that phase's warm-up steps.
        others: Other phases and how many steps each has.
        iterations: Training iterations per step (steps_per_execution).
        median_ps: Median step time; None where there is no step.
        p95_ps: 95th percentile of step time, those aside included.
        quartiles_ps: First and third quartile of step time.
        median_gap_ps: Median of the gaps that are part of a step's period; None where none is.
        examples_per_second: Examples over wall time, such gaps included; None where the batch size
            is not known.
        batch_size: Examples per iteration of most steps; None where not known.
        shares: The categories and the gap, largest first; those with no time are left out.
        all_warm_up: Whether no other steps were there, so the averages are of warm-up steps.
    """

    phase: str | None
    counted: Int64s
    aside: Int64s
    warm_up: Int64s
    others: tuple[tuple[str, int], ...]
    iterations: int
    median_ps: float | None
    p95_ps: float | None
    quartiles_ps: tuple[float, float] | None
    median_gap_ps: float | None
    examples_per_second: float | None
    batch_size: int | None
    shares: tuple[Share, ...]
    all_warm_up: bool

    @property
    def largest(self) -> Share | None:
        """The category with the largest share."""
        return self.shares[0] if self.shares else None

    @property
    def mean_period_ps(self) -> float:
        """Mean time of a step and the gap that belongs to it, of which the shares are."""
        return sum(share.mean_ps for share in self.shares)


def summarize(steps: Steps, breakdown: StepBreakdown, examples: Int64s, gaps: Gaps) -> Summary:
    """Work out the headline."""
    phase = steps.main_phase
    every = steps.rows_of(phase, warm_up=True)
    counted = steps.rows_of(phase)
    all_warm_up = not counted.size and every.size > 0
    counted = every if all_warm_up else counted
    all_durations = steps.duration_ps[counted]
    is_aside = _stands_aside(all_durations)
    counted, aside = counted[~is_aside], counted[is_aside]
    duration = steps.duration_ps[counted]
    some = counted.size > 0
    quartiles = [float(one) for one in np.percentile(duration, (25, 75))] if some else []
    gaps_ps = gaps.duration_ps[counted[gaps.belongs[counted]]]
    batch_size = examples_per_second = None
    if some and examples[counted].all():
        batch_size = _most_frequent(examples[counted] // steps.iterations[counted])
        wall_ps = int(duration.sum() + gaps.own_ps[counted].sum())
        if wall_ps:
            examples_per_second = float(examples[counted].sum() / (wall_ps / PS_PER_S))
    return Summary(
        phase=phase,
        counted=counted,
        aside=aside,
        warm_up=every[steps.is_warmup[every]],
        others=tuple((one, rows.size) for one, rows in steps.rows_by_phase.items() if one != phase),
        iterations=int(np.median(steps.iterations[counted])) if some else 1,
        median_ps=float(np.median(duration)) if some else None,
        p95_ps=float(np.percentile(all_durations, 95)) if some else None,
        quartiles_ps=(quartiles[0], quartiles[1]) if some else None,
        median_gap_ps=float(np.median(gaps_ps)) if gaps_ps.size else None,
        examples_per_second=examples_per_second,
        batch_size=batch_size,
        shares=share_time(gaps, breakdown, counted),
        all_warm_up=all_warm_up,
    )


def _stands_aside(duration: Int64s) -> Bools:
    """Mark those of N steps that took five times the median or more, if they are few and a tenth of the time.

    One of fewer than 40, or a fortieth of more: what is more frequent belongs to the program.
    """
    if duration.size < _FEWEST_STEPS:
        return np.zeros(duration.size, np.bool_)
    slow = duration >= _ASIDE_FACTOR * np.median(duration)
    is_rare = slow.sum() <= max(1, duration.size // 40)
    decides = duration[slow].sum() >= _ASIDE_SHARE * duration.sum() > 0
    return slow if is_rare and decides else np.zeros(duration.size, np.bool_)


def periods_of(steps: Steps, gaps: Gaps, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends of the given steps with the gaps that belong to them, both of shape (R,)."""
    return steps.begin_ps[rows], steps.end_ps[rows] + gaps.own_ps[rows]


def periods_by_category(breakdown: StepBreakdown, gaps: Gaps, rows: Int64s) -> dict[str, Int64s]:
    """Each step's time with the gap that belongs to it, by category, in the order of ``CATEGORIES``.

    What the device or the host did in the gap counts for its category, as where it runs ahead; what nothing
    explains there is apart, and so is what the host did where it made a new iterator for one step.

    Returns:
        Of each category, and of what is apart, picoseconds of each of R steps, shape (R,).
    """
    in_gap = breakdown.gap_picoseconds[rows] * gaps.belongs[rows, None]
    work = np.zeros_like(in_gap)
    work[:, _OF_HOST] = in_gap[:, _OF_HOST] * gaps.sets_up[rows, None]
    in_gap -= work
    unexplained = in_gap[:, -1].copy()
    in_gap[:, -1] = 0
    whole = breakdown.picoseconds[rows] + in_gap
    named = {name: whole[:, at] for at, name in enumerate(CATEGORIES)}
    return named | {GAP: unexplained, GAP_WORK: work.sum(axis=1)}


def share_time(gaps: Gaps, breakdown: StepBreakdown, rows: Int64s) -> tuple[Share, ...]:
    """Share out the given steps and the gaps that belong to them among the categories, largest first."""
    if not rows.size:
        return ()
    times = periods_by_category(breakdown, gaps, rows)
    sums = {category: int(time_ps.sum()) for category, time_ps in times.items()}
    whole = sum(sums.values())
    ordered = sorted((one for one in sums.items() if one[1] > 0), key=lambda one: -one[1])
    return tuple(Share(name, total / rows.size, total / whole) for name, total in ordered)
