"""Rules on what is traced, validated or made again and again, and on steps that take longer each time."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, with_below_of
from profnb.advice.rules.cell_rules import less_often
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import COMPILATION, LINES, TRACING
from profnb.causes import slowing
from profnb.causes.around_ops import ops_at_work
from profnb.causes.numbers import FEWEST, SELDOM
from profnb.causes.repeats import find_models_again, find_validating
from profnb.causes.traced_again import Retracing, find_retracing, traced_steps
from profnb.core.printable import printable, quoted
from profnb.core.units import count_text, counted_text, duration_text, percent_text
from profnb.subjects.advising import GUIDE
from profnb.subjects.study import Study
from profnb.trace.framework import words

_LONGEST = 60


def retracing(model: Model) -> Iterator[Proposal]:
    """A ``tf.function`` is traced again and again; each time but the first would be a usual call."""
    study = model.traced
    again = find_retracing(study)
    if again is None:
        return
    events, name = study.trace.events, printable(again.function)
    spent = duration_text(int(events.duration_ps[again.events].sum()))
    times = f"in {count_text(again.traced)} of its {count_text(again.calls)} calls, {spent} in all"
    made = f"{name[:100]} was a new tf.function {times}: each object is traced on its own."
    why = (
        f": {printable(again.changing)}."
        if again.changing
        else ". A Python number, a new object or a new shape comes with each call."
    )
    one_shape = "Give every batch one shape and type: .batch(n, drop_remainder=True), or pad to few lengths."
    yield Proposal(
        "retracing", f"{'Make' if again.is_made else 'Trace'} {name[:_LONGEST]} once",
        made if again.is_made else f"{name[:100]} was traced anew {times}{why}",
        "Make the tf.function once, before the loop, and pass what changes as tensors."
        if again.is_made
        else one_shape
        if again.is_keras
        else "Pass tensors instead of Python numbers, or @tf.function(reduce_retracing=True). Fix shapes: "
        "input_signature=[tf.TensorSpec([None, ...], tf.float32)].",
        f"{GUIDE}/function#controlling_retracing", [_traced_once(model, study, again)], again.where,
    )  # fmt: skip


def _traced_once(model: Model, study: Study, again: Retracing) -> Edit:
    """Steps that trace become usual ones: what is known of those, or their ops and a call of the function."""
    tree, step = model.tree, study.groups.step
    calls_ps = float(study.trace.events.duration_ps[again.events].sum())
    dues = np.unique(step[again.events])
    dues = dues[dues >= 0]
    rows = with_below_of(tree, model.rows(parts.FIRST))
    if not dues.size or study.steps.is_window or not tree.self_ps[rows].sum():
        nodes = model.rows(TRACING, COMPILATION) or model.rows(parts.GAPS) or [0]
        rows = with_below_of(tree, nodes)
        whole = float(tree.self_ps[rows].sum())
        spoken = whole * again.share if model.has_looks else min(calls_ps, whole)
        least, most = (min(cost * again.events.size, spoken) for cost in model.costs.call_ps)
        because = f"tracing took {duration_text(spoken)}"
        return Edit(rows, least, most, because, spoken / whole if whole else 0.0)
    traced = traced_steps(study) if model.has_looks else np.flatnonzero(study.steps.is_warmup)
    spent = float(study.steps.duration_ps[dues].sum())
    of_all = float(study.steps.duration_ps[np.union1d(traced, dues)].sum())
    phases = {study.steps.phase[row] for row in dues.tolist()}
    usual = np.concatenate([study.steps.rows_of(phase) for phase in phases])
    if usual.size:
        usual_ps = study.steps.duration_ps[usual]
        left = [float(np.median(usual_ps)) * dues.size, float(usual_ps.mean()) * dues.size]
    else:
        ops, beside = ops_at_work(study), max(spent - calls_ps, 0.0)
        ops_ps = float(study.trace.events.duration_ps[ops[np.isin(step[ops], dues)]].sum())
        least_ps, most_ps = (float(cost * dues.size) for cost in model.costs.call_ps)
        left = [least_ps + beside, most_ps + ops_ps + beside]
    whole, share = float(tree.self_ps[rows].sum()), spent / of_all
    least, most = (whole * share * min(each / spent, 1.0) for each in sorted(left))
    because = f"steps that traced took {duration_text(whole * share)} besides the first"
    return Edit(rows, least, most, because, share)


_GROWS = {
    slowing.INPUT: "Look for what the input does more of from batch to batch. A generator may search, copy "
    "or concatenate all it gave before, or read a file from its start each time.",
    slowing.PYTHON: "Look for what grows in the loop, as a list of losses that is summed or drawn anew. Keep "
    "a running sum, and of each loss float(loss), not the tensor.",
    slowing.MORE: "Look for what makes each step run more ops: longer sequences, a loop that counts up, "
    "losses that are added again.",
    slowing.SAME: "If batches and sequences keep their sizes, the machine got slower. Look at its clock and "
    "temperature (nvidia-smi -q -d CLOCK,PERFORMANCE), its free memory, what else runs on it.",
    "": "Trace more of the steps (-n STEPS) to see which part of a step grows.",
}


def slowing_down(model: Model) -> Iterator[Proposal]:
    """Steps take longer and longer; had they stayed as they began, all would take what the early ones do."""
    study = model.traced
    slow = slowing.find_slowing(study)
    if slow is None:
        return
    rise, code = slow.rise, _GROWS[slow.cause]
    since = f"most of it from about step {count_text(rise.change or 0)} on"
    share = rise.excess * min(slow.whole_ps / model.periods_ps, 1.0)
    yield Proposal(
        "slowing-down", "Find what slows the steps down",
        f"The last quarter of {count_text(slow.count)} steps took {duration_text(rise.late)} each, the first "
        f"{duration_text(rise.early)}: {percent_text(rise.late / rise.early - 1)} longer, "
        f"{'bit by bit' if rise.change is None else since}.{slow.what}",
        words(study.framework, code, sessions=code.replace("float(loss)", "its value")),
        f"{GUIDE}/profiler",
        [model.some_of((), share, (0.0, 0.0), f"{percent_text(share)} is what later steps took more")],
    )  # fmt: skip


def own_validation(model: Model) -> Iterator[Proposal]:
    """In a loop of one's own a ``tf.function`` that validates now and then takes longer than the training."""
    study, tree = model.traced, model.tree
    rows = model.rows(parts.CALLS, *(() if model.has_looks else (parts.MARKED,)))
    if len(rows) < 2:
        return
    validating, training, steps = find_validating(study, [tree.name[row] for row in rows])
    steps_of_training = [row for row in rows if tree.name[row] in training]
    nodes = [
        _function_around(model, row, steps_of_training)
        for row in rows
        if tree.name[row] in validating
    ]
    nodes = list(dict.fromkeys(nodes))
    took = int(tree.wall_ps[nodes].sum())
    trained = int(tree.wall_ps[steps_of_training].sum())
    if steps < FEWEST or took <= trained:
        return
    names = " and ".join(quoted(name, _LONGEST) for name in validating)
    calls = sum(map(model.times_of, nodes))
    yield Proposal(
        "validation", "Validate less",
        f"{names}, without gradients, took {duration_text(took)} ({counted_text(calls, 'call')}); the "
        f"training took {duration_text(trained)}.",
        f"Validate after every {SELDOM}th epoch, or on a part of the data: for batch in validation.take(n). "
        "Larger batches make fewer calls.",
        f"{GUIDE}/keras/writing_a_training_loop_from_scratch",
        [less_often(model, nodes, f"{names} took {duration_text(took)}")], model.line_above(nodes[0]),
    )  # fmt: skip


def _function_around(model: Model, row: int, others: Sequence[int]) -> int:
    """The outermost function of the user's around some steps that runs no others."""
    tree = model.tree
    above = int(tree.parent[row])
    if tree.kind[above] != LINES or np.isin(others, tree.rows_below(above)).any():
        return row
    return _function_around(model, above, others)


_ANEW = {
    "same": (
        "Make the model once, not in a loop",
        "Make and compile it once. Keep saved = [v.numpy() for v in model.variables + "
        "model.optimizer.variables] before it trains (model.optimizer.build(model.trainable_variables) "
        "first), and assign them back before each turn.",
    ),
    "differ": (
        "Trace fewer models",
        "Models that differ in a number alone can be one: assign it (model.optimizer.learning_rate = 1e-4) "
        "and the first weights before each turn. Of other sizes try fewer, each for more steps.",
    ),
    "compiled": (
        "Compile the model once, not in a loop",
        "Compile it before the loop. Assign what changes: model.optimizer.learning_rate = 1e-4.",
    ),
}


def new_model_in_a_loop(model: Model) -> Iterator[Proposal]:
    """One line makes or compiles Keras' models again and again, each of which is traced."""
    study, tree = model.traced, model.tree
    again = find_models_again(study)
    rows = with_below_of(tree, model.rows(parts.BUILDING, parts.FIRST))
    whole = float(tree.self_ps[rows].sum())
    if again is None or not whole:
        return
    spent = min(float(again.spent_ps), whole)
    usual = 0.0 if study.summary.all_warm_up else study.summary.mean_period_ps * again.traced
    title, code = _ANEW[again.kind]
    yield Proposal(
        "new-model-in-a-loop", title,
        f"{count_text(again.count)} times one line ran a model that was "
        f"{'compiled' if again.kind == 'compiled' else 'made'} anew, and Keras traced its functions for "
        f"each. That took {duration_text(spent)} besides the first.",
        code, f"{GUIDE}/function#controlling_retracing",
        [Edit(rows, 0.0, spent if again.kind == "differ" else min(usual, spent),
              f"making and tracing {count_text(again.count)} models took {duration_text(spent)} besides the "
              "first", spent / whole)],
        again.line,
    )  # fmt: skip


AGAIN_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    retracing, slowing_down, own_validation, new_model_in_a_loop,
)  # fmt: skip
