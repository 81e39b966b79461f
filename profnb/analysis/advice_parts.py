"""What every rule of advice is made of: the answer, and the shares of time that bound what it can gain."""

from dataclasses import dataclass

from profnb.analysis.idle import IDLE_CAUSES
from profnb.analysis.study import Study

__all__ = ["GUIDE", "LEAST", "Advice", "idle_share_of", "share_of", "window_of"]

GUIDE = "https://www.tensorflow.org/guide"
LEAST = 0.02  # a gain below this is not worth a sentence


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change.

    Attributes:
        rule: The rule's name.
        title: What to do, in a few words.
        evidence: The numbers, in a sentence or two.
        bound_fraction: Most of the time from step to step that it can save, 0 to 1.
        code: What to write.
        link: Where TensorFlow's guide explains it.
    """

    rule: str
    title: str
    evidence: str
    bound_fraction: float
    code: str
    link: str


def share_of(study: Study, category: str) -> float:
    """Share of a category in the time from step to step."""
    return next((s.fraction for s in study.summary.shares if s.category == category), 0.0)


def window_of(study: Study) -> int:
    """From the first step's begin to the last one's end."""
    steps = study.steps
    return int(steps.end_ps[-1] - steps.begin_ps[0]) if len(steps) else 0


def idle_share_of(study: Study, cause: str) -> float:
    """Share of the window in which the busiest device was idle for a cause."""
    idle = study.idle
    return float(idle.total_ps[IDLE_CAUSES.index(cause)] / idle.window_ps) if idle else 0.0
