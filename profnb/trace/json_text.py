"""Columns to JSON bytes: the pieces of text that a writer puts one after another into a buffer.

Each kernel writes at a position and returns the position after; the caller has made room. Text comes out as
valid UTF-8 whatever went in (what is not becomes U+FFFD, as in Python's ``errors="replace"``), and with
``<`` escaped, so that JSON made of it may stand inside HTML.
"""

import numpy as np

from profnb.columns import Bytes
from profnb.kernels import compiled, inlined
from profnb.trace.wire import Number

__all__ = [
    "LONGEST_NUMBER",
    "WORST_GROWTH",
    "put_bytes",
    "put_integer",
    "put_json_text",
    "put_microseconds",
    "put_scalar",
    "put_span",
    "put_text",
    "put_unsigned",
]

LONGEST_NUMBER = 24  # characters of any number written here, its quotes included
WORST_GROWTH = 6  # one byte of text becomes at most backslash, u and four digits

_QUOTE, _BACKSLASH, _LESS = np.uint8(34), np.uint8(92), np.uint8(60)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_LARGEST_EXACT = np.uint64(1 << 53)  # JavaScript reads larger integers as the nearest double
_LITERALS = np.frombuffer(b"truefalsenull", np.uint8)


@inlined
def put_bytes(source: Bytes, out: Bytes, at: Number) -> Number:
    """All of a small array."""
    for index in range(source.size):
        out[at + index] = source[index]
    return at + source.size


@inlined
def put_span(source: Bytes, begin: Number, end: Number, out: Bytes, at: Number) -> Number:
    """The bytes between two positions as they are."""
    for index in range(end - begin):
        out[at + index] = source[begin + index]
    return at + end - begin


@compiled
def _sequence(source: Bytes, at: Number, end: Number) -> tuple[int, bool]:
    """(bytes, whether they are one character) of what begins with a byte past ASCII.

    Bytes that are no character are counted as Python's decoder replaces them: the longest start of a
    character that is not finished, else one byte.
    """
    first = source[at]
    low, high, size = 0x80, 0xBF, 0
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:  # surrogates are no characters
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    if size == 0:
        return 1, False
    for index in range(1, size):
        if at + index >= end or not low <= source[at + index] <= high:
            return index, False
        low, high = 0x80, 0xBF
    return size, True


@compiled
def _put_escape(byte: np.uint8, out: Bytes, at: Number) -> Number:
    """A control character, quote, backslash or less-than sign, escaped."""
    out[at] = _BACKSLASH
    if byte == _QUOTE or byte == _BACKSLASH:
        out[at + 1] = byte
        return at + 2
    if byte == 10:
        out[at + 1] = np.uint8(110)
        return at + 2
    out[at + 1] = np.uint8(117)
    out[at + 2] = out[at + 3] = np.uint8(48)
    out[at + 4] = _HEX[np.int64(byte) >> 4]
    out[at + 5] = _HEX[np.int64(byte) & 15]
    return at + 6


@inlined
def _is_plain(byte: np.uint8) -> bool:
    """Whether a byte may stand in a JSON string as it is."""
    return 32 <= byte < 128 and byte != _QUOTE and byte != _BACKSLASH and byte != _LESS


@compiled
def _put_wide(
    source: Bytes, begin: Number, end: Number, out: Bytes, at: Number
) -> tuple[Number, Number]:
    """What begins past ASCII, or U+FFFD: (position after it in the source, position after in out)."""
    size, is_character = _sequence(source, begin, end)
    if is_character:
        return begin + size, put_span(source, begin, begin + size, out, at)
    out[at], out[at + 1], out[at + 2] = np.uint8(0xEF), np.uint8(0xBF), np.uint8(0xBD)
    return begin + size, at + 3


@compiled
def put_text(source: Bytes, begin: Number, end: Number, out: Bytes, at: Number) -> Number:
    """Text as the inside of a JSON string."""
    while begin < end:
        byte = source[begin]
        if _is_plain(byte):
            out[at] = byte
            begin, at = begin + 1, at + 1
        elif byte < 128:
            at = _put_escape(byte, out, at)
            begin += 1
        else:
            begin, at = _put_wide(source, begin, end, out, at)
    return at


@compiled
def _escape_size(source: Bytes, at: Number, end: Number) -> int:
    """The length of the valid escape that begins with the backslash at ``at``, or 0."""
    if at + 1 >= end:
        return 0
    kind = source[at + 1]
    if kind == 117:
        if at + 6 > end:
            return 0
        for index in range(2, 6):
            byte = source[at + index]
            if not (48 <= byte <= 57 or 65 <= byte <= 70 or 97 <= byte <= 102):
                return 0
        return 6
    for known in (34, 92, 47, 98, 102, 110, 114, 116):
        if kind == known:
            return 2
    return 0


@compiled
def put_json_text(source: Bytes, begin: Number, end: Number, out: Bytes, at: Number) -> Number:
    """The inside of a JSON string that somebody else wrote, made valid where it is not."""
    while begin < end:
        byte = source[begin]
        size = _escape_size(source, begin, end) if byte == _BACKSLASH else 0
        if size:
            at = put_span(source, begin, begin + size, out, at)
            begin += size
        elif _is_plain(byte):
            out[at] = byte
            begin, at = begin + 1, at + 1
        elif byte < 128:
            at = _put_escape(byte, out, at)
            begin += 1
        else:
            begin, at = _put_wide(source, begin, end, out, at)
    return at


@compiled
def _digits_end(source: Bytes, at: Number, end: Number) -> Number:
    while at < end and 48 <= source[at] <= 57:
        at += 1
    return at


@compiled
def _is_scalar(source: Bytes, at: Number, end: Number) -> bool:
    """Whether the bytes are a JSON number, true, false or null."""
    for first, last in ((0, 4), (4, 9), (9, 13)):
        if end - at == last - first:
            same = True
            for index in range(first, last):
                same = same and source[at + index - first] == _LITERALS[index]
            if same:
                return True
    if at < end and source[at] == 45:
        at += 1
    start = at
    at = _digits_end(source, at, end)
    if at == start or (source[start] == 48 and at > start + 1):
        return False
    if at < end and source[at] == 46:
        start = at + 1
        at = _digits_end(source, start, end)
        if at == start:
            return False
    if at < end and (source[at] == 101 or source[at] == 69):
        at += 1
        if at < end and (source[at] == 43 or source[at] == 45):
            at += 1
        start = at
        at = _digits_end(source, start, end)
        if at == start:
            return False
    return at == end


@compiled
def put_scalar(source: Bytes, begin: Number, end: Number, out: Bytes, at: Number) -> Number:
    """A bare value that somebody else wrote; one that JSON has no word for (NaN) as a string."""
    if _is_scalar(source, begin, end):
        return put_span(source, begin, end, out, at)
    out[at] = _QUOTE
    at = put_text(source, begin, end, out, at + 1)
    out[at] = _QUOTE
    return at + 1


@compiled
def _put_digits(value: np.uint64, out: Bytes, at: Number) -> Number:
    size = 1
    rest = value // np.uint64(10)
    while rest > np.uint64(0):
        rest //= np.uint64(10)
        size += 1
    for index in range(size - 1, -1, -1):
        out[at + index] = np.uint8(48) + np.uint8(value % np.uint64(10))
        value //= np.uint64(10)
    return at + size


@compiled
def put_unsigned(value: np.uint64, out: Bytes, at: Number) -> Number:
    """An integer; in quotes where a double could not hold it."""
    if value <= _LARGEST_EXACT:
        return _put_digits(value, out, at)
    out[at] = _QUOTE
    at = _put_digits(value, out, at + 1)
    out[at] = _QUOTE
    return at + 1


@compiled
def put_integer(value: np.int64, out: Bytes, at: Number) -> Number:
    """An integer; in quotes where a double could not hold it."""
    if value >= 0:
        return put_unsigned(np.uint64(value), out, at)
    size = np.uint64(-(value + 1)) + np.uint64(1)  # the smallest has no positive twin
    is_quoted = size > _LARGEST_EXACT
    if is_quoted:
        out[at] = _QUOTE
        at += 1
    out[at] = np.uint8(45)
    at = _put_digits(size, out, at + 1)
    if is_quoted:
        out[at] = _QUOTE
        at += 1
    return at


@compiled
def put_microseconds(picoseconds: np.int64, out: Bytes, at: Number) -> Number:
    """Picoseconds as decimal microseconds, exactly, without zeros at the end."""
    if picoseconds < 0:
        out[at] = np.uint8(45)
        at += 1
        picoseconds = -picoseconds
    whole = picoseconds // 1_000_000
    rest = picoseconds - whole * 1_000_000
    at = _put_digits(np.uint64(whole), out, at)
    if rest == 0:
        return at
    out[at] = np.uint8(46)
    at += 1
    power = np.int64(100_000)
    while rest > 0:
        digit = rest // power
        out[at] = np.uint8(48 + digit)
        rest -= digit * power
        power //= 10
        at += 1
    return at
