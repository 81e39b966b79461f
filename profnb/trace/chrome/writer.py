"""A ``Trace`` to Chrome trace JSON, for Perfetto and chrome://tracing, in pieces.

Planes become processes, lines threads, events complete events with exact decimal microseconds and all their
stats as ``args``. Complete events of one thread have to nest; where events of a line overlap without
nesting, some go to a further thread of the same name, which our reader takes back. Nothing of the size of
the trace is held in memory besides its columns: compiled kernels format a piece of the events at a time.

Source: "Trace Event Format", and Perfetto's importer src/trace_processor/importers/json.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.jit import compiled
from profnb.trace.chrome.json_text import joined, put_bytes, put_integer, put_microseconds
from profnb.trace.model import Counter, Trace

ADDED = "profnb"  # the category of what is added to the recorded events
_PIECE = 1 << 15
_FIRST_EXTRA_THREAD = 1_000_000
_MOST_EXTRA_THREADS = 64
_HEAD = np.frombuffer(b'{"ph":"X","pid":', np.uint8)
_TID = np.frombuffer(b',"tid":', np.uint8)
_TS = np.frombuffer(b',"ts":', np.uint8)
_DUR = np.frombuffer(b',"dur":', np.uint8)
_NAME = np.frombuffer(b',"name":', np.uint8)
_ARGS = np.frombuffer(b',"args":', np.uint8)
_FIXED = 64 + 2 * 20 + 2 * 28


@dataclass(frozen=True, slots=True)
class Additions:
    """What is shown besides the recorded events.

    Attributes:
        launches: Events that set device work going, shape (N,).
        kernels: The work, shape (N,).
        step_begin_ps: Where steps begin, shape (S,).
        step_labels: What to call them.
        step_line: The line they are marked on, or -1.
        counters: Sampled quantities that were worked out from the events.
    """

    launches: Int64s
    kernels: Int64s
    step_begin_ps: Int64s
    step_labels: Sequence[str]
    step_line: int
    counters: Sequence[Counter]


def open_text(target: Path) -> gzip.GzipFile | BufferedWriter:
    """Open a file for writing; compressed if its name ends with ``.gz``."""
    return gzip.GzipFile(target, "wb", 4) if target.suffix == ".gz" else target.open("wb")


@compiled
def _spread(
    begin: Int64s, end: Int64s, offsets: Int64s, around: Int64s, innermost: Int64s, lane: Int64s
) -> None:
    """The first thread of its line on which each event nests with those before it.

    Events that are still open are linked lists, one per thread: ``innermost`` is the last of each, shape
    (threads,), and ``around`` what is around an event, shape (E,).
    """
    most = innermost.size
    for line in range(offsets.size - 1):
        for thread in range(most):
            innermost[thread] = -1
        for event in range(offsets[line], offsets[line + 1]):
            for thread in range(most):
                top = innermost[thread]
                while top >= 0 and end[top] <= begin[event]:
                    top = around[top]
                innermost[thread] = top
                if top < 0 or end[event] <= end[top] or thread == most - 1:
                    around[event] = top
                    innermost[thread] = event
                    lane[event] = thread
                    break


@compiled
def _format(
    first: int, last: int, process: Int64s, thread: Int64s, begin: Int64s, duration: Int64s,
    name: Int64s, names: Bytes, name_offsets: Int64s, args: Bytes, arg_offsets: Int64s, out: Bytes,
) -> int:  # fmt: skip
    """Write the events ``first`` to ``last``; returns how many bytes."""
    at = 0
    for event in range(first, last):
        at = put_bytes(out, at, _HEAD, 0, _HEAD.size)
        at = put_integer(out, at, process[event])
        at = put_bytes(out, at, _TID, 0, _TID.size)
        at = put_integer(out, at, thread[event])
        at = put_bytes(out, at, _TS, 0, _TS.size)
        at = put_microseconds(out, at, begin[event])
        at = put_bytes(out, at, _DUR, 0, _DUR.size)
        at = put_microseconds(out, at, duration[event])
        at = put_bytes(out, at, _NAME, 0, _NAME.size)
        row = name[event]
        at = put_bytes(out, at, names, name_offsets[row], name_offsets[row + 1])
        index = event - first
        if arg_offsets[index + 1] > arg_offsets[index]:
            at = put_bytes(out, at, _ARGS, 0, _ARGS.size)
            at = put_bytes(out, at, args, arg_offsets[index], arg_offsets[index + 1])
        out[at], out[at + 1], out[at + 2] = 125, 44, 10
        at += 3
    return at


def write_chrome(trace: Trace, target: Path, additions: Additions, version: str) -> None:
    """Write a trace as a Chrome trace.

    Args:
        trace: The trace.
        target: The file; compressed if its name ends with ``.gz``.
        additions: What to show besides the events.
        version: Ours, for the file's own record.

    Raises:
        OSError: The file cannot be written.
    """
    lane, around = (np.zeros(len(trace.events), np.int64) for _ in range(2))
    _spread(
        trace.events.begin_ps, trace.events.end_ps, trace.lines.offsets, around,
        np.empty(_MOST_EXTRA_THREADS, np.int64), lane,
    )  # fmt: skip
    process = trace.lines.plane[trace.lines.of_event] + 1
    extra, number = np.unique(
        trace.lines.of_event.astype(np.int64)[lane > 0] * _MOST_EXTRA_THREADS + lane[lane > 0],
        return_inverse=True,
    )
    thread = trace.lines.of_event.astype(np.int64) + 1
    thread[lane > 0] = _FIRST_EXTRA_THREAD + number
    sharing = trace.sharing
    with open_text(target) as file:
        about: dict[str, object] = {"tool": ADDED, "version": version, "source": trace.source}
        if trace.is_op_name is not None:
            rows = np.flatnonzero(trace.is_op_name).tolist()
            about["op_names"] = [trace.names[row] for row in rows]
        head = f'{{"displayTimeUnit":"ms","otherData":{_json(about)},"traceEvents":[\n'
        file.write(sharing.encoded(head.encode()))
        for piece in _metadata(trace, extra.tolist()):
            file.write(sharing.encoded(piece))
        for piece in _events(trace, process, thread):
            file.write(sharing.encoded(piece))
        for piece in _added(trace, process, thread, additions):
            file.write(sharing.encoded(piece))
        # JSON has no comma before a closing bracket: the last event is one that says nothing new.
        file.write(b'{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}}\n]}\n')


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _metadata(trace: Trace, extra: Sequence[int]) -> Iterator[bytes]:
    def line(kind: str, process: int, thread: int | None, **args: object) -> bytes:
        event: dict[str, object] = {"ph": "M", "pid": process, "name": kind, "args": args}
        if thread is not None:
            event["tid"] = thread
        return _json(event).encode() + b",\n"

    for row, plane in enumerate(trace.planes):
        yield line("process_name", row + 1, None, name=plane.name, side=plane.side)
        yield line("process_sort_index", row + 1, None, sort_index=row + 1)
    lines = trace.lines
    threads = [(row, row + 1) for row in range(len(lines))]
    threads += [
        (code // _MOST_EXTRA_THREADS, _FIRST_EXTRA_THREAD + number)
        for number, code in enumerate(extra)
    ]
    for row, thread in threads:
        process = int(lines.plane[row]) + 1
        facts: dict[str, object] = {"name": lines.names[row], "line_id": int(lines.ids[row])}
        facts["line"] = row
        if lines.is_copy is not None and lines.is_copy[row]:
            facts["repeats"] = True
        yield line("thread_name", process, thread, **facts)
        yield line("thread_sort_index", process, thread, sort_index=row + 1)


def _events(trace: Trace, process: Int64s, thread: Int64s) -> Iterator[bytes]:
    names, name_offsets = joined([_json(text).encode() for text in trace.names.texts])
    longest = np.diff(name_offsets)
    events = trace.events
    name = events.name.astype(np.int64)
    begin = events.begin_ps - _origin_ps(trace)
    for first in range(0, len(events), _PIECE):
        last = min(first + _PIECE, len(events))
        args, arg_offsets = trace.stats.as_json(first, last)
        room = int(longest[name[first:last]].sum()) + args.size + _FIXED * (last - first)
        out = np.empty(room, np.uint8)
        size = _format(
            first, last, process, thread, begin, events.duration_ps, name, names, name_offsets,
            args, arg_offsets, out,
        )  # fmt: skip
        yield out[:size].tobytes()


def _origin_ps(trace: Trace) -> int:
    """What the file calls 0: the trace's own 0, or an event before it."""
    return min(int(trace.events.begin_ps.min(initial=0)), 0)


def _microseconds(picoseconds: int) -> str:
    whole, rest = divmod(picoseconds, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


def _added(trace: Trace, process: Int64s, thread: Int64s, additions: Additions) -> Iterator[bytes]:
    origin = _origin_ps(trace)
    begin = trace.events.begin_ps - origin
    for first in range(0, additions.launches.size, _PIECE):
        pairs = slice(first, first + _PIECE)
        lines = []
        launched = zip(additions.launches[pairs], additions.kernels[pairs], strict=True)
        for number, (launch, kernel) in enumerate(launched, start=first + 1):
            for phase, event in (("s", launch), ("f", kernel)):
                lines.append(
                    f'{{"ph":"{phase}","bp":"e","id":{number},"cat":"{ADDED}","name":"launch",'
                    f'"pid":{process[event]},"tid":{thread[event]},"ts":{_microseconds(int(begin[event]))}}},\n'
                )
        yield "".join(lines).encode()
    if additions.step_line >= 0:
        row = additions.step_line
        thread_fields = f'"pid":{trace.lines.plane[row] + 1},"tid":{row + 1}'
        for time, label in zip(
            (additions.step_begin_ps - origin).tolist(), additions.step_labels, strict=True
        ):
            yield (
                f'{{"ph":"i","s":"p","cat":"{ADDED}","name":{_json(label)},{thread_fields},'
                f'"ts":{_microseconds(time)}}},\n'
            ).encode()
    for category, counters in (("counter", trace.counters), (ADDED, additions.counters)):
        for counter in counters:
            yield from _samples(counter, category, origin)


def _samples(counter: Counter, category: str, origin_ps: int) -> Iterator[bytes]:
    name, series = _json(counter.name), _json(counter.series or counter.name)
    for first in range(0, counter.time_ps.size, _PIECE):
        part = slice(first, first + _PIECE)
        pairs = zip(
            (counter.time_ps[part] - origin_ps).tolist(), counter.value[part].tolist(), strict=True
        )
        yield "".join(
            f'{{"ph":"C","pid":1,"cat":"{category}","name":{name},"ts":{_microseconds(max(time, 0))},'
            f'"args":{{{series}:{int(value) if value.is_integer() else repr(value)}}}}},\n'
            for time, value in pairs
            if np.isfinite(value)
        ).encode()
