"""Rules on Python and what it runs one by one, between the steps and in them.

Where a capture of ours looked at the cell, callbacks, own functions and ends of epochs are nodes of the tree;
what is left between the steps is the framework's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals, of_cell, of_steps, of_trace
from profnb.advice.replay import Edit, scale
from profnb.advice.what_if import compiled_at
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CALL, CELL, EAGER, FRAMEWORK, LINES
from profnb.causes.cell_tree import STEPS, CellTree
from profnb.causes.numbers import FEWEST, LEFT, NEARLY_ALL, QUARTER, SELDOM
from profnb.causes.python_work import (
    EagerRuns,
    find_eager_runs,
    find_python_between,
    find_python_in_steps,
    python_in_steps_share,
    shares_of_calls,
)
from profnb.causes.repeats import longest_line
from profnb.causes.starving import (
    examples_a_step,
    has_tiny_batches,
    input_runs_python,
    input_work_share,
    long_ops_share,
)
from profnb.core.columns import flags_at
from profnb.core.printable import LONGEST_NAME, printable, quoted
from profnb.core.units import count_text, counted_text, duration_text, durations_text, percent_text
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import GUIDE, JIT_GUIDE, TORCH_COMPILE_GUIDE, guide, share_of
from profnb.subjects.study import Study
from profnb.subjects.unseen import is_fed
from profnb.trace.names import PYTHON_OPS, parse_op

_IN_ONE_CALL = 16
_STAYS = {
    "predict": " Predictions stay the same.",
    "evaluate": " The loss stays; a metric that is a plain function is a mean over batches, and may change.",
}
_OF_FIT = (
    f"model.compile(..., steps_per_execution={_IN_ONE_CALL}) runs {_IN_ONE_CALL} steps in one call."
)
_OPS_RUN = "the function that runs these ops"
_ONE_FUNCTION = "A loop of your own can put several steps into one tf.function."
# Of a cell that has nothing else, nothing waits for its Python.
_ONLY_PYTHON = {CELL, LINES, FRAMEWORK, parts.PROFNB, parts.IMPORTS, parts.WAITING}
_ASIDE = {parts.INPUT, parts.CHECKPOINTING, parts.BUILDING, parts.IMPORTS, CALL}


@of_cell
def own_functions(model: Model) -> Proposals:
    """An own function that runs its ops one by one, or is Python; lines of the cell that are so."""
    tree, loops, others = model.tree, list[int](), list[int]()
    is_python = not model.is_traced and set(tree.kind) <= _ONLY_PYTHON
    for row in [] if is_python else tree.rows(LINES):
        above = int(tree.parent[row])
        if tree.is_inside(above, (CALL, parts.CALLBACKS, *STEPS), 0):
            continue
        if tree.kind[above] != CELL and not _has_loop(tree, above):  # told with that one
            continue
        inner = _innermost(tree, row)
        # Layers that are called for the first time are built, wherever that is.
        below = [at for at in tree.rows_below(inner).tolist() if tree.name[at] != "layers"]
        if _has_loop(tree, row):
            loops.append(row)
        elif not _ASIDE & {tree.kind[at] for at in below}:
            others.append(inner)
    for rows in _by_function(tree, loops):
        yield from _with_steps_inside(model, rows)
    for rows in _by_function(tree, others):
        below = [at for row in rows for at in tree.rows_below(row).tolist()]
        # What a line calls of a framework is that framework's; what an own function does is all its own.
        kinds = (LINES, FRAMEWORK) if tree.name[rows[0]] else (LINES,)
        if 2 * sum(_eager_ps(tree, row) for row in rows) > int(tree.wall_ps[rows].sum()):
            yield from _compile(model, dict.fromkeys(rows))
        else:
            yield from _python(model, rows, [at for at in below if tree.kind[at] in kinds])


def _by_function(tree: CellTree, rows: Sequence[int]) -> Iterable[list[int]]:
    """Put nodes of one own function together, which several places may call, and lines that run ops."""
    same: dict[object, list[int]] = {}
    for row in rows:
        runs_ops = 2 * _eager_ps(tree, row) > tree.wall_ps[row]
        line = int(tree.parent[row]), runs_ops, 0 if runs_ops else row
        same.setdefault((tree.name[row], tree.line[row]) if tree.name[row] else line, []).append(
            row
        )
    return same.values()


@of_cell
def values_to_tensors(model: Model) -> Proposals:
    """TensorFlow takes Python's values to tensors, number by number where these are lists of arrays."""
    tree = model.tree
    for nodes in _by_function(tree, sorted({int(tree.parent[row]) for row in tree.rows(EAGER)})):
        # A look may fall on the next op instead.
        around, eager = nodes[0], [at for row in nodes for at in tree.rows(EAGER, below=row)]
        converting = [at for at in eager if tree.name[at] == parts.TO_TENSORS]
        took = int(tree.self_ps[converting].sum())
        if not took or 2 * took < tree.self_ps[eager].sum():
            continue
        # An array or a few numbers take no longer than starting something does.
        if took <= sum(map(tree.times_of, converting)) * model.costs.call_ps[1]:
            continue
        name, where = tree.name[around] and quoted(tree.name[around]), model.own_line(around)
        yield Proposal(
            "values-to-tensors", f"Convert the arrays of {name or where} once",
            f"{name or where} took {duration_text(took)} to make tensors of Python lists and arrays. "
            "TensorFlow reads a list number by number.",
            "data = tf.constant(np.asarray(rows)) once, before the loop. Then take data[i : i + n], or use "
            "tf.data.Dataset.from_tensor_slices(data).batch(n).",
            f"{GUIDE}/data", [scale(tree, eager, 0.0, QUARTER)], where,
        )  # fmt: skip


def _has_loop(tree: CellTree, row: int) -> bool:
    """True if a node takes steps, or batches: what it calls for each is told apart."""
    return tree.has_steps(row) or bool(tree.rows(parts.INPUT, below=row))


def _eager_ps(tree: CellTree, row: int) -> int:
    below = tree.rows_below(row).tolist()
    return sum(
        int(tree.wall_ps[at]) for at in below if tree.kind[at] == EAGER and not tree.name[at]
    )


def _innermost(tree: CellTree, row: int) -> int:
    """The function inside of a function that takes nearly all of its time, or of its ops, to change."""
    for below in tree.rows(LINES, below=row):
        whole, part = (tree.wall_ps[at] for at in (row, below))
        if 2 * _eager_ps(tree, row) > whole:
            whole, part = (_eager_ps(tree, at) for at in (row, below))
        if tree.name[below] and part > NEARLY_ALL * whole:
            return _innermost(tree, below)
    return row


def _with_steps_inside(model: Model, rows: Sequence[int]) -> Proposals:
    """What the function that has the loop does itself, beside the steps, and what it calls."""
    line = model.own_line(rows[0])
    if eager := {row: ops for row in rows if (ops := model.tree.rows(EAGER, below=row))}:
        yield from _compile(model, eager)
    # What passes where input is waited for is the pipeline's, whatever a look saw of it.
    elif model.tree.has_steps(rows[0]) and line not in {
        model.tree.line[row] for row in model.tree.rows(parts.INPUT)
    } - {""}:
        yield from _python(model, rows, rows, line)


def _compile(model: Model, eager: Mapping[int, Sequence[int] | None]) -> Proposals:
    """Compile an own function wherever it is called, or its ops between the steps; None for all it does."""
    tree, first = model.tree, max(eager, key=lambda row: model.tree.wall_ps[row])
    if model.program.is_graph:  # ops are made for it, and not run
        return
    took = [at for row, ops in eager.items() for at in ops or [row]]
    name = tree.name[first] and quoted(tree.name[first])
    lines = f" and {counted_text(len(eager) - 1, 'line')} beside" * (len(eager) > 1)
    what = name or f"the code at {tree.line[first]}{lines}"
    between = " between the steps" if eager[first] and tree.has_steps(first) else ""
    edits = [compiled_at(model, row, ops) for row, ops in eager.items()]
    edits[1:] = [replace(edit, once_ps=(0.0, 0.0)) for edit in edits[1:]]  # it is compiled once
    yield _function_of(
        model, f"the ops of {what}" if between else what,
        f"{what[:1].upper()}{what[1:]} runs eagerly{between}, "
        f"{duration_text(int(tree.wall_ps[took].sum()))} in all. Compiled, the ops start together.",
        name if name and not between else _OPS_RUN, edits,
        model.own_line(first) if between else tree.line[first],
        {"compiled": tree.name[first]} if name and not between else None,
    )  # fmt: skip


_COMPILED = {UNKNOWN: "a tf.function", JAX: "one jax.jit", PYTORCH: "torch.compile"}
_HOW = {
    UNKNOWN: "Put @tf.function(reduce_retracing=True) over {}. Keep reads of values (float(t), t.numpy(), an "
    "if on a tensor) outside of the function. v.assign(w) replaces set_weights.",
    JAX: "Put @jax.jit over {}. To read or fill many values of an array, use np.array(x) instead. jit "
    "unrolls Python loops: write a loop over rows with jax.vmap.",
    PYTORCH: "Put @torch.compile over {}. Keep reads of values (float(t), t.item()) outside of the function.",
}
_HOW_DOCS = {UNKNOWN: f"{GUIDE}/function", JAX: JIT_GUIDE, PYTORCH: TORCH_COMPILE_GUIDE}


def _function_of(
    model: Model,
    what: str,
    evidence: str,
    over: str,
    edits: Sequence[Edit],
    where: str = "",
    edit: dict[str, object] | None = None,
) -> Proposal:
    first, last = map(sum, zip(*(one.once_ps for one in edits), strict=True))
    if last:
        evidence += f" Compiling takes {durations_text(first, last)} once."
    return Proposal(
        "eager-ops", f"Put {what} into {model.program.text_of(_COMPILED)}", evidence,
        model.program.text_of(_HOW).format(over), model.program.text_of(_HOW_DOCS), edits, where, edit,
    )  # fmt: skip


@of_steps
def own_functions_in_steps(model: Model, study: Study) -> Proposals:
    """An own function inside of the steps is Python that starts nothing."""
    tree = model.tree
    below = tree.with_below(
        [row for row in model.main_steps if not tree.is_inside(row, (CALL,), 0)]
    )
    lines = [row for row in below.tolist() if tree.kind[row] == LINES]
    python = python_in_steps_share(study) * model.periods_ps if lines else 0.0
    for rows in _by_function(tree, lines):
        others = int(tree.self_ps[lines].sum() - tree.self_ps[rows].sum())
        yield from _python(model, rows, rows, python=(python - others, python))


def _python(
    model: Model,
    nodes: Sequence[int],
    rows: Sequence[int],
    line: str = "",
    python: tuple[float, float] | None = None,
) -> Proposals:
    """Python of one's own, as far as nothing else was at work: a line may wait for a device, or copy.

    Args:
        model: The cell.
        nodes: The function's nodes.
        rows: Those whose time it is, without those below.
        line: The line to name instead of the function.
        python: How much of that is Python at least and at most; None for what runs between the steps.
    """
    tree, row = model.tree, nodes[0]
    took = int(tree.self_ps[rows].sum())
    least, most = (min(ps, took) for ps in python or (model.python_between_ps,) * 2)
    if least <= 0:
        return
    name = "" if line else tree.name[row] and quoted(tree.name[row])
    where = line or tree.line[row]
    what = name or f"the code at {where}"
    has_device = model.is_traced and model.program.has_device
    meanwhile = " while the device idled" if has_device else " while nothing computed"
    if 2 * sum(int(tree.self_ps[at]) for at in rows if tree.kind[at] == FRAMEWORK) > took:
        meanwhile = ", mostly in calls of the framework"
    remains, page = (1 - most / took, 1 - least / took * (1 - LEFT)), "data_performance"
    yield Proposal(
        "own-python", f"Do less in {what}",
        f"{what[:1].upper()}{what[1:]} took {durations_text(least, most)}"
        f"{' (nearby lines included)' * bool(line)}{meanwhile}.",
        f"Vectorize it, or move the work to {'the device or to ' * has_device}a thread beside the steps. "
        f"Or run it every {SELDOM}th time only.",
        guide(model.traced, page) if model.study is not None else f"{GUIDE}/{page}",
        [scale(tree, rows, *remains, with_below=False),
         *([] if python else model.steps_behind(sum(map(tree.times_of, nodes)), least))],
        where, {"without": tree.name[row]} if name else None,
    )  # fmt: skip


@of_trace
def python_between_steps(model: Model, study: Study) -> Proposals:
    """Python runs between the steps of a loop, or in them on a CPU, while nothing else is at work."""
    python = find_python_between(study)
    if python is None or study.summary.counted.size < FEWEST or study.program.invokes:
        return
    eager = find_eager_runs(study) if study.program.is_fit else None
    if eager is not None and 2 * eager.share > 1:  # ``eager_ops`` has the remedy
        return
    is_own, share, seldom = study.program.is_own_loop, python.share, python.seldom
    if is_own and model.has_looks:  # own functions, and lines of the cell, are nodes
        return
    kinds, seldom = [parts.GAPS, OTHERS], "" if model.has_looks else seldom  # looks give it a name
    evidence = f"Python ran for {percent_text(share)} of the time from step to step, while nothing computed."
    title = f"Do less Python {'in' if 2 * python.inside > share else 'between'} the steps"
    code, remains = _less_python(study), (0.0, LEFT)
    if seldom:
        evidence, remains = evidence + seldom, (0.0, 1.0)
        code = (
            "Save and log less often. If the code does nothing after these steps, another program had the "
            "processor: measure again on an idle machine."
        )
    elif not is_own and study.program.is_fit and study.program.is_tensorflow:
        yield _fewer_calls(model, study, share, kinds, evidence)
        return
    elif not is_own and study.program.is_tensorflow:
        code = f"In a fit: {_OF_FIT} {_ONE_FUNCTION}"
    feeding = study.input.feeding
    evidence += (
        f" Most of the time goes to {feeding.named()}." if feeding and feeding.named() else ""
    )
    yield Proposal(
        "python-between-steps", title, evidence, code, guide(study, "function"),
        [model.some_of(kinds, share, _beside_input(study, share, remains))],
    )  # fmt: skip


def _beside_input(study: Study, share: float, remains: tuple[float, float]) -> tuple[float, float]:
    """What remains of the steps' Python where the input runs Python too: of both only one runs at a time."""
    if not share or not input_runs_python(study):
        return remains
    work = min(input_work_share(study), 1.0)
    return max(remains[0], 1 - (1 - work) / share), max(remains[1], min(work / share, 1.0))


def _fewer_calls(
    model: Model, study: Study, share: float, kinds: Sequence[str], evidence: str
) -> Proposal:
    """Several steps in a call spare what Python and TensorFlow do around the others.

    Short ops take up to four times as long where each call wakes the threads anew: of 0.2 ms of them in steps
    of 1 ms 0.05 remained, and nearly all of those in steps of 1.6 ms and more.
    """
    around, short = shares_of_calls(study)
    kept = _beside_input(study, share + around, (1 / _IN_ONE_CALL, QUARTER))
    left, whole = (around * kept[0] + short * QUARTER, around * kept[1] + short), around + short
    edits = [model.some_of(kinds, share, kept)]
    if around:
        evidence += f" TensorFlow spent {percent_text(around)} on starting and ending calls."
        edits.append(model.some_of(("host compute",), whole, [each / whole for each in left]))
    return Proposal(
        "python-between-steps", "Run several steps in one call", evidence, _OF_FIT, guide(study, "function"),
        edits,
    )  # fmt: skip


@of_steps
def small_batches(model: Model, study: Study) -> Proposals:
    """All but long ops and waiting for input takes as long for many examples, and of these a step has few.

    A training's batch is part of what it learns: few are one or two. Of an evaluation any number is right.
    """
    batch, tree = examples_a_step(study), model.tree
    only = {"test": "evaluate", "predict": "predict"}.get(study.summary.phase or "", "")
    calls = [row for row in tree.rows(CALL) if tree.name[row] == only]
    is_many = study.summary.counted.size >= FEWEST and not study.program.has_device
    is_cold = model.has_looks and not model.main_steps
    if is_cold or (not (batch and calls and is_many) and not has_tiny_batches(study)):
        return
    if 2 * (long := long_ops_share(study)) > 1:
        return
    share = 1 - long - (0.0 if calls else share_of(study, "input"))
    beside = [at for row in model.loops for at in (row, *tree.rows(EAGER, FRAMEWORK, below=row))]
    beside += [at for row in calls for at in tree.rows(parts.AROUND, below=row)]
    edit = model.some_of((), share, (1 / _IN_ONE_CALL, LEFT))
    rows = np.union1d(edit.rows, np.array(beside, np.int64))
    whole, many = float(tree.self_ps[rows].sum()) * share, _IN_ONE_CALL * batch
    code = f"batch_size={many}. Scale the learning rate with it."
    code += f" {_OF_FIT}" * (study.program.is_fit and study.program.is_tensorflow)
    if calls:
        code = (
            f"model.{only}(..., batch_size={many}), or .batch({many}) of its dataset.{_STAYS[only]}"
        )
    elif not study.program.is_fit and study.program.is_tensorflow:
        code = f"Call the function for {many} examples at once. Where calls need earlier results, put the "
        code += "loop into the tf.function."
    yield Proposal(
        "larger-batch", "Give each step more examples",
        f"Each step has {counted_text(batch, 'example')}. Many examples take about as long: long ops compute "
        f"for {percent_text(long)} of the time only.", code, guide(study, "data_performance"),
        [Edit(rows, whole / _IN_ONE_CALL, whole * LEFT, share)],
    )  # fmt: skip


def _less_python(study: Study) -> str:
    if study.program.is_loop_of_keras:
        return (
            "A larger batch makes fewer steps. Keras' Python takes as long for a small batch as for a "
            "large batch."
        )
    is_fed_unseen = is_fed(study) and study.input.feeding is None
    fed = " Feed through tf.data instead of placeholders." if is_fed_unseen else ""
    return study.program.text_of({
        UNKNOWN: "Run this Python every 100 steps. Fetch data in another thread or process.",
        TENSORFLOW: "Run this Python every 100 steps. Make data once, or in tf.data with "
        f".prefetch(tf.data.AUTOTUNE), beside the steps. {_ONE_FUNCTION}",
        SESSIONS: f"Log and fetch every 100 steps.{fed}",
        JAX: "Run this Python every 100 steps. Make data in another thread or process. jax.lax.scan inside "
        "one jax.jit runs several steps in one call.",
        PYTORCH: "Run this Python every 100 steps. A DataLoader with workers makes data beside the steps.",
    })  # fmt: skip


@of_steps
def python_in_the_step(model: Model, study: Study) -> Proposals:
    """The steps' graph calls Python (``tf.numpy_function``) while no other op runs, in most of the steps."""
    if not any(name.endswith(PYTHON_OPS) for name in study.trace.names.texts):
        return  # as a rule
    share, functions = find_python_in_steps(study)
    if not share:
        return
    events = study.trace.events
    took_ps = events.duration_ps[functions]
    names, row = np.unique(events.name[functions], return_inverse=True)
    largest = int(names[np.bincount(row, took_ps).argmax()])
    op = parse_op(study.trace.names[largest])
    each = functions.size / study.summary.counted.size
    where = longest_line(study, flags_at(functions, len(events)))
    what = f"the Python at {where}" if where else "Python functions"
    yield Proposal(
        "python-in-the-step", f"Take {what} out of the step",
        f"The step calls Python {counted_text(round(each), 'time') if each > 1.5 else 'once'} "
        f"({printable(op[0] if op else '')[:LONGEST_NAME]}), {duration_text(float(took_ps.mean()))} each "
        f"time. For {percent_text(share)} of the time no other op of the step runs.",
        "Replace tf.numpy_function or tf.py_function by TensorFlow's ops. Or return the arguments from the "
        "step and call Python once for many steps.",
        _HOW_DOCS[UNKNOWN],
        [model.some_of(("host compute", OTHERS), share, (0.0, LEFT))], where,
    )  # fmt: skip


@of_trace
def eager_ops(model: Model, study: Study) -> Proposals:
    """Python runs the steps' ops one by one; compiled, the ops that compute and a call remain."""
    runs, tree, is_window = find_eager_runs(study), model.tree, study.steps.is_window
    # Without steps of their own those nodes have a rule of their own.
    if runs is None or (model.has_looks and not model.main_steps):
        return
    many, over = ("ops", _OPS_RUN) if is_window else ("ops a step", "the function of one step")
    below = [(row, tree.rows_below(row).tolist()) for row in model.main_steps]
    eager = [(row, [at for at in nodes if tree.kind[at] == EAGER]) for row, nodes in below]
    edits = [compiled_at(model, row, ops) for row, ops in eager if ops]
    edits = edits or [_started_together(model, runs, () if is_window else _IN_STEPS)]
    took = f" in {duration_text(study.summary.mean_period_ps)}" if is_window else ""
    advice = _function_of(model, "the step", _one_by_one(runs, many, took), over, edits)
    if study.program.is_fit:
        compiled = "model.compile(..., run_eagerly=False). run_eagerly=True is for debugging."
        advice = replace(advice, title="Let Keras compile the step", code=compiled)
    yield advice


_IN_STEPS = ("host compute", "kernel launch", OTHERS)


@of_trace
def eager_ops_between(model: Model, study: Study) -> Proposals:
    """The same between the steps of a loop of the user's own in a loaded trace: metrics that are updated."""
    is_asked = not model.has_looks and not study.steps.is_window and study.program.is_own_loop
    if is_asked and (runs := find_eager_runs(study, between=True)):
        yield _function_of(
            model, "the ops between steps", _one_by_one(runs, "ops a step", " between the steps"),
            f"{_OPS_RUN} (a called model, updated metrics)",
            [_started_together(model, runs, ("host compute", parts.GAPS), is_between=True)],
        )  # fmt: skip


def _one_by_one(runs: EagerRuns, many: str, more: str) -> str:
    return (
        f"Eager execution: Python ran {count_text(round(runs.each))} {many} one by one{more}. Starting ops "
        f"took {percent_text(runs.starting)} of the time. Nothing is fused or runs in parallel."
    )


def _started_together(
    model: Model, runs: EagerRuns, kinds: Sequence[str], *, is_between: bool = False
) -> Edit:
    period = model.traced.summary.mean_period_ps * runs.share
    call_least, call_most = (cost / period for cost in model.costs.call_ps)
    least = min(runs.computing / runs.share + call_least, 1.0)
    most = min(max(1 - runs.starting / runs.share + call_most, least), 1.0)
    return model.some_of(kinds, runs.share, (least, most), is_between=is_between)


PYTHON_RULES = (
    own_functions, own_functions_in_steps, values_to_tensors, python_between_steps, small_batches,
    python_in_the_step, eager_ops, eager_ops_between,
)  # fmt: skip
