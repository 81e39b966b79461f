"""Tables that a reader can sort and search in the browser: what the report's script is told of them.

The first rows stand in the HTML, for pages that run no script. An attribute carries the rest as one text and,
of every row, what the script sorts and sums by. All cells are text made here; the script writes no number but
the running share of what the reader has chosen, and draws its bars anew.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from profnb.drawing.html_table import Cell, fitted

Rows = TypeVar("Rows")
Key = float | str | None

_COLUMN, _ROW, _FAINT = "\t", "\n", "\f"
_PLAIN = str.maketrans({_COLUMN: " ", _ROW: " ", _FAINT: " ", "\r": " "})


@dataclass(frozen=True, slots=True)
class Finder(Generic[Rows]):
    """What else a reader can ask of a table than its order: words, one side alone, sums by kind.

    Attributes:
        noun: What a row is, in the plural.
        sides: The side of each row.
        weights: What each row adds to its side.
        wholes: What every row of a side adds up to, by its name; rows that are not listed included.
        measure: What the weights are, such as "self time".
        running: The heading of the column of the share that a row and all above it have of their side.
        hidden: How many rows are not listed.
        kinds: The same columns, a row per kind; None in the table of kinds itself.
        kind_of: The row of ``kinds`` that each row belongs to.
    """

    noun: str
    sides: Sequence[str]
    weights: Sequence[int]
    wholes: dict[str, int]
    measure: str
    running: str
    hidden: int = 0
    kinds: Rows | None = None
    kind_of: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Sortable:
    """What the script has to know of a table, or of its kinds.

    Attributes:
        rows: Cells; a bar stands in the first column.
        colours: The colour of each row's bar.
        sort_keys: For each row what each column is sorted by, None where it is not known.
        searches: For each row words that find its ops; "" for none.
        in_page: How many rows stand in the HTML.
    """

    rows: Sequence[Sequence[Cell]]
    colours: Sequence[str]
    sort_keys: Sequence[Sequence[Key]]
    searches: Sequence[str]
    in_page: int


def script_data(
    table: Sortable,
    shown: int,
    headings: Sequence[str],
    numbers: Sequence[bool],
    sorted_by: int | None,
    finder: "Finder[Any] | None",
    kinds: Sortable | None,
) -> str:
    """The attribute that the script reads, as JSON.

    Args:
        table: The rows.
        shown: How many rows to show before the rest is asked for.
        headings: One per column.
        numbers: Which columns are numbers.
        sorted_by: The column that the rows are sorted by, largest first; None where it is none.
        finder: What else a reader can ask; None for nothing.
        kinds: The rows of its kinds, if it has any.
    """
    parts = [_part(table, finder)]
    if finder is not None and finder.kinds is not None and kinds is not None:
        parts.append(_part(kinds, finder.kinds.finder))
    attribute: dict[str, Any] = {
        "shown": shown,
        "numbers": [int(number) for number in numbers],
        "by": -1 if sorted_by is None else sorted_by,
        "parts": parts,
    }
    if finder is not None:
        attribute |= {
            "wholes": finder.wholes,
            "measure": finder.measure,
            "running": list(headings).index(finder.running),
            "kind_of": list(finder.kind_of),
        }
    return json.dumps(attribute, separators=(",", ":"))


def _part(table: Sortable, finder: "Finder[Any] | None") -> dict[str, Any]:
    palette = list(dict.fromkeys(table.colours[table.in_page :]))
    part: dict[str, Any] = {
        "rest": _ROW.join(_line(row) for row in table.rows[table.in_page :]),
        "ranks": [
            _ranks([keys[at] for keys in table.sort_keys]) for at in range(len(table.rows[0]))
        ],
        "palette": palette,
        "colours": [palette.index(colour) for colour in table.colours[table.in_page :]],
    }
    if any(table.searches):
        part["searches"] = _ROW.join(words.translate(_PLAIN) for words in table.searches)
    if finder is not None:
        names = list(finder.wholes)
        part |= {
            "noun": finder.noun,
            "hidden": finder.hidden,
            "sides": [names.index(side) for side in finder.sides] if len(names) > 1 else [],
            "weights": list(finder.weights),
        }
    return part


def _line(row: Sequence[Cell]) -> str:
    """The cells of a row, behind each its fainter text and the text under the pointer, if it has any."""
    cells = [(text, faint, whole) for text, _, faint, whole in map(fitted, row)]
    return _COLUMN.join(
        _FAINT.join(part.translate(_PLAIN) for part in cell).rstrip(_FAINT) for cell in cells
    )


def _ranks(keys: Sequence[Key]) -> dict[str, Any] | None:
    """The place of each key among all, which is shorter than the key; None where a column has none.

    Returns:
        The ranks, None for a key that is not known, and whether the first click sorts upwards (text).
    """
    known_keys = [key for key in keys if key is not None]
    if not known_keys:
        return None
    place = {key: rank for rank, key in enumerate(sorted(set(known_keys)))}
    ranks = [None if key is None else place[key] for key in keys]
    return {"up": int(isinstance(known_keys[0], str)), "of": ranks}
