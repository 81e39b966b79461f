"""A rule of advice on the whole cell: Keras' models made again and again.

They speak of shares of the cell's wall time without imports and profnb itself, as ``CellRecords`` has it:
what such a program spends its time on lies around its steps, where no step's breakdown shows it.
"""

from collections import Counter

import numpy as np

from profnb.capture.marking.retracings import TracedFunction
from profnb.capture.parts.part_records import (
    BUILDING,
    CHECKPOINTING,
    LOADING,
)
from profnb.core.units import PS_PER_NS, count_text, duration_text
from profnb.subjects.advising import GUIDE, Finding, cell_share_text
from profnb.subjects.cell.spent_advice import own_parts, took_ns
from profnb.subjects.study import Study

__all__ = ["new_model_in_a_loop"]

_LEAST_SHARE = 0.1
_MODELS = 3
_COMPILE, _LAYERS = "Model.compile", "layers"
_ASSIGNED = "model.optimizer.learning_rate = 1e-4"
# (title, what to do) where models are the same, where they differ, and where one is compiled again.
_ANEW = {
    "same": (
        "Make the model once, not in a loop",
        "Where the model is the same each time (folds, restarts), make and compile it once, keep "
        "saved = [v.numpy() for v in model.variables + model.optimizer.variables] before it trains "
        "(model.optimizer.build(model.trainable_variables) first), and assign them back before each turn.",
    ),
    "differ": (
        "Trace fewer models",
        "Those that differ in a number alone can be one that is traced once: assign it "
        f"({_ASSIGNED}) and the first weights before each turn. Each of another size has to be traced: try "
        "fewer, and train each for more steps.",
    ),
    "compiled": (
        "Compile the model once, not in a loop",
        f"Compile it before the loop. What changes from turn to turn can be assigned: {_ASSIGNED}.",
    ),
}


def new_model_in_a_loop(study: Study) -> Finding | None:
    """One line of the user's traced the functions of three Keras models or more, each made or compiled anew.

    Where they are known to be of different sizes, to make but one is not asked for. Making them and the steps
    in which a function was traced, but the first ones, are a tenth of the cell at least. Silent where the
    weights of as many were loaded: those are models of their own.
    """
    loop = _traced_in_a_loop(study.recording.functions)
    parts = own_parts(study)
    whole_ns = took_ns(parts)
    if loop is None or not whole_ns:
        return None
    first, models = loop
    building = [part for part in parts if part.part == BUILDING]
    loaded = sum(
        p.occurrences for p in parts if p.part == CHECKPOINTING and p.name.endswith(LOADING)
    )
    seen = sum(part.occurrences for part in building if part.name not in (_COMPILE, _LAYERS))
    made = max(seen, len(study.recording.models))
    compiled = sum(part.occurrences for part in building if part.name == _COMPILE)
    are_counted = bool(building) and all(part.is_counted for part in building)
    if loaded >= models or (are_counted and max(seen, compiled) < models - 1):
        return None
    spent_ns = _tracing_again_ns(study) + sum(part.wall_ns - part.longest_ns for part in building)
    if spent_ns < _LEAST_SHARE * whole_ns:
        return None
    is_new = made >= models - 1
    what = "made anew" if is_new else "compiled anew"
    title, code = _ANEW["differ" if _differ(study) else "same"] if is_new else _ANEW["compiled"]
    return Finding(
        "new-model-in-a-loop", title,
        f"{count_text(models)} times one line ran a model that was {what}, and Keras traced its functions "
        f"for each: making them, and the steps that traced, took {duration_text(spent_ns * PS_PER_NS)} "
        f"besides the first, {cell_share_text(study, spent_ns / whole_ns)}.",
        min(spent_ns / whole_ns, 1.0),
        code,
        f"{GUIDE}/function#controlling_retracing",
        where=first.caller,
        is_of_cell=True,
    )  # fmt: skip


def _differ(study: Study) -> bool:
    """Whether of the models that ran under trace half or more are of sizes of their own."""
    models = study.recording.models
    sizes = {
        tuple((at.kind, at.parameters, at.output_shape) for at in one.layers) for one in models
    }
    return len(sizes) > 1 and 2 * len(sizes) >= len(models)


def _tracing_again_ns(study: Study) -> int:
    """Time of Keras' steps in which a function was traced, without those of each phase's first run."""
    seen = study.recording.steps
    name, run = np.asarray(seen.name, np.int64), np.asarray(seen.run, np.int64)
    took = np.asarray(seen.end_ns, np.int64) - np.asarray(seen.begin_ns, np.int64)
    again = np.asarray(seen.retraced, np.bool_) & (run > 0)
    for code in set(name.tolist()):
        is_of_phase = again & (name == code)
        if is_of_phase.any():
            again &= ~(is_of_phase & (run == run[is_of_phase].min()))
    return int(took[again].sum())


def _traced_in_a_loop(functions: tuple[TracedFunction, ...]) -> tuple[TracedFunction, int] | None:
    """A function of Keras that one line had traced for several models, with their number."""
    keras = [one for one in functions if one.is_keras and one.caller]
    places = Counter(map(_place_of, keras))
    if not places:
        return None
    place, models = places.most_common(1)[0]
    first = next(one for one in keras if _place_of(one) == place)
    return (first, models) if models >= _MODELS else None


def _place_of(function: TracedFunction) -> tuple[int, str, str]:
    return function.code, function.phase, function.caller
