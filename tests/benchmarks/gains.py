"""What ``p.what_if`` promises against what the change saves: `python tests/benchmarks/gains.py [--write] [NAME ...]`.

Each program runs as it is and changed, each twice, in a process of its own, and then under a capture that is asked what the change
would save. A promise is right where the saving lies in its range or within 10 points of the cell, and the range is no wider than 40
points. Of a third of the programs the change saves next to nothing. ``--write`` puts the table into docs/gains.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
NEAR, WIDEST = 0.10, 0.40
PAGE = Path(__file__).parents[2] / "docs" / "gains.md"
PROGRAMS = {}


def program(**change):
    """A function that gives the cell and the changed cell; the change in the words of what_if."""

    def add(make):
        PROGRAMS[make.__name__] = make, change
        return make

    return add


def tools():
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    return keras, np, tf


def small(keras, width=48, inputs=20):
    model = keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def rows(np, count, inputs=20):
    x = np.random.default_rng(3).random((count, inputs), np.float32)
    return x, x[:, :1]


@program(without="Judge.on_epoch_end")
def a_callback_that_evaluates():
    keras, np, _ = tools()
    (x, y), held_out, model = rows(np, 3000), rows(np, 25_000), small(keras)

    class Judge(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(*held_out, verbose=0)

    def fit(*callbacks):
        model.fit(x, y, epochs=5, verbose=0, callbacks=list(callbacks))

    return lambda: fit(Judge()), fit


@program(without="Watch.on_train_batch_end")
def a_callback_that_predicts_now_and_then():
    keras, np, _ = tools()
    (x, y), (some, _), model = rows(np, 4000), rows(np, 3000), small(keras)

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch % 20 == 0:
                self.model.predict(some, verbose=0)

    def fit(*callbacks):
        model.fit(x, y, epochs=2, verbose=0, callbacks=list(callbacks))

    return lambda: fit(Watch()), fit


@program(epochs_restart_free=True)
def many_epochs_of_few_batches_over_arrays():
    keras, np, tf = tools()
    (x, y), model = rows(np, 100), small(keras)
    ready = tf.data.Dataset.from_tensor_slices((x, y)).batch(25)
    model.fit(ready, verbose=0)
    return lambda: model.fit(x, y, batch_size=25, epochs=70, verbose=0), lambda: model.fit(ready, epochs=70, verbose=0)


@program(epochs_restart_free=True)
def few_epochs_of_many_batches():
    keras, np, tf = tools()
    (x, y), model = rows(np, 20_000), small(keras)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(50)
    return lambda: model.fit(data, epochs=2, verbose=0), lambda: model.fit(data.repeat(), steps_per_epoch=400, epochs=2, verbose=0)


def loop_with(measure, compiled):
    keras, np, tf = tools()
    x, model, optimizer = tf.constant(rows(np, 64)[0]), small(keras), keras.optimizers.SGD(0.01)

    @tf.function
    def learn(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - x[:, :1]) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    def errors(x):
        found = measure(tf, model(x, training=False) - x[:, :1])
        return found

    def run(function):
        for _ in range(250):
            learn(x)
            function(x)

    return lambda: run(errors), lambda function=compiled(tf, errors): run(function)


@program(compiled="errors")
def a_metric_that_nobody_compiled():
    return loop_with(lambda tf, error: (tf.reduce_mean(error**2), tf.reduce_max(tf.abs(error)), tf.math.reduce_std(error)), lambda tf, f: tf.function(f))


@program(compiled="measure_all")
def a_validation_that_nobody_compiled():
    keras, np, tf = tools()
    model = keras.Sequential([keras.Input((20,)), *[keras.layers.Dense(64, activation="relu") for _ in range(5)], keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = map(tf.constant, rows(np, 1024))
    model.train_on_batch(x[:32], y[:32])

    def measure_all(x, y):
        return tf.reduce_mean((model(x, training=False) - y) ** 2)

    fast = tf.function(measure_all)

    def run(function):
        for _ in range(3):
            for at in range(0, 1024, 32):
                model.train_on_batch(x[at : at + 32], y[at : at + 32])
            for at in range(0, 1024, 32):
                function(x[at : at + 32], y[at : at + 32])

    return lambda: run(measure_all), lambda: run(fast)


@program(without="Keep.on_train_batch_end")
def weights_saved_every_few_batches():
    keras, np, _ = tools()
    (x, y), model, folder = rows(np, 2400), small(keras, 700), tempfile.mkdtemp()

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch % 4 == 0:
                self.model.save_weights(f"{folder}/w.weights.h5")

    def fit(*callbacks):
        model.fit(x, y, batch_size=24, verbose=0, callbacks=list(callbacks))

    return lambda: fit(Keep()), fit


@program(without="write_histogram")
def an_own_function_that_looks_at_weights():
    keras, np, tf = tools()
    (x, y), model = rows(np, 3200), small(keras, 400)

    def write_histogram():
        return [np.histogram(weight.numpy(), 200) for weight in model.weights]

    def run(after):
        for at in range(0, 3200, 16):
            model.train_on_batch(x[at : at + 16], y[at : at + 16])
            after()

    return lambda: run(write_histogram), lambda: run(lambda: None)


@program(input=0)
def a_generator_that_takes_long():
    keras, np, tf = tools()
    (x, y), model = rows(np, 64), small(keras)
    text = [",".join(map(str, row)) for row in rows(np, 64)[0]]

    def batches():
        for _ in range(100):
            yield np.array([[float(v) for v in row.split(",")] for row in text], np.float32), y

    kinds = (tf.TensorSpec((64, 20)), tf.TensorSpec((64, 1)))
    slow, fast = tf.data.Dataset.from_generator(batches, output_signature=kinds), tf.data.Dataset.from_tensors((x, y)).repeat(100)
    return lambda: model.fit(slow, epochs=2, verbose=0), lambda: model.fit(fast, epochs=2, verbose=0)


@program(input=0)
def a_model_that_is_fed_well():
    keras, np, tf = tools()
    (x, y) = rows(np, 64, 400)
    model = keras.Sequential([keras.Input((400,)), keras.layers.Dense(1500), keras.layers.Dense(1500), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((x, y)).repeat(150)
    made = data.map(lambda x, y: (x * 1.0, y), num_parallel_calls=2)
    return lambda: model.fit(made.prefetch(2), verbose=0), lambda: model.fit(data.prefetch(2), verbose=0)


@program(without="Note.on_epoch_end")
def a_callback_that_costs_nothing():
    keras, np, _ = tools()
    (x, y), model, seen = rows(np, 30_000), small(keras), []

    class Note(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(sorted(logs.items()))
            time.sleep(0.001)

    def fit(*callbacks):
        model.fit(x, y, epochs=2, verbose=0, callbacks=list(callbacks))

    return lambda: fit(Note()), fit


@program(compiled="step_of_products")
def a_function_whose_ops_are_what_takes_long():
    _, _, tf = tools()
    x = tf.random.normal((900, 900))

    def step_of_products(x):
        for _ in range(4):
            x = tf.linalg.matmul(x, x) / 900
        return x

    fast = tf.function(step_of_products)
    fast(x)

    def run(function):
        for _ in range(12):
            function(x)

    return lambda: run(step_of_products), lambda: run(fast)


def child(name, is_captured):
    make, change = PROGRAMS[name]
    cell, changed = make()

    def wall(function):
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    wall(cell), wall(changed)
    if not is_captured:
        times = [(wall(cell), wall(changed)) for _ in range(2)]
        return {"as it is": min(a for a, _ in times), "changed": min(b for _, b in times)}
    import profnb

    with profnb.profile() as p:
        cell()
    try:
        found = p.what_if(**change)
    except ValueError as error:  # what costs nothing may never have been met by a look
        return {"low": 0.0, "high": 0.0, "because": str(error)[:80]}
    own = p.cell_tree[p.cell_tree.kind == "profnb"].self_ms.sum()
    cell_ms = found.wall_ms - own
    return {"low": found.saves_ms[0] / cell_ms, "high": found.saves_ms[1] / cell_ms, "because": found.because}


def run(name, how):
    done = subprocess.run([sys.executable, __file__, "--child", how, name], capture_output=True, text=True, timeout=900)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{name}: {done.stderr[-600:]}")
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description="Promises against savings.")
    parser.add_argument("--write", action="store_true", help="write docs/gains.md")
    parser.add_argument("--child", choices=["time", "capture"], help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(asked.names[0], asked.child == "capture")))
        return
    lines, right = [], 0
    names = asked.names or list(PROGRAMS)
    for name in names:
        times, promise = run(name, "time"), run(name, "capture")
        saved = 1 - times["changed"] / times["as it is"]
        is_right = promise["low"] - NEAR <= saved <= promise["high"] + NEAR and promise["high"] - promise["low"] <= WIDEST
        right += is_right
        change = ", ".join(f"{key}={value!r}" for key, value in PROGRAMS[name][1].items())
        verdict = "right" if is_right else "wrong"
        lines.append(f"| {name.replace('_', ' ')} | `{change}` | {times['as it is']:.2f} s | {promise['low']:.0%} to {promise['high']:.0%} | {saved:.0%} | {verdict} |")
        print(lines[-1], promise["because"], flush=True)
    print(f"{right} of {len(names)} right")
    if asked.write:
        head = ["# What a change was said to save, and what it saved", "", *__doc__.split("\n\n")[1].splitlines(), ""]
        table = ["| program | change | cell | promised | saved | |", "| --- | --- | --- | --- | --- | --- |", *lines]
        PAGE.write_text("\n".join([*head, *table, "", f"{right} of {len(names)} right.", ""]), "utf-8")


if __name__ == "__main__":
    main()
