"""The rule on recurrent layers that run step by step on a GPU, where an argument forbids cuDNN."""

from collections.abc import Mapping

import numpy as np

from profnb.capture.models.layer_facts import LayerFacts
from profnb.capture.models.layer_shapes import WITHOUT_CUDNN
from profnb.core.columns import Int64s
from profnb.core.units import count_text, percent_text
from profnb.steps.streams import busiest_device
from profnb.subjects.advising import Finding
from profnb.subjects.covered_time import covered_share
from profnb.subjects.device.peaks import is_nvidia
from profnb.subjects.study import Study

__all__ = ["slow_rnn"]

_LEAST, _MANY_OPS, _SHOWN, _LONGEST = 0.05, 40, 3, 100
# What to write instead, by the argument that forbids it.
_ALLOWED = {
    "activation": "activation='tanh'",
    "recurrent_activation": "recurrent_activation='sigmoid'",
    "recurrent_dropout": "recurrent_dropout=0 (dropout=... is allowed)",
    "unroll": "unroll=False",
    "use_bias": "use_bias=True",
    "reset_after": "reset_after=True",
    "use_cudnn": "use_cudnn='auto'",
}


def slow_rnn(study: Study) -> Finding | None:
    """On an NVIDIA GPU, LSTM and GRU layers whose arguments forbid cuDNN run for 5 % of the time or more.

    What forbids it is read from the layers as they ran; each must have run 40 ops a step or more, none of
    them cuDNN's: cuDNN runs a whole sequence as one. The bound is the time in which one of their ops or
    kernels ran or was launched.
    """
    plane = busiest_device(study.trace)
    if plane is None or study.steps.is_window or not is_nvidia(study.trace, plane):
        return None
    slow = _step_by_step(study)
    events = _events_of(study, slow)
    share = covered_share(study, events)
    if not slow or share < _LEAST:
        return None
    reasons = list(dict.fromkeys(str(layer.numbers[WITHOUT_CUDNN]) for layer in slow.values()))
    named = [layer.path[:_LONGEST] for layer in slow.values()]
    listed = ", ".join(named[:_SHOWN]) + (", ..." if len(named) > _SHOWN else "")
    one = len(named) == 1
    per_step = events.size / max(study.summary.counted.size, 1)
    return Finding(
        "slow-rnn", "Let cuDNN run the recurrent layers",
        f"{listed} {'runs' if one else 'run'} time step by time step, {count_text(round(per_step))} ops and "
        f"kernels a step, {percent_text(share)} of the time: {'; '.join(reasons[:_SHOWN])} "
        f"{'keeps' if one else 'keep'} Keras from cuDNN, which runs a whole sequence as one.",
        min(share, 1.0),
        _instead(reasons),
        "https://keras.io/api/layers/recurrent_layers/lstm/",
    )  # fmt: skip


def _step_by_step(study: Study) -> Mapping[int, LayerFacts]:
    """The recurrent layers that cuDNN may not run and that ran many ops a step, by their row."""
    times = study.layers.times
    runs = times.occurrences.max(axis=0) / max(times.iterations, 1)
    return {
        row: layer
        for row, layer in enumerate(times.rows.layers)
        if WITHOUT_CUDNN in layer.numbers and runs[row] >= _MANY_OPS
    }


def _events_of(study: Study, rows: Mapping[int, LayerFacts]) -> Int64s:
    """Ops and kernels of some rows in the counted steps."""
    runs, row_of_op = study.ops.runs, study.layers.times.row_of_op
    is_theirs = np.array([row_of_op.get(name, -1) in rows for name, _ in runs.keys], np.bool_)
    if not is_theirs.any():
        return np.empty(0, np.int64)
    events = np.asarray(runs.events[is_theirs[runs.code]], np.int64)
    return events[np.isin(study.groups.step[events], study.summary.counted)]


def _instead(reasons: list[str]) -> str:
    """What to write so that cuDNN may run the layers."""
    given = [part for reason in reasons for part in reason.split(", ")]
    allowed = [
        text
        for name, text in _ALLOWED.items()
        if any(part.startswith(f"{name}=") for part in given)
    ]
    cells = [part for part in given if part.startswith("RNN(")]
    made = [f"keras.layers.{cell[4:-5]}(...) instead of {cell}" for cell in dict.fromkeys(cells)]
    parts = "; ".join([*made, *([", ".join(allowed)] if allowed else [])])
    return f"{parts}. That is another model: train it anew, and see that it learns as well."
