"""Rules of advice on the whole cell: Keras called, or made, again and again.

They speak of shares of the cell's wall time without imports and profnb itself, as ``CellRecords`` has it:
what such a program spends its time on lies around its steps, where no step's breakdown shows it.
"""

from collections import Counter

import numpy as np

from profnb.capture.marking.retracings import TracedFunction
from profnb.capture.parts.part_records import (
    AROUND,
    BUILDING,
    CHECKPOINTING,
    EPOCH_ENDS,
    INPUT,
    LOADING,
    CellPart,
)
from profnb.capture.step_records import CALL, RUN
from profnb.core.units import PS_PER_NS, count_text, duration_text
from profnb.subjects.advising import GUIDE, KERAS_TRAINING, Advice, cell_share_text
from profnb.subjects.cell.spent_advice import line_of, own_parts, took_ns
from profnb.subjects.study import Study
from profnb.trace.framework import words

__all__ = ["new_model_in_a_loop", "predict_in_a_loop"]

_CALLS, _STEPS_EACH, _LEAST_SHARE = 10, 4, 0.1
_MODELS = 3
_COMPILE, _LAYERS, _VALIDATION = "Model.compile", "layers", "validation"
_PHASES = {"predict": "predict", "evaluate": "test", "fit": "train"}
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
_ONE_BY_ONE = (
    "model(x, training=False) inside a tf.function, or model.predict_on_batch(x), which set up nothing",
    "model.predict_on_batch(x), which sets up nothing",
)
# What to do instead of calling each of them for a few batches.
_INSTEAD = {
    "predict": "Call model.predict once over all examples; it batches them (batch_size=...). Where each one "
    "has to wait for the one before: {one}.",
    "evaluate": "Call model.evaluate once over all examples, or model.test_on_batch(x, y) for batches that "
    "come one by one: it sets up nothing.",
    "fit": "Call model.fit once over all data (epochs=N passes over it N times), or "
    "model.train_on_batch(x, y) for batches that come one by one: it sets up nothing.",
}


def _runs(study: Study, method: str) -> tuple[int, int]:
    """(calls of Keras' method that ran a step, their steps)."""
    seen = study.recording.steps
    kinds = [code for code, kind in enumerate(seen.kinds) if kind not in (CALL, RUN)]
    phase = [code for code, name in enumerate(seen.names) if name == _PHASES[method]]
    run = np.asarray(seen.run, np.int64)
    is_of_method = (
        np.isin(np.asarray(seen.name), phase) & np.isin(np.asarray(seen.kind), kinds) & (run > 0)
    )
    return len(np.unique(run[is_of_method])), int(is_of_method.sum())


def predict_in_a_loop(study: Study) -> Advice | None:
    """Ten calls or more of ``predict`` (or ``evaluate``, ``fit``), of four steps each at most.

    Setting them up and leaving them is a tenth of the cell at least. Validations inside ``fit`` are no calls;
    beside them those of ``evaluate`` cannot be counted. The bound is all that was set up but once.
    """
    parts = own_parts(study)
    whole_ns = took_ns(parts)
    most: tuple[int, str, list[CellPart], int, int] = (0, "", [], 0, 0)
    for method in _PHASES:
        if method == "evaluate" and any(part.name == _VALIDATION for part in parts):
            continue
        around = [p for p in parts if p.part in (AROUND, EPOCH_ENDS) and p.name == method]
        calls, steps = _runs(study, method)
        if calls >= _CALLS and steps <= _STEPS_EACH * calls:
            most = max(most, (took_ns(around), method, around, calls, steps), key=lambda m: m[0])
    set_up_ns, method, around, calls, steps = most
    if not method or set_up_ns < _LEAST_SHARE * whole_ns:
        return None
    line = max(around, key=lambda part: part.wall_ns)
    waits = [p for p in parts if p.part == INPUT and (p.file, p.line) == (line.file, line.line)]
    spent_ns = set_up_ns + took_ns(waits)
    each = steps / calls
    one = words(study.framework, _ONE_BY_ONE[0], jax=_ONE_BY_ONE[1], pytorch=_ONE_BY_ONE[1])
    steps_each = "1 step" if each == 1 else f"{each:.2g} steps on average"
    return Advice(
        "predict-in-a-loop", f"Call {method} once, not in a loop",
        f"model.{method} was called {count_text(calls)} times, for {steps_each}. Setting a call up (a new "
        f"iterator, callbacks) and leaving it took {duration_text(spent_ns / calls * PS_PER_NS)}, in all "
        f"{cell_share_text(study, spent_ns / whole_ns)}.",
        spent_ns / whole_ns * (1 - 1 / calls),
        _INSTEAD[method].format(one=one),
        f"{KERAS_TRAINING}#{method}-method",
        where=line_of(study, around),
        is_of_cell=True,
    )  # fmt: skip


def new_model_in_a_loop(study: Study) -> Advice | None:
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
    return Advice(
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
