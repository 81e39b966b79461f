"""A roofline as plotly draws it: what each of some points reached, under what could be reached."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import TEXT_COLOUR


@dataclass(frozen=True, slots=True)
class RoofPoints:
    """Points of one colour.

    Attributes:
        name: What they have in common.
        colour: Their colour.
        intensity: Operations per byte.
        flops_per_second: Operations that each reached.
        texts: What each is.
        shares: Of the time, 0 to 1: how large each is drawn.
    """

    name: str
    colour: str
    intensity: Sequence[float]
    flops_per_second: Sequence[float]
    texts: Sequence[str]
    shares: Sequence[float]


def roof_figure(
    title: str,
    roofs: Sequence[tuple[str, float]],
    bandwidth: float,
    groups: Sequence[RoofPoints],
) -> dict[str, Any]:
    """The roofline.

    Args:
        title: The chart's title.
        roofs: Names and peaks of operations.
        bandwidth: What memory can move in a second.
        groups: The points; those without any are left out. There is one at least.
    """
    everything = [at for group in groups for at in group.intensity]
    low, high = min(everything) / 2, max(everything) * 2
    data: list[dict[str, Any]] = []
    for name, flops in roofs:
        ridge = flops / bandwidth
        x = [low, *([ridge] if low < ridge < high else []), high]
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": name,
                "x": x, "y": [min(flops, bandwidth * at) for at in x],
                "line": {"width": 1.5, "color": TEXT_COLOUR}, "hoverinfo": "skip",
            }
        )  # fmt: skip
    for group in groups:
        if not len(group.intensity):
            continue
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": group.name,
                "x": list(group.intensity), "y": list(group.flops_per_second),
                "customdata": [figure_text(text) for text in group.texts],
                "hovertemplate": "%{customdata}<br>%{y:.3s}flop/s at %{x:.3g} flop/byte<extra></extra>",
                "marker": {
                    "size": [6 + 26 * share**0.5 for share in group.shares],
                    "color": group.colour,
                    "opacity": 0.8, "line": {"width": 0},
                },
            }
        )  # fmt: skip
    layout = figure_layout(title, 320)
    layout |= {
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 12, "t": 62, "b": 44},
        "xaxis": {**axis("operations per byte"), "type": "log"},
        "yaxis": {**axis("flop/s"), "type": "log", "exponentformat": "SI"},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}
