"""The parts of a cell, as the capture's clock charged them, with the code's own Python told by its lines.

The clock knows what TensorFlow and Keras were asked for; what is left is the code's own. Where the line
watcher looked, that is divided among the source lines at which it was spent; the rest stays as it is, so the
sum is the cell's wall time exactly.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from profnb.capture.parts.part_records import (
    EVALUATION,
    OTHER,
    PARTS,
    PREDICT,
    TRAIN,
    VALIDATION,
    CellPart,
    CellRecords,
)
from profnb.capture.source.source_records import SourceRecords
from profnb.capture.source.user_code import file_title
from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table
from profnb.core.units import PS_PER_NS
from profnb.subjects.source.code_times import Clock, busy_within, follow_lines

__all__ = ["CELL_BREAKDOWN", "CellBreakdown", "break_down_cell"]

_MOST_LINES, _LONGEST = 20, 110
_WRAP = 1 << 64
_BATCHES = (TRAIN, VALIDATION, EVALUATION, PREDICT)


@dataclass(frozen=True, slots=True)
class CellBreakdown:
    """N parts of a cell that add up to its wall time.

    Attributes:
        part: Which part each is; see ``PARTS``.
        name: Which one of it, "" for all.
        occurrences: How often it ran, shape (N,); 0 where that has no meaning.
        wall_ps: Wall time of it alone, without parts inside it, shape (N,).
        longest_ps: The longest occurrence, shape (N,).
        line: Where it was caused, or a callback stands: "Cell [3]:8"; "" where that is not known.
    """

    part: tuple[str, ...]
    name: tuple[str, ...]
    occurrences: Int64s
    wall_ps: Int64s
    longest_ps: Int64s
    line: tuple[str, ...]

    def __len__(self) -> int:
        return self.wall_ps.size

    @property
    def whole_ps(self) -> int:
        """The cell's wall time."""
        return int(self.wall_ps.sum())

    @property
    def knows_longest(self) -> Bools:
        """Whether the longest occurrence is known, shape (N,): not of batches that took time behind them."""
        may_fly = np.array([part in _BATCHES for part in self.part], np.bool_)
        has_all = self.longest_ps * self.occurrences >= self.wall_ps
        return (self.occurrences > 0) & (has_all | ~may_fly)

    @property
    def fraction(self) -> Floats:
        """Each part's share of the cell, shape (N,)."""
        return self.wall_ps / (self.whole_ps or np.nan)


def _counted(cell: CellBreakdown) -> Floats:
    return np.where(cell.occurrences > 0, cell.occurrences, np.nan)


_MEANINGS = "; ".join(f"{part}: {meaning}" for part, meaning in PARTS.items())

CELL_BREAKDOWN = Table[CellBreakdown](
    "cell_breakdown",
    "One row per part of the cell, in the order in which they first began.",
    (
        Column("part", lambda c: c.part, "what the time was spent on; see above"),
        Column(
            "name",
            lambda c: c.name,
            "which one: a callback's hook, a function, a package, a source line; empty for all of the part",
        ),
        Column("occurrences", _counted, "how often it ran; missing where that has no meaning"),
        Column("wall_ms", lambda c: c.wall_ps, "wall time of it alone, without parts inside it", "time"),
        Column("fraction", lambda c: c.fraction, "share of the cell's wall time", "share"),
        Column("mean_ms", lambda c: c.wall_ps / _counted(c), "mean of the occurrences"),
        Column(
            "longest_ms",
            lambda c: np.where(c.knows_longest, c.longest_ps, np.nan),
            "the longest occurrence; missing where work went on behind them (JAX)",
        ),
        Column(
            "line",
            lambda c: c.line,
            "source line that caused the longest occurrence, or where a callback stands; empty where it is "
            "not known",
        ),
    ),
    "They add up to the cell's wall time exactly, from the capture's start until the trace was read; of "
    "parts inside each other the innermost counts. Measured by the wall clock on the thread that runs the "
    f"cell, traced or not. {_MEANINGS}.",
)  # fmt: skip


def break_down_cell(records: CellRecords, source: SourceRecords | None) -> CellBreakdown | None:
    """The parts of a cell as columns.

    Args:
        records: What the capture's clock charged.
        source: Lines of the user's code, where they were watched; they divide the code's own Python.

    Returns:
        The parts; None where nothing was timed.
    """
    if not records.wall_ns:
        return None
    cells = records.cells | (source.cells if source else {})
    rows = list(chain.from_iterable(_rows(part, records, source, cells) for part in records.parts))
    part, name, occurrences, wall_ps, longest_ps, line = zip(*rows, strict=True)
    counts, walls, longest = (np.array(c, np.int64) for c in (occurrences, wall_ps, longest_ps))
    return CellBreakdown(part, name, counts, walls, longest, line)


_Row = tuple[str, str, int, int, int, str]


def _rows(
    part: CellPart, records: CellRecords, source: SourceRecords | None, cells: dict[str, int]
) -> list[_Row]:
    line = f"{file_title(part.file, cells)}:{part.line}" if part.file else ""
    wall_ps, longest_ps = part.wall_ns * PS_PER_NS, part.longest_ns * PS_PER_NS
    lines = [] if part.part != OTHER or source is None else _python_lines(records, source, cells)
    wall_ps -= sum(row[3] for row in lines)
    part_row: _Row = (part.part, part.name, part.occurrences, wall_ps, longest_ps, line)
    return [part_row, *lines] if wall_ps else lines


def _python_lines(records: CellRecords, source: SourceRecords, cells: dict[str, int]) -> list[_Row]:
    """The source lines that took most of the code's own Python, the first to begin first."""
    if not (len(source.lines) and len(records.python_begin_ns)):
        return []
    base_ns = records.python_begin_ns[0]
    begin, end = (
        (np.array(column, np.int64) - base_ns) * PS_PER_NS
        for column in (records.python_begin_ns, records.python_end_ns)
    )
    # The offset in picoseconds may not fit into 64 bits, but wraps as the times themselves do.
    offset_ps = (-base_ns * PS_PER_NS + _WRAP // 2) % _WRAP - _WRAP // 2
    last_ps = (source.lines.time_ns[-1] - base_ns) * PS_PER_NS
    history = follow_lines(source.lines, Clock(offset_ps, -1), last_ps)
    took_ps = np.diff(busy_within((begin, end), history.begin_ps))
    count = len(history.places)
    is_timed = (history.place >= 0) & (took_ps > 0)
    place, took_ps = history.place[is_timed], took_ps[is_timed]
    wall_ps, longest_ps, begun = (np.zeros(count, np.int64) for _ in range(3))
    np.add.at(wall_ps, place, took_ps)
    np.maximum.at(longest_ps, place, took_ps)
    np.add.at(begun, place, history.is_begin[is_timed])
    untimed = set(source.lines.untimed)
    rows = []
    for row in sorted(np.argsort(-wall_ps, kind="stable")[:_MOST_LINES].tolist()):
        file, number = history.places[row]
        if not wall_ps[row]:
            continue
        text = source.texts.get(file, ())
        name = text[number - 1].strip()[:_LONGEST] if 0 < number <= len(text) else ""
        is_counted = not (source.lines.is_sampled or (file, number) in untimed)
        occurrences = int(begun[row]) if is_counted else 0
        line = f"{file_title(file, cells)}:{number}"
        rows.append((OTHER, name, occurrences, int(wall_ps[row]), int(longest_ps[row]), line))
    return rows
