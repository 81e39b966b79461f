"""Steps: the windows that training iterations occupy, in order.

Steps never overlap. How they are found in a trace is in ``finding``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profnb.capture.marking.trace_events import TracedFunction
from profnb.core.columns import Bools, Int64s
from profnb.trace.model import Trace

WINDOW = "window"
_LAMBDA = "<lambda>"
_TRAINS = re.compile(r"(?<![a-z])train", re.IGNORECASE)  # train_step, distributed_training


@dataclass(frozen=True, slots=True)
class Steps:
    """S steps in time order, not overlapping.

    Attributes:
        begin_ps: Begins, shape (S,).
        end_ps: Ends (exclusive), shape (S,).
        step_num: The numbers the program gave them, or their order, shape (S,).
        phase: What each step did: "train", "test", "predict", a function's name, or "window".
        iterations: Iterations in one step (Keras' steps_per_execution), shape (S,).
        is_warmup: Whether a function was traced or compiled in it, it was a slow first one, or it was asked
            to be left out of averages, shape (S,).
        first_root: Where each step's root events begin in ``roots``, shape (S + 1,).
        roots: The events that delimit the steps: markers or calls. Empty for a window.
        origin: In words, how the steps were found.
        host_begin_ps: Begins on the host, which may run ahead of the device, shape (S,).
        host_end_ps: Ends on the host, shape (S,).
        ends_epoch: Whether a new iterator of the input is made between it and the next one, shape (S,).
        steps_ahead: How many later steps the host has begun, in the median, when the device finishes one.
        together: Of phases whose steps hold calls of several functions in turn, the names of all of them.
    """

    begin_ps: Int64s
    end_ps: Int64s
    step_num: Int64s
    phase: tuple[str, ...]
    iterations: Int64s
    is_warmup: Bools
    first_root: Int64s
    roots: Int64s
    origin: str
    host_begin_ps: Int64s
    host_end_ps: Int64s
    ends_epoch: Bools
    steps_ahead: int = 0
    together: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return self.begin_ps.size

    @property
    def duration_ps(self) -> Int64s:
        """Duration of each step, shape (S,)."""
        return self.end_ps - self.begin_ps

    @property
    def gap_ps(self) -> Int64s:
        """From each step's end to the next one's begin, shape (S,); -1 for the last (not known)."""
        gaps = np.full(len(self), -1, np.int64)
        gaps[:-1] = self.begin_ps[1:] - self.end_ps[:-1]
        return gaps

    @property
    def is_window(self) -> bool:
        """Whether no step was found and the one row is the whole capture."""
        return self.phase == (WINDOW,)

    @property
    def main_phase(self) -> str | None:
        """The phase an average speaks of: training if there is any, by its name, else the longest."""
        if not len(self):
            return None
        if "train" in self.phase:
            return "train"
        totals: dict[str, int] = {}
        for phase, duration in zip(self.phase, self.duration_ps.tolist(), strict=True):
            totals[phase] = totals.get(phase, 0) + duration
        training = [phase for phase in totals if _TRAINS.search(phase)]
        return max(training or totals, key=lambda phase: totals[phase])

    def title_of(self, phase: str | None) -> str:
        """What a phase's steps are called: by all functions that make them up in turn."""
        return dict(self.together).get(phase or "", phase or "")

    def rows_of(self, phase: str | None, *, warm_up: bool = False) -> Int64s:
        """The steps of a phase, warm-up steps left out unless asked for."""
        rows = [
            row
            for row, step_phase in enumerate(self.phase)
            if step_phase == phase and (warm_up or not self.is_warmup[row])
        ]
        return np.array(rows, np.int64)


def make_steps(
    trace: Trace, roots: Int64s, first_root: Int64s, phase: tuple[str, ...], origin: str
) -> Steps:
    """Steps that begin with their first root and end with the end of their last."""
    count = first_root.size - 1
    begin_ps = trace.events.begin_ps[roots[first_root[:-1]]]
    end_ps = trace.events.end_ps[roots[first_root[1:] - 1]]
    return Steps(
        begin_ps=begin_ps,
        end_ps=end_ps,
        host_begin_ps=begin_ps,
        host_end_ps=end_ps,
        ends_epoch=np.zeros(count, np.bool_),
        step_num=np.arange(count),
        phase=phase,
        iterations=np.ones(count, np.int64),
        is_warmup=np.zeros(count, np.bool_),
        first_root=first_root,
        roots=roots,
        origin=origin,
    )


def outermost(trace: Trace, events: Int64s) -> Int64s:
    """In time order, of the line that holds most of their time, those not inside an earlier one."""
    if not events.size:
        return events
    lines = trace.lines.of_event[events]
    totals = np.bincount(lines, trace.events.duration_ps[events].astype(np.float64))
    present = np.unique(lines)
    events = events[lines == present[totals[present].argmax()]]
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    is_outer = np.append(True, begin[1:] >= np.maximum.accumulate(end)[:-1])
    if (end <= end[is_outer][np.cumsum(is_outer) - 1]).all():
        return np.asarray(events[is_outer])
    kept, covered_until = [], np.iinfo(np.int64).min  # some only partly overlap an earlier one
    for row in range(events.size):
        if begin[row] >= covered_until:
            kept.append(row)
            covered_until = end[row]
    return events[kept]


def with_lambda(steps: Steps, functions: Sequence[TracedFunction]) -> Steps:
    """The steps, those of a function without a name titled by the line at which it stands.

    Args:
        steps: The steps.
        functions: Functions that were traced while this was captured.
    """
    places = {one.where for one in functions if one.name == _LAMBDA}
    lambda_phases = sorted({phase for phase in steps.phase if _LAMBDA in phase})
    if not lambda_phases or len(places) != 1 or "" in places:
        return steps
    title = f"lambda ({places.pop()})"
    titles = tuple(
        (phase, steps.title_of(phase).replace(_LAMBDA, title)) for phase in lambda_phases
    )
    return replace(steps, together=(*steps.together, *titles))
