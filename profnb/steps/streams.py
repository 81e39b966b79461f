"""Lines of a device to what they are: which hold its work, and which kind of work an event is.

A GPU's work is what its streams ran. A TPU core's is its line ``XLA Ops``: its other lines repeat that
work (``XLA Modules``), show what one op does inside (``Tensor Core``, ``XLA TraceMe``) or copies in flight
behind it (``Async XLA Ops``). Lines that a profiler derived from others are never work.
"""

from collections.abc import Callable

import numpy as np

from profnb.core.columns import Bools, Int8s, Int64s, look_up
from profnb.steps.launching import find_launches
from profnb.trace.model import Trace
from profnb.trace.names import (
    DERIVED_LINES,
    XLA_OPS_LINE,
    copy_direction,
    copy_direction_of_call,
    copy_direction_of_details,
    is_collective,
)

COMPUTE, COPY, COLLECTIVE = range(3)
_LONGEST_PS = 1 << 61
DIRECTIONS = (
    "host to device", "device to host", "peer to peer", "device to device", "host to host", "other", "set",
)  # fmt: skip
_UNCLEAR = (-1, DIRECTIONS.index("other"))
_DETAILS = "memcpy_details", "memset_details"


def raw_device_lines(trace: Trace) -> Bools:
    """Which lines hold the work of a device, each piece of it once; shape (L,)."""
    derived = trace.lines.names.rows_where(lambda name: name in DERIVED_LINES)
    if trace.lines.is_copy is not None:
        derived |= trace.lines.is_copy
    raw = trace.is_device_line & ~derived
    for plane in trace.planes:
        if plane.is_device and "TPU" in plane.name:
            ops = [row for row in plane.lines if trace.lines.names[row] == XLA_OPS_LINE]
            if ops:
                raw[plane.lines.start : plane.lines.stop] = False
                raw[ops] = True
    return raw


def _of_names(trace: Trace, events: Int64s, kind_of: Callable[[str], int]) -> Int8s:
    """A number for each of N events by its name, which is looked at once; shape (N,)."""
    names = trace.events.name[events]
    kinds = np.zeros(len(trace.names), np.int8)
    for row in np.flatnonzero(np.bincount(names)).tolist():
        kinds[row] = kind_of(trace.names[row])
    return kinds[names]


def _row_of(direction: str | None) -> int:
    """A direction's row of ``DIRECTIONS``; -1 for none."""
    return -1 if direction is None else DIRECTIONS.index(direction)


def directions_of_copies(trace: Trace, events: Int64s) -> Int8s:
    """In which direction events copy, by name or, for work of a device, by their details or their launch.

    ROCm names a copy as it likes (``CopyDeviceToDevice``) and tells in ``memcpy_details`` that it is one, or
    copies with a kernel (``__amd_rocclr_copyBuffer``) that ``hipMemcpyHtoDAsync`` launched.

    Args:
        trace: The trace.
        events: Indices of N events.

    Returns:
        Row of ``DIRECTIONS``, -1 for what is no copy, shape (N,).
    """
    directions = _of_names(trace, events, lambda name: _row_of(copy_direction(name)))
    for stat in _DETAILS:
        details = trace.stats.texts(stat)
        if not len(details):
            continue
        detail_directions = [
            "set" if stat == _DETAILS[1] else copy_direction_of_details(t) for t in details.texts
        ]
        of_detail = np.array(
            [DIRECTIONS.index(direction) for direction in detail_directions], np.int8
        )
        on_device = raw_device_lines(trace)[trace.lines.of_event[events]]
        row = details.of(events)
        chosen = np.isin(directions, _UNCLEAR) & on_device & (row >= 0)
        directions[chosen] = of_detail[row[chosen]]
    unclear = np.flatnonzero(directions == DIRECTIONS.index("other"))
    if unclear.size:
        calls, launched = find_launches(trace)
        call = look_up(launched, calls, events[unclear])
        unclear, call = unclear[call >= 0], call[call >= 0]
        direction = _of_names(trace, call, lambda name: _row_of(copy_direction_of_call(name)))
        directions[unclear[direction >= 0]] = direction[direction >= 0]
    return directions


def kinds_of_work(trace: Trace, events: Int64s) -> Int8s:
    """Whether N events compute, copy (or set) memory, or exchange it with devices, shape (N,)."""

    def by_name(name: str) -> int:
        return COLLECTIVE if is_collective(name) else COMPUTE

    kinds = _of_names(trace, events, by_name)
    return np.where(directions_of_copies(trace, events) >= 0, np.int8(COPY), kinds)


def working_devices(trace: Trace) -> list[int]:
    """The device planes that ran anything, in the order of the trace."""
    raw = raw_device_lines(trace) & (np.diff(trace.lines.offsets) > 0)
    planes: list[int] = np.unique(trace.lines.plane[raw]).tolist()
    return planes


def busiest_device(trace: Trace) -> int | None:
    """The device plane with the most work on its streams, or None if no device ran anything."""
    lines = np.flatnonzero(raw_device_lines(trace) & (np.diff(trace.lines.offsets) > 0))
    if not lines.size:
        return None
    totals = np.zeros(len(trace.planes), np.int64)
    for line in lines.tolist():
        part = slice(int(trace.lines.offsets[line]), int(trace.lines.offsets[line + 1]))
        totals[trace.lines.plane[line]] += trace.events.duration_ps[part].sum()
    return int(totals.argmax())


def covered_ps(begin_ps: Int64s, end_ps: Int64s) -> int:
    """How much time N intervals cover together."""
    if not begin_ps.size:
        return 0
    order = np.argsort(begin_ps, kind="stable")
    begin, end = begin_ps[order], np.maximum.accumulate(end_ps[order])
    start = np.maximum(begin, np.concatenate([begin[:1], end[:-1]]))
    return int(np.maximum(end - start, 0).sum())


def by_device_clock(trace: Trace, events: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends of some events, by the device's own clock where it is recorded.

    A TPU's events are placed on the host's clock, which is set anew now and then: their durations jump,
    those of ``device_duration_ps`` do not. How long work took is told by this clock everywhere; where it
    lies among the host's events, by the other.

    Args:
        trace: The trace.
        events: Indices of N events, ascending.

    Returns:
        Begins and ends, both of shape (N,); the begins of different devices are not of one origin.
    """
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    offsets = trace.stats.integers("device_offset_ps")
    durations = trace.stats.integers("device_duration_ps")
    device_begin = look_up(offsets.events, offsets.values.astype(np.int64), events)
    duration = look_up(durations.events, durations.values.astype(np.int64), events)
    is_recorded = (device_begin >= 0) & (duration >= 0)
    is_recorded &= (duration < _LONGEST_PS) & (device_begin < _LONGEST_PS)
    return (
        np.where(is_recorded, device_begin, begin),
        np.where(is_recorded, device_begin + duration, end),
    )
