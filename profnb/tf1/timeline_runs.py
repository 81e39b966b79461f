"""The runs of a TF1 timeline: where each begins and ends, and which ran the same program.

A timeline of several ``Session.run`` calls has no marker between them, but the executor of each device
begins every run with the node ``_SOURCE``. A run lasts from its first ``_SOURCE`` to the end of the last
event that begins before the next run's.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int64s
from profnb.trace.model import Trace

_FIRST_NODE = "_SOURCE:NoOp"


@dataclass(frozen=True, slots=True)
class GraphRuns:
    """R runs in time order, not overlapping.

    Attributes:
        begin_ps: Begins, shape (R,).
        end_ps: Ends (exclusive), shape (R,).
        program: A name per run; runs of the same nodes ran the same program.
    """

    begin_ps: Int64s
    end_ps: Int64s
    program: tuple[str, ...]


def find_graph_runs(trace: Trace) -> GraphRuns | None:
    """The session runs of a trace, or None if nothing in it begins like one."""
    first = np.flatnonzero(trace.select_named(_FIRST_NODE))
    first = first[trace.is_host_event[first]]
    if not first.size:
        return None
    plane = trace.lines.plane[trace.lines.of_event[first]]
    times = trace.events.begin_ps[first]
    # One device has a first node in every run; those of the others belong to the nearest of its.
    most = np.bincount(plane).argmax()
    centre = np.sort(times[plane == most])
    nearest = np.searchsorted((centre[1:] + centre[:-1]) // 2, times)
    begin = centre.copy()
    np.minimum.at(begin, nearest, times)
    owner = np.searchsorted(begin, trace.events.begin_ps, side="right") - 1
    inside = np.flatnonzero(owner >= 0)
    end = begin.copy()
    np.maximum.at(end, owner[inside], trace.events.end_ps[inside])
    end = np.minimum(end, np.append(begin[1:], np.iinfo(np.int64).max))
    order = inside[np.argsort(owner[inside], kind="stable")]
    parts = np.split(
        trace.events.name[order], np.searchsorted(owner[order], np.arange(1, begin.size))
    )
    keys = [np.unique(part).tobytes() for part in parts]
    ranked = [key for key, _ in Counter(keys).most_common()]
    names = ["session_run", *(f"session_run ({number})" for number in range(2, len(ranked) + 1))]
    return GraphRuns(begin, end, tuple(names[ranked.index(key)] for key in keys))
