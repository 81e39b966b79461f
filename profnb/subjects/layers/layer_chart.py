"""The model as an icicle, to a plotly figure as plain JSON; see ``charts``."""

from collections.abc import Sequence
from typing import Any

from profnb.core.units import duration_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import colour_of
from profnb.subjects.layers.layer_rows import INPUT, LOSS, METRICS, OPTIMIZER, OTHERS, OUTSIDE
from profnb.subjects.layers.layer_tree import LayerBlock

__all__ = ["PART_COLOURS", "layer_figure"]

PART_COLOURS = {
    "forward": colour_of("device compute"),
    "backward": colour_of("kernel launch"),
    "update": colour_of("device collectives"),
    "recomputation": colour_of("compilation"),
    "other": colour_of("all others"),
    LOSS: colour_of("output"),
    METRICS: colour_of("device to device"),
    OPTIMIZER: colour_of("device collectives"),
    INPUT: colour_of("input"),
    OUTSIDE: colour_of("all others"),
}
_LAYER_COLOURS = (colour_of("between steps"), colour_of("all others"))


def layer_figure(blocks: Sequence[LayerBlock]) -> dict[str, Any]:
    """The model as an icicle: bars under bars as wide as their share of op time, parts of the step below.

    plotly's own icicle is not in the bundle that notebooks load, stacked bars are; they zoom by dragging.
    """
    levels = sorted({block.level for block in blocks})
    names = [f"level {at}" for at in range(len(levels))]
    data = []
    for at, level in enumerate(levels):
        own = [block for block in blocks if block.level == level]
        data.append(
            {
                "type": "bar", "orientation": "h", "name": names[at], "showlegend": False,
                "y": [names[at]] * len(own), "base": [round(100 * block.begin, 4) for block in own],
                "x": [round(100 * block.width, 4) for block in own],
                "text": [figure_text(_short(block)) for block in own],
                "textposition": "inside", "insidetextanchor": "middle", "constraintext": "none",
                "textangle": 0, "insidetextfont": {"color": "#fff", "size": 11},
                "customdata": [[figure_text(_told(block)), block.search, "ops"] for block in own],
                "hovertemplate": "%{customdata[0]}<extra></extra>",
                "marker": {
                    "color": [_block_colour(block) for block in own],
                    "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
                },
            }
        )  # fmt: skip
    layout = figure_layout("Where the model's op time goes", 70 + 34 * len(levels))
    layout |= {
        "barmode": "overlay",
        "bargap": 0.06,
        "margin": {"l": 12, "r": 12, "t": 34, "b": 40},
        "xaxis": {**axis("% of op time"), "range": [0, 100], "showgrid": False},
        "yaxis": {
            **axis(""), "categoryarray": names[::-1], "categoryorder": "array", "visible": False,
        },
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _short(block: LayerBlock) -> str:
    """As much of the label as its block has room for at a usual width; the hover has it all."""
    room = int(block.width * 120)
    if len(block.label) <= room:
        return block.label
    return block.label[: room - 1] + "…" if room > 3 else ""


def _told(block: LayerBlock) -> str:
    about = f", {block.phase}" if block.phase else ""
    return f"{block.path[:160]}{about}: {duration_text(block.time_ps)} a step, {percent_text(block.width)}"


def _block_colour(block: LayerBlock) -> str:
    if block.phase:
        return PART_COLOURS.get(
            block.path if block.phase == "other" else block.phase, PART_COLOURS["other"]
        )
    if block.path in OTHERS:
        return PART_COLOURS[block.path]
    return _LAYER_COLOURS[block.level % 2]
