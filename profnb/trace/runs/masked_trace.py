"""A protobuf as it was recorded to the same one as it may leave: its texts masked, each in as many bytes.

So nothing in it moves, and who reads it finds what he found. Which bytes are a text is not known of a message
inside of another (an HLO module, a graph): a field is taken for a message where it reads as one to its end.
"""

import re
from collections.abc import Iterator

from profnb.core.columns import Bytes
from profnb.core.sharing import Sharing

_MOST_NESTED, _MOST_FIELDS = 40, 1 << 16
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_PATHS = rb"[/\\][^\x00-\x1f/\\\\]+[/\\\\]"
_FILES = rb"\.[A-Za-z]\w|-of-|://"
Spans = list[tuple[int, int]]


def masked(recorded: Bytes, sharing: Sharing) -> bytes:
    """Mask what no file that leaves may hold.

    Args:
        recorded: A serialized protobuf.
        sharing: What may leave.

    Returns:
        As many bytes; the same ones where they hold nothing of that kind, or are no protobuf.
    """
    raw = bytearray(recorded.tobytes())
    looked_for = [_PATHS, *map(re.escape, sharing.names)] + ([] if sharing.has_files else [_FILES])
    matches = re.finditer(b"|".join(looked_for), raw)
    _mask(raw, _fields(raw, 0, len(raw)), [match.start() for match in matches], sharing, 0)
    return bytes(raw)


def _mask(
    raw: bytearray,
    fields: Iterator[tuple[int, int]],
    places: list[int],
    sharing: Sharing,
    depth: int,
) -> None:
    """Mask the texts around some places, ascending, in the fields of a message."""
    row = 0
    for begin, end in fields:
        while row < len(places) and places[row] < begin:
            row += 1
        first = row
        while row < len(places) and places[row] < end:
            row += 1
        if first == row:
            continue
        inner = _as_message(raw, begin, end) if depth < _MOST_NESTED else None
        if inner is not None:
            _mask(raw, iter(inner), places[first:row], sharing, depth + 1)
        elif not _CONTROL.search(raw, begin, end):
            text = raw[begin:end].decode("latin-1")  # a character for each byte
            raw[begin:end] = sharing.masked(text).encode("latin-1")


def _as_message(raw: bytearray, at: int, end: int) -> Spans | None:
    """The fields with a length of a message; None where the bytes are none."""
    try:
        return list(_fields(raw, at, end))
    except ValueError:
        return None


def _fields(raw: bytearray, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Where each field with a length lies.

    Raises:
        ValueError: The bytes are no message.
    """
    while at < end:
        key, at = _varint(raw, at, end)
        kind = key & 7
        if not 0 < key >> 3 < _MOST_FIELDS or kind not in _SIZES:
            raise ValueError("no field of a message")
        size = _SIZES[kind]
        if kind == _VARINT:
            _, at = _varint(raw, at, end)
        elif kind == _LENGTH:
            size, at = _varint(raw, at, end)
            yield at, min(at + size, end)
        at += size
    if at > end:
        raise ValueError("a field goes beyond its message")


_VARINT, _LENGTH = 0, 2
_SIZES = {_VARINT: 0, 1: 8, _LENGTH: 0, 5: 4}


def _varint(raw: bytearray, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("no number of a message")
