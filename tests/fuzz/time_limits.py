"""Time limits (SIGALRM, whose handler raises) at random instants of a captured fit: does each reach the code, and once?

    python tests/fuzz/time_limits.py [--limits 150] [--seed 1] [--without]

With ``--without`` no capture surrounds the fit: what TensorFlow and Keras themselves lose. A process that dies here dies in
TensorFlow's C code, through which the exception passed; that happens without a capture, too.
"""

import argparse
import contextlib
import logging
import random
import signal
import sys
import time
from collections import Counter

import keras
import numpy as np
from tensorflow.python.profiler import profiler_v2

import profnb


class Late(Exception):
    """What the handler raises."""


class Limit:
    """Counts how often its handler is called."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *_):
        self.calls += 1
        raise Late

    def outcome_of(self, work, after_s):
        """What became of one limit."""
        self.calls = 0
        try:
            signal.setitimer(signal.ITIMER_REAL, after_s)
            work()
            outcome = "lost" if self.calls else "the work was done before"
        except Late:
            outcome = "raised" if self.calls == 1 else "raised, and the handler called again"
        except Exception as error:
            outcome = f"turned into {type(error).__name__}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if profiler_v2._profiler is not None:
            profiler_v2.stop(save=False)
            outcome += ", and a profiler was left running"
        return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="store_true")
    options = parser.parse_args()
    logging.getLogger("tensorflow").setLevel(logging.CRITICAL)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")

    def work():
        with contextlib.nullcontext() if options.without else profnb.profile():
            model.fit(x, y, batch_size=1, epochs=2, verbose=0)

    for _ in range(3):
        began = time.perf_counter()
        work()
        took_s = time.perf_counter() - began
    limit = Limit()
    signal.signal(signal.SIGALRM, limit)
    sys.unraisablehook = lambda _: None  # TensorFlow's and Keras' own weak references lose some, and Python says so
    draw = random.Random(options.seed)
    outcomes = Counter(limit.outcome_of(work, draw.uniform(0.001, 0.95 * took_s)) for _ in range(options.limits))
    for outcome, count in outcomes.most_common():
        print(f"{count} {outcome}")


if __name__ == "__main__":
    main()
