"""Ranges that the user marked, and those that are steps.

``record_function`` of PyTorch and NVTX are recorded as what they are. XPlane records TensorFlow's ``Trace``
and JAX's ``TraceAnnotation`` like the runtime's own events: there a range is what lies inside of nothing but
ranges on a thread of Python, is no op and no name of the runtime, and has something inside. Step markers
(``StepTraceAnnotation``) are ranges too.

A range that repeats on the thread that holds most of them is a step: ``iteration 0``, ``iteration 1`` are one
range with a number. Where ranges nest (an epoch, its iterations, their forward passes), the step is the
innermost one that still covers nearly all that repeated ranges cover. Where none does, ranges that take turns
(``forward``, ``backward``) make up one step together. A range that is asked for by name is the step,
whatever covers what; so is a call or an op of that name.
"""

import re
from collections import Counter

import numpy as np

from profnb.core.columns import Bools, Int32s, Int64s
from profnb.steps.finding.calls import find_phases
from profnb.steps.nesting import find_parents
from profnb.steps.streams import covered_ps
from profnb.steps.windows import Steps, outermost
from profnb.trace.model import Trace
from profnb.trace.names import FUNCTION_CALL, MARKER_SOURCE, STEP_NUM, USER_RANGE

ASKED = "the range that was asked for: "  # how such an origin begins
_MOST_OF_TIME = 0.8  # of the time that repeated ranges cover
_FEWEST_RANGES = 3
_MOST_RANGES_LISTED, _LONGEST_NAME = 8, 60
_LAST_NUMBER = re.compile(r"[\s_#:=-]{0,20}(\d{1,15}|\(\d{1,15}\)|\[\d{1,15}\])$")
_PYTHON_THREADS = ("python", "main/", "Host Threads", "MainThread")
# What TensorFlow and JAX record on a thread of Python by names that are no words of a program.
_OF_RUNTIME = re.compile(
    r"::|:|\(|^\$|^end: |^(TFE_|PJRT_|cu[A-Z]|cuda[A-Z]|hip[A-Z]|profnb)|^([A-Z]+[a-z0-9]+){2,}"
    r"|^(convert_to_tensor|tf\.constant|shard_args|multi_step_on_iterator|DevicePut|Wait for \w+ holds)$"
    r"|^(TraceContext|ProfilerStep)"  # step markers of Keras 2 and PyTorch
    r"|^tf\.function-"
)


def family_of(name: str) -> str:
    """Give a range's name without the number that its program put behind it."""
    return _LAST_NUMBER.sub("", name) or name


def find_ranges(trace: Trace, parent: Int32s | None = None) -> Int64s:
    """Find the events that are ranges which the user marked, ascending.

    Args:
        trace: The trace.
        parent: The parent of each event on its line, if it is known already, shape (E,).
    """
    marked = trace.stats.integers(USER_RANGE).events
    if marked.size:
        return np.asarray(marked[trace.is_host_event[marked]])
    is_python = trace.lines.names.rows_where(lambda name: name.startswith(_PYTHON_THREADS))
    is_plain = trace.names.rows_where(lambda name: _OF_RUNTIME.search(name) is None)
    if trace.is_op_name is not None:
        is_plain &= ~trace.is_op_name
    may_be = trace.lines.spread(is_python & trace.is_host_line)
    may_be[trace.stats.integers(STEP_NUM).events] = True
    may_be &= trace.by_name(is_plain) & trace.is_host_event
    for calls in (trace.stats.texts(FUNCTION_CALL), trace.stats.texts(MARKER_SOURCE)):
        may_be[calls.events] = False
    if not may_be.any():
        return np.empty(0, np.int64)
    if parent is None:
        parent = find_parents(trace.events.end_ps, trace.lines.offsets)
    return _outside_of_others(may_be & _has_children(parent), parent)


def _has_children(parent: Int32s) -> Bools:
    has = np.zeros(parent.size + 1, np.bool_)
    has[parent] = True  # the last one: of those without a parent
    return has[:-1]


def _outside_of_others(may_be: Bools, parent: Int32s) -> Int64s:
    """Keep the events that lie inside of nothing but one another."""
    events = np.flatnonzero(may_be)
    while True:
        owner = parent[events]
        is_kept = (owner < 0) | may_be[owner]
        if is_kept.all():
            return events
        may_be[events[~is_kept]] = False
        events = events[is_kept]


def repeated_ranges(trace: Trace, ranges: Int64s) -> list[str]:
    """The names of ranges that repeat, without their numbers, most time first."""
    spent: Counter[str] = Counter()
    often: Counter[str] = Counter()
    names, row = np.unique(trace.events.name[ranges], return_inverse=True)
    time = np.bincount(row, trace.events.duration_ps[ranges], minlength=names.size)
    for name, ps, count in zip(
        names.tolist(), time.tolist(), np.bincount(row, minlength=names.size).tolist(), strict=True
    ):
        family = family_of(trace.names[name])
        spent[family] += ps
        often[family] += count
    return [family for family, _ in spent.most_common() if often[family] >= _FEWEST_RANGES]


def listed(names: list[str]) -> str:
    """Write names of ranges as code, the first few of many."""
    more = len(names) - _MOST_RANGES_LISTED
    shown = ", ".join(f"`{name[:_LONGEST_NAME]}`" for name in names[:_MOST_RANGES_LISTED])
    return shown + (f" and {more:,} more" if more > 0 else "")


def check_range(trace: Trace, name: str) -> None:
    """Refuse a name that nothing on the host has.

    Raises:
        ValueError: There is none; the message names the ranges that repeat.
    """
    if named_steps(trace, name) is not None:
        return
    names = repeated_ranges(trace, find_ranges(trace))
    there = f"these repeat: {listed(names)}" if names else "no range repeats in it"
    raise ValueError(f"{trace.source} has no range {name[:_LONGEST_NAME]!r}; {there}.")


def named_steps(trace: Trace, name: str) -> Steps | None:
    """Take the ranges of a name as the steps; None where nothing on the host has it.

    Args:
        trace: The trace.
        name: The name, with or without the number that is behind it.
    """
    wanted = trace.select_names(lambda text: name in (text, family_of(text)))
    roots = outermost(trace, np.flatnonzero(wanted & trace.is_host_event))
    if not roots.size:
        return None
    return Steps.of_roots(trace, roots, (name,) * roots.size, f"{ASKED}{name}")


def ranged_steps(trace: Trace) -> Steps | None:
    """Find steps by ranges that repeat; None where none does.

    Args:
        trace: The trace.
    """
    marked = find_ranges(trace) if len(trace.stats.integers(USER_RANGE)) else np.empty(0, np.int64)
    if marked.size < _FEWEST_RANGES:
        return None
    lines = trace.lines.of_event[marked]
    marked = marked[lines == np.bincount(lines, trace.events.duration_ps[marked]).argmax()]
    names, name = np.unique(trace.events.name[marked], return_inverse=True)
    titles: dict[str, int] = {}
    texts = [trace.names[row] for row in names.tolist()]
    rows = [titles.setdefault(family_of(t), len(titles)) for t in texts]
    family = np.array(rows, np.int64)[name]  # of none where no range takes any time
    repeats = np.bincount(family) >= _FEWEST_RANGES
    marked, family = marked[repeats[family]], family[repeats[family]]
    if not marked.size:
        return None
    begin, end = trace.events.begin_ps, trace.events.end_ps
    whole = covered_ps(begin[marked], end[marked])
    chosen = [
        events
        for one in np.unique(family).tolist()
        if (events := outermost(trace, marked[family == one])).size >= _FEWEST_RANGES
        and covered_ps(begin[events], end[events]) >= _MOST_OF_TIME * whole
    ]
    if chosen:
        roots = max(chosen, key=lambda events: events.size)
        first_root = None
        anchors = family[np.searchsorted(marked, roots)]
    else:
        outer = outermost(trace, marked)
        outer_family = family[np.searchsorted(marked, outer)]
        turns = find_phases(outer_family, begin[outer], end[outer])
        if turns.anchor.size < _FEWEST_RANGES:
            return None
        roots, first_root, anchors = outer[turns.roots], turns.first_root, turns.anchor
    families = list(titles)
    phase = tuple(families[one] for one in anchors.tolist())
    named = ", ".join(
        dict.fromkeys(families[one] for one in family[np.searchsorted(marked, roots)].tolist())
    )
    return Steps.of_roots(trace, roots, phase, f"ranges that repeat: {named}", first_root)
