"""A whole cell under %%tfprofile, its page included, against the same cell without: `python tests/benchmarks/whole_cells.py [NAME ...]`.

In a kernel, as a notebook runs them, cells alternate; the frontend's clock times each from its start to its reply. Printed: the plain cell's
seconds, the median ratio of neighbours (middle half), profnb's share as that says (1 - 1 / ratio), the share that the report tells
(`p.cell_breakdown`), and how many steps were traced. Budgets (design.md 7): 5 % of cells of seconds, 0.5 s of shorter ones; what is told is
what was measured, within 2 points.
"""

import datetime
import statistics
import sys

import nbclient
import nbformat

PAIRS = 7
SETUP = """
%load_ext profnb
import os, time, warnings
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
warnings.simplefilter("ignore")
import keras, numpy as np, tensorflow as tf
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.random.rand(4096, 16).astype("float32"), np.random.rand(4096, 1).astype("float32")
conv = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Conv2D(16, 3), keras.layers.Flatten(), keras.layers.Dense(10)])
conv.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images, labels = np.random.rand(2000, 28, 28, 1).astype("float32"), np.random.randint(0, 10, 2000)
weight = tf.Variable(tf.random.normal((32, 32)))

def eager(steps, ops):
    for _ in range(steps):
        with tf.GradientTape() as tape:
            h = weight
            for _ in range(ops):
                h = tf.tanh(h)
            loss = tf.reduce_sum(h)
        weight.assign_sub(0.0 * tape.gradient(loss, weight))

@tf.function
def step(h):
    for _ in range(200):
        h = tf.tanh(h @ weight)
    return h

def loop(steps):
    h = weight.value()
    for _ in range(steps):
        h = step(h)
"""
PROGRAMS = {
    "fit": "history = model.fit(x, y, batch_size=8, epochs=4, verbose=0)",
    "convolution": "history = conv.fit(images, labels, batch_size=32, epochs=3, verbose=0)",
    "eager": "eager(150, 50)",
    "many small ops": "eager(40, 1000)",
    "function": "loop(1000)",
    "predict": "for _ in range(30): model.predict(x[:64], verbose=0)",
    "half a second": "history = model.fit(x[:1024], y[:1024], batch_size=8, verbose=0)",
    "no TensorFlow": "sum(at * at for at in range(3_000_000));",
}
TOLD = """
parts = _tfprofile.cell_breakdown
traced = int(_tfprofile.step_times.was_traced.sum()) if _tfprofile.has_trace else 0
print(parts.fraction[parts.part == "profnb"].sum(), traced)
"""


def seconds(cell):
    stamps = cell.metadata.execution
    ends = [datetime.datetime.fromisoformat(stamps[f"{at}"].replace("Z", "+00:00")) for at in ("iopub.execute_input", "shell.execute_reply")]
    return (ends[1] - ends[0]).total_seconds()


def main():
    for name in sys.argv[1:] or PROGRAMS:
        code = PROGRAMS[name]
        pair = [code, f"%%tfprofile\n{code}", TOLD]
        cells = [SETUP, *pair[:2], "time.sleep(8)", *(pair * PAIRS)]  # what compiles in the background has done so
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
        run = notebook.cells[4:]
        plain, inside = ([seconds(cell) for cell in run[at::3]] for at in (0, 1))
        told = [[float(word) for word in cell.outputs[-1].text.split()] for cell in run[2::3]]
        ratios = sorted(b / a for a, b in zip(plain, inside))
        middle = statistics.median(ratios)
        taken = statistics.median(b - a for a, b in zip(plain, inside))
        share = statistics.median(one[0] for one in told)
        print(
            f"{name:16}{statistics.median(plain):7.2f} s   {middle:.3f} ({ratios[1]:.3f} to {ratios[-2]:.3f})   {taken:+.2f} s"
            f"   measured {100 * (1 - 1 / middle):5.1f} %   told {100 * share:5.1f} %   {statistics.median(one[1] for one in told):.0f} steps traced",
            flush=True,
        )


if __name__ == "__main__":
    main()
