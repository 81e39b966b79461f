"""Figures in plotly's schema, as plain JSON, and what a page shows of them: the one door to plotly.

An icicle is bars under bars, as wide as their share of time: plotly's own is not in the bundle that notebooks
load, stacked bars are; they zoom by dragging. A roofline shows what each of some points reached, under what
could be reached.

The report's own script draws a figure as inline SVG where it stands, in every frontend, without plotly.js
and without a network. A page of its own carries plotly.js inside for the figures that can be zoomed.
``p.figures`` gives them all to the user as plotly's own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from profnb.core.block import Block
from profnb.core.columns import group
from profnb.drawing.markup import figure_text, json_attribute, script_element
from profnb.drawing.theme import GRID, ROOT, TEXT_COLOUR, ink_on

_CHARACTERS, _CHARACTERS_BESIDE_NAMES = 120, 104  # of a full block's label, at a usual width
_MARGIN, _MARGIN_OF_NAMES = 12, 96
_SHORTEST_LABEL = 3


LOOK: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": TEXT_COLOUR, "size": 12}, "hovermode": "closest",
}  # fmt: skip
LEGEND_ABOVE = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}


def figure_layout(title: str, height: int) -> dict[str, Any]:
    """Lay out a figure as all are."""
    return {
        "height": height,
        "title": {
            "text": title, "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 6},
            "font": {"size": 13},
        },
        "margin": {"l": 56, "r": 12, "t": 34, "b": 44},
        **LOOK,
    }  # fmt: skip


def axis(title: str) -> dict[str, Any]:
    """Make an axis in the look of all figures."""
    return {
        "gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "title": {"text": title},
    }  # fmt: skip


def chart(title: str, height: int, data: Sequence[dict[str, Any]], **layout: Any) -> dict[str, Any]:
    """Make a figure in plotly's schema, with what its layout has of its own."""
    layout = figure_layout(title, height) | layout
    return {"data": list(data), "layout": layout, "config": {"displaylogo": False}}


def label_axis(labels: Sequence[str]) -> dict[str, Any]:
    """Make the axis of bars that lie: what each is called, the first one at the top."""
    return {
        **axis(""), "tickvals": list(range(len(labels))), "ticktext": list(map(figure_text, labels)),
        "automargin": True, "showgrid": False, "autorange": "reversed",
    }  # fmt: skip


def icicle_figure(
    blocks: Sequence[Block], colours: Mapping[str, str], *, title: str, of_what: str,
    levels: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Draw blocks as an icicle.

    Args:
        blocks: The blocks; levels without any are left out.
        colours: A colour for each role of a block.
        title: The figure's title.
        of_what: What the full width is, such as "the time of XLA's ops".
        levels: What stands beside each level; empty for nothing.
    """
    drawn = sorted({block.level for block in blocks})
    names = [levels[level] if levels else f"level {at}" for at, level in enumerate(drawn)]
    characters = _CHARACTERS_BESIDE_NAMES if levels else _CHARACTERS
    is_searchable = any(block.search for block in blocks)
    data = []
    for level, name in zip(drawn, names, strict=True):
        row = [block for block in blocks if block.level == level]
        labels = []
        for block in row:  # as much as there is room for; the hover has it all
            label, room = block.label, int(block.width * characters)
            if len(label) > room:
                label = label[: room - 1] + "…" if room > _SHORTEST_LABEL else ""
            labels.append(figure_text(label))
        data.append(
            {
                "type": "bar", "orientation": "h", "name": name, "showlegend": False,
                "y": [name] * len(row), "base": [round(100 * block.begin, 4) for block in row],
                "x": [round(100 * block.width, 4) for block in row], "text": labels,
                "textposition": "inside", "insidetextanchor": "middle", "constraintext": "none",
                "textangle": 0,
                "insidetextfont": {"color": [ink_on(colours[block.role]) for block in row], "size": 11},
                "customdata": [
                    [figure_text(block.hover), *((block.search, "ops") if is_searchable else ())]
                    for block in row
                ],
                "hovertemplate": "%{customdata[0]}<extra></extra>",
                "marker": {
                    "color": [colours[block.role] for block in row],
                    "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
                },
            }
        )  # fmt: skip
    hidden = {} if levels else {"visible": False}
    return chart(
        title, 70 + 34 * len(drawn), data, barmode="overlay", bargap=0.06,
        margin={"l": _MARGIN_OF_NAMES if levels else _MARGIN, "r": _MARGIN, "t": 34, "b": 40},
        xaxis={**axis(f"% of {of_what}"), "range": [0, 100], "showgrid": False},
        yaxis={**axis(""), "categoryarray": names[::-1], "categoryorder": "array", **hidden},
    ) | {"config": {"staticPlot": True}}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoofPoint:
    """A point under a roof."""

    group: str  # what points of its colour have in common
    colour: str  # its colour
    intensity: float  # operations per byte
    flops_per_second: float  # operations that it reached
    text: str  # what it is
    share: float  # of the time, 0 to 1: how large it is drawn


def roof_figure(
    title: str, limits: Iterable[tuple[float, str]], bandwidth: float, points: Sequence[RoofPoint]
) -> dict[str, Any]:
    """Draw points, of which there is one at least, under their roofline.

    ``limits`` are peaks of operations, each with a width of numbers that it is of; ``bandwidth`` is what
    memory can move in a second.
    """
    low = min(point.intensity for point in points) / 2
    high = max(point.intensity for point in points) * 2
    widths = group(limits)
    data: list[dict[str, Any]] = []
    for flops in sorted(widths):
        name = f"limit, {' and '.join(sorted(set(widths[flops])))}"
        ridge = flops / bandwidth
        x = [low, *([ridge] if low < ridge < high else []), high]
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": name,
                "x": x, "y": [min(flops, bandwidth * at) for at in x],
                "line": {"width": 1.5, "color": TEXT_COLOUR}, "hoverinfo": "skip",
            }
        )  # fmt: skip
    for name, alike in group((point.group, point) for point in points).items():
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": name,
                "x": [point.intensity for point in alike],
                "y": [point.flops_per_second for point in alike],
                "customdata": [figure_text(point.text) for point in alike],
                "hovertemplate": "%{customdata}<br>%{y:.3s}flop/s at %{x:.3g} flop/byte<extra></extra>",
                "marker": {
                    "size": [6 + 26 * point.share**0.5 for point in alike],
                    "color": alike[0].colour,
                    "opacity": 0.8, "line": {"width": 0},
                },
            }
        )  # fmt: skip
    return chart(
        title, 320, data, legend=LEGEND_ABOVE, margin={"l": 56, "r": 12, "t": 62, "b": 44},
        xaxis={**axis("operations per byte"), "type": "log"},
        yaxis={**axis("flop/s"), "type": "log", "exponentformat": "SI"},
    )  # fmt: skip


def is_static(figure: Mapping[str, Any]) -> bool:
    """Tell whether nothing is gained by zooming into a figure, so that plotly.js need not draw it."""
    return bool(figure.get("config", {}).get("staticPlot"))


def figure_html(
    figure: Mapping[str, Any], fallback: Markup, *, is_interactive: bool = False
) -> Markup:
    """Make the figure's place in a page, with what to show where no script draws it.

    Args:
        figure: The figure, in plotly's schema.
        fallback: HTML that says the same without a chart.
        is_interactive: Whether plotly.js is to draw it, which the page must have.
    """
    drawn = json_attribute({key: _rounded(figure[key]) for key in ("data", "layout")})
    by_plotly = Markup(' data-plotly="1"') if is_interactive and not is_static(figure) else ""
    place = Markup('<div class="profnb-figure" style="{}" data-figure={}{}><div>{}</div></div>')
    return place.format(ROOT, drawn, by_plotly, fallback)


def _rounded(value: Any) -> Any:
    """Round the numbers of a figure to what a picture can show: five digits."""
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


class Figures(Mapping[str, Any]):
    """Figures by their titles, each made a ``plotly.graph_objects.Figure`` when it is asked for."""

    def __init__(self, figures: Mapping[str, Mapping[str, Any]]) -> None:
        """Nothing is imported yet."""
        self._figures = figures

    def __getitem__(self, title: str) -> Any:
        if title not in self._figures:
            titles = ", ".join(map(repr, self._figures)) or "none"
            raise KeyError(f"There is no figure {title!r}. The figures are: {titles}.")
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
    """Take the installed plotly's plotly.js as an element, to stand inside a page of its own."""
    from plotly.offline import get_plotlyjs

    return script_element(get_plotlyjs())
