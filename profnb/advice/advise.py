"""What to change: every rule's proposals, each with what it saves beside those before it.

One threshold, one order, one treatment of overlap (design.md 4b). The proposal that saves most, by the
middle of its range, comes first and takes the time that it speaks of; the next is told as what it adds, and
is silent where that is too little.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.cell_rules import CELL_RULES
from profnb.advice.cell_tree import STEADY_STEPS
from profnb.advice.compile_rules import COMPILE_RULES
from profnb.advice.device_rules import DEVICE_RULES
from profnb.advice.idle_rules import IDLE_RULES
from profnb.advice.input_rules import INPUT_RULES
from profnb.advice.numbers import LEAST_PS, LEAST_SHARE
from profnb.advice.op_rules import OP_RULES
from profnb.advice.proposals import Advice, Proposal
from profnb.advice.replay import Edit, Saving, once, replay, with_below_of
from profnb.advice.step_findings import find_all
from profnb.advice.step_rules import STEP_RULES
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.tree_records import (
    CELL,
    COMPILATION,
    EAGER,
    EPOCH,
    SETTING_UP,
    TRACING,
)
from profnb.core.units import PS_PER_MS
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import Finding, cell_ps, steps_share, window_of
from profnb.subjects.unseen import unrecorded_backend

if TYPE_CHECKING:
    from profnb.core.columns import Int64s

__all__ = ["advise"]

Refinement = Callable[[Model, list[Proposal]], list[Proposal]]

_NOT_OF_STEPS = (CELL, parts.PROFNB, parts.IMPORTS, parts.BUILDING, parts.FIRST)
_NOT_OF_CELL = (parts.PROFNB, parts.IMPORTS)
_KINDS = {
    "eager-ops": (EAGER,),
}
# What lies between steps is told by looks, by name; what is left of it is the framework's own.
_BETWEEN = {
    "epoch-ends": (parts.EPOCH_ENDS, SETTING_UP, parts.GAPS),
    "python-between-steps": (parts.GAPS, OTHERS),
}
_AGAIN = ("retracing",)
_STEPS = (*STEADY_STEPS, parts.SLOW_FIRST)


def advise(model: Model, refine: Refinement | None = None) -> list[Advice]:
    """Everything worth saying, what saves most first.

    Args:
        model: The cell and what is known of it.
        refine: What knows more of a trace than its rules, and replaces what those propose; None for nothing.
    """
    left = [one for rule in CELL_RULES for one in rule(model)] if model.has_looks else []
    vague: list[Proposal] = []  # of rules that do not know which nodes they speak of
    if model.study is not None and not unrecorded_backend(model.study):
        tables = (*INPUT_RULES, *STEP_RULES, *COMPILE_RULES, *OP_RULES, *DEVICE_RULES, *IDLE_RULES)
        left += [one for rule in tables for one in rule(model)]
        vague = [_proposal(model, one) for one in find_all(model.study)]
        left += vague
        left = left if refine is None else refine(model, left)
    least_ps = LEAST_SHARE * model.tree.whole_ps
    if model.has_looks:
        least_ps = max(least_ps, LEAST_PS)
    taken: Saving | None = None
    advised: list[Advice] = []
    while left:
        savings = [replay(model.tree, one.edits, taken) for one in left]
        best = max(range(len(left)), key=lambda at: savings[at].middle_ps)
        proposal, saving = left.pop(best), savings[best]
        is_vague = any(proposal is one for one in vague)
        if (saving.high_ps if is_vague else saving.middle_ps) < least_ps:
            continue
        advised.append(_advice_of(model, proposal, saving))
        if not is_vague:
            taken = saving
    return advised


def _advice_of(model: Model, proposal: Proposal, saving: Saving) -> Advice:
    rows = np.unique(np.concatenate([edit.rows for edit in proposal.edits]))
    return Advice(
        proposal.rule, proposal.title, proposal.evidence, model.saves_ms(saving),
        model.tree.whole_ps / PS_PER_MS, proposal.code, proposal.link, proposal.where,
        tuple(rows.tolist()), proposal.edit,
    )  # fmt: skip


def _proposal(model: Model, finding: Finding) -> Proposal:
    """What a rule of the steps found: it saves its share of their time at most."""
    study, tree = model.study, model.tree
    assert study is not None
    rows = _rows_of(model, finding)
    if finding.rule in _AGAIN and (again := _done_again(model, finding)):
        return _as_proposal(finding, [again])
    share = finding.concerned_fraction if finding.bound_fraction is None else finding.bound_fraction
    whole = cell_ps(study) or tree.whole_ps
    if not finding.is_of_cell:
        of_window = min(window_of(study) / whole, 1.0) if whole else 1.0
        share *= of_window if finding.rule == "epoch-ends" else steps_share(study)
    most = float(tree.self_ps[rows].sum())
    saved = min(share * whole, most)
    edit = Edit(rows, 0.0, saved, finding.evidence, saved / most if most else 0.0)
    return _as_proposal(finding, [edit])


def _done_again(model: Model, finding: Finding) -> Edit | None:
    """What is traced or compiled anew: each but the first, if not that too, would be a usual step."""
    tree, study = model.tree, model.study
    first = model.rows(parts.FIRST)
    times = int(tree.occurrences[first].sum())
    if study is not None and times > 1:
        again = once(tree, first, times, (0.0, study.summary.mean_period_ps or 0.0), "")
        return replace(again, least_ps=0.0)
    rows = np.array(model.rows(TRACING, COMPILATION), np.int64)
    whole = float(tree.self_ps[rows].sum())
    return Edit(rows, 0.0, whole, finding.evidence) if whole else None


def _as_proposal(finding: Finding, edits: Sequence[Edit]) -> Proposal:
    return Proposal(
        finding.rule, finding.title, finding.evidence, finding.code, finding.link, edits, finding.where,
    )  # fmt: skip


def _rows_of(model: Model, finding: Finding) -> "Int64s":
    """The nodes that a finding speaks of: of steps and what lies between them, or of the latter alone."""
    tree = model.tree
    is_bounded = finding.bound_fraction is not None
    kinds: tuple[str, ...] = _KINDS.get(finding.rule, ()) if is_bounded else ()
    if model.has_looks:
        kinds = _BETWEEN.get(finding.rule, kinds)
        is_told = finding.rule == "epoch-ends" and model.rows(EPOCH)  # by the rule of the tree
        if is_told or (finding.rule in _BETWEEN and not model.rows(*kinds)):
            return np.zeros(0, np.int64)
    if kinds and (chosen := model.rows(*kinds)):
        return with_below_of(tree, chosen)
    if finding.is_of_cell:
        return np.array([row for row, kind in enumerate(tree.kind) if kind not in _NOT_OF_CELL])
    is_between = finding.rule in _BETWEEN
    rows: Iterable[int] = (
        row
        for row, kind in enumerate(tree.kind)
        if kind not in _NOT_OF_STEPS
        and (kind == OTHERS or not is_between or not model.is_inside(row, _STEPS, 0))
    )
    return np.array(list(rows) or [0], np.int64)
