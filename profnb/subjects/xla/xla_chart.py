"""XLA's time as an icicle, to a plotly figure as plain JSON."""

from typing import Any

from profnb.core.units import duration_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import colour_of
from profnb.subjects.xla.xla_tree import TreeBlock

__all__ = ["xla_figure"]

_LEVELS = ("program", "XLA op", "framework op")


def xla_figure(blocks: list[TreeBlock]) -> dict[str, Any]:
    """The tree as an icicle: bars under bars, as wide as their share of XLA's time.

    plotly's own icicle is not in the bundle that notebooks load, stacked bars are; they zoom by
    dragging.
    """
    data = []
    for level, name in enumerate(_LEVELS):
        own = [block for block in blocks if block.level == level]
        data.append(
            {
                "type": "bar", "orientation": "h", "name": name, "showlegend": False,
                "y": [name] * len(own), "base": [round(100 * block.begin, 4) for block in own],
                "x": [round(100 * block.width, 4) for block in own],
                "text": [figure_text(_short(block)) for block in own],
                "textposition": "inside", "insidetextanchor": "middle", "constraintext": "none",
                "textangle": 0, "insidetextfont": {"color": "#fff", "size": 11},
                "customdata": [figure_text(_told(block)) for block in own],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "color": [_block_colour(block) for block in own],
                    "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
                },
            }
        )  # fmt: skip
    layout = figure_layout("Where XLA's time goes: programs, their ops, what those came from", 220)
    layout |= {
        "barmode": "overlay",
        "bargap": 0.06,
        "margin": {"l": 96, "r": 12, "t": 34, "b": 40},
        "xaxis": {**axis("% of the time of XLA's ops"), "range": [0, 100], "showgrid": False},
        "yaxis": {**axis(""), "categoryarray": list(_LEVELS[::-1]), "categoryorder": "array"},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _short(block: TreeBlock) -> str:
    """As much of the label as its block has room for at a usual width; the hover has it all."""
    room = int(block.width * 84)
    label = block.label if block.level < 2 else block.label.rpartition("/")[2]
    if len(label) <= room:
        return label
    return label[: room - 1] + "…" if room > 3 else ""


def _told(block: TreeBlock) -> str:
    about = f" ({block.category})" if block.category else ""
    estimate = ", shared out by its operations" if block.is_estimate else ""
    return (
        f"{block.label[:160]}{about}: {duration_text(block.self_ps)}, "
        f"{percent_text(block.width)}{estimate}"
    )


def _block_colour(block: TreeBlock) -> str:
    if block.level == 0:
        return colour_of("between steps")
    if block.level == 1:
        return colour_of("all others" if not block.category else "device compute")
    return colour_of("host compute")
