"""Rows to HTML tables that are readable with style and script stripped.

Each cell is text; bars are block characters. All text is escaped here, whatever it came from. Only
tags that nbconvert's sanitizer lets through are used (``div``, ``span``, ``b``, ``ul``, ``li``, ``table``,
``tr``, ``td``): it would show any other as text.
"""

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from profnb.drawing.theme import CELL, MUTED, NUMBER

__all__ = ["Cell", "html_table", "note_list"]

# Text; text and an inline style; or text, a style, and a second text shown fainter behind it.
Cell = str | tuple[str, str] | tuple[str, str, str]

# Where a long name may break: after a separator, and before a capital. An untrusted notebook drops
# overflow-wrap and a sanitized page shows <wbr> as text, but between inline blocks a line may break.
_BREAKS = re.compile(r"(?<=[/:_.])(?=[^/:_.])|(?<=[a-z0-9])(?=[A-Z])")


def _breakable(text: str) -> Markup:
    parts = _BREAKS.split(text)
    if len(parts) == 1:
        return escape(text)
    one = Markup('<span style="display:inline-block">{}</span>')
    return Markup("").join(one.format(part) for part in parts)


def _cell(content: Cell, *, is_number: bool) -> Markup:
    text, style, *faint = (content, "") if isinstance(content, str) else content
    look = ";".join(part for part in (NUMBER if is_number else CELL, style) if part)
    inner = escape(text) if is_number else _breakable(text)
    for more in faint:
        if more:
            inner += Markup(' <span style="{}">{}</span>').format(MUTED, _breakable(more))
    return Markup('<td style="{}">{}</td>').format(look, inner)


def _heading(text: str, meaning: str, *, is_number: bool) -> Markup:
    title = Markup(' title="{}"').format(meaning) if meaning else ""
    look = NUMBER if is_number else CELL
    return Markup('<td style="{}"{}><b>{}</b></td>').format(look, title, text)


def _row(cells: Iterable[Markup]) -> Markup:
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Sequence[bool],
    meanings: Sequence[str] = (),
) -> Markup:
    """A table.

    Args:
        headings: One per column.
        rows: Cells: text, (text, inline style), or (text, inline style, fainter text).
        numbers: Whether each column holds numbers, which align right.
        meanings: What each column holds, for the text under the pointer; empty for nothing.
    """
    head = _row(
        _heading(text, meaning, is_number=is_number)
        for text, meaning, is_number in zip(
            headings, meanings or [""] * len(headings), numbers, strict=True
        )
    )
    body = Markup("").join(
        _row(_cell(cell, is_number=is_number) for cell, is_number in zip(row, numbers, strict=True))
        for row in rows
    )
    return Markup(
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:4px 0;'
        'color:inherit;font-size:inherit">{}{}</table></div>'
    ).format(head, body)


def note_list(notes: Sequence[str], look: str = MUTED) -> Markup:
    """Sentences as a list; nothing where there are none."""
    if not notes:
        return Markup("")
    listed = Markup("").join(
        Markup('<li style="margin:2px 0">{}</li>').format(note) for note in notes
    )
    return Markup('<ul style="margin:6px 0;padding-left:18px;{}">{}</ul>').format(look, listed)
