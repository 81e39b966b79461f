"""A line at the bottom of the terminal while a program runs: the steps that are done, what one takes.

What the program prints scrolls above it. The terminal is given back whole when the program is over.
"""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from profnb.capture.step_records import Standing
from profnb.core.printable import printable, shortened
from profnb.report.progress import LiveLine, LiveText

_FEWEST_ROWS, _FEWEST_COLUMNS = 5, 20
_SAVE, _RESTORE, _ERASE, _ALL_ROWS = "\x1b7", "\x1b8", "\x1b[2K", "\x1b[r"


class BottomLine:
    """The last row of a terminal, kept out of what scrolls.

    Args:
        descriptor: Of the terminal; what stands for it may change while the program runs.
    """

    def __init__(self, descriptor: int) -> None:
        """Keep nothing yet."""
        self._descriptor, self._rows, self._process = descriptor, 0, os.getpid()

    def show(self, html: str, text: str) -> None:  # noqa: ARG002 - as a notebook's output does
        """Write it anew; a terminal that was made larger or smaller keeps its last row again."""
        columns, rows = os.get_terminal_size(self._descriptor)
        if rows < _FEWEST_ROWS or columns < _FEWEST_COLUMNS:
            self.clear()
            return
        keep = ""
        if (
            rows != self._rows
        ):  # a row more below what was written, which then scrolls above the last
            keep = f"\n\x1b[1A{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}"
            self._rows = rows
        line = shortened(printable(text), columns - 1)
        self._write(f"{keep}{_SAVE}\x1b[{rows};1H{_ERASE}{line}{_RESTORE}")

    def clear(self) -> None:
        """Erase it, and let everything scroll again."""
        if self._rows and os.getpid() == self._process:
            self._write(f"{_SAVE}\x1b[{self._rows};1H{_ERASE}{_ALL_ROWS}{_RESTORE}")
        self._rows = 0

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a terminal that is gone
            os.write(self._descriptor, text.encode())


def bottom_line_of(stream: Any) -> BottomLine | None:
    """The last row of a stream's terminal; None of a file, a pipe, a terminal that only prints."""
    try:
        if os.environ.get("TERM", "dumb") == "dumb" or not stream.isatty():
            return None
        descriptor = stream.fileno()
        os.get_terminal_size(descriptor)
    except (OSError, ValueError, AttributeError):
        return None
    return BottomLine(descriptor)


@contextmanager
def shown_at_bottom(stream: Any, standing: Callable[[], Standing]) -> Iterator[None]:
    """Show how far a capture is, where a stream is a terminal, as long as the block runs."""
    bottom = bottom_line_of(stream)
    if bottom is None:
        yield
        return
    text = LiveText()
    line = LiveLine(lambda: f"profnb: {text(standing())}", slot=bottom)
    atexit.register(line.close)  # whatever else fails
    line.start()
    try:
        yield
    finally:
        line.close()
        atexit.unregister(line.close)
