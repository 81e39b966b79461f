"""A report: what it shows, decided, and what that is written as: HTML, plain text, an offline page.

The HTML stands alone in any frontend: the answer, what to change, parts to open. It is layer A of the design:
real tables and text bars that read well with script, style and SVG stripped. What comes from the trace
travels as escaped text or as JSON in an attribute. Charts are values in attributes too, drawn by the report's
script where they stand: a sanitizer that shows ``<svg>`` as text finds none here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from markupsafe import Markup

from profnb.advice.proposals import Advice
from profnb.core.printable import filled, for_terminal, printable, unbroken
from profnb.core.sharing import Sharing
from profnb.drawing import markup
from profnb.drawing.figures import figure_html, is_static, plotly_script
from profnb.drawing.programs import joined
from profnb.drawing.section import Section, section_block, section_text, titled_block
from profnb.drawing.theme import MUTED, ROOT, colour_of, ink_on
from profnb.report.advice import advice_html, advice_section_text, first_change
from profnb.report.cell_picture import CellWords
from profnb.report.step_chart import StepChart, chart_caption, chart_figure, step_figure, step_table
from profnb.report.text import THROUGHPUT, Fact
from profnb.subjects.study import Study
from profnb.timeline.element import Timeline, build_timeline, timeline_script

ShareRow = tuple[str, str, str, str]
_TEXT_WIDTH = 150
_STEPS_TAB = "Steps"
# The tab, and of the ops the side, that has more of a category of the mean step.
LEADS_TO = {
    "host compute": "Ops\thost", "device compute": "Ops\tdevice", "input": "Input",
    "device collectives": "Device", "device to device": "Device", "kernel launch": "Device",
    "output": "Device", "compilation": "XLA", "between steps": "Tree", "work between steps": "Tree",
}  # fmt: skip
_PER_LETTER = 0.0075  # of the bar: room for a letter on a page of usual width
_PART = Markup('<div data-part="{}">{}</div>')
_PAGE_STYLE = Markup(
    ":root{color-scheme:light dark}"
    "body{margin:24px auto;max-width:1100px;padding:0 16px;background:Canvas;color:CanvasText;"
    "font-family:system-ui,-apple-system,'Segoe UI',sans-serif}"
    "h1{font-size:15px;font-weight:600;opacity:.72;margin:0 0 8px;overflow-wrap:anywhere}"
    ".profnb,.profnb-figure{max-width:none!important}"
    ".profnb-wide{overflow-x:auto}"
)
# The report's program, in order: from ``drawing`` and from here.
_SCRIPTS = {
    "drawing": (
        "format.js", "look.js", "sorting.js", "axis.js", "zoom.js", "parts.js", "chart.js",
        "ask.js", "insert.js", "tips.js",
    ),
    "report": ("icicle.js", "table.js", "advice.js", "live.js", "report.js"),
}  # fmt: skip


@dataclass(frozen=True)
class Report:
    """All that a report shows, and the forms it takes.

    Attributes:
        title: Its name.
        headline: What was recorded, in a line.
        alarm: What matters more than where the time went, as that a GPU was not used; "" for nothing.
        unmeasured: What was not recorded although it happened; a note says it too, with a repair.
        answer: Where the time goes, in a sentence; "" where nothing can be said.
        idle: How long a device was idle, and why, and that the machine was busy; "" where neither is so.
        lead: The answer with why it goes there.
        cell: Where the wall time of the whole cell, or of the recorded window, went; None without a tree.
        is_cell: Whether that is a cell.
        picture: The same as a picture.
        facts: The figures of the headline.
        shares: The mean step, a row per category: name, bar, mean per step, share.
        notes: What the reader should know first.
        chart: The step times; None without steps.
        sections: The tables, in order.
        advice: What to change; None where the question makes no sense.
        longest: What took longest by name, which is read where no change is worth it.
        again: The line over a cell that measures a change of it; "" where the result has no name.
        lines: The source lines that advice speaks of, by their place: "Cell [3]:8".
        foot: What whoever is given the report can read in it; "" for nothing to say.
        sharing: What may leave of it; all its forms go through this.
    """

    title: str
    headline: str
    alarm: str = ""
    unmeasured: str = ""
    answer: str = ""
    idle: str = ""
    lead: str = ""
    cell: CellWords | None = None
    is_cell: bool = False
    picture: Markup = Markup("")  # noqa: RUF009 - likewise
    facts: Sequence[Fact] = ()
    shares: Sequence[ShareRow] = ()
    notes: Sequence[str] = ()
    chart: StepChart | None = None
    sections: Sequence[Section] = ()
    advice: Sequence[Advice] | None = None
    longest: str = ""
    foot: str = ""
    again: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)
    sharing: Sharing = Sharing()  # noqa: RUF009 - frozen

    def text(self) -> str:
        """The report as plain text, for a terminal: what it says first, then its tables without details."""
        return self.sharing.text(_plain_text(self))

    @cached_property
    def html(self) -> Markup:
        """The report as an HTML fragment that stands alone in any frontend."""
        return self.sharing.html(report_html(self))

    def bundle(self, live_id: str = "") -> dict[str, str]:
        """The report as a MIME bundle: HTML and plain text, no widget.

        Args:
            live_id: What the kernel that answers its questions is called; "" for none.
        """
        html = self.sharing.html(report_html(self, live_id=live_id)) if live_id else self.html
        return {"text/html": str(html), "text/plain": self.text()}

    @cached_property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Every chart in plotly's schema: of the steps, then of each section by its title."""
        steps = {} if self.chart is None else {"Steps": step_figure(self.chart)}
        return steps | {one.title: one.figure for one in self.sections if one.figure is not None}


def _plain_text(report: Report) -> str:
    parts = [printable(f"{report.headline}. {report.answer}".strip())]
    if report.cell is not None and report.is_cell:
        change = f" First change: {first_change(report.advice)}." if report.advice else ""
        parts[0] = f"{filled(printable(f'{report.cell.text}{change}'), _TEXT_WIDTH)}\n{parts[0]}"
    if report.alarm:
        parts[0] = f"{filled(printable(report.alarm), _TEXT_WIDTH)}\n{parts[0]}"
    if report.advice is not None:
        parts.append(advice_section_text(report.advice, report.again, report.longest))
    parts.extend(f"Note: {printable(note)}" for note in report.notes)
    if report.facts:
        facts = [(f.name, f.value, f"({f.remark})" if f.remark else "") for f in report.facts]
        parts.append(markup.plain_table(facts, (False, True, False)))
    if report.shares:
        rows = [(name, mean, share, bar) for name, bar, mean, share in report.shares]
        parts.append("Mean step\n" + markup.plain_table(rows, (False, True, True, False)))
    parts.extend(section_text(part) for part in report.sections if not part.is_detail)
    return for_terminal("\n\n".join(parts))


def report_html(report: Report, *, live_id: str = "", is_page: bool = False) -> Markup:
    """The report as a fragment of a page.

    Args:
        report: What it shows.
        live_id: What the kernel that answers this report's questions is called; "" for none.
        is_page: Whether it stands in a page of its own, where plotly.js draws what can be zoomed.
    """
    advice = Markup("")
    if report.advice is not None:
        advice = advice_html(report.advice, report.again, report.lines, report.longest)
    live = Markup(' data-live="{}"').format(live_id) if live_id else ""
    tabs = _tabs_html(report, is_page=is_page)
    body = _head_html(report) + advice + _about_html(report) + tabs
    whole = Markup('<div class="profnb" style="{}"{}>{}</div>').format(ROOT, live, body)
    return markup.without_controls(whole)


def _head_html(report: Report) -> Markup:
    """The part that is read first: what was not seen, where the time went in a sentence and in a picture."""
    alarm = f"{report.alarm} {report.unmeasured}".strip()
    amber = Markup(
        '<div style="border-left:4px solid #c98500;background:rgba(201,133,0,.15);padding:4px 10px;'
        'margin:2px 0 4px"><b class="profnb-clip">{}</b></div>'
    )
    first = Markup(
        '<div role="heading" aria-level="2" class="profnb-clip" style="font-size:18px;font-weight:600;'
        'line-height:1.3;margin:4px 0 2px">{}</div>'
    )
    line = Markup('<div class="profnb-clip" style="{};margin:0 0 6px">{}{}</div>')
    said = [report.headline, *(fact.value for fact in report.facts if fact.name == THROUGHPUT)]
    answer = said.pop(0) if report.cell is None else _cell_sentence(report.cell)
    idle = Markup(" · <b>{}</b>").format(report.idle) if report.idle else ""
    return Markup("").join([
        amber.format(alarm) if alarm else "",
        first.format(answer),
        line.format(MUTED, ", ".join(said), idle) if said else "",
        report.picture,
    ])  # fmt: skip


def share_bar_html(shares: Sequence[ShareRow]) -> Markup:
    """The typical step as one bar of the full width; its parts are text, so it reads without style too."""
    # A label that is wider than its part goes to a second line, which nobody sees: none is cut in a word.
    label = Markup(
        '<span style="display:inline-block;width:1px;height:26px;vertical-align:top"></span>'
        '<span style="display:inline-block;white-space:nowrap;vertical-align:top;padding:0 5px">{}</span>'
    )
    piece = Markup(
        '<span class="profnb-piece" data-leads="{}" title="{}" style="display:block;width:{};background:{};'
        'color:{};overflow:hidden;height:26px">{}</span> '
    )
    pieces = Markup("")
    for name, _, mean, share in shares:
        colour, text = colour_of(name), _bar_label(name, share)
        hint, width = f"{name}: {mean} of a step, {share}", share.replace(" ", "").replace("<", "")
        look = LEADS_TO.get(name, ""), hint, width, colour, ink_on(colour)
        pieces += piece.format(*look, label.format(text) if text else "")
    return Markup(
        '<div style="display:flex;height:26px;line-height:26px;border-radius:3px;overflow:hidden;'
        'font-size:12px;margin:2px 0 6px">{}</div>'
    ).format(pieces)


def _bar_label(name: str, share: str) -> str:
    """As much as there is room for; the rest stands under the pointer, and all in the table of the step."""
    room = float(share.strip("<% ")) / 100 / _PER_LETTER
    return next((text for text in (f"{name} {share}", name) if len(text) <= room), "")


def _tabs_html(report: Report, *, is_page: bool) -> Markup:
    """The parts that the script makes tabs of: the ops first, then the typical step in numbers."""
    tabs: dict[str, Markup] = {}
    for section in report.sections:
        block = _section_html(section, is_first=section.tab not in tabs, is_page=is_page)
        tabs[section.tab] = tabs.get(section.tab, Markup("")) + block
    if report.shares:
        ordered = list(tabs.items())
        tabs = dict([*ordered[:1], (_STEPS_TAB, _steps_html(report)), *ordered[1:]])
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


def _steps_html(report: Report) -> Markup:
    """Show the typical step's shares, then each step, or the mean of some, over time.

    Above them stand the figures of the headline in a line, what qualifies each under the pointer.
    """
    said = Markup('<div style="margin:4px 0 8px">{} <span style="{}">{}</span></div>')
    figure = Markup('<span title="{}" style="white-space:nowrap">{} {}</span>')
    # The headline has the median.
    facts = [f for f in report.facts if f.name not in ("step time, median", "step time")]
    figures = (figure.format(fact.remark, fact.name, fact.value) for fact in facts)
    bars = share_bar_html(report.shares) + share_table_html(report.shares)
    body = said.format(report.lead, MUTED, Markup(" · ").join([report.headline, *figures]))
    body += titled_block("Mean step", bars)
    if report.chart is not None:
        drawn = figure_html(chart_figure(report.chart), step_table(report.chart))
        caption = Markup('<div style="{};font-size:11px">{}</div>')
        drawn += caption.format(MUTED, chart_caption(report.chart))
        body += titled_block("Steps over time", drawn)
    return _PART.format(f"{_STEPS_TAB}/{_STEPS_TAB}", body)


def live_parts(report: Report) -> Markup:
    """The parts of a report that are of some steps, to take the place of those of all."""
    sections = report.sections
    first = {one.tab: one for one in reversed(sections)}
    blocks = (_section_html(one, is_first=one is first[one.tab], is_page=False) for one in sections)
    return Markup("").join([_steps_html(report), *blocks])


def _about_html(report: Report) -> Markup:
    """The part that qualifies the figures and says what is missing: folded where scripts run."""
    rows = [(fact.name, fact.value, fact.remark) for fact in report.facts if fact.remark]
    facts = markup.html_table(("", "", ""), rows, (False, True, False)) if rows else Markup("")
    foot = Markup('<div class="profnb-foot" style="{};font-size:11px;margin:6px 0 0">{}</div>')
    body = facts + markup.note_list(report.notes)
    if report.foot:
        body += foot.format(MUTED, report.foot)
    if not body:
        return Markup("")
    notes = len(report.notes)
    count = "" if not notes else " (1 note)" if notes == 1 else f" ({notes} notes)"
    return Markup('<div class="profnb-fold" data-title="{}">{}</div>').format(
        f"about this measurement{count}", body
    )


def _cell_sentence(cell: CellWords) -> Markup:
    """The sentence of the cell; the script leads from each name to its node in the picture."""
    last = len(cell.shares) - 1
    square = Markup('<span style="color:{}" aria-hidden="true">■</span> {}')
    led = Markup('<span class="profnb-name" data-leads="{}">{}</span>')
    named = []
    for row, share in enumerate(cell.shares):
        name = markup.with_names(share.name)
        if share.colour:  # part of the name, so that neither stands alone at the end of a line
            name = square.format(share.colour, name)
        if share.node is not None:
            name = led.format(share.node, name)
        end = "." if row == last else ","
        said = Markup('<span style="display:inline-block">{} {}{}</span>')
        remark = ""
        if share.remark:  # goes on in the line, so that two lines hold most headlines
            remark, end = Markup(" ({}){}").format(markup.led_names(share.remark), end), ""
        named.append(said.format(name, unbroken(share.percent), end) + remark)
    return Markup("{} {}").format(unbroken(cell.head), Markup(" ").join(named))


def share_table_html(shares: Sequence[ShareRow]) -> Markup:
    """The mean step by category, with bars."""
    rows: list[list[markup.Cell]] = [
        [name, (bar, f"color:{colour_of(name)}"), mean, share] for name, bar, mean, share in shares
    ]
    headings = ("category", "", "mean per step", "share")
    return markup.html_table(headings, rows, (False, False, True, True))


def page_html(
    report: Report, study: Study | None, built: Timeline | None = None, above: Markup | None = None
) -> Markup:
    """The whole page: headline, notes, chart, tables and timeline.

    Args:
        report: What the page says.
        study: The trace whose timeline follows; None without a trace.
        built: The timeline that follows where it is of several traces.
        above: What stands above that.
    """
    plotly = timeline = every = script = Markup("")
    if any(part.figure and not is_static(part.figure) for part in report.sections):
        plotly = plotly_script()
    if study is not None:
        built = build_timeline(study, is_page=True)
    if built is not None:
        timeline, every = (above or timeline) + built.html(), built.every_html()
        script = markup.script_element(timeline_script()) if built.data else script
    page_script = markup.script_element(report_script())
    return Markup(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">{policy}'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<title>{title} - profnb</title><style>{style}</style>{plotly}</head><body><main>"
        '<h1>{title}</h1><div class="profnb-wide">{report}</div>{timeline}</main>'
        "{scripts}{every}</body></html>"
    ).format(
        title=report.sharing.text(printable(report.title)),
        style=_PAGE_STYLE,
        plotly=plotly,
        report=report.sharing.html(report_html(report, is_page=True)),
        timeline=timeline,
        scripts=page_script + script,
        every=every,
        policy=markup.content_policy(plotly, page_script, script),
    )


@cache
def report_script() -> str:
    """The one small script that upgrades every report on its page in place; it is constant.

    It is no part of the HTML, because sanitizers differ in what they leave of it (nbconvert's shows the
    program as text). It is an ``application/javascript`` output of its own, which pages that run no script
    drop whole.
    """
    return joined(_SCRIPTS)
