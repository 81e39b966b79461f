"""How long the threads of the input work beside the steps, and what of the steps they hold up."""

import numpy as np

from profnb.causes.numbers import HALF
from profnb.steps.activities import AWAITING, SYNCHRONISING
from profnb.subjects.advising import share_of, window_of
from profnb.subjects.covered_time import covered_share, period_ps
from profnb.subjects.input.diagnosis import runs_python
from profnb.subjects.study import Study


def input_work_share(study: Study) -> float:
    """How long the pipelines' threads work, beside the steps, of the time that was recorded."""
    pipeline, window = study.input.pipeline, window_of(study)
    if not len(pipeline) or not window:
        return 0.0
    parent = pipeline.tree.parent
    on_own_thread = (parent >= 0) & pipeline.tree.is_async[np.maximum(parent, 0)]
    works_ps = int(pipeline.total_ps[on_own_thread].sum())
    works_ps += int(pipeline.function_ps[pipeline.tree.is_async].sum())
    return works_ps / window


def input_runs_python(study: Study) -> bool:
    """Whether a pipeline runs Python, under the interpreter's lock."""
    pipeline = study.input.pipeline
    return any(runs_python(pipeline, row) for row in range(len(pipeline)))


def crowded_share(study: Study) -> tuple[float, float]:
    """Find how much of what the steps compute on the host the pipeline's threads held up.

    They hold up Python for as long as they run Python, under the interpreter's lock, and anything for as long
    as threads waited for a free core; at most for as long as they work. Where all cores are busy, work that
    goes frees its share of them.

    Returns:
        What they held up at most, and surely, of that time.
    """
    waits, computing = study.recording.core_waits, share_of(study, "host compute")
    works = input_work_share(study) / computing if computing else 0.0
    if input_runs_python(study):
        return min(works, 1.0), min(works, 1.0) * HALF
    held_up = min(works, waits.waited_fraction / (1 + waits.waited_fraction))
    every = waits.wall_ns * waits.cores
    busy = min((waits.ran_ns + waits.others_ns) / every, 1.0) if every else 0.0
    waiting = share_of(study, "input") / computing if computing else 0.0
    return held_up, min(max(busy * works / max(waits.cores, 1) - waiting, 0.0), held_up)


def kept_by_host(study: Study, factor: float) -> float:
    """Of what a faster device saves, the share that the host then takes, which works so long itself."""
    rows, steps = study.summary.counted, study.steps
    whole_ps = period_ps(study)
    saved_ps = (1 - factor) * float(study.breakdown.of("device compute")[rows].sum())
    host_ps = float(
        (steps.host_end_ps[rows] - steps.host_begin_ps[rows] + study.gaps.own_ps[rows]).sum()
    )
    waits = np.flatnonzero(np.isin(study.activities, (AWAITING, SYNCHRONISING)))
    host_ps -= covered_share(study, waits) * whole_ps
    return (
        float(np.clip((host_ps - (whole_ps - saved_ps)) / saved_ps, 0, 1)) if saved_ps > 0 else 0.0
    )
