"""Tables that nvprof and nsys print, with a row per kernel or call, to a ``Trace``.

They come of ``nvprof --print-gpu-trace`` or ``--print-api-trace``, as CSV or not, and of
``nsys stats --report cuda_gpu_trace --format csv``.

nvprof's CSV has its units in the row below the header, which differ from file to file; nsys has them in the
header, ``Start (ns)``; nvprof's text has them in each cell. A kilobyte of nvprof is 1,024 bytes, one of
nsys 1,000: it prints a copy of 4 MiB as 4.194 MB (2022.1, 2023.2). A begin is as exact as it was printed.
Rows of ``[Unified Memory ...]`` are no work of a stream.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.trace.assemble import FoundLine
from profnb.trace.model import Trace
from profnb.trace.nvidia import records as nvidia

_MOST_ROWS, _HEAD_ROWS = 5_000_000, 200
_LATEST_NS = 1 << 62
_CALL_COLUMNS = "start", "end", "thread", "correlationId"
# nsys' names of columns, by nvprof's.
_SAME = {
    "Correlation_ID": "CorrId", "Stream": "Strm", "Registers Per Thread": "Reg/Trd", "Grid X": "GrdX",
    "Grid Y": "GrdY", "Grid Z": "GrdZ", "Block X": "BlkX", "Block Y": "BlkY", "Block Z": "BlkZ",
    "Static SMem": "StcSMem", "Dynamic SMem": "DymSMem", "Size": "Bytes", "SrcMemType": "SrcMemKd",
    "DstMemType": "DstMemKd",
}  # fmt: skip
_SAME_IN_TEXT = {"Regs*": "Registers Per Thread", "SSMem*": "Static SMem", "DSMem*": "Dynamic SMem"}
_OUR_NAMES = {theirs: ours for ours, theirs in _SAME.items()} | _SAME_IN_TEXT
_NS_OF_UNIT = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_BYTES_OF_UNIT = {"B": 1.0, "KB": 1024.0, "MB": 1024.0**2, "GB": 1024.0**3}  # as nvprof counts
_DECIMAL = {"KB": "kB", "MB": "dMB", "GB": "dGB"}  # as nsys does
_UNITS = _NS_OF_UNIT | _BYTES_OF_UNIT | {"kB": 1e3, "dMB": 1e6, "dGB": 1e9}
_NUMBER_WITH_UNIT = re.compile(r"([-+\d.eE]{1,40}?)\s{0,9}([kKMG]?B|d[MG]B|[mun]?s)?$")
_DEVICE = re.compile(r"(.{0,200}?)\s{0,9}\((\d{1,6})\)$")
_COLUMN_GAP, _LONGEST_ROW = re.compile(r"\s{2,}"), 20_000
# nvprof's text: the correlation stands behind the name
_NUMBERED = re.compile(r"\s{0,9}\[(\d{1,19})\]$")
_COPY_NAME = re.compile(r"\[?(?:CUDA )?(memcpy|memset)\s*(\w+?)?(?:-to-(\w+))?\]?$", re.IGNORECASE)
_DIRECTIONS = {"htod": 1, "dtoh": 2, "dtod": 8, "htoh": 9, "ptop": 10}
_KINDS_OF_MEMORY = ("pageable", "pinned", "device", "array", "managed")

_Row = Mapping[str, str]


def is_printed(start: bytes) -> bool:
    """Tell whether a file begins as nvprof prints, or has a row of CSV that names begin and duration."""
    text = start.decode("utf-8", "replace")
    return "NVPROF is profiling" in text or any(map(_is_header, text.splitlines()))


def _is_header(line: str) -> bool:
    return line.replace('"', "").startswith(("Start,Duration", "Start (ns),Duration"))


def read_printed(buffer: Bytes, source: str) -> Trace:
    """Read what nvprof or nsys printed."""
    lines = buffer.tobytes().decode("utf-8", "replace").splitlines()
    kernels, copies = nvidia.Columns(*nvidia.KERNEL_COLUMNS), nvidia.Columns(*nvidia.COPY_COLUMNS)
    calls, others = nvidia.Columns(*_CALL_COLUMNS), nvidia.Columns("start", "end", "deviceId")
    devices: dict[int, str] = {}
    try:
        for row in islice(_rows(lines), _MOST_ROWS):
            _put(row, (kernels, copies, calls, others), devices)
    except csv.Error as error:
        raise TraceFormatError(f"No CSV as nvprof prints it ({error}). Print again.") from None
    threads = {0: "calls"}  # which thread made them is not printed
    records = [
        nvidia.kernels_of(kernels.all(), *kernels.names()),
        nvidia.copies_of(copies.all(), dict(enumerate(_KINDS_OF_MEMORY))),
        nvidia.host_records(calls.all(), *calls.names(), threads),
        _unified(others),
    ]
    facts = nvidia.facts_of(devices, devices.values(), {})
    return nvidia.trace_of(source, "nvprof", records, facts)


def _rows(lines: Sequence[str]) -> Iterator[_Row]:
    """Split the lines below the header into cells by column, each number with its unit."""
    for at, line in enumerate(lines[:_HEAD_ROWS]):
        if _is_header(line):
            header, *rest = csv.reader(lines[at : at + 2])
            titles = [title.partition(" (") for title in header]
            units = [_DECIMAL.get(unit.rstrip(")"), unit.rstrip(")")) for _, _, unit in titles]
            columns = [_OUR_NAMES.get(title, title) for title, _, _ in titles]
            below = rest[0] if rest else []
            has_units = not any(units) and bool(below) and below[0] in _NS_OF_UNIT
            units = below if has_units else units
            for cells in csv.reader(islice(lines, at + 1 + has_units, None)):
                yield {
                    column: cell + (unit if cell and unit in _UNITS else "")
                    for column, cell, unit in zip(columns, cells, units, strict=False)
                }
            return
        titles_of_text = _COLUMN_GAP.split(line[:_LONGEST_ROW].strip())
        if titles_of_text[:2] == ["Start", "Duration"]:
            columns = [_OUR_NAMES.get(title, title) for title in titles_of_text]
            for text in islice(lines, at + 1, None):
                cells = _COLUMN_GAP.split(text[:_LONGEST_ROW].strip(), maxsplit=len(columns) - 1)
                yield {
                    c: "" if cell == "-" else cell for c, cell in zip(columns, cells, strict=False)
                }
            return
    raise TraceFormatError(
        "nvprof listed no single kernel. Run nvprof with `--csv --print-gpu-trace`, or with `-o x.nvvp`."
    )


def _quantity(text: str) -> int:
    """Read a number, in nanoseconds or bytes where it has a unit; -1 for what is none."""
    match = _NUMBER_WITH_UNIT.match(text.strip())
    try:
        value = float(match[1]) * _UNITS.get(match[2], 1.0) if match else -1.0
    except ValueError:
        return -1
    return round(value) if isfinite(value) and 0 <= value < _LATEST_NS else -1


def _put(row: _Row, tables: Sequence[nvidia.Columns], devices: dict[int, str]) -> None:
    """Put a row to those of its kind; one without begin or duration is none."""
    kernels, copies, calls, others = tables
    begin, duration = (_quantity(row.get(title, "")) for title in ("Start", "Duration"))
    name = row.get("Name", "").strip()
    if begin < 0 or duration < 0 or not name:
        return
    correlation = _quantity(row.get("Correlation_ID", ""))
    numbered = _NUMBERED.search(name)
    if numbered and correlation < 0:
        correlation = _quantity(numbered[1])
    name = _NUMBERED.sub("", name)
    values = {"start": begin, "end": begin + duration, "correlationId": correlation}
    device = _DEVICE.match(row.get("Device", ""))
    if device is None:
        calls.add(name.partition(" (")[0], values | {"thread": 0})
        return
    number = int(device[2])
    devices.setdefault(number, device[1])
    values |= {"deviceId": number, "streamId": _quantity(row.get("Stream", ""))}
    copy = _COPY_NAME.match(name)
    if copy:
        _, source_end, target_end = (part or "" for part in copy.groups())
        direction = f"{source_end[:1]}to{target_end[:1]}" if target_end else source_end
        is_set = copy[1].lower() == "memset"
        kind = nvidia.MEMSET if is_set else _DIRECTIONS.get(direction.lower(), 0)
        kinds = {kind: number for number, kind in enumerate(_KINDS_OF_MEMORY)}
        titles = "SrcMemType", "DstMemType"
        source, target = (kinds.get(row.get(title, "").lower(), -1) for title in titles)
        values |= {"bytes": _quantity(row.get("Size", "")), "copyKind": kind}
        copies.add("", values | {"srcKind": source, "dstKind": target})
    elif name.startswith("["):
        others.add(name.strip("[]"), values)
    else:
        kernels.add(name, values | _shape(row))


def _shape(row: _Row) -> dict[str, int]:
    """Read a kernel's launch shape; nvprof's text has ``(32768 1 1)`` in one cell."""
    shape = {
        "registersPerThread": _quantity(row.get("Registers Per Thread", "")),
        "staticSharedMemory": _quantity(row.get("Static SMem", "")),
        "dynamicSharedMemory": _quantity(row.get("Dynamic SMem", "")),
    }
    for side in ("Grid", "Block"):
        together = row.get(f"{side} Size", "").strip("()").split()
        for at, axis in enumerate("XYZ"):
            cell = row.get(f"{side} {axis}", together[at] if at < len(together) else "")
            shape[f"{side.lower()}{axis}"] = _quantity(cell)
    return shape


def _unified(others: nvidia.Columns) -> nvidia.Records:
    """Give what the driver did for unified memory a line of its own beside the device's work."""
    begin, end, device = others.all()
    devices, line = np.unique(device, return_inverse=True)
    lines = [
        FoundLine(f"/device:GPU:{one}", "device", "Unified Memory", repeats=True)
        for one in devices.tolist()
    ]
    return nvidia.Records(lines, line.reshape(-1), *others.names(), begin, end)
