"""The stats of an XSpace, read when someone asks for them.

An event's stats stay where they are in the file until the first question; then all of them are read
once into CSR form (event e owns entries ``offsets[e]:offsets[e + 1]``): the row of the key, the kind
of value, and 64 bits of value. Text stays in the file and is decoded per distinct value.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto, message XStat.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.core.columns import Bytes, Floats, Int32s, Int64s
from profnb.core.jit import compiled
from profnb.trace.chrome.stat_texts import (
    BYTES,
    DOUBLE,
    INT64,
    REFERENCE,
    TEXT,
    UINT64,
    StatCsr,
    StatTexts,
)
from profnb.trace.grouped_stats import GroupedStats, group_stats
from profnb.trace.model import StatColumn, Stats, StringTable
from profnb.trace.wire import Number, check, find_row, read_tag, split_field

__all__ = ["StatEntries", "StatKeys", "XPlaneStats", "read_plane_stats"]


_LONGEST_TEXT = (1 << 31) - 1  # no protobuf message is longer

Value = int | float | str | bytes
_Values = tuple[
    Int64s | Floats, tuple[str, ...]
]  # a column's values, and the texts that they are rows of


@dataclass(frozen=True, slots=True)
class StatKeys:
    """The stat dictionaries of all planes: names, and texts that stats refer to.

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
    """Where the stats are: field ``field`` of messages at the given spans.

    Attributes:
        begins: Where each event's message begins, or its first stat does, shape (E,), in the order of the
            trace's events.
        ends: Where it ends, shape (E,).
        line_offsets: Line l owns events ``line_offsets[l]:line_offsets[l + 1]``.
        plane_of_line: Each line's plane.
        field: The field number of the stats in the message.
        counts: How many stats each event has, shape (E,); None where nobody counted them yet.
    """

    begins: Int64s
    ends: Int64s
    line_offsets: Int64s
    plane_of_line: Int64s
    field: int
    counts: Int32s | None = None


@compiled
def _fill_stats(
    buffer: Bytes, begins: Int64s, ends: Int64s, first_key: Int64s, last_key: Int64s,
    owners: Int64s, offsets: Int64s, field: int, ids: Int64s,
    key: Int32s, kind: Bytes, value: Int64s, size: Int32s,
) -> Number:  # fmt: skip
    """Fill the CSR columns; owner o of events ``owners[o]:owners[o + 1]`` has the keys between."""
    for owner in range(owners.size - 1):
        first, last = first_key[owner], last_key[owner]
        for event in range(owners[owner], owners[owner + 1]):
            at, end = begins[event], ends[event]
            entry = offsets[event]
            while at < end:
                start = at
                number, wire, _, payload, at = read_tag(buffer, at, end)
                if number != field:
                    continue
                if wire != 2:
                    return start
                inner, key[entry] = payload, -1
                while inner < at:
                    start = inner
                    if (
                        inner + 1 < at
                        and buffer[inner] < 0x80
                        and buffer[inner + 1] < 0x80
                        and (buffer[inner] >= 8 and buffer[inner] & 7 == 0)
                    ):  # what most are: a tag and a number of one byte each
                        number, wire = np.int64(buffer[inner] >> 3), np.int64(0)
                        bits = np.uint64(buffer[inner + 1])
                        inner += 2
                    else:
                        number, wire, bits, payload, inner = read_tag(buffer, inner, at)
                        if inner < 0:
                            return start
                    if number == 1:
                        key[entry] = find_row(ids, first, last, np.int64(bits))
                    elif number <= 7:
                        expected = 1 if number == 2 else 2 if number == 5 or number == 6 else 0
                        if wire != expected or inner - payload > _LONGEST_TEXT:
                            return start
                        kind[entry] = number
                        value[entry] = np.int64(bits)
                        if number == 7:
                            value[entry] = find_row(ids, first, last, np.int64(bits))
                        elif expected > 0:
                            value[entry], size[entry] = payload, inner - payload
                entry += 1
    return -1


def _read_csr(buffer: Bytes, entries: StatEntries, keys: StatKeys) -> StatCsr:
    if entries.counts is None:
        offsets, _, _ = split_field(buffer, entries.begins, entries.ends, entries.field, "XStat")
    else:
        offsets = np.zeros(entries.begins.size + 1, np.int64)
        np.cumsum(entries.counts, out=offsets[1:])
    count = int(offsets[-1])
    csr = StatCsr(
        offsets,
        np.empty(count, np.int32),
        np.zeros(count, np.uint8),
        np.zeros(count, np.int64),
        np.zeros(count, np.int32),
    )
    planes = entries.plane_of_line
    filled = _fill_stats(
        buffer, entries.begins, entries.ends, keys.offsets[planes], keys.offsets[planes + 1],
        entries.line_offsets, offsets, entries.field, keys.ids,
        csr.key, csr.kind, csr.value, csr.size,
    )  # fmt: skip
    check(filled, "XStat")
    doubles = np.flatnonzero(csr.kind == DOUBLE)
    raw = buffer[csr.value[doubles][:, None] + np.arange(8)]  # the kernel saw that they are there
    csr.value[doubles] = raw.view("<i8").ravel()
    return csr


def _value_of(buffer: Bytes, keys: StatKeys, csr: StatCsr | GroupedStats, entry: int) -> Value:
    kind, value = int(csr.kind[entry]), csr.value[entry]
    if kind == DOUBLE:
        return float(value.view(np.float64))
    if kind == UINT64:
        return int(value.view(np.uint64))
    if kind == REFERENCE:
        return keys.texts[value] if value >= 0 else ""
    if kind in (TEXT, BYTES):
        raw = buffer[value : value + csr.size[entry]].tobytes()
        return raw if kind == BYTES else raw.decode("utf-8", "replace")
    return int(value)


def read_plane_stats(
    buffer: Bytes, begins: Int64s, ends: Int64s, field: int, keys: StatKeys
) -> list[dict[str, Value]]:
    """The stats of each of P planes, by name.

    Raises:
        TraceFormatError: A stat is malformed.
    """
    offsets, _, _ = split_field(buffer, begins, ends, field, "XPlane")
    planes = np.arange(begins.size)
    owners = np.arange(begins.size + 1)
    csr = _read_csr(buffer, StatEntries(begins, ends, owners, planes, field), keys)
    return [
        {
            keys.texts[csr.key[entry]]: _value_of(buffer, keys, csr, entry)
            for entry in range(offsets[plane], min(offsets[plane + 1], offsets[plane] + 1000))
            if csr.key[entry] >= 0
        }
        for plane in planes
    ]


class XPlaneStats(Stats):
    """The stats of an XSpace's events, read from the file at the first question."""

    def __init__(self, buffer: Bytes, entries: StatEntries, keys: StatKeys) -> None:
        """Remember where the stats are; nothing is read yet."""
        self._buffer, self._entries, self._keys = buffer, entries, keys
        self._columns: dict[tuple[str, tuple[int, ...]], StatColumn] = {}

    @cached_property
    def _csr(self) -> StatCsr:
        """Entries by event; read apart from those by key, which most are asked for."""
        return _read_csr(self._buffer, self._entries, self._keys)

    @cached_property
    def _grouped(self) -> GroupedStats:
        csr = _read_csr(self._buffer, self._entries, self._keys)
        return group_stats(csr, len(self._keys.texts))

    @cached_property
    def _rows_of_name(self) -> dict[str, list[int]]:
        """The rows of each key's name; planes have dictionaries of their own."""
        rows: dict[str, list[int]] = {}
        for row in np.flatnonzero(np.diff(self._grouped.first)).tolist():
            rows.setdefault(self._keys.texts[row], []).append(row)
        return rows

    def _select(self, name: str, kinds: tuple[int, ...]) -> GroupedStats:
        """The entries with this key and one of these kinds."""
        return self._grouped.of_keys(self._rows_of_name.get(name, [])).of_kinds(kinds)

    def _column(
        self, name: str, kinds: tuple[int, ...], values_of: Callable[[GroupedStats], _Values]
    ) -> StatColumn:
        """The stat's column, read once; its arrays are shared and nobody writes into them."""
        column = self._columns.get((name, kinds))
        if column is None:
            chosen = self._select(name, kinds)
            column = self._columns[name, kinds] = StatColumn(chosen.event, *values_of(chosen))
        return column

    def integers(self, name: str) -> StatColumn:
        """The events with an integer stat of this name; unsigned values keep their 64 bits."""
        return self._column(name, (INT64, UINT64), lambda chosen: (chosen.value, ()))

    def numbers(self, name: str) -> StatColumn:
        """The events with a stat of this name that is any number, as float64."""
        return self._column(name, (INT64, UINT64, DOUBLE), self._floats_of)

    def _floats_of(self, chosen: GroupedStats) -> _Values:
        is_double = chosen.kind == DOUBLE
        return np.where(is_double, chosen.value.view(np.float64), chosen.value), ()

    def texts(self, name: str) -> StatColumn:
        """The events with a text stat of this name, as rows of the distinct texts."""
        return self._column(name, (TEXT, REFERENCE), self._texts_of)

    def _texts_of(self, chosen: GroupedStats) -> _Values:
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
            text = str(_value_of(self._buffer, self._keys, chosen, index))
            values[index] = codes.setdefault(text, len(codes))
        return values, tuple(codes)

    def blobs(self, name: str) -> list[tuple[int, Bytes]]:
        """The events with a bytes stat of this name, and views of the file."""
        chosen = self._select(name, (BYTES,))
        spans = zip(chosen.value.tolist(), chosen.size.tolist(), strict=True)
        return [
            (event, self._buffer[begin : begin + size])
            for event, (begin, size) in zip(chosen.event.tolist(), spans, strict=True)
        ]

    def of_event(self, event: int) -> dict[str, Value]:
        """Every stat of one event."""
        csr = self._csr
        return {
            self._keys.texts[csr.key[entry]]: _value_of(self._buffer, self._keys, csr, entry)
            for entry in range(csr.offsets[event], csr.offsets[event + 1])
            if csr.key[entry] >= 0
        }

    def as_json(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        """The stats of events ``first`` to ``last`` as JSON objects; see ``Stats``."""
        return self._texts.of_events(first, last)

    @cached_property
    def _texts(self) -> StatTexts:
        return StatTexts(self._buffer, self._csr, self._keys.texts.texts)
