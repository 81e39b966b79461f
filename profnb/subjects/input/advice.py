"""Rules of advice on the input: what starves the training, and what to change in the pipeline."""

from collections.abc import Callable

from profnb.core.units import percent_text
from profnb.subjects.advising import (
    GUIDE,
    LEAST_INPUT,
    READY,
    Advice,
    guide,
    input_shares,
)
from profnb.subjects.study import Study

__all__ = ["input_bound", "prefetch_more", "python_input", "waiting_for_input"]

_WITH_A_RULE = ("python", "bursts")
_WITHOUT_WORKERS = "_SingleProcessDataLoaderIter"  # PyTorch's, with num_workers=0


def _input_advice(
    study: Study, rule: str, title: str, causes: Callable[[str], bool]
) -> Advice | None:
    diagnosis = study.input.diagnosis
    if diagnosis is None or diagnosis.iterator < 0 or not causes(diagnosis.cause):
        return None
    share, link = study.input.waiting.fraction, f"{GUIDE}/data_performance"
    where = study.input.function_lines[diagnosis.iterator]
    return Advice(rule, title, diagnosis.sentence, share, diagnosis.fix, link, where=where)


def input_bound(study: Study) -> Advice | None:
    """The steps wait for their input for 5 % of the time or more, for a stage that is TensorFlow's.

    Never for what Keras itself makes of arrays in memory, nor from fewer than four elements.
    """
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


def waiting_for_input(study: Study) -> Advice | None:
    """The wait for the next batch is 5 % of the time or more, and no iterator of tf.data tells why.

    Where it and copying the input reach that together, the larger of the two is said.
    """
    if len(study.input.iterators) or study.input.queues:
        return None
    copying, share = input_shares(study)
    if share < LEAST_INPUT and (share + copying < LEAST_INPUT or share <= copying):
        return None
    on_the_spot = study.trace.select_names(lambda name: _WITHOUT_WORKERS in name).any()
    return Advice(
        "waiting-for-input", "Have the next batch ready",
        f"{percent_text(share)} of the time is waiting for the next batch. "
        + (
            "The DataLoader has no workers: the training's own process makes each batch when it is asked for."
            if on_the_spot
            else "What makes it was not recorded, so why it takes that long is unknown."
        ),
        share,
        READY[study.framework],
        guide(study, "data_performance"),
    )  # fmt: skip
