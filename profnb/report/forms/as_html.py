"""A report as HTML that stands alone in any frontend.

Layer A of the design: real tables and text bars that read well with script, style and SVG stripped.
What comes from the trace travels as escaped text or as JSON in an attribute.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from markupsafe import Markup

from profnb.drawing.html_table import Cell, html_table, note_list
from profnb.drawing.markup import without_controls
from profnb.drawing.section import section_block, titled_block
from profnb.drawing.theme import BAR, MUTED, ROOT, colour_of
from profnb.report.advice import advice_html
from profnb.report.content import Content, ShareRow
from profnb.report.text import Fact
from profnb.subjects.cell.section import CellWords

__all__ = ["content_html", "share_table_html"]

_BAR_MARKS = 72


def content_html(content: Content, figure: Markup, section_figures: Sequence[Markup]) -> Markup:
    """The report as a fragment of a page, with the HTML of figures inside.

    Args:
        content: What it shows.
        figure: Stands between the headline and the tables; empty for none.
        section_figures: One per section, empty for none; each stands below its table.
    """
    headline = Markup('<div style="font-size:17px;font-weight:600;margin:4px 0 0">{}</div>')
    answer = Markup('<div style="margin:0 0 6px">{}</div>') if content.answer else Markup("")
    parts = [
        headline.format(content.headline),
        answer.format(content.answer),
        Markup("") if content.cell is None else _cell_html(content.cell),
        _facts_html(content.facts),
        Markup("") if content.advice is None else advice_html(content.advice, content.again),
        note_list(content.notes),
        figure,
    ]
    if content.shares:
        parts.append(titled_block("Mean step", share_table_html(content.shares)))
    tabs: dict[str, Markup] = {}
    for section, chart in zip(content.sections, section_figures, strict=True):
        tabs[section.tab] = tabs.get(section.tab, Markup("")) + section_block(section) + chart
    tab = Markup('<div class="profnb-tab" data-tab="{}">{}</div>')
    parts.extend(tab.format(name, body) for name, body in tabs.items())
    if content.foot:
        foot = Markup('<div class="profnb-foot" style="{};font-size:11px;margin:10px 0 0">{}</div>')
        parts.append(foot.format(MUTED, content.foot))
    whole = Markup('<div class="profnb" style="{}">{}</div>').format(ROOT, Markup("").join(parts))
    return without_controls(whole)


def _cell_html(cell: CellWords) -> Markup:
    """Where the cell's time went: the sentence, in which each part has its colour, and one bar."""
    last = len(cell.shares) - 1
    named = Markup(" ").join(
        Markup(
            '<span style="display:inline-block"><span style="color:{}">■</span> {}{}</span>'
        ).format(share.colour, _with_code(share.text), "." if row == last else ",")
        for row, share in enumerate(cell.shares)
    )
    marks = _marks([share.fraction for share in cell.shares])
    bar = Markup("").join(
        Markup('<span style="color:{}">{}</span>').format(share.colour, "█" * count)
        for share, count in zip(cell.shares, marks, strict=True)
        if count
    )
    return Markup(
        '<div style="margin:0 0 2px">{} {}</div><div style="{};overflow:hidden">{}</div>'
    ).format(cell.head, named, BAR, bar)


def _with_code(text: str) -> Markup:
    """Text whose names stand in backticks, with them in a font for code instead."""
    code, plain = Markup('<span style="font-family:monospace">{}</span>'), Markup("{}")
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a name has one itself
        return plain.format(text)
    return Markup("").join((code if at % 2 else plain).format(p) for at, p in enumerate(pieces))


def _marks(fractions: Sequence[float]) -> list[int]:
    """How many marks of the bar each part gets: all of them together, and none more than half a mark off."""
    ends = [round(end * _BAR_MARKS) for end in accumulate(fractions)]
    return [end - begin for begin, end in pairwise([0, *ends])]


def _facts_html(facts: Sequence[Fact]) -> Markup:
    """The headline figures, as a table of one row so that they stay apart without style."""
    if not facts:
        return Markup("")
    cell = Markup(
        '<td style="border:0;background:none;padding:2px 26px 4px 0;vertical-align:top;text-align:left">'
        '<div style="{muted}">{name}</div> '
        '<div style="font-size:16px;font-weight:600">{value}</div> '
        '<div style="{muted};font-size:11px">{remark}</div></td>'
    )
    cells = Markup("").join(
        cell.format(muted=MUTED, name=fact.name, value=fact.value, remark=fact.remark)
        for fact in facts
    )
    return Markup(
        '<table style="border:0;margin:4px 0;color:inherit;text-align:left">'
        '<tr style="display:flex;flex-wrap:wrap;background:none;text-align:left">{}</tr></table>'
    ).format(cells)


def share_table_html(shares: Sequence[ShareRow]) -> Markup:
    """The mean step by category, with bars."""
    rows: list[list[Cell]] = [
        [name, (bar, f"{BAR};color:{colour_of(name)}"), mean, share]
        for name, bar, mean, share in shares
    ]
    return html_table(("category", "", "mean per step", "share"), rows, (False, False, True, True))
