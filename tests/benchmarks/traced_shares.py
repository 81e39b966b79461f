"""Truth against told: what a part of a step takes without tracing, and what profnb says of the traced step.

    python tests/benchmarks/traced_shares.py [tensorflow] [keras] [torch] [jax] [--rounds N] [--in-cell | --bare]

Each program's step is many small parts and one large one. Without tracing three steps are timed in turn: the whole,
the small parts alone, the large one alone. So the large part is known twice: what it adds to the step, and what it
takes alone. Between such rounds the whole is captured, the first steps traced and the rest not; of each capture it
prints what the large part is told to be, with all times as recorded and with the cost of tracing taken out. Everything is a share
of the step; the median over rounds stands in the table. With `--in-cell` the three are timed in the captured cell, behind its window, so that
what hooks take there is in the truth too and only tracing is left; with `--bare` TensorFlow's own profiler records, and no hook runs. Run it where little else
runs, else with a core and priority of its own: `taskset -c 0 chrt -f 1 python ...`.
"""

import argparse
import tempfile
import time

import numpy as np

import profnb
from profnb.capture.recording import Recording
from profnb.capture.step_records import USER, StepRecords
from profnb.subjects.study import Study

TIMED, TRACED, STEPS, FASTEST = 100, 60, 150, 0.3


def tensorflow():
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    x, a = tf.ones(1500), tf.random.normal((320, 320))

    def small(count, value=x):
        for at in range(count):  # not fused, and long enough to be recorded
            value = tf.cumsum(value) if at % 2 else tf.reverse(value, [0])
        return value

    def python(count):
        return sum(at * at for at in range(count))

    large = lambda: tf.matmul(a, a)  # noqa: E731
    chain = lambda: small(120, x + tf.matmul(a, a)[0, 0])  # noqa: E731
    for name, both in ("compiled, beside", lambda: (small(120), large())), ("compiled, in turn", chain):
        both, rest, alone, empty = map(tf.function, (both, lambda: small(120), large, lambda: tf.constant(0.0)))
        yield name, both, rest, (alone, empty), "MatMul"
    yield "eager", lambda: (small(30), large()), lambda: small(30), large, "MatMul"
    constants = lambda: [tf.constant(1.5) for _ in range(100)]  # noqa: E731
    yield "eager, constants", lambda: (constants(), large()), constants, large, "MatMul"
    yield "eager, Python beside", lambda: (small(15), python(9_000), large()), lambda: (small(15), python(9_000)), large, "MatMul"
    call = tf.function(lambda: small(60))
    yield "compiled, beside Python", lambda: (call(), python(20_000)), call, lambda: python(20_000), None


def keras():
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers

    def step(*between):
        model = keras.Sequential([layers.Input((256,)), *between, layers.Dense(1, name="out")])
        model.compile("sgd", "mse")
        x, y = np.ones((64, 256), "float32"), np.ones((64, 1), "float32")
        return lambda: model.train_on_batch(x, y)

    def small():
        return [layers.Dense(256 if at == 29 else 8, activation="tanh", name=f"small_{at}") for at in range(30)]

    def large():
        return [layers.Dense(2000, activation="tanh", name="large"), layers.Dense(256, name="large_too")]

    empty = step()
    yield "train_on_batch", step(*small(), *large()), step(*small()), (step(*large()), empty), "large"


def torch():
    import torch

    torch.set_num_threads(1)
    x, a = torch.ones(64), torch.randn(400, 400)

    def small(count=60, value=x):
        for _ in range(count):
            value = torch.sin(value) + 1
        return value

    large = lambda: torch.mm(a, a)  # noqa: E731
    yield "eager", lambda: (small(), large()), small, large, "aten::mm"


def jax():
    import jax.numpy as jnp

    x, a = jnp.ones(64), jnp.ones((400, 400))

    def small(count=60, value=x):
        for _ in range(count):
            value = jnp.sin(value)
        return value.block_until_ready()

    large = lambda: jnp.dot(a, a).block_until_ready()  # noqa: E731
    yield "eager", lambda: (small(), large()), small, large, "dot"


def take(step, times):
    begin = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - begin) / times


def in_turn(steps):
    return np.quantile([[take(step, 1) for step in steps] for _ in range(TIMED)], FASTEST / 2, axis=0)


def capture(step, steps, *, marks):
    with profnb.profile(max_steps=TRACED, max_seconds=60) as p:
        for at in range(STEPS):
            if marks:
                with profnb.step(at):
                    step()
            else:
                step()
        times = in_turn(steps)
    return p.study, times


def capture_bare(step, steps, *, marks):
    """The same by TensorFlow's profiler alone: no hook of ours runs in the steps or beside them."""
    import tensorflow as tf

    del marks
    records, profiler = StepRecords(names=["train"]), tf.profiler.experimental
    with tempfile.TemporaryDirectory() as folder:
        for at in range(STEPS):
            if at in (0, TRACED):
                profiler.stop() if at else profiler.start(folder)
            begin = time.perf_counter_ns()
            with profiler.Trace("train", step_num=at, _r=1):
                step()
            records.append(begin, time.perf_counter_ns(), 0, records.kinds.index(USER), at < TRACED, 0, 1, at, 0)
        study = Study(profnb.load(folder).trace, 0, Recording(steps=records)).without_tracing()
    return study, in_turn(steps)


def beside(times):
    """An untraced step of the captured loop, in seconds."""
    return float(np.quantile(times.duration_ps[~times.was_traced], FASTEST / 2)) / 1e12


def told(study, of):
    """What the fastest traced steps say of the large part: other programs only make steps longer."""
    counted = study.summary.counted
    whole = study.steps.duration_ps[counted]
    rows = counted[whole <= np.quantile(whole, FASTEST)]
    whole_ps = int(study.steps.duration_ps[rows].sum())
    if of is None:  # Python: what neither ops nor TensorFlow explain
        return study.breakdown.of("all others")[rows].sum() / whole_ps
    runs = study.ops.runs
    is_large = np.array([of in name or of == kind for name, kind in runs.keys])
    kept = is_large[runs.code] & np.isin(study.groups.step[runs.events], rows)
    return runs.self_ps[kept].sum() / whole_ps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["tensorflow"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--in-cell", action="store_true")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    print("program                        adds  alone   recorded  corrected   step in turn / beside / told (recorded)   us an event")
    for what in asked.what:
        for name, both, small, large, of in globals()[what]():
            if asked.only not in name:
                continue
            larges = large if isinstance(large, tuple) else (large,)
            steps = (both, small, *larges)
            for step in steps:
                take(step, 10)
            rows = []
            for _ in range(asked.rounds):
                outside = in_turn(steps)
                study, inside = (capture_bare if asked.bare else capture)(both, steps, marks=what != "keras")
                whole, rest, alone, *base = inside if asked.in_cell or asked.bare else outside
                near = beside(study.step_times) if asked.in_cell or asked.bare else whole
                durations = (np.quantile(one.steps.duration_ps[study.summary.counted], FASTEST / 2) / 1e9 for one in (study, study.recorded))
                rows.append(
                    (
                        (whole - rest) / near, (alone - sum(base)) / near, told(study.recorded, of), told(study, of), whole * 1e3,
                        near * 1e3, *durations, study.clock.event_ps / 1e6 if study.clock else 0.0,
                    )
                )  # fmt: skip
            adds, alone, before, after, took, near, step, traced, event = np.median(rows, axis=0)
            print(
                f"{what + ': ' + name:<30}{adds:5.0%}  {alone:5.0%}   {before:8.0%}  {after:9.0%}   "
                f"{took:.2f} / {near:.2f} / {step:.2f} (recorded {traced:.2f}) ms   {event:.2f} {np.round([r[-1] for r in rows], 2)}",
                flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
