"""HTML that a type tells from text, so that a name from a trace is escaped everywhere and nothing twice.

A function that makes HTML returns ``Markup`` and builds it from a literal: ``Markup("<b>{}</b>").format(x)``
escapes what is plain text and leaves what is ``Markup``. Nothing in profnb writes a tag outside of such a
literal or escapes by hand; a test looks for both. What is no literal becomes ``Markup`` here alone.

A table is HTML that is readable with style and script stripped, and aligned plain text. Each cell is text;
bars are block characters. Only tags that nbconvert's sanitizer lets through are used (``div``, ``span``,
``b``, ``ul``, ``li``, ``table``, ``tr``, ``td``): it would show any other as text.
"""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Any

from markupsafe import Markup, escape

from profnb.core.printable import UnitWrapper, cut_middle, printable, terminal_columns, unbroken
from profnb.core.sharing import PIECE
from profnb.drawing.theme import MUTED, PLAIN_CELL

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Text; text and an inline style; then a second text shown fainter behind it, and the whole name for the
# text under the pointer.
Cell = str | tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, str]
# Where a long name may break: between the parts of a path, never inside a word. An untrusted notebook drops
# overflow-wrap and a sanitized page shows <wbr> as text, but between inline blocks a line may break.
_BREAKS = re.compile(r"(?<=[/:])(?=[^/:])")
_BAR = re.compile(r"[\s·]*[\u2580-\u259f][\u2580-\u259f\s·]*|·{2,}")
_LONG_WORD, _LONGEST_WORD = re.compile(r"\S{49,}"), 48
_NOTHING = Markup("")
CODE_FONT = Markup('<span style="font-family:monospace">{}</span>')
_LEAST_COLUMN = 12  # characters of a word or a number with its unit, below which nothing reads


class _CellWrapper(UnitWrapper):
    """Breaks a cell at spaces, and a name in it behind a slash, a colon or a dash."""

    wordsep_re = re.compile(r"(\s+|\S*?\w[/:-]+(?=[^\s/:-]))")


def _wrapped(cell: str, width: int) -> list[str]:
    """Break a cell that is wider into lines, which keep its indent as far as that leaves room."""
    if len(cell) <= width:
        return [cell]
    text = cell.lstrip()
    indent = " " * min(len(cell) - len(text), width // 3)
    return _CellWrapper(width, initial_indent=indent, subsequent_indent=indent).wrap(text)


def without_controls(html: Markup) -> Markup:
    """Replace characters that are no text: controls, and those that turn what follows around."""
    return Markup(_CONTROLS.sub("\ufffd", str(html)))  # noqa: S704  # nothing becomes markup by this


def figure_text(text: str) -> str:
    """Escape text for a figure, whose labels and hover texts plotly reads as a little HTML."""
    return str(escape(text))


def json_attribute(value: Any) -> Markup:
    """Write a value as an attribute, as JSON in single quotes: an escaped double one takes five letters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for mark, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;")):
        text = text.replace(mark, written)
    return Markup("'{}'").format(Markup(text))  # noqa: S704  # escaped above


def script_element(program: str) -> Markup:
    """Make a program of ours or plotly's, never what comes from a trace, an element of a page."""
    closed = program.replace("</script", "<\\/script").replace("\r\n", "\n")
    return Markup("<script>{}</script>").format(Markup(closed))  # noqa: S704  # our own program


def content_policy(*scripts: Markup) -> Markup:
    """Make the element of a page's head that says what it may do: run these programs, and nothing else.

    No network, no frame, no form, no other program: should a name from a trace ever become markup, it could
    do nothing. Styles stand in attributes, and charts are saved as pictures, so both are allowed.

    Args:
        scripts: Elements that ``script_element`` made; empty ones count for nothing.
    """
    hashes, none = [], "'none'"
    for script in filter(None, scripts):
        program = str(script).removeprefix("<script>").removesuffix("</script>")
        digest = hashlib.sha256(program.encode("utf-8", "replace")).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode('ascii')}'")
    rules = (
        f"default-src 'none'; script-src {' '.join(hashes) or none}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return Markup('<meta http-equiv="Content-Security-Policy" content="{}">').format(rules)


def plain_text(cell: Cell) -> str:
    """Take the text of a cell, and the fainter one behind it."""
    text = cell if isinstance(cell, str) else "  ".join(filter(None, (cell[0], *cell[2:3])))
    return text.replace("\u00a0", " ")


def fitted(cell: Cell, *, is_number: bool = False) -> tuple[str, str, str, str]:
    """Fit a cell: long words lose their middle, and are whole under the pointer.

    Returns:
        Text, inline style, fainter text, text under the pointer; each "" for nothing.
    """
    text, style, faint, whole = (cell, "", "", "") if isinstance(cell, str) else (*cell, "", "")[:4]
    if is_number or "white-space" in style:  # code keeps its form
        return text, style, faint, whole
    shown, shown_faint = (
        _LONG_WORD.sub(lambda word: cut_middle(word.group(), _LONGEST_WORD), one)
        for one in (text, faint)
    )
    if (shown, shown_faint) != (text, faint) and not whole:
        whole = f"{text} {faint}".rstrip()
    return shown, style, shown_faint, whole


def _breakable(text: str) -> Markup:
    parts = _BREAKS.split(text)
    return escape(text) if len(parts) == 1 else _NOTHING.join(map(PIECE.format, parts))


def _td(
    inner: Markup, style: str, title: str, *, is_number: bool, role: Markup = _NOTHING
) -> Markup:
    """A cell; its side stands in it, the rest of its look in ``look.js``."""
    look = style if is_number else ";".join(filter(None, (PLAIN_CELL, style)))
    attributes = [
        role,
        Markup(" align=right") if is_number else _NOTHING,
        Markup(" nowrap") if is_number and not role else _NOTHING,  # no number without its unit
        Markup(' style="{}"').format(look) if look else _NOTHING,
        Markup(' title="{}"').format(title) if title else _NOTHING,
    ]
    return Markup("<td{}>{}</td>").format(_NOTHING.join(attributes), inner)


def _cell(content: Cell, *, is_number: bool) -> Markup:
    text, style, faint, whole = fitted(content, is_number=is_number)
    inner = escape(unbroken(text)) if is_number else _breakable(text)
    if _BAR.fullmatch(text):  # a picture: the number stands in a cell of its own
        inner = Markup('<span aria-hidden="true">{}</span>').format(text)
    if faint:
        inner += Markup(' <span style="{}">{}</span>').format(MUTED, _breakable(faint))
    return _td(inner, style, whole, is_number=is_number)


def _heading(text: str, meaning: str, *, is_number: bool) -> Markup:
    if not text:
        return _td(_NOTHING, "", "", is_number=is_number)
    inner, role = Markup("<b>{}</b>").format(text), Markup(' role="columnheader"')
    return _td(inner, "", meaning, is_number=is_number, role=role)  # a sanitizer shows <th> as text


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Sequence[bool],
    meanings: Sequence[str] = (),
) -> Markup:
    """Write rows as an HTML table.

    Args:
        headings: One per column.
        rows: Cells: text, (text, inline style), or (text, inline style, fainter text).
        numbers: Whether each column holds numbers, which align right.
        meanings: What each column holds, for the text under the pointer; empty for nothing.
    """
    columns = zip(headings, meanings or [""] * len(headings), numbers, strict=True)
    lines = [[_heading(text, meaning, is_number=one) for text, meaning, one in columns]]
    for row in rows:
        lines.append([_cell(cell, is_number=one) for cell, one in zip(row, numbers, strict=True)])
    row_element = Markup("<tr>{}</tr>").format
    table = Markup('<div style="overflow-x:auto"><table cellpadding="4">{}</table></div>')
    return table.format(_NOTHING.join(row_element(_NOTHING.join(line)) for line in lines))


def with_names(text: str) -> Markup:
    """Text whose names stand in backticks, with them in a font for code instead."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a name has one itself
        return escape(unbroken(text))
    return Markup("").join(
        CODE_FONT.format(piece) if at % 2 else escape(unbroken(piece))
        for at, piece in enumerate(pieces)
    )


def led_names(text: str) -> Markup:
    """Text with names, from each of which the script leads to the node of the picture that has it."""
    return Markup('<span class="profnb-named">{}</span>').format(with_names(text))


def note_list(notes: Sequence[str], look: str = MUTED) -> Markup:
    """Write sentences as a list; nothing where there are none."""
    if not notes:
        return _NOTHING
    row = Markup('<li style="margin:2px 0">{}</li>')
    listed = _NOTHING.join(row.format(with_names(note)) for note in notes)
    return Markup('<ul style="margin:6px 0;padding-left:18px;{}">{}</ul>').format(look, listed)


def plain_table(rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> str:
    """Write rows as aligned columns of plain text; number columns align right.

    In a terminal that is narrower, the widest columns give way, and their cells go on below. Columns that do
    not fit at all follow as a second table, which begins with the first column again.
    """
    if not rows:
        return ""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    least = [
        min(width, max(_LEAST_COLUMN, *(len(row[at]) for row in rows[1:] if is_number), 0))
        for at, (width, is_number) in enumerate(zip(widths, numbers, strict=True))
    ]
    columns = terminal_columns() or sys.maxsize
    fitting = sum(end <= columns + 2 for end in accumulate(width + 2 for width in least))
    if 2 <= fitting < len(widths):
        parts = (slice(1, fitting), slice(fitting, None))
        return "\n".join(
            plain_table([[row[0], *row[part]] for row in rows], [numbers[0], *numbers[part]])
            for part in parts
        )
    room = columns - 2 * (len(widths) - 1)
    for giving in (True, False):  # what numbers are called, then texts
        columns_of_kind = [at for at, one in enumerate(numbers) if one is giving]
        while sum(widths) > room:
            wide = [at for at in columns_of_kind if widths[at] > least[at]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    places = [(str.rjust if is_number else str.ljust) for is_number in numbers]
    lines = (
        line for row in rows for line in zip_longest(*map(_wrapped, row, widths), fillvalue="")
    )
    shown = (
        [place(cell, width) for place, cell, width in zip(places, line, widths, strict=True)]
        for line in lines
    )
    return "\n".join("  ".join(line).rstrip() for line in shown)
