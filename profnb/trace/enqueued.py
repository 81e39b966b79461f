"""Programs of TPUs: which call of the host enqueued each, and the clock that they are recorded by.

Call and run carry the same ``run_id`` of the same device. A TPU's clock is set by the host's, not exactly: by
it a program may run before it was enqueued. Then the whole device is placed as much later as it takes for no
program to do so, which is said; how long things took stays as it was.
"""

from dataclasses import replace

import numpy as np

from profnb.core.columns import Bools, Int64s, match
from profnb.core.units import duration_text
from profnb.trace.model import Events, Trace
from profnb.trace.names import DEVICE_ORDINAL, RUN_ID, XLA_MODULES_LINE

_ENQUEUES = "DoEnqueueProgram"
_MOST_PS = 10**12  # a clock that is further off is no clock
KeyedEvents = tuple[Int64s, tuple[Int64s, Int64s]]


def find_enqueued(trace: Trace) -> tuple[KeyedEvents, KeyedEvents]:
    """Find the calls that enqueue programs of TPUs, and the programs' runs.

    Returns:
        Of both the events, and the run and the device of each, all of shape (N,).
    """
    runs, ordinals = trace.stats.integers(RUN_ID), trace.stats.integers(DEVICE_ORDINAL)
    calls, in_runs, in_ordinals = match(runs.events, ordinals.events)
    key = runs.values[in_runs].astype(np.int64), ordinals.values[in_ordinals].astype(np.int64)
    is_call = trace.are_named(calls, lambda name: name == _ENQUEUES)
    is_run = is_program(trace, runs.events)
    programs = runs.events[is_run]
    tails = [plane.name.rpartition(":")[2] for plane in trace.planes]
    number = [int(tail) if tail.isdecimal() and len(tail) < 10 else -1 for tail in tails]
    device = np.array(number, np.int64)[trace.lines.plane[trace.lines.of_event[programs]]]
    return (
        (calls[is_call], (key[0][is_call], key[1][is_call])),
        (programs, (runs.values[is_run].astype(np.int64), device)),
    )


def is_program(trace: Trace, events: Int64s) -> Bools:
    """Flag those of some events that are the run of a whole program on a TPU, shape (N,)."""
    is_modules = trace.lines.names.rows_where(lambda name: name == XLA_MODULES_LINE)
    lines = trace.lines.of_event[events]
    return np.asarray(is_modules[lines] & trace.is_device_line[lines])


def align_clocks(trace: Trace) -> Trace:
    """Give the trace with each TPU as much later as it takes for no program to begin before it was enqueued.

    Programs that were enqueued at 100 and 200 us and began at 70 and 190 are 30 us early: what the device ran
    is shown 30 us later, from 100 and from 220 us on.
    """
    if not any(plane.is_device and "TPU" in plane.name for plane in trace.planes):
        return trace
    (calls, call_keys), (programs, keys) = find_enqueued(trace)
    begin_ps, of_line = trace.events.begin_ps, trace.lines.of_event
    enqueued, began = (zip(*map(np.ndarray.tolist, one), strict=True) for one in (call_keys, keys))
    call_of = dict(zip(enqueued, begin_ps[calls].tolist(), strict=True))
    plane = trace.lines.plane[of_line[programs]].tolist()
    early: dict[int, int] = {}
    for key, number, begin in zip(began, plane, begin_ps[programs].tolist(), strict=True):
        early[number] = max(early.get(number, 0), call_of.get(key, begin) - begin)
    early = {number: by for number, by in early.items() if 0 < by < _MOST_PS}
    if not early:
        return trace
    later = np.zeros(len(trace.planes), np.int64)
    later[list(early)] = list(early.values())
    shifts = "; ".join(
        f"{trace.planes[number].name} is shown {duration_text(by)} later than recorded"
        for number, by in list(early.items())[:4]
    )
    note = f"By the TPU's clock programs ran before the host enqueued any, so {shifts}."
    begin_ps = begin_ps + later[trace.lines.plane[of_line]]
    events = Events(trace.events.name, begin_ps, trace.events.duration_ps)
    return replace(trace, events=events, left_out=(*trace.left_out, note))
