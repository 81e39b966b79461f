"""Advice as the report shows it: what to change, the most it can gain, why, and how."""

from collections.abc import Sequence
from html import escape
from textwrap import fill

from profnb.core.units import percent_text
from profnb.drawing.plain import printable
from profnb.drawing.theme import MUTED
from profnb.report.ranking import Advice

__all__ = ["advice_html", "advice_section_text", "advice_text"]

_WIDTH = 110
_NOTHING = "Nothing to change stands out"


def _bound_text(advice: Advice) -> str:
    """What it can save, as the title is followed by it; nothing where no bound is known."""
    if advice.bound_fraction is None:
        return ""
    return f" (at most {percent_text(advice.bound_fraction)})"


def advice_text(advice: Advice) -> str:
    """One piece of advice as lines of plain text."""
    said = f"{advice.title}{_bound_text(advice)}. {advice.evidence} {advice.code}"
    return fill(f"- {printable(said)}", width=_WIDTH, subsequent_indent="  ")


def advice_section_text(listed: Sequence[Advice]) -> str:
    """What to change, as plain text; one line where there is nothing to say."""
    if not listed:
        return f"{_NOTHING}."
    return "What to change\n" + "\n".join(map(advice_text, listed))


def advice_html(listed: Sequence[Advice]) -> str:
    """What to change: the gain, what, why, how; one line where there is nothing to say."""
    if not listed:
        return f'<div style="margin:6px 0;{MUTED}">{_NOTHING}.</div>'
    items = "".join(
        f'<li style="margin:4px 0"><b>{escape(advice.title)}</b> '
        f'<span style="{MUTED}">{_bound_text(advice).replace(")", " of the time)")}</span>'
        f"<div>{escape(advice.evidence)}</div>"
        f'<div style="{MUTED}">{escape(advice.code)} {escape(advice.link)}</div></li>'
        for advice in listed
    )
    return (
        '<div style="margin:8px 0 4px"><b>What to change</b></div>'
        f'<ul style="margin:0;padding-left:18px">{items}</ul>'
    )
