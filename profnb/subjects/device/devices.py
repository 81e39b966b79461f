"""Device work to one row per device: how busy each was, with what, and how well collectives were hidden.

Times are by the wall clock: work that overlaps on several streams counts once. The window is that of the
steps, as for the idle causes.
"""

from dataclasses import dataclass

import numpy as np

from profnb.steps.windows import Steps
from profnb.steps.streams import COLLECTIVE, COMPUTE, COPY, kind_of_work, raw_device_lines
from profnb.core.columns import Floats, Int64s
from profnb.trace.model import Trace

__all__ = ["DeviceTable", "busiest_device", "covered_ps", "tabulate_devices", "working_devices"]


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """D devices that ran something, in the order of the trace.

    Attributes:
        device: The planes' names.
        busy_ps: Time during which anything ran, shape (D,).
        compute_ps: ... kernels other than collectives, shape (D,).
        copy_ps: ... copies and memsets, shape (D,).
        collective_ps: ... exchange with other devices, shape (D,).
        hidden_collective_ps: The part of it during which compute ran as well, shape (D,).
        window_ps: From the first step's begin to the last one's end.
    """

    device: tuple[str, ...]
    busy_ps: Int64s
    compute_ps: Int64s
    copy_ps: Int64s
    collective_ps: Int64s
    hidden_collective_ps: Int64s
    window_ps: int

    def __len__(self) -> int:
        return len(self.device)

    @property
    def utilisation(self) -> Floats:
        """Busy share of the window, shape (D,)."""
        return self.busy_ps / max(self.window_ps, 1)

    @property
    def imbalance(self) -> float:
        """How much longer the busiest device is busy than the mean one: 0 where all are alike."""
        mean = self.busy_ps.mean() if len(self) else 0
        return float(self.busy_ps.max() / mean - 1) if mean else 0.0


def working_devices(trace: Trace) -> list[int]:
    """The device planes that ran anything, in the order of the trace."""
    raw = raw_device_lines(trace) & (np.diff(trace.lines.offsets) > 0)
    planes: list[int] = np.unique(trace.lines.plane[raw]).tolist()
    return planes


def busiest_device(trace: Trace) -> int | None:
    """The device plane with the most work on its streams, or None if no device ran anything."""
    work = np.flatnonzero(raw_device_lines(trace)[trace.lines.of_event])
    if not work.size:
        return None
    totals = np.zeros(len(trace.planes), np.int64)
    plane = trace.lines.plane[trace.lines.of_event[work]]
    np.add.at(totals, plane, trace.events.duration_ps[work])
    return int(totals.argmax())


def covered_ps(begin_ps: Int64s, end_ps: Int64s) -> int:
    """How much time N intervals cover together."""
    if not begin_ps.size:
        return 0
    order = np.argsort(begin_ps, kind="stable")
    begin, end = begin_ps[order], np.maximum.accumulate(end_ps[order])
    start = np.maximum(begin, np.concatenate([begin[:1], end[:-1]]))
    return int(np.maximum(end - start, 0).sum())


def tabulate_devices(trace: Trace, steps: Steps) -> DeviceTable:
    """Sum up each device's time inside the steps' window.

    Args:
        trace: The trace.
        steps: Its steps; they set the window.
    """
    raw = raw_device_lines(trace)
    work = np.flatnonzero(raw[trace.lines.of_event]) if len(steps) else np.empty(0, np.int64)
    window = (int(steps.begin_ps[0]), int(steps.end_ps[-1])) if len(steps) else (0, 0)
    begin = np.clip(trace.events.begin_ps[work], *window)
    end = np.clip(trace.events.end_ps[work], *window)
    plane = trace.lines.plane[trace.lines.of_event[work]]
    kinds = np.array([kind_of_work(text) for text in trace.names.texts], np.int8)
    kind = kinds[trace.events.name[work]] if kinds.size else work
    planes = np.unique(plane)
    rows = np.zeros((planes.size, 5), np.int64)
    for row, number in enumerate(planes.tolist()):
        own = plane == number
        compute, copy, collective = (
            own & (kind == wanted) for wanted in (COMPUTE, COPY, COLLECTIVE)
        )
        both = compute | collective
        compute_ps, copy_ps, collective_ps, both_ps = (
            covered_ps(begin[part], end[part]) for part in (compute, copy, collective, both)
        )
        hidden_ps = compute_ps + collective_ps - both_ps
        rows[row] = covered_ps(begin[own], end[own]), compute_ps, copy_ps, collective_ps, hidden_ps
    busy, compute_total, copy_total, collective_total, hidden_total = rows.T.copy()
    return DeviceTable(
        tuple(trace.planes[number].name for number in planes.tolist()),
        busy, compute_total, copy_total, collective_total, hidden_total, window[1] - window[0],
    )  # fmt: skip
