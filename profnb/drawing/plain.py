"""Rows as aligned columns of plain text, for a terminal."""

from collections.abc import Sequence

from profnb.core.printable import printable


def plain_table(rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> str:
    """Rows as aligned columns of plain text; number columns align right."""
    if not rows:
        return ""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(numbers))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in rows
    )
