"""The profiler's own log lines, held back while it starts or stops; what others write comes after."""

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile)\.cc:\d+\]"
    rb"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's
)
_FIRST_LOG = b"WARNING: All log messages before absl::InitializeLog() is called"


def profiler_log_held_back() -> contextlib.AbstractContextManager[list[bytes]]:
    """Keep the profiler's own log lines out of the notebook; see ``log_held_back``."""
    return log_held_back(_PROFILER_LOG)


@contextlib.contextmanager
def log_held_back(pattern: re.Pattern[bytes]) -> Iterator[list[bytes]]:
    """Hold back the log lines of C++ code that profnb itself calls in the block, and pass on all others.

    TensorFlow and PyTorch log to file descriptor 2, which a kernel shows under the user's cell. It is a file
    inside the block, which so may hold one call, and none of the user's code. On other threads than the main
    one, where the user's code runs beside it, nothing is held back: a window that closes by the clock, or a
    cell that runs on a thread of its own, shows two or three lines.

    If the process dies in the block, what it wrote last is in a file ``profnb-log-*.txt`` in the temporary
    folder, which else is removed.

    Args:
        pattern: What stands in lines that are held back.

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
