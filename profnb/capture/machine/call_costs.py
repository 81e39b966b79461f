"""What is left of something once it is compiled, or ready: measured in this process, once.

A call of a compiled function and the restart of a dataset that is ready cost little, but not nothing, and how
little differs tenfold between machines. Both are measured on a few numbers, without random ops and within
some 50 ms, when something first asks. Where TensorFlow does not run eagerly here (a loaded trace, JAX,
PyTorch), the range is a wide one that held on the virtual machines tried.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from profnb.capture.seams import DATASET_RANGE, EXECUTING_EAGERLY, FUNCTION
from profnb.core.units import PS_PER_NS

Range = tuple[int, int]
_TIMES, _MOST_NS = 24, 25_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Ranges in picoseconds, from the quickest to the slower half.

    Attributes:
        call_ps: A call of a compiled function that does nothing.
        restart_ps: A new iterator of a ready dataset, and its first element.
        tracing_ps: The first call of a function of one op; a layer takes about as long to trace.
        is_measured: Whether they were measured here.
    """

    call_ps: Range
    restart_ps: Range
    tracing_ps: int
    is_measured: bool = False


def typical_costs() -> Costs:
    """What they were on virtual machines of two cores: 0.02 to 0.5 ms, 0.3 to 3 ms, and 10 ms."""
    return Costs((20_000_000, 500_000_000), (300_000_000, 3_000_000_000), 10_000_000_000)


@cache
def costs_here() -> Costs:
    """What they are in this process; the typical ones where TensorFlow does not run eagerly here."""
    executing = EXECUTING_EAGERLY.find()
    try:
        if executing is None or not executing():
            return typical_costs()
        return _measured()
    except Exception:  # noqa: BLE001 - whatever the process forbids, a report needs no more than a range
        return typical_costs()


def _measured() -> Costs:
    function = FUNCTION.find()(lambda x: x + 1, autograph=False)
    began = time.perf_counter_ns()
    function(1)
    tracing_ps = (time.perf_counter_ns() - began) * PS_PER_NS
    dataset = DATASET_RANGE.find()(4)

    def restart() -> None:
        next(iter(dataset))

    restart()
    calls, restarts = _range_of(lambda: function(1)), _range_of(restart)
    return Costs(calls, restarts, tracing_ps, is_measured=True)


def _range_of(call: Callable[[], object]) -> Range:
    """The quickest of some calls, and three quarters of the way to the slowest."""
    took: list[int] = []
    begun = time.perf_counter_ns()
    while len(took) < _TIMES and time.perf_counter_ns() - begun < _MOST_NS:
        began = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - began)
    return int(min(took)) * PS_PER_NS, int(np.percentile(took, 75)) * PS_PER_NS
