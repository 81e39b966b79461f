"""Advice on real programs: each rule speaks of one, its fix was really applied, and saved no more than the rule said it could.

The programs and what their fixes gained are recorded (tests/data/record_programs.py). What today's TensorFlow still
has to tell for a rule to speak is looked for in programs that run here, by counts and names.
"""

import numpy as np
import pytest
from recorded import FACTS, FOLDER, program, rules

import profnb
from profnb.subjects.ops.op_table import is_of_optimizer
from profnb.trace.names import FUNCTION_CALL

GAINS = [
    "python-input", "prefetch-more", "python-between-steps", "retracing", "eager-ops", "recompiling", "small-ops-without-xla",
    "large-optimizer", "idle-cores", "oversubscribed",
]  # fmt: skip
NOT_SILENT = ("large-optimizer", "python-between-steps")  # fused it is the larger part still; Keras has callbacks of its own
ROOM = 0.06  # no machine is that quiet, not even when it was recorded


@pytest.mark.parametrize("rule", GAINS)
def test_a_rule_speaks_of_a_slow_program_and_bounds_what_its_fix_gained(rule):
    found = rules(program(f"{rule}-slow"))[rule]
    assert FACTS[rule]["gain"] <= found.bound_fraction + ROOM
    assert found.bound_fraction <= 1


@pytest.mark.parametrize("rule", [rule for rule in GAINS if rule not in NOT_SILENT])
def test_a_rule_is_silent_once_its_fix_is_applied(rule):
    assert rule not in rules(program(f"{rule}-fast"))


@pytest.mark.parametrize("rule", ["python-input", "prefetch-more", "python-between-steps", "retracing", "eager-ops", "recompiling", "small-ops-without-xla"])
def test_the_fix_is_worth_the_advice(rule):
    assert FACTS[rule]["gain"] >= 0.05


def test_what_a_rule_says_of_its_program():
    assert "Python" in rules(program("python-input-slow"))["python-input"].code
    assert ".prefetch(16)" in rules(program("prefetch-more-slow"))["prefetch-more"].code
    retracing = rules(program("retracing-slow"))["retracing"]
    assert "argument factor was" in retracing.evidence
    assert "argument x" not in retracing.evidence
    assert "scaled was traced anew in 40 of 40 recorded calls" in retracing.evidence
    assert "f32[" in rules(program("recompiling-slow"))["recompiling"].evidence
    assert "small-ops-without-xla" not in rules(program("product"))


def test_a_callback_that_is_slow_and_a_healthy_training():
    slow, healthy = program("python-between-steps-slow"), program("healthy-training")
    assert rules(slow)["python-between-steps"].bound_fraction > 0.3
    assert "What to change" in slow.summary()
    assert [advice for advice in healthy.advice if advice.bound_fraction > 0.25] == []


def test_what_tracing_costs_is_measured_and_never_advised_on():
    for name in ("profiling-overhead-slow", "profiling-overhead-fast"):
        cost = program(name).study.tracing_cost
        assert cost is None or 0 < cost.low <= cost.fraction <= cost.high
        assert "profiling-overhead" not in rules(program(name))


# What the rules read, in programs that run here.


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def profile(step, steps=8):
    """A loop over a step; the capture traces all of it, however long that takes."""
    step(0)
    with profnb.profile(max_seconds=300) as p:
        for number in range(steps):
            with profnb.step(number):
                step(number)
    return p


@pytest.mark.tensorflow
def test_a_real_function_that_is_traced_anew_tells_why(tf):
    @tf.function
    def scaled(x, factor):
        return tf.reduce_sum(tf.matmul(x, x) * factor)

    x, counter = tf.ones((8, 8)), iter(range(10**6))
    slow, fast = profile(lambda _: scaled(x, next(counter))), profile(lambda number: scaled(x, tf.constant(float(number))))
    assert slow.recording.changing_arguments["scaled"][0][0] == "factor"
    assert sum("traced" in text for text in function_calls(slow)) == 8
    assert sum(text.startswith("traced") for text in function_calls(fast)) == 0


def function_calls(p):
    """How each call of a tf.function went, as TensorFlow says it."""
    calls = p.trace.stats.texts(FUNCTION_CALL)
    return [calls.texts[value] for value in calls.values]


@pytest.mark.tensorflow
def test_real_ops_that_python_runs_one_by_one_are_told_as_such(tf):
    def loop(x):
        for _ in range(30):
            x = tf.matmul(x, x) * 1e-3
        return x

    def eager(p):
        return int(p.events.name.str.match("EagerLocalExecute: (MatMul|Mul)$").sum())

    x, compiled = tf.ones((8, 8)), tf.function(loop)
    assert eager(profile(lambda _: loop(x).numpy())) == 8 * 60
    assert eager(profile(lambda _: compiled(x).numpy())) == 0


@pytest.mark.tensorflow
def test_real_shapes_that_compile_anew_are_counted_and_named(tf):
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec((None, 16), tf.float32)])
    def step(x):
        return tf.reduce_sum(tf.tanh(tf.matmul(x, x, transpose_a=True)))

    sizes, same = iter(range(10, 10**6)), tf.ones((9, 16))
    slow = profile(lambda _: step(tf.ones((next(sizes), 16))), steps=5)
    if not slow.xla_modules.compilations.sum():
        pytest.skip("this TensorFlow does not record XLA's compiling on CPUs")
    assert slow.xla_modules.compilations.max() == 5
    assert "f32[" in rules(slow)["recompiling"].evidence if "recompiling" in rules(slow) else True
    assert not profile(lambda _: step(same)).xla_modules.compilations.sum()


@pytest.mark.tensorflow
def test_real_optimizers_are_known_by_their_ops(tf):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    x, y = np.ones((4, 8), "float32"), np.ones((4, 4), "float32")
    p = profile(lambda _: model.train_on_batch(x, y))
    assert any(is_of_optimizer(name) for name in p.ops.op_name)
    assert not all(is_of_optimizer(name) for name in p.ops.op_name)


@pytest.mark.tensorflow
def test_a_real_session_whose_graph_grows(tf):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (None, 64))
        loss = tf.reduce_sum(tf.matmul(x, tf.ones((64, 64))))
        fixed = tf.reduce_mean(loss)
        fed = {x: np.ones((32, 64), "float32")}
        with v1.Session() as session:

            def versions(make):
                session.run(fixed, fed)
                with profnb.profile() as p:
                    for _ in range(10):
                        session.run(make(), fed)
                return p.recording.graph_versions

            grown, same = versions(lambda: tf.reduce_mean(loss * 2)), versions(lambda: fixed)
    assert len(set(grown)) == len(grown) == 10
    assert len(set(same)) == 1


@pytest.mark.parametrize("name", sorted({file.name.partition(".")[0] for file in FOLDER.glob("*.xz")}))
def test_a_promise_that_is_sure_of_something_is_no_wider_than_40_points(name):
    """What begins at nothing says "up to", and only bounds."""
    widths = {advice.rule: advice.bound_fraction - advice.saves_ms[0] / advice.wall_ms for advice in program(name).advice
              if advice.saves_ms[0] >= 0.01 * advice.wall_ms}  # fmt: skip
    assert {rule: round(width, 3) for rule, width in widths.items() if width > 0.4} == {}
