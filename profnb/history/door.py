"""Where cells, blocks and programs leave their runs; nothing is imported where none are kept."""

from typing import TYPE_CHECKING

from profnb.history.place import history_file

if TYPE_CHECKING:
    from profnb.profile import Profile


def keep_cell(profile: "Profile", code: str) -> str:
    """Keep the run of a cell, given as Python; say what the user should know, or ""."""
    if history_file() is None:
        return ""
    from profnb.history.identity import identify_code
    from profnb.history.keeping import keep_run

    return keep_run(profile, identify_code(code))


def keep_block(profile: "Profile", file: str, line: int) -> str:
    """Keep the run of the ``with`` block at a line of a file, likewise."""
    if history_file() is None:
        return ""
    from profnb.history.identity import identify_block
    from profnb.history.keeping import keep_run

    return keep_run(profile, identify_block(file, line))


def keep_program(profile: "Profile", file: str) -> str:
    """Keep the run of a script or module, by its file, likewise."""
    if history_file() is None:
        return ""
    from profnb.history.identity import identify_script
    from profnb.history.keeping import keep_run

    return keep_run(profile, identify_script(file))
