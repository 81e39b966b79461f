"""Looks at the machine to how busy it was: shares, memory, power and rates, one row per look and source.

The host's counters become rates from one look to the next; what a GPU says of itself stays as it is.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from profnb.capture.machine.machine_watch import BoardRecords, MachineRecords
from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table
from profnb.core.units import PS_PER_NS, count_text

HOST = "host"
# Of NVML's bits (nvmlClocksEventReasons), those that hold clocks back from what the work asks for.
_REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "power brake",
}  # fmt: skip
_LEAST_SHARE_HELD, _FEWEST_LOOKS = 0.05, 3


@dataclass(frozen=True, slots=True)
class SourceUse:
    """The host or a GPU, at N looks; NaN where nobody could tell.

    Attributes:
        source: "host", or "GPU 0 (NVIDIA H100)".
        utilization: Share of the time in which it worked: of all cores, or of the GPU by NVML, shape (N,).
        process: Share of all cores that this process took, shape (N,); NaN for a GPU.
        memory: Bytes in use: by this process, or of the GPU by anybody, shape (N,).
        memory_bytes: The GPU's memory; NaN for the host.
        power: Watts, shape (N,).
        read: Bytes per second that this process read from disks, shape (N,).
        written: ... and that it wrote, shape (N,).
        throttling: Why its clocks were held back, "" where they were not, or nobody could tell.
        has_reasons: Whether reasons were told, shape (N,).
    """

    source: str
    utilization: Floats
    process: Floats
    memory: Floats
    memory_bytes: float
    power: Floats
    read: Floats
    written: Floats
    throttling: tuple[str, ...]
    has_reasons: Floats


@dataclass(frozen=True, slots=True)
class MachineUse:
    """The machine over a cell.

    Attributes:
        time_ps: When each look was, since the cell began, shape (N,).
        whole_ps: How long the cell took.
        sources: The host first, then the GPUs.
    """

    time_ps: Int64s
    whole_ps: int
    sources: tuple[SourceUse, ...]

    def column(self, name: str) -> Floats:
        """One column of all sources, one source behind the other."""
        return np.concatenate([getattr(source, name) for source in self.sources])


def board_title(board: BoardRecords) -> str:
    """Name a GPU: "GPU 0 (NVIDIA H100)"."""
    return f"GPU {board.index} ({board.name})" if board.name else f"GPU {board.index}"


def find_machine_use(records: MachineRecords | None) -> MachineUse | None:
    """Work out how busy the machine was; None where nobody looked."""
    if records is None or not len(records):
        return None
    time_ns = np.asarray(records.time_ns, np.int64)
    whole_ns = max(records.end_ns, int(time_ns[-1])) - records.begin_ns
    host = _host(records, time_ns)
    hosts = [host] if np.isfinite(host.memory).any() else []
    return MachineUse(
        (time_ns - np.int64(records.begin_ns)) * PS_PER_NS,
        whole_ns * PS_PER_NS,
        (*hosts, *map(_board, records.boards)),
    )


def _mask_unknown(column: object) -> Floats:
    values = np.asarray(column, np.float64)
    return np.where(values < 0, np.nan, values)


def _grown(column: object) -> Floats:
    """The growth of a counter since the look before; NaN at the first one."""
    return np.maximum(np.diff(_mask_unknown(column), prepend=np.nan), 0)


def _host(records: MachineRecords, time_ns: Int64s) -> SourceUse:
    passed = np.diff(time_ns.astype(np.float64), prepend=np.nan)
    passed[passed <= 0] = np.nan
    busy, idle = _grown(records.busy_ns), _grown(records.idle_ns)
    whole = np.where(busy + idle > 0, busy + idle, np.nan)  # of all cores
    nothing = np.full(time_ns.size, np.nan)
    return SourceUse(
        HOST,
        busy / whole,
        np.minimum(_grown(records.process_ns) / whole, 1),
        _mask_unknown(records.resident_bytes),
        np.nan,
        nothing,
        _grown(records.read_bytes) / passed * 1e9,
        _grown(records.written_bytes) / passed * 1e9,
        ("",) * time_ns.size,
        np.zeros(time_ns.size),
    )


def _board(board: BoardRecords) -> SourceUse:
    power = _mask_unknown(board.power_milliwatts) / 1e3
    nothing = np.full(power.size, np.nan)
    reasons = (  # -1 is not known, and has all bits
        [word for bit, word in _REASONS.items() if bits & bit and bits >= 0]
        for bits in board.reasons
    )
    return SourceUse(
        board_title(board),
        _mask_unknown(board.utilization_percent) / 100,
        nothing,
        _mask_unknown(board.used_bytes),
        float(board.memory_bytes) if board.memory_bytes > 0 else np.nan,
        np.where(power > 0, power, np.nan),  # 0 W is what boards say that cannot measure it
        nothing,
        nothing,
        tuple(", ".join(dict.fromkeys(words)) for words in reasons),
        (np.asarray(board.reasons) >= 0).astype(np.float64),
    )


SYSTEM = Table[MachineUse](
    "system",
    "One row per look at the machine and source: the host, then each GPU, in order of time.",
    (
        Column(
            "source",
            lambda u: [source.source for source in u.sources for _ in range(u.time_ps.size)],
            'what was looked at: "host", or a GPU by NVML\'s number and its name',
        ),
        Column("time_ms", lambda u: np.tile(u.time_ps, len(u.sources)), "when, since the cell began", "time"),
        Column(
            "utilization_fraction",
            lambda u: u.column("utilization"),
            "of the host, the share of all its cores that any process kept busy since the look before; of a "
            "GPU, the share of NVML's last sample period in which a kernel ran, be it on few of its units",
        ),
        Column(
            "process_fraction",
            lambda u: u.column("process"),
            "the share of all cores that this process took",
        ),
        Column(
            "memory_bytes",
            lambda u: u.column("memory"),
            "memory of this process on the host; of a GPU what is in use by anybody, TensorFlow's pool "
            "included, whether tensors lie in it or not",
        ),
        Column("power_watts", lambda u: u.column("power"), "what the GPU's board draws"),
        Column(
            "throttling",
            lambda u: [reason for source in u.sources for reason in source.throttling],
            "why the GPU's clocks were held back; empty where they were not, or it does not tell",
        ),
        Column(
            "read_bytes_per_second",
            lambda u: u.column("read"),
            "what this process read from disks since the look before; files in the system's cache are not "
            "read from disks",
        ),
        Column("written_bytes_per_second", lambda u: u.column("written"), "what it wrote to disks"),
    ),
    "Over the whole cell, traced or not, about four times a second. `psutil` reads the host, NVML "
    "(`nvidia-ml-py`) the GPUs: no package, no rows. Unknown values are missing.",
)  # fmt: skip


def throttling_notes(use: MachineUse | None) -> list[str]:
    """Say for each GPU for how much of the cell its clocks were held back, and why.

    Only where that was seen often enough to matter.
    """
    notes = []
    for source in use.sources if use is not None else ():
        look_count = int(source.has_reasons.sum())
        reasons = Counter(filter(None, source.throttling))
        held = reasons.total()
        if source.source == HOST or held < max(_FEWEST_LOOKS, _LEAST_SHARE_HELD * look_count):
            continue
        why = " or ".join(reason for reason, _ in reasons.most_common(2))
        notes.append(
            f"{source.source} was throttled for {100 * held / look_count:.0f} % of the cell ({why}): "
            f"held-back clocks in {count_text(held)} of {count_text(look_count)} looks."
        )
    return notes
