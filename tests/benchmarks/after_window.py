"""A step behind the traced window against the same step without profnb: `python tests/benchmarks/after_window.py [NAME ...]`.

For each kind of loop, blocks of steps alternate: one without profnb, one inside a capture whose window has closed (its first steps, which are
traced, and its start and stop do not count). Of each block the median step counts, of two neighbours their ratio, of all pairs the median
and the middle half. `cpu` is the same for the processor time of the thread that runs the loop, which other programs disturb less; what a
forced change of threads costs is in the first only. Budget (design.md 7): 1.02, eager loops 1.03.

On a machine that others use too, blocks of a second differ by a tenth. So `hooks` takes turns every few steps, inside of one capture behind
its window: all names as the code had them and no looks at the stack, and as they are in a capture; with the standard error of the median.

Programs: train_on_batch, fit, predict, function, eager, session, and jax, torch where these are installed.
"""

import os
import statistics
import sys
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
warnings.simplefilter("ignore")
PAIRS, TURNS, TRACED = 9, 100, 10


def made_model(keras):
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def train_on_batch():
    import keras
    import tensorflow as tf

    model, x, y = made_model(keras), tf.random.normal((8, 16)), tf.random.normal((8, 1))
    return (lambda mark, steps: [(mark(), model.train_on_batch(x, y)) for _ in range(steps)]), 400


def fit():
    import keras
    import tensorflow as tf

    model, x, y = made_model(keras), tf.random.normal((8, 16)), tf.random.normal((8, 1))
    data = tf.data.Dataset.from_tensors((x, y)).repeat()

    class Mark(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.mark()

    marks = Mark()

    def run(mark, steps):
        marks.mark = mark
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[marks], shuffle=False)

    return run, 400


def predict():
    import keras
    import numpy as np

    model, x = made_model(keras), np.ones((8, 16), "float32")
    return (lambda mark, steps: [(mark(), model.predict(x, verbose=0)) for _ in range(steps)]), 40


def function():
    import tensorflow as tf

    weight, x = tf.Variable(tf.random.normal((64, 64))), tf.random.normal((64, 64))

    @tf.function
    def step(x):
        for _ in range(12):
            x = tf.tanh(x @ weight)
        return x

    return (lambda mark, steps: [(mark(), step(x)) for _ in range(steps)]), 1000


def eager():
    import tensorflow as tf

    weight, x = tf.Variable(tf.random.normal((64, 64))), tf.random.normal((64, 64))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.tanh(x @ weight) @ weight))
        weight.assign_sub(0.0 * tape.gradient(loss, weight))

    return (lambda mark, steps: [(mark(), step()) for _ in range(steps)]), 300


def session():
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = v1.Graph()
    with graph.as_default():
        weight = v1.get_variable("w", (64, 64))
        out = v1.assign(weight, tf.tanh(weight @ weight))
        start = v1.global_variables_initializer()
    opened = v1.Session(graph=graph)
    opened.run(start)
    return (lambda mark, steps: [(mark(), opened.run(out.op)) for _ in range(steps)]), 1000


def jax():
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda x: jnp.tanh(x @ x) / 64)
    x = jnp.ones((128, 128))
    return (lambda mark, steps: [(mark(), step(x).block_until_ready()) for _ in range(steps)]), 2000


def torch():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(8, 16), torch.randn(8, 1)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return (lambda mark, steps: [(mark(), step()) for _ in range(steps)]), 500


def timed(run, steps):
    """The median step: its wall time and its processor time."""
    walls, cpus = [], []

    def mark():
        walls.append(time.perf_counter_ns())
        cpus.append(time.thread_time_ns())

    run(mark, steps)
    return [statistics.median(b - a for a, b in zip(at, at[1:])) for at in (walls, cpus)]


def compare(make):
    import profnb

    run, steps = make()
    run(lambda: None, 50)
    plain, pairs = [], []
    for _ in range(PAIRS):
        before = timed(run, steps)
        with profnb.profile(max_steps=TRACED):
            run(lambda: None, 3 * TRACED)
            inside = timed(run, steps)
        plain.append(before[0])
        pairs.append([a / b for a, b in zip(inside, before)])
    return plain, [sorted(one) for one in zip(*pairs)]


def take_turns(make):
    """Of steps with our hooks and looks, to those without, the median ratio and its standard error."""
    import profnb
    from profnb.capture import hooks
    from profnb.capture.source.stacks import Sampler

    run, steps = make()
    run(lambda: None, 50)
    block, ratios, look, looks = max(steps // 20, 3), [], Sampler._look, [True]
    Sampler._look = lambda sampler, thread: look(sampler, thread) if looks[0] else sampler._stack.append(0)  # it counts them
    with profnb.profile(max_steps=TRACED):
        run(lambda: None, 3 * TRACED)
        ours = [(one, vars(one.owner)[one.name]) for one in hooks._replaced]
        for number in range(TURNS):
            took = {}
            for with_us in (True, False) if number % 2 else (False, True):
                looks[0] = with_us
                for one, value in ours:
                    if with_us:
                        setattr(one.owner, one.name, value)
                    elif one.is_in_place():
                        one.put_back()
                run(lambda: None, 3)
                took[with_us] = timed(run, block)[0]
            ratios.append(took[True] / took[False])
        for one, value in ours:
            setattr(one.owner, one.name, value)
    Sampler._look = look
    kept = sorted(ratios)[TURNS // 10 : -TURNS // 10]
    return statistics.median(ratios), 1.25 * statistics.pstdev(kept) / len(kept) ** 0.5


def main():
    programs = {one.__name__: one for one in (train_on_batch, fit, predict, function, eager, session, jax, torch)}
    for name in sys.argv[1:] or programs:
        try:
            plain, (wall, cpu) = compare(programs[name])
            hooks, error = take_turns(programs[name])
        except ImportError as error:
            print(f"{name:16}{error}")
            continue
        at = len(wall) // 4, len(wall) // 2, -1 - len(wall) // 4
        step_ms = statistics.median(plain) / 1e6
        print(f"{name:16}{step_ms:7.3f} ms   {wall[at[1]]:.3f} ({wall[at[0]]:.3f} to {wall[at[2]]:.3f})   cpu {cpu[at[1]]:.3f}   hooks {hooks:.3f} +- {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
