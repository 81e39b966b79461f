"""What to say of a capture without steps, or of one whose work was not recorded, case by case."""

import numpy as np

from profnb.capture.environment import KERAS_BACKEND
from profnb.capture.recording import NOT_ENDED
from profnb.core.units import count_text, counted_text, duration_text
from profnb.steps.windows import outermost
from profnb.subjects.study import Study
from profnb.trace.framework import TENSORFLOW
from profnb.trace.names import FUNCTION_CALL

_OURS = frozenset({"profnb.clock"})
_BACKENDS = {"jax": "JAX", "torch": "PyTorch", "openvino": "OpenVINO", "numpy": "NumPy"}
_MOST_NAMED = 3


def nothing_ran(study: Study) -> bool:
    """Whether code was captured to its end and TensorFlow did nothing in it, not even make a tensor."""
    if not study.steps.is_window or not study.recording.wall_ns or study.recording.closed_by:
        return False
    return all(name in _OURS for name in _names_of(study))


def headline_without_work(study: Study) -> str:
    """How long code took in which nothing of TensorFlow ran."""
    took = duration_text(study.recording.wall_ns * 1000.0)
    return f"No TensorFlow ran: {took} of Python and of what it called"


def unrecorded_backend(study: Study) -> str:
    """What Keras runs on, where TensorFlow's profiler cannot record that; else ""."""
    backend = study.recording.environment.get(KERAS_BACKEND, "tensorflow")
    title = _BACKENDS.get(backend, backend[:40])
    if backend == "tensorflow" or study.has_device or study.framework == title:
        return ""
    return title


def note_backend(study: Study) -> list[str]:
    """That what Keras' steps did cannot be seen."""
    backend = unrecorded_backend(study)
    if not backend:
        return []
    return [
        f"Keras runs on {backend} here, whose work TensorFlow's profiler does not record: steps are timed, "
        "but where their time went is not seen."
    ]


def is_fed(study: Study) -> bool:
    """Whether Python may have given steps data: session runs that were fed nothing show no argument."""
    if unrecorded_backend(study):
        return False
    is_of_runs = all(phase.startswith("session_run") for phase in study.steps.phase)
    if not is_of_runs or not study.recording.graph_versions:
        return True
    return bool(study.trace.select_names(lambda name: name.startswith("_arg_")).any())


def note_window(study: Study) -> str:
    """Why there are no steps, and what would make some; "" where the general sentence has to do."""
    recording, steps = study.recording, study.recording.steps
    if nothing_ran(study):
        source_lines = study.source.lines
        lines = (
            " Its lines are in the source table."
            if source_lines is not None and len(source_lines)
            else ""
        )
        return f"Nothing of TensorFlow ran while this was captured, so there are no steps.{lines}"
    if len(steps) and not any(steps.was_traced) and recording.closed_by == "seconds":
        again = "running the cell again skips what is done once."
        if any(message.startswith(NOT_ENDED) for message in recording.messages):
            none = f"None of {counted_text(len(steps), 'step')} was traced, all were timed"
            return f"{none}; {again}"
        return (
            "The window closed before a first step had ended, so none of "
            f"{counted_text(len(steps), 'step')} was traced. Where building, tracing or compiling takes "
            f"that long, -t SECONDS keeps the window open longer; {again}"
        )
    once = _called_once(study)
    if once:
        more = f" and {len(once) - _MOST_NAMED} more" if len(once) > _MOST_NAMED else ""
        each = "once" if len(once) == 1 else "once each"
        return (
            f"{', '.join(name[:60] for name in once[:_MOST_NAMED])}{more} ran {each}: no loop, so no steps; "
            "the whole capture is one window."
        )
    if study.framework == TENSORFLOW:
        return (
            f"No loop was found among {count_text(len(study.trace.events))} events (no step markers, no "
            "function or session run that repeats, no eager loop over a dataset), so the capture is one "
            "window. If it holds a loop, wrap each iteration in `with profnb.step(i):`."
        )
    return ""


def _names_of(study: Study) -> list[str]:
    used = np.unique(study.trace.events.name)
    return [study.trace.names[row] for row in used.tolist()]


def _called_once(study: Study) -> list[str]:
    """The functions that were called from outside of any other, in order."""
    calls = outermost(study.trace, study.trace.stats.texts(FUNCTION_CALL).events)
    return [study.trace.names[row] for row in study.trace.events.name[calls].tolist()]
