"""Record the benchmark's trace: 512 steps of a small CNN with a per-example ``map``.

    python tests/benchmarks/record_trace.py OUT.xplane.pb [STEPS]

About 870,000 events and 30 MB with 512 steps. Also prints what capturing cost.
"""

import os
import shutil
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
import tensorflow as tf

import profnb

BATCH = 64


def build(steps):
    rng = np.random.default_rng(0)
    count = steps * BATCH
    x = rng.normal(size=(count, 28, 28, 1)).astype("float32")
    y = rng.integers(0, 10, count)
    dataset = (
        tf.data.Dataset.from_tensor_slices((x, y))
        .map(lambda a, b: (tf.clip_by_value(a * 2 - 1, -1, 1), b), num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )
    model = keras.Sequential([
        keras.Input((28, 28, 1)), keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(), keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, dataset


def main(target, steps=512):
    model, dataset = build(steps)
    model.fit(dataset.take(8), verbose=0, shuffle=False)
    with tempfile.TemporaryDirectory() as logdir:
        begin = time.perf_counter()
        with profnb.profile(max_steps=steps, max_seconds=600, logdir=logdir) as result:
            model.fit(dataset, verbose=0, shuffle=False)
        wall = time.perf_counter() - begin
        shutil.copy(result.recording.path, target)
    print(
        f"{len(result.trace.events):,} events, {os.path.getsize(target) / 1e6:.1f} MB, "
        f"{len(result.step_times)} steps, {wall:.2f} s in all"
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
