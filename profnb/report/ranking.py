"""Findings to advice: what to change, how much it can gain at most, and the numbers that say so.

Each rule is one function with its condition and threshold in its docstring. It answers for one trace or stays
silent. The bound is Amdahl's: the share of the time from step to step that would be gone if what the rule
speaks of took no time at all. Advice is ranked by it; gains of several do not add up.
"""

from collections.abc import Callable

from profnb.subjects.advising import LEAST, Advice
from profnb.subjects.device.advice import (
    exposed_collectives,
    imbalance,
    launch_bound,
    layout_changes,
    missed_tensor_cores,
    mixed_precision,
    pageable_copies,
    synchronising_reads,
    unused_gpu,
)
from profnb.subjects.input.advice import input_bound, prefetch_more, python_input
from profnb.subjects.memory.advice import larger_batch
from profnb.subjects.ops.advice import (
    eager_ops,
    growing_graph,
    idle_cores,
    large_optimizer,
    oversubscribed,
    retracing,
)
from profnb.subjects.python.advice import profiling_overhead, python_between_steps
from profnb.subjects.study import Study
from profnb.subjects.xla.advice import recompiling, small_ops_without_xla

__all__ = ["RULES", "Advice", "advise"]

Rule = Callable[[Study], Advice | None]

RULES: tuple[Rule, ...] = (
    unused_gpu, input_bound, python_input, prefetch_more, python_between_steps, launch_bound, pageable_copies,
    synchronising_reads, retracing, recompiling, eager_ops, small_ops_without_xla, mixed_precision,
    missed_tensor_cores, layout_changes, larger_batch, exposed_collectives, imbalance, large_optimizer,
    idle_cores, oversubscribed, growing_graph, profiling_overhead,
)  # fmt: skip


def advise(study: Study) -> list[Advice]:
    """Everything the rules have to say about a trace, what can gain most first."""
    found = [advice for rule in RULES if (advice := rule(study)) is not None]
    bounds = [1.0 if a.bound_fraction is None else a.bound_fraction for a in found]
    ranked = sorted(zip(bounds, found, strict=True), key=lambda pair: -pair[0])
    return [advice for bound, advice in ranked if bound >= LEAST]
