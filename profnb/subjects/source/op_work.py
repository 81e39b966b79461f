"""Ops that ran, with when Python asked for each, and what Python was asking TensorFlow for at the time.

Device work is asked for by its launch, which may be on the thread that runs the user's code (eager ops) or on
one of TensorFlow's own.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int64s, look_up
from profnb.steps.nesting import last_around
from profnb.steps.streams import find_launches
from profnb.subjects.ops.op_table import OpRuns
from profnb.trace.model import Trace

_EAGER = "EagerLocalExecute: "


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
