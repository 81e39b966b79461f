"""Chrome trace JSON to its raw columns: events, metadata, counters, and what cannot be used.

Source: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from profnb.core.columns import Bools, Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.trace.chrome.event_args import text_of
from profnb.trace.chrome.json_numbers import read_decimals
from profnb.trace.chrome.json_scan import (
    FIELDS,
    distinct_spans,
    scan_events,
    skip_space,
    skip_value,
    string_end,
)
from profnb.trace.chrome.json_values import parse_value
from profnb.trace.chrome.pairs import close_pairs

_PH, _NAME, _CAT, _TS, _DUR, _PID, _TID, _ARGS = range(len(FIELDS))
_LONGEST_US = (1 << 61) // 1_000_000  # 26 days: sums of two times stay inside int64 picoseconds
_MOST_METADATA = 200_000
_MOST_HEADER = 100_000
_USED = b"XBEiIRMC"


@dataclass(frozen=True, slots=True)
class RawEvents:
    """The events of a Chrome trace that have a place and a time, in file order.

    Attributes:
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

    def args_of(self, buffer: Bytes, event: int) -> dict[str, Any]:
        """The args of one event, parsed; empty where they are none."""
        begin, end = self.spans[event, _ARGS]
        return _parse_object(buffer[begin:end].tobytes())

    def args_spans(self) -> tuple[Int64s, Int64s]:
        """Where the events' args begin and end, both of shape (E,)."""
        return self.spans[:, _ARGS, 0].copy(), self.spans[:, _ARGS, 1].copy()


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        parsed = parse_value(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _find_list(buffer: Bytes) -> tuple[int, dict[str, Any]]:
    """Where the list of events begins, and the small members that stand before it."""
    end = buffer.size
    at = 3 if buffer[:3].tobytes() == b"\xef\xbb\xbf" else 0
    at = skip_space(buffer, at, end)
    if at < end and buffer[at] == ord("["):
        return at, {}
    header: dict[str, Any] = {}
    if at >= end or buffer[at] != ord("{"):
        beginning = buffer[at : at + 20].tobytes()
        raise TraceFormatError(
            f"It begins with {beginning!r}; a Chrome trace is a JSON list of events, or an object with "
            "the member traceEvents."
        )
    at += 1
    for _ in range(10_000):
        at = skip_space(buffer, at, end)
        if at >= end or buffer[at] != ord('"'):
            break
        after = string_end(buffer, at, end)
        if after < 0:
            break
        key = text_of(buffer[at:after].tobytes())
        at = skip_space(buffer, after, end)
        if at >= end or buffer[at] != ord(":"):
            break
        at = skip_space(buffer, at + 1, end)
        if key == "traceEvents" and at < end and buffer[at] == ord("["):
            return at, header
        after = skip_value(buffer, at, end)
        if after < 0:
            break
        if after - at <= _MOST_HEADER:
            header[key] = _parse_value(buffer[at:after].tobytes())
        at = skip_space(buffer, after, end)
        if at < end and buffer[at] == ord(","):
            at += 1
    keys = ", ".join(sorted(header)[:8]) or "none"
    raise TraceFormatError(
        f"No list named traceEvents in {end:,} bytes of JSON (members found: {keys}). This is no "
        "Chrome trace, or it was cut short."
    )


def _parse_value(raw: bytes) -> Any:
    try:
        return parse_value(raw)
    except (ValueError, RecursionError):
        return None


def read_raw_events(buffer: Bytes) -> RawEvents:
    """Find the events of a Chrome trace and put their fields into columns.

    Args:
        buffer: The whole file, decompressed, as uint8.

    Raises:
        TraceFormatError: It is no Chrome trace, or is damaged or cut short.
    """
    at, header = _find_list(buffer)
    spans, after, status = scan_events(buffer, at)
    if status == 2 or (status == 1 and _is_object(buffer)):
        raise TraceFormatError(
            f"Damaged or cut short at byte {after:,} of {buffer.size:,}. Record or download it again."
        )
    phases = _phases(buffer, spans)
    metadata = _read_metadata(buffer, spans[phases == ord("M")])
    flows = int(np.isin(phases, list(b"stf")).sum())
    is_empty = ~spans.any(axis=(1, 2))  # TensorFlow's profiler ends its list with {}
    others = int((~is_empty & ~np.isin(phases, list(_USED + b"stf"))).sum())
    timed = np.isin(phases, list(b"XBEiIRC"))
    spans, phases = spans[timed], phases[timed]
    whole, part, valid = _decimals(buffer, spans[:, _TS])
    duration = _durations(buffer, spans, phases)
    is_usable = valid & (duration >= 0)
    counts = int((~valid).sum()), int((duration < 0)[valid].sum()), others
    spans, phases, duration = spans[is_usable], phases[is_usable], duration[is_usable]
    origin_us = int(whole[is_usable].min()) if is_usable.any() else 0
    begin = _since(origin_us, whole[is_usable], part[is_usable])
    code, threads = _threads(buffer, spans)
    order, duration, phases, notes = close_pairs(begin, duration, phases, code, spans[:, _ARGS])
    spans = spans[order]
    names, name = _texts(buffer, spans[:, _NAME])
    categories, category = _texts(buffer, spans[:, _CAT])
    return RawEvents(
        spans=spans,
        names=names,
        name=name,
        categories=categories,
        category=category,
        threads=threads,
        thread=code[order],
        origin_us=origin_us,
        begin_ps=begin[order],
        duration_ps=duration,
        is_counter=phases == ord("C"),
        is_instant=np.isin(phases, list(b"iIR")),
        metadata=metadata,
        header=header,
        left_out=(*_left_out(*counts, is_cut=status == 1), *notes),
        flows=flows,
    )


def _left_out(bad_time: int, bad_duration: int, others: int, *, is_cut: bool) -> list[str]:
    """Sentences on what the file holds and the trace will not."""
    left_out = []
    if is_cut:
        left_out.append(
            "The file ends without its closing bracket, as a program that was stopped leaves it; "
            "the last events may be missing."
        )
    for count, what in (
        (bad_time, "events have a time that is no number"),
        (bad_duration, "events have a duration that is negative or no number"),
        (others, "events are of kinds that have no place on a thread (async, object, ...)"),
    ):
        if count:
            left_out.append(f"{count:,} {what}.")
    return left_out


def _is_object(buffer: Bytes) -> bool:
    """Whether the file is of the object form, in which the list must be closed."""
    at = skip_space(buffer, 3 if buffer[:3].tobytes() == b"\xef\xbb\xbf" else 0, buffer.size)
    return bool(at < buffer.size and buffer[at] == ord("{"))


def _phases(buffer: Bytes, spans: Int64s) -> Bytes:
    """The one letter of each event's ``ph``, or 0."""
    begins, ends = spans[:, _PH, 0], spans[:, _PH, 1]
    letter = buffer[np.minimum(begins + 1, buffer.size - 1)]
    return np.where(ends - begins == 3, letter, 0).astype(np.uint8)


def _decimals(buffer: Bytes, spans: Int64s) -> tuple[Int64s, Int64s, Bools]:
    count = spans.shape[0]
    whole, part = np.zeros(count, np.int64), np.zeros(count, np.int64)
    valid = np.zeros(count, np.bool_)
    read_decimals(buffer, spans[:, 0].copy(), spans[:, 1].copy(), whole, part, valid)
    return whole, part, valid


def _durations(buffer: Bytes, spans: Int64s, phases: Bytes) -> Int64s:
    """Durations in picoseconds; -1 where negative, too long or no number; 0 without one."""
    complete = phases == ord("X")
    whole, part, valid = _decimals(buffer, spans[:, _DUR])
    good = valid & (whole >= 0) & (whole < _LONGEST_US)
    absent = spans[:, _DUR, 1] == 0
    picoseconds = np.where(good, whole, 0) * 1_000_000 + np.where(good, part, 0)
    return np.where(~complete | absent, 0, np.where(good, picoseconds, -1))


def _since(origin_us: int, whole: Int64s, part: Int64s) -> Int64s:
    """Picoseconds since an origin; epoch microseconds do not fit picoseconds in 64 bits."""
    span = int(whole.max(initial=origin_us)) - origin_us
    if span > _LONGEST_US:
        raise TraceFormatError(
            f"Its events lie {span / 86_400e6:,.0f} days apart, which one capture cannot."
        )
    return (whole - origin_us) * 1_000_000 + part


def _texts(buffer: Bytes, spans: Int64s) -> tuple[list[str], Int64s]:
    """Distinct texts of N spans and the row of each, shape (N,)."""
    begins, ends = spans[:, 0].copy(), spans[:, 1].copy()
    code, first = distinct_spans(buffer, begins, ends)
    rows: dict[str, int] = {}
    raw = [text_of(buffer[begins[at] : ends[at]].tobytes()) for at in first.tolist()]
    row = np.array([rows.setdefault(text, len(rows)) for text in raw], np.int64)
    return list(rows), row[code] if code.size else code


def _threads(buffer: Bytes, spans: Int64s) -> tuple[Int64s, list[tuple[str, str]]]:
    """The row of each event's (process, thread), shape (E,), and the distinct pairs."""
    processes, process = _texts(buffer, spans[:, _PID])
    tids, tid = _texts(buffer, spans[:, _TID])
    pairs, code = np.unique(process * max(len(tids), 1) + tid, return_inverse=True)
    rows = [divmod(pair, max(len(tids), 1)) for pair in pairs.tolist()]
    return code.reshape(-1), [(processes[p], tids[t]) for p, t in rows]


def _read_metadata(buffer: Bytes, spans: Int64s) -> list[tuple[str, str, str, dict[str, Any]]]:
    def text(row: Int64s, field: int) -> str:
        return text_of(buffer[row[field, 0] : row[field, 1]].tobytes())

    return [
        (
            text(row, _NAME), text(row, _PID), text(row, _TID),
            _parse_object(buffer[row[_ARGS, 0] : row[_ARGS, 1]].tobytes()),
        )
        for row in spans[:_MOST_METADATA]
    ]  # fmt: skip
