"""What set work going: of devices the call and the execution of an op, of threads the run of a function.

A device's work carries the correlation id of its call.

An execution of an op (with XLA, of an instruction) runs each of its kernels once, so the next begins with a
kernel that the current one has run already, or with another step. Two executions that follow each other in
one step and share no kernel count as one; an execution that runs a kernel twice counts as two. The official
tool counts how often an op's most frequent kernel ran, which differs where executions run different kernels.

A TPU's programs are enqueued whole: call and run carry the same ``run_id`` of the same device, and the ops
are those that run meanwhile.

JAX's calls on a CPU return before their programs have run. The third call of ``PjitFunction(f)``
asked for the third run of ``jit_f``, if each call has its run: nothing in the trace links the two, and a
thread that goes on with the next program in one piece of work seems to do it for the step that began it. An
instruction carries the ``run_id`` of its run, numbered in the order of calls; where that is not recorded,
runs are told apart by their last instruction.

What the executor does for a run of a user's function in tf.data carries the run's id, on whatever thread.

Source: DeviceTfOpMetricsDbBuilder in openxla/xprof xprof/utils/op_metrics_db_utils.cc (046d7ce2).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int32s, Int64s
from profnb.core.jit import tiered
from profnb.core.joining import number_keys
from profnb.steps.nesting import find_parents, last_around
from profnb.trace.enqueued import is_program
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID, FUNCTION_RUNS, HLO_MODULE, RUN_ID, XLA_OPS_LINE

_CALL = "PjitFunction("
# What tf.data does for an element, on whatever thread, and its own threads.
_OF_PIPELINES = ("Iterator::", "PrefetchProduce", FUNCTION_RUNS)
_PIPELINE_THREADS = ("tf_data_",)


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
    has_launch = at >= 0
    has_launch[has_launch] = host_ids[at[has_launch]] == device_ids[has_launch]
    return host[at[has_launch]], device[has_launch]


def find_executions(trace: Trace, work: Int64s, unit: Int64s, step: Int32s | None = None) -> Bools:
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


def follow_programs(trace: Trace, step: Int32s) -> None:
    """The ops of a TPU go to the step whose call enqueued the program that they run in.

    A program in step 2 runs from 10 to 30 on the line ``XLA Modules``: an op that begins at 20 on the line
    ``XLA Ops`` of the same device belongs to step 2.

    Args:
        trace: The trace.
        step: Row of each event's step, or -1, shape (E,); filled in.
    """
    if not trace.is_device_line.any():
        return
    programs = np.flatnonzero((step >= 0) & trace.lines.spread(trace.is_device_line))
    programs = programs[is_program(trace, programs)]
    if not programs.size:
        return
    plane = trace.lines.plane[trace.lines.of_event]
    is_ops = trace.lines.names.rows_where(lambda name: name == XLA_OPS_LINE) & trace.is_device_line
    for number in np.unique(plane[programs]).tolist():
        plane_programs = programs[plane[programs] == number]
        plane_programs = plane_programs[
            np.argsort(trace.events.begin_ps[plane_programs], kind="stable")
        ]
        ops = trace.lines.events_of(is_ops & (trace.lines.plane == number))
        ops = ops[step[ops] < 0]
        begin = trace.events.begin_ps[ops]
        at = np.searchsorted(trace.events.begin_ps[plane_programs], begin, side="right") - 1
        inside = (at >= 0) & (begin < trace.events.end_ps[plane_programs[at]])
        step[ops[inside]] = step[plane_programs[at[inside]]]


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
        ends_ps: When each run ended, shape (N,).
        events: Every instruction that ran in any of them.
        run: Which run each is of, or -1 for one after the last, shape as ``events``; none at all where runs
            overlap.
    """

    calls: Int64s
    ends_ps: Int64s
    events: Int64s
    run: Int64s


def find_program_runs(trace: Trace, parent: Int32s) -> list[ProgramRuns]:
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
    program_runs = []
    for name in np.unique(trace.events.name[calls]).tolist():
        function_calls = calls[trace.events.name[calls] == name]
        function_calls = function_calls[
            np.argsort(trace.events.begin_ps[function_calls], kind="stable")
        ]
        function = trace.names[name].removeprefix(_CALL).removesuffix(")")
        is_module = np.array([text == f"jit_{function}" for text in modules.texts], np.bool_)
        runs = _runs_of(trace, function_calls, modules.events[is_module[modules.values]])
        if runs is not None:
            program_runs.append(runs)
    return program_runs


def has_replicas(trace: Trace, events: Int64s) -> bool:
    """Whether some events of JAX's programs ran for several devices of one CPU."""
    ordinal = trace.stats.integers("device_ordinal").of(events)
    return bool(np.unique(ordinal[ordinal >= 0]).size > 1)


def _runs_of(trace: Trace, calls: Int64s, events: Int64s) -> ProgramRuns | None:
    """The runs, by their numbers; else ended by the instruction, of those once in each, last in the first."""
    ids = trace.stats.integers(RUN_ID)
    distinct, run = np.unique(ids.of(events).astype(np.int64), return_inverse=True)
    if distinct.size == calls.size and np.isin(events, ids.events).all():
        ends_ps = np.zeros(calls.size, np.int64)
        np.maximum.at(ends_ps, run, trace.events.end_ps[events])
        in_turn = np.argsort(ends_ps, kind="stable")  # numbers may be negative, and begin anew
        return ProgramRuns(calls, ends_ps[in_turn], events, np.argsort(in_turn)[run])
    once, last = [], np.empty(0, np.int64)
    for name in np.unique(trace.events.name[events]).tolist():
        instruction_events = events[trace.events.name[events] == name]
        if instruction_events.size == calls.size:
            ends = np.sort(trace.events.end_ps[instruction_events])
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


@dataclass(frozen=True, slots=True)
class FunctionRuns:
    """The runs of users' functions in tf.data, R of them, and what worked for each.

    Attributes:
        runs: The runs as events, ascending, shape (R,).
        of_event: The run that each event has the id of, the first of several, as row of ``runs``; -1 for
            none, shape (E,).
    """

    runs: Int64s
    of_event: Int32s


def find_function_runs(trace: Trace) -> FunctionRuns:
    """Find the runs of users' functions, by the ids that the executor's events on any thread carry, too."""
    is_run = trace.select_names(lambda name: name.startswith(FUNCTION_RUNS))
    runs = np.flatnonzero(is_run & trace.is_host_event)
    of_event = np.full(len(trace.events), -1, np.int32)
    ids = trace.stats.integers("id")
    if runs.size and len(ids):
        numbers = ids.values.astype(np.int64, copy=False)
        number, event_number = number_keys((ids.of(runs, 0),), (numbers,))
        first = np.full(number.size + 1, -1, np.int32)  # the last: of what is not found
        first[number[::-1]] = np.arange(number.size)[::-1]
        rows_in_runs = np.flatnonzero((event_number >= 0) & (numbers != 0))  # 0: no id
        of_event[ids.events[rows_in_runs]] = first[event_number[rows_in_runs]]
    return FunctionRuns(runs, of_event)


def work_of_pipelines(trace: Trace, among: Bools, function_runs: FunctionRuns) -> Bools:
    """Which of some host events are an input pipeline's, which may work or wait there: no step's compute.

    Calls of iterators, what lies inside of one or of a run of a user's function, all of tf.data's own
    threads, and what an executor does for such a run. What a step waits for is in the wait itself.
    """
    is_thread = trace.lines.names.rows_where(lambda name: name.startswith(_PIPELINE_THREADS))
    names = trace.names.rows_where(lambda name: name.startswith(_OF_PIPELINES))
    if not names.any() and not is_thread.any():
        return np.zeros(among.size, np.bool_)
    is_mark = trace.by_name(names)
    is_of_pipeline = is_mark | trace.lines.spread(is_thread)
    is_of_pipeline &= among
    is_mark |= function_runs.of_event >= 0
    # What lies on pipelines' own threads is theirs already.
    marks = np.flatnonzero(is_mark & trace.lines.spread(trace.is_host_line & ~is_thread))
    if marks.size:
        above = find_parents(
            trace.events.end_ps[marks], np.searchsorted(marks, trace.lines.offsets)
        )
        marks = marks[above < 0]
        has_marks = np.zeros(len(trace.lines), np.bool_)
        has_marks[trace.lines.of_event[marks]] = True
        rest = np.flatnonzero(among & ~is_of_pipeline & trace.lines.spread(has_marks))
        is_of_pipeline[rest] = last_around(trace, marks, rest) >= 0
    return is_of_pipeline
