"""Threads that waited for cores so long that times of ops are not those of computing."""

import numpy as np

from profnb.capture.machine.machine_watch import MachineRecords
from profnb.capture.machine.waits import CoreWaits

_LONG_WAIT, _LEAST_RAN_NS = 0.5, 100_000_000
_MANY_OTHERS = 0.25
_MORE_WORK, _FEWEST_LOOKS = 1.25, 2


def is_crowded(waits: CoreWaits) -> bool:
    """Tell whether threads that ran for a tenth of a second at least waited for half as long or longer."""
    return waits.ran_ns >= _LEAST_RAN_NS and waits.waited_fraction >= _LONG_WAIT


def is_crowded_by_others(waits: CoreWaits) -> bool:
    """Tell whether this is so and other programs had a quarter of the cores or more."""
    return is_crowded(waits) and is_shared(waits)


def is_shared(waits: CoreWaits) -> bool:
    """Tell whether other programs had a quarter of the cores or more, however little this process ran."""
    return waits.others_cores >= _MANY_OTHERS * waits.cores > 0


def is_slowed_by_others(
    machine: MachineRecords | None, early_ns: tuple[int, int], late_ns: tuple[int, int]
) -> bool | None:
    """Tell whether as many steps took longer late than early for no work of their own, beside busy programs.

    Late, other programs had a quarter of all cores or more, and this process took less than a quarter more
    processor time than early. Of steps that sleep longer beside busy programs that is true too.
    """
    early, late = (_processor_time(machine, span) for span in (early_ns, late_ns))
    if early is None or late is None or min(early[0], late[0]) < _FEWEST_LOOKS:
        return None
    return _are_many(late) and late[-1] < _MORE_WORK * early[-1]


def is_shared_between(machine: MachineRecords | None, begin_ns: int, end_ns: int) -> bool:
    """Tell whether other programs had a quarter of the cores or more; False where too few looks were made."""
    spent = _processor_time(machine, (begin_ns, end_ns))
    return spent is not None and _are_many(spent)


_Spent = tuple[int, float, float, float]


def _processor_time(machine: MachineRecords | None, span_ns: tuple[int, int]) -> _Spent | None:
    """Looks in a time; and what all, nobody and this process took of the cores, linear between looks."""
    if machine is None:
        return None
    looks = [np.asarray(column, np.int64) for column in machine.columns()[:4]]
    time_ns, *counters = (column[looks[1] >= 0] for column in looks)
    if time_ns.size < _FEWEST_LOOKS:
        return None
    inside = int(np.count_nonzero((time_ns >= span_ns[0]) & (time_ns <= span_ns[1])))
    busy, idle, process_ns = (
        float(np.diff(np.interp(span_ns, time_ns, counter))[0]) for counter in counters
    )
    return inside, busy, idle, process_ns


def _are_many(spent: _Spent) -> bool:
    _, busy, idle, process_ns = spent
    return busy - process_ns >= _MANY_OTHERS * (busy + idle) > 0
