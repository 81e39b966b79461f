"""The output while code runs, under a cell or in a terminal's last row; empty again when that is over.

`Slot` is the output, `LiveLine` the line under a running cell, `LiveText` what it says of a capture, and
`Progress` the table of a series of runs, which fills row by row.

`BottomLine` keeps a terminal's last row for the line of a program: what the program prints scrolls above it,
and the terminal is given back whole when the program is over.
"""

import atexit
import contextvars
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from markupsafe import Markup

from profnb.capture.recording import Recording
from profnb.capture.seams import KERNEL, PUBLISH, PUBLISHER, SOCKET
from profnb.capture.step_records import Standing, recent_step_ns
from profnb.core.printable import printable, shortened
from profnb.core.units import NS_PER_S, PS_PER_NS, count_text, duration_text
from profnb.drawing.markup import html_table
from profnb.drawing.theme import MUTED, ROOT

EMPTY = {"text/html": "", "text/plain": ""}
_REWRITE_S = 0.5  # between two lines: as often as anybody reads them
_RESTS_FOR = 200  # times as long as a line took of the processor, so the cell gives 0.5 % at most
_JOIN_S = 1.0  # a thread that hangs in a line holds up the end of its cell so long
_FEWEST_BATCHES, _LEAST_NS = 3, 4e8  # that a speed is told by
_SHOWN_RUNS = 40
_RUN_TITLES = {"train": ("step", "fit"), "test": ("evaluation step", "evaluation"),
               "predict": ("prediction step", "prediction")}  # fmt: skip
_FEWEST_ROWS, _FEWEST_COLUMNS = 5, 20
_SAVE, _RESTORE, _ERASE, _ALL_ROWS = "\x1b7", "\x1b8", "\x1b[2K", "\x1b[r"


class Slot:
    """One output of a notebook's cell, written anew while code runs.

    It stands where it was first shown, in front of what the code prints, so that the code's own outputs stay
    as they are and in one piece. It is no widget: those stay in the saved notebook. An output cannot be taken
    back alone. An empty one shows nothing; one without any data would make nbconvert warn. What is shown goes
    to the kernel's own publisher: where the code has put another in its place, to keep what is displayed, it
    finds nothing of ours.

    Args:
        publish: The kernel's way to display something.
    """

    def __init__(self, publish: Any) -> None:
        """Show an empty one."""
        self._publish, self._id = publish, uuid4().hex
        self._send(EMPTY, is_update=False)

    def show(self, html: str, text: str) -> None:
        """Write it anew; any thread may."""
        self._send({"text/html": html, "text/plain": text}, is_update=True)

    def clear(self) -> None:
        """Leave nothing in it."""
        self._send(EMPTY, is_update=True)

    def _send(self, data: dict[str, str], *, is_update: bool) -> None:
        self._publish(data, {}, transient={"display_id": self._id}, update=is_update)


def open_slot() -> Slot | None:
    """An output under the running cell; None without a notebook, or where what is displayed is being kept."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    publisher = PUBLISHER.of(shell)
    publish, is_kept = PUBLISH.of(publisher), SOCKET.of(publisher) is None  # as by %%capture
    return None if KERNEL.of(shell) is None or is_kept or publish is None else Slot(publish)


class Output(Protocol):
    """A place in which a line is written anew."""

    def show(self, html: str, text: str) -> None:
        """Write it anew; any thread may."""

    def clear(self) -> None:
        """Leave nothing."""


class LiveLine:
    """The line under a running cell: a thread writes it anew twice a second, until the cell is over.

    It asks nothing of the code that runs: it reads what the capture keeps anyway.

    Args:
        text: Gives the line as it is now; called by a thread.
        is_wanted: Whether to show it.
        slot: Where; by default under the running cell.
    """

    def __init__(
        self, text: Callable[[], str], *, is_wanted: bool = True, slot: Output | None = None
    ) -> None:
        """Show nothing yet."""
        self._text = text
        self._slot: Output | None = slot or (open_slot() if is_wanted else None)
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
            self._thread.join(_JOIN_S)
        if text and self._last:
            self._write(text)

    def close(self) -> None:
        """Leave an empty output."""
        self.end()
        slot, self._slot = self._slot, None
        if slot is not None and self._writing.acquire(timeout=_JOIN_S):
            self._writing.release()
        if slot is not None and self._last:
            slot.clear()

    def _write_on(self) -> None:
        pause = _REWRITE_S
        while not self._ended.wait(pause):
            began = time.thread_time()
            try:
                self._write(self._text())
            except Exception:  # noqa: BLE001 - a line less; the user's code comes first
                return
            took = time.thread_time() - began
            self.took_s += took
            pause = max(_REWRITE_S, _RESTS_FOR * took)

    def _write(self, text: str) -> None:
        with self._writing:
            if self._slot is None or text == self._last:
                return
            self._last = text
            look = f"{ROOT};{MUTED};font-variant-numeric:tabular-nums"
            html = Markup('<div class="profnb" style="{}">{}</div>').format(look, text)
            self._slot.show(str(html), text)


def run_words(recording: Recording) -> tuple[str, str]:
    """A run's wall time, and that of one of its last steps, as text."""
    step_ns = recent_step_ns(recording.steps)
    return duration_text(recording.wall_ns * PS_PER_NS), duration_text(step_ns * PS_PER_NS)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The state of a run when its speed began to count."""

    run: int
    was_tracing: bool
    elapsed_ns: int
    done: int


class LiveText:
    """Writes the line, and remembers where a run was before, so that it knows its speed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._mark: _Mark | None = None

    def __call__(self, standing: Standing) -> str:
        """The line, for instance "tracing 37 of 100 steps · 12.1 ms a step · about 31 s left in this fit"."""
        run = standing.run
        parts = [_head(standing)]
        if run is not None and not standing.is_tracing and run.batches_ended + run.epochs_ended:
            of_all = f" of {count_text(run.total)}" if run.total else ""
            parts.append(f"{_RUN_TITLES[run.phase][0]} {count_text(run.done)}{of_all}")
        if not math.isnan(standing.step_ns):
            parts.append(f"{duration_text(standing.step_ns * PS_PER_NS)} a step")
        elif run is None or not run.done:
            parts.append(f"{count_text(round(standing.elapsed_ns / NS_PER_S))} s")
        if run is not None and not math.isnan(run.loss):
            epoch = run.first_epoch + run.epochs_ended
            parts.append(f"loss {run.loss:.3g} after epoch {epoch}")
        return " · ".join(filter(None, (*parts, self._left(standing))))

    def _left(self, standing: Standing) -> str:
        """The time left at the speed that the run has had; "" where that is not known."""
        run, mark = standing.run, self._mark
        if run is None or not run.done or not run.total:
            return ""
        if mark is None or (mark.run, mark.was_tracing) != (run.number, standing.was_tracing):
            self._mark = _Mark(run.number, standing.was_tracing, standing.elapsed_ns, run.done)
            return ""
        took_ns, made = standing.elapsed_ns - mark.elapsed_ns, run.done - mark.done
        left = run.total - run.done
        if made < _FEWEST_BATCHES or took_ns < _LEAST_NS or left <= 0:
            return ""
        # Before an epoch is over, nobody knows what its end takes: validation, checkpoints.
        steps = " of steps" if run.phase == "train" and not run.epochs_ended else ""
        seconds = about_text(took_ns / made * left / NS_PER_S)
        return f"{seconds}{steps} left in this {_RUN_TITLES[run.phase][1]}"


def _head(standing: Standing) -> str:
    if standing.is_tracing and standing.traced_steps:
        traced, most = count_text(standing.traced_steps), count_text(standing.max_steps)
        return f"tracing {traced} of {most} steps"
    if standing.is_tracing:
        return "tracing, no step is over yet"
    return "trace closed, timing only" if standing.was_tracing else "running, nothing traced yet"


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
        counted = f"{done} of {self._total} {self._counted}"
        line = " · ".join(filter(None, (counted, self._left(done))))
        if self._slot is not None:
            rows = [self._rows[row] for row in sorted(self._rows)][-_SHOWN_RUNS:]
            self._slot.show(str(self._html(done, line, what, rows)), f"{line}  {what}".strip())
        self._write(f"{line}  {what}")

    def _left(self, done: int) -> str:
        """The time left, if the others take as long as those that were made since it began."""
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
        numbers = [at > 0 for at, _ in enumerate(self._headings)]
        table = html_table(self._headings, rows, numbers) if rows else ""
        return Markup(
            '<div class="profnb" style="{}"><progress value="{}" max="{}" '
            'style="vertical-align:middle;margin-right:8px"></progress>{} <span style="{}">{}</span>{}</div>'
        ).format(ROOT, done, self._total, line, MUTED, what, table)


def about_text(seconds: float) -> str:
    """A duration that is only estimated: "about 31 s", "about 4 min", "about 2.5 h"."""
    if seconds < 90:
        return f"about {max(round(seconds), 1)} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


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
        # a row more below what was written, which then scrolls above the last
        if rows != self._rows:
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
