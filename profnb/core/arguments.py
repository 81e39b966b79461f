"""Words of a command line, read or refused in one sentence, before anything runs."""

import argparse
import keyword
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from profnb.core.printable import printable

_USAGE = 2


def new_file(text: str) -> Path:
    """Take a path of this folder, which a program may leave before the file is written."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"there is no home of that user: {text!r}") from error
    if not text:
        raise argparse.ArgumentTypeError("names no file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file in it")
    return path


def percentage(text: str) -> float:
    """Read a percentage, with or without its sign, as a fraction."""
    number = text.removesuffix("%").rstrip()
    if not number.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"takes a percentage such as 5, got {text!r}")
    return float(number) / 100


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a number such as 2.5, got {text!r}") from None


def whole(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """Make what reads whole numbers in these bounds, both included; None for no upper one."""

    def read(text: str) -> int:
        if not text.isdecimal() or not lowest <= int(text) <= (highest or int(text)):
            bounds = lowest if highest is None else f"{lowest} to {highest}"
            raise argparse.ArgumentTypeError(f"takes a whole number from {bounds}, got {text!r}")
        return int(text)

    return read


count = whole(1)


def variable(text: str) -> str:
    """Take a name that a variable can have."""
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"takes a variable name such as before, got {text!r}")
    return text


def unquoted(text: str) -> str:
    """Take off the quotes around an argument, which IPython leaves."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def listed(text: str) -> list[str]:
    """Read words, between commas."""
    return [word for part in unquoted(text).split(",") if (word := part.strip())]


def counts(text: str) -> list[int]:
    """Read several whole numbers of at least one, between commas."""
    return list(map(count, listed(text) or [""]))


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong with a line, and where to read what it takes."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2, and say why."""
        said = printable(f"{self.prog}: {message}; `{self.prog} --help` has all.")
        self.exit(_USAGE, f"{said}\n")
