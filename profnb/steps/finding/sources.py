"""Events to steps, by whatever the trace has that tells them.

A step comes, in this order of trust, from

1. a step marker: a host event with ``_r`` >= 1 or ``step_num`` (the user's own, Keras 2's, or one that
   profnb's capture wrote), or an event of a device's ``Steps`` line;
2. the outermost repeated call of a function: ``tf.function`` calls (marked by the capture or by
   TensorFlow's own ``tf_function_call`` stat), JAX's ``PjitFunction`` calls (the one whose program took
   most time, or where none has most of it the sequence of calls that repeats), session runs; in a TF1
   timeline of several runs the runs, each from its ``_SOURCE`` node to its last one;
3. what an eager loop repeats: the next element of tf.data, or a gradient;
4. nothing: the whole capture is one window, and the report says so.

Functions that alternate (a discriminator's and a generator's update, say) form
one step together.

The official tool takes only markers with ``_r``, so it finds no step in Keras 3's own markers or in a
plain custom loop on a CPU; this module does.

Source: peers' rules in openxla/xla group_events.cc and xprof xplane_to_step_events.cc (a27d00aa).
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from profnb.steps.finding.calls import called_steps, graph_runs
from profnb.steps.finding.epochs import find_epoch_ends
from profnb.steps.finding.loops import eager_steps
from profnb.steps.finding.marked import derived_steps, marked_steps
from profnb.steps.finding.tapes import taped_steps
from profnb.steps.finding.warm_up import find_warm_up
from profnb.steps.windows import WINDOW, Steps
from profnb.trace.model import Trace

_MANY_ONCE, _NEARLY_ALL, _SESSION_RUN = 10, 0.9, "session_run"


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
        marked_steps(trace)
        or derived_steps(trace)
        or called_steps(trace)
        or graph_runs(trace)
        or taped_steps(trace, eager_steps(trace))
        or _window(trace)
    )
    steps = replace(steps, phase=_kinds_of_runs(steps.phase))
    steps = replace(steps, ends_epoch=find_epoch_ends(trace, steps))
    return replace(steps, is_warmup=find_warm_up(trace, steps, warmup_steps))


def _kinds_of_runs(phase: tuple[str, ...]) -> tuple[str, ...]:
    """A phase for each of S steps: of session runs that of their program, unless nearly each has its own.

    There the program makes ops as it goes on (the graph grows), so that no two runs hold the same ones.
    """
    count = Counter(phase)
    once = [number == 1 for number in count.values()]
    is_of_runs = all(name.startswith(_SESSION_RUN) for name in count)
    if not is_of_runs or sum(once) < _MANY_ONCE or sum(once) < _NEARLY_ALL * len(phase):
        return phase
    return (_SESSION_RUN,) * len(phase)


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
        ends_epoch=np.zeros(begin.size, np.bool_),
        step_num=np.zeros(begin.size, np.int64),
        phase=(WINDOW,) * begin.size,
        iterations=np.ones(begin.size, np.int64),
        is_warmup=np.zeros(begin.size, np.bool_),
        first_root=np.zeros(begin.size + 1, np.int64),
        roots=none,
        origin="the whole capture, because no step was found",
    )
