"""The line under a running cell: a thread writes it anew twice a second, and it goes when the cell is over.

It asks nothing of the code that runs: it reads what the capture keeps anyway. Whatever it takes of the
processor, it rests two hundred times as long.
"""

import contextvars
import threading
import time
from collections.abc import Callable

from markupsafe import Markup

from profnb.drawing.theme import MUTED, ROOT
from profnb.report.running.slot import Slot, open_slot

_PERIOD_S, _LEAST_IDLE = 0.5, 200
_PATIENCE_S = 1.0


class LiveLine:
    """One line in one output.

    Args:
        text: Gives the line as it is now; called by a thread.
        is_wanted: Whether to show it.
    """

    def __init__(self, text: Callable[[], str], *, is_wanted: bool = True) -> None:
        """Show nothing yet."""
        self._text = text
        self._slot: Slot | None = open_slot() if is_wanted else None
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last = ""
        self.took_s = 0.0  # processor time of the thread

    def start(self) -> None:
        """Begin to write; a cell that is over at once never shows a line."""
        if self._slot is None:
            return
        context = contextvars.copy_context()  # which tells the kernel whose output it is
        self._thread = threading.Thread(
            target=context.run, args=(self._write_on,), name="profnb", daemon=True
        )
        self._thread.start()

    def end(self, text: str = "") -> None:
        """Write no more by itself; a last line may stand until the output is cleared."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if text and self._last:
            self._write(text)

    def close(self) -> None:
        """Leave an empty output."""
        self.end()
        slot, self._slot = self._slot, None
        if slot is not None and self._writing.acquire(timeout=_PATIENCE_S):
            self._writing.release()
        if slot is not None and self._last:
            slot.clear()

    def _write_on(self) -> None:
        pause = _PERIOD_S
        while not self._ended.wait(pause):
            began = time.thread_time()
            try:
                self._write(self._text())
            except Exception:  # noqa: BLE001 - a line less; the user's code comes first
                return
            took = time.thread_time() - began
            self.took_s += took
            pause = max(_PERIOD_S, _LEAST_IDLE * took)

    def _write(self, text: str) -> None:
        with self._writing:
            if self._slot is None or text == self._last:
                return
            self._last = text
            look = f"{ROOT};{MUTED};font-variant-numeric:tabular-nums"
            html = Markup('<div class="profnb" style="{}">{}</div>').format(look, text)
            self._slot.show(str(html), text)
