"""Advice as the report shows it: what to change, the most it can gain, why, and how."""

from collections.abc import Sequence
from textwrap import fill

from markupsafe import Markup

from profnb.core.printable import printable
from profnb.core.units import percent_text
from profnb.drawing.theme import MUTED
from profnb.report.ranking import Advice

__all__ = ["advice_html", "advice_section_text", "advice_text"]

_WIDTH = 110
_NOTHING = "Nothing to change stands out"


def _bound_text(advice: Advice, of: str = "") -> str:
    """What it can save, as the title is followed by it; nothing where no bound is known."""
    if advice.bound_fraction is None:
        return ""
    of = " of the cell" if advice.is_of_cell else of
    return f" (at most {percent_text(advice.bound_fraction)}{of})"


def _place_of(advice: Advice) -> str:
    """Its line, unless a sentence of it names that already."""
    is_said = advice.where in f"{advice.evidence} {advice.code}"
    return "" if is_said else advice.where


def advice_text(advice: Advice) -> str:
    """One piece of advice as lines of plain text."""
    where = f" At {place}." if (place := _place_of(advice)) else ""
    code = f" {advice.code}" if advice.code else ""
    said = f"{advice.title}{_bound_text(advice)}. {advice.evidence}{where}{code}"
    return fill(f"- {printable(said)}", width=_WIDTH, subsequent_indent="  ")


def advice_section_text(listed: Sequence[Advice]) -> str:
    """What to change, as plain text; one line where there is nothing to say."""
    if not listed:
        return f"{_NOTHING}."
    return "What to change\n" + "\n".join(map(advice_text, listed))


def advice_html(listed: Sequence[Advice]) -> Markup:
    """What to change: the gain, what, why, how; one line where there is nothing to say."""
    if not listed:
        return Markup('<div style="margin:6px 0;{}">{}.</div>').format(MUTED, _NOTHING)
    item = Markup(
        '<li style="margin:4px 0"><b>{title}</b><span style="{muted}">{bound}</span>'
        '{where}<div>{evidence}</div><div style="{muted}">{code} {link}</div></li>'
    )
    place = Markup(' <code style="{}">{}</code>')
    items = Markup("").join(
        item.format(
            muted=MUTED,
            title=advice.title,
            bound=_bound_text(advice, " of the time"),
            where=place.format(MUTED, told) if (told := _place_of(advice)) else "",
            evidence=advice.evidence,
            code=advice.code,
            link=advice.link,
        )
        for advice in listed
    )
    return Markup(
        '<div style="margin:8px 0 4px"><b>What to change</b></div>'
        '<ul style="margin:0;padding-left:18px">{}</ul>'
    ).format(items)
