"""A long cell: what ``%%tfprofile`` adds to a process that runs it for an hour, and whether each step is timed.

    python tests/benchmarks/long_cell.py --seconds 3600             # tiny ops, as fast as they come
    python tests/benchmarks/long_cell.py --seconds 3600 --fit       # a Keras fit that saves a checkpoint in each epoch
    python tests/benchmarks/long_cell.py --seconds 600 --control    # the same cell without the magic: TensorFlow's own growth
"""

import argparse
import gc
import os
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

SETUP = """
import keras, numpy as np, tensorflow as tf, time
step = tf.function(lambda x: x @ x)
x = tf.ones((4, 4))
examples = np.ones((512, 6), "float32"), np.zeros(512, "int64")
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(*examples, batch_size=8, verbose=0)

class Until(keras.callbacks.Callback):
    def __init__(self, end):
        super().__init__()
        self.end, self.batches = end, 0
    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if time.monotonic() > self.end:
            self.model.stop_training = True
    def on_epoch_begin(self, epoch, logs=None):
        if time.monotonic() > self.end:
            self.model.stop_training = True
"""
OPS = """
count, end = 0, time.monotonic() + {seconds}
while time.monotonic() < end:
    step(x)
    count += 1
"""
FIT = """
until = Until(time.monotonic() + {seconds})
model.fit(*examples, batch_size=8, epochs=10**6, verbose=0, callbacks=[until, keras.callbacks.ModelCheckpoint("{folder}/m.keras")])
count = until.batches
"""


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def watch(seconds, done):
    """Says the resident memory 12 times, the last time just before the cell ends."""
    began = time.monotonic()
    for part in range(1, 13):
        if done.wait(max(0.0, began + part * seconds / 12 - 1 - (time.monotonic()))):
            return
        print(f"{time.monotonic() - began:6.0f} s: {resident_mb():7.0f} MB resident", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--control", action="store_true", help="without the magic")
    arguments = parser.parse_args()
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    with tempfile.TemporaryDirectory() as folder:
        shell.run_cell(SETUP).raise_error()
        shell.run_cell("%load_ext profnb").raise_error()
        body = (FIT if arguments.fit else OPS).format(seconds=arguments.seconds, folder=folder)
        # A short cell first: what TensorFlow's profiler and our tables need once is not what an hour adds.
        shell.run_cell("%%tfprofile -q -o short\nfor _ in range(200): step(x)").raise_error()
        gc.collect()
        before, done = resident_mb(), threading.Event()
        print(f"     0 s: {before:7.0f} MB resident", flush=True)
        threading.Thread(target=watch, args=(arguments.seconds, done), daemon=True).start()
        shell.run_cell(body if arguments.control else "%%tfprofile -q -o p\n" + body).raise_error()
        done.set()
    count = shell.user_ns["count"]
    print(f"{count} steps; {resident_mb() - before:.0f} MB more than before the cell")
    if not arguments.control:
        p = shell.user_ns["p"]
        times = p.step_times
        print(f"{len(times)} rows in p.step_times, {times['was_traced'].sum()} traced; {resident_mb() - before:.0f} MB with its tables")
        print(p.summary()[:3000])


if __name__ == "__main__":
    main()
