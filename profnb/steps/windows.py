"""Steps: the windows that training iterations occupy, in order; and the gaps after them.

Steps never overlap. How they are found in a trace is in ``finding``.

A gap belongs to the step before it where the loop goes on: the next step is of the same phase, or of
another one as after most steps of this phase. It does not between two passes over the data (epochs, a
validation, the next fit: a new iterator of tf.data is made before the next step), nor where the phase
changes, nor where it is a *pause*: rare, more than ten times the median gap and more than 100 ms. What
happens once in an epoch, or when a checkpoint is written, is no cost of each step; whatever speaks of a
typical step leaves it out, and the report says it in a row of its own.

    steps    [0] [1] [2]            [3] [4]                        [5]
    gaps        .   .  new iterator     .     pause
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from profnb.capture.marking.trace_events import TracedFunction
from profnb.core.columns import Bools, Int8s, Int64s, RowColumns, group
from profnb.trace.model import Trace

WINDOW = "window"
_LAMBDA = "<lambda>"
_TRAINS = re.compile(r"(?<![a-z])train", re.IGNORECASE)  # train_step, distributed_training
GAP_KINDS = ("in the loop", "between epochs", "pause", "before another phase", "last")
IN_LOOP, BETWEEN_EPOCHS, PAUSE, OTHER_PHASE, LAST = range(5)
_PAUSE_FACTOR, _SHORTEST_PAUSE_PS, _GAPS_PER_PAUSE, _FEWEST_GAPS = 10, 100_000_000_000, 10, 3


@dataclass(frozen=True, slots=True)
class Steps(RowColumns):
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
        ends_recording: Whether what ran between it and the next one was not recorded, shape (S,).
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
    ends_recording: Bools
    steps_ahead: int = 0
    together: tuple[tuple[str, str], ...] = ()

    @classmethod
    def between(
        cls, begin_ps: Int64s, end_ps: Int64s, phase: tuple[str, ...], origin: str
    ) -> "Steps":
        """Steps between known times, numbered in order, without roots."""
        count = begin_ps.size
        return cls(
            begin_ps=begin_ps,
            end_ps=end_ps,
            host_begin_ps=begin_ps,
            host_end_ps=end_ps,
            ends_epoch=np.zeros(count, np.bool_),
            ends_recording=np.zeros(count, np.bool_),
            step_num=np.arange(count),
            phase=phase,
            iterations=np.ones(count, np.int64),
            is_warmup=np.zeros(count, np.bool_),
            first_root=np.zeros(count + 1, np.int64),
            roots=np.empty(0, np.int64),
            origin=origin,
        )

    @classmethod
    def of_roots(
        cls,
        trace: Trace,
        roots: Int64s,
        phase: tuple[str, ...],
        origin: str,
        first_root: Int64s | None = None,
    ) -> "Steps":
        """Steps from the begin of their first root to the end of their last; each has one by default."""
        first_root = np.arange(roots.size + 1) if first_root is None else first_root
        begin_ps = trace.events.begin_ps[roots[first_root[:-1]]]
        end_ps = trace.events.end_ps[roots[first_root[1:] - 1]]
        steps = cls.between(begin_ps, end_ps, phase, origin)
        return replace(steps, roots=roots, first_root=first_root)

    @property
    def duration_ps(self) -> Int64s:
        """Duration of each step, shape (S,)."""
        return self.end_ps - self.begin_ps

    @property
    def gap_ps(self) -> Int64s:
        """From each step's end to the next one's begin, shape (S,); -1 where it is not known (the last)."""
        gap_ps = np.append(self.begin_ps[1:] - self.end_ps[:-1], -1)[: len(self)]
        return np.where(self.ends_recording, -1, gap_ps)

    @property
    def is_window(self) -> bool:
        """Tell whether no step was found and the one row is the whole capture."""
        return self.phase == (WINDOW,)

    @property
    def rows_by_phase(self) -> dict[str, Int64s]:
        """The steps of each phase, ascending, phases in the order in which they begin."""
        rows = group((phase, row) for row, phase in enumerate(self.phase))
        return {phase: np.array(of_phase, np.int64) for phase, of_phase in rows.items()}

    @property
    def main_phase(self) -> str | None:
        """The phase an average speaks of: training if there is any, by its name, else the longest."""
        if "train" in self.phase:
            return "train"
        duration_ps = self.duration_ps
        totals = {phase: duration_ps[rows].sum() for phase, rows in self.rows_by_phase.items()}
        training = [phase for phase in totals if _TRAINS.search(phase)]
        return max(training or totals, key=totals.__getitem__, default=None)

    def title_of(self, phase: str | None) -> str:
        """Name a phase's steps, by all functions that make them up in turn."""
        return dict(self.together).get(phase or "", phase or "")

    def rows_of(self, phase: str | None, *, warm_up: bool = False) -> Int64s:
        """The steps of a phase, warm-up steps left out unless asked for."""
        is_of_phase = np.array([name == phase for name in self.phase], np.bool_)
        return np.flatnonzero(is_of_phase if warm_up else is_of_phase & ~self.is_warmup)


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
    """The steps, those of a function without a name titled by the line at which it stands."""
    places = {one.where for one in functions if one.name == _LAMBDA}
    lambda_phases = sorted({phase for phase in steps.phase if _LAMBDA in phase})
    if not lambda_phases or len(places) != 1 or "" in places:
        return steps
    title = f"lambda ({places.pop()})"
    titles = [(phase, steps.title_of(phase).replace(_LAMBDA, title)) for phase in lambda_phases]
    return replace(steps, together=(*steps.together, *titles))


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps after S steps.

    Attributes:
        kind: Index into ``GAP_KINDS``, shape (S,).
        duration_ps: The gaps, shape (S,); 0 after the last step of a recording.
        sets_up: Which of those in the loop a new iterator of the input is made in: `predict` in a loop makes
            one for each of its steps, shape (S,).
    """

    kind: Int8s
    duration_ps: Int64s
    sets_up: Bools

    @property
    def belongs(self) -> Bools:
        """Mark the gaps that are part of the period of the step before it, shape (S,)."""
        return np.asarray(self.kind == IN_LOOP)

    @property
    def own_ps(self) -> Int64s:
        """The gap where it is part of the step's period, else 0, shape (S,)."""
        return np.where(self.belongs, self.duration_ps, 0)

    @property
    def long(self) -> Int64s:
        """Rows of the gaps of more than 100 ms that are no part of a period, whatever they are for."""
        return np.flatnonzero(~self.belongs & (self.duration_ps > _SHORTEST_PAUSE_PS))

    @property
    def between_epochs(self) -> Int64s:
        """Rows of the gaps between two passes over the data, whatever phase came next."""
        return np.flatnonzero(self.kind == BETWEEN_EPOCHS)


def is_pause(gap_ps: Int64s) -> Bools:
    """Mark the pauses among N gaps of one loop: far outside, and one in ten at most (one of fewer)."""
    if gap_ps.size < _FEWEST_GAPS:
        return np.zeros(gap_ps.size, np.bool_)
    far = (gap_ps > _PAUSE_FACTOR * np.median(gap_ps)) & (gap_ps > _SHORTEST_PAUSE_PS)
    is_rare = far.sum() <= max(1, gap_ps.size // _GAPS_PER_PAUSE)
    return far if is_rare else np.zeros(gap_ps.size, np.bool_)


def find_gaps(steps: Steps) -> Gaps:
    """Tell the gaps after steps apart.

    A program that makes an iterator, or changes the phase, after more than half of the steps of a phase does
    so in its loop: there it is a cost of each step.
    """
    duration = np.maximum(steps.gap_ps, 0)
    kind = np.full(len(steps), IN_LOOP, np.int8)
    changes = np.array([*(one != next_one for one, next_one in pairwise(steps.phase)), False])
    for rows in steps.rows_by_phase.values():
        rows_with_next = rows[(rows < len(steps) - 1) & ~steps.ends_recording[rows]]
        for happens, what in ((changes, OTHER_PHASE), (steps.ends_epoch, BETWEEN_EPOCHS)):
            of_kind = rows_with_next[happens[rows_with_next]]
            if of_kind.size * 2 <= rows_with_next.size or rows_with_next.size < _FEWEST_GAPS:
                kind[of_kind] = what
        rest = rows_with_next[kind[rows_with_next] == IN_LOOP]
        kind[rest[is_pause(duration[rest])]] = PAUSE
    kind[steps.ends_recording] = LAST
    kind[-1:] = LAST
    return Gaps(kind, duration, steps.ends_epoch & (kind == IN_LOOP))
