"""Loops of people's own, run here: as many steps as an independent counter says, phase by phase."""

import functools
from collections import Counter

import numpy as np
import pytest

import profnb

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

COUNT = Counter()
LOOPS = {}


def loop(phases):
    """A loop; ``phases`` says what profnb calls that which the loop counts under a name."""

    def keep(function):
        LOOPS[function.__name__] = (function, phases)
        return function

    return keep


def data(count=12):
    return tf.data.Dataset.from_tensor_slices(np.ones((count * 4, 8), np.float32)).batch(4, drop_remainder=True)


def variable():
    return tf.Variable(np.ones((8, 1), np.float32) * 0.1)


@functools.cache
def step_of(name):
    """A tf.function of that name; the first run of a loop traces it."""
    w = variable()

    def step(x):
        return tf.reduce_sum(tf.matmul(x, w))

    step.__name__ = name
    function = tf.function(step)

    def counted(x):
        COUNT[name] += 1
        return function(x)

    return counted


def descend(x, w):
    """One eager training step."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    w.assign_sub(0.1 * tape.gradient(loss, w))


@tf.function
def inner(x):
    return tf.reduce_sum(x * x)


@tf.function
def outer(x):
    return inner(x) + inner(x + 1.0)


@loop({"train_step": "train_step"})
def one_function_over_a_dataset():
    step = step_of("train_step")
    for _ in range(2):
        for x in data():
            step(x)


@loop({"train_step": "train_step", "test_step": "test_step"})
def two_functions_epoch_by_epoch():
    train, test = step_of("train_step"), step_of("test_step")
    for _ in range(3):
        for x in data(8):
            train(x)
        for x in data(5):
            test(x)


@loop({"train_step": "train_step", "log_image": "log_image"})
def a_function_now_and_then():
    train, log = step_of("train_step"), step_of("log_image")
    for at, x in enumerate(data(20)):
        train(x)
        if at % 5 == 4:
            log(x)


@loop({"critic": "critic", "generator": "generator"})
def five_of_one_for_one_of_the_other():
    critic, generator = step_of("critic"), step_of("generator")
    x = tf.ones((4, 8))
    for _ in range(6):
        for _ in range(5):
            critic(x)
        generator(x)


@loop({"turn": "discriminator or generator"})  # whichever takes longer
def two_functions_in_turn():
    discriminator, generator = step_of("discriminator"), step_of("generator")
    for x in data(15):
        COUNT["turn"] += 1
        discriminator(x)
        generator(x)
    del COUNT["discriminator"], COUNT["generator"]


@loop({"outer": "outer"})
def a_function_inside_a_function():
    for x in data(14):
        COUNT["outer"] += 1
        outer(x)


@loop({"train_step": "train_step"})
def numpy_batches():
    step = step_of("train_step")
    for at in range(17):
        step(tf.constant(np.full((4, 8), at, np.float32)))


@loop({"train_step": "train_step"})
def a_generator_of_pythons():
    step = step_of("train_step")

    def batches():
        for _ in range(11):
            yield tf.ones((4, 8))

    for x in batches():
        step(x)


@loop({"train_step": "train_step"})
def a_loop_that_is_left():
    step = step_of("train_step")
    for at, x in enumerate(data(30)):
        step(x)
        if at == 9:
            break


@loop({"turn": "train"})
def eager_training():
    w = variable()
    for _ in range(2):
        for x in data(9):
            COUNT["turn"] += 1
            descend(x, w)


@loop({"turn": "train", "check": "loop"})
def eager_training_and_validation():
    w = variable()
    for _ in range(2):
        for x in data(9):
            COUNT["turn"] += 1
            descend(x, w)
        for x in data(4):
            COUNT["check"] += 1
            tf.reduce_sum(tf.matmul(x, w))


@loop({"turn": "loop"})
def nothing_but_python_over_a_generator_dataset():
    def numbers():
        yield from range(13)

    for _ in tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int64)).prefetch(2):
        COUNT["turn"] += 1


@loop({"turn": "loop"})
def two_datasets_side_by_side():
    for one, two in zip(data(10), data(10).prefetch(2)):
        COUNT["turn"] += 1
        tf.reduce_sum(one * two)


@loop({"turn": "train"})
def an_iterator_by_hand():
    w, iterator = variable(), iter(data(40).repeat())
    for _ in range(21):
        COUNT["turn"] += 1
        descend(next(iterator), w)


@loop({"turn": "train"})
def eager_training_that_stops_early():
    w = variable()
    for at, x in enumerate(data(40)):
        COUNT["turn"] += 1
        descend(x, w)
        if at == 12:
            break


def batches(count):
    yield from np.ones((count, 4, 8), np.float32)


@functools.cache
def model_and_optimizer():
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    return model, keras.optimizers.Adam(), keras.metrics.Mean()


def gradients_of(model, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    return loss, tape.gradient(loss, model.trainable_variables)


@loop({"turn": "train"})
def numpy_batches_and_a_tape():
    w = variable()
    for x in batches(14):
        COUNT["turn"] += 1
        descend(x, w)


@loop({"turn": "train"})
def numpy_batches_and_an_optimizer_with_evaluation_in_each_epoch():
    model, optimizer, metric = model_and_optimizer()
    for _ in range(2):
        for x in batches(7):
            COUNT["turn"] += 1
            loss, gradients = gradients_of(model, tf.constant(x))
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            metric.update_state(loss)
        for x in batches(5):
            metric.update_state(tf.reduce_mean(model(x)))


@functools.cache
def keras2_model():
    keras = pytest.importorskip("tf_keras")
    return keras.Sequential([keras.layers.Dense(4, input_shape=(8,)), keras.layers.Dense(1)]), keras.optimizers.Adam(), keras.optimizers.legacy.SGD()


@loop({"turn": "train"})
def numpy_batches_and_an_optimizer_of_keras_2():
    model, optimizer, _ = keras2_model()
    for x in batches(10):
        COUNT["turn"] += 1
        _, gradients = gradients_of(model, x)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))


@loop({"turn": "train"})
def numpy_batches_and_minimize_of_keras_2():
    model, _, optimizer = keras2_model()
    for x in batches(10):
        COUNT["turn"] += 1
        optimizer.minimize(lambda x=x: tf.reduce_mean(model(x) ** 2), model.trainable_variables)


@loop({"turn": "train"})
def two_tapes_a_turn():
    one, two = variable(), variable()
    for x in batches(12):
        COUNT["turn"] += 1
        with tf.GradientTape() as first, tf.GradientTape() as second:
            loss, other = tf.reduce_sum(tf.matmul(x, one) ** 2), tf.reduce_sum(tf.matmul(x, two) ** 2)
        one.assign_sub(0.01 * first.gradient(loss, one))
        two.assign_sub(0.01 * second.gradient(other, two))


@loop({"turn": "train"})
def two_gradients_of_one_tape_in_one_line():
    w = variable()
    for x in batches(8):
        COUNT["turn"] += 1
        with tf.GradientTape(persistent=True) as tape:
            one, two = tf.reduce_sum(tf.matmul(x, w)), tf.reduce_sum(w * w)
        w.assign_sub(0.01 * (tape.gradient(one, w) + tape.gradient(two, w)))


@loop({"turn": "train"})
def two_tapes_after_each_other_through_one_function():
    one, two = variable(), variable()
    for x in batches(12):
        COUNT["turn"] += 1
        descend(x, one)
        descend(x, two)


@loop({"turn": "train"})
def a_gradient_of_a_gradient():
    w = variable()
    for x in batches(9):
        COUNT["turn"] += 1
        with tf.GradientTape() as outer_tape:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(x, w) ** 3)
            slope = tf.reduce_sum(tape.gradient(loss, w) ** 2)
        w.assign_sub(1e-6 * outer_tape.gradient(slope, w))


@loop({"turn": "train"})
def accumulated_gradients_without_tf_data():
    model, optimizer, _ = model_and_optimizer()
    total = None
    for at, x in enumerate(batches(16)):
        COUNT["turn"] += 1
        _, gradients = gradients_of(model, x)
        total = gradients if total is None else [a + b for a, b in zip(total, gradients)]
        if at % 4 == 3:
            optimizer.apply_gradients(zip(total, model.trainable_variables))
            total = None


@loop({"turn": "loop"})
def gradients_with_nothing_updated():
    w = variable()
    for x in batches(11):
        COUNT["turn"] += 1
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, w))
        tape.gradient(loss, w)


@loop({"turn": "train", "check": "loop"})
def numpy_training_and_validation_by_tf_data():
    w = variable()
    for _ in range(2):
        for x in batches(9):
            COUNT["turn"] += 1
            descend(x, w)
        for x in data(4):
            COUNT["check"] += 1
            tf.reduce_sum(tf.matmul(x, w))


@loop({"window": "window"})
def an_evaluation_over_numpy_batches_without_a_tape():
    w = variable()
    COUNT["window"] = 1
    for x in batches(12):
        tf.reduce_sum(tf.matmul(x, w))


@loop({"window": "window"})
def a_single_gradient():
    COUNT["window"] = 1
    descend(np.ones((4, 8), np.float32), variable())


@functools.cache
def compiled_descent():
    w = variable()
    return tf.function(lambda x: descend(x, w))


@loop({"turn": "<lambda>"})
def a_tape_inside_a_function():
    for x in batches(12):
        COUNT["turn"] += 1
        compiled_descent()(tf.constant(x))


@loop({"train": "train"})
def a_fit_that_runs_eagerly():
    model, *_ = model_and_optimizer()
    model.compile("sgd", "mse", run_eagerly=True)
    COUNT["train"] = 6
    model.fit(np.ones((24, 8), np.float32), np.ones((24, 1), np.float32), batch_size=4, verbose=0)


@loop({"turn": "train"})
def steps_marked_by_hand():
    w = variable()
    for at, x in enumerate(data(10)):
        with profnb.step(at):
            COUNT["turn"] += 1
            descend(x, w)


@loop({"run": "session_run"})
def session_runs():
    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, (4, 8))
        total = tf.reduce_sum(x * x)
    with tf1.Session(graph=graph) as session:
        for _ in range(16):
            COUNT["run"] += 1
            session.run(total, {x: np.ones((4, 8))})


@pytest.mark.parametrize("name", LOOPS)
def test_as_many_steps_as_the_loop_counted(name):
    run, phases = LOOPS[name]
    run()  # whatever is done once is done
    COUNT.clear()
    with profnb.profile(source=False) as p:
        run()
    expected = {phases[own]: count for own, count in COUNT.items() if own in phases}
    for table in (p.steps, p.step_times):
        found = {next((one for one in expected if name in one.split(" or ")), name): size for name, size in table.groupby("phase").size().items()}
        assert found == expected, p.notes


@pytest.mark.parametrize("name", ["numpy_batches_and_a_tape", "eager_training", "two_tapes_a_turn"])
def test_the_bound_of_steps_holds_for_eager_loops_with_gradients(name):
    run, phases = LOOPS[name]
    run()
    COUNT.clear()
    with profnb.profile(source=False, max_steps=5) as p:
        run()
    assert p.recording.closed_by == "steps"
    assert set(p.steps.phase) == set(phases.values())
    assert len(p.steps) == 5 <= p.step_times.was_traced.sum() < COUNT["turn"]
    if p.study.step_times.first_ns is None:  # on a busy machine the two clocks may not be laid over each other
        assert "; later passes of the loop were not timed. `-t " in " ".join(p.notes)
        return
    assert COUNT["turn"] - 1 <= len(p.step_times) <= COUNT["turn"]  # of the last one's end nobody may have heard
    timed = len(p.step_times)
    assert f"Details cover the first 5 of {timed} passes of the loop; all were timed. `-n {timed}` traces all." in p.notes


@pytest.mark.parametrize("name", ["nothing_but_python_over_a_generator_dataset", "two_datasets_side_by_side"])
def test_a_look_at_the_data_does_not_use_up_the_bound_of_the_training_behind_it(name):
    with profnb.profile(source=False, max_steps=5) as p:
        LOOPS[name][0]()
        LOOPS["eager_training"][0]()
    assert p.recording.closed_by == "steps"
    assert (p.steps.phase == "train").sum() == 5
    assert (p.steps.phase == "loop").sum() >= 10
