"""Protobuf wire format to columns, without a Python object per message.

A message is a span of bytes, half-open ``[begin, end)``. The kernels below either split messages into
those of one repeated field (count, then fill) or read the fields of many small messages into a table.
They are compiled by Numba, which does not check array bounds, so every read is checked
here against the end of the innermost message before it is made.

A kernel reports trouble by returning the byte position of the damage (``OK`` otherwise);
``check`` turns that into a ``TraceFormatError``.

Source: https://protobuf.dev/programming-guides/encoding/ (varints of at most ten bytes, wire types
0, 1, 2 and 5; groups, types 3 and 4, never occur in an XSpace and are refused).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.jit import compiled, tiered

# In a kernel, int() of an unsigned number stays unsigned and then mixes to float; np.int64() does not.
Number = int | np.int64

OK = -1
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

# Numbers that a kernel compares with and shifts by: a constant compiles faster than np.uint64(7) in a kernel.
_ZERO, _THREE, _SEVEN, _SEVENTY = np.uint64(0), np.uint64(3), np.uint64(7), np.uint64(70)
_LAST_TAG = np.uint64((1 << 32) - 1)
_BITS, _MORE = np.uint8(0x7F), np.uint8(0x80)
_LONGEST_VARINT = 10


def check(position: Number, what: str) -> None:
    """Raise if a kernel stopped before the end."""
    if position != OK:
        raise TraceFormatError(
            f"Malformed {what} at byte {position:,}: the file is truncated, damaged, or not an XPlane "
            "trace. Copy the file again in binary mode, or capture anew."
        )


@compiled
def read_varint(buffer: Bytes, at: Number, end: Number) -> tuple[np.uint64, Number]:
    """One varint: (value, position after it), or position -1 where it is cut off or too long."""
    value = _ZERO
    shift = _ZERO
    while at < end and shift < _SEVENTY:
        byte = buffer[at]
        at += 1
        value |= np.uint64(byte & _BITS) << shift
        if byte < _MORE:
            return value, at
        shift += _SEVEN
    return value, -1


def read_plain_varint(raw: bytes | bytearray, at: int, end: int) -> tuple[int, int]:
    """Read one varint without a kernel: (value, position after it).

    Raises:
        ValueError: It is cut off or too long.
    """
    value = shift = 0
    while at < end and shift < 64:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("no number of a message")


def write_varint(value: int) -> bytes:
    """Write a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def write_message(*fields: tuple[int, int | bytes]) -> bytes:
    """Write a message of numbers, which are not negative, and of texts and messages."""
    parts = []
    for field, value in fields:
        if isinstance(value, bytes):
            parts += [write_varint(field << 3 | LENGTH), write_varint(len(value)), value]
        else:
            parts += [write_varint(field << 3 | VARINT), write_varint(value)]
    return b"".join(parts)


@compiled
def read_tag(
    buffer: Bytes, at: Number, end: Number
) -> tuple[Number, Number, np.uint64, Number, Number]:
    """One field: (number, wire type, scalar value, payload begin, position after).

    The position after is -1 where the field does not lie inside ``[at, end)``. For a length-delimited
    field the payload is ``[payload begin, position after)``; a fixed-width field's bytes are left
    where they are, at payload begin.
    """
    tag, at = read_varint(buffer, at, end)
    number = np.int64(tag >> _THREE)
    wire = np.int64(tag & _SEVEN)
    value, payload = _ZERO, at
    after: Number = -1
    if at < 0 or tag > _LAST_TAG or number == 0:
        return number, wire, value, payload, -1
    if wire == VARINT or wire == LENGTH:
        value, after = read_varint(buffer, at, end)
        if wire == LENGTH and after >= 0:
            payload = after
            # No buffer is larger than 2**62 bytes, so position + size cannot wrap.
            after = -1 if value > np.uint64(end - after) else after + np.int64(value)
    elif wire == FIXED64 or wire == FIXED32:
        after = at + (8 if wire == FIXED64 else 4)
        if after > end:
            after = -1
    return number, wire, value, payload, after


@compiled
def find_row(ids: Int64s, first: Number, last: Number, wanted: Number) -> Number:
    """The row of an id among rows ``first`` to ``last``, which ascend by id, or -1."""
    if 1 <= wanted <= last - first:  # compared first: an id near 2**63 would wrap
        row = first + wanted - 1
        if ids[row] == wanted:
            return row
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < last and ids[low] == wanted else -1


@tiered
def _split(
    buffer: Bytes, begins: Int64s, ends: Int64s, field: int, other: int, counts: Int64s,
    child_begins: Int64s, child_ends: Int64s,
) -> int:  # fmt: skip
    """Count the children of each parent, and keep where they are if there is room."""
    child = 0
    for parent in range(begins.size):
        at, end = begins[parent], ends[parent]
        before = child
        while at < end:
            start = at
            number, wire, _, payload, at = read_tag(buffer, at, end)
            if at < 0 or (number == field and wire != LENGTH and wire != other):
                return start
            if number == field:
                if child < child_begins.size:
                    child_begins[child], child_ends[child] = payload, at
                child += 1
        counts[parent] = child - before
    return -1


@tiered
def _read_fields(
    buffer: Bytes, begins: Int64s, ends: Int64s, wires: Int64s, columns: Int64s, table: Int64s
) -> int:
    """Fill ``table[columns[f], :, row]`` with the field f of the message ``row``."""
    for row in range(begins.size):
        at = begins[row]
        while at < ends[row]:
            start = at
            number, wire, value, payload, at = read_tag(buffer, at, ends[row])
            if at < 0:
                return start
            if number < wires.size and wires[number] >= 0:
                if wire != wires[number]:
                    return start
                table[columns[number], 0, row] = payload if wire == LENGTH else np.int64(value)
                table[columns[number], 1, row] = at
    return -1


@dataclass(frozen=True, slots=True)
class Messages:
    """N messages of one kind in one buffer.

    What reads them raises TraceFormatError where one is malformed, or a field has another wire type.

    Attributes:
        buffer: The bytes.
        kind: What they are, for error texts.
        begins: Where each message begins, shape (N,).
        ends: Where each ends, shape (N,).
        offsets: Parent p, which they were split from, owns rows ``offsets[p]:offsets[p + 1]``.
    """

    buffer: Bytes
    kind: str
    begins: Int64s
    ends: Int64s
    offsets: Int64s

    @classmethod
    def whole(cls, buffer: Bytes, kind: str) -> "Messages":
        """Take the buffer as one message."""
        return cls(buffer, kind, np.array([0]), np.array([buffer.size]), np.arange(2))

    def __len__(self) -> int:
        return self.begins.size

    @property
    def parents(self) -> Int64s:
        """The parent of each, shape (N,)."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def at_most(self, most: int, noun: str, whole: str) -> "Messages":
        """Give the same messages."""
        if len(self) > most:
            raise TraceFormatError(
                f"The file claims {len(self):,} {noun}, more than any real {whole} has."
            )
        return self

    def rows(self, rows: slice | Int64s) -> "Messages":
        """Give some of them, which have no parents."""
        begins, ends = self.begins[rows], self.ends[rows]
        return Messages(self.buffer, self.kind, begins, ends, np.arange(begins.size + 1))

    def split(self, field: int, kind: str) -> "Messages":
        """Find the messages of a repeated field, parent after parent."""
        return Messages(self.buffer, kind, *self._find(field, LENGTH))

    def _find(self, field: int, other: int) -> tuple[Int64s, Int64s, Int64s]:
        """Find begins and ends of a repeated field that is a message or of another wire type, and offsets."""
        counts, none = np.zeros(len(self), np.int64), np.empty(0, np.int64)
        spans = self.begins, self.ends
        check(_split(self.buffer, *spans, field, other, counts, none, none), self.kind)
        offsets = np.append(0, np.cumsum(counts))
        begins, ends = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
        _split(self.buffer, *spans, field, other, counts, begins, ends)
        return begins, ends, offsets

    def read(
        self,
        numbers: Sequence[int],
        lengths: Sequence[int] = (),
        fixed: Mapping[int, int] | None = None,
    ) -> dict[int, Int64s]:
        """Read some fields in one pass.

        Args:
            numbers: The fields that are integers.
            lengths: Those that are texts or messages.
            fixed: Those of a fixed width, with their wire type; their value is 0 here.

        Returns:
            Of each field int64 of shape (2, N): the value (varint) or where the payload begins
            (length-delimited), and the position after it; both are 0 where the field is absent. The last
            occurrence wins, as in protobuf.
        """
        fields = [*numbers, *lengths, *(fixed or {})]
        expected = np.full(max(fields) + 1, -1, np.int64)
        expected[[*numbers]], expected[[*lengths]] = VARINT, LENGTH
        expected[[*(fixed or {})]] = [*(fixed or {}).values()]
        columns = np.zeros_like(expected)
        columns[fields] = np.arange(len(fields))
        table = np.zeros((len(fields), 2, len(self)), np.int64)
        position = _read_fields(self.buffer, self.begins, self.ends, expected, columns, table)
        check(position, self.kind)
        return dict(zip(fields, table, strict=True))

    def numbers(self, *fields: int) -> tuple[Int64s, ...]:
        """Read integer fields, each of shape (N,); 0 where absent."""
        return tuple(value for value, _ in self.read(fields).values())

    def fixed(self, field: int, form: str) -> tuple[Int64s, Floats]:
        """Read a field of four or eight bytes, as NumPy calls it: rows that have it, and values."""
        size = np.dtype(form).itemsize
        after = self.read((), (), {field: FIXED64 if size == 8 else FIXED32})[field][1]
        rows = np.flatnonzero(after)
        raw = self.buffer[after[rows][:, None] + np.arange(-size, 0)]
        return rows, np.ascontiguousarray(raw).view(form).reshape(-1).astype(np.float64)

    def inner(self, field: int, kind: str) -> "Messages":
        """Find the message or text of a singular field, one for each; empty where absent."""
        return self.within(self.read((), [field])[field], kind)

    def within(self, spans: Int64s, kind: str) -> "Messages":
        """Give messages of another kind, one for each of these, by their begins and ends, shape (2, N)."""
        return Messages(self.buffer, kind, spans[0], spans[1], np.arange(spans.shape[1] + 1))

    def split_numbers(self, field: int) -> tuple[Int64s, Int64s]:
        """Read a repeated integer field, packed or not.

        Returns:
            Offsets of shape (N + 1,) and the numbers: message i has ``numbers[offsets[i]:offsets[i + 1]]``.
        """
        begins, ends, of_message = self._find(field, VARINT)
        sizes = ends - begins
        place = np.append(0, np.cumsum(sizes))  # of each field in ``raw``
        raw = self.buffer[np.repeat(begins - place[:-1], sizes) + np.arange(place[-1])]
        is_last = raw < _MORE
        last = np.flatnonzero(is_last)
        first = np.append(0, last + 1)[: last.size]
        is_cut = (sizes > 0) & ~is_last[np.maximum(place[1:], 1) - 1] if raw.size else sizes > 0
        check(int(begins[is_cut][0]) if is_cut.any() else OK, self.kind)
        lengths = last - first + 1
        is_long = lengths > _LONGEST_VARINT
        if is_long.any():
            at = np.searchsorted(place, first[is_long][0], side="right") - 1
            check(int(begins[at]), self.kind)
        shift = 7 * (np.arange(raw.size) - np.repeat(first, lengths))
        bits = (raw & _BITS).astype(np.uint64) << shift.astype(np.uint64)
        numbers = np.bitwise_or.reduceat(bits, first) if first.size else bits
        return np.append(0, np.cumsum(is_last))[place[of_message]], numbers.view(np.int64)

    def raw(self) -> list[bytes]:
        """Copy their bytes."""
        whole = self.buffer.data
        spans = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [bytes(whole[begin:end]) for begin, end in spans]

    def texts(self) -> list[str]:
        """Decode their texts; bytes that are not UTF-8 become U+FFFD."""
        return [raw.decode("utf-8", "replace") for raw in self.raw()]
