"""Traces built by hand, in a few readable lines, as the bytes of an XSpace.

Independent of the reader under test: this writes protobuf wire format from nested Python values.
Times are integer picoseconds.
"""

import gzip
import json
import struct

import numpy as np

from profnb.capture.saved.sidecar import sidecar_of
from profnb.subjects.ops.op_table import OpTable
from profnb.trace.model import Trace
from profnb.trace.xplane import read_xplane


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*fields):
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def event(name, begin, duration, /, **stats):
    """An event; a stat's leading underscores stay, values are int, float, str or ref("text")."""
    return name, begin, duration, stats


class ref(str):
    """A text stat stored as a reference into the stat dictionary, as TensorFlow does."""


def line(name, *events, timestamp_ns=0, line_id=1):
    return name, timestamp_ns, line_id, events


def plane(name, *lines, stats=None, of_names=None):
    """A plane; ``of_names`` are stats that hold for every event of a name, by name."""
    names, keys = {}, {}

    def key(text):
        return keys.setdefault(text, len(keys) + 1)

    def stat(text, value):
        if isinstance(value, ref):
            return message((1, key(text)), (7, key(str(value))))
        if isinstance(value, bytes):
            return message((1, key(text)), (6, value))
        if isinstance(value, str):
            return message((1, key(text)), (5, value))
        if isinstance(value, float):
            return message((1, key(text)), (2, value))
        return message((1, key(text)), (3 if value >= 1 << 63 else 4, value))

    body = []
    for line_name, timestamp_ns, line_id, events in lines:
        encoded = [
            (4, message((1, names.setdefault(n, len(names) + 1)), (2, begin), (3, duration),
                        *((4, stat(k, v)) for k, v in stats_.items())))
            for n, begin, duration, stats_ in events
        ]
        body.append((3, message((1, line_id), (2, line_name), (3, timestamp_ns), *encoded)))
    own = [(6, stat(k, v)) for k, v in (stats or {}).items()]
    told = of_names or {}
    for text in told:
        names.setdefault(text, len(names) + 1)
    metadata = [
        (4, message((1, i), (2, message((1, i), (2, n), *((5, stat(k, v)) for k, v in told.get(n, {}).items())))))
        for n, i in names.items()
    ]
    dictionary = [(5, message((1, i), (2, message((1, i), (2, n))))) for n, i in keys.items()]
    return message((2, name), *body, *metadata, *dictionary, *own)


def xspace(*planes, hostnames=(), errors=()):
    return message(*((1, p) for p in planes), *((2, e) for e in errors), *((4, h) for h in hostnames))


def read(*planes, **rest) -> Trace:
    return read_xplane(np.frombuffer(xspace(*planes, **rest), np.uint8), "built.xplane.pb")


def host(*lines):
    return plane("/host:CPU", *lines)


def gpu(*lines, number=0, stats=None):
    return plane(f"/device:GPU:{number}", *lines, stats=stats)


def told_beside(path):
    """What profnb wrote beside a trace, as JSON values."""
    return json.loads(gzip.decompress(sidecar_of(path).read_bytes()))


def tell_beside(path, told):
    """Write JSON values, or any bytes, beside a trace."""
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    sidecar_of(path).write_bytes(gzip.compress(raw, 1))


def op_table(rows):
    """An op table of (is_device, name, type, occurrences, self time, total time)."""
    is_device, names, types, *numbers = zip(*rows, strict=True)
    occurrences, self_ps, total_ps = (np.array(column, np.int64) for column in numbers)
    return OpTable(np.array(is_device), types, names, occurrences, total_ps, self_ps)
