"""How long threads of this process waited for a free core while a trace was recorded.

A trace has no event for it: an op that waits for a core lasts as long as one that computes. The system keeps
for each thread how long it ran and how long it was ready and did not; both are read as the window opens and
as it closes. What other programs took is what the cores did less what this process did.

Source: proc(5), /proc/PID/task/TID/schedstat and /proc/stat. There is nothing of the kind on macOS and
Windows, and nothing is said there.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

THREADS, CORES = Path("/proc/self/task"), Path("/proc/stat")
_IDLE = (
    3,
    4,
)  # idle, and waiting for a disk; columns behind the eighth are in the first ones already
_MOST_THREADS = 2000


@dataclass
class CoreWaits:
    """What threads of this process and other programs did in the traced window; 0 where nobody could tell.

    Attributes:
        wall_ns: How long the window was.
        ran_ns: Processor time of those threads of this process that were there at its end.
        waited_ns: How long they were ready to run and had no core.
        others_ns: Processor time of all other programs.
        cores: How many cores the machine has.
    """

    wall_ns: int = 0
    ran_ns: int = 0
    waited_ns: int = 0
    others_ns: int = 0
    cores: int = 0

    @property
    def waited_fraction(self) -> float:
        """How long they waited, for each second that they ran; 0 where that is not known."""
        return self.waited_ns / self.ran_ns if self.ran_ns > 0 else 0.0

    @property
    def others_cores(self) -> float:
        """How many cores other programs had on average; 0 where that is not known."""
        return self.others_ns / self.wall_ns if self.wall_ns > 0 else 0.0


class CoreClock:
    """Reads both as a window opens and closes."""

    def __init__(self) -> None:
        """Nothing was read."""
        self._threads: dict[str, tuple[int, int]] = {}
        self._busy = self._cores = self._own_ns = self._begin_ns = 0

    def begin(self) -> None:
        """The window opens."""
        self._threads, (self._busy, self._cores) = _threads(), _busy()
        self._own_ns, self._begin_ns = time.process_time_ns(), time.perf_counter_ns()

    def end(self) -> CoreWaits:
        """The window closes."""
        threads, (busy, cores) = _threads(), _busy()
        wall_ns, own_ns = (
            now - begin
            for now, begin in (
                (time.perf_counter_ns(), self._begin_ns),
                (time.process_time_ns(), self._own_ns),
            )
        )
        if not threads or not self._threads:
            return CoreWaits()
        ran, waited = (
            sum(
                max(now[at] - self._threads.get(one, (0, 0))[at], 0) for one, now in threads.items()
            )
            for at in (0, 1)
        )
        others_ns = max(busy - self._busy - own_ns, 0) if busy and self._busy else 0
        return CoreWaits(wall_ns, ran, waited, others_ns, cores)


def _threads() -> dict[str, tuple[int, int]]:
    """(nanoseconds run, nanoseconds waited) of each thread of this process."""
    times_ns: dict[str, tuple[int, int]] = {}
    with suppress(OSError):
        for thread in islice(THREADS.iterdir(), _MOST_THREADS):
            with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                schedstat = (thread / "schedstat").read_text("ascii").split()
                times_ns[thread.name] = int(schedstat[0]), int(schedstat[1])
    return times_ns


def _busy() -> tuple[int, int]:
    """(nanoseconds that all cores were busy since the machine began, how many cores there are)."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        lines = CORES.read_text("ascii").splitlines()
        ticks = [int(text) for text in lines[0].split()[1:9]]
        spent = sum(count for at, count in enumerate(ticks) if at not in _IDLE)
        cores = sum(line.startswith("cpu") for line in lines) - 1
        return spent * 1_000_000_000 // os.sysconf("SC_CLK_TCK"), max(cores, 0)
    return 0, 0
