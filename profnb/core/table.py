"""A table, declared once: its columns with unit, meaning and look, and all that follows from them.

A subject declares a table beside the analysis that fills it. From the declaration come the DataFrame of
``p.NAME`` and its docstring, the page of the documentation, the JSON, and the cells of the report's section.

The unit stands in a column's name. Analyses count in picoseconds, bytes and flops; a column named ``*_us`` or
``*_ms`` becomes floats in that unit, ``giga*_per_second`` in billions; a column named ``*_fraction`` is shown
as a percentage. A missing value is NaN (or NA in a column of integers), and is shown as missing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from operator import attrgetter
from textwrap import TextWrapper, dedent, fill
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from profnb.core import units

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
_SCALES = {
    "us": units.PS_PER_US, "ms": units.PS_PER_MS, "gigabytes": units.GB, "gigaflops": units.GB,
}  # fmt: skip
_LINE_WIDTH = 108
_LEAST_NAME = 12  # characters
_ROWS = "One row per"
_TIME_UNIT = re.compile("_[um]s$")
_DECLARED = re.compile(r"(\w+)(?: \[(.+?)\])?(?: = ([\w.]+))?(?: >= (\d+))?: (.+)")
_TEXTS: dict[str, Callable[[float | None], str]] = {
    "us": units.duration_text,
    "ms": units.duration_text,
    "fraction": units.percent_text,
    "bytes": units.bytes_text,
    "gigabytes per second": lambda value: units.rate_text(value, "B/s"),
    "gigaflops per second": lambda value: units.rate_text(value, "flop/s"),
}


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table.

    Attributes:
        name: Its name in the DataFrame, with the unit.
        values: What fills it, one value per row, in the unit that analyses count in (picoseconds, bytes).
        meaning: What it holds, a phrase that goes on after the name.
        heading: Its heading in the report; the name without its unit by default.
        text: How one value is written in the report; by its unit by default.
        is_scaled: Whether the values are in the DataFrame's unit already and stay as they are; also for a
            column that a user named, whose name says nothing of a unit.
    """

    name: str
    values: Callable[[T], Any]
    meaning: str
    heading: str = ""
    text: Callable[[Any], str] | None = None
    is_scaled: bool = False

    @property
    def unit(self) -> str:
        """Unit of the DataFrame's values: "us", "ms", "bytes", "fraction", ..., "" where there is none."""
        name = self.name.removesuffix("_per_second")
        last = name.rpartition("_")[2]
        if name != self.name:
            return f"{last} per second"
        return last if last in ("us", "ms", "bytes", "fraction", "percent") else ""

    @property
    def scale(self) -> float:
        """The number of what analyses count in make up one of the DataFrame's unit."""
        return 1.0 if self.is_scaled else _SCALES.get(self.unit.removesuffix(" per second"), 1.0)

    @property
    def title(self) -> str:
        """Its heading in the report."""
        return self.heading or self.name.removesuffix(f"_{self.unit}").replace("_", " ")

    def series(self, value: T) -> Any:
        """The DataFrame's column."""
        import numpy as np

        values = self.values(value)
        if self.scale != 1:
            return np.asarray(values) / self.scale
        return list(values) if isinstance(values, tuple) else values

    def write(self, value: Any) -> str:
        """One value, as the report shows it; text stays as it is."""
        if self.text is not None:
            return self.text(value)
        return value if isinstance(value, str) else _TEXTS.get(self.unit, units.count_text)(value)


@dataclass(frozen=True)
class Table(Generic[T]):
    """A table of a profile.

    Attributes:
        name: What it is called on a profile: ``p.NAME``, or on its owner.
        rows: What one row is, and their order: a sentence that begins "One row per".
        columns: Its columns, in order.
        remark: What a reader has to know of the whole; "" for nothing.
        owner: What has it, as the documentation calls it: a profile ``p``, a comparison ``c``.
        attributes: What the DataFrame's ``attrs`` hold.
        values: What fills a column that no field does, by the column's name.
        texts: How values of a column are written in the report, likewise.
        other_names: Columns by another name under which the DataFrame gives them, too.
    """

    name: str
    rows: str
    columns: tuple[Column[T], ...]
    remark: str = ""
    owner: str = "p"
    attributes: Callable[[T], dict[str, Any]] | None = None
    values: Mapping[str, Callable[[T], Any]] = field(default_factory=dict)
    texts: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    other_names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give the columns what fills and writes them.

        Raises:
            KeyError: A name is of no column.
        """
        columns = tuple(
            replace(
                column,
                values=self.values.get(column.name, column.values),
                text=self.texts.get(column.name, column.text),
            )
            for column in self.columns
        )
        if unknown := {*self.values, *self.texts} - {column.name for column in columns}:
            raise KeyError(*unknown)
        object.__setattr__(self, "columns", columns)

    def __getitem__(self, name: str) -> Column[T]:
        """The column of this name.

        Raises:
            KeyError: There is none.
        """
        return {column.name: column for column in self.columns}[name]

    def frame(self, value: T | None) -> "pd.DataFrame":
        """The DataFrame, made fresh; without rows where there is no value."""
        import pandas as pd

        renamed = tuple(self.other_names.items())
        made: type[pd.DataFrame] = _frame_with(renamed) if renamed else pd.DataFrame
        if value is None:
            return made(columns=[column.name for column in self.columns])
        frame = made({column.name: column.series(value) for column in self.columns})
        frame.attrs.update({} if self.attributes is None else self.attributes(value))
        return frame

    def doc(self) -> str:
        """The docstring of ``p.NAME``."""
        wrapper = TextWrapper(_LINE_WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        listed = "\n".join(wrapper.fill(f"{one.name}: {one.meaning}") for one in self.columns)
        remark = f"\n{fill(self.remark, _LINE_WIDTH)}\n" if self.remark else ""
        return f"{fill(self.rows, _LINE_WIDTH)}\n{remark}\nColumns:\n{listed}\n"

    def to_json(self, frame: "pd.DataFrame") -> dict[str, Any]:
        """The table for other programs: what it is, its columns with their meaning, its rows.

        Args:
            frame: What ``frame`` gave, all of it or some rows.

        Returns:
            Plain values; a missing one is None.
        """
        rows = frame.astype(object).where(frame.notna(), None)
        meaning = {column.name: column.meaning for column in self.columns}
        return {
            "table": self.name,
            "rows_are": self.rows,
            "columns": [{"name": name, "meaning": meaning.get(name, "")} for name in frame.columns],
            "rows": [[_plain(cell) for cell in row] for row in rows.itertuples(index=False)],
        }


@cache
def _frame_with(renamed: tuple[tuple[str, str], ...]) -> "type[pd.DataFrame]":
    """A DataFrame that gives columns by another name, too; what is made from it is a plain one."""
    import pandas as pd

    names = dict(renamed)

    class TableFrame(pd.DataFrame):
        """A DataFrame of a table."""

        @property
        def _constructor(self) -> type[pd.DataFrame]:
            return pd.DataFrame

        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, list) and any(isinstance(one, str) and one in names for one in key):
                listed = [names.get(name, name) for name in key]
                return super().__getitem__(listed).set_axis(key, axis="columns")
            return super().__getitem__(names.get(key, key) if isinstance(key, str) else key)

        def __getattr__(self, name: str) -> Any:  # type: ignore[misc]
            return self[name] if name in names else super().__getattr__(name)

    return TableFrame


def _plain(cell: Any) -> Any:
    """A cell as JSON knows it."""
    item = getattr(cell, "item", None)
    return item() if callable(item) else cell


class TableOf:
    """A table of every profile, as ``p.NAME``; its docstring is the table's, see below."""

    def __init__(self, module: str, name: str, value: str) -> None:
        """A table of every profile.

        Nothing is imported before somebody asks, so that ``import profnb`` stays cheap.

        Args:
            module: The module of ours that declares it, such as "steps.spine".
            name: The declaration's name there.
            value: Where on a profile the value lies that fills it, such as "study.device.copies".
        """
        self._module = module
        self._name = name
        self._value = attrgetter(value)

    @property
    def table(self) -> Table[Any]:
        """The declaration."""
        table: Table[Any] = getattr(import_module(f"profnb.{self._module}"), self._name)
        return table

    @overload
    def __get__(self, profile: None, owner: Any) -> "TableOf": ...

    @overload
    def __get__(self, profile: object, owner: Any) -> "pd.DataFrame": ...

    def __get__(self, profile: object | None, owner: Any) -> "pd.DataFrame | TableOf":
        """The DataFrame of a profile; of the class, the declaration's place."""
        return self if profile is None else self.table.frame(self._value(profile))

    def __set__(self, profile: object, value: object) -> None:
        """Tables are made fresh on access, so there is nothing to set.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(
            f"{self.table.owner}.{self.table.name} is made fresh on access and cannot be set."
        )


# For help(): the docstring of each table comes from its declaration, when somebody asks for it.
TableOf.__doc__ = property(lambda self: self.table.doc())  # type: ignore[assignment]


def tables_of(owner: type) -> dict[str, Table[Any]]:
    """The tables of a class by name, in the order in which it lists them.

    A property whose docstring begins "One row per" is a table too, without declared columns.
    """
    tables: dict[str, Table[Any]] = {}
    for place in reversed(owner.__mro__):
        for name, attribute in vars(place).items():
            if isinstance(attribute, TableOf):
                tables[name] = attribute.table
            elif isinstance(attribute, property) and (attribute.__doc__ or "").startswith(_ROWS):
                text = " ".join(str(attribute.__doc__).partition("\n\n")[0].split())
                tables[name] = Table(name, text, ())
    return tables


def field_column(
    name: str,
    meaning: str,
    heading: str = "",
    text: Callable[[Any], str] | None = None,
    *,
    of: str = "",
    is_scaled: bool = False,
    least: float | None = None,
) -> Column[Any]:
    """A column that is filled from a field of the table's value; the rest is as of ``Column``.

    The field is ``of``, such as "tree.depth"; by default the column's name, with ``_ps`` for ``_us`` or
    ``_ms``. Numbers below ``least`` are missing; those of a field in that unit stay as they are.
    """
    path = of or _TIME_UNIT.sub("_ps", name)
    is_scaled = is_scaled or bool(_TIME_UNIT.search(path))

    def values(value: Any) -> Any:
        import numpy as np

        given = field_of(value, path)
        if least is None:
            return given
        numbers = np.array(given, np.float64)  # None is NaN
        return np.where(numbers >= least, numbers, np.nan)

    return Column(name, values, meaning, heading, text, is_scaled)


def columns_in(text: str) -> tuple[Column[Any], ...]:
    """Read a declaration of columns: each begins a line with its name; behind a colon stands what it holds.

    Before the colon may stand, in this order, ``[HEADING]`` in the report, ``= FIELD`` for another field than
    the column is called by, and ``>= N``: numbers below are missing. A line further in goes on with the one
    before.

    Raises:
        KeyError: A line declares nothing.
    """
    columns = []
    for line in re.sub("\n +", " ", dedent(text).strip()).splitlines():
        match = _DECLARED.fullmatch(line)
        if match is None:
            raise KeyError(line)
        name, heading, field, least, meaning = match.groups(default="")
        lowest = float(least) if least else None
        columns.append(field_column(name, meaning, heading, of=field, least=lowest))
    return tuple(columns)


def field_of(value: Any, path: str) -> Any:
    """Read a field, such as "tree.depth"; of a list or tuple on the way, that of each item."""
    for name in path.split("."):
        is_several = isinstance(value, list | tuple)
        value = [getattr(one, name) for one in value] if is_several else getattr(value, name)
    return value


def frame_text(frame: "pd.DataFrame", most_rows: int, columns: int | None) -> str:
    """Write a DataFrame for a terminal of so many columns; None for as wide as it is.

    Where it is too wide, a text that all rows share stands once, above. Then columns with few different texts
    give way first, each from the front: the ends of texts tell them apart.
    """
    settings: dict[str, Any] = {"index": False, "max_rows": most_rows, "na_rep": "-"}
    text: str = frame.to_string(**settings)
    over = text.index("\n") + 1 - columns if columns is not None else 0
    if over <= 0:
        return text
    texts = frame.select_dtypes(exclude=["number", "bool"]).astype(str)
    counts = texts.nunique().sort_values(kind="stable")
    if shared := [name for name, count in counts.items() if count == 1 < len(frame)]:
        above = "".join(f"{name}: {frame[name].iloc[0]}\n" for name in shared)
        return above + frame_text(frame.drop(columns=shared), most_rows, columns)
    for name in counts.index:
        lengths = texts[name].str.len()
        longest = int(lengths.max())
        most = min(max(longest - over, _LEAST_NAME, len(name)), longest)
        over -= longest - most
        ends = "…" + texts[name].str[1 - most :]
        frame = frame.assign(**{name: frame[name].where(lengths <= most, ends)})
    return str(frame.to_string(**settings, line_width=columns if over > 0 else None))
