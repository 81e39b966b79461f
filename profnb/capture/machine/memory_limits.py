"""The most memory for this process: of the machine, its container (cgroup) or ``ulimit``, whichever binds.

Source: kernel.org, "Control Group v2" (memory.max, memory.stat), "Memory Resource Controller" (version 1);
proc(5), /proc/meminfo and /proc/self/statm; getrlimit(2).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MACHINE, CONTAINER, PROCESS_LIMIT = "the machine", "the container", "`ulimit -v`"
_GROUPS, _PROC = Path("/sys/fs/cgroup"), Path("/proc")
_UNLIMITED = 1 << 60  # version 1 writes a number of this size for none
_KB = 1024
_STATM_BYTES = 256  # seven numbers


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A bound on the memory of this process.

    Attributes:
        limit_bytes: What it may take in all, with what it has now.
        of: What sets the bound.
    """

    limit_bytes: int
    of: str


def resident_bytes(proc: Path = _PROC) -> int | None:
    """The memory of this process now; None where the system does not tell."""
    pages = _pages(proc)
    return None if pages is None else pages[1]


def _pages(proc: Path) -> tuple[int, int] | None:
    """Address space and memory of this process."""
    try:
        opened = os.open(f"{proc}/self/statm", os.O_RDONLY)
        try:  # with few calls: each gives the interpreter away
            first = os.pread(opened, _STATM_BYTES, 0).split()[:2]
        finally:
            os.close(opened)
        space, resident = (int(count) * os.sysconf("SC_PAGE_SIZE") for count in first)
    except (OSError, ValueError):
        return None
    return space, resident


def batch_that_fits(limit_bytes: float, fixed_bytes: float, per_example_bytes: float) -> int:
    """The largest batch whose memory, a fixed part and as much for each example, stays below a limit."""
    return int(max(limit_bytes - fixed_bytes, 0.0) / per_example_bytes)


def find_limit(proc: Path = _PROC, groups: Path = _GROUPS) -> MemoryLimit | None:
    """The bound that is reached first; None where the system tells none."""
    return min(_limits(proc, groups), key=lambda limit: limit.limit_bytes, default=None)


def _limits(proc: Path, groups: Path) -> Iterator[MemoryLimit]:
    space, resident = _pages(proc) or (0, 0)
    with suppress(OSError, ValueError, KeyError):
        lines = (proc / "meminfo").read_text("ascii").splitlines()
        free = {name: text.split()[0] for name, _, text in (line.partition(":") for line in lines)}
        yield MemoryLimit(int(free["MemAvailable"]) * _KB + resident, MACHINE)
    for group in _groups_of_process(proc, groups):
        with suppress(OSError, ValueError):
            limit = int(_first_text(group, "memory.max", "memory.limit_in_bytes"))
            if limit < _UNLIMITED:
                # What others in it hold; what is kept of files is given up for memory that is asked for.
                stat = dict(line.split() for line in _first_text(group, "memory.stat").splitlines())
                held = int(stat.get("anon") or stat.get("total_rss") or stat.get("rss") or 0)
                yield MemoryLimit(max(limit - max(held - resident, 0), 0), CONTAINER)
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:  # addresses are taken for files and reserves, too
            yield MemoryLimit(max(limit - (space - resident), 0), PROCESS_LIMIT)


def _groups_of_process(proc: Path, groups: Path) -> Iterator[Path]:
    """The cgroups of this process that bound memory, and those above them."""
    lines: list[str] = []
    with suppress(OSError, UnicodeError):
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    for line in lines or ["0::/"]:
        _, controllers, place = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root = groups / "memory" if controllers else groups
        parts = Path(place.lstrip("/")).parts
        yield from (root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1))


def _first_text(group: Path, *names: str) -> str:
    present = [group / name for name in names if (group / name).is_file()]
    return (present or [group / names[0]])[0].read_text("ascii").strip()
