"""Rules on Python and what it runs one by one, between the steps and in them.

Where a capture of ours looked at the cell, callbacks, own functions and ends of epochs are nodes with rules
of their own (``cell_rules``); what is left between the steps is the framework's.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, once, with_below_of
from profnb.advice.what_if import compiled_at
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import EAGER, EPOCH, LINES, SETTING_UP, TRACING
from profnb.causes.around_ops import share_around_calls, share_of_short_ops
from profnb.causes.between_steps import find_python_between
from profnb.causes.eager_runs import EagerRuns, find_eager_runs
from profnb.causes.held_up import input_runs_python, input_work_share
from profnb.causes.numbers import FEWEST, HALF, QUARTER
from profnb.core.columns import Int64s
from profnb.core.printable import printable
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.activities import HOST_COMPUTE
from profnb.steps.finding.loops import EAGER_TAPES
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import GUIDE, guide, is_fit, is_loop_of_keras, is_own_loop, op_events
from profnb.subjects.covered_time import share_beyond, spans_of, usual_share_beyond
from profnb.subjects.study import Study
from profnb.subjects.unseen import is_fed
from profnb.trace.framework import TENSORFLOW, words
from profnb.trace.names import PYTHON_OPS
from profnb.trace.op_names import parse_op

_LONGEST = 60
_IN_ONE_CALL = 16
_OF_FIT = (
    f"model.compile(..., steps_per_execution={_IN_ONE_CALL}) runs {_IN_ONE_CALL} steps in one call."
)
_ONE_FUNCTION = "A loop of your own can put several steps into one tf.function."
_AFTER_FEW = (
    "Do what runs after those steps (saving, logging) less often. If nothing of yours runs there, another "
    "program had the processor: measure again without it."
)
_STAYS = "Keep what reads values (a float or an array of a tensor, an if on one) outside of it."


def python_between_steps(model: Model) -> Iterator[Proposal]:
    """Python runs between the steps of a loop, or in them on a CPU, while nothing else is at work."""
    study = model.traced
    python = find_python_between(study)
    if python is None or study.summary.counted.size < FEWEST:
        return
    is_own = is_own_loop(study)
    share, seldom, kinds = python.share, python.seldom, [parts.GAPS, OTHERS]
    if model.has_looks:  # which give what runs after few steps a name
        seldom = ""
        if is_own:  # what lies between its steps, too
            share, kinds = python.inside, [OTHERS]
            if not model.rows(parts.MARKED):
                return
    took = f"Python ran for {percent_text(share)} of the time from step to step, while nothing computed."
    title = f"Do less Python {'in' if 2 * python.inside > share else 'between'} the steps"
    around_calls, around, remains, code = 0.0, 0.0, (0.0, HALF), _less_python(study)
    if seldom:
        remains, code = (0.0, 1.0), _AFTER_FEW
    elif not is_own and study.framework == TENSORFLOW:
        # One call of several steps spares what Python and TensorFlow do around the others.
        knows = is_fit(study)
        around_calls = share_around_calls(study) if knows else 0.0
        eager = (
            find_eager_runs(study) if knows else None
        )  # which start their ops in calls of their own
        around = around_calls - (eager.starting if eager else 0.0)
        remains = (1 / _IN_ONE_CALL, QUARTER) if knows else remains
        title = "Run several steps in one call" if knows else title
        code = _OF_FIT if knows else f"In a fit: {_OF_FIT} {_ONE_FUNCTION}"
    if share and input_runs_python(study):  # of both only one runs at a time
        held_up = min(input_work_share(study) / share, 1.0)
        remains = remains[0], max(remains[1], held_up)
    edits, feeding = [model.some_of(kinds, share, remains, took)], study.input.feeding
    more = f" Most of it is {feeding.named()}." if feeding and feeding.named() else ""
    if around > 0:
        more = f" TensorFlow took {percent_text(around)} to begin and end its calls."
        # Short ops behind each other take up to half as long again where each call wakes the threads anew.
        short = share_of_short_ops(study, around_calls)
        whole = around + short
        least, most = around / _IN_ONE_CALL + short * HALF, around * QUARTER + short
        edits.append(model.some_of(("host compute",), whole, (least / whole, most / whole), more))
    yield Proposal(
        "python-between-steps", title, took + seldom + more, code, guide(study, "function"), edits,
    )  # fmt: skip


def _less_python(study: Study) -> str:
    is_fed_unseen = is_fed(study) and study.input.feeding is None
    if is_loop_of_keras(study):
        return (
            "A larger batch makes fewer steps: Keras' Python takes as long for a small batch as for a "
            "large one."
        )
    return words(
        study.framework,
        "Do it after every 100th step; fetch data in another thread or process.",
        tensorflow="Do it after every 100th step. Make data once, or in tf.data with "
        f".prefetch(tf.data.AUTOTUNE), beside the steps. {_ONE_FUNCTION}",
        sessions="Log and fetch every 100 steps instead of each."
        + (" Feed through tf.data instead of placeholders." if is_fed_unseen else ""),
        jax="Do it after every 100th step; make data in another thread or process. jax.lax.scan inside one "
        "jax.jit runs several steps in one call.",
        pytorch="Do it after every 100th step; a DataLoader with workers makes data beside the steps.",
    )


def epoch_ends(model: Model) -> Iterator[Proposal]:
    """A loop of one's own, or a loaded trace, makes a new iterator for each pass over the data."""
    study, tree = model.traced, model.tree
    if study.steps.is_window or EAGER_TAPES in study.steps.origin:
        return  # it trains on batches of its own; the iterators are of something else
    rows = study.gaps.between_epochs
    trains = np.array([phase not in ("test", "predict") for phase in study.steps.phase], np.bool_)
    ends = int(trains[rows].sum()) if trains.any() else rows.size  # of epochs, not of validations
    nodes = model.rows(SETTING_UP, parts.EPOCH_ENDS)
    if ends < FEWEST or not nodes or (model.has_looks and model.rows(EPOCH)):
        return
    each_ps = np.maximum(study.gaps.duration_ps[rows] - study.breakdown.gap_busy_ps[rows], 0)
    python_ps = float(np.median(study.breakdown.gap_picoseconds[rows, -1]))
    each = float(np.median(each_ps))  # in the first ones things are set up
    below = with_below_of(tree, nodes)
    whole = float(tree.self_ps[below].sum())
    spoken = whole if model.has_looks else min(each * rows.size, whole)
    left = [min(cost / each, 1.0) if each else 1.0 for cost in model.costs.restart_ps]
    if not spoken:
        return
    traced = (
        [] if not model.has_looks else [row for row in model.rows(TRACING) if _is_own(model, row)]
    )
    took = int(tree.self_ps[traced].sum())
    if took > spoken:  # in what makes the pipeline: its functions are new each time
        yield Proposal(
            "epoch-ends", "Make the dataset once, before the loop",
            f"{count_text(rows.size)} passes over the data each made a dataset anew. Tracing its functions "
            f"took {duration_text(took)}, new iterators took {duration_text(spoken)}.",
            "A dataset can be passed over again: for batch in dataset. Its shuffle and random ops differ in "
            "each pass all the same.",
            f"{GUIDE}/data",
            [once(tree, [*nodes, *traced], ends, model.costs.restart_ps, "it would be traced once")],
            model.line_above(traced[0]),
        )  # fmt: skip
        return
    again = " validation_freq=5 validates every fifth epoch." if "test" in study.steps.phase else ""
    yield Proposal(
        "epoch-ends", "Make epochs longer, or their ends shorter",
        f"{count_text(rows.size)} gaps between passes over the data took "
        f"{duration_text(float(each_ps.sum()))}, {duration_text(each)} each as a rule, for a new iterator.",
        "One call of evaluate or predict over all the data makes one iterator."
        if not trains.any()
        else "One iterator for several passes: for batch in dataset.repeat(epochs)."
        if is_own_loop(study)
        else "Make epochs longer: fit(dataset.repeat(), steps_per_epoch=..., epochs=fewer) keeps one "
        f"iterator over several passes.{again}",
        f"{GUIDE}/data",
        [Edit(below, left[0] * spoken, min(left[1] + python_ps / each, 1.0) * spoken,
              f"{count_text(rows.size)} new iterators took {duration_text(spoken)}",
              spoken / whole)],
    )  # fmt: skip


def _is_own(model: Model, row: int) -> bool:
    """Whether a node is the doing of the user's own functions, and of no step."""
    above = int(model.tree.parent[row])
    return above == 0 or (model.tree.kind[above] == LINES and _is_own(model, above))


def python_in_the_step(model: Model) -> Iterator[Proposal]:
    """The steps' graph calls Python (``tf.numpy_function``) while no other op runs, in most of the steps."""
    study = model.traced
    if not study.summary.counted.size or study.steps.is_window:
        return
    if not any(name.endswith(PYTHON_OPS) for name in study.trace.names.texts):
        return  # as a rule
    functions = _of_steps(study, lambda op_type: op_type in PYTHON_OPS)
    others = _of_steps(study, lambda op_type: op_type not in (*PYTHON_OPS, "Dataset"))
    spans, hidden = spans_of(study, functions), spans_of(study, others)
    share = min(share_beyond(study, spans, hidden), usual_share_beyond(study, spans, hidden))
    if not share:
        return
    names, row = np.unique(study.trace.events.name[functions], return_inverse=True)
    largest = int(names[np.bincount(row, study.trace.events.duration_ps[functions]).argmax()])
    op = parse_op(study.trace.names[largest])
    each, took = functions.size / study.summary.counted.size, float((spans[1] - spans[0]).mean())
    yield Proposal(
        "python-in-the-step", "Take Python functions out of the step",
        f"A step's graph calls Python {count_text(round(each)) if each > 1.5 else 'once'} "
        f"({printable(op[0] if op else '')[:_LONGEST]}), for {duration_text(took)} each time. Nothing else "
        f"of the step runs meanwhile, {percent_text(share)} of the time.",
        "Write what tf.numpy_function or tf.py_function does there with TensorFlow's ops. Or return its "
        "arguments from the step, and do it once for many steps.",
        f"{GUIDE}/function",
        [model.some_of(("host compute", OTHERS), share, (0.0, HALF),
                       f"the steps waited {percent_text(share)} of the time for Python functions")],
    )  # fmt: skip


def _of_steps(study: Study, is_wanted: Callable[[str], bool]) -> Int64s:
    """Ops that compute for a counted step: a pipeline's are input."""
    events = op_events(study, lambda _, op_type: is_wanted(op_type))
    is_counted = np.isin(study.groups.step[events], study.summary.counted)
    return np.asarray(events[is_counted & (study.activities[events] == HOST_COMPUTE)])


def eager_ops(model: Model) -> Iterator[Proposal]:
    """Python runs the steps' ops one by one; compiled, the ops that compute and a call remain."""
    study, tree = model.traced, model.tree
    runs = find_eager_runs(study)
    if runs is None:
        return
    is_window = study.steps.is_window
    steps = model.main_steps
    below = {
        row: [at for at in tree.rows_below(row).tolist() if tree.kind[at] == EAGER] for row in steps
    }
    edits = [compiled_at(model, row, eager) for row, eager in below.items() if eager]
    if model.has_looks and not steps:  # those nodes have a rule of their own
        return
    many = f"{count_text(round(runs.each))} ops{'' if is_window else ' a step'} one by one"
    took = f" in {duration_text(study.summary.mean_period_ps)}" if is_window else ""
    yield _put_into_a_function(
        model, runs, "the step", many + took,
        "runs them." if is_window else "does one step (model.run_eagerly must be False).",
        () if is_window else ("host compute", "kernel launch", OTHERS), edits,
    )  # fmt: skip


def eager_ops_between(model: Model) -> Iterator[Proposal]:
    """The same between the steps of a loop of the user's own in a loaded trace: metrics that are updated."""
    study = model.traced
    if model.has_looks or study.steps.is_window or not is_own_loop(study):
        return
    runs = find_eager_runs(study, between=True)
    if runs is not None:
        yield _put_into_a_function(
            model, runs, "what runs between steps",
            f"{count_text(round(runs.each))} ops a step one by one between the steps",
            "runs them (a model that is called, metrics that are updated).", ("host compute", parts.GAPS),
            is_between=True,
        )  # fmt: skip


def _put_into_a_function(
    model: Model,
    runs: EagerRuns,
    what: str,
    many: str,
    where: str,
    kinds: tuple[str, ...],
    edits: Sequence[Edit] = (),
    *,
    is_between: bool = False,
) -> Proposal:
    period = model.traced.summary.mean_period_ps * runs.share
    call_least, call_most = (cost / period for cost in model.costs.call_ps)
    least = min(runs.computing / runs.share + call_least, 1.0)
    most = min(max(1 - runs.starting / runs.share + call_most, least), 1.0)
    return Proposal(
        "eager-ops", f"Put {what} into a tf.function",
        f"Python ran {many}. Starting them took {percent_text(runs.starting)} of the time, and nothing is "
        "fused or runs in parallel.",
        f"Put @tf.function(reduce_retracing=True) over the function that {where} {_STAYS}",
        f"{GUIDE}/function",
        edits or [model.some_of(kinds, runs.share, (least, most),
                                f"ops one by one took {percent_text(runs.share)} of the time",
                                is_between=is_between)],
    )  # fmt: skip


PYTHON_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    python_between_steps, epoch_ends, python_in_the_step, eager_ops, eager_ops_between,
)  # fmt: skip
