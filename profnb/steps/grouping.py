"""Events to the step that caused them, across threads and from launch to kernel; steps to the end of that.

To a step belong its root events (its markers), what they contain on their thread, and what that work set
going elsewhere: a producer event hands on to the consumer events with the same context (thread-pool
closures, function runs), an executor to the iterator it waits for, a kernel launch to its kernel.
Each event belongs to the first step that reaches it; work that no step reaches, such as an input
pipeline running ahead, belongs to none.

What JAX's programs run on a CPU belongs to the step that called them, whichever thread goes on with it. Calls
return before their programs have run. The third call of ``PjitFunction(f)`` asked for the third run of
``jit_f``, if each call has its run: nothing in the trace links the two, and a thread that goes on with the
next program in one piece of work seems to do it for the step that began it. An instruction carries the
``run_id`` of its run, numbered in the order of calls; where that is not recorded, runs are told apart by
their last instruction. A TPU's programs are enqueued whole: call and run carry the same ``run_id`` of the
same device, and the ops are those that run meanwhile.

A step that the host waits for ends when the device has finished what the step launched. Where the host does
not wait, it runs ahead, and a step begins when the device is done with the one before: its time is the
period of the device's work, which is what an iteration costs. JAX on a CPU runs its programs so as well:
there the program that each call asked for is the device's work.

    host     |[0][1][2][3]                          launches four steps in no time
    device   |   [ work of 0 ][ work of 1 ][ work of 2 ][ work of 3 ]
    steps    |[ 0            ][ 1         ][ 2         ][ 3         ]      the host runs 3 steps ahead

No two steps overlap, and from the first step's begin to the end of the last device work every instant belongs
to one step or to the gap after it.

Where this departs from the official tool: the roots are the steps only (there every function run
without a marker is a group); a loop op in the trace does not switch grouping off; and a thread-pool
region is placed in time order, where the official tool appends it to the end of its line, so that
events on that line can lose or win a parent (up to 0.5 ms of a CPU step).

Source: openxla/xla xla/tsl/profiler/utils/group_events.cc and preprocess_xplane.h (5a3e9fa3).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Int32s, Int64s, look_up, match, span_at
from profnb.core.jit import tiered
from profnb.core.joining import Keyed, Links, link_by_key
from profnb.steps.nesting import find_parents
from profnb.steps.streams import busiest_device, find_launches, raw_device_lines
from profnb.steps.windows import Steps
from profnb.trace import names as trace_names
from profnb.trace.enqueued import find_enqueued, is_program
from profnb.trace.model import Trace

_REGION_START = "ThreadpoolListener::StartRegion"
_REGION_STOP = "ThreadpoolListener::StopRegion"
_ITERATOR_WAITS = "IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute"
_is_iterator_wait = frozenset(_ITERATOR_WAITS).__contains__
_is_executor = frozenset((trace_names.EXECUTOR_PROCESS,)).__contains__


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


@dataclass(frozen=True, slots=True)
class Groups:
    """The step that each event belongs to.

    Attributes:
        step: Row of the event's step, or -1, shape (E,).
        parent: Index of the event's parent on its line, or -1, shape (E,).
        end_ps: Where each event ends, shape (E,); a thread-pool region runs from its start event
            to its stop event.
        programs: The runs of JAX's programs on a CPU, with the calls that asked for them.
    """

    step: Int32s
    parent: Int32s
    end_ps: Int64s
    programs: tuple[ProgramRuns, ...] = ()


def group_events(trace: Trace, steps: Steps) -> Groups:
    """Find the step of every event.

    For a window every event belongs to the one step there is.
    """
    end_ps = _close_regions(trace)
    parent = find_parents(end_ps, trace.lines.offsets)
    if steps.is_window:
        return Groups(np.zeros(len(trace.events), np.int32), parent, end_ps)
    step = np.full(len(trace.events), -1, np.int32)
    claim(trace, steps.roots, steps.first_root, parent, step)
    programs = tuple(_find_program_runs(trace, parent))
    for runs in programs:
        step[runs.events] = np.where(runs.run >= 0, step[runs.calls][runs.run], -1)
    _adopt_recorded_groups(trace, step)
    _place_by_time(trace, steps, step)
    return Groups(step, parent, end_ps, programs)


def extend_to_device_work(trace: Trace, steps: Steps, groups: Groups) -> Steps:
    """Let each step end with the device work it launched, and the next begin no sooner.

    The busiest device's work decides, where there are several.

    Returns:
        The steps with their new bounds, and how many steps the host runs ahead.
    """
    if steps.is_window or not len(steps):
        return steps
    plane = busiest_device(trace)
    if plane is None:  # the programs that calls of JAX's functions asked for, if any
        none = np.empty(0, np.int64)
        programs = groups.programs if steps.roots.size else ()
        row = np.concatenate([none, *(groups.step[runs.calls] for runs in programs)])
        ends = np.concatenate([none, *(runs.ends_ps for runs in programs)])
    else:
        lines = raw_device_lines(trace) & (trace.lines.plane == plane)
        work = np.flatnonzero(lines[trace.lines.of_event] & (groups.step >= 0))
        row, ends = groups.step[work], trace.events.end_ps[work]
    row, ends = row[row >= 0], ends[row >= 0]
    if not row.size:
        return steps
    last = steps.end_ps.copy()
    np.maximum.at(last, row, ends)
    end = np.maximum.accumulate(last)
    begin = np.maximum(steps.begin_ps, np.append(steps.begin_ps[:1], end[:-1]))
    later = np.searchsorted(steps.begin_ps, end) - 1 - np.arange(len(steps))
    ahead = int(np.median(later[:-1])) if len(steps) > 1 else 0
    return replace(steps, begin_ps=begin, end_ps=end, steps_ahead=max(ahead, 0))


def _close_regions(trace: Trace) -> Int64s:
    """Event ends, with each region's start event drawn out to the stop event that follows it.

    Of a start event [5, 6) and a stop event at 30 on one line, the start event becomes [5, 30), so that
    what the thread pool ran in between is inside it.
    """
    is_start = trace.select_named(_REGION_START)
    bounds = np.flatnonzero(is_start | trace.select_named(_REGION_STOP))
    opens = is_start[bounds]
    paired = np.flatnonzero(opens[:-1] & ~opens[1:])
    start, stop = bounds[paired], bounds[paired + 1]
    # A stop event is the next of its line, unless the line begins between the two.
    last = np.searchsorted(start, trace.lines.offsets) - 1
    crosses = last[(last >= 0) & (stop[last] >= trace.lines.offsets)] if start.size else last[:0]
    if crosses.size:
        start, stop = np.delete(start, crosses), np.delete(stop, crosses)
    end_ps = trace.events.end_ps.copy()
    end_ps[start] = trace.events.begin_ps[stop]
    return end_ps


def _keyed_by(trace: Trace, first: str, second: str) -> Keyed:
    """Key the events that carry both of two integer stats by their two values."""
    one, two = trace.stats.integers(first), trace.stats.integers(second)
    events, in_one, in_two = match(one.events, two.events)
    if in_one is in_two and events.size == len(one):
        return Keyed(events, (_longs(one.values), _longs(two.values)))
    return Keyed(events, (_longs(one.values)[in_one], _longs(two.values)[in_two]))


def _longs(values: npt.NDArray[np.generic]) -> Int64s:
    return values.astype(np.int64, copy=False)


def _find_links(trace: Trace) -> Iterator[Links]:
    """Link the events that set work going to the events that are this work, kind by kind of link.

    Both sides carry a key, and events of the same key belong together: its *context*. An example with
    keys (type, id):

        producers               consumers              contexts         links
        event 3  (1, 70)        event 10  (1, 70)      0: (1, 70)       3 -> 10, 3 -> 11
        event 5  (1, 71)        event 11  (1, 70)      1: (1, 71)       5 -> 12
        event 8  (1, 71)        event 12  (1, 71)                       8 -> 12

    As entries: producers [3, 5, 8], first [0, 2, 2], last [2, 3, 3], consumers [10, 11, 12].

    Linked are contexts of thread pools and function runs; runs of an executor and the iterator that they wait
    for; launches and what they start on the device, on a TPU whole programs. One after the other, so that the
    keys of no two kinds are in memory.
    """
    yield link_by_key(
        _keyed_by(trace, trace_names.PRODUCER_TYPE, trace_names.PRODUCER_ID),
        _keyed_by(trace, trace_names.CONSUMER_TYPE, trace_names.CONSUMER_ID),
    )
    if trace.names.rows_where(_is_iterator_wait).any():
        iterations = _keyed_by(trace, "id", "iter_num")
        is_wait = trace.are_named(iterations.events, _is_iterator_wait)
        is_run = trace.are_named(iterations.events, _is_executor)
        yield link_by_key(iterations.where(is_run), iterations.where(is_wait))
    correlated = trace.stats.integers(trace_names.CORRELATION_ID)
    is_on_device = trace.is_device_line[trace.lines.of_event[correlated.events]]
    if len(trace.stats.integers(trace_names.RUN_ID)):
        calls, runs = find_enqueued(trace)
        yield link_by_key(Keyed(*calls), Keyed(*runs))
    if is_on_device.any():
        launches = Keyed(correlated.events, (np.asarray(correlated.values, np.int64),))
        yield link_by_key(launches.where(~is_on_device), launches.where(is_on_device))


def claim(trace: Trace, roots: Int64s, first_root: Int64s, parent: Int32s, step: Int32s) -> None:
    """Fill in the first of S owners to reach each event: its roots contain it, or their work set it going.

    Owner s has the events ``roots[first_root[s]:first_root[s + 1]]``. ``step`` is -1 where nobody has the
    event yet.
    """
    links = [*_find_links(trace)]
    link = np.full(parent.size, -1, np.int32)  # of each event the last of its entries
    others = [np.empty(0, np.int32)]  # of each entry the one before it of the same event, or -1
    firsts, lasts, entries, consumers = [], [], 0, 0
    for kind in links:
        others.append(link[kind.producers])
        link[kind.producers] = np.arange(entries, entries + kind.producers.size)
        firsts.append(kind.first + consumers)
        lasts.append(kind.last + consumers)
        entries, consumers = entries + kind.producers.size, consumers + kind.consumers.size
    first, last = np.concatenate(firsts), np.concatenate(lasts)
    stack = np.empty(roots.size + int((last - first).sum()), np.int64)
    behind = np.arange(1, parent.size + 1, dtype=np.int32)
    _spread(
        roots, first_root, parent, link, np.concatenate(others), first, last,
        np.concatenate([kind.consumers for kind in links]), behind, stack, step,
    )  # fmt: skip
    _follow_programs(trace, step)


@tiered
def _spread(
    roots: Int64s, first_root: Int64s, parent: Int32s, link: Int32s, other: Int32s, first: Int64s,
    last: Int64s, consumers: Int64s, behind: Int32s, stack: Int64s, step: Int32s,
) -> None:  # fmt: skip
    """Claim, step by step, what each root contains and what that set going.

    Root 2 of step 0 contains event 3, and event 3 set event 10 going, which contains event 11: all of
    them belong to step 0, and no later step claims them again.

    ``behind`` comes as each event's successor, and becomes the first event behind all that it contains;
    ``link`` is each event's entry of ``first`` and ``last``, or -1, and ``other`` each entry's next one of
    the same event; ``stack`` has room for each root and each end of a link.
    """
    for event in range(parent.size - 1, -1, -1):
        owner = parent[event]
        if owner >= 0 and behind[event] > behind[owner]:
            behind[owner] = behind[event]
    for row in range(first_root.size - 1):
        for root in range(first_root[row], first_root[row + 1]):
            stack[0] = roots[root]
            top = 1
            while top > 0:
                top -= 1
                event = stack[top]
                end = behind[event]
                while event < end:
                    if step[event] >= 0:  # then so is all that it contains
                        event = behind[event]
                        continue
                    step[event] = row
                    index = link[event]
                    while index >= 0:
                        for target in range(first[index], last[index]):
                            stack[top] = consumers[target]
                            top += 1
                        index = other[index]
                    event += 1


def _follow_programs(trace: Trace, step: Int32s) -> None:
    """Fill in the step of a TPU's ops: that of the call which enqueued the program that they run in.

    A program in step 2 runs from 10 to 30 on the line ``XLA Modules``: an op that begins at 20 on the line
    ``XLA Ops`` of the same device belongs to step 2.
    """
    if not trace.is_device_line.any():
        return
    programs = np.flatnonzero((step >= 0) & trace.lines.spread(trace.is_device_line))
    programs = programs[is_program(trace, programs)]
    begin_ps, end_ps = trace.events.begin_ps, trace.events.end_ps
    programs = programs[np.argsort(begin_ps[programs], kind="stable")]
    plane = trace.lines.plane[trace.lines.of_event[programs]]
    is_ops = trace.lines.names.rows_where(lambda name: name == trace_names.XLA_OPS_LINE)
    is_ops &= trace.is_device_line
    for number in np.unique(plane).tolist():
        of_plane = programs[plane == number]
        ops = trace.lines.events_of(is_ops & (trace.lines.plane == number))
        ops = ops[step[ops] < 0]
        at = span_at(begin_ps[of_plane], end_ps[of_plane], begin_ps[ops])
        step[ops[at >= 0]] = step[of_plane[at[at >= 0]]]


def _find_program_runs(trace: Trace, parent: Int32s) -> Iterator[ProgramRuns]:
    """Pair calls of JAX's functions with runs of their programs, where a trace has no device."""
    modules = trace.stats.texts(trace_names.HLO_MODULE)
    is_call = trace.names.rows_where(lambda name: name.startswith(trace_names.JIT_CALL))
    if not len(modules) or not is_call.any() or trace.is_device_line.any():
        return
    name = trace.events.name
    calls = np.flatnonzero(is_call[name])
    # Each is recorded twice, nested.
    is_repeat = (parent[calls] >= 0) & (name[np.maximum(parent[calls], 0)] == name[calls])
    calls = calls[~is_repeat]
    calls = calls[np.argsort(trace.events.begin_ps[calls], kind="stable")]
    for row in np.unique(name[calls]).tolist():
        module = trace_names.compiled_program(trace_names.called_function(trace.names[row]))
        is_module = np.array([text.rstrip("_") == module for text in modules.texts], np.bool_)
        runs = _runs_of(trace, calls[name[calls] == row], modules.events[is_module[modules.values]])
        if runs is not None:
            yield runs


def _runs_of(trace: Trace, calls: Int64s, events: Int64s) -> ProgramRuns | None:
    """The runs, by their numbers; else ended by the instruction, of those once in each, last in the first."""
    ids = trace.stats.integers(trace_names.RUN_ID)
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


def has_replicas(trace: Trace, events: Int64s) -> bool:
    """Tell whether some events of JAX's programs ran for several devices of one CPU."""
    ordinal = trace.stats.integers("device_ordinal").of(events)
    return bool(np.unique(ordinal[ordinal >= 0]).size > 1)


def _adopt_recorded_groups(trace: Trace, step: Int32s) -> None:
    """In a trace that was grouped when it was recorded, follow that grouping where ours is silent.

    Where events 4 and 9 carry the recorded group 7 and only event 4 belongs to a step, event 9 goes to
    the same step. Where a group's events belong to several, its first one decides.
    """
    recorded = trace.stats.integers(trace_names.GROUP_ID)
    if not len(recorded):
        return
    group = np.asarray(recorded.values, np.int64)
    is_claimed = step[recorded.events] >= 0
    groups, first = np.unique(group[is_claimed], return_index=True)
    adopted = look_up(groups, step[recorded.events[is_claimed][first]].astype(np.int64), group)
    follows = ~is_claimed & (adopted >= 0)
    step[recorded.events[follows]] = adopted[follows]


def links_threads(trace: Trace) -> bool:
    """Tell whether a trace says anywhere what threads did for one another."""
    return any(
        len(trace.stats.integers(stat)) for stat in (trace_names.CONSUMER_ID, trace_names.GROUP_ID)
    )


def _place_by_time(trace: Trace, steps: Steps, step: Int32s) -> None:
    """Events without a cause in the trace go to the step in whose window they begin.

    Host work does in a trace that nowhere tells what other threads did for a step: a TF1 timeline, PyTorch's
    (whose backward pass is another thread), a generic Chrome trace. Device work goes to the step in which it
    was launched, however much later it ran, and by its own begin where no step launched it.
    """
    may_stray = trace.lines.spread(trace.is_device_line)
    if not links_threads(trace):
        may_stray = may_stray | trace.is_host_event
    stray = np.flatnonzero(may_stray & (step < 0))
    if not stray.size or not len(steps):
        return
    launches, launched = find_launches(trace)
    cause = look_up(launched, launches, stray)
    launched_in, begun_in = (
        span_at(steps.begin_ps, steps.end_ps, trace.events.begin_ps[events])
        for events in (np.maximum(cause, 0), stray)
    )
    step[stray] = np.where((cause >= 0) & (launched_in >= 0), launched_in, begun_in)
