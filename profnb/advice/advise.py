"""What to change: every rule's proposals, each with what it saves beside those before it.

One threshold, one order, one treatment of overlap (design.md 4b). The proposal that saves most, by the
middle of its range, comes first and takes the time that it speaks of; the next is told as what it adds, and
is silent where that is too little. What a change costs once, as compiling does, is told beside: people try on
a few steps what is to run for hours.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Advice, Proposal
from profnb.advice.replay import Saving, replay
from profnb.advice.rules.anew_rules import ANEW_RULES
from profnb.advice.rules.device_rules import DEVICE_RULES
from profnb.advice.rules.input_rules import INPUT_RULES
from profnb.advice.rules.memory_rules import MEMORY_RULES
from profnb.advice.rules.op_rules import OP_RULES
from profnb.advice.rules.python_rules import PYTHON_RULES
from profnb.advice.rules.repeat_rules import REPEAT_RULES
from profnb.advice.rules.slowing_rules import SLOWING_RULES
from profnb.causes.numbers import LEAST_PS, LEAST_SHARE
from profnb.core.units import PS_PER_MS

Refinement = Callable[[Model, list[Proposal]], list[Proposal]]

RULES = (
    *MEMORY_RULES, *REPEAT_RULES, *ANEW_RULES, *SLOWING_RULES, *INPUT_RULES, *OP_RULES, *PYTHON_RULES,
    *DEVICE_RULES,
)  # fmt: skip


def proposals_of(model: Model) -> list[Proposal]:
    """What the rules propose, in the order of their tables."""
    return [one for rule in RULES for one in rule(model)]


def advise(model: Model, refine: Refinement | None = None) -> list[Advice]:
    """Everything worth saying: what the cell cannot run without, then what saves most first.

    Args:
        model: The cell and what is known of it.
        refine: What knows more of a trace than its rules, and replaces what those propose; None for nothing.
    """
    left = proposals_of(model)
    left = left if refine is None else refine(model, left)
    needed = [one for one in left if one.is_needed]
    left = [one for one in left if not one.is_needed]
    least_ps = max(LEAST_SHARE * model.ran_ps, LEAST_PS if model.has_looks else 0)
    taken: Saving | None = None
    advised = [_advice_of(one, model, (math.nan, math.nan)) for one in needed]
    while left:
        savings = [replay(model.tree, one.edits, taken) for one in left]
        best = max(range(len(left)), key=lambda at: savings[at].middle_ps)
        proposal, taken = left.pop(best), savings[best]
        if taken.middle_ps < least_ps:
            break
        rows = np.unique(np.concatenate([edit.rows for edit in proposal.edits]))
        first, last = (ps / PS_PER_MS for ps in taken.once_ps)
        one = _advice_of(proposal, model, model.saves_ms(taken))
        advised.append(replace(one, target=tuple(rows.tolist()), once_ms=(first, last)))
    return advised


def _advice_of(proposal: Proposal, model: Model, saves_ms: tuple[float, float]) -> Advice:
    return Advice(
        proposal.rule, proposal.title, proposal.evidence, saves_ms, model.tree.whole_ps / PS_PER_MS,
        proposal.code, proposal.link, proposal.where, edit=proposal.edit,
        own_ms=model.own_ps / PS_PER_MS,
    )  # fmt: skip
