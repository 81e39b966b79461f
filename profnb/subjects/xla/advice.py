"""Rules of advice on XLA: compiling again and again, and small ops that it would fuse."""

from collections.abc import Sequence

import numpy as np

from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.compilation import is_compilation
from profnb.subjects.advising import LEAST, Finding, excess_share, gain_of_fusing, window_of
from profnb.subjects.covered_time import period_ps
from profnb.subjects.study import Study
from profnb.subjects.uncompilable import find_uncompilable
from profnb.subjects.xla.xla_modules import argument_names, argument_shapes
from profnb.trace.framework import words
from profnb.trace.hlo import HloModule

__all__ = ["recompiling", "small_ops_without_xla"]

# Ops that make each number from the numbers at its place, which XLA fuses into one pass over memory.
_ELEMENTWISE = frozenset({
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "ClipByValue", "Div", "DivNoNan", "Elu",
    "EluGrad", "Equal", "Erf", "Exp", "Expm1", "GreaterEqual", "Greater", "Less", "LessEqual", "Log",
    "Log1p", "LogicalAnd", "LogicalNot", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv",
    "Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Rsqrt", "RsqrtGrad", "Select", "SelectV2",
    "Sigmoid", "SigmoidGrad", "Sign", "Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square",
    "SquaredDifference", "Sub", "Tanh", "TanhGrad", "TruncateDiv", "Xdivy", "ZerosLike",
})  # fmt: skip
_SHOWN_SHAPES = 4
_SAME_SHAPES = (
    "its shapes are the same, so a new function or another static argument came with each call"
)


def recompiling(study: Study) -> Finding | None:
    """XLA compiled a program of one name three times or more, for 2 % of the time at least."""
    modules, window = study.xla.modules, window_of(study)
    if not len(modules) or not window:
        return None
    often = modules.compilations >= 3
    often &= np.array([not _is_eager_op(study, name) for name in modules.module], np.bool_)
    row = int(np.argmax(np.where(often, modules.compile_ps, 0)))
    spent = int(modules.compile_ps[row])
    if not often[row] or spent / window < LEAST:
        return None
    compiling = np.flatnonzero(study.trace.select_names(is_compilation))
    why = _why_compiled(study, modules.module[row])
    return Finding(
        "recompiling", "Compile once",
        f"XLA compiled {modules.module[row][:100]} {count_text(int(modules.compilations[row]))} times, "
        f"{duration_text(spent)} in all: {why}.",
        min(max(spent / window, excess_share(study, compiling)), 1.0),
        "Make the compiled function once, outside of the loop, and pass what changes as arguments."
        if why == _SAME_SHAPES
        else words(
            study.framework,
            "Give every batch one shape: drop the last, smaller one, pad sequences to a few lengths.",
            tensorflow="Give every batch one shape: .batch(n, drop_remainder=True), pad sequences to a "
            "few lengths.",
        ),
        words(
            study.framework, "https://www.tensorflow.org/xla",
            jax="https://docs.jax.dev/en/latest/jit-compilation.html",
        ),
    )  # fmt: skip


def _is_eager_op(study: Study, module: str) -> bool:
    """Whether a program is one op that JAX ran outside of any ``jit``: one program for each shape it makes.

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
        return _SAME_SHAPES
    return "its shapes change from call to call, or the function is made anew"


def _argument_name(saved: Sequence[HloModule], at: int) -> str:
    """An argument as the function names it, where all of its programs do ("params['w']"); else its place."""
    named = [argument_names(module) for module in saved]
    distinct_names = {names[at] for names in named if at < len(names)}
    return (
        distinct_names.pop()[:60]
        if len(distinct_names) == 1 and "" not in distinct_names
        else str(at + 1)
    )


def small_ops_without_xla(study: Study) -> Finding | None:
    """No XLA ran, and ten element-wise ops a step or more, which it fuses, are half of the host's op time.

    Both over all steps and in the typical one, where no op waited for a core, and there 2 % of the time from
    step to step: beside a slow callback they do not matter. Not where the step runs an op that XLA cannot
    compile. What XLA makes of the products on a CPU costs more than TensorFlow's own. On devices small
    kernels are judged by their launches (``launch_bound``).
    """
    counted = study.summary.counted
    if not counted.size or study.steps.is_window or study.has_device or len(study.xla.hlo):
        return None
    ops = study.ops.of_steps(counted)
    fused = np.array([op_type in _ELEMENTWISE for op_type in ops.op_type], np.bool_)
    whole = int(ops.self_ps.sum())
    each = float(ops.occurrences[fused].sum() / counted.size) if len(ops) else 0.0
    share = float(ops.self_ps[fused].sum() / whole) if whole else 0.0
    if share < 0.5 or each < 10:
        return None
    if find_uncompilable(study):
        return None
    typical_fused_ps, typical_ps = _typical_ps(study, _ELEMENTWISE), _typical_ps(study)
    if typical_fused_ps < max(typical_ps / 2, LEAST * period_ps(study) / counted.size):
        return None
    return Finding(
        "small-ops-without-xla", "Let XLA fuse the small ops",
        f"{count_text(round(each))} element-wise ops a step are {percent_text(share)} of the time of all "
        "ops: each reads and writes memory on its own.",
        gain_of_fusing(study, lambda _, op_type: op_type in _ELEMENTWISE),
        "model.compile(..., jit_compile=True) or @tf.function(jit_compile=True) fuses them into few passes.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def _typical_ps(study: Study, op_types: frozenset[str] | None = None) -> float:
    """Own time of the ops of some types, or of all, in the typical step that averages are of."""
    runs, counted = study.ops.runs, study.summary.counted
    step = study.groups.step[runs.events]
    is_type = np.array(
        [op_types is None or op_type in op_types for _, op_type in runs.keys], np.bool_
    )
    kept = (step >= 0) & is_type[runs.code]
    own_ps = np.bincount(step[kept], runs.self_ps[kept], minlength=len(study.steps))
    return float(np.median(own_ps[counted]))
