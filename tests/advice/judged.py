"""What a person needs to judge a trace: its raw events, questions about them in plain NumPy, and one row per trace.

Nothing here uses profnb's analyses, only the columns of the trace that it read.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

DERIVED = ("Steps", "TensorFlow", "XLA M", "XLA T", "Framework", "Async", "Tensor Core", "_counters_", "stream:all", "memcpy")
COPIES = ("memcpy", "memset", "copybuffer", "copy-done", "copy-start")
# What prepares and launches a device's work on a host, and what waits there for data or results.
LAUNCHING = ("ExecutorState::Process", "EagerKernelExecute", "aunchKernel", "TFE_Py_Execute", "KernelAndDeviceFunc", "FunctionRun")


class Raw:
    """A trace's events, and questions about them."""

    def __init__(self, trace):
        self.names = np.array(trace.names.texts, object)[trace.events.name]
        self.begin, self.end = trace.events.begin_ps, trace.events.end_ps
        self.duration = self.end - self.begin
        self.line_of = trace.lines.of_event
        self.line = np.array([trace.lines.names[row] for row in range(len(trace.lines))], object)[self.line_of]
        plane = trace.lines.plane[self.line_of]
        self.plane = np.array([plane.name for plane in trace.planes], object)[plane]
        self.on_device = np.array([plane.is_device for plane in trace.planes])[plane]
        self.trace = trace

    def named(self, *parts):
        """Which events have one of these in their names."""
        has = np.array([any(part in name for part in parts) for name in self.trace.names.texts])
        return has[self.trace.events.name]

    def between(self, begin, end):
        """Which events begin in a stretch of time."""
        return (self.begin >= begin) & (self.begin < end)

    def covered(self, *chosen, within=None):
        """Picoseconds that the events of all these sets cover together, in a stretch of time if one is given."""
        low, high = within or (0, np.iinfo(np.int64).max)
        some = np.logical_or.reduce(chosen)
        begin, end = np.clip(self.begin[some], low, high), np.clip(self.end[some], low, high)
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        return int(np.maximum(end - np.maximum(begin, np.append(begin[:1], end[:-1])), 0).sum())

    def alone(self, chosen, *others, within=None):
        """Picoseconds that the chosen events cover while none of the others runs."""
        return self.covered(chosen, *others, within=within) - (self.covered(*others, within=within) if others else 0)

    def streams(self):
        """Which events are work on a device's streams, each piece once."""
        repeats = np.array([name.startswith(DERIVED) or name.endswith(("annotations", "waits")) for name in self.line])
        return self.on_device & ~repeats

    def busiest(self):
        """The events on the streams of the device that has most work."""
        streams = self.streams()
        planes = {plane: self.covered(streams & (self.plane == plane)) for plane in set(self.plane[streams])}
        return streams & (self.plane == max(planes, key=planes.get))

    def copies(self):
        """Which events copy or set memory, by their names."""
        has = np.array([any(part in name.lower() for part in COPIES) for name in self.trace.names.texts])
        return has[self.trace.events.name]

    def steps(self, marker):
        """The markers' events on a host, and the time from the first one's begin to the end of the device's work."""
        steps = self.named(marker) & ~self.on_device
        work = self.busiest() & (self.end > self.begin[steps].min()) if self.on_device.any() else steps
        return steps, (int(self.begin[steps].min()), int(max(self.end[work].max(), self.end[steps].max())))

    def busy(self, marker):
        """Share of that time in which the busiest device runs anything."""
        within = self.steps(marker)[1]
        return self.covered(self.busiest(), within=within) / (within[1] - within[0])

    def launching(self, marker, *waits):
        """Share of that time in which the host launches, no device runs anything and no host event waits as named."""
        within = self.steps(marker)[1]
        others = [self.busiest()] + ([self.named(*waits) & ~self.on_device] if waits else [])
        return self.alone(self.named(*LAUNCHING) & ~self.on_device, *others, within=within) / (within[1] - within[0])

    def threads_that_launch(self):
        """Names of the threads with a fiftieth or more of the host's calls that carry a correlation id."""
        column = self.trace.stats.integers("correlation_id")
        lines = self.line_of[column.events[~self.on_device[column.events]]]
        counts = np.bincount(lines)
        return [self.trace.lines.names[row] for row in np.flatnonzero(counts >= counts.sum() / 50)]

    def longest(self, *parts):
        """The longest event with one of these in its name: picoseconds."""
        return int(self.duration[self.named(*parts)].max())

    def whole(self):
        """From the first event's begin to the last one's end."""
        return int(self.end.max() - self.begin.min())


@dataclass(frozen=True)
class Judged:
    """One trace, read by a person.

    Attributes:
        path: Where it is.
        because: The fact of the raw events that decides, with its numbers.
        fact: The same as a query; false would mean that the row is wrong.
        says: What the first line must say.
        never: What it must not.
        advice: Rules that must speak.
        forbidden: Rules that must not; all others may.
        notes_never: What no note may hold.
        first: The rule that must come first, if one must.
    """

    path: str
    because: str
    fact: Callable[[Raw], bool]
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    notes_never: tuple[str, ...] = ()
    first: str = ""
