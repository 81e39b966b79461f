"""Processors, memory and disks by ``psutil``: what all processes do, and what this one does.

A system that does not tell one of them (no disks on macOS, none in some containers) is not asked again.
"""

from array import array
from collections.abc import Callable
from importlib import import_module
from typing import Any

from profnb.capture.machine.machine_records import MISSING, MachineRecords

_NS = 1e9


class HostReader:
    """Reads the host at each look.

    Args:
        records: Where it is kept.

    Raises:
        ImportError: There is no psutil.
    """

    def __init__(self, records: MachineRecords) -> None:
        """Open psutil."""
        self._psutil: Any = import_module("psutil")
        self._process = self._psutil.Process()
        self._records = records
        self._untold: set[str] = set()

    def look(self) -> None:
        """Add one value to each column."""
        records = self._records
        self._add("machine", self._machine, records.busy_ns, records.idle_ns)
        self._add("process", self._read_process, records.process_ns)
        self._add("memory", lambda: (self._process.memory_info().rss,), records.resident_bytes)
        self._add("disks", self._disks, records.read_bytes, records.written_bytes)

    def _machine(self) -> tuple[float, float]:
        times = self._psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted twice
        return (sum(times) - guests - idle) * _NS, idle * _NS

    def _read_process(self) -> tuple[float]:
        times = self._process.cpu_times()
        return ((times.user + times.system) * _NS,)

    def _disks(self) -> tuple[int, int]:
        counted = self._process.io_counters()
        return counted.read_bytes, counted.write_bytes

    def _add(self, what: str, ask: Callable[[], tuple[float, ...]], *columns: "array[int]") -> None:
        values: tuple[float, ...] = (MISSING,) * len(columns)
        if what not in self._untold:
            try:
                values = ask()
            except Exception:  # noqa: BLE001 - psutil's own errors, or a system without it
                self._untold.add(what)
        for column, value in zip(columns, values, strict=True):
            column.append(int(value))

    def close(self) -> None:
        """Nothing is open."""
