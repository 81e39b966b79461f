"""The rule on tf.functions that are traced again and again: which, where, because of what."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from profnb.capture.marking.retracings import TracedFunction
from profnb.core.columns import Bools, Int64s
from profnb.core.units import count_text, duration_text
from profnb.subjects.advising import GUIDE, LEAST, Finding, excess_share, window_of
from profnb.subjects.study import Study
from profnb.trace.names import FUNCTION_CALL

__all__ = ["retracing"]

# Functions of Keras 2 and 3, of which each model has its own.
_OF_KERAS = frozenset({
    "train_function", "test_function", "predict_function", "one_step_on_data", "one_step_on_iterator",
    "multi_step_on_data", "multi_step_on_iterator", "one_step_on_data_distributed", "run_step",
})  # fmt: skip
_TRACING_COUNT = "tracing_count"  # which tracing of the function object it is: TF's own stat
_SHOWN_VALUES, _MANY_OBJECTS = 4, 3


def retracing(study: Study) -> Finding | None:
    """A tf.function was traced anew in three calls or more, a fifth of its calls at least.

    The first tracing of a function object is its due, whatever other objects are called: where the trace
    says which tracing it was, one object has to be at its third. Not where another function that calls it was
    being traced: that traces it once, and is the one to speak of. A function that one line of the user's
    makes anew for each call has first tracings only, and is told so.
    """
    calls = _calls(study)
    window = window_of(study)
    if calls is None or not window:
        return None
    worst: tuple[int, str, bool] = (0, "", False)
    culprit, total = calls.events[:0], 0
    for name in np.unique(calls.name[calls.is_traced]).tolist():
        is_of_function = calls.name == name
        text = study.trace.names[name]
        again = calls.is_traced & is_of_function & ~calls.is_due
        first = again & (calls.tracing == 1)
        is_made = bool(first.sum() * 2 >= is_of_function.sum()) and _is_made_anew(study, text)
        chosen = first if is_made else again & (calls.tracing != 1)
        is_third = (
            is_made or (calls.tracing[chosen] == 0).any() or (calls.tracing[chosen] >= 3).any()
        )
        if chosen.sum() < 3 or chosen.sum() * 5 < is_of_function.sum() or not is_third:
            continue
        events = calls.events[chosen]
        knows_first = not is_made and calls.tracing[chosen].all()
        dues = events if knows_first else events[1:]  # the first is its due
        spent = int(study.trace.events.duration_ps[dues].sum())
        if spent > worst[0]:
            worst, culprit, total = (spent, text, is_made), events, int(is_of_function.sum())
    spent, function, is_made = worst
    if spent / window < LEAST:
        return None
    share = min(max(spent / window, excess_share(study, culprit)), 1.0)
    traced = f"in {count_text(culprit.size)} of its {count_text(total)} calls"
    what = (
        f"was a new tf.function {traced}, {duration_text(spent)} in all: each object is traced on its own"
        if is_made
        else f"was traced anew {traced}, {duration_text(spent)} in all: {_why_traced(study, function)}"
    )
    return Finding(
        "retracing", f"{'Make' if is_made else 'Trace'} {function[:60]} once",
        f"{function[:100]} {what}.",
        share,
        _remedy(study, function, is_made=is_made),
        f"{GUIDE}/function#controlling_retracing",
        where=_definition(study, function),
    )  # fmt: skip


class _Calls(NamedTuple):
    """C calls of tf.functions, all of shape (C,).

    Attributes:
        events: Their events.
        name: Their names.
        is_traced: Whether the function was traced in each.
        is_due: Whether that was so because a function that calls it was being traced.
        tracing: Which tracing of its function object it was, from 1; 0 where the trace does not say.
    """

    events: Int64s
    name: Int64s
    is_traced: Bools
    is_due: Bools
    tracing: Int64s


def _calls(study: Study) -> _Calls | None:
    call_texts = study.trace.stats.texts(FUNCTION_CALL)
    if not len(call_texts):
        return None
    starts = np.array([text.startswith("traced") for text in call_texts.texts], np.bool_)
    name = np.asarray(study.trace.events.name[call_texts.events], np.int64)
    is_traced = np.asarray(starts[call_texts.values])
    is_due = np.zeros(is_traced.size, np.bool_)
    is_due[is_traced] = _is_traced_inside(study, call_texts.events[is_traced])
    count = study.trace.stats.integers(_TRACING_COUNT).of(call_texts.events, 0)
    if not count.any():  # nothing tells a new model's first tracing from a second one
        keras = [study.trace.names[row] in _OF_KERAS for row in name.tolist()]
        is_due |= np.array(keras, np.bool_)
    return _Calls(call_texts.events, name, is_traced, is_due, np.asarray(count, np.int64))


def _objects_of(study: Study, name: str) -> list[TracedFunction]:
    return [function for function in study.recording.functions if function.name == name]


def _is_made_anew(study: Study, name: str) -> bool:
    """Whether three functions or more were made of one piece of the user's code, each traced once."""
    objects = [one for one in _objects_of(study, name) if one.where and one.tracings == 1]
    most = Counter(one.code for one in objects).most_common(1)
    return bool(most) and most[0][1] >= _MANY_OBJECTS


def _definition(study: Study, name: str) -> str:
    """The user's line at which a function is defined, of the one of that name most often traced."""
    placed = [one for one in _objects_of(study, name) if one.where]
    most = max(placed, key=lambda one: one.tracings, default=None)
    return most.where if most else ""


def _remedy(study: Study, name: str, *, is_made: bool) -> str:
    if is_made:
        return "Make the tf.function once, before the loop, and pass what changes as tensors."
    if name in _OF_KERAS or any(one.is_keras for one in _objects_of(study, name)):
        return (
            "Give every batch one shape and type: .batch(n, drop_remainder=True), sequences padded to a few "
            "lengths."
        )
    return (
        "Pass tensors instead of Python numbers, and fix the shapes: @tf.function(input_signature=["
        "tf.TensorSpec([None, ...], tf.float32)]) or reduce_retracing=True; .batch(n, drop_remainder=True)."
    )


def _is_traced_inside(study: Study, events: Int64s) -> Bools:
    """Which of N tracings are the first of their function inside another function's tracing, shape (N,)."""
    tracings, names = set(events.tolist()), study.trace.events.name
    parent, seen = study.groups.parent, set[tuple[int, int]]()
    is_first = np.zeros(events.size, np.bool_)
    for row, event in enumerate(events.tolist()):
        above = int(parent[event])
        while above >= 0 and above not in tracings:
            above = int(parent[above])
        pair = (above, int(names[event]))
        is_first[row] = above >= 0 and names[above] != names[event] and pair not in seen
        seen.add(pair)
    return is_first


def _why_traced(study: Study, function: str) -> str:
    """Which argument changed from call to call, where the function was at hand."""
    changing = study.recording.changing_arguments.get(function)
    if not changing:
        return "a Python number, a new object or a new shape comes with each call"
    changes = []
    for argument, values in changing[:2]:
        listed = ", ".join(value[:40] for value in values[:_SHOWN_VALUES])
        more = ", ..." if len(values) > _SHOWN_VALUES else ""
        changes.append(f"its argument {argument[:60]} was {listed}{more}")
    return "; ".join(changes)
