"""Idle stretches of the busiest device to what the host was doing at that time.

A device is idle where nothing runs on any of its streams, in the steps that the averages are of and in the
gaps between them: the same time that the headline speaks of, so that warm-up and the few steps that stand
aside are left out. What the host did is what the breakdown of a step has, too: its work for the steps, and on
their thread between steps. Every instant is charged to exactly one cause, the first of these that holds:

- **compiling**: XLA compiles a program, or a function is traced and none of its ops is at work;
- **waiting for input**: a thread waits in ``IteratorGetNext`` for the next element;
- **copying input**: the host is in a call that copies to the device;
- **synchronising copy**: the host copies back, or waits for a result (in a ``...Synchronize`` call, in JAX's
  ``block_until_ready``) while the device has nothing to do;
- **host compute**: an op computes on the CPU;
- **kernel launch**: the host prepares device work and launches it, kernel by kernel;
- **host collectives**: the host waits for other workers or replicas, or exchanges with them; where it
  only prepares work meanwhile, that counts as waiting too, as in the breakdown of a step;
- **Python in the step**: a step is running, and none of these was recorded;
- **Python between steps**: no step is running;
- **unknown**: the host was not recorded.

The causes sum to the idle time to the picosecond. Holistic Trace Analysis splits the idle time of a
stream by the order of launches only; no tool for TensorFlow splits it at all.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from profnb.core.columns import Floats, Int8s, Int64s, fraction_of
from profnb.core.table import Column, Table, columns_in, field_column
from profnb.steps import activities
from profnb.steps.breakdown import find_stretches, sum_stretches
from profnb.steps.spine import Spine
from profnb.steps.streams import COLLECTIVE, COMPUTE, COPY, kinds_of_work, raw_device_lines
from profnb.steps.summary import periods_of
from profnb.subjects.device.devices import window_of_steps

WORK = ("compute", "collectives", "copies")
# Lanes of the sweep, the first that is open counts: what it counts as, and the host's activities that are it.
_LANES: tuple[tuple[str, tuple[int, ...]], ...] = (
    *((work, ()) for work in WORK),
    ("compiling", (activities.COMPILING,)),
    ("waiting for input", (activities.WAITING_FOR_INPUT,)),
    ("copying input", (activities.COPYING_IN,)),
    ("synchronising copy", (activities.COPYING_OUT, activities.SYNCHRONISING)),
    ("host compute", (activities.HOST_COMPUTE,)),
    ("kernel launch", ()),  # and whatever is in no other lane
    ("host collectives", (activities.EXCHANGING,)),
    ("kernel launch", (activities.DISPATCH,)),
    ("compiling", (activities.TRACING,)),
    ("synchronising copy", (activities.AWAITING,)),  # waiting for a result is as copying it back
    ("Python in the step", ()),  # a step that runs
    ("Python between steps", (activities.NOTHING,)),  # the open window
)
_NAMES = [name for name, _ in _LANES]
IDLE_CAUSES = (*list(dict.fromkeys(_NAMES))[len(WORK) :], "unknown")
_FIRST_OF_NAME = [_NAMES.index(name) for name in _NAMES]
_LAUNCHING, _NOTHING = _NAMES.index("kernel launch"), len(_LANES) - 1
_STEP = _NOTHING - 1
_EXPLAINED = slice(0, len(WORK) + len(IDLE_CAUSES) - 3)
_LANE_OF_ACTIVITY = {one: lane for lane, (_, kinds) in enumerate(_LANES) for one in kinds}
_LANE_OF_WORK = {COMPUTE: 0, COLLECTIVE: 1, COPY: 2}
_BINS = 96


@dataclass(frozen=True, slots=True)
class IdleTable:
    """Causes for which the busiest device was idle; rows as ``IDLE_CAUSES``."""

    device: str  # the device's plane
    occurrences: Int64s  # uninterrupted stretches per cause, shape (10,)
    total_ps: Int64s  # their sum, shape (10,)
    longest_ps: Int64s  # the longest of them, shape (10,)
    busy_ps: int  # time during which the device ran something
    window_ps: int  # the counted steps and the gaps between them; busy and idle add up to it
    aside_ps: int  # the rest of the time from the first step's begin to the last one's end
    # begins of B equal pieces of the time from the first step to the last, shape (B,)
    bin_begin_ps: Int64s
    # what each piece went to, shape (B, 13): the device's work as ``WORK``, then idle time as
    # ``IDLE_CAUSES``; each row sums to its piece
    bins_ps: Int64s

    @property
    def bin_shares(self) -> Floats:
        """Share of each piece, shape (B, 13)."""
        shares: Floats = self.bins_ps / np.maximum(self.bins_ps.sum(axis=1, keepdims=True), 1)
        return shares


def _tell_unknown(column: Int64s, *, has_host: bool) -> Int64s:
    """Sums by lane to those by work and cause; what nothing explains is unknown without a host."""
    explained_ps, step, gap = (column[..., at] for at in (_EXPLAINED, [_STEP], [_NOTHING]))
    none = np.zeros_like(step)
    return np.concatenate(
        [explained_ps, *([step, gap, none] if has_host else [none, gap, step])], axis=-1
    )


def attribute_idle(spine: Spine) -> IdleTable | None:
    """Charge the idle time of the busiest device to causes; None without steps or device work."""
    trace, steps, counted = spine.trace, spine.steps, spine.summary.counted
    plane = spine.program.device
    if plane is None or not counted.size:
        return None
    window = window_of_steps(steps)
    begin, end = periods_of(steps, spine.gaps, counted)
    counted_ps = int((end - begin).sum())
    if not counted_ps:
        return None
    since, lane = _find_lanes(spine, plane, window)
    edges = np.linspace(*window, min(_BINS, window[1] - window[0]) + 1).astype(np.int64)
    edges[[0, -1]] = window
    of_bins = sum_stretches(since, lane, edges, len(_LANES))
    since, lane = _while_open(since, lane, (begin, end))
    in_all = sum_stretches(since, lane, np.array(window), len(_LANES))[0]
    most = np.zeros(len(_LANES), np.int64)
    row = np.flatnonzero(lane[:-1] >= 0)
    np.maximum.at(most, lane[row], np.diff(since)[row])
    count = np.bincount(lane[row], minlength=len(_LANES))
    has_host = steps.roots.size > 0 and bool(trace.is_host_event[steps.roots[0]])
    occurrences, total, longest, bins = (
        _tell_unknown(column, has_host=has_host) for column in (count, in_all, most, of_bins)
    )
    return IdleTable(
        device=trace.planes[plane].name,
        occurrences=occurrences[3:],
        total_ps=total[3:],
        longest_ps=longest[3:],
        busy_ps=int(total[:3].sum()),
        window_ps=counted_ps,
        aside_ps=window[1] - window[0] - counted_ps,
        bin_begin_ps=edges[:-1],
        bins_ps=bins,
    )


def _find_lanes(spine: Spine, plane: int, window: tuple[int, int]) -> tuple[Int64s, Int8s]:
    """Begins of the stretches in which one lane counts, and that lane, in the whole window."""
    trace, steps = spine.trace, spine.steps
    host_begin, host_end, host_events = spine.host_pieces
    of_activity = np.array(
        [_LANE_OF_ACTIVITY.get(row, _LAUNCHING) for row in range(len(activities.ACTIVITIES))],
        np.int8,
    )
    line = trace.lines.of_event
    work = np.flatnonzero(raw_device_lines(trace)[line] & (trace.lines.plane[line] == plane))
    of_kind = np.array([_LANE_OF_WORK[kind] for kind in (COMPUTE, COPY, COLLECTIVE)], np.int8)
    begin = np.concatenate([trace.events.begin_ps[work], host_begin, steps.begin_ps, window[:1]])
    end = np.concatenate([trace.events.end_ps[work], host_end, steps.end_ps, window[1:]])
    of_work = of_kind[kinds_of_work(trace, work)]
    of_host = of_activity[spine.activities[host_events]]
    of_steps = np.array([_STEP] * len(steps) + [_NOTHING], np.int8)  # and the whole window
    lane = np.concatenate([of_work, of_host, of_steps])
    begin, end = np.clip(begin, *window), np.clip(end, *window)
    begin, end, lane = (column[end > begin] for column in (begin, end, lane))
    since, highest = find_stretches(begin, end, _NOTHING - lane, len(_LANES))
    counted = np.array([*_FIRST_OF_NAME, -1], np.int8)
    return since, counted[np.where(highest >= 0, _NOTHING - highest, -1)]


def _while_open(since: Int64s, lanes: Int8s, open_: tuple[Int64s, Int64s]) -> tuple[Int64s, Int8s]:
    """Stretches cut to the times between some begins and ends; -1 is the lane elsewhere."""
    cuts = np.unique(np.concatenate([since, *open_]))
    row = np.searchsorted(since, cuts, side="right") - 1
    opened, closed = (np.searchsorted(np.sort(edge), cuts, side="right") for edge in open_)
    lane = np.where((opened > closed) & (row >= 0), lanes[row], np.int8(-1))
    changes = np.append(True, lane[1:] != lane[:-1])
    return cuts[changes], lane[changes]


IDLE = Table[IdleTable](
    "idle",
    "One row per cause of the busiest device's idle time, in the averaged steps and the gaps between. No "
    "row without a device.",
    columns_in("""
        cause [what the host did then]: what the host did then
        occurrences [times]: how many idle stretches
        total_us [total]: time of all of them; the totals add up to the idle time exactly
        longest_us [longest]: the longest of them
        idle_fraction [of idle]: share of the idle time
        window_fraction: share of those steps and gaps
        """),
    values={
        "cause": lambda _: IDLE_CAUSES,
        "idle_fraction": lambda t: fraction_of(t.total_ps),
        "window_fraction": lambda t: t.total_ps / (t.window_ps or np.nan),
    },
)


def _bin_share(at: int, idle: IdleTable) -> Floats:
    return idle.bin_shares[:, at]


UTILIZATION = Table[IdleTable](
    "utilization",
    "One row per piece of the window of the steps (at most 96): the busiest device's work, and the causes "
    "of idle time. No row without a device.",
    (
        field_column("begin_ms", "begin of the piece", of="bin_begin_ps"),
        *(
            Column(
                f"{what}_fraction".replace(" ", "_").lower(),
                partial(_bin_share, at),
                f"share of {what}; the shares of a row sum to 1",
            )
            for at, what in enumerate((*WORK, *IDLE_CAUSES))
        ),
    ),
)
