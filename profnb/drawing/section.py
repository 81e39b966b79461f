"""One table of the report, with a sentence and perhaps a chart: a value, as HTML and as text.

A reader can sort and search it in the browser. The first rows stand in the HTML, for pages that run no
script. An attribute carries the rest as one text and, of every row, what the script sorts and sums by. All
cells are text made here; the script writes no number but the running share of what the reader has chosen,
and draws its bars anew.
"""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from markupsafe import Markup

from profnb.core.columns import Floats, Int64s
from profnb.core.glossary import explain
from profnb.core.printable import filled, printable
from profnb.core.table import Column, T, Table
from profnb.core.units import MISSING, bar_text
from profnb.drawing import markup
from profnb.drawing.theme import MUTED

Key = float | str | None
Numbers = Floats | Int64s

_MOST_PLAIN = 1000
_MOST_TEXT = 6
_MOST_COLUMNS = 150
_COLUMN, _ROW, _FAINT = "\t", "\n", "\f"
_CONTROL_MARKS = str.maketrans({_COLUMN: " ", _ROW: " ", _FAINT: " ", "\r": " "})


@dataclass(frozen=True)
class Shown:
    """A column of a section that is made of several columns of the table, or looks its own way."""

    heading: str  # its heading
    cell: Callable[[int], markup.Cell]  # the cell of a row
    is_number: bool = False  # whether it aligns right
    # what a row is sorted by, where the section can be sorted; None for its text
    sort_key: Callable[[int], Key] | None = None
    meaning: str = ""  # what it holds, for the text under the pointer


@dataclass(frozen=True)
class Bar:
    """The bars that a section begins with."""

    fraction: Callable[[int], float]  # the length of each row's bar, 0 to 1
    colour: str | Callable[[int], str]  # their colour, or one for each row
    width: int = 12  # characters of a full bar

    @classmethod
    def of(
        cls,
        values: Sequence[float] | Numbers,
        colour: str | Callable[[int], str],
        width: int = 12,
        full: float = 0,
    ) -> "Bar":
        """Bars as long as a column's values are of ``full``; of the largest by default."""
        whole = full or max(values, default=0) or 1
        return cls(lambda row: float(values[row] / whole), colour, width)


@dataclass(frozen=True, slots=True)
class Finder:
    """Questions that a reader can ask of a table besides its order: words, one side alone, sums by kind."""

    noun: str  # what a row is, in the plural
    sides: Sequence[str]  # the side of each row
    weights: Sequence[int]  # what each row adds to its side
    # what every row of a side adds up to, by its name; rows that are not listed included
    wholes: dict[str, int]
    measure: str  # what the weights are, such as "self time"
    # the heading of the column of the share that a row and all above it have of their side
    running: str
    hidden: int = 0  # how many rows are not listed
    # the same columns, a row per kind; None in the table of kinds itself
    kinds: "Section | None" = None
    kind_of: Sequence[int] = ()  # the row of ``kinds`` that each row belongs to
    words: Sequence[str] = ()  # what else than its name each row is found by


@dataclass(frozen=True)
class Section:
    """A table of the report."""

    title: str  # its title
    sentence: str  # what it says, in a sentence
    headings: Sequence[str]  # one per column; "" for a bar
    rows: Sequence[Sequence[markup.Cell]]  # cells; a bar stands in the first column
    numbers: Sequence[bool]  # which columns are numbers
    colours: Sequence[str]  # the colour of each row's bar
    tab: str = ""  # the part of the report it belongs to
    figure: dict[str, Any] | None = None  # a chart that says it in one look, in plotly's schema
    is_detail: bool = False  # whether to leave it out of the report as plain text
    # for each row words that find its ops in the op table; "" for none
    searches: Sequence[str] = ()
    # for each row what each column is sorted by, None where it is not known; empty if the table
    # is not to be sorted
    sort_keys: Sequence[Sequence[Key]] = ()
    shown: int = _MOST_PLAIN  # how many rows to show before the rest is asked for
    # for each column what it holds, shown under the pointer; empty for nothing
    meanings: Sequence[str] = ()
    # the column that the rows are sorted by, largest first, where that should be seen
    sorted_by: int | None = None
    # what else than its order a reader can ask of it; None for nothing
    finder: Finder | None = None
    plain: str = ""  # what the report as plain text says instead of the table
    # a small picture of ours between the sentence and the table; None for none
    strip: Markup | None = None
    # what stands below the table
    below: Markup = Markup("")  # noqa: RUF009 - frozen

    @cached_property
    def html(self) -> Markup:
        """Its sentence and table, made once: a page that is made again has most sections as they were."""
        return _section_html(self) + self.below


def section_of(
    table: Table[T],
    value: T,
    columns: str | Sequence[str | Shown],
    *,
    bar: Bar,
    rows: Sequence[int] | None = None,
    sentence: str = "",
    is_sortable: bool = False,
    **rest: Any,
) -> Section:
    """Show some columns of a declared table.

    Args:
        table: The declaration; it has headings, alignment, units and meanings.
        value: What fills it.
        columns: What to show: names of the table's columns with blanks between, or columns of the section's
            own.
        bar: The bars in front.
        rows: Which rows, in order; all by default, where the value has a length.
        sentence: What the table says.
        is_sortable: Whether a reader can sort it.
        **rest: Other fields of ``Section``, the title above all.
    """
    rows = range(len(cast("Sized", value))) if rows is None else rows
    shown: list[Shown] = []
    for one in [columns] if isinstance(columns, str) else columns:
        if isinstance(one, Shown):
            shown.append(one)
        else:
            shown += [_declared(table[name], value) for name in one.split()]
    sort_keys: list[tuple[Key, ...]] = [
        (bar.fraction(row), *(None if c.sort_key is None else c.sort_key(row) for c in shown))
        for row in (rows if is_sortable else ())
    ]
    return Section(
        sentence=sentence,
        headings=("", *(column.heading for column in shown)),
        rows=[
            (bar_text(bar.fraction(row), bar.width), *(column.cell(row) for column in shown))
            for row in rows
        ],
        numbers=(False, *(column.is_number for column in shown)),
        colours=[bar.colour if isinstance(bar.colour, str) else bar.colour(row) for row in rows],
        sort_keys=sort_keys,
        meanings=("", *(column.meaning for column in shown)),
        **rest,
    )


def _declared(column: Column[T], value: T) -> Shown:
    """Take a column of a table as a section shows it."""
    values = column.values(value)
    is_number = not (len(values) and isinstance(values[0], str))

    def sort_key(row: int) -> Key:
        one = values[row]
        if isinstance(one, str):
            return one
        return None if one is None or one != one else float(one)  # noqa: PLR0124  # NaN is not itself

    term = explain(column.title)
    meaning = f"{column.meaning}. {term}" if term else column.meaning
    return Shown(column.title, lambda row: column.write(values[row]), is_number, sort_key, meaning)


def times_shown(table: Table[T], name: str, value: T) -> Shown:
    """Show a column of times in which nothing stands for none."""
    column = table[name]
    texts = [column.write(time) if time > 0 else "" for time in column.values(value).tolist()]
    return Shown(column.title, texts.__getitem__, is_number=True, meaning=column.meaning)


def _section_html(section: Section) -> Markup:
    said = Markup('<div style="{}">{}</div>').format(MUTED, markup.with_names(section.sentence))
    sentence = (said if section.sentence else Markup("")) + (section.strip or Markup(""))
    section = without_empty_columns(section)
    if not section.sort_keys:
        return sentence + _table_html(section, len(section.rows))
    more = len(section.rows) - section.shown + (section.finder.hidden if section.finder else 0)
    rest = Markup('<div class="profnb-more" style="{}">and {} more</div>')
    return Markup('{}<div class="profnb-table" data-rows={}>{}{}</div>').format(
        sentence,
        markup.json_attribute(_script_data(section)),
        _table_html(section, section.shown),
        rest.format(MUTED, f"{more:,}") if more > 0 else "",
    )


def _table_html(section: Section, most: int) -> Markup:
    rows: list[list[markup.Cell]] = [
        [(markup.plain_text(row[0]), f"color:{colour}"), *row[1:]]
        for row, colour in zip(section.rows[:most], section.colours[:most], strict=True)
    ]
    explained = list(map(explain, section.headings))
    given = section.meanings or explained
    meanings = [one or other for one, other in zip(given, explained, strict=True)]
    return markup.html_table(section.headings, rows, section.numbers, meanings)


def _script_data(section: Section) -> dict[str, Any]:
    """The attribute that the script reads."""
    parts, finder = [_script_part(section, section.shown)], section.finder
    attribute: dict[str, Any] = {
        "shown": section.shown,
        "numbers": [int(number) for number in section.numbers],
        "by": -1 if section.sorted_by is None else section.sorted_by,
        "parts": parts,
    }
    if finder is not None:
        if finder.kinds is not None:
            parts.append(_script_part(finder.kinds, 0))
        attribute |= {
            "wholes": finder.wholes,
            "measure": finder.measure,
            "running": list(section.headings).index(finder.running),
            "kind_of": list(finder.kind_of),
        }
    return attribute


def _script_part(section: Section, in_page: int) -> dict[str, Any]:
    """Describe the rows of a section, or of its kinds, of which so many stand in the HTML.

    What the script writes anew is left out: where rows are searched, their bars and the running share.
    """
    colours, finder = section.colours[in_page:], section.finder
    palette = list(dict.fromkeys(colours))
    columns = [_ranks(keys) for keys in zip(*section.sort_keys, strict=True)]
    anew = [] if finder is None else [0, list(section.headings).index(finder.running)]
    part: dict[str, Any] = {
        "rest": _ROW.join(_script_line(row, anew) for row in section.rows[in_page:]),
        "ranks": [
            columns.index(column) if column in columns[:at] and column else column
            for at, column in enumerate(columns)
        ],
        "palette": palette,
        "colours": [palette.index(colour) for colour in colours],
    }
    if any(section.searches):
        part["searches"] = _ROW.join(words.translate(_CONTROL_MARKS) for words in section.searches)
    if finder is not None:
        names = list(finder.wholes)
        part |= {
            "noun": finder.noun,
            "hidden": finder.hidden,
            "sides": [names.index(side) for side in finder.sides] if len(names) > 1 else [],
            "weights": list(finder.weights),
        }
        if any(finder.words):
            part["words"] = _ROW.join(words.translate(_CONTROL_MARKS) for words in finder.words)
    return part


def _script_line(row: Sequence[markup.Cell], anew: Sequence[int]) -> str:
    """Join the cells of a row, behind each its fainter text and the text under the pointer, if it has any."""
    kept = ("" if at in anew else cell for at, cell in enumerate(row))
    cells = [(text, faint, whole) for text, _, faint, whole in map(markup.fitted, kept)]
    texts = (_FAINT.join(part.translate(_CONTROL_MARKS) for part in cell) for cell in cells)
    return _COLUMN.join(text.rstrip(_FAINT) for text in texts)


def _ranks(keys: Sequence[Key]) -> dict[str, Any] | None:
    """Give the place of each key among all, which is shorter than the key; None where a column has none.

    Returns:
        The ranks, None for a key that is not known, and whether the first click sorts upwards (text).
    """
    known_keys = [key for key in keys if key is not None]
    if not known_keys:
        return None
    place = {key: rank for rank, key in enumerate(sorted(set(known_keys)))}
    ranks = [None if key is None else place[key] for key in keys]
    return {"up": int(isinstance(known_keys[0], str)), "of": ranks}


def without_empty_columns(section: Section) -> Section:
    """Leave out columns in which nothing stands; the DataFrame keeps them.

    What a reader sums by kind has to have the same columns as its kinds, so such a table stays as it is.
    """
    if not section.rows or section.finder is not None:
        return section
    is_empty = [
        all(markup.plain_text(cell).strip() in ("", MISSING) for cell in column)
        for column in zip(*section.rows, strict=True)
    ]
    kept = [at for at, empty in enumerate(is_empty) if at == 0 or not empty]
    if len(kept) == len(section.headings):
        return section

    def of(values: Sequence[T]) -> list[T]:
        return [values[at] for at in kept] if len(values) else []

    return replace(
        section,
        headings=of(section.headings),
        rows=[of(row) for row in section.rows],
        numbers=of(section.numbers),
        sort_keys=[of(keys) for keys in section.sort_keys],
        meanings=of(section.meanings),
        sorted_by=kept.index(section.sorted_by) if section.sorted_by in kept else None,
    )


def section_block(section: Section) -> Markup:
    """Put the section under its title."""
    return titled_block(section.title, section.html)


def titled_block(title: str, body: Markup) -> Markup:
    """Put a part of a report under its title."""
    return Markup(
        '<div style="margin:10px 0"><div role="heading" aria-level="3"><b>{}</b></div>{}</div>'
    ).format(title, body)


def section_text(section: Section) -> str:
    """Write the section as plain text, without bars."""
    if section.plain:
        return section.plain
    section = without_empty_columns(section)
    listed = section.rows[:_MOST_TEXT] if section.sort_keys else section.rows
    rows = [tuple(printable(markup.plain_text(cell))[:90] for cell in row[1:]) for row in listed]
    sentence = filled(printable(section.sentence), _MOST_COLUMNS)
    table = markup.plain_table([tuple(section.headings[1:]), *rows], section.numbers[1:])
    return "\n".join([*filter(None, (section.title, sentence)), table])
