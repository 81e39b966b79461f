"""One block of an icicle, the picture in which each block lies under what it is part of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    A program of which one op took a quarter of the time: ``Block(0, 0.0, 1.0, "jit_step", ...)`` and under it
    ``Block(1, 0.0, 0.25, "dot.1", ...)``.

    Attributes:
        level: How many blocks lie above it.
        begin: Its left edge, as a fraction of the whole width.
        width: As a fraction of the whole width.
        label: What stands on it, as far as there is room.
        hover: What stands under the pointer.
        role: What kind of thing it is; a chart has a colour for each.
        search: Words that find its ops in the op table; "" if none are known.
    """

    level: int
    begin: float
    width: float
    label: str
    hover: str
    role: str
    search: str = ""
