"""A plotly figure to something every frontend can show: the one door to plotly.

Where a notebook has a plotly renderer (JupyterLab, Notebook 7, VS Code) the figure's own MIME type is
drawn, without a network. Elsewhere the HTML shows a table, and the report's script replaces it by the
chart if it can fetch plotly.js (the basic bundle of the installed plotly's version). A page of its own
carries plotly.js inside.
"""

import json
from typing import Any

from markupsafe import Markup

from profnb.drawing.markup import script_element
from profnb.drawing.theme import ROOT

__all__ = ["figure_bundle", "figure_html", "plotly_script"]

_MIME = "application/vnd.plotly.v1+json"


def figure_html(figure: dict[str, Any], fallback: Markup, source: str | None) -> Markup:
    """The figure's place in a page, with what to show until it is drawn.

    Args:
        figure: The figure.
        fallback: HTML that says the same without a chart.
        source: Where to load plotly.js from if the page has none; None never loads anything.
    """
    address = Markup(' data-source="{}"').format(source) if source else ""
    return Markup(
        '<div class="profnb-figure" style="{}" data-figure="{}"{}><div>{}</div></div>'
    ).format(ROOT, json.dumps(figure, separators=(",", ":")), address, fallback)


def figure_bundle(
    figure: dict[str, Any], fallback: Markup, text: str, *, has_renderer: bool
) -> dict[str, Any]:
    """The figure as a MIME bundle.

    Args:
        figure: The figure in plotly's schema.
        fallback: HTML to show where it is not drawn.
        text: What it is, as plain text.
        has_renderer: Whether to include plotly's own MIME type (not in Colab, which uses the HTML).
    """
    bundle: dict[str, Any] = {
        "text/html": str(figure_html(figure, fallback, _cdn_address())),
        "text/plain": text,
    }
    if has_renderer:
        bundle[_MIME] = figure
    return bundle


def _cdn_address() -> str:
    from plotly.offline import get_plotlyjs_version

    return f"https://cdn.plot.ly/plotly-basic-{get_plotlyjs_version()}.min.js"


def plotly_script() -> Markup:
    """The installed plotly's plotly.js as an element, to stand inside a page of its own."""
    from plotly.offline import get_plotlyjs

    return script_element(get_plotlyjs())
