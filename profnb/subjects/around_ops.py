"""How long TensorFlow is at work on the CPU for the steps and no op that it records runs.

It records no op that it found to take some 8,000 cycles or less, 2 or 3 microseconds (``GetTFTraceMeLevel``
and ``kOpIsExpensiveThresholdCycles`` of its executor). So that is its own work for each call and op, and
those ops: of small steps most.
"""

from profnb.subjects.advising import covered_share, op_events, share_of
from profnb.subjects.study import Study
from profnb.trace.framework import SESSIONS, TENSORFLOW

__all__ = ["share_around_ops"]


def share_around_ops(study: Study) -> float:
    """Share of the time from step to step; 0 where a device works, and of other frameworks' programs."""
    if study.has_device or study.framework not in (TENSORFLOW, SESSIONS):
        return 0.0
    ops = op_events(study, lambda *_: True)
    of_ops = covered_share(study, ops[study.groups.step[ops] >= 0])
    return max(share_of(study, "host compute") - of_ops, 0.0)
