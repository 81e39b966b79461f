"""How far a series of runs is: one line that is rewritten in place, and gone when the series is over."""

import sys
from typing import Any

from markupsafe import Markup

from profnb.drawing.theme import MUTED, ROOT

__all__ = ["Progress"]


class Progress:
    """One line under the cell while runs are made; close it when they are.

    A plain HTML output that is updated, not a widget: widgets stay in the saved notebook.

    Args:
        total: How many runs there will be.
        is_quiet: Show nothing.
        what: What is counted.
    """

    def __init__(self, total: int, *, is_quiet: bool = False, what: str = "runs") -> None:
        """Show that nothing is done yet."""
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        self._total, self._what = total, what
        self._handle: Any = None
        is_terminal = getattr(get_ipython(), "kernel", None) is None
        self._writes = is_terminal and not is_quiet and sys.stderr.isatty()
        if not is_quiet and not is_terminal:
            self._handle = display(self._bundle(0, ""), raw=True, display_id=True)

    def close(self) -> None:
        """Take the line away."""
        if self._handle is not None:
            self._handle.update({"text/html": "", "text/plain": ""}, raw=True)
        self._write("")

    def show(self, done: int, what: str) -> None:
        """Say how many runs are done and which one is being made."""
        if self._handle is not None:
            self._handle.update(self._bundle(done, what), raw=True)
        self._write(f"{done} of {self._total} {self._what}  {what}")

    def _write(self, line: str) -> None:
        if self._writes:
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()

    def _bundle(self, done: int, what: str) -> dict[str, str]:
        counted = f"{done} of {self._total} {self._what}"
        html = Markup(
            '<div class="profnb" style="{}"><progress value="{}" max="{}" '
            'style="vertical-align:middle;margin-right:8px"></progress>{} <span style="{}">{}</span></div>'
        ).format(ROOT, done, self._total, counted, MUTED, what)
        return {"text/html": str(html), "text/plain": f"{counted} {what}".strip()}
