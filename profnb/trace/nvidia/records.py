"""Kernels, copies, calls and ranges, as NVIDIA's profilers record them, to a ``Trace``.

A device is a plane and a stream a line, as in TensorFlow's own traces; a thread of the host is a line that
holds its calls of CUDA and, around them, the ranges that the program marked (NVTX). A kernel's launch shape
and a copy's size stand in the stats that XPlane has for them, so every table reads them alike.

Source: CUPTI's records, docs.nvidia.com/cupti (cupti_activity.h).
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np

from profnb.core.columns import Int64s, distinct_rows, number_values
from profnb.core.errors import TraceFormatError
from profnb.core.units import PS_PER_NS
from profnb.trace.assemble import FoundLine, PlaneStats, assemble_trace
from profnb.trace.model import StatColumn, Stats, StringTable, Trace
from profnb.trace.names import CORRELATION_ID, RECORDER, USER_RANGE

_LONGEST_NS = (1 << 61) // PS_PER_NS  # 26 days: sums of two times stay inside int64 picoseconds
_LAUNCH_SHAPE = (
    "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX",
    "blockY", "blockZ",
)  # fmt: skip
KERNEL_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", *_LAUNCH_SHAPE)
COPY_COLUMNS = (
    "start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind", "srcKind", "dstKind",
)  # fmt: skip
MEMSET = 1000  # a kind of copy of ours, beside CUPTI's
_COPY_NAMES = {
    MEMSET: "Memset",
    1: "Memcpy HtoD", 2: "Memcpy DtoH", 3: "Memcpy HtoD", 4: "Memcpy DtoH", 5: "Memcpy DtoD",
    6: "Memcpy DtoD", 7: "Memcpy DtoD", 8: "Memcpy DtoD", 9: "Memcpy HtoH", 10: "Memcpy PtoP",
    11: "Memcpy HtoD (unified memory)", 12: "Memcpy DtoH (unified memory)",
    13: "Memcpy DtoD (unified memory)",
}  # fmt: skip

Key = TypeVar("Key", str, FoundLine)
Texts = tuple[Sequence[str], Int64s]  # distinct texts, and the row of each record's, -1 for none


@dataclass(frozen=True, slots=True)
class Records:
    """N records of one kind.

    Attributes:
        lines: The lines that they lie on.
        line: Row of ``lines`` of each, shape (N,).
        names: Their names.
        name: Row of ``names``, shape (N,).
        begin_ns: Begins, on one clock for all records of a file, shape (N,).
        end_ns: Ends, shape (N,).
        integers: Stats by name, -1 where one is missing, shape (N,).
        texts: Stats that are texts.
    """

    lines: Sequence[FoundLine]
    line: Int64s
    names: Sequence[str]
    name: Int64s
    begin_ns: Int64s
    end_ns: Int64s
    integers: Mapping[str, Int64s] = field(default_factory=dict)
    texts: Mapping[str, Texts] = field(default_factory=dict)


class Columns:
    """Rows of one kind as they are found, eight bytes a cell.

    Args:
        columns: What a row may have; -1 where it lacks one.
    """

    def __init__(self, *columns: str) -> None:
        """Begin without a row."""
        self._columns = {name: array("q") for name in columns}
        self._names, self._name = dict[str, int](), array("q")

    def add(self, name: str, values: Mapping[str, int]) -> None:
        """Keep a row."""
        for key, column in self._columns.items():
            column.append(values.get(key, -1))
        self._name.append(self._names.setdefault(name, len(self._names)))

    def all(self) -> list[Int64s]:
        """Give the columns, each of shape (N,)."""
        return [np.array(column, np.int64) for column in self._columns.values()]

    def names(self) -> tuple[list[str], Int64s]:
        """Give the distinct names, and the row of each record's."""
        return list(self._names), np.array(self._name, np.int64)


def on_streams(device: Int64s, stream: Int64s) -> tuple[list[FoundLine], Int64s]:
    """Find the lines of N pieces of device work, and the line of each, shape (N,)."""
    pairs, line = distinct_rows(device, stream)
    named = ((f"/device:GPU:{max(one, 0)}", f"Stream #{number}", number) for one, number in pairs)
    return [FoundLine(gpu, "device", name, number) for gpu, name, number in named], line


def kernels_of(columns: Sequence[Int64s], names: Sequence[str], name: Int64s) -> Records:
    """Make records of kernels.

    ``columns`` are as ``KERNEL_COLUMNS``, and ``name`` the row of ``names`` of each, all of shape (N,).
    """
    begin, end, device, stream, correlation, *shape = columns
    distinct, row = distinct_rows(*shape)
    details = [
        f"regs:{regs} static_shared:{static} dynamic_shared:{dynamic} "
        f"grid:{','.join(map(str, sizes[:3]))} block:{','.join(map(str, sizes[3:]))}"
        for regs, static, dynamic, *sizes in distinct
    ]
    return Records(
        *on_streams(device, stream), names, name, begin, end, {CORRELATION_ID: correlation},
        {"kernel_details": (details, row)},
    )  # fmt: skip


def copies_of(
    columns: Sequence[Int64s], kinds: Mapping[int, str], *, is_set: bool = False
) -> Records:
    """Make records of copies.

    ``columns`` are as ``COPY_COLUMNS``, each of shape (N,). ``kinds`` says what numbers of kinds of memory
    mean.
    """
    begin, end, device, stream, correlation, size, kind, *sides = columns
    directions, row = np.unique(np.full_like(kind, MEMSET) if is_set else kind, return_inverse=True)
    names = [_COPY_NAMES.get(one, "Memcpy") for one in directions.tolist()]
    distinct, detail = distinct_rows(size, *sides)
    details = [
        "".join(f"{key}:{kinds[side]} " for key, side in zip(("kind_src", "kind_dst"), ends, strict=True)
                if side in kinds) + (f"size:{number}" if number >= 0 else "")
        for number, *ends in distinct
    ]  # fmt: skip
    return Records(
        *on_streams(device, stream), names, row.reshape(-1), begin, end, {CORRELATION_ID: correlation},
        {"memcpy_details": (details, detail)},
    )  # fmt: skip


def host_records(
    columns: Sequence[Int64s], names: Sequence[str], name: Int64s, titles: Mapping[int, str]
) -> Records:
    """Make records of the host's calls, or of the ranges that a program marked.

    ``columns`` are begins, ends and threads; of calls correlations, too. ``name`` is the row of ``names`` of
    each.
    """
    begin, end, thread, *correlation = columns
    stats = {CORRELATION_ID: correlation[0]} if correlation else {USER_RANGE: np.ones_like(begin)}
    threads, line = np.unique(thread, return_inverse=True)
    named = [(one, titles.get(one, f"thread {one}")) for one in threads.tolist()]
    lines = [FoundLine("/host:CPU", "host", title, one) for one, title in named]
    return Records(lines, line.reshape(-1), names, name, begin, end, stats)


def facts_of(
    gpus: Iterable[int], names: Iterable[str], columns: Mapping[str, Sequence[int]], vendor: str = "Nvidia"
) -> dict[str, PlaneStats]:  # fmt: skip
    """Give what is known of GPUs, by the name of their plane; numbers below 0 are not known.

    ``columns`` are by what TensorFlow calls them.
    """
    return {
        f"/device:GPU:{gpu}": {
            "device_vendor": vendor, "gpu_device_name": name,
            **{key: column[row] for key, column in columns.items() if column[row] >= 0},
        }
        for row, (gpu, name) in enumerate(zip(gpus, names, strict=True))
    }  # fmt: skip


def _joined(columns: Sequence[tuple[Sequence[Key], Int64s]]) -> tuple[list[Key], Int64s]:
    """Join rows of distinct values, -1 for none: the distinct values of all, and the row of each."""
    distinct, rows = number_values(value for values, _ in columns for value in values)
    last = np.cumsum([len(values) for values, _ in columns])
    parts = zip(np.split(rows, last[:-1]), columns, strict=True)
    return distinct, np.concatenate([np.append(part, -1)[row] for part, (_, row) in parts])


def trace_of(
    source: str, recorder: str, records: Sequence[Records], facts: Mapping[str, PlaneStats] | None = None
) -> Trace:  # fmt: skip
    """Put all records of a file into a trace; ranges come before the calls inside of them.

    Raises:
        TraceFormatError: There is none, or they lie too far apart.
    """
    lines, line = _joined([(one.lines, one.line) for one in records])
    names, name = _joined([(one.names, one.name) for one in records])
    begin = np.concatenate([one.begin_ns for one in records])
    end = np.concatenate([one.end_ns for one in records])
    kinds = [(one, np.full(one.begin_ns.size, -1, np.int64)) for one in records]
    stats_of: dict[str, Texts] = {
        key: ((), np.concatenate([one.integers.get(key, none) for one, none in kinds]))
        for key in dict.fromkeys(chain.from_iterable(one.integers for one in records))
    }
    for key in dict.fromkeys(chain.from_iterable(one.texts for one in records)):
        stats_of[key] = _joined([one.texts.get(key, ((), none)) for one, none in kinds])
    is_whole = (begin >= 0) & (end >= begin) & (end < np.iinfo(np.int64).max)
    if not is_whole.any():
        raise TraceFormatError(
            "No kernel, copy, call or range with a time in it. Record again while the device works."
        )
    rows = np.flatnonzero(is_whole)
    origin, last = int(begin[rows].min()), int(end[rows].max())
    if last - origin > _LONGEST_NS:
        raise TraceFormatError(
            f"Records lie {(last - origin) / 86_400e9:,.0f} days apart. Export again."
        )
    left = is_whole.size - rows.size

    def stats(order: Int64s) -> Stats:
        of_trace = rows[order]
        columns = {}
        for key, (texts, values) in stats_of.items():
            events = np.flatnonzero(values[of_trace] >= 0)
            columns[key] = StatColumn(events, values[of_trace[events]], tuple(texts))
        return Stats(columns)

    planes = dict.fromkeys(one.plane for one in lines)
    plane_facts = facts or {}
    return assemble_trace(
        source, lines, line[rows], name[rows], (begin[rows] - origin) * PS_PER_NS,
        (end - begin)[rows] * PS_PER_NS, StringTable.of(names),
        stats=stats,
        is_op_name=np.zeros(len(names), np.bool_),
        left_out=(f"{left:,} records have no begin or no end.",) if left else (),
        plane_stats={plane: {RECORDER: recorder, **plane_facts.get(plane, {})} for plane in planes},
    )  # fmt: skip
