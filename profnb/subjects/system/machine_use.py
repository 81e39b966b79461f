"""Looks at the machine to how busy it was, one row per look and source; a GPU's power to energy.

The host's counters become rates from one look to the next; what a GPU says of itself stays as it is.

Energy is read off the board's counter where it has one, else it is the sum of the sampled power. What steps
took is its growth over the steps' own periods, from the begin of one to the next one's; steps in which a
function was traced, pauses, and whatever lies between runs of steps do not count, and untraced steps come
first. It is what the whole board drew, idle or not, whoever used it. Of the host's processors and memory no
energy is known: their counters (RAPL) are for administrators only.

How far it may be off: 5 % of the reading, and what the readings' delay may hide at both ends of each stretch
of steps: by the counter 0.1 s of the highest power; by samples one second of the difference between highest
and lowest power, because boards report means of the last second. That does not hold what a board leaves out
itself: an A100 and an H100 look at their power for a quarter of the time only, so that work whose power
changes in the rhythm of these looks may be off by more.

Source: NVML API reference, nvmlDeviceGetPowerUsage (accurate to 5 %, mean over one second) and
nvmlDeviceGetTotalEnergyConsumption (millijoules since the driver was loaded); Yang, Adamek and Armour,
"Part-time power measurements: nvidia-smi's lack of attention" (arXiv 2312.02741).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.machine.machine_watch import BoardRecords, MachineRecords
from profnb.core.columns import Floats, Int64s
from profnb.core.table import Table, columns_in
from profnb.core.units import PS_PER_NS, count_text
from profnb.steps.step_times import StepTimes

HOST = "host"
# Of NVML's bits (nvmlClocksEventReasons), those that hold clocks back from what the work asks for.
_REASONS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "power brake",
}  # fmt: skip
_LEAST_SHARE_HELD, _FEWEST_LOOKS = 0.05, 3


@dataclass(frozen=True, slots=True)
class SourceUse:
    """The host or a GPU, at N looks; NaN where nobody could tell."""

    source: str  # "host", or "GPU 0 (NVIDIA H100)"
    # share of the time in which it worked: of all cores, or of the GPU by NVML, shape (N,)
    utilization: Floats
    process: Floats  # share of all cores that this process took, shape (N,); NaN for a GPU
    memory: Floats  # bytes in use: by this process, or of the GPU by anybody, shape (N,)
    memory_bytes: float  # the GPU's memory; NaN for the host
    power: Floats  # watts, shape (N,)
    read: Floats  # bytes per second that this process read from disks, shape (N,)
    written: Floats  # ... and that it wrote, shape (N,).
    # why its clocks were held back, "" where they were not, or nobody could tell
    throttling: tuple[str, ...]
    has_reasons: Floats  # whether reasons were told, shape (N,)


@dataclass(frozen=True, slots=True)
class MachineUse:
    """The machine over a cell."""

    time_ps: Int64s  # when each look was, since the cell began, shape (N,)
    whole_ps: int  # how long the cell took
    sources: tuple[SourceUse, ...]  # the host first, then the GPUs

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
    sources = (*hosts, *map(_board, records.boards))
    time_ps = (time_ns - np.int64(records.begin_ns)) * PS_PER_NS
    return MachineUse(time_ps, whole_ns * PS_PER_NS, sources)


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
    looks = np.maximum(np.asarray(board.reasons), 0).tolist()  # -1 is not known, and has all bits
    reasons = ([word for bit, word in _REASONS.items() if bits & bit] for bits in looks)
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
    "One row per sample of the machine and source: the host, then each GPU, in order of time.",
    columns_in("""
        source: what was looked at: "host", or a GPU by NVML's number and its name
        time_ms: when, since the cell began
        utilization_fraction: of the host, the share of all its cores that any process kept busy since the
            look before; of a GPU, the share of NVML's last sample period in which a kernel ran, be it on
            few of its units
        process_fraction: the share of all cores that this process took
        memory_bytes: memory of this process on the host; of a GPU what is in use by anybody, TensorFlow's
            pool included, whether tensors lie in it or not
        power_watts: what the GPU's board draws
        throttling: why the GPU's clocks were held back; empty where they were not, or it does not tell
        read_bytes_per_second: what this process read from disks since the look before; files in the
            system's cache are not read from disks
        written_bytes_per_second: what it wrote to disks
        """),
    "Over the whole cell, traced or not, about four times a second. `psutil` reads the host, NVML "
    "(`nvidia-ml-py`) the GPUs: no package, no rows. Unknown values are missing.",
    values={
        "source": lambda u: [source.source for source in u.sources for _ in range(u.time_ps.size)],
        "time_ms": lambda u: np.tile(u.time_ps, len(u.sources)),
        "utilization_fraction": lambda u: u.column("utilization"),
        "process_fraction": lambda u: u.column("process"),
        "memory_bytes": lambda u: u.column("memory"),
        "power_watts": lambda u: u.column("power"),
        "throttling": lambda u: [reason for source in u.sources for reason in source.throttling],
        "read_bytes_per_second": lambda u: u.column("read"),
        "written_bytes_per_second": lambda u: u.column("written"),
    },
)


def throttling_notes(use: MachineUse | None) -> list[str]:
    """Say for each GPU for how much of the cell its clocks were held back, and why, where it matters."""
    notes = []
    for source in use.sources if use is not None else ():
        looks, reasons = int(source.has_reasons.sum()), Counter(filter(None, source.throttling))
        held, why = reasons.total(), " or ".join(reason for reason, _ in reasons.most_common(2))
        if source.source != HOST and held >= max(_FEWEST_LOOKS, _LEAST_SHARE_HELD * looks):
            notes.append(
                f"{source.source} was throttled for {100 * held / looks:.0f} % of the time ({why}): "
                f"held-back clocks in {count_text(held)} of {count_text(looks)} samples."
            )
    return notes


COUNTER, SAMPLES = "the board's energy counter", "sampled power"
_NO_POWER = "unknown: the board reports neither power nor energy"
_NO_STEPS = ", of steps unknown: no step was timed"
_TOO_SHORT = ", of steps unknown: the steps took less than 2 s"
_ACCURACY, _COUNTER_DELAY_S, _MEAN_S = 0.05, 0.1, 1.0
_LEAST_S, _ENOUGH_UNTRACED, _PAUSE = 2.0, 10, 10


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy that one GPU took; NaN where it is not known.

    Its fields are the columns of ``ENERGY``.
    """

    source: str
    joules: float = np.nan
    steps: int = 0
    step_joules: float = np.nan
    example_joules: float = np.nan
    band: float = np.nan
    method: str = _NO_POWER


ENERGY = Table[Sequence[Energy]](
    "energy",
    "One row per watched GPU, with its energy in joules.",
    columns_in("""
        source: which GPU
        joules: over the whole cell
        steps: how many steps the energy of a step is of
        joules_per_step = step_joules: of a step, from its begin to the next one's
        joules_per_example = example_joules: of an example, where a batch size is known
        band_fraction = band: how far they may be off, up or down: the accuracy of the reading and its delay
        method: how it was measured, or why it is not known
        """),
    "Energy of the whole board, idle or busy, for all its users; the host's processors and memory are "
    "unknown. For missing values `method` says why. The band holds NVML's accuracy and the delay of "
    "readings. Gaps in a board's readings are not included (an A100 or H100 looks for a quarter of the "
    "time).",
)  # fmt: skip


def find_energy(
    records: MachineRecords | None,
    times: StepTimes | None,
    phase: str | None,
    examples: float | None,
) -> tuple[Energy, ...]:
    """Work out what each GPU took."""
    if records is None or not len(records):
        return ()
    time_s = (np.asarray(records.time_ns, np.int64) - np.int64(records.begin_ns)) / 1e9
    begin_s, end_s = (edge / 1e9 for edge in _periods(times, phase, records.begin_ns))
    return tuple(_energy_of(one, time_s, begin_s, end_s, examples) for one in records.boards)


def _periods(times: StepTimes | None, phase: str | None, begin_ns: int) -> tuple[Floats, Floats]:
    """Give begins and ends of the steady steps' periods, in ns since the cell began, each shape (N,)."""
    if times is None or times.first_ns is None or not len(times):
        return np.empty(0), np.empty(0)
    counts = np.array([name == phase for name in times.phase], np.bool_) & ~times.retraced
    follows = np.append(counts[1:] & (times.run[1:] == times.run[:-1]), False)
    to_next = np.append(np.diff(times.begin_ps), 0)
    rows = np.flatnonzero(counts & follows)
    if rows.size:  # a pause is not part of a step
        rows = rows[to_next[rows] <= _PAUSE * np.median(to_next[rows])]
    untraced = rows[~times.was_traced[rows] & ~np.append(times.was_traced, False)[rows + 1]]
    rows = untraced if untraced.size >= _ENOUGH_UNTRACED else rows
    begin = times.begin_ps[rows] / 1000 + float(times.first_ns - begin_ns)
    return begin, begin + to_next[rows] / 1000


def _energy_of(
    board: BoardRecords, time_s: Floats, begin_s: Floats, end_s: Floats, examples: float | None
) -> Energy:
    title = board_title(board)
    curve = _curve(board, time_s)
    if curve is None:
        return Energy(title)
    taken, method, delay = curve
    joules = float(taken[-1] - taken[0])
    is_seen = (begin_s >= time_s[0]) & (end_s <= time_s[-1])
    begin_s, end_s = begin_s[is_seen], end_s[is_seen]
    if float((end_s - begin_s).sum()) < _LEAST_S:
        band = _ACCURACY + (2 * delay / joules if joules > 0 else np.nan)
        why = _TOO_SHORT if begin_s.size else _NO_STEPS
        return Energy(title, joules, band=band, method=method + why)
    of_steps = float((np.interp(end_s, time_s, taken) - np.interp(begin_s, time_s, taken)).sum())
    stretches = 1 + int((begin_s[1:] - end_s[:-1] > 1e-6).sum())
    band = _ACCURACY + (2 * delay * stretches / of_steps if of_steps > 0 else np.nan)
    each = of_steps / begin_s.size
    of_example = each / examples if examples else np.nan
    return Energy(title, joules, begin_s.size, each, of_example, band, method)


def _curve(board: BoardRecords, time_s: Floats) -> tuple[Floats, str, float] | None:
    """Joules up to each look, where they come from, and the joules that the delay at one end may hide."""
    if time_s.size < 2:
        return None
    watts, counter = (
        np.asarray(column, np.float64) / 1e3
        for column in (board.power_milliwatts, board.energy_millijoules)
    )
    has_power, apart = bool((watts > 0).all()), np.diff(time_s)
    if (counter >= 0).all() and (np.diff(counter) >= 0).all() and counter[-1] > counter[0]:
        highest = watts if has_power else np.diff(counter) / np.maximum(apart, 1e-3)
        return counter, COUNTER, _COUNTER_DELAY_S * float(highest.max())
    if not has_power:
        return None
    taken = np.append(0.0, np.cumsum((watts[1:] + watts[:-1]) / 2 * apart))
    return taken, SAMPLES, _MEAN_S * float(np.ptp(watts)) / 2
