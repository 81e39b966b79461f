"""Rules of advice on the host: input, Python between steps, threads, and tracing that costs too much."""

from collections.abc import Callable

import numpy as np

from profnb.subjects.advising import (
    GUIDE,
    Advice,
    covered_share,
    op_events,
    period_ps,
    share_of,
)
from profnb.subjects.study import Study
from profnb.capture.environment import CORES, INTRA_OP
from profnb.core.units import count_text, duration_text, percent_text

__all__ = [
    "idle_cores", "input_bound", "oversubscribed", "prefetch_more", "profiling_overhead",
    "python_between_steps", "python_input",
]  # fmt: skip

_LEAST_GAP_PS = 20_000_000
_OWN_RULES = ("python", "bursts")


def _input_advice(
    study: Study, rule: str, title: str, causes: Callable[[str], bool]
) -> Advice | None:
    found = study.input_diagnosis
    if found is None or found.iterator < 0 or not causes(found.cause):
        return None
    share, link = study.waiting.fraction, f"{GUIDE}/data_performance"
    return Advice(rule, title, found.sentence, share, found.fix, link)


def input_bound(study: Study) -> Advice | None:
    """The training waits for its input for 5 % of the time or more, for a stage that is TensorFlow's."""
    return _input_advice(
        study, "input-bound", "Feed the model faster", lambda cause: cause not in _OWN_RULES
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


def python_between_steps(study: Study) -> Advice | None:
    """A tenth or more of the time, 20 us or more a step, TensorFlow does nothing and waits for no data.

    That is between steps, and on a CPU inside them where nothing was active (Keras 2 calls callbacks there).
    """
    if not study.summary.counted.size or study.steps.is_window:
        return None
    waiting, rows = study.waiting, study.summary.counted
    gaps = np.maximum(study.steps.gap_ps[rows], 0)
    inside = study.breakdown.of("input")[rows]
    outside = np.maximum(waiting.step_ps[rows] - inside, 0)
    rest = float(np.maximum(gaps - outside, 0).sum())
    if not study.has_device:
        rest += float(study.breakdown.of("all others")[rows].sum())
    whole = period_ps(study)
    share = rest / whole if whole else 0.0
    if share < 0.1 or rows.size < 5 or rest / rows.size < _LEAST_GAP_PS:
        return None
    each = duration_text(rest / rows.size)
    return Advice(
        "python-between-steps", "Do less between steps",
        f"{percent_text(share)} of the time, {each} a step, is Python between steps and around "
        "TensorFlow's work: callbacks, logging, metrics, fetching data by hand.",
        share,
        "Log every 100 steps instead of each; model.compile(..., steps_per_execution=16) runs 16 steps for "
        "each return to Python; in a loop of your own put several steps into one tf.function.",
        f"{GUIDE}/function",
    )  # fmt: skip


def _count_of(study: Study, setting: str) -> int | None:
    """A number that the capture noted of the environment, or None."""
    told = study.recording.environment.get(setting, "")
    return int(told) if told.isdecimal() and len(told) < 7 else None


def _threads_at_work(study: Study) -> float:
    """How many of the host's ops ran at once on average, while any did, from the first counted step on."""
    ops = op_events(study, lambda _, op_type: op_type != "Dataset")
    events, counted = study.trace.events, study.summary.counted
    inside = events.begin_ps[ops] >= study.steps.begin_ps[counted[0]]
    inside &= events.end_ps[ops] <= study.steps.end_ps[counted[-1]]
    covered = covered_share(study, ops[inside]) * period_ps(study)
    return float(events.duration_ps[ops[inside]].sum() / covered) if covered else 0.0


def idle_cores(study: Study) -> Advice | None:
    """TensorFlow was told to use fewer threads for an op than there are cores, on a CPU that is the limit."""
    cores, threads = _count_of(study, CORES), _count_of(study, INTRA_OP)
    busy = share_of(study, "host compute")
    if cores is None or threads is None or threads >= cores or study.has_device or busy < 0.3:
        return None
    return Advice(
        "idle-cores", "Use all cores",
        f"Each op may use {count_text(threads)} of {count_text(cores)} cores, and ops on the CPU are "
        f"{percent_text(busy)} of the time.",
        busy * (1 - threads / cores),
        "Leave tf.config.threading.set_intra_op_parallelism_threads alone (0 means all cores), and unset "
        "TF_NUM_INTRAOP_THREADS; it takes a fresh process.",
        "https://www.tensorflow.org/api_docs/python/tf/config/threading",
    )  # fmt: skip


def oversubscribed(study: Study) -> Advice | None:
    """On average one and a half times as many ops run at once as there are cores."""
    cores = _count_of(study, CORES)
    if cores is None or study.has_device or not study.summary.counted.size or study.steps.is_window:
        return None
    threads = _threads_at_work(study)
    if threads < 1.5 * cores:
        return None
    busy = share_of(study, "host compute") + share_of(study, "input")
    return Advice(
        "oversubscribed", "Run fewer threads",
        f"{threads:.1f} ops were at work at once on average, on {count_text(cores)} cores: they take turns, "
        "and each switch costs.",
        busy * (1 - cores / threads),
        f"num_parallel_calls=tf.data.AUTOTUNE instead of a large number, or options.threading."
        f"private_threadpool_size = {cores}; tf.config.threading.set_inter_op_parallelism_threads({cores}).",
        "https://www.tensorflow.org/api_docs/python/tf/data/ThreadingOptions",
    )  # fmt: skip


def profiling_overhead(study: Study) -> Advice | None:
    """Traced steps took a quarter longer than untraced ones or more; the bound is what tracing added."""
    cost = study.tracing_cost
    if cost is None or cost.fraction < 0.25:
        return None
    return Advice(
        "profiling-overhead", "Trust the untraced steps",
        f"Tracing made a step {percent_text(cost.fraction)} longer; without it a step takes "
        f"{duration_text(cost.untraced_ps)}. Shares of many small events are too large in this profile.",
        1 - 1 / (1 + cost.fraction),
        "%%tfprofile --host-level 1 records fewer events; %tfcompare and %%tfsweep time untraced steps.",
        f"{GUIDE}/profiler",
    )  # fmt: skip
