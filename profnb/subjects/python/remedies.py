"""What helps against Python between steps, by what ran the steps and by what is known to have run between.

What a remedy asks for has to be there: ``steps_per_execution`` only helps where Keras' own ``fit``,
``evaluate`` or ``predict`` ran the steps, and a callback is only spoken of where one was measured.
"""

import re
from dataclasses import dataclass

from profnb.capture.parts.part_records import CALLBACKS, CHECKPOINTING, LOADING, CellPart
from profnb.core.printable import quoted
from profnb.core.units import PS_PER_NS, count_text, duration_text
from profnb.steps.finding.loops import EAGER_LOOPS
from profnb.subjects.advising import is_loop_of_keras, is_own_loop, line_text
from profnb.subjects.study import Study
from profnb.subjects.unseen import is_fed
from profnb.trace.framework import JAX, TENSORFLOW, words
from profnb.trace.names import MARKER_SOURCE

__all__ = ["SELDOM", "Remedy", "find_remedy"]

_BATCH_HOOK = re.compile(r"\.on_(?:train_|test_|predict_)?batch_(?:begin|end)$")
_MOST = 0.5
_LONGEST_NAME = 60
_SHORT_PS = 1_000_000_000  # what a loop itself takes: nothing that could be done elsewhere
_METHODS = {"train": "fit", "test": "evaluate", "predict": "predict"}
_UNROLLS = (3, 7)  # the first Keras that has unrolled_steps_per_execution
# What Keras' own callbacks that work after each batch can be told.
_REMEDIES = {
    "ProgbarLogger": "fit(..., verbose=2) writes a line an epoch, verbose=0 nothing.",
    "TensorBoard": 'TensorBoard(..., update_freq="epoch") writes once an epoch.',
    "ModelCheckpoint": 'ModelCheckpoint(..., save_freq="epoch") saves once an epoch.',
    "BackupAndRestore": 'BackupAndRestore(..., save_freq="epoch") saves once an epoch.',
}
_SAVES = ("ModelCheckpoint", "BackupAndRestore")
_OWN_LOOP = (
    "Data that Python fetches or makes there: prepare it once, or read it through tf.data with "
    ".prefetch(tf.data.AUTOTUNE), which works beside the steps. Anything else there: do it after every 100th "
    "step."
)

_OWN_LOOP_ON_JAX = (
    "Data that Python fetches or makes there: prepare it once, or make the next batch in another thread or "
    "process (grain, a PyTorch DataLoader) while this one is computed. Anything else there: do it "
    "after every 100th step."
)
_OWN_LOOP_ON_PYTORCH = (
    "Data that Python fetches or makes there: prepare it once, or let a DataLoader with workers make the "
    "next batch while this one is computed. Anything else there (logging, saving): do it after every 100th "
    "step."
)
_SCAN = (
    "Where Python makes data there, make the next batch in another thread or process (grain, a PyTorch "
    "DataLoader); else jax.lax.scan inside one jax.jit runs several steps for each return to Python. Log "
    "every 100 steps instead of each."
)
SELDOM = "Log every 100 steps instead of each, and do there nothing that can be done once."
_OF_EITHER = (  # a trace of others does not say who marked its steps
    "Where Keras' fit runs the steps, model.compile(..., steps_per_execution=16) runs 16 of them for each "
    "return to Python; a loop of your own can put several steps into one tf.function."
)
# On JAX steps_per_execution spares callbacks alone, and PyTorch's trainer refuses it.
_OF_KERAS = (
    "A larger batch makes fewer steps: what Keras does in Python for each of them takes as long for a small "
    "batch as for a large one."
)
_IN_ONE_FUNCTION = "Put the loop, or several steps of it, into one tf.function."
_ON_BATCH = (
    "model.fit with model.compile(..., steps_per_execution=16) returns to Python once in 16 steps; "
    "a larger batch makes fewer steps."
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to say of Python between steps.

    Attributes:
        cause: What took most of it, as a sentence of the evidence; "" where nothing is known to have.
        code: What to do.
        where: The line where the callback's hook stands, or ``fit`` was called; "" where that is not known.
        name: What took most of it, as the cause calls it; "" where that is not known.
        each_ps: What that takes after each step, ops that it runs included.
        spares_calls: Whether it runs several steps in one call, which spares what TensorFlow does for each.
    """

    cause: str
    code: str
    where: str = ""
    name: str = ""
    each_ps: float = 0.0
    spares_calls: bool = False


def find_remedy(study: Study, each_ps: float) -> Remedy:
    """What helps, as far as it is known what ran.

    Args:
        study: What was recorded; its steps are no window.
        each_ps: Mean time of Python between two steps.
    """
    hook = _costly_hook(study, each_ps)
    if hook is not None:
        return _remedy_of(study, hook)
    saving = _costly_saving(study, each_ps)
    if saving is not None:
        return _remedy_of_saving(study, saving)
    is_keras, is_short = is_loop_of_keras(study), each_ps < _SHORT_PS
    of_tensorflow = _of_tensorflow(study, is_short=is_short)
    return Remedy(
        "",
        spares_calls=(study.framework == TENSORFLOW and of_tensorflow != _OWN_LOOP)
        or (study.framework == JAX and is_short and not is_keras),
        code=words(
            study.framework,
            "Log every 100 steps instead of each, and fetch data in another thread or process.",
            tensorflow=of_tensorflow,
            sessions="Log and fetch every 100 steps instead of each; "
            + (
                "feed through tf.data instead of placeholders; "
                if is_fed(study) and study.input.feeding is None
                else ""
            )
            + "tf.while_loop runs several steps in one session.run.",
            jax=_OF_KERAS if is_keras else _SCAN if is_short else _OWN_LOOP_ON_JAX,
            pytorch=_OF_KERAS if is_keras else SELDOM if is_short else _OWN_LOOP_ON_PYTORCH,
        ),
    )


def _costly_hook(study: Study, each_ps: float) -> CellPart | None:
    """The callback's hook that takes half of it or more after each batch, on average over all its calls."""
    cell = study.recording.cell
    hooks = [p for p in cell.parts if p.part == CALLBACKS and p.occurrences] if cell else []
    hooks = [part for part in hooks if _BATCH_HOOK.search(part.name)]
    most = max(hooks, key=lambda part: part.wall_ns / part.occurrences, default=None)
    if most is None or most.wall_ns / most.occurrences * PS_PER_NS < _MOST * each_ps:
        return None
    return most


def _costly_saving(study: Study, each_ps: float) -> CellPart | None:
    """What saves after half of the steps or more, and takes half of the time between them or more."""
    cell, times = study.recording.cell, study.step_times
    saves = [
        part
        for part in (cell.parts if cell else [])
        if part.part == CHECKPOINTING and part.occurrences and not part.name.endswith(LOADING)
    ]
    most = max(saves, key=lambda part: part.wall_ns, default=None)
    steps = times.phase.count(study.summary.phase or "")
    if most is None or most.occurrences * 2 < steps:
        return None
    is_costly = most.wall_ns / most.occurrences * PS_PER_NS >= _MOST * each_ps
    return most if is_costly else None


def _remedy_of_saving(study: Study, saving: CellPart) -> Remedy:
    """To save less often, in the words of the callback that saves after batches, where one does."""
    cell, each_ps = study.recording.cell, saving.wall_ns / saving.occurrences * PS_PER_NS
    hooks = [
        part.name.partition(".")[0]
        for part in (cell.parts if cell else [])
        if part.part == CALLBACKS and _BATCH_HOOK.search(part.name)
    ]
    kind = next((name for name in _SAVES if name in hooks), "")
    name = quoted(kind or saving.name, _LONGEST_NAME)
    what = f"{name}, which saves the model" if kind else f"saving by {name}"
    return Remedy(
        f" Most of it is {what}: {duration_text(each_ps)} in each of "
        f"{count_text(saving.occurrences)} calls.",
        _REMEDIES.get(
            kind, "Save every few minutes, or once an epoch, instead of after each step."
        ),
        line_text(study, saving.file, saving.line),
        what,
        each_ps,
    )


def _remedy_of(study: Study, hook: CellPart) -> Remedy:
    each_ps = hook.wall_ns / hook.occurrences * PS_PER_NS
    each = duration_text(each_ps)
    name = quoted(hook.name, _LONGEST_NAME)
    cause = f" Most of it is {name}, {each} in each of {count_text(hook.occurrences)} calls."
    kind = hook.name.partition(".")[0]
    code = _REMEDIES.get(kind, f"Do less in {name}, or do it after every 100th batch only.")
    return Remedy(cause, code, line_text(study, hook.file, hook.line), name, each_ps)


def _of_tensorflow(study: Study, *, is_short: bool) -> str:
    if _is_fed_batch_by_batch(study):
        return _ON_BATCH if is_short else _OWN_LOOP
    if study.steps.origin in EAGER_LOOPS or is_own_loop(study):
        return _IN_ONE_FUNCTION if is_short else _OWN_LOOP
    if not len(study.recording.steps) and not len(study.trace.stats.texts(MARKER_SOURCE)):
        return _OF_EITHER
    each = "model.compile(..., steps_per_execution=16) runs 16 steps for each return to Python"
    unrolled = (
        ", and model.unrolled_steps_per_execution = 4, set before, puts four into one pass of its loop"
        if _unrolls(study)
        else ""
    )
    larger = "" if study.summary.phase == "train" else "A larger batch makes fewer steps; "
    return f"{larger}{each}{unrolled}."


def _is_fed_batch_by_batch(study: Study) -> bool:
    """Whether most steps of the main phase were calls of ``train_on_batch`` or its like."""
    cell, phase = study.recording.cell, study.summary.phase
    if cell is None or phase not in _METHODS:
        return False
    parts = [p for p in cell.parts if p.part.startswith(("train", "evaluation", "predict"))]
    alone = sum(part.occurrences for part in parts if part.name == f"{phase}_on_batch")
    return alone > sum(part.occurrences for part in parts if part.name == _METHODS[phase])


def _unrolls(study: Study) -> bool:
    """Whether the Keras that ran has ``unrolled_steps_per_execution``."""
    versions = study.recording.environment
    version = re.match(r"(\d{1,3})\.(\d{1,3})", versions.get("Keras", ""))
    is_new = version is not None and (int(version[1]), int(version[2])) >= _UNROLLS
    return is_new and "tf_keras" not in versions
