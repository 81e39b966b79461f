"""Rows to HTML tables that are readable with style and script stripped.

Each cell is text; bars are block characters. All text is escaped here, whatever it came from.
"""

import re
from collections.abc import Sequence
from html import escape

from profnb.view.theme import CELL, HEAD, MUTED, NUMBER

__all__ = ["Cell", "html_table"]

# Text; text and an inline style; or text, a style, and a second text shown fainter behind it.
Cell = str | tuple[str, str] | tuple[str, str, str]

# Where a long name may break: after a separator, and before a capital. Style cannot do it, because
# an untrusted notebook drops overflow-wrap.
_BREAKS = re.compile(r"(?<=[/:_.])(?=[^/:_.])|(?<=[a-z0-9])(?=[A-Z])")


def _breakable(text: str) -> str:
    return "<wbr>".join(map(escape, _BREAKS.split(text)))


def _cell(tag: str, content: Cell, is_number: bool, extra: str = "") -> str:
    text, style, *faint = (content, "") if isinstance(content, str) else content
    look = ";".join(part for part in (NUMBER if is_number else CELL, extra, style) if part)
    inner = escape(text) if is_number else _breakable(text)
    inner += "".join(f' <span style="{MUTED}">{_breakable(more)}</span>' for more in faint if more)
    return f'<{tag} style="{escape(look)}">{inner}</{tag}>'


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Sequence[bool],
    css_class: str = "",
) -> str:
    """A table.

    Args:
        headings: One per column.
        rows: Cells: text, (text, inline style), or (text, inline style, fainter text).
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
        f'<div style="overflow-x:auto"><table class="{escape(css_class)}" style="border-collapse:collapse;margin:4px 0;'
        f'color:inherit;font-size:inherit"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
