"""Ranges that the user marked to steps: ``record_function`` of PyTorch, NVTX.

A range that repeats on the thread that holds most of them is a step: ``iteration 0``, ``iteration 1`` are one
range with a number. Where ranges nest (an epoch, its iterations, their forward passes), the step is the
innermost one that still covers nearly all that repeated ranges cover. Where none does, ranges that take turns
(``forward``, ``backward``) make up one step together.
"""

import re

import numpy as np

from profnb.steps.finding.calls import find_phases
from profnb.steps.streams import covered_ps
from profnb.steps.windows import Steps, outermost
from profnb.trace.model import Trace
from profnb.trace.names import USER_RANGE

_NEARLY_ALL = 0.8  # of the time that repeated ranges cover
_FEWEST = 3
_NUMBER = re.compile(r"[\s_#:=(\[-]{0,20}\d{1,15}[)\]]?$")


def ranged_steps(trace: Trace) -> Steps | None:
    """Find steps by ranges that repeat; None where none does.

    Args:
        trace: The trace.
    """
    marked = trace.stats.integers(USER_RANGE).events
    marked = marked[trace.is_host_event[marked]]
    if marked.size < _FEWEST:
        return None
    lines = trace.lines.of_event[marked]
    marked = marked[lines == np.bincount(lines, trace.events.duration_ps[marked]).argmax()]
    names, name = np.unique(trace.events.name[marked], return_inverse=True)
    titles: dict[str, int] = {}
    texts = [trace.names[row] for row in names.tolist()]
    family = np.array([titles.setdefault(_NUMBER.sub("", t) or t, len(titles)) for t in texts])[
        name
    ]
    repeats = np.bincount(family) >= _FEWEST
    marked, family = marked[repeats[family]], family[repeats[family]]
    if not marked.size:
        return None
    begin, end = trace.events.begin_ps, trace.events.end_ps
    whole = covered_ps(begin[marked], end[marked])
    chosen = [
        events
        for one in np.unique(family).tolist()
        if (events := outermost(trace, marked[family == one])).size >= _FEWEST
        and covered_ps(begin[events], end[events]) >= _NEARLY_ALL * whole
    ]
    if chosen:
        roots = max(chosen, key=lambda events: events.size)
        first_root = None
        anchors = family[np.searchsorted(marked, roots)]
    else:
        outer = outermost(trace, marked)
        outer_family = family[np.searchsorted(marked, outer)]
        turns = find_phases(outer_family, begin[outer], end[outer])
        if turns.anchor.size < _FEWEST:
            return None
        roots, first_root, anchors = outer[turns.roots], turns.first_root, turns.anchor
    listed = list(titles)
    phase = tuple(listed[one] for one in anchors.tolist())
    named = ", ".join(
        dict.fromkeys(listed[one] for one in family[np.searchsorted(marked, roots)].tolist())
    )
    return Steps.of_roots(trace, roots, phase, f"ranges that repeat: {named}", first_root)
