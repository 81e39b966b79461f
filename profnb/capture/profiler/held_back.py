"""The profiler's own log lines, held back while it starts or stops; what others write comes after."""

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

__all__ = ["LogHolder", "profiler_log_held_back"]

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile|xplane_to_step_stats)\.cc:\d+\]"
    rb"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's
)
_FIRST_LOG = b"WARNING: All log messages before absl::InitializeLog() is called"


@contextlib.contextmanager
def profiler_log_held_back() -> Iterator[list[bytes]]:
    """Keep the profiler's own log lines out of the notebook; pass on anything else written.

    TensorFlow and PyTorch log them to file descriptor 2, which a kernel shows under the user's cell. The list
    holds them when the block is over. If the process dies in the block, what it wrote last is shown.
    """
    with contextlib.closing(LogHolder()) as holder, holder.hold() as lines:
        yield lines


class LogHolder:
    """Holds the profiler's log lines back again and again, as ``profiler_log_held_back`` does once.

    What that needs, a file and a process, is made when it is needed first and kept until ``close``:
    a process for each of many short runs takes longer than they do where the cores are busy.

    Args:
        is_long: It is kept while the user's code runs. The process is then no child of this one, as code
            that waits for all its children must not wait for it.
    """

    def __init__(self, *, is_long: bool = False) -> None:
        """Nothing is opened yet."""
        self._is_long = is_long
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._inside: set[object] = set()
        self._held: IO[bytes] | None = None
        self._saved = -1

    def close(self) -> None:
        """Leave nothing open; it may be used again."""
        self._stack.close()
        self._held = None

    @contextlib.contextmanager
    def hold(self) -> Iterator[list[bytes]]:
        """Hold the lines back in the block; of blocks at once, the first to begin has those of all."""
        lines: list[bytes] = []
        block = object()
        try:
            with self._lock:
                is_first = not self._inside
                self._inside.add(block)
                if is_first and (self._held is not None or self._open()):
                    assert self._held is not None
                    os.dup2(self._held.fileno(), 2)
            yield lines
        finally:
            with self._lock:
                was_inside = block in self._inside
                self._inside.discard(block)
                if was_inside and not self._inside and self._held is not None:
                    os.dup2(self._saved, 2)
                    lines += self._pass_on(self._held)

    def _open(self) -> bool:
        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(tempfile.TemporaryFile(buffering=0))
                saved = os.dup(2)
            except OSError:  # no standard error, or nowhere to put it
                return False
            stack.callback(os.close, saved)
            stack.enter_context(_shown_at_death(held.fileno(), saved, is_long=self._is_long))
            self._held, self._saved, self._stack = held, saved, stack.pop_all()
        return True

    def _pass_on(self, held: IO[bytes]) -> list[bytes]:
        """The profiler's lines; what else was written goes on to where it was meant for."""
        held.seek(0)
        written = held.read().splitlines(keepends=True)
        held.seek(0)
        held.truncate()
        kept = [_PROFILER_LOG.search(line) is not None for line in written]
        for at in range(len(written) - 1):  # what Abseil says once, of the line below it
            kept[at] |= kept[at + 1] and written[at].startswith(_FIRST_LOG)
        others = b"".join(line for line, is_kept in zip(written, kept, strict=True) if not is_kept)
        if others:
            os.write(2, others)
        return [line for line, is_kept in zip(written, kept, strict=True) if is_kept]


@contextlib.contextmanager
def _shown_at_death(held: int, saved: int, *, is_long: bool) -> Iterator[None]:
    """Have a file shown if this process dies in the block.

    What the C library, a failed check of TensorFlow's or Python's faulthandler say at the end goes to
    descriptor 2, and no code of ours runs any more. So a shell waits for a line from us, and shows the file
    when it finds the pipe closed instead. Only where /proc lets it be opened anew.

    Args:
        held: The file's descriptor.
        saved: Where to show it; a kernel's own standard error counts more, as only that outlives it.
        is_long: Whether the shell that waits is to be no child of this process.
    """
    with contextlib.ExitStack() as stack:
        try:
            reading = os.open(f"/proc/self/fd/{held}", os.O_RDONLY)
            stack.callback(os.close, reading)
            waiting, telling = os.pipe()
            stack.callback(os.close, waiting)
            is_kernel = type(sys.stderr).__module__.startswith("ipykernel")
            shown = sys.stderr.fileno() if is_kernel else saved
            silent = os.open(os.devnull, os.O_WRONLY)  # for what a shell has to say of itself
            stack.callback(os.close, silent)
            pairs = (waiting, 0), (shown, 1), (silent, 2), (reading, 3)
            inherited = [(os.POSIX_SPAWN_DUP2, descriptor, its) for descriptor, its in pairs]
            command = 'trap "" INT TERM HUP; read _ <&4 || exec cat <&3'
            apart = f"({command}) &" if is_long else command
            arguments = ["sh", "-c", f"exec 4<&0; {apart}"]
            child = os.posix_spawn("/bin/sh", arguments, os.environ, file_actions=inherited)
        except (OSError, AttributeError, ValueError):  # no such system, or no more processes
            child = 0
        if not child:
            stack.close()
            yield
            return
        stack.close()
        if is_long:
            _reap(child)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # somebody killed it
                os.write(telling, b"\n")
            os.close(telling)
            if not is_long:
                _reap(child)


def _reap(child: int) -> None:
    with contextlib.suppress(OSError):  # somebody reaps all children himself
        os.waitpid(child, 0)
