"""Lines of a device to what they are: which hold its work, which kind of work an event is, what set it going.

A GPU's work is what its streams ran. A TPU core's is its line ``XLA Ops``: its other lines repeat that
work (``XLA Modules``), show what one op does inside (``Tensor Core``, ``XLA TraceMe``) or copies in flight
behind it (``Async XLA Ops``). Lines that a profiler derived from others are never work.

A device's work carries the correlation id of its call. An execution of an op (with XLA, of an instruction)
runs each of its kernels once, so the next begins with a kernel that the current one has run already, or with
another step. Two executions that follow each other in one step and share no kernel count as one; an execution
that runs a kernel twice counts as two. The official tool counts how often an op's most frequent kernel ran,
which differs where executions run different kernels.

Source: DeviceTfOpMetricsDbBuilder in openxla/xprof xprof/utils/op_metrics_db_utils.cc (046d7ce2).
"""

from collections.abc import Callable

import numpy as np

from profnb.core.columns import Bools, Int8s, Int32s, Int64s, look_up
from profnb.core.jit import tiered
from profnb.trace.model import Trace
from profnb.trace.names import (
    CORRELATION_ID,
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
_ROW_OF: dict[str | None, int] = {None: -1, **{name: row for row, name in enumerate(DIRECTIONS)}}
_DETAILS = "memcpy_details", "memset_details"


def raw_device_lines(trace: Trace) -> Bools:
    """Mark the lines that hold the work of a device, each piece of it once; shape (L,)."""
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


def find_launches(trace: Trace) -> tuple[Int64s, Int64s]:
    """Pair host events with the device events that they set going.

    The two carry the same ``correlation_id``. Where several host events carry it (an op around the
    driver's call, say) the last to begin is the launch.

    Returns:
        The launches and the device events, both indices of events, each of shape (N,), ordered by
        device event. Device work whose launch was not recorded is not among them.
    """
    column = trace.stats.integers(CORRELATION_ID)
    events, ids = column.events, column.values.astype(np.int64)
    on_device = trace.is_device_line[trace.lines.of_event[events]]
    on_host = trace.is_host_event[events]
    order = np.lexsort((trace.events.begin_ps[events[on_host]], ids[on_host]))
    host, host_ids = events[on_host][order], ids[on_host][order]
    device, device_ids = events[on_device], ids[on_device]
    at = np.searchsorted(host_ids, device_ids, side="right") - 1
    has_launch = at >= 0
    has_launch[has_launch] = host_ids[at[has_launch]] == device_ids[has_launch]
    return host[at[has_launch]], device[has_launch]


def _of_names(trace: Trace, events: Int64s, kind_of: Callable[[str], int]) -> Int8s:
    """Number each of N events by its name, which is looked at once; shape (N,)."""
    names = trace.events.name[events]
    kinds = np.zeros(len(trace.names), np.int8)
    for row in np.flatnonzero(np.bincount(names)).tolist():
        kinds[row] = kind_of(trace.names[row])
    return kinds[names]


def copy_directions(trace: Trace, events: Int64s) -> Int8s:
    """Tell in which direction events copy, by name or, on a device, by their details or their launch.

    ROCm names a copy as it likes (``CopyDeviceToDevice``) and tells in ``memcpy_details`` that it is one, or
    copies with a kernel (``__amd_rocclr_copyBuffer``) that ``hipMemcpyHtoDAsync`` launched.

    Returns:
        Row of ``DIRECTIONS``, -1 for what is no copy, shape (N,).
    """
    directions = _of_names(trace, events, lambda name: _ROW_OF[copy_direction(name)])
    for stat in _DETAILS:
        details = trace.stats.texts(stat)
        if not len(details):
            continue
        is_set = stat == _DETAILS[1]
        rows = [_ROW_OF["set" if is_set else copy_direction_of_details(t)] for t in details.texts]
        on_device = raw_device_lines(trace)[trace.lines.of_event[events]]
        row = details.of(events)
        chosen = np.isin(directions, (-1, _ROW_OF["other"])) & on_device & (row >= 0)
        directions[chosen] = np.array(rows, np.int8)[row[chosen]]
    unclear = np.flatnonzero(directions == _ROW_OF["other"])
    if unclear.size:
        calls, launched = find_launches(trace)
        call = look_up(launched, calls, events[unclear])
        unclear, call = unclear[call >= 0], call[call >= 0]
        direction = _of_names(trace, call, lambda name: _ROW_OF[copy_direction_of_call(name)])
        directions[unclear[direction >= 0]] = direction[direction >= 0]
    return directions


def kinds_of_work(trace: Trace, events: Int64s) -> Int8s:
    """Tell whether N events compute, copy (or set) memory, or exchange it with devices, shape (N,)."""
    kinds = _of_names(trace, events, lambda name: COLLECTIVE if is_collective(name) else COMPUTE)
    return np.where(copy_directions(trace, events) >= 0, np.int8(COPY), kinds)


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
    """Sum up the time that N intervals cover together."""
    order = np.argsort(begin_ps, kind="stable")
    return int(_added_ps(begin_ps[order], end_ps[order]).sum())


def _added_ps(begin_ps: Int64s, end_ps: Int64s) -> Int64s:
    """Give the time that each of N intervals covers and none before it does; in order of their begins."""
    end = np.maximum.accumulate(end_ps)
    start = np.maximum(begin_ps, np.concatenate([begin_ps[:1], end[:-1]]))
    return np.asarray(np.maximum(end - start, 0))


def own_times(trace: Trace, work: Int64s) -> Int64s:
    """Give how long each piece of device work took, less what overlaps earlier work of its stream.

    With programmatic dependent launch a kernel begins before the one ahead of it ends: of [0, 200) and
    [120, 320) the second has 120 of its own. A TPU's instructions nest, and keep what they took.
    """
    begin, end = by_device_clock(trace, work)
    own_ps = end - begin
    line_of_work = trace.lines.of_event[work]
    for line in np.unique(line_of_work).tolist():
        if trace.lines.names[line] == XLA_OPS_LINE:
            continue
        part = np.flatnonzero(line_of_work == line)
        own_ps[part] = _added_ps(begin[part], end[part])
    return own_ps


def by_device_clock(trace: Trace, events: Int64s) -> tuple[Int64s, Int64s]:
    """Give begins and ends of some events, by the device's own clock where it is recorded.

    A TPU's events are placed on the host's clock, which is set anew now and then: their durations jump,
    those of ``device_duration_ps`` do not. How long work took is told by this clock everywhere; where it
    lies among the host's events, by the other.

    Returns:
        Begins and ends, both of shape (N,); the begins of different devices are not of one origin.
    """
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    device_begin, duration = (
        trace.stats.integers(stat).of(events).astype(np.int64)
        for stat in ("device_offset_ps", "device_duration_ps")
    )
    is_recorded = (device_begin >= 0) & (duration >= 0)
    is_recorded &= (duration < _LONGEST_PS) & (device_begin < _LONGEST_PS)
    return (
        np.where(is_recorded, device_begin, begin),
        np.where(is_recorded, device_begin + duration, end),
    )


def find_executions(trace: Trace, work: Int64s, unit: Int64s, step: Int32s | None = None) -> Bools:
    """Mark the pieces of device work that begin an execution.

    Of an op that ran the kernels a, b, c, a, b, c the first and the fourth begin one.

    ``unit`` numbers the op or instruction of each; ``step`` is the row of each event's step, or -1.
    """
    if not work.size:
        return np.empty(0, np.bool_)
    device = trace.lines.plane[trace.lines.of_event[work]]
    order = np.lexsort((trace.events.begin_ps[work], device, unit))
    _, owner = np.unique(unit[order] * len(trace.planes) + device[order], return_inverse=True)
    kernel = trace.events.name[work[order]].astype(np.int64)
    same = np.lexsort((owner, kernel))
    repeats = (np.diff(owner[same]) == 0) & (np.diff(kernel[same]) == 0)
    previous = np.full(work.size, -1, np.int64)
    previous[same[1:][repeats]] = same[:-1][repeats]
    step_of_work = np.full(work.size, -1, np.int64) if step is None else step[work[order]]
    begins = np.zeros(work.size, np.bool_)
    _begin(owner.astype(np.int64), previous, step_of_work.astype(np.int64), begins)
    result = np.empty_like(begins)
    result[order] = begins
    return result


@tiered
def _begin(owner: Int64s, previous: Int64s, step: Int64s, begins: Bools) -> None:
    """Mark where the next execution begins; ``previous`` is where the same kernel ran before."""
    first, current = 0, -1
    for row in range(owner.size):
        is_new = row == 0 or owner[row] != owner[row - 1] or previous[row] >= first
        is_new = is_new or (step[row] >= 0 and current >= 0 and step[row] != current)
        if is_new:
            begins[row] = True
            first, current = row, -1
        if step[row] >= 0:
            current = step[row]
