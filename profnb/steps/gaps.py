"""Steps to the gaps after them: which belong to a step's period, and which lie between epochs or are pauses.

A gap belongs to the step before it where the loop goes on: the next step is of the same phase, or of
another one as after most steps of this phase. It does not between two passes over the data (epochs, a
validation, the next fit: a new iterator of tf.data is made before the next step), nor where the phase
changes, nor where it is a *pause*: rare, more than ten times the median gap and more than 100 ms. What
happens once in an epoch, or when a checkpoint is written, is no cost of each step; whatever speaks of a
typical step leaves it out, and the report says it in a row of its own.

    steps    [0] [1] [2]            [3] [4]                        [5]
    gaps        .   .  new iterator     .     pause
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int8s, Int64s
from profnb.steps.windows import Steps

GAP_KINDS = ("in the loop", "between epochs", "pause", "before another phase", "last")
IN_LOOP, BETWEEN_EPOCHS, PAUSE, OTHER_PHASE, LAST = range(5)
_FAR_LONGER, _SHORTEST_PAUSE_PS, _RARE, _FEWEST = 10, 100_000_000_000, 10, 3


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps after S steps.

    Attributes:
        kind: Index into ``GAP_KINDS``, shape (S,).
        duration_ps: The gaps, shape (S,); 0 after the last step.
        sets_up: Which of those in the loop a new iterator of the input is made in: `predict` in a loop makes
            one for each of its steps, shape (S,).
    """

    kind: Int8s
    duration_ps: Int64s
    sets_up: Bools

    @property
    def belongs(self) -> Bools:
        """Whether each gap is part of the period of the step before it, shape (S,)."""
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
    """Which of N gaps of one loop are pauses: far outside, and one in ten at most (one of fewer)."""
    if gap_ps.size < _FEWEST:
        return np.zeros(gap_ps.size, np.bool_)
    far = (gap_ps > _FAR_LONGER * np.median(gap_ps)) & (gap_ps > _SHORTEST_PAUSE_PS)
    is_rare = far.sum() <= max(1, gap_ps.size // _RARE)
    return far if is_rare else np.zeros(gap_ps.size, np.bool_)


def find_gaps(steps: Steps) -> Gaps:
    """Tell the gaps after steps apart.

    A program that makes an iterator, or changes the phase, after more than half of the steps of a phase does
    so in its loop: there it is a cost of each step.
    """
    count = len(steps)
    duration = np.maximum(steps.gap_ps, 0)
    kind = np.full(count, IN_LOOP, np.int8)
    if not count:
        return Gaps(kind, duration, np.zeros(0, np.bool_))
    code_of = {phase: code for code, phase in enumerate(dict.fromkeys(steps.phase))}
    codes = np.array([code_of[phase] for phase in steps.phase], np.int64)
    changes = np.append(codes[1:] != codes[:-1], False)
    has_next = np.arange(count) < count - 1
    for code in range(len(code_of)):
        is_of_phase = (codes == code) & has_next
        for happens, what in ((changes, OTHER_PHASE), (steps.ends_epoch, BETWEEN_EPOCHS)):
            is_of_kind = is_of_phase & happens
            if is_of_kind.sum() * 2 <= is_of_phase.sum() or is_of_phase.sum() < _FEWEST:
                kind[is_of_kind] = what
        rest = np.flatnonzero(is_of_phase & (kind == IN_LOOP))
        kind[rest[is_pause(duration[rest])]] = PAUSE
    kind[-1] = LAST
    return Gaps(kind, duration, steps.ends_epoch & (kind == IN_LOOP))
