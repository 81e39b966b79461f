"""What the machine did while the code ran, as columns that only grow: counters and readings as they were."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field

MISSING = -1  # of any column: nobody could tell


def _column() -> array[int]:
    return array("q")


@dataclass
class BoardRecords:
    """One GPU at each look, by NVML; a value that the board does not tell is -1.

    Attributes:
        name: What it is: "NVIDIA H100 80GB HBM3".
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

    def columns(self) -> tuple[array[int], ...]:
        """One value for each look."""
        return (
            self.utilization_percent,
            self.used_bytes,
            self.power_milliwatts,
            self.energy_millijoules,
            self.reasons,
        )


@dataclass
class MachineRecords:
    """N looks at the machine while the whole code ran, traced or not; what nobody could tell is -1.

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

    def columns(self) -> tuple[array[int], ...]:
        """One value for each look."""
        return (
            self.time_ns,
            self.busy_ns,
            self.idle_ns,
            self.process_ns,
            self.resident_bytes,
            self.read_bytes,
            self.written_bytes,
        )

    def thin(self) -> None:
        """Forget every second look; what is left are counters and readings as they were."""
        for column in (*self.columns(), *(c for board in self.boards for c in board.columns())):
            column[:] = column[::2]
