"""``*.xplane.pb`` to a ``Trace``.

The file is an XSpace protobuf: planes hold lines and dictionaries of event and stat metadata, lines
hold events, events hold stats that point into the dictionaries. It is read from its bytes (normally
memory-mapped) by compiled kernels in two passes, count and fill; only planes and their own stats
become Python objects. Event times arrive as nanoseconds per line plus picoseconds per event and
leave as picoseconds since the earliest line began.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Bytes, Int32s, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.jit import tiered
from profnb.core.printable import printable
from profnb.trace.grouped_stats import StatEntries, StatKeys, narrow
from profnb.trace.model import Events, Lines, Plane, StringTable, Trace
from profnb.trace.wire import (
    LENGTH,
    VARINT,
    check,
    find_row,
    read_fields,
    read_tag,
    split_field,
)
from profnb.trace.xplane_stats import XPlaneStats, read_plane_stats

# Message fields of interest.
_SPACE_PLANES, _SPACE_ERRORS, _SPACE_WARNINGS, _SPACE_HOSTNAMES = 1, 2, 3, 4
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_METADATA = 2, 3, 4
_PLANE_STAT_METADATA, _PLANE_STATS = 5, 6
_LINE_ID, _LINE_NAME, _LINE_TIMESTAMP_NS, _LINE_EVENTS = 1, 2, 3, 4
_LINE_DISPLAY_ID, _LINE_DISPLAY_NAME = 10, 11
_METADATA_ID, _METADATA_NAME, _METADATA_DISPLAY_NAME, _METADATA_STATS = 1, 2, 4, 5
_EVENT_METADATA, _EVENT_OFFSET_PS, _EVENT_DURATION_PS = 1, 2, 3
_EVENT_STATS, _EVENT_OCCURRENCES = 4, 5

# No real trace comes near these; a file that claims more is hostile or not a trace.
_MOST = {"planes": 100_000, "lines": 1_000_000, "metadata entries": 8_000_000}
_LONGEST_PS = 1 << 61  # 26 days: sums of two times stay inside int64
_LONGEST_DURATION = np.uint64(_LONGEST_PS)
_UNKNOWN = "(name missing in the trace)"


def read_xplane(buffer: Bytes, source: str) -> Trace:
    """Read one XSpace.

    Args:
        buffer: The whole file as uint8; it must outlive the trace, which reads text and stats from it.
        source: The file's name, for messages.

    Returns:
        The trace, its events in time order on each line.

    Raises:
        TraceFormatError: The bytes are not an XSpace, or are damaged.
    """
    if buffer.size == 0:
        raise TraceFormatError(
            f"{source} is empty (0 bytes): the profiler wrote nothing. Capture again."
        )
    try:
        return _read_space(buffer, source)
    except TraceFormatError as error:
        raise TraceFormatError(f"{source}: {error}") from None


def _read_space(buffer: Bytes, source: str) -> Trace:
    whole = (np.zeros(1, np.int64), np.full(1, buffer.size, np.int64))
    planes = _split(buffer, *whole, _SPACE_PLANES, "planes", "XSpace")
    if not planes.begins.size:
        raise TraceFormatError(
            f"No planes in {buffer.size:,} bytes; an XPlane trace (*.xplane.pb) has at least one."
        )
    plane_table = read_fields(buffer, planes.begins, planes.ends, {_PLANE_NAME: LENGTH}, "XPlane")
    lines = _split(buffer, planes.begins, planes.ends, _PLANE_LINES, "lines", "XPlane")
    names = _read_metadata(buffer, planes, _PLANE_EVENT_METADATA)
    keys = _read_metadata(buffer, planes, _PLANE_STAT_METADATA)
    stat_keys = StatKeys(keys.texts, keys.offsets, keys.ids)
    decoded = _read_lines(buffer, lines, names)
    names_of_planes = _texts(buffer, plane_table, _PLANE_NAME)
    if not any(names_of_planes.texts):
        raise TraceFormatError(
            "None of its planes has a name; this is some other protobuf file, not an XPlane trace "
            "(*.xplane.pb)."
        )
    plane_stats = read_plane_stats(buffer, planes.begins, planes.ends, _PLANE_STATS, stat_keys)
    return Trace(
        source=source,
        planes=tuple(
            Plane(
                names_of_planes[row],
                range(int(lines.offsets[row]), int(lines.offsets[row + 1])),
                plane_stats[row],
            )
            for row in range(planes.begins.size)
        ),
        lines=decoded.lines,
        events=decoded.events,
        names=names.texts,
        stats=XPlaneStats(buffer, decoded.entries, stat_keys),
        name_stats=XPlaneStats(buffer, names.entries, stat_keys),
        hostnames=_space_texts(buffer, whole, _SPACE_HOSTNAMES),
        messages=(
            *_space_texts(buffer, whole, _SPACE_ERRORS),
            *_space_texts(buffer, whole, _SPACE_WARNINGS),
        ),
        recorded=buffer,
    )


@dataclass(frozen=True, slots=True)
class _Children:
    """Spans of one repeated field: parent p owns rows ``offsets[p]:offsets[p + 1]``."""

    offsets: Int64s
    begins: Int64s
    ends: Int64s

    @property
    def parents(self) -> Int64s:
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


def _split(
    buffer: Bytes, begins: Int64s, ends: Int64s, field: int, kind: str, what: str
) -> _Children:
    children = _Children(*split_field(buffer, begins, ends, field, what))
    if children.begins.size > _MOST[kind]:
        raise TraceFormatError(
            f"It claims {children.begins.size:,} {kind}, more than any real trace has."
        )
    return children


def _space_texts(buffer: Bytes, whole: tuple[Int64s, Int64s], field: int) -> tuple[str, ...]:
    _, begins, ends = split_field(buffer, *whole, field, "XSpace")
    return tuple(map(printable, StringTable(buffer, begins[:1000], ends[:1000]).texts))


def _texts(buffer: Bytes, table: Int64s, field: int) -> StringTable:
    return StringTable(buffer, table[:, 2 * field].copy(), table[:, 2 * field + 1].copy())


@dataclass(frozen=True, slots=True)
class _Metadata:
    """Dictionaries of all planes, one after another; inside a plane rows ascend by id."""

    offsets: Int64s
    ids: Int64s
    texts: StringTable
    entries: StatEntries


def _read_metadata(buffer: Bytes, planes: _Children, field: int) -> _Metadata:
    entries = _split(buffer, planes.begins, planes.ends, field, "metadata entries", "XPlane")
    pairs = read_fields(
        buffer, entries.begins, entries.ends, {1: VARINT, 2: LENGTH}, "metadata entry"
    )
    fields = {_METADATA_ID: VARINT, _METADATA_NAME: LENGTH, _METADATA_DISPLAY_NAME: LENGTH}
    messages = read_fields(buffer, pairs[:, 4].copy(), pairs[:, 5].copy(), fields, "metadata")
    order = np.lexsort((pairs[:, 2], entries.parents))
    messages = messages[order]
    named = messages[:, 2 * _METADATA_NAME] != messages[:, 2 * _METADATA_NAME + 1]
    if field == _PLANE_EVENT_METADATA:  # a stat's field 3 is its description; it has no field 4
        for column in (0, 1):
            display = messages[:, 2 * _METADATA_DISPLAY_NAME + column]
            messages[~named, 2 * _METADATA_NAME + column] = display[~named]
    return _Metadata(
        entries.offsets,
        pairs[order, 2].copy(),
        _texts(buffer, messages, _METADATA_NAME),
        StatEntries(
            pairs[order, 4].copy(), pairs[order, 5].copy(), entries.offsets,
            np.arange(planes.begins.size), _METADATA_STATS,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Decoded:
    lines: Lines
    events: Events
    entries: StatEntries


def _read_lines(buffer: Bytes, spans: _Children, names: _Metadata) -> _Decoded:
    fields = {
        _LINE_ID: VARINT,
        _LINE_NAME: LENGTH,
        _LINE_TIMESTAMP_NS: VARINT,
        _LINE_DISPLAY_ID: VARINT,
        _LINE_DISPLAY_NAME: LENGTH,
    }
    table = read_fields(buffer, spans.begins, spans.ends, fields, "XLine")
    messages = _Children(*split_field(buffer, spans.begins, spans.ends, _LINE_EVENTS, "XLine"))
    planes = spans.parents
    count = messages.begins.size
    name, begin, duration = (
        np.empty(count, np.int32),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )
    stats = np.zeros(count, np.int32)
    unsorted = np.zeros(planes.size, np.bool_)
    missing = np.zeros(1, np.int64)
    status = _decode_events(
        buffer, messages.begins, messages.ends, messages.offsets,
        _line_begins_ps(table, messages.offsets), names.offsets[planes],
        names.offsets[planes + 1], names.ids, name, begin, duration, stats, unsorted, missing,
    )  # fmt: skip
    check(status, "XEvent")
    if missing[0]:
        raise TraceFormatError(
            f"{missing[0]:,} of {count:,} events have no name in the trace's own dictionary: the "
            "file is damaged, perhaps by a conversion to text."
        )
    event_begins, event_ends = messages.begins, messages.ends
    if unsorted.any():
        order = _time_order(begin, duration, messages.offsets, np.flatnonzero(unsorted))
        name, begin, duration = name[order], begin[order], duration[order]
        event_begins, event_ends, stats = event_begins[order], event_ends[order], stats[order]
    has_no_display_name = table[:, 2 * _LINE_DISPLAY_NAME] == table[:, 2 * _LINE_DISPLAY_NAME + 1]
    for column in (0, 1):
        plain_name = table[:, 2 * _LINE_NAME + column]
        display_name = table[:, 2 * _LINE_DISPLAY_NAME + column]
        table[:, 2 * _LINE_NAME + column] = np.where(has_no_display_name, plain_name, display_name)
    return _Decoded(
        Lines(planes, _texts(buffer, table, _LINE_NAME), messages.offsets, table[:, 2 * _LINE_ID]),
        Events(name, begin, duration),
        StatEntries(
            narrow(event_begins, buffer),
            narrow(event_ends, buffer),
            messages.offsets,
            planes,
            _EVENT_STATS,
            stats.astype(np.min_scalar_type(int(stats.max(initial=0)))),
        ),
    )


def _line_begins_ps(table: Int64s, offsets: Int64s) -> Int64s:
    """Where each line begins, in ps since the earliest line that has events."""
    timestamps = table[:, 2 * _LINE_TIMESTAMP_NS]
    has_events = np.diff(offsets) > 0
    if not has_events.any():
        return np.zeros(timestamps.size, np.int64)
    base, last = int(timestamps[has_events].min()), int(timestamps[has_events].max())
    if last - base > _LONGEST_PS // 1000:
        raise TraceFormatError(
            f"Its lines begin {(last - base) / 86_400e9:,.0f} days apart, which one capture cannot."
        )
    return np.where(has_events, timestamps - base, 0) * 1000


@tiered
def _decode_events(
    buffer: Bytes, begins: Int64s, ends: Int64s, offsets: Int64s, line_ps: Int64s,
    first_name: Int64s, last_name: Int64s, name_ids: Int64s, name: Int32s, begin_ps: Int64s,
    duration_ps: Int64s, stats: Int32s, unsorted: Bools, missing: Int64s,
) -> int:  # fmt: skip
    """Fill the event columns line by line; returns OK or the position of the damage.

    Counts each event's stats, and moves where it begins on to the first of them, since they are read later.
    """
    for line in range(offsets.size - 1):
        first, last = first_name[line], last_name[line]
        for event in range(offsets[line], offsets[line + 1]):
            message, end = begins[event], ends[event]
            at = message
            begins[event] = end
            metadata, offset, duration = np.int64(0), np.int64(0), np.uint64(0)
            while at < end:
                start = at
                number, wire, value, _, at = read_tag(buffer, at, end)
                if at < 0:
                    return start
                if number <= 5 and wire != (2 if number == 4 else 0):
                    return start
                if number == 1:
                    metadata = np.int64(value)
                elif number == 2:
                    offset = np.int64(value)
                elif number == 3:
                    duration = value
                elif number == 4:
                    stats[event] += 1
                    if stats[event] == 1:
                        begins[event] = start
            if duration > _LONGEST_DURATION or offset > _LONGEST_PS or offset < -_LONGEST_PS:
                return message
            row = find_row(name_ids, first, last, metadata)
            if row < 0:
                missing[0] += 1
                row = 0
            name[event] = row
            begin_ps[event] = line_ps[line] + offset
            duration_ps[event] = np.int64(duration)
            if event > offsets[line]:
                step = begin_ps[event] - begin_ps[event - 1]
                if step < 0 or (step == 0 and duration_ps[event] > duration_ps[event - 1]):
                    unsorted[line] = True
    return -1


def _time_order(begin: Int64s, duration: Int64s, offsets: Int64s, lines: Int64s) -> Int64s:
    """The permutation that puts the given lines in time order, longest first at equal begins."""
    order = np.arange(begin.size)
    for line in lines:
        part = slice(offsets[line], offsets[line + 1])
        order[part] = part.start + np.lexsort((-duration[part], begin[part]))
    return order
