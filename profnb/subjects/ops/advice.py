"""Rules of advice on how the program is made: tracing, compiling, eager ops, XLA, optimizer, TF1 graphs."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from profnb.subjects.advising import (
    GUIDE,
    LEAST,
    Advice,
    covered_share,
    excess_share,
    op_events,
    period_ps,
    share_of,
    window_of,
)
from profnb.steps.compilation import is_compilation
from profnb.subjects.study import Study
from profnb.subjects.xla.programs import argument_shapes
from profnb.trace.names import FUNCTION_CALL
from profnb.core.units import count_text, duration_text, percent_text

__all__ = [
    "eager_ops", "growing_graph", "large_optimizer", "recompiling", "retracing", "small_ops_without_xla",
]  # fmt: skip

_EAGER_CALL = "EagerLocalExecute: "
_EAGER_RUN = "KernelAndDeviceFunc::Run"
_FUNCTION_NAMES = (
    "__inference", "__forward", "__backward", "Iterator", "MakeIterator", "Anonymous",
)  # fmt: skip
_OPTIMIZERS = (
    "adam", "adamw", "sgd", "rmsprop", "adagrad", "nadam", "lion", "lamb", "adafactor", "optimizer",
)  # fmt: skip
# Ops that make each number from the numbers at its place, which XLA fuses into one pass over memory.
_ELEMENTWISE = frozenset({
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "ClipByValue", "Div", "DivNoNan", "Elu",
    "EluGrad", "Equal", "Erf", "Exp", "Expm1", "GreaterEqual", "Greater", "Less", "LessEqual", "Log",
    "Log1p", "LogicalAnd", "LogicalNot", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv",
    "Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Rsqrt", "RsqrtGrad", "Select", "SelectV2",
    "Sigmoid", "SigmoidGrad", "Sign", "Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square",
    "SquaredDifference", "Sub", "Tanh", "TanhGrad", "TruncateDiv", "Xdivy", "ZerosLike",
})  # fmt: skip
_SHOWN_VALUES, _SHOWN_SHAPES = 4, 4


def retracing(study: Study) -> Advice | None:
    """A tf.function was traced anew in three steps or more, a fifth of its calls at least."""
    calls = study.trace.stats.texts(FUNCTION_CALL)
    if not len(calls):
        return None
    is_traced = np.array([text.startswith("traced") for text in calls.texts], np.bool_)[
        calls.values
    ]
    names = study.trace.events.name[calls.events]
    worst: tuple[int, str, int, int] = (0, "", 0, 0)
    culprit = calls.events[:0]
    for name in np.unique(names[is_traced]).tolist():
        own = names == name
        events = calls.events[own & is_traced]
        if events.size >= 3 and events.size * 5 >= own.sum():
            spent = int(study.trace.events.duration_ps[events[1:]].sum())  # the first is its due
            found = spent, study.trace.names[name], int(events.size), int(own.sum())
            worst, culprit = max((worst, culprit), (found, events), key=lambda pair: pair[0])
    window = window_of(study)
    if not worst[0] or not window or worst[0] / window < LEAST:
        return None
    spent, function, traced, total = worst
    return Advice(
        "retracing", f"Trace {function[:60]} once",
        f"{function[:100]} was traced anew in {count_text(traced)} of its {count_text(total)} calls, "
        f"{duration_text(spent)} in all: {_why_traced(study, function)}.",
        min(max(spent / window, excess_share(study, culprit)), 1.0),
        "Pass tensors instead of Python numbers, and fix the shapes: @tf.function(input_signature=["
        "tf.TensorSpec([None, ...], tf.float32)]) or reduce_retracing=True; .batch(n, drop_remainder=True).",
        f"{GUIDE}/function#controlling_retracing",
    )  # fmt: skip


def _why_traced(study: Study, function: str) -> str:
    """Which argument changed from call to call, where the function was at hand."""
    changing = study.recording.changing_arguments.get(function)
    if not changing:
        return "a Python number, a new object or a new shape comes with each call"
    told = []
    for argument, values in changing[:2]:
        listed = ", ".join(value[:40] for value in values[:_SHOWN_VALUES])
        more = ", ..." if len(values) > _SHOWN_VALUES else ""
        told.append(f"its argument {argument[:60]} was {listed}{more}")
    return "; ".join(told)


def recompiling(study: Study) -> Advice | None:
    """XLA compiled a program of one name three times or more, for 2 % of the time at least."""
    modules, window = study.xla_modules, window_of(study)
    if not len(modules) or not window:
        return None
    row = int(np.argmax(np.where(modules.compilations >= 3, modules.compile_ps, 0)))
    spent = int(modules.compile_ps[row])
    if modules.compilations[row] < 3 or spent / window < LEAST:
        return None
    compiling = np.flatnonzero(study.trace.select_names(is_compilation))
    return Advice(
        "recompiling", "Compile once",
        f"XLA compiled {modules.module[row][:100]} {count_text(int(modules.compilations[row]))} times, "
        f"{duration_text(spent)} in all: {_why_compiled(study, modules.module[row])}.",
        min(max(spent / window, excess_share(study, compiling)), 1.0),
        "Give every batch one shape: .batch(n, drop_remainder=True), pad sequences to a few lengths.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def _why_compiled(study: Study, module: str) -> str:
    """Which shapes its arguments had, where the trace holds several programs of the name."""
    programs = [program for program in study.hlo.programs.values() if program.name == module]
    shapes = [argument_shapes(program) for program in programs]
    for at, of_first in enumerate(shapes[0] if shapes else ()):
        found = list(dict.fromkeys(own[at] for own in shapes if at < len(own)))
        if len(found) > 1:
            listed = ", ".join(found[:_SHOWN_SHAPES])
            return f"argument {at + 1} was {of_first}, then other shapes ({listed})"
    return "its shapes change from call to call"


def eager_ops(study: Study) -> Advice | None:
    """Python runs more than 20 ops a step one by one, for a tenth of the step time or more.

    The bound leaves the kernels their time: what a tf.function saves is all that is around them.
    """
    counted = study.summary.counted
    if not counted.size or study.steps.is_window:
        return None

    def is_eager(name: str) -> bool:
        op = name.removeprefix(_EAGER_CALL)
        return op != name and not op.startswith(_FUNCTION_NAMES)

    trace = study.trace
    events = np.flatnonzero(trace.select_names(is_eager) & trace.is_host_event)
    events = events[np.isin(study.groups.step[events], counted)]
    spent = int(trace.events.duration_ps[events].sum())
    whole = int(study.steps.duration_ps[counted].sum())
    each = events.size / counted.size
    if each < 20 or not whole or spent / whole < 0.1:
        return None
    runs = trace.select_names(lambda name: name == _EAGER_RUN) & trace.is_host_event
    kernels = np.union1d(np.flatnonzero(runs), op_events(study, lambda *_: True))
    return Advice(
        "eager-ops", "Put the step into a tf.function",
        f"Python ran {count_text(round(each))} ops a step one by one; each costs its dispatch, and nothing "
        "is fused or runs in parallel.",
        max(1 - covered_share(study, kernels), spent / whole * 0.1),
        "Put @tf.function over the function that does one step (model.run_eagerly must be False).",
        f"{GUIDE}/function",
    )  # fmt: skip


def _gain_of_fusing(study: Study, is_member: Callable[[str, str], bool]) -> float:
    """Share of the time in which ops are at work but none that is no member: what fusing could save."""
    others = op_events(study, lambda name, op_type: not is_member(name, op_type))
    return max(share_of(study, "host compute") - covered_share(study, others), 0.0)


def _is_optimizers(op_name: str) -> bool:
    return any(part.rstrip("0123456789_") in _OPTIMIZERS for part in op_name.lower().split("/"))


def large_optimizer(study: Study) -> Advice | None:
    """The optimizer's ops take a quarter of the self time of their side or more."""
    ops = study.ops_of_steps(study.summary.counted) if study.summary.counted.size else study.ops
    side = ops.is_device if ops.is_device.any() else ~ops.is_device
    whole = int(ops.self_ps[side].sum())
    own = np.array([_is_optimizers(name) for name in ops.op_name], np.bool_)
    share = float(ops.self_ps[side & own].sum() / whole) if whole and own.size else 0.0
    if share < 0.25:
        return None
    if ops.is_device.any():
        bound = share * share_of(study, "device compute")
    else:
        bound = _gain_of_fusing(study, lambda name, _: _is_optimizers(name))
    return Advice(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops are {percent_text(share)} of the time of all ops.",
        bound,
        "model.compile(..., jit_compile=True) fuses its many small ops; a larger batch runs it less often.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def small_ops_without_xla(study: Study) -> Advice | None:
    """No XLA ran, and ten element-wise ops a step or more, which it fuses, are 30 % of the host's op time.

    On devices small kernels are judged by their launches (``launch_bound``).
    """
    counted = study.summary.counted
    if not counted.size or study.steps.is_window or study.has_device or len(study.hlo):
        return None
    ops = study.ops_of_steps(counted)
    fused = np.array([op_type in _ELEMENTWISE for op_type in ops.op_type], np.bool_)
    whole = int(ops.self_ps.sum())
    each = float(ops.occurrences[fused].sum() / counted.size) if len(ops) else 0.0
    share = float(ops.self_ps[fused].sum() / whole) if whole else 0.0
    if share < 0.3 or each < 10:
        return None
    return Advice(
        "small-ops-without-xla", "Let XLA fuse the small ops",
        f"{count_text(round(each))} element-wise ops a step are {percent_text(share)} of the time of all "
        "ops: each reads and writes memory on its own.",
        _gain_of_fusing(study, lambda _, op_type: op_type in _ELEMENTWISE),
        "model.compile(..., jit_compile=True) or @tf.function(jit_compile=True) fuses them into few passes.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def growing_graph(study: Study) -> Advice | None:
    """The graph of a TF1 session changed in half of its runs or more, and in three at least.

    A session has to take in and prune the graph again each time; the bound leaves the ops their time.
    """
    versions = study.recording.graph_versions
    grown = sum(later > earlier for earlier, later in pairwise(versions))
    if grown < 3 or grown * 2 < len(versions) - 1 or not study.summary.counted.size:
        return None
    added = (versions[-1] - versions[0]) / max(len(versions) - 1, 1)
    busy = covered_share(study, op_events(study, lambda *_: True))
    return Advice(
        "growing-graph", "Build the graph before the loop",
        f"The graph grew in {count_text(grown)} of {count_text(len(versions))} session runs, by "
        f"{count_text(round(added))} changes a run: the session takes it in and prunes it again, "
        f"{duration_text(period_ps(study) / study.summary.counted.size)} a run.",
        1 - busy,
        "Make every op before the loop, feed what changes through placeholders, and call graph.finalize(), "
        "which makes the line that adds an op raise.",
        "https://www.tensorflow.org/api_docs/python/tf/Graph#finalize",
    )  # fmt: skip
