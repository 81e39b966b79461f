"""Device copies to the copies table: direction, bytes, bandwidth, and what kind of host memory.

Sizes are in the stat ``memcpy_details``: ``kind_src:pageable kind_dst:device size:4096 dest:0 async:1``, in
traces up to TensorFlow 2.4 without the kinds. A copy from pageable host memory goes through a pinned
buffer of the driver's, so it is slower and the host waits for it. The official tool looks for
``num_bytes:`` there and shows 0 bytes. PyTorch has the size in ``bytes`` and the kinds in the name, ``Memcpy
HtoD (Pageable -> Device)``. A TPU's copies are XLA's instructions; what is recorded on the core is
starting them and waiting for them (``copy-done``).

Source: openxla/xla cupti_collector.cc CreateXEvent (5a3e9fa3).
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s, RowColumns
from profnb.core.table import Column, Table, field_column
from profnb.core.units import MISSING, PS_PER_S, bytes_text
from profnb.steps.streams import DIRECTIONS, by_device_clock, directions_of_copies, raw_device_lines
from profnb.trace.model import Trace

_MEMCPY_DETAILS = "memcpy_details"
_MEMSET_DETAILS = "memset_details"
_KINETO_BYTES = "bytes"
_KINETO_KINDS = re.compile(r"Mem\w+ (?:\w+ )?\((?:(\w+) -> )?(\w+)\)")


@dataclass(frozen=True, slots=True)
class CopyTable(RowColumns):
    """One row per direction and pair of memory kinds, most time first.

    Attributes:
        direction: "host to device", "device to host", "device to device", "peer to peer", "host to
            host", "other", or "set" for memset.
        source_kind: "pageable", "pinned", "device", ...; "" where the trace does not say.
        destination_kind: Likewise.
        occurrences: Number of copies, shape (N,).
        total_ps: Sum of durations, shape (N,).
        sized: Number of those that tell their size, shape (N,).
        bytes: Bytes moved by those that tell, shape (N,).
        sized_ps: Time of those that tell, shape (N,).
    """

    direction: tuple[str, ...]
    source_kind: tuple[str, ...]
    destination_kind: tuple[str, ...]
    occurrences: Int64s
    total_ps: Int64s
    sized: Int64s
    bytes: Int64s
    sized_ps: Int64s

    @property
    def bandwidth(self) -> Floats:
        """Bytes per second of the copies whose size is known, shape (N,); NaN where none is."""
        is_sized = (self.sized > 0) & (self.sized_ps > 0)
        seconds = np.where(is_sized, self.sized_ps, 1) / PS_PER_S
        return np.where(is_sized, self.bytes / seconds, np.nan)

    def bytes_by_source(self, direction: str) -> dict[str, int]:
        """Bytes that were copied in a direction, by the kind of memory that they came from."""
        by_kind: Counter[str] = Counter()
        for row, kind in enumerate(self.source_kind):
            if self.direction[row] == direction:
                by_kind[kind] += int(self.bytes[row])
        return by_kind


def _parse_details(text: str) -> tuple[str, str, int]:
    """(source kind, destination kind, bytes or -1); ROCm writes a size of 0 where it does not know."""
    pairs = dict(part.partition(":")[::2] for part in text.split())
    size = pairs.get("size", pairs.get("num_bytes", ""))
    has_size = size.isdecimal() and len(size) < 17 and int(size) > 0
    return pairs.get("kind_src", ""), pairs.get("kind_dst", ""), int(size) if has_size else -1


def _kinds_of_name(name: str) -> tuple[str, str]:
    """(source kind, destination kind) as PyTorch names a copy; "" where it does not say."""
    kinds = _KINETO_KINDS.match(name)
    return ((kinds[1] or "").lower(), kinds[2].lower()) if kinds else ("", "")


def tabulate_copies(trace: Trace) -> CopyTable:
    """Sum up the copies and memsets of a trace's devices."""
    work = trace.lines.events_of(raw_device_lines(trace))
    directions = directions_of_copies(trace, work)
    copies, directions = work[directions >= 0], directions[directions >= 0]
    names, kind = np.unique(trace.events.name[copies], return_inverse=True)
    kinds = [_kinds_of_name(trace.names[name]) for name in names.tolist()]
    moved = trace.stats.integers(_KINETO_BYTES).of(copies)
    for stat in (_MEMCPY_DETAILS, _MEMSET_DETAILS):
        details = trace.stats.texts(stat)
        row = details.of(copies)
        parsed = [_parse_details(text) for text in details.texts]
        size = np.array([*(row[2] for row in parsed), -1], np.int64)
        moved = np.where(row >= 0, size[row], moved)
        kind = np.where(row >= 0, row + len(kinds), kind)
        kinds += [row[:2] for row in parsed]
    keys: dict[tuple[str, str, str], int] = {}
    codes = np.array(
        [
            keys.setdefault((DIRECTIONS[direction], *kinds[at]), len(keys))
            for direction, at in zip(directions.tolist(), kind.tolist(), strict=True)
        ],
        np.int64,
    )
    begin, end = by_device_clock(trace, copies)
    duration, is_sized = end - begin, moved >= 0
    columns = (
        np.ones_like(duration),
        duration,
        is_sized,
        np.where(is_sized, moved, 0),
        is_sized * duration,
    )
    sums = np.zeros((len(keys), len(columns)), np.int64)
    np.add.at(sums, codes, np.stack(columns, axis=1).astype(np.int64))
    order = np.argsort(-sums[:, 1], kind="stable")
    ordered = [list(keys)[row] for row in order]
    return CopyTable(
        tuple(row[0] for row in ordered),
        tuple(row[1] for row in ordered),
        tuple(row[2] for row in ordered),
        *sums[order].T,
    )


def are_of_program(trace: Trace) -> bool:
    """Tell whether XLA's own instructions are most of the time of copies from the host."""
    copies = trace.lines.events_of(raw_device_lines(trace))
    to_device = directions_of_copies(trace, copies) == DIRECTIONS.index("host to device")
    of_xla = trace.are_named(copies, lambda name: name.lstrip("%").startswith("copy-"))
    spent = trace.events.duration_ps[copies]
    return bool(2 * spent[to_device & of_xla].sum() > spent[to_device].sum())


COPIES = Table[CopyTable](
    "copies",
    "One row per direction and kinds of memory of the devices' copies, most time first. No row without a "
    "device.",
    (
        field_column("direction", '"host to device", "device to host", ...; "set" for memset'),
        field_column(
            "source_kind", '"pageable", "pinned", "device", or "" where the trace does not say'
        ),
        field_column("destination_kind", "likewise"),
        field_column("occurrences", "how many copies", "times"),
        field_column("total_us", "time of all of them", "total"),
        Column(
            "bytes",
            lambda t: np.where(t.sized > 0, t.bytes, np.nan),
            "bytes moved by those that tell their size, NaN if none does",
        ),
        field_column(
            "gigabytes_per_second",
            "their bytes over their time",
            "bandwidth",
            lambda rate: MISSING if np.isnan(rate) else f"{bytes_text(rate)}/s",
            of="bandwidth",
        ),
    ),
)
