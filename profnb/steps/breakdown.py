"""Steps and their events to where the time went: nine categories that add up exactly.

Each instant of a step, and of the gap after it, is charged to the one category with the highest priority
among what was active at that instant; instants at which nothing was active are "all others" in a step and
"between steps" in a gap. A device counts by the clock, whichever step launched what it runs: host work hidden
behind it costs the step nothing, and work that outlives its step is charged where it runs. The host counts for
the step it works for, and what its thread of the steps does between steps for the gap. What only frames of the
Python tracer cover stays in "all others".

On a trace with a device the host mostly prepares and launches the device's work; that is "kernel launch". Only
an op that computes on the CPU is "host compute". A call that copies is input, output or device to device by
what it copies. Without a device all work of ops is host compute.

    device   |     [k1 of step 0          ][k2 of step 1      ]         compute 22 + 19
    host     | [step 0]   [step 1]  ...
    charged  |  launch, then compute to the end of k2, whichever step launched it

Departures from the official tool, each on purpose: on a device it drops every host event (launch, host
compute and input are then always 0) and the gap between steps; it never reports compilation; it takes
``MemcpyH2D`` for compute because it looks for ``MEMCPYHToD``; and there a wait or a launch hides a copy or a
collective that the device runs, where here the device comes first.

Source: EventType and the sweep in openxla/xprof xprof/utils/event_span.{h,cc} (a27d00aa); category
names: https://www.tensorflow.org/guide/profiler.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int8s, Int64s
from profnb.core.jit import compiled
from profnb.steps.compilation import is_compilation
from profnb.steps.grouping import Groups
from profnb.steps.launching import find_launches
from profnb.steps.streams import COLLECTIVE, kind_of_work, raw_device_lines
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import copy_direction
from profnb.trace.op_names import parse_op

__all__ = [
    "CATEGORIES",
    "StepBreakdown",
    "break_down_steps",
    "categorize_events",
    "category_column",
]


CATEGORIES = (
    "device compute",
    "device to device",
    "device collectives",
    "host compute",
    "kernel launch",
    "input",
    "output",
    "compilation",
    "all others",
)

# Lanes in order of priority (a later one wins) and the category that each is charged to: the host's first,
# then the device's.
_LANES = (
    "all others",
    "kernel launch",  # preparing work for a device: executors, eager dispatch, runtimes
    "host compute",
    "compilation",
    "kernel launch",  # a call that starts kernels
    "device to device",  # a call that copies so
    "output",  # likewise
    "input",  # likewise
    "input",  # waiting for the next element
    "input",  # a copy from host to device
    "device collectives",
    "device to device",
    "output",
    "device compute",
)
_NONE, _DISPATCH, _HOST_COMPUTE, _COMPILATION, _LAUNCH = range(5)
_CALL_D2D, _CALL_D2H, _CALL_H2D, _INPUT_WAIT = range(5, 9)
_HOST_TO_DEVICE, _COLLECTIVES, _DEVICE_TO_DEVICE, _OUTPUT, _DEVICE_COMPUTE = range(9, 14)
_FIRST_OF_DEVICE = _HOST_TO_DEVICE

# Wrappers around work that is recorded on its own, and frames of the Python tracer ("$file:1 f").
_NOT_WORK = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun", "$")
_COPIES = {
    "host to device": _HOST_TO_DEVICE,
    "device to host": _OUTPUT,
    "device to device": _DEVICE_TO_DEVICE,
    "peer to peer": _DEVICE_TO_DEVICE,
}
_CALLS = {_HOST_TO_DEVICE: _CALL_H2D, _OUTPUT: _CALL_D2H, _DEVICE_TO_DEVICE: _CALL_D2D}
# An op without a launch inside that takes this long computes on the CPU; what is shorter (a reshape, a
# constant, bookkeeping) prepares the ops that launch.
_SHORTEST_COMPUTE_PS = 50_000_000


def category_column(category: str) -> str:
    """The name of a category's column: "device compute" becomes ``device_compute_ms``."""
    return f"{category.replace(' ', '_')}_ms"


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Where each step's time went.

    Attributes:
        picoseconds: Shape (S, 9), int64, columns as ``CATEGORIES``; each row sums to its step.
        gap_picoseconds: The gaps after the steps likewise, shape (S, 9); "all others" is what nothing but
            Python explains. The last row is 0.
        busy_ps: Time of each step in which the device ran anything, shape (S,).
        gap_busy_ps: Time of each gap likewise, shape (S,).
    """

    picoseconds: Int64s
    gap_picoseconds: Int64s
    busy_ps: Int64s
    gap_busy_ps: Int64s

    def of(self, category: str) -> Int64s:
        """One category's picoseconds per step, shape (S,)."""
        return self.picoseconds[:, CATEGORIES.index(category)]


def _is_input_wait(name: str) -> bool:
    """Whether an event waits for the next element; ``IteratorGetNext/_1:_Send`` copies it to a device."""
    return name.lower().startswith("iteratorgetnext") and not name.endswith("Send")


def _host_lane(name: str) -> int:
    if name.startswith(_NOT_WORK):
        return _NONE
    if _is_input_wait(name):
        return _INPUT_WAIT
    return _COMPILATION if is_compilation(name) else _HOST_COMPUTE


def _host_lane_beside_device(name: str) -> int:
    """A host event's lane where there is a device, before its launches and its own ops are known."""
    if name.startswith("$"):
        return _NONE
    if _is_input_wait(name):
        return _INPUT_WAIT
    if name.endswith(":_Send"):
        return _CALL_H2D
    return _COMPILATION if is_compilation(name) else _DISPATCH


def _device_lane(name: str) -> int:
    lane = _COPIES.get(copy_direction(name) or "")
    if lane is not None:
        return lane
    return _COLLECTIVES if kind_of_work(name) == COLLECTIVE else _DEVICE_COMPUTE


def _lanes_of_events(trace: Trace, steps: Steps, device: int | None, parent: Int64s) -> Int8s:
    texts = trace.names.texts
    raw = raw_device_lines(trace)
    if not raw[trace.lines.of_event].any():
        host = np.fromiter(map(_host_lane, texts), np.int8, len(texts))
        lanes = np.where(trace.is_host_event, host[trace.events.name], 0)
        lanes[steps.roots] = _NONE  # a marker or call covers its whole step and explains none of it
        return lanes.astype(np.int8)
    host = np.fromiter(map(_host_lane_beside_device, texts), np.int8, len(texts))
    lanes = np.where(trace.is_host_event, host[trace.events.name], 0)
    of_name = np.fromiter(map(_device_lane, texts), np.int8, len(texts))
    launches, launched = find_launches(trace)
    is_call = np.zeros(len(trace.events), np.bool_)
    is_call[launches] = True
    lanes[_cpu_ops(trace, parent, is_call)] = _HOST_COMPUTE
    work = of_name[trace.events.name[launched]]
    call = np.array([_CALLS.get(lane, _LAUNCH) for lane in range(len(_LANES))], np.int8)
    lanes[launches] = 0
    np.maximum.at(
        lanes, launches, call[work]
    )  # a call that starts a graph of kernels and copies copies
    if device is not None:
        raw &= trace.lines.plane == device
    on_device = raw[trace.lines.of_event]
    lanes[trace.is_device_line[trace.lines.of_event]] = _NONE
    lanes[on_device] = of_name[trace.events.name[on_device]]
    lanes[steps.roots] = _NONE
    return lanes.astype(np.int8)


def _cpu_ops(trace: Trace, parent: Int64s, is_call: Bools) -> Int64s:
    """The ops that compute on the CPU in a trace with a device: outermost ones, long, that launch nothing."""
    is_op = trace.select_names(
        lambda name: parse_op(name) is not None and not name.startswith("Iterator")
    )
    if trace.is_op_name is not None:
        is_op = trace.is_op_name[trace.events.name]
    is_op = is_op & trace.is_host_event
    launches_inside = _spread_up(parent, is_call)
    op_around = _spread_down(parent, is_op)
    is_long = trace.events.duration_ps >= _SHORTEST_COMPUTE_PS
    return np.flatnonzero(is_op & is_long & ~launches_inside & ~op_around)


@compiled
def _spread_up(parent: Int64s, marked: Bools) -> Bools:
    """Whether an event is marked or has anything marked inside; parents stand before their children."""
    result = marked.copy()
    for event in range(parent.size - 1, -1, -1):
        if result[event] and parent[event] >= 0:
            result[parent[event]] = True
    return result


@compiled
def _spread_down(parent: Int64s, marked: Bools) -> Bools:
    """Whether an event lies inside anything marked."""
    result = np.zeros(parent.size, np.bool_)
    for event in range(parent.size):
        owner = parent[event]
        if owner >= 0:
            result[event] = marked[owner] or result[owner]
    return result


def categorize_events(trace: Trace, steps: Steps, parent: Int64s) -> Int8s:
    """The category each event is charged to where nothing of higher priority runs.

    Args:
        trace: The trace.
        steps: Its steps.
        parent: Index of each event's parent on its line, or -1, shape (E,).

    Returns:
        Index into ``CATEGORIES``, shape (E,), int8; what is no work (markers, frames of the Python
        tracer, lines that repeat others) is "all others".
    """
    of_lane = [CATEGORIES.index("all others"), *(CATEGORIES.index(name) for name in _LANES[1:])]
    return np.array(of_lane, np.int8)[_lanes_of_events(trace, steps, None, parent)]


@compiled
def _sweep(
    times: Int64s, order: Int64s, lanes: Int8s, edges: Int64s, active: Int64s, charged: Int64s,
    first_of_device: int, busy: Int64s,
) -> None:  # fmt: skip
    """Walk the boundaries in time order and charge each stretch to the highest active lane.

    Args:
        times: Begins of the N intervals, then their ends, shape (2N,).
        order: What sorts them.
        lanes: The intervals' lanes, shape (N,).
        edges: Bounds of the P pieces that time is divided into, ascending, shape (P + 1,).
        active: How many intervals of each lane are open: zeros.
        charged: Where time is added up, shape (P, lanes).
        first_of_device: Lanes from here on are the device's.
        busy: Where the device's time is added up, shape (P,).
    """
    count = lanes.size
    highest = 0
    before = edges[0]
    piece = 0
    for index in range(order.size):
        boundary = order[index]
        now = times[boundary]
        while before < now:
            while piece < edges.size - 2 and edges[piece + 1] <= before:
                piece += 1
            until = min(now, edges[piece + 1]) if piece < edges.size - 2 else now
            if highest > 0:
                charged[piece, highest] += until - before
                if highest >= first_of_device:
                    busy[piece] += until - before
            before = until
        active[lanes[boundary if boundary < count else boundary - count]] += (
            1 if boundary < count else -1
        )
        highest = active.size - 1
        while highest > 0 and active[highest] == 0:
            highest -= 1


def break_down_steps(
    trace: Trace, steps: Steps, groups: Groups, device: int | None = None
) -> StepBreakdown:
    """Charge every picosecond of each step, and of the gap after it, to exactly one category.

    Args:
        trace: The trace.
        steps: S windows, in order and not overlapping.
        groups: Which step each event belongs to; a host event counts only in its own step, or if it
            belongs to none and runs on the thread of the steps, in the gaps.
        device: The plane whose work counts; what the others do is then no part of it. None for all.

    Returns:
        Picoseconds per step and category; each row sums to that step's duration.
    """
    count = len(steps)
    if not count:
        none = np.empty((0, len(CATEGORIES)), np.int64)
        return StepBreakdown(none, none, none[:, 0], none[:, 0])
    lanes = _lanes_of_events(trace, steps, device, groups.parent)
    parent = np.maximum(groups.parent, 0)
    hidden = (groups.parent >= 0) & (lanes[parent] == lanes) & (groups.step[parent] == groups.step)
    window = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    is_device = lanes >= _FIRST_OF_DEVICE
    pieces = [
        _device_pieces(trace, groups, np.flatnonzero(is_device), window),
        _host_pieces(trace, steps, groups, np.flatnonzero((lanes > 0) & ~is_device & ~hidden)),
    ]
    begin, end, events = (np.concatenate(column) for column in zip(*pieces, strict=True))
    times = np.concatenate([begin, end])
    edges = np.append(np.stack([steps.begin_ps, steps.end_ps], axis=1).ravel(), steps.end_ps[-1])
    charged = np.zeros((2 * count, len(_LANES)), np.int64)
    busy = np.zeros(2 * count, np.int64)
    active = np.zeros(len(_LANES), np.int64)
    order = np.argsort(times, kind="stable")
    _sweep(times, order, lanes[events], edges, active, charged, _FIRST_OF_DEVICE, busy)
    picoseconds = np.zeros((2 * count, len(CATEGORIES)), np.int64)
    for column, category in enumerate(_LANES[1:], start=1):
        picoseconds[:, CATEGORIES.index(category)] += charged[:, column]
    picoseconds[:, -1] = np.diff(edges) - picoseconds[:, :-1].sum(axis=1)
    return StepBreakdown(picoseconds[::2], picoseconds[1::2], busy[::2], busy[1::2])


Pieces = tuple[Int64s, Int64s, Int64s]  # begins, ends, the event of each


def _device_pieces(trace: Trace, groups: Groups, events: Int64s, window: tuple[int, int]) -> Pieces:
    begin = np.clip(trace.events.begin_ps[events], *window)
    end = np.clip(groups.end_ps[events], *window)
    some = end > begin
    return begin[some], end[some], events[some]


def _host_pieces(trace: Trace, steps: Steps, groups: Groups, events: Int64s) -> Pieces:
    """Host events inside the host's window of their step; on the thread of the steps also in the gaps."""
    row = groups.step[events]
    own = events[row >= 0]
    row = row[row >= 0]
    begin = np.maximum(trace.events.begin_ps[own], steps.host_begin_ps[row])
    end = np.minimum(groups.end_ps[own], np.maximum(steps.end_ps, steps.host_end_ps)[row])
    thread = trace.lines.of_event[steps.roots[0]] if steps.roots.size else -1
    free = events[(groups.step[events] < 0) & (trace.lines.of_event[events] == thread)]
    at = np.searchsorted(steps.end_ps, trace.events.begin_ps[free], side="right") - 1
    inside = (at >= 0) & (at + 1 < len(steps))
    free, at = free[inside], at[inside]
    gap_begin = np.maximum(trace.events.begin_ps[free], steps.end_ps[at])
    gap_end = np.minimum(groups.end_ps[free], steps.begin_ps[at + 1])
    begin, end = np.concatenate([begin, gap_begin]), np.concatenate([end, gap_end])
    some = end > begin
    return begin[some], end[some], np.concatenate([own, free])[some]
