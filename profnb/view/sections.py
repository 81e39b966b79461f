"""One table of the report, with a sentence and perhaps a chart: a value, as HTML and as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from profnb.view.tables import Cell, html_table
from profnb.view.text import plain_table, printable
from profnb.view.theme import BAR, MUTED

__all__ = ["Section", "section_html", "section_text"]


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the report.

    Attributes:
        title: Its title.
        sentence: What it says, in a sentence.
        headings: One per column; "" for a bar.
        rows: Cells; a bar stands in the first column.
        numbers: Which columns are numbers.
        colours: The colour of each row's bar.
        tab: The part of the report it belongs to.
        figure: A chart that says it in one look, in plotly's schema.
        is_detail: Whether to leave it out of the report as plain text.
        row_style: What to add to the style of each row's bar.
    """

    title: str
    sentence: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[bool]
    colours: Sequence[str]
    tab: str
    figure: dict[str, Any] | None = None
    is_detail: bool = False
    row_style: str = ""


def _plain(cell: Cell) -> str:
    return (
        cell if isinstance(cell, str) else "  ".join(part for part in (cell[0], *cell[2:]) if part)
    )


def section_html(section: Section) -> str:
    """The section's sentence and table."""
    rows: list[list[Cell]] = [
        [(_plain(row[0]), f"{BAR};color:{colour}{section.row_style}"), *row[1:]]
        for row, colour in zip(section.rows, section.colours, strict=True)
    ]
    sentence = f'<div style="{MUTED}">{escape(section.sentence)}</div>' if section.sentence else ""
    return sentence + html_table(section.headings, rows, section.numbers)


def section_text(section: Section) -> str:
    """The section as plain text, without bars."""
    rows = [tuple(printable(_plain(cell))[:90] for cell in row[1:]) for row in section.rows]
    head = "\n".join(part for part in (section.title, printable(section.sentence)) if part)
    return f"{head}\n{plain_table([tuple(section.headings[1:]), *rows], section.numbers[1:])}"
