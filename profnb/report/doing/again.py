"""A result to the line that measures a change against it: ``%%tfprofile --vs before``."""

import sys
from shlex import quote
from typing import Any

_LAST = "_tfprofile"


def name_in_notebook(result: object) -> str:
    """What a result is called in the notebook that runs: a name of the user's, else ``_tfprofile``."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell: Any = None if get_ipython is None else get_ipython()
    if shell is None:
        return ""
    names: list[str] = [
        name for name, value in list(getattr(shell, "user_ns", {}).items()) if value is result
    ]
    given = [name for name in names if name.isidentifier() and not name.startswith("_")]
    return (given or [name for name in names if name == _LAST] or [""])[0]


def again_line(name: str) -> str:
    """The line over a cell that measures it against a result; "" for a result without a name.

    Args:
        name: What the result is called in the notebook, or the path of its trace.
    """
    return f"%%tfprofile --vs {quote(name)}" if name else ""
