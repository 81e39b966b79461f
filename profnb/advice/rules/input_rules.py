"""Rules that ask why steps wait for their input, and what of that remains once it is mended.

Of the time from step to step W is waiting and C = 1 - W the rest. A pipeline that works between the steps
takes W of it, one that works beside them all of it. Given threads it takes that over the cores, beside
computing that itself uses one of them or all; with one thread beside the steps it hides behind C.
"""

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals, of_cell, of_trace, propose
from profnb.advice.replay import once, scale
from profnb.advice.what_if import ends_of_epochs, held_up, input_scaled
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import EPOCH
from profnb.capture.recording import BEFORE, FEEDS
from profnb.causes.numbers import HAND_OVER_PS, LEFT, QUARTER
from profnb.causes.repeats import FEWEST_OF_A_LOOP
from profnb.causes.starving import (
    diagnose_queue,
    examples_a_step,
    find_loaders,
    find_network_files,
    maps_the_same,
    reads_singly,
)
from profnb.core.printable import quoted
from profnb.core.units import bytes_text, count_text, duration_text, percent_text
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import GUIDE, READY, input_shares, period_ps
from profnb.subjects.input.diagnosis import CAUSES, runs_ahead, runs_in_batch, runs_python
from profnb.subjects.ops.op_execution import find_growth
from profnb.subjects.study import Study

_LINK = f"{GUIDE}/data_performance"
_IDS = {
    "python": ("python-input", "Feed the model without Python"),
    "bursts": ("prefetch-more", "Prefetch more elements"),
    "each element": ("input-bound", "Batch before you map"),
}
_FEED_FASTER = ("input-bound", "Feed the model faster")
_FROM_ARRAYS = (
    "Where memory holds all examples unchanged, tf.data.Dataset.from_tensor_slices((x, y)).batch(n) needs no "
    "Python. Batches read or drawn anew need more workers."
)


@of_trace
def starved_by_pipeline(model: Model, study: Study) -> Proposals:
    """The steps wait for a pipeline of tf.data, one of whose stages is the limit."""
    diagnosis = study.input.diagnosis
    if diagnosis is None:
        return
    if diagnosis.severity == "none":
        yield from _held_up(model, study)
        return
    on_network = find_network_files(study)
    if on_network:
        evidence, code = on_network
        yield Proposal(
            "network-files", "Copy the data to this machine's disk first", evidence, code, _LINK,
            input_scaled(model, *_remains(model, "network")),
        )  # fmt: skip
    if diagnosis.iterator < 0:
        return
    rule, title = _IDS.get(diagnosis.cause, _FEED_FASTER)
    evidence, where = diagnosis.sentence, study.input.function_lines[diagnosis.iterator]
    fix, called = diagnosis.fix, study.recording.python_functions
    if diagnosis.cause == "python":
        fix = _instead_of_python(study, diagnosis.iterator)
        if len(called) == 1:
            evidence += f" The Python function is {quoted(called[0][0])}."
            where = called[0][1]
    yield Proposal(
        rule, title, evidence, fix, _LINK,
        input_scaled(model, *_remains(model, diagnosis.cause, diagnosis.iterator)), where, {"input": 0},
    )  # fmt: skip


def _held_up(model: Model, study: Study) -> Proposals:
    """Python makes elements in time, and holds up the steps' own Python meanwhile."""
    table = study.input.pipeline
    rows = [row for row in range(len(table)) if runs_python(table, row)]
    if not rows or not held_up(model, 0.0, LEFT):
        return
    row = max(rows, key=lambda row: int(table.total_ps[row]))
    yield Proposal(
        "python-input", "Feed the model without Python",
        f"{table.name(row)} runs Python beside the steps. Only one of the two runs at a time (GIL).",
        _instead_of_python(study, row), _LINK, held_up(model, 0.0, LEFT), study.input.function_lines[row],
        {"input": 0},
    )  # fmt: skip


def _instead_of_python(study: Study, row: int) -> str:
    """What to write; of a generator that hands a batch over sooner than workers could, arrays."""
    table = study.input.pipeline
    batches = table.function_occurrences[row] / max(runs_in_batch(table, row), 1)
    is_quick = table.kind[row] == "Generator" and table.function_ps[row] < HAND_OVER_PS * batches
    return _FROM_ARRAYS if is_quick else CAUSES["python"][1]


def _remains(model: Model, cause: str, row: int = -1) -> tuple[float, float]:
    """The least and the most of the waiting left with the remedy of an iterator's cause; see above."""
    study = model.traced
    wait, is_ahead = study.input.waiting.fraction, runs_ahead(study.input.pipeline)
    rest, work = 1 - wait, 1.0 if is_ahead else wait
    beside = 1.0 if is_ahead else max(1 - rest / wait, 1 / max(model.cores, 1))
    if cause == "no prefetch":
        return max(1 - rest / wait, 0.0), beside
    if cause in ("sequential map", "read"):
        least, most = _on_all_cores(model, wait, work)
        return least, min(most, beside)
    if cause == "each element":  # of what it is waited for one call a batch, with larger ops
        of_row = study.input.waiting.share_of(row)
        least = 1 - of_row * (1 - 1 / runs_in_batch(study.input.pipeline, row))
        return least, least + (1 - least) * QUARTER
    # Of the work so much is left at most, behind the rest of the step where it runs ahead.
    return 0.0, min(max(LEFT - rest, 0.0) / wait if is_ahead else LEFT, beside)


def _on_all_cores(model: Model, wait: float, work: float) -> tuple[float, float]:
    """The same of so much work, once threads or processes on all cores do it; of unknown cores, all."""
    cores, rest = max(model.cores, 1), 1 - wait
    # The rest itself takes one core at least, unless a device does it.
    whole = work if model.program.has_device else work + rest
    least = whole / cores - rest if model.cores else 0.0
    most = min(work / cores / wait, 1.0)
    return min(max(least, 0.0) / wait, most), most


@of_trace
def files_read_singly(model: Model, study: Study) -> Proposals:
    """A function of tf.data reads a file for each element, and steps wait a little for it."""
    files, diagnosis, waiting = study.input.small_files, study.input.diagnosis, study.input.waiting
    if files is None or diagnosis is None or diagnosis.cause == "small files":
        return
    if not waiting.fraction > 0 or files.reading_ps <= files.other_ps:
        return
    period = int(waiting.period_ps[waiting.counted].sum())
    reading = min(files.reading_ps / period / waiting.fraction, 1.0)
    yield Proposal(
        "small-files", "Pack small files together",
        f"{reads_singly(study, files)}. Reading takes {duration_text(files.reading_ps)}, most of the "
        f"function's time. Steps wait {percent_text(waiting.fraction)} of the time for input.",
        CAUSES["small files"][1], _LINK, input_scaled(model, 1 - reading, 1 - reading * (1 - LEFT)),
    )  # fmt: skip


@of_trace
def starved_by_queue(model: Model, study: Study) -> Proposals:
    """The steps wait for a queue of TensorFlow 1 that does not hold enough."""
    if starving := diagnose_queue(study):
        rule, title = _IDS.get(starving.cause, _FEED_FASTER)
        edits = input_scaled(model, 0.0, LEFT)
        yield Proposal(rule, title, starving.sentence, starving.fix, _LINK, edits)


@of_trace
def fed_by_hand(model: Model, study: Study) -> Proposals:
    """Python makes what is fed between two session runs, whose graph does not grow meanwhile."""
    feeding = study.input.feeding
    # What Python makes where the graph grows is ops.
    if feeding is None or not feeding.makes_input or find_growth(study.recording.graph_versions):
        return
    lines = feeding.named((FEEDS, BEFORE))
    yield Proposal(
        "python-input", "Feed the model without Python",
        f"Python makes arrays ({bytes_text(feeding.fed_bytes)}) for each session run while TensorFlow "
        f"waits: {percent_text(feeding.share)} of the time, {duration_text(feeding.each_ps)} a "
        f"step.{f' Most of the time goes to {lines}.' if lines else ''}",
        "Prepare the data once: write the arrays with tf.io.TFRecordWriter. Read with "
        "tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=8).batch(n).prefetch(2). "
        "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next() replaces the placeholder.",
        _LINK, [model.some_of((parts.GAPS, OTHERS), feeding.share, (0.0, LEFT))],
    )  # fmt: skip


_READY_FOR_KERAS = (
    "Write a keras.utils.PyDataset whose __init__ calls super().__init__(workers=4, "
    "use_multiprocessing=True). Worker processes make the next batches beside the training."
)
_MORE_WORKERS = (
    "Use more workers, up to the number of cores, or do less in __getitem__ and collate_fn. "
    "DataLoader(..., persistent_workers=True) keeps the workers from epoch to epoch."
)
_BY_INDEX = (
    "If all examples are in memory: for rows in torch.randperm(len(x)).split({}): x[rows], y[rows]."
)


@of_trace
def waits_for_batches(model: Model, study: Study) -> Proposals:
    """The steps wait for the next batch, and no iterator of tf.data and no queue tells why."""
    if len(study.input.iterators) or study.input.queues:
        return
    share, is_keras = input_shares(study)[1], study.program.is_loop_of_keras
    is_short = share * period_ps(study) < HAND_OVER_PS * study.summary.counted.size
    if not share or (is_keras and is_short):
        return
    on_the_spot, has_workers, by_index = find_loaders(study)
    why = "The trace does not show how batches are made."
    code, remains = study.program.text_of(READY), (0.0, 1.0)
    title, where = "Have the next batch ready", ""
    if is_keras:
        why = "Keras makes each batch only when a step asks for data."
        code, remains = _READY_FOR_KERAS, _on_all_cores(model, share, share)
    elif by_index or (on_the_spot and is_short):
        title, remains = "Take batches by index", (0.0, LEFT)
        code = _BY_INDEX.format(examples_a_step(study) or 32)
        why = "The DataLoader takes single examples and collates every batch."
    elif on_the_spot:
        remains = _on_all_cores(model, share, share)
        why = "The DataLoader has no workers: the training process makes each batch on request."
    elif has_workers:
        why = "The DataLoader's workers did not have the batch ready in time."
        code, remains = _MORE_WORKERS, (0.0, 1.0)
    if function := model.own_within(model.tree.rows(parts.INPUT)):  # may be made quicker as well
        name, part, where = function
        why += f" {name} takes {percent_text(part)} of the waiting."
        code, remains = f"Vectorize {name}. Or: {code}", (min(1 - part, remains[0]), remains[1])
    yield propose(
        study, "waiting-for-input", (title, code, "data_performance"),
        f"{percent_text(share)} of the time the steps wait for the next batch. {why}",
        *input_scaled(model, *remains, share), where=where,
    )  # fmt: skip


@of_trace
def made_again(model: Model, study: Study) -> Proposals:
    """Each epoch reads and maps the same data again, and the steps wait for it.

    Not where a function draws random numbers or runs Python: what it gives may differ from epoch to epoch.
    """
    tree = model.tree
    epochs = tree.rows(EPOCH)
    times = max((int(tree.occurrences[row]) for row in epochs), default=0)
    if not epochs and study.program.is_own_loop and not model.passes.are_batches:
        times = model.passes.ends + 1
    edits = input_scaled(model, 1 / times, 1 / times) if times > 1 and maps_the_same(study) else []
    if not edits:
        return
    again = [at for row in epochs for at in tree.rows(parts.SETTING_UP, below=row)]
    edits.append(once(tree, [*again, *ends_of_epochs(tree)], times, model.costs.restart_ps))
    took = int(tree.self_ps[edits[0].rows].sum())
    yield Proposal(
        "cache-input", "Cache the input after the first epoch",
        f"Each of {count_text(times)} epochs read and mapped the same data again. The steps waited "
        f"{duration_text(took)} for input, and shared the cores with it.",
        "dataset.map(...).cache().shuffle(...).batch(...).prefetch(tf.data.AUTOTUNE): everything before "
        "cache() runs in the first epoch only. cache() needs memory for all elements, cache(filename) disk "
        "space.",
        f"{_LINK}#caching", edits, tree.line_above(epochs[0]) if epochs else "",
    )  # fmt: skip


@of_cell
def adapting(model: Model) -> Proposals:
    """A layer learns its data again in a loop, or layers go over a dataset one after another."""
    tree = model.tree
    building = tree.rows(parts.BUILDING)
    for row in building:
        if not tree.name[row].endswith(parts.ADAPTS) or not tree.line[row]:  # a library's own loop
            continue
        times, name = int(tree.occurrences[row]), quoted(tree.name[row])
        made = [at for at in building if 2 * tree.occurrences[at] > times and at != row]
        title, code, remains = _ADAPT_LESS, _ON_ARRAYS, (0.0, LEFT)
        if times >= FEWEST_OF_A_LOOP and not made:
            title, code, remains = _ADAPT_ONCE, _BEFORE_LOOP, (1 / times, 1 / times)
        elif not tree.rows(parts.INPUT, below=row):
            continue
        yield Proposal(
            "adapting", title,
            f"{name} went over its data{f' {count_text(times)} times' * (times > 1)}: "
            f"{duration_text(int(tree.wall_ps[row]))} in all.",
            code, f"{GUIDE}/keras/preprocessing_layers", [scale(tree, [row], *remains)], tree.line[row],
        )  # fmt: skip


_ADAPT_ONCE = "Adapt the layer once, before the loop"
_ADAPT_LESS = "Adapt on arrays or on less data"
_BEFORE_LOOP = "If its data stay the same, call layer.adapt(data) once, before the loop."
_ON_ARRAYS = (
    "Normalization adapts faster on an array: layer.adapt(frame[columns].to_numpy()). Or adapt on a part: "
    "layer.adapt(dataset.take(100)). Means hardly change, a vocabulary loses rare words."
)


INPUT_RULES = (
    starved_by_pipeline, files_read_singly, starved_by_queue, fed_by_hand, waits_for_batches, made_again,
    adapting,
)  # fmt: skip
