"""Steps of the host to steps that end with the work they launched on a device.

A step that the host waits for ends when the device has finished what the step launched. Where the host does
not wait, it runs ahead, and a step begins when the device is done with the one before: its time is the
period of the device's work, which is what an iteration costs.

    host     |[0][1][2][3]                          launches four steps in no time
    device   |   [ work of 0 ][ work of 1 ][ work of 2 ][ work of 3 ]
    steps    |[ 0            ][ 1         ][ 2         ][ 3         ]      the host runs 3 steps ahead

JAX on a CPU runs its programs so as well: there the program that each call asked for is the device's work.

No two steps overlap, and from the first step's begin to the end of the last device work every instant belongs
to one step or to the gap after it.
"""

from dataclasses import replace

import numpy as np

from profnb.core.columns import Int64s
from profnb.steps.grouping import Groups
from profnb.steps.streams import busiest_device, raw_device_lines
from profnb.steps.windows import Steps
from profnb.trace.model import Trace


def extend_to_device_work(trace: Trace, steps: Steps, groups: Groups) -> Steps:
    """Let each step end with the device work it launched, and the next begin no sooner.

    Args:
        trace: The trace.
        steps: The host's steps.
        groups: Which step each event belongs to. The busiest device's work decides, where there are several.

    Returns:
        The steps with their new bounds, and how many steps the host runs ahead.
    """
    if steps.is_window or not len(steps):
        return steps
    plane = busiest_device(trace)
    if plane is None:
        row, ends = _programs_on_the_cpu(steps, groups)
    else:
        lines = raw_device_lines(trace) & (trace.lines.plane == plane)
        work = np.flatnonzero(lines[trace.lines.of_event] & (groups.step >= 0))
        row, ends = groups.step[work].astype(np.int64), trace.events.end_ps[work]
    if not row.size:
        return steps
    last = steps.end_ps.copy()
    np.maximum.at(last, row, ends)
    end = np.maximum.accumulate(last)
    begin = np.maximum(steps.begin_ps, np.append(steps.begin_ps[:1], end[:-1]))
    later = np.searchsorted(steps.begin_ps, end) - 1 - np.arange(len(steps))
    ahead = int(np.median(later[:-1])) if len(steps) > 1 else 0
    return replace(steps, begin_ps=begin, end_ps=end, steps_ahead=max(ahead, 0))


def _programs_on_the_cpu(steps: Steps, groups: Groups) -> tuple[Int64s, Int64s]:
    """When the programs ended that calls of JAX's functions in the steps asked for, where there is no device.

    Returns:
        The step and the end of each run, shape (N,); none where calls and runs cannot be paired.
    """
    rows, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for runs in groups.programs if steps.roots.size else ():
        row = groups.step[runs.calls].astype(np.int64)
        inside = row >= 0
        rows.append(row[inside])
        ends.append(runs.ends_ps[inside])
    return np.concatenate(rows), np.concatenate(ends)
