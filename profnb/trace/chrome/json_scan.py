"""JSON bytes to columns, for traces: where each event's fields are, and numbers, exactly.

The scanner walks the bytes once to count and once to fill. It knows strings, brackets and numbers; what
it does not need it skips by matching brackets, with no recursion, so depth costs nothing.

Times are read as decimals, not as floats: a float64 of an epoch in microseconds has a resolution of 0.25 us,
the digits in the file have all of theirs.
"""

import re
import secrets
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Bytes, Int64s
from profnb.core.jit import compiled

# The fields of an event that are of interest, in the order of the spans that are returned.
FIELDS = (b"ph", b"name", b"cat", b"ts", b"dur", b"pid", b"tid", b"args")

_KEYS = np.frombuffer(b"".join(FIELDS), np.uint8), np.cumsum([len(field) for field in FIELDS])
# Where the next event begins behind what is damaged.
_SEEMS_AN_EVENT = re.compile(rb'\}\s*,\s*(\{\s*"(?:%s)"\s*:)' % b"|".join(FIELDS))
_BLOCK, _LONGEST_EVENT, _MOST_DAMAGES = 1 << 14, 1 << 16, 20_000

_QUOTE, _BACKSLASH, _COMMA, _COLON = np.uint8(34), np.uint8(92), np.uint8(44), np.uint8(58)
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = np.uint8(91), np.uint8(93), np.uint8(123), np.uint8(125)


@compiled
def skip_space(buffer: Bytes, at: int, end: int) -> int:
    """The first position that is no white space, or ``end``."""
    while at < end and (buffer[at] == 32 or 9 <= buffer[at] <= 13):
        at += 1
    return at


@compiled
def string_end(buffer: Bytes, at: int, end: int) -> int:
    """The position after the string that begins at ``at``, or -1."""
    at += 1
    while at < end:
        byte = buffer[at]
        if byte == _BACKSLASH:
            at += 2
        elif byte == _QUOTE:
            return at + 1
        else:
            at += 1
    return -1


@compiled
def skip_value(buffer: Bytes, at: int, end: int) -> int:
    """The position after the value that begins at ``at``, or -1 where it does not end."""
    if at >= end:
        return -1
    first = buffer[at]
    if first == _QUOTE:
        return string_end(buffer, at, end)
    if first != _OPEN and first != _OPEN_LIST:
        start = at
        while at < end:
            byte = buffer[at]
            if byte == _COMMA or byte == _CLOSE or byte == _CLOSE_LIST or byte <= 32:
                break
            if byte == _QUOTE or byte == _COLON or byte == _OPEN or byte == _OPEN_LIST:
                return -1
            at += 1
        return at if at > start else -1
    depth = 0
    while at < end:
        byte = buffer[at]
        if byte == _QUOTE:
            at = string_end(buffer, at, end)
            if at < 0:
                return -1
            continue
        if byte == _OPEN or byte == _OPEN_LIST:
            depth += 1
        elif byte == _CLOSE or byte == _CLOSE_LIST:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@compiled
def _next_member(buffer: Bytes, at: int, end: int) -> tuple[int, int, int, int, int]:
    """The next member of an object: (key begin, key end, value begin, value end, position after).

    The position after is ``end`` past the last member; key begin is -1 when there is none, and the
    position after -1 where the object is malformed.
    """
    at = skip_space(buffer, at, end)
    if at >= end:
        return -1, 0, 0, 0, end
    if buffer[at] != _QUOTE:
        return -1, 0, 0, 0, -1
    key = at + 1
    after = string_end(buffer, at, end)
    if after < 0:
        return -1, 0, 0, 0, -1
    at = skip_space(buffer, after, end)
    if at >= end or buffer[at] != _COLON:
        return -1, 0, 0, 0, -1
    value = skip_space(buffer, at + 1, end)
    value_end = skip_value(buffer, value, end)
    if value_end < 0:
        return -1, 0, 0, 0, -1
    at = skip_space(buffer, value_end, end)
    if at < end:
        if buffer[at] != _COMMA:
            return -1, 0, 0, 0, -1
        at += 1
        if skip_space(buffer, at, end) >= end:
            return -1, 0, 0, 0, -1
    return key, after - 1, value, value_end, at


@compiled
def _are_same(one: Bytes, at: int, two: Bytes, there: int, size: int) -> bool:
    for index in range(size):  # noqa: SIM110 - a kernel knows no generator
        if one[at + index] != two[there + index]:
            return False
    return True


@compiled
def _scan(
    buffer: Bytes, at: int, end: int, keys: Bytes, key_ends: Int64s, spans: Int64s, most: int,
    longest: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Walk the list that begins at ``at``; fill spans of shape (most, fields, 2) unless most is 0.

    Returns (number of objects, position after, status): 0 closed, 1 the list is not closed but ends after a
    whole event, 2 damaged at the position, 3 the spans are full. What is longer than ``longest`` is damaged.
    """
    count = 0
    at += 1
    while True:
        at = skip_space(buffer, at, end)
        if at >= end:
            return count, at, 1
        byte = buffer[at]
        if byte == _CLOSE_LIST:
            return count, at + 1, 0
        if 0 < most == count:
            return count, at, 3
        after = skip_value(buffer, at, min(end, at + longest))
        if after < 0:
            return count, at, 2
        if byte == _OPEN:
            if most > 0 and not _fill(buffer, at, after, keys, key_ends, spans[count]):
                return count, at, 2
            count += 1
        at = skip_space(buffer, after, end)
        if at < end and buffer[at] == _COMMA:
            at += 1
        elif at < end and buffer[at] != _CLOSE_LIST:
            return count, at, 2


@compiled
def _fill(buffer: Bytes, begin: int, end: int, keys: Bytes, key_ends: Int64s, span: Int64s) -> bool:
    """The spans of the known fields of the object at ``[begin, end)``; False if it is malformed."""
    at, last = begin + 1, end - 1
    while at < last:
        key, key_end, value, value_end, at = _next_member(buffer, at, last)
        if at < 0:
            return False
        if key < 0:
            break
        first = 0
        for field in range(key_ends.size):
            size = key_ends[field] - first
            if key_end - key == size and _are_same(buffer, key, keys, first, size):
                span[field, 0], span[field, 1] = value, value_end
            first = key_ends[field]
    return True


@dataclass(frozen=True, slots=True)
class EventSpans:
    """The places of the fields of a list's events.

    Attributes:
        spans: Shape (E, 8, 2), int64, fields as ``FIELDS``, (0, 0) where an event lacks one.
        after: The position after the list.
        is_closed: Whether the list has its closing bracket.
        damaged: Where something stands that is no event; reading went on with the next event behind it.
    """

    spans: Int64s
    after: int
    is_closed: bool
    damaged: tuple[int, ...] = ()


def scan_events(buffer: Bytes, at: int) -> EventSpans:
    """Find the fields of every event of the list that begins at a position."""
    size = buffer.size
    count, after, status = _scan(buffer, at, size, *_KEYS, _spans(0), 0, size)
    spans = _spans(count)
    if count and status != 2:
        _, after, status = _scan(buffer, at, size, *_KEYS, spans, count, size)
    return _scan_past_damage(buffer, at) if status == 2 else EventSpans(spans, after, status == 0)


def _spans(count: int) -> Int64s:
    return np.zeros((count, len(FIELDS), 2), np.int64)


def _scan_past_damage(buffer: Bytes, at: int) -> EventSpans:
    """Do the same with a list that is damaged: behind each damage, go on where the next event seems to begin.

    What seems to be one and is none has no phase, so it is no event of a trace either. Each event is bounded,
    and so is how often this starts anew: files that were made to be slow are not.
    """
    text, size = memoryview(buffer), buffer.size
    blocks, damaged = [_spans(0)], list[int]()
    while len(damaged) < _MOST_DAMAGES:
        block = _spans(_BLOCK)
        count, after, status = _scan(buffer, at, size, *_KEYS, block, _BLOCK, _LONGEST_EVENT)
        blocks.append(block[:count].copy())
        if status == 3:
            at = after - 1
            continue
        next_event = _SEEMS_AN_EVENT.search(text, after)
        if status == 2:
            damaged.append(after)
        if next_event is None:
            break
        at = next_event.start(1) - 1
    return EventSpans(np.concatenate(blocks), after, status == 0, tuple(damaged))


@compiled
def _distinct(
    buffer: Bytes, begins: Int64s, ends: Int64s, seed: np.uint64, table: Int64s, code: Int64s,
    first: Int64s,
) -> int:  # fmt: skip
    """Give equal spans equal codes, in the order of first occurrence; returns how many there are."""
    mask = np.uint64(table.size - 1)
    distinct = 0
    for row in range(begins.size):
        value = seed
        for at in range(begins[row], ends[row]):
            value = (value ^ np.uint64(buffer[at])) * np.uint64(1099511628211)
        value ^= value >> np.uint64(29)
        slot = np.int64(value & mask)
        while True:
            candidate = table[slot]
            if candidate < 0:
                table[slot] = distinct
                first[distinct] = row
                code[row] = distinct
                distinct += 1
                break
            other = first[candidate]
            size = ends[row] - begins[row]
            is_as_long = ends[other] - begins[other] == size
            if is_as_long and _are_same(buffer, begins[other], buffer, begins[row], size):
                code[row] = candidate
                break
            slot = (slot + 1) & np.int64(mask)
    return distinct


def distinct_spans(buffer: Bytes, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Find which of N spans hold equal bytes.

    Returns:
        The code of each span, shape (N,), and the first row of each code, shape (distinct,).
    """
    size = 16
    while size < 2 * begins.size:
        size *= 2
    code, first = np.empty(begins.size, np.int64), np.empty(begins.size, np.int64)
    # A seed that no file can know: spans made to collide would take quadratic time.
    seed = np.uint64(secrets.randbits(64))
    distinct = _distinct(buffer, begins, ends, seed, np.full(size, -1, np.int64), code, first)
    return code, first[:distinct].copy()


@compiled
def _members(buffer: Bytes, begins: Int64s, ends: Int64s, counts: Int64s, spans: Int64s) -> None:
    """Count the members of each object, and keep where they are if there is room."""
    entry = 0
    for row in range(begins.size):
        at, last = begins[row] + 1, ends[row] - 1
        before = entry
        while at < last:
            key, key_end, value, value_end, at = _next_member(buffer, at, last)
            if at < 0 or key < 0:
                break
            if entry < spans.shape[0]:
                spans[entry, 0], spans[entry, 1] = key, key_end
                spans[entry, 2], spans[entry, 3] = value, value_end
            entry += 1
        counts[row] = entry - before


def find_members(buffer: Bytes, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Find the members of N objects; one that is malformed ends where it is.

    Returns:
        Offsets of shape (N + 1,), and for each member (key begin, key end, value begin, value end).
    """
    offsets = np.zeros(begins.size + 1, np.int64)
    _members(buffer, begins, ends, offsets[1:], np.zeros((0, 4), np.int64))
    np.cumsum(offsets, out=offsets)
    spans = np.zeros((int(offsets[-1]), 4), np.int64)
    _members(buffer, begins, ends, np.zeros(begins.size, np.int64), spans)
    return offsets, spans


@compiled
def _scaled(mantissa: int, scale: int) -> tuple[int, int, bool]:
    """``mantissa * 10 ** -scale`` as (whole, millionths); False if it is too large."""
    if scale <= 0:
        for _ in range(min(-scale, 19)):
            if mantissa > 900_000_000_000_000_000 // 10:
                return 0, 0, False
            mantissa *= 10
        return mantissa, 0, True
    power = np.int64(1)
    for _ in range(min(scale, 18)):
        power *= 10
    if scale > 18:
        return 0, 0, True
    whole = mantissa // power
    rest = mantissa - whole * power
    while power > 1_000_000_000_000:  # room for the product below
        power //= 10
        rest //= 10
    return whole, rest * 1_000_000 // power, True


@compiled
def _decimal(buffer: Bytes, at: int, end: int) -> tuple[int, int, bool]:
    """A JSON number as (whole, millionths), rounded towards minus infinity; False if it is none."""
    negative = at < end and buffer[at] == 45
    if negative:
        at += 1
    whole, part, places, digits = np.int64(0), np.int64(0), 0, 0
    mantissa, scale = np.int64(0), 0  # the leading 17 digits, for numbers with an exponent
    seen_point, valid = False, True
    while at < end:
        byte = buffer[at]
        if 48 <= byte <= 57:
            digit = np.int64(byte) - 48
            if mantissa < 10_000_000_000_000_000:
                mantissa = mantissa * 10 + digit
                scale += 1 if seen_point else 0
            elif not seen_point:
                scale -= 1
            if not seen_point:
                valid = valid and whole < 90_000_000_000_000_000
                whole = whole * 10 + digit if valid else whole
            elif places < 6:
                part = part * 10 + digit
                places += 1
            digits += 1
        elif byte == 46 and not seen_point:
            seen_point = True
        else:
            break
        at += 1
    if digits == 0:
        return 0, 0, False
    for _ in range(places, 6):
        part *= 10
    if at < end and (buffer[at] == 101 or buffer[at] == 69):
        at += 1
        sign, exponent = 1, 0
        if at < end and (buffer[at] == 43 or buffer[at] == 45):
            sign = -1 if buffer[at] == 45 else 1
            at += 1
        if at >= end:
            return 0, 0, False
        while at < end and 48 <= buffer[at] <= 57:
            exponent = min(exponent * 10 + np.int64(buffer[at]) - 48, 100_000)
            at += 1
        whole, part, valid = _scaled(mantissa, scale - sign * exponent)
        valid = valid or mantissa == 0
    if negative:
        whole, part = -whole, -part
        if part < 0:
            whole, part = whole - 1, part + 1_000_000
    return whole, part, valid and at == end


@compiled
def read_decimals(
    buffer: Bytes, begins: Int64s, ends: Int64s, whole: Int64s, part: Int64s, valid: Bools
) -> None:
    """Read N numbers exactly: ``whole + part / 1e6``; what is no finite number is not valid."""
    for row in range(begins.size):
        whole[row], part[row], valid[row] = _decimal(buffer, begins[row], ends[row])


@compiled
def read_integers(buffer: Bytes, begins: Int64s, ends: Int64s, value: Int64s, valid: Bools) -> None:
    """Integers, bare or as strings; what is none is not valid."""
    for row in range(begins.size):
        at, end = begins[row], ends[row]
        if end - at >= 2 and buffer[at] == 34:
            at, end = at + 1, end - 1
        negative = at < end and buffer[at] == 45
        if negative:
            at += 1
        total = np.uint64(0)
        is_number = 0 < end - at <= 20
        while is_number and at < end:
            byte = buffer[at]
            is_number = 48 <= byte <= 57
            total = total * np.uint64(10) + np.uint64(byte) - np.uint64(48)
            at += 1
        value[row] = -np.int64(total) if negative else np.int64(total)
        valid[row] = is_number
