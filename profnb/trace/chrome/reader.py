"""Chrome trace JSON to a ``Trace``, whoever wrote it.

Five writers are told apart, because each says in its own way what is a host, a device, an op or a step:

- profnb's own export, which reads back as it was;
- TF1's ``Timeline`` (``timeline.json``): processes are device strings with " Compute" behind them, events are
  named by their op type and carry the op's name;
- TensorFlow's profiler (``trace.json.gz``): processes are planes, threads are lines;
- PyTorch's profiler (Kineto): categories say what is an op, a runtime call or device work;
- anything else: processes are host planes, threads their lines.

Source: tensorflow/python/client/timeline.py (2.21); pytorch/kineto output_json.cpp.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s
from profnb.core.errors import TraceFormatError
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.chrome.event_args import ChromeStats
from profnb.trace.chrome.events import RawEvents, Reading, number_of, read_raw_events
from profnb.trace.chrome.kineto import is_kineto, place_in_job, read_kineto
from profnb.trace.chrome.writer import ADDED
from profnb.trace.model import Counter, StatColumn, StringTable, Trace
from profnb.trace.names import (
    GRAPH_RUNS,
    is_device_plane,
    is_host_plane,
    split_graph_device,
)

_COMPUTE, _TENSORS, _ALLOCATORS = " Compute", " Tensors", "Allocators"
_MOST_PLANES = 10_000
_LONGEST_US = 1 << 40


def read_chrome(buffer: Bytes, source: str) -> Trace:
    """Read one Chrome trace.

    Args:
        buffer: The whole file, decompressed, as uint8; it must outlive the trace, which reads args from it.
        source: The file's name, for messages.

    Returns:
        The trace; what the file holds and a trace cannot is said in ``left_out``.

    Raises:
        TraceFormatError: It is no Chrome trace, or is damaged or cut short.
    """
    try:
        return _assemble(read_raw_events(buffer), buffer, source)
    except TraceFormatError as error:
        raise TraceFormatError(f"{source}: {error}") from None


def _assemble(raw: RawEvents, buffer: Bytes, source: str) -> Trace:
    if not raw.thread.size:
        raise TraceFormatError(
            "No event in it has a time, so there is nothing to show. A Chrome trace has events with "
            "ph, ts and mostly dur."
        )
    reading = _interpret(raw, buffer)
    events = np.flatnonzero(reading.is_event)  # the raw event of each event, in file order
    lines, line_of_thread = _lines_of(reading, events)
    origin_ps = _origin_ps(raw)
    counters = [replace(c, time_ps=c.time_ps + origin_ps) for c in read_counters(raw, buffer)]
    trace = assemble_trace(
        source, lines, line_of_thread[reading.thread[events]], reading.name[events],
        raw.begin_ps[events] + origin_ps, raw.duration_ps[events], StringTable.of(reading.names),
        stats=lambda order: _stats_of(raw, reading, buffer, events[order]),
        counters=counters,
        is_op_name=reading.is_op_name,
        left_out=(*raw.left_out, *reading.left_out, *_unread_flows(raw)),
        planes=reading.planes,
        plane_stats=reading.plane_stats,
        keeps_origin=_is_export(raw),
    )  # fmt: skip
    rank, ranks, process_groups = place_in_job(raw.header)
    return replace(trace, rank=rank, ranks=ranks, process_groups=process_groups)


def _interpret(raw: RawEvents, buffer: Bytes) -> Reading:
    """What the events mean, by who wrote them."""
    processes, threads = _names_of_lines(raw)
    if _is_export(raw):
        return _read_export(raw, processes, threads)
    if any(name.endswith(_COMPUTE) for name in processes.values()):
        return _read_timeline(raw, buffer, processes)
    if is_kineto(raw):
        return read_kineto(raw, processes, threads)
    return _read_plain(raw, processes, threads)


def _lines_of(reading: Reading, events: Int64s) -> tuple[list[FoundLine], Int64s]:
    """The lines that have events, in order, and the line of each thread, shape (number of threads,).

    Threads that name the same line of the same rank are one line: of threads 0 "GPU stream 7", 1 "python"
    and 2 "GPU stream 7", all with events, the lines are 0 "GPU stream 7" and 1 "python", and the threads'
    lines 0, 1, 0.

    Args:
        reading: What the raw events mean.
        events: The raw events that are events of a line.
    """
    threads = np.unique(reading.thread[events])
    if reading.rank:
        threads = threads[np.argsort(np.array(reading.rank)[threads], kind="stable")]
    ranks = reading.rank or [0] * len(reading.lines)
    numbers: dict[tuple[FoundLine, int], int] = {}
    line_of_thread = np.zeros(len(reading.lines), np.int64)
    for thread in threads.tolist():
        ranked_line = reading.lines[thread], ranks[thread]
        line_of_thread[thread] = numbers.setdefault(ranked_line, len(numbers))
    return [line for line, _ in numbers], line_of_thread


def _stats_of(raw: RawEvents, reading: Reading, buffer: Bytes, raw_events: Int64s) -> ChromeStats:
    """The stats of a trace's events: their args, and what the reading derived.

    Where the trace's events 0 and 1 are the raw events 5 and 2, and raw event 2 has the derived step
    number 7, event 1 has it.

    Args:
        raw: The raw events.
        reading: What they mean.
        buffer: The file.
        raw_events: The raw event of each event of the trace, shape (E,).
    """
    event_of_raw = np.full(raw.thread.size, -1, np.int64)
    event_of_raw[raw_events] = np.arange(raw_events.size)
    derived = {}
    for name, (carriers, values) in reading.derived.items():
        events = event_of_raw[carriers]
        is_event = events >= 0
        order = np.argsort(events[is_event], kind="stable")
        derived[name] = StatColumn(events[is_event][order], values[is_event][order])
    begins, ends = raw.args_spans()
    return ChromeStats(buffer, begins[raw_events], ends[raw_events], derived)


def _origin_ps(raw: RawEvents) -> int:
    """What the file's clock shows at 0 of ``raw.begin_ps``: our own exports count from the trace's begin.

    Other writers' clocks mean nothing, so their traces begin at 0.
    """
    is_meant = _is_export(raw) and 0 <= raw.origin_us < _LONGEST_US
    return raw.origin_us * 1_000_000 if is_meant else 0


def _unread_flows(raw: RawEvents) -> list[str]:
    """What is lost with the arrows between events; our exports and Kineto's name launches in args too."""
    if not raw.flows or _is_export(raw) or is_kineto(raw):
        return []
    return [
        f"{raw.flows:,} ends of flow arrows are not read: what set an event going is not known, "
        "except by a correlation in its args."
    ]


def _names_of_lines(raw: RawEvents) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The names given to processes and threads, and how they are to be sorted."""
    processes: dict[str, str] = {}
    threads: dict[tuple[str, str], str] = {}
    for kind, process, thread, args in raw.metadata:
        name = args.get("name")
        if kind == "process_name" and isinstance(name, str):
            processes[process] = name
        elif kind == "thread_name" and isinstance(name, str):
            threads[process, thread] = name
    return processes, threads


# profnb's own export.


def _is_export(raw: RawEvents) -> bool:
    other = raw.header.get("otherData")
    return isinstance(other, dict) and other.get("tool") == ADDED


def _read_export(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> Reading:
    facts: dict[tuple[str, str], dict[str, Any]] = {
        (process, thread): args
        for kind, process, thread, args in raw.metadata
        if kind == "thread_name"
    }
    sides = {
        process: str(args.get("side", ""))
        for kind, process, _, args in raw.metadata
        if kind == "process_name"
    }
    lines, rank = [], []
    for process, thread in raw.threads:
        args = facts.get((process, thread), {})
        line = args.get("line", 0)
        rank.append(line if isinstance(line, int) and abs(line) < 1 << 62 else 0)
        line_id = args.get("line_id", 0)
        lines.append(
            FoundLine(
                processes.get(process, process),
                sides.get(process, ""),
                threads.get((process, thread), thread),
                line_id if isinstance(line_id, int) and abs(line_id) < 1 << 62 else 0,
                repeats=args.get("repeats") is True,
            )
        )
    added = raw.categories.index(ADDED) if ADDED in raw.categories else -1
    is_event = ~raw.is_counter & (raw.category != added)
    ops = raw.header["otherData"].get("op_names")
    is_op = None
    if isinstance(ops, list):
        chosen = {name for name in ops if isinstance(name, str)}
        is_op = np.array([name in chosen for name in raw.names], np.bool_)
    planes = [(name, sides.get(process, "")) for process, name in processes.items()]
    return Reading(
        lines, raw.thread, is_event, raw.names, raw.name, is_op, {}, rank, planes[:_MOST_PLANES]
    )


# TF1's Timeline.


def _read_timeline(raw: RawEvents, buffer: Bytes, processes: dict[str, str]) -> Reading:
    lines = []
    is_compute = []
    for process, thread in raw.threads:
        name = processes.get(process, process)
        plane, line, side = split_graph_device(name.removesuffix(_COMPUTE).removesuffix(_TENSORS))
        number = number_of(thread)
        suffix = f" #{number + 1}" if number else ""
        line = line or ("runs" if plane == GRAPH_RUNS else "ops")
        lines.append(FoundLine(plane, side, line + suffix, number))
        is_compute.append(not name.endswith(_TENSORS) and name != _ALLOCATORS)
    begins, ends = raw.args_spans()
    stats = ChromeStats(buffer, begins, ends, {})
    op_names = stats.texts("name")
    row = np.full(raw.name.size, -1, np.int64)
    row[op_names.events] = op_names.values
    pairs, code = np.unique((row + 1) * max(len(raw.names), 1) + raw.name, return_inverse=True)
    names = []
    for op, kind in (divmod(pair, max(len(raw.names), 1)) for pair in pairs.tolist()):
        op_name = op_names.texts[op - 1] if op else ""
        names.append(f"{op_name}:{raw.names[kind]}" if op_name else raw.names[kind])
    is_event = np.array(is_compute, np.bool_)[raw.thread] & ~raw.is_counter
    return Reading(lines, raw.thread, is_event, names, code.reshape(-1), None, {})


# TensorFlow's profiler, and everybody else.


def _read_plain(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> Reading:
    names = processes.values()
    has_planes = any(is_host_plane(name) or is_device_plane(name) for name in names)
    side = "" if has_planes else "host"
    lines = [
        FoundLine(
            processes.get(process, process or "process"),
            side,
            threads.get((process, thread), f"thread {thread}" if thread else "events"),
            number_of(thread),
        )
        for process, thread in raw.threads
    ]
    at_work = {line.plane for line in lines}
    unused = [(name, side) for name in names if is_device_plane(name) and name not in at_work]
    return Reading(
        lines, raw.thread, ~raw.is_counter, raw.names, raw.name, None, {}, planes=unused[:_MOST_PLANES]
    )  # fmt: skip


_MEMORY_RECORD = "[memory]"
_BYTE_WORDS = ("byte", "memory", "alloc")
_MOST_SAMPLES = 2_000_000
_LARGEST = sys.float_info.max


def read_counters(raw: RawEvents, buffer: Bytes) -> tuple[Counter, ...]:
    """The counters of a trace, on the clock of ``raw.begin_ps``."""
    return (*_sampled(raw, buffer), *_memory_records(raw, buffer))


def _sampled(raw: RawEvents, buffer: Bytes) -> list[Counter]:
    """One counter per name and member of its args."""
    added = raw.categories.index(ADDED) if ADDED in raw.categories else -1
    events = np.flatnonzero(raw.is_counter & (raw.category != added))[:_MOST_SAMPLES]
    samples: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for event in events[np.argsort(raw.begin_ps[events], kind="stable")].tolist():
        for series, value in raw.args_of(buffer, event).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                if abs(value) > _LARGEST:  # infinite, or digits past what a float holds
                    continue
                key = raw.names[raw.name[event]], series
                times, values = samples.setdefault(key, ([], []))
                times.append(int(raw.begin_ps[event]))
                values.append(float(value))
    return [
        _counter(name, series, np.array(times, np.int64), np.array(values, np.float64))
        for (name, series), (times, values) in samples.items()
    ]


def _counter(name: str, series: str, times: Int64s, values: Floats) -> Counter:
    text = f"{name} {series}".lower()
    unit = "bytes" if any(word in text for word in _BYTE_WORDS) else ""
    return Counter(name, series, unit, times, values)


def _memory_records(raw: RawEvents, buffer: Bytes) -> list[Counter]:
    """PyTorch's ``[memory]`` instants: bytes in use per device.

    The total is taken where every record has it; else changes are added up: +100, +50, -100 bytes are
    100, 150, 50 bytes in use.
    """
    if _MEMORY_RECORD not in raw.names:
        return []
    is_record = raw.is_instant & (raw.name == raw.names.index(_MEMORY_RECORD))
    events = np.flatnonzero(is_record)
    begins, ends = raw.args_spans()
    stats = ChromeStats(buffer, begins, ends, {})

    def column(name: str, missing: int) -> Int64s:
        stat = stats.integers(name)
        values = np.full(is_record.size, missing, np.int64)
        values[stat.events] = stat.values.astype(np.int64)
        return values[events]

    device, kind = column("Device Id", -1), column("Device Type", 0)
    change, total = column("Bytes", 0), column("Total Allocated", -1)
    counters = []
    for device_type, device_id in sorted(set(zip(kind.tolist(), device.tolist(), strict=True))):
        records = np.flatnonzero((kind == device_type) & (device == device_id))
        records = records[np.argsort(raw.begin_ps[events[records]], kind="stable")]
        has_total = total[records] >= 0
        values = total[records] if has_total.all() else np.cumsum(change[records])
        name = f"GPU:{device_id}" if device_type else "CPU"
        times = raw.begin_ps[events[records]]
        counters.append(Counter("memory", name, "bytes", times, values.astype(np.float64)))
    return counters
