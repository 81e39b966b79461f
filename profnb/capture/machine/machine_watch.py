"""A thread that looks at the machine while code runs: four times a second, or seldom where a look is dear.

Whatever a look takes of the processor, the thread rests two hundred times as long, so that all looks
together take less than 0.5 % of one core. ``psutil`` and ``pynvml`` are imported in the thread, and only if
they are there. After many looks every second one is forgotten, and the next ones are twice as far apart.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

from profnb.capture.machine.gpu_reader import GpuReader
from profnb.capture.machine.host_reader import HostReader
from profnb.capture.machine.machine_records import MISSING, MachineRecords

_PERIOD_S, _LEAST_IDLE, _PATIENCE_S = 0.25, 200, 2.0
MOST_LOOKS = 2000


class _Reader(Protocol):
    def look(self) -> None: ...

    def close(self) -> None: ...


_READERS: Sequence[tuple[str, Callable[[MachineRecords], _Reader]]] = (
    ("psutil", HostReader),
    ("pynvml", GpuReader),
)


class MachineWatch:
    """Looks at the machine.

    Attributes:
        records: What was seen; without looks where neither package is there.
        took_s: Processor time of the thread, without that of the imports.
    """

    def __init__(self) -> None:
        """Nothing is looked at yet."""
        self.records = MachineRecords()
        self.took_s = 0.0
        self._ended = threading.Event()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Look while something else runs."""
        records = self.records
        records.begin_ns = time.perf_counter_ns()
        if not any(_is_there(name) for name, _ in _READERS):
            yield
            return
        looking = threading.Thread(target=self._look_on, name="profnb", daemon=True)
        try:
            looking.start()
        except RuntimeError:  # no thread more can start: the user's code comes first
            yield
            return
        try:
            yield
        finally:
            records.end_ns = time.perf_counter_ns()
            self._ended.set()
            looking.join(_PATIENCE_S)
            if looking.is_alive():  # a driver that does not answer; what comes now is not kept
                self.records = MachineRecords()

    def _look_on(self) -> None:
        readers = _opened(self.records)
        pause = _PERIOD_S
        try:
            while readers:
                took = time.thread_time()
                self._look(readers)
                if len(self.records) >= MOST_LOOKS:
                    self.records.thin()
                    pause *= 2
                took = time.thread_time() - took
                self.took_s += took
                if self._ended.wait(max(pause, _LEAST_IDLE * took)):
                    self._look(readers)
                    return
        finally:
            for reader in readers:
                _guarded(reader.close)

    def _look(self, readers: Sequence[_Reader]) -> None:
        """Add one row; columns that no reader filled are missing."""
        records = self.records
        records.time_ns.append(time.perf_counter_ns())
        for reader in readers:
            _guarded(reader.look)
        count = len(records)
        for column in (*records.columns(), *(c for b in records.boards for c in b.columns())):
            column.extend([MISSING] * (count - len(column)))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _opened(records: MachineRecords) -> list[_Reader]:
    """The readers of what is there."""
    readers: list[_Reader] = []
    for name, reader in _READERS:
        if _is_there(name):
            _guarded(lambda reader=reader: readers.append(reader(records)))  # type: ignore[misc]
    return readers


def _guarded(call: Callable[[], object]) -> None:
    """Call something of somebody else's: a look less, and no more; the user's code comes first."""
    try:
        call()
    except Exception:  # noqa: BLE001 - NVML without a driver, a psutil that is broken
        return
