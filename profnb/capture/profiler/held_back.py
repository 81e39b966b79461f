"""The profiler's own log lines, held back while it starts or stops; what others write comes after.

Only in a notebook, where a kernel shows file descriptor 2 under the user's cell. Elsewhere standard error is
as without us, the last words of a process that dies included; a kernel's pipe loses those without us, too.
"""

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

from profnb.capture.seams import KERNEL, SHELL_INSTANCE, SHELL_IS_THERE

__all__ = ["LogHolder", "profiler_log_held_back"]

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile|xplane_to_step_stats)\.cc:\d+\]"
    rb"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's
)
_FIRST_LOG = b"WARNING: All log messages before absl::InitializeLog() is called"


@contextlib.contextmanager
def profiler_log_held_back() -> Iterator[list[bytes]]:
    """Keep the profiler's own log lines out of the notebook; pass on anything else written.

    TensorFlow and PyTorch log them to file descriptor 2. The list holds them when the block is over.
    """
    with contextlib.closing(LogHolder()) as holder, holder.hold() as lines:
        yield lines


class LogHolder:
    """Holds the profiler's log lines back again and again, as ``profiler_log_held_back`` does once.

    The file that it needs is made when it is needed first, and kept until ``close``.
    """

    def __init__(self) -> None:
        """Nothing is opened yet."""
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
        if not is_in_notebook():
            return False
        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(tempfile.TemporaryFile(buffering=0))
                saved = os.dup(2)
            except OSError:  # no standard error, or nowhere to put it
                return False
            stack.callback(os.close, saved)
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


def is_in_notebook() -> bool:
    """Tell whether a kernel runs this code."""
    is_there, instance = SHELL_IS_THERE.find(), SHELL_INSTANCE.find()
    return bool(is_there and instance and is_there()) and KERNEL.of(instance()) is not None
