"""What finding source lines costs: cells with and without it, alternating in one process, as ratios.

    python tests/benchmarks/source.py [ROUNDS]

Both sides run under the TensorFlow profiler; the ratio is of medians, its spread the middle half of the ratios of
neighbours. With ``python`` the stack is sampled as well.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
import tensorflow as tf

import profnb


def fit(width, steps):
    model = keras.Sequential([keras.layers.Input((32,)), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    x, y = np.ones((32 * steps, 32), "float32"), np.ones((32 * steps, 3), "float32")
    model.fit(x, y, verbose=0)
    return lambda: model.fit(x, y, verbose=0)


def eager(size, steps):
    weights = tf.Variable(tf.random.normal((size, size)))
    data = tf.random.normal((size, size))

    def loop():
        for _ in range(steps):
            with tf.GradientTape() as tape:
                hidden = tf.nn.relu(tf.matmul(data, weights))
                hidden = tf.matmul(hidden, weights)
                loss = tf.reduce_mean(hidden * hidden)
            gradient = tape.gradient(loss, weights)
            weights.assign_sub(1e-9 * gradient)

    loop()
    return loop


def graph(size, steps):
    data = tf.random.normal((size, size))

    @tf.function
    def step(x):
        return tf.reduce_sum(tf.matmul(x, x))

    def loop():
        for _ in range(steps):
            step(data)

    loop()
    return loop


def plain_python(count):
    def loop():
        total = 0
        for number in range(count):
            total += number * number
        return total + float(tf.constant(1.0))

    return loop


CELLS = {
    "fit, batches of 0.4 ms": fit(32, 200),
    "fit, wide": fit(2048, 100),
    "eager loop, tiny ops": eager(32, 150),
    "eager loop, 256 x 256": eager(256, 60),
    "tf.function loop": graph(128, 600),
    "plain Python, 6 million lines": plain_python(3_000_000),
}


def measure(run, **options):
    window = {}

    def timed():
        begin = time.perf_counter()
        run()
        window["s"] = time.perf_counter() - begin

    with profnb.profile(max_steps=10_000, max_seconds=600, **options):
        timed()
    return window["s"]


def main(rounds=15):
    for name, run in CELLS.items():
        plain, source, python = [], [], []
        for _ in range(rounds):
            plain.append(measure(run, source=False))
            source.append(measure(run, source=True))
            python.append(measure(run, source=False, python=True))
        texts = []
        for label, values in (("source", source), ("python", python)):
            low, high = np.percentile(np.array(values) / np.array(plain), (25, 75))
            texts.append(f"{label} {np.median(values) / np.median(plain):.3f} ({low:.3f} to {high:.3f}), best {min(values) / min(plain):.3f}")
        print(f"{name:32}{1e3 * np.median(plain):8.1f} ms   {'   '.join(texts)}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
