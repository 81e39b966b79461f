"""Real runs by made times: all that their traces tell but how long it took."""

from dataclasses import replace

import numpy as np

from profnb.subjects.study import Study

PLANTED, PLANTED_MS = "planted", 30
MOMENT_PS, MS = 1_000_000, 1_000_000_000


def plant(clock, annotation):
    """Let 30 ms pass on a clock of the test's, and have an annotation of the profiler's say where."""
    with annotation(PLANTED):
        clock.work(PLANTED_MS)


def by_made_times(profile, **lasting_ms):
    """The study of a real run in which 30 ms pass as each planted wait ends, and as each event of ``lasting_ms`` ends what it says.

    From any other moment of which the trace tells to the next 1 us passes. What is computed on other threads was
    done as a planted wait began, whenever they came to say so.
    """
    trace = profile.trace
    begin, end, line = trace.events.begin_ps, trace.events.end_ps.copy(), trace.lines.of_event
    waits = np.flatnonzero(trace.select_named(PLANTED))
    for wait in waits:
        late = (line != line[wait]) & (begin < end[wait]) & (end >= end[wait])
        end[late] = np.maximum(begin[late], begin[wait])
    moments = np.unique(np.concatenate([begin, end]))
    took = np.full(moments.size, MOMENT_PS)
    for name, ms in {PLANTED: PLANTED_MS, **lasting_ms}.items():
        took[np.searchsorted(moments, end[trace.select_named(name)]) - 1] = ms * MS
    at = np.cumsum(took) - took
    begins, ends = (at[np.searchsorted(moments, times)] for times in (begin, end))
    ends[waits] = begins[waits]  # an annotation is nothing that computes
    return Study(replace(trace, events=replace(trace.events, begin_ps=begins, duration_ps=ends - begins)), 0, profile.recording)
