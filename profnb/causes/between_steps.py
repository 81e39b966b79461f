"""How long Python runs between the steps of a loop, and in them on a CPU, while nothing else is at work.

Between epochs, and in pauses, is none of it, nor is what profnb does to mark the steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.capture.parts.part_records import CHECKPOINTING
from profnb.capture.session_records import GapRecords
from profnb.causes.eager_runs import eager_pauses
from profnb.causes.numbers import FAR_LONGER, FEWEST, NEARLY_ALL, SELDOM
from profnb.core.columns import Int64s
from profnb.core.units import PS_PER_NS, count_text, duration_text, percent_text
from profnb.steps.activities import CATEGORIES, HOST_COMPUTE
from profnb.steps.finding.loops import EAGER_LOOPS
from profnb.subjects.advising import op_events
from profnb.subjects.covered_time import period_ps, share_beyond, spans_of, usual_share_beyond
from profnb.subjects.feeds.feeding import own_gap_ps, session_gaps
from profnb.subjects.ops.growth import find_growth
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH
from profnb.trace.names import PYTHON_OPS

_CALL_OF_JAX = "PjitFunction("


@dataclass(frozen=True, slots=True)
class PythonBetween:
    """Python of a loop, of the time from step to step.

    Attributes:
        share: Its share.
        inside: The part of that which lies inside of the steps.
        seldom: Where most of it comes after few of the steps, that in a sentence; else "".
    """

    share: float
    inside: float
    seldom: str


def find_python_between(study: Study) -> PythonBetween | None:
    """Find Python between steps; None where less of it saves nothing, or what it does has another name.

    Where JAX's calls run ahead of their programs, Python is not what the programs wait for. Where a new input
    is made for each step, Python makes what is fed or new ops, or each step waits for a pipeline that works
    ahead, something else is to be changed.
    """
    rows, feeding = study.summary.counted, study.input.feeding
    if not rows.size or study.steps.is_window or study.summary.all_warm_up:
        return None  # of steps in which a function was traced: that is what Python did
    if (
        (study.framework == JAX and study.steps.steps_ahead > 0)
        or study.steps.ends_epoch[rows].sum() * 2 > rows.size
        or (feeding is not None and feeding.makes_input)
        or find_growth(study.recording.graph_versions) is not None
        or _is_paced_by_input(study)
    ):
        return None
    runs, whole = session_gaps(study), period_ps(study)
    between, inside = _python_ps(study, runs)
    between = max(between - eager_pauses(study, between=True) * whole, 0.0)
    inside = max(inside - eager_pauses(study, between=False) * whole, 0.0)
    share = (between + inside) / whole if whole else 0.0
    # Of a gap between session runs only the sum over all is known to be Python's, not that of each.
    seldom = "" if runs is not None else _few_gaps(study, between + inside)
    return PythonBetween(share, inside / whole, seldom) if share > 0 else None


def _in_gaps(study: Study) -> Int64s:
    """The categories of the gaps behind the counted steps that belong to their loop."""
    rows = study.summary.counted
    return study.breakdown.gap_picoseconds[rows] * study.gaps.belongs[rows, None]


def _python_ps(study: Study, runs: GapRecords | None) -> tuple[float, float]:
    """Python's time between the counted steps, less what marking them took; and that inside."""
    rows, in_gaps = study.summary.counted, _in_gaps(study)
    shown = study.breakdown.of("input")[rows] + in_gaps[:, CATEGORIES.index("input")]
    unseen = np.maximum(study.input.waiting.step_ps[rows] - shown, 0)  # of which no category tells
    between = float(np.maximum(in_gaps[:, -1] - unseen, 0).sum())
    if runs is not None:  # what passes inside of Session.run, before its first op, is not Python's
        between = min(between, own_gap_ps(runs) * rows.size) - _other_rules_ps(study, runs)
        return max(between, 0.0), 0.0
    between = max(between - study.recording.marking_ns * PS_PER_NS * rows.size, 0.0)
    # Inside of steps that run their ops one by one, as PyTorch's do, Python starts them.
    is_eager = study.steps.origin in EAGER_LOOPS or study.framework == PYTORCH
    calls = study.trace.select_names(lambda name: name.startswith(_CALL_OF_JAX))
    started = np.isin(study.groups.step[np.flatnonzero(calls)], rows).sum()
    is_eager |= bool(started >= FEWEST * rows.size)
    if study.has_device or is_eager:
        return between, 0.0
    return between, float(study.breakdown.of("all others")[rows].sum())


def _other_rules_ps(study: Study, runs: GapRecords) -> float:
    """Time between session runs that checkpoints and summaries took, which have rules of their own."""
    cell = study.recording.cell
    saves = [p for p in (cell.parts if cell is not None else []) if p.part == CHECKPOINTING]
    written = [p for p in runs.places if "ummary" in p.text]
    return PS_PER_NS * (sum(p.wall_ns for p in saves) + sum(p.wall_ns for p in written))


def _is_paced_by_input(study: Study) -> bool:
    """Whether nearly every step waits for a pipeline that works ahead of it: its pace is the pipeline's."""
    diagnosis, table, waiting = study.input.diagnosis, study.input.pipeline, study.input.waiting
    if diagnosis is None or diagnosis.severity != "high":
        return False
    parent, is_async = table.tree.parent, table.tree.is_async
    is_last = np.isin(parent, np.flatnonzero(parent < 0))
    many = NEARLY_ALL * int(waiting.counted.sum())
    return bool((is_async & is_last).any()) and waiting.starved >= many


def _few_gaps(study: Study, whole_ps: float) -> str:
    """Say where most of it lies after few steps: what runs there is no cost of each, or another program's."""
    python_ps = _in_gaps(study)[:, -1]
    far = python_ps > FAR_LONGER * np.median(python_ps)
    far_ps, count = int(python_ps[far].sum()), int(far.sum())
    if not 0 < count * SELDOM <= far.size or far_ps * 2 <= whole_ps:
        return ""
    return (
        f" {percent_text(min(far_ps / whole_ps, 1.0))} of that comes after {count_text(count)} of "
        f"{count_text(far.size)} steps, {duration_text(far_ps / count)} each time."
    )


def python_alone_share(study: Study) -> float:
    """Share of the traced time in which only Python ran: nothing computed, copied or was waited for.

    1 where nothing was traced that could tell, and where a call returns when its work is done.
    """
    rows, breakdown = study.summary.counted, study.breakdown
    if not rows.size or (not study.has_device and study.framework not in (JAX, PYTORCH)):
        return 1.0
    spent = breakdown.picoseconds[rows].sum(axis=0) + breakdown.gap_picoseconds[rows].sum(axis=0)
    return float(spent[-1] / spent.sum()) if spent.any() else 1.0


def find_python_in_steps(study: Study) -> tuple[float, Int64s]:
    """Find functions of Python that the steps' graph calls, and the time in which no other op of them runs.

    Returns:
        Its share of the time, in most of the steps; the events of the functions, of counted steps.
    """
    functions = _ops_of_steps(study, lambda op_type: op_type in PYTHON_OPS)
    others = _ops_of_steps(study, lambda op_type: op_type not in (*PYTHON_OPS, "Dataset"))
    spans, hidden = spans_of(study, functions), spans_of(study, others)
    share = min(share_beyond(study, spans, hidden), usual_share_beyond(study, spans, hidden))
    return share, functions


def _ops_of_steps(study: Study, is_wanted: Callable[[str], bool]) -> Int64s:
    """Ops that compute for a counted step: a pipeline's are input."""
    events = op_events(study, lambda _, op_type: is_wanted(op_type))
    is_counted = np.isin(study.groups.step[events], study.summary.counted)
    return np.asarray(events[is_counted & (study.activities[events] == HOST_COMPUTE)])
