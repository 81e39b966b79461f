"""A trace file to when it was recorded and where, without reading the rest of it.

TensorFlow and JAX write a plane ``Task Environment`` with the nanoseconds since 1970 at which the profiler
started and stopped (xla profiler/utils/xplane_schema.h: kTaskEnvPlaneName), and the hosts' names behind the
planes. Only those are read; what else a file holds is skipped by its length.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.regular_files import open_regular

_PLANE, _HOSTNAME = 1, 4  # fields of XSpace
_NAME, _STAT_NAMES, _STATS = 2, 5, 6  # of XPlane
_ENVIRONMENT = b"Task Environment"
_START, _STOP = "profile_start_time", "profile_stop_time"
_HEAD, _MOST_BYTES, _MOST_FIELDS, _LARGEST = 64, 1 << 20, 100_000, 1 << 62


@dataclass(frozen=True, slots=True)
class CaptureTime:
    """When and where a trace was recorded.

    Attributes:
        begin_ns: When the profiler started, by the host's clock, in nanoseconds since 1970; 0 if unknown.
        end_ns: When it stopped; 0 if unknown.
        hostname: The host; "" if unknown.
    """

    begin_ns: int = 0
    end_ns: int = 0
    hostname: str = ""

    @property
    def is_known(self) -> bool:
        """Whether both times are."""
        return 0 < self.begin_ns < self.end_ns

    def overlaps(self, other: "CaptureTime") -> bool:
        """Whether both were being recorded at some time, as far as their clocks agree."""
        if not self.is_known or not other.is_known:
            return False
        return self.begin_ns < other.end_ns and other.begin_ns < self.end_ns


def capture_time(stats: "dict[str, int | float | str | bytes]", hostname: str = "") -> CaptureTime:
    """The same of the environment's stats as a reader gives them."""
    begin, end = stats.get(_START), stats.get(_STOP)
    return CaptureTime(
        begin if isinstance(begin, int) else 0, end if isinstance(end, int) else 0, hostname
    )


def read_capture_time(file: Path) -> CaptureTime:
    """When and where a file was recorded; of what is no XSpace, or a damaged one, nothing is known."""
    try:
        with open_regular(file) as opened:
            return _read(opened, os.fstat(opened.fileno()).st_size)
    except (TraceFormatError, PermissionError, FileNotFoundError, ValueError, IndexError):
        return CaptureTime()


def _read(opened: RawIOBase, size: int) -> CaptureTime:
    at, times, hostname = 0, CaptureTime(), ""
    for _ in range(_MOST_FIELDS):
        if at >= size:
            break
        head = _bytes_at(opened, _HEAD, at)
        key, inner = _varint(head, 0)
        if key & 7 != 2:  # an XSpace has nothing else
            return CaptureTime()
        length, inner = _varint(head, inner)
        begin, at = at + inner, at + inner + length
        if at > size:
            return CaptureTime()
        if key >> 3 == _PLANE and length <= _MOST_BYTES and _ENVIRONMENT in head[inner:]:
            times = _times_of(_bytes_at(opened, length, begin))
        elif key >> 3 == _HOSTNAME and not hostname and length <= _HEAD * 16:
            hostname = printable(_bytes_at(opened, length, begin).decode("utf-8", "replace"))
    return CaptureTime(times.begin_ns, times.end_ns, hostname)


def _bytes_at(opened: RawIOBase, length: int, at: int) -> bytes:
    opened.seek(at)
    return opened.read(length) or b""


def _times_of(plane: bytes) -> CaptureTime:
    names: dict[int, str] = {}
    values: dict[int, int] = {}
    is_environment = False
    for field, value in _fields(plane):
        if field == _NAME:
            is_environment = value == _ENVIRONMENT
        elif isinstance(value, int):
            continue
        elif field == _STAT_NAMES:  # a map's entry: the key, and metadata with the name
            entry = dict(_fields(value))
            meta = entry.get(2, b"")
            name = dict(_fields(meta)).get(2, b"") if isinstance(meta, bytes) else b""
            number = entry.get(1, 0)
            if isinstance(name, bytes) and isinstance(number, int):
                names[number] = name.decode("utf-8", "replace")
        elif field == _STATS:
            stat = dict(_fields(value))
            key, time_ns = stat.get(1), stat.get(3, stat.get(4))
            if isinstance(key, int) and isinstance(time_ns, int) and time_ns < _LARGEST:
                values[key] = time_ns
    if not is_environment:
        return CaptureTime()
    by_name = {names.get(key, ""): value for key, value in values.items()}
    return CaptureTime(by_name.get(_START, 0), by_name.get(_STOP, 0))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("no field of a message")
        if at + length > len(message):
            raise ValueError("a field goes beyond its message")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
