"""Columns to JSON text: numbers, times and strings written into one byte buffer by compiled kernels.

Each kernel writes at a position and returns the position after; the caller has made room.
"""

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.jit import compiled

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_REPLACEMENT = np.array([0xEF, 0xBF, 0xBD], np.uint8)  # U+FFFD


@compiled
def put_bytes(out: Bytes, at: int, text: Bytes, begin: int, end: int) -> int:
    """Copy bytes; returns the position after them."""
    for index in range(begin, end):
        out[at] = text[index]
        at += 1
    return at


@compiled
def put_unsigned(out: Bytes, at: int, value: np.uint64) -> int:
    """An unsigned integer in decimal; returns the position after it. At most 20 bytes."""
    size, rest = 1, value // np.uint64(10)
    while rest > np.uint64(0):
        size += 1
        rest //= np.uint64(10)
    for index in range(size):
        out[at + size - 1 - index] = np.uint8(48) + np.uint8(value % np.uint64(10))
        value //= np.uint64(10)
    return at + size


@compiled
def put_integer(out: Bytes, at: int, value: int) -> int:
    """An integer in decimal; returns the position after it. At most 20 bytes."""
    if value < 0:
        out[at] = 45
        return put_unsigned(out, at + 1, np.uint64(0) - np.uint64(value))
    return put_unsigned(out, at, np.uint64(value))


@compiled
def put_microseconds(out: Bytes, at: int, picoseconds: int) -> int:
    """A time that is not negative as exact microseconds, without trailing zeros. At most 28 bytes."""
    at = put_integer(out, at, picoseconds // 1_000_000)
    rest = picoseconds % 1_000_000
    if rest:
        out[at] = 46
        at += 1
        power = 100_000
        while rest:
            out[at] = np.uint8(48 + rest // power)
            at += 1
            rest %= power
            power //= 10
    return at


@compiled
def _character_size(text: Bytes, at: int, end: int) -> int:
    """How many bytes the UTF-8 character at a position has; 0 if it is none."""
    first = text[at]
    if first < 0x80:
        return 1
    size = 0
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
    elif 0xF0 <= first <= 0xF4:
        size = 4
    if size == 0 or at + size > end:
        return 0
    for index in range(1, size):
        if text[at + index] & 0xC0 != 0x80:
            return 0
    second = text[at + 1]
    is_bad = (
        (first == 0xE0 and second < 0xA0)
        or (first == 0xED and second >= 0xA0)
        or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second >= 0x90)
    )
    return 0 if is_bad else size


@compiled
def put_escaped(out: Bytes, at: int, text: Bytes, begin: int, end: int) -> int:
    """Bytes as a JSON string in quotes, at most 6 bytes for each and 2; what is not UTF-8 becomes U+FFFD."""
    out[at] = 34
    at += 1
    position = begin
    while position < end:
        byte = text[position]
        if byte == 34 or byte == 92:
            out[at], out[at + 1] = 92, byte
            at += 2
            position += 1
        elif byte < 32 or byte == 60:  # "<" as well: the text may come to stand in a page
            out[at], out[at + 1], out[at + 2], out[at + 3] = 92, 117, 48, 48
            out[at + 4], out[at + 5] = _HEX[byte >> 4], _HEX[byte & 15]
            at += 6
            position += 1
        else:
            size = _character_size(text, position, end)
            if size == 0:
                at = put_bytes(out, at, _REPLACEMENT, 0, 3)
                position += 1
            else:
                at = put_bytes(out, at, text, position, position + size)
                position += size
    out[at] = 34
    return at + 1


def joined(texts: list[bytes]) -> tuple[Bytes, Int64s]:
    """N byte strings in one buffer: text n is ``buffer[offsets[n]:offsets[n + 1]]``."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return np.frombuffer(b"".join(texts), np.uint8), offsets
