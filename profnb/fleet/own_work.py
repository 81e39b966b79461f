"""What a host did between its collectives, by category: its own work, to the picosecond."""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int8s, Int64s
from profnb.steps.activities import ACTIVITIES, CATEGORIES, FIRST_OF_DEVICE, find_activities
from profnb.steps.breakdown import Pieces, find_stretches, host_pieces, sum_stretches
from profnb.steps.spine import Spine
from profnb.steps.summary import GAP

AtWork = tuple[Int8s, Pieces]

_COLLECTIVES = "device collectives"
# What own work is made of: the categories without the collectives, and what nothing explains between steps.
OWN_CATEGORIES = (*(name for name in CATEGORIES if name != _COLLECTIVES), GAP)
DEVICE_COMPUTE = OWN_CATEGORIES.index("device compute")
_IN_STEP = 0  # the lane of a step's window: where nothing else is active in it


@dataclass(frozen=True, slots=True)
class Doings:
    """What a host did in each of P pieces of time: between the bounds of its steps and collectives.

    Attributes:
        edge_ps: Bounds of the pieces, ascending, shape (P + 1,).
        columns: Which of ``OWN_CATEGORIES`` took any time, C of them.
        own_ps: Own work by these, shape (P, C).
    """

    edge_ps: Int64s
    columns: tuple[int, ...]
    own_ps: Int64s

    def between(self, begin_ps: Int64s, end_ps: Int64s) -> Int64s:
        """Own work in K stretches whose bounds are among the edges, shape (K, categories).

        Time in collectives, also those of a part of the hosts, is no own work.
        """
        sums = np.zeros((self.edge_ps.size, len(OWN_CATEGORIES)), np.int64)
        sums[1:, list(self.columns)] = np.cumsum(self.own_ps, axis=0)
        first, last = (np.searchsorted(self.edge_ps, at) for at in (begin_ps, end_ps))
        return np.asarray(sums[np.maximum(last, first)] - sums[first])


def all_at_work(spine: Spine) -> AtWork:
    """What each event is and when the host is at work, where the work of all devices counts."""
    activities = find_activities(spine.trace, spine.steps, None, spine.groups.parent)
    return activities, host_pieces(spine.trace, spine.steps, spine.groups, activities)


def find_doings(
    spine: Spine, edge_ps: Int64s, plane: int | None = None, at_work: AtWork | None = None
) -> Doings:
    """What the host, or its busiest device, did between some times; what is higher in priority counts.

    Args:
        spine: The trace and its steps.
        edge_ps: The times, in any order.
        plane: The device that is asked about; None for the busiest.
        at_work: Of that device, what ``all_at_work`` finds.
    """
    trace, steps = spine.trace, spine.steps
    edges = np.unique(edge_ps)
    if not len(steps) or edges.size < 2:
        return Doings(np.zeros(1, np.int64), (), np.zeros((0, 0), np.int64))
    window = max(int(steps.begin_ps[0]), int(edges[0])), min(int(steps.end_ps[-1]), int(edges[-1]))
    activities, pieces = at_work or (spine.activities, spine.host_pieces)
    device = np.flatnonzero(activities >= FIRST_OF_DEVICE)
    if plane is not None:
        device = device[trace.lines.plane[trace.lines.of_event[device]] == plane]
    host_begin, host_end, events = pieces
    lanes = [activities[device], activities[events], np.full(len(steps), _IN_STEP)]
    begin = np.concatenate([trace.events.begin_ps[device], host_begin, steps.begin_ps])
    end = np.concatenate([spine.groups.end_ps[device], host_end, steps.end_ps])
    begin, end = np.clip(begin, *window), np.clip(end, *window)
    some = end > begin
    lane = np.concatenate(lanes).astype(np.int8)[some]
    stretches = find_stretches(begin[some], end[some], lane, len(ACTIVITIES))
    sums = sum_stretches(*stretches, edges, len(ACTIVITIES))
    own_ps = np.zeros((edges.size - 1, len(OWN_CATEGORIES)), np.int64)
    for row, category in enumerate(ACTIVITIES):
        if category != _COLLECTIVES:
            own_ps[:, OWN_CATEGORIES.index(category)] += sums[:, row]
    own_ps[:, -1] = np.diff(edges) - sums.sum(axis=1)
    columns = np.flatnonzero(own_ps.any(axis=0))
    return Doings(edges, tuple(columns.tolist()), own_ps[:, columns])
