"""Programs of the diagnosis benchmark whose input is slow: Python in it, one thread, many files, bursts."""

import tempfile
import time
from pathlib import Path

import numpy as np
from diagnosis_kit import keras, programs, tf
from recorded import program

from profnb.capture.machine import waits

PROGRAMS = []
planted = programs(of=PROGRAMS)
NAP_S = 0.06
# Of an input that is slow nothing of the following can be the cure.
NEVER = ("Log every", "steps_per_execution", "after Root")


def small_model(width=8):
    model = keras.Sequential([keras.layers.Input((width,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    return model


def batches(count=16, rows=8):
    """Batches that a Python function is slow to make."""
    for _ in range(count):
        time.sleep(NAP_S)
        yield np.ones((rows, 8), "float32"), np.ones((rows, 4), "float32")


def from_generator(make=batches):
    return tf.data.Dataset.from_generator(make, output_signature=(tf.TensorSpec((None, 8)), tf.TensorSpec((None, 4))))


def plain(dataset):
    """As written: tf.data neither parallelizes nor prefetches by itself."""
    options = tf.data.Options()
    options.autotune.enabled = False
    for name in ("map_parallelization", "map_and_batch_fusion", "inject_prefetch"):
        if hasattr(options.experimental_optimization, name):
            setattr(options.experimental_optimization, name, False)
    return dataset.with_options(options)


def burn(x):
    """Some 20 milliseconds of one thread."""
    y = tf.ones((300_000,)) * tf.cast(x, tf.float32)
    return tf.reduce_sum(tf.sort(tf.math.floormod(tf.sin(y) * 1e4, 1.0))[:8])


def pairs(x):
    return tf.fill((8,), x * 0 + 1), tf.fill((4,), x * 0)


@planted("python-input", question=1, never=NEVER)
def fit_from_a_generator_dataset():
    model, data = small_model(), from_generator()
    return lambda: model.fit(data, verbose=0)


@planted("python-input", question=4, never=NEVER)
def fit_from_a_sequence():
    class Batches(keras.utils.PyDataset if hasattr(keras.utils, "PyDataset") else keras.utils.Sequence):
        def __len__(self):
            return 16

        def __getitem__(self, at):
            time.sleep(NAP_S)
            return np.ones((8, 8), "float32"), np.ones((8, 4), "float32")

    model = small_model()
    return lambda: model.fit(Batches(), verbose=0)


@planted("python-input", question=4, never=NEVER)
def fit_from_a_python_generator():
    model = small_model()
    return lambda: model.fit(batches(), verbose=0)


@planted("python-input", never=NEVER)
def fit_through_a_py_function():
    def nap(x):
        time.sleep(NAP_S)
        return np.float32(x)

    def load(x):
        return pairs(tf.ensure_shape(tf.numpy_function(nap, [x], tf.float32), ()))

    model, data = small_model(), tf.data.Dataset.range(16).map(load).batch(1).prefetch(1)
    return lambda: model.fit(data, verbose=0)


@planted("python-input", never=NEVER)
def own_loop_over_a_generator_dataset():
    weights = tf.Variable(tf.ones((8, 4)))

    @tf.function
    def step(x, y):
        weights.assign_sub(1e-3 * tf.matmul(x, tf.matmul(x, weights) - y, transpose_a=True))

    data = from_generator()

    def cell():
        for x, y in data:
            step(x, y)

    return cell


@planted("python-input", question=18, never=NEVER)
def the_guides_benchmark_of_a_dataset_that_sleeps():
    """guide/data_performance: a generator that sleeps, a "training" that sleeps, and no function anywhere."""
    data = from_generator()

    def cell():
        for _ in data:
            time.sleep(0.005)

    return cell


@planted("input-bound", question=5, says=("num_parallel_calls",), never=(*NEVER, "Python"))
def fit_through_a_map_of_one_thread():
    model = small_model()
    data = plain(tf.data.Dataset.range(16).map(lambda x: pairs(burn(x))).batch(1).prefetch(2))
    return lambda: model.fit(data, verbose=0)


@planted("input-bound", question=5, says=("num_parallel_calls",), never=(*NEVER, "Python"))
def own_loop_through_a_map_of_one_thread():
    weights = tf.Variable(tf.ones((8, 4)))

    @tf.function
    def step(x, y):
        weights.assign_sub(1e-3 * tf.matmul(x, tf.matmul(x, weights) - y, transpose_a=True))

    data = plain(tf.data.Dataset.range(16).map(lambda x: pairs(burn(x))).batch(1))

    def cell():
        for x, y in data:
            step(x, y)

    return cell


@planted("cache-input", question=5, also=("input-bound", "epoch-ends"), never=("Python",))
def several_epochs_without_a_cache():
    """What is made anew in each of four epochs fits into memory."""
    model = small_model()
    data = plain(tf.data.Dataset.range(6).map(lambda x: pairs(burn(x))).batch(1).prefetch(2))
    return lambda: model.fit(data, epochs=4, verbose=0)


@planted("input-bound", "small-files", question=3, also=("input-bound", "small-files"), never=(*NEVER, "Python"))
def fit_from_many_small_files():
    folder = Path(tempfile.mkdtemp())
    for number in range(800):
        np.ones(64, "float32").tofile(folder / f"{number}.bin")

    def read(path):
        x = tf.io.decode_raw(tf.io.read_file(path), tf.float32)
        return tf.reshape(x, (64,))[:8], tf.zeros((4,))

    paths = tf.data.Dataset.list_files(str(folder / "*.bin"), shuffle=False)
    model, data = small_model(), plain(paths.map(read).batch(32))
    return lambda: model.fit(data, verbose=0)


@planted("prefetch-more", "python-in-the-step", also=("python-input",), never=NEVER)  # what stands for a step is Python, too
def a_pipeline_that_comes_in_bursts():
    def nap(x):
        time.sleep(0.12 if int(x) % 8 == 7 else 0.001)
        return np.float32(x)

    def load(x):
        return tf.ensure_shape(tf.numpy_function(nap, [x], tf.float32), ())

    def compute(x):
        time.sleep(0.03)
        return x

    @tf.function
    def train_step(x):
        """An op that takes a while, and no core from the pipeline."""
        return tf.numpy_function(compute, [x], tf.float32)

    train_step(tf.constant(0.0))
    data = plain(tf.data.Dataset.range(48).map(load).prefetch(1))

    def cell():
        for x in data:
            train_step(x)

    return cell


# What a fresh process, or the scheduler of a quiet machine, is needed for was recorded once.


@planted("oversubscribed", also=("input-bound",), question=21)
def a_map_with_far_too_many_threads():
    return program("oversubscribed-slow")


@planted("idle-cores", question=21)
def one_thread_on_two_cores():
    return program("idle-cores-slow")


@planted("network-files", also=("python-input",), question=3, says=("drive",), never=NEVER)
def files_on_a_drive_that_is_mounted_over_a_network():
    """The table of mounts is made up, and the slow read is a nap with the file open."""
    folder = Path(tempfile.mkdtemp())
    table, drive = folder / "mounts", folder / "drive"
    drive.mkdir()
    table.write_text(f"drive {drive} fuse rw 0 0\n")
    for number in range(30):
        np.ones(12, "float32").tofile(drive / f"{number}.bin")

    def batches_of_files():
        for path in sorted(drive.iterdir()):
            with path.open("rb") as file:
                time.sleep(NAP_S)
                values = np.frombuffer(file.read(), "float32")
            yield values[:8].reshape(1, 8), values[8:].reshape(1, 4)

    model, data = small_model(), from_generator(batches_of_files)
    before, waits.MOUNTS = waits.MOUNTS, table

    def cell():
        waits.MOUNTS = before  # it was read as the capture began
        model.fit(data, verbose=0)

    return cell
