"""Stats of an XSpace to JSON objects, for the ``args`` of a Chrome trace."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.core.columns import Bytes, Int32s, Int64s
from profnb.core.jit import compiled
from profnb.trace.chrome.json_text import joined, put_bytes, put_escaped, put_integer, put_unsigned

# Field numbers of the value in message XStat (tensorflow/tsl profiler/protobuf/xplane.proto).
DOUBLE, UINT64, INT64, TEXT, BYTES, REFERENCE = 2, 3, 4, 5, 6, 7


@dataclass(frozen=True, slots=True)
class StatCsr:
    """The stats of E events: event e owns entries ``offsets[e]:offsets[e + 1]``.

    Attributes:
        offsets: Shape (E + 1,).
        key: Row of the stat's name, or -1 where the file lacks it, shape (N,).
        kind: Number of the value's field in XStat, shape (N,).
        value: The bits of a number, the row of a reference, or where a text begins, shape (N,).
        size: How many bytes a text has, shape (N,).
    """

    offsets: Int64s
    key: Int32s
    kind: Bytes
    value: Int64s
    size: Int32s


class StatTexts:
    """The stats of a trace's events as JSON objects, piece by piece.

    Args:
        buffer: The whole file.
        csr: Its stats.
        names: The names and texts that stats refer to.
    """

    def __init__(self, buffer: Bytes, csr: StatCsr, names: Sequence[str]) -> None:
        """Nothing is written yet."""
        self._buffer, self._csr, self._names = buffer, csr, names

    def of_events(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        """JSON objects of events ``first`` to ``last``, in one buffer with offsets."""
        keys, key_offsets, doubles, double_offsets = self._parts
        csr = self._csr
        entries = slice(csr.offsets[first], csr.offsets[last])
        kind = csr.kind[entries]
        rows = np.maximum(csr.key[entries], 0)
        is_text = kind == TEXT
        by_reference = kind == REFERENCE
        lengths = np.diff(key_offsets)
        room = int(lengths[rows].sum()) + 32 * kind.size + 2 * (last - first)
        room += int(6 * csr.size[entries][is_text].sum(dtype=np.int64))
        room += int(lengths[np.maximum(csr.value[entries][by_reference], 0)].sum())
        out = np.empty(room, np.uint8)
        offsets = np.zeros(last - first + 1, np.int64)
        _format_stats(
            self._buffer, first, last, csr.offsets, csr.key, csr.kind, csr.value, csr.size,
            keys, key_offsets, doubles, double_offsets, out, offsets,
        )  # fmt: skip
        return out[: offsets[-1]], offsets

    @cached_property
    def _parts(self) -> tuple[Bytes, Int64s, Bytes, Int64s]:
        """Keys as JSON texts, and the double of each entry as JSON text (empty for other kinds)."""
        keys = [json.dumps(text).replace("<", "\\u003c").encode() for text in self._names]
        csr = self._csr
        doubles = [b""] * csr.kind.size if (csr.kind == DOUBLE).any() else [b""]
        for entry in np.flatnonzero(csr.kind == DOUBLE).tolist():
            number = float(csr.value[entry : entry + 1].view(np.float64)[0])
            doubles[entry] = repr(number).encode() if np.isfinite(number) else b"null"
        return (*joined(keys), *joined(doubles))


@compiled
def _format_stats(
    buffer: Bytes, first: int, last: int, offsets: Int64s, key: Int32s, kind: Bytes, value: Int64s,
    size: Int32s, keys: Bytes, key_offsets: Int64s, doubles: Bytes, double_offsets: Int64s,
    out: Bytes, out_offsets: Int64s,
) -> None:  # fmt: skip
    """Write each event's stats as one JSON object; a value of unknown kind or bytes is left out."""
    at = 0
    for event in range(first, last):
        start = at
        for entry in range(offsets[event], offsets[event + 1]):
            row, sort = key[entry], kind[entry]
            if row < 0 or sort < 2 or sort > 7 or sort == 6 or (sort == 7 and value[entry] < 0):
                continue
            out[at] = 123 if at == start else 44
            at = put_bytes(out, at + 1, keys, key_offsets[row], key_offsets[row + 1])
            out[at] = 58
            at += 1
            bits = value[entry]
            if sort == 2:
                at = put_bytes(out, at, doubles, double_offsets[entry], double_offsets[entry + 1])
            elif sort == 5:
                at = put_escaped(out, at, buffer, bits, bits + size[entry])
            elif sort == 7:
                at = put_bytes(out, at, keys, key_offsets[bits], key_offsets[bits + 1])
            else:  # 64-bit ids as text: many readers have only floats
                is_long = bits > 9007199254740992 or bits < -9007199254740992
                if is_long:
                    out[at] = 34
                    at += 1
                at = (
                    put_unsigned(out, at, np.uint64(bits))
                    if sort == 3
                    else put_integer(out, at, bits)
                )
                if is_long:
                    out[at] = 34
                    at += 1
        if at > start:
            out[at] = 125
            at += 1
        out_offsets[event - first + 1] = at
