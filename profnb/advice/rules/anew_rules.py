"""Rules on functions and models that are made anew, where one would serve: traced, made or loaded again.

What is new is traced, compiled and set up anew.
"""

from collections.abc import Sequence

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals, of_cell, of_trace
from profnb.advice.replay import Edit, once, scale
from profnb.capture.parts import part_records as parts
from profnb.causes import repeats
from profnb.causes.cell_tree import STEPS, CellTree
from profnb.causes.compiled_again import Retracing, find_retracing, find_tracing_steps
from profnb.causes.numbers import FEWEST, LEFT, QUARTER
from profnb.causes.unrolled import find_recurrence, find_unrolled
from profnb.core.printable import LONGEST_NAME, printable, quoted
from profnb.core.units import count_text, duration_text, percent_text
from profnb.subjects.advising import GUIDE
from profnb.subjects.study import Study


@of_trace
def retracing(model: Model, study: Study) -> Proposals:
    """A ``tf.function`` is traced again and again; each time but the first would be a usual call."""
    again = find_retracing(study)
    if again is None:
        return
    name = printable(again.function)
    edit = _traced_once(model, study, again)
    spent_ps = float(study.trace.events.duration_ps[again.events].sum())
    if model.has_looks:  # of all calls, not of the recorded ones alone
        spent_ps = float(model.tree.self_ps[edit.rows].sum()) * edit.share
    times = f"in {count_text(again.traced)} of {count_text(again.calls)} recorded calls"
    if again.is_made:
        evidence = f"{name[:100]} was a new tf.function {times}. TensorFlow traces each of them."
        code = "Make the tf.function once, before the loop, and pass changing values as tensors."
    else:
        why = ". A Python number, a new object or a new shape comes with each call."
        if again.changing:
            why = f": {printable(again.changing)}."
        evidence = f"{name[:100]} was traced anew {times}{why}"
        code = (
            "Pass tensors instead of Python numbers, or @tf.function(reduce_retracing=True). Fix shapes: "
            "input_signature=[tf.TensorSpec([None, ...], tf.float32)]."
        )
        if again.is_keras:
            code = "Give every batch one shape and type: .batch(n, drop_remainder=True), or pad to lengths."
    yield Proposal(
        "retracing", f"{'Define' if again.is_made else 'Trace'} {name[:LONGEST_NAME]} once",
        f"{evidence} Calls that traced took {duration_text(spent_ps)} in all.", code,
        _RETRACING, [edit], again.where,
    )  # fmt: skip


_RETRACING = f"{GUIDE}/function#controlling_retracing"


def _traced_once(model: Model, study: Study, again: Retracing) -> Edit:
    """Steps that trace become usual ones: what is known of those, or their ops and a call of the function."""
    tree, taken = model.tree, find_tracing_steps(study, again.events, model.costs.call_ps)
    rows = tree.with_below(tree.rows(parts.FIRST))
    if taken is None or not tree.self_ps[rows].sum():
        calls_ps = float(study.trace.events.duration_ps[again.events].sum())
        nodes = tree.rows(parts.TRACING, parts.COMPILATION) or tree.rows(parts.GAPS) or [0]
        rows = tree.with_below(nodes)
        whole = float(tree.self_ps[rows].sum())
        spoken = whole * again.share if model.has_looks else min(calls_ps, whole)
        least, most = (min(cost * again.events.size, spoken) for cost in model.costs.call_ps)
        return Edit(rows, least, most, spoken / whole if whole else 0.0)
    share = taken.spent_ps / (taken.traced_ps if model.has_looks else taken.warm_up_ps)
    if model.has_looks:  # of all that traced, recorded or not, one is this function's due
        recorded = taken.others + taken.count
        every = max(int(tree.occurrences[tree.rows(parts.FIRST)].sum()), recorded)
        share += (1 - share) / max(taken.others, 1) * (1 - recorded / every)
    spoken = float(tree.self_ps[rows].sum()) * share
    least, most = (spoken * min(each / taken.spent_ps, 1.0) for each in taken.left_ps)
    # Beside tracing and compiling, which the tree has apart, all may remain.
    inside = [row for row in rows.tolist() if tree.kind[row] in (parts.TRACING, parts.COMPILATION)]
    most = min(most, max(spoken - share * float(tree.self_ps[inside].sum()), least))
    return Edit(rows, least, most, share)


_ANEW = {
    False: (
        "Make the model once, not in a loop",
        "Make and compile the model once. Before training, call "
        "model.optimizer.build(model.trainable_variables) and keep saved = [v.numpy() for v in "
        "model.variables + model.optimizer.variables]. Assign the saved values back before each run.",
    ),
    True: (
        "Compile the model once, not in a loop",
        "Compile the model before the loop. Assign changed values: model.optimizer.learning_rate = 1e-4.",
    ),
}


@of_trace
def new_model_in_a_loop(model: Model, study: Study) -> Proposals:
    """One line makes or compiles Keras' models again and again, each traced."""
    again, tree = repeats.find_models_again(study), model.tree
    if again is None:
        return
    rows = tree.with_below(tree.rows(parts.BUILDING, parts.FIRST))
    whole = float(tree.self_ps[rows].sum())
    spent = min(again.spent_ps, whole)
    usual = 0.0 if study.summary.all_warm_up else study.summary.mean_period_ps * again.traced
    title, code = _ANEW[again.is_compiled]
    happened = "compiled a model" if again.is_compiled else "made a new model"
    if spent:
        yield Proposal(
            "new-model-in-a-loop", title,
            f"One line {happened} {count_text(again.count)} times, and Keras traced each. The tracing took "
            f"{duration_text(spent)}, without the first time.", code, _RETRACING,
            [Edit(rows, 0.0, min(usual, spent), spent / whole), *_set_up_for(model, again.traced)],
            again.line,
        )  # fmt: skip


def _set_up_for(model: Model, times: float) -> list[Edit]:
    """What calls of new models set up: of a model that ran before a new iterator remains, and some Python."""
    tree, rows, calls = model.tree, list[int](), 0
    outermost = [
        row
        for row in tree.rows(parts.CALL)
        if not tree.is_inside(row, (parts.CALL,), 0, itself=False)
    ]
    for call in outermost:
        below = tree.rows_below(call).tolist()
        firsts = [row for row in below if tree.kind[row] == parts.FIRST]
        if tree.occurrences[firsts].sum() >= tree.occurrences[call] > 0:
            inside = set(tree.with_below(firsts).tolist())
            rows += [at for at in below if tree.kind[at] in _SETS_UP and at not in inside]
            calls += int(tree.occurrences[call])
    share = min(times / calls, 1.0) if calls else 0.0
    whole = float(tree.self_ps[rows].sum()) * share
    least, most = (each * times for each in model.costs.restart_ps)
    return [
        Edit(np.array(rows, np.int64), min(least, whole), min(most + LEFT * whole, whole), share)
    ]


_SETS_UP = (parts.AROUND, parts.SETTING_UP, parts.TRACING, parts.COMPILATION)


_FROM_THE_SAME = (
    "Load it once, before the loop, and keep saved = model.get_weights(). Before each run: "
    "model.set_weights(saved)."
)
_LOADED = {
    parts.CHECKPOINTING: (
        "Load it before the loop, or when the service starts, and keep it. @functools.cache over the "
        "function that loads keeps it for all calls.",
        "https://keras.io/guides/serialization_and_saving/",
    ),
    parts.INTERPRETER: (
        "Make the interpreter and call allocate_tensors() once, before the loop. set_tensor and invoke() "
        "serve all examples.",
        "https://ai.google.dev/edge/litert/inference",
    ),
}


@of_cell
def loaded_again(model: Model) -> Proposals:
    """The same model is loaded, or its interpreter made, five times or more, and each is run.

    What is loaded anew is traced and warmed up anew, and put away.
    """
    tree = model.tree
    for loads in model.cell.loads if model.cell else ():
        nodes = [row for row in tree.rows(*_LOADED) if tree.name[row] == loads.name]
        again, above = loads.times / loads.models, tree.rows_above(nodes[0])[1:] if nodes else []
        loop, steps = _runs_each(tree, above, loads.times)
        if again < FEWEST or not steps:
            continue
        kind = tree.kind[nodes[0]]
        beside = tree.rows(kind, below=above[0])
        nodes += [row for row in beside if tree.name[row] == "Interpreter.allocate_tensors"]
        took, names = int(tree.wall_ps[nodes].sum()), dict.fromkeys(tree.name[row] for row in nodes)
        nodes += above[: above.index(loop)]  # which only load
        used = tree.with_below(steps).tolist()
        traced = [at for at in used if tree.kind[at] in (parts.TRACING, parts.COMPILATION)]
        rest = np.setdiff1d(used, traced).tolist()
        different = f" for {count_text(loads.models)} models" * (loads.models > 1)
        evidence = (
            f"{' and '.join(map(quoted, names))} ran {count_text(loads.times)} times{different} and took "
            f"{duration_text(took)}, {duration_text(took / loads.times)} each."
        )
        first = f" Tracing what was loaded took {duration_text(int(tree.self_ps[traced].sum()))}."
        title = "interpreter" if kind == parts.INTERPRETER else "model"
        code, link = _LOADED[kind]
        if any(tree.name[row] == "train" for row in steps):
            code = _FROM_THE_SAME
        yield Proposal(
            "loaded-again", f"Load the {title} once", f"{evidence}{first * bool(traced)}", code, link,
            [
                once(tree, [*nodes, *traced], again, (0.0, 0.0), with_below=False),
                scale(tree, [*rest, loop], max(QUARTER, 1 / again), 1.0, with_below=False),
            ],
            tree.line_above(nodes[0]),
        )  # fmt: skip


def _runs_each(tree: CellTree, above: Sequence[int], times: int) -> tuple[int, list[int]]:
    """The innermost function or line around what loads that runs each that was loaded, and these steps."""
    for loop in above:
        if loop and tree.kind[loop] != parts.LINES:
            break
        steps = [row for row in tree.rows_below(loop).tolist() if tree.kind[row] in STEPS]
        each = [row for row in steps if times <= 2 * tree.occurrences[row] <= 2 * times]
        if each:
            return loop, each
    return 0, []


@of_trace
def written_out(model: Model, study: Study) -> Proposals:
    """Tracing wrote out a loop whose turns need one another: recurrent layers with ``unroll=True``.

    TensorFlow's own loop starts each op anew: steps took 0.9 to 2 times as long in five programs.
    """
    tree = model.tree
    tracing, steps = (tree.with_below(rows) for rows in (tree.rows(parts.FIRST), model.main_steps))
    tracing_ps, steps_ps = (float(tree.self_ps[rows].sum()) for rows in (tracing, steps))
    loop = find_recurrence(study) if tracing.size else None
    if loop is None:
        return
    traced_ps = tracing_ps * loop.traced
    if steps_ps > (1 - QUARTER) * traced_ps:  # twice as long they take more than is saved
        return
    if (free := find_unrolled(study)) and free.traced > loop.traced:
        return
    remains, slower = (traced_ps / loop.turns, traced_ps * QUARTER), (0.0, steps_ps)
    named = " and ".join(quoted(at.rpartition("/")[2]) for at in loop.layers[:2] if at)
    yield Proposal(
        "written-out", "Trace one turn of the loop, not all",
        f"Tracing wrote all {count_text(loop.turns)} turns of a loop{f' in {named}' * bool(named)} into the "
        f"graph: {percent_text(loop.traced)} of its ops, {duration_text(traced_ps)} of the first steps.",
        "Recurrent layers of Keras: unroll=False. A loop of your own: keras.layers.RNN(cell), or for t in "
        "tf.range(n). Steps may then take up to twice as long: for a long training compare both.",
        "https://keras.io/api/layers/recurrent_layers/rnn/",
        [Edit(tracing, *remains, loop.traced, once_ps=slower)],
        tree.line_above(tree.rows(parts.FIRST)[0]),
    )  # fmt: skip


ANEW_RULES = (retracing, new_model_in_a_loop, loaded_again, written_out)
