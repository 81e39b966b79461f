"""What rules of the steps find: what to change, how much it can gain at most, and the numbers that say so.

Each rule is one function with its condition and threshold in its docstring. It answers for one trace or stays
silent. The bound is Amdahl's: the share of the time from step to step (of the whole cell, where the rule says
so) that would be gone if what the rule speaks of took no time at all; where facts show that more can be
gained, or nothing bounds it, none is given. ``advise`` puts them in order, with the rules of the cell's tree.
"""

from collections.abc import Callable

from profnb.subjects.advising import LEAST, Finding
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
from profnb.subjects.ops.session_advice import checkpoints_often, summaries_each_step
from profnb.subjects.ops.torch_compile_advice import graph_breaks, recompiling_in_torch
from profnb.subjects.read_advice import synchronising_reads
from profnb.subjects.study import Study
from profnb.subjects.unseen import unrecorded_backend
from profnb.subjects.xla.advice import recompiling, small_ops_without_xla

__all__ = ["RULES", "find_all"]

Rule = Callable[[Study], Finding | None]
Refinement = Callable[[Study, list[Finding]], list[Finding]]

RULES: tuple[Rule, ...] = (
    unused_gpu,
    network_files,
    input_bound,
    python_input,
    prefetch_more,
    waiting_for_input,
    feeding_by_hand,
    empty_queue,
    small_files,
    gpu_thread_mode,
    launch_bound,
    copying_input,
    synchronising_reads,
    recompiling,
    recompiling_in_torch,
    graph_breaks,
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
    slow_rnn,
)


def find_all(study: Study, refine: Refinement | None = None) -> list[Finding]:
    """Everything the rules have to say about a trace; nothing where the work was not recorded.

    Args:
        study: The trace's analyses.
        refine: What knows more than any rule of it, and replaces what they said; None for nothing.
    """
    if unrecorded_backend(study):
        return []
    said = [finding for rule in RULES if (finding := rule(study)) is not None]
    said = [finding for finding in said if _weight(finding) >= LEAST]
    said = said if refine is None else refine(study, said)
    idle = idle_device(study, said)
    return said if idle is None else [*said, idle]


def _weight(advice: Finding) -> float:
    return advice.concerned_fraction if advice.bound_fraction is None else advice.bound_fraction
