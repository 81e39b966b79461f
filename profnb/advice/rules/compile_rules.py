"""Rules on compiling: what is started piece by piece, and what is compiled again and again.

Two statements, in each framework's words. Pieces that a compiler puts together: what they compute remains,
and one start. A program that is compiled again: each time but the first costs a usual step instead.
"""

from collections.abc import Callable, Iterator

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, with_below_of
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import COMPILATION, TRACING
from profnb.causes.compiled_again import SAME_SHAPES, find_compiled_again
from profnb.causes.numbers import HALF, LONG_OP_PS, SELDOM
from profnb.causes.pieces import (
    Pieces,
    find_cut_regions,
    find_fusible,
    find_programs,
    find_torch_ops,
)
from profnb.causes.uncompilable import find_uncompilable
from profnb.core.printable import quoted
from profnb.core.units import count_text, duration_text, percent_text
from profnb.subjects.advising import is_loop_of_keras
from profnb.subjects.covered_time import period_ps, usual_share_beyond
from profnb.subjects.ops.optimizers import is_of_optimizer
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH, words
from profnb.trace.names import is_host_collective
from profnb.trace.op_names import is_packing, packing_scopes

_LONGEST, _SHOWN = 60, 4
_JIT_OF_SESSIONS = (
    "config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1"
)
_JAX_DOCS = "https://docs.jax.dev/en/latest/jit-compilation.html"
_XLA_DOCS = "https://www.tensorflow.org/xla"
_TORCH_DOCS = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"


def compiled_together(model: Model, pieces: Pieces) -> tuple[Edit, float]:
    """Pieces that are one: what they compute remains, where it is long at least, and a call for each start.

    Returns:
        The edit; the share of the time from step to step that they take.
    """
    study = model.traced
    share, *computing = pieces.shares(study, LONG_OP_PS)
    step_ps = period_ps(study) / study.summary.counted.size
    calls = [pieces.starts * call_ps / step_ps for call_ps in model.costs.call_ps]
    remains = [sum(both) / (share or 1) for both in zip(computing, calls, strict=True)]
    least, most = (min(one, 1.0) for one in remains)
    because = f"{percent_text(share)} of the time is pieces, and what they compute remains"
    return model.some_of((), share, (least, most), because), share


def started_in_pieces(model: Model) -> Iterator[Proposal]:
    """Python starts many small pieces one by one, where a compiler would make few of them."""
    for find, in_words in _PIECES:
        if pieces := find(model.traced):
            edit, share = compiled_together(model, pieces)
            yield from in_words(model.traced, pieces, percent_text(share), edit)


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
    compiler = "model.compile(..., jit_compile=True) has torch.compile make fewer of them."
    if not is_loop_of_keras(study):
        compiler = (
            "torch.compile(model) makes fewer and larger ones of them, "
            "torch.optim.AdamW(..., foreach=True) or fused=True of the optimizer's."
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
    study = model.traced
    if study.has_device or len(study.xla.hlo) or find_uncompilable(study):
        return
    ops = find_fusible(study, lambda _, op_type: op_type in _ELEMENTWISE)
    if ops is None:
        return
    for edit, share in _fused(model, ops):
        yield Proposal(
            "small-ops-without-xla", "Let XLA fuse the small ops",
            f"{count_text(round(ops.each))} element-wise ops a step take {percent_text(share)} of the time: "
            "each reads and writes memory on its own.",
            words(
                study.framework,
                "model.compile(..., jit_compile=True) or @tf.function(jit_compile=True) fuses them into few "
                "passes.",
                sessions=f"{_JIT_OF_SESSIONS} fuses them into few passes.",
            ),
            _XLA_DOCS, [edit],
        )  # fmt: skip


def _fused(model: Model, ops: Pieces) -> Iterator[tuple[Edit, float]]:
    """XLA makes one pass over memory of ops, or half as many; nothing where products cost more than that."""
    study = model.traced
    rows, nothing = study.summary.counted, (ops.others[0][:0], ops.others[1][:0])
    kind = "device compute" if study.has_device else "host compute"
    periods = study.steps.duration_ps[rows] + study.gaps.own_ps[rows]
    whole = float(np.median(study.breakdown.of(kind)[rows] / periods))
    others = min(usual_share_beyond(study, ops.others, nothing), whole)
    share, one_pass, _ = ops.shares(study, 0)
    share = min(share, whole - others)  # pauses count where TensorFlow is at work in them
    whole, least = share + others, others + min(one_pass, share)
    # XLA multiplies matrices on a CPU up to 1.7 times as long: with an optimizer of 39 % of a dense model's
    # ops, jit_compile=True took 4 % more processor time although it fused them.
    most = max((1.0 if study.has_device else 1 / HALF) * others + HALF * share, least)
    if least + most < 2 * whole:
        because = f"XLA fuses {percent_text(share)} of the time to one pass over memory or some"
        yield model.some_of((kind,), whole, (least / whole, min(most / whole, 1.0)), because), share


def large_optimizer(model: Model) -> Iterator[Proposal]:
    """The optimizer's ops are not fused.

    An exchange of gradients, and what packs them for it, has the optimizer's name and is not its own.
    """
    study = model.traced
    if study.framework == JAX or len(study.xla.hlo):
        return
    packing = packing_scopes(study.ops.table.op_name)

    def is_its(name: str, kind: str) -> bool:
        is_exchange = is_host_collective(f"{name}:{kind}") or is_packing(name, kind, packing)
        return is_of_optimizer(name) and not is_exchange

    ops = find_fusible(study, is_its)
    if ops is None:
        return
    mean_ps = float(study.trace.events.duration_ps[ops.runs].mean())
    obstacle, larger = find_uncompilable(study), "A larger batch runs it less often."
    for edit, share in _fused(model, ops):
        if obstacle:
            because = "of a batch two to five times as large it runs as much less often"
            edit = model.some_of(("host compute",), share, (1 / SELDOM, HALF), because)  # noqa: PLW2901
        yield Proposal(
            "large-optimizer", "Make the optimizer cheaper",
            f"The optimizer's ops take {percent_text(share)} of the time: {count_text(round(ops.each))} a "
            f"step, of {duration_text(mean_ps)} on average.",
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
    framework, again = model.framework, find_compiled_again(model.traced)
    if again is None:
        return
    spent = duration_text(again.spent_ps)
    drop = words(
        framework, "drop the last, smaller one", tensorflow=".batch(n, drop_remainder=True)"
    )
    code = f"Give every batch one shape: {drop}, pad sequences to a few lengths."
    if framework == PYTORCH:
        code = (
            "TORCH_LOGS=recompiles prints what changed. Of shapes: torch.compile(..., dynamic=True), or "
            "DataLoader(..., drop_last=True) for one shape of all batches. Of Python numbers: pass them as "
            "tensors."
        )
    elif again.why == SAME_SHAPES:
        code = (
            "Make the compiled function once, outside of the loop. Pass what changes as arguments."
        )
    yield Proposal(
        "recompiling", "Compile once",
        f"{again.what}: {again.why}. All but the first time took {spent}.",
        code, words(framework, _XLA_DOCS, jax=_JAX_DOCS, pytorch=_TORCH_DOCS),
        [compiled_once(model, again.times, again.spent_ps)],
    )  # fmt: skip


def compiled_once(model: Model, times: int, again_ps: float) -> Edit:
    """Each time costs a usual step instead; at least what all but the first took is saved.

    Args:
        model: The cell.
        times: How often the same was compiled.
        again_ps: What all but the first time took.
    """
    tree, summary = model.tree, model.traced.summary
    usual_ps = summary.mean_period_ps
    if summary.all_warm_up:
        usual_ps = float(model.costs.call_ps[0])
    first, compiling = model.rows(parts.FIRST), model.rows(TRACING, COMPILATION)
    if (count := int(tree.occurrences[first].sum())) > 1:
        rows, times = with_below_of(tree, first), count
    elif compiling:
        rows, usual_ps = np.array(compiling, np.int64), 0.0
    else:
        rows = with_below_of(tree, model.main_steps)
    whole = float(tree.self_ps[rows].sum())
    each = whole / times
    least = times * min(usual_ps, each) if usual_ps else each
    because = f"compiling again took {duration_text(again_ps)}"
    return Edit(rows, least, max(whole - again_ps, least), because)


COMPILE_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    started_in_pieces, small_ops_without_xla, large_optimizer, recompiling,
)  # fmt: skip
