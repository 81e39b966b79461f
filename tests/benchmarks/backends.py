"""What a capture costs a Keras fit: `KERAS_BACKEND=tensorflow|jax|torch python tests/benchmarks/backends.py [ROUNDS]`.

Processor time of the same fit (a small model, 100 steps) in one process, in turn: plain, under the framework's own profiler as its guide
shows it (started, stopped, its file written), and under profnb (the same, and the hooks; without the report). Medians, and ratios to plain
of the rounds' medians. Processor time, so that what else the machine does counts little; a machine at rest is still better.
"""

import os
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager

import keras
import numpy as np

import profnb

STEPS, BATCH = 100, 32
BACKEND = keras.backend.backend()


@contextmanager
def bare(folder):
    if BACKEND == "torch":
        import torch

        with torch.profiler.profile() as p:
            yield
        p.export_chrome_trace(os.path.join(folder, "trace.json"))
    elif BACKEND == "jax":
        import jax

        with jax.profiler.trace(folder):
            yield
    else:
        import tensorflow as tf

        with tf.profiler.experimental.Profile(folder):
            yield


@contextmanager
def ours(folder):
    with profnb.profile(max_steps=STEPS, max_seconds=600):
        yield


@contextmanager
def plain(folder):
    yield


def main(rounds):
    layers = keras.layers
    model = keras.Sequential([layers.Input((64,)), *(layers.Dense(128, activation="relu") for _ in range(3)), layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = np.random.default_rng(0).random((STEPS * BATCH, 64), "float32"), np.arange(STEPS * BATCH) % 10
    ways = {"plain": plain, "its own profiler": bare, "profnb": ours}
    spent = {name: [] for name in ways}
    for number in range(rounds + 1):  # the first one compiles and imports
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                begin = time.process_time()
                with way(folder):
                    model.fit(x, y, batch_size=BATCH, verbose=0)
                if number:
                    spent[name].append(time.process_time() - begin)
    usual = {name: statistics.median(times) for name, times in spent.items()}
    for name, seconds in usual.items():
        own = f"{min(spent[name]):.2f} to {max(spent[name]):.2f}"
        print(f"{BACKEND:12}{name:18}{seconds:6.2f} s ({own}){seconds / usual['plain']:7.2f} x plain{seconds / usual['its own profiler']:7.2f} x its own")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
