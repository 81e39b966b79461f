"""A GPU's power over a cell to the energy of a step and of an example, with how far it may be off.

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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.machine.machine_watch import BoardRecords, MachineRecords
from profnb.core.columns import Floats
from profnb.core.table import Table, field_column
from profnb.steps.step_times import StepTimes
from profnb.subjects.system.machine_use import board_title

COUNTER, SAMPLES = "the board's energy counter", "sampled power"
_NO_POWER = "unknown: the board reports neither power nor energy"
_NO_STEPS = ", of steps unknown: no step was timed"
_TOO_SHORT = ", of steps unknown: the steps took less than 2 s"
_ACCURACY, _COUNTER_DELAY_S, _MEAN_S = 0.05, 0.1, 1.0
_LEAST_S, _ENOUGH_UNTRACED, _PAUSE = 2.0, 10, 10


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy that one GPU took; NaN where it is not known.

    Attributes:
        source: Which GPU.
        joules: Over the whole cell.
        steps: How many steps the next ones are of.
        step_joules: Of a step.
        example_joules: Of an example.
        band: How far all of them may be off, as a fraction: 0.07 is 7 %.
        method: How it was measured, or why it is not known.
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
    (
        field_column("source", "which GPU"),
        field_column("joules", "over the whole cell"),
        field_column("steps", "how many steps the energy of a step is of"),
        field_column("joules_per_step", "of a step, from its begin to the next one's", of="step_joules"),
        field_column("joules_per_example", "of an example, where a batch size is known", of="example_joules"),
        field_column(
            "band_fraction",
            "how far they may be off, up or down: the accuracy of the reading and its delay",
            of="band",
        ),
        field_column("method", "how it was measured, or why it is not known", alias="told_by"),
    ),
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
    """Work out what each GPU took.

    Args:
        records: Looks at the machine.
        times: The steps of the code, traced or not; None where there are none.
        phase: What the steps that count do.
        examples: Examples in a step; None where that is not known.
    """
    if records is None or not len(records):
        return ()
    time_s = np.asarray(records.time_ns, np.int64) - np.int64(records.begin_ns)
    begin, end = _periods(times, phase, records.begin_ns)
    return tuple(
        _energy_of(board, time_s / 1e9, begin / 1e9, end / 1e9, examples)
        for board in records.boards
    )


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
    watts = np.asarray(board.power_milliwatts, np.float64) / 1e3
    has_power = bool((watts > 0).all())
    counter = np.asarray(board.energy_millijoules, np.float64) / 1e3
    if time_s.size < 2:
        return None
    if (counter >= 0).all() and (np.diff(counter) >= 0).all() and counter[-1] > counter[0]:
        highest = float((np.diff(counter) / np.maximum(np.diff(time_s), 1e-3)).max())
        return counter, COUNTER, _COUNTER_DELAY_S * (float(watts.max()) if has_power else highest)
    if not has_power:
        return None
    steps = (watts[1:] + watts[:-1]) / 2 * np.diff(time_s)
    taken = np.concatenate([[0.0], np.cumsum(steps)])
    return taken, SAMPLES, _MEAN_S * float(watts.max() - watts.min()) / 2
