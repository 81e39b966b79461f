"""Ops as the report shows them: a table to search, sort and sum by type; the first ten as text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from profnb.core.printable import printable
from profnb.core.table import Table, field_column
from profnb.core.units import count_text, duration_text, percent_text
from profnb.drawing.drawn_tables import Cell, plain_table
from profnb.drawing.section import Bar, Finder, Section, Shown, section_of
from profnb.drawing.theme import colour_of
from profnb.subjects.layers.name_scopes import NO_LAYERS, LayerNames, op_titles
from profnb.subjects.ops.op_table import OPS, OpTable
from profnb.subjects.study import Study
from profnb.trace.names import without_call

_LISTED_OPS, _MOST_OPS_LISTED, _OPS_IN_TEXT = 5, 150, 10
_LONGEST_OP_NAME = 300
_RUNNING = "running total"
_EVERYTHING = "the whole capture"
_SIDE_COLOURS = {"host": colour_of("host compute"), "device": colour_of("device compute")}


@dataclass(frozen=True, slots=True)
class OpRow:
    """One row as shown, of an op or of all ops of a type.

    Attributes:
        side: "host" or "device".
        name: The op's name, or the type's.
        remark: What stands behind it: the op's type, or how many ops the type has.
        occurrences: How often it ran.
        self_ps: Time in it alone.
        total_ps: Time in it and in what it called.
        self_fraction: Share of the self time of its side, 0 to 1.
        is_type: Whether it is a type.
    """

    side: str
    name: str
    remark: str
    occurrences: int
    self_ps: int
    total_ps: int
    self_fraction: float
    is_type: bool = False


# Which field of a row, of an op or of a type, fills each column of p.ops that is shown.
_FIELDS = {
    "side": "side",
    "occurrences": "occurrences",
    "self_us": "self_ps",
    "self_fraction": "self_fraction",
    "total_us": "total_ps",
}
_OPS: Table[Sequence[OpRow]] = Table(
    OPS.name,
    OPS.rows,
    tuple(
        field_column(name, OPS[name].meaning, OPS[name].heading, of=field)
        for name, field in _FIELDS.items()
    ),
)


def ops_sections(study: Study) -> list[Section]:
    """The table on ops; none where none ran."""
    ops, scope = rows_of_ops(study.ops.steady), study.scope
    if not ops:  # the steps themselves ran none
        ops, scope = rows_of_ops(study.ops.table), _EVERYTHING
    return [ops_section(ops, scope, study.layers.names)] if ops else []


def rows_of_ops(ops: OpTable) -> list[OpRow]:
    """A row per op, in the table's order."""
    fractions = ops.self_fraction
    return [
        OpRow(
            "device" if ops.is_device[row] else "host",
            without_call(ops.op_name[row])[:_LONGEST_OP_NAME],
            ops.op_type[row][:_LONGEST_OP_NAME],
            int(ops.occurrences[row]),
            int(ops.self_ps[row]),
            int(ops.total_ps[row]),
            float(fractions[row]) if ops.self_ps[row] else 0.0,
        )
        for row in range(len(ops))
    ]


def rows_by_type(ops: Sequence[OpRow]) -> list[OpRow]:
    """A row per type of op and side, most self time first."""
    types: dict[tuple[str, str], list[OpRow]] = {}
    for op in ops:
        types.setdefault((op.side, op.remark), []).append(op)
    rows = [
        OpRow(
            side,
            op_type or "-",
            f"{count_text(len(alike))} {'op' if len(alike) == 1 else 'ops'}",
            sum(op.occurrences for op in alike),
            sum(op.self_ps for op in alike),
            sum(op.total_ps for op in alike),
            sum(op.self_fraction for op in alike),
            is_type=True,
        )
        for (side, op_type), alike in types.items()
    ]
    return sorted(rows, key=lambda row: -row.self_ps)


def ops_section(
    ops: Sequence[OpRow], scope: str = _EVERYTHING, layers: LayerNames = NO_LAYERS
) -> Section:
    """The table of all ops of some scope, and of their types, for a reader to search."""
    types = rows_by_type(ops)
    place = {(row.side, row.name): at for at, row in enumerate(types[:_MOST_OPS_LISTED])}
    finder = _finder(
        ops,
        "ops",
        kinds=_section(types[:_MOST_OPS_LISTED], types, layers, finder=_finder(types, "types")),
        kind_of=[place.get((op.side, op.remark or "-"), -1) for op in ops[:_MOST_OPS_LISTED]],
    )
    return _section(
        ops[:_MOST_OPS_LISTED],
        ops,
        layers,
        finder=finder,
        plain=_text(ops[:_OPS_IN_TEXT], scope),
        sentence=f"Of {scope}; p.ops has the whole capture." if scope != _EVERYTHING else "",
    )


def _section(
    shown: Sequence[OpRow], rows: Sequence[OpRow], layers: LayerNames, **rest: Any
) -> Section:
    """The first rows; the side is named only where there are two."""
    longest = max((row.self_fraction for row in rows), default=0) or 1
    titles = op_titles([row.name for row in shown], [row.remark for row in shown], layers)
    running = _running(shown)

    def cell(at: int) -> Cell:
        row = shown[at]
        return (row.name, "", row.remark) if row.is_type else titles[at].cell

    side = ["side"] if len({row.side for row in rows}) > 1 else []
    section = section_of(
        _OPS,
        shown,
        (
            Shown(
                "op",
                cell,
                sort_key=lambda row: shown[row].name,
                meaning="the op's own name, and its type",
            ),
            *side,
            "occurrences",
            "self_us",
            "self_fraction",
            Shown(
                _RUNNING,
                lambda row: percent_text(running[row]),
                is_number=True,
                meaning="share of the own time of its side that it has together with the rows above",
            ),
            "total_us",
        ),
        title="Ops",
        tab="Ops",
        bar=Bar(
            lambda row: shown[row].self_fraction / longest,
            lambda row: _SIDE_COLOURS[shown[row].side],
            8,
        ),
        rows=range(len(shown)),
        is_sortable=True,
        shown=_LISTED_OPS,
        **rest,
    )
    return replace(section, sorted_by=section.headings.index("own time"))


def _finder(rows: Sequence[OpRow], noun: str, **rest: Any) -> Finder:
    sides = [side for side in _SIDE_COLOURS if any(row.side == side for row in rows)]
    listed = rows[:_MOST_OPS_LISTED]
    return Finder(
        noun=noun,
        sides=[row.side for row in listed],
        weights=[row.self_ps for row in listed],
        wholes={side: sum(row.self_ps for row in rows if row.side == side) for side in sides},
        measure="own time",
        running=_RUNNING,
        hidden=len(rows) - len(listed),
        **rest,
    )


def _running(rows: Sequence[OpRow]) -> list[float]:
    """Each row's share of its side's self time together with the rows above it."""
    sums = dict.fromkeys(_SIDE_COLOURS, 0.0)
    running = []
    for row in rows:
        sums[row.side] += row.self_fraction
        running.append(sums[row.side])
    return running


def _text(ops: Sequence[OpRow], scope: str) -> str:
    """The first ops as plain text."""
    cells = [
        (
            op.side, percent_text(op.self_fraction), duration_text(op.self_ps),
            count_text(op.occurrences), op.remark or "-", op.name[:80],
        )
        for op in ops
    ]  # fmt: skip
    head = ("side", "own share", "own time", "runs", "type", "op")
    table = plain_table([head, *cells], (False, True, True, True, False, False))
    of_scope = "" if scope == _EVERYTHING else f", of {printable(scope)}"
    return f"Ops with the most own time{of_scope}\n{table}"
