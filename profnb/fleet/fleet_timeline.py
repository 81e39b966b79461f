"""The timeline of a fleet under a cell: hosts on the first one's clock, and what is to be said of clocks."""

from collections.abc import Sequence

from markupsafe import Markup

from profnb.core.printable import printable
from profnb.core.units import count_text, duration_text
from profnb.drawing.drawn_tables import note_list
from profnb.drawing.theme import ROOT
from profnb.fleet.joined_hosts import JoinedStudy, join_hosts
from profnb.fleet.merging import Clocks, Merged
from profnb.report.frontend import show_timeline_page
from profnb.subjects.study import Study
from profnb.timeline.element import Timeline, build_timeline

_MOST_NAMES = 8
_READING = (
    "A line per {noun}: own work, then exchange; what is blank between them is waiting for others. Steps are "
    "the first {noun}'s."
)


class FleetTimeline:
    """A timeline of several hosts, decided.

    Attributes:
        study: Their events on one clock.
        timeline: The picture of them.
        notes: What is to be said first, in sentences.
    """

    def __init__(self, study: JoinedStudy, notes: Sequence[str], *, is_page: bool = False) -> None:
        """Decide the picture.

        Args:
            study: The hosts' events on one clock.
            notes: What is to be said first.
            is_page: Whether it stands in a page, which may be larger than a notebook's cell.
        """
        self.study, self.notes = study, tuple(notes)
        of = f"fleet[{study.trace.hostnames[0]!r}]"
        self.timeline: Timeline = build_timeline(study, is_page=is_page, of=of)

    def html(self, timeline_id: str = "") -> Markup:
        """The element.

        Args:
            timeline_id: What a script calls it when it asks the kernel for more; "" never asks.
        """
        above = Markup('<div class="profnb" style="{}">{}</div>').format(
            ROOT, note_list(self.notes)
        )
        return self.study.trace.sharing.html(above) + self.timeline.html(timeline_id)

    @property
    def text(self) -> str:
        """All of it as plain text."""
        notes = [f"Note: {printable(note)}" for note in self.notes]
        return self.study.trace.sharing.text("\n".join([*notes, self.timeline.text]))


def build_fleet_timeline(
    merged: Merged, names: Sequence[str], studies: Sequence[Study | None], notes: Sequence[str],
    *, is_page: bool = False, noun: str = "host",
) -> FleetTimeline:  # fmt: skip
    """The timeline of a fleet.

    Args:
        merged: The hosts' steps.
        names: What they are called.
        studies: The analyses of their traces; None for one that is a line only.
        notes: What is to be said of the fleet first.
        is_page: Whether it stands in a page.
        noun: What one of them is; devices have one clock, and their streams are in their trace's timeline.
    """
    all_notes = [_READING.format(noun=noun), *notes]
    if noun == "device":
        all_notes.insert(1, f"fleet[{names[0]!r}].timeline() shows all streams and threads.")
        return FleetTimeline(
            join_hosts(merged, names, studies, has_device=True), all_notes, is_page=is_page
        )
    all_notes.insert(1, _clock_note(merged.clocks, names))
    if any(study is None for study in studies):
        all_notes.insert(
            1,
            "The threads of so many hosts, of traces so large, or of traces that are gone, are left out: "
            f"fleet[{names[0]!r}].timeline() shows those of one.",
        )
    return FleetTimeline(join_hosts(merged, names, studies), all_notes, is_page=is_page)


def show_fleet_timeline(built: FleetTimeline, live: bool | None) -> None:
    """Show it under the cell; in a terminal its text.

    Args:
        built: The timeline.
        live: Whether zooming in may ask the kernel for more; None for what the notebook was configured to.
    """
    show_timeline_page((built.study,), lambda names: built.html(*names), built.text, live)


def _clock_note(clocks: Clocks, names: Sequence[str]) -> str:
    """How far each host's events may lie from where they are drawn."""
    early = (clocks.offset_ps - clocks.low_ps).tolist()
    late = (clocks.high_ps - clocks.offset_ps).tolist()
    rows = sorted(range(1, len(names)), key=lambda row: -(early[row] + late[row]))[:_MOST_NAMES]
    deviations_text = ", ".join(
        f"{names[row]} up to {duration_text(early[row])} earlier or {duration_text(late[row])} later"
        for row in rows
    )
    left = len(names) - 1 - len(rows)
    more = f"; {count_text(left)} more by less" if left > 0 else ""
    return (
        f"Clocks are joined to {names[0]}'s by who can have left a collective before whom. Events may lie "
        f"off where they are drawn: {deviations_text}{more}."
    )
