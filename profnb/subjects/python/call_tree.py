"""Functions that called each other to the blocks of an icicle, whichever way they were counted."""

from collections.abc import Mapping

from profnb.capture.source.user_code import file_title, is_user_file
from profnb.core.block import Block
from profnb.core.units import duration_text, percent_text

Function = tuple[str, str, int]
"""(name, file, first line)."""

# How much of a tree is drawn; the narrowest block is a fraction of the whole width.
DEEPEST, MOST_BLOCKS, NARROWEST = 12, 160, 0.004
_LONGEST = 160


def short_name(name: str) -> str:
    """A function's name without the word for functions inside functions."""
    return name.replace(".<locals>", "")[-_LONGEST:]


def function_place(function: Function, cells: Mapping[str, int]) -> str:
    """Where a function stands: "Cell [3]:12", "built in".

    Args:
        function: The function.
        cells: The number of the cell that each file stands for, where it is one.
    """
    name, file, first_line = function
    if file.startswith("~") or not file:
        return "built in"
    title = file_title(file, cells)
    return title if name == "<module>" else f"{title}:{first_line}"


def call_block(
    function: Function, level: int, begin: float, width: float, total_ps: int, cells: Mapping[str, int],
    between_ps: int | None = None,
) -> Block:  # fmt: skip
    """The block of a function under its caller: "user code", "library" or "library between steps".

    Args:
        function: The function.
        level: How many callers it has.
        begin: Its left edge, as a fraction of the whole width.
        width: As a fraction of the whole width.
        total_ps: Its time.
        cells: The number of the cell that each file stands for, where it is one.
        between_ps: The part of its time between steps; None where there are no steps.
    """
    name, file, _ = function
    hover = f"{short_name(name)} ({function_place(function, cells)}): {duration_text(total_ps)}, "
    hover += percent_text(width)
    if between_ps is not None and total_ps:
        hover += f", {percent_text(between_ps / total_ps)} of it between steps"
    role = "library between steps" if between_ps and 2 * between_ps > total_ps else "library"
    role = "user code" if is_user_file(file) else role
    label = "your code" if name == "<module>" else name.rpartition(".<locals>.")[2]
    return Block(level, begin, width, label, hover, role)
