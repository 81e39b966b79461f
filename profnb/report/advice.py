"""Advice as the report shows it: the gain at most, what to do, why, where, and what to write."""

from collections.abc import Sequence
from textwrap import fill
from urllib.parse import urlsplit

from markupsafe import Markup

from profnb.advice.proposals import Advice, saves_text
from profnb.core.glossary import explain
from profnb.core.printable import printable
from profnb.drawing.theme import CHIP, MUTED
from profnb.report.doing.code_pieces import CodePiece, code_pieces

_WIDTH = 110
_NOTHING = "Nothing to change stands out"
_UNBOUNDED = "The saving is unknown in this trace."
_CODE = Markup('<span style="font-family:monospace">{}</span>')
_CHIP = Markup('<code class="profnb-code" style="{}">{}</code>')


def _place_of(advice: Advice) -> str:
    """Its line, unless a sentence of it names that already."""
    is_said = advice.where in f"{advice.evidence} {advice.code}"
    return "" if is_said else advice.where


def advice_text(advice: Advice) -> str:
    """One piece of advice as lines of plain text."""
    where = f" At {place}." if (place := _place_of(advice)) else ""
    code = f" {advice.code}" if advice.code else ""
    saves = f" (saves {text})" if (text := saves_text(advice)) else ""
    said = f"{advice.title}{saves}. {advice.evidence}{where}{code}"
    return fill(f"- {printable(said)}", width=_WIDTH, subsequent_indent="  ")


def first_change(listed: Sequence[Advice]) -> str:
    """What to do first, and what that saves, as a clause."""
    saves = saves_text(listed[0])
    return f"{listed[0].title}{f', saves {saves}' if saves else ''}"


def advice_section_text(listed: Sequence[Advice], again: str = "") -> str:
    """What to change, as plain text; one line where there is nothing to say.

    Args:
        listed: The advice, in order.
        again: The line over a cell that measures a change; "" where the result has no name.
    """
    if not listed:
        return f"{_NOTHING}."
    measure = f"\n  To measure a change: {printable(again)}" if again else ""
    return "What to change\n" + "\n".join(map(advice_text, listed)) + measure


def advice_html(listed: Sequence[Advice], again: str = "") -> Markup:
    """What to change, a row each: the gain, what, why, how; one line where there is nothing to say.

    The script adds a button to each piece of code that copies it, and folds all rows but the first three.

    Args:
        listed: The advice, in order.
        again: The line over a cell that measures a change; "" where the result has no name.
    """
    if not listed:
        return Markup('<div style="margin:6px 0;{}">{}.</div>').format(MUTED, _NOTHING)
    measure = Markup(
        '<div style="margin:4px 0 0"><span style="{}">To measure a change, over the changed cell:</span> '
        "{}</div>"
    ).format(MUTED, _chip(again))
    return Markup(
        '<div class="profnb-advice" style="margin:8px 0 4px"><div role="heading" aria-level="3">'
        '<b>What to change</b></div><ul style="margin:0;padding:0;list-style:none">{}</ul>{}</div>'
    ).format(Markup("").join(map(_row_html, listed)), measure if again else Markup(""))


def _row_html(advice: Advice) -> Markup:
    """One row: the gain, and beside it what to change, why, and how."""
    return Markup(
        '<li style="display:flex;margin:0;padding:5px 0;list-style:none;'
        'border-top:1px solid rgba(128,128,128,0.25)">'
        '<div style="flex:none;width:140px;padding-right:8px" title="{meaning}">{gain}</div>'
        '<div style="flex:1;min-width:0"><b>{title}</b> <span>{evidence}</span>'
        "<div>{code}{where}{link}</div></div></li>"
    ).format(
        meaning=explain("saving") if saves_text(advice) else _UNBOUNDED,
        gain=_gain_html(advice),
        title=with_names(f"{advice.title}."),
        evidence=with_names(advice.evidence),
        code=_with_code(advice.code),
        where=_where_html(_place_of(advice)),
        link=_link_html(advice.link),
    )


def _gain_html(advice: Advice) -> Markup:
    saves, _, whole = saves_text(advice).partition(" of ")
    if not saves:
        return Markup('<span style="{}">saves: not known</span>').format(MUTED)
    return Markup(
        '<span style="{}">saves</span> <b style="font-size:15px;white-space:nowrap">{}</b>'
        '<span style="{}"> of {}</span>'
    ).format(MUTED, saves, MUTED, whole)


def with_names(text: str) -> Markup:
    """Text whose names stand in backticks, with them in a font for code instead."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a name has one itself
        return Markup("{}").format(text)
    return Markup("").join(
        (_CODE if at % 2 else Markup("{}")).format(piece) for at, piece in enumerate(pieces)
    )


def _with_code(sentence: str) -> Markup:
    """A sentence whose code stands in a font for code, and what is to be written in a chip."""
    return Markup("").join(map(_piece_html, code_pieces(sentence)))


def _piece_html(piece: CodePiece) -> Markup:
    if piece.is_to_write:
        return _chip(piece.text)
    return (_CODE if piece.is_code else Markup("{}")).format(piece.text)


def _chip(code: str) -> Markup:
    return _CHIP.format(CHIP, code)


def _where_html(place: str) -> Markup:
    if not place:
        return Markup("")
    return Markup(' <span style="{}">at</span> {}').format(MUTED, _CODE.format(place))


def _link_html(address: str) -> Markup:
    """Where it is explained, as a link that says where it leads; nothing for what is no web page."""
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname:
        return Markup("")
    return Markup(
        ' <a href="{}" target="_blank" rel="noopener noreferrer" style="color:inherit;'
        'text-decoration:underline">why ({})</a>'
    ).format(address, parts.hostname.removeprefix("www."))
