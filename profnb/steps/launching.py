"""What set the work of devices going: the call, by correlation id, and the execution of an op.

An execution of an op (with XLA, of an instruction) runs each of its kernels once, so the next begins with a
kernel that the current one has run already, or with another step. Two executions that follow each other in
one step and share no kernel count as one; an execution that runs a kernel twice counts as two. The official
tool counts how often an op's most frequent kernel ran, which differs where executions run different kernels.

A TPU's programs are enqueued whole: call and run carry the same ``run_id`` of the same device, and the ops
are those that run meanwhile.

JAX's calls on a CPU return before their programs have run. The third call of ``PjitFunction(f)``
asked for the third run of ``jit_f``, if each call has its run: nothing in the trace links the two, and a
thread that goes on with the next program in one piece of work seems to do it for the step that began it.

Source: DeviceTfOpMetricsDbBuilder in openxla/xprof xprof/utils/op_metrics_db_utils.cc (046d7ce2).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.core.jit import tiered
from profnb.trace.enqueued import is_program
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID, HLO_MODULE, XLA_OPS_LINE

__all__ = [
    "ProgramRuns",
    "find_executions",
    "find_launches",
    "find_program_runs",
    "follow_programs",
]

_CALL = "PjitFunction("


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


@dataclass(frozen=True, slots=True)
class ProgramRuns:
    """The runs of one function's program, N of them.

    Attributes:
        calls: The calls that asked for them, in order, shape (N,).
        ends_ps: When each run ended, ascending, shape (N,).
        events: Every instruction that ran in any of them.
        run: Which run each is of, or -1 for one after the last, shape as ``events``; none at all where runs
            overlap.
    """

    calls: Int64s
    ends_ps: Int64s
    events: Int64s
    run: Int64s


def find_program_runs(trace: Trace, parent: Int64s) -> list[ProgramRuns]:
    """Pair calls of JAX's functions with runs of their programs, where a trace has no device.

    Args:
        trace: The trace.
        parent: Index of each event's parent on its line, or -1, shape (E,).
    """
    modules = trace.stats.texts(HLO_MODULE)
    is_call = trace.names.rows_where(lambda name: name.startswith(_CALL))
    if not len(modules) or not is_call.any() or trace.is_device_line.any():
        return []
    calls = np.flatnonzero(is_call[trace.events.name])
    above = np.maximum(parent[calls], 0)
    # Each is recorded twice, nested.
    is_repeat = trace.events.name[above] == trace.events.name[calls]
    calls = calls[~(is_repeat & (parent[calls] >= 0))]
    found = []
    for name in np.unique(trace.events.name[calls]).tolist():
        own = calls[trace.events.name[calls] == name]
        own = own[np.argsort(trace.events.begin_ps[own], kind="stable")]
        function = trace.names[name].removeprefix(_CALL).removesuffix(")")
        is_module = np.array([text == f"jit_{function}" for text in modules.texts], np.bool_)
        runs = _runs_of(trace, own, modules.events[is_module[modules.values]])
        if runs is not None:
            found.append(runs)
    return found


def _runs_of(trace: Trace, calls: Int64s, events: Int64s) -> ProgramRuns | None:
    """The runs, each ended by the instruction, of those that ran once in each, that is last in the first."""
    once, last = [], np.empty(0, np.int64)
    for name in np.unique(trace.events.name[events]).tolist():
        own = events[trace.events.name[events] == name]
        if own.size == calls.size:
            ends = np.sort(trace.events.end_ps[own])
            once.append(ends)
            last = ends if not last.size or ends[0] > last[0] else last
    if not last.size:
        return None
    run = _run_at(last, trace.events.end_ps[events])
    in_turn = np.arange(calls.size)
    if not all((_run_at(last, ends) == in_turn).all() for ends in once):
        events, run = events[:0], run[:0]
    return ProgramRuns(calls, last, events, run)


def _run_at(last_ps: Int64s, ends_ps: Int64s) -> Int64s:
    """The run that each of some events is of, by when it ended, or -1."""
    run = np.searchsorted(last_ps, ends_ps)
    return np.asarray(np.where(run < last_ps.size, run, -1), np.int64)
