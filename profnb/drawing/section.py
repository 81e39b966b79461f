"""One table of the report, with a sentence and perhaps a chart: a value, as HTML and as text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Any

from profnb.drawing.html_table import Cell, html_table
from profnb.report.text import plain_table, printable
from profnb.drawing.theme import BAR, MUTED

__all__ = ["Section", "section_html", "section_text"]

_MOST_PLAIN = 1000
_MOST_TEXT = 6
_WIDTH = 150


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
        searches: For each row words that find its ops in the op table; "" for none.
        sort_keys: For each row what each column is sorted by, None where it is not known; empty if the
            table is not to be sorted.
        shown: How many rows to show before the rest is asked for.
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
    searches: Sequence[str] = ()
    sort_keys: Sequence[Sequence[float | str | None]] = ()
    shown: int = _MOST_PLAIN
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
    if not section.sort_keys:
        return sentence + html_table(section.headings, rows, section.numbers)
    table = html_table(section.headings, rows[: section.shown], section.numbers)
    more = len(rows) - section.shown
    told = f'<div class="profnb-more" style="{MUTED}">and {more:,} more</div>' if more > 0 else ""
    data = json.dumps(
        {
            "shown": section.shown,
            "cells": [[_parts(cell) for cell in row] for row in section.rows],
            "colours": list(section.colours),
            "numbers": list(section.numbers),
            "keys": [list(keys) for keys in section.sort_keys],
            "searches": list(section.searches),
        },
        separators=(",", ":"),
    )
    return f'{sentence}<div class="profnb-rows" data-rows="{escape(data)}">{table}{told}</div>'


def _parts(cell: Cell) -> list[str]:
    """A cell's text and the fainter text behind it."""
    return [cell] if isinstance(cell, str) else [cell[0], *cell[2:]]


def section_text(section: Section) -> str:
    """The section as plain text, without bars."""
    listed = section.rows[:_MOST_TEXT] if section.sort_keys else section.rows
    rows = [tuple(printable(_plain(cell))[:90] for cell in row[1:]) for row in listed]
    sentence = fill(printable(section.sentence), _WIDTH)
    head = "\n".join(part for part in (section.title, sentence) if part)
    return f"{head}\n{plain_table([tuple(section.headings[1:]), *rows], section.numbers[1:])}"
