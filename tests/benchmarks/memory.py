"""What ``profnb.fits`` forecasts for a batch eight times the largest that was tried, against what that batch takes.

``nice -n 10 python tests/benchmarks/memory.py [--frameworks tensorflow jax torch] [--models dense ...] [--json F] [--write]``. Twelve models that
differ, each in a process of its own with ``--python-jax`` and ``--python-torch`` as interpreters:

- tensorflow: ``fits(model, x, y)``, against the most memory (RSS) of a process that takes six steps with that batch:
  the median of three and the most, as ops beside each other end in another order each time;
- torch: ``fits(step, batch)`` of an own loop, against what PyTorch's allocators gave in that step;
- jax: ``fits(step, batch)`` of a step that is compiled, against arguments and the most that the process grew as that step ran six times.

``--write`` puts the table into docs/memory.md: forecasts with how far off they say they may be.
"""

import argparse
import gc
import json
import os
import subprocess
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

ROOT, BEGIN, END = Path(__file__).parents[2], "<!-- measured -->", "<!-- end -->"
TIMES, RUNS, STEPS, LIMIT_BYTES = 8, 3, 6, 2 << 30  # of which a tenth is tried: eight times that runs in minutes on two cores


def models(keras):
    """Twelve models by name, each with a few examples and targets."""
    layers, random = keras.layers, np.random.default_rng(0)

    def noise(*shape):
        return random.random((16, *shape), np.float32)

    def words(length, most):
        return random.integers(0, most, (16, length)).astype("int32")

    def made(inputs, output, *arrays, size=10):
        return keras.Model(inputs, layers.Dense(size, dtype="float32")(output)), list(arrays), noise(size)

    def dense():
        x = layers.Input((784,))
        y = layers.Dense(2048, activation="relu")(x)
        return made(x, layers.Dense(2048, activation="relu")(y), noise(784))

    def normalised():
        x = y = layers.Input((256,))
        for _ in range(4):
            y = layers.Dropout(0.2)(layers.Activation("gelu")(layers.BatchNormalization()(layers.Dense(1024)(y))))
        return made(x, y, noise(256))

    def convolution():
        x = y = layers.Input((64, 64, 3))
        for width in (32, 64):
            y = layers.MaxPooling2D()(layers.Conv2D(width, 3, activation="relu", padding="same")(y))
        return made(x, layers.Flatten()(y), noise(64, 64, 3))

    def residual():
        x = layers.Input((32, 32, 3))
        y = layers.Conv2D(32, 3, padding="same")(x)
        for _ in range(3):
            z = layers.Activation("relu")(layers.BatchNormalization()(y))
            y = layers.Add()([y, layers.SeparableConv2D(32, 3, padding="same")(z)])
        return made(x, layers.GlobalAveragePooling2D()(y), noise(32, 32, 3))

    def signal():
        x = y = layers.Input((1024, 4))
        for width in (16, 32):
            y = layers.Conv1D(width, 9, strides=2, activation="relu")(y)
        return made(x, layers.GlobalMaxPooling1D()(y), noise(1024, 4))

    def images_to_images():
        x = layers.Input((32, 32, 3))
        y = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
        y = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(y)
        return keras.Model(x, layers.Conv2D(3, 3, padding="same")(y)), [noise(32, 32, 3)], noise(32, 32, 3)

    def lstm():
        x = layers.Input((40, 32))
        return made(x, layers.LSTM(128)(x), noise(40, 32))

    def gru():
        x = layers.Input((30, 32))
        return made(x, layers.GRU(64)(layers.GRU(64, return_sequences=True)(x)), noise(30, 32))

    def attention():
        x = layers.Input((64,), dtype="int32")
        y = layers.Embedding(5000, 64)(x)
        for _ in range(2):
            y = layers.LayerNormalization()(y + layers.MultiHeadAttention(4, 16)(y, y))
            y = layers.LayerNormalization()(y + layers.Dense(64)(layers.Dense(256, activation="relu")(y)))
        return made(x, layers.GlobalAveragePooling1D()(y), words(64, 5000))

    def embeddings():
        x = layers.Input((100,), dtype="int32")
        y = layers.GlobalAveragePooling1D()(layers.Embedding(100_000, 64)(x))
        return made(x, layers.Dense(256, activation="relu")(y), words(100, 100_000))

    def several_inputs():
        image, facts, ids = layers.Input((32, 32, 3)), layers.Input((20,)), layers.Input((12,), dtype="int32")
        parts = layers.Flatten()(layers.Conv2D(32, 3, activation="relu")(image)), layers.Dense(64)(facts), layers.Flatten()(layers.Embedding(1000, 16)(ids))
        return made([image, facts, ids], layers.Dense(128)(layers.Concatenate()(parts)), noise(32, 32, 3), noise(20), words(12, 1000))

    def mixed_precision():
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        return convolution()

    every = (dense, normalised, convolution, residual, signal, images_to_images, lstm, gru, attention, embeddings, several_inputs, mixed_precision)
    return {one.__name__.replace("_", " "): one for one in every}


def peak_of_process(name, batch):
    """The most memory of a process that fits a model with one batch an epoch."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import memory; memory.fit_alone({name!r}, {batch})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr[-2000:])
    return int(ran.stdout.split()[-1])


def fit_alone(name, batch):
    import keras

    model, x, y = models(keras)[name]()
    x, y = [np.resize(one, (batch, *one.shape[1:])) for one in x], np.resize(y, (batch, *y.shape[1:]))
    model.compile("adam", "mse")
    model.fit(x if len(x) > 1 else x[0], y, batch_size=batch, epochs=STEPS, verbose=0)
    print(1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]))


def measure_tensorflow(name, model, x, y):
    import profnb

    model.compile("adam", "mse")
    forecast = profnb.fits(model, x, y, limit_bytes=LIMIT_BYTES)
    largest = TIMES * int(forecast.table.batch_size.max())
    data = sum(one.nbytes / len(one) for one in (*x, y)) * largest  # the process that is compared holds all its examples
    given = sum(one.nbytes for one in (*x, y))
    return forecast, largest, forecast.peak_bytes(largest) - given + data, [peak_of_process(name, largest) for _ in range(RUNS)]


def measure_torch(_, model, x, y):
    import torch

    import profnb
    from profnb.forecast.meters import torch_peak

    optimizer = torch.optim.Adam(list(model.parameters()))

    def step(*batch):
        optimizer.zero_grad()
        ((model(list(batch[:-1]) if len(batch) > 2 else batch[0]) - batch[-1]) ** 2).mean().backward()
        optimizer.step()

    batch = tuple(torch.from_numpy(one) for one in (*x, y))
    forecast = profnb.fits(step, batch, limit_bytes=LIMIT_BYTES)
    largest = TIMES * int(forecast.table.batch_size.max())
    rows = np.resize(np.arange(len(y)), largest)
    large = tuple(one[rows] for one in batch)
    return forecast, largest, forecast.peak_bytes(largest), [torch_peak(lambda: step(*large))[1]]


def measure_jax(_, model, x, y):
    import jax

    import profnb
    from profnb.forecast.meters import resident_peak

    weights, others = ([one.value for one in group] for group in (model.trainable_variables, model.non_trainable_variables))

    def loss_of(weights, batch):
        given = list(batch[:-1]) if len(batch) > 2 else batch[0]
        return ((model.stateless_call(weights, others, given, training=True)[0] - batch[-1]) ** 2).mean()

    @jax.jit
    def update(weights, batch):
        return jax.tree.map(lambda one, gradient: one - 0.01 * gradient, weights, jax.grad(loss_of)(weights, batch))

    batch = tuple(map(jax.numpy.asarray, (*x, y)))
    forecast = profnb.fits(lambda *batch: update(weights, batch), batch, limit_bytes=LIMIT_BYTES)
    largest = int(forecast.table.batch_size.max())  # which was planned only: eight times the largest that ran
    large = tuple(jax.numpy.asarray(np.resize(one, (largest, *one.shape[1:]))) for one in (*x, y))
    gc.collect()
    _, more = resident_peak(lambda: jax.block_until_ready(update(weights, large)))  # the most of six
    return forecast, largest, forecast.peak_bytes(largest), [more + sum(one.nbytes for one in (*large, *weights, *others))]


def measure(framework, name):
    import keras

    model, x, y = models(keras)[name]()
    forecast, batch, promised, measured = globals()[f"measure_{framework}"](name, model, x, y)
    row = {"framework": framework, "model": name, "tried": int(batch // TIMES), "forecast": float(promised), "apart": batch / int(forecast.table.batch_size.max()) * float(forecast.spread_bytes), "measured": measured}
    print("measured", json.dumps(row | {"peaks": forecast.table[["batch_size", "peak_bytes"]].values.tolist(), "because": forecast.because}))


def table(rows):
    yield "| model | framework | largest tried | forecast for 8 times that | it took | off the middle | off the most |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        middle, low, high = (find(row["measured"]) / 1e6 for find in (statistics.median, min, max))
        took = f"{middle:,.0f} MB" + (f" ({low:,.0f} to {high:,.0f})" if high - low > 1 else "")
        apart = f" ± {row['apart'] / 1e6:,.0f}" if row["apart"] >= 1e6 else ""
        forecast = f"{row['forecast'] / 1e6:,.0f}{apart} MB"
        off = " | ".join(f"{row['forecast'] / 1e6 / one - 1:+.1%}" for one in (middle, high))
        yield f"| {row['model']} | {row['framework']} | {row['tried']:,} | {forecast} | {took} | {off} |"


def main():
    parser = argparse.ArgumentParser()
    frameworks = ("tensorflow", "jax", "torch")
    parser.add_argument("--frameworks", nargs="+", default=frameworks, choices=frameworks)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--python-jax", default="/work/venv-jax/bin/python")
    parser.add_argument("--python-torch", default="/work/venv-torch/bin/python")
    parser.add_argument("--json", type=Path, default=Path(tempfile.gettempdir()) / "memory.jsonl")
    parser.add_argument("--write", action="store_true", help="put what --json has into docs/memory.md, and measure nothing")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(*asked.measure)
        return
    if asked.write:
        rows = {(row["framework"], row["model"]): row for row in map(json.loads, asked.json.read_text().splitlines())}
        page = ROOT / "docs" / "memory.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text("\n".join([before + BEGIN, *table(rows.values()), END]) + rest.partition(END)[2])
        return
    for framework in asked.frameworks:
        python = getattr(asked, f"python_{framework}", sys.executable)
        for name in asked.models or models(SimpleNamespace(layers=None)):
            settings = os.environ | {"KERAS_BACKEND": framework, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
            ran = subprocess.run([python, __file__, "--measure", framework, name], capture_output=True, text=True, check=False, env=settings)
            found = [line.removeprefix("measured ") for line in ran.stdout.splitlines() if line.startswith("measured ")]
            with asked.json.open("a") as file:
                file.writelines(f"{line}\n" for line in found)
            print(*(list(table(map(json.loads, found)))[2:] or [f"{framework} {name}: {ran.stderr[-1500:]}"]), flush=True)


if __name__ == "__main__":
    main()
