"""What must wait while the profiler starts or stops: its own log lines, and an interrupt."""

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["interrupt_held_back", "profiler_log_held_back"]

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile|xplane_to_step_stats)\.cc:\d+\]"
    rb"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's
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

    TensorFlow and PyTorch log them to file descriptor 2, which a kernel shows under the user's cell. The list
    holds them when the block is over. If the process dies in the block, what it wrote last is shown.
    """
    lines: list[bytes] = []
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(tempfile.TemporaryFile())
            saved = os.dup(2)
        except OSError:  # no standard error, or nowhere to put it
            yield lines
            return
        stack.enter_context(_shown_at_death(held.fileno(), saved))
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


@contextlib.contextmanager
def _shown_at_death(held: int, saved: int) -> Iterator[None]:
    """Have a file shown if this process dies in the block.

    What the C library, a failed check of TensorFlow's or Python's faulthandler say at the end goes to
    descriptor 2, and no code of ours runs any more. So a shell waits for a line from us, and shows the file
    when it finds the pipe closed instead. Only where /proc lets it be opened anew.

    Args:
        held: The file's descriptor.
        saved: Where to show it; a kernel's own standard error counts more, as only that outlives it.
    """
    with contextlib.ExitStack() as stack:
        try:
            reading = os.open(f"/proc/self/fd/{held}", os.O_RDONLY)
            stack.callback(os.close, reading)
            waiting, telling = os.pipe()
            stack.callback(os.close, waiting)
            is_kernel = type(sys.stderr).__module__.startswith("ipykernel")
            shown = sys.stderr.fileno() if is_kernel else saved
            pairs = (waiting, 0), (shown, 1), (shown, 2), (reading, 3)
            inherited = [(os.POSIX_SPAWN_DUP2, own, its) for own, its in pairs]
            arguments = ["sh", "-c", 'trap "" INT TERM HUP; read _ || exec cat <&3']
            child = os.posix_spawn("/bin/sh", arguments, os.environ, file_actions=inherited)
        except (OSError, AttributeError, ValueError):  # no such system, or no more processes
            child = 0
        if not child:
            stack.close()
            yield
            return
        stack.close()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # somebody killed it, or reaps all children himself
                os.write(telling, b"\n")
            os.close(telling)
            with contextlib.suppress(OSError):
                os.waitpid(child, 0)
