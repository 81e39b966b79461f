"""Rules of advice on TensorFlow 1's input: arrays that Python makes between session runs."""

from profnb.capture.session_records import BEFORE, FEEDS
from profnb.core.units import bytes_text, duration_text, percent_text
from profnb.subjects.advising import GUIDE, Advice
from profnb.subjects.study import Study

__all__ = ["feeding_by_hand"]


def feeding_by_hand(study: Study) -> Advice | None:
    """Python makes what is fed between two session runs, for 5 % of the time or more.

    Statements whose values are fed, or new arrays and what comes before the run in its loop, are most of it.
    """
    feeding = study.input.feeding
    if feeding is None or not feeding.makes_input:
        return None
    lines = feeding.named((FEEDS, BEFORE))
    return Advice(
        "python-input", "Feed the model without Python",
        f"Session runs are fed arrays ({bytes_text(feeding.fed_bytes)}) that Python makes first, while "
        f"TensorFlow waits: {percent_text(feeding.share)} of the time, {duration_text(feeding.each_ps)} a "
        f"step. Most of it{' is' if lines else ' was'} {lines or 'not found in the code'}.",
        feeding.share,
        "Prepare the data once: write what is made there with tf.io.TFRecordWriter, and read it with "
        "tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=8).batch(n).prefetch(2); "
        "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next() takes the placeholder's place, so the "
        "next batch is made while this one is computed.",
        f"{GUIDE}/data_performance",
    )  # fmt: skip
