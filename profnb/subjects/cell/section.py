"""Where the cell's time went, as the report shows it: one sentence, one bar, and a table of the parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from profnb.capture.parts import part_records as parts
from profnb.core.printable import quoted, shortened
from profnb.core.units import MISSING, count_text, duration_text
from profnb.drawing.html_table import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import CELL_COLOURS, CELL_SHADES
from profnb.subjects.cell.cell_breakdown import CELL_BREAKDOWN, CellBreakdown

__all__ = ["EAGER", "CellShare", "CellWords", "cell_sections", "cell_words"]

_MOST_SAID, _LEAST_SAID, _LEAST_REST = 6, 0.015, 0.005
_LEAST_SHOWN = 0.001
_SHOWN, _LONGEST, _MOST_LINES = 15, 60, 3
_REST = "other parts"
_PYTHON, EAGER = "Python", "Python and eager ops"
# What a sentence calls a part; callbacks and functions are called by their names.
_TITLES = {
    parts.TRAIN: "training",
    parts.VALIDATION: "validation",
    parts.EVALUATION: "evaluation",
    parts.PREDICT: "prediction",
    parts.INPUT: "waiting for data",
    parts.GAPS: "between batches",
    parts.AROUND: "set-up of runs",
    parts.PROFNB: "profnb itself",
}


@dataclass(frozen=True, slots=True)
class CellShare:
    """A part of the cell in the sentence and the bar.

    Attributes:
        name: What the sentence calls it.
        fraction: Its share of the cell.
        colour: Its colour.
        remark: What more there is to say, in brackets; "" for nothing.
    """

    name: str
    fraction: float
    colour: str
    remark: str = ""

    @property
    def text(self) -> str:
        """As the sentence says it: "training 28 %"."""
        percent = f"{self.fraction * 100:.0f} %" if self.fraction >= 0.005 else "<1 %"
        return f"{self.name} {percent}{f' ({self.remark})' if self.remark else ''}"


@dataclass(frozen=True, slots=True)
class CellWords:
    """Where a cell's time went, in one sentence and one bar.

    Attributes:
        head: How it begins: "Of 20.4 s:".
        shares: What it names, the largest first, then the rest and profnb itself: of the whole all but
            what rounds to nothing.
    """

    head: str
    shares: Sequence[CellShare]

    @property
    def text(self) -> str:
        """The sentence."""
        return f"{self.head} {', '.join(share.text for share in self.shares)}."


def cell_words(cell: CellBreakdown, *, has_eager_ops: bool) -> CellWords:
    """The sentence and the bar of a cell.

    Args:
        cell: Its parts.
        has_eager_ops: Whether its own Python may have run ops of TensorFlow one by one.
    """
    python = EAGER if has_eager_ops else _PYTHON
    sums: dict[str, float] = {}
    part_of: dict[str, str] = {}
    for part, name, fraction in zip(cell.part, cell.name, cell.fraction.tolist(), strict=True):
        title = _title(part, name, python)
        sums[title] = sums.get(title, 0.0) + fraction
        part_of.setdefault(title, part)
    profnb_fraction = sums.pop(_TITLES[parts.PROFNB], 0.0)
    order = sorted(sums, key=lambda title: -sums[title])
    said = [title for title in order if sums[title] >= _LEAST_SAID][:_MOST_SAID]
    shades = {part: cycle(colours) for part, colours in CELL_SHADES.items()}
    shares = []
    for title in said:
        part = part_of[title]
        colour = next(shades[part]) if part in shades else CELL_COLOURS[part]
        shares.append(CellShare(title, sums[title], colour, _remark(cell, part)))
    rest = sum(sums[title] for title in order if title not in said)
    if rest >= _LEAST_REST:
        shares.append(CellShare(_REST, rest, CELL_COLOURS[_REST]))
    if profnb_fraction > 0:
        shares.append(CellShare(_TITLES[parts.PROFNB], profnb_fraction, CELL_COLOURS[parts.PROFNB]))
    return CellWords(f"Of {duration_text(cell.whole_ps)}:", shares)


def _title(part: str, name: str, python: str) -> str:
    if part == parts.OTHER:
        return python
    if part == parts.CALLBACKS:
        return quoted(name.partition(".")[0] or part, _LONGEST)
    if part == parts.CALLS and name:
        return quoted(name, _LONGEST)
    if part == parts.MARKED and name:
        return f"steps marked {quoted(name, _LONGEST)}"
    return _TITLES.get(part, part)


def _remark(cell: CellBreakdown, part: str) -> str:
    """What more is known of a part: of the code's own Python the line that took most, where one did."""
    if part == parts.AROUND:
        return _runs(cell)
    if part != parts.OTHER:
        return "tracing, compiling" if part == parts.FIRST else ""
    rows = [row for row in range(len(cell)) if cell.part[row] == parts.OTHER]
    top = sorted((row for row in rows if cell.line[row]), key=lambda row: -cell.wall_ps[row])
    half = cell.wall_ps[rows].sum() / 2
    for count in range(1, min(len(top), _MOST_LINES) + 1):
        if cell.wall_ps[top[:count]].sum() >= half:
            lines = [cell.line[row] for row in top[:count]]
            text = (
                f"{quoted(cell.name[top[0]], _LONGEST)}, "
                if count == 1 and cell.name[top[0]]
                else ""
            )
            return f"most of it {text}{' and '.join(lines)}"
    return ""


def _runs(cell: CellBreakdown) -> str:
    """Which runs were set up, and how often, where any was more than once: "40 times predict"."""
    rows = [row for row in range(len(cell)) if cell.part[row] == parts.AROUND and cell.name[row]]
    if all(cell.occurrences[row] <= 1 for row in rows):
        return ""
    counts = ((int(cell.occurrences[row]), cell.name[row]) for row in rows)
    return ", ".join(f"{count_text(n)} times {name}" if n > 1 else name for n, name in counts)


def cell_sections(cell: CellBreakdown | None) -> list[Section]:
    """The table of the parts that took most; none where nothing was timed."""
    if cell is None:
        return []
    order = sorted(range(len(cell)), key=lambda row: -cell.wall_ps[row])
    shown = [row for row in order if cell.fraction[row] >= _LEAST_SHOWN][:_SHOWN]
    most = float(cell.fraction.max()) or 1.0

    def part(row: int) -> Cell:
        return cell.part[row], "", shortened(cell.name[row], _LONGEST)

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
                Shown("part", part, meaning=CELL_BREAKDOWN["part"].meaning),
                "wall_ms",
                "fraction",
                Shown("times", occurrences, is_number=True, meaning=_meaning("occurrences")),
                Shown("longest", longest, is_number=True, meaning=_meaning("longest_ms")),
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


def _meaning(column: str) -> str:
    return CELL_BREAKDOWN[column].meaning
