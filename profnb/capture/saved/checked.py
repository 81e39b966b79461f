"""Values of a file that may hold anything, each checked before it is used."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from profnb.core.errors import TraceFormatError

__all__ = ["Checked"]

_MOST_ITEMS, _LONGEST = 10_000, 2000


class Checked:
    """Takes values of one file.

    Args:
        source: The file's name, for errors.

    Raises:
        TraceFormatError: From every method, where the value is not what it should be.
    """

    def __init__(self, source: str) -> None:
        """Nothing has been taken."""
        self._source = source

    def refuse(self, found: str) -> NoReturn:
        """Give up on the file."""
        raise TraceFormatError(
            f"{self._source} is not what profnb writes beside a trace (found: {found}). Remove it to open "
            "the trace alone."
        )

    def mapping(self, value: object, most: int = _MOST_ITEMS) -> dict[str, Any]:
        """An object."""
        if not isinstance(value, dict) or len(value) > most:
            self.refuse(f"{type(value).__name__} where an object belongs")
        return value

    def items(self, value: object, most: int = _MOST_ITEMS) -> list[Any]:
        """A list that is not too long."""
        if not isinstance(value, list) or len(value) > most:
            self.refuse(f"{type(value).__name__} where a list of at most {most:,} belongs")
        return value

    def text(self, value: object) -> str:
        """A text, cut where it is too long."""
        if not isinstance(value, str):
            self.refuse(f"{type(value).__name__} where text belongs")
        return value[:_LONGEST].encode("utf-8", "replace").decode("utf-8")  # no lone surrogates

    def count(self, value: object) -> int:
        """A whole number from 0."""
        number = self.number(value)
        if number < 0:
            self.refuse(f"{number} where nothing below 0 belongs")
        return number

    def number(self, value: object) -> int:
        """A whole number of at most 64 bits."""
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
            self.refuse(f"{str(value)[:40]!r} where a whole number belongs")
        return value

    def texts(self, value: object, most: int = _MOST_ITEMS) -> list[str]:
        """A list of texts."""
        return [self.text(item) for item in self.items(value, most)]

    def named(self, value: object, read: Callable[[object], Any]) -> dict[str, Any]:
        """An object whose values are read by a function."""
        return {self.text(name): read(item) for name, item in self.mapping(value).items()}

    def pair(self, value: object) -> tuple[str, Any]:
        """A text and something else."""
        first, second = self.items(value, 2)
        return self.text(first), second

    def within(self, values: Sequence[int], least: int, end: int, what: str) -> None:
        """Refuse whole numbers outside of a range."""
        if values and not least <= min(values) <= max(values) < end:
            self.refuse(f"{what} outside {least} to {end - 1}")

    def column(self, value: object, code: str, most: int) -> "array[int]":
        """A list of whole numbers, as an array of this type."""
        items = self.items(value, most)
        try:
            return array(code, items)
        except (TypeError, OverflowError):
            self.refuse("something else where whole numbers belong")
