"""Ops that Python runs one by one, in the steps and between them, to the time that starting them takes."""

from dataclasses import dataclass

import numpy as np

from profnb.causes.around_ops import ops_at_work
from profnb.causes.numbers import CLOSE_PS
from profnb.core.columns import Int64s
from profnb.steps.activities import FIRST_OF_DEVICE
from profnb.steps.finding.loops import EAGER_LOOPS
from profnb.subjects.advising import is_fit, share_of
from profnb.subjects.covered_time import (
    Spans,
    in_periods,
    share_beyond,
    spans_of,
    usual_share_beyond,
)
from profnb.subjects.ops.eager_ops import LONG_OP_PS, shares_of_kernels
from profnb.subjects.study import Study
from profnb.trace.framework import JAX

_EAGER_CALL = "EagerLocalExecute: "
_FUNCTION_NAMES = (
    "__inference", "__forward", "__backward", "Iterator", "MakeIterator", "Anonymous",
)  # fmt: skip
_OPS_TO_MAKE_A_VARIABLE = 30
# Where Python calls a layer or a machine is slow it takes longer, only if most of the pauses are close.
_FAR_PS = 10 * CLOSE_PS


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
    if not counted.size or (
        study.steps.origin in EAGER_LOOPS and study.recording.turns.are_library
    ):
        return None
    events = _executions(study, between=between)
    made = trace.select_named(f"{_EAGER_CALL}VarHandleOp").sum()
    if not events.size or (study.steps.is_window and events.size <= _OPS_TO_MAKE_A_VARIABLE * made):
        return None
    longest_ps = _longest(study, events, between=between)
    far, is_of_keras = _with_pauses(study, events, longest_ps), is_fit(study) and not between
    close = far if is_of_keras else _with_pauses(study, events, CLOSE_PS)
    on_device, ops = np.flatnonzero(study.activities >= FIRST_OF_DEVICE), ops_at_work(study)
    hidden = spans_of(study, on_device)
    kernels = hidden if study.has_device else spans_of(study, ops)
    long = np.concatenate([on_device, ops[trace.events.duration_ps[ops] >= LONG_OP_PS]])
    starting = min(share_beyond(study, close, kernels), usual_share_beyond(study, close, kernels))
    share = min(share_beyond(study, far, hidden), usual_share_beyond(study, far, hidden))
    gaps = (
        np.count_nonzero(study.gaps.own_ps[counted]) if between else 0
    )  # behind the last one is none
    if not starting:
        return None
    computing = max(share - share_beyond(study, far, spans_of(study, long)), 0.0)
    return EagerRuns(events.size / (gaps or counted.size), share, starting, computing)


def eager_pauses(study: Study, *, between: bool) -> float:
    """Share of the time from step to step in which Python comes from one op to the next."""
    events = _executions(study, between=between)
    if not events.size:
        return 0.0
    spans = _with_pauses(study, events, _longest(study, events, between=between))
    return share_beyond(study, spans, spans_of(study, events))


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
    """How long a pause may be: what Keras' steps do from op to op is Keras' own, however long it takes."""
    pauses = _pauses(study, events)
    near = pauses[(pauses >= 0) & (pauses <= _FAR_PS)]
    is_short = near.size > 0 and np.median(near) <= CLOSE_PS
    return _FAR_PS if is_short or (is_fit(study) and not between) else CLOSE_PS


def _with_pauses(study: Study, events: Int64s, longest_ps: int) -> Spans:
    """Executions, each up to the next one where no more than so long lies between."""
    begin, end = spans_of(study, events)
    pauses = _pauses(study, events)
    return begin, np.where(pauses <= longest_ps, end + np.maximum(pauses, 0), end)


def computing_shares(study: Study) -> tuple[float, float]:
    """Of the time of ops that are started one by one, the least and the most that is computing."""
    if study.framework == JAX:
        return 0.0, share_of(study, "device compute") + share_of(study, "host compute")
    return shares_of_kernels(study.trace, study.parent)
