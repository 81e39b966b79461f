"""Python between the steps and in them, ops that it runs one by one, and what TensorFlow does around ops.

TensorFlow records no op that it found to take some 8,000 cycles or less, 2 or 3 microseconds
(``GetTFTraceMeLevel`` and ``kOpIsExpensiveThresholdCycles`` of its executor). So where no op is at work, that
is its own work for each call and op, and those ops: of small steps most. Of an op that Python ran by itself
the kernel is recorded, however small. Between epochs, and in pauses, Python counts as none of it, nor does
what profnb does to mark the steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.capture.parts.part_records import CHECKPOINTING
from profnb.capture.recording import GapRecords
from profnb.causes.numbers import CLOSE_PS, FAR_LONGER, FEWEST, NEARLY_ALL, SELDOM
from profnb.causes.pieces import FAR_PS, is_torch_op
from profnb.core.columns import Int64s
from profnb.core.units import PS_PER_NS, count_text, duration_text, percent_text
from profnb.steps.activities import CATEGORIES, FIRST_OF_DEVICE, HOST_COMPUTE
from profnb.steps.nesting import outermost_of
from profnb.steps.streams import covered_ps
from profnb.steps.summary import OTHERS
from profnb.steps.windows import outermost
from profnb.subjects.advising import (
    Spans,
    covered_share,
    in_periods,
    op_events,
    period_ps,
    share_beyond,
    share_of,
    share_of_spans,
    spans_of,
    usual_share_beyond,
)
from profnb.subjects.feeds.feeding import own_gap_ps, session_gaps
from profnb.subjects.ops.op_execution import LONG_OP_PS, find_growth, find_loop
from profnb.subjects.study import Study
from profnb.trace.names import JIT_CALL, PYTHON_OPS

_EAGER_CALL = "EagerLocalExecute: "
_FUNCTION_NAMES = (
    "__inference", "__forward", "__backward", "Iterator", "MakeIterator", "Anonymous",
)  # fmt: skip
_OPS_TO_MAKE_A_VARIABLE = 30


@dataclass(frozen=True, slots=True)
class EagerRuns:
    """Executions of ops in the counted steps, or between them; as they are in half of the steps too.

    Attributes:
        each: How many a step.
        share: What they take of the time from step to step, with Python from one to the next, while no device
            works.
        starting: The part of it in which no kernel runs either.
        computing: The part of it in which an op computes that takes 50 us or longer.
    """

    each: float
    share: float
    starting: float
    computing: float


def find_eager_runs(study: Study, *, between: bool = False) -> EagerRuns | None:
    """Find ops that Python runs one by one: None where it runs none, or a library does (``adapt``).

    Args:
        study: The analyses.
        between: Those between the steps, not those in them.
    """
    counted, trace = study.summary.counted, study.trace
    if not counted.size or (study.program.is_eager and study.recording.turns.are_library):
        return None
    events = _executions(study, between=between)
    made = trace.select_named(f"{_EAGER_CALL}VarHandleOp").sum()
    if not events.size or (study.steps.is_window and events.size <= _OPS_TO_MAKE_A_VARIABLE * made):
        return None
    longest_ps = _longest(study, events, between=between)
    far, is_of_keras = _with_pauses(study, events, longest_ps), study.program.is_fit and not between
    close = far if is_of_keras else _with_pauses(study, events, CLOSE_PS)
    on_device, ops = np.flatnonzero(study.activities >= FIRST_OF_DEVICE), study.ops.at_work
    hidden = spans_of(study, on_device)
    kernels = hidden if study.program.has_device else spans_of(study, ops)
    long = np.concatenate([on_device, ops[trace.events.duration_ps[ops] >= LONG_OP_PS]])
    starting = min(share_beyond(study, close, kernels), usual_share_beyond(study, close, kernels))
    share = min(share_beyond(study, far, hidden), usual_share_beyond(study, far, hidden))
    # Behind the last one is none.
    gaps = np.count_nonzero(study.gaps.own_ps[counted]) if between else 0
    if not starting:
        return None
    computing = max(share - share_beyond(study, far, spans_of(study, long)), 0.0)
    return EagerRuns(events.size / (gaps or counted.size), share, starting, computing)


def python_in_steps_share(study: Study) -> float:
    """Share of the time from step to step in which Python starts nothing inside of steps that it runs.

    Of ops that are started one by one the pauses between belong to starting them.
    """
    line = study.trace.lines.of_event
    is_started = study.trace.select_names(lambda name: name.startswith(JIT_CALL))
    is_started |= is_torch_op(study)
    is_started &= np.isin(line, line[study.steps.roots[:1]])
    is_started &= np.isin(study.groups.step, study.summary.counted)
    started = outermost_of(is_started, study.groups.parent)
    events = np.union1d(started, _executions(study, between=False))
    return max(share_of(study, OTHERS) - _pauses_share(study, events, CLOSE_PS), 0.0)


def eager_pauses(study: Study, *, between: bool) -> float:
    """Share of the time from step to step in which Python comes from one op to the next."""
    events = _executions(study, between=between)
    return _pauses_share(study, events, _longest(study, events, between=between))


def _pauses_share(study: Study, events: Int64s, longest_ps: int) -> float:
    """Share of the time that lies between these executions, where no more than so long does."""
    return share_beyond(study, _with_pauses(study, events, longest_ps), spans_of(study, events))


def _executions(study: Study, *, between: bool) -> Int64s:
    """The host's executions of ops that Python runs one by one; calls of functions and fetches are none."""

    def is_eager(name: str) -> bool:
        op = name.removeprefix(_EAGER_CALL)
        return op != name and not op.startswith(_FUNCTION_NAMES)

    trace = study.trace
    events = np.flatnonzero(trace.select_names(is_eager) & trace.is_host_event)
    if not between:
        return np.asarray(events[np.isin(study.groups.step[events], study.summary.counted)])
    if study.steps.is_window or not study.steps.roots.size:
        return events[:0]
    is_between = (study.groups.step[events] < 0) & in_periods(study, trace.events.begin_ps[events])
    of_loop = trace.lines.of_event[study.steps.roots[0]]
    return np.asarray(events[is_between & (trace.lines.of_event[events] == of_loop)])


def _pauses(study: Study, events: Int64s) -> Int64s:
    """From each execution to the next one of its thread and step; negative for none, shape (N,)."""
    begin, end = spans_of(study, events)
    line = study.trace.lines.of_event[events]
    step = np.searchsorted(study.steps.begin_ps, begin, side="right")  # or the gap behind it
    follows = (line[1:] == line[:-1]) & (step[1:] == step[:-1])
    pauses = np.where(follows, np.maximum(begin[1:] - end[:-1], 0), -1)
    return np.asarray(np.append(pauses, -1), np.int64)


def _longest(study: Study, events: Int64s, *, between: bool) -> int:
    """How long a pause may be: what Keras' steps do from op to op is Keras' own, however long it takes.

    Of others it may be long only if most pauses are short.
    """
    pauses = _pauses(study, events)
    near = pauses[(pauses >= 0) & (pauses <= FAR_PS)]
    is_short = near.size > 0 and np.median(near) <= CLOSE_PS
    return FAR_PS if is_short or (study.program.is_fit and not between) else CLOSE_PS


def _with_pauses(study: Study, events: Int64s, longest_ps: int) -> Spans:
    """Executions, each up to the next one where no more than so long lies between."""
    begin, end = spans_of(study, events)
    pauses = _pauses(study, events)
    return begin, np.where(pauses <= longest_ps, end + np.maximum(pauses, 0), end)


# What one call of a function, or of an op outside of any, is made in.
_STARTS_OF_CALLS = ("TFE_Py_", "EagerExecute", "EagerLocalExecute", "EagerKernelExecute")


def share_around_ops(study: Study) -> float:
    """Share of the time from step to step; 0 where a device works, and of other frameworks' programs.

    Of JAX that is starting programs: their ops are the instructions that XLA ran.
    """
    program = study.program
    is_unknown = program.is_jax and not len(study.xla.hlo)  # nobody knows when its programs ran
    if program.has_device or program.is_pytorch or not program.framework or is_unknown:
        return 0.0
    return max(share_of(study, "host compute") - covered_share(study, _ops_of_steps(study)), 0.0)


def share_around_calls(study: Study) -> float:
    """The part of it that comes before a call's first op or after its last one, which is the call's own.

    What lies between the ops of one call is the executor's, and stays however few calls there are.
    """
    around = share_around_ops(study)
    if not around or study.program.is_jax:
        return 0.0
    events, ops = study.trace.events, _ops_of_steps(study)
    spans = _first_to_last(events.begin_ps[ops], events.end_ps[ops], _call_of(study, ops))
    return max(share_of(study, "host compute") - share_of_spans(study, spans), 0.0)


def shares_of_calls(study: Study) -> tuple[float, float]:
    """What fewer calls spare of the steps: what is around calls, and perhaps of the ops.

    Returns:
        Shares of the time from step to step: of beginning and ending calls, those of Keras' own eager ops
        too; of short ops, in which threads wake, and of the executor between them.
    """
    around, ops = share_around_calls(study), _ops_of_steps(study)
    within = share_of(study, "host compute") - around
    if loop := find_loop(study):  # in its turns threads are awake
        within, ops = within - loop.share, np.intersect1d(ops, loop.others)
    took_ps = study.trace.events.duration_ps[ops]
    short = float(took_ps[took_ps <= LONG_OP_PS].sum() / max(took_ps.sum(), 1))
    return around, max(within, 0.0) * short


def _ops_of_steps(study: Study) -> Int64s:
    if study.program.is_jax:
        return study.xla.hlo.events
    ops = study.ops.at_work
    return ops[study.groups.step[ops] >= 0]


def _call_of(study: Study, ops: Int64s) -> Int64s:
    """The call that each op runs in, as a number that no other call and no op outside of any has."""
    events = study.trace.events
    is_call = study.trace.select_names(lambda name: name.startswith(_STARTS_OF_CALLS))
    calls = outermost(study.trace, np.flatnonzero(is_call & (study.groups.step >= 0)))
    call = np.searchsorted(events.begin_ps[calls], events.begin_ps[ops], side="right") - 1
    is_inside = (call >= 0) & (events.begin_ps[ops] < np.append(events.end_ps[calls], 0)[call])
    return np.where(is_inside, call, calls.size + np.arange(ops.size))


def _first_to_last(begin: Int64s, end: Int64s, group: Int64s) -> tuple[Int64s, Int64s]:
    """The begin of each group's first span and the end of its last one."""
    order = np.argsort(group, kind="stable")
    opens = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.minimum.reduceat(begin[order], opens), np.maximum.reduceat(end[order], opens)


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
    if not study.has_steps or study.summary.all_warm_up:
        return None  # of steps in which a function was traced: that is what Python did
    if (
        (study.program.is_jax and study.steps.steps_ahead > 0)
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
    if study.program.has_device or starts_ops_singly(study):
        return between, 0.0
    return between, float(study.breakdown.of("all others")[rows].sum())


def starts_ops_singly(study: Study) -> bool:
    """True if Python inside of the steps starts their ops one by one, as PyTorch's does."""
    rows = study.summary.counted
    calls = study.trace.select_names(lambda name: name.startswith(JIT_CALL))
    started = np.isin(study.groups.step[np.flatnonzero(calls)], rows).sum()
    return bool(study.program.starts_ops_singly or started >= FEWEST * rows.size)


def _other_rules_ps(study: Study, runs: GapRecords) -> float:
    """Time between session runs that checkpoints and summaries took, which have rules of their own."""
    cell = study.recording.cell
    saves = [p for p in (cell.parts if cell is not None else []) if p.part == CHECKPOINTING]
    written = [p for p in runs.places if "ummary" in p.text]
    return PS_PER_NS * (sum(p.wall_ns for p in saves) + sum(p.wall_ns for p in written))


def _is_paced_by_input(study: Study) -> bool:
    """True if nearly every step waits for a pipeline that works ahead of it: its pace is the pipeline's."""
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
    if not (whole_ps and 0 < count * SELDOM <= far.size) or far_ps * 2 <= whole_ps:
        return ""
    return (
        f" {percent_text(min(far_ps / whole_ps, 1.0))} of this Python follows only {count_text(count)} of "
        f"{count_text(far.size)} steps, {duration_text(far_ps / count)} each time."
    )


def python_alone_share(study: Study, *, between: bool) -> float:
    """Share of the traced time in which only Python ran: nothing computed, copied or was waited for.

    Beside a device also the time in which an own function between the steps ran ops on the CPU. PyTorch's
    short ops on a CPU are Python's too: each takes as long for one row as for many. 1 where nothing was
    traced that could tell, and where looks tell ops from Python.

    Args:
        study: The analyses.
        between: Of the time between steps, not of all: what is asked of runs there.
    """
    rows, breakdown, program = study.summary.counted, study.breakdown, study.program
    if not rows.size or not program.may_return_early:
        return 1.0
    gaps = breakdown.gap_picoseconds[rows].sum(axis=0)
    spent = gaps if between else gaps + breakdown.picoseconds[rows].sum(axis=0)
    spent[CATEGORIES.index("input")] = 0  # which no own function does
    ops = outermost_of(is_torch_op(study), study.groups.parent)
    took = study.trace.events.duration_ps[ops[(study.groups.step[ops] < 0) | (not between)]]
    short = took[took <= LONG_OP_PS].sum() / max(took.sum(), 1)
    computing = gaps if program.has_device else short * spent
    alone = spent[-1] + computing[CATEGORIES.index("host compute")]
    return float(alone / spent.sum()) if spent.any() else 1.0


def shares_without_programs(study: Study) -> tuple[float, float]:
    """Shares of JAX's calls, first to last, in which XLA ran no op of 50 us or longer, and in which none.

    A copy computes nothing: a program of one op copies what it changes, as the old array may still be used.
    """
    hlo, events = study.xla.hlo, study.trace.events
    is_call = study.trace.select_names(lambda name: name.startswith(JIT_CALL))
    begin, end = spans_of(study, np.union1d(np.flatnonzero(is_call), hlo.events))
    whole = int(end.max() - begin.min())
    is_copy = np.array([op.name.partition(".")[0] == "copy" for op in hlo.ops], np.bool_)[hlo.code]
    computing = hlo.events[~is_copy]
    long = computing[events.duration_ps[computing] > LONG_OP_PS]
    without, least = (
        max(1 - covered_ps(*spans_of(study, ops)) / max(whole, 1), 0.0) for ops in (long, computing)
    )
    return without, least


def find_python_in_steps(study: Study) -> tuple[float, Int64s]:
    """Find functions of Python that the steps' graph calls, and the time in which no other op of them runs.

    Returns:
        Its share of the time, in most of the steps; the events of the functions, of counted steps.
    """
    functions = _computing_ops(study, lambda op_type: op_type in PYTHON_OPS)
    others = _computing_ops(study, lambda op_type: op_type not in (*PYTHON_OPS, "Dataset"))
    spans, hidden = spans_of(study, functions), spans_of(study, others)
    share = min(share_beyond(study, spans, hidden), usual_share_beyond(study, spans, hidden))
    return share, functions


def _computing_ops(study: Study, is_wanted: Callable[[str], bool]) -> Int64s:
    """Ops that compute for a counted step: a pipeline's are input."""
    events = op_events(study, lambda _, op_type: is_wanted(op_type))
    is_counted = np.isin(study.groups.step[events], study.summary.counted)
    return np.asarray(events[is_counted & (study.activities[events] == HOST_COMPUTE)])
