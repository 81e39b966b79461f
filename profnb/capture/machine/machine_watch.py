"""A thread that looks at the machine while code runs: four times a second, or seldom where a look is dear.

Processors, memory and disks are read by ``psutil``, GPUs by NVML (``nvidia-ml-py``, module ``pynvml``). Both
are imported in the thread, and only if they are there. Each value is asked for by itself: a system that does
not tell one (no disks on macOS; a MIG slice has no utilization, an old board no energy) is not asked again,
and the value is missing.

Whatever a look takes of the processor, the thread rests two hundred times as long, so that all looks
together take less than 0.5 % of one core. After many looks every second one is forgotten, and the next ones
are twice as far apart.

Source: NVML API reference, NVIDIA (nvmlDeviceGetUtilizationRates, nvmlDeviceGetPowerUsage,
nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetCurrentClocksEventReasons); CUDA's documentation of
CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

import os
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from profnb.core.units import NS_PER_S

MISSING = -1  # of any column: nobody could tell
MOST_LOOKS = 2000
_PERIOD_S, _LEAST_IDLE, _CLOSING_S = 0.25, 200, 2.0
_MOST_BOARDS = 16


def _column() -> array[int]:
    return array("q")


@dataclass
class BoardRecords:
    """One GPU at each look, by NVML; a value that the board does not tell is -1.

    Attributes:
        name: Its model: "NVIDIA H100 80GB HBM3".
        index: NVML's number of it.
        memory_bytes: Its memory.
        utilization_percent: Share of NVML's last sample period in which a kernel ran.
        used_bytes: Memory in use, by anybody.
        power_milliwatts: What the board draws.
        energy_millijoules: The board's counter, since its driver was loaded.
        reasons: Why its clocks are lower than they might be: NVML's bits.
    """

    name: str = ""
    index: int = 0
    memory_bytes: int = MISSING
    utilization_percent: array[int] = field(default_factory=_column)
    used_bytes: array[int] = field(default_factory=_column)
    power_milliwatts: array[int] = field(default_factory=_column)
    energy_millijoules: array[int] = field(default_factory=_column)
    reasons: array[int] = field(default_factory=_column)


@dataclass
class MachineRecords:
    """N looks at the machine while the whole code ran, traced or not; what nobody could tell is -1.

    Counters and readings stand as they were, in columns that only grow.

    Attributes:
        begin_ns: When the code began, by ``time.perf_counter_ns``.
        end_ns: When it ended.
        time_ns: When each look was, by the same clock.
        busy_ns: Processor time that all processes have taken on all cores, since the machine began.
        idle_ns: Processor time that nobody took, likewise.
        process_ns: Processor time that this process has taken.
        resident_bytes: Memory of this process.
        read_bytes: What this process has read from disks.
        written_bytes: What it has written to disks.
        boards: The GPUs that this process may use.
    """

    begin_ns: int = 0
    end_ns: int = 0
    time_ns: array[int] = field(default_factory=_column)
    busy_ns: array[int] = field(default_factory=_column)
    idle_ns: array[int] = field(default_factory=_column)
    process_ns: array[int] = field(default_factory=_column)
    resident_bytes: array[int] = field(default_factory=_column)
    read_bytes: array[int] = field(default_factory=_column)
    written_bytes: array[int] = field(default_factory=_column)
    boards: list[BoardRecords] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.time_ns)

    def columns(self) -> list[array[int]]:
        """All that has one value for each look, the boards' too."""
        values = (value for record in (self, *self.boards) for value in vars(record).values())
        return [value for value in values if isinstance(value, array)]


class _Reader:
    """Asks for one value after the other, and for none again that could not be told."""

    def __init__(self) -> None:
        self._untold: set[Any] = set()

    def look(self) -> None:
        """Add one value to each column."""

    def close(self) -> None:
        """Let go of what is open."""

    def _ask(self, what: object, ask: Callable[[], Any]) -> Any:
        if what in self._untold:
            return None
        try:
            return ask()
        except Exception:  # noqa: BLE001 - errors of psutil's or NVML's own, or a version without it
            self._untold.add(what)
            return None


class HostReader(_Reader):
    """Reads what all processes do, and what this one does.

    Args:
        records: Given a value in each column at each look.

    Raises:
        ImportError: There is no psutil.
    """

    def __init__(self, records: MachineRecords) -> None:
        """Open psutil."""
        super().__init__()
        self._psutil: Any = import_module("psutil")
        self._process = self._psutil.Process()
        self._records = records

    def look(self) -> None:
        """Add one value to each column."""
        records = self._records
        self._add("machine", self._machine, records.busy_ns, records.idle_ns)
        self._add("process", self._processor, records.process_ns)
        self._add("memory", lambda: (self._process.memory_info().rss,), records.resident_bytes)
        self._add("disks", self._disks, records.read_bytes, records.written_bytes)

    def _machine(self) -> tuple[float, float]:
        times = self._psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted twice
        return (sum(times) - guests - idle) * NS_PER_S, idle * NS_PER_S

    def _processor(self) -> tuple[float]:
        times = self._process.cpu_times()
        return ((times.user + times.system) * NS_PER_S,)

    def _disks(self) -> tuple[int, int]:
        counted = self._process.io_counters()
        return counted.read_bytes, counted.write_bytes

    def _add(self, what: str, ask: Callable[[], Sequence[float]], *columns: array[int]) -> None:
        values = self._ask(what, ask) or (MISSING,) * len(columns)
        for column, value in zip(columns, values, strict=True):
            column.append(int(value))


class GpuReader(_Reader):
    """Reads the boards that this process may use.

    Args:
        records: Given these boards.

    Raises:
        Exception: There is no NVML, or it has no board: whatever its module raises.
    """

    def __init__(self, records: MachineRecords) -> None:
        """Open NVML."""
        super().__init__()
        warnings.filterwarnings("ignore", "The pynvml package is deprecated")  # nvidia-ml-py is not
        nvml: Any = import_module("pynvml")
        self._nvml = nvml
        nvml.nvmlInit()
        count = min(int(nvml.nvmlDeviceGetCount()), _MOST_BOARDS)
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
        self._boards: list[tuple[Any, BoardRecords]] = []
        for board in visible_boards(os.environ, names):
            if isinstance(board, int):
                handle, name, index = handles[board], names[board], board
            else:
                handle = nvml.nvmlDeviceGetHandleByUUID(board)
                name = _text(nvml.nvmlDeviceGetName(handle))
                index = len(self._boards)
            self._boards.append((handle, BoardRecords(name, index)))
        records.boards.extend(board for _, board in self._boards)

    def look(self) -> None:
        """Add one value to each column of each board."""
        for handle, board in self._boards:

            def ask(name: str, board: BoardRecords = board, handle: Any = handle) -> Any:
                return self._ask((board.index, name), lambda: getattr(self._nvml, name)(handle))

            memory, use = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
            if memory is not None:
                board.memory_bytes = int(memory.total)
            reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
            if reasons is None:  # the name that drivers before 2023 know
                reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
            for column, value in (
                (board.utilization_percent, None if use is None else use.gpu),
                (board.used_bytes, None if memory is None else memory.used),
                (board.power_milliwatts, ask("nvmlDeviceGetPowerUsage")),
                (board.energy_millijoules, ask("nvmlDeviceGetTotalEnergyConsumption")),
                (board.reasons, reasons),
            ):
                column.append(MISSING if value is None else int(value))

    def close(self) -> None:
        """Let NVML go."""
        self._nvml.nvmlShutdown()


def visible_boards(environment: Mapping[str, str], names: list[str]) -> list[int] | list[str]:
    """List the boards that CUDA shows to this process, by NVML's numbers or by their own ids.

    CUDA counts the fastest first, NVML by their places on the bus. Where boards differ and nobody asked CUDA
    for the bus' order, a number of CUDA's may be any of them, and all of them are looked at.

    Args:
        environment: The process' own.
        names: The model of each board, by NVML's number.
    """
    every = list(range(len(names)))
    asked = environment.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return every
    chosen = [part.strip() for part in asked.split(",")]
    if all(part.startswith(("GPU-", "MIG-")) for part in chosen):
        return chosen
    in_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(set(names)) < 2
    numbers = []
    for part in chosen:  # what stands behind the first one that there is not does not count
        if not part.isdecimal() or int(part) not in every:
            break
        numbers.append(int(part))
    return numbers if in_order or not numbers else every


def _text(name: Any) -> str:
    """A name, which older versions give as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


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
        looking = threading.Thread(target=self._look_on, name="profnb", daemon=True)
        try:
            if any(_is_there(name) for name, _ in _READERS):
                with suppress(RuntimeError):  # no thread more can start
                    looking.start()
            yield
        finally:
            if looking.ident is not None:
                records.end_ns = time.perf_counter_ns()
                self._ended.set()
                looking.join(_CLOSING_S)
                if looking.is_alive():  # a driver that does not answer; what comes now is not kept
                    self.records = MachineRecords()

    def _look_on(self) -> None:
        readers: list[_Reader] = []
        for name, reader in _READERS:
            if _is_there(name):
                with suppress(Exception):  # NVML without a driver, a psutil that is broken
                    readers.append(reader(self.records))
        pause = _PERIOD_S
        try:
            while readers:
                took = time.thread_time()
                self._look(readers)
                if len(self.records) >= MOST_LOOKS:
                    for column in self.records.columns():  # of counters and readings as they were
                        column[:] = column[::2]
                    pause *= 2
                took = time.thread_time() - took
                self.took_s += took
                if self._ended.wait(max(pause, _LEAST_IDLE * took)):
                    self._look(readers)
                    return
        finally:
            for each in readers:
                with suppress(Exception):
                    each.close()

    def _look(self, readers: Sequence[_Reader]) -> None:
        """Add one row; columns that no reader filled are missing."""
        self.records.time_ns.append(time.perf_counter_ns())
        for reader in readers:
            with suppress(Exception):
                reader.look()
        for column in self.records.columns():
            column.extend([MISSING] * (len(self.records) - len(column)))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
