"""The parts of a cell, as counters and looks at its stack divided it; the call that took a gap between steps.

That is a callback, or the saving of a model, that is proved to have taken most of the gap. The trace has no
event for a callback, and the capture's clock has no trace. What both saw are the steps, so the traced steps
are laid over those that the capture timed::

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

from profnb.capture.parts.part_records import (
    AROUND,
    FAILED,
    FIRST,
    GAPS,
    MARKED,
    OTHER,
    PARTS,
    SETTING_UP,
    SLOW_FIRST,
    CellPart,
    CellRecords,
)
from profnb.capture.source.source_records import SourceRecords
from profnb.capture.source.user_code import file_title
from profnb.core.columns import Bools, Floats, Int64s, RowColumns, ratio, sum_by
from profnb.core.printable import quoted
from profnb.core.table import Table, columns_in
from profnb.core.units import PS_PER_NS
from profnb.steps.spine import Spine
from profnb.steps.step_times import StepTimes
from profnb.steps.windows import Steps

_LONGEST_LINE = 110
_ALIKE = 0.9
_NEAR_PS, _NEAR_OF_GAP = 2_000_000_000, 20  # how far apart the two clocks may see the same moment
_MOST_LINES_NAMED = 64
# What every table, picture and sentence calls a part, or a node of the tree, where its own word says little.
KIND_TITLES = {
    AROUND: "set-up of runs", SETTING_UP: "new iterators", GAPS: "between steps", MARKED: "steps",
}  # fmt: skip
_STEPS_OF_NAME = (MARKED, FIRST, SLOW_FIRST, FAILED)


@dataclass(frozen=True, slots=True)
class CellBreakdown(RowColumns):
    """N parts of a cell that add up to its wall time.

    Its columns are those of ``CELL_BREAKDOWN``, each of shape (N,), times in picoseconds.
    """

    part: tuple[str, ...]
    name: tuple[str, ...]
    occurrences: Int64s  # number of runs, shape (N,); 0 where that has no meaning
    wall_ps: Int64s
    longest_ps: Int64s
    line: tuple[str, ...]

    @property
    def whole_ps(self) -> int:
        """The cell's wall time."""
        return int(self.wall_ps.sum())

    @property
    def knows_longest(self) -> Bools:
        """True where the longest occurrence is known, shape (N,): not of what was seen now and then only."""
        return (self.occurrences > 0) & (self.longest_ps * self.occurrences >= self.wall_ps)

    @property
    def fraction(self) -> Floats:
        """Each part's share of the cell, shape (N,)."""
        return self.wall_ps / (self.whole_ps or np.nan)


def kind_title(kind: str) -> str:
    """Name a part of the cell, or a kind of node of its tree, as everything that a user sees does."""
    return KIND_TITLES.get(kind, kind)


def node_title(kind: str, name: str) -> str:
    """Name a part by its kind and its own name: "train steps", "first update steps", "imports keras"."""
    title = kind_title(kind)
    if kind not in _STEPS_OF_NAME:
        return f"{title} {name}".rstrip()
    return f"{title.removesuffix('steps')}{name} steps" if name not in ("", "step") else title


_MEANINGS = "; ".join(f"{kind_title(part)}: {meaning}" for part, meaning in PARTS.items())

CELL_BREAKDOWN = Table[CellBreakdown](
    "cell_breakdown",
    "One row per part of the cell, in the order of first begin.",
    columns_in("""
        part: what the time was spent on; see above
        name: which one: a callback's hook, a function, a package, a source line; empty for all of the part
        occurrences >= 1: how often it ran; missing where that has no meaning
        wall_ms [time]: wall time of it alone, without parts inside it
        fraction [share]: share of the cell's wall time
        mean_ms: mean of the occurrences
        longest_ms: the longest occurrence; missing where they were too short to be seen one by one
        line: source line that caused the longest occurrence, or where a callback stands; empty where it is
            not known
        """),
    "The parts add up to the cell's wall time exactly, from the capture's start until the trace was read. "
    "Of nested parts the innermost counts. The wall clock of the cell's thread counts, traced or not. "
    f"{_MEANINGS}.",
    values={
        "part": lambda c: tuple(map(kind_title, c.part)),
        "mean_ms": lambda c: ratio(c.wall_ps, c.occurrences),
        "longest_ms": lambda c: np.where(c.knows_longest, c.longest_ps, np.nan),
    },
)


def break_down_cell(records: CellRecords, source: SourceRecords | None) -> CellBreakdown | None:
    """Put the parts of a cell in columns, its own Python named by the text of its line; None without any."""
    parts = records.parts
    if not records.wall_ns or not parts:
        return None
    names = [part.name for part in parts]
    for at, part in enumerate(parts):
        if part.part == OTHER and source is not None:
            text = ("", *source.texts.get(part.file, ()))[part.line : part.line + 1]
            names[at] = "".join(text).strip()[:_LONGEST_LINE]
    return CellBreakdown(
        part=tuple(part.part for part in parts),
        name=tuple(names),
        occurrences=np.array([p.occurrences if p.is_counted else 0 for p in parts], np.int64),
        wall_ps=np.array([part.wall_ns * PS_PER_NS for part in parts], np.int64),
        longest_ps=np.array([part.longest_ns * PS_PER_NS for part in parts], np.int64),
        line=tuple(_line_of(part, records, source) for part in parts),
    )


def _line_of(part: CellPart, records: CellRecords, source: SourceRecords | None) -> str:
    cells = records.cells | (source.cells if source else {})
    return f"{file_title(part.file, cells)}:{part.line}" if part.file else ""


@dataclass(frozen=True, slots=True)
class GapCause:
    """The call that took most of a gap."""

    name: str  # a callback's hook, or what saves or loads: "Pause.on_epoch_end"
    line: str  # where it stands, or was called: "Cell [1]:8"; "" where that is not the user's
    wall_ps: int  # of the gap that it is proved to have taken

    @property
    def text(self) -> str:
        """As a sentence names it: "`Pause.on_epoch_end`, Cell [1]:8"."""
        name = quoted(self.name)
        return f"{name}, {self.line}" if self.line else name


def find_gap_cause(spine: Spine, row: int) -> GapCause | None:
    """Find the one call that is proved to have taken more than half of a gap, or None.

    ``row`` is the gap, as the row of the step before it.
    """
    cell, times = spine.recording.cell, spine.step_times
    if cell is None or times.first_ns is None or not len(cell.long_part):
        return None
    wall = _wall_gap(spine.steps, times, row)
    if wall is None:
        return None
    begin_ps, end_ps = wall
    gap_ps = int(spine.gaps.duration_ps[row])
    began = np.asarray(cell.long_begin_ns, np.int64) - times.first_ns
    ended = np.asarray(cell.long_end_ns, np.int64) - times.first_ns
    inside = (began >= begin_ps // PS_PER_NS) & (ended <= -(-end_ps // PS_PER_NS))
    part = np.asarray(cell.long_part, np.int64)
    wall_ps = np.asarray(cell.long_wall_ns, np.int64) * PS_PER_NS
    took_ps = sum_by(part, wall_ps * inside, len(cell.parts))
    # All that is known to have been something else may have been while the call ran.
    took_ps = np.clip(took_ps - max(end_ps - begin_ps - gap_ps, 0), 0, gap_ps)
    most = int(took_ps.argmax())
    if int(took_ps[most]) * 2 <= gap_ps:
        return None
    call = cell.parts[most]
    line = _line_of(call, cell, spine.recording.source)
    return GapCause(call.name, line, int(took_ps[most]))


def epoch_behind(spine: Spine, row: int) -> int:
    """Number the epoch of a ``fit`` that ended behind a step, as Keras prints it; 0 if not known."""
    times = spine.step_times
    if times.first_ns is None or times.epoch is None:
        return 0
    first = _first_of_trace(spine.steps, times)
    return 0 if first is None else int(times.epoch[first + row])


def _first_of_trace(steps: Steps, times: StepTimes) -> int | None:
    """Find the timed step that is the first one of the trace; None where that is not sure.

    It is sure where the phases are the same, one for one, and so are the times between nine of ten steps, and
    that holds at no other place.
    """
    count = len(steps)
    if steps.is_window or not count or count > len(times):
        return None
    traced = np.append(0, np.cumsum(times.was_traced))
    places = np.flatnonzero(traced[count:] - traced[:-count] == count).tolist()
    fitting = []
    for place in places if len(places) <= _MOST_LINES_NAMED else ():
        part = slice(place, place + count)
        apart = steps.host_begin_ps - times.begin_ps[part]
        near = np.abs(apart - np.median(apart).astype(np.int64)) <= _NEAR_PS
        if times.phase[part] == steps.phase and near.mean() >= _ALIKE:
            fitting.append(place)
    return fitting[0] if len(fitting) == 1 else None


def _wall_gap(steps: Steps, times: StepTimes, row: int) -> tuple[int, int] | None:
    """Begin and end of a gap as the capture timed it; None where the trace's gap is not the same one."""
    first = _first_of_trace(steps, times)
    if first is None or row + 1 >= len(steps):
        return None
    at = first + row
    begin_ps, end_ps = int((times.begin_ps + times.duration_ps)[at]), int(times.begin_ps[at + 1])
    of_trace_ps = int(steps.host_begin_ps[row + 1] - steps.host_end_ps[row])
    is_same = abs(of_trace_ps - (end_ps - begin_ps)) <= max(_NEAR_PS, of_trace_ps // _NEAR_OF_GAP)
    return (begin_ps, end_ps) if is_same and end_ps > begin_ps else None
