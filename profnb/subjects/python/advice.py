"""Rules of advice on Python's time around the steps, and on tracing that costs too much."""

import numpy as np

from profnb.core.units import duration_text, percent_text
from profnb.subjects.advising import (
    GUIDE,
    Advice,
    guide,
    period_ps,
)
from profnb.subjects.study import Study
from profnb.trace.framework import words

__all__ = ["profiling_overhead", "python_between_steps"]

_LEAST_GAP_PS = 20_000_000


def python_between_steps(study: Study) -> Advice | None:
    """A tenth or more of the time, 20 us or more a step, the framework does nothing and waits for no data.

    That is between steps, and on a CPU inside them where nothing was active (Keras 2 calls callbacks there).
    """
    if not study.summary.counted.size or study.steps.is_window:
        return None
    waiting, rows = study.input.waiting, study.summary.counted
    gaps = np.maximum(study.steps.gap_ps[rows], 0)
    inside = study.breakdown.of("input")[rows]
    outside = np.maximum(waiting.step_ps[rows] - inside, 0)
    unexplained = study.breakdown.gap_picoseconds[
        rows, -1
    ]  # neither the device nor the host worked
    rest = float(np.minimum(np.maximum(gaps - outside, 0), unexplained).sum())
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
        f"{_whose(study)} work: callbacks, logging, metrics, fetching data by hand.",
        share,
        words(
            study.framework,
            "Log every 100 steps instead of each, and fetch data in another thread or process.",
            tensorflow="Log every 100 steps instead of each; model.compile(..., steps_per_execution=16) "
            "runs 16 "
            "steps for each return to Python; in a loop of your own put several steps into one tf.function.",
            sessions="Log and fetch every 100 steps instead of each, and feed through tf.data instead of "
            "placeholders; tf.while_loop runs several steps in one session run.",
            jax="Log every 100 steps instead of each; jax.lax.scan inside one jax.jit runs several "
            "steps for each "
            "return to Python.",
            pytorch="Log every 100 steps instead of each; DataLoader(..., num_workers=4) fetches data "
            "in other "
            "processes.",
        ),
        guide(study, "function"),
    )  # fmt: skip


def _whose(study: Study) -> str:
    return f"{study.framework}'s" if study.framework else "the framework's"


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
