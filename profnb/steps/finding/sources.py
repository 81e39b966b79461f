"""Events to steps, by whatever the trace has that tells them.

A step is the range that was asked for by name. Else it comes, in this order of trust, from

1. a step marker: a host event with ``_r`` >= 1 or ``step_num`` (the user's own, Keras 2's, or one that
   profnb's capture wrote), or an event of a device's ``Steps`` line;
2. a range that the user marked and that repeats (``record_function``, NVTX);
3. the outermost repeated call of a function: ``tf.function`` calls (marked by the capture or by
   TensorFlow's own ``tf_function_call`` stat), JAX's ``PjitFunction`` calls (the one whose program took
   most time, or where none has most of it the sequence of calls that repeats), session runs; in a TF1
   timeline of several runs the runs, each from its ``_SOURCE`` node to its last one;
4. what an eager loop repeats: the next element of tf.data, or a gradient;
5. nothing: the whole capture is one window, and the report says so.

Functions that alternate (a discriminator's and a generator's update, say) form
one step together.

An epoch ends where the program makes a new iterator of tf.data between two steps. A step is warm-up if a
function was traced or compiled in it, or if it behaves like it. Threads start and buffers fill in the first
step after a new iterator of the input is made: where that takes five times the median of its phase or more,
of five steps at least, it is warm-up. So is the first step of a phase that takes 30 times the median,
whatever it did. As many more as were asked for are too.

The official tool takes only markers with ``_r``, so it finds no step in Keras 3's own markers or in a
plain custom loop on a CPU; this module does.

Ranges: ``record_function`` of PyTorch and NVTX are recorded as what they are. XPlane records TensorFlow's
``Trace`` and JAX's ``TraceAnnotation`` like the runtime's own events: there a range is what lies inside of
nothing but ranges on a thread of Python, is no op and no name of the runtime, and has something inside. Step
markers (``StepTraceAnnotation``) are ranges too.

A range that repeats on the thread that holds most of them is a step: ``iteration 0``, ``iteration 1`` are one
range with a number. Where ranges nest (an epoch, its iterations, their forward passes), the step is the
innermost one that still covers nearly all that repeated ranges cover. Where none does, ranges that take turns
(``forward``, ``backward``) make up one step together. A range that is asked for by name is the step,
whatever covers what; so is a call or an op of that name.

Source: peers' rules in openxla/xla group_events.cc and xprof xplane_to_step_events.cc (a27d00aa).
"""

import re
from collections import Counter
from dataclasses import replace

import numpy as np

from profnb.capture.step_records import CALL, SESSION_RUN
from profnb.core.columns import Bools, Int32s, Int64s, flags_at, number_values
from profnb.core.printable import first_of
from profnb.steps.activities import was_compiled_during
from profnb.steps.finding.calls import called_steps, find_phases, graph_runs
from profnb.steps.finding.loops import eager_steps, taped_steps
from profnb.steps.nesting import find_parents
from profnb.steps.streams import covered_ps
from profnb.steps.windows import WINDOW, Steps, outermost
from profnb.trace.model import Trace
from profnb.trace.names import (
    FUNCTION_CALL,
    GRAPH_TYPE,
    IMPLICIT_ROOTS,
    IS_ABANDONED,
    IS_APART,
    ITERATIONS,
    MARKED_BY,
    ROOT_LEVEL,
    STEP_NUM,
    STEPS_LINE,
    USER_RANGE,
)

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
    """Find the events that are ranges which the user marked, ascending."""
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
    for calls in (trace.stats.texts(FUNCTION_CALL), trace.stats.texts(MARKED_BY)):
        may_be[calls.events] = False
    if not may_be.any():
        return np.empty(0, np.int64)
    if parent is None:
        parent = find_parents(trace.events.end_ps, trace.lines.offsets)
    has_children = flags_at(parent, parent.size + 1)[:-1]  # the last: of those without a parent
    return _outside_of_others(may_be & has_children, parent)


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
    times = np.bincount(row, trace.events.duration_ps[ranges], minlength=names.size).tolist()
    counts = np.bincount(row, minlength=names.size).tolist()
    for name, ps, count in zip(names.tolist(), times, counts, strict=True):
        family = family_of(trace.names[name])
        spent[family] += ps
        often[family] += count
    return [family for family, _ in spent.most_common() if often[family] >= _FEWEST_RANGES]


def listed(names: list[str]) -> str:
    """Write names of ranges as code, the first few of many."""
    return first_of([f"`{name[:_LONGEST_NAME]}`" for name in names], _MOST_RANGES_LISTED)


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
    """Take the ranges of a name as the steps; None where nothing on the host has it."""
    wanted = trace.select_names(lambda text: name in (text, family_of(text)))
    roots = outermost(trace, np.flatnonzero(wanted & trace.is_host_event))
    if not roots.size:
        return None
    return Steps.of_roots(trace, roots, (name,) * roots.size, f"{ASKED}{name}")


def ranged_steps(trace: Trace) -> Steps | None:
    """Find steps by ranges that repeat; None where none does."""
    marked = find_ranges(trace) if len(trace.stats.integers(USER_RANGE)) else np.empty(0, np.int64)
    if marked.size < _FEWEST_RANGES:
        return None
    lines = trace.lines.of_event[marked]
    marked = marked[lines == np.bincount(lines, trace.events.duration_ps[marked]).argmax()]
    names, name = np.unique(trace.events.name[marked], return_inverse=True)
    families, rows = number_values(family_of(trace.names[row]) for row in names.tolist())
    family = rows[name]  # of none where no range takes any time
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
    phase = tuple(families[one] for one in anchors.tolist())
    of_roots = dict.fromkeys(family[np.searchsorted(marked, roots)].tolist())
    named = ", ".join(families[one] for one in of_roots)
    return Steps.of_roots(trace, roots, phase, f"ranges that repeat: {named}", first_root)


STEP_MARKERS = "step markers in the trace"  # an origin
_MANY_ONCE, _NEARLY_ALL = 10, 0.9
_NO_NUMBER = np.iinfo(np.int64).min
_LONGEST_NUMBER = 15  # digits of a step's number
_MAKES_ITERATOR = ("MakeIterator", "EagerLocalExecute: MakeIterator")
_FEWEST_STEADY, _SLOW_START, _VERY_SLOW_START = 5, 5, 30


def find_steps(trace: Trace, warmup_steps: int = 0, step_range: str | None = None) -> Steps:
    """Find the steps of a trace.

    Args:
        trace: The trace.
        warmup_steps: How many steps at the start of each phase to count as warm-up besides those
            in which a function was traced or compiled.
        step_range: The name of the range that is a step; None for the first source that has any. Where no
            range has the name, that source counts too.

    Returns:
        The steps; one window over everything if there are none; no row if there are no events.
    """
    steps = (
        (named_steps(trace, step_range) if step_range is not None else None)
        or _marked_steps(trace)
        or _steps_of_device(trace)
        or ranged_steps(trace)
        or called_steps(trace)
        or graph_runs(trace)
        or taped_steps(trace, eager_steps(trace))
        or _window(trace)
    )
    steps = replace(steps, phase=_kinds_of_runs(steps.phase))
    made_ps = _iterators_made(trace, steps)
    steps = replace(steps, ends_epoch=_find_epoch_ends(steps, made_ps))
    return replace(steps, is_warmup=_find_warm_up(trace, steps, made_ps, warmup_steps))


def _marked_steps(trace: Trace) -> Steps | None:
    """Find steps by step markers on the host; None where there is none."""
    numbers, levels = trace.stats.integers(STEP_NUM), trace.stats.integers(ROOT_LEVEL)
    is_marker = np.zeros(len(trace.events), np.bool_)
    is_marker[levels.events[levels.values.astype(np.int64) >= 1]] = True
    is_marker[numbers.events] = True
    is_marker[trace.stats.integers(IS_ABANDONED).events] = False
    sources = trace.stats.texts(MARKED_BY)
    of_calls = [row for row, text in enumerate(sources.texts) if text == CALL]
    is_marker[sources.events[np.isin(sources.values, of_calls)]] = False
    markers = np.flatnonzero(is_marker & trace.is_host_event)
    is_implicit = trace.are_named(markers, lambda name: name in IMPLICIT_ROOTS)
    roots = outermost(trace, markers[~is_implicit])
    if not roots.size:
        return None
    graphs = trace.stats.texts(GRAPH_TYPE)  # what Keras 2.2 to 2.4 called the phase
    names, number = trace.events.name[roots], numbers.of(roots, _NO_NUMBER).astype(np.int64)
    columns = (names.tolist(), number.tolist(), graphs.of(roots).tolist())
    phase = []
    for name, step, graph in zip(*columns, strict=True):
        # Some writers put the step's number behind it: "train 12", "ProfilerStep#12".
        plain = trace.names[name].removesuffix(f" {step}").removesuffix(f"#{step}")
        phase.append((graph >= 0 and graphs.texts[graph]) or plain)
    return replace(
        Steps.of_roots(trace, roots, tuple(phase), STEP_MARKERS),
        step_num=np.where(number == _NO_NUMBER, np.arange(roots.size), number),
        iterations=trace.stats.integers(ITERATIONS).of(roots, 1).astype(np.int64),
        ends_recording=np.append(trace.stats.integers(IS_APART).of(roots, 0)[1:] > 0, False),
    )


def _steps_of_device(trace: Trace) -> Steps | None:
    """Take the ``Steps`` line of the first device plane that has one."""
    is_steps = trace.lines.names.rows_where(lambda name: name == STEPS_LINE)
    for line in np.flatnonzero(trace.is_device_line & is_steps):
        roots = outermost(trace, np.arange(*trace.lines.offsets[line : line + 2]))
        if roots.size:
            names = [trace.names[row] for row in trace.events.name[roots]]
            numbers = [
                int(n) if n.isdecimal() and len(n) <= _LONGEST_NUMBER else row
                for row, n in enumerate(names)
            ]
            phase = ("step",) * roots.size
            steps = Steps.of_roots(trace, roots, phase, "the device's own Steps line")
            return replace(steps, step_num=np.array(numbers, np.int64))
    return None


def _window(trace: Trace) -> Steps:
    none = np.empty(0, np.int64)
    has_events = len(trace.events) > 0
    begin = trace.events.begin_ps.min(keepdims=True) if has_events else none
    end = trace.events.end_ps.max(keepdims=True) if has_events else none
    origin = "the whole capture, because no step was found"
    return Steps.between(begin, end, (WINDOW,) * begin.size, origin)


def _kinds_of_runs(phase: tuple[str, ...]) -> tuple[str, ...]:
    """A phase for each of S steps: of session runs that of their program, unless nearly each has its own.

    There the program makes ops as it goes on (the graph grows), so that no two runs hold the same ones.
    """
    count = Counter(phase)
    once = [number == 1 for number in count.values()]
    is_of_runs = all(name.startswith(SESSION_RUN) for name in count)
    if not is_of_runs or sum(once) < _MANY_ONCE or sum(once) < _NEARLY_ALL * len(phase):
        return phase
    return (SESSION_RUN,) * len(phase)


def _iterators_made(trace: Trace, steps: Steps) -> Int64s:
    """Find when the thread of the steps made iterators, in time order; never without steps of a thread.

    Python's ``for`` over a dataset makes one each time it begins, and so does Keras for each epoch and each
    validation.
    """
    if not steps.roots.size:
        return np.empty(0, np.int64)
    making = np.flatnonzero(trace.select_named(*_MAKES_ITERATOR))
    line = trace.lines.of_event[steps.roots[0]]
    is_own: Bools = trace.is_host_event[making] & (trace.lines.of_event[making] == line)
    return trace.events.begin_ps[making[is_own]]


def _find_epoch_ends(steps: Steps, made_ps: Int64s) -> Bools:
    """Mark the steps after which a new iterator is made before the next one begins, shape (S,)."""
    ends = np.zeros(len(steps), np.bool_)
    row = np.searchsorted(steps.host_begin_ps, made_ps, side="right") - 1
    inside = (row >= 0) & (row < len(steps) - 1)
    row, made_ps = row[inside], made_ps[inside]
    ends[row[made_ps >= steps.host_end_ps[row]]] = True
    return ends


def _find_warm_up(trace: Trace, steps: Steps, made_ps: Int64s, warmup_steps: int) -> Bools:
    """Mark the steps that averages leave out, shape (S,)."""
    if steps.is_window:
        return np.zeros(len(steps), np.bool_)
    flags = was_compiled_during(trace, steps.begin_ps, steps.end_ps)
    makes_iterator_first = bool((made_ps < steps.host_begin_ps[:1]).any())
    has_new_iterator = np.append(makes_iterator_first, steps.ends_epoch[:-1])
    for rows in steps.rows_by_phase.values():
        flags[rows[:warmup_steps]] = True
        steady = rows[~flags[rows]]
        if steady.size < _FEWEST_STEADY:
            continue
        duration = steps.duration_ps[steady]
        usual = np.median(duration)
        flags[steady[(duration >= _SLOW_START * usual) & has_new_iterator[steady]]] = True
        flags[rows[0]] |= steps.duration_ps[rows[0]] >= _VERY_SLOW_START * usual
    return flags
