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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Bools, Int32s, Int64s, look_up, match, stable_order
from profnb.core.jit import tiered
from profnb.core.joining import number_keys
from profnb.steps.launching import ProgramRuns, find_program_runs, follow_programs
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

__all__ = ["Groups", "group_events"]


_REGION_START = "ThreadpoolListener::StartRegion"
_REGION_STOP = "ThreadpoolListener::StopRegion"
_ITERATOR_WAITS = frozenset(
    {"IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute"}
)
# A context this widely shared says nothing about who caused what (kMaxGroups in group_events.cc, which
# asks for 64 on both sides; the product also bounds how many links a small file can ask for).
_TOO_COMMON = 64


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

    step: Int64s
    parent: Int64s
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
        return Groups(np.zeros(len(trace.events), np.int64), parent, end_ps)
    step = np.full(len(trace.events), -1, np.int64)
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
    start = trace.select_named(_REGION_START)
    stop = trace.select_named(_REGION_STOP)
    bounds = np.flatnonzero(start | stop)
    lines = trace.lines.of_event[bounds]
    paired = start[bounds][:-1] & stop[bounds][1:] & (lines[:-1] == lines[1:])
    end_ps = trace.events.end_ps.copy()
    end_ps[bounds[:-1][paired]] = trace.events.begin_ps[bounds[1:][paired]]
    return end_ps


class _Keyed(NamedTuple):
    """Events and the key of each, which may be several numbers: (type, id), or (run, iteration).

    Attributes:
        events: Indices of events, shape (N,).
        keys: One column of shape (N,) for each number of the key.
    """

    events: Int64s
    keys: tuple[Int64s, ...]

    def where(self, chosen: Bools) -> "_Keyed":
        """Those of the events that are chosen, shape (N,)."""
        return _Keyed(self.events[chosen], tuple(key[chosen] for key in self.keys))


class _Links(NamedTuple):
    """Who set what going: entry i is ``producers[i]``, which set going ``consumers[first[i]:last[i]]``.

    Attributes:
        producers: Events that set others going, shape (N,); one has as many entries as it has contexts.
        first: Where the consumers of each begin, shape (N,).
        last: Where they end, shape (N,).
        consumers: Events that were set going, context by context.
    """

    producers: Int64s
    first: Int64s
    last: Int64s
    consumers: Int64s


def _keyed_by(trace: Trace, first: str, second: str) -> _Keyed:
    """The events that carry both of two integer stats, by their two values."""
    one, two = trace.stats.integers(first), trace.stats.integers(second)
    events, in_one, in_two = match(one.events, two.events)
    if in_one is in_two and events.size == len(one):
        return _Keyed(events, (_longs(one.values), _longs(two.values)))
    return _Keyed(events, (_longs(one.values)[in_one], _longs(two.values)[in_two]))


def _longs(values: npt.NDArray[np.generic]) -> Int64s:
    return values.astype(np.int64, copy=False)


def _find_links(trace: Trace) -> list[_Links]:
    """Links from the events that set work going to the events that are this work, of each kind of link.

    Both sides carry a key, and events of the same key belong together: its *context*. An example with
    keys (type, id):

        producers               consumers              contexts         links
        event 3  (1, 70)        event 10  (1, 70)      0: (1, 70)       3 -> 10, 3 -> 11
        event 5  (1, 71)        event 11  (1, 70)      1: (1, 71)       5 -> 12
        event 8  (1, 71)        event 12  (1, 71)                       8 -> 12

    As entries: producers [3, 5, 8], first [0, 2, 2], last [2, 3, 3], consumers [10, 11, 12].
    """
    return [_link(producing, consuming) for producing, consuming in _keyed_sides(trace)]


def _link(producing: _Keyed, consuming: _Keyed) -> _Links:
    context, wanted = number_keys(producing.keys, consuming.keys)
    is_known = wanted >= 0
    wanted, consumers = wanted[is_known], consuming.events[is_known]
    consuming_count = np.bincount(wanted, minlength=int(context.max(initial=-1)) + 1)
    tells = _tells_cause(np.bincount(context), consuming_count)
    last = np.cumsum(consuming_count)
    chosen = tells[context]
    context = context[chosen]
    return _Links(
        producing.events[chosen], (last - consuming_count)[context], last[context],
        consumers[stable_order(wanted)],
    )  # fmt: skip


def _tells_cause(producers: Int64s, consumers: Int64s) -> Bools:
    """Which contexts link their events: those with both sides, and not too many of both.

    One producer may have any number of consumers, and one consumer any number of producers; 64 of each
    have too much in common to be cause and effect.

    Args:
        producers: How many producers each context has, shape (number of contexts,); at least one.
        consumers: How many consumers.
    """
    is_telling = np.minimum(producers, consumers) <= 1
    is_telling |= producers * consumers < _TOO_COMMON**2
    return np.asarray(is_telling & (consumers > 0))


def _keyed_sides(trace: Trace) -> Iterator[tuple[_Keyed, _Keyed]]:
    """(Producers, consumers) of each kind of link that a trace records.

    Contexts of thread pools and function runs; runs of an executor and the iterator that they wait for;
    launches and what they start on the device, on a TPU whole programs. One after the other, so that no two
    are in memory.
    """
    yield (
        _keyed_by(trace, PRODUCER_TYPE, PRODUCER_ID),
        _keyed_by(trace, CONSUMER_TYPE, CONSUMER_ID),
    )
    is_wait = trace.select_named(*_ITERATOR_WAITS)
    if is_wait.any():
        is_run = trace.select_named(EXECUTOR_PROCESS)
        iterations = _keyed_by(trace, "id", "iter_num")
        events = iterations.events
        yield iterations.where(is_run[events]), iterations.where(is_wait[events])
    correlated = trace.stats.integers(CORRELATION_ID)
    is_on_device = trace.is_device_line[trace.lines.of_event[correlated.events]]
    if len(trace.stats.integers(RUN_ID)):
        calls, runs = find_enqueued(trace)
        yield _Keyed(*calls), _Keyed(*runs)
    if is_on_device.any():
        launches = _Keyed(correlated.events, (np.asarray(correlated.values, np.int64),))
        yield launches.where(~is_on_device), launches.where(is_on_device)


def _claim(steps: Steps, parent: Int64s, links: list[_Links], step: Int64s) -> None:
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
    roots: Int64s, first_root: Int64s, parent: Int64s, link: Int32s, other: Int32s, first: Int64s,
    last: Int64s, consumers: Int64s, behind: Int32s, stack: Int64s, step: Int64s,
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


def _adopt_recorded_groups(trace: Trace, step: Int64s) -> None:
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
    adopted = look_up(groups, step[recorded.events[is_claimed][first]], group)
    follows = ~is_claimed & (adopted >= 0)
    step[recorded.events[follows]] = adopted[follows]


def _place_by_time(trace: Trace, steps: Steps, step: Int64s) -> None:
    """Events without a cause in the trace go to the step in whose window they begin.

    That is device work whose launch was not recorded; and host work too in a trace that nowhere tells
    what other threads did for a step: a TF1 timeline, PyTorch's (whose backward pass is another thread), a
    generic Chrome trace.
    """
    may_stray = trace.lines.spread(trace.is_device_line)
    if not any(len(trace.stats.integers(stat)) for stat in (CONSUMER_ID, GROUP_ID)):
        may_stray = may_stray | trace.is_host_event
    stray = np.flatnonzero(may_stray & (step < 0))
    if not stray.size or not len(steps):
        return
    begins = trace.events.begin_ps[stray]
    row = np.searchsorted(steps.begin_ps, begins, side="right") - 1
    inside = (row >= 0) & (begins < steps.end_ps[np.maximum(row, 0)])
    step[stray[inside]] = row[inside]
