"""Why an iterator may be slow, and what helps then, in words that hold for training and for predicting."""

# Cause to (what it is, what to change).
CAUSES = {
    "python": (
        "runs Python, one element at a time under the interpreter's lock",
        "Write it with TensorFlow ops, or prepare the data once and read it with "
        "tf.data.TFRecordDataset. Python runs one thread at a time; processes help: "
        "keras.utils.PyDataset(workers=4, use_multiprocessing=True).",
    ),
    "small files": (
        "opens and reads one file per element",
        "Pack the files into TFRecords once and read those with tf.data.TFRecordDataset(files, "
        "num_parallel_reads=tf.data.AUTOTUNE), or .cache() after the reading.",
    ),
    "sequential map": (
        "runs one element at a time",
        "Give it threads: .map(..., num_parallel_calls=tf.data.AUTOTUNE), after .cache() if the data "
        "fits into memory.",
    ),
    "decode": (
        "takes longer to decode than a step of the model takes",
        "Decode once and keep the result (.cache() after this map, in memory or in a file), store images "
        "smaller, or crop while decoding with tf.image.decode_and_crop_jpeg.",
    ),
    "busy": (
        "is what everything waits for",
        "Do less in it, or move the costly part into a .map(..., num_parallel_calls=tf.data.AUTOTUNE) "
        "before it.",
    ),
    "transform": (
        "takes longer than the model",
        "Do less per element: .batch() before .map() with a vectorized function, .cache() what does not "
        "change, or move it into the model, where a device can run it.",
    ),
    "read": (
        "reads files one after another",
        "Read several at once: tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE), or "
        "files.interleave(..., num_parallel_calls=tf.data.AUTOTUNE).",
    ),
    "shuffle": (
        "fills its buffer",
        "Shuffle fewer or smaller elements (file names, not images), with a smaller buffer_size.",
    ),
    "batch": (
        "copies elements into batches",
        "Batch larger pieces, or .batch(..., num_parallel_calls=tf.data.AUTOTUNE).",
    ),
    "no prefetch": (
        "works on the thread that runs the steps, between them",
        "Add .prefetch(tf.data.AUTOTUNE) as the last step of the pipeline.",
    ),
    "bursts": (
        "is fast enough on average, but its elements come unevenly and the buffer behind it holds too few",
        "Let the last step hold more: .prefetch(16), or .prefetch(tf.data.AUTOTUNE), which grows as needed.",
    ),
    "other": ("is what the steps wait for", ""),  # nothing tells why, so nothing helps for sure
}
