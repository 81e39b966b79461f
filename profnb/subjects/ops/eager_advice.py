"""Rules of advice on ops that Python runs one by one, in the steps and between them."""

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.activities import FIRST_OF_DEVICE
from profnb.steps.finding.loops import EAGER_LOOPS
from profnb.subjects.advising import GUIDE, Finding, is_own_loop
from profnb.subjects.around_ops import ops_at_work
from profnb.subjects.covered_time import (
    Spans,
    in_periods,
    share_beyond,
    spans_of,
    usual_share_beyond,
)
from profnb.subjects.study import Study

__all__ = ["eager_ops", "eager_ops_between"]

_EAGER_CALL = "EagerLocalExecute: "
_FUNCTION_NAMES = (
    "__inference", "__forward", "__backward", "Iterator", "MakeIterator", "Anonymous",
)  # fmt: skip
_MANY, _MANY_EAGER_OPS, _OPS_TO_MAKE_A_VARIABLE = 20, 500, 30
_STAYS = "What reads values there (a float or an array of a tensor, an if on one) has to stay outside of it."
_CLOSE_PS, _FAR_PS, _LEAST_STARTING = 200_000_000, 2_000_000_000, 0.1


def eager_ops(study: Study) -> Finding | None:
    """Python runs 20 ops a step or more one by one, and starting them takes a tenth of the time or more.

    That is what their executions take besides their kernels, and Python from one to the next where that is
    less than 0.2 ms; a longer pause is something else. It is so in half of the steps, too. Without steps: 500
    ops or more besides those that make variables. What a tf.function saves at most is that, with pauses of up
    to 2 ms. What a device computes meanwhile costs nothing. Not where the loop is Keras' own (``adapt``),
    which nobody can put into a function.
    """
    counted = study.summary.counted
    if not counted.size or _is_loop_of_library(study):
        return None
    events = _executions(study)
    events = events[np.isin(study.groups.step[events], counted)]
    each = events.size / counted.size
    is_window = study.steps.is_window
    made = study.trace.select_named(f"{_EAGER_CALL}VarHandleOp").sum()
    if is_window and each - _OPS_TO_MAKE_A_VARIABLE * made < _MANY_EAGER_OPS:
        return None
    whole = duration_text(int(study.steps.duration_ps[counted].sum()))
    many = count_text(events.size if is_window else round(each))
    return _put_into_a_function(
        study, events, "Put the step into a tf.function",
        f"{many} ops one by one in {whole}" if is_window else f"{many} ops a step one by one",
        f"Put @tf.function(reduce_retracing=True) over the function that runs them. {_STAYS}"
        if is_window
        else "Put @tf.function(reduce_retracing=True) over the function that does one step "
        f"(model.run_eagerly must be False). {_STAYS}",
    )  # fmt: skip


def eager_ops_between(study: Study) -> Finding | None:
    """The same between the steps of a loop of the user's own: metrics that are updated, a model."""
    if study.steps.is_window or not study.steps.roots.size or not is_own_loop(study):
        return None
    if not study.summary.counted.size or _is_loop_of_library(study):
        return None
    events, trace = _executions(study), study.trace
    is_between = (study.groups.step[events] < 0) & in_periods(study, trace.events.begin_ps[events])
    of_loop = trace.lines.of_event[study.steps.roots[0]]
    events = events[is_between & (trace.lines.of_event[events] == of_loop)]
    gap_count = np.count_nonzero(
        study.gaps.own_ps[study.summary.counted]
    )  # behind the last one is none
    many = count_text(round(events.size / max(gap_count, 1)))
    return _put_into_a_function(
        study, events, "Put what runs between the steps into a tf.function",
        f"{many} ops a step one by one between the steps",
        "Put @tf.function(reduce_retracing=True) over the function that runs them (a model that is called, "
        f"metrics that are updated), or run them inside of the step's. {_STAYS}",
    )  # fmt: skip


def _is_loop_of_library(study: Study) -> bool:
    return study.steps.origin in EAGER_LOOPS and study.recording.turns.are_library


def _executions(study: Study) -> Int64s:
    """The host's executions of ops that Python runs one by one; calls of functions and fetches are none."""

    def is_eager(name: str) -> bool:
        op = name.removeprefix(_EAGER_CALL)
        return op != name and not op.startswith(_FUNCTION_NAMES)

    return np.flatnonzero(study.trace.select_names(is_eager) & study.trace.is_host_event)


def _put_into_a_function(
    study: Study, events: Int64s, title: str, what: str, code: str
) -> Finding | None:
    """The advice on some executions, where they are many and starting them is what takes the time."""
    if events.size / study.summary.counted.size < _MANY:
        return None
    hidden = spans_of(study, _kernels(study))
    starting = _with_pauses(study, events, _CLOSE_PS)
    share = share_beyond(study, starting, hidden)
    if min(share, usual_share_beyond(study, starting, hidden)) < _LEAST_STARTING:
        return None
    return Finding(
        "eager-ops", title,
        f"Python ran {what}; starting them, and coming from one to the next, takes {percent_text(share)} of "
        "the time, and nothing is fused or runs in parallel.",
        share_beyond(study, _with_pauses(study, events, _FAR_PS), hidden),
        code,
        f"{GUIDE}/function",
    )  # fmt: skip


def _kernels(study: Study) -> Int64s:
    """What ops do once they are started: a device's work, or kernels on the CPU."""
    if study.has_device:
        return np.flatnonzero(study.activities >= FIRST_OF_DEVICE)
    return ops_at_work(study)


def _with_pauses(study: Study, events: Int64s, longest_ps: int) -> Spans:
    """Executions, each up to the next one of its thread and step where no more than so long lies between."""
    begin, end = spans_of(study, events)
    if not events.size:
        return begin, end
    line, step = study.trace.lines.of_event[events], study.groups.step[events]
    is_followed = (line[1:] == line[:-1]) & (step[1:] == step[:-1])
    is_followed &= begin[1:] - end[:-1] <= longest_ps
    return begin, np.append(
        np.where(is_followed, np.maximum(begin[1:], end[:-1]), end[:-1]), end[-1:]
    )
