"""Rules of advice on Python's time around the steps and between them."""

from dataclasses import replace

import numpy as np

from profnb.capture.parts.part_records import CALLBACKS, CHECKPOINTING
from profnb.capture.session_records import GapRecords
from profnb.core.columns import Bools, Int64s
from profnb.core.units import PS_PER_NS, count_text, duration_text, percent_text
from profnb.steps.breakdown import CATEGORIES
from profnb.steps.finding.loops import EAGER_LOOPS, EAGER_TAPES
from profnb.subjects.advising import GUIDE, Finding, guide, is_own_loop, window_of
from profnb.subjects.around_ops import share_around_calls
from profnb.subjects.covered_time import period_ps
from profnb.subjects.feeds.feeding import own_gap_ps, session_gaps
from profnb.subjects.input.iterators import keras_array_rows
from profnb.subjects.ops.eager_advice import eager_ops, eager_ops_between
from profnb.subjects.ops.growth import find_growth
from profnb.subjects.pieces import find_programs
from profnb.subjects.python.gap_causes import find_gap_cause
from profnb.subjects.python.remedies import SELDOM, find_remedy
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH, words

__all__ = ["epoch_ends", "python_between_steps"]

_WITHOUT_EPOCHS = {"test", "predict"}
_LEAST_GAP_PS = 20_000_000
_LEAST_EPOCH_END_PS, _LEAST_EPOCH_ENDS = 10_000_000_000, 0.1
_NEARLY_ALL = 0.9
_FEWEST_ENDS = 5  # of fewer the first, in which things are set up, is too large a part
_WITH_OPS = 1.1  # times what is Python of it: from here on what is named runs ops too
_FAR_LONGER, _FEW = 5, 5  # times the median gap; after a fifth of the steps
_NEARLY_ALWAYS = 0.75  # of the distances; of ones that chance gives hardly any such part is one
_LEAST_SHARE = 0.1


def python_between_steps(study: Study) -> Finding | None:
    """A tenth or more of the time, 20 us or more a step, the framework does nothing and waits for no data.

    That is between steps of one loop (not between epochs, nor in pauses; without what profnb does there to
    mark them), and on a CPU inside them where nothing was active (Keras 2 calls callbacks there), unless they
    run their ops one by one. Where JAX's calls run ahead of their programs, Python is not what the programs
    wait for.
    """
    if not study.summary.counted.size or study.steps.is_window or study.summary.all_warm_up:
        return None  # of steps in which a function was traced: that is what Python did
    is_hidden = study.framework == JAX and study.steps.steps_ahead > 0
    rows, runs = study.summary.counted, session_gaps(study)
    rest, inside = _python_ps(study, runs)
    whole = period_ps(study)
    share = rest / whole if whole else 0.0
    if is_hidden or share < _LEAST_SHARE or rows.size < 5 or rest / rows.size < _LEAST_GAP_PS:
        return None
    feeding = study.input.feeding
    if _has_another_cause(study):
        return None
    each = duration_text(rest / rows.size)
    is_marked = study.steps.origin.startswith("step markers") and is_own_loop(study)
    if is_marked and inside > rest / 2 and share >= _NEARLY_ALL:
        return _python_is_the_step(study, share, f"{each} a step", inside / rest)
    # Of a gap between session runs only the sum over all is known to be Python's, not that of each.
    remedy = find_remedy(study, rest / rows.size)
    few, seldom = ("", "") if runs is not None else _few_gaps(study, rest, whole, remedy.name)
    if feeding is not None and feeding.named():
        cause = f" Most of it is {feeding.named()}.{few}"
    else:
        cause = few or remedy.cause
    in_gaps = float(study.gaps.own_ps[rows].sum()) / whole
    named = min(remedy.each_ps * rows.size / whole, in_gaps)
    if named > _WITH_OPS * share and not seldom:  # ops that it runs are gone with it
        return Finding(
            "python-between-steps", "Do less between steps",
            f"{percent_text(named)} of the time passes between steps in {remedy.name}, "
            f"{duration_text(remedy.each_ps)} each time, with the ops that it runs.",
            named,
            remedy.code,
            guide(study, "function"),
            where=remedy.where,
        )  # fmt: skip
    what = (
        f"{each} a turn, is Python in the loop's body: TensorFlow does nothing then."
        if study.steps.origin in EAGER_LOOPS
        else f"{each} a step, is Python between steps and around {_whose(study)} work."
    )
    if (
        remedy.spares_calls and eager_ops(study) is not None
    ):  # which says to put them into a function
        remedy = replace(remedy, spares_calls=False, code=SELDOM)
    fewer_calls = remedy.spares_calls and not seldom
    of_calls = share_around_calls(study) if fewer_calls else 0.0
    # What the code does there is gone with the ops that it runs; Keras' own part of a fit stays.
    gone = in_gaps if is_own_loop(study) and runs is None else named * (not seldom)
    is_scan = fewer_calls and study.framework == JAX  # which saves starting each program, too
    if of_calls >= _LEAST_SHARE:
        cause += (
            f" For another {percent_text(of_calls)} TensorFlow is at work before a call's first op that it "
            "records or after its last: of that, too, fewer calls save a part."
        )
    return Finding(
        "python-between-steps", "Do less between steps",
        f"{percent_text(share)} of the time, {what}{cause}",
        None if is_scan else min(max(share, gone) + of_calls, 1.0),
        seldom or remedy.code,
        guide(study, "function"),
        share,
        where="" if seldom else remedy.where,
    )  # fmt: skip


def _in_gaps(study: Study) -> Int64s:
    """The categories of the gaps behind the counted steps that belong to their loop."""
    rows = study.summary.counted
    return study.breakdown.gap_picoseconds[rows] * study.gaps.belongs[rows, None]


def _python_ps(study: Study, runs: GapRecords | None) -> tuple[float, float]:
    """Python's time between the counted steps and inside, less what marking them took; and that inside."""
    rows, in_gaps = study.summary.counted, _in_gaps(study)
    shown = study.breakdown.of("input")[rows] + in_gaps[:, CATEGORIES.index("input")]
    unseen = np.maximum(study.input.waiting.step_ps[rows] - shown, 0)  # of which no category tells
    rest = float(np.maximum(in_gaps[:, -1] - unseen, 0).sum())
    if runs is not None:  # what passes inside of Session.run, before its first op, is not Python's
        return min(rest, own_gap_ps(runs) * rows.size) - _told_elsewhere_ps(study, runs), 0.0
    rest -= min(rest, study.recording.marking_ns * PS_PER_NS * rows.size)
    is_eager = study.steps.origin in EAGER_LOOPS or eager_ops(study) is not None
    # PyTorch's ops are started by Python one by one, unless they are compiled.
    is_eager |= study.framework == PYTORCH or find_programs(study) is not None
    if study.has_device or is_eager:  # inside such steps it dispatches the ops
        return rest, 0.0
    inside = float(study.breakdown.of("all others")[rows].sum())
    return rest + inside, inside


def _has_another_cause(study: Study) -> bool:
    """Whether what Python does is what another rule speaks of, or saving it would save nothing."""
    rows, feeding = study.summary.counted, study.input.feeding
    return (
        # A new input for each step (predict in a loop): not what the remedies here are for.
        bool(study.steps.ends_epoch[rows].sum() * 2 > rows.size)
        or (feeding is not None and feeding.makes_input)
        # Python starts ops one by one there.
        or eager_ops_between(study) is not None
        # Python makes the ops that are too many.
        or find_growth(study.recording.graph_versions) is not None
        # What is saved there is waited for the next element instead.
        or _is_paced_by_input(study)
    )


def _told_elsewhere_ps(study: Study, runs: GapRecords) -> float:
    """Time between session runs that checkpoints and summaries took, which have rules of their own."""
    cell = study.recording.cell
    parts = cell.parts if cell is not None else []
    saved = sum(p.wall_ns for p in parts if p.part == CHECKPOINTING)
    return 1000.0 * (saved + sum(p.wall_ns for p in runs.places if "ummary" in p.text))


def _python_is_the_step(study: Study, share: float, each: str, inside: float) -> Finding:
    """What is said of steps in which the framework does next to nothing: to run them in it cannot help."""
    source = study.recording.source
    lines = source is not None and len(source.lines) > 0
    function = words(study.framework, "a tf.function", jax="jax.jit", pytorch="torch.compile")
    return Finding(
        "python-between-steps", "Do less in Python",
        f"{percent_text(share)} of the time, {each}, {_whose(study)} work is not under way: "
        f"{percent_text(inside)} of that is inside the steps, Python's own work or waiting.",
        share,
        f"Look for what takes it{' in p.source_lines, by line' if lines else ': profile with --python'}; "
        f"to put the loop into {function} or several steps into one call saves none of it.",
        guide(study, "function"),
    )  # fmt: skip


def _is_paced_by_input(study: Study) -> bool:
    """Whether nearly every step waits for a pipeline that works ahead of it: its pace is the pipeline's."""
    diagnosis, table, waiting = study.input.diagnosis, study.input.pipeline, study.input.waiting
    if diagnosis is None or diagnosis.severity != "high":
        return False
    parent, is_async = table.tree.parent, table.tree.is_async
    is_last = np.isin(parent, np.flatnonzero(parent < 0))
    many = _NEARLY_ALL * int(waiting.counted.sum())
    return bool((is_async & is_last).any()) and waiting.starved >= many


def _few_gaps(study: Study, rest_ps: float, whole_ps: float, name: str) -> tuple[str, str]:
    """Where most of it lies after few steps: (that, in a sentence; what helps then), else empty.

    What runs every tenth step (a checkpoint) is no cost of each: to return to Python less often cannot help.
    What comes at no regular distance need not be the program's: another program may have had the processor.
    There the remedy of each step stands where the other steps alone ask for it, or what took most has a name.
    """
    python_ps = _in_gaps(study)[:, -1]
    far = python_ps > _FAR_LONGER * np.median(python_ps)
    far_ps = int(python_ps[far].sum())
    if not 0 < far.sum() * _FEW <= far.size or far_ps * 2 <= rest_ps:
        return "", ""
    count = int(far.sum())
    many = f"{count_text(count)} of {count_text(far.size)} steps"
    evidence = (
        f" {percent_text(min(far_ps / rest_ps, 1.0))} of that comes after {many}, "
        f"{duration_text(far_ps / count)} each time"
    )
    distance = _distance(far)
    if distance:
        return f"{evidence}, mostly {count_text(distance)} steps apart.", (
            "Do what runs after those steps (saving a model, logging, looking at results) less often: "
            "what comes after each step is the smaller part."
        )
    if name or rest_ps - far_ps >= _LEAST_SHARE * (whole_ps - far_ps):
        return f"{evidence}.", ""
    return f"{evidence}.", (
        "Look at what runs after those steps (saving, logging): do it less often. If nothing of yours runs "
        "there, another program may have had the processor: measure again without others."
    )


def _distance(far: Bools) -> int:
    """How many steps lie from one to the next, of three or more, nearly always; 0 where that varies."""
    distances = np.diff(np.flatnonzero(far))
    if distances.size < 2:
        return 0
    usual = int(np.bincount(distances).argmax())
    return usual if usual > 1 and (distances == usual).mean() >= _NEARLY_ALWAYS else 0


def _whose(study: Study) -> str:
    return f"{study.framework}'s" if study.framework else "the framework's"


def epoch_ends(study: Study) -> Finding | None:
    """A tenth or more of the time from first to last step passes between epochs, 10 ms or more each time.

    That is where the program makes a new iterator of tf.data between two steps; time in which a device works
    meanwhile does not count. Where one callback is proved to be more than half of it, it is named; else there
    must be five of them or more, and their median as long: in the first ones things are set up that later
    ones find.
    """
    rows, whole = study.gaps.between_epochs, window_of(study)
    if study.steps.is_window or not rows.size or not whole:
        return None
    if EAGER_TAPES in study.steps.origin:
        return None  # it trains on batches of its own; the iterators are of something else
    busy = study.breakdown.gap_busy_ps[rows]
    each = np.maximum(study.gaps.duration_ps[rows] - busy, 0)
    spent = int(each.sum())
    if spent < _LEAST_EPOCH_ENDS * whole or spent < rows.size * _LEAST_EPOCH_END_PS:
        return None
    python = int(study.breakdown.gap_picoseconds[rows, -1].sum())
    many = f"{count_text(rows.size)} gaps" if rows.size > 1 else "1 gap"
    of_each = f", {duration_text(spent / rows.size)} each" if rows.size > 1 else ""
    tree = study.input.iterators
    of_arrays = len(tree) > 0 and len(keras_array_rows(tree)) == len(tree)
    dataset = (
        "Dataset.from_tensor_slices((x, y)).shuffle(n).batch(size)" if of_arrays else "dataset"
    )
    longer = (
        f"fit({dataset}.repeat(), steps_per_epoch=..., epochs=fewer) keeps one iterator over several passes"
        if not is_own_loop(study)
        else "one loop over dataset.repeat(epochs) keeps one iterator"
    )
    seldom = (
        "; validation_freq=5 validates every fifth epoch" if "test" in study.steps.phase else ""
    )
    less = (
        " Most of it is Python: do less in on_epoch_end, and write checkpoints less often."
        if python * 2 > spent
        else ""
    )
    code = f"Fewer, longer epochs: {longer}{seldom}.{less}"
    if set(study.steps.phase) <= _WITHOUT_EPOCHS:
        longer = "one call over all the data makes one iterator"
        code = (
            "Fewer, longer calls of evaluate and predict: one over all the data makes one iterator, and "
            "test_on_batch and predict_on_batch make none."
        )
    cause, most = find_gap_cause(study, rows, busy), ""
    trains = np.array([phase not in _WITHOUT_EPOCHS for phase in study.steps.phase])
    ends = int(trains[rows].sum()) if trains.any() else rows.size  # of epochs, not of validations
    if cause is None and (
        ends < _FEWEST_ENDS or np.median(each) * rows.size < _LEAST_EPOCH_ENDS * whole
    ):
        return None
    if cause is not None:
        most = f" {duration_text(cause.wall_ps)} of it is {cause.text}."
        what = "Do less in" if cause.part == CALLBACKS else "Save and load less often:"
        again = f" Fewer, longer epochs run it less often: {longer}{seldom}."
        code = f"{what} {cause.text}.{again if cause.gaps > 1 else ''}"
    return Finding(
        "epoch-ends", "Make epochs longer, or their ends shorter",
        f"{many} between passes over the data (epochs, validations, fits) took {duration_text(spent)}"
        f"{of_each}, {percent_text(spent / whole)} of the time, {percent_text(python / spent)} of that "
        "Python: a new iterator is made, and what runs once an epoch (callbacks, checkpoints) runs."
        f"{most}",
        spent / whole,
        code,
        f"{GUIDE}/data",
        where=cause.line if cause is not None else "",
    )  # fmt: skip
