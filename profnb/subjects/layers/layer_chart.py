"""The model as an icicle, to a plotly figure as plain JSON."""

from collections.abc import Sequence
from typing import Any

from profnb.core.block import Block
from profnb.drawing.icicle import icicle_figure
from profnb.drawing.theme import colour_of
from profnb.subjects.layers.layer_rows import INPUT, LOSS, METRICS, OPTIMIZER, OUTSIDE

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
_LAYER_COLOURS = {"outer layer": colour_of("between steps"), "inner layer": colour_of("all others")}


def layer_figure(blocks: Sequence[Block]) -> dict[str, Any]:
    """The model and, at the bottom, the parts of the step, as wide as their share of op time."""
    return icicle_figure(
        blocks,
        PART_COLOURS | _LAYER_COLOURS,
        title="Where the model's op time goes",
        of_what="op time",
    )
