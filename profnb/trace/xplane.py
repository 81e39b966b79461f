"""``*.xplane.pb`` to a ``Trace``.

The file is an XSpace protobuf: planes hold lines and dictionaries of event and stat metadata, lines
hold events, events hold stats that point into the dictionaries. It is read from its bytes by compiled
kernels in two passes, count and fill; only planes and their own stats become Python objects. Event
times arrive as nanoseconds per line plus picoseconds per event and leave as picoseconds since the
earliest line began.

Source of the field numbers: tensorflow/tsl profiler/protobuf/xplane.proto.
"""

import numpy as np

from profnb.core.columns import Bools, Bytes, Int32s, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.jit import tiered
from profnb.core.printable import printable
from profnb.trace.model import Events, Lines, Plane, StringTable, Trace
from profnb.trace.wire import Messages, check, find_row, read_tag
from profnb.trace.xplane_stats import Dictionary, StatEntries, XPlaneStats, narrow

# Message fields of interest.
_SPACE_PLANES, _SPACE_ERRORS, _SPACE_WARNINGS, _SPACE_HOSTNAMES = 1, 2, 3, 4
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_METADATA = 2, 3, 4
_PLANE_STAT_METADATA, _PLANE_STATS = 5, 6
_LINE_ID, _LINE_NAME, _LINE_TIMESTAMP_NS, _LINE_EVENTS, _LINE_DISPLAY_NAME = 1, 2, 3, 4, 11
_METADATA_NAME, _METADATA_DISPLAY_NAME, _METADATA_STATS = 2, 4, 5
_EVENT_STATS = 4

# No real trace comes near these; a file that claims more is hostile or not a trace.
_MOST_PLANES, _MOST_LINES, _MOST_METADATA, _MOST_TEXTS = 100_000, 1_000_000, 8_000_000, 1000
_LONGEST_PS = 1 << 61  # 26 days: sums of two times stay inside int64
_LONGEST_DURATION = np.uint64(_LONGEST_PS)


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
        raise TraceFormatError("Empty (0 bytes): the profiler wrote nothing. Capture again.")
    space = Messages.whole(buffer, "XSpace")
    planes = space.split(_SPACE_PLANES, "XPlane").at_most(_MOST_PLANES, "planes", "trace")
    if not len(planes):
        raise TraceFormatError(
            f"No planes in {buffer.size:,} bytes; an XPlane trace (*.xplane.pb) has at least one."
        )
    plane_names = planes.inner(_PLANE_NAME, "plane name").texts()
    lines = planes.split(_PLANE_LINES, "XLine").at_most(_MOST_LINES, "lines", "trace")
    names, name_stats = _read_dictionary(planes, _PLANE_EVENT_METADATA)
    keys, _ = _read_dictionary(planes, _PLANE_STAT_METADATA)
    read_lines, events, event_stats = _read_lines(lines, names)
    if not any(plane_names):
        raise TraceFormatError(
            "No plane has a name: this is no XPlane trace (*.xplane.pb) but another protobuf file."
        )
    rows = np.arange(len(planes) + 1)
    of_planes = StatEntries(planes.begins, planes.ends, rows, rows[:-1], _PLANE_STATS)
    plane_stats = XPlaneStats(buffer, of_planes, keys)
    hostnames, errors, warnings = (
        tuple(map(printable, space.split(field, "text").rows(slice(_MOST_TEXTS)).texts()))
        for field in (_SPACE_HOSTNAMES, _SPACE_ERRORS, _SPACE_WARNINGS)
    )
    return Trace(
        source=source,
        planes=tuple(
            Plane(name, range(*lines.offsets[row : row + 2].tolist()), plane_stats.of_event(row))
            for row, name in enumerate(plane_names)
        ),
        lines=read_lines,
        events=events,
        names=names.texts,
        stats=XPlaneStats(buffer, event_stats, keys),
        name_stats=XPlaneStats(buffer, name_stats, keys),
        hostnames=hostnames,
        messages=(*errors, *warnings),
        recorded=buffer,
    )


def _read_dictionary(planes: Messages, field: int) -> tuple[Dictionary, StatEntries]:
    """Read the dictionaries of all planes, and find the stats that hold for every event of a name."""
    entries = planes.split(field, "metadata entry").at_most(
        _MOST_METADATA, "metadata entries", "trace"
    )
    read = entries.read([1], [2])
    order = np.lexsort((read[1][0], entries.parents))
    spans = read[2].take(order, axis=1)  # contiguous rows
    fields = entries.within(spans, "metadata").read((), [_METADATA_NAME, _METADATA_DISPLAY_NAME])
    begins, ends = fields[_METADATA_NAME]
    if field == _PLANE_EVENT_METADATA:  # a stat's field 3 is its description; it has no field 4
        begins, ends = np.where(begins == ends, fields[_METADATA_DISPLAY_NAME], (begins, ends))
    texts = StringTable(planes.buffer, begins, ends)
    rows = np.arange(len(planes))
    return (
        Dictionary(texts, entries.offsets, read[1][0][order]),
        StatEntries(spans[0], spans[1], entries.offsets, rows, _METADATA_STATS),
    )


def _read_lines(lines: Messages, names: Dictionary) -> tuple[Lines, Events, StatEntries]:
    fields = lines.read([_LINE_ID, _LINE_TIMESTAMP_NS], [_LINE_NAME, _LINE_DISPLAY_NAME])
    messages = lines.split(_LINE_EVENTS, "XEvent")
    buffer, planes, offsets, count = lines.buffer, lines.parents, messages.offsets, len(messages)
    name, stats = np.empty(count, np.int32), np.zeros(count, np.int32)
    begin, duration = np.empty(count, np.int64), np.empty(count, np.int64)
    unsorted, missing = np.zeros(planes.size, np.bool_), np.zeros(1, np.int64)
    status = _decode_events(
        buffer, messages.begins, messages.ends, offsets,
        _line_begins_ps(fields[_LINE_TIMESTAMP_NS][0], offsets), names.offsets[planes],
        names.offsets[planes + 1], names.ids, name, begin, duration, stats, unsorted, missing,
    )  # fmt: skip
    check(status, "XEvent")
    if missing[0]:
        raise TraceFormatError(
            f"{missing[0]:,} of {count:,} events have no name in the trace: the file is damaged, perhaps by "
            "a conversion to text."
        )
    stat_begins, stat_ends = messages.begins, messages.ends
    if unsorted.any():
        order = np.arange(count)
        for line in np.flatnonzero(unsorted):
            part = slice(offsets[line], offsets[line + 1])
            order[part] = part.start + np.lexsort((-duration[part], begin[part]))
        name, begin, duration = name[order], begin[order], duration[order]
        stat_begins, stat_ends, stats = stat_begins[order], stat_ends[order], stats[order]
    display = fields[_LINE_DISPLAY_NAME]
    line_names = np.where(display[0] == display[1], fields[_LINE_NAME], display)
    return (
        Lines(planes, StringTable(buffer, *line_names), offsets, fields[_LINE_ID][0]),
        Events(name, begin, duration),
        StatEntries(
            narrow(stat_begins, buffer), narrow(stat_ends, buffer), offsets, planes, _EVENT_STATS,
            stats.astype(np.min_scalar_type(int(stats.max(initial=0)))),
        ),
    )  # fmt: skip


def _line_begins_ps(timestamps_ns: Int64s, offsets: Int64s) -> Int64s:
    """Tell where each line begins, in ps since the earliest line that has events."""
    has_events = np.diff(offsets) > 0
    if not has_events.any():
        return np.zeros(timestamps_ns.size, np.int64)
    base, last = int(timestamps_ns[has_events].min()), int(timestamps_ns[has_events].max())
    if last - base > _LONGEST_PS // 1000:
        raise TraceFormatError(
            f"The lines begin {(last - base) / 86_400e9:,.0f} days apart, too far for one capture."
        )
    return np.where(has_events, timestamps_ns - base, 0) * 1000


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
