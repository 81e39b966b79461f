"""Sentences on steps whose work, or whose thread, was not recorded, and on a capture without steps."""

import numpy as np

from profnb.capture.recording import NOT_ENDED
from profnb.core.printable import first_of
from profnb.core.units import bytes_text, count_text, counted_text, duration_text, percent_text
from profnb.steps.windows import outermost
from profnb.subjects.memory.allocators import ALLOCATOR_EVENTS
from profnb.subjects.study import Study
from profnb.trace.names import FUNCTION_CALL

_OUR_CLOCK = "profnb.clock"
_MOST_CALLS = 3


def has_thread(study: Study) -> bool:
    """Tell whether the thread of the steps was recorded: not where a device's line of steps is all there is.

    Of a window it was where a capture of ours watched the code.
    """
    if study.steps.is_window:
        return study.recording.wall_ns > 0
    roots = study.steps.roots
    return bool(roots.size and study.trace.is_host_event[roots[0]])


def nothing_ran(study: Study) -> bool:
    """Tell whether code was captured to its end and TensorFlow did not even make a tensor in it."""
    if not study.steps.is_window or not study.recording.wall_ns or study.recording.closed_by:
        return False
    return all(study.trace.names[row] == _OUR_CLOCK for row in np.unique(study.trace.events.name))


def headline_without_work(study: Study) -> str:
    """Say how long code took in which nothing of TensorFlow ran."""
    took = duration_text(study.recording.wall_ns * 1000.0)
    return f"No TensorFlow ran: {took} of Python and its calls"


def is_of_memory(study: Study) -> bool:
    """Tell whether a file tells of memory alone."""
    texts = study.trace.names.texts
    return bool(texts) and set(texts) <= ALLOCATOR_EVENTS


def headline_of_memory(study: Study) -> str:
    """Say how much memory was in use at most, and by which line most of it."""
    use = max(study.memory.use, key=lambda use: use.peak_bytes)
    head = f"{bytes_text(use.peak_bytes)} in use at the peak of {use.allocator.name}"
    first = next((row for row in study.memory.peak if row.allocator == use.allocator.name), None)
    if first is None or not use.peak_bytes:
        return head
    return f"{head}, {percent_text(first.bytes / use.peak_bytes)} of it from {first.op_name}"


def note_backend(study: Study) -> list[str]:
    """Say that the work of Keras' steps cannot be seen, where that is so."""
    backend = study.program.unrecorded_backend
    note = "TensorFlow's profiler times these steps but does not see their parts."
    return [f"Keras runs on {backend} here. {note}"] if backend else []


def is_fed(study: Study) -> bool:
    """Tell whether Python may have given steps data: session runs that were fed nothing show no argument."""
    if study.program.unrecorded_backend:
        return False
    if not study.program.runs_sessions or not study.recording.graph_versions:
        return True
    return bool(study.trace.select_names(lambda name: name.startswith("_arg_")).any())


def note_window(study: Study) -> str:
    """Say why there are no steps, and what would make some; "" where the general sentence has to do."""
    recording, steps = study.recording, study.recording.steps
    if nothing_ran(study):
        lines = " Your lines are in the source table." if study.source.lines else ""
        return f"No TensorFlow ran during the capture, so there are no steps.{lines}"
    if len(steps) and not any(steps.was_traced) and recording.closed_by == "seconds":
        steps_text = counted_text(len(steps), "step")
        has_name = recording.cell is not None and any(one.name for one in recording.cell.tree[:1])
        again = [] if has_name else ["running the cell again skips building, tracing and compiling"]
        if any(message.startswith(NOT_ENDED) for message in recording.messages):
            return f"{'; '.join([f'None of {steps_text} was traced, all were timed', *again])}."
        longer = ", or ".join(["-t SECONDS keeps the window open longer", *again])
        return f"The window closed before the first step ended, so none of {steps_text} was traced. {longer}."
    # The functions that were called from outside of any other, in order.
    calls = outermost(study.trace, study.trace.stats.texts(FUNCTION_CALL).events)
    once = [study.trace.names[row] for row in study.trace.events.name[calls].tolist()]
    if once:
        listed = first_of([name[:60] for name in once], _MOST_CALLS)
        each = "once" if len(once) == 1 else "once each"
        return f"{listed} ran {each}: no loop, so no steps. The whole capture is one window."
    if study.program.is_tensorflow:
        return (
            f"No loop was found among {count_text(len(study.trace.events))} events: no step markers, no "
            "repeated function or session run, no eager loop over a dataset. The capture is one window. To "
            "see the steps of a loop, wrap each iteration in `with profnb.step(i):`."
        )
    return ""
