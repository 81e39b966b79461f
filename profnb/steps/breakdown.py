"""Steps and their events to where the time went: nine categories that add up exactly.

Each instant of a step is charged to the one category with the highest priority among what was
active at that instant, so host work hidden behind device compute costs the step nothing; instants
at which nothing of the step was active are "all others". Host events count whether or not there is
a device, copies are recognised by the names CUPTI writes (``MemcpyH2D``), and frames of the Python
tracer are no work of TensorFlow's: time that only they cover stays in "all others".

Departures from the official tool, each on purpose: on a device it drops every host event (launch,
host compute and input are then always 0) and the gap between steps; it never reports compilation;
and it takes ``MemcpyH2D`` for compute because it looks for ``MEMCPYHToD``.

Source: EventType and the sweep in openxla/xprof xprof/utils/event_span.{h,cc} (a27d00aa); category
names: https://www.tensorflow.org/guide/profiler.
"""

from dataclasses import dataclass, replace

import numpy as np

from profnb.core.columns import Int8s, Int64s
from profnb.core.jit import compiled
from profnb.steps.compilation import is_compilation
from profnb.steps.grouping import Groups
from profnb.steps.launching import find_launches
from profnb.steps.streams import COLLECTIVE, kind_of_work, raw_device_lines
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import copy_direction

__all__ = [
    "CATEGORIES",
    "StepBreakdown",
    "break_down_steps",
    "categorize_events",
    "category_column",
    "extend_to_device_work",
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

# Lanes in order of priority (a later one wins) and the category that each is charged to.
_LANES = (
    "all others",
    "host compute",
    "compilation",
    "input",  # a copy from host to device
    "kernel launch",
    "device collectives",
    "input",  # waiting for the next element
    "device to device",
    "output",
    "device compute",
)
_NONE, _HOST_COMPUTE, _COMPILATION, _HOST_TO_DEVICE, _LAUNCH = 0, 1, 2, 3, 4
_COLLECTIVES, _INPUT_WAIT, _DEVICE_TO_DEVICE, _OUTPUT, _DEVICE_COMPUTE = 5, 6, 7, 8, 9

# Wrappers around work that is recorded on its own, and frames of the Python tracer ("$file:1 f").
_NOT_WORK = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun", "$")
_COPIES = {
    "host to device": _HOST_TO_DEVICE,
    "device to host": _OUTPUT,
    "device to device": _DEVICE_TO_DEVICE,
    "peer to peer": _DEVICE_TO_DEVICE,
}


def category_column(category: str) -> str:
    """The name of a category's column: "device compute" becomes ``device_compute_ms``."""
    return f"{category.replace(' ', '_')}_ms"


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Where each step's time went.

    Attributes:
        picoseconds: Shape (S, 9), int64, columns as ``CATEGORIES``; each row sums to its step.
    """

    picoseconds: Int64s

    def of(self, category: str) -> Int64s:
        """One category's picoseconds per step, shape (S,)."""
        return self.picoseconds[:, CATEGORIES.index(category)]


def _host_lane(name: str) -> int:
    if name.startswith(_NOT_WORK):
        return _NONE
    if name.lower().startswith("iteratorgetnext"):
        return _INPUT_WAIT
    return _COMPILATION if is_compilation(name) else _HOST_COMPUTE


def _device_lane(name: str) -> int:
    lane = _COPIES.get(copy_direction(name) or "")
    if lane is not None:
        return lane
    return _COLLECTIVES if kind_of_work(name) == COLLECTIVE else _DEVICE_COMPUTE


def _lanes_of_events(trace: Trace, steps: Steps, device: int | None) -> Int8s:
    texts = trace.names.texts
    host = np.fromiter(map(_host_lane, texts), np.int8, len(texts))
    lanes = np.where(trace.is_host_event, host[trace.events.name], 0)
    raw = raw_device_lines(trace)
    if device is not None:
        raw &= trace.lines.plane == device
    if raw.any():
        of_name = np.fromiter(map(_device_lane, texts), np.int8, len(texts))
        on_device = trace.lines.spread(raw)
        lanes = np.where(on_device, of_name[trace.events.name], lanes)
        launches, launched = find_launches(trace)
        lanes[launches[on_device[launched]]] = _LAUNCH
    lanes[steps.roots] = _NONE  # a marker or call covers its whole step and explains none of it
    return lanes.astype(np.int8)


def categorize_events(trace: Trace, steps: Steps) -> Int8s:
    """The category each event is charged to where nothing of higher priority runs.

    Returns:
        Index into ``CATEGORIES``, shape (E,), int8; what is no work (markers, frames of the Python
        tracer, lines that repeat others) is "all others".
    """
    of_lane = [CATEGORIES.index("all others"), *(CATEGORIES.index(name) for name in _LANES[1:])]
    return np.array(of_lane, np.int8)[_lanes_of_events(trace, steps, None)]


def extend_to_device_work(trace: Trace, steps: Steps, groups: Groups) -> Steps:
    """Let a step end with the device work it launched, when the host waits for it.

    The host waits if that work ends before the next step begins; work that runs on into the next
    step is asynchronous and extends nothing.
    """
    work = trace.lines.events_of(raw_device_lines(trace))
    work = work[groups.step[work] >= 0]
    if not work.size or steps.is_window:
        return steps
    last = steps.end_ps.copy()
    np.maximum.at(last, groups.step[work], trace.events.end_ps[work])
    following = np.append(steps.begin_ps[1:], np.iinfo(np.int64).max)
    return replace(steps, end_ps=np.where(last <= following, last, steps.end_ps))


@compiled
def _sweep(
    times: Int64s, order: Int64s, lanes: Int8s, steps: Int64s, active: Int64s, charged: Int64s
) -> None:
    """Walk the boundaries in time order and charge each stretch to the highest active lane."""
    count = lanes.size
    before = np.int64(0)
    highest = 0
    row = np.int64(0)
    for index in range(order.size):
        boundary = order[index]
        interval = boundary if boundary < count else boundary - count
        now = times[boundary]
        if highest > 0 and now > before:
            charged[row, highest] += now - before
        before = now
        if boundary < count:
            row = steps[interval]
        active[lanes[interval]] += 1 if boundary < count else -1
        highest = active.size - 1
        while highest > 0 and active[highest] == 0:
            highest -= 1


def break_down_steps(
    trace: Trace, steps: Steps, groups: Groups, device: int | None = None
) -> StepBreakdown:
    """Charge every picosecond of each step to exactly one category.

    Args:
        trace: The trace.
        steps: S windows, in order and not overlapping.
        groups: Which step each event belongs to; an event counts only inside its own step.
        device: The plane whose work counts; what the others do is then no part of it. None for all.

    Returns:
        Picoseconds per step and category; each row sums to that step's duration.
    """
    lanes = _lanes_of_events(trace, steps, device)
    parent = np.maximum(groups.parent, 0)
    hidden = (groups.parent >= 0) & (lanes[parent] == lanes) & (groups.step[parent] == groups.step)
    chosen = np.flatnonzero((groups.step >= 0) & (lanes > 0) & ~hidden)
    row = groups.step[chosen]
    begin = np.maximum(trace.events.begin_ps[chosen], steps.begin_ps[row])
    end = np.minimum(groups.end_ps[chosen], steps.end_ps[row])
    some = end > begin
    begin, end, row, lane = begin[some], end[some], row[some], lanes[chosen][some]
    times = np.concatenate([begin, end])
    charged = np.zeros((len(steps), len(_LANES)), np.int64)
    active = np.zeros(len(_LANES), np.int64)
    _sweep(times, np.argsort(times, kind="stable"), lane, row, active, charged)
    picoseconds = np.zeros((len(steps), len(CATEGORIES)), np.int64)
    for column, category in enumerate(_LANES[1:], start=1):
        picoseconds[:, CATEGORIES.index(category)] += charged[:, column]
    picoseconds[:, -1] = steps.duration_ps - picoseconds[:, :-1].sum(axis=1)
    return StepBreakdown(picoseconds)
