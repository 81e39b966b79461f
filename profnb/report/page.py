"""A report to one HTML file that works offline: styles, scripts and plotly.js inside."""

from markupsafe import Markup

from profnb.core.printable import printable
from profnb.drawing.figures import is_static, plotly_script
from profnb.drawing.markup import content_policy, script_element
from profnb.report.forms.as_html import content_html
from profnb.report.report import Report
from profnb.report.script import report_script
from profnb.subjects.study import Study
from profnb.timeline.element import build_timeline, timeline_script

_STYLE = Markup(
    ":root{color-scheme:light dark}"
    "body{margin:24px auto;max-width:1100px;padding:0 16px;background:Canvas;color:CanvasText;"
    "font-family:system-ui,-apple-system,'Segoe UI',sans-serif}"
    "h1{font-size:15px;font-weight:600;opacity:.72;margin:0 0 8px;overflow-wrap:anywhere}"
    ".profnb,.profnb-figure{max-width:none!important}"
    ".profnb-wide{overflow-x:auto}"
)


def page_html(report: Report, study: Study | None) -> Markup:
    """The whole page: headline, notes, chart, tables and timeline.

    Args:
        report: What the page says.
        study: The trace whose timeline follows; None without a trace.
    """
    plotly = timeline = every = script = Markup("")
    if any(part.figure and not is_static(part.figure) for part in report.sections):
        plotly = plotly_script()
    if study is not None:
        built = build_timeline(study, is_page=True)
        timeline, every = built.html(), built.every_html()
        script = script_element(timeline_script()) if built.data else script
    page_script = script_element(report_script())
    return Markup(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">{policy}'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<title>{title} - profnb</title><style>{style}</style>{plotly}</head><body><main>"
        '<h1>{title}</h1><div class="profnb-wide">{report}</div>{timeline}</main>'
        "{scripts}{every}</body></html>"
    ).format(
        title=report.sharing.text(printable(report.title)),
        style=_STYLE,
        plotly=plotly,
        report=report.sharing.html(content_html(report, is_page=True)),
        timeline=timeline,
        scripts=page_script + script,
        every=every,
        policy=content_policy(plotly, page_script, script),
    )
