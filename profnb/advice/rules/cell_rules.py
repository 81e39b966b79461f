"""Rules that ask the tree of the cell: what is done too often, set up again and again, or not compiled.

Each says which nodes a change takes time from, and what of it remains; a rule never asks whether another one
speaks of the same nodes (see ``advise``).
"""

from collections.abc import Callable, Iterator, Sequence

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, once, scale
from profnb.advice.what_if import compiled_at, epochs_restart_free
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CALL, CELL, EAGER, EPOCH, FRAMEWORK, LINES
from profnb.causes.cell_tree import STEPS
from profnb.causes.numbers import FEWEST, NEARLY_ALL, SELDOM
from profnb.core.printable import quoted
from profnb.core.units import count_text, duration_text
from profnb.subjects.advising import GUIDE, KERAS_TRAINING
from profnb.trace.framework import JAX, SESSIONS, words

_LONGEST = 60
_CALLBACKS = "https://keras.io/api/callbacks/"
_ONCE = {
    "predict": "Call model.predict once over all examples; it batches them (batch_size=...). Where each one "
    "has to wait for the one before: model(x, training=False) inside a tf.function, or "
    "model.predict_on_batch(x), which set up nothing.",
    "evaluate": "Call model.evaluate once over all examples, or model.test_on_batch(x, y) for batches that "
    "come one by one: it sets up nothing.",
    "fit": "Call model.fit once over all data (epochs=N passes over it N times), or "
    "model.train_on_batch(x, y) for batches that come one by one: it sets up nothing.",
}


def runs_in_a_loop(model: Model) -> Iterator[Proposal]:
    """``predict``, ``evaluate`` or ``fit`` is called several times, and each call sets everything up."""
    tree = model.tree
    for row in model.rows(CALL):
        method, times = tree.name[row], int(tree.occurrences[row])
        below = tree.rows_below(row).tolist()
        traced = sum(int(tree.occurrences[at]) for at in below if tree.kind[at] == parts.FIRST)
        if method not in _ONCE or times < FEWEST or traced > times / 2:  # of a new model each time
            continue
        below = [at for at in below if not model.is_inside(at, _APART, row)]
        around = [at for at in below if not model.is_inside(at, STEPS, row)]
        around += model.rows(parts.AROUND, below=int(tree.parent[row]))
        took = int(tree.self_ps[around].sum())
        because = f"setting up and leaving {count_text(times)} calls took {duration_text(took)}"
        edits = [once(tree, around, times, (0.0, 0.0), because, with_below=False)]
        steps = [at for at in model.rows(*STEPS, below=row) if tree.occurrences[at] == times]
        if steps:  # of one batch each: together they are as many examples in fewer steps
            edits.append(scale(tree, steps, 1 / times, 1.0, "larger batches take no longer"))
        yield Proposal(
            "predict-in-a-loop", f"Call {method} once, not in a loop",
            f"model.{method} was called {count_text(times)} times. Setting the calls up and leaving them "
            f"took {duration_text(took)}, {duration_text(took / times)} each.",
            _ONCE[method], f"{KERAS_TRAINING}#{method}-method", edits, model.line_above(row),
        )  # fmt: skip


_APART = (parts.CALLBACKS, parts.CHECKPOINTING, LINES)


def callbacks(model: Model) -> Iterator[Proposal]:
    """A hook of a callback that runs more than once."""
    tree = model.tree
    hooks: dict[str, list[int]] = {}
    for row in model.rows(parts.CALLBACKS):
        if "." in tree.name[row] and not model.is_inside(row, (parts.CALLBACKS,), 0, itself=False):
            hooks.setdefault(tree.name[row], []).append(row)
    for hook, rows in hooks.items():
        times, took = sum(map(model.times_of, rows)), int(tree.wall_ps[rows].sum())
        if times < 2:
            continue
        name = quoted(hook, _LONGEST)
        inside = _largest_inside(model, rows)
        yield Proposal(
            "callback", f"Run {name} less often",
            f"{name} ran {count_text(times)} times and took {duration_text(took)}, "
            f"{duration_text(took / times)} each{f', most of it in {inside}' if inside else ''}.",
            _SELDOM_IN_CALLBACK.get(hook.rpartition(".on_")[2], _SELDOM_IN_CALLBACK["epoch_end"]),
            _CALLBACKS,
            [less_often(model, rows, f"{name} took {duration_text(took)}"), *model.steps_behind(times, took)],
            tree.line[rows[0]], {"without": hook},
        )  # fmt: skip


_BATCHES_APART = (
    f"if batch % {SELDOM} == 0: do it at every {SELDOM}th batch only, or at the end of an epoch."
)
_SELDOM_IN_CALLBACK = {
    "epoch_end": f"if epoch % {SELDOM} == 0: do it at every {SELDOM}th epoch only, or on a part of the data.",
    **dict.fromkeys(
        ["batch_end", "batch_begin", "train_batch_end", "train_batch_begin"], _BATCHES_APART
    ),
}


def less_often(model: Model, rows: Sequence[int], because: str) -> Edit:
    """What is done every fifth time only, or never."""
    return scale(model.tree, rows, 0.0, 1 / SELDOM, because)


def _largest_inside(model: Model, rows: Sequence[int]) -> str:
    """The node below that takes most of some nodes' time, if one does."""
    tree = model.tree
    whole = int(tree.wall_ps[rows].sum())
    below = {at for row in rows for at in tree.rows_below(row)[1:].tolist()}
    named = [at for at in below if 2 * tree.wall_ps[at] > whole and tree.kind[at] in _TELLING]
    if not named:
        return ""
    at = min(named)  # the outermost
    if tree.kind[at] == EAGER:
        return "ops that are not compiled"
    return quoted(tree.name[at], _LONGEST)


_TELLING = (CALL, parts.CHECKPOINTING, LINES, parts.CALLS, EAGER)


def epochs_restarted(model: Model) -> Iterator[Proposal]:
    """Each epoch of a fit makes a new iterator, which is ready only after a while."""
    epochs = [row for row in model.rows(EPOCH) if model.tree.occurrences[row] >= FEWEST]
    if not epochs or not (edits := epochs_restart_free(model, wanted=True)):
        return
    times = sum(int(model.tree.occurrences[row]) for row in epochs)
    took = sum(int(model.tree.self_ps[edit.rows].sum()) for edit in edits)
    yield Proposal(
        "epoch-ends", "Make epochs longer, or their ends shorter",
        f"{count_text(times)} epochs each made a new iterator and waited for its first batch: "
        f"{duration_text(took)}, {duration_text(took / times)} each.",
        "Make the dataset once, not from arrays in each epoch: fit(tf.data.Dataset.from_tensor_slices((x, y))"
        ".batch(size), epochs=N). Fewer, longer epochs: fit(dataset.repeat(), steps_per_epoch=..., "
        "epochs=fewer) keeps one iterator over several passes.",
        f"{KERAS_TRAINING}#fit-method", edits, model.line_above(epochs[0]),
        {"epochs_restart_free": True},
    )  # fmt: skip


def validation(model: Model) -> Iterator[Proposal]:
    """The validation inside ``fit`` takes longer than the training."""
    tree = model.tree
    rows = [row for row in model.rows(CALL) if tree.name[row] == "validation"]
    took = int(tree.wall_ps[rows].sum())
    training = int(tree.wall_ps[model.rows(parts.TRAIN)].sum())
    if took <= training or not rows:
        return
    times = sum(map(model.times_of, rows))
    yield Proposal(
        "validation", "Validate less",
        f"The validation inside fit ran {count_text(times)} times and took {duration_text(took)}; the "
        f"training steps took {duration_text(training)}.",
        f"fit(...): validation_freq={SELDOM} validates every {SELDOM}th epoch; validation_steps=... looks at "
        "a part of the data; a larger validation_batch_size (of arrays) makes fewer steps.",
        f"{KERAS_TRAINING}#fit-method",
        [less_often(model, rows, f"validation took {duration_text(took)}")], model.line_above(rows[0]),
    )  # fmt: skip


def saved_often(model: Model) -> Iterator[Proposal]:
    """Models or checkpoints are saved three times or more, outside of callbacks."""
    tree = model.tree
    rows = [
        row
        for row in model.rows(parts.CHECKPOINTING)
        if not tree.name[row].endswith(parts.LOADING)
        and not model.is_inside(row, (parts.CALLBACKS, parts.CHECKPOINTING), 0, itself=False)
    ]
    times, took = model.saves, int(tree.wall_ps[rows].sum())
    if times < 3 or not rows:
        return
    most = max(rows, key=lambda row: int(tree.wall_ps[row]))
    name = quoted(tree.name[most], _LONGEST)
    yield Proposal(
        "checkpoints", "Save less often",
        f"{name} ran at least {count_text(times)} times and took {duration_text(took)}.",
        words(
            model.framework,
            "Save after several epochs or minutes, not after each. Where the optimizer's state is not "
            "needed, save_weights writes less than save.",
            sessions="Save every few minutes: save_checkpoint_secs=600 of MonitoredTrainingSession. The "
            "graph need be written only once: saver.save(..., write_meta_graph=False).",
        ),
        words(
            model.framework, "https://keras.io/api/callbacks/model_checkpoint/",
            sessions="https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/Saver",
        ),
        [less_often(model, rows, f"saving took {duration_text(took)}")], model.line_above(most),
    )  # fmt: skip


def own_functions(model: Model) -> Iterator[Proposal]:
    """An own function that runs its ops one by one, or is Python; lines of the cell that are so."""
    tree = model.tree
    for row in model.rows(LINES):
        above = int(tree.parent[row])
        if model.is_inside(above, (CALL, parts.CALLBACKS, *STEPS), 0) or _is_whole(model, above):
            continue
        if not _is_whole(model, row):
            yield from _with_steps_inside(model, row)
            continue
        row = _innermost(model, row)  # noqa: PLW2901
        below = tree.rows_below(row).tolist()
        eager = [at for at in below if tree.kind[at] == EAGER]
        python = [at for at in below if tree.kind[at] in (LINES, FRAMEWORK)]
        # Layers that are called for the first time are built, wherever that is.
        if any(tree.kind[at] in _ASIDE and tree.name[at] != "layers" for at in below):
            continue
        if 2 * int(tree.wall_ps[eager].sum()) > int(tree.wall_ps[row]):
            yield from _compile(model, row, int(tree.wall_ps[row]))
        else:
            yield from _python(model, row, python, int(tree.self_ps[python].sum()))


def _innermost(model: Model, row: int) -> int:
    """The function inside of a function that takes nearly all of its time, which is what to change."""
    tree = model.tree
    for below in model.rows(LINES, below=row):
        if tree.name[below] and tree.wall_ps[below] > NEARLY_ALL * tree.wall_ps[row]:
            return _innermost(model, below)
    return row


_ASIDE = (parts.INPUT, parts.CHECKPOINTING, parts.BUILDING, parts.IMPORTS, CALL)


def _is_whole(model: Model, row: int) -> bool:
    """Whether a node is an own function, or lines of the cell, that runs no step."""
    return model.tree.kind[row] != CELL and not model.tree.has_steps(row)


def _with_steps_inside(model: Model, row: int) -> Iterator[Proposal]:
    """What the function that has the loop does itself, beside the steps."""
    tree = model.tree
    eager = model.rows(EAGER, below=row)
    if eager:
        yield from _compile(model, row, int(tree.wall_ps[eager].sum()), eager)
    line = model.own_line(row)
    if not eager and tree.self_ps[row] and line not in model.input_lines:
        yield from _python(model, row, [row], int(tree.self_ps[row]), line)


def _compile(
    model: Model, row: int, took: int, eager: Sequence[int] | None = None
) -> Iterator[Proposal]:
    tree = model.tree
    # In a session ops are made for a graph, and not run; of JAX's the trace tells which are too small.
    if model.framework in (SESSIONS, JAX):
        return
    name = tree.name[row] and quoted(tree.name[row], _LONGEST)
    what = name or f"the code at {tree.line[row]}"
    if eager is not None:
        what = f"what {what} runs between the steps"
    yield Proposal(
        "eager-ops", f"Put {what} into a tf.function",
        f"{what[:1].upper()}{what[1:]} was ops one by one, which took {duration_text(took)}. Compiled, they "
        "are started together.",
        "Put @tf.function(reduce_retracing=True) over the function that runs them. What reads values there "
        "(a float or an array of a tensor, an if on one) has to stay outside of it.",
        f"{GUIDE}/function", [compiled_at(model, row, eager)], tree.line[row],
        {"compiled": tree.name[row]} if name and eager is None else None,
    )  # fmt: skip


def _python(
    model: Model, row: int, rows: Sequence[int], took: int, line: str = ""
) -> Iterator[Proposal]:
    """Python of one's own, as far as nothing else was at work: a line may wait for a device, or copy."""
    tree = model.tree
    python = min(model.python_share * (tree.whole_ps - model.own_ps), took)
    if not python:
        return
    name = "" if line else tree.name[row] and quoted(tree.name[row], _LONGEST)
    where = line or tree.line[row]
    what = name or f"the code at {where}"
    because = f"{what} took {duration_text(python)}"
    left = 1 - python / took
    yield Proposal(
        "own-python", f"Do less in {what}",
        f"{what[:1].upper()}{what[1:]} took {duration_text(python)} of Python"
        f"{', with lines near it' if line else ''}, while nothing computed.",
        f"Do it every {SELDOM}th time, vectorise it, or move it to a thread that works beside the "
        "steps.",
        f"{GUIDE}/data_performance",
        [
            # What people reached in the programs of tests/benchmarks/gains.py was 60 to 100 %.
            scale(tree, rows, left, left + (1 - left) * 2 / SELDOM, because, with_below=False),
            *model.steps_behind(model.times_of(row), python),
        ],
        where,
        {"without": tree.name[row]} if name else None,
    )  # fmt: skip


CELL_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    runs_in_a_loop, callbacks, epochs_restarted, validation, saved_often, own_functions,
)  # fmt: skip
