"""Text for a terminal: what may be printed, and rows as aligned columns."""

from collections.abc import Sequence

__all__ = ["plain_table", "printable"]


def printable(text: str) -> str:
    """Text from a trace without characters that would command the terminal or break a line."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


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
