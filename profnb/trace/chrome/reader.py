"""Chrome trace JSON to a ``Trace``, whoever wrote it.

Six writers are told apart, because each says in its own way what is a host, a device, an op or a step:

- profnb's own export, which reads back as it was;
- TF1's ``Timeline`` (``timeline.json``): processes are device strings with " Compute" behind them, events are
  named by their op type and carry the op's name;
- TensorFlow's profiler (``trace.json.gz``): processes are planes, threads are lines;
- PyTorch's profiler (Kineto): categories say what is an op, a runtime call or device work;
- ONNX Runtime's sessions: nodes are ops, runs of the session are ranges;
- anything else: processes are host planes, threads their lines.

Source: tensorflow/python/client/timeline.py (2.21); pytorch/kineto output_json.cpp.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from profnb.core.columns import Bytes, Int64s, distinct_rows
from profnb.core.errors import TraceFormatError
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.chrome.event_args import ChromeStats
from profnb.trace.chrome.events import RawEvents, Reading, number_of, read_events, row_of
from profnb.trace.chrome.kineto import is_kineto, memory_records, place_in_job, read_kineto
from profnb.trace.chrome.onnx_runtime import is_onnx_runtime, read_onnx_runtime
from profnb.trace.chrome.writer import ADDED
from profnb.trace.model import Counter, StatColumn, StringTable, Trace
from profnb.trace.names import GRAPH_RUNS, is_device_plane, is_host_plane, split_graph_device

_COMPUTE, _TENSORS, _ALLOCATORS = " Compute", " Tensors", "Allocators"
_MOST_PLANES = 10_000
_LONGEST_US = 1 << 40
_LARGEST_FACT = 1 << 62
_BYTE_WORDS = ("byte", "memory", "alloc")
_MOST_SAMPLES = 2_000_000
_LARGEST_SAMPLE = sys.float_info.max

_Named = dict[str, dict[str, Any]]  # what the metadata say of processes, by process
_NamedThreads = dict[tuple[str, str], dict[str, Any]]  # and of threads, by process and thread


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
    raw = read_events(buffer)
    if not raw.thread.size:
        raise TraceFormatError(
            "No event has a time: nothing to show. A Chrome trace has events with ph, ts and "
            "mostly dur."
        )
    other = raw.header.get("otherData")
    is_export = isinstance(other, dict) and other.get("tool") == ADDED
    reading = _interpret(raw, is_export=is_export)
    events = np.flatnonzero(reading.is_event)  # the raw event of each event, in file order
    lines, line_of_thread = _lines_of(reading, events)
    # Our own exports count from the trace's begin. Other writers' clocks mean nothing: they begin at 0.
    is_meant = is_export and 0 <= raw.origin_us < _LONGEST_US
    origin_ps = raw.origin_us * 1_000_000 if is_meant else 0
    counters = _sampled(raw)
    for device, records, _, total in memory_records(raw):
        times = raw.begin_ps[records]
        counters.append(Counter("memory", device, "bytes", times, total.astype(np.float64)))
    counters = [replace(one, time_ps=one.time_ps + origin_ps) for one in counters]
    left_out = [*raw.left_out, *reading.left_out]
    if raw.flows and not is_export and not is_kineto(raw):  # these name launches in args too
        left_out.append(
            f"{raw.flows:,} ends of flow arrows were skipped. Only args.correlation links launch and kernel."
        )
    trace = assemble_trace(
        source, lines, line_of_thread[reading.thread[events]], reading.name[events],
        raw.begin_ps[events] + origin_ps, raw.duration_ps[events], StringTable.of(reading.names),
        stats=lambda order: _stats_of(raw, reading, events[order]),
        counters=counters,
        is_op_name=reading.is_op_name,
        left_out=tuple(left_out),
        planes=reading.planes,
        plane_stats=reading.plane_stats,
        keeps_origin=is_export,
    )  # fmt: skip
    rank, ranks, process_groups = place_in_job(raw.header)
    return replace(trace, rank=rank, ranks=ranks, process_groups=process_groups)


def _interpret(raw: RawEvents, *, is_export: bool) -> Reading:
    """Tell what the events mean, by who wrote them."""
    named = [one for one in raw.metadata if isinstance(one[-1].get("name"), str)]
    processes = {pid: args for kind, pid, _, args in named if kind == "process_name"}
    threads = {(pid, tid): args for kind, pid, tid, args in named if kind == "thread_name"}
    if is_export:
        return _read_export(raw, processes, threads)
    names = {process: args["name"] for process, args in processes.items()}
    thread_names = {thread: args["name"] for thread, args in threads.items()}
    if any(name.endswith(_COMPUTE) for name in names.values()):
        return _read_timeline(raw, names)
    if is_onnx_runtime(raw):
        return read_onnx_runtime(raw, _read_plain(raw, names, thread_names))
    read = read_kineto if is_kineto(raw) else _read_plain
    return read(raw, names, thread_names)


def _lines_of(reading: Reading, events: Int64s) -> tuple[list[FoundLine], Int64s]:
    """The lines that have events, in order, and the line of each thread, shape (number of threads,).

    Threads that name the same line of the same rank are one line: of threads 0 "GPU stream 7", 1 "python"
    and 2 "GPU stream 7", all with events, the lines are 0 "GPU stream 7" and 1 "python", and the threads'
    lines 0, 1, 0.
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


def _stats_of(raw: RawEvents, reading: Reading, raw_events: Int64s) -> ChromeStats:
    """Give the stats of a trace's events: their args, and what the reading derived.

    Where the trace's events 0 and 1 are the raw events 5 and 2, and raw event 2 has the derived step
    number 7, event 1 has it.
    """
    event_of_raw = np.full(raw.thread.size, -1, np.int64)
    event_of_raw[raw_events] = np.arange(raw_events.size)
    derived = {}
    for name, (carriers, values, *texts) in reading.derived.items():
        events = event_of_raw[carriers]
        order = np.argsort(events, kind="stable")[np.count_nonzero(events < 0) :]
        derived[name] = StatColumn(events[order], values[order], *texts)
    return raw.stats_of(raw_events, derived)


# Counters.


def _sampled(raw: RawEvents) -> list[Counter]:
    """Make one counter per name and member of its args."""
    is_sample = raw.is_counter & (raw.category != row_of(raw.categories, ADDED))
    events = np.flatnonzero(is_sample)[:_MOST_SAMPLES]
    samples: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for event in events[np.argsort(raw.begin_ps[events], kind="stable")].tolist():
        for series, value in raw.args_of(event).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and abs(value) <= _LARGEST_SAMPLE:  # finite, and as a float can be
                sample = int(raw.begin_ps[event]), float(value)
                samples.setdefault((raw.names[raw.name[event]], series), []).append(sample)
    counters = []
    for (name, series), pairs in samples.items():
        is_bytes = any(word in f"{name} {series}".lower() for word in _BYTE_WORDS)
        times, values = zip(*pairs, strict=True)
        columns = np.array(times, np.int64), np.array(values, np.float64)
        counters.append(Counter(name, series, "bytes" if is_bytes else "", *columns))
    return counters


# profnb's own export.


def _read_export(raw: RawEvents, processes: _Named, threads: _NamedThreads) -> Reading:
    def number(args: dict[str, Any], name: str) -> int:
        value = args.get(name, 0)
        return value if isinstance(value, int) and abs(value) < _LARGEST_FACT else 0

    sides = {process: str(args.get("side", "")) for process, args in processes.items()}
    lines, rank = [], []
    for process, thread in raw.threads:
        args = threads.get((process, thread), {})
        rank.append(number(args, "line"))
        plane = processes[process]["name"] if process in processes else process
        lines.append(FoundLine(
            plane, sides.get(process, ""), args.get("name", thread), number(args, "line_id"),
            repeats=args.get("repeats") is True,
        ))  # fmt: skip
    is_event = ~raw.is_counter & (raw.category != row_of(raw.categories, ADDED))
    ops = raw.header["otherData"].get("op_names")
    is_op = None
    if isinstance(ops, list):
        chosen = {name for name in ops if isinstance(name, str)}
        is_op = np.array([name in chosen for name in raw.names], np.bool_)
    planes = [(args["name"], sides[process]) for process, args in processes.items()]
    return Reading(
        lines, raw.thread, is_event, raw.names, raw.name, is_op, {}, rank, planes[:_MOST_PLANES]
    )


# TF1's Timeline.


def _read_timeline(raw: RawEvents, processes: dict[str, str]) -> Reading:
    lines, is_compute = [], []
    for process, thread in raw.threads:
        name = processes.get(process, process)
        plane, line, side = split_graph_device(name.removesuffix(_COMPUTE).removesuffix(_TENSORS))
        number = number_of(thread)
        suffix = f" #{number + 1}" if number else ""
        line = line or ("runs" if plane == GRAPH_RUNS else "ops")
        lines.append(FoundLine(plane, side, line + suffix, number))
        is_compute.append(not name.endswith(_TENSORS) and name != _ALLOCATORS)
    rows = np.arange(raw.name.size)
    op_names = raw.stats_of(rows).texts("name")
    pairs, code = distinct_rows(op_names.of(rows) + 1, raw.name)
    prefixes = ["", *(text and f"{text}:" for text in op_names.texts)]
    names = [prefixes[op] + raw.names[kind] for op, kind in pairs]
    is_event = np.array(is_compute, np.bool_)[raw.thread] & ~raw.is_counter
    return Reading(lines, raw.thread, is_event, names, code, None, {})


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
