"""What set the work of devices going: the call, by correlation id, and the execution of an op.

An execution of an op (with XLA, of an instruction) runs each of its kernels once, so the next begins with a
kernel that the current one has run already, or with another step. Two executions that follow each other in
one step and share no kernel count as one; an execution that runs a kernel twice counts as two. The official
tool counts how often an op's most frequent kernel ran, which differs where executions run different kernels.

A TPU's programs are enqueued whole: call and run carry the same ``run_id`` of the same device, and the ops
are those that run meanwhile.

Source: DeviceTfOpMetricsDbBuilder in openxla/xprof xprof/utils/op_metrics_db_utils.cc (046d7ce2).
"""

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.core.jit import tiered
from profnb.trace.enqueued import is_program
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID, XLA_OPS_LINE

__all__ = ["find_executions", "find_launches", "follow_programs"]


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


def find_executions(trace: Trace, work: Int64s, unit: Int64s, step: Int64s | None = None) -> Bools:
    """Which pieces of device work begin an execution.

    Of an op that ran the kernels a, b, c, a, b, c the first and the fourth begin one.

    Args:
        trace: The trace.
        work: N events of devices.
        unit: The op or instruction of each, as a number, shape (N,).
        step: Row of each event's step, or -1, shape (E,).
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


def follow_programs(trace: Trace, step: Int64s) -> None:
    """The ops of a TPU go to the step whose call enqueued the program that they run in.

    A program in step 2 runs from 10 to 30 on the line ``XLA Modules``: an op that begins at 20 on the line
    ``XLA Ops`` of the same device belongs to step 2.

    Args:
        trace: The trace.
        step: Row of each event's step, or -1, shape (E,); filled in.
    """
    programs = np.flatnonzero((step >= 0) & trace.lines.spread(trace.is_device_line))
    programs = programs[is_program(trace, programs)]
    if not programs.size:
        return
    plane = trace.lines.plane[trace.lines.of_event]
    is_ops = trace.lines.names.rows_where(lambda name: name == XLA_OPS_LINE) & trace.is_device_line
    for number in np.unique(plane[programs]).tolist():
        own = programs[plane[programs] == number]
        own = own[np.argsort(trace.events.begin_ps[own], kind="stable")]
        ops = trace.lines.events_of(is_ops & (trace.lines.plane == number))
        ops = ops[step[ops] < 0]
        begin = trace.events.begin_ps[ops]
        at = np.searchsorted(trace.events.begin_ps[own], begin, side="right") - 1
        inside = (at >= 0) & (begin < trace.events.end_ps[own[at]])
        step[ops[inside]] = step[own[at[inside]]]


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
