"""The door by which cells, blocks and programs leave their runs; imports nothing where none are kept."""

from typing import TYPE_CHECKING

from profnb.history.place import history_file

if TYPE_CHECKING:
    from profnb.profile import Profile


def keep(profile: "Profile", *, code: str | None = None, file: str = "", line: int = 0) -> str:
    """Keep the run of a cell, of the ``with`` block at a line of a file, or of a program, by its file alone.

    Args:
        profile: The run, when it is over.
        code: The cell as Python.
        file: The block's or the program's file.
        line: Where the block stands in it.

    Returns:
        What the user should know, or "".
    """
    if history_file() is None:
        return ""
    from profnb.history.identity import identify_block, identify_code
    from profnb.history.keeping import keep_run

    return keep_run(profile, identify_block(file, line) if code is None else identify_code(code))
