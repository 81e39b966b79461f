"""What a rule proposes and when it is asked; what a user is told."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps

from profnb.advice.cell_model import Model
from profnb.advice.replay import Edit
from profnb.causes.numbers import NEARLY_ALL
from profnb.core.units import PS_PER_MS, duration_text, durations_text
from profnb.subjects.advising import Finding, guide
from profnb.subjects.study import Study


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change.

    Attributes:
        rule: The rule's id.
        title: What to do, in a few words.
        evidence: The numbers, in a sentence or two.
        saves_ms: The least and the most that it saves of the wall time; NaN where that is not known. A share
            of the cell without profnb, in the time of the cell with it.
        wall_ms: That wall time: of the cell, of a loaded trace's window, or of one run of a LiteRT model.
        code: What to write.
        link: Where it is explained.
        where: The line of the user's code that it speaks of, as "Cell [3]:8"; "" where that is not known.
        target: The nodes of ``p.cell_tree`` that it takes time from.
        edit: The change in the words of ``p.what_if``; None where it has none.
        once_ms: What the change costs once, when it is new: compiling. Not taken off what it saves.
        own_ms: What profnb took of the wall time.
    """

    rule: str
    title: str
    evidence: str
    saves_ms: tuple[float, float]
    wall_ms: float
    code: str
    link: str
    where: str = ""
    target: tuple[int, ...] = ()
    edit: Mapping[str, object] | None = None
    once_ms: tuple[float, float] = (0.0, 0.0)
    own_ms: float = 0.0

    @property
    def bound_fraction(self) -> float:
        """The most that it saves as a share of the wall time, 0 to 1; NaN where that is not known."""
        return self.saves_ms[1] / self.wall_ms if self.wall_ms else math.nan

    def of_cell(self, wall_ms: float) -> "Advice":
        """The same of a cell in which profnb has taken more since."""
        low, high = (ms * wall_ms / self.wall_ms for ms in self.saves_ms)
        own_ms = self.own_ms + wall_ms - self.wall_ms
        return replace(self, saves_ms=(low, high), wall_ms=wall_ms, own_ms=own_ms)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a rule proposes: an advice whose saving is still to be worked out.

    Attributes:
        edits: What becomes of the nodes of the tree.
        is_needed: Whether the cell cannot run to its end without it, so that it saves no time.
    """

    rule: str
    title: str
    evidence: str
    code: str
    link: str
    edits: Sequence[Edit]
    where: str = ""
    edit: Mapping[str, object] | None = None
    is_needed: bool = False


_HARDLY = 0.01  # of the wall time: of less nobody needs to know
Proposals = Iterator[Proposal]
# One text for all, or by framework: of UNKNOWN where one has none of its own.
Texts = str | Mapping[str, str]
Words = tuple[str, Texts, Texts]  # a title, the code, and a link or a page of the framework's guide


def propose(
    study: Study, rule: str, words: Words, evidence: str, *edits: Edit, where: str = ""
) -> Proposal:
    """Give a proposal in the framework's words."""
    title, *texts = words
    code, link = map(study.program.text_of, texts)
    link = link if "://" in link else guide(study, link)
    return Proposal(rule, title, evidence, code, link, edits, where)


def of_cell(rule: Callable[[Model], Proposals]) -> Callable[[Model], Proposals]:
    """Ask a rule only where a capture of ours looked at the cell."""
    return wraps(rule)(lambda model: rule(model) if model.has_looks else iter(()))


def of_trace(rule: Callable[[Model, Study], Proposals]) -> Callable[[Model], Proposals]:
    """Ask a rule only where the work was traced."""
    return wraps(rule)(lambda model: rule(model, model.traced) if model.is_traced else iter(()))


def of_steps(rule: Callable[[Model, Study], Proposals]) -> Callable[[Model], Proposals]:
    """Ask a rule only where steps were traced."""
    return wraps(rule)(lambda model: rule(model, model.traced) if model.has_steps else iter(()))


def as_advice(finding: Finding, whole_ps: float) -> Advice:
    """A finding on something that has no tree, whose bound is a share of this time."""
    bound = math.nan if finding.bound_fraction is None else finding.bound_fraction
    whole_ms = whole_ps / PS_PER_MS
    saves = (math.nan if math.isnan(bound) else 0.0, bound * whole_ms)
    return Advice(
        finding.rule, finding.title, finding.evidence, saves, whole_ms, finding.code, finding.link,
    )  # fmt: skip


def saves_text(advice: Advice) -> str:
    """What it saves of what, in words: "2.4 to 2.7 s of 3.1 s"; "" where that may be all, or is nothing.

    Of a cell without profnb, whose seconds are those of the tree.
    """
    low, high = advice.saves_ms
    if math.isnan(high) or not high or (low < 0.01 * high and high > NEARLY_ALL * advice.wall_ms):
        return ""
    ran = 1 - advice.own_ms / advice.wall_ms
    low_ps, high_ps, ran_ps = (ms * ran * PS_PER_MS for ms in (low, high, advice.wall_ms))
    is_open = low < 0.01 * high
    said = f"up to {duration_text(high_ps)}" if is_open else durations_text(low_ps, high_ps)
    return f"{said} of {duration_text(ran_ps)}{' without profnb' * (ran < 1 - _HARDLY)}"
