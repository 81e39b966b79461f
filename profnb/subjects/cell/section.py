"""The table of the parts of a cell, as the report shows it."""

from profnb.core.printable import LONGEST_NAME, shortened
from profnb.core.units import MISSING, count_text, duration_text
from profnb.drawing.drawn_tables import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import CELL_COLOURS
from profnb.subjects.cell.cell_breakdown import CELL_BREAKDOWN, CellBreakdown

_LEAST_SHOWN = 0.001
_SHOWN = 15


def cell_sections(cell: CellBreakdown | None) -> list[Section]:
    """Show the parts that took most; none where nothing was timed."""
    if cell is None:
        return []
    order = sorted(range(len(cell)), key=lambda row: -cell.wall_ps[row])
    shown = [row for row in order if cell.fraction[row] >= _LEAST_SHOWN][:_SHOWN]
    most = float(cell.fraction.max()) or 1.0

    def part(row: int) -> Cell:
        return cell.part[row], "", shortened(cell.name[row], LONGEST_NAME)

    def meaning(column: str) -> str:
        return CELL_BREAKDOWN[column].meaning

    knows_longest = cell.knows_longest

    def longest(row: int) -> str:
        if not knows_longest[row]:
            return MISSING if cell.occurrences[row] else ""
        return duration_text(int(cell.longest_ps[row])) if cell.occurrences[row] > 1 else ""

    def occurrences(row: int) -> str:
        return count_text(int(cell.occurrences[row])) if cell.occurrences[row] else MISSING

    rest = len(cell) - len(shown)
    smaller = "1 smaller part is" if rest == 1 else f"{count_text(rest)} smaller parts are"
    more = f" {smaller} in p.cell_breakdown." if rest > 0 else ""
    return [
        section_of(
            CELL_BREAKDOWN,
            cell,
            (
                Shown("part", part, meaning=meaning("part")),
                "wall_ms",
                "fraction",
                Shown("times", occurrences, is_number=True, meaning=meaning("occurrences")),
                Shown("longest", longest, is_number=True, meaning=meaning("longest_ms")),
                "line",
            ),
            title="The whole cell",
            tab="Cell",
            sentence=f"{duration_text(cell.whole_ps)} of wall time, traced or not.{more}",
            bar=Bar(
                lambda row: float(cell.fraction[row] / most),
                lambda row: CELL_COLOURS[cell.part[row]],
                8,
            ),
            rows=shown,
        )
    ]
