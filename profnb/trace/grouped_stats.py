"""The stats of an XSpace's messages: where they are, and all of them read in one go.

They are read by event (CSR: event e owns entries ``offsets[e]:offsets[e + 1]``) or, which tables ask for
dozens of times, by the name of their key: once counted, then put where they belong, so that what a table gets
are slices. Text stays in the file.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto, message XStat.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Bools, Bytes, Int32s, Int64s
from profnb.core.jit import tiered
from profnb.trace.chrome.stat_texts import DOUBLE, StatCsr
from profnb.trace.model import StringTable
from profnb.trace.wire import Number, check, find_row, read_tag, read_varint, split_field

_Columns = tuple[Int64s, Bytes, Int64s, Int32s]
_WIRES = np.array([0, 0, 1, 0, 0, 2, 2, 0])  # the wire type of each field of a stat
_COUNT_QUICKLY, _COUNT, _KEEP = range(3)
_MORE = -2  # of a group's stats than were counted
_LONGEST_TEXT = (1 << 31) - 1  # no protobuf message is longer


@dataclass(frozen=True, slots=True)
class GroupedStats:
    """N entries by the name of their key, in the order of the events inside a name.

    Attributes:
        span: The first entry of each name, and the one behind its last.
        event: The event of each entry, shape (N,).
        kind: Number of the value's field in XStat, shape (N,).
        value: The bits of a number, the row of a reference, or where a text begins, shape (N,).
        size: How many bytes a text has, shape (N,), as integers as short as they can be.
    """

    span: dict[str, tuple[int, int]]
    event: Int64s
    kind: Bytes
    value: Int64s
    size: npt.NDArray[np.integer[Any]]

    def of_name(self, name: str) -> "GroupedStats":
        """The entries of one name, not copied; ``span`` stays as it is."""
        return self._take(slice(*self.span.get(name, (0, 0))))

    def of_kinds(self, kinds: tuple[int, ...]) -> "GroupedStats":
        """The entries whose values are of some kinds."""
        chosen = self.kind == kinds[0]
        for kind in kinds[1:]:
            chosen |= self.kind == kind
        return self if chosen.all() else self._take(chosen)

    def _take(self, rows: slice | Bools) -> "GroupedStats":
        return GroupedStats(
            self.span, self.event[rows], self.kind[rows], self.value[rows], self.size[rows]
        )


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


def narrow(positions: Int64s | Int32s, buffer: Bytes) -> Int64s | Int32s:
    """Positions in a buffer in 32 bits where they fit, as in every file that protobuf itself can write."""
    fits = buffer.size <= _LONGEST_TEXT and positions.dtype != np.int32
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
                        if wire != _WIRES[number] or inner - payload > _LONGEST_TEXT:
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
    buffer: Bytes, entries: StatEntries, keys: StatKeys, group: Int32s, bounds: Int64s, how: int
) -> _Columns | None:
    """Labels, kinds, values and sizes of all stats, each group's between its bounds; None if it has more.

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
    return label, kind, value, size


def read_csr(buffer: Bytes, entries: StatEntries, keys: StatKeys) -> StatCsr:
    """The stats by event."""
    if entries.counts is None:
        spans = entries.begins.astype(np.int64), entries.ends.astype(np.int64)
        offsets, _, _ = split_field(buffer, *spans, entries.field, "XStat")
    else:
        offsets = np.zeros(entries.begins.size + 1, np.int64)
        np.cumsum(entries.counts, dtype=np.int64, out=offsets[1:])
    one_group = np.zeros(len(keys.texts) + 1, np.int32)
    columns = _pass(buffer, entries, keys, one_group, offsets[[0, -1]], _KEEP)
    assert columns is not None  # all stats have been counted
    label, kind, value, size = columns
    return StatCsr(offsets, label.astype(np.int32), kind, value, size)


def read_grouped(buffer: Bytes, entries: StatEntries, keys: StatKeys) -> GroupedStats:
    """The stats by the name of their key; planes have dictionaries of their own."""
    rows = len(keys.texts) + 1  # the first: a key that the file lacks
    for how in (_COUNT_QUICKLY, _COUNT):
        counts = np.zeros(rows + 1, np.int64)
        _pass(buffer, entries, keys, np.arange(rows, dtype=np.int32), counts, how)
        group = np.zeros(rows, np.int32)
        codes: dict[str | None, int] = {None: 0}
        for row in np.flatnonzero(counts[1:]).tolist():
            group[row + 1] = codes.setdefault(keys.texts[row], len(codes))
        bounds = np.zeros(max(len(codes), 2) + 1, np.int64)
        np.add.at(bounds, group + 1, counts[:rows])
        np.cumsum(bounds, out=bounds)
        columns = _pass(buffer, entries, keys, group, bounds, _KEEP)
        if columns is not None:
            break
    assert columns is not None
    spans = pairwise(bounds.tolist())
    named = {name: span for name, span in zip(codes, spans, strict=False) if name is not None}
    event, kind, value, size = columns
    shortest = np.min_scalar_type(int(size.max(initial=0)))
    return GroupedStats(named, event, kind, value, size.astype(shortest))
