"""Programs that are compiled, and tf.functions that are traced, again and again: which, how often, why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.causes.pieces import compiled_regions
from profnb.core.columns import Bools, Int64s
from profnb.core.printable import quoted
from profnb.core.units import count_text
from profnb.steps.activities import FRAME_COMPILES
from profnb.steps.nesting import outermost_of
from profnb.subjects.study import Study
from profnb.subjects.xla.xla_ops import argument_names, argument_shapes, compilations
from profnb.trace.hlo import HloModule
from profnb.trace.names import FUNCTION_CALL

_SHOWN_SHAPES = 4
_FEWEST_COMPILATIONS = (
    3  # the first is a program's due, and the second its due for other shapes, or the last batch
)
SAME_SHAPES = "the shapes are the same, so each call brought a new function or static argument"


@dataclass(frozen=True, slots=True)
class CompiledAgain:
    """What was compiled again and again.

    Attributes:
        what: Who compiled what how often, the begin of a sentence.
        times: How often it was compiled, the first time with it.
        spent_ps: What all but the first compiling took.
        why: What changed from one to the next.
    """

    what: str
    times: int
    spent_ps: float
    why: str


def find_compiled_again(study: Study) -> CompiledAgain | None:
    """What was compiled in three steps or more, and took longest; of PyTorch all such functions together.

    What one step compiles for several shapes, a function that runs for each weight say, is its due.
    """
    return _by_torch(study) if study.program.is_pytorch else _by_xla(study)


def _by_xla(study: Study) -> CompiledAgain | None:
    modules = study.xla.modules
    again = {name for name, at in compilations(study.trace).items() if _is_again(study, at)}
    often = [
        row
        for row, name in enumerate(modules.module)
        if name in again and modules.compilations[row]
    ]
    often = [row for row in often if not _is_eager_op(study, modules.module[row])]
    if not often:
        return None
    row = max(often, key=lambda row: int(modules.compile_ps[row]))
    name, times = modules.module[row], int(modules.compilations[row])
    spent = float(modules.compile_ps[row]) * (times - 1) / times
    what = f"XLA compiled {quoted(name.removeprefix('jit_'), 100)} {count_text(times)} times"
    return CompiledAgain(what, times, spent, _why_compiled(study, name))


def _is_again(study: Study, events: list[int]) -> bool:
    """True if a program was compiled so often, in as many steps with their gaps where there are any."""
    if len(events) < _FEWEST_COMPILATIONS or study.steps.is_window:
        return len(events) >= _FEWEST_COMPILATIONS
    begin_ps = study.trace.events.begin_ps[events]
    periods = np.searchsorted(study.steps.host_begin_ps, begin_ps, side="right")
    return np.unique(periods).size >= _FEWEST_COMPILATIONS


def _is_eager_op(study: Study, module: str) -> bool:
    """True if a program is one op that JAX ran outside of any ``jit``: one program for each shape it makes.

    Nobody wrote that function, so nobody can make it once. All its instructions come from
    ``jit(broadcast_in_dim)/broadcast_in_dim``.
    """
    op = module.removeprefix("jit_")
    saved = [other for other in study.xla.hlo.modules.values() if other.name == module]
    names = {name for other in saved for name in other.op_names.texts if "/" in name}
    return names == {f"jit({op})/{op}"}


def _why_compiled(study: Study, module: str) -> str:
    """Which shapes its arguments had, where the trace holds several of the name."""
    saved = [other for other in study.xla.hlo.modules.values() if other.name == module]
    shapes = [argument_shapes(other) for other in saved]
    for at in range(len(shapes[0]) if shapes else 0):
        distinct = list(dict.fromkeys(shape[at] for shape in shapes if at < len(shape)))
        if len(distinct) > 1:
            more = ", ..." if len(distinct) > _SHOWN_SHAPES else ""
            listed = ", ".join(distinct[:_SHOWN_SHAPES]) + more
            return f"argument {_argument_name(saved, at)} had several shapes ({listed})"
    if len(saved) > 1:
        return SAME_SHAPES
    return "the shapes change from call to call, or each call makes a new function"


def _argument_name(saved: Sequence[HloModule], at: int) -> str:
    """An argument as the function names it, where all of its programs do ("params['w']"); else its place."""
    names = {name for module in saved for name in argument_names(module)[at : at + 1]}
    return names.pop()[:60] if len(names) == 1 and "" not in names else str(at + 1)


def _by_torch(study: Study) -> CompiledAgain | None:
    """Further versions of functions: what was compiled runs next, and says which version it is."""
    trace = study.trace
    is_compiling = trace.select_names(lambda name: name.endswith(FRAME_COMPILES))
    compiling = outermost_of(is_compiling & trace.is_host_event, study.groups.parent)
    regions, version = compiled_regions(study)
    order = np.argsort(trace.events.begin_ps[regions], kind="stable")
    runs = np.searchsorted(trace.events.begin_ps[regions[order]], trace.events.end_ps[compiling])
    again = np.append(version[order], 0)[runs] > 0
    times, versions = int(again.sum()) + 1, int(version.max(initial=0)) + 1
    if times < _FEWEST_COMPILATIONS:
        return None
    spent = float(trace.events.duration_ps[compiling[again]].sum())
    why = (
        f"each time for other shapes or Python values; one function has {versions} versions by now"
    )
    what = f"torch.compile compiled functions again {count_text(times - 1)} times"
    return CompiledAgain(what, times, spent, why)


# Functions of Keras 2 and 3, of which each model has its own.
_OF_KERAS = frozenset({
    "train_function", "test_function", "predict_function", "one_step_on_data", "one_step_on_iterator",
    "multi_step_on_data", "multi_step_on_iterator", "one_step_on_data_distributed", "run_step",
})  # fmt: skip
_TRACING_COUNT = "tracing_count"  # which tracing of the function object it is: TF's own stat
_SHOWN_VALUES, _MANY_OBJECTS = 4, 3


@dataclass(frozen=True, slots=True)
class Retracing:
    """A function that is traced again and again, or made anew for each call.

    Attributes:
        function: Its name.
        events: The calls in which it was traced, but for the first of all, which is its due.
        share: Their share of the time of all calls that traced.
        traced: How many calls traced it.
        calls: How many there were.
        is_made: Whether one line of the user's makes it anew.
        is_keras: Whether it is one of Keras', of which each model has its own.
        changing: Which argument changed from call to call: "its argument factor was 1, 2, 3"; "" where the
            function was not at hand.
        where: The user's line at which it is defined, or "".
    """

    function: str
    events: Int64s
    share: float
    traced: int
    calls: int
    is_made: bool
    is_keras: bool
    changing: str
    where: str


def find_retracing(study: Study) -> Retracing | None:
    """Find the function that took most to be traced anew, in three calls or more, and to the last.

    Where the later half of its calls traces nothing any more, all its shapes were met.

    The first tracing of a function object is its due, whatever other objects are called: where the trace
    says which tracing it was, one object has to be at its third. Not where another function that calls it was
    being traced: that traces it once, and is the one to speak of. A function that one line of the user's
    makes anew for each call has first tracings only.
    """
    calls, worst = _calls(study), None
    if calls is None:
        return None
    for name in np.unique(calls.name[calls.is_traced]).tolist():
        is_of_function, text = calls.name == name, study.trace.names[name]
        again = calls.is_traced & is_of_function & ~calls.is_due
        first = again & (calls.tracing == 1)
        is_made = bool(first.sum() * 2 >= is_of_function.sum()) and _is_made_anew(study, text)
        chosen = first if is_made else again & (calls.tracing != 1)
        tracings, count = calls.tracing[chosen], int(chosen.sum())
        is_most = 2 * count > is_of_function.sum()  # of one object, where the trace does not say
        is_third = is_made or (tracings >= 3).any() or (is_most and not tracings.all())
        begin_ps = study.trace.events.begin_ps[calls.events]
        goes_on = count and begin_ps[chosen].max() >= np.median(begin_ps[is_of_function])
        if count < _FEWEST_COMPILATIONS or not goes_on or not is_third:
            continue
        events = calls.events[chosen]
        dues = events if not is_made and tracings.all() else events[1:]
        spent = int(study.trace.events.duration_ps[dues].sum())
        if worst is None or spent > worst[0]:
            worst = spent, text, dues, count, int(is_of_function.sum()), is_made
    if worst is None:
        return None
    spent, function, dues, count, total, is_made = worst
    of_all = study.trace.events.duration_ps[calls.events[calls.is_traced & ~calls.is_due]].sum()
    objects = [one for one in study.recording.functions if one.name == function]
    placed = max((o for o in objects if o.where), key=lambda o: o.tracings, default=None)
    return Retracing(
        function, dues, spent / max(int(of_all), 1), count, total, is_made,
        function in _OF_KERAS or any(one.is_keras for one in objects),
        _changing_arguments(study, function), placed.where if placed else "",
    )  # fmt: skip


def traced_steps(study: Study) -> Int64s:
    """The steps in which any function was traced, in order."""
    calls = _calls(study)
    if calls is None:
        return np.zeros(0, np.int64)
    step = np.unique(study.groups.step[calls.events[calls.is_traced]])
    return np.asarray(step[step >= 0], np.int64)


@dataclass(frozen=True, slots=True)
class TracingSteps:
    """Steps in which a function was traced again.

    Attributes:
        spent_ps: What they took.
        traced_ps: What all steps took in which anything was traced.
        warm_up_ps: What these and the warm-up took.
        count: How many they are.
        others: In how many further ones anything was traced.
        left_ps: What they would take at least and at most: usual steps, or their ops and a call.
    """

    spent_ps: float
    traced_ps: float
    warm_up_ps: float
    count: int
    others: int
    left_ps: tuple[float, float]


def find_tracing_steps(
    study: Study, again: Int64s, call_ps: tuple[float, float]
) -> TracingSteps | None:
    """Find the steps of some calls that traced; None where there are none.

    Args:
        study: The trace.
        again: The calls.
        call_ps: What a call of a traced function costs here, at least and at most.
    """
    step, took_ps, steps = study.groups.step, study.steps.duration_ps, study.steps
    dues = np.unique(step[again])
    dues = dues[dues >= 0]
    if not dues.size or steps.is_window:
        return None
    spent = float(took_ps[dues].sum())
    phases = {steps.phase[row] for row in dues.tolist()}
    usual_ps = took_ps[np.concatenate([steps.rows_of(phase) for phase in phases])]
    if usual_ps.size:
        left = [float(np.median(usual_ps)) * dues.size, float(usual_ps.mean()) * dues.size]
    else:
        durations_ps = study.trace.events.duration_ps
        ops, beside = study.ops.at_work, max(spent - float(durations_ps[again].sum()), 0.0)
        ops_ps = float(durations_ps[ops[np.isin(step[ops], dues)]].sum())
        least, most = (float(cost * dues.size) + beside for cost in call_ps)
        left = [least, most + ops_ps]
    traced, warm_up = traced_steps(study), np.flatnonzero(steps.is_warmup)
    of_traced, of_warm_up = (
        float(took_ps[np.union1d(rows, dues)].sum()) for rows in (traced, warm_up)
    )
    others = np.setdiff1d(traced, dues).size
    return TracingSteps(spent, of_traced, of_warm_up, dues.size, others, (min(left), max(left)))


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


def _is_made_anew(study: Study, name: str) -> bool:
    """True if three functions or more were made of one piece of the user's code, each traced once."""
    objects = [one for one in study.recording.functions if one.name == name and one.where]
    most = Counter(one.code for one in objects if one.tracings == 1).most_common(1)
    return bool(most) and most[0][1] >= _MANY_OBJECTS


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


def _changing_arguments(study: Study, function: str) -> str:
    changes = []
    for argument, values in study.recording.changing_arguments.get(function, ())[:2]:
        listed = ", ".join(value[:40] for value in values[:_SHOWN_VALUES])
        more = ", ..." if len(values) > _SHOWN_VALUES else ""
        changes.append(f"argument {argument[:60]} was {listed}{more}")
    return "; ".join(changes)
