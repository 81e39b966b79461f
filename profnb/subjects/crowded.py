"""Whether threads waited for cores so long that times of ops are not those of computing."""

from profnb.capture.machine.core_waits import CoreWaits

__all__ = ["is_crowded", "is_crowded_by_others"]

_LONG_WAIT, _LEAST_RAN_NS = 0.5, 100_000_000
_MANY_OTHERS = 0.25


def is_crowded(waits: CoreWaits) -> bool:
    """Whether threads that ran for a tenth of a second at least waited for half as long or longer."""
    return waits.ran_ns >= _LEAST_RAN_NS and waits.waited_fraction >= _LONG_WAIT


def is_crowded_by_others(waits: CoreWaits) -> bool:
    """Whether that is so and other programs had a quarter of the cores or more."""
    return is_crowded(waits) and waits.others_cores >= _MANY_OTHERS * waits.cores > 0
