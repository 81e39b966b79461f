"""Record real programs whose fault is known, and what the clock said of them, into tests/data/programs.

    chrt -r 1 python tests/data/record_programs.py [NAME ...]

Tests may not depend on how long something took on the day they ran. So what a clock has to say of a program was
measured once, before anything else on the machine (hence chrt), and stands in ``programs.json`` beside the program's trace:
what its fix gained, how fast its pipeline is alone, how often an op ran in the middle. Each program is a
function here; rerun it to record it again (with TensorFlow's CPU build, two cores, a minute each at most).
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from recorded import FOLDER
from recorded import keep as keep_trace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
STEPS = 10
MODEL_SHARE = 0.3  # of what a batch of a slow pipeline takes
PROGRAMS = {}


def recorded(make):
    """A program: a function that keeps traces and returns facts."""
    PROGRAMS[make.__name__.replace("_", "-")] = make
    return make


def keep(name, profile):
    """Put a profile's trace and what stands beside it into the folder, as small as can be."""
    with tempfile.TemporaryDirectory() as folder:
        keep_trace(profile.save(folder), FOLDER, name)


def capture(step, steps=STEPS, **options):
    """A loop over a step, all of it traced."""
    import profnb

    step(0)
    with profnb.profile(source=False, **options) as p:
        for number in range(steps):
            with profnb.step(number):
                step(number)
    return p


def seconds(step, steps=40):
    """What the loop takes when nobody looks."""
    step(0)
    begin = time.perf_counter()
    for number in range(steps):
        step(number)
    return time.perf_counter() - begin


def compare_speed(name, slow, fast, steps=STEPS):
    """Keep both traces, and say what the fix gained."""
    keep(f"{name}-slow", capture(slow, steps))
    keep(f"{name}-fast", capture(fast, steps))
    return {"gain": gain_of(slow, fast)}


def gain_of(slow, fast):
    """By the best of five rounds, taken in turn."""
    rounds = [(seconds(slow), seconds(fast)) for _ in range(5)]
    return 1 - min(f for _, f in rounds) / min(s for s, _ in rounds)


def fetching(dataset, model_seconds):
    """A step that takes an element and then works for a while."""
    state = {}

    def step(number):
        if number == 0:
            state["iterator"] = iter(dataset)
        next(state["iterator"])
        time.sleep(model_seconds)

    return step


def sleeping(seconds_of):
    import numpy as np
    import tensorflow as tf

    def wait(x):
        time.sleep(seconds_of(int(x)))
        return np.float32(x)

    return lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), ())


# Programs that a rule of advice speaks of, with its fix.


@recorded
def python_input():
    import tensorflow as tf

    def dataset(**how):
        options = tf.data.Options()
        options.threading.private_threadpool_size = 8  # they sleep: more than there are cores do no harm
        return tf.data.Dataset.range(10**6).map(sleeping(lambda _: 0.012), **how).with_options(options)

    fast = fetching(dataset(num_parallel_calls=8, deterministic=False).prefetch(8), 0.004)
    return compare_speed("python-input", fetching(dataset(), 0.004), fast)


@recorded
def prefetch_more():
    import tensorflow as tf

    uneven = tf.data.Dataset.range(10**6).map(sleeping(lambda x: 0.04 if x % 8 == 7 else 0.0005))
    return compare_speed("prefetch-more", fetching(uneven.prefetch(1), 0.008), fetching(uneven.prefetch(16), 0.008), steps=40)


@recorded
def python_between_steps():
    import keras
    import numpy as np

    import profnb

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.005)

    x, y = np.ones((2560, 256), "float32"), np.zeros((2560, 1), "float32")
    model = keras.Sequential([keras.layers.Input((256,)), keras.layers.Dense(1024), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def fit(*callbacks, steps=40):
        begin = time.perf_counter()
        model.fit(x[: 64 * steps], y[: 64 * steps], batch_size=64, verbose=0, callbacks=list(callbacks))
        return time.perf_counter() - begin

    fit()
    with profnb.profile(source=False) as p:
        fit(Slow(), steps=STEPS)
    keep("python-between-steps-slow", p)
    return {"gain": 1 - min(fit() for _ in range(5)) / min(fit(Slow()) for _ in range(5))}


@recorded
def healthy_training():
    import keras
    import numpy as np

    import profnb

    x, y = np.ones((384, 256), "float32"), np.zeros((384, 1), "float32")
    layers = [keras.layers.Input((256,)), keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(1024), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=64, verbose=0)
    with profnb.profile(source=False) as p:
        model.fit(x, y, batch_size=64, verbose=0)
    keep("healthy-training", p)
    return {}


@recorded
def retracing():
    import tensorflow as tf

    @tf.function
    def scaled(x, factor):
        return tf.reduce_sum(tf.matmul(x, x) * factor)

    x, counter = tf.ones((64, 64)), iter(range(10**6))
    return compare_speed("retracing", lambda _: scaled(x, next(counter)), lambda number: scaled(x, tf.constant(float(number))), steps=40)


@recorded
def eager_ops():
    import tensorflow as tf

    def loop(x):
        for _ in range(30):
            x = tf.matmul(x, x) * 1e-3
        return x

    x, compiled = tf.ones((32, 32)), tf.function(loop)
    return compare_speed("eager-ops", lambda _: loop(x).numpy(), lambda _: compiled(x).numpy(), steps=8)


@recorded
def recompiling():
    import tensorflow as tf

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec((None, 16), tf.float32)])
    def step(x):
        return tf.reduce_sum(tf.tanh(tf.matmul(x, x, transpose_a=True)))

    sizes, same = iter(range(10, 10**6)), tf.ones((9, 16))
    return compare_speed("recompiling", lambda _: step(tf.ones((next(sizes), 16))), lambda _: step(same), steps=16)


@recorded
def small_ops_without_xla():
    import tensorflow as tf

    def chain(x):
        for _ in range(15):
            x = tf.abs(x) * 1.01 + 0.01
        return tf.reduce_sum(x)

    plain, fused, x = tf.function(chain), tf.function(chain, jit_compile=True), tf.ones((1024, 1024))
    product = tf.function(lambda y: tf.reduce_sum(tf.matmul(y, y)))
    keep("product", capture(lambda _: product(x).numpy(), 6))
    return compare_speed("small-ops-without-xla", lambda _: plain(x).numpy(), lambda _: fused(x).numpy(), steps=6)


@recorded
def large_optimizer():
    import keras
    import numpy as np

    def trained(**how):
        model = keras.Sequential([keras.layers.Input((512,)), keras.layers.Dense(2048), keras.layers.Dense(512)])
        model.compile("adam", "mse", **how)
        x, y = np.ones((4, 512), "float32"), np.ones((4, 512), "float32")
        return lambda _: model.train_on_batch(x, y)

    slow, fast = trained(jit_compile=False), trained(jit_compile=True)
    keep("large-optimizer-slow", capture(slow, 6))
    return {"gain": gain_of(slow, fast)}


THREADS = """
    import sys, time
    import tensorflow as tf
    if {intra}: tf.config.threading.set_intra_op_parallelism_threads({intra})
    import profnb
    x = tf.ones((700, 700))
    step = tf.function(lambda: tf.reduce_sum(tf.matmul(tf.matmul(x, x), x)))
    def loop(count=20):
        begin = time.perf_counter()
        for number in range(count):
            with profnb.step(number): step().numpy()
        return time.perf_counter() - begin
    loop()
    with profnb.profile(source=False) as p: loop(10)
    sys.path.insert(0, {folder!r})
    from record_programs import keep
    keep("idle-cores-{name}", p)
    print(min(loop(5) for _ in range(40)))
"""


@recorded
def idle_cores():
    times = []
    for name, intra in (("slow", 1), ("fast", 0)):
        code = textwrap.dedent(THREADS).format(intra=intra, name=name, folder=str(Path(__file__).parent))
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(float(run.stdout.split()[-1]))
    return {"gain": 1 - times[1] / times[0]}


@recorded
def oversubscribed():
    import tensorflow as tf

    def work(x):
        y = tf.fill((700, 700), tf.cast(x, tf.float32))
        return tf.reduce_sum(tf.matmul(tf.matmul(y, y) * 1e-6, y))

    def dataset(calls):
        options = tf.data.Options()
        options.threading.private_threadpool_size = calls
        return tf.data.Dataset.range(10**6).map(work, num_parallel_calls=calls).batch(2).prefetch(1).with_options(options)

    cores = os.cpu_count()
    return compare_speed("oversubscribed", fetching(dataset(8 * cores), 0), fetching(dataset(cores), 0), steps=10)


@recorded
def profiling_overhead():
    import keras
    import tensorflow as tf

    import profnb

    data = tf.data.Dataset.range(16 * 20).map(lambda x: (tf.fill((4,), tf.cast(x, tf.float32) * 1e-6), 0.0)).batch(16)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data.take(3), verbose=0)
    with profnb.profile(max_steps=5, source=False) as p:
        model.fit(data, verbose=0)
    keep("profiling-overhead-slow", p)
    big = tf.function(lambda y: tf.matmul(y, y))
    x = tf.ones((500, 500))
    with profnb.profile(max_steps=8, source=False) as p:
        for number in range(24):
            with profnb.step(number):
                big(x).numpy()
    keep("profiling-overhead-fast", p)
    return {}


# Pipelines, each slow in one known way, and healthy ones.

BATCH = 8
NAP_S = 0.012


def plain(dataset):
    """As written: tf.data neither parallelizes nor fuses nor prefetches by itself."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    for name in ("map_parallelization", "map_and_batch_fusion", "inject_prefetch"):
        if hasattr(options.experimental_optimization, name):
            setattr(options.experimental_optimization, name, False)
    return dataset.with_options(options)


def burn(x):
    """Work of one to three milliseconds that one thread does."""
    import tensorflow as tf

    y = tf.reshape(tf.cast(x, tf.float32), [1, 1]) * tf.ones((320, 320))
    for _ in range(3):
        y = tf.matmul(y, tf.ones((320, 320))) * 1e-3
    return y[0, 0]


def nap(x):
    import numpy as np

    time.sleep(NAP_S)
    return np.float32(x)


def naps():
    import numpy as np

    for number in range(10_000):
        time.sleep(NAP_S)
        yield np.float32(number)


def numbers():
    import tensorflow as tf

    return tf.data.Dataset.range(10_000)


def files_of(folder, count=200, size=150_000):
    paths = []
    for number in range(count):
        (folder / f"{number}.bin").write_bytes(os.urandom(size))
        paths.append(str(folder / f"{number}.bin"))
    return paths


def sequential_map(_):
    return plain(numbers().map(burn).batch(BATCH).prefetch(2))


def parallel_map(_):
    return plain(numbers().map(burn, num_parallel_calls=2).batch(BATCH).prefetch(2))


def py_function(_):
    import tensorflow as tf

    return plain(numbers().map(lambda x: tf.numpy_function(nap, [x], tf.float32)).batch(BATCH).prefetch(2))


def generator(_):
    import tensorflow as tf

    return plain(tf.data.Dataset.from_generator(naps, output_signature=tf.TensorSpec((), tf.float32)).batch(BATCH).prefetch(2))


def small_files(folder):
    import tensorflow as tf

    paths = tf.data.Dataset.from_tensor_slices(files_of(folder)).repeat()
    return plain(paths.map(lambda path: tf.strings.length(tf.io.read_file(path))).batch(32).prefetch(2))


def train(dataset, step_s, steps=STEPS):
    """A training whose step sleeps, so that it takes no core from the pipeline."""
    import profnb

    with profnb.profile(source=False) as p:
        for number, _ in enumerate(dataset.take(steps)):
            with profnb.step(number):
                time.sleep(step_s)
    return p


def batches_per_second(dataset, batches=30):
    """How fast the dataset is alone: wall time of the batches after the fifth."""
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    begin = time.perf_counter()
    for _ in range(batches):
        next(iterator)
    return batches / (time.perf_counter() - begin)


@recorded
def pipelines():
    facts = {}
    for make in (sequential_map, parallel_map, py_function, generator, small_files):
        with tempfile.TemporaryDirectory() as folder:
            dataset = make(Path(folder))
            alone = batches_per_second(dataset)
            # The model is three times as fast as the pipeline; files come faster from one pass to the next.
            step_s = MODEL_SHARE / alone if make is not small_files else 0.0
            name = "pipeline-" + make.__name__.replace("_", "-")
            keep(name, train(dataset, step_s, 5 if make is small_files else STEPS))
            facts[name] = {"alone_per_second": alone, "step_s": step_s}
    return facts


@recorded
def rates():
    """A generator of naps, starved, and with a model that is slower: the pipeline is ahead."""
    dataset, facts = generator(None), {}
    for name, step_s in (("starved", 0.030), ("slow-model", 0.180)):
        keep(f"rate-{name}", train(dataset, step_s, 24))
        facts[f"rate-{name}"] = {"alone_per_second": batches_per_second(dataset), "step_s": step_s, "nap_s": NAP_S}
    return facts


@recorded
def healthy():
    import profnb

    keep("healthy", train(numbers().batch(BATCH).prefetch(2), 0.004))
    iterator = iter(plain(numbers().take(BATCH * 10).map(burn).batch(BATCH).cache().repeat().prefetch(2)))
    for _ in range(15):
        next(iterator)
    with profnb.profile(source=False) as p:
        for number in range(STEPS):
            next(iterator)
            with profnb.step(number):
                time.sleep(0.004)
    keep("healthy-cache", p)
    keep("shuffle", train(plain(numbers().map(burn).shuffle(50).batch(BATCH).prefetch(2)), 0.001, 6))
    keep("no-prefetch", train(plain(numbers().map(burn).batch(BATCH)), 0.002))
    return {}


@recorded
def keras_generator():
    import keras
    import numpy as np

    import profnb

    def slow():
        while True:
            time.sleep(0.02)
            yield np.ones((8, 4), "float32"), np.zeros((8, 1), "float32")

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(slow(), steps_per_epoch=2, verbose=0)
    with profnb.profile(source=False) as p:
        model.fit(slow(), steps_per_epoch=STEPS, verbose=0)
    keep("keras-generator", p)
    return {"sleep_s": 0.02}


# Pairs of runs to compare, taken in turn.


@recorded
def twice_the_work():
    import tensorflow as tf

    import profnb

    @tf.function
    def step(x, times):
        for _ in tf.range(times):
            x = tf.matmul(x, x) * 1e-3
        return tf.reduce_sum(x)

    x = tf.random.normal((256, 256))
    step(x, tf.constant(2))
    for turn in range(3):
        for name, times in (("once", 8), ("twice", 16)):
            with profnb.profile(max_steps=4, source=False) as p:
                for number in range(40):
                    with profnb.step(number):
                        step(x, tf.constant(times)).numpy()
            keep(f"{name}-{turn}", p)
    return {}


@recorded
def sleep_in_the_input():
    import keras
    import numpy as np
    import tensorflow as tf

    import profnb

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")

    def run(pause):
        def elements():
            for _ in range(32):
                time.sleep(pause)
                yield np.ones((8, 8), "float32"), np.ones((8, 4), "float32")

        kinds = (tf.TensorSpec((8, 8)), tf.TensorSpec((8, 4)))
        data = tf.data.Dataset.from_generator(elements, output_signature=kinds)
        with profnb.profile(max_steps=8, source=False) as p:
            model.fit(data, verbose=0)
        return p

    run(0)
    for turn in range(3):
        for name, pause in (("short", 0.004), ("long", 0.020)):
            keep(f"{name}-sleep-{turn}", run(pause))
    return {"added_s": 0.016}


@recorded
def extra_layer():
    import keras
    import numpy as np

    import profnb

    x, y = np.ones((640, 64), "float32"), np.ones((640, 1), "float32")

    def made(*extra):
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64), *extra, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=32, verbose=0)
        return model

    models = {"without": made(), "with": made(keras.layers.Dense(8000, name="extra"))}
    for turn in range(3):
        for name, model in models.items():
            with profnb.profile(max_steps=4, source=False) as p:
                model.fit(x, y, batch_size=32, epochs=2, verbose=0)
            keep(f"{name}-extra-{turn}", p)
    return {}


def main(names):
    """Record the programs, each in a process of its own."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "programs.json"
    facts = json.loads(path.read_text()) if path.exists() else {}
    if len(names) == 1:
        facts[names[0]] = PROGRAMS[names[0]]()
        path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        print(names[0], json.dumps(facts[names[0]]))
        return
    for name in names or PROGRAMS:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
