"""Blocks to an icicle, as a plotly figure in plain JSON: bars under bars, as wide as their share of time.

plotly's own icicle is not in the bundle that notebooks load, stacked bars are; they zoom by dragging.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from profnb.core.block import Block
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import ink_on

_CHARACTERS, _CHARACTERS_BESIDE_NAMES = 120, 104  # of a full block's label, at a usual width
_MARGIN, _MARGIN_OF_NAMES = 12, 96
_SHORTEST_LABEL = 3


def icicle_figure(
    blocks: Sequence[Block], colours: Mapping[str, str], *, title: str, of_what: str,
    levels: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The blocks as an icicle.

    Args:
        blocks: The blocks; levels without any are left out.
        colours: A colour for each role of a block.
        title: The figure's title.
        of_what: What the full width is, such as "the time of XLA's ops".
        levels: What stands beside each level; empty for nothing.
    """
    drawn = sorted({block.level for block in blocks})
    names = [levels[level] if levels else f"level {at}" for at, level in enumerate(drawn)]
    room = _CHARACTERS_BESIDE_NAMES if levels else _CHARACTERS
    is_searchable = any(block.search for block in blocks)
    data = []
    for level, name in zip(drawn, names, strict=True):
        row = [block for block in blocks if block.level == level]
        data.append(
            {
                "type": "bar", "orientation": "h", "name": name, "showlegend": False,
                "y": [name] * len(row), "base": [round(100 * block.begin, 4) for block in row],
                "x": [round(100 * block.width, 4) for block in row],
                "text": [figure_text(_cut(block.label, int(block.width * room))) for block in row],
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
    layout = figure_layout(title, 70 + 34 * len(drawn))
    layout |= {
        "barmode": "overlay",
        "bargap": 0.06,
        "margin": {"l": _MARGIN_OF_NAMES if levels else _MARGIN, "r": _MARGIN, "t": 34, "b": 40},
        "xaxis": {**axis(f"% of {of_what}"), "range": [0, 100], "showgrid": False},
        "yaxis": {
            **axis(""), "categoryarray": names[::-1], "categoryorder": "array",
            **({} if levels else {"visible": False}),
        },
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {"staticPlot": True}}


def _cut(label: str, room: int) -> str:
    """As much of a label as there is room for; the hover has it all."""
    if len(label) <= room:
        return label
    return label[: room - 1] + "…" if room > _SHORTEST_LABEL else ""
