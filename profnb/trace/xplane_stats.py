"""The stats of an XSpace, read when someone asks for them.

An event's stats stay where they are in the file until the first question; then all of them are read
once into CSR form (event e owns entries ``offsets[e]:offsets[e + 1]``): the row of the key, the kind
of value, and 64 bits of value. Text stays in the file and is decoded per distinct value.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto, message XStat.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.core.columns import Bytes, Int32s, Int64s
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
from profnb.trace.model import StatColumn, Stats, StringTable
from profnb.trace.wire import Number, check, read_fixed64, read_tag, split_field

__all__ = ["StatEntries", "StatKeys", "XPlaneStats", "read_plane_stats"]


Value = int | float | str | bytes


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
        begins: Where each event's message begins, shape (E,), in the order of the trace's events.
        ends: Where it ends, shape (E,).
        line_offsets: Line l owns events ``line_offsets[l]:line_offsets[l + 1]``.
        plane_of_line: Each line's plane.
        field: The field number of the stats in the message.
    """

    begins: Int64s
    ends: Int64s
    line_offsets: Int64s
    plane_of_line: Int64s
    field: int


@compiled
def _find(ids: Int64s, first: int, last: int, wanted: Number) -> Number:
    """The row of an id among rows that ascend by id, or -1."""
    if 1 <= wanted <= last - first:  # compared first: an id near 2**63 would wrap
        row = first + wanted - 1
        if ids[row] == wanted:
            return row
    row = first + np.searchsorted(ids[first:last], wanted)
    return row if row < last and ids[row] == wanted else -1


@compiled
def _count_stats(buffer: Bytes, begins: Int64s, ends: Int64s, field: int, counts: Int64s) -> int:
    for event in range(begins.size):
        at, end = begins[event], ends[event]
        while at < end:
            start = at
            number, _, _, _, at = read_tag(buffer, at, end)
            if at < 0:
                return start
            if number == field:
                counts[event] += 1
    return -1


@compiled
def _fill_stats(
    buffer: Bytes, begins: Int64s, ends: Int64s, first_key: Int64s, last_key: Int64s,
    owners: Int64s, offsets: Int64s, field: int, ids: Int64s,
    key: Int32s, kind: Bytes, value: Int64s, value_end: Int64s,
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
                    number, wire, bits, payload, inner = read_tag(buffer, inner, at)
                    if inner < 0:
                        return start
                    if number == 1:
                        key[entry] = _find(ids, first, last, np.int64(bits))
                    elif number <= 7:
                        expected = 1 if number == 2 else 2 if number == 5 or number == 6 else 0
                        if wire != expected:
                            return start
                        kind[entry] = number
                        value[entry] = np.int64(bits)
                        if number == 2:
                            value[entry] = read_fixed64(buffer, payload)
                        elif number == 7:
                            value[entry] = _find(ids, first, last, np.int64(bits))
                        elif expected == 2:
                            value[entry], value_end[entry] = payload, inner
                entry += 1
    return -1


def _read_csr(buffer: Bytes, entries: StatEntries, keys: StatKeys) -> StatCsr:
    offsets = np.zeros(entries.begins.size + 1, np.int64)
    status = _count_stats(buffer, entries.begins, entries.ends, entries.field, offsets[1:])
    check(status, "XStat")
    np.cumsum(offsets[1:], out=offsets[1:])
    count = int(offsets[-1])
    csr = StatCsr(
        offsets,
        np.empty(count, np.int32),
        np.zeros(count, np.uint8),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )
    planes = entries.plane_of_line
    filled = _fill_stats(
        buffer, entries.begins, entries.ends, keys.offsets[planes], keys.offsets[planes + 1],
        entries.line_offsets, offsets, entries.field, keys.ids,
        csr.key, csr.kind, csr.value, csr.value_end,
    )  # fmt: skip
    check(filled, "XStat")
    return csr


def _value_of(buffer: Bytes, keys: StatKeys, csr: StatCsr, entry: int) -> Value:
    kind, value = int(csr.kind[entry]), csr.value[entry]
    if kind == DOUBLE:
        return float(value.view(np.float64))
    if kind == UINT64:
        return int(value.view(np.uint64))
    if kind == REFERENCE:
        return keys.texts[value] if value >= 0 else ""
    if kind in (TEXT, BYTES):
        raw = buffer[value : csr.value_end[entry]].tobytes()
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

    @cached_property
    def _csr(self) -> StatCsr:
        return _read_csr(self._buffer, self._entries, self._keys)

    @cached_property
    def _rows_by_key(self) -> dict[str, list[int]]:
        rows: dict[str, list[int]] = {}
        used = np.unique(self._csr.key)
        for row in used[used >= 0]:
            rows.setdefault(self._keys.texts[row], []).append(int(row))
        return rows

    def _select(self, name: str, kinds: tuple[int, ...]) -> tuple[Int64s, Int64s]:
        """(entries with this key and one of these kinds, the events they belong to)."""
        csr = self._csr
        rows = self._rows_by_key.get(name)
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        wanted = np.zeros(len(self._keys.texts) + 1, np.bool_)
        wanted[rows] = True
        found = np.flatnonzero(wanted[csr.key])
        found = found[np.isin(csr.kind[found], kinds)]
        return found, np.searchsorted(csr.offsets, found, side="right") - 1

    def integers(self, name: str) -> StatColumn:
        """The events with an integer stat of this name; unsigned values keep their 64 bits."""
        entries, events = self._select(name, (INT64, UINT64))
        return StatColumn(events, self._csr.value[entries])

    def numbers(self, name: str) -> StatColumn:
        """The events with a stat of this name that is any number, as float64."""
        entries, events = self._select(name, (INT64, UINT64, DOUBLE))
        values = self._csr.value[entries]
        is_double = self._csr.kind[entries] == DOUBLE
        return StatColumn(events, np.where(is_double, values.view(np.float64), values))

    def texts(self, name: str) -> StatColumn:
        """The events with a text stat of this name, as rows of the distinct texts."""
        entries, events = self._select(name, (TEXT, REFERENCE))
        csr = self._csr
        by_reference = csr.kind[entries] == REFERENCE
        codes: dict[str, int] = {}
        values = np.zeros(entries.size, np.int64)
        references, inverse = np.unique(csr.value[entries[by_reference]], return_inverse=True)
        texts = [self._keys.texts[row] if row >= 0 else "" for row in references]
        rows = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)
        if references.size:
            values[by_reference] = rows[inverse]
        for index in np.flatnonzero(~by_reference):
            text = str(_value_of(self._buffer, self._keys, csr, int(entries[index])))
            values[index] = codes.setdefault(text, len(codes))
        return StatColumn(events, values, tuple(codes))

    def blobs(self, name: str) -> list[tuple[int, Bytes]]:
        """The events with a bytes stat of this name, and views of the file."""
        entries, events = self._select(name, (BYTES,))
        csr = self._csr
        return [
            (int(event), self._buffer[csr.value[entry] : csr.value_end[entry]])
            for entry, event in zip(entries.tolist(), events.tolist(), strict=True)
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
