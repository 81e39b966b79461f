"""A gap between steps to the callback, or the saving of a model, that is proved to have taken most of it.

The trace has no event for a callback, and the capture's clock has no trace. What both saw are the steps, so
the traced steps are laid over those that the capture timed::

    trace           [ 7 ]      [ 8 ]                        [ 9 ]        [ 10 ]
    capture         [ 7 ]      [ 8 ]                        [ 9 ]        [ 10 ]
    long calls                      {Pause.on_epoch_end}
    the gap                         |<--------------------->|

A call counts for a gap where it began and ended inside it, with what it took by itself; another call of the
same length elsewhere does not. Where the steps can be laid over each other in no way or in several, or where
no call took more than half of it, nothing is named.
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.source.user_code import file_title
from profnb.core.printable import quoted
from profnb.core.units import PS_PER_NS
from profnb.steps.spine import Spine
from profnb.steps.step_times import StepTimes
from profnb.steps.windows import Steps

_ALIKE = 0.9
_NEAR_PS, _NEAR_OF_GAP = 2_000_000_000, 20  # how far apart the two clocks may see the same moment
_MOST_PLACES, _LONGEST_NAME = 64, 60


@dataclass(frozen=True, slots=True)
class GapCause:
    """What took most of a gap.

    Attributes:
        name: A callback's hook, or what saves or loads: "Pause.on_epoch_end".
        line: Where it stands, or was called: "Cell [1]:8"; "" where that is not the user's.
        wall_ps: Time of the gap that it is proved to have taken.
    """

    name: str
    line: str
    wall_ps: int

    @property
    def text(self) -> str:
        """As a sentence names it: "`Pause.on_epoch_end`, Cell [1]:8"."""
        name = quoted(self.name, _LONGEST_NAME)
        return f"{name}, {self.line}" if self.line else name


def find_gap_cause(spine: Spine, row: int) -> GapCause | None:
    """The one call that took more than half of the time of a gap.

    Args:
        spine: The steps, and what the capture saw.
        row: The gap, as the row of the step before it.

    Returns:
        The call; None where none is proved to have taken so much.
    """
    cell, times = spine.recording.cell, spine.step_times
    if cell is None or times.first_ns is None or not len(cell.long_part):
        return None
    first = _first_of_trace(spine.steps, times)
    wall = None if first is None else _wall_gap(spine.steps, times, row, first)
    if wall is None:
        return None
    begin_ps, end_ps = wall
    gap_ps = int(spine.gaps.duration_ps[row])
    began = np.asarray(cell.long_begin_ns, np.int64) - times.first_ns
    ended = np.asarray(cell.long_end_ns, np.int64) - times.first_ns
    inside = (began >= begin_ps // PS_PER_NS) & (ended <= -(-end_ps // PS_PER_NS))
    took_ps = np.zeros(len(cell.parts), np.int64)
    part = np.asarray(cell.long_part, np.int64)[inside]
    np.add.at(took_ps, part, np.asarray(cell.long_wall_ns, np.int64)[inside] * PS_PER_NS)
    # All that is known to have been something else may have been while the call ran.
    took_ps = np.clip(took_ps - max(end_ps - begin_ps - gap_ps, 0), 0, gap_ps)
    most = int(took_ps.argmax())
    if int(took_ps[most]) * 2 <= gap_ps:
        return None
    call, source = cell.parts[most], spine.recording.source
    cells = cell.cells | (source.cells if source else {})
    line = f"{file_title(call.file, cells)}:{call.line}" if call.file else ""
    return GapCause(call.name, line, int(took_ps[most]))


def epoch_behind(spine: Spine, row: int) -> int:
    """Which epoch of its ``fit`` ended behind a step, as Keras prints it; 0 where that is not known.

    Args:
        spine: The steps, and what the capture saw.
        row: The step.
    """
    times = spine.step_times
    if times.first_ns is None or times.epoch is None:
        return 0
    first = _first_of_trace(spine.steps, times)
    return 0 if first is None else int(times.epoch[first + row])


def _first_of_trace(steps: Steps, times: StepTimes) -> int | None:
    """Which of the steps that were timed is the first one of the trace; None where that is not sure.

    It is sure where the phases are the same, one for one, and so are the times between nine of ten steps, and
    that holds at no other place.
    """
    count = len(steps)
    if steps.is_window or not count or count > len(times):
        return None
    traced = np.append(0, np.cumsum(times.was_traced))
    places = np.flatnonzero(traced[count:] - traced[:-count] == count)
    if places.size > _MOST_PLACES:
        return None
    fitting = []
    for place in places.tolist():
        if times.phase[place : place + count] != steps.phase:
            continue
        apart = steps.host_begin_ps - times.begin_ps[place : place + count]
        near = np.abs(apart - np.median(apart).astype(np.int64)) <= _NEAR_PS
        if near.mean() >= _ALIKE:
            fitting.append(place)
    return fitting[0] if len(fitting) == 1 else None


def _wall_gap(steps: Steps, times: StepTimes, row: int, first: int) -> tuple[int, int] | None:
    """Begin and end of a gap as the capture timed it; None where the trace's gap is not the same one."""
    if row + 1 >= len(steps):
        return None
    at = first + row
    begin_ps = int(times.begin_ps[at]) + int(times.duration_ps[at])
    end_ps = int(times.begin_ps[at + 1])
    of_trace_ps = int(steps.host_begin_ps[row + 1] - steps.host_end_ps[row])
    is_same = abs(of_trace_ps - (end_ps - begin_ps)) <= max(_NEAR_PS, of_trace_ps // _NEAR_OF_GAP)
    return (begin_ps, end_ps) if is_same and end_ps > begin_ps else None
