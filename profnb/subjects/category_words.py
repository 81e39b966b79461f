"""What the categories of a step's time are called in the report."""

from profnb.steps.summary import OTHERS
from profnb.subjects.study import Study
from profnb.trace.framework import SESSIONS, UNKNOWN


def has_thread(study: Study) -> bool:
    """Whether the thread of the steps was recorded: not where a device's line of steps is all there is.

    Of a window it was where a capture of ours watched the code.
    """
    if study.steps.is_window:
        return study.recording.wall_ns > 0
    roots = study.steps.roots
    return bool(roots.size and study.trace.is_host_event[roots[0]])


def known_framework(study: Study) -> str:
    """The framework that a step's time is told by; UNKNOWN where the thread of the steps was not recorded."""
    return study.framework if has_thread(study) else UNKNOWN


def category_title(category: str, framework: str = UNKNOWN) -> str:
    """What a category is called in the report: in "all others" the thread of the steps ran no TensorFlow.

    Args:
        category: One of a share's.
        framework: Whose thread it is; UNKNOWN, which changes nothing, where that was not recorded.

    Source:
        In real traces of TensorFlow, of a CPU and of GPUs, "all others" is the time that nothing but the
        step's own marker covers on the thread of the steps.
    """
    if category != OTHERS or framework == UNKNOWN:
        return category
    return f"not {'TensorFlow' if framework == SESSIONS else framework}"
