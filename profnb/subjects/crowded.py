"""Whether threads waited for cores so long that times of ops are not those of computing."""

import numpy as np

from profnb.capture.machine.core_waits import CoreWaits
from profnb.capture.machine.machine_watch import MachineRecords
from profnb.core.columns import Int64s

_LONG_WAIT, _LEAST_RAN_NS = 0.5, 100_000_000
_MANY_OTHERS = 0.25
_MORE_WORK, _FEWEST_LOOKS = 1.25, 2


def is_crowded(waits: CoreWaits) -> bool:
    """Whether threads that ran for a tenth of a second at least waited for half as long or longer."""
    return waits.ran_ns >= _LEAST_RAN_NS and waits.waited_fraction >= _LONG_WAIT


def is_crowded_by_others(waits: CoreWaits) -> bool:
    """Whether that is so and other programs had a quarter of the cores or more."""
    return is_crowded(waits) and is_shared(waits)


def is_shared(waits: CoreWaits) -> bool:
    """Whether other programs had a quarter of the cores or more, however little this process ran."""
    return waits.others_cores >= _MANY_OTHERS * waits.cores > 0


def is_slowed_by_others(
    machine: MachineRecords | None, early_ns: tuple[int, int], late_ns: tuple[int, int]
) -> bool | None:
    """Whether as many steps took longer late than early for no work of their own, beside busy programs.

    Late, other programs had a quarter of all cores or more, and this process took less than a quarter more
    processor time than early. Of steps that sleep longer beside busy programs that is true too.

    Args:
        machine: Looks at the machine; None, or too few in either time, tell nothing.
        early_ns: From when to when the early steps ran, by ``time.perf_counter_ns``.
        late_ns: The same of as many late ones.

    Returns:
        None where the looks do not tell.
    """
    if machine is None:
        return None
    time_ns, *counters = _counters(machine)
    spans = []
    for begin, end in (early_ns, late_ns):
        if np.count_nonzero((time_ns >= begin) & (time_ns <= end)) < _FEWEST_LOOKS:
            return None
        spans.append([_grown(time_ns, one, begin, end) for one in counters])
    (_, _, early), (busy, idle, late) = spans
    return _are_many(busy - late, busy + idle) and late < _MORE_WORK * early


def is_shared_between(machine: MachineRecords | None, begin_ns: int, end_ns: int) -> bool:
    """Whether other programs had a quarter of the cores or more; False where too few looks were made."""
    if machine is None:
        return False
    time_ns, *counters = _counters(machine)
    if time_ns.size < _FEWEST_LOOKS:
        return False
    busy, idle, process_ns = (_grown(time_ns, one, begin_ns, end_ns) for one in counters)
    return _are_many(busy - process_ns, busy + idle)


def _counters(machine: MachineRecords) -> list[Int64s]:
    """When it was looked at, and what all, nobody and this process had taken of the cores by then."""
    looks = [np.asarray(column, np.int64) for column in machine.columns()[:4]]
    return [one[looks[1] >= 0] for one in looks]


def _grown(time_ns: Int64s, value: Int64s, begin: int, end: int) -> float:
    """By how much a counter grew from one moment to another, linear between looks."""
    low, high = np.interp([begin, end], time_ns, value)
    return float(high - low)


def _are_many(others: float, whole: float) -> bool:
    return others >= _MANY_OTHERS * whole > 0
