"""A report as HTML that stands alone in any frontend: the answer, what to change, parts to open.

Layer A of the design: real tables and text bars that read well with script, style and SVG stripped.
What comes from the trace travels as escaped text or as JSON in an attribute. Charts are values in attributes
too, drawn by the report's script where they stand: a sanitizer that shows ``<svg>`` as text finds none here.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from profnb.drawing.drawn_tables import Cell, html_table, note_list
from profnb.drawing.figures import figure_html
from profnb.drawing.markup import without_controls
from profnb.drawing.section import Section, section_block, titled_block
from profnb.drawing.theme import BAR, MUTED, ROOT, colour_of, ink_on
from profnb.report.advice import advice_html, first_change, with_names
from profnb.report.cell_words import CellWords
from profnb.report.content import Content, ShareRow
from profnb.report.step_chart import step_table_html, strip_caption, strip_figure
from profnb.report.text import Fact

_STEPS = "Steps"
_PER_LETTER = 0.0075  # of the bar: room for a letter on a page of usual width
_LINE = Markup('<span style="{}" data-part="facts">{}</span>')
_PART = Markup('<div data-part="{}">{}</div>')


def content_html(content: Content, *, live_id: str = "", is_page: bool = False) -> Markup:
    """The report as a fragment of a page.

    Args:
        content: What it shows.
        live_id: What the kernel that answers this report's questions is called; "" for none.
        is_page: Whether it stands in a page of its own, where plotly.js draws what can be zoomed.
    """
    parts = [
        _head_html(content),
        Markup("") if content.advice is None else advice_html(content.advice, content.again),
        _tabs_html(content, is_page=is_page),
        _about_html(content),
    ]
    live = Markup(' data-live="{}"').format(live_id) if live_id else Markup("")
    whole = Markup('<div class="profnb" style="{}"{}>{}</div>').format(
        ROOT, live, Markup("").join(parts)
    )
    return without_controls(whole)


def _head_html(content: Content) -> Markup:
    """What is read first: what was not seen, the answer, what to do, facts, the typical step, the steps."""
    alarm = f"{content.alarm} {content.unmeasured}".strip()
    amber = Markup(
        '<div style="border-left:4px solid #c98500;background:rgba(201,133,0,.15);padding:4px 10px;'
        'margin:2px 0 4px"><b>{}</b></div>'
    )
    first = Markup(
        '<div role="heading" aria-level="2" style="font-size:18px;font-weight:600;line-height:1.3;'
        'margin:4px 0 2px">{}</div>'
    )
    parts = [amber.format(alarm) if alarm else Markup("")]
    said = [content.lead, content.headline] if content.lead else [content.headline]
    if content.cell is None:
        parts.append(first.format(said.pop(0)))
    else:
        parts += [first.format(_cell_sentence(content.cell)), _cell_bar(content.cell)]
    first_of_all = (
        Markup("<b>→ {}</b> · ").format(with_names(first_change(content.advice)))
        if content.advice
        else ""
    )
    line = _LINE.format(MUTED, _facts_line(said, content.facts))
    parts.append(Markup('<div style="margin:0 0 4px">{}{}</div>').format(first_of_all, line))
    if content.shares:
        parts.append(share_bar_html(content.shares))
    if content.chart is not None:
        strip = figure_html(strip_figure(content.chart), step_table_html(content.chart))
        caption = strip_caption(content.chart)
        parts.append(
            strip + Markup('<div style="{};font-size:11px">{}</div>').format(MUTED, caption)
        )
    return Markup("").join(parts)


def _facts_line(first: Sequence[str], facts: Sequence[Fact]) -> Markup:
    """The figures of the headline in a line, what qualifies each under the pointer."""
    said = Markup('<span title="{}" style="white-space:nowrap">{} {}</span>')
    fact_texts = [
        said.format(fact.remark, fact.name, fact.value)
        for fact in facts
        if fact.name not in ("step time, median", "step time")  # the headline has it
    ]
    return Markup(" · ").join([*map(Markup("{}").format, first), *fact_texts])


def share_bar_html(shares: Sequence[ShareRow]) -> Markup:
    """The typical step as one bar of the full width; its parts are text, so it reads without style too."""
    # A label that is wider than its part goes to a second line, which nobody sees: none is cut in a word.
    label = Markup(
        '<span style="display:inline-block;width:1px;height:26px;vertical-align:top"></span>'
        '<span style="display:inline-block;white-space:nowrap;vertical-align:top;padding:0 5px">{}</span>'
    )
    pieces = [
        (
            f"{name}: {mean} of a step, {share}",
            share.replace(" ", "").replace("<", ""),
            colour_of(name),
            label.format(text) if (text := _bar_label(name, share)) else Markup(""),
        )
        for name, _, mean, share in shares
    ]
    return _bar_html("bar", pieces)


def _bar_html(part: str, pieces: Sequence[tuple[str, str, str, Markup]]) -> Markup:
    """A bar of the full width: of each piece what stands under the pointer, its width, colour and label."""
    piece = Markup(
        '<span title="{}" style="display:block;width:{};background:{};color:{};overflow:hidden;'
        'height:26px">{}</span> '
    )
    made = [
        piece.format(title, width, colour, ink_on(colour), label)
        for title, width, colour, label in pieces
    ]
    return Markup(
        '<div data-part="{}" style="display:flex;height:26px;line-height:26px;border-radius:3px;'
        'overflow:hidden;font-size:12px;margin:2px 0 6px">{}</div>'
    ).format(part, Markup("").join(made))


def _bar_label(name: str, share: str) -> str:
    """As much as there is room for; the rest stands under the pointer, and all in the table of the step."""
    room = float(share.strip("<% ")) / 100 / _PER_LETTER
    return next((text for text in (f"{name} {share}", name) if len(text) <= room), "")


def _tabs_html(content: Content, *, is_page: bool) -> Markup:
    """The parts that the script makes tabs of: the ops first, then the typical step in numbers."""
    tabs: dict[str, Markup] = {}
    for section in content.sections:
        block = _section_html(section, is_first=section.tab not in tabs, is_page=is_page)
        tabs[section.tab] = tabs.get(section.tab, Markup("")) + block
    if content.shares:
        ordered = list(tabs.items())
        tabs = dict([*ordered[:1], (_STEPS, _steps_html(content.shares)), *ordered[1:]])
    tab = Markup('<div class="profnb-tab" data-tab="{}">{}</div>')
    return Markup("").join(tab.format(name, body) for name, body in tabs.items())


def _section_html(section: Section, *, is_first: bool, is_page: bool) -> Markup:
    """A section with its chart; no title where its tab says the same."""
    chart = Markup("")
    if section.figure is not None:
        chart = figure_html(section.figure, Markup(""), is_interactive=is_page)
    body = section_block(section)
    if is_first and section.title == section.tab:
        body = Markup('<div style="margin:4px 0 10px">{}</div>').format(section.html)
    return _PART.format(f"{section.tab}/{section.title}", body + chart)


def _steps_html(shares: Sequence[ShareRow]) -> Markup:
    return _PART.format(_STEPS, titled_block("Mean step", share_table_html(shares)))


def live_parts(facts: str, shares: Sequence[ShareRow], sections: Sequence[Section]) -> Markup:
    """What of a report is of some steps, to take the place of what it shows of all.

    Args:
        facts: What steps they are.
        shares: Their mean step.
        sections: Tables of theirs; what is not among them stays as it is.
    """
    first: Mapping[str, Section] = {section.tab: section for section in reversed(sections)}
    return Markup("").join(
        [
            _LINE.format(MUTED, facts),
            share_bar_html(shares),
            _steps_html(shares),
            *(
                _section_html(one, is_first=one is first[one.tab], is_page=False)
                for one in sections
            ),
        ]
    )


def _about_html(content: Content) -> Markup:
    """What qualifies the figures and what is missing: folded where scripts run."""
    facts = _facts_table(content.facts)
    foot = Markup('<div class="profnb-foot" style="{};font-size:11px;margin:6px 0 0">{}</div>')
    body = facts + note_list(content.notes)
    if content.foot:
        body += foot.format(MUTED, content.foot)
    if not body:
        return Markup("")
    notes = len(content.notes)
    count = "" if not notes else " (1 note)" if notes == 1 else f" ({notes} notes)"
    return Markup('<div class="profnb-fold" data-title="{}">{}</div>').format(
        f"about this measurement{count}", body
    )


def _facts_table(facts: Sequence[Fact]) -> Markup:
    rows = [(fact.name, fact.value, fact.remark) for fact in facts if fact.remark]
    return html_table(("", "", ""), rows, (False, True, False)) if rows else Markup("")


def _cell_sentence(cell: CellWords) -> Markup:
    """Where the cell's time went, each part in the colour that it has in the bar."""
    last = len(cell.shares) - 1
    named = Markup(" ").join(
        Markup(
            '<span style="display:inline-block"><span style="color:{}">■</span> {}{}</span>'
        ).format(share.colour, with_names(share.text), "." if row == last else ",")
        for row, share in enumerate(cell.shares)
    )
    return Markup("{} {}").format(cell.head, named)


def _cell_bar(cell: CellWords) -> Markup:
    nothing = Markup("")
    pieces = [(one.text, f"{one.fraction:.2%}", one.colour, nothing) for one in cell.shares]
    return _bar_html("cell", pieces)


def share_table_html(shares: Sequence[ShareRow]) -> Markup:
    """The mean step by category, with bars."""
    rows: list[list[Cell]] = [
        [name, (bar, f"{BAR};color:{colour_of(name)}"), mean, share]
        for name, bar, mean, share in shares
    ]
    return html_table(("category", "", "mean per step", "share"), rows, (False, False, True, True))
