"""Where the user's code was at any time of the trace, and the ops that it asked for.

Source lines that began to run give a history: at which one the user's code was. Python's time of a source
line is the time at it in which nothing of TensorFlow's ran on the same thread: the line's own Python, the
library's that it called, and waiting. A function of the user's takes the time while it runs; its caller goes
on when it returns.

Device work is asked for by its launch, which may be on the thread that runs the user's code (eager ops) or on
one of TensorFlow's own.
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.source.source_records import ENTERED, LEFT, LineRecords
from profnb.core.columns import Bools, Int64s, look_up
from profnb.core.jit import tiered
from profnb.core.units import PS_PER_NS
from profnb.steps.launching import find_launches
from profnb.steps.nesting import last_around
from profnb.subjects.ops.op_table import OpRuns
from profnb.trace.model import Trace
from profnb.trace.names import CLOCK_EVENT, CLOCK_NS
from profnb.trace.op_names import parse_op

_DEEPEST = 4000
# What TensorFlow's own code records on the thread that calls it, besides its ops.
_TENSORFLOW = (
    "TFE_",
    "Eager",
    "KernelAndDevice",
    "Executor",
    "FunctionRun",
    "Iterator",
    "PjRt",
    "Tfrt",
)
# What PyTorch calls besides its ops: CUDA's and ROCm's runtime and drivers.
_RUNTIME = ("cuda", "cuLaunch", "cuStream", "cuCtx", "hip")
_EAGER = "EagerLocalExecute: "


@dataclass(frozen=True, slots=True)
class Clock:
    """How Python's clock reads in the trace.

    Attributes:
        offset_ps: What to add to ``perf_counter_ns`` in picoseconds to get times of the trace.
        thread_line: The trace's line of the thread that was watched.
    """

    offset_ps: int
    thread_line: int


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
    """At which source line the user's code was.

    Attributes:
        begin_ps: When each stretch begins, ascending, shape (N + 1,); the last one is the end.
        place: Row of ``places`` in each stretch, -1 for none of the user's, shape (N,).
        is_begin: Whether a line began to run there, shape (N,).
        places: (file, line).
    """

    begin_ps: Int64s
    place: Int64s
    is_begin: Int64s
    places: tuple[tuple[str, int], ...]

    def place_at(self, times_ps: Int64s) -> Int64s:
        """The place at some times; -1 where the user's code did not run or was not watched."""
        if not self.place.size:
            return np.full(times_ps.size, -1, np.int64)
        at = np.searchsorted(self.begin_ps, times_ps, side="right") - 1
        is_inside = (at >= 0) & (at < self.place.size)
        return np.where(is_inside, self.place[np.clip(at, 0, self.place.size - 1)], -1)


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
    """Work out which source line was the current one from one row to the next.

    Args:
        records: What the capture recorded.
        clock: How its clock reads in the trace.
        end_ps: When the window closed.
    """
    times = np.array(records.time_ns, np.int64) * PS_PER_NS + clock.offset_ps
    code, source_line = np.array(records.code, np.int64), np.array(records.line, np.int64)
    keys, key = np.unique(np.stack([code, source_line]), axis=1, return_inverse=True)
    key = key.reshape(-1)
    places: dict[tuple[str, int], int] = {}
    rows = [
        places.setdefault((records.files[c], row), len(places)) if row > 0 and c >= 0 else -1
        for c, row in keys.T.tolist()
    ]
    begun = np.array(rows, np.int64)[key] if rows else key
    is_begin = (source_line > 0).astype(np.int64)
    if records.is_sampled:
        end = times[-1:] if times.size else np.array([end_ps])
        begin = np.concatenate([times[:1] - (times[1:2] - times[:1]), times[:-1], end])
        return LineHistory(begin, begun, is_begin, tuple(places))
    place = np.empty(code.size, np.int64)
    _follow(code, source_line, begun, place, np.empty((_DEEPEST, 2), np.int64))
    last = int(times[-1]) if times.size else end_ps
    if not records.is_cut:  # else nobody knows where the user's code was from then on
        last = max(end_ps, last)
    return LineHistory(np.append(times, last), place, is_begin, tuple(places))


def find_busy(trace: Trace, thread_line: int) -> tuple[Int64s, Int64s]:
    """When the framework's own code ran on one thread: begins and ends that do not overlap, in order."""
    first, last = trace.lines.offsets[thread_line : thread_line + 2].tolist()
    is_own = trace.names.rows_where(lambda name: name.startswith(_RUNTIME))
    if trace.is_op_name is not None:
        is_own |= trace.is_op_name
    else:
        is_own = trace.names.rows_where(
            lambda name: name.startswith(_TENSORFLOW) or parse_op(name) is not None
        )
    chosen = first + np.flatnonzero(is_own[trace.events.name[first:last]])
    begin, end = trace.events.begin_ps[chosen], trace.events.end_ps[chosen]
    if not begin.size:
        return begin, end
    reach = np.maximum.accumulate(end)
    starts = np.concatenate([[True], begin[1:] > reach[:-1]])
    at = np.flatnonzero(starts)
    return begin[at], np.maximum.reduceat(end, at)


def busy_within(busy: tuple[Int64s, Int64s], times_ps: Int64s) -> Int64s:
    """For each time, how long it had been busy until then, in picoseconds."""
    begin, end = busy
    if not begin.size:
        return np.zeros(times_ps.size, np.int64)
    before = np.concatenate([[0], np.cumsum(end - begin)])
    at = np.searchsorted(begin, times_ps, side="right")
    ongoing = np.clip(times_ps - begin[np.maximum(at - 1, 0)], 0, None)
    ongoing = np.minimum(ongoing, (end - begin)[np.maximum(at - 1, 0)])
    return np.where(at > 0, before[np.maximum(at - 1, 0)] + ongoing, 0)


def spans_in_both(one: tuple[Int64s, Int64s], two: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    """When two sets of spans hold at once; begins and ends, in order, that do not overlap within a set."""
    edges = np.unique(np.concatenate([*one, *two]))
    inside = np.ones(max(edges.size - 1, 0), np.bool_)
    for begin, end in (one, two):
        row = np.searchsorted(begin, edges[:-1], side="right") - 1
        inside &= (row >= 0) & (edges[:-1] < np.append(end, 0)[row])
    return edges[:-1][inside], edges[1:][inside]


@dataclass(frozen=True, slots=True)
class LineTimes:
    """What lines took, by row of a table of places.

    Attributes:
        rows: The rows, shape (P,).
        wall_ps: Time at each, in what was asked for, shape (P,).
        python_ps: The part of it in which the framework did not run, shape (P,).
        occurrences: How often it began to run then, shape (P,).
        capture_ps: Time at it in the whole capture, shape (P,).
    """

    rows: Int64s
    wall_ps: Int64s
    python_ps: Int64s
    occurrences: Int64s
    capture_ps: Int64s


def times_of_lines(
    history: LineHistory,
    busy: tuple[Int64s, Int64s] | None,
    rows: list[int],
    within: tuple[Int64s, Int64s] | None,
) -> LineTimes:
    """Add up the time at each line.

    Args:
        history: Where the user's code was.
        busy: When the framework ran on the same thread; None where nothing was watched.
        rows: The row of each of the history's places.
        within: Begins and ends of what is asked for, in order; None for the whole capture.
    """
    count = len(rows)
    wall, python, occurrences, capture = (np.zeros(count, np.int64) for _ in range(4))
    at = history.place >= 0
    if count and busy is not None:
        whole = took = np.diff(history.begin_ps)
        is_begin = history.is_begin
        if within is not None:
            took = np.diff(busy_within(within, history.begin_ps))
            busy = spans_in_both(busy, within)
            row = np.searchsorted(within[0], history.begin_ps[:-1], side="right") - 1
            is_begin = is_begin * (
                (row >= 0) & (history.begin_ps[:-1] < np.append(within[1], 0)[row])
            )
        idle = took - np.diff(busy_within(busy, history.begin_ps))
        for column, values in (
            (wall, took),
            (python, idle),
            (occurrences, is_begin),
            (capture, whole),
        ):
            np.add.at(column, history.place[at], values[at])
    return LineTimes(np.array(rows, np.int64), wall, python, occurrences, capture)


@dataclass(frozen=True, slots=True)
class Work:
    """Ops that ran.

    Attributes:
        name: Row of ``keys``, shape (N,).
        keys: Op names.
        self_ps: Time, shape (N,).
        asked: The event that asked for it: its launch, or itself, shape (N,).
        asked_ps: When the thread that was watched asked for it, or when it ran, shape (N,).
        is_watched: Whether it ran on that thread or was launched from it, shape (N,).
        input_of: The iterator of tf.data whose function it is of; see ``find_input_work``, shape (N,).
        is_elsewhere: Whether Python ran it eagerly on another thread, where its line is not known; its name
            is then that of the op that called Python, shape (N,).
        is_execution: Whether it begins an execution of the op: of several kernels the first, shape (N,).
    """

    name: Int64s
    keys: tuple[str, ...]
    self_ps: Int64s
    asked: Int64s
    asked_ps: Int64s
    is_watched: Bools
    input_of: Int64s
    is_elsewhere: Bools
    is_execution: Bools


@dataclass(frozen=True, slots=True)
class Calls:
    """What the watched thread asked TensorFlow to run, in order: eager ops and functions.

    Attributes:
        begin_ps: Begins, ascending, shape (C,).
        end_ps: Ends, shape (C,).
        name: Row of ``names``, shape (C,).
        names: Ops' types and functions' names.
    """

    begin_ps: Int64s
    end_ps: Int64s
    name: Int64s
    names: tuple[str, ...]

    def at(self, times_ps: Int64s) -> tuple[Int64s, Bools]:
        """The latest call that had begun at each time, or -1, and whether it was still running."""
        if not self.begin_ps.size:
            return np.full(times_ps.size, -1, np.int64), np.zeros(times_ps.size, np.bool_)
        at = np.searchsorted(self.begin_ps, times_ps, side="right") - 1
        return at, (at >= 0) & (times_ps < self.end_ps[np.maximum(at, 0)])


def find_calls(trace: Trace, thread_line: int) -> Calls:
    """The outermost eager executions on the watched thread."""
    first, last = trace.lines.offsets[thread_line : thread_line + 2].tolist()
    is_call = trace.names.rows_where(lambda name: name.startswith(_EAGER))
    chosen = first + np.flatnonzero(is_call[trace.events.name[first:last]])
    begin, end = trace.events.begin_ps[chosen], trace.events.end_ps[chosen]
    outermost = np.concatenate([[True], begin[1:] >= np.maximum.accumulate(end)[:-1]])[: begin.size]
    chosen, begin, end = chosen[outermost], begin[outermost], end[outermost]
    rows, name = np.unique(trace.events.name[chosen], return_inverse=True)
    names = tuple(trace.names[row].removeprefix(_EAGER) for row in rows)
    return Calls(begin, end, name, names)


def find_host_work(trace: Trace, runs: OpRuns, input_of: Int64s, thread_line: int) -> Work:
    """The ops of hosts; ``thread_line`` is the watched thread's, -1 if it is not known."""
    chosen = ~runs.is_device[runs.code]
    events = runs.events[chosen]
    is_watched = trace.lines.of_event[events] == thread_line
    keys = (*(name for name, _ in runs.keys), "")
    begin = trace.events.begin_ps[events]
    is_elsewhere = (last_around(trace, _eager_ops(trace), events) >= 0) & ~is_watched
    caller = last_around(trace, events[~is_elsewhere], events[is_elsewhere])
    name = runs.code[chosen]
    name[is_elsewhere] = np.append(name[~is_elsewhere], len(keys) - 1)[caller]  # -1: the last, ""
    return Work(
        name, keys, runs.self_ps[chosen], events, begin, is_watched, input_of[chosen], is_elsewhere,
        runs.is_execution[chosen],
    )  # fmt: skip


def _eager_ops(trace: Trace) -> Int64s:
    """The events in which Python ran an op eagerly, functions left out, in order."""
    is_eager = trace.names.rows_where(
        lambda name: name.startswith(_EAGER) and not name.startswith(_EAGER + "__")
    )
    return np.flatnonzero(is_eager[trace.events.name] & trace.is_host_event)


def find_device_work(trace: Trace, runs: OpRuns, input_of: Int64s, thread_line: int) -> Work:
    """The work of devices; ``thread_line`` is the watched thread's, -1 if it is not known."""
    chosen = runs.is_device[runs.code]
    work = runs.events[chosen]
    launches, launched = find_launches(trace)
    launch = look_up(launched, launches, work)
    asked = np.where(launch >= 0, launch, work)
    is_watched = (launch >= 0) & (trace.lines.of_event[launch] == thread_line)
    keys = tuple(name for name, _ in runs.keys)
    nowhere = np.zeros(work.size, np.bool_)
    return Work(
        runs.code[chosen], keys, runs.self_ps[chosen], asked, trace.events.begin_ps[asked], is_watched,
        input_of[chosen], nowhere, runs.is_execution[chosen],
    )  # fmt: skip
