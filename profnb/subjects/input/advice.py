"""Rules of advice on the input: what starves the training, and what to change in the pipeline."""

from collections.abc import Callable

import numpy as np

from profnb.core.units import percent_text
from profnb.subjects.advising import (
    GUIDE,
    LEAST_INPUT,
    READY,
    Finding,
    guide,
    input_shares,
    is_loop_of_keras,
)
from profnb.subjects.covered_time import covered_share, period_ps
from profnb.subjects.study import Study

__all__ = ["input_bound", "prefetch_more", "python_input", "waiting_for_input"]

_WITH_A_RULE = ("python", "bursts")
_HAND_OVER_PS = 1_000_000_000  # Keras slices arrays and converts them in less
_KERAS_FETCHES = "Keras makes each batch, or waits for it, when the step asks for it."
_READY_FOR_KERAS = (
    "A keras.utils.PyDataset whose __init__ calls super().__init__(workers=4, use_multiprocessing=True) "
    "makes the next batches beside the training; a generator works alone, so write one of it."
)
_MORE_WORKERS = (
    "More of them, up to the number of cores, or less work for each example in __getitem__ and collate_fn. "
    "They start anew in each epoch unless DataLoader(..., persistent_workers=True) keeps them."
)
_WITH_WORKERS = "_MultiProcessingDataLoaderIter"  # with num_workers=1 or more
_WITHOUT_WORKERS = "_SingleProcessDataLoaderIter"  # PyTorch's, with num_workers=0


def _input_advice(
    study: Study, rule: str, title: str, causes: Callable[[str], bool]
) -> Finding | None:
    diagnosis = study.input.diagnosis
    if diagnosis is None or diagnosis.iterator < 0 or not causes(diagnosis.cause):
        return None
    share, link = study.input.waiting.fraction, f"{GUIDE}/data_performance"
    where = study.input.function_lines[diagnosis.iterator]
    return Finding(rule, title, diagnosis.sentence, share, diagnosis.fix, link, where=where)


def input_bound(study: Study) -> Finding | None:
    """The steps wait for their input for 5 % of the time or more, for a stage that is TensorFlow's.

    Never for what Keras itself makes of arrays in memory, nor from fewer than four elements.
    """
    return _input_advice(
        study, "input-bound", "Feed the model faster", lambda cause: cause not in _WITH_A_RULE
    )


def python_input(study: Study) -> Finding | None:
    """... for a generator or a function that runs Python."""
    return _input_advice(
        study, "python-input", "Feed the model without Python", lambda cause: cause == "python"
    )


def prefetch_more(study: Study) -> Finding | None:
    """... for a pipeline that is fast enough on average, whose last buffer holds four elements at most."""
    return _input_advice(
        study, "prefetch-more", "Prefetch more elements", lambda cause: cause == "bursts"
    )


def waiting_for_input(study: Study) -> Finding | None:
    """The wait for the next batch is 5 % of the time or more, and no iterator of tf.data tells why.

    Where it and copying the input reach that together, the larger of the two is said.
    """
    if len(study.input.iterators) or study.input.queues:
        return None
    copying, share = input_shares(study)
    if share < LEAST_INPUT and (share + copying < LEAST_INPUT or share <= copying):
        return None
    is_keras = is_loop_of_keras(study)
    # It costs that much to hand a batch over, whoever makes it.
    is_short = share * period_ps(study) < _HAND_OVER_PS * study.summary.counted.size
    if is_keras and is_short:
        return None
    on_the_spot, has_workers = (False, False) if is_keras else _loaders(study)
    if on_the_spot and is_short:
        return _slice_batches(study, share)
    return Finding(
        "waiting-for-input", "Have the next batch ready",
        f"{percent_text(share)} of the time is waiting for the next batch. "
        + (
            "The DataLoader has no workers: the training's own process makes each batch when it is asked for."
            if on_the_spot
            else "The DataLoader's workers did not have it ready when it was asked for."
            if has_workers
            else _KERAS_FETCHES
            if is_keras
            else "What makes it was not recorded, so why it takes that long is unknown."
        ),
        share,
        _READY_FOR_KERAS
        if is_keras
        else _MORE_WORKERS
        if has_workers
        else READY[study.framework],
        guide(study, "data_performance"),
    )  # fmt: skip


def _slice_batches(study: Study, share: float) -> Finding:
    """What is said of a loader of PyTorch's that makes a batch faster than a worker hands it over.

    Of 6,000 rows in a ``TensorDataset``, batches of 32 and a small model, four workers made an epoch four
    times as long; by slices it took two thirds. Nothing bounds that: the loader's own Python goes, too.
    """
    return Finding(
        "waiting-for-input", "Take batches by index",
        f"{percent_text(share)} of the time is waiting for the next batch, which the DataLoader makes in "
        "less time than it takes to hand one over from a worker's process.",
        None,
        "If it puts batches together from single examples that are in memory: for rows in "
        "torch.randperm(len(x)).split(32): x[rows], y[rows].",
        guide(study, "data_performance"),
        share,
    )  # fmt: skip


def _loaders(study: Study) -> tuple[bool, bool]:
    """Whether what the steps wait for is a loader of PyTorch's without workers, and one with some.

    A training's loader may have workers and its validation's none: the one that takes more of the counted
    steps is meant.
    """
    without, with_workers = (
        covered_share(study, np.flatnonzero(study.trace.select_names(is_loader)))
        for is_loader in (
            lambda name: _WITHOUT_WORKERS in name,
            lambda name: _WITH_WORKERS in name,
        )
    )
    return without > with_workers, with_workers > 0 and with_workers >= without
