"""A figure in plotly's schema to what a page shows: the one door to plotly.

The report's own script draws a figure as inline SVG where it stands, in every frontend, without plotly.js
and without a network. A page of its own carries plotly.js inside for the figures that can be zoomed.
``p.figures`` gives them all to the user as plotly's own.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from profnb.drawing.markup import script_element
from profnb.drawing.theme import ROOT


def is_static(figure: Mapping[str, Any]) -> bool:
    """Whether nothing is gained by zooming into a figure, so that plotly.js need not draw it."""
    return bool(figure.get("config", {}).get("staticPlot"))


def figure_html(
    figure: Mapping[str, Any], fallback: Markup, *, is_interactive: bool = False
) -> Markup:
    """The figure's place in a page, with what to show where no script draws it.

    Args:
        figure: The figure, in plotly's schema.
        fallback: HTML that says the same without a chart.
        is_interactive: Whether plotly.js is to draw it, which the page must have.
    """
    drawn = {key: figure[key] for key in ("data", "layout")}
    by_plotly = Markup(' data-plotly="1"') if is_interactive and not is_static(figure) else ""
    return Markup(
        '<div class="profnb-figure" style="{}" data-figure="{}"{}><div>{}</div></div>'
    ).format(ROOT, json.dumps(drawn, separators=(",", ":")), by_plotly, fallback)


class Figures(Mapping[str, Any]):
    """Figures by their titles, each made a ``plotly.graph_objects.Figure`` when it is asked for.

    Args:
        figures: Titles, and figures in plotly's schema.
    """

    def __init__(self, figures: Mapping[str, Mapping[str, Any]]) -> None:
        """Nothing is imported yet."""
        self._figures = figures

    def __getitem__(self, title: str) -> Any:
        if title not in self._figures:
            titles = ", ".join(map(repr, self._figures)) or "none"
            raise KeyError(f"There is no figure {title!r}; there are: {titles}.")
        from plotly.graph_objects import Figure

        figure = self._figures[title]
        return Figure({key: figure[key] for key in ("data", "layout")})

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return f"Figures({list(self._figures)})"


def plotly_script() -> Markup:
    """The installed plotly's plotly.js as an element, to stand inside a page of its own."""
    from plotly.offline import get_plotlyjs

    return script_element(get_plotlyjs())
