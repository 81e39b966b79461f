"""The parts of a cell, as counters and looks at its stack divided it, as a table."""

from dataclasses import dataclass

import numpy as np

from profnb.capture.parts.part_records import OTHER, PARTS, CellPart, CellRecords
from profnb.capture.source.source_records import SourceRecords
from profnb.capture.source.user_code import file_title
from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table
from profnb.core.units import PS_PER_NS

_LONGEST = 110


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
        """Whether the longest occurrence is known, shape (N,): not of what was seen now and then only."""
        has_all = self.longest_ps * self.occurrences >= self.wall_ps
        return (self.occurrences > 0) & has_all

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
            "the longest occurrence; missing where they were too short to be seen one by one",
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
        source: The text of the user's lines, where that was kept.

    Returns:
        The parts; None where nothing was timed.
    """
    if not records.wall_ns:
        return None
    cells = records.cells | (source.cells if source else {})
    rows = [_row(part, source, cells) for part in records.parts]
    part, name, occurrences, wall_ps, longest_ps, line = zip(*rows, strict=True)
    counts, walls, longest = (np.array(c, np.int64) for c in (occurrences, wall_ps, longest_ps))
    return CellBreakdown(part, name, counts, walls, longest, line)


_Row = tuple[str, str, int, int, int, str]


def _row(part: CellPart, source: SourceRecords | None, cells: dict[str, int]) -> _Row:
    """A part; the code's own Python is named by the text of its line."""
    line = f"{file_title(part.file, cells)}:{part.line}" if part.file else ""
    name = part.name
    if part.part == OTHER and source is not None:
        text = source.texts.get(part.file, ())
        name = text[part.line - 1].strip()[:_LONGEST] if 0 < part.line <= len(text) else ""
    wall_ps, longest_ps = part.wall_ns * PS_PER_NS, part.longest_ns * PS_PER_NS
    occurrences = part.occurrences if part.is_counted else 0
    return part.part, name, occurrences, wall_ps, longest_ps, line
