"""A ``Trace`` to Chrome trace JSON, for Perfetto and chrome://tracing, in pieces.

Planes become processes, lines threads, events complete events with exact decimal microseconds and all their
stats as ``args``. Complete events of one thread have to nest; where events of a line overlap without
nesting, some go to a further thread of the same name, which our reader takes back. Nothing of the size of
the trace is held in memory besides its columns: a piece of the events is written at a time.

Source: "Trace Event Format", and Perfetto's importer src/trace_processor/importers/json.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedWriter
from itertools import chain, islice
from math import isfinite
from pathlib import Path

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.jit import compiled
from profnb.trace.model import Counter, Trace, json_text

ADDED = "profnb"  # the category of what is added to the recorded events
_ROWS_AT_ONCE = 1 << 15
_FIRST_EXTRA_THREAD = 1_000_000
_MOST_EXTRA_THREADS = 64


@dataclass(frozen=True, slots=True)
class Additions:
    """Marks that are shown besides the recorded events.

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


def write_chrome(trace: Trace, target: Path, additions: Additions, version: str) -> None:
    """Write a trace as a Chrome trace."""
    events, lines = trace.events, trace.lines
    lane, around = (np.zeros(len(events), np.int64) for _ in range(2))
    innermost = np.empty(_MOST_EXTRA_THREADS, np.int64)
    _spread(events.begin_ps, events.end_ps, lines.offsets, around, innermost, lane)
    line_of_event = lines.of_event.astype(np.int64)
    is_extra = lane > 0
    code = line_of_event[is_extra] * _MOST_EXTRA_THREADS + lane[is_extra]
    extra, number = np.unique(code, return_inverse=True)
    thread = line_of_event + 1
    thread[is_extra] = _FIRST_EXTRA_THREAD + number
    # What the file calls 0: the trace's own 0, or an event before it.
    origin_ps = min(int(events.begin_ps.min(initial=0)), 0)
    placed = lines.plane[line_of_event] + 1, thread, events.begin_ps - origin_ps
    about: dict[str, object] = {"tool": ADDED, "version": version, "source": trace.source}
    if trace.is_op_name is not None:
        about["op_names"] = [trace.names[row] for row in np.flatnonzero(trace.is_op_name).tolist()]
    head = f'{{"displayTimeUnit":"ms","otherData":{json_text(about)},"traceEvents":[\n'
    pieces = chain(
        [head.encode()],
        _batched(_metadata(trace, extra.tolist())),
        _events(trace, *placed),
        _batched(_added(trace, placed, additions, origin_ps)),
        # JSON has no comma before a closing bracket: the last event is one that says nothing new.
        [b'{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}}\n]}\n'],
    )
    with open_text(target) as file:
        for piece in pieces:
            file.write(trace.sharing.encoded(piece))


def _batched(lines: Iterator[str]) -> Iterator[bytes]:
    while batch := "".join(islice(lines, _ROWS_AT_ONCE)):
        yield batch.encode()


def _metadata(trace: Trace, extra: Sequence[int]) -> Iterator[str]:
    def named(kind: str, process: int, thread: dict[str, int], args: dict[str, object]) -> str:
        event = {"ph": "M", "pid": process, "name": kind, "args": args, **thread}
        return json_text(event) + ",\n"

    for row, plane in enumerate(trace.planes, start=1):
        yield named("process_name", row, {}, {"name": plane.name, "side": plane.side})
        yield named("process_sort_index", row, {}, {"sort_index": row})
    lines = trace.lines
    threads = [(row, row + 1) for row in range(len(lines))]
    added = enumerate(extra, start=_FIRST_EXTRA_THREAD)
    threads += [(code // _MOST_EXTRA_THREADS, thread) for thread, code in added]
    for row, thread in threads:
        place = int(lines.plane[row]) + 1, {"tid": thread}
        facts = {"name": lines.names[row], "line_id": int(lines.ids[row]), "line": row}
        if lines.is_copy is not None and lines.is_copy[row]:
            facts["repeats"] = True
        yield named("thread_name", *place, facts)
        yield named("thread_sort_index", *place, {"sort_index": row + 1})


def _events(trace: Trace, process: Int64s, thread: Int64s, begin: Int64s) -> Iterator[bytes]:
    names = [json_text(text) for text in trace.names.texts]
    columns = process, thread, begin, trace.events.duration_ps, trace.events.name
    for first in range(0, begin.size, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, begin.size)
        rows = zip(*(column[first:last].tolist() for column in columns), strict=True)
        args = [stats and f',"args":{stats}' for stats in trace.stats.as_json(first, last)]
        yield "".join(
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_microseconds(begin_ps)},'
            f'"dur":{_microseconds(duration_ps)},"name":{names[name]}{stats}}},\n'
            for (pid, tid, begin_ps, duration_ps, name), stats in zip(rows, args, strict=True)
        ).encode()


def _microseconds(picoseconds: int) -> str:
    whole, rest = divmod(picoseconds, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


def _added(
    trace: Trace, placed: tuple[Int64s, ...], additions: Additions, origin_ps: int
) -> Iterator[str]:
    process, thread, begin = placed
    launched = zip(additions.launches.tolist(), additions.kernels.tolist(), strict=True)
    for number, pair in enumerate(launched, start=1):
        for phase, event in zip("sf", pair, strict=True):
            yield (
                f'{{"ph":"{phase}","bp":"e","id":{number},"cat":"{ADDED}","name":"launch",'
                f'"pid":{process[event]},"tid":{thread[event]},"ts":{_microseconds(int(begin[event]))}}},\n'
            )
    if additions.step_line >= 0:
        row = additions.step_line
        place = f'"pid":{trace.lines.plane[row] + 1},"tid":{row + 1}'
        begins_ps = (additions.step_begin_ps - origin_ps).tolist()
        for time_ps, label in zip(begins_ps, additions.step_labels, strict=True):
            yield (
                f'{{"ph":"i","s":"p","cat":"{ADDED}","name":{json_text(label)},{place},'
                f'"ts":{_microseconds(time_ps)}}},\n'
            )
    categories = [("counter", one) for one in trace.counters]
    for category, counter in [*categories, *((ADDED, one) for one in additions.counters)]:
        name, series = json_text(counter.name), json_text(counter.series or counter.name)
        times_ps = np.maximum(counter.time_ps - origin_ps, 0).tolist()
        for time_ps, value in zip(times_ps, counter.value.tolist(), strict=True):
            if isfinite(value):
                yield (
                    f'{{"ph":"C","pid":1,"cat":"{category}","name":{name},"ts":{_microseconds(time_ps)},'
                    f'"args":{{{series}:{int(value) if value.is_integer() else repr(value)}}}}},\n'
                )
