"""Why steps wait for a batch, what the threads that make batches hold up, how many threads were at work."""

import math
import re
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from profnb.capture.environment import CORES, INTER_OP, INTRA_OP
from profnb.capture.source.source_records import CAPTURED
from profnb.causes.numbers import FEWEST
from profnb.core.columns import Int64s, flags_at
from profnb.core.units import bytes_text, count_text, counted_text, duration_text, percent_text
from profnb.steps.activities import AWAITING, SYNCHRONISING
from profnb.steps.nesting import is_inside
from profnb.steps.streams import covered_ps
from profnb.subjects.advising import (
    LEAST_INPUT,
    covered_share,
    idle_share_of,
    op_events,
    period_ps,
    share_beyond,
    share_of,
    spans_of,
    usual_share_beyond,
    window_of,
)
from profnb.subjects.core_contention import is_crowded, is_crowded_by_others
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.feeds.feeding import QueueUse, inside_runs_ps, session_gaps
from profnb.subjects.input.diagnosis import runs_python
from profnb.subjects.input.iterators import SmallFiles, files_text
from profnb.subjects.ops.op_execution import LONG_OP_PS
from profnb.subjects.study import Study
from profnb.trace.names import KINETO_SCOPE, PYTHON_OPS

_TINY_BATCH = 2
_BUSY = 0.5
_MANY_EMPTY = 0.1
_LARGE_BYTES, _LONG_FILL_PS = 1 << 30, 1_000_000_000_000
_READS = ("ReaderRead", "ReadFile")
_DECODES = (
    "DecodeJpeg", "DecodePng", "DecodeAndCropJpeg", "DecodeImage", "DecodeBmp", "DecodeGif", "DecodeWebP",
    "DecodeWav",
)  # fmt: skip
_WHOLE = ("WholeFileReader", "ReadFile")


@dataclass(frozen=True, slots=True)
class StarvingQueue:
    """A queue that the steps wait for.

    Attributes:
        cause: "python", "decode", "read", "upstream" or "other".
        sentence: The answer, with its numbers.
        fix: What to change.
    """

    cause: str
    sentence: str
    fix: str


def _limiting_queue(study: Study) -> QueueUse | None:
    """The queue that the steps found empty most often; None where no tenth of them did, or input is small."""
    counted = study.summary.counted.size
    queues = [use for use in study.input.queues if use.steps_empty > _MANY_EMPTY * counted]
    if not queues or study.steps.is_window or share_of(study, "input") < LEAST_INPUT:
        return None
    return max(queues, key=lambda use: use.steps_empty)


def diagnose_queue(study: Study) -> StarvingQueue | None:
    """Name the queue that does not hold enough, and why; None where the steps wait for none."""
    use = _limiting_queue(study)
    if use is None:
        return None
    record, cause = use.record, _cause(use)
    kept = (
        f" (min_after_dequeue = {count_text(record.min_after_dequeue)}"
        + (f" of its {count_text(record.capacity)})" if record.capacity > 0 else ")")
        if record.min_after_dequeue
        else ""
    )
    sentence = (
        f"{percent_text(share_of(study, 'input'))} of the time the steps wait for the next batch. "
        f"{count_text(use.steps_empty)} of {counted_text(study.summary.counted.size, 'step')} found too few "
        f"elements in queue {record.name[:80]}{kept}. {_filling(use, cause)}"
    )
    return StarvingQueue(cause, sentence, _REPAIRS[cause])


def _cause(use: QueueUse) -> str:
    """What the graph says of how elements are made; "upstream" where its threads stand still."""
    sources = use.record.sources
    if use.threads and use.busy_fraction < _BUSY:
        return "upstream"
    if any(op in PYTHON_OPS for op in sources):
        return "python"
    if any(op.startswith(_DECODES) for op in sources):
        return "decode"
    return "read" if any(op.startswith(_READS) for op in sources) else "other"


def _filling(use: QueueUse, cause: str) -> str:
    """Who puts elements in, how fast, and through which ops."""
    record = use.record
    ops = ", ".join(op[:80] for op in record.enqueues)
    if not use.threads:
        return f"No recorded op fills the queue ({ops or 'no op of this graph'})."
    threads = "1 thread adds" if use.threads == 1 else f"{count_text(use.threads)} threads add"
    made = (
        ""
        if use.made_per_second != use.made_per_second
        else f" {use.made_per_second:,.0f} elements a second"
    )
    named = {"python": PYTHON_OPS, "decode": _DECODES, "read": _READS}.get(cause, ())
    source_ops = ", ".join(op for op in record.sources if op.startswith(named)) if named else ""
    if cause == "python":
        source_ops = "a Python function (PyFunc)"
    elif cause == "read" and any(op.startswith(_WHOLE) for op in record.sources):
        source_ops = f"{source_ops}, one file for each element{_files(use)}"
    through = f". Each element runs {source_ops}" if source_ops else ""
    return (
        f"{threads}{made} by {ops}, {duration_text(use.enqueue_ps)} each{through}. Filling takes "
        f"{percent_text(min(use.busy_fraction, 1.0))} of the time."
    )


def _files(use: QueueUse) -> str:
    """How many files the queue of names before this one has, and how large they are."""
    named = [queue for queue in use.upstream if queue.files]
    if not named:
        return ""
    most = max(named, key=lambda queue: queue.files)
    return f", {counted_text(most.files, 'file')} of {bytes_text(most.file_bytes)} on average"


def reads_singly(study: Study, files: SmallFiles) -> str:
    """Who reads files, how many and how large they are."""
    size_text = files_text(study.recording.file_counts, study.recording.file_bytes)
    return (
        f"{study.input.pipeline.name(files.iterator)} opens and reads one file per element, "
        f"{count_text(files.reads)} while traced{f' ({size_text})' if size_text else ''}"
    )


def note_files(study: Study) -> list[str]:
    """That a file is read for each element where steps hardly wait for it: elsewhere it would cost."""
    files, diagnosis, waiting = study.input.small_files, study.input.diagnosis, study.input.waiting
    is_said = diagnosis is not None and diagnosis.cause == "small files"
    if files is None or is_said or study.steps.is_window or waiting.fraction >= LEAST_INPUT:
        return []
    return [
        f"{reads_singly(study, files)}. Here this costs little: steps wait "
        f"{percent_text(waiting.fraction)} of the time for input. Files that are not in memory yet, or come "
        "over a network, cost more. TFRecords hold many elements in one file."
    ]


_THREADED = (
    "More threads: num_threads= of tf.train.batch and shuffle_batch, or QueueRunner(queue, [enqueue] * n), "
    "up to the number of cores"
)
_DATA = "tf.data does the same with .map(..., num_parallel_calls=8).batch(n).prefetch(2)"
_REPAIRS = {
    "python": "Prepare the data once and read it from TFRecords (tf.data.TFRecordDataset(files).map(parse, "
    "num_parallel_calls=8).batch(n).prefetch(2)), or write the function with TensorFlow ops. Python runs "
    "one thread at a time: more threads help only while Python waits.",
    "decode": f"{_THREADED}. Store smaller images, or decode once into TFRecords. {_DATA}.",
    "read": f"{_THREADED}. Pack small files into TFRecords, and keep the TFRecords on a local disk. {_DATA}.",
    "other": f"{_THREADED}. Do less for each element. {_DATA}.",
    "upstream": "Look at what feeds this queue: an earlier queue, or threads of your own. "
    f"{_DATA}.",
}


def note_queues(study: Study) -> list[str]:
    """That a queue keeps back more than memory should hold, or that filling it delayed the first batch."""
    notes = []
    for use in study.input.queues:
        record = use.record
        whole = record.min_after_dequeue * record.element_bytes
        if whole >= _LARGE_BYTES:
            notes.append(
                f"The queue {record.name[:80]} keeps back min_after_dequeue = "
                f"{count_text(record.min_after_dequeue)} elements of {bytes_text(record.element_bytes)}: "
                f"{bytes_text(whole)} of memory. Shuffle file names, or lower min_after_dequeue."
            )
        first = int(use.first_wait_ps)
        if first >= _LONG_FILL_PS and record.min_after_dequeue > 1:
            notes.append(
                f"The first batch came after {duration_text(first)}: the queue {record.name[:80]} first "
                f"takes in and keeps back min_after_dequeue = {count_text(record.min_after_dequeue)} "
                "elements."
            )
    return notes


def find_network_files(study: Study) -> tuple[str, str] | None:
    """That the input lies on a network mount, and where else to put it; None where it does not.

    Such files were open in five looks, and for a quarter as much of the time as the steps wait: a vocabulary
    or a log that lies there is not what they wait for.
    """
    seen, wait = study.recording.network_files, study.input.waiting.fraction
    if seen.found < max(5, wait * seen.looks / 4) or not seen.mounts:
        return None
    place = max(seen.mounts, key=lambda name: seen.mounts[name])
    folder = place.rpartition(" (")[0]
    files = "1 file" if seen.files == 1 else f"{count_text(seen.files)} different files"
    looks = f"{count_text(seen.found)} of {count_text(seen.looks)} samples of the open files"
    evidence = (
        f"The steps wait {percent_text(wait)} of the time for their input. In {looks} the program was "
        f"reading from {place}, a network mount: {files}. Each open and each read goes to another machine."
    )
    if "drive" in place:
        return evidence, (
            f"Before the training, once: `!cp -r {folder}/... /content/data`, or small files as one "
            "archive: `!tar -xf ... -C /content/data`. Then read from /content/data."
        )
    return evidence, (
        f"Copy the files in {folder} to a local disk before the training, small files as one archive. If "
        "the data is too large, dataset.cache('/local/path') keeps the first epoch's reads."
    )


def find_loaders(study: Study) -> tuple[bool, bool, bool]:
    """Whether the steps wait for a loader of PyTorch's without workers, and for one with some.

    A training's loader may have workers and its validation's none: the one that takes more of the counted
    steps is meant.

    Returns:
        Also whether the one without workers does nothing but take examples from tensors, one by one.
    """
    names = study.trace.select_names
    loaders = [
        np.flatnonzero(names(lambda name: loader in name))  # noqa: B023
        for loader in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
    ]
    without, with_workers = (covered_share(study, events) for events in loaders)
    on_the_spot = without > with_workers
    takes = np.flatnonzero(names(lambda name: name == "aten::select"))
    is_loader = flags_at(loaders[0], len(study.trace.events))
    taken = is_inside(study.groups.parent, is_loader, takes).sum()
    took_ps = study.trace.events.duration_ps[loaders[0]].sum()
    by_index = on_the_spot and bool(taken * LONG_OP_PS > took_ps)
    return on_the_spot, with_workers > 0 and not on_the_spot, by_index


def input_work_share(study: Study) -> float:
    """How long the pipelines' threads work, beside the steps, of the time that was recorded."""
    pipeline, window = study.input.pipeline, window_of(study)
    if not len(pipeline) or not window:
        return 0.0
    parent = pipeline.tree.parent
    on_own_thread = (parent >= 0) & pipeline.tree.is_async[np.maximum(parent, 0)]
    works_ps = int(pipeline.total_ps[on_own_thread].sum())
    works_ps += int(pipeline.function_ps[pipeline.tree.is_async].sum())
    return works_ps / window


def input_runs_python(study: Study) -> bool:
    """True if a pipeline runs Python, under the interpreter's lock."""
    pipeline = study.input.pipeline
    return any(runs_python(pipeline, row) for row in range(len(pipeline)))


def crowded_share(study: Study) -> tuple[float, float]:
    """Find how much of what the steps compute on the host the pipeline's threads held up.

    They hold up Python for as long as they run Python, under the interpreter's lock: surely where none of the
    steps' ops runs meanwhile. And anything for as long as threads waited for a free core; at most for as long
    as they work. Where all cores are busy, work that goes frees its share of them.

    Returns:
        What they held up at most, and surely, of that time.
    """
    waits, computing = study.recording.core_waits, share_of(study, "host compute")
    works = input_work_share(study) / computing if computing else 0.0
    if input_runs_python(study):
        python, ops = _python_and_ops(study)
        alone = usual_share_beyond(study, spans_of(study, python), spans_of(study, ops))
        waiting = max(min(alone, computing - covered_share(study, ops)), 0.0)
        return min(works, 1.0), min(works, 1.0, waiting / (computing or 1))
    held_up = min(works, waits.waited_fraction / (1 + waits.waited_fraction))
    every = waits.wall_ns * waits.cores
    busy = min((waits.ran_ns + waits.others_ns) / every, 1.0) if every else 0.0
    waiting = share_of(study, "input") / computing if computing else 0.0
    return held_up, min(max(busy * works / max(waits.cores, 1) - waiting, 0.0), held_up)


def kept_by_host(study: Study, factor: float) -> float:
    """Of what a faster device saves, the share that the host then takes, which works so long itself."""
    rows, steps = study.summary.counted, study.steps
    whole_ps = period_ps(study)
    saved_ps = (1 - factor) * float(study.breakdown.of("device compute")[rows].sum())
    host_ps = float(
        (steps.host_end_ps[rows] - steps.host_begin_ps[rows] + study.gaps.own_ps[rows]).sum()
    )
    waits = np.flatnonzero(np.isin(study.activities, (AWAITING, SYNCHRONISING)))
    host_ps -= covered_share(study, waits) * whole_ps
    return (
        float(np.clip((host_ps - (whole_ps - saved_ps)) / saved_ps, 0, 1)) if saved_ps > 0 else 0.0
    )


_MADE_BY_MAPS = {"Map", "ParallelMap", "MapAndBatch", "FlatMap", "Interleave", "ParallelInterleave"}


def maps_the_same(study: Study) -> bool:
    """True if functions of tf.data make the elements, none is kept, and none draws numbers or runs Python."""
    table = study.input.pipeline
    kinds = set(table.kind)
    if not kinds & _MADE_BY_MAPS or any(kind.endswith("Cache") for kind in kinds):
        return False
    return not table.draws and not input_runs_python(study)


def room_for_batch(study: Study) -> tuple[int, float, float]:
    """Find whether twice the batch fits into the device's memory.

    Returns:
        The batch, 0 where it does not fit; how much of the time the device idles, and not for want of data.
    """
    sizes = [(use.batch_size or 0, use.largest_batch) for use in study.memory.use]
    size = next((now for now, largest in sizes if 0 < 2 * now <= largest), 0)
    idle = sum(idle_share_of(study, cause) for cause in IDLE_CAUSES)
    waits = ("waiting for input", "copying input")
    return size, idle, idle - sum(idle_share_of(study, cause) for cause in waits)


def examples_a_step(study: Study) -> int:
    """Examples of a step: its batch, or the rows of the largest array that its function takes; 0 for unknown.

    Of ``step(x, y)`` with x of (32, 20) and y of (32,) it is 32. Of PyTorch the largest batch that its model
    was called with.
    """
    if study.batch_size:
        return study.batch_size
    if study.program.is_pytorch:
        models, counted = study.recording.models, study.summary.counted
        scopes = [f"{KINETO_SCOPE}{model.name}" for model in models]
        is_call = study.trace.select_named(*scopes) & np.isin(study.groups.step, counted)
        if is_call.sum() > counted.size:
            return 0  # each step calls it several times, or several
        taken = [layer.input_shapes for model in models for layer in model.layers[:1]]
        return taken[0][0][0] or 0 if len(taken) == 1 and taken[0] else 0
    source = study.recording.source
    its_name = re.compile(rf"__inference_{re.escape(study.program.phase)}_\d+")
    ran = {name.rpartition(" ")[2] for name in study.trace.names.texts}
    sizes = [(0, 0)]
    for graph in source.shapes if source is not None else ():
        if its_name.fullmatch(graph.function) and graph.function in ran:
            rows = accumulate(graph.outputs, initial=0)
            for at, (row, op_type) in enumerate(zip(rows, graph.op_types, strict=False)):
                if op_type == "Placeholder" and graph.settings.get(at) != CAPTURED:
                    shape = [size or 0 for size in graph.shapes[row] or ()]
                    sizes += [(math.prod(shape), shape[0])] if len(shape) > 1 else []
    return max(sizes)[1]


def has_tiny_batches(study: Study) -> bool:
    """True if steady steps of an example or two run on a CPU, and no long op takes most of the time."""
    is_steady = study.summary.counted.size >= FEWEST and not study.summary.all_warm_up
    if study.program.has_device or not is_steady:
        return False
    return 0 < examples_a_step(study) <= _TINY_BATCH and 2 * long_ops_share(study) <= 1


_LONG_START = 0.1  # of a step's period


def number_set(study: Study, setting: str) -> int:
    """A number that the capture noted of the environment; 0 where there is none."""
    text = study.recording.environment.get(setting, "")
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def threads_at_work(study: Study) -> float:
    """How many of the host's ops ran at once on average, while any did, from the first counted step on."""
    ops = op_events(study, lambda _, op_type: op_type != "Dataset")
    events, counted = study.trace.events, study.summary.counted
    inside = events.begin_ps[ops] >= study.steps.begin_ps[counted[0]]
    inside &= events.end_ps[ops] <= study.steps.end_ps[counted[-1]]
    begin, end = events.begin_ps[ops[inside]], events.end_ps[ops[inside]]
    covered = covered_ps(begin, end)  # of all of them: a validation between the steps has ops too
    return float((end - begin).sum() / covered) if covered else 0.0


def _python_and_ops(study: Study) -> tuple[Int64s, Int64s]:
    """Functions of Python that ops call, and all other ops without the pipeline's."""
    python = op_events(study, lambda _, op_type: op_type in PYTHON_OPS)
    return python, op_events(study, lambda _, op_type: op_type not in (*PYTHON_OPS, "Dataset"))


def long_ops_share(study: Study) -> float:
    """Share of the time in which ops compute that are long enough for several threads.

    Not while functions of Python run that ops call: they have one thread.
    """
    python, ops = _python_and_ops(study)
    if study.program.is_pytorch:  # whose ops are inside of ops
        ops = study.ops.runs.events[study.ops.runs.self_ps > LONG_OP_PS]
    else:
        ops = study.xla.hlo.events if study.program.is_jax else ops
        ops = ops[study.trace.events.duration_ps[ops] > LONG_OP_PS]
    busy = share_beyond(study, spans_of(study, ops), spans_of(study, python))
    return min(busy, share_of(study, "host compute"))


def note_threads(study: Study) -> list[str]:
    """How many threads were set where those are more than cores, and runs that wait for one to begin."""
    cores, intra, inter = (number_set(study, name) for name in (CORES, INTRA_OP, INTER_OP))
    pools = (
        (intra, "for each op (intra-op)", "intra_op_threads"),
        (inter, "to run ops (inter-op)", "inter_op_threads"),
    )
    notes, over = [], [pool for pool in pools if pool[0] > cores > 0]
    if over and not study.program.has_device:
        counts = " and ".join(f"{count_text(count)} {what}" for count, what, _ in over)
        sweep = " ".join(f"{name}={cores},{count}" for count, _, name in over)
        notes.append(
            f"Threads were set to {counts}, on {count_text(cores)} cores. More "
            f"threads than cores take turns. `%%tfsweep {sweep}` measures the cost."
        )
    return [*notes, *_note_starts(study, inter or cores)]


def note_waits(study: Study) -> list[str]:
    """That threads waited for a core for half as long as they ran or longer, and whether others had them."""
    waits = study.recording.core_waits
    if not is_crowded(waits):
        return []
    busy = busy_text(study)
    others = (
        f"{busy}. Times below are too long; run again on an idle machine."
        if busy
        else "More threads were ready than the machine has cores."
    )
    return [
        f"{others} For each second of running, threads of this process waited "
        f"{count_text(round(waits.waited_fraction, 2))} s for a free core."
    ]


def busy_text(study: Study) -> str:
    """Say that other programs had the cores for which threads waited; "" where they had not."""
    waits = study.recording.core_waits
    if not is_crowded_by_others(waits):
        return ""
    used = f"{waits.others_cores:.1f} of {count_text(waits.cores)} cores"
    return f"The machine was busy: other programs used {used}"


def _note_starts(study: Study, pool: int) -> list[str]:
    """That session runs wait for a thread before their first op, while Python functions hold as many."""
    gaps, rows = session_gaps(study), study.summary.counted
    fillers = [
        q
        for q in study.input.queues
        if q.threads and any(op in PYTHON_OPS for op in q.record.sources)
    ]
    if gaps is None or not fillers or not pool or rows.size < FEWEST:
        return []
    threads = sum(queue.threads for queue in fillers)
    period = period_ps(study) / rows.size
    inside = inside_runs_ps(study, gaps)
    if threads < pool or inside < _LONG_START * period:
        return []
    return [
        f"Each step spends {duration_text(inside)} inside of Session.run around the ops: "
        f"{counted_text(threads, 'thread')} fill{'s' * (threads == 1)} queues with functions of Python. "
        f"Each function holds one of {count_text(pool)} inter-op threads. "
        f"ConfigProto(inter_op_parallelism_threads={threads + pool}) for the first session leaves some for "
        "the steps."
    ]
