"""Many captures in one process: what each leaves behind in memory, open files and threads.

    python tests/benchmarks/many_captures.py --count 1000
"""

import argparse
import gc
import os
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

_WARM_UP = 20


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--control", action="store_true", help="the profiler alone, without profnb")
    arguments = parser.parse_args()
    import tempfile

    import tensorflow as tf

    import profnb

    step = tf.function(lambda x: x @ x)

    def capture():
        if arguments.control:
            with tempfile.TemporaryDirectory() as folder:
                tf.profiler.experimental.start(folder)
                for _ in range(10):
                    step(tf.ones((8, 8)))
                tf.profiler.experimental.stop()
            return
        with profnb.profile() as p:
            for _ in range(10):
                step(tf.ones((8, 8)))
        p._repr_mimebundle_()

    def measure():
        gc.collect()
        return resident_mb(), len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(_WARM_UP):
        capture()
    before, end, done = measure(), time.monotonic() + arguments.seconds, 0
    while done < arguments.count and time.monotonic() < end:
        capture()
        done += 1
        if done % 100 == 0:
            print(done, "captures:", *measure(), flush=True)
    after = measure()
    print(f"{done} captures: {(after[0] - before[0]) / done:.3f} MB each, files {before[1]} to {after[1]}, threads {before[2]} to {after[2]}")


if __name__ == "__main__":
    main()
