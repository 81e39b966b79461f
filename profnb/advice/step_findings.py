"""What rules of the steps find: what to change, how much it can gain at most, and the numbers that say so.

Each rule is one function with its condition and threshold in its docstring. It answers for one trace or stays
silent. The bound is Amdahl's: the share of the time from step to step (of the whole cell, where the rule says
so) that would be gone if what the rule speaks of took no time at all; where facts show that more can be
gained, or nothing bounds it, none is given. ``advise`` puts them in order, with the rules of the cell's tree.
"""

from collections.abc import Callable

from profnb.subjects.advising import LEAST, Finding
from profnb.subjects.cell.advice import new_model_in_a_loop
from profnb.subjects.cell.slowing_advice import slowing_down
from profnb.subjects.cell.validation_advice import own_validation
from profnb.subjects.ops.eager_advice import eager_ops, eager_ops_between
from profnb.subjects.ops.retracing_advice import retracing
from profnb.subjects.python.advice import epoch_ends, python_between_steps
from profnb.subjects.python.function_advice import python_in_the_step
from profnb.subjects.study import Study
from profnb.subjects.unseen import unrecorded_backend

__all__ = ["RULES", "find_all"]

Rule = Callable[[Study], Finding | None]

RULES: tuple[Rule, ...] = (
    new_model_in_a_loop,
    own_validation,
    python_between_steps,
    python_in_the_step,
    epoch_ends,
    retracing,
    eager_ops,
    eager_ops_between,
    slowing_down,
)


def find_all(study: Study) -> list[Finding]:
    """Everything the rules have to say about a trace; nothing where the work was not recorded."""
    if unrecorded_backend(study):
        return []
    said = [finding for rule in RULES if (finding := rule(study)) is not None]
    return [finding for finding in said if _weight(finding) >= LEAST]


def _weight(advice: Finding) -> float:
    return advice.concerned_fraction if advice.bound_fraction is None else advice.bound_fraction
