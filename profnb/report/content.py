"""What a report shows, decided: a value of words, rows and sections, without a look."""

from collections.abc import Sequence
from dataclasses import dataclass

from profnb.advice.proposals import Advice
from profnb.core.sharing import Sharing
from profnb.drawing.section import Section
from profnb.report.cell_words import CellWords
from profnb.report.step_chart import StepChart
from profnb.report.text import Fact

ShareRow = tuple[str, str, str, str]


@dataclass(frozen=True)
class Content:
    """Everything the report shows.

    Attributes:
        title: Its name.
        headline: What was recorded, in a line.
        alarm: What matters more than where the time went, as that a GPU was not used; "" for nothing.
        unmeasured: What was not recorded although it happened; a note says it too, with a repair.
        answer: Where the time goes, in a sentence; "" where nothing can be said.
        lead: The same with why it goes there, in a sentence that stands first on a page.
        cell: Where the whole cell's wall time went; None for a trace of others.
        facts: The figures of the headline.
        shares: The mean step, a row per category: name, bar, mean per step, share.
        notes: What the reader should know first.
        chart: The step times; None without steps.
        sections: The tables, in order.
        advice: What to change; None where the question makes no sense.
        again: The line over a cell that measures a change of it; "" where the result has no name.
        foot: What whoever is given the report can read in it; "" for nothing to say.
        sharing: What may leave of it; all its forms go through this.
    """

    title: str
    headline: str
    alarm: str = ""
    unmeasured: str = ""
    answer: str = ""
    lead: str = ""
    cell: CellWords | None = None
    facts: Sequence[Fact] = ()
    shares: Sequence[ShareRow] = ()
    notes: Sequence[str] = ()
    chart: StepChart | None = None
    sections: Sequence[Section] = ()
    advice: Sequence[Advice] | None = None
    foot: str = ""
    again: str = ""
    sharing: Sharing = Sharing()  # noqa: RUF009 - frozen

    @property
    def first_line(self) -> str:
        """The alarm and the headline, for plain text and programs."""
        return f"{self.alarm} {self.headline}".strip()
