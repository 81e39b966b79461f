"""Where a capture stands, read by another thread without asking anything of the code that runs."""

import math
from dataclasses import dataclass
from itertools import pairwise

from profnb.capture.step_records import StepLog, StepRecords
from profnb.capture.underway.keras_runs import KerasRun

_RECENT = 64


@dataclass(frozen=True, slots=True)
class Standing:
    """A capture at one moment.

    Attributes:
        elapsed_ns: Wall time since it began.
        is_tracing: Whether the window is open.
        was_tracing: Whether it was open and has closed.
        traced_steps: Steps that were recorded under trace.
        max_steps: How many the window takes.
        step_ns: The typical time from step to step of late, in nanoseconds; NaN before there are three.
        run: The run of Keras' that goes on; None where there is none.
    """

    elapsed_ns: int
    is_tracing: bool = False
    was_tracing: bool = False
    traced_steps: int = 0
    max_steps: int = 0
    step_ns: float = math.nan
    run: KerasRun | None = None


def recent_step_ns(steps: StepLog | StepRecords) -> float:
    """The median time from the begin of a step to the next one's, of the last steps of one name and run."""
    alike = steps.latest(_RECENT)
    begins = [at for at, *what in alike if what == list(alike[-1][1:])]
    if len(begins) < 3:
        return math.nan
    periods = sorted(later - earlier for earlier, later in pairwise(begins))
    return (periods[len(periods) // 2] + periods[(len(periods) - 1) // 2]) / 2
