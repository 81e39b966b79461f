"""Rows to HTML tables that are readable with style and script stripped.

Each cell is text; bars are block characters. All text is escaped here, whatever it came from. Only
tags that nbconvert's sanitizer lets through are used (``div``, ``span``, ``b``, ``ul``, ``li``, ``table``,
``tr``, ``td``): it would show any other as text.
"""

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from profnb.core.printable import cut_middle
from profnb.core.sharing import PIECE
from profnb.drawing.theme import CELL, MUTED, NUMBER

# Text; text and an inline style; then a second text shown fainter behind it, and the whole name for the
# text under the pointer.
Cell = str | tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, str]

# Where a long name may break: between the parts of a path, never inside a word. An untrusted notebook drops
# overflow-wrap and a sanitized page shows <wbr> as text, but between inline blocks a line may break.
_BREAKS = re.compile(r"(?<=[/:])(?=[^/:])")
_BAR = re.compile(r"[\s·]*[\u2580-\u259f][\u2580-\u259f\s·]*|·{2,}")
_LONG_WORD, _LONGEST_WORD = re.compile(r"\S{49,}"), 48


def fitted(cell: Cell, *, is_number: bool = False) -> tuple[str, str, str, str]:
    """A cell as it is shown: long words lose their middle, and are whole under the pointer.

    Returns:
        Text, inline style, fainter text, text under the pointer; each "" for nothing.
    """
    text, style, faint, whole = (cell, "", "", "") if isinstance(cell, str) else (*cell, "", "")[:4]
    if is_number or "white-space" in style:  # code keeps its form
        return text, style, faint, whole
    shown, shown_faint = _without_middles(text), _without_middles(faint)
    if (shown, shown_faint) != (text, faint) and not whole:
        whole = f"{text} {faint}".rstrip()
    return shown, style, shown_faint, whole


def _without_middles(text: str) -> str:
    return _LONG_WORD.sub(lambda word: cut_middle(word.group(), _LONGEST_WORD), text)


def _breakable(text: str) -> Markup:
    parts = _BREAKS.split(text)
    if len(parts) == 1:
        return escape(text)
    return Markup("").join(PIECE.format(part) for part in parts)


def _cell(content: Cell, *, is_number: bool) -> Markup:
    text, style, faint, whole = fitted(content, is_number=is_number)
    look = ";".join(part for part in (NUMBER if is_number else CELL, style) if part)
    inner = escape(text) if is_number else _breakable(text)
    if _BAR.fullmatch(text):  # a picture: the number stands in a cell of its own
        inner = Markup('<span aria-hidden="true">{}</span>').format(text)
    if faint:
        inner += Markup(' <span style="{}">{}</span>').format(MUTED, _breakable(faint))
    title = Markup(' title="{}"').format(whole) if whole else ""
    return Markup('<td style="{}"{}>{}</td>').format(look, title, inner)


def _heading(text: str, meaning: str, *, is_number: bool) -> Markup:
    title = Markup(' title="{}"').format(meaning) if meaning else ""
    look = NUMBER.replace("white-space:nowrap", "white-space:normal") if is_number else CELL
    if not text:
        return Markup('<td style="{}"></td>').format(look)
    # A sanitizer shows <th> as text; the script makes one of it.
    return Markup('<td role="columnheader" style="{}"{}><b>{}</b></td>').format(look, title, text)


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
