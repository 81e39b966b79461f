"""Rules of advice on JAX's and PyTorch's work that Python starts piece by piece: programs, ops."""

import re
from collections import Counter

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.nesting import outermost_of
from profnb.subjects.advising import Finding, is_loop_of_keras
from profnb.subjects.covered_time import (
    in_periods,
    period_ps,
    share_beyond,
    spans_of,
    usual_share_beyond,
)
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH

__all__ = ["small_ops", "work_outside_jit"]

_CALL = "PjitFunction("
_NO_NAME = re.compile(r"\W")
_MANY, _MANY_ALONE, _MANY_OF_KERAS = 5, 3, 20  # programs for each turn of the loop
_LEAST = 0.1
_SHOWN = 4
_SHORT_PS, _FAR_LONGER, _FEWEST_OPS = 500_000_000, 10, 20
_LEAST_DISPATCH = 0.25


def work_outside_jit(study: Study) -> Finding | None:
    """Python starts five programs of JAX or more a step besides the largest one, for a tenth of the time.

    That is so in half of the steps, too: a thread that waits for a core in a few of them is not it.

    Where every program is one op, as it is in a loop without ``jax.jit``, three are enough, and what is said
    is the starting alone: what fusing them saves is not known. So it is with 20 programs or more in a step of
    Keras, which compiles its steps unless it is told otherwise.
    """
    counted = study.summary.counted
    if study.framework != JAX or not counted.size or study.steps.is_window or study.has_device:
        return None
    calls = _calls(study)
    if not calls.size:
        return None
    names = [study.trace.names[row] for row in study.trace.events.name[calls].tolist()]
    functions = [name.removeprefix(_CALL).removesuffix(")") for name in names]
    largest = _largest_program(study, set(functions))
    is_keras = is_loop_of_keras(study)
    is_alone = is_keras or largest == "" or _is_one_op(study, largest)
    is_other = np.array([is_alone or name != largest for name in functions], np.bool_)
    others = calls[is_other]
    each = others.size / counted.size
    if each < (_MANY_OF_KERAS if is_keras else _MANY_ALONE if is_alone else _MANY):
        return None
    if is_alone:
        beside, main = others, study.xla.hlo.events
    else:
        beside = np.union1d(others, _events_of(study, set(functions) - {largest}))
        main = _events_of(study, {largest})
    spans, of_main = spans_of(study, beside), spans_of(study, main)
    share = share_beyond(study, spans, of_main)
    if min(share, usual_share_beyond(study, spans, of_main)) < _LEAST:
        return None
    often = Counter(
        name for name, chosen in zip(functions, is_other.tolist(), strict=True) if chosen
    )
    listed = ", ".join(f"{name[:40]} {count}" for name, count in often.most_common(_SHOWN))
    more = ", ..." if len(often) > _SHOWN else ""
    besides = "" if is_alone else f" besides {largest[:60]}"
    spent = "starting them alone is" if is_alone else "they take"
    return Finding(
        "work-outside-jit", "Put the whole step into one jax.jit",
        f"Python started {count_text(round(each))} programs a step{besides} one by one ({listed}{more} in "
        f"all): each is dispatched on its own and nothing is fused with its neighbours; {spent} "
        f"{percent_text(share)} of the time.",
        None if is_alone else share,
        "model.compile(..., run_eagerly=False, jit_compile='auto') lets Keras compile its step."
        if is_keras
        else "Put @jax.jit over a function that does all of one step, these operations with it, and return "
        "from it what the loop needs.",
        "https://docs.jax.dev/en/latest/jit-compilation.html",
        share,
    )  # fmt: skip


def _calls(study: Study) -> Int64s:
    """The outermost calls of JAX's functions in the counted periods, on the thread that makes the steps."""
    trace, roots = study.trace, study.steps.roots
    is_call = trace.select_names(lambda name: name.startswith(_CALL)) & trace.is_host_event
    if roots.size:
        is_call &= trace.lines.of_event == trace.lines.of_event[roots[0]]
    calls = outermost_of(is_call, study.groups.parent)
    return calls[in_periods(study, trace.events.begin_ps[calls])]


def _module_of(function: str) -> str:
    return f"jit_{_NO_NAME.sub('_', function)}".rstrip("_")


def _largest_program(study: Study, functions: set[str]) -> str:
    """Which of the functions' programs took most time; "" where none of them is known to have run."""
    spent = dict.fromkeys(functions, 0)
    modules = study.xla.modules
    function_of_module = {_module_of(function): function for function in functions}
    for name, took in zip(modules.module, modules.self_ps.tolist(), strict=True):
        if name.rstrip("_") in function_of_module:
            spent[function_of_module[name.rstrip("_")]] += took
    largest = max(spent, key=lambda name: spent[name])
    return largest if spent[largest] else ""


def _events_of(study: Study, functions: set[str]) -> Int64s:
    """The events of the functions' programs."""
    modules, hlo = {_module_of(function) for function in functions}, study.xla.hlo
    is_own = np.array([op.module.rstrip("_") in modules for op in hlo.ops], np.bool_)
    return hlo.events[is_own[hlo.code]] if len(hlo) else hlo.events


def _is_one_op(study: Study, function: str) -> bool:
    """Whether all instructions of a function's program come from one op: ``jit(matmul)/dot_general``."""
    module = _module_of(function)
    saved = [one for one in study.xla.hlo.modules.values() if one.name.rstrip("_") == module]
    names = {name for one in saved for name in one.op_names.texts if "/" in name}
    return len(names) == 1


def small_ops(study: Study) -> Finding | None:
    """PyTorch on a CPU does nothing between its ops for a quarter of the time, 20 ops a step or more.

    That is so in half of the steps: those that lost the processor to others take far longer. Only pauses of
    up to ten times the median count, and of less than 0.5 ms, as Python needs to come to the next op; a
    longer one is something else. Nothing bounds what fewer ops save: what starts each of them goes, too.
    """
    counted = study.summary.counted
    if study.framework != PYTORCH or not counted.size or study.steps.is_window or study.has_device:
        return None
    ops = _outermost_ops(study)
    each = ops.size / counted.size
    if each < _FEWEST_OPS:
        return None
    events = study.trace.events
    begin, end = events.begin_ps[ops], events.end_ps[ops]
    pause = np.maximum(begin[1:] - end[:-1], 0)
    of_step = study.groups.step[ops]
    is_inside = of_step[1:] == of_step[:-1]
    usual_ps = float(np.median(pause[is_inside])) if is_inside.any() else 0.0
    is_short = is_inside & (pause < _SHORT_PS) & (pause <= _FAR_LONGER * usual_ps)
    in_step = np.zeros(len(study.steps), np.int64)
    np.add.at(in_step, of_step[1:][is_short], pause[is_short])
    if np.median(in_step[counted] / study.steps.duration_ps[counted]) < _LEAST_DISPATCH:
        return None
    whole = period_ps(study)
    share = float(in_step.sum() / whole) if whole else 0.0
    is_keras = is_loop_of_keras(study)
    return Finding(
        "small-ops", "Give each op more to do",
        f"A step is {count_text(round(each))} ops that Python starts one by one, of "
        f"{duration_text(float((end - begin).mean()))} on average; between one and the next "
        f"{duration_text(float(pause[is_short].mean()))} pass, {percent_text(share)} of the time in all.",
        None,
        "A larger batch makes fewer steps, each of as many ops; "
        + (
            "model.compile(..., jit_compile=True) has torch.compile make fewer and larger ones of them."
            if is_keras
            else "torch.compile(model) makes fewer and larger ones of them, "
            "torch.optim.AdamW(..., foreach=True) or fused=True of the optimizer's."
        ),
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        share,
    )  # fmt: skip


def _outermost_ops(study: Study) -> Int64s:
    """The ops of counted steps that no other op runs, on the thread that makes the steps, by time."""
    trace, roots = study.trace, study.steps.roots
    if trace.is_op_name is None or not roots.size:
        return np.empty(0, np.int64)
    is_op: Bools = trace.is_op_name[trace.events.name] & trace.is_host_event
    is_op &= trace.lines.of_event == trace.lines.of_event[roots[0]]
    is_op &= np.isin(study.groups.step, study.summary.counted)
    is_op[roots] = False
    return outermost_of(is_op, study.groups.parent)
