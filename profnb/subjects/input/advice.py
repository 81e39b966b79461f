"""Rules of advice on the input: what starves the training, and what to change in the pipeline."""

from collections.abc import Callable

from profnb.subjects.advising import (
    GUIDE,
    Advice,
)
from profnb.subjects.study import Study

__all__ = ["input_bound", "prefetch_more", "python_input"]  # fmt: skip

_WITH_A_RULE = ("python", "bursts")


def _input_advice(
    study: Study, rule: str, title: str, causes: Callable[[str], bool]
) -> Advice | None:
    diagnosis = study.input.diagnosis
    if diagnosis is None or diagnosis.iterator < 0 or not causes(diagnosis.cause):
        return None
    share, link = study.input.waiting.fraction, f"{GUIDE}/data_performance"
    return Advice(rule, title, diagnosis.sentence, share, diagnosis.fix, link)


def input_bound(study: Study) -> Advice | None:
    """The training waits for its input for 5 % of the time or more, for a stage that is TensorFlow's."""
    return _input_advice(
        study, "input-bound", "Feed the model faster", lambda cause: cause not in _WITH_A_RULE
    )


def python_input(study: Study) -> Advice | None:
    """... for a generator or a function that runs Python."""
    return _input_advice(
        study, "python-input", "Feed the model without Python", lambda cause: cause == "python"
    )


def prefetch_more(study: Study) -> Advice | None:
    """... for a pipeline that is fast enough on average, whose last buffer holds four elements at most."""
    return _input_advice(
        study, "prefetch-more", "Prefetch more elements", lambda cause: cause == "bursts"
    )
