"""Advice on whole cells: Keras called or made again and again, and validation; each rule on the guilty and on the innocent."""

import json
from dataclasses import replace

import numpy as np
import pytest
from advised import advised
from traces import event, host, line, read

import profnb
from profnb.capture.models.layer_facts import FitResult
from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.parts.part_records import (
    AROUND, BUILDING, CALLS, CHECKPOINTING, EPOCH_ENDS, EVALUATION, FIRST, GAPS, IMPORTS, INPUT, OTHER, PREDICT, PROFNB, TRAIN, VALIDATION, CellPart, CellRecords,
)  # fmt: skip
from profnb.capture.parts.part_records import CELL as ALL
from profnb.capture.parts.part_records import TreeNode
from profnb.capture.recording import Recording
from profnb.capture.marking.trace_events import TracedFunction
from profnb.capture.step_records import CALL, KERAS, StepRecords
from profnb.report.advice import advice_html, advice_section_text
from profnb.advice.proposals import Advice
from profnb.steps.spine import Spine
from profnb.subjects.study import Study

MS, NS = 10**9, 10**6
CELL = {"c.py": 3}


def cell_of(*parts):
    """Parts as (part, name, occurrences, milliseconds, line)."""
    rows = [CellPart(part, name, count, ms * NS, max(ms // max(count, 1), 1) * NS, "c.py" if at else "", at) for part, name, count, ms, at in parts]
    nodes = [TreeNode(0, row.part, row.name, row.file, row.line, row.occurrences, row.wall_ns) for row in rows if row.wall_ns]
    return CellRecords(sum(row.wall_ns for row in rows), rows, cells=CELL, tree=[TreeNode(-1, ALL), *nodes])


def study_of(cell, steps=(), functions=(), fits=()):
    """Steps as (phase, run, how many, how long, whether a function was traced in the first of them)."""
    seen, at = StepRecords(names=["train", "test", "predict"]), 0
    for phase, run, count, ms, retraced in steps:
        for number in range(count):
            seen.append(at * NS, (at + ms) * NS, seen.names.index(phase), seen.kinds.index(KERAS), 1, retraced and not number, 1, at, run)
            at += ms
    trace = read(host(line("python", event("train", 0, MS, step_num=0, _r=1))))
    return Study(trace, 0, Recording(steps=seen, cell=cell, functions=tuple(functions), fits=list(fits)))


def models(count=4, *, made=None, compiled=None, loaded=0, tracing=300, line_of=lambda _: 8, is_keras=True, several=False, training=1000, saved=0):
    """So many models, each traced as one line fits it; made and compiled in 10 ms each."""
    made, compiled = count if made is None else made, count if compiled is None else compiled
    cell = cell_of((BUILDING, "Sequential", made, 10 * made, 5), (BUILDING, "Model.compile", compiled, 10 * compiled, 6), (FIRST, "train", count, tracing * count, 8),
                   (TRAIN, "fit", 100, training, 8), (CHECKPOINTING, "Model.load_weights", loaded, loaded, 7), (CHECKPOINTING, "Model.save", saved, saved, 9))  # fmt: skip
    functions = [TracedFunction("one_step", at if several else 0, is_keras, "", f"Cell [3]:{line_of(at)}", "train") for at in range(count)]
    return study_of(cell, [("train", run + 1, 5, tracing, True) for run in range(count)], functions)


def test_a_new_model_in_each_turn_by_hand():
    """Beside the first: 3 x 300 ms of steps that traced, 3 x 10 of making and 3 x 10 of compiling, of 2,280 ms."""
    found = advised(models())
    assert "retracing" not in found
    found = found["new-model-in-a-loop"]
    assert found.title == "Make the model once, not in a loop"
    assert found.bound_fraction == pytest.approx(960 / 2280)
    assert "One line made a new model 4 times" in found.evidence
    assert "took 960 ms, without the first time" in found.evidence
    assert found.saves_ms[0] == pytest.approx(960 - 3)  # three usual steps of 1 ms stay
    assert found.where == "Cell [3]:8"
    assert "input_signature" not in found.code


def test_models_that_are_saved_are_made_all_the_same():
    assert "new-model-in-a-loop" in advised(models(saved=4))


def test_a_model_that_is_compiled_in_each_turn_is_told_so():
    found = advised(models(made=1))["new-model-in-a-loop"]
    assert found.title == "Compile the model once, not in a loop"
    assert "learning_rate" in found.code


@pytest.mark.parametrize("study", [
    lambda: models(2),  # two models are no loop
    lambda: models(line_of=lambda at: at + 8),  # four models, compared line by line
    lambda: models(several=True),  # the train, test and predict functions of one
    lambda: models(is_keras=False),
    lambda: models(made=1, compiled=1),  # traced anew for another reason: its shapes
    lambda: models(made=4, loaded=4),  # an ensemble that is loaded
    lambda: models(tracing=2, training=5000),  # not worth a word
    lambda: study_of(cell_of((BUILDING, "Sequential", 4, 400, 5)), [], [TracedFunction("one_step", 0, True)] * 4),  # no line of the user's
    lambda: study_of(None, [], [TracedFunction("one_step", 0, True, "", "Cell [3]:8")] * 4),
])  # fmt: skip
def test_models_that_no_loop_makes_are_left_alone(study):
    assert "new-model-in-a-loop" not in advised(study())


def adapting(times=8, *, made=0, name="Normalization.adapt", ms=800):
    """A loop of one's own in which a line calls `adapt` between the steps; of 1,200 ms, that of a model anew each time where one is made."""
    return study_of(cell_of((BUILDING, name, times, ms, 5), (BUILDING, "Sequential", made, made, 4), (CALLS, "learn", 100, 400, 6)))


def test_a_layer_adapted_in_each_epoch_is_to_be_adapted_once():
    found = advised(adapting())["adapting"]
    assert found.title == "Adapt the layer once, before the loop"
    assert found.evidence == "`Normalization.adapt` went over its data 8 times: 800 ms in all."
    assert found.saves_ms == pytest.approx((700, 700))
    assert found.where == "Cell [3]:5"


@pytest.mark.parametrize("study", [
    lambda: adapting(2),  # of two layers, or for two data sets
    lambda: adapting(5, made=5),  # a cross-validation: each fold's model learns its own data
    lambda: adapting(name="Sequential"),
    lambda: adapting(ms=20),
])  # fmt: skip
def test_layers_that_no_loop_adapts_are_left_alone(study):
    assert not {"adapting", "new-model-in-a-loop"} & set(advised(study()))


@pytest.mark.parametrize("waits", [300, 0], ids=["over a dataset", "over an array"])
def test_layers_that_go_over_a_dataset_one_after_another_may_take_arrays(waits):
    """Of 1,200 ms adapting took 800; what waits in it is none of the steps' waiting."""
    whole = cell_of((BUILDING, "Normalization.adapt", 1, 800 - waits, 5), (CALLS, "learn", 100, 400, 6))
    inside = [TreeNode(1, INPUT, "", "", 0, 0, waits * NS)] if waits else []
    found = advised(study_of(replace(whole, tree=[*whole.tree, *inside])))
    assert ("adapting" in found) is bool(waits)
    if waits:
        assert found["adapting"].saves_ms == pytest.approx((480, 800), rel=0.2) and found["adapting"].where == "Cell [3]:5"
    assert not [rule for rule in found if "input" in rule]


EPOCHS = (["train_step"] * 7 + ["val_step"] * 14) * 3


def validating_by_hand(validation=600, training=300, python=900, others=(), names=EPOCHS):
    """Calls of a function with an optimizer, and of one without."""
    ops = {"train_step": "adam/a:ResourceApplyAdam", "val_step": "m/MatMul:MatMul"}
    names = [(name, ops[name]) for name in names]
    ran = [one for at, (name, op) in enumerate(names) for one in (event(name, at * 10 * MS, 9 * MS, tf_function_call="notTraced-nonXla"), event(op, at * 10 * MS, 8 * MS))]
    cell = cell_of((CALLS, "train_step", 20, training, 7), (CALLS, "val_step", 40, validation, 9), (OTHER, "", 0, python, 0), *others)
    return Study(read(host(line("python", *ran))), recording=Recording(cell=cell))


def test_a_validation_of_an_own_loop_that_is_larger_than_training():
    found = advised(validating_by_hand())["validation"]
    assert "`val_step`, without gradients, ran 40 times and took 600 ms. The training steps took 300 ms" in found.evidence
    assert found.saves_ms == pytest.approx((600 * 4 / 5, 600))


@pytest.mark.parametrize("settings", [
    {"training": 700}, {"validation": 290},
    {"names": ["train_step"] * 30 + ["val_step"] * 40},  # once, at the end: the result
    {"names": ["val_step"] * 10 + ["train_step"] * 30},
    {"names": ["val_step", "val_step", "train_step"] * 20},  # for each step: it teaches, or acts
    {"names": (["val_step"] + ["train_step"] * 4) * 12},
])  # fmt: skip
def test_a_validation_of_an_own_loop_that_is_not_much_is_left_alone(settings):
    assert "validation" not in advised(validating_by_hand(**settings))


def test_the_line_is_shown_once_and_escaped():
    advice = Advice("r", "Do it", "It is slow.", (0.0, 2000.0), 4000.0, "Do less.", "https://x.test", "Cell [3]:8")
    assert "Do it (saves up to 2.00 s of 4.00 s). It is slow. At Cell [3]:8. Do less." in advice_section_text([advice])
    assert "Cell [3]:8" in advice_html([advice])
    named = Advice("r", "Do it", "It is slow.", (0.0, 2000.0), 4000.0, "Do less in `f`, Cell [3]:8.", "https://x.test", "Cell [3]:8")
    assert advice_section_text([named]).count("Cell [3]:8") == 1
    assert advice_html([named]).count("Cell [3]:8") == 1
    hostile = Advice("r", "Do it", "It is slow.", (0.0, 2000.0), 4000.0, "", "https://x.test", "<script>/\x1b[31m.py:8")
    assert "<script>" not in advice_html([hostile])
    assert "\x1b" not in advice_section_text([hostile])
    assert "Do it (saves up to 2.00 s of 4.00 s). It is slow. At" in advice_section_text([hostile])
    plain = Advice("r", "Do it", "It is slow.", (0.0, 2000.0), 4000.0, "Do less.", "https://x.test")
    assert " At " not in advice_section_text([plain])
    assert "<code" not in advice_html([plain])


# What the rules read, in programs that run here by a clock that stands still but for what is planted.


@pytest.fixture(scope="module")
def keras():
    pytest.importorskip("tensorflow")
    return pytest.importorskip("keras")


def small(keras, *layers):
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def slow_to_trace(keras, clock):
    """A layer that takes 100 ms whenever Keras calls it: as its model is made, and as a function of it is traced."""

    class Slow(keras.layers.Layer):
        def call(self, x):
            clock.work(100)
            return x

        def compute_output_shape(self, shape):
            return shape

    return Slow()


@pytest.mark.tensorflow
@pytest.mark.long


def test_new_models_in_a_loop_run_here_and_their_first_tracings_are_nobodys_retracing(keras, clock, tmp_path):
    """Each of four is called as it is made, and as its training and its validation are traced; the last three times are too many."""
    x, y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")
    with profnb.profile(max_seconds=300) as p:
        for _ in range(4):
            small(keras, slow_to_trace(keras, clock)).fit(x, y, validation_split=0.25, verbose=0)
    for profile in (p, profnb.load(p.save(tmp_path))):
        found = {advice.rule: advice for advice in profile.advice}
        assert "retracing" not in found
        assert "One line made a new model 4 times" in found["new-model-in-a-loop"].evidence
        assert found["new-model-in-a-loop"].bound_fraction == pytest.approx(3 / 4)
        assert "test_loop_advice.py:" in found["new-model-in-a-loop"].where


def saved_of_cell(p, advice):
    """The most that it saves, as a share of the cell without profnb."""
    return advice.saves_ms[1] / p.cell_breakdown.wall_ms.sum()


@pytest.mark.tensorflow
def test_compiling_in_a_loop_runs_here(keras, clock):
    x, y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")
    model = small(keras, slow_to_trace(keras, clock))
    with profnb.profile(max_seconds=300) as p:
        for rate in (0.1, 0.01, 0.001):
            model.compile(keras.optimizers.SGD(rate), "mse")
            model.fit(x, y, verbose=0)
    found = {advice.rule: advice for advice in p.advice}
    assert found["new-model-in-a-loop"].title == "Compile the model once, not in a loop"
    assert saved_of_cell(p, found["new-model-in-a-loop"]) == pytest.approx(2 / 3)
    with profnb.profile(max_seconds=300) as p:  # the same without
        for rate in (0.1, 0.01, 0.001):
            model.optimizer.learning_rate = rate
            model.fit(x, y, verbose=0)
    assert not {"new-model-in-a-loop", "retracing"} & {advice.rule for advice in p.advice}


@pytest.mark.tensorflow
def test_the_remedy_for_new_models_puts_back_what_was_and_traces_nothing(keras):
    model, x, y = small(keras), np.random.default_rng(0).random((64, 8), "float32"), np.ones((64, 1), "float32")
    model.optimizer.build(model.trainable_variables)
    saved = [v.numpy() for v in model.variables + model.optimizer.variables]
    with profnb.profile(max_seconds=300) as p:
        losses = []
        for _ in range(4):
            for variable, value in zip(model.variables + model.optimizer.variables, saved, strict=True):
                variable.assign(value)
            losses.append(model.fit(x, y, shuffle=False, verbose=0).history["loss"][0])
    assert len({json.dumps(round(loss, 5)) for loss in losses}) == 1
    assert "new-model-in-a-loop" not in {advice.rule for advice in p.advice}
    assert len({one.code for one in p.recording.functions}) == len(p.recording.functions)


@pytest.mark.parametrize(
    ("units", "title"),
    [
        ([16, 32, 64], ""),
        ([16, 16, 32, 32], "Make the model once, not in a loop"),  # each size twice, with two optimizers
        ([16, 16, 16], "Make the model once, not in a loop"),
        ([16, 8, 16, 8, 16, 8], "Make the model once, not in a loop"),  # two models in each of three folds
        ([16], "Make the model once, not in a loop"),  # of the others nothing is known
    ],
)
def test_models_of_different_sizes_are_not_asked_to_be_one(units, title):
    study = models()
    layers = [(LayerFacts("m", "m", "Sequential", True, -1, 0), LayerFacts("m/d", "d", "Dense", True, 0, 10 * n, (None, n))) for n in units]
    study.recording.models = tuple(ModelFacts(f"m_{at}", one, False) for at, one in enumerate(layers))
    found = advised(study).get("new-model-in-a-loop")
    assert (found.title if found else "") == title
