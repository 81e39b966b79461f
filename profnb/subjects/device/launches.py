"""Kernel launches: which device work each set going, what they cost, and how long the work then waited.

A launch that takes longer than its kernel runs cannot keep a device busy, however many are queued; a
program of many such kernels is bound by launching. Delay is from the end of the launch to the begin of the
kernel: near zero where the device waited for the host, long where work queues up.
"""

from dataclasses import dataclass

import numpy as np

from profnb.subjects.device.kernels import find_kernels
from profnb.steps.grouping import Groups
from profnb.steps.streams import COPY, kind_of_work, raw_device_lines
from profnb.core.columns import Floats, Int64s
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID

__all__ = [
    "TINY_PS",
    "LaunchTable",
    "StreamTable",
    "find_launches",
    "tabulate_launches",
    "tabulate_streams",
]

TINY_PS = 10_000_000


def find_launches(trace: Trace) -> tuple[Int64s, Int64s]:
    """Pairs of a host event and the device event that it set going.

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
    known = at >= 0
    known[known] = host_ids[at[known]] == device_ids[known]
    return host[at[known]], device[known]


@dataclass(frozen=True, slots=True)
class LaunchTable:
    """One row per device that ran kernels.

    Attributes:
        device: The planes' names.
        kernels: How many, shape (D,).
        per_step: Median number per step, shape (D,); NaN without steps.
        launched: Kernels whose launch was recorded, shape (D,).
        launch_ps: Median time of the launching call, shape (D,); NaN where none was recorded.
        delay_ps: Median time from the end of the call to the kernel's begin, shape (D,).
        late_ps: 95th percentile of that, shape (D,).
        tiny: Kernels shorter than 10 us, shape (D,).
        outlived: Kernels shorter than the call that launched them, shape (D,).
    """

    device: tuple[str, ...]
    kernels: Int64s
    per_step: Floats
    launched: Int64s
    launch_ps: Floats
    delay_ps: Floats
    late_ps: Floats
    tiny: Int64s
    outlived: Int64s

    def __len__(self) -> int:
        return len(self.device)


def tabulate_launches(trace: Trace, groups: Groups, step_count: int) -> LaunchTable:
    """Sum up how each device's kernels were launched.

    Args:
        trace: The trace.
        groups: Which step each event belongs to.
        step_count: How many steps there are.
    """
    events = trace.events
    kernels = find_kernels(trace)
    plane = trace.lines.plane[trace.lines.of_event]
    host, device = find_launches(trace)
    is_kernel = np.zeros(len(events), np.bool_)
    is_kernel[kernels] = True
    host, device = host[is_kernel[device]], device[is_kernel[device]]
    delay = np.maximum(events.begin_ps[device] - events.end_ps[host], 0)
    call = events.duration_ps[host]
    planes = np.unique(plane[kernels])
    counts = np.zeros((4, planes.size), np.int64)
    figures = np.full((4, planes.size), np.nan)
    for at, number in enumerate(planes.tolist()):
        own = kernels[plane[kernels] == number]
        launched = plane[device] == number
        counts[:, at] = (
            own.size,
            launched.sum(),
            (events.duration_ps[own] < TINY_PS).sum(),
            (events.duration_ps[device] < call)[launched].sum(),
        )
        step = groups.step[own]
        if (step >= 0).any():
            per_step = np.bincount(step[step >= 0], minlength=step_count)
            figures[0, at] = np.median(per_step[per_step > 0])
        if launched.any():
            figures[1, at] = np.median(call[launched])
            figures[2:, at] = np.percentile(delay[launched], (50, 95))
    return LaunchTable(
        tuple(trace.planes[number].name for number in planes.tolist()),
        counts[0], figures[0], counts[1], figures[1], figures[2], figures[3], counts[2], counts[3],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamTable:
    """One row per stream (or core) on which a device ran something, most busy first.

    Attributes:
        device: The planes' names.
        stream: The lines' names.
        kernels: How many, shape (N,).
        copies: Copies and memsets, shape (N,).
        busy_ps: Sum of durations inside the window, shape (N,); what one stream runs does not overlap.
    """

    device: tuple[str, ...]
    stream: tuple[str, ...]
    kernels: Int64s
    copies: Int64s
    busy_ps: Int64s

    def __len__(self) -> int:
        return len(self.device)


def tabulate_streams(trace: Trace, window: tuple[int, int]) -> StreamTable:
    """Sum up what each stream ran.

    Args:
        trace: The trace.
        window: Begin and end of what counts towards its busy time.
    """
    lines = np.flatnonzero(raw_device_lines(trace) & (np.diff(trace.lines.offsets) > 0))
    is_copy = trace.names.rows_where(lambda name: kind_of_work(name) == COPY)
    table = np.zeros((lines.size, 3), np.int64)
    for row, line in enumerate(lines.tolist()):
        part = slice(int(trace.lines.offsets[line]), int(trace.lines.offsets[line + 1]))
        copies = int(is_copy[trace.events.name[part]].sum())
        begin = np.clip(trace.events.begin_ps[part], *window)
        busy = int((np.clip(trace.events.end_ps[part], *window) - begin).sum())
        table[row] = part.stop - part.start - copies, copies, busy
    order = np.argsort(-table[:, 2], kind="stable")
    planes = trace.lines.plane[lines[order]].tolist()
    return StreamTable(
        tuple(trace.planes[plane].name for plane in planes),
        tuple(trace.lines.names[line] for line in lines[order]),
        *(column[order] for column in table.T),
    )
