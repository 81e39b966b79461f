"""Events to steps: the windows that training iterations occupy, in order.

A step comes, in this order of trust, from

1. a step marker: a host event with ``_r`` >= 1 or ``step_num`` (the user's own, Keras 2's, or one that
   profnb's capture wrote), or an event of a device's ``Steps`` line;
2. the outermost repeated call of a function: ``tf.function`` calls (marked by the capture or by
   TensorFlow's own ``tf_function_call`` stat), JAX's ``PjitFunction`` calls (the one whose program took
   most time, or where none has most of it the sequence of calls that repeats), session runs; in a TF1
   timeline of several runs the runs, each from its ``_SOURCE`` node to its last one;
3. nothing: the whole capture is one window, and the report says so.

Steps never overlap. Functions that alternate (a discriminator's and a generator's update, say) form
one step together.

The official tool takes only markers with ``_r``, so it finds no step in Keras 3's own markers or in a
plain custom loop on a CPU; this module does.

Source: peers' rules in openxla/xla group_events.cc and xprof xplane_to_step_events.cc (a27d00aa).
"""

from dataclasses import dataclass, replace

import numpy as np

from profnb.capture.step_records import CALL
from profnb.core.columns import Bools, Int64s
from profnb.steps.compilation import was_compiled_during
from profnb.steps.cycles import find_sequence, pick_cycle
from profnb.tf1.timeline_runs import find_graph_runs
from profnb.trace.model import Trace
from profnb.trace.names import (
    FUNCTION_CALL,
    GRAPH_TYPE,
    HLO_MODULE,
    IMPLICIT_ROOTS,
    IS_ABANDONED,
    ITERATIONS,
    MARKER_SOURCE,
    ROOT_LEVEL,
    STEP_NUM,
    STEPS_LINE,
)

__all__ = ["WINDOW", "Steps", "find_steps"]


WINDOW = "window"
_LONGEST_NUMBER = 15  # digits of a step's number
_CARRIES = 0.75  # of the work: whose call has that much makes the steps
_CALL_PREFIXES = ("PjitFunction(", "SessionRun")


@dataclass(frozen=True, slots=True)
class Steps:
    """S steps in time order, not overlapping.

    Attributes:
        begin_ps: Begins, shape (S,).
        end_ps: Ends (exclusive), shape (S,).
        step_num: The numbers the program gave them, or their order, shape (S,).
        phase: What each step did: "train", "test", "predict", a function's name, or "window".
        iterations: Iterations in one step (Keras' steps_per_execution), shape (S,).
        is_warmup: Whether a function was traced or compiled in it, or it was asked to be left out
            of averages, shape (S,).
        first_root: Where each step's root events begin in ``roots``, shape (S + 1,).
        roots: The events that delimit the steps: markers or calls. Empty for a window.
        origin: In words, how the steps were found.
        host_begin_ps: Begins on the host, which may run ahead of the device, shape (S,).
        host_end_ps: Ends on the host, shape (S,).
        steps_ahead: How many later steps the host has begun, in the median, when the device finishes one.
    """

    begin_ps: Int64s
    end_ps: Int64s
    step_num: Int64s
    phase: tuple[str, ...]
    iterations: Int64s
    is_warmup: Bools
    first_root: Int64s
    roots: Int64s
    origin: str
    host_begin_ps: Int64s
    host_end_ps: Int64s
    steps_ahead: int = 0

    def __len__(self) -> int:
        return self.begin_ps.size

    @property
    def duration_ps(self) -> Int64s:
        """Duration of each step, shape (S,)."""
        return self.end_ps - self.begin_ps

    @property
    def gap_ps(self) -> Int64s:
        """From each step's end to the next one's begin, shape (S,); -1 for the last (not known)."""
        gaps = np.full(len(self), -1, np.int64)
        gaps[:-1] = self.begin_ps[1:] - self.end_ps[:-1]
        return gaps

    @property
    def is_window(self) -> bool:
        """Whether no step was found and the one row is the whole capture."""
        return self.phase == (WINDOW,)

    @property
    def main_phase(self) -> str | None:
        """The phase an average speaks of: training if there is any, else the longest."""
        if not len(self):
            return None
        if "train" in self.phase:
            return "train"
        totals: dict[str, int] = {}
        for phase, duration in zip(self.phase, self.duration_ps.tolist(), strict=True):
            totals[phase] = totals.get(phase, 0) + duration
        return max(totals, key=lambda phase: totals[phase])

    def rows_of(self, phase: str | None, *, warm_up: bool = False) -> Int64s:
        """The steps of a phase, warm-up steps left out unless asked for."""
        rows = [
            row
            for row, own in enumerate(self.phase)
            if own == phase and (warm_up or not self.is_warmup[row])
        ]
        return np.array(rows, np.int64)


def find_steps(trace: Trace, warmup_steps: int = 0) -> Steps:
    """Find the steps of a trace.

    Args:
        trace: The trace.
        warmup_steps: How many steps at the start of each phase to count as warm-up besides those
            in which a function was traced or compiled.

    Returns:
        The steps; one window over everything if there are none; no row if there are no events.
    """
    steps = (
        _marked_steps(trace)
        or _derived_steps(trace)
        or _called_steps(trace)
        or _graph_runs(trace)
        or _window(trace)
    )
    return replace(steps, is_warmup=_find_warm_up(trace, steps, warmup_steps))


def _make(
    trace: Trace, roots: Int64s, first_root: Int64s, phase: tuple[str, ...], origin: str
) -> Steps:
    """Steps that begin with their first root and end with the end of their last."""
    count = first_root.size - 1
    begin_ps = trace.events.begin_ps[roots[first_root[:-1]]]
    end_ps = trace.events.end_ps[roots[first_root[1:] - 1]]
    return Steps(
        begin_ps=begin_ps,
        end_ps=end_ps,
        host_begin_ps=begin_ps,
        host_end_ps=end_ps,
        step_num=np.arange(count),
        phase=phase,
        iterations=np.ones(count, np.int64),
        is_warmup=np.zeros(count, np.bool_),
        first_root=first_root,
        roots=roots,
        origin=origin,
    )


def _host_events_with(trace: Trace, stat: str) -> dict[int, int]:
    column = trace.stats.integers(stat)
    return dict(zip(column.events.tolist(), column.values.tolist(), strict=True))


def _texts_of(trace: Trace, stat: str) -> dict[int, str]:
    column = trace.stats.texts(stat)
    pairs = zip(column.events.tolist(), column.values.tolist(), strict=True)
    return {event: column.texts[value] for event, value in pairs}


def _outermost(trace: Trace, events: Int64s) -> Int64s:
    """In time order, of the line that holds most of their time, those not inside an earlier one."""
    if not events.size:
        return events
    lines = trace.lines.of_event[events]
    totals = np.bincount(lines, trace.events.duration_ps[events].astype(np.float64))
    events = events[lines == totals.argmax()]
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    is_outer = np.append(True, begin[1:] >= np.maximum.accumulate(end)[:-1])
    if (end <= end[is_outer][np.cumsum(is_outer) - 1]).all():
        return np.asarray(events[is_outer])
    kept, covered_until = [], np.iinfo(np.int64).min  # some only partly overlap an earlier one
    for row in range(events.size):
        if begin[row] >= covered_until:
            kept.append(row)
            covered_until = end[row]
    return events[kept]


def _marked_steps(trace: Trace) -> Steps | None:
    numbers = _host_events_with(trace, STEP_NUM)
    levels = trace.stats.integers(ROOT_LEVEL)
    roots = levels.events[levels.values.astype(np.int64) >= 1]
    is_marker = np.zeros(len(trace.events), np.bool_)
    is_marker[roots] = True
    is_marker[list(numbers)] = True
    is_marker[trace.stats.integers(IS_ABANDONED).events] = False
    sources = _texts_of(trace, MARKER_SOURCE)
    is_marker[[event for event, source in sources.items() if source == CALL]] = False
    markers = np.flatnonzero(is_marker)
    implicit = trace.names.rows_where(lambda name: name in IMPLICIT_ROOTS)
    on_host = trace.is_host_line[trace.lines.of_event[markers]]
    roots = _outermost(trace, markers[on_host & ~implicit[trace.events.name[markers]]])
    if not roots.size:
        return None
    graphs = _texts_of(trace, GRAPH_TYPE)  # what Keras 2.2 to 2.4 called the phase
    phase = tuple(
        graphs.get(event)
        or _without_number(trace.names[trace.events.name[event]], numbers.get(event))
        for event in roots.tolist()
    )
    steps = _make(trace, roots, np.arange(roots.size + 1), phase, "step markers in the trace")
    iterations = _host_events_with(trace, ITERATIONS)
    return replace(
        steps,
        step_num=np.array([numbers.get(m, row) for row, m in enumerate(roots.tolist())], np.int64),
        iterations=np.array([iterations.get(m, 1) for m in roots.tolist()], np.int64),
    )


def _without_number(name: str, number: int | None) -> str:
    """The phase; some writers put the step's number behind it: "train 12", "ProfilerStep#12"."""
    return name.removesuffix(f" {number}").removesuffix(f"#{number}")


def _derived_steps(trace: Trace) -> Steps | None:
    """The ``Steps`` line of the first device plane that has one."""
    is_steps = trace.lines.names.rows_where(lambda name: name == STEPS_LINE)
    for line in np.flatnonzero(trace.is_device_line & is_steps):
        events = np.arange(trace.lines.offsets[line], trace.lines.offsets[line + 1])
        roots = _outermost(trace, events)
        if roots.size:
            names = [trace.names[row] for row in trace.events.name[roots]]
            steps = _make(
                trace, roots, np.arange(roots.size + 1), ("step",) * roots.size,
                "the device's own Steps line",
            )  # fmt: skip
            numbers = [
                int(n) if n.isdecimal() and len(n) <= _LONGEST_NUMBER else row
                for row, n in enumerate(names)
            ]
            return replace(steps, step_num=np.array(numbers, np.int64))
    return None


def _called_steps(trace: Trace) -> Steps | None:
    calls = trace.stats.texts(FUNCTION_CALL).events
    is_named = not calls.size
    if is_named:
        named = trace.select_names(lambda name: name.startswith(_CALL_PREFIXES))
        calls = np.flatnonzero(named & trace.is_host_event)
    calls = _outermost(trace, calls)
    names, codes = np.unique(trace.events.name[calls], return_inverse=True)
    work = _work_of_calls(trace, names.astype(np.int64), codes) if is_named else None
    weights = trace.events.duration_ps[calls] if work is None else work
    roots, first_root, anchor = pick_cycle(codes, weights)
    carries = weights[codes == anchor].sum() >= _CARRIES * weights.sum()
    length = find_sequence(codes) if is_named and not carries else 0
    if length:
        turns = np.arange(0, calls.size + 1, length)
        return _make(
            trace, calls[: turns[-1]], turns, ("step",) * (turns.size - 1),
            f"a sequence of {length} calls that repeats",
        )  # fmt: skip
    if not roots.size:
        return None
    name = trace.names[names[anchor]]
    phase = (name,) * (first_root.size - 1)
    return _make(trace, calls[roots], first_root, phase, f"repeated calls of {name}")


def _work_of_calls(trace: Trace, names: Int64s, codes: Int64s) -> Int64s | None:
    """Time of what N calls of JAX's functions set going, shared out evenly among the calls of a function.

    A call returns before its program ran, and may wait for that of another. What the programs took is in the
    events that name them (``jit_train_step``).

    Args:
        trace: The trace.
        names: The names of the functions' calls, shape (F,).
        codes: Which of them each call is, shape (N,).

    Returns:
        Shape (N,), picoseconds; None where no event names a program of one of the functions.
    """
    modules = trace.stats.texts(HLO_MODULE)
    if not len(modules):
        return None
    spent = np.zeros(len(modules.texts), np.int64)
    np.add.at(spent, modules.values.astype(np.int64), trace.events.duration_ps[modules.events])
    of_module = dict(zip(modules.texts, spent.tolist(), strict=True))
    functions = [trace.names[name].partition("(")[2].removesuffix(")") for name in names.tolist()]
    work = np.array([of_module.get(f"jit_{function}", 0) for function in functions], np.int64)
    if not work.any():
        return None
    return (work // np.maximum(np.bincount(codes, minlength=names.size), 1))[codes]


def _graph_runs(trace: Trace) -> Steps | None:
    """The session runs of a TF1 timeline."""
    runs = find_graph_runs(trace)
    if runs is None:
        return None
    count = runs.begin_ps.size
    return Steps(
        begin_ps=runs.begin_ps,
        end_ps=runs.end_ps,
        host_begin_ps=runs.begin_ps,
        host_end_ps=runs.end_ps,
        step_num=np.arange(count),
        phase=runs.program,
        iterations=np.ones(count, np.int64),
        is_warmup=np.zeros(count, np.bool_),
        first_root=np.zeros(count + 1, np.int64),
        roots=np.empty(0, np.int64),
        origin="session runs, each begun by its _SOURCE node",
    )


def _window(trace: Trace) -> Steps:
    none = np.empty(0, np.int64)
    has_events = len(trace.events) > 0
    begin = trace.events.begin_ps.min(keepdims=True) if has_events else none
    end = trace.events.end_ps.max(keepdims=True) if has_events else none
    return Steps(
        begin_ps=begin,
        end_ps=end,
        host_begin_ps=begin,
        host_end_ps=end,
        step_num=np.zeros(begin.size, np.int64),
        phase=(WINDOW,) * begin.size,
        iterations=np.ones(begin.size, np.int64),
        is_warmup=np.zeros(begin.size, np.bool_),
        first_root=np.zeros(begin.size + 1, np.int64),
        roots=none,
        origin="the whole capture, because no step was found",
    )


def _find_warm_up(trace: Trace, steps: Steps, warmup_steps: int) -> Bools:
    if steps.is_window:
        return np.zeros(len(steps), np.bool_)
    flags = was_compiled_during(trace, steps.begin_ps, steps.end_ps)
    for phase in set(steps.phase):
        flags[steps.rows_of(phase, warm_up=True)[:warmup_steps]] = True
    return flags
