"""How far a series of runs is: a table that fills row by row, and nothing when the series is over."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from profnb.capture.seams import KERNEL
from profnb.core.printable import printable
from profnb.drawing.drawn_tables import html_table
from profnb.drawing.theme import MUTED, ROOT
from profnb.report.running.live_text import about_text
from profnb.report.running.slot import Slot, open_slot

_MOST_ROWS = 40


class Progress:
    """A line and a table under the cell while runs are made; close it when they are.

    Args:
        total: How many runs there will be.
        headings: Of the table's columns, the first of which says what a row is.
        done: How many have been made.
        is_quiet: Show nothing.
        counted: What is counted.
    """

    def __init__(
        self,
        total: int,
        headings: Sequence[str] = (),
        *,
        done: int = 0,
        is_quiet: bool = False,
        counted: str = "runs",
    ) -> None:
        """Show that nothing is done yet."""
        from IPython.core.getipython import get_ipython

        self._total, self._headings, self._counted = total, headings, counted
        self._rows: dict[int, Sequence[str]] = {}
        self._began = done, time.monotonic()
        is_terminal = KERNEL.of(get_ipython()) is None
        self._writes = is_terminal and not is_quiet and sys.stderr.isatty()
        self._slot: Slot | None = None if is_quiet else open_slot()

    def close(self) -> None:
        """Take all of it away."""
        if self._slot is not None:
            self._slot.clear()
        self._write("")

    def fill(self, row: int, *cells: str) -> None:
        """Fill a row, in place of what it held; shown with the next line."""
        self._rows[row] = cells

    def show(self, done: int, what: str) -> None:
        """Say how many runs are done and which one is being made."""
        line = " · ".join(
            part for part in (f"{done} of {self._total} {self._counted}", self._left(done)) if part
        )
        if self._slot is not None:
            rows = [self._rows[row] for row in sorted(self._rows)][-_MOST_ROWS:]
            self._slot.show(str(self._html(done, line, what, rows)), f"{line}  {what}".strip())
        self._write(f"{line}  {what}")

    def _left(self, done: int) -> str:
        """How long the others take, if they take as long as those that were made since it began."""
        before, began = self._began
        if done <= before or done >= self._total:
            return ""
        each = (time.monotonic() - began) / (done - before)
        return f"{about_text(each * (self._total - done))} left"

    def _write(self, line: str) -> None:
        if self._writes:
            sys.stderr.write(f"\r\033[K{printable(line)}")
            sys.stderr.flush()

    def _html(self, done: int, line: str, what: str, rows: Sequence[Any]) -> Markup:
        numbers = [False, *(True for _ in self._headings[1:])]
        table = html_table(self._headings, rows, numbers) if rows else Markup("")
        return Markup(
            '<div class="profnb" style="{}"><progress value="{}" max="{}" '
            'style="vertical-align:middle;margin-right:8px"></progress>{} <span style="{}">{}</span>{}</div>'
        ).format(ROOT, done, self._total, line, MUTED, what, table)
