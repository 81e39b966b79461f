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

from dataclasses import replace
from typing import Any

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.chrome.counters import read_counters
from profnb.trace.chrome.dialect import Reading, number_of
from profnb.trace.chrome.event_args import ChromeStats
from profnb.trace.chrome.events import RawEvents, read_raw_events
from profnb.trace.chrome.kineto import is_kineto, read_kineto
from profnb.trace.chrome.writer import ADDED
from profnb.trace.model import StatColumn, StringTable, Trace
from profnb.trace.names import (
    is_device_plane,
    is_host_plane,
    split_graph_device,
)

__all__ = ["read_chrome"]

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
    processes, threads = _names_of_places(raw)
    if _is_own(raw):
        reading = _read_own(raw, processes, threads)
    elif any(name.endswith(_COMPUTE) for name in processes.values()):
        reading = _read_timeline(raw, buffer, processes)
    elif is_kineto(raw):
        reading = read_kineto(raw, processes, threads)
    else:
        reading = _read_plain(raw, processes, threads)
    kept = np.flatnonzero(reading.is_event)
    begins, ends = raw.args_spans()
    place = np.full(reading.is_event.size, -1, np.int64)
    used = np.unique(reading.thread[kept])
    if reading.rank:
        used = used[np.argsort(np.array(reading.rank)[used], kind="stable")]
    ranks = reading.rank or [0] * len(reading.lines)
    lines, row_of_used = _merge_lines([(reading.lines[row], ranks[row]) for row in used.tolist()])
    line_of_thread = np.zeros(len(reading.lines), np.int64)
    line_of_thread[used] = row_of_used
    left_out = list(raw.left_out)
    if raw.flows and not _is_own(raw) and not is_kineto(raw):  # which name their launches otherwise
        left_out.append(
            f"{raw.flows:,} ends of flow arrows are not read: what set an event going is not known, "
            "except by a correlation in its args."
        )

    def stats(order: Int64s) -> ChromeStats:
        rows = kept[order]
        place[rows] = np.arange(rows.size)
        known = {}
        for stat, (events, values) in reading.known.items():
            at = place[events]
            by_place = np.argsort(at[at >= 0], kind="stable")
            known[stat] = StatColumn(at[at >= 0][by_place], values[at >= 0][by_place])
        return ChromeStats(buffer, begins[rows], ends[rows], known)

    # Ours are since the trace began; others' clocks mean nothing.
    since = raw.origin_us * 1_000_000 if _is_own(raw) and 0 <= raw.origin_us < _LONGEST_US else 0
    counters = [replace(c, time_ps=c.time_ps + since) for c in read_counters(raw, buffer)]
    return assemble_trace(
        source, lines, line_of_thread[reading.thread[kept]], reading.name[kept],
        raw.begin_ps[kept] + since, raw.duration_ps[kept], StringTable.of(reading.names),
        stats=stats,
        counters=counters,
        is_op_name=reading.is_op_name,
        left_out=tuple(left_out),
        planes=reading.planes,
        keeps_origin=_is_own(raw),
    )  # fmt: skip


def _merge_lines(found: list[tuple[FoundLine, int]]) -> tuple[list[FoundLine], Int64s]:
    """Threads that name the same line of the same rank are one: (lines, the line of each thread)."""
    rows: dict[tuple[FoundLine, int], int] = {}
    row_of_line = [rows.setdefault(line, len(rows)) for line in found]
    return [line for line, _ in rows], np.array(row_of_line, np.int64)


def _names_of_places(raw: RawEvents) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
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


# Ours.


def _is_own(raw: RawEvents) -> bool:
    other = raw.header.get("otherData")
    return isinstance(other, dict) and other.get("tool") == ADDED


def _read_own(
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
        lines.append(FoundLine(plane, side, (line or "ops") + suffix, number))
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
    return Reading(lines, raw.thread, ~raw.is_counter, raw.names, raw.name, None, {})
