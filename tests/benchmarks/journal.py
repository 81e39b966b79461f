"""What a journal costs a cell: the processor time of its thread, and steps with it against steps without.

``nice -n -20 python tests/benchmarks/journal.py [--rounds 8] [--times 5]``, on an idle machine. Fits of Keras with steps of
about a millisecond, the same with XLA-like long ones, and a plain loop of Python whose thread never lets go of the
interpreter; each alternates with a capture whose journal never starts. The budget is 0.2 % of the cell.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from profnb.capture.journal.journal import Journal
from profnb.capture.session import Capture
from profnb.core.options import CaptureOptions

START = Journal.start


def fit_of(width, examples):
    model = keras.Sequential([keras.layers.Dense(width, activation="relu"), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((examples, 32), "f"), np.zeros((examples, 1), "f")
    model.fit(x, y, batch_size=32, verbose=0)
    return lambda: model.fit(x, y, batch_size=32, epochs=2, verbose=0)


def python_alone():
    total = 0
    for number in range(20_000_000):
        total += number
    return total


def measure(run, has_journal):
    Journal.start = START if has_journal else lambda _: None
    capture = Capture(CaptureOptions(max_steps=1), traces=False)
    capture.start()
    with capture.machine.watch():  # as beside a cell that is traced
        began = time.perf_counter()
        run()
        wall, took = time.perf_counter() - began, capture.journal.took_s  # what is written as the cell ends is after it
    capture.finish()
    capture.journal.remove()
    return wall, took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--times", type=int, default=1, help="how often a cell runs its program")
    asked = parser.parse_args()
    programs = {"steps of about 1 ms": fit_of(16, 16_000), "steps of about 10 ms": fit_of(1024, 4_000), "Python alone": python_alone}
    for name, run in programs.items():
        cell = lambda run=run: [run() for _ in range(asked.times)]
        pairs = [(measure(cell, True), measure(cell, False)) for _ in range(asked.rounds)]
        shares = [took / wall for (wall, took), _ in pairs]
        ratios = [with_it[0] / without[0] for with_it, without in pairs]
        print(f"{name}: cell {pairs[0][0][0]:.2f} s, thread {statistics.median(shares):.3%} of it, cell {statistics.median(ratios):.4f} times as long (middle half {np.quantile(ratios, 0.25):.4f} to {np.quantile(ratios, 0.75):.4f})")


if __name__ == "__main__":
    main()
