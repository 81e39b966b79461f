"""Rows to HTML tables that are readable with style and script stripped.

Each cell is text; bars are block characters. All text is escaped here, whatever it came from.
"""

from collections.abc import Sequence
from html import escape

from profnb.view.theme import CELL, HEAD, NUMBER

__all__ = ["Cell", "html_table"]

Cell = str | tuple[str, str]


def _cell(tag: str, content: Cell, is_number: bool, extra: str = "") -> str:
    text, style = content if isinstance(content, tuple) else (content, "")
    look = ";".join(part for part in (NUMBER if is_number else CELL, extra, style) if part)
    return f'<{tag} style="{escape(look)}">{escape(text)}</{tag}>'


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Sequence[bool],
    css_class: str = "",
) -> str:
    """A table.

    Args:
        headings: One per column.
        rows: Cells: text, or (text, inline style).
        numbers: Whether each column holds numbers, which align right.
        css_class: A class for our script to find it by.
    """
    head = "".join(
        _cell("th", text, is_number, HEAD)
        for text, is_number in zip(headings, numbers, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(_cell("td", cell, is_number) for cell, is_number in zip(row, numbers, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<table class="{escape(css_class)}" style="border-collapse:collapse;margin:4px 0;'
        f'color:inherit;font-size:inherit"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )
