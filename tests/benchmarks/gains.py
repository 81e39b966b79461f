"""What the first advice and ``p.what_if`` promise against what the change saves: `python tests/benchmarks/gains.py [--write] [NAME ...]`.

Each program runs as it is and changed, each twice, in a process of its own, and then under a capture that is asked what to change, and
what the change would save. A promise is right where the saving lies in its range or within 10 points of the cell, and a range that does
not begin at 0 is no wider than 40 points. The first advice has to be of the rule that the program is made for; of a third of the
programs the change saves next to nothing, and there nothing may be promised above that. ``--write`` puts the table into docs/gains.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asked_programs  # noqa: F401 - they stand beside the public ones
import everyday_programs  # noqa: F401 - so do these
import forum_programs  # noqa: F401 - and these
import fourth_unseen_programs  # noqa: F401 - and these
import mistakes_and_neighbours  # noqa: F401 - and these
import other_programs  # noqa: F401 - and these
import public_programs
import row_programs  # noqa: F401 - and these
import second_unseen_programs  # noqa: F401 - and these
import third_unseen_programs  # noqa: F401 - and these
import unseen_programs  # noqa: F401 - and these

from profnb.trials.promises import gains_text, summarize_gains

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
NEAR, WIDEST = 0.10, 0.40
PAGE = Path(__file__).parents[2] / "docs" / "gains.md"
PROGRAMS = {}


def program(rule="", **change):
    """A function that gives the cell and the changed cell; the rule that should come first, and the change in the words of what_if."""

    def add(make):
        PROGRAMS[make.__name__] = make, rule, change
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


@program("callback", without="Judge.on_epoch_end")
def a_callback_that_evaluates():
    keras, np, _ = tools()
    (x, y), held_out, model = rows(np, 3000), rows(np, 25_000), small(keras)

    class Judge(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(*held_out, verbose=0)

    def fit(*callbacks):
        model.fit(x, y, epochs=5, verbose=0, callbacks=list(callbacks))

    return lambda: fit(Judge()), fit


@program("callback", without="Watch.on_train_batch_end")
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


@program("epoch-ends", epochs_restart_free=True)
def many_epochs_of_few_batches_over_arrays():
    keras, np, tf = tools()
    (x, y), model = rows(np, 100), small(keras)
    ready = tf.data.Dataset.from_tensor_slices((x, y)).batch(25)
    model.fit(ready, verbose=0)
    return lambda: model.fit(x, y, batch_size=25, epochs=70, verbose=0), lambda: model.fit(ready, epochs=70, verbose=0)


@program(epochs_restart_free=True)
def few_epochs_of_many_batches():
    keras, np, tf = tools()
    (x, y), model = rows(np, 40_000, 400), small(keras, 1500, 400)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(200)
    return lambda: model.fit(data, epochs=2, verbose=0), lambda: model.fit(data.repeat(), steps_per_epoch=200, epochs=2, verbose=0)


@program("python-between-steps")
def small_steps_of_a_fit():
    keras, np, tf = tools()
    (x, y), one, many = rows(np, 20_000), small(keras), small(keras)
    many.compile("sgd", "mse", steps_per_execution=16)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(50)
    return lambda: one.fit(data, epochs=2, verbose=0), lambda: many.fit(data, epochs=2, verbose=0)


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


@program("eager-ops", compiled="errors")
def a_metric_that_nobody_compiled():
    return loop_with(lambda tf, error: (tf.reduce_mean(error**2), tf.reduce_max(tf.abs(error)), tf.math.reduce_std(error)), lambda tf, f: tf.function(f))


@program("eager-ops", compiled="measure_all")
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


@program("callback", without="Keep.on_train_batch_end")
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


@program("own-python", without="write_histogram")
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


@program("python-input", input=0)
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
    (x, y), model, seen = rows(np, 30_000, 400), small(keras, 1500, 400), []

    class Note(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(sorted(logs.items()))
            time.sleep(0.001)

    def fit(*callbacks):
        model.fit(x, y, batch_size=200, epochs=2, verbose=0, callbacks=list(callbacks))

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


@program("loop-of-ops")
def a_loop_over_rows_in_a_step():
    _, np, tf = tools()
    x, w = tf.constant(rows(np, 120, 6)[0]), tf.Variable(tf.random.normal((6, 6)))

    @tf.function
    def by_rows(x):
        return tf.map_fn(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x)

    @tf.function
    def at_once(x):
        return tf.tanh(tf.linalg.matmul(x, w, transpose_b=True))

    def run(function):
        for _ in range(200):
            function(x)

    return lambda: run(by_rows), lambda: run(at_once)


@program("cache-input")
def images_decoded_in_each_epoch():
    keras, np, tf = tools()
    images = [tf.io.encode_png(np.random.default_rng(at).integers(0, 255, (96, 96, 1), np.uint8)).numpy() for at in range(200)]
    model = keras.Sequential([keras.Input((96, 96, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def decoded(image):
        made = tf.cast(tf.ensure_shape(tf.io.decode_png(image), (96, 96, 1)), tf.float32) / 255
        return tf.image.resize(tf.image.resize(made, (192, 192)), (96, 96)), tf.constant([1.0])

    data = tf.data.Dataset.from_tensor_slices(images).map(decoded)
    return lambda: model.fit(data.batch(20), epochs=8, verbose=0), lambda: model.fit(data.cache().batch(20), epochs=8, verbose=0)


@program("predict-in-a-loop")
def a_prediction_for_each_of_many():
    keras, np, _ = tools()
    model, (x, _) = small(keras), rows(np, 50)
    return lambda: [model.predict(one[None], verbose=0) for one in x], lambda: model.predict(x, verbose=0)


@program("predict-in-a-loop")
def a_fit_for_each_batch():
    keras, np, _ = tools()
    model, (x, y) = small(keras), rows(np, 600)
    batches = [(x[at : at + 20], y[at : at + 20]) for at in range(0, 600, 20)]
    return lambda: [model.fit(*one, verbose=0) for one in batches], lambda: model.fit(x, y, batch_size=20, verbose=0)


@program("validation")
def a_validation_that_is_larger_than_the_training():
    keras, np, _ = tools()
    model, (x, y), held_out = small(keras), rows(np, 1000), rows(np, 16_000)
    return lambda: model.fit(x, y, epochs=5, validation_data=held_out, verbose=0), lambda: model.fit(
        x, y, epochs=5, validation_data=held_out, validation_freq=5, verbose=0
    )


@program("retracing")
def a_function_traced_for_each_number():
    _, np, tf = tools()
    x = tf.constant(rows(np, 64)[0])

    @tf.function
    def scaled(x, factor):
        for _ in range(8):
            x = tf.tanh(x * factor)
        return x

    def run(numbers):
        for number in numbers:
            scaled(x, number)

    numbers = iter(range(1, 100_000))
    return lambda: run([next(numbers) / 1000 for _ in range(25)]), lambda: run([tf.constant(0.5)] * 25)


@program()
def a_convolution_that_has_nothing_to_change():
    keras, np, _ = tools()
    model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.Conv2D(48, 3), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = np.random.default_rng(3).random((960, 32, 32, 3), np.float32), np.arange(960) % 10
    fit = lambda: model.fit(x, y, batch_size=64, verbose=0)
    return fit, fit


@program()
def a_recurrent_layer_that_has_nothing_to_change():
    keras, np, _ = tools()
    model = keras.Sequential([keras.Input((40, 16)), keras.layers.LSTM(96), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.random.default_rng(3).random((1024, 40, 16), np.float32)
    fit = lambda: model.fit(x, x[:, 0, :1], batch_size=64, epochs=2, verbose=0)
    return fit, fit


PROGRAMS.update(public_programs.PROGRAMS)


SEVERAL = "python-between-steps"  # run several steps in one call


def with_several_steps(make):
    """The cell of a program whose models are compiled as that advice says."""
    import keras

    compiled = keras.Model.compile
    keras.Model.compile = lambda *given, **named: compiled(*given, **{**named, "steps_per_execution": 16})
    try:
        return make()[0]
    finally:
        keras.Model.compile = compiled


def child(name, how):
    make, _, change = PROGRAMS[name]
    cell, changed = make()
    changed = with_several_steps(make) if how == "several" else changed or cell

    def wall(function):
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    wall(cell), wall(changed)
    if how != "capture":
        times = [(wall(cell), wall(changed)) for _ in range(2)]
        return {"as it is": min(a for a, _ in times), "changed": min(b for _, b in times)}
    import profnb

    with profnb.profile() as p:
        cell()
    cell_ms = p.cell_tree.wall_ms[0]
    told = {"low": 0.0, "high": 0.0, "because": ""}
    try:
        found = p.what_if(**change) if change else None
        if found is not None:
            told = {"low": found.saves_ms[0] / cell_ms, "high": found.saves_ms[1] / cell_ms, "because": found.because}
    except ValueError as error:  # what costs nothing may never have been met by a look
        told["because"] = str(error)[:80]
    advice = [{"rule": one.rule, "low": one.saves_ms[0] / cell_ms, "high": min(one.saves_ms[1] / cell_ms, 1.0)} for one in p.advice]
    return told | {"advice": advice}


def run(name, how):
    done = subprocess.run([sys.executable, __file__, "--child", how, name], capture_output=True, text=True, timeout=900)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{name}: {done.stderr[-600:]}")
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description="Promises against savings.")
    parser.add_argument("--write", action="store_true", help="write docs/gains.md")
    parser.add_argument("--child", choices=["time", "several", "capture"], help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(asked.names[0], asked.child)))
        return
    lines, right, first_right, firsts = [], 0, 0, []
    names = asked.names or list(PROGRAMS)
    asked_of = 0
    for name in names:
        times, promise = run(name, "time"), run(name, "capture")
        _, rule, change = PROGRAMS[name]
        saved = 1 - times["changed"] / times["as it is"]
        is_right = is_met(promise, saved) if change else True
        asked_of, right = asked_of + bool(change), right + (bool(change) and is_right)
        first = promise["advice"][0] if promise["advice"] else {"rule": "", "low": 0.0, "high": 0.0}
        of_cause, followed = saved, ""
        if first["rule"] == SEVERAL != rule:
            times, rule = run(name, "several"), SEVERAL
            saved = 1 - times["changed"] / times["as it is"]
            followed = f", which saved {saved:.0%}"
        is_first_right = first["rule"] == rule and is_met(first, saved) if rule else all(one["high"] <= max(saved, 0) + 0.12 for one in promise["advice"])
        first_right += is_first_right
        firsts.append((first["rule"], 1 - first["high"], 1 - first["low"], 1 - saved, 1 - saved - NEAR, 1 - saved + NEAR))
        words = ", ".join(f"{key}={value!r}" for key, value in change.items())
        of_change = f"{promise['low']:.0%} to {promise['high']:.0%}{'' if is_right else ' (wrong)'}" if change else ""
        of_first = f"{first['rule']} {first['low']:.0%} to {first['high']:.0%}{followed}" if first["rule"] else "nothing"
        lines.append(
            f"| {name.replace('_', ' ')} | {times['as it is']:.2f} s | {of_cause:.0%} | {of_first}{'' if is_first_right else ' (wrong)'} | "
            f"{f'`{words}`' if words else ''} | {of_change} |"
        )
        print(lines[-1], promise["because"], flush=True)
    said = f"First advice: {first_right} of {len(names)} right. what_if: {right} of {asked_of}.\n\n```\n{by_rule(firsts)}\n```"
    print(said)
    if asked.write:
        head = ["# What a change was said to save, and what it saved", "", *__doc__.split("\n\n")[1].splitlines(), ""]
        table = ["| program | cell | saved | first advice | change | what_if |", "| --- | --- | --- | --- | --- | --- |", *lines]
        PAGE.write_text("\n".join([*head, *table, "", said, ""]), "utf-8")


def by_rule(firsts):
    """First advice by rule, as ``profnb gains`` says it of trials; near is within 10 points of the cell."""
    import pandas as pd

    columns = ["rule", "promised_low", "promised_high", "ratio", "interval_low", "interval_high"]
    return gains_text(summarize_gains(pd.DataFrame([one for one in firsts if one[0]], columns=columns)))


def is_met(promise, saved):
    """Whether a saving lies in a range that says something, or near it."""
    is_narrow = promise["low"] < 0.01 or promise["high"] - promise["low"] <= WIDEST
    return promise["low"] - NEAR <= saved <= promise["high"] + NEAR and is_narrow


if __name__ == "__main__":
    main()
