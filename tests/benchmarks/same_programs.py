"""The same three Keras programs on each backend, all steps in the window: `same_programs.py run FILE` on each, then `same_programs.py compare FILE...`.

`run` (KERAS_BACKEND chooses) trains a Sequential CNN, a functional model with a shared layer and a Transformer block, and writes down what
profnb says beside what a callback of Keras' own counts and times by `perf_counter`. `compare` says whether step counts are exact, layers
have the same names and parameters everywhere, and how far step times are from the callback's: from the end of its `on_*_batch_begin` to the
start of its `on_*_batch_end`, so what lies between its own two lines and profnb's (other callbacks, the marker) is in the difference.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

STEPS, BATCH, EPOCHS, VALIDATION = 40, 32, 2, 10


def three_models(keras):
    layers = keras.layers
    cnn = [layers.Input((16, 16, 3)), layers.Conv2D(16, 3, activation="relu", name="conv"), layers.BatchNormalization(name="bn"), layers.MaxPooling2D(name="pool")]
    yield keras.Sequential([*cnn, layers.Flatten(name="flat"), layers.Dense(10, name="out")], name="cnn")
    x, twice = layers.Input((64,)), layers.Dense(64, activation="relu", name="twice")
    joined = layers.Concatenate(name="cat")([twice(twice(x)), layers.Dense(128, name="side")(x)])
    yield keras.Model(x, layers.Dense(10, name="out")(joined), name="shared")
    x = layers.Input((16, 64))
    h = layers.LayerNormalization(name="norm")(layers.Add(name="add")([x, layers.MultiHeadAttention(4, 16, name="attn")(x, x)]))
    h = layers.GlobalAveragePooling1D(name="pool")(layers.Dense(64, name="down")(layers.Dense(128, activation="gelu", name="up")(h)))
    yield keras.Model(x, layers.Dense(10, name="out")(h), name="block")


def run(file):
    import keras

    import profnb

    class Watch(keras.callbacks.Callback):
        """When each batch began and ended, by Keras' own telling."""

        def __init__(self):
            super().__init__()
            self.times = {"train": [], "test": []}

        def on_train_batch_begin(self, batch, logs=None):
            self.began = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            self.times["train"].append((self.began, time.perf_counter()))

        def on_test_batch_begin(self, batch, logs=None):
            self.began = time.perf_counter()

        def on_test_batch_end(self, batch, logs=None):
            self.times["test"].append((self.began, time.perf_counter()))

    told = {}
    for model in three_models(keras):
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        x = np.random.default_rng(0).random((STEPS * BATCH, *model.input_shape[1:])).astype("float32")
        y = np.arange(STEPS * BATCH) % 10
        held = x[: VALIDATION * BATCH], y[: VALIDATION * BATCH]
        model.fit(x, y, batch_size=BATCH, verbose=0, validation_data=held)  # compiled
        watch = Watch()
        with profnb.profile(max_steps=10_000, max_seconds=600) as p:
            model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, validation_data=held, callbacks=[watch])
        steps = p.steps[p.steps.phase == "train"]
        begins = np.array([begin for begin, _ in watch.times["train"]])
        spent = np.array([end - begin for begin, end in watch.times["train"]])
        same = np.diff(steps.begin_ms) / 1000  # from a begin to the next, ends of epochs too
        layers = p.layers
        told[model.name] = {
            "framework": p.study.program.framework, "counted": {phase: len(times) for phase, times in watch.times.items()},
            "steps": dict(Counter(p.steps.phase)), "step_times": dict(Counter(p.step_times.phase)), "batch_size": p.study.summary.batch_size,
            "layers": {row.layer: [row.parameters, row.forward_us > 0, row.backward_us > 0] for row in layers.itertuples() if row.parameters > 0},
            "parameters": [float(layers.parameters.sum()), model.count_params()], "headline": p.summary().splitlines()[0],
            "median_ms": [float(steps.duration_ms.median()), float(np.median(spent)) * 1000],
            "sum_ms": [float(steps.duration_ms.sum()), float(spent.sum()) * 1000],
            "wall_ms": [float(p.step_times[p.step_times.phase == "train"].wall_ms.sum()), float(spent.sum()) * 1000],
            "periods_off": np.percentile(np.abs(same - np.diff(begins)) * 1000, [50, 90, 100]).tolist() if len(steps) == len(begins) else None,
            "notes": [note for note in p.notes if "hook" in note or "hides" in note],
        }  # fmt: skip
    Path(file).write_text(json.dumps(told))


def compare(files):
    told = [json.loads(Path(file).read_text()) for file in files]
    for name in told[0]:
        print(name)
        for one in (of[name] for of in told):
            exact = one["counted"] == one["steps"] == one["step_times"]
            (ours, theirs), (whole, all_theirs) = one["median_ms"], one["sum_ms"]
            print(f"  {one['framework']:11}steps {one['steps']} {'exact' if exact else 'NOT AS COUNTED: ' + str(one['counted'])}, batch size {one['batch_size']}, "
                  f"median {ours:.3f} ms, the callback's {theirs:.3f} ({ours / theirs - 1:+.1%}), all {whole / all_theirs - 1:+.1%}, "
                  f"by the clock outside the trace {one['wall_ms'][0] / all_theirs - 1:+.1%}, from begin to begin off by {one['periods_off']} ms (half, a tenth, the worst)")  # fmt: skip
            print(f"             {one['headline']} {' '.join(one['notes'])}")
        layers = [{layer: (parameters, forward, backward) for layer, (parameters, forward, backward) in of[name]["layers"].items()} for of in told]
        same = all(of == layers[0] for of in layers) and all(of[name]["parameters"][0] == of[name]["parameters"][1] for of in told)
        print(f"  layers with weights, whether they ran both ways, parameters: {'the same everywhere' if same else layers}")


if __name__ == "__main__":
    {"run": lambda files: run(*files), "compare": compare}[sys.argv[1]](sys.argv[2:])
