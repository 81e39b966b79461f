"""Events to steps that somebody marked: the program, the capture, or the profiler of a device."""

from dataclasses import replace

import numpy as np

from profnb.capture.step_records import CALL
from profnb.steps.windows import Steps, make_steps, outermost
from profnb.trace.model import Trace
from profnb.trace.names import (
    GRAPH_TYPE,
    IMPLICIT_ROOTS,
    IS_ABANDONED,
    ITERATIONS,
    MARKER_SOURCE,
    ROOT_LEVEL,
    STEP_NUM,
    STEPS_LINE,
)

_LONGEST_NUMBER = 15  # digits of a step's number


def _host_events_with(trace: Trace, stat: str) -> dict[int, int]:
    column = trace.stats.integers(stat)
    return dict(zip(column.events.tolist(), column.values.tolist(), strict=True))


def _texts_of(trace: Trace, stat: str) -> dict[int, str]:
    column = trace.stats.texts(stat)
    pairs = zip(column.events.tolist(), column.values.tolist(), strict=True)
    return {event: column.texts[value] for event, value in pairs}


def marked_steps(trace: Trace) -> Steps | None:
    """Steps by step markers on the host; None where there is none."""
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
    roots = outermost(trace, markers[on_host & ~implicit[trace.events.name[markers]]])
    if not roots.size:
        return None
    graphs = _texts_of(trace, GRAPH_TYPE)  # what Keras 2.2 to 2.4 called the phase
    phase = tuple(
        graphs.get(event)
        or _without_number(trace.names[trace.events.name[event]], numbers.get(event))
        for event in roots.tolist()
    )
    steps = make_steps(trace, roots, np.arange(roots.size + 1), phase, "step markers in the trace")
    iterations = _host_events_with(trace, ITERATIONS)
    return replace(
        steps,
        step_num=np.array([numbers.get(m, row) for row, m in enumerate(roots.tolist())], np.int64),
        iterations=np.array([iterations.get(m, 1) for m in roots.tolist()], np.int64),
    )


def _without_number(name: str, number: int | None) -> str:
    """The phase; some writers put the step's number behind it: "train 12", "ProfilerStep#12"."""
    return name.removesuffix(f" {number}").removesuffix(f"#{number}")


def derived_steps(trace: Trace) -> Steps | None:
    """The ``Steps`` line of the first device plane that has one."""
    is_steps = trace.lines.names.rows_where(lambda name: name == STEPS_LINE)
    for line in np.flatnonzero(trace.is_device_line & is_steps):
        events = np.arange(trace.lines.offsets[line], trace.lines.offsets[line + 1])
        roots = outermost(trace, events)
        if roots.size:
            names = [trace.names[row] for row in trace.events.name[roots]]
            steps = make_steps(
                trace, roots, np.arange(roots.size + 1), ("step",) * roots.size,
                "the device's own Steps line",
            )  # fmt: skip
            numbers = [
                int(n) if n.isdecimal() and len(n) <= _LONGEST_NUMBER else row
                for row, n in enumerate(names)
            ]
            return replace(steps, step_num=np.array(numbers, np.int64))
    return None
