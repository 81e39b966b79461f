"""How long TensorFlow is at work on the CPU for the steps and no op that it records runs.

It records no op that it found to take some 8,000 cycles or less, 2 or 3 microseconds (``GetTFTraceMeLevel``
and ``kOpIsExpensiveThresholdCycles`` of its executor). So that is its own work for each call and op, and
those ops: of small steps most. Of an op that Python ran by itself the kernel is recorded, however small.
"""

import numpy as np

from profnb.causes.numbers import LONG_OP_PS
from profnb.core.columns import Int64s
from profnb.steps.windows import outermost
from profnb.subjects.advising import op_events, share_of
from profnb.subjects.covered_time import covered_share, share_of_spans
from profnb.subjects.ops.op_execution import find_eager_kernels
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, SESSIONS, TENSORFLOW

# What one call of a function, or of an op outside of any, is made in.
_CALLS = ("TFE_Py_", "EagerExecute", "EagerLocalExecute", "EagerKernelExecute")


def share_around_ops(study: Study) -> float:
    """Share of the time from step to step; 0 where a device works, and of other frameworks' programs.

    Of JAX that is starting programs: their ops are the instructions that XLA ran.
    """
    if study.has_device or study.framework not in (TENSORFLOW, SESSIONS, JAX):
        return 0.0
    if study.framework == JAX and not len(study.xla.hlo):
        return 0.0  # nobody knows when its programs ran
    return max(share_of(study, "host compute") - covered_share(study, _ops_of_steps(study)), 0.0)


def share_around_calls(study: Study) -> float:
    """The part of it that comes before a call's first op or after its last one, which is the call's own.

    What lies between the ops of one call is the executor's, and stays however few calls there are.
    """
    around = share_around_ops(study)
    if not around or study.framework == JAX:
        return 0.0
    events, ops = study.trace.events, _ops_of_steps(study)
    spans = _first_to_last(events.begin_ps[ops], events.end_ps[ops], _call_of(study, ops))
    return max(share_of(study, "host compute") - share_of_spans(study, spans), 0.0)


def share_of_short_ops(study: Study, around_calls: float) -> float:
    """What ops that compute for less than 50 us, and the executor between ops, take of the same.

    Args:
        study: The analyses.
        around_calls: What ``share_around_calls`` found.
    """
    ops = _ops_of_steps(study)
    long = ops[study.trace.events.duration_ps[ops] >= LONG_OP_PS]
    within = share_of(study, "host compute") - around_calls
    return max(within - covered_share(study, long), 0.0)


def ops_at_work(study: Study) -> Int64s:
    """The host's events in which ops of TensorFlow are at work: those it records, kernels of eager ones."""
    kernels = find_eager_kernels(study.trace, study.parent)
    ops: Int64s = np.concatenate([op_events(study, lambda *_: True), kernels])
    return ops


def _ops_of_steps(study: Study) -> Int64s:
    if study.framework == JAX:
        return study.xla.hlo.events
    ops = ops_at_work(study)
    return ops[study.groups.step[ops] >= 0]


def _call_of(study: Study, ops: Int64s) -> Int64s:
    """The call that each op runs in, as a number that no other call and no op outside of any has."""
    events = study.trace.events
    is_call = study.trace.select_names(lambda name: name.startswith(_CALLS))
    calls = outermost(study.trace, np.flatnonzero(is_call & (study.groups.step >= 0)))
    call = np.searchsorted(events.begin_ps[calls], events.begin_ps[ops], side="right") - 1
    is_inside = (call >= 0) & (events.begin_ps[ops] < np.append(events.end_ps[calls], 0)[call])
    return np.where(is_inside, call, calls.size + np.arange(ops.size))


def _first_to_last(begin: Int64s, end: Int64s, group: Int64s) -> tuple[Int64s, Int64s]:
    """The begin of each group's first span and the end of its last one."""
    order = np.argsort(group, kind="stable")
    opens = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.minimum.reduceat(begin[order], opens), np.maximum.reduceat(end[order], opens)
