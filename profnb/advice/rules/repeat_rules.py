"""Rules on what is done too often: set up, validated, saved, worked out or passed over again and again.

Each says which nodes a change takes time from, and what of it remains; a rule never asks whether another one
speaks of the same nodes (see ``advise``).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals, of_cell, of_steps, of_trace
from profnb.advice.replay import Edit, once, replay, scale
from profnb.advice.what_if import epochs_restart_free
from profnb.capture.parts import part_records as parts
from profnb.causes import repeats
from profnb.causes.cell_tree import STEPS
from profnb.causes.numbers import FEWEST, LEAST_SHARE, LEFT, QUARTER, SELDOM
from profnb.causes.pieces import find_copies
from profnb.causes.repeats import DATA, LOOKUP, SAME
from profnb.core.printable import quoted
from profnb.core.units import count_text, counted_text, duration_text, percent_text
from profnb.subjects.advising import GUIDE, KERAS_TRAINING
from profnb.subjects.study import Study

_FIT, _LOOP = f"{KERAS_TRAINING}#fit-method", f"{GUIDE}/keras/writing_a_training_loop_from_scratch"
_ONCE = {
    "predict": "Call model.predict once over all examples. If each batch needs the result before, call "
    "model.predict_on_batch(x), or model(x, training=False) in a tf.function. Both skip the set-up.",
    "evaluate": "Call model.evaluate once over all examples. For single batches call "
    "model.test_on_batch(x, y), without set-up.",
    "fit": "Call model.fit once over all data, with epochs=N. For single batches call "
    "model.train_on_batch(x, y), without set-up.",
}
_AFTER = {
    "predict": "Call model.predict once, after the last epoch, or after every fifth one.",
    "evaluate": "model.fit(..., epochs=N, validation_data=(x, y)) evaluates without starting anew, and has "
    "the metrics of the training data too. Or call model.evaluate once, after the last epoch.",
}
_ONCE_ONLY = (parts.IMPORTS, parts.FIRST, parts.TRACING, parts.BUILDING)
_APART = (parts.CALLBACKS, parts.CHECKPOINTING, parts.LINES)


@of_cell
def runs_in_a_loop(model: Model) -> Proposals:
    """A loop calls ``predict``, ``evaluate`` or ``fit``, and each call sets everything up."""
    tree = model.tree
    loops: dict[int, list[int]] = {}
    for row in tree.rows(parts.CALL):
        times, below = int(tree.occurrences[row]), tree.rows_below(row).tolist()
        traced = sum(int(tree.occurrences[at]) for at in below if tree.kind[at] == parts.FIRST)
        # Else of a new model each time.
        if tree.name[row] in _ONCE and times >= max(FEWEST, 2 * traced):
            loops.setdefault(int(tree.parent[row]), []).append(row)
    for loop, calls in loops.items():
        times, epochs = int(tree.occurrences[calls].sum()), repeats.count_epochs(tree, loop)
        predicts = [row for row in calls if tree.name[row] == "predict"]
        if tree.occurrences[predicts].sum() > epochs:  # several after a fit choose what comes next
            epochs = 0
        edits, took = list[Edit](), tree.rows(parts.AROUND, below=loop)
        for row in calls:
            each, below = int(tree.occurrences[row]), tree.rows_below(row).tolist()
            took += [at for at in below if not tree.is_inside(at, (*_APART, *STEPS), row)]
            steps, count = tree.rows(*STEPS, below=row), each
            if epochs and tree.name[row] != "fit":  # in a fit all remain, behind it those of one
                count = min(each, epochs)
            else:  # of one batch each: together they are as many examples in fewer steps
                steps = [at for at in steps if tree.occurrences[at] == each]
            if steps:
                widest = LEFT * model.ran_ps / max(float(tree.wall_ps[steps].sum()), 1)
                edits.append(scale(tree, steps, 1 / count, min(1 / count + widest, 1.0)))
        methods = sorted({tree.name[row] for row in calls}, key=list(_ONCE).index)
        named, called = (" and ".join(f"{of}{name}" for name in methods) for of in ("", "model."))
        spent = int(tree.self_ps[took].sum())
        iterators = [at for at in took if epochs and tree.kind[at] == parts.SETTING_UP]
        again_ps = float(tree.self_ps[iterators].sum()) * len(calls) / times  # remains in a fit
        whole = f", of {duration_text(int(tree.wall_ps[calls].sum()))} in all" * bool(epochs)
        yield Proposal(
            "predict-in-a-loop", f"Call {named} once, not in a loop",
            f"{called} ran {count_text(times)} times. Starting and ending these calls took "
            f"{duration_text(spent)}, {duration_text(spent / times)} each{whole}.",
            " ".join((_AFTER if epochs else _ONCE).get(name, _ONCE[name]) for name in methods),
            f"{KERAS_TRAINING}#{methods[0]}-method",
            [once(tree, took, times // len(calls), (0.0, again_ps), with_below=False), *edits],
            tree.line_above(calls[0]),
        )  # fmt: skip


_EVERY = f"if {{0}} % {SELDOM} == 0: do it at every {SELDOM}th {{0}} only, or {{1}}."
_TELLING = (parts.CALL, parts.CHECKPOINTING, parts.LINES, parts.CALLS, parts.EAGER)


@of_cell
def callbacks(model: Model) -> Proposals:
    """A hook of a callback runs more than once."""
    tree = model.tree
    hooks: dict[str, list[int]] = {}
    for row in tree.rows(parts.CALLBACKS):
        if "." in tree.name[row] and not tree.is_inside(row, (parts.CALLBACKS,), 0, itself=False):
            hooks.setdefault(tree.name[row], []).append(row)
    for hook, rows in hooks.items():
        times, took = sum(map(tree.times_of, rows)), int(tree.wall_ps[rows].sum())
        if times < 2:
            continue
        name = quoted(hook)
        below = {at for row in rows for at in tree.rows_below(row)[1:].tolist()}
        most = [at for at in below if 2 * tree.wall_ps[at] > took and tree.kind[at] in _TELLING]
        each = ("batch", "at the end of an epoch"), ("epoch", "on a part of the data")
        inside, code = "", _EVERY.format(*each["batch_" not in hook])
        if most:  # the outermost of them
            at = min(most)
            is_eager = tree.kind[at] == parts.EAGER
            inside = f", mostly in {'eager ops' if is_eager else quoted(tree.name[at])}"
            calls = int(tree.occurrences[at])
            if calls > times and tree.name[at] in _ONCE:
                inside += f" ({count_text(calls)} calls)"
                code = f"{_ONCE[tree.name[at]]} Or less often: {code}"
        yield Proposal(
            "callback", f"Run {name} less often",
            f"{name} ran {count_text(times)} times and took {duration_text(took)}, "
            f"{duration_text(took / times)} each{inside}.",
            code, "https://keras.io/api/callbacks/", [_less_often(model, rows),
            *model.steps_behind(times, took)], tree.line[rows[0]], {"without": hook},
        )  # fmt: skip


def _less_often(model: Model, rows: Sequence[int]) -> Edit:
    """What is done every fifth time only, or never; what is there once stays."""
    tree = model.tree
    stay = [row for at in rows for row in tree.rows_below(at) if tree.kind[row] in _ONCE_ONLY]
    repeated = np.setdiff1d(tree.with_below(rows), tree.with_below(stay))
    return scale(tree, repeated.tolist(), 0.0, 1 / SELDOM, with_below=False)


@of_cell
def epochs_restarted(model: Model) -> Proposals:
    """Each epoch of a fit makes a new iterator, which is ready only after a while."""
    epochs = [row for row in model.tree.rows(parts.EPOCH) if model.tree.occurrences[row] >= FEWEST]
    if not epochs or not (edits := epochs_restart_free(model, wanted=True)):
        return
    times = sum(int(model.tree.occurrences[row]) for row in epochs)
    took = sum(int(model.tree.self_ps[edit.rows].sum()) for edit in edits)
    yield Proposal(
        "epoch-ends", _FEWER_RESTARTS,
        f"{count_text(times)} epochs each made a new iterator and waited for the first batch: "
        f"{duration_text(took)}, {duration_text(took / times)} each.",
        "Make the dataset once: fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(size), epochs=N). Make "
        "fewer, longer epochs: fit(dataset.repeat(), steps_per_epoch=..., epochs=fewer).",
        _FIT, edits, model.tree.line_above(epochs[0]), {"epochs_restart_free": True},
    )  # fmt: skip


_FEWER_RESTARTS = "Restart the input less often"


@of_trace
def epoch_ends(model: Model, study: Study) -> Proposals:
    """A loop of one's own, or a loaded trace, makes a new iterator for each pass over the data."""
    tree = model.tree
    if study.steps.is_window or study.program.is_taped:
        return  # it trains on batches of its own; the iterators are of something else
    passes, nodes = model.passes, tree.rows(parts.SETTING_UP, parts.EPOCH_ENDS)
    each, count = passes.each_ps, passes.count
    if passes.ends < FEWEST or not nodes or (model.has_looks and tree.rows(parts.EPOCH)):
        return
    below = tree.with_below(nodes)
    if passes.are_batches and model.has_looks:  # all waiting is for a new iterator
        below = np.union1d(below, [*model.loops, *tree.rows(parts.INPUT)])
    whole = float(tree.self_ps[below].sum())
    spoken = whole if model.has_looks else min(each * count, whole)
    if not spoken:
        return
    each = spoken / count if model.has_looks else each
    tracing = tree.rows(parts.TRACING) if model.has_looks else []
    others = set(tree.kind) - {parts.LINES}
    traced = [row for row in tracing if not tree.is_inside(row, others, 0, itself=False)]
    took = int(tree.self_ps[traced].sum())
    if took > spoken:  # in what makes the pipeline: its functions are new each time
        yield Proposal(
            "epoch-ends", "Make the dataset once, before the loop",
            f"{count_text(count)} passes over the data each made a new dataset. Tracing its functions "
            f"took {duration_text(took)}, new iterators {duration_text(spoken)}.",
            "One dataset serves all passes: for batch in dataset. Shuffling and random ops still differ "
            "from pass to pass.",
            f"{GUIDE}/data", [once(tree, [*nodes, *traced], passes.ends, model.costs.restart_ps)],
            tree.line_above(traced[0]),
        )  # fmt: skip
        return
    least, most = (min(cost / each, 1.0) if each else 1.0 for cost in model.costs.restart_ps)
    most = min(most + passes.python_ps / each, 1.0) if each else 1.0
    if passes.are_batches:  # no other is made, and a batch remains
        least, most = 0.0, QUARTER
    took_ps = spoken if model.has_looks else passes.all_ps
    again = " validation_freq=5 validates every fifth epoch." if "test" in study.steps.phase else ""
    yield Proposal(
        "epoch-ends", _FEWER_RESTARTS,
        f"{count_text(count)} {'batches' if passes.are_batches else 'passes over the data'} each waited for "
        f"a new iterator: {duration_text(took_ps)} in all, usually {duration_text(each)}.",
        "A single evaluate or predict over all the data starts the input once."
        if not passes.trains
        else "Make one iterator: batches = iter(dataset.repeat()) before the loop, next(batches) inside."
        if passes.are_batches
        else "One iterator for several passes: for batch in dataset.repeat(epochs)."
        if study.program.is_own_loop
        else "Make epochs longer: fit(dataset.repeat(), steps_per_epoch=..., epochs=fewer) keeps one "
        f"iterator over several passes.{again}",
        f"{GUIDE}/data",
        [Edit(below, least * spoken, most * spoken, spoken / whole)],
    )  # fmt: skip


@of_steps
def unlearned(model: Model, study: Study) -> Proposals:
    """Ops depend on nothing learned: the same in each step, or of an example in each epoch; or look it up."""
    epochs = max([1, *model.tree.occurrences[model.tree.rows(parts.EPOCH)].tolist()])
    kinds = (LOOKUP, SAME, DATA) if epochs > 1 else (LOOKUP, SAME)
    for kind, work in repeats.find_unlearned(study, kinds):
        left = 1 / epochs if kind == DATA else 0.0
        side, most = (f"{study.layers.table.side} compute",), left + (1 - left) * QUARTER
        edits = [model.some_of(side, work.share, (left, most))]
        pays = kind == DATA and replay(model.tree, edits).middle_ps >= LEAST_SHARE * model.ran_ps
        first = model.tree.rows(parts.FIRST) if pays else []  # tracing once is no reason alone
        tracing = ""
        if first:  # traced in a smaller program
            rows = model.tree.with_below(first)
            traced_ps = float(model.tree.self_ps[rows].sum()) * work.share
            edits.append(Edit(rows, QUARTER * traced_ps, (1 - QUARTER) * traced_ps, work.share))
        else:  # of what runs these alone
            tracing_ps = work.count * model.costs.tracing_ps
            edits[0] = replace(edits[0], once_ps=(0.0, tracing_ps))
            tracing = f" Tracing takes up to {duration_text(tracing_ps)} once." * (kind == DATA)
        what = quoted(work.layers) if work.layers else f"the ops of {work.line or 'the step'}"
        took = f"{what[:1].upper()}{what[1:]} took {percent_text(work.share)} of the time from step to step"
        rule, title, evidence, code, page = _UNLEARNED[kind]
        evidence = f"{took}. {evidence.format(epochs=count_text(epochs))}{tracing}"
        yield Proposal(
            rule, title.format(what=what), evidence, code, page, edits, work.line,
        )  # fmt: skip


_FROZEN_GUIDE = "https://keras.io/guides/transfer_learning/"
_UNLEARNED = {
    LOOKUP: (
        "one-hot", "Use an Embedding instead of {what}",
        "One-hot vectors times a weight matrix only look up rows of the matrix.",
        "keras.layers.Embedding(categories, units) takes the integers themselves. It replaces one_hot and "
        "the Dense layer behind.",
        "https://keras.io/api/layers/core_layers/embedding/",
    ),
    SAME: (
        "unlearned", "Compute {what} once, before the loop",
        "These ops use neither data nor weights: every step computes the same.",
        "Compute this value before the loop, outside of the tf.function, and use the tensor in the step.",
        _FROZEN_GUIDE,
    ),
    DATA: (
        "unlearned", "Run {what} once for all epochs",
        "No weight in it is trained: all {epochs} epochs compute the same for each example.",
        "features = frozen.predict(x), then fit the remaining layers on features. Targets and decoded data: "
        "dataset.map(...).cache() before shuffle. Skip this if each epoch augments the examples anew.",
        _FROZEN_GUIDE,
    ),
}  # fmt: skip


@of_cell
def validation(model: Model) -> Proposals:
    """The validation inside ``fit`` takes longer than the training."""
    rows = [row for row in model.tree.rows(parts.CALL) if model.tree.name[row] == "validation"]
    yield from _validate_less(
        model, rows, model.tree.rows(parts.TRAIN), "The validation inside fit",
        f"fit(...): validation_freq={SELDOM} validates every {SELDOM}th epoch, validation_steps=... looks "
        "at a part of the data. For arrays a larger validation_batch_size makes fewer steps.", _FIT,
    )  # fmt: skip


@of_trace
def own_validation(model: Model, study: Study) -> Proposals:
    """In a loop of one's own a ``tf.function`` that validates now and then takes longer than the training."""
    tree = model.tree
    rows = tree.rows(parts.CALLS, *(() if model.has_looks else (parts.MARKED,)))
    if len(rows) < 2:
        return
    validating, training, steps = repeats.find_validating(study, [tree.name[row] for row in rows])
    trained = [row for row in rows if tree.name[row] in training]
    nodes = [_function_around(model, row, trained) for row in rows if tree.name[row] in validating]
    names = " and ".join(quoted(name) for name in validating)
    yield from _validate_less(
        model, nodes if steps >= FEWEST else [], trained, f"{names}, without gradients,",
        f"Validate after every {SELDOM}th epoch, or on a part of the data: for batch in validation.take(n). "
        "Larger batches make fewer calls.", _LOOP,
    )  # fmt: skip


def _validate_less(
    model: Model, rows: Sequence[int], trained: Sequence[int], what: str, code: str, link: str
) -> Proposals:
    rows = list(dict.fromkeys(rows))
    took, training = (int(model.tree.wall_ps[at].sum()) for at in (rows, trained))
    if took > training and rows:
        times = counted_text(sum(map(model.tree.times_of, rows)), "time")
        yield Proposal(
            "validation", "Validate less",
            f"{what} ran {times} and took {duration_text(took)}. The training steps took "
            f"{duration_text(training)}.", code, link,
            [_less_often(model, rows)], model.tree.line_above(rows[0]),
        )  # fmt: skip


def _function_around(model: Model, row: int, others: Sequence[int]) -> int:
    """The outermost function of the user's around some steps that runs no others."""
    tree = model.tree
    above = int(tree.parent[row])
    if tree.kind[above] != parts.LINES or np.isin(others, tree.rows_below(above)).any():
        return row
    return _function_around(model, above, others)


_SAVE_LESS = {
    False: (
        "Save every few epochs or minutes. Without the optimizer's state, save_weights writes less.",
        "https://keras.io/api/callbacks/model_checkpoint/",
    ),
    True: (
        "Save every few minutes: save_checkpoint_secs=600 of MonitoredTrainingSession. Write the graph only "
        "once: saver.save(..., write_meta_graph=False).",
        "https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/Saver",
    ),
}


@of_cell
def saved_often(model: Model) -> Proposals:
    """Models or checkpoints are saved three times or more, outside of callbacks."""
    tree, apart = model.tree, (parts.CALLBACKS, parts.CHECKPOINTING)
    saving = [at for at in tree.rows(apart[1]) if not tree.name[at].endswith(parts.LOADING)]
    rows = [row for row in saving if not tree.is_inside(row, apart, 0, itself=False)]
    saves = [p for p in (model.cell.parts if model.cell else ()) if p.part == parts.CHECKPOINTING]
    times = sum(part.occurrences for part in saves if not part.name.endswith(parts.LOADING))
    if times < 3 or not rows:
        return
    most = max(rows, key=lambda row: int(tree.wall_ps[row]))
    yield Proposal(
        "checkpoints", "Save less often",
        f"{quoted(tree.name[most])} ran at least {count_text(times)} times and took "
        f"{duration_text(int(tree.wall_ps[rows].sum()))}.",
        *_SAVE_LESS[model.program.is_graph],
        [_less_often(model, rows)], tree.line_above(most),
    )  # fmt: skip


@of_steps
def copied_again(model: Model, study: Study) -> Proposals:
    """A loop of PyTorch's copies large tensors in its steps: weights that are kept, mostly."""
    each, share, most = find_copies(study)
    if share < LEAST_SHARE:
        return
    steps = int(model.tree.occurrences[model.main_steps].sum())
    yield Proposal(
        "copied-again", "Copy tensors less often",
        f"The loop makes large copies, {count_text(round(each, 1))} a step, outside of the model and of what "
        f"learns: {percent_text(share)} of the time from step to step, without freeing them.",
        "copy.deepcopy(model.state_dict()) and clone() copy all weights. Copy them once an epoch, or only "
        "where a validation is better than all before. If a step needs its copy, keep it.",
        "https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
        [
            model.some_of((), most, (0.0, 1 - share * (1 - 1 / SELDOM) / most)),
            *model.steps_behind(round(each * steps), share * model.periods_ps),
        ],
    )  # fmt: skip


REPEAT_RULES = (
    runs_in_a_loop, callbacks, epochs_restarted, epoch_ends, unlearned, validation, own_validation,
    saved_often, copied_again,
)  # fmt: skip
