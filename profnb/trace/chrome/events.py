"""Chrome trace JSON to its raw columns: events, metadata, counters, and what cannot be used.

Begins and ends become events with a duration. On one thread, begins at 0 and 2 and ends at 5 and 9 are the
events [2, 5) and [0, 9): an end closes the innermost begin that is open.

Source: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from profnb.core.columns import Bools, Bytes, Int64s, distinct_rows, number_values
from profnb.core.errors import TraceFormatError
from profnb.core.jit import compiled
from profnb.core.units import counted_text
from profnb.trace.assemble import FoundLine, PlaneStats
from profnb.trace.chrome import json_scan
from profnb.trace.chrome.event_args import ChromeStats, parse_value, text_of
from profnb.trace.model import StatColumn

_PH, _NAME, _CAT, _TS, _DUR, _PID, _TID, _ARGS = range(len(json_scan.FIELDS))
_LONGEST_US = (1 << 61) // 1_000_000  # 26 days: sums of two times stay inside int64 picoseconds
_MOST_METADATA = 200_000
_MOST_DOCUMENTS = 1_000
_MOST_HEADER = 100_000
_MOST_MEMBERS = 10_000
_TIMED_PHASES, _FLOW_PHASES = list(b"XBEiIRC"), list(b"stf")


@dataclass(frozen=True, slots=True)
class RawEvents:
    """The events of a Chrome trace that have a place and a time, in file order.

    Attributes:
        buffer: The whole file.
        spans: Where each field is, shape (E, 8, 2), fields as ``json_scan.FIELDS``.
        names: Distinct names.
        name: Row of ``names``, shape (E,).
        categories: Distinct categories.
        category: Row of ``categories``, shape (E,).
        threads: Distinct (process, thread) as texts.
        thread: Row of ``threads``, shape (E,).
        origin_us: The whole microsecond before the first event, on the file's own clock.
        begin_ps: Begin since then, shape (E,).
        duration_ps: Duration, shape (E,); 0 for an instant or counter.
        is_counter: Whether it is a sample of a counter, shape (E,).
        is_instant: Whether it is an instant, shape (E,).
        metadata: (kind, process, thread, args) of the metadata events.
        header: The small members beside ``traceEvents``.
        left_out: What could not be used, in sentences.
        flows: How many events are ends of arrows between others.
    """

    buffer: Bytes
    spans: Int64s
    names: list[str]
    name: Int64s
    categories: list[str]
    category: Int64s
    threads: list[tuple[str, str]]
    thread: Int64s
    origin_us: int
    begin_ps: Int64s
    duration_ps: Int64s
    is_counter: Bools
    is_instant: Bools
    metadata: list[tuple[str, str, str, dict[str, Any]]]
    header: dict[str, Any]
    left_out: tuple[str, ...]
    flows: int

    def args_of(self, event: int) -> dict[str, Any]:
        """Parse the args of one event; empty where they are none."""
        return _parse_object(self.buffer, self.spans[event, _ARGS])

    def stats_of(
        self, events: Int64s, derived: Mapping[str, StatColumn] = MappingProxyType({})
    ) -> ChromeStats:
        """Give the args of some events as stats, with others that were derived of them."""
        spans = self.spans[events, _ARGS]
        return ChromeStats(self.buffer, spans[:, 0].copy(), spans[:, 1].copy(), derived)


Derived = tuple[Int64s, Int64s] | tuple[Int64s, Int64s, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """The meaning of one writer's events.

    Attributes:
        lines: The lines; several of them may be the same.
        thread: Row of ``lines`` of each raw event, shape (E,).
        is_event: Which raw events are events of a line, shape (E,).
        names: The events' names.
        name: Row of ``names``, shape (E,).
        is_op_name: See ``Trace``.
        derived: Stats worked out from something else than the args, by name: raw events and their values.
            Kineto's ``ProfilerStep#1009`` has ``step_num`` 1009. Values may be rows of texts, which follow.
        rank: Where each line stands, by line; as they are found where empty.
        planes: Planes that stand first even if they have no events: name and side.
        plane_stats: What the file says of devices, by their planes' names.
        left_out: What of the events is not understood, in sentences.
    """

    lines: list[FoundLine]
    thread: Int64s
    is_event: Bools
    names: list[str]
    name: Int64s
    is_op_name: Bools | None
    derived: dict[str, Derived]
    rank: Sequence[int] = ()
    planes: Sequence[tuple[str, str]] = ()
    plane_stats: Mapping[str, PlaneStats] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def number_of(text: str) -> int:
    """Give the number that a process or thread is called by; 0 where it has another kind of name."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 18 else 0


def row_of(texts: Sequence[str], wanted: str) -> int:
    """Find a text; -1 where it is not there."""
    return texts.index(wanted) if wanted in texts else -1


def _parse_object(buffer: Bytes, span: Int64s) -> dict[str, Any]:
    parsed = parse_value(buffer[span[0] : span[1]].tobytes())
    return parsed if isinstance(parsed, dict) else {}


def _is_at(buffer: Bytes, at: int, byte: bytes) -> bool:
    return buffer[at : at + 1].tobytes() == byte


def _next_member(buffer: Bytes, at: int) -> tuple[str, int]:
    """Find the key of the member behind a bracket or comma, and where its value begins; -1 for none."""
    end = buffer.size
    at = json_scan.skip_space(buffer, at + 1, end)
    after = json_scan.string_end(buffer, at, end) if _is_at(buffer, at, b'"') else end
    colon = json_scan.skip_space(buffer, after, end) if after >= 0 else end
    if not _is_at(buffer, colon, b":"):
        return "", -1
    return text_of(buffer[at:after].tobytes()), json_scan.skip_space(buffer, colon + 1, end)


def _find_list(buffer: Bytes, begin: int = 0) -> tuple[int, dict[str, Any] | None]:
    """Find where the list of events of a document begins, and the small members before it.

    Returns:
        The position, and the members; None for a bare list.
    """
    end = buffer.size
    has_mark = buffer[begin : begin + 3].tobytes() == b"\xef\xbb\xbf"
    at = json_scan.skip_space(buffer, begin + 3 * has_mark, end)
    if _is_at(buffer, at, b"["):
        return at, None
    if not _is_at(buffer, at, b"{"):
        beginning = buffer[at : at + 20].tobytes()
        raise TraceFormatError(
            f"The file begins with {beginning!r}. A Chrome trace is a JSON list of events, or an object "
            "with the member traceEvents."
        )
    header: dict[str, Any] = {}
    for _ in range(_MOST_MEMBERS):
        key, at = _next_member(buffer, at)
        if key == "traceEvents" and _is_at(buffer, at, b"["):
            return at, header
        after = json_scan.skip_value(buffer, at, end) if at >= 0 else -1
        if after < 0:
            break
        if after - at <= _MOST_HEADER:
            header[key] = parse_value(buffer[at:after].tobytes())
        at = json_scan.skip_space(buffer, after, end)
        at -= not _is_at(buffer, at, b",")
    keys = ", ".join(sorted(header)[:8]) or "none"
    raise TraceFormatError(
        f"No list named traceEvents in {end:,} bytes of JSON (members found: {keys}). This is no Chrome "
        "trace, or a trace cut short."
    )


def _find_next_document(buffer: Bytes, after: int, *, is_bare: bool) -> int:
    """Find where another JSON document begins behind one whose list of events has ended; -1 for nowhere."""
    end = buffer.size
    at = json_scan.skip_space(buffer, after, end)
    for _ in range(0 if is_bare else _MOST_MEMBERS):
        if not _is_at(buffer, at, b","):
            break
        _, value = _next_member(buffer, at)
        value_end = json_scan.skip_value(buffer, value, end) if value >= 0 else -1
        if value_end < 0:
            return -1
        at = json_scan.skip_space(buffer, value_end, end)
    if not is_bare:
        if not _is_at(buffer, at, b"}"):
            return -1
        at = json_scan.skip_space(buffer, at + 1, end)
    return at if at < end and buffer[at] in b"[{" else -1


def _scan_documents(buffer: Bytes) -> tuple[json_scan.EventSpans, dict[str, Any] | None, int]:
    """Find the events of every JSON document in a file, the members before the first list, and how many."""
    at, header = _find_list(buffer)
    listed = json_scan.scan_events(buffer, at)
    spans, documents, is_bare = [listed.spans], 1, header is None
    while listed.is_closed and not listed.damaged and documents < _MOST_DOCUMENTS:
        begin = _find_next_document(buffer, listed.after, is_bare=is_bare)
        try:
            at, other = _find_list(buffer, begin) if begin >= 0 else (-1, None)
        except TraceFormatError:  # something else, or the second is cut off before its events
            break
        if at < 0:
            break
        listed, is_bare, documents = json_scan.scan_events(buffer, at), other is None, documents + 1
        spans.append(listed.spans)
    return replace(listed, spans=np.concatenate(spans)), header, documents


def read_events(buffer: Bytes) -> RawEvents:
    """Find the events of a Chrome trace and put their fields into columns."""

    def text_at(span: Int64s) -> str:
        return text_of(buffer[span[0] : span[1]].tobytes())

    listed, header, documents = _scan_documents(buffer)
    spans = listed.spans
    if listed.damaged and not spans[:, _PH, 1].any():
        raise TraceFormatError(
            f"Damaged or cut short at byte {listed.damaged[0]:,} of {buffer.size:,}, before any whole "
            "event. Record or download it again."
        )
    phases = _phases(buffer, spans)
    is_empty = ~spans.any(axis=(1, 2))  # TensorFlow's profiler ends its list with {}
    is_flow, is_metadata, is_timed = (
        np.isin(phases, kinds) for kinds in (_FLOW_PHASES, list(b"M"), _TIMED_PHASES)
    )
    others = int((~is_empty & ~is_flow & ~is_metadata & ~is_timed).sum())
    metadata = [
        (
            text_at(row[_NAME]),
            text_at(row[_PID]),
            text_at(row[_TID]),
            _parse_object(buffer, row[_ARGS]),
        )
        for row in spans[is_metadata][:_MOST_METADATA]
    ]
    spans, phases = spans[is_timed], phases[is_timed]
    whole, part, is_number = _decimals(buffer, spans[:, _TS])
    duration = _durations(buffer, spans, phases)
    is_usable = is_number & (duration >= 0)
    unusable = (
        ((~is_number).sum(), "events have a time that is no number"),
        ((duration < 0)[is_number].sum(), "events have a duration that is negative or no number"),
        (others, "events have no place on a thread (async, object, ...)"),
    )
    several = f"The file holds {documents:,} JSON documents; their events are shown together."
    left_out = [several] if documents > 1 else []
    left_out += _damage(listed, buffer.size)
    left_out += [f"{int(count):,} {what}." for count, what in unusable if count]
    spans, phases, duration = spans[is_usable], phases[is_usable], duration[is_usable]
    origin_us = int(whole[is_usable].min()) if is_usable.any() else 0
    begin = _since(origin_us, whole[is_usable], part[is_usable])
    processes, process = _texts(buffer, spans[:, _PID])
    tids, tid = _texts(buffer, spans[:, _TID])
    pairs, thread = distinct_rows(process, tid)
    order, duration, phases, notes = close_pairs(begin, duration, phases, thread, spans[:, _ARGS])
    spans = spans[order]
    names, name = _texts(buffer, spans[:, _NAME])
    categories, category = _texts(buffer, spans[:, _CAT])
    return RawEvents(
        buffer=buffer,
        spans=spans,
        names=names,
        name=name,
        categories=categories,
        category=category,
        threads=[(processes[row], tids[tid_row]) for row, tid_row in pairs],
        thread=thread[order],
        origin_us=origin_us,
        begin_ps=begin[order],
        duration_ps=duration,
        is_counter=phases == ord("C"),
        is_instant=np.isin(phases, list(b"iIR")),
        metadata=metadata,
        header=header or {},
        left_out=(*left_out, *notes),
        flows=int(is_flow.sum()),
    )


def _damage(listed: json_scan.EventSpans, size: int) -> Iterator[str]:
    """Write what is missing of a list that is damaged, or that a program left unclosed."""
    inside, last = list(listed.damaged), -1
    if inside and not listed.is_closed:
        last = inside.pop()
    if inside:
        yield (
            f"The file is damaged at byte {inside[0]:,} of {size:,}: {counted_text(len(inside), 'event')} "
            "could not be read. All other events are shown."
        )
    if last >= 0:
        yield f"The file is cut off at byte {last:,} of {size:,}: later events are missing."
    elif not listed.is_closed:
        yield (
            "The file has no closing bracket: the program was stopped, and the last events may be missing."
        )


def _phases(buffer: Bytes, spans: Int64s) -> Bytes:
    """Read the one letter of each event's ``ph``, or 0."""
    begins, ends = spans[:, _PH, 0], spans[:, _PH, 1]
    letter = buffer[np.minimum(begins + 1, buffer.size - 1)]
    return np.where(ends - begins == 3, letter, 0).astype(np.uint8)


def _decimals(buffer: Bytes, spans: Int64s) -> tuple[Int64s, Int64s, Bools]:
    whole, part = (np.zeros(len(spans), np.int64) for _ in range(2))
    valid = np.zeros(len(spans), np.bool_)
    json_scan.read_decimals(buffer, spans[:, 0].copy(), spans[:, 1].copy(), whole, part, valid)
    return whole, part, valid


def _durations(buffer: Bytes, spans: Int64s, phases: Bytes) -> Int64s:
    """Read durations in picoseconds; -1 where negative, too long or no number; 0 without one."""
    whole, part, valid = _decimals(buffer, spans[:, _DUR])
    good = valid & (whole >= 0) & (whole < _LONGEST_US)
    picoseconds = np.where(good, np.where(good, whole, 0) * 1_000_000 + part, -1)
    return np.where((phases == ord("X")) & (spans[:, _DUR, 1] != 0), picoseconds, 0)


def _since(origin_us: int, whole: Int64s, part: Int64s) -> Int64s:
    """Give picoseconds since an origin; epoch microseconds do not fit picoseconds in 64 bits."""
    span = int(whole.max(initial=origin_us)) - origin_us
    if span > _LONGEST_US:
        raise TraceFormatError(
            f"The events lie {span / 86_400e6:,.0f} days apart, too far for one capture."
        )
    return (whole - origin_us) * 1_000_000 + part


def _texts(buffer: Bytes, spans: Int64s) -> tuple[list[str], Int64s]:
    """Find the distinct texts of N spans and the row of each, shape (N,)."""
    begins, ends = spans[:, 0].copy(), spans[:, 1].copy()
    code, first = json_scan.distinct_spans(buffer, begins, ends)
    raw = (text_of(buffer[begins[at] : ends[at]].tobytes()) for at in first.tolist())
    texts, row = number_values(raw)
    return texts, row[code]


@compiled
def _pair(
    order: Int64s, thread: Int64s, is_begin: Bools, previous: Int64s, partner: Int64s
) -> None:
    """Match begins and ends of one thread like brackets; ``partner`` stays -1 without a match."""
    current, top = np.int64(-1), np.int64(-1)
    for event in order:
        if thread[event] != current:
            current, top = thread[event], np.int64(-1)
        if is_begin[event]:
            previous[event] = top
            top = event
        elif top >= 0:
            partner[top] = event
            partner[event] = top
            top = previous[top]


def close_pairs(
    begin: Int64s, duration: Int64s, phases: Bytes, thread: Int64s, args: Int64s
) -> tuple[Int64s, Int64s, Bytes, list[str]]:
    """Make one event of each begin and its end.

    Args:
        begin: When, shape (E,).
        duration: Durations of the events that have one, shape (E,).
        phases: What kind of event each is, shape (E,); "B" and "E" are paired.
        thread: Whose it is, shape (E,); pairs nest per thread.
        args: Spans of the events' args, shape (E, 2); an event takes its end's where its begin has none.

    Returns:
        The rows that stay, their durations, their phases, and what did not match, in sentences.
    """
    is_begin, is_end = phases == ord("B"), phases == ord("E")
    pairs = np.flatnonzero(is_begin | is_end)
    if not pairs.size:
        return np.arange(phases.size), duration, phases, []
    order = pairs[np.lexsort((pairs, begin[pairs], thread[pairs]))]
    previous, partner = (np.full(phases.size, -1, np.int64) for _ in range(2))
    _pair(order, thread, is_begin, previous, partner)
    matched = is_begin & (partner >= 0)
    open_ = is_begin & (partner < 0)
    stray = int((is_end & (partner < 0)).sum())
    last = np.zeros(int(thread.max()) + 1, np.int64)
    np.maximum.at(last, thread, begin + duration)
    duration = duration.copy()
    duration[matched] = begin[partner[matched]] - begin[matched]
    duration[open_] = last[thread[open_]] - begin[open_]
    # An end may carry the args of its event; they are used where the begin has none.
    lacks = matched & (args[:, 1] == 0)
    args[lacks] = args[partner[lacks]]
    notes = []
    if open_.any():
        notes.append(
            f"{int(open_.sum()):,} events begin and never end. The timeline draws them to the end of the "
            "thread."
        )
    if stray:
        notes.append(f"{stray:,} events without a begin are left out.")
    remaining = np.flatnonzero(~is_end)
    return remaining, duration[remaining], phases[remaining], notes
