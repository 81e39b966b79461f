"""A profile of pprof (its protobuf, gzipped or not) to what it sampled: bytes to a ``Trace``, time to stacks.

A profile has values per stack, often of several types. Read is the one that it names as its own, else the
last one, as pprof does; of counts alone nothing can be said. As in ``pprof -top``, a value is the innermost
function's own (flat) and of each function on the stack, once (cum). Inlined calls are calls.

Bytes belong to the line that asked for them, as with ``pprof -top -lines -hide=(site|dist)-packages``: a
package's own frames are left out, so that the program's innermost line stands there.

Source: google/pprof, proto/profile.proto and internal/report/report.go; jaxlib's heap profile (0.7).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.trace.memory.allocations import Allocations, line_name
from profnb.trace.model import Trace
from profnb.trace.nvidia.records import trace_of
from profnb.trace.wire import LENGTH, VARINT, Messages, read_plain_varint

Function = tuple[str, str, int]

_TYPES, _SAMPLES, _MAPPINGS, _LOCATIONS, _FUNCTIONS, _TEXTS = 1, 2, 3, 4, 5, 6
_MESSAGES = (1, 2, 3, 4, 5, 6, 11)
_VALUE_TYPE = re.compile(rb"\x08[\x80-\xff]{0,3}[\x00-\x7f](?:\x10[\x80-\xff]{0,3}[\x00-\x7f])?")
_PERIOD_TYPE, _PERIOD, _DEFAULT = 11, 12, 14
_NS = {
    "nanoseconds": 1, "ns": 1, "microseconds": 10**3, "us": 10**3, "milliseconds": 10**6, "ms": 10**6,
    "seconds": 10**9, "s": 10**9,
}  # fmt: skip
_BYTES = {
    "bytes": 1, "byte": 1, "b": 1, "kilobytes": 1 << 10, "kb": 1 << 10, "megabytes": 1 << 20, "mb": 1 << 20,
}  # fmt: skip
_PACKAGES = ("/site-packages/", "/dist-packages/")
# 104 days of nanoseconds, 9 petabytes: sums stay inside int64 picoseconds
_LARGEST_VALUE = 9 * 10**15
_MOST_FRAMES, _MOST_MESSAGES = 10_000_000, 2_000_000
_LONGEST_TEXT = 300
_Frames = list[tuple[int, int]]  # (function, line), the innermost first


@dataclass(frozen=True, slots=True)
class SampledStacks:
    """S stacks, and how long a program was in each.

    Attributes:
        kind: The type of the samples, as the profiler calls it.
        functions: (name, file, first line) of each function.
        stacks: The functions of each stack, the outermost first.
        samples: How often each was met, shape (S,); -1 where that is not counted.
        time_ns: Time in each, shape (S,).
    """

    kind: str
    functions: tuple[Function, ...]
    stacks: tuple[tuple[int, ...], ...]
    samples: Int64s
    time_ns: Int64s


def is_pprof(head: bytes) -> bool:
    """Tell whether bytes are fields of a profile up to the first that says what is sampled."""
    at = 0
    try:
        while at < len(head):
            key, at = read_plain_varint(head, at, len(head))
            kind = LENGTH if key >> 3 in _MESSAGES else VARINT
            if key & 7 != kind or not 0 < key >> 3 <= _DEFAULT:
                return False
            size, at = read_plain_varint(head, at, len(head))
            if key >> 3 == _TYPES:
                return _VALUE_TYPE.fullmatch(head[at : at + size]) is not None
            at += size if key & 7 == LENGTH else 0
    except ValueError:  # no number of a message
        pass
    return False


def read_pprof(buffer: Bytes, source: str) -> Trace | SampledStacks:
    """Read a profile."""
    return _Profile(buffer).read(source)


class _Profile:
    def __init__(self, buffer: Bytes) -> None:
        self._whole = Messages.whole(buffer, "profile of pprof")
        self._texts = self._split(_TEXTS, "text").texts()
        self._samples = self._split(_SAMPLES, "sample")
        if not len(self._samples):
            raise TraceFormatError(
                "A profile of pprof without a sample. Record it while the program works."
            )

    def _split(self, field: int, kind: str) -> Messages:
        messages = self._whole.split(field, f"{kind} of pprof")
        return messages.at_most(_MOST_MESSAGES, f"{kind}s", "profile")

    def _text(self, row: int) -> str:
        return printable(self._texts[row][:_LONGEST_TEXT]) if 0 <= row < len(self._texts) else ""

    def read(self, source: str) -> Trace | SampledStacks:
        kind, unit, values, counts = self._values()
        kept = np.flatnonzero(values)
        samples, counts = self._samples.rows(kept), counts[kept]
        functions, stacks = self._stacks(samples)
        if unit in _BYTES:
            lines = [_line_of(functions, stack) for stack in stacks]
            sizes = values[kept] * _BYTES[unit]
            return _trace_of_memory(source, self._holders(samples, kind), lines, sizes, counts)
        called = tuple(tuple(function for function, _ in reversed(stack)) for stack in stacks)
        return SampledStacks(kind, functions, called, counts, values[kept] * _NS[unit])

    def _values(self) -> tuple[str, str, Int64s, Int64s]:
        """Choose a type of samples: its name, unit, values and the counts beside them, each of shape (S,)."""
        types = [
            (self._text(name), self._text(unit).lower())
            for name, unit in zip(*self._split(_TYPES, "type").numbers(1, 2), strict=True)
        ]
        default, period = (int(one[0]) for one in self._whole.numbers(_DEFAULT, _PERIOD))
        offsets, numbers = self._samples.split_numbers(2)
        if not types or (np.diff(offsets) != len(types)).any():
            raise TraceFormatError(
                "A sample has another number of values than there are types of samples."
            )
        columns = numbers.reshape(-1, len(types)).T
        usable = [row for row, (_, unit) in enumerate(types) if unit in _NS or unit in _BYTES]
        chosen = [row for row in usable if types[row][0] == self._text(default)] or usable
        row, scale = chosen[-1] if chosen else -1, 1
        (kind, unit), values = types[row], columns[row]
        counts = values
        if chosen:
            counted = [before for before in range(row) if types[before][1] == "count"]
            counts = columns[counted[-1]] if counted else np.full(values.size, -1)
        else:
            (period_unit,) = self._whole.inner(_PERIOD_TYPE, "type of pprof").numbers(2)
            unit, scale = self._text(int(period_unit[0])).lower(), period
        largest = _LARGEST_VALUE // max(_NS.get(unit, 1), _BYTES.get(unit, 1))
        if unit not in _NS and unit not in _BYTES:
            listed = ", ".join(name for name, _ in types[:5])
            raise TraceFormatError(
                f"A profile of pprof that only counts ({listed}). profnb shows bytes or time."
            )
        if values.min() < 0:
            raise TraceFormatError(
                "A profile of pprof with values below 0: the difference of two. Open each of them alone."
            )
        if float(values.sum(dtype=np.float64)) * max(scale, 1) > largest:
            raise TraceFormatError(f"A profile of pprof with more {unit} than any program has.")
        return kind, unit, values * scale, np.maximum(counts, -1)

    def _stacks(self, samples: Messages) -> tuple[tuple[Function, ...], list[_Frames]]:
        """Find the functions, and the stack of each sample, the innermost frame first."""
        functions = self._split(_FUNCTIONS, "function")
        rows: dict[Function, int] = {}
        row_of = {}
        columns = (one.tolist() for one in functions.numbers(1, 2, 3, 4, 5))
        for number, name, other, file_text, start in zip(*columns, strict=True):
            title = self._text(name) or self._text(other)
            function = title, self._text(file_text), max(start, 0)
            row_of[number] = rows.setdefault(function, len(rows))
        mappings = self._split(_MAPPINGS, "mapping")
        file_of = dict(zip(*(one.tolist() for one in mappings.numbers(1, 5)), strict=True))
        locations = self._split(_LOCATIONS, "location")
        lines = locations.split(4, "line of pprof").at_most(_MOST_MESSAGES, "lines", "profile")
        called, line = (one.tolist() for one in lines.numbers(1, 2))
        frames: dict[int, _Frames] = {}
        identities = zip(*(one.tolist() for one in locations.numbers(1, 2)), strict=True)
        for at, (number, mapping) in enumerate(identities):
            inlined = range(*lines.offsets[at : at + 2].tolist())
            frames[number] = [
                (row_of[called[one]], line[one]) for one in inlined if called[one] in row_of
            ]
            if not frames[number]:  # without symbols: its program or library, as pprof shows
                file = self._text(file_of.get(mapping, 0))
                unknown = f"[{file.rpartition('/')[2]}]" if file else "<unknown>", file, 0
                frames[number] = [(rows.setdefault(unknown, len(rows)), 0)]
        offsets, numbers = samples.split_numbers(1)
        places = numbers.tolist()
        if sum(len(frames.get(place, ())) for place in places) > _MOST_FRAMES:
            raise TraceFormatError(
                f"A profile of pprof with more than {_MOST_FRAMES:,} frames in its stacks. Record less."
            )
        stacks = [
            [frame for place in places[begin:end] for frame in frames.get(place, ())]
            for begin, end in pairwise(offsets.tolist())
        ]
        return tuple(rows), stacks

    def _holders(self, samples: Messages, kind: str) -> list[str]:
        """Name who holds the bytes of each sample: JAX labels the device, or what has none."""
        labels = samples.split(3, "label of pprof").at_most(_MOST_MESSAGES, "labels", "profile")
        keys, texts = (one.tolist() for one in labels.numbers(1, 2))
        holders = [kind] * len(samples)
        for wanted in ("kind", "device"):
            for at, key, text in zip(labels.parents.tolist(), keys, texts, strict=True):
                if self._text(key) == wanted and self._text(text):
                    holders[at] = self._text(text)
        return holders


def _trace_of_memory(
    source: str, holders: Sequence[str], lines: Sequence[str], sizes: Int64s, counts: Int64s
) -> Trace:
    """Make a trace of the bytes that were held at one moment."""
    records = []
    for number, holder in enumerate(dict.fromkeys(holders)):
        rows = np.array([row for row, name in enumerate(holders) if name == holder])
        in_use = np.full(rows.size, -1)
        in_use[-1] = sizes[rows].sum()
        records.append(Allocations(
            holder, number, np.zeros_like(rows), sizes[rows], in_use, np.arange(rows.size),
            [lines[row] for row in rows.tolist()], np.maximum(counts[rows], 1),
        ).records())  # fmt: skip
    return trace_of(source, "pprof", records)


def _line_of(functions: Sequence[Function], stack: _Frames) -> str:
    """Name the innermost line that is in no package, else the innermost of all."""
    if not stack:
        return ""
    files = ((frame, functions[frame[0]][1]) for frame in stack)
    kept = (frame for frame, file in files if not any(part in file for part in _PACKAGES))
    function, line = next(kept, stack[0])
    name, file, _ = functions[function]
    return line_name(file, line, name)
