"""The profiler of one framework, to one capture: started, stopped, its own log lines held back."""

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profnb.capture.hooks import Library
from profnb.capture.seam import Seam
from profnb.core.options import CaptureOptions

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile)\.cc:\d+\]"
    rb"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's
)
_FIRST_LOG = b"WARNING: All log messages before absl::InitializeLog() is called"


class Door:
    """Starts and stops a framework's profiler.

    Args:
        options: What to record.
        messages: Where what went wrong is said.

    Attributes:
        title: What the framework is called.
        is_of_thread: Whether only the thread that started it can stop it.
        needed: The functions without which nothing is recorded; the first two start and stop.
        functions: These functions, once they were found.
    """

    title = ""
    is_of_thread = False
    needed: tuple[Seam, ...] = ()

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        self._options, self._messages = options, messages
        self._library: Library | None = None
        self.functions: tuple[Any, ...] = ()

    def find(self, library: Library) -> bool:
        """Look the functions up in the framework; False where one is missing."""
        self._library = library
        self.functions = tuple(library.take(seam) for seam in self.needed)
        return None not in self.functions

    def _take(self, seam: Seam) -> Any:
        return None if self._library is None else self._library.take(seam)

    def start(self, folder: str) -> None:
        """Start the profiler, which writes its trace below a folder.

        Raises:
            RuntimeError: It runs already, for code that has not stopped it.
        """
        raise NotImplementedError

    def stop(self, folder: Path) -> Path | None:
        """Stop it; the trace that it wrote, if any."""
        raise NotImplementedError

    def _find_trace(self, folder: Path, if_none: str) -> Path | None:
        traces = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
        if not traces:
            self._messages.append(if_none)
        return traces[-1] if traces else None

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A step's marker in the trace, begun; None where none is recorded, or the framework has none."""
        raise NotImplementedError

    def mark(self, name: str) -> Any:
        """An event in the trace, begun; None where none is recorded, or the framework has none."""
        raise NotImplementedError


@contextlib.contextmanager
def log_held_back(pattern: re.Pattern[bytes] = _PROFILER_LOG) -> Iterator[list[bytes]]:
    """Hold back the log lines of C++ code that profnb itself calls in the block, and pass on all others.

    TensorFlow and PyTorch log to file descriptor 2, which a kernel shows under the user's cell. It is a file
    inside the block, which so may hold one call, and none of the user's code. On other threads than the main
    one, where the user's code runs beside it, nothing is held back: a window that closes by the clock, or a
    cell that runs on a thread of its own, shows two or three lines.

    If the process dies in the block, what it wrote last is in a file ``profnb-log-*.txt`` in the temporary
    folder, which else is removed.

    Args:
        pattern: What stands in lines that are held back; by default, what does in the profilers' own.

    Yields:
        The lines held back; complete when the block is over.
    """
    lines: list[bytes] = []
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is not threading.main_thread():
            yield lines
            return
        try:
            held = stack.enter_context(
                tempfile.NamedTemporaryFile(prefix="profnb-log-", suffix=".txt", buffering=0)
            )
            saved = os.dup(2)
        except OSError:  # no standard error, or nowhere to put it
            yield lines
            return
        stack.callback(os.close, saved)
        os.dup2(held.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            held.seek(0)
            lines += _pass_on(held.read().splitlines(keepends=True), pattern)


def _pass_on(written: list[bytes], pattern: re.Pattern[bytes]) -> list[bytes]:
    """The lines with the pattern; what else was written goes on to where it was meant for."""
    kept = [pattern.search(line) is not None for line in written]
    for at in range(len(written) - 1):  # what Abseil says once, of the line below it
        kept[at] |= kept[at + 1] and written[at].startswith(_FIRST_LOG)
    others = b"".join(line for line, is_kept in zip(written, kept, strict=True) if not is_kept)
    if others:
        os.write(2, others)
    return [line for line, is_kept in zip(written, kept, strict=True) if is_kept]


def first_line(error: Exception) -> str:
    """Give what an error says, in one line of 200 characters at most."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
