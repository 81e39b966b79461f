"""What all plotly figures share: a layout and an axis, as plain JSON."""

from typing import Any

from profnb.drawing.theme import GRID, TEXT_COLOUR


def figure_layout(title: str, height: int) -> dict[str, Any]:
    """What the layouts of all figures share."""
    return {
        "height": height,
        "title": {
            "text": title,
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 6},
            "font": {"size": 13},
        },
        "margin": {"l": 56, "r": 12, "t": 34, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": TEXT_COLOUR, "size": 12},
        "hovermode": "closest",
    }


def axis(title: str) -> dict[str, Any]:
    """An axis in the look of all figures."""
    return {
        "gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "title": {"text": title},
    }  # fmt: skip
