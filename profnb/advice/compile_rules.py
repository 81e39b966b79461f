"""Rules on compiling: what is started piece by piece, and what is compiled again and again.

Two statements, in each framework's words. Pieces that a compiler puts together: what they compute remains,
and one start. A program that is compiled again: each time but the first costs a usual step instead.
"""

from collections.abc import Callable, Iterator

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.cell_tree import STEADY_STEPS
from profnb.advice.numbers import HALF, LONG_OP_PS, SELDOM
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, with_below_of
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.tree_records import COMPILATION, TRACING
from profnb.core.printable import quoted
from profnb.core.units import count_text, duration_text, percent_text
from profnb.subjects.advising import is_loop_of_keras, share_of
from profnb.subjects.compiled_again import SAME_SHAPES, find_compiled_again
from profnb.subjects.covered_time import period_ps, usual_share_beyond
from profnb.subjects.ops.optimizers import find_optimizer_ops
from profnb.subjects.pieces import (
    Pieces,
    find_cut_regions,
    find_fusible,
    find_programs,
    find_torch_ops,
)
from profnb.subjects.study import Study
from profnb.subjects.uncompilable import find_uncompilable
from profnb.trace.framework import JAX, PYTORCH, words

__all__ = ["COMPILE_RULES", "compiled_once", "compiled_together"]

_LONGEST, _SHOWN = 60, 4
# XLA multiplies matrices on a CPU up to 1.7 times as long as TensorFlow: where an optimizer was 39 % of a
# dense model's ops, jit_compile=True took 4 % more processor time although it fused them.
_PRODUCTS = 1.7
_JIT_OF_SESSIONS = (
    "config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1"
)
_JAX_DOCS = "https://docs.jax.dev/en/latest/jit-compilation.html"
_XLA_DOCS = "https://www.tensorflow.org/xla"
_TORCH_DOCS = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"


def compiled_together(model: Model, study: Study, pieces: Pieces) -> tuple[Edit, float]:
    """Pieces that are one: what they compute remains, where it is long at least, and a call for each start.

    Returns:
        The edit; the share of the time from step to step that they take.
    """
    share, *computing = pieces.shares(study, LONG_OP_PS)
    step_ps = period_ps(study) / study.summary.counted.size
    calls = [pieces.starts * call_ps / step_ps for call_ps in model.costs.call_ps]
    remains = [sum(both) / (share or 1) for both in zip(computing, calls, strict=True)]
    least, most = (min(one, 1.0) for one in remains)
    because = f"{percent_text(share)} of the time is pieces, and what they compute remains"
    return model.some_of((), share, (least, most), because), share


def started_in_pieces(model: Model) -> Iterator[Proposal]:
    """Python starts many small pieces one by one, where a compiler would make few of them."""
    study = model.study
    for find, in_words in _PIECES:
        pieces = find(study) if study is not None else None
        if study is not None and pieces is not None:
            edit, share = compiled_together(model, study, pieces)
            yield from in_words(study, pieces, percent_text(share), edit)


def _programs(study: Study, pieces: Pieces, share: str, edit: Edit) -> Iterator[Proposal]:
    """JAX. Keras compiles its step unless it is told otherwise; then all programs are single ops."""
    is_keras = is_loop_of_keras(study)
    if pieces.beside and is_keras:
        return
    listed = ", ".join(f"{quoted(name, 40)} {count}" for name, count in pieces.names[:_SHOWN])
    listed += ", ..." if len(pieces.names) > _SHOWN else ""
    beside = f" besides {quoted(pieces.beside, _LONGEST)}" if pieces.beside else ""
    yield Proposal(
        "work-outside-jit", "Put the whole step into one jax.jit",
        f"Python started {count_text(round(pieces.each))} programs a step{beside} one by one ({listed} in "
        f"all). With their starts they take {share} of the time.",
        "model.compile(..., run_eagerly=False, jit_compile='auto') lets Keras compile its step."
        if is_keras
        else "Put @jax.jit over a function that does all of one step, these operations with it. Return from "
        "it what the loop needs.",
        _JAX_DOCS, [edit],
    )  # fmt: skip


def _torch_ops(study: Study, pieces: Pieces, share: str, edit: Edit) -> Iterator[Proposal]:
    mean_ps = float(study.trace.events.duration_ps[pieces.runs].mean())
    compiler = "torch.compile(model) makes fewer and larger ones of them. "
    if is_loop_of_keras(study):
        compiler = "model.compile(..., jit_compile=True) has torch.compile make fewer of them."
    else:
        compiler += (
            "torch.optim.AdamW(..., foreach=True) or fused=True does it for the optimizer's."
        )
    yield Proposal(
        "small-ops", "Give each op more to do",
        f"A step is {count_text(round(pieces.each))} ops that Python starts one by one, of "
        f"{duration_text(mean_ps)} on average. With the pauses between them they take {share} of the time.",
        f"A larger batch makes fewer steps, each of as many ops. {compiler}",
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html", [edit],
    )  # fmt: skip


def _cut_regions(_: Study, pieces: Pieces, share: str, edit: Edit) -> Iterator[Proposal]:
    yield Proposal(
        "graph-breaks", "Compile the step in one piece",
        f"What torch.compile made is cut into pieces: {count_text(round(pieces.each))} graph breaks a step. "
        f"With Python between the pieces it takes {share} of the time.",
        "TORCH_LOGS=graph_breaks prints where and why; torch.compile(..., fullgraph=True) raises there. "
        "Common reasons: .item(), print and an if on a tensor's value in the compiled function.",
        _TORCH_DOCS, [edit],
    )  # fmt: skip


_PIECES = (
    (find_programs, _programs),
    (find_torch_ops, _torch_ops),
    (find_cut_regions, _cut_regions),
)

# Ops that make each number from the numbers at its place, which XLA fuses into one pass over memory.
_ELEMENTWISE = frozenset({
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "ClipByValue", "Div", "DivNoNan", "Elu",
    "EluGrad", "Equal", "Erf", "Exp", "Expm1", "GreaterEqual", "Greater", "Less", "LessEqual", "Log",
    "Log1p", "LogicalAnd", "LogicalNot", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv",
    "Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Rsqrt", "RsqrtGrad", "Select", "SelectV2",
    "Sigmoid", "SigmoidGrad", "Sign", "Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square",
    "SquaredDifference", "Sub", "Tanh", "TanhGrad", "TruncateDiv", "Xdivy", "ZerosLike",
})  # fmt: skip


def small_ops_without_xla(model: Model) -> Iterator[Proposal]:
    """Element-wise ops of TensorFlow on a CPU are not fused; on devices launches are what matters."""
    study = model.study
    if study is None or study.has_device or len(study.xla.hlo) or find_uncompilable(study):
        return
    ops = find_fusible(study, lambda _, op_type: op_type in _ELEMENTWISE)
    edit = None if ops is None else _fused_on_host(model, study, ops)
    if ops is None or edit is None:
        return
    share, *_ = ops.shares(study, 0)
    yield Proposal(
        "small-ops-without-xla", "Let XLA fuse the small ops",
        f"{count_text(round(ops.each))} element-wise ops a step take {percent_text(share)} of the time: each "
        "reads and writes memory on its own.",
        words(
            study.framework,
            "model.compile(..., jit_compile=True) or @tf.function(jit_compile=True) fuses them into few "
            "passes.",
            sessions=f"{_JIT_OF_SESSIONS} fuses them into few passes.",
        ),
        _XLA_DOCS, [edit],
    )  # fmt: skip


def _fused_on_host(model: Model, study: Study, ops: Pieces) -> Edit | None:
    """XLA makes one pass over memory of ops, or half as many; None where products may cost more than that."""
    rows, nothing = study.summary.counted, (ops.others[0][:0], ops.others[1][:0])
    periods = study.steps.duration_ps[rows] + study.gaps.own_ps[rows]
    whole = float(np.median(study.breakdown.of("host compute")[rows] / periods))
    others = min(usual_share_beyond(study, ops.others, nothing), whole)
    share, one_pass, _ = ops.shares(study, 0)
    share = min(share, whole - others)  # pauses count where TensorFlow is at work in them
    whole, least = share + others, others + min(one_pass, share)
    most = max(_PRODUCTS * others + HALF * share, least)
    if least + most >= 2 * whole:
        return None
    remains = least / whole, min(most / whole, 1.0)
    because = f"XLA fuses {percent_text(share)} of the time to one pass over memory or some"
    return model.some_of(("host compute",), whole, remains, because)


def large_optimizer(model: Model) -> Iterator[Proposal]:
    """The optimizer's ops are not fused. Where XLA can't do it, a larger batch runs them less often."""
    study = model.study
    if study is None or study.framework == JAX or len(study.xla.hlo):
        return
    ops, obstacle = study.ops.of_steps(study.summary.counted), find_uncompilable(study)
    side = ops.is_device if ops.is_device.any() else ~ops.is_device
    chosen = side & find_optimizer_ops(ops, LONG_OP_PS)
    spent, times = int(ops.self_ps[chosen].sum()), int(ops.occurrences[chosen].sum())
    keys = {(ops.op_name[row], ops.op_type[row]) for row in np.flatnonzero(chosen)}
    fusible = find_fusible(study, lambda *key: key in keys)
    if not spent or (fusible is None and not study.has_device):
        return
    of_ops = spent / int(ops.self_ps[side].sum())
    if fusible is not None and not (obstacle or study.has_device):
        edit = _fused_on_host(model, study, fusible)
    else:
        kind = "device compute" if study.has_device else "host compute"
        one_pass = float(ops.self_ps[chosen].max()) / spent
        remains = (1 / SELDOM, HALF) if obstacle else (one_pass, max(one_pass, HALF))
        because = "of the optimizer one pass over memory remains, or half"
        edit = model.some_of((kind,), of_ops * share_of(study, kind), remains, because)
    if edit is None:
        return
    larger = "A larger batch runs it less often."
    yield Proposal(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops are {percent_text(of_ops)} of the time of all ops: "
        f"{count_text(round(times / study.summary.counted.size))} a step, of {duration_text(spent / times)} "
        "on average.",
        words(
            study.framework,
            f"The framework's compiler fuses its ops. {larger}",
            tensorflow=f"{larger} jit_compile=True would fuse its ops, but XLA cannot compile this step, "
            f"which runs {quoted(obstacle, _LONGEST)}."
            if obstacle
            else f"model.compile(..., jit_compile=True) fuses its ops. {larger}",
            sessions=f"{_JIT_OF_SESSIONS} fuses its ops. {larger}",
        ),
        _XLA_DOCS, [edit],
    )  # fmt: skip


def recompiling(model: Model) -> Iterator[Proposal]:
    """XLA or ``torch.compile`` compiled the same program three times or more."""
    study = model.study
    again = None if study is None else find_compiled_again(study)
    if study is None or again is None:
        return
    edit = compiled_once(model, again.times, again.spent_ps)
    spent = duration_text(again.spent_ps)
    if study.framework == PYTORCH:
        evidence = (
            f"torch.compile compiled functions again {count_text(again.times - 1)} times, {spent} in all; "
            f"{again.why}. Each is for other shapes, or other Python values."
        )
        code = (
            "TORCH_LOGS=recompiles prints what changed. Of shapes: torch.compile(..., dynamic=True), or "
            "DataLoader(..., drop_last=True) for one shape of all batches. Of Python numbers: pass them as "
            "tensors."
        )
    else:
        evidence = (
            f"XLA compiled {quoted(again.name, 100)} {count_text(again.times)} times: {again.why}. All but "
            f"the first time took {spent}."
        )
        drop = words(
            study.framework,
            "drop the last, smaller one",
            tensorflow=".batch(n, drop_remainder=True)",
        )
        code = f"Give every batch one shape: {drop}, pad sequences to a few lengths."
        if again.why == SAME_SHAPES:
            code = "Make the compiled function once, outside of the loop. Pass what changes as arguments."
    link = words(study.framework, _XLA_DOCS, jax=_JAX_DOCS, pytorch=_TORCH_DOCS)
    yield Proposal("recompiling", "Compile once", evidence, code, link, [edit])


def compiled_once(model: Model, times: int, again_ps: float) -> Edit:
    """Each time costs a usual step instead; at least what all but the first took is saved.

    Args:
        model: The cell.
        times: How often the same was compiled.
        again_ps: What all but the first time took.
    """
    tree, study = model.tree, model.study
    usual_ps = float(model.costs.call_ps[0])
    if study is not None and not study.summary.all_warm_up:
        usual_ps = study.summary.mean_period_ps
    first, compiling = model.rows(parts.FIRST), model.rows(TRACING, COMPILATION)
    if (count := int(tree.occurrences[first].sum())) > 1:
        rows, times = with_below_of(tree, first), count
    elif compiling:
        rows, usual_ps = np.array(compiling, np.int64), 0.0
    else:
        rows = with_below_of(tree, [row for row in model.rows(*STEADY_STEPS) if model.is_main(row)])
    whole = float(tree.self_ps[rows].sum())
    each = whole / times
    least = times * min(usual_ps, each) if usual_ps else each
    because = f"compiling again took {duration_text(again_ps)}"
    return Edit(rows, least, max(whole - again_ps, least), because)


COMPILE_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    started_in_pieces, small_ops_without_xla, large_optimizer, recompiling,
)  # fmt: skip
