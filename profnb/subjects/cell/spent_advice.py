"""What rules of advice on the whole cell count: its parts without imports and profnb itself."""

from profnb.capture.parts.part_records import IMPORTS, PROFNB, CellPart
from profnb.subjects.advising import line_text
from profnb.subjects.study import Study

__all__ = ["line_of", "own_parts", "took_ns"]


def own_parts(study: Study) -> list[CellPart]:
    """The parts of the cell, without imports and profnb."""
    cell = study.recording.cell
    return [part for part in cell.parts if part.part not in (IMPORTS, PROFNB)] if cell else []


def took_ns(parts: list[CellPart]) -> int:
    """Their wall time."""
    return sum(part.wall_ns for part in parts)


def line_of(study: Study, parts: list[CellPart]) -> str:
    """The line that the longest of some parts were caused by."""
    placed = [part for part in parts if part.file]
    longest = max(placed, key=lambda part: part.wall_ns, default=None)
    return line_text(study, longest.file, longest.line) if longest else ""
