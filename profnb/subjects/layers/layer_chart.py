"""The model as an icicle, to a plotly figure as plain JSON."""

from collections.abc import Sequence
from typing import Any

from profnb.core.block import Block
from profnb.drawing.figures import icicle_figure
from profnb.drawing.theme import PART_COLOURS
from profnb.subjects.layers.layer_rows import OPTIMIZER, OUTSIDE

ROW_COLOURS = PART_COLOURS | {OPTIMIZER: PART_COLOURS["update"], OUTSIDE: PART_COLOURS["other"]}


def layer_figure(blocks: Sequence[Block]) -> dict[str, Any]:
    """The model and, at the bottom, the parts of the step, as wide as their share of op time."""
    return icicle_figure(
        blocks,
        ROW_COLOURS,
        title="Where the model's op time goes",
        of_what="op time",
    )
