"""The stats of an XSpace, read when someone asks for them.

They stay where they are in the file until the first question; then all of them are read in one go, by event
(event e owns entries ``offsets[e]:offsets[e + 1]``) or, which tables ask for dozens of times, by the name of
their key: once counted, then put where they belong, so that what a table gets are slices. Text stays in the
file and is decoded per distinct value.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto, message XStat.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Bools, Bytes, Floats, Int32s, Int64s
from profnb.core.jit import tiered
from profnb.trace.model import EXACT, StatColumn, Stats, StatValue, StringTable, json_text
from profnb.trace.wire import Messages, Number, check, find_row, read_tag, read_varint

DOUBLE, UINT64, INT64, TEXT, BYTES, REFERENCE = 2, 3, 4, 5, 6, 7  # of the value in XStat
_WIRES = np.array([0, 0, 1, 0, 0, 2, 2, 0])  # the wire type of each field of a stat
_COUNT_QUICKLY, _COUNT, _KEEP = range(3)
_MORE = -2  # of a group's stats than were counted
_LONGEST_STAT = (1 << 31) - 1  # no protobuf message is longer
_MOST_SHOWN = 1000  # stats of one event
_WORD = 1 << 64
# In a text of JSON; "<" as well, as it may come to stand in a page.
_ESCAPED = {number: f"\\u{number:04x}" for number in (*range(32), ord("<"))}
_ESCAPED |= {34: '\\"', 92: "\\\\"}


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The dictionaries of one kind of all planes: names, or names of stats and texts that stats refer to.

    Attributes:
        texts: One row per entry, plane after plane, by id inside a plane.
        offsets: Plane p owns rows ``offsets[p]:offsets[p + 1]``.
        ids: The id of each row.
    """

    texts: StringTable
    offsets: Int64s
    ids: Int64s


@dataclass(frozen=True, slots=True)
class StatEntries:
    """The place of the stats: field ``field`` of messages at the given spans.

    Attributes:
        begins: Where each event's message begins, or its first stat does, shape (E,), in the order of the
            trace's events; see ``narrow``.
        ends: Where it ends, shape (E,).
        line_offsets: Line l owns events ``line_offsets[l]:line_offsets[l + 1]``.
        plane_of_line: Each line's plane.
        field: The field number of the stats in the message.
        counts: How many stats each event has, shape (E,); None where nobody counted them yet.
    """

    begins: Int64s | Int32s
    ends: Int64s | Int32s
    line_offsets: Int64s
    plane_of_line: Int64s
    field: int
    counts: npt.NDArray[np.integer[Any]] | None = None


@dataclass(frozen=True, slots=True)
class StatValues:
    """N stats.

    Attributes:
        label: The key of each by row of the dictionary, or -1, where they are by event; the event of each
            where they are by key; shape (N,).
        kind: Number of the value's field in XStat, shape (N,).
        value: The bits of a number, the row of a reference, or where a text begins, shape (N,).
        size: How many bytes a text has, shape (N,), as integers as short as they can be.
    """

    label: Int64s
    kind: Bytes
    value: Int64s
    size: npt.NDArray[np.integer[Any]]

    def rows(self, rows: slice | Bools) -> "StatValues":
        """Give some of them."""
        return StatValues(self.label[rows], self.kind[rows], self.value[rows], self.size[rows])


def narrow(positions: Int64s | Int32s, buffer: Bytes) -> Int64s | Int32s:
    """Give positions in a buffer in 32 bits where they fit, as in every file that protobuf can write."""
    fits = buffer.size <= _LONGEST_STAT and positions.dtype != np.int32
    return positions.astype(np.int32) if fits else positions


@tiered
def _fill_stats(
    buffer: Bytes, begins: Int32s | Int64s, ends: Int32s | Int64s, first_key: Int64s, last_key: Int64s,
    owners: Int64s, field: int, ids: Int64s, group: Int32s, at: Int64s, until: Int64s, how: int,
    label: Int64s, kind: Bytes, value: Int64s, size: Int32s,
) -> Number:  # fmt: skip
    """Count the stats of each group of keys, or keep them.

    Owner o of events ``owners[o]:owners[o + 1]`` has the keys between ``first_key[o]`` and ``last_key[o]``.
    Key k is of ``group[k + 1]``, and the next entry of a group goes to ``at[group]``. Its label is the event,
    or where there is but one group the key. Most stats are a tag and a size of one byte each, and in them
    tags of one byte and numbers: read here, all others by ``read_tag``. To count quickly is to look only at
    the key where it comes first; a group that then has more entries than end at ``until`` gives ``_MORE``.
    """
    opening = field << 3 | 2
    for owner in range(owners.size - 1):
        first, last = first_key[owner], last_key[owner]
        for row in range(owners[owner], owners[owner + 1]):
            outer: Number = np.int64(begins[row])
            end: Number = np.int64(ends[row])
            while outer < end:
                start: Number = outer
                if outer + 1 < end and buffer[outer] == opening and buffer[outer + 1] < 0x80:
                    inner = outer + 2
                    outer = inner + np.int64(buffer[outer + 1])
                    if outer > end:
                        return start
                else:
                    number, wire, _, inner, outer = read_tag(buffer, outer, end)
                    if outer < 0 or (number == field and wire != 2):
                        return start
                    if number != field:
                        continue
                name: Number = -1
                sort: Number = 0
                content: Number = 0
                length: Number = 0
                is_quick = how == _COUNT_QUICKLY and inner + 1 < outer
                if is_quick and buffer[inner] == 8 and buffer[inner + 1] < 0x80:
                    name = find_row(ids, first, last, np.int64(buffer[inner + 1]))
                    inner = outer
                while inner < outer:
                    start = payload = inner
                    number, wire = np.int64(buffer[inner] >> 3), np.int64(0)
                    if buffer[inner] & 0x87 == 0:  # a tag of one byte before a number
                        bits, inner = read_varint(buffer, inner + 1, outer)
                    else:
                        number, wire, bits, payload, inner = read_tag(buffer, inner, outer)
                    if inner < 0 or number == 0:
                        return start
                    if number == 1:
                        name = find_row(ids, first, last, np.int64(bits))
                    elif number <= 7:
                        if wire != _WIRES[number] or inner - payload > _LONGEST_STAT:
                            return start
                        sort, content = number, np.int64(bits)
                        if number == 7:
                            content = find_row(ids, first, last, content)
                        elif wire > 0:
                            content, length = payload, inner - payload
                slot = at[group[name + 1]]
                at[group[name + 1]] = slot + 1
                if how == _KEEP:
                    if slot >= until[group[name + 1]]:
                        return _MORE
                    label[slot] = row if at.size > 1 else name
                    kind[slot], value[slot] = sort, content
                    if length > 0:
                        size[slot] = length
    return -1


def _pass(
    buffer: Bytes, entries: StatEntries, keys: Dictionary, group: Int32s, bounds: Int64s, how: int
) -> StatValues | None:
    """Read all stats, each group's between its bounds; None if it has more.

    To count is to add to ``bounds``, which come as zeros.
    """
    planes, room = entries.plane_of_line, int(bounds[-1])
    begins, ends = narrow(entries.begins, buffer), narrow(entries.ends, buffer)
    at = bounds[:-1].copy() if how == _KEEP else bounds
    label, kind = np.empty(room, np.int64), np.empty(room, np.uint8)
    value, size = np.empty(room, np.int64), np.zeros(room, np.int32)
    position = _fill_stats(
        buffer, begins, ends, keys.offsets[planes], keys.offsets[planes + 1],
        entries.line_offsets, entries.field, keys.ids, group, at, bounds[1:], how,
        label, kind, value, size,
    )  # fmt: skip
    if position == _MORE:
        return None
    check(position, "XStat")
    doubles = np.flatnonzero(kind == DOUBLE)
    raw = buffer[value[doubles][:, None] + np.arange(8)]  # the kernel saw that they are there
    value[doubles] = raw.view("<i8").ravel()
    return StatValues(label, kind, value, size)


def read_csr(buffer: Bytes, entries: StatEntries, keys: Dictionary) -> tuple[Int64s, StatValues]:
    """Read the stats by event, and where those of each event begin, shape (E + 1,)."""
    if entries.counts is None:
        begins, ends = entries.begins.astype(np.int64), entries.ends.astype(np.int64)
        messages = Messages(buffer, "XStat", begins, ends, entries.line_offsets)
        offsets = messages.split(entries.field, "XStat").offsets
    else:
        offsets = np.append(0, np.cumsum(entries.counts, dtype=np.int64))
    one_group = np.zeros(len(keys.texts) + 1, np.int32)
    values = _pass(buffer, entries, keys, one_group, offsets[[0, -1]], _KEEP)
    assert values is not None  # all stats have been counted
    return offsets, values


def read_grouped(
    buffer: Bytes, entries: StatEntries, keys: Dictionary
) -> tuple[dict[str, slice], StatValues]:
    """Read the stats by the name of their key, and find those of each name; planes have their own keys."""
    rows = len(keys.texts) + 1  # the first: a key that the file lacks
    for how in (_COUNT_QUICKLY, _COUNT):
        counts = np.zeros(rows + 1, np.int64)
        _pass(buffer, entries, keys, np.arange(rows, dtype=np.int32), counts, how)
        group = np.zeros(rows, np.int32)
        codes: dict[str, int] = {}
        for row in np.flatnonzero(counts[1:]).tolist():
            group[row + 1] = codes.setdefault(keys.texts[row], len(codes) + 1)
        bounds = np.zeros(max(len(codes) + 1, 2) + 1, np.int64)
        np.add.at(bounds, group + 1, counts[:rows])
        np.cumsum(bounds, out=bounds)
        values = _pass(buffer, entries, keys, group, bounds, _KEEP)
        if values is not None:
            break
    assert values is not None
    spans = [slice(*span) for span in pairwise(bounds.tolist())]
    size = values.size.astype(np.min_scalar_type(int(values.size.max(initial=0))))
    return dict(zip(codes, spans[1:], strict=False)), replace(values, size=size)


class XPlaneStats(Stats):
    """The stats of an XSpace's events, read from the file at the first question."""

    def __init__(self, buffer: Bytes, entries: StatEntries, keys: Dictionary) -> None:
        """Remember where the stats are; nothing is read yet."""
        self._buffer, self._entries, self._keys = buffer, entries, keys
        self._columns: dict[tuple[str, tuple[int, ...]], StatColumn] = {}

    @cached_property
    def _csr(self) -> tuple[Int64s, StatValues]:
        """Entries by event; read apart from those by key, which most are asked for."""
        return read_csr(self._buffer, self._entries, self._keys)

    @cached_property
    def _grouped(self) -> tuple[dict[str, slice], StatValues]:
        return read_grouped(self._buffer, self._entries, self._keys)

    def _select(self, name: str, kinds: tuple[int, ...]) -> StatValues:
        """Choose the entries with this key and one of these kinds."""
        spans, values = self._grouped
        of_name = values.rows(spans.get(name, slice(0)))
        chosen = np.logical_or.reduce([of_name.kind == kind for kind in kinds])
        return of_name if chosen.all() else of_name.rows(chosen)

    def _column(
        self,
        name: str,
        kinds: tuple[int, ...],
        values_of: Callable[[StatValues], tuple[Int64s | Floats, tuple[str, ...]]],
    ) -> StatColumn:
        """Give the stat's column, read once; its arrays are shared and nobody writes into them."""
        column = self._columns.get((name, kinds))
        if column is None:
            chosen = self._select(name, kinds)
            column = self._columns[name, kinds] = StatColumn(chosen.label, *values_of(chosen))
        return column

    def integers(self, name: str) -> StatColumn:
        """Give the events with an integer stat of this name; unsigned values keep their 64 bits."""
        return self._column(name, (INT64, UINT64), lambda chosen: (chosen.value, ()))

    def numbers(self, name: str) -> StatColumn:
        """Give the events with a stat of this name that is any number, as float64."""
        return self._column(
            name,
            (INT64, UINT64, DOUBLE),
            lambda of: (np.where(of.kind == DOUBLE, of.value.view(np.float64), of.value), ()),
        )

    def texts(self, name: str) -> StatColumn:
        """Give the events with a text stat of this name, as rows of the distinct texts."""
        return self._column(name, (TEXT, REFERENCE), self._texts_of)

    def _texts_of(self, chosen: StatValues) -> tuple[Int64s, tuple[str, ...]]:
        by_reference = chosen.kind == REFERENCE
        codes: dict[str, int] = {}
        values = np.zeros(by_reference.size, np.int64)
        rows = chosen.value[by_reference] + 1  # 0 for a text that the file lacks
        code_of_row = np.zeros(len(self._keys.texts) + 1, np.int64)
        for row in np.flatnonzero(np.bincount(rows, minlength=code_of_row.size)).tolist():
            text = self._keys.texts[row - 1] if row else ""
            code_of_row[row] = codes.setdefault(text, len(codes))
        values[by_reference] = code_of_row[rows]
        for index in np.flatnonzero(~by_reference).tolist():
            text = str(self._value_of(chosen, index))
            values[index] = codes.setdefault(text, len(codes))
        return values, tuple(codes)

    def _value_of(self, values: StatValues, entry: int) -> StatValue:
        kind, value = int(values.kind[entry]), values.value[entry]
        if kind == DOUBLE:
            return float(value.view(np.float64))
        if kind == UINT64:
            return int(value.view(np.uint64))
        if kind == REFERENCE:
            return self._keys.texts[value] if value >= 0 else ""
        if kind in (TEXT, BYTES):
            raw = self._buffer[value : value + values.size[entry]].tobytes()
            return raw if kind == BYTES else raw.decode("utf-8", "replace")
        return int(value)

    def blobs(self, name: str) -> list[tuple[int, Bytes]]:
        """Give the events with a bytes stat of this name, and views of the file."""
        chosen = self._select(name, (BYTES,))
        columns = (column.tolist() for column in (chosen.label, chosen.value, chosen.size))
        return [
            (event, self._buffer[begin : begin + size])
            for event, begin, size in zip(*columns, strict=True)
        ]

    def of_event(self, event: int) -> dict[str, StatValue]:
        """Give every stat of one event, up to a thousand."""
        offsets, values = self._csr
        first, last = offsets[event : event + 2].tolist()
        return {
            self._keys.texts[values.label[entry]]: self._value_of(values, entry)
            for entry in range(first, min(last, first + _MOST_SHOWN))
            if values.label[entry] >= 0
        }

    @cached_property
    def _json_keys(self) -> list[str]:
        return [json_text(text) for text in self._keys.texts.texts]

    def as_json(self, first: int, last: int) -> list[str]:
        """Write the stats of events ``first`` to ``last`` as JSON objects; see ``Stats``."""
        offsets, values = self._csr
        piece = values.rows(slice(offsets[first], offsets[last]))
        columns = piece.label, piece.kind, piece.value, piece.size
        members = [self._member(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
        places = pairwise((offsets[first : last + 1] - offsets[first]).tolist())
        objects = (",".join(filter(None, members[begin:end])) for begin, end in places)
        return [text and f"{{{text}}}" for text in objects]

    def _member(self, key: int, kind: int, value: int, size: int) -> str:
        """Write a stat as the member of an object; "" for bytes, and for what the file lacks."""
        if key < 0 or not DOUBLE <= kind <= REFERENCE or kind == BYTES:
            return ""
        keys, text = self._json_keys, ""
        if kind == REFERENCE:
            text = keys[value] if value >= 0 else ""
        elif kind == TEXT:
            raw = self._buffer[value : value + size].tobytes().decode("utf-8", "replace")
            text = f'"{raw.translate(_ESCAPED)}"'
        elif kind == DOUBLE:
            double = float(np.int64(value).view(np.float64))
            text = repr(double) if isfinite(double) else "null"
        else:  # 64-bit ids as text: many readers have only floats
            number = value % _WORD if kind == UINT64 else value
            text = f'"{number}"' if abs(value) > EXACT else str(number)
        return text and f"{keys[key]}:{text}"
