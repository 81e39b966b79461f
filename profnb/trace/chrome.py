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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profnb.columns import Bools, Bytes, Int64s
from profnb.errors import TraceFormatError
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.chrome_counters import read_counters
from profnb.trace.chrome_events import RawEvents, read_raw_events
from profnb.trace.chrome_stats import ChromeStats
from profnb.trace.chrome_write import ADDED
from profnb.trace.model import StatColumn, StringTable, Trace
from profnb.trace.names import (
    ROOT_LEVEL,
    STEP_NUM,
    is_device_plane,
    is_host_plane,
    split_graph_device,
)

__all__ = ["read_chrome"]

_COMPUTE, _TENSORS, _ALLOCATORS = " Compute", " Tensors", "Allocators"
_KINETO_OPS = frozenset({"cpu_op", "Operator"})
_KINETO_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_KINETO_ANNOTATION = "gpu_user_annotation"
_KINETO_STEP = "ProfilerStep#"
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


@dataclass(frozen=True, slots=True)
class _Reading:
    """How one writer's events become a trace's.

    Attributes:
        lines: The lines; several of them may be the same.
        thread: Row of ``lines`` of each raw event, shape (E,).
        is_event: Which raw events are events of a line, shape (E,).
        names: The events' names.
        name: Row of ``names``, shape (E,).
        is_op_name: See ``Trace``.
        known: Stats told otherwise than in args, by raw event.
        rank: Where each line stands, by line; as they are found where empty.
        planes: Planes that stand first even if they have no events: name and side.
    """

    lines: list[FoundLine]
    thread: Int64s
    is_event: Bools
    names: list[str]
    name: Int64s
    is_op_name: Bools | None
    known: dict[str, tuple[Int64s, Int64s]]
    rank: Sequence[int] = ()
    planes: Sequence[tuple[str, str]] = ()


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
    elif not _KINETO_OPS.isdisjoint(raw.categories):
        reading = _read_kineto(raw, processes, threads)
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
    if raw.flows and not _is_own(raw):
        left_out.append(
            f"{raw.flows:,} ends of flow arrows are not read; launches are joined to kernels by their "
            "correlation."
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


def _number(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 18 else 0


# Ours.


def _is_own(raw: RawEvents) -> bool:
    other = raw.header.get("otherData")
    return isinstance(other, dict) and other.get("tool") == ADDED


def _read_own(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> _Reading:
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
    return _Reading(
        lines, raw.thread, is_event, raw.names, raw.name, is_op, {}, rank, planes[:_MOST_PLANES]
    )


# TF1's Timeline.


def _read_timeline(raw: RawEvents, buffer: Bytes, processes: dict[str, str]) -> _Reading:
    lines = []
    is_compute = []
    for process, thread in raw.threads:
        name = processes.get(process, process)
        plane, line, side = split_graph_device(name.removesuffix(_COMPUTE).removesuffix(_TENSORS))
        number = _number(thread)
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
    return _Reading(lines, raw.thread, is_event, names, code.reshape(-1), None, {})


# PyTorch's profiler.


def _read_kineto(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> _Reading:
    kinds = [_kineto_kind(category) for category in raw.categories]
    kind = np.array(kinds, np.int64)[raw.category]
    on_device = np.zeros(len(raw.threads), np.bool_)
    on_device[raw.thread[kind == 1]] = True
    annotated = np.flatnonzero(kind == 2)
    # Annotations on a stream cover the kernels below them: a line of their own, not device work.
    thread = raw.thread.copy()
    thread[annotated] += len(raw.threads)
    lines = []
    for repeats in (False, True):
        for row, (process, tid) in enumerate(raw.threads):
            name = threads.get((process, tid), tid)
            if on_device[row]:
                stream = tid if tid.startswith("stream") else f"stream {tid}"
                stream += " annotations" if repeats else ""
                line = FoundLine(f"/device:GPU:{process}", "device", stream, _number(tid), repeats)
            elif process in ("Spans", "Traces") or not _is_thread(process, tid):
                line = FoundLine(processes.get(process, process), "other", name)
            else:
                label = name if name != tid else f"thread {tid}"
                plane = f"{processes.get(process, 'process')} {process}"
                line = FoundLine(plane, "host", label, _number(tid))
            lines.append(line)
    in_ops = np.isin(raw.category, [r for r, c in enumerate(raw.categories) if c in _KINETO_OPS])
    is_op = np.zeros(len(raw.names), np.bool_)
    is_op[raw.name[in_ops]] = True
    is_event = ~raw.is_counter & ~(raw.is_instant & (raw.name == _row_of(raw.names, "[memory]")))
    return _Reading(lines, thread, is_event, raw.names, raw.name, is_op, _kineto_steps(raw))


def _kineto_kind(category: str) -> int:
    """1 for device work, 2 for an annotation on a stream, else 0."""
    return 1 if category in _KINETO_DEVICE else 2 if category == _KINETO_ANNOTATION else 0


def _is_thread(process: str, thread: str) -> bool:
    return process.lstrip("-").isdecimal() and bool(thread)


def _row_of(names: list[str], wanted: str) -> int:
    return names.index(wanted) if wanted in names else -1


def _kineto_steps(raw: RawEvents) -> dict[str, tuple[Int64s, Int64s]]:
    """``ProfilerStep#1009`` is a step marker: the stats that say so."""
    numbers = {
        row: int(name[len(_KINETO_STEP) :])
        for row, name in enumerate(raw.names)
        if name.startswith(_KINETO_STEP)
        and name[len(_KINETO_STEP) :].isdecimal()
        and len(name) < len(_KINETO_STEP) + 16
    }
    number = np.full(len(raw.names), -1, np.int64)
    number[list(numbers)] = list(numbers.values())
    events = np.flatnonzero((number[raw.name] >= 0) & ~raw.is_instant)
    return {
        STEP_NUM: (events, number[raw.name[events]]),
        ROOT_LEVEL: (events, np.ones(events.size, np.int64)),
    }


# TensorFlow's profiler, and everybody else.


def _read_plain(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> _Reading:
    names = processes.values()
    has_planes = any(is_host_plane(name) or is_device_plane(name) for name in names)
    side = "" if has_planes else "host"
    lines = [
        FoundLine(
            processes.get(process, process or "process"),
            side,
            threads.get((process, thread), f"thread {thread}" if thread else "events"),
            _number(thread),
        )
        for process, thread in raw.threads
    ]
    return _Reading(lines, raw.thread, ~raw.is_counter, raw.names, raw.name, None, {})
