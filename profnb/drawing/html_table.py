"""Rows to HTML tables that are readable with style and script stripped.

Each cell is text; bars are block characters. All text is escaped here, whatever it came from. Only
tags that nbconvert's sanitizer lets through are used (``div``, ``span``, ``b``, ``ul``, ``li``, ``table``,
``tr``, ``td``): it would show any other as text.
"""

import re
from collections.abc import Sequence
from html import escape

from profnb.drawing.theme import CELL, MUTED, NUMBER

__all__ = ["Cell", "html_table"]

# Text; text and an inline style; or text, a style, and a second text shown fainter behind it.
Cell = str | tuple[str, str] | tuple[str, str, str]

# Where a long name may break: after a separator, and before a capital. An untrusted notebook drops
# overflow-wrap and a sanitized page shows <wbr> as text, but between inline blocks a line may break.
_BREAKS = re.compile(r"(?<=[/:_.])(?=[^/:_.])|(?<=[a-z0-9])(?=[A-Z])")


def _breakable(text: str) -> str:
    parts = _BREAKS.split(text)
    if len(parts) == 1:
        return escape(text)
    return "".join(f'<span style="display:inline-block">{escape(part)}</span>' for part in parts)


def _cell(content: Cell, *, is_number: bool) -> str:
    text, style, *faint = (content, "") if isinstance(content, str) else content
    look = ";".join(part for part in (NUMBER if is_number else CELL, style) if part)
    inner = escape(text) if is_number else _breakable(text)
    inner += "".join(f' <span style="{MUTED}">{_breakable(more)}</span>' for more in faint if more)
    return f'<td style="{escape(look)}">{inner}</td>'


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Sequence[bool],
) -> str:
    """A table.

    Args:
        headings: One per column.
        rows: Cells: text, (text, inline style), or (text, inline style, fainter text).
        numbers: Whether each column holds numbers, which align right.
    """
    head = _row(
        [
            f'<td style="{escape(NUMBER if is_number else CELL)}"><b>{escape(text)}</b></td>'
            for text, is_number in zip(headings, numbers, strict=True)
        ]
    )
    body = "".join(
        _row(
            [_cell(cell, is_number=is_number) for cell, is_number in zip(row, numbers, strict=True)]
        )
        for row in rows
    )
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:4px 0;'
        f'color:inherit;font-size:inherit">{head}{body}</table></div>'
    )
