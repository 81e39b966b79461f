"""Rules of advice on TensorFlow 1's input: arrays that Python makes between session runs, and queues."""

from profnb.capture.session_records import BEFORE, FEEDS
from profnb.core.units import bytes_text, count_text, counted_text, duration_text, percent_text
from profnb.subjects.advising import GUIDE, LEAST, LEAST_INPUT, Finding, share_of
from profnb.subjects.feeds.queues import QueueUse
from profnb.subjects.input.input_causes import CAUSES
from profnb.subjects.input.input_functions import SmallFiles, files_text
from profnb.subjects.ops.growth import find_growth
from profnb.subjects.study import Study
from profnb.trace.names import PYTHON_OPS

__all__ = ["empty_queue", "feeding_by_hand", "note_files", "note_queues", "small_files"]

_BUSY = 0.5
_MANY_EMPTY = 0.1
_LARGE_BYTES, _LONG_FILL_PS = 1 << 30, 1_000_000_000_000
_READS = ("ReaderRead", "ReadFile")
_DECODES = (
    "DecodeJpeg", "DecodePng", "DecodeAndCropJpeg", "DecodeImage", "DecodeBmp", "DecodeGif", "DecodeWebP",
    "DecodeWav",
)  # fmt: skip
_WHOLE = ("WholeFileReader", "ReadFile")


def feeding_by_hand(study: Study) -> Finding | None:
    """Python makes what is fed between two session runs, for 5 % of the time or more.

    Statements whose values are fed, or new arrays and what comes before the run in its loop, are most of it;
    and the graph does not grow.
    """
    feeding = study.input.feeding
    if feeding is None or not feeding.makes_input:
        return None
    if find_growth(study.recording.graph_versions) is not None:
        return None  # what Python makes there is ops, which is said
    lines = feeding.named((FEEDS, BEFORE))
    most = f" Most of it is {lines}." if lines else ""
    return Finding(
        "python-input", "Feed the model without Python",
        f"Session runs are fed arrays ({bytes_text(feeding.fed_bytes)}) that Python makes first, while "
        f"TensorFlow waits: {percent_text(feeding.share)} of the time, "
        f"{duration_text(feeding.each_ps)} a step.{most}",
        feeding.share,
        "Prepare the data once: write what is made there with tf.io.TFRecordWriter, and read it with "
        "tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=8).batch(n).prefetch(2); "
        "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next() takes the placeholder's place, so the "
        "next batch is made while this one is computed.",
        f"{GUIDE}/data_performance",
    )  # fmt: skip


def _limiting_queue(study: Study) -> QueueUse | None:
    """The queue that the steps found empty most often; None where no tenth of them did, or input is small."""
    counted = study.summary.counted.size
    queues = [use for use in study.input.queues if use.steps_empty > _MANY_EMPTY * counted]
    if not queues or study.steps.is_window or share_of(study, "input") < LEAST_INPUT:
        return None
    return max(queues, key=lambda use: use.steps_empty)


def empty_queue(study: Study) -> Finding | None:
    """Steps wait for a queue that does not hold enough, for 5 % of the time or more."""
    use = _limiting_queue(study)
    if use is None:
        return None
    record, share = use.record, share_of(study, "input")
    kept = (
        f" (it keeps back min_after_dequeue = {count_text(record.min_after_dequeue)}"
        + (f" of its {count_text(record.capacity)})" if record.capacity > 0 else ")")
        if record.min_after_dequeue
        else ""
    )
    cause = _cause(use)
    title = "Fill the queue without Python" if cause == "python" else "Fill the queue faster"
    rule = "python-input" if cause == "python" else "input-bound"
    return Finding(
        rule, title,
        f"{percent_text(share)} of the time is waiting for the next batch: {count_text(use.steps_empty)} of "
        f"{counted_text(study.summary.counted.size, 'step')} found too few elements in the queue "
        f"{record.name[:80]}{kept}. {_filling(use, cause)}",
        share,
        _REPAIRS[cause],
        f"{GUIDE}/data_performance",
    )  # fmt: skip


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
        return f"What puts them in ({ops or 'no op of this graph'}) was not seen while it ran."
    threads = "1 thread puts" if use.threads == 1 else f"{count_text(use.threads)} threads put"
    made = (
        ""
        if use.made_per_second != use.made_per_second
        else f" {use.made_per_second:,.0f} a second"
    )
    named = {"python": PYTHON_OPS, "decode": _DECODES, "read": _READS}.get(cause, ())
    source_ops = ", ".join(op for op in record.sources if op.startswith(named)) if named else ""
    if cause == "python":
        source_ops = "a function of Python (PyFunc)"
    elif cause == "read" and any(op.startswith(_WHOLE) for op in record.sources):
        source_ops = f"{source_ops}, one file for each element{_files(use)}"
    through = f" and runs {source_ops}" if source_ops else ""
    return (
        f"{threads} in{made} with {ops}, which takes {duration_text(use.enqueue_ps)} each time{through}; "
        f"they are at it {percent_text(min(use.busy_fraction, 1.0))} of the time."
    )


def _files(use: QueueUse) -> str:
    """How many files the queue of names before this one has, and how large they are."""
    named = [queue for queue in use.upstream if queue.files]
    if not named:
        return ""
    most = max(named, key=lambda queue: queue.files)
    return f", {counted_text(most.files, 'file')} of {bytes_text(most.file_bytes)} on average"


def small_files(study: Study) -> Finding | None:
    """A function of tf.data reads a file for each element, 50 or more, for 2 % of the time, while steps wait.

    Where that is what starves the steps, ``input_bound`` says so; the bound is what reading took.
    """
    files, diagnosis, waiting = study.input.small_files, study.input.diagnosis, study.input.waiting
    if files is None or diagnosis is None or diagnosis.cause == "small files":
        return None
    if not waiting.fraction > 0 or files.reading_ps <= files.other_ps:
        return None
    period = int(waiting.period_ps[waiting.counted].sum())
    share = min(waiting.fraction, files.reading_ps / period if period else 0.0)
    if share < LEAST:
        return None
    return Finding(
        "small-files", "Pack small files together",
        f"{_reading(study, files)}: {duration_text(files.reading_ps)}, most of what its function does. "
        f"Steps wait {percent_text(waiting.fraction)} of the time for their input.",
        share,
        CAUSES["small files"][1],
        f"{GUIDE}/data_performance",
    )  # fmt: skip


def _reading(study: Study, files: SmallFiles) -> str:
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
    if small_files(study) is not None:
        return []
    return [
        f"{_reading(study, files)}. Steps wait {percent_text(waiting.fraction)} of the time for their input, "
        "so that costs little here; where files are not in memory yet, or come over a network, each costs "
        "more, and TFRecords, which hold many elements, do not."
    ]


_THREADS = (
    "More threads: num_threads= of tf.train.batch and shuffle_batch, or QueueRunner(queue, [enqueue] * n), "
    "up to the number of cores"
)
_DATA = "tf.data does the same with .map(..., num_parallel_calls=8).batch(n).prefetch(2)"
_REPAIRS = {
    "python": "Prepare the data once and read it from TFRecords (tf.data.TFRecordDataset(files).map(parse, "
    "num_parallel_calls=8).batch(n).prefetch(2)), or write the function with TensorFlow ops. Python runs one "
    "thread at a time, so more threads help only where it waits.",
    "decode": f"{_THREADS}; store smaller images, or decode once into TFRecords. {_DATA}.",
    "read": f"{_THREADS}, which then read several files at once; pack small files into TFRecords, and keep "
    f"them on a local disk. {_DATA}.",
    "other": f"{_THREADS}, and less work for each element. {_DATA}.",
    "upstream": "Look at what they wait for themselves: a queue of file names or examples before this one, "
    f"or threads that feed it by hand. {_DATA}.",
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
                f"{bytes_text(whole)} of memory. Shuffle file names, or keep fewer."
            )
        first = int(use.first_wait_ps)
        if first >= _LONG_FILL_PS and record.min_after_dequeue > 1:
            notes.append(
                f"The first batch came after {duration_text(first)}: the queue {record.name[:80]} first "
                f"takes in min_after_dequeue = {count_text(record.min_after_dequeue)} elements, and keeps "
                "them back."
            )
    return notes
