"""Events to the step that caused them, across threads and from launch to kernel.

To a step belong its root events (its markers), what they contain on their thread, and what that work set
going elsewhere: a producer event hands on to the consumer events with the same context (thread-pool
closures, function runs), an executor to the iterator it waits for, a kernel launch to its kernel.
What JAX's programs run on a CPU belongs to the step that called them, whichever thread goes on with it.
Each event belongs to the first step that reaches it; work that no step reaches, such as an input
pipeline running ahead, belongs to none.

Where this departs from the official tool: the roots are the steps only (there every function run
without a marker is a group); a loop op in the trace does not switch grouping off; and a thread-pool
region is placed in time order, where the official tool appends it to the end of its line, so that
events on that line can lose or win a parent (up to 0.5 ms of a CPU step).

Source: openxla/xla xla/tsl/profiler/utils/group_events.cc and preprocess_xplane.h (5a3e9fa3).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Int32s, Int64s, look_up, match
from profnb.core.jit import tiered
from profnb.core.joining import Keyed, Links, link_by_key
from profnb.steps.launching import (
    ProgramRuns,
    find_launches,
    find_program_runs,
    follow_programs,
)
from profnb.steps.nesting import find_parents
from profnb.steps.windows import Steps
from profnb.trace.enqueued import find_enqueued
from profnb.trace.model import Trace
from profnb.trace.names import (
    CONSUMER_ID,
    CONSUMER_TYPE,
    CORRELATION_ID,
    EXECUTOR_PROCESS,
    GROUP_ID,
    PRODUCER_ID,
    PRODUCER_TYPE,
    RUN_ID,
)

_REGION_START = "ThreadpoolListener::StartRegion"
_REGION_STOP = "ThreadpoolListener::StopRegion"
_ITERATOR_WAITS = frozenset(
    {"IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute"}
)
_is_iterator_wait = _ITERATOR_WAITS.__contains__


@dataclass(frozen=True, slots=True)
class Groups:
    """Which step each event belongs to.

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

    Args:
        trace: The trace.
        steps: Its steps. For a window every event belongs to the one step there is.
    """
    end_ps = _close_regions(trace)
    parent = find_parents(end_ps, trace.lines.offsets)
    if steps.is_window:
        return Groups(np.zeros(len(trace.events), np.int32), parent, end_ps)
    step = np.full(len(trace.events), -1, np.int32)
    links = _find_links(trace)
    _claim(steps, parent, links, step)
    follow_programs(trace, step)
    programs = tuple(find_program_runs(trace, parent))
    for runs in programs:
        step[runs.events] = np.where(runs.run >= 0, step[runs.calls][runs.run], -1)
    _adopt_recorded_groups(trace, step)
    _place_by_time(trace, steps, step)
    return Groups(step, parent, end_ps, programs)


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
    """The events that carry both of two integer stats, by their two values."""
    one, two = trace.stats.integers(first), trace.stats.integers(second)
    events, in_one, in_two = match(one.events, two.events)
    if in_one is in_two and events.size == len(one):
        return Keyed(events, (_longs(one.values), _longs(two.values)))
    return Keyed(events, (_longs(one.values)[in_one], _longs(two.values)[in_two]))


def _longs(values: npt.NDArray[np.generic]) -> Int64s:
    return values.astype(np.int64, copy=False)


def _find_links(trace: Trace) -> list[Links]:
    """Links from the events that set work going to the events that are this work, of each kind of link.

    Both sides carry a key, and events of the same key belong together: its *context*. An example with
    keys (type, id):

        producers               consumers              contexts         links
        event 3  (1, 70)        event 10  (1, 70)      0: (1, 70)       3 -> 10, 3 -> 11
        event 5  (1, 71)        event 11  (1, 70)      1: (1, 71)       5 -> 12
        event 8  (1, 71)        event 12  (1, 71)                       8 -> 12

    As entries: producers [3, 5, 8], first [0, 2, 2], last [2, 3, 3], consumers [10, 11, 12].
    """
    return [link_by_key(producing, consuming) for producing, consuming in _keyed_sides(trace)]


def _keyed_sides(trace: Trace) -> Iterator[tuple[Keyed, Keyed]]:
    """(Producers, consumers) of each kind of link that a trace records.

    Contexts of thread pools and function runs; runs of an executor and the iterator that they wait for;
    launches and what they start on the device, on a TPU whole programs. One after the other, so that no two
    are in memory.
    """
    yield (
        _keyed_by(trace, PRODUCER_TYPE, PRODUCER_ID),
        _keyed_by(trace, CONSUMER_TYPE, CONSUMER_ID),
    )
    if trace.names.rows_where(_is_iterator_wait).any():
        iterations = _keyed_by(trace, "id", "iter_num")
        is_wait = trace.are_named(iterations.events, _is_iterator_wait)
        is_run = trace.are_named(iterations.events, lambda name: name == EXECUTOR_PROCESS)
        yield iterations.where(is_run), iterations.where(is_wait)
    correlated = trace.stats.integers(CORRELATION_ID)
    is_on_device = trace.is_device_line[trace.lines.of_event[correlated.events]]
    if len(trace.stats.integers(RUN_ID)):
        calls, runs = find_enqueued(trace)
        yield Keyed(*calls), Keyed(*runs)
    if is_on_device.any():
        launches = Keyed(correlated.events, (np.asarray(correlated.values, np.int64),))
        yield launches.where(~is_on_device), launches.where(is_on_device)


def _claim(steps: Steps, parent: Int32s, links: list[Links], step: Int32s) -> None:
    """Fill in the step of each event that a root contains, or that its work set going."""
    link = np.full(parent.size, -1, np.int32)  # of each event the last of its entries
    others = []  # of each entry the one before it of the same event, or -1
    counts = np.cumsum([0, *(kind.producers.size for kind in links)])
    places = np.cumsum([0, *(kind.consumers.size for kind in links)])
    for kind, count in zip(links, counts.tolist(), strict=False):
        others.append(link[kind.producers])
        link[kind.producers] = np.arange(count, count + kind.producers.size)
    none = np.empty(0, np.int32)
    first = np.concatenate([k.first + p for k, p in zip(links, places, strict=False)])
    last = np.concatenate([k.last + p for k, p in zip(links, places, strict=False)])
    consumers = np.concatenate([kind.consumers for kind in links])
    stack = np.empty(steps.roots.size + int((last - first).sum()), np.int64)
    behind = np.arange(1, parent.size + 1, dtype=np.int32)
    _spread(
        steps.roots, steps.first_root, parent, link, np.concatenate([none, *others]), first, last,
        consumers, behind, stack, step,
    )  # fmt: skip


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


def _adopt_recorded_groups(trace: Trace, step: Int32s) -> None:
    """In a trace that was grouped when it was recorded, follow that grouping where ours is silent.

    Where events 4 and 9 carry the recorded group 7 and only event 4 belongs to a step, event 9 goes to
    the same step. Where a group's events belong to several, its first one decides.
    """
    recorded = trace.stats.integers(GROUP_ID)
    if not len(recorded):
        return
    group = np.asarray(recorded.values, np.int64)
    is_claimed = step[recorded.events] >= 0
    groups, first = np.unique(group[is_claimed], return_index=True)
    adopted = look_up(groups, step[recorded.events[is_claimed][first]].astype(np.int64), group)
    follows = ~is_claimed & (adopted >= 0)
    step[recorded.events[follows]] = adopted[follows]


def _place_by_time(trace: Trace, steps: Steps, step: Int32s) -> None:
    """Events without a cause in the trace go to the step in whose window they begin.

    Host work does in a trace that nowhere tells what other threads did for a step: a TF1 timeline, PyTorch's
    (whose backward pass is another thread), a generic Chrome trace. Device work goes to the step in which it
    was launched, however much later it ran, and by its own begin where no step launched it.
    """
    may_stray = trace.lines.spread(trace.is_device_line)
    if not any(len(trace.stats.integers(stat)) for stat in (CONSUMER_ID, GROUP_ID)):
        may_stray = may_stray | trace.is_host_event
    stray = np.flatnonzero(may_stray & (step < 0))
    if not stray.size or not len(steps):
        return
    launches, launched = find_launches(trace)
    cause = look_up(launched, launches, stray)
    launched_in = _step_at(steps, trace.events.begin_ps[np.maximum(cause, 0)])
    begun_in = _step_at(steps, trace.events.begin_ps[stray])
    step[stray] = np.where((cause >= 0) & (launched_in >= 0), launched_in, begun_in)


def _step_at(steps: Steps, times_ps: Int64s) -> Int64s:
    """The row of the step that runs at each of some times, or -1."""
    row = np.searchsorted(steps.begin_ps, times_ps, side="right") - 1
    is_inside = (row >= 0) & (times_ps < steps.end_ps[np.maximum(row, 0)])
    return np.where(is_inside, row, -1)
