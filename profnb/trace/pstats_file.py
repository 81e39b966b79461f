"""A ``.prof`` file, as the standard library's profilers save it, to counts per function and per call.

Such a file is a dictionary written by ``marshal``: (file, line, name) to (primitive calls, calls, seconds
in the function alone, seconds in it and what it called, callers), callers being the same of the part that
each caller caused. ``marshal.loads`` may crash the interpreter on a file that was made to, so the few types
that occur are read here, and nothing but them.

Source: Lib/cProfile.py, Lib/pstats.py, Python/marshal.c (3.13).
"""

import struct
from dataclasses import dataclass
from typing import Any

from profnb.core.errors import TraceFormatError

_LONGEST_S, _MOST_CALLS, _LAST_LINE = 9e6, 1 << 53, 1 << 31  # 104 days: what picoseconds can hold
_DEEPEST_MARSHALLED, MOST_PSTATS_BYTES, _LONGEST_BYTES = 12, 256 << 20, 2_000
_DICT, _DICT_END, _REF = ord("{"), ord("0"), 0x80
_TEXTS_OF_4, _TEXTS_OF_1 = frozenset(b"uastAt"), frozenset(b"zZ")
_NUMBER_TYPES = {ord("i"): "<i", ord("g"): "<d"}
_CONSTANTS = {ord("N"): None, ord("T"): True, ord("F"): False}

Function = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The counts of a deterministic profiler.

    Attributes:
        functions: (name, file, line) of each of the N functions.
        calls: How often each was called.
        self_s: Seconds in each alone.
        total_s: Seconds in each and what it called.
        edges: (row of the caller, row of the function, seconds in the function for that caller).
    """

    functions: tuple[Function, ...]
    calls: tuple[int, ...]
    self_s: tuple[float, ...]
    total_s: tuple[float, ...]
    edges: tuple[tuple[int, int, float], ...]


def read_pstats(data: bytes) -> CallCounts:
    """Read a saved profile."""
    if len(data) > MOST_PSTATS_BYTES:
        raise TraceFormatError(
            f"A profile of cProfile of more than {MOST_PSTATS_BYTES / 1e6:,.0f} MB. Profile less."
        )
    try:
        return _counts(_Reader(data).read(0))
    except (ValueError, IndexError, struct.error, OverflowError) as error:
        raise TraceFormatError(
            f"No profile of Python's cProfile, or a damaged one ({error}). Expected a file that "
            "`cProfile.Profile.dump_stats` wrote."
        ) from None


class _Pairs(list[tuple[object, object]]):
    """A dictionary as pairs; its keys are not hashed before they were looked at."""


class _Reader:
    """Reads marshalled values of the types that profiles are made of."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._seen: list[object] = []

    def _take(self, size: int) -> bytes:
        first, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise ValueError("it ends too early")
        return self._data[first : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def read(self, depth: int) -> object:
        """The next value."""
        if depth > _DEEPEST_MARSHALLED:
            raise ValueError("its values are nested too deeply")
        code = self._take(1)[0]
        kind, is_seen = code & ~_REF, bool(code & _REF)
        if kind == ord("r"):
            at = self._number("<I")
            if at >= len(self._seen) or self._seen[at] is None:
                raise ValueError("it refers to what is not there")
            return self._seen[at]
        row = len(self._seen)
        if is_seen:
            self._seen.append(None)
        value = self._value(kind, depth)
        if is_seen:
            self._seen[row] = value
        return value

    def _value(self, kind: int, depth: int) -> object:
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _TEXTS_OF_4 or kind in _TEXTS_OF_1:
            size = self._number("<I") if kind in _TEXTS_OF_4 else self._number("<B")
            return self._take(size)[:_LONGEST_BYTES].decode("utf-8", "replace")
        if kind in _NUMBER_TYPES:
            return self._number(_NUMBER_TYPES[kind])
        if kind == ord("l"):
            size = self._number("<i")
            if abs(size) > 8:
                raise ValueError("it has a number of too many digits")
            value = sum(self._number("<H") << (15 * digit) for digit in range(abs(size)))
            return -value if size < 0 else value
        if kind in b"()":
            size = self._number("<I") if kind == ord("(") else self._number("<B")
            if size > 16:
                raise ValueError("it has a tuple of too many values")
            return tuple(self.read(depth + 1) for _ in range(size))
        if kind == _DICT:
            pairs = _Pairs()
            while self._data[self._at : self._at + 1] != bytes([_DICT_END]):
                pairs.append((self.read(depth + 1), self.read(depth + 1)))
            self._take(1)
            return pairs
        raise ValueError(f"it holds a value of type {chr(kind)!r}")


def _function(key: object) -> Function:
    match key:
        case (str(file), int(line), str(name)) if abs(line) < _LAST_LINE:
            return name, file, line
    raise ValueError("a key is not (file, line, function)")


def _measured(value: object) -> tuple[int, float, float]:
    """(calls, seconds alone, seconds in all) of (primitive calls, calls, seconds, seconds, ...)."""
    match value:
        case (int(), int(calls), float() | int() as alone, float() | int() as total, *_):
            is_time = abs(alone) < _LONGEST_S and abs(total) < _LONGEST_S  # NaN is not
            if 0 <= calls < _MOST_CALLS and is_time:
                return calls, float(alone), float(total)
    raise ValueError("a function's counts are not what they should be")


def _counts(stats: object) -> CallCounts:
    if not isinstance(stats, _Pairs):
        raise ValueError("it holds no dictionary")  # noqa: TRY004 - the file is wrong, not a type
    rows: dict[Function, int] = {}
    measured = []
    for key, value in stats:
        function = _function(key)
        if function not in rows:
            rows[function] = len(rows)
            measured.append(_measured(value))
    edges = []
    for key, value in stats:
        callers = value[4] if isinstance(value, tuple) and len(value) > 4 else None
        for caller, part in callers if isinstance(callers, _Pairs) else ():
            row = rows.get(_function(caller))
            if row is not None:
                edges.append((row, rows[_function(key)], _measured(part)[2]))
    if sum(alone for _, alone, _ in measured) > _LONGEST_S:
        raise ValueError("its functions took longer than 104 days")
    calls, alone, total = zip(*measured, strict=True) if measured else ((), (), ())
    return CallCounts(tuple(rows), calls, alone, total, tuple(edges))
