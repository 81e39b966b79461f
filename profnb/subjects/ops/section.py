"""Ops as the report shows them: a table to search, sort and sum by type; the first ten as text."""

from dataclasses import replace
from typing import Any

import numpy as np

from profnb.core.columns import number_values, sum_by
from profnb.core.printable import printable
from profnb.core.units import count_text, counted_text, duration_text, percent_text
from profnb.drawing.markup import Cell, plain_table
from profnb.drawing.section import Bar, Finder, Section, Shown, section_of
from profnb.drawing.theme import colour_of
from profnb.subjects.layers.name_scopes import NO_CALLERS, NO_LAYERS, Callers, LayerNames, op_titles
from profnb.subjects.ops.op_table import OPS, OpTable
from profnb.subjects.study import Study
from profnb.trace.names import without_call

_LISTED_OPS, _MOST_OPS_LISTED, _OPS_IN_TEXT = 5, 150, 10
_LONGEST_OP_NAME = 300
_RUNNING = "running total"
_EVERYTHING = "the whole capture"
_SIDE_NAMES = ("host", "device")
_SIDE_COLOURS = [colour_of(f"{side} compute") for side in _SIDE_NAMES]


def ops_sections(study: Study) -> list[Section]:
    """The table on ops; none where none ran."""
    ops, scope = study.ops.steady, study.scope
    if not len(ops):  # the steps themselves ran none
        ops, scope = study.ops.table, _EVERYTHING
    return [ops_section(ops, scope, study.layers.names, study.layers.callers)] if len(ops) else []


def sum_by_type(ops: OpTable) -> OpTable:
    """Sum ops up by type and side, most self time first; a type's own type says how many ops it has."""
    keys, row = number_values(zip(ops.is_device.tolist(), ops.op_type, strict=True))
    columns = (1, ops.occurrences, ops.total_ps, ops.self_ps)
    alike, occurrences, total, self_ps = (sum_by(row, one, len(keys)) for one in columns)
    order = np.argsort(-self_ps, kind="stable")
    return OpTable(
        np.array([keys[at][0] for at in order], np.bool_),
        tuple(counted_text(many, "op") for many in alike[order].tolist()),
        tuple(keys[at][1] or "-" for at in order),
        occurrences[order],
        total[order],
        self_ps[order],
    )


def ops_section(
    ops: OpTable,
    scope: str = _EVERYTHING,
    layers: LayerNames = NO_LAYERS,
    callers: Callers = NO_CALLERS,
) -> Section:
    """The table of all ops of some scope, and of their types, for a reader to search.

    Args:
        ops: The ops.
        scope: What they are of.
        layers: What layers are called, by the scopes in ops' names.
        callers: The layers that ops ran in whose names do not tell.
    """
    types = sum_by_type(ops)
    keys = zip(types.is_device.tolist(), types.op_name[:_MOST_OPS_LISTED], strict=False)
    place = {key: at for at, key in enumerate(keys)}
    listed = zip(ops.is_device.tolist(), ops.op_type[:_MOST_OPS_LISTED], strict=False)
    finder = _finder(
        ops,
        "ops",
        kinds=_section(types, None, finder=_finder(types, "types")),
        kind_of=[place.get((side, op_type or "-"), -1) for side, op_type in listed],
        words=[
            " ".join(f"{path}/" for path in callers.get(name, ()))
            for name in ops.op_name[:_MOST_OPS_LISTED]
        ],
    )
    return _section(
        ops,
        layers,
        callers,
        finder=finder,
        plain=_text(ops, scope),
        sentence=f"Of {scope}; p.ops has the whole capture." if scope != _EVERYTHING else "",
    )


def _names(ops: OpTable, most: int) -> list[tuple[str, str]]:
    """Names and types of the first ops, none of them endless."""
    named = zip(ops.op_name[:most], ops.op_type[:most], strict=True)
    return [(without_call(n)[:_LONGEST_OP_NAME], kind[:_LONGEST_OP_NAME]) for n, kind in named]


def _section(
    ops: OpTable, layers: LayerNames | None, callers: Callers = NO_CALLERS, **rest: Any
) -> Section:
    """The first rows, of types where there are no layers; the side is named only where there are two."""
    names = _names(ops, _MOST_OPS_LISTED)
    fractions = np.nan_to_num(ops.self_fraction)
    longest = float(fractions.max(initial=0)) or 1
    cumulated = [np.cumsum(fractions * (ops.is_device == side)) for side in (False, True)]
    running = np.where(ops.is_device, cumulated[1], cumulated[0])
    cells: list[Cell] = [(name, "", kind) for name, kind in names]
    if layers is not None:
        op_names, op_types = ([one[at] for one in names] for at in (0, 1))
        cells = [title.cell for title in op_titles(op_names, op_types, layers, callers)]
    section = section_of(
        OPS,
        ops,
        (
            Shown(
                "op",
                cells.__getitem__,
                sort_key=lambda row: names[row][0],
                meaning="the op's own name, and its type",
            ),
            *(["side"] if np.unique(ops.is_device).size > 1 else []),
            "occurrences self_us self_fraction",
            Shown(
                _RUNNING,
                lambda row: percent_text(float(running[row])),
                is_number=True,
                meaning="share of the own time of its side that it has together with the rows above",
            ),
            "total_us",
        ),
        title="Ops",
        tab="Ops",
        bar=Bar(
            lambda row: float(fractions[row]) / longest,
            lambda row: _SIDE_COLOURS[int(ops.is_device[row])],
            8,
        ),
        rows=range(len(names)),
        is_sortable=True,
        shown=_LISTED_OPS,
        **rest,
    )
    return replace(section, sorted_by=section.headings.index("own time"))


def _finder(ops: OpTable, noun: str, **rest: Any) -> Finder:
    is_device = ops.is_device
    return Finder(
        noun=noun,
        sides=[_SIDE_NAMES[side] for side in is_device[:_MOST_OPS_LISTED].tolist()],
        weights=ops.self_ps[:_MOST_OPS_LISTED].tolist(),
        wholes={
            _SIDE_NAMES[side]: int(ops.self_ps[is_device == side].sum())
            for side in np.unique(is_device).tolist()
        },
        measure="own time",
        running=_RUNNING,
        hidden=max(len(ops) - _MOST_OPS_LISTED, 0),
        **rest,
    )


def _text(ops: OpTable, scope: str) -> str:
    fractions = np.nan_to_num(ops.self_fraction)
    cells = [
        (
            _SIDE_NAMES[int(ops.is_device[row])], percent_text(float(fractions[row])),
            duration_text(int(ops.self_ps[row])), count_text(int(ops.occurrences[row])),
            kind or "-", name[:80],
        )
        for row, (name, kind) in enumerate(_names(ops, _OPS_IN_TEXT))
    ]  # fmt: skip
    head = ("side", "own share", "own time", "runs", "type", "op")
    table = plain_table([head, *cells], (False, True, True, True, False, False))
    of_scope = "" if scope == _EVERYTHING else f", of {printable(scope)}"
    return f"Ops with the most own time{of_scope}\n{table}"
