"""The user's line at any time of the trace, and the ops that it asked for.

Source lines that began to run give a history: at which one the user's code was. Python's time of a source
line is the time at it in which nothing of TensorFlow's ran on the same thread: the line's own Python, the
library's that it called, and waiting. A function of the user's takes the time while it runs; its caller goes
on when it returns.

Device work is asked for by its launch, which may be on the thread that runs the user's code (eager ops) or on
one of TensorFlow's own.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.capture.source.source_records import ENTERED, LEFT, LineRecords
from profnb.core.columns import (
    Bools,
    Int64s,
    distinct_rows,
    look_up,
    number_values,
    span_at,
    sum_by,
)
from profnb.core.jit import tiered
from profnb.core.units import PS_PER_NS
from profnb.steps.nesting import last_around
from profnb.steps.streams import find_launches
from profnb.subjects.ops.op_execution import EAGER, is_eager_op
from profnb.subjects.ops.op_table import OpRuns
from profnb.trace.model import Trace
from profnb.trace.names import CLOCK_EVENT, CLOCK_NS, parse_op

_DEEPEST_CALLS = 4000
# What TensorFlow's own code records on the thread that calls it, besides its ops.
_TENSORFLOW = (
    "TFE_", "Eager", "KernelAndDevice", "Executor", "FunctionRun", "Iterator", "PjRt", "Tfrt",
)  # fmt: skip
# What PyTorch calls besides its ops: CUDA's and ROCm's runtime and drivers.
_RUNTIME_PREFIXES = ("cuda", "cuLaunch", "cuStream", "cuCtx", "hip")


class Clock(NamedTuple):
    """Python's clock in the time of the trace."""

    offset_ps: int  # what to add to ``perf_counter_ns`` in picoseconds to get times of the trace
    thread_line: int  # the trace's line of the thread that was watched


def read_clock(trace: Trace) -> Clock | None:
    """Compare the clocks by the events that the capture wrote; None for a trace without them.

    Each was written just after the clock was read, so the one with the least delay is the truest.
    """
    readings = trace.stats.integers(CLOCK_NS)
    named = trace.select_named(CLOCK_EVENT)
    kept = named[readings.events] & trace.is_host_event[readings.events]
    events, values = readings.events[kept], readings.values[kept].astype(np.int64)
    if not events.size:
        return None
    offset = trace.events.begin_ps[events] - values * PS_PER_NS
    return Clock(int(offset.min()), int(trace.lines.of_event[events[0]]))


@dataclass(frozen=True, slots=True)
class LineHistory:
    """At which source line the user's code was."""

    begin_ps: Int64s  # when each stretch begins, ascending, shape (N + 1,); the last one is the end
    place: Int64s  # row of ``places`` in each stretch, -1 for none of the user's, shape (N,)
    is_begin: Int64s  # whether a line began to run there, shape (N,)
    places: tuple[tuple[str, int], ...]  # (file, line)

    def place_at(self, times_ps: Int64s) -> Int64s:
        """Find the place at some times; -1 where the user's code did not run or was not watched."""
        row = span_at(self.begin_ps[:-1], self.begin_ps[1:], times_ps)
        return np.append(self.place, -1)[row]


@tiered
def _follow(code: Int64s, source_line: Int64s, key: Int64s, place: Int64s, stack: Int64s) -> None:
    depth = 0
    for row in range(code.size):
        kind = source_line[row]
        if kind == ENTERED:
            if depth < len(stack):
                stack[depth, 0] = code[row]
                stack[depth, 1] = stack[depth - 1, 1] if depth else -1
                depth += 1
        else:
            at = depth - 1
            while at >= 0 and stack[at, 0] != code[row]:
                at -= 1
            if kind == LEFT:
                depth = at if at >= 0 else depth
            else:
                if at < 0 and depth < len(stack):
                    at = depth
                    stack[at, 0] = code[row]
                if at >= 0:  # whatever stands above it was left by an exception
                    depth = at + 1
                    stack[at, 1] = key[row]
        place[row] = stack[depth - 1, 1] if depth else -1


def follow_lines(records: LineRecords, clock: Clock, end_ps: int) -> LineHistory:
    """Work out which source line was the current one from one row to the next."""
    times = np.array(records.time_ns, np.int64) * PS_PER_NS + clock.offset_ps
    code, source_line = np.array(records.code, np.int64), np.array(records.line, np.int64)
    keys, key = distinct_rows(code, source_line)
    listed = [(records.files[c], line) if line > 0 and c >= 0 else ("", 0) for c, line in keys]
    places, row = number_values([("", 0), *listed])  # nobody's place is the first
    begun = (row[1:] - 1)[key]
    is_begin = (source_line > 0).astype(np.int64)
    if records.is_sampled:
        end = times[-1:] if times.size else np.array([end_ps])
        begin = np.concatenate([times[:1] - (times[1:2] - times[:1]), times[:-1], end])
        return LineHistory(begin, begun, is_begin, tuple(places[1:]))
    place = np.empty(code.size, np.int64)
    _follow(code, source_line, begun, place, np.empty((_DEEPEST_CALLS, 2), np.int64))
    last = int(times[-1]) if times.size else end_ps
    if not records.is_cut:  # else nobody knows where the user's code was from then on
        last = max(end_ps, last)
    return LineHistory(np.append(times, last), place, is_begin, tuple(places[1:]))


def find_busy(trace: Trace, thread_line: int) -> tuple[Int64s, Int64s]:
    """Find when the framework's own code ran on a thread: begins and ends, in order, without overlap."""
    if trace.is_op_name is not None:
        is_runtime = trace.names.rows_where(lambda name: name.startswith(_RUNTIME_PREFIXES))
        is_framework = trace.is_op_name | is_runtime
    else:
        is_framework = trace.names.rows_where(
            lambda name: name.startswith(_TENSORFLOW) or parse_op(name) is not None
        )
    _, begin, end = _events_on(trace, thread_line, is_framework)
    reach = np.maximum.accumulate(end)
    at = np.flatnonzero(np.append(True, begin[1:] > reach[:-1])[: begin.size])
    return begin[at], np.maximum.reduceat(end, at) if at.size else end


def _events_on(trace: Trace, line: int, is_meant: Bools) -> tuple[Int64s, Int64s, Int64s]:
    """The events of a line whose names are meant, in order, with begins and ends."""
    first, last = trace.lines.offsets[line : line + 2].tolist()
    events = first + np.flatnonzero(is_meant[trace.events.name[first:last]])
    return events, trace.events.begin_ps[events], trace.events.end_ps[events]


def busy_within(busy: tuple[Int64s, Int64s], times_ps: Int64s) -> Int64s:
    """Sum up for each time how long it had been busy until then, in picoseconds."""
    begin, end = busy
    before = np.concatenate([[0], np.cumsum(end - begin)])
    at, is_inside = np.divmod(np.searchsorted(np.stack(busy, 1).ravel(), times_ps, side="right"), 2)
    busy_ps: Int64s = before[at] + is_inside * (times_ps - np.append(begin, 0)[at])
    return busy_ps


def times_of_lines(
    history: LineHistory, busy: tuple[Int64s, Int64s] | None, within: tuple[Int64s, Int64s] | None
) -> Int64s:
    """Add up the time at each line.

    Args:
        history: Where the user's code was.
        busy: When the framework ran on the same thread; None where nothing was watched.
        within: Begins and ends of what is asked for, in order; None for the whole capture.

    Returns:
        For each of the history's places the part of its time in which the framework did not run, its time and
        how often it began to run, of what is asked for; and its time in the whole capture, shape (4, P).
    """
    count = len(history.places)
    if not count or busy is None:
        return np.zeros((4, count), np.int64)
    whole = took = np.diff(history.begin_ps)
    is_begin = history.is_begin
    if within is not None:
        took = np.diff(busy_within(within, history.begin_ps))
        edges = np.unique(np.concatenate([*busy, *within]))
        in_both = (span_at(*busy, edges[:-1]) >= 0) & (span_at(*within, edges[:-1]) >= 0)
        busy = edges[:-1][in_both], edges[1:][in_both]
        is_begin = is_begin * (span_at(*within, history.begin_ps[:-1]) >= 0)
    idle = took - np.diff(busy_within(busy, history.begin_ps))
    columns = (idle, took, is_begin, whole)
    return np.stack([sum_by(history.place, values, count) for values in columns])


@dataclass(frozen=True, slots=True)
class Work:
    """Ops that ran."""

    name: Int64s  # row of ``keys``, shape (N,)
    keys: tuple[str, ...]  # op names
    self_ps: Int64s  # time, shape (N,)
    asked: Int64s  # the event that asked for it: its launch, or itself, shape (N,)
    asked_ps: Int64s  # when the thread that was watched asked for it, or when it ran, shape (N,)
    is_watched: Bools  # whether it ran on that thread or was launched from it, shape (N,)
    # the iterator of tf.data whose function it is of; see ``find_input_work``, shape (N,)
    input_of: Int64s
    # whether Python ran it eagerly on another thread, where its line is not known; its name is then that of
    # the op that called Python, shape (N,)
    is_elsewhere: Bools
    # whether it begins an execution of the op: of several kernels the first, shape (N,)
    is_execution: Bools


@dataclass(frozen=True, slots=True)
class Calls:
    """C eager ops and functions that the watched thread asked TensorFlow to run, in order.

    ``name`` is the row of each in ``names``, which are ops' types and functions' names.
    """

    begin_ps: Int64s
    end_ps: Int64s
    name: Int64s
    names: tuple[str, ...]

    def at(self, times_ps: Int64s) -> tuple[Int64s, Bools]:
        """Find the latest call that had begun at each time, or -1, and whether it was still running."""
        row = np.searchsorted(self.begin_ps, times_ps, side="right") - 1
        return row, times_ps < np.append(self.end_ps, np.iinfo(np.int64).min)[row]


def find_calls(trace: Trace, thread_line: int) -> Calls:
    """Find the outermost eager executions on the watched thread."""
    is_call = trace.names.rows_where(lambda name: name.startswith(EAGER))
    chosen, begin, end = _events_on(trace, thread_line, is_call)
    outermost = np.append(True, begin[1:] >= np.maximum.accumulate(end)[:-1])[: begin.size]
    rows, name = np.unique(trace.events.name[chosen[outermost]], return_inverse=True)
    names = tuple(trace.names[row].removeprefix(EAGER) for row in rows)
    return Calls(begin[outermost], end[outermost], name, names)


def find_work(
    trace: Trace, runs: OpRuns, input_of: Int64s, thread_line: int, *, on_device: bool
) -> Work:
    """Find the ops of hosts or of devices; ``thread_line`` is the watched thread's, -1 if it is not known."""
    chosen = runs.is_device[runs.code] == on_device
    events, name = runs.events[chosen], runs.code[chosen]
    keys = (*(name for name, _ in runs.keys), "")
    launch, is_elsewhere = events, np.zeros(events.size, np.bool_)
    if on_device:
        launches, launched = find_launches(trace)
        launch = look_up(launched, launches, events)
    is_watched = (launch >= 0) & (trace.lines.of_event[launch] == thread_line)
    if not on_device:
        eager = np.flatnonzero(trace.select_names(is_eager_op) & trace.is_host_event)
        is_elsewhere = (last_around(trace, eager, events) >= 0) & ~is_watched
        caller = last_around(trace, events[~is_elsewhere], events[is_elsewhere])
        of_callers = np.append(name[~is_elsewhere], len(keys) - 1)
        name[is_elsewhere] = of_callers[caller]  # -1: the last, ""
    asked = np.where(launch >= 0, launch, events)
    return Work(
        name, keys, runs.self_ps[chosen], asked, trace.events.begin_ps[asked], is_watched, input_of[chosen],
        is_elsewhere, runs.is_execution[chosen],
    )  # fmt: skip
