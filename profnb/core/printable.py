"""Text for a terminal: names of others command nothing, and what it cannot show is written more simply.

Where standard output is a terminal, lines are as wide as it is, the first paragraph is bold, savings are
green and notes faint; elsewhere (a file, a pipe, a notebook) nothing is broken and nothing coloured.
"""

import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from textwrap import TextWrapper

# What we draw with and write, and what stands for it where there is only ASCII.
_SIMPLER = {
    **dict.fromkeys("█▉▊▋▌■▇▆", "#"), **dict.fromkeys("▅▄", "+"), **dict.fromkeys("▃▂▁▍▎▏⋮", "."),
    "·": "-", "—": "-", "…": "...", "→": "->", "↑": "^", "‖": "||", "±": "+-", "µ": "u", "\u00a0": " ",
}  # fmt: skip
_NARROWEST = 20  # columns below which nothing is broken
LONGEST_NAME = 60  # of a name in a sentence, in characters: half a line
_NBSP = "\u00a0"  # what indents, and commands nothing
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[pnµum]?s|%|[kMGT]?B)(?!\w))")
_GLUE = "\x00"  # stands for a space at which no line ends; no printable text has it
_SAVING, _GREEN = re.compile(r"(?<=\()saves [^()]+(?=\))"), "\x1b[32m\\g<0>\x1b[0m"


def printable(text: str) -> str:
    """Text without characters that would command the terminal or break a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == _NBSP else "\ufffd" for char in text)


def first_of(
    names: Sequence[str], most: int, between: str = ", ", rest: str = " and {} more"
) -> str:
    """List the first few of many names, and say how many more there are."""
    more = len(names) - most
    return between.join(names[:most]) + (rest.format(f"{more:,}") if more > 0 else "")


def printable_lines(text: str) -> str:
    """The same of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def terminal_columns() -> int | None:
    """Count the columns of the terminal that standard output is, or take $COLUMNS; None where it is none."""
    try:
        if not sys.stdout.isatty():
            return None
        stated = os.environ.get("COLUMNS", "")
        there = int(stated) if stated.isdecimal() else 0
        return there or os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):  # none, a closed one, or one that a program plays
        return None


class UnitWrapper(TextWrapper):
    """Breaks a paragraph into lines, but no number from its unit."""

    def wrap(self, text: str) -> list[str]:
        """Give the lines."""
        lines = super().wrap(_BEFORE_UNIT.sub(_GLUE, text))
        return [line.replace(_GLUE, " ") for line in lines]


def unbroken(text: str) -> str:
    """Text for a page, in which no line ends between a number and its unit."""
    return _BEFORE_UNIT.sub("\u00a0", text)


def filled(text: str, most: int, indent: str = "") -> str:
    """Break a paragraph into lines of so many characters, or as many as the terminal has columns."""
    width = max(min(most, terminal_columns() or most), _NARROWEST)
    return UnitWrapper(width, subsequent_indent=indent).fill(text)


def for_terminal(text: str) -> str:
    """Text that standard output can show: characters that it can encode, lines as wide as a terminal is."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # None where there is no output
    missing = {char for char in set(text) if not char.encode(encoding, "ignore")}
    text = text.translate({ord(char): _SIMPLER.get(char, "?") for char in missing})
    columns = terminal_columns() or sys.maxsize
    return "\n".join(
        filled(line, columns, "  ") if len(line) > columns else line for line in text.split("\n")
    )


def styled(text: str) -> str:
    """Text with its begin bold, savings green, notes faint: on a terminal, unless NO_COLOR is set."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if terminal_columns() is None or is_plain:
        return text
    first, *others = text.split("\n\n")
    notes = "\x1b[2m{}\x1b[0m".format
    rest = (notes(one) if one.startswith("Note: ") else _SAVING.sub(_GREEN, one) for one in others)
    return "\n\n".join([f"\x1b[1m{first}\x1b[0m", *rest])


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters; an ellipsis stands for what is cut off."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_middle(text: str, most: int) -> str:
    """Text of at most so many characters; its begin and, as much, its end, an ellipsis between them."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def quoted(name: str, most: int = LONGEST_NAME) -> str:
    """A name of others in backticks, of at most so many characters, that it cannot leave."""
    return "`" + shortened(name.replace("`", "'"), most) + "`"


@contextmanager
def open_output() -> Iterator[None]:
    """Inside the block, write to the process' own output if the code has closed what ``print`` writes to."""
    if not getattr(sys.stdout, "closed", False):
        yield
        return
    standard = sys.__stdout__
    with redirect_stdout(io.StringIO() if standard is None or standard.closed else standard):
        yield
