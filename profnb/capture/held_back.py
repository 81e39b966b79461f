"""What must wait while the profiler starts or stops: its own log lines, and an interrupt."""

import contextlib
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["interrupt_held_back", "profiler_log_held_back"]

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile|xplane_to_step_stats)\.cc:\d+\]"
)


@contextlib.contextmanager
def interrupt_held_back() -> Iterator[None]:
    """Let an interrupt wait until the block is over, so that it leaves nothing half begun or half ended.

    Blocks may stand one inside the other: it waits for the outermost. Several are one. Only the main thread
    is interrupted, and only it may hold an interrupt back.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[-1])


@contextlib.contextmanager
def profiler_log_held_back() -> Iterator[list[bytes]]:
    """Keep the profiler's own log lines out of the notebook; pass on anything else written.

    TensorFlow logs them to file descriptor 2, which a kernel shows under the user's cell. The list
    holds them when the block is over.
    """
    lines: list[bytes] = []
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(tempfile.TemporaryFile())
            saved = os.dup(2)
        except OSError:  # no standard error, or nowhere to put it
            yield lines
            return
        os.dup2(held.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held:
                if _PROFILER_LOG.search(line):
                    lines.append(line)
                else:
                    os.write(2, line)
