"""The rule on Python functions that a step's graph calls: ``tf.numpy_function``, ``tf.py_function``."""

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.printable import printable
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.activities import HOST_COMPUTE
from profnb.subjects.advising import GUIDE, Finding, op_events
from profnb.subjects.covered_time import share_beyond, spans_of, usual_share_beyond
from profnb.subjects.study import Study
from profnb.trace.names import PYTHON_OPS
from profnb.trace.op_names import parse_op

__all__ = ["python_in_the_step"]

_LEAST, _LONGEST_NAME = 0.1, 60


def python_in_the_step(study: Study) -> Finding | None:
    """Python functions that the steps' graph calls take a tenth of the time, in half of the steps, too.

    That is time in which no other op runs. What a pipeline calls is its own, on whatever thread.
    """
    if not study.summary.counted.size or study.steps.is_window:
        return None
    if not any(name.endswith(PYTHON_OPS) for name in study.trace.names.texts):
        return None  # as a rule
    functions = _of_steps(study, op_events(study, lambda _, op_type: op_type in PYTHON_OPS))
    others = op_events(study, lambda _, op_type: op_type not in (*PYTHON_OPS, "Dataset"))
    spans, of_others = spans_of(study, functions), spans_of(study, _of_steps(study, others))
    share = share_beyond(study, spans, of_others)
    if min(share, usual_share_beyond(study, spans, of_others)) < _LEAST:
        return None
    each, took = functions.size / study.summary.counted.size, spans[1] - spans[0]
    return Finding(
        "python-in-the-step", "Take Python functions out of the step",
        f"A step's graph calls Python {count_text(round(each)) if each > 1.5 else 'once'} "
        f"({printable(_largest(study, functions))[:_LONGEST_NAME]}), for "
        f"{duration_text(float(took.mean()))} each time: {percent_text(share)} of the time, in which nothing "
        "else of the step runs.",
        share,
        "Write what tf.numpy_function or tf.py_function does there with TensorFlow's ops; or return its "
        "arguments from the step, and do it once for many steps.",
        f"{GUIDE}/function",
    )  # fmt: skip


def _of_steps(study: Study, events: Int64s) -> Int64s:
    """Of some ops those that compute for a counted step: a pipeline's are input."""
    is_counted = np.isin(study.groups.step[events], study.summary.counted)
    return np.asarray(events[is_counted & (study.activities[events] == HOST_COMPUTE)])


def _largest(study: Study, functions: Int64s) -> str:
    """The name of the op that took most of the time."""
    rows, inverse = np.unique(study.trace.events.name[functions], return_inverse=True)
    spent = np.bincount(inverse, study.trace.events.duration_ps[functions])
    key = parse_op(study.trace.names[int(rows[spent.argmax()])])
    return key[0] if key is not None else ""
