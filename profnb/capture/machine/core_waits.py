"""Threads of this process that waited for a free core while a trace was recorded.

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
from typing import NamedTuple

THREADS, CORES = Path("/proc/self/task"), Path("/proc/stat")
_IDLE = 3, 4  # and waiting for a disk; columns behind the eighth are in the first ones already
_MOST_THREADS = 2000


@dataclass
class CoreWaits:
    """Processor time in the traced window, of this process and of others; 0 where nobody could tell.

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
        """Seconds that they waited for each second that they ran; 0 where that is not known."""
        return self.waited_ns / self.ran_ns if self.ran_ns > 0 else 0.0

    @property
    def others_cores(self) -> float:
        """Cores that other programs had on average; 0 where that is not known."""
        return self.others_ns / self.wall_ns if self.wall_ns > 0 else 0.0


class CoreClock:
    """Reads both as a window opens and closes."""

    def __init__(self) -> None:
        """Nothing was read."""
        self._before = _Reading({}, 0, 0, 0, 0)

    def begin(self) -> None:
        """The window opens."""
        self._before = _read()

    def end(self) -> CoreWaits:
        """The window closes."""
        before, now = self._before, _read()
        if not now.threads or not before.threads:
            return CoreWaits()
        ran_ns, waited_ns = (
            sum(
                max(times[at] - before.threads.get(thread, (0, 0))[at], 0)
                for thread, times in now.threads.items()
            )
            for at in (0, 1)
        )
        others_ns = 0
        if now.busy_ns and before.busy_ns:
            others_ns = max(now.busy_ns - before.busy_ns - (now.own_ns - before.own_ns), 0)
        return CoreWaits(now.at_ns - before.at_ns, ran_ns, waited_ns, others_ns, now.cores)


class _Reading(NamedTuple):
    threads: dict[str, tuple[int, int]]  # nanoseconds run, and waited, of each of this process
    busy_ns: int  # of all cores, since the machine began
    cores: int
    own_ns: int  # processor time of this process
    at_ns: int


def _read() -> _Reading:
    threads: dict[str, tuple[int, int]] = {}
    with suppress(OSError):
        for thread in islice(THREADS.iterdir(), _MOST_THREADS):
            with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                schedstat = (thread / "schedstat").read_text("ascii").split()
                threads[thread.name] = int(schedstat[0]), int(schedstat[1])
    busy_ns = cores = 0
    with suppress(OSError, ValueError, IndexError, AttributeError):
        lines = CORES.read_text("ascii").splitlines()
        ticks = [int(text) for text in lines[0].split()[1:9]]
        spent = sum(count for at, count in enumerate(ticks) if at not in _IDLE)
        busy_ns = spent * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        cores = max(sum(line.startswith("cpu") for line in lines) - 1, 0)
    return _Reading(threads, busy_ns, cores, time.process_time_ns(), time.perf_counter_ns())
