"""Events to the step that caused them, across threads and from launch to kernel.

A step's root events (its markers) own what they contain on their own thread, and what that work set
going elsewhere: a producer event hands on to the consumer events with the same context (thread-pool
closures, function runs), an executor to the iterator it waits for, a kernel launch to its kernel.
Each event belongs to the first step that reaches it; work that no step reaches, such as an input
pipeline running ahead, belongs to none.

Where this departs from the official tool: the roots are the steps only (there every function run
without a marker is a group); a loop op in the trace does not switch grouping off; and a thread-pool
region is placed in time order, where the official tool appends it to the end of its line, so that
events on that line can lose or win a parent (up to 0.5 ms of a CPU step).

Source: openxla/xla xla/tsl/profiler/utils/group_events.cc and preprocess_xplane.h (5a3e9fa3).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.jit import compiled
from profnb.steps.nesting import find_parents
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import (
    CONSUMER_ID,
    CONSUMER_TYPE,
    CORRELATION_ID,
    EXECUTOR_PROCESS,
    GROUP_ID,
    PRODUCER_ID,
    PRODUCER_TYPE,
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
    """

    step: Int64s
    parent: Int64s
    end_ps: Int64s


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
    _spread(steps.roots, steps.first_root, parent, *links, step)
    _adopt_recorded_groups(trace, step)
    _place_by_time(trace, steps, step)
    return Groups(step, parent, end_ps)


def _close_regions(trace: Trace) -> Int64s:
    """Event ends, with each region's start event drawn out to the stop event that follows it."""
    start = trace.names.rows_where(lambda name: name == _REGION_START)[trace.events.name]
    stop = trace.names.rows_where(lambda name: name == _REGION_STOP)[trace.events.name]
    bounds = np.flatnonzero(start | stop)
    lines = trace.lines.of_event[bounds]
    paired = start[bounds][:-1] & stop[bounds][1:] & (lines[:-1] == lines[1:])
    end_ps = trace.events.end_ps.copy()
    end_ps[bounds[:-1][paired]] = trace.events.begin_ps[bounds[1:][paired]]
    return end_ps


def _columns(trace: Trace, first: str, second: str) -> tuple[Int64s, Int64s, Int64s]:
    """The events that carry both of two integer stats, and the two values."""
    one, two = trace.stats.integers(first), trace.stats.integers(second)
    events, in_one, in_two = np.intersect1d(
        one.events, two.events, assume_unique=False, return_indices=True
    )
    first_values, second_values = one.values[in_one], two.values[in_two]
    return events, first_values.astype(np.int64), second_values.astype(np.int64)


def _find_links(trace: Trace) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Producer to consumer links as CSR: (producers, first, last, consumers).

    Producer events ascend; producer i set going ``consumers[first[i]:last[i]]``.
    """
    none = np.empty(0, np.int64)
    producers, consumers = [none], [none]
    for made, used in _contexts(trace):
        events = np.concatenate([made[0], used[0]])
        codes = np.zeros(events.size, np.int64)
        for values in zip(made[1:], used[1:], strict=True):
            _, inverse = np.unique(np.concatenate(values), return_inverse=True)
            codes = codes * (inverse.max(initial=0) + 1) + inverse
            _, codes = np.unique(codes, return_inverse=True)
        made_codes, used_codes = codes[: made[0].size], codes[made[0].size :]
        most = codes.max(initial=-1) + 1
        made_count, used_count = (np.bincount(c, minlength=most) for c in (made_codes, used_codes))
        fewest = np.minimum(made_count, used_count)
        told = (fewest <= 1) | (made_count * used_count < _TOO_COMMON**2)
        kept_made = told[made_codes] & (used_count[made_codes] > 0)
        kept_used = told[used_codes] & (made_count[used_codes] > 0)
        order = np.argsort(used_codes[kept_used], kind="stable")
        targets, target_codes = used[0][kept_used][order], used_codes[kept_used][order]
        sources, source_codes = made[0][kept_made], made_codes[kept_made]
        first = np.searchsorted(target_codes, source_codes)
        size = np.searchsorted(target_codes, source_codes, side="right") - first
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        producers.append(np.repeat(sources, size))
        consumers.append(targets[np.repeat(first, size) + within])
    source, target = np.concatenate(producers), np.concatenate(consumers)
    order = np.argsort(source, kind="stable")
    events, first = np.unique(source[order], return_index=True)
    return events, first, np.append(first[1:], source.size), target[order]


def _contexts(trace: Trace) -> list[tuple[tuple[Int64s, ...], tuple[Int64s, ...]]]:
    """Pairs of (producer events and keys, consumer events and keys)."""
    pairs: list[tuple[tuple[Int64s, ...], tuple[Int64s, ...]]] = [
        (
            _columns(trace, PRODUCER_TYPE, PRODUCER_ID),
            _columns(trace, CONSUMER_TYPE, CONSUMER_ID),
        )
    ]
    waits = trace.select_names(lambda name: name in _ITERATOR_WAITS)
    if waits.any():
        runs = trace.select_names(lambda name: name == EXECUTOR_PROCESS)
        events, run_id, iteration = _columns(trace, "id", "iter_num")
        pairs.append(
            tuple(  # type: ignore[arg-type]
                (events[chosen[events]], run_id[chosen[events]], iteration[chosen[events]])
                for chosen in (runs, waits)
            )
        )
    launches = trace.stats.integers(CORRELATION_ID)
    on_device = trace.is_device_line[trace.lines.of_event[launches.events]]
    if on_device.any():
        pairs.append(
            tuple(  # type: ignore[arg-type]
                (launches.events[side], launches.values[side]) for side in (~on_device, on_device)
            )
        )
    return pairs


@compiled
def _spread(
    roots: Int64s, first_root: Int64s, parent: Int64s, producers: Int64s, first: Int64s,
    last: Int64s, consumers: Int64s, step: Int64s,
) -> None:  # fmt: skip
    """Claim, step by step, what each root contains and what that set going."""
    count = parent.size
    first_child = np.full(count, -1, np.int64)
    next_sibling = np.full(count, -1, np.int64)
    for event in range(count - 1, -1, -1):
        owner = parent[event]
        if owner >= 0:
            next_sibling[event] = first_child[owner]
            first_child[owner] = event
    link = np.full(count, -1, np.int64)
    for index in range(producers.size):
        link[producers[index]] = index
    stack = [np.int64(0)]
    for row in range(first_root.size - 1):
        for index in range(first_root[row], first_root[row + 1]):
            stack.append(roots[index])
        while len(stack) > 1:
            claimed = stack.pop()
            if step[claimed] >= 0:
                continue
            step[claimed] = row
            child = first_child[claimed]
            while child >= 0:
                if step[child] < 0:
                    stack.append(child)
                child = next_sibling[child]
            index = link[claimed]
            if index >= 0:
                for target in range(first[index], last[index]):
                    if step[consumers[target]] < 0:
                        stack.append(consumers[target])


def _adopt_recorded_groups(trace: Trace, step: Int64s) -> None:
    """In a trace that was grouped when it was recorded, follow that grouping where ours is silent."""
    recorded = trace.stats.integers(GROUP_ID)
    if not len(recorded):
        return
    known = step[recorded.events] >= 0
    groups, index = np.unique(recorded.values[known], return_index=True)
    rows = step[recorded.events[known][index]]
    at = np.minimum(np.searchsorted(groups, recorded.values), max(groups.size - 1, 0))
    if groups.size:
        found = (groups[at] == recorded.values) & ~known
        step[recorded.events[found]] = rows[at[found]]


def _place_by_time(trace: Trace, steps: Steps, step: Int64s) -> None:
    """Events without a cause in the trace go to the step in whose window they begin.

    That is device work whose launch was not recorded; and host work too in a trace that nowhere tells
    what other threads did for a step: a TF1 timeline, PyTorch's (whose backward pass is another thread), a
    generic Chrome trace.
    """
    placed = trace.is_device_line[trace.lines.of_event]
    if not any(len(trace.stats.integers(stat)) for stat in (CONSUMER_ID, GROUP_ID)):
        placed = placed | trace.is_host_event
    stray = np.flatnonzero(placed & (step < 0))
    if not stray.size or not len(steps):
        return
    begins = trace.events.begin_ps[stray]
    row = np.searchsorted(steps.begin_ps, begins, side="right") - 1
    inside = (row >= 0) & (begins < steps.end_ps[np.maximum(row, 0)])
    step[stray[inside]] = row[inside]
