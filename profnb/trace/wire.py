"""Protobuf wire format to columns, without a Python object per message.

A message is a span of bytes, half-open ``[begin, end)``. The kernels below either split spans into
the spans of one repeated field (count, then fill) or read the fields of many small messages into a
table. They are compiled by Numba, which does not check array bounds, so every read is checked
here against the end of the innermost message before it is made.

A kernel reports trouble by returning the byte position of the damage (``OK`` otherwise);
``check`` turns that into a ``TraceFormatError``.

Source: https://protobuf.dev/programming-guides/encoding/ (varints of at most ten bytes, wire types
0, 1, 2 and 5; groups, types 3 and 4, never occur in an XSpace and are refused).
"""

import numpy as np

from profnb.core.columns import Bytes, Int64s
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
    """Raise if a kernel stopped before the end.

    Args:
        position: What the kernel returned: ``OK`` or the position of the damage in the file.
        what: The message being read, for the error text.

    Raises:
        TraceFormatError: The kernel met bytes that are not a valid message.
    """
    if position != OK:
        raise TraceFormatError(
            f"Malformed {what} at byte {position:,}: the file is truncated, damaged, or not an "
            "XPlane trace. Copy it again in binary mode, or capture it anew."
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


def split_field(
    buffer: Bytes, begins: Int64s, ends: Int64s, field: int, what: str, other: int = LENGTH
) -> tuple[Int64s, Int64s, Int64s]:
    """Find the messages of one repeated field inside each of P parent messages.

    Args:
        buffer: The whole file.
        begins: Where each parent begins, shape (P,).
        ends: Where each parent ends, shape (P,).
        field: The field's number.
        what: The parents' kind, for error texts.
        other: The wire type that the field may have besides a message's.

    Returns:
        ``offsets`` of shape (P + 1,): parent p owns children ``offsets[p]:offsets[p + 1]``; and the
        children's begins and ends in file order.

    Raises:
        TraceFormatError: A parent is malformed, or the field has another wire type.
    """
    counts = np.zeros(begins.size, np.int64)
    none = np.empty(0, np.int64)
    check(_split(buffer, begins, ends, field, other, counts, none, none), what)
    offsets = np.zeros(begins.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    child_begins = np.empty(offsets[-1], np.int64)
    child_ends = np.empty(offsets[-1], np.int64)
    _split(buffer, begins, ends, field, other, counts, child_begins, child_ends)
    return offsets, child_begins, child_ends


@tiered
def _read_fields(buffer: Bytes, begins: Int64s, ends: Int64s, wires: Int64s, table: Int64s) -> int:
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
                table[row, 2 * number] = payload if wire == LENGTH else np.int64(value)
                table[row, 2 * number + 1] = at
    return -1


def read_fields(
    buffer: Bytes, begins: Int64s, ends: Int64s, wires: dict[int, int], what: str
) -> Int64s:
    """Read scalar, string and message fields of N messages of one kind.

    Args:
        buffer: The whole file.
        begins: Where each message begins, shape (N,).
        ends: Where each message ends, shape (N,).
        wires: Field number to wire type (VARINT or LENGTH) of the fields that are wanted.
        what: The messages' kind, for error texts.

    Returns:
        int64 of shape (N, 2 * (largest field number + 1)): for field f, column ``2 * f`` holds the
        value (varint) or where the payload begins (length-delimited) and column ``2 * f + 1`` the
        position after it; both are 0 where the field is absent. The last occurrence wins, as in
        protobuf.

    Raises:
        TraceFormatError: A message is malformed or a wanted field has another wire type.
    """
    expected = np.full(max(wires) + 1, -1, np.int64)
    for field, wire in wires.items():
        expected[field] = wire
    table = np.zeros((begins.size, 2 * expected.size), np.int64)
    check(_read_fields(buffer, begins, ends, expected, table), what)
    return table


def split_numbers(
    buffer: Bytes, begins: Int64s, ends: Int64s, field: int, what: str
) -> tuple[Int64s, Int64s]:
    """Read a repeated integer field, packed or not, of each of N messages.

    Args:
        buffer: The whole file.
        begins: Where each message begins, shape (N,).
        ends: Where each message ends, shape (N,).
        field: The field's number.
        what: The messages' kind, for error texts.

    Returns:
        ``offsets`` of shape (N + 1,) and the numbers: message i has ``numbers[offsets[i]:offsets[i + 1]]``.

    Raises:
        TraceFormatError: A message is malformed, or the field has another wire type.
    """
    of_message, begins, ends = split_field(buffer, begins, ends, field, what, VARINT)
    sizes = ends - begins
    place = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])  # of each field in ``raw``
    raw = buffer[np.repeat(begins - place[:-1], sizes) + np.arange(place[-1])]
    is_last = raw < _MORE
    last = np.flatnonzero(is_last)
    first = np.append(0, last + 1)[: last.size]
    is_cut = (sizes > 0) & ~is_last[np.maximum(place[1:], 1) - 1] if raw.size else sizes > 0
    check(int(begins[is_cut][0]) if is_cut.any() else OK, what)
    lengths = last - first + 1
    is_long = lengths > _LONGEST_VARINT
    if is_long.any():
        check(int(begins[np.searchsorted(place, first[is_long][0], side="right") - 1]), what)
    shift = 7 * (np.arange(raw.size) - np.repeat(first, lengths))
    bits = (raw & _BITS).astype(np.uint64) << shift.astype(np.uint64)
    numbers = np.bitwise_or.reduceat(bits, first) if first.size else bits
    return np.append(0, np.cumsum(is_last))[place[of_message]], numbers.view(np.int64)
