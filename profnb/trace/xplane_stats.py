"""The stats of an XSpace, read when someone asks for them.

An event's stats stay where they are in the file until the first question; then all of them are read
once into CSR form (event e owns entries ``offsets[e]:offsets[e + 1]``): the row of the key, the kind
of value, and 64 bits of value. Text stays in the file and is decoded per distinct value.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto, message XStat.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s
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
from profnb.trace.grouped_stats import (
    GroupedStats,
    StatEntries,
    StatKeys,
    read_csr,
    read_grouped,
)
from profnb.trace.stats import StatColumn, Stats
from profnb.trace.wire import split_field

Value = int | float | str | bytes
_Values = tuple[
    Int64s | Floats, tuple[str, ...]
]  # a column's values, and the texts that they are rows of


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
    csr = read_csr(buffer, StatEntries(begins, ends, owners, planes, field), keys)
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
        return read_csr(self._buffer, self._entries, self._keys)

    @cached_property
    def _grouped(self) -> GroupedStats:
        return read_grouped(self._buffer, self._entries, self._keys)

    def _select(self, name: str, kinds: tuple[int, ...]) -> GroupedStats:
        """The entries with this key and one of these kinds."""
        return self._grouped.of_name(name).of_kinds(kinds)

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
