"""How much of the time from step to step some spans cover: what rules of advice bound gains by.

The time is that of the counted steps' periods: each step and the gap behind it that belongs to it. Where
spans overlap they count once, whatever threads they are on.
"""

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.subjects.study import Study

Spans = tuple[Int64s, Int64s]  # when each of N begins and ends, in any order


def period_ps(study: Study) -> int:
    """The counted steps and the gaps that belong to them, together."""
    return int(_each_period_ps(study).sum())


def _each_period_ps(study: Study) -> Int64s:
    rows = study.summary.counted
    return study.steps.duration_ps[rows] + study.gaps.own_ps[rows]


def in_periods(study: Study, times: Int64s) -> Bools:
    """Whether each of N times lies in a counted step or in the gap behind it that belongs to it."""
    steps, counted = study.steps, study.summary.counted
    if not counted.size:
        return np.zeros(times.size, np.bool_)
    ends = steps.end_ps[counted] + study.gaps.own_ps[counted]
    row = np.searchsorted(steps.begin_ps[counted], times, side="right") - 1
    return (row >= 0) & (times < ends[np.maximum(row, 0)])


def spans_of(study: Study, events: Int64s) -> Spans:
    """When each of N events begins and ends."""
    return study.trace.events.begin_ps[events], study.trace.events.end_ps[events]


def covered_share(study: Study, events: Int64s) -> float:
    """Share of the time in which at least one of these events runs."""
    return share_of_spans(study, spans_of(study, events))


def share_of_spans(study: Study, spans: Spans) -> float:
    """Share of the time that at least one of these spans covers."""
    whole = period_ps(study)
    return float(_covered_ps(study, spans).sum() / whole) if whole else 0.0


def share_beyond(study: Study, spans: Spans, others: Spans) -> float:
    """Share of the time that some of these spans cover, and none of the others."""
    whole = period_ps(study)
    return float(_beyond_ps(study, spans, others).sum() / whole) if whole else 0.0


def usual_share_beyond(study: Study, spans: Spans, others: Spans) -> float:
    """The same of the usual period, the median: what a few steps lost to other programs is not in it."""
    period = _each_period_ps(study)
    is_some = period > 0
    beyond = _beyond_ps(study, spans, others)[is_some] / period[is_some]
    return float(np.median(beyond)) if beyond.size else 0.0


def _beyond_ps(study: Study, spans: Spans, others: Spans) -> Floats:
    begin, end = (np.concatenate(both) for both in zip(spans, others, strict=True))
    return _covered_ps(study, (begin, end)) - _covered_ps(study, others)


def _covered_ps(study: Study, spans: Spans) -> Floats:
    """Picoseconds of each of C periods that at least one of N spans covers, shape (C,)."""
    steps, counted = study.steps, study.summary.counted
    begin, end = spans
    if not begin.size:
        return np.zeros(counted.size)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    opens = np.append(True, begin[1:] > end[:-1])
    first, last = begin[opens], end[np.append(opens[1:], True)]
    # What is covered before each bound, by interpolation between the pieces' ends.
    at = np.stack([first, last], axis=1).ravel()
    sums = np.repeat(np.append(0, np.cumsum(last - first)), 2)[1:-1]
    from_ps = steps.begin_ps[counted]
    to_ps = steps.end_ps[counted] + study.gaps.own_ps[counted]
    covered: Floats = np.interp(to_ps, at, sums, left=0) - np.interp(from_ps, at, sums, left=0)
    return covered
