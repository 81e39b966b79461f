"""The cost of tracing to the steps, and all times without it.

Wall times of steps, traced or not, tell what tracing did to them. To record an event costs its thread time,
and little of that falls inside of the event: its name is made before its begin is read, and it is stored
after its end was read. So the cost of an event stands in front of it, in the event around it::

    recorded   [ EagerExecute                   ]        ~ is the cost of recording the event behind it
               [ ~~[ ReverseV2 ]~~[ Cast ]      ]
    untraced   [ EagerExecute               ]            the ops keep their length
               [ [ ReverseV2 ][ Cast ]      ]

The cost of one event is measured in the capture: with it the median of the traced steps that have untraced
neighbours gets as much shorter as those are. It takes no more than the time in front of an event in which its
thread recorded nothing. It counts where it holds up the step: on the thread of the steps, and on another one
while the thread of the steps waits inside an event, if no op is at work on a third or on a device. There it
is cut out of the clock of all threads and devices: what is nested stays nested, and what adds up to a step
adds up to it still, to the picosecond.

Measured, alternating with and without a profiler, by the thread's own clock: an event of TensorFlow costs
0.15 to 0.45 us, and one with nothing inside lasts 0.04 us; of PyTorch 0.75 us, of which a third is inside; of
JAX 0.17 us. TensorFlow's events that Python makes (``tf.constant``) cost 2 to 3 us, which is counted as six.

Source: TraceMe in openxla/xla xla/tsl/profiler/lib/traceme.h; pytorch torch/csrc/profiler/collection.cpp.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profnb.core.columns import Floats, Int8s, Int32s, Int64s
from profnb.steps.activities import AT_WORK
from profnb.steps.grouping import Groups
from profnb.steps.step_times import StepTimes
from profnb.steps.windows import Steps
from profnb.trace.model import Events, Trace

_MOST_NEIGHBOURS, _DISTURBED = 24, 4
_ENOUGH = 5  # fewer steps say too little to compare
_NORMAL_95 = 1.96
_LEAST_COST = 0.001
_MOST_PS = 4_000_000  # of one event; a few times what was measured, more where caches are cold
_BY_PYTHON = "tf.constant", "convert_to_tensor"  # events that Python makes, as many as ops
_TIMES_BY_PYTHON = 6  # what such an event costs, of what another does


@dataclass(frozen=True, slots=True)
class TracingCost:
    """The cost of tracing to the steps.

    Attributes:
        fraction: How much longer a traced step takes than an untraced neighbour: 0.08 is 8 %.
        low: The lower end of its 95 % interval; above 0.
        high: The upper end.
        untraced_ps: The median untraced step, which is what the code takes when nobody looks.
    """

    fraction: float
    low: float
    high: float
    untraced_ps: float


def tracing_cost(times: StepTimes, phase: str | None) -> TracingCost | None:
    """Compare traced and untraced steps of one phase that are neighbours.

    That is the last 24 traced and the first 24 untraced steps of the run (the ``fit``) in which tracing
    stopped, so that the two sides do the same work; the four right behind the stop are left out where
    there are more than that, because buffers fill while tracing stops. Steps in which a function was
    traced do not count. What gets steadily slower or faster on both sides is no cost: the slope within
    the sides is taken off. The interval is Hodges' and Lehmann's of the ratio, by ranks.

    Returns:
        The cost; None where there are fewer than five of each, or where the interval, with the slope or
        without it, holds 0.1 % or less: then nothing shows that tracing cost anything.
    """
    alike = np.array([step_phase == phase for step_phase in times.phase], np.bool_)
    alike &= ~times.retraced
    under_trace = np.flatnonzero(alike & times.was_traced)
    if not under_trace.size:
        return None
    last = under_trace[-1]
    alike &= (times.run == times.run[last]) & (times.duration_ps > 0)
    before = np.flatnonzero(alike & times.was_traced)[-_MOST_NEIGHBOURS:]
    after = np.flatnonzero(alike & ~times.was_traced)
    after = after[after > last]
    after = after[min(_DISTURBED, max(after.size - _ENOUGH, 0)) :][:_MOST_NEIGHBOURS]
    if min(before.size, after.size) < _ENOUGH:
        return None
    sides = [np.log(times.duration_ps[rows].astype(np.float64)) for rows in (before, after)]
    plain = _difference(*sides)
    slope = _common_slope((before, after), sides)
    level = _difference(sides[0] - slope * before, sides[1] - slope * after)
    if min(plain[0], level[0]) <= _LEAST_COST:
        return None
    low, middle, high = (float(np.expm1(value)) for value in level)
    return TracingCost(middle, low, high, float(np.median(times.duration_ps[after])))


def _common_slope(sides: tuple[Int64s, ...], values: list[Floats]) -> float:
    """Find the median slope within sides; 0 where chance explains it (Kendall, 95 %)."""
    slopes, chance = [], 0.0
    for rows, of_rows in zip(sides, values, strict=True):
        one, two = np.triu_indices(rows.size, 1)
        slopes.append((of_rows[two] - of_rows[one]) / (rows[two] - rows[one]))
        chance += rows.size * (rows.size - 1) * (2 * rows.size + 5) / 18
    every = np.concatenate(slopes)
    is_trend = abs(np.sign(every).sum()) > _NORMAL_95 * np.sqrt(chance)
    return float(np.median(every)) if is_trend else 0.0


def _difference(one: Floats, two: Floats) -> tuple[float, float, float]:
    """Find (low, middle, high) of how much larger the values of one side are, 95 %."""
    pairs = np.sort((one[:, None] - two[None, :]).ravel())
    spread = _NORMAL_95 * np.sqrt(one.size * two.size * (one.size + two.size + 1) / 12)
    cut = max(int(pairs.size / 2 - spread), 0)
    return float(pairs[cut]), float(np.median(pairs)), float(pairs[pairs.size - 1 - cut])


@dataclass(frozen=True, slots=True)
class UntracedClock:
    """Recorded times to what they are without the cost of tracing.

    Attributes:
        event_ps: What recording an event cost.
        step_ps: What recording those of a median step cost, of the steps with untraced neighbours.
        at_ps: Recorded times between which the time taken out grows evenly, ascending, shape (N,).
        removed_ps: How much was taken out up to each, shape (N,).
    """

    event_ps: int
    step_ps: float
    at_ps: Int64s
    removed_ps: Int64s

    def read(self, times_ps: Int64s) -> Int64s:
        """Read the times without tracing; what was earlier is never later."""
        return times_ps - np.interp(times_ps, self.at_ps, self.removed_ps).astype(np.int64)

    def of_trace(self, trace: Trace) -> Trace:
        """Put all times of a trace on this clock."""
        begin_ps = self.read(trace.events.begin_ps)
        duration_ps = self.read(trace.events.end_ps) - begin_ps
        events = Events(trace.events.name, begin_ps, duration_ps)
        counters = (replace(one, time_ps=self.read(one.time_ps)) for one in trace.counters)
        return replace(trace, events=events, counters=tuple(counters))

    def of_steps(self, steps: Steps) -> Steps:
        """Put all times of steps on this clock."""
        columns = ("begin_ps", "end_ps", "host_begin_ps", "host_end_ps")
        times: dict[str, Any] = {name: self.read(getattr(steps, name)) for name in columns}
        return replace(steps, **times)


def find_untraced_clock(
    trace: Trace, steps: Steps, groups: Groups, activities: Int8s, cost: TracingCost
) -> UntracedClock | None:
    """Find what recording an event cost, and where that lies.

    Returns:
        The clock; None where no event's cost holds up a step.
    """
    near = steps.rows_of(steps.main_phase)[-_MOST_NEIGHBOURS:]
    if not steps.roots.size or not near.size:
        return None
    events, room_ps = _where_it_counts(trace, steps, groups.parent, activities)
    end_ps = trace.events.begin_ps[events]
    step = np.searchsorted(steps.host_begin_ps[near], end_ps) - 1
    is_near = (step >= 0) & (end_ps < steps.host_end_ps[near][step])
    is_by_python = trace.are_named(events, lambda name: name in _BY_PYTHON)
    weight = np.where(is_by_python, _TIMES_BY_PYTHON, 1)
    # The cost of one event with which the median step gets as much shorter as it should.
    low, event_ps = 0, _MOST_PS
    while event_ps - low > 1:
        middle = (low + event_ps) // 2
        taken = np.minimum(room_ps[is_near], middle * weight[is_near])
        of_step = np.bincount(step[is_near], taken, near.size)
        is_enough = np.median(of_step) > cost.fraction * cost.untraced_ps
        low, event_ps = (low, middle) if is_enough else (middle, event_ps)
    start_ps = end_ps - np.minimum(room_ps, event_ps * weight)
    start_ps[1:] = np.maximum(start_ps[1:], end_ps[:-1])
    taken_ps = end_ps - start_ps
    removed_ps = np.cumsum(taken_ps)
    if not taken_ps.any():
        return None
    return UntracedClock(
        event_ps,
        float(np.median(np.bincount(step[is_near], taken_ps[is_near], near.size))),
        np.stack([start_ps, end_ps], axis=1).ravel(),
        np.stack([removed_ps - taken_ps, removed_ps], axis=1).ravel(),
    )


def _where_it_counts(
    trace: Trace, steps: Steps, parent: Int32s, activities: Int8s
) -> tuple[Int64s, Int64s]:
    """The events that hold up a step by being recorded, by time, and the time that this may have taken."""
    begin_ps = trace.events.begin_ps
    room_ps = _room_before(trace)
    is_leaf = np.ones(parent.size, np.bool_)
    is_leaf[parent[parent >= 0]] = False
    events = np.flatnonzero(room_ps > 0)
    events = events[np.argsort(begin_ps[events], kind="stable")]
    times = begin_ps[events]

    # On the thread of the steps, or while that is inside an event in which it records nothing.
    main = trace.lines.of_event[steps.roots[0]]
    of_main = np.arange(*trace.lines.offsets[main : main + 2])
    open_on_main, _ = _open_before(trace, of_main[is_leaf[of_main]], times)
    counts = (trace.lines.of_event[events] == main) | (open_on_main > 0)

    # And where nothing is at work, nor was since the cost began.
    open_work, ended_ps = _open_before(trace, np.flatnonzero(AT_WORK[activities] & is_leaf), times)
    room_ps = np.minimum(room_ps[events], times - ended_ps)
    counts &= (open_work == 0) & (room_ps > 0)
    return events[counts], room_ps[counts]


def _open_before(trace: Trace, events: Int64s, times: Int64s) -> tuple[Int64s, Int64s]:
    """Count the events that last just before each of N times; and tell when one ended last, 0 for never."""
    begin, end = np.sort(trace.events.begin_ps[events]), np.sort(trace.events.end_ps[events])
    ended = np.searchsorted(end, times)
    return np.searchsorted(begin, times) - ended, np.append(end, 0)[ended - 1]


def _room_before(trace: Trace) -> Int64s:
    """The time on its line between each event and what began or ended before it, shape (E,)."""
    room_ps = np.zeros(len(trace.events), np.int64)
    for line in np.flatnonzero(trace.is_host_line).tolist():
        of_line = slice(*trace.lines.offsets[line : line + 2])
        begin, end = trace.events.begin_ps[of_line], np.sort(trace.events.end_ps[of_line])
        ended = np.searchsorted(end, begin[1:], side="right")
        before = np.maximum(begin[:-1], np.append(end, 0)[ended - 1])
        room_ps[of_line][1:] = begin[1:] - before
    return room_ps
