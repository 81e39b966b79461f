"""Shares of the time that rules of advice ask for, and a finding where there is no tree.

The time is that of the counted steps' periods: each step and the gap behind it that belongs to it. Where
spans overlap they count once, whatever threads they are on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.capture.source.user_code import file_title
from profnb.core.columns import Bools, Floats, Int64s, span_at
from profnb.steps.activities import COPYING_IN, FIRST_OF_DEVICE, HOST_TO_DEVICE, WAITING_FOR_INPUT
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN
from profnb.steps.summary import periods_of
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.study import Study
from profnb.trace.names import parse_op

GUIDE = "https://www.tensorflow.org/guide"
JIT_GUIDE = "https://docs.jax.dev/en/latest/jit-compilation.html"
TORCH_COMPILE_GUIDE = "https://docs.pytorch.org/docs/stable/torch.compiler.html"
KERAS_TRAINING = "https://keras.io/api/models/model_training_apis/"
_JAX_GUIDE = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"
_PYTORCH_GUIDE = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
LEAST_INPUT = 0.05  # of the time; from here on input is said
# What keeps the next batch ready, by framework.
READY = {
    TENSORFLOW: "Read through tf.data with .map(..., num_parallel_calls=tf.data.AUTOTUNE) and "
    ".prefetch(tf.data.AUTOTUNE) as the last step. The next batch is made during the step.",
    SESSIONS: "Read through tf.data with .map(..., num_parallel_calls=8) and .prefetch(2) as the last "
    "step. The next batch is made during the step.",
    JAX: "Make the next batch during the step, in another thread or process (grain, tf.data, a PyTorch "
    "DataLoader).",
    PYTORCH: "DataLoader(..., num_workers=4, prefetch_factor=4, persistent_workers=True) makes the next "
    "batch during the step. Starting workers takes some tenths of a second: keep one loader for all "
    "epochs.",
    UNKNOWN: "Make the next batch during the step, in another thread or process.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change where there is no tree: of a LiteRT model, or of several hosts."""

    rule: str  # the rule's name
    title: str  # what to do, in a few words
    evidence: str  # the numbers, in a sentence or two
    # most of the time that it can save, 0 to 1; None where nothing bounds it
    bound_fraction: float | None
    code: str  # what to write
    link: str  # where it is explained
    # share of the time that it speaks of; what ranks it where nothing bounds it
    concerned_fraction: float = 1.0


def line_text(study: Study, file: str, number: int) -> str:
    """A line of the user's code as the report names it, "Cell [3]:8"; "" without a file."""
    source, cell = study.recording.source, study.recording.cell
    cells = (cell.cells if cell else {}) | (source.cells if source else {})
    return f"{file_title(file, cells)}:{number}" if file else ""


def guide(study: Study, page: str) -> str:
    """Link the framework's guide that explains it; TensorFlow's page where the framework is unknown."""
    return study.program.text_of(
        {UNKNOWN: f"{GUIDE}/{page}", JAX: _JAX_GUIDE, PYTORCH: _PYTORCH_GUIDE}
    )


def steps_ps(study: Study, most_ps: int) -> float:
    """Estimate what the steady steps of the main phase and their gaps take, at most ``most_ps``.

    By how many there were, traced or not, and what a traced one took; where none was counted, those of the
    trace. All where it is not known: where only those in the window were counted, and it closed before the
    end.
    """
    times, cell = study.step_times, study.recording.cell
    is_cut = times.was_traced.all() and study.recording.closed_by
    if cell is None or not cell.parts or study.steps.is_window or is_cut:
        return most_ps
    steady_count = sum(
        phase == study.summary.phase and not retraced
        for phase, retraced in zip(times.phase, times.retraced.tolist(), strict=True)
    )
    return min((steady_count or len(study.summary.counted)) * study.summary.mean_period_ps, most_ps)


def share_of(study: Study, category: str) -> float:
    """Share of a category in the time from step to step."""
    return next((s.fraction for s in study.summary.shares if s.category == category), 0.0)


def window_of(study: Study) -> int:
    """From the first step's begin to the last one's end."""
    steps = study.steps
    return int(steps.end_ps[-1] - steps.begin_ps[0]) if len(steps) else 0


def idle_share_of(study: Study, cause: str) -> float:
    """Share of the window in which the busiest device was idle for a cause."""
    idle = study.device.idle
    return float(idle.total_ps[IDLE_CAUSES.index(cause)] / idle.window_ps) if idle else 0.0


def input_shares(study: Study) -> tuple[float, float]:
    """Shares of the time in which the busiest device ran nothing but copies to it, for want of data.

    The first: something moved data to the device, by the device's copies and the host's calls. The second:
    the host waited for the next element, and nothing was moved. Both 0 without steps.
    """
    if not study.has_steps:
        return 0.0, 0.0
    activity = study.activities
    # A thread that fetches ahead waits for nobody: what belongs to no step is left out, as in the breakdown.
    roots = study.steps.roots
    of_loop = study.trace.lines.of_event[roots[0]] if roots.size else -1
    waits = np.flatnonzero(activity == WAITING_FOR_INPUT)
    # PyTorch's loops fetch a batch between two steps, on the thread that makes them.
    is_of_loop = study.trace.lines.of_event[waits] == of_loop
    waits = waits[is_of_loop | (study.groups.step[waits] >= 0)]
    calls = np.flatnonzero(activity == COPYING_IN)
    calls = calls[study.groups.step[calls] >= 0]
    copies = np.flatnonzero(activity == HOST_TO_DEVICE)
    work = np.flatnonzero((activity >= FIRST_OF_DEVICE) & (activity != HOST_TO_DEVICE))
    moves = np.concatenate([copies, calls])
    of_work = covered_share(study, work)
    of_moves = covered_share(study, np.concatenate([work, moves]))
    of_all = covered_share(study, np.concatenate([work, moves, waits]))
    return of_moves - of_work, of_all - of_moves


def op_events(study: Study, is_wanted: Callable[[str, str], bool]) -> Int64s:
    """The host's events of ops that run no other op, where (op name, op type) is wanted."""
    events = study.ops.innermost
    ops = map(parse_op, study.trace.names.texts)
    is_chosen = np.array([op is not None and is_wanted(*op) for op in ops], np.bool_)
    return events[is_chosen[study.trace.events.name[events]]]


Spans = tuple[Int64s, Int64s]  # begins and ends of N, in any order
_NOWHEN: Int64s = np.empty(0, np.int64)


def period_ps(study: Study) -> int:
    """Add up the counted steps and the gaps that belong to them."""
    begin, end = _periods(study)
    return int((end - begin).sum())


def _periods(study: Study) -> Spans:
    return periods_of(study.steps, study.gaps, study.summary.counted)


def in_periods(study: Study, times: Int64s) -> Bools:
    """Mark those of N times that lie in a counted step or in the gap behind it that belongs to it."""
    return span_at(*_periods(study), times) >= 0


def spans_of(study: Study, events: Int64s) -> Spans:
    """Begins and ends of N events."""
    return study.trace.events.begin_ps[events], study.trace.events.end_ps[events]


def covered_share(study: Study, events: Int64s) -> float:
    """Share of the time in which at least one of these events runs."""
    return share_of_spans(study, spans_of(study, events))


def share_of_spans(study: Study, spans: Spans) -> float:
    """Share of the time that at least one of these spans covers."""
    return share_beyond(study, spans, (_NOWHEN, _NOWHEN))


def share_beyond(study: Study, spans: Spans, others: Spans) -> float:
    """Share of the time that some of these spans cover, and none of the others."""
    whole = period_ps(study)
    return float(_beyond_ps(study, spans, others).sum() / whole) if whole else 0.0


def usual_share_beyond(study: Study, spans: Spans, others: Spans) -> float:
    """The same of the usual period, the median: what a few steps lost to other programs is not in it."""
    begin, end = _periods(study)
    is_some = end > begin
    beyond = _beyond_ps(study, spans, others)[is_some] / (end - begin)[is_some]
    return float(np.median(beyond)) if beyond.size else 0.0


def _beyond_ps(study: Study, spans: Spans, others: Spans) -> Floats:
    begin, end = (np.concatenate(both) for both in zip(spans, others, strict=True))
    return _covered_ps(study, (begin, end)) - _covered_ps(study, others)


def _covered_ps(study: Study, spans: Spans) -> Floats:
    """Picoseconds of each of C periods that at least one of N spans covers, shape (C,)."""
    from_ps, to_ps = _periods(study)
    begin, end = spans
    if not begin.size:
        return np.zeros(from_ps.size)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    opens = np.append(True, begin[1:] > end[:-1])
    first, last = begin[opens], end[np.append(opens[1:], True)]
    # What is covered before each bound, by interpolation between the pieces' ends.
    at = np.stack([first, last], axis=1).ravel()
    sums = np.repeat(np.append(0, np.cumsum(last - first)), 2)[1:-1]
    covered: Floats = np.interp(to_ps, at, sums, left=0) - np.interp(from_ps, at, sums, left=0)
    return covered
