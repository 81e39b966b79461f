"""What to change: every rule's proposals, each with what it saves beside those before it.

One threshold, one order, one treatment of overlap (design.md 4b). The proposal that saves most, by the
middle of its range, comes first and takes the time that it speaks of; the next is told as what it adds, and
is silent where that is too little.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from profnb.advice.again_rules import AGAIN_RULES
from profnb.advice.cell_model import Model
from profnb.advice.cell_rules import CELL_RULES
from profnb.advice.numbers import LEAST_PS, LEAST_SHARE, MOST_OF_OURS
from profnb.advice.proposals import Advice, Proposal
from profnb.advice.python_rules import PYTHON_RULES
from profnb.advice.replay import Edit, Saving, once, replay, with_below_of
from profnb.advice.step_findings import Refinement, find_all
from profnb.advice.step_rules import STEP_RULES
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.tree_records import (
    CELL,
    COMPILATION,
    TRACING,
)
from profnb.core.units import PS_PER_MS
from profnb.subjects.advising import Finding, cell_ps, steps_share
from profnb.subjects.unseen import unrecorded_backend

if TYPE_CHECKING:
    from profnb.core.columns import Int64s

__all__ = ["advise"]

_NOT_OF_STEPS = (CELL, parts.PROFNB, parts.IMPORTS, parts.BUILDING, parts.FIRST)
_NOT_OF_CELL = (parts.PROFNB, parts.IMPORTS)
_KINDS = {
    "checkpoints": (parts.CHECKPOINTING,),
    **dict.fromkeys(
        ["input-bound", "network-files", "python-input", "prefetch-more", "waiting-for-input"],
        (parts.INPUT,),
    ),
}
_AGAIN = ("recompiling",)


def advise(model: Model, refine: Refinement | None = None) -> list[Advice]:
    """Everything worth saying, what saves most first.

    Args:
        model: The cell and what is known of it.
        refine: What knows more of a trace than its rules, and replaces what those found; None for nothing.
    """
    left = [one for rule in CELL_RULES for one in rule(model)] if model.has_looks else []
    found: list[Proposal] = []  # by rules that do not know which nodes they speak of
    if model.study is not None:
        left += [one for rule in STEP_RULES for one in rule(model)]
        if not unrecorded_backend(model.study):
            left += [one for rule in (*PYTHON_RULES, *AGAIN_RULES) for one in rule(model)]
        found = [_proposal(model, one) for one in find_all(model.study, refine)]
        left += found
    least_ps = LEAST_SHARE * model.tree.whole_ps
    if model.has_looks:
        least_ps = max(least_ps, LEAST_PS)
    taken: Saving | None = None
    advised: list[Advice] = []
    while left:
        savings = [replay(model.tree, one.edits, taken) for one in left]
        best = max(range(len(left)), key=lambda at: savings[at].middle_ps)
        proposal, saving = left.pop(best), savings[best]
        is_found = any(proposal is one for one in found)
        if (saving.high_ps if is_found else saving.middle_ps) < least_ps:
            continue
        advised.append(_advice_of(model, proposal, saving))
        if not is_found:
            taken = saving
    return advised


def _advice_of(model: Model, proposal: Proposal, saving: Saving) -> Advice:
    """An advice; a cell without profnb is shorter, so a change saves more of it."""
    rows = np.unique(np.concatenate([edit.rows for edit in proposal.edits]))
    tree = model.tree
    without = max(tree.whole_ps - model.own_ps, 1)
    high_ps = min(saving.high_ps * min(tree.whole_ps / without, MOST_OF_OURS), without)
    saves = (min(saving.low_ps, high_ps) / PS_PER_MS, high_ps / PS_PER_MS)
    whole = tree.whole_ps / PS_PER_MS
    return Advice(
        proposal.rule, proposal.title, proposal.evidence, saves, whole, proposal.code, proposal.link,
        proposal.where, tuple(rows.tolist()), proposal.edit,
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
        share *= steps_share(study)
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
    """The nodes that a finding speaks of: of steps and what lies between them."""
    tree = model.tree
    is_bounded = finding.bound_fraction is not None
    kinds: tuple[str, ...] = _KINDS.get(finding.rule, ()) if is_bounded else ()
    if kinds and (chosen := model.rows(*kinds)):
        return with_below_of(tree, chosen)
    if finding.is_of_cell:
        return np.array([row for row, kind in enumerate(tree.kind) if kind not in _NOT_OF_CELL])
    rows: Iterable[int] = (row for row, kind in enumerate(tree.kind) if kind not in _NOT_OF_STEPS)
    return np.array(list(rows) or [0], np.int64)
