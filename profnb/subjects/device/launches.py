"""Kernel launches: the device work that each set going, its cost, how long the work then waited; streams.

A launch that takes longer than its kernel runs cannot keep a device busy, however many are queued; a
program of many such kernels is bound by launching. Delay is from the end of the launch to the begin of the
first kernel: near zero where the device waited for the host, long where work queues up.

What is counted are calls: one that starts a graph (``cudaGraphLaunch``, ``hipGraphLaunch``, XLA's command
buffers) sets hundreds of kernels going at once, and is short or long beside all of them together.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s, RowColumns, ratio
from profnb.core.table import Table, columns_in
from profnb.steps.spine import Spine
from profnb.steps.streams import COPY, covered_ps, find_launches, kinds_of_work, raw_device_lines
from profnb.steps.windows import Steps
from profnb.subjects.device.devices import window_of_steps
from profnb.subjects.device.kernels import find_kernels
from profnb.trace.model import Trace

_TINY_PS = 10_000_000
_MANY_THREADS = 4


@dataclass(frozen=True, slots=True)
class LaunchTable(RowColumns):
    """One row per device that ran kernels.

    Its columns are those of ``LAUNCHES``, each of shape (D,), times in picoseconds; NaN where not known.
    """

    device: tuple[str, ...]
    kernels: Int64s
    per_step: Floats
    launched: Int64s  # kernels whose launch was recorded, shape (D,)
    calls: Int64s
    launch_ps: Floats
    delay_ps: Floats
    delay_p95_ps: Floats
    tiny: Int64s  # kernels shorter than 10 us, shape (D,)
    # calls that took longer than the device was busy with what they started, shape (D,)
    longer_calls: Int64s
    shorter_than_launch: Int64s  # kernels that such calls launched, shape (D,)

    @property
    def longer_fraction(self) -> Floats:
        """Share of the calls that took longer than what they started, shape (D,); NaN without any."""
        return ratio(self.longer_calls, self.calls)

    @property
    def sets_the_pace(self) -> bool:
        """True if most calls took longer than what they started, and most kernels are of such calls."""
        longer = 2 * self.longer_calls.sum() > self.calls.sum()
        return bool(longer and 2 * self.shorter_than_launch.sum() > self.launched.sum())


def is_launched_by_pool(spine: Spine) -> bool:
    """Tell whether threads of TensorFlow's pool launch an NVIDIA GPU's work in turns, besides other work.

    They are four at least, of those that launched a fiftieth or more: twice as many as would do nothing else.
    """
    trace = spine.trace
    if not (spine.program.is_tensorflow and spine.program.is_nvidia):
        return False
    host, device = find_launches(trace)
    lines = trace.lines.of_event
    counts = np.bincount(lines[host[trace.lines.plane[lines[device]] == spine.program.device]])
    launching = np.flatnonzero(counts >= max(counts.sum() / 50, 1)) if counts.size else counts
    is_private = any("gpu_private" in trace.lines.names[line] for line in launching.tolist())
    return launching.size >= _MANY_THREADS and not is_private


def tabulate_launches(spine: Spine) -> LaunchTable:
    """Sum up how each device's kernels were launched."""
    trace, events = spine.trace, spine.trace.events
    kernels = find_kernels(trace)
    host, device = find_launches(trace)
    is_of_kernel = np.isin(device, kernels)
    host, device = host[is_of_kernel], device[is_of_kernel]
    plane = trace.lines.plane[trace.lines.of_event[kernels]]
    plane_of_launched = trace.lines.plane[trace.lines.of_event[device]]
    planes = np.unique(plane)
    counts = np.zeros((6, planes.size), np.int64)
    figures = np.full((4, planes.size), np.nan)
    for at, number in enumerate(planes.tolist()):
        plane_kernels = kernels[plane == number]
        launched = plane_of_launched == number
        calls, often, first_ps, work_ps = _work_of_calls(trace, host[launched], device[launched])
        call_ps = events.duration_ps[calls]
        is_longer = work_ps < call_ps
        counts[:, at] = (
            plane_kernels.size,
            launched.sum(),
            calls.size,
            (events.duration_ps[plane_kernels] < _TINY_PS).sum(),
            is_longer.sum(),
            often[is_longer].sum(),
        )
        step = spine.groups.step[plane_kernels]
        if (step >= 0).any():
            figures[0, at] = np.median(np.unique(step[step >= 0], return_counts=True)[1])
        if calls.size:
            delay = np.maximum(first_ps - events.end_ps[calls], 0)
            figures[1:, at] = np.median(call_ps), *np.percentile(delay, (50, 95))
    return LaunchTable(
        tuple(trace.planes[number].name for number in planes.tolist()),
        counts[0], figures[0], counts[1], counts[2], figures[1], figures[2], figures[3], *counts[3:],
    )  # fmt: skip


def _work_of_calls(
    trace: Trace, host: Int64s, device: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Sum up the work that each call started, from pairs of a call and a kernel of one device.

    A call that started kernels from 10 to 30 and from 20 to 50 us started two, the first at 10 us, and kept
    the device busy for 40 us.

    Returns:
        The C calls, the number of kernels of each, when the first began, and for how long any ran; each of
        shape (C,).
    """
    order = np.lexsort((trace.events.begin_ps[device], host))
    calls, first, counts = np.unique(host[order], return_index=True, return_counts=True)
    begin, end = trace.events.begin_ps[device[order]], trace.events.end_ps[device[order]]
    work_ps = (end - begin)[first]
    for row in np.flatnonzero(counts > 1).tolist():
        pairs_of_call = slice(int(first[row]), int(first[row] + counts[row]))
        work_ps[row] = covered_ps(begin[pairs_of_call], end[pairs_of_call])
    return calls, counts, begin[first], work_ps


@dataclass(frozen=True, slots=True)
class StreamTable(RowColumns):
    """One row per stream (or core) on which a device ran something, most busy first.

    Its columns are those of ``STREAMS``, each of shape (N,), times in picoseconds.
    """

    device: tuple[str, ...]
    stream: tuple[str, ...]
    kernels: Int64s
    copies: Int64s
    busy_ps: Int64s
    window_ps: int  # from the first step's begin to the last one's end

    @property
    def busy_fraction(self) -> Floats:
        """Busy time over the window, shape (N,); NaN where there is no window."""
        return self.busy_ps / (self.window_ps or np.nan)


def tabulate_streams(trace: Trace, steps: Steps) -> StreamTable:
    """Sum up what each stream ran, its busy time inside the steps' window."""
    window = window_of_steps(steps)
    lines = np.flatnonzero(raw_device_lines(trace) & (np.diff(trace.lines.offsets) > 0))
    table = np.zeros((lines.size, 3), np.int64)
    for row, line in enumerate(lines.tolist()):
        events = np.arange(*trace.lines.offsets[line : line + 2])
        copies = int((kinds_of_work(trace, events) == COPY).sum())
        begin = np.clip(trace.events.begin_ps[events], *window)
        busy = covered_ps(begin, np.clip(trace.events.end_ps[events], *window))
        table[row] = events.size - copies, copies, busy
    order = np.argsort(-table[:, 2], kind="stable")
    planes = trace.lines.plane[lines[order]].tolist()
    return StreamTable(
        tuple(trace.planes[plane].name for plane in planes),
        tuple(trace.lines.names[line] for line in lines[order]),
        kernels=table[order, 0],
        copies=table[order, 1],
        busy_ps=table[order, 2],
        window_ps=window[1] - window[0],
    )


LAUNCHES = Table[LaunchTable](
    "launches",
    "One row per device with kernels, and the kernels' launches.",
    columns_in("""
        device: its name
        kernels: how many kernels it ran
        kernels_per_step [per step] = per_step: their median number in a step
        calls: how many recorded calls launched them
        launch_us [call]: median time of a call that launches
        delay_us: median time from that call's end to its first kernel's begin
        delay_p95_us: ... of which one call in 20 waits longer
        launched_fraction: share of the kernels whose launch was recorded
        tiny_fraction: share of the kernels shorter than 10 us
        shorter_than_launch_fraction = longer_fraction: share of the calls that took longer than all that
            they started
        """),
    values={
        "launched_fraction": lambda t: t.launched / np.maximum(t.kernels, 1),
        "tiny_fraction": lambda t: t.tiny / np.maximum(t.kernels, 1),
    },
)
STREAMS = Table[StreamTable](
    "streams",
    "One row per active stream of a device, most busy first.",
    columns_in("""
        device: the device's name
        stream: the stream's name
        kernels: how many kernels it ran
        copies: how many copies and memsets
        busy_us: time inside the steps' window in which any ran
        busy_fraction [of the time]: share of the window
        """),
)
