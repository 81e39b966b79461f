"""Two timelines aligned by step: the events that are new, gone, longer or shorter in a mean step.

The first steady step of A lies on the first of B, and so on; of each event counts what it takes in a step
itself, without the events inside it, and when in the step it begins. Threads are called differently in each
run, so an event is the same where its side and its name are, scopes numbered anew.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.compare.op_differences import rank_scopes
from profnb.compare.tree_differences import GONE, LONGER, NEW, SHORTER
from profnb.core.columns import flags_at
from profnb.core.table import Table, columns_in
from profnb.core.units import signed_text
from profnb.subjects.study import Study


@dataclass(frozen=True, slots=True)
class EventDifference:
    """An event in a mean step of A and of B.

    Attributes:
        side: "host" or "device".
        event: Its name, as B has it if B has it.
        first_count: How often it comes in a step of A.
        second_count: ... of B.
        first_ps: Its self time in a step of A; NaN where there is no such event.
        second_ps: ... of B.
        first_begin_ps: How long after the step's begin it begins in A, likewise.
        second_begin_ps: ... in B.
    """

    side: str
    event: str
    first_count: float
    second_count: float
    first_ps: float
    second_ps: float
    first_begin_ps: float
    second_begin_ps: float

    @property
    def difference_ps(self) -> float:
        """The time that B spends on it in a step beyond A."""
        return float(np.nan_to_num(self.second_ps) - np.nan_to_num(self.first_ps))

    @property
    def status(self) -> str:
        """New, gone, longer or shorter."""
        if not self.first_count or not self.second_count:
            return GONE if self.first_count else NEW
        return LONGER if self.difference_ps > 0 else SHORTER


_Key = tuple[str, str]
_Row = tuple[str, float, float, float]


def compare_timelines(first: Study, second: Study) -> list[EventDifference]:
    """List the events whose self time differs, the largest difference first."""
    sides = _events_per_step(first), _events_per_step(second)
    absent: _Row = ("", 0.0, math.nan, math.nan)
    rows = []
    for key in sides[0].keys() | sides[1].keys():
        one, two = (side.get(key, absent) for side in sides)
        pairs = (value for pair in zip(one[1:], two[1:], strict=True) for value in pair)
        rows.append(EventDifference(key[0], two[0] or one[0], *pairs))
    differing = [row for row in rows if row.difference_ps or row.status in (NEW, GONE)]
    return sorted(differing, key=lambda row: (-abs(row.difference_ps), row.side, row.event))


def _events_per_step(study: Study) -> dict[_Key, _Row]:
    """Name, count, self time and begin of each event in a mean step, by its side and path."""
    trace, steps, step = study.trace, study.steps, study.groups.step
    counted = study.summary.counted
    is_counted = flags_at(counted, len(steps) + 1)  # the last one: outside every step
    chosen = np.flatnonzero(is_counted[step])
    if not chosen.size:
        return {}
    is_device = trace.lines.spread(trace.is_device_line)[chosen]
    keys, of_event = np.unique(trace.events.name[chosen] * 2 + is_device, return_inverse=True)
    names = [trace.names.texts[key // 2] for key in keys.tolist()]
    begin_ps = trace.events.begin_ps[chosen] - steps.begin_ps[step[chosen]]
    columns = np.ones(chosen.size), study.self_ps[chosen], begin_ps
    sums = np.stack([np.bincount(of_event, one.astype(np.float64)) for one in columns], axis=-1)
    rows: dict[_Key, np.ndarray] = {}
    titles: dict[_Key, str] = {}
    for at, path in enumerate(rank_scopes(names)):
        key = "device" if keys[at] % 2 else "host", path
        titles.setdefault(key, names[at])
        rows[key] = rows.get(key, 0) + sums[at]
    iterations = max(counted.size, 1) * max(study.summary.iterations, 1)
    return {
        key: (titles[key], times / iterations, spent / iterations, begun / times)
        for key, (times, spent, begun) in ((key, row.tolist()) for key, row in rows.items())
    }


EVENT_DIFFERENCES = Table[Sequence[EventDifference]](
    "timeline_diff",
    "One row per new, gone, longer or shorter event of the timelines, the largest difference first.",
    columns_in("""
        side: host or device
        event: its name
        status: new, gone, longer or shorter
        first_count: how often it comes in a step of A
        second_count: ... of B
        first_ms: its self time in a mean step of A; missing where there is none
        second_ms: ... of B
        difference_ms: how much more B spends on it
        first_begin_ms: how long after the step's begin it begins in A
        second_begin_ms: ... in B
        """),
    "Steady steps of the first run of each side, per iteration.",
    "c",
    texts={"difference_ms": signed_text},
)
