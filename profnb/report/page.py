"""A report to one HTML file that works offline: styles, scripts and plotly.js inside."""

from html import escape

from profnb.drawing.plotly import figure_html, plotly_script
from profnb.report.report import Report, report_script
from profnb.report.step_chart import step_table_html
from profnb.subjects.study import Study
from profnb.timeline.element import build_timeline, timeline_script

__all__ = ["page_html"]

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{margin:24px auto;max-width:980px;padding:0 16px;background:Canvas;color:CanvasText;"
    "font-family:system-ui,-apple-system,'Segoe UI',sans-serif}"
    "h1{font-size:15px;font-weight:600;opacity:.72;margin:0 0 8px;overflow-wrap:anywhere}"
    ".profnb,.profnb-figure{max-width:none!important}"
    ".profnb-wide{overflow-x:auto}"
)


def page_html(report: Report, study: Study | None) -> str:
    """The whole page: headline, notes, chart, tables and timeline.

    Args:
        report: What the page says.
        study: The trace whose timeline follows; None without a trace.
    """
    figure = ""
    plotly = ""
    if report.figure is not None and report.chart is not None:
        figure = figure_html(report.figure, step_table_html(report.chart), None)
        plotly = f"<script>{plotly_script()}</script>"
    charts = [
        "" if part.figure is None else figure_html(part.figure, "", None)
        for part in report.sections
    ]
    timeline, script = "", ""
    if study is not None:
        built = build_timeline(study, is_page=True)
        timeline, script = (
            built.html(),
            f"<script>{timeline_script()}</script>" if built.data else "",
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.title)} - profnb</title><style>{_STYLE}</style>{plotly}</head><body>"
        f'<h1>{escape(report.title)}</h1><div class="profnb-wide">{report.html_around(figure, charts)}</div>'
        f"{timeline}<script>{report_script()}</script>{script}</body></html>"
    )
