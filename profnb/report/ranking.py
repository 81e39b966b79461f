"""Findings to advice: what to change, how much it can gain at most, and the numbers that say so.

Each rule is one function with its condition and threshold in its docstring. It answers for one trace or stays
silent. The bound is Amdahl's: the share of the time from step to step (of the whole cell, where the rule says
so) that would be gone if what the rule speaks of took no time at all; where facts show that more can be
gained, or nothing bounds it, none is given. Advice is ranked by what that is of the cell; gains of several do
not add up.
"""

from collections.abc import Callable

from profnb.subjects.advising import (
    LEAST,
    SAVE_LESS,
    Advice,
    cell_ps,
    steps_share,
    window_of,
)
from profnb.subjects.cell.advice import new_model_in_a_loop, predict_in_a_loop
from profnb.subjects.cell.slowing_advice import slowing_down
from profnb.subjects.cell.validation_advice import own_validation, validation
from profnb.subjects.device.advice import (
    exposed_collectives,
    imbalance,
    layout_changes,
    missed_tensor_cores,
    mixed_precision,
    unused_gpu,
)
from profnb.subjects.device.idle_advice import (
    copying_input,
    gpu_thread_mode,
    idle_device,
    launch_bound,
)
from profnb.subjects.feeds.advice import empty_queue, feeding_by_hand, small_files
from profnb.subjects.input.advice import (
    input_bound,
    prefetch_more,
    python_input,
    waiting_for_input,
)
from profnb.subjects.input.network_advice import network_files
from profnb.subjects.layers.rnn_advice import slow_rnn
from profnb.subjects.memory.advice import larger_batch
from profnb.subjects.ops.advice import (
    growing_graph,
    idle_cores,
    large_optimizer,
    oversubscribed,
)
from profnb.subjects.ops.dispatch_advice import small_ops, work_outside_jit
from profnb.subjects.ops.eager_advice import eager_ops, eager_ops_between
from profnb.subjects.ops.retracing_advice import retracing
from profnb.subjects.ops.session_advice import checkpoints_often, summaries_each_step
from profnb.subjects.ops.torch_compile_advice import graph_breaks, recompiling_in_torch
from profnb.subjects.python.advice import epoch_ends, python_between_steps
from profnb.subjects.python.function_advice import python_in_the_step
from profnb.subjects.read_advice import synchronising_reads
from profnb.subjects.study import Study
from profnb.subjects.unseen import unrecorded_backend
from profnb.subjects.xla.advice import recompiling, small_ops_without_xla

__all__ = ["RULES", "Advice", "advise"]

Rule = Callable[[Study], Advice | None]
Refinement = Callable[[Study, list[Advice]], list[Advice]]

RULES: tuple[Rule, ...] = (
    predict_in_a_loop,
    new_model_in_a_loop,
    validation,
    own_validation,
    unused_gpu,
    network_files,
    input_bound,
    python_input,
    prefetch_more,
    waiting_for_input,
    feeding_by_hand,
    empty_queue,
    small_files,
    python_between_steps,
    python_in_the_step,
    epoch_ends,
    gpu_thread_mode,
    launch_bound,
    copying_input,
    synchronising_reads,
    retracing,
    recompiling,
    recompiling_in_torch,
    graph_breaks,
    eager_ops,
    eager_ops_between,
    work_outside_jit,
    small_ops,
    small_ops_without_xla,
    mixed_precision,
    missed_tensor_cores,
    layout_changes,
    larger_batch,
    exposed_collectives,
    imbalance,
    large_optimizer,
    idle_cores,
    oversubscribed,
    growing_graph,
    summaries_each_step,
    checkpoints_often,
    slowing_down,
    slow_rnn,
)


# What a rule says already, with a remedy that fits: a new iterator for each call, or for each model.
_SAID_BY = {
    "predict-in-a-loop": ("epoch-ends", "python-between-steps"),
    "new-model-in-a-loop": ("epoch-ends", "python-between-steps"),
}


def advise(study: Study, refine: Refinement | None = None) -> list[Advice]:
    """Everything the rules have to say about a trace, what can gain most first.

    That is of the cell: of what is a share of a step's time, the steps' share of it. What has no bound is
    ranked by the time it speaks of. Nothing where the work was not recorded.

    Args:
        study: The trace's analyses.
        refine: What knows more than any rule of it, and replaces what the rules found; None for nothing.
    """
    if unrecorded_backend(study):
        return []
    candidates = [advice for rule in RULES if (advice := rule(study)) is not None]
    candidates = [advice for advice in candidates if _weight(advice) >= LEAST]
    said = {rule for advice in candidates for rule in _SAID_BY.get(advice.rule, ())}
    candidates = [advice for advice in candidates if advice.rule not in said]
    candidates = candidates if refine is None else refine(study, candidates)
    idle = idle_device(study, candidates)
    if idle is not None:
        candidates.append(idle)
    if any(one.rule == "epoch-ends" and one.code.startswith(SAVE_LESS) for one in candidates):
        candidates = [advice for advice in candidates if advice.rule != "checkpoints"]
    share, whole = steps_share(study), cell_ps(study)
    of_window = min(window_of(study) / whole, 1.0) if whole else 1.0

    def of_cell(advice: Advice) -> float:
        if advice.is_of_cell:
            return _weight(advice)
        return _weight(advice) * (of_window if advice.rule == "epoch-ends" else share)

    return sorted(candidates, key=of_cell, reverse=True)


def _weight(advice: Advice) -> float:
    return advice.concerned_fraction if advice.bound_fraction is None else advice.bound_fraction
