"""Programs of the diagnosis benchmark in which Python, or a call that is made too often, takes the time."""

import time

import numpy as np
from diagnosis_kit import keras, own_loop, programs, step_of_products, tf

PROGRAMS = []
planted = programs(of=PROGRAMS)
NO_LOOP_OF_STEPS = ("Log every", "steps_per_execution", ".cache()", "Pass tensors instead")


def data_of(rows=512, width=32):
    x = np.random.default_rng(0).random((rows, width), "float32")
    return x, x.sum(1, keepdims=True)


def dense(width=32):
    layers = [keras.layers.Dense(max(width, 16), activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((width,)), *layers])
    model.compile("sgd", "mse")
    return model


def compiled_step(size=500):
    """A step that computes for some milliseconds."""
    x = tf.random.normal((size, size))

    @tf.function
    def train_step(factor):
        return tf.reduce_sum(tf.matmul(tf.matmul(x, x) * factor, x))

    one = tf.constant(1e-3)
    train_step(one)
    return lambda: train_step(one).numpy()


@planted("callback", question=20, never=("input-bound", "tf.data"))
def a_callback_that_is_slow_at_each_batch():
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.06)

    model, (x, y) = dense(), data_of()
    return lambda: model.fit(x, y, batch_size=16, verbose=0, callbacks=[Slow()])


@planted("own-python", never=("model.compile", ".cache()"))
def own_loop_that_logs_at_each_step():
    step = compiled_step(300)

    def log(loss):
        time.sleep(0.06)

    def cell():
        for _ in range(16):
            log(step())

    return cell


@planted("own-python", never=("model.compile", ".cache()"))
def own_loop_with_metrics_in_python():
    step = compiled_step(300)

    def score(loss):
        total = 0.0
        for number in range(300_000):
            total += number * loss
        return total

    def cell():
        for _ in range(16):
            score(float(step()))

    return cell


@planted("own-python", "python-input", "waiting-for-input", never=("model.compile", "Log every", "steps_per_execution"))
def own_loop_that_makes_its_batches_by_hand():
    weights = tf.Variable(tf.ones((32, 4)))

    @tf.function
    def train_step(x):
        weights.assign_sub(1e-3 * tf.matmul(x, tf.matmul(x, weights), transpose_a=True))

    train_step(tf.ones((8, 32)))

    def load_batch():
        time.sleep(0.06)
        return np.ones((8, 32), "float32")

    def cell():
        for _ in range(16):
            train_step(tf.constant(load_batch()))

    return cell


@planted("epoch-ends", "callback", also=("epoch-ends", "callback"), never=("Log every", ".cache()"))
def many_epochs_of_few_steps():
    class Slow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            time.sleep(0.06)

    model, (x, y) = dense(1024), data_of(512, 1024)
    return lambda: model.fit(x, y, batch_size=128, epochs=16, verbose=0, callbacks=[Slow()])


@planted("callback", says=("`Pause.on_epoch_end`",), never=(".cache()",))
def a_callback_that_pauses_at_the_end_of_an_epoch():
    class Pause(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if not epoch:
                time.sleep(1.5)

    model, (x, y) = dense(), data_of()
    return lambda: model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[Pause()])


@planted("predict-in-a-loop", question=7, never=NO_LOOP_OF_STEPS)
def predict_of_one_example_in_a_loop():
    model, (x, _) = dense(), data_of()
    model.predict(x[:1], verbose=0)

    def cell():
        for number in range(20):
            model.predict(x[number : number + 1], verbose=0)

    return cell


@planted("predict-in-a-loop", question=7, never=NO_LOOP_OF_STEPS)
def predict_in_a_loop_from_cold():
    model, (x, _) = dense(), data_of()

    def cell():
        return [model.predict(x[number : number + 4], verbose=0).mean() for number in range(20)]

    return cell


@planted("predict-in-a-loop", never=NO_LOOP_OF_STEPS)
def evaluate_of_one_batch_in_a_loop():
    model, (x, y) = dense(), data_of()
    model.evaluate(x[:16], y[:16], verbose=0)

    def cell():
        for number in range(20):
            model.evaluate(x[number : number + 16], y[number : number + 16], batch_size=16, verbose=0)

    return cell


@planted("predict-in-a-loop", never=(*NO_LOOP_OF_STEPS, "model(x, training=False)"))
def fit_of_one_batch_in_a_loop():
    model, (x, y) = dense(), data_of()
    model.fit(x[:16], y[:16], verbose=0)

    def cell():
        for number in range(20):
            model.fit(x[number : number + 16], y[number : number + 16], batch_size=16, epochs=1, verbose=0)

    return cell


@planted("new-model-in-a-loop", question=8, never=("retrac", "Pass tensors", "traced anew"))
def a_new_model_in_each_turn():
    x, y = data_of(64)

    def cell():
        for _ in range(4):
            dense().fit(x, y, batch_size=16, epochs=1, verbose=0)

    return cell


@planted("new-model-in-a-loop", question=8, never=("retrac", "Pass tensors", "traced anew"))
def folds_of_a_cross_validation():
    x, y = data_of(96)

    def cell():
        for fold in range(4):
            held_back = np.arange(96) % 4 == fold
            model = dense()
            model.fit(x[~held_back], y[~held_back], batch_size=24, verbose=0)
            model.evaluate(x[held_back], y[held_back], verbose=0)

    return cell


@planted("validation", question=19, also=("epoch-ends",), never=("Log every", ".cache()", "input-bound"))
def validation_that_is_larger_than_training():
    class Heavy(keras.layers.Layer):
        def call(self, x, training=None):
            y = tf.matmul(x, tf.ones((1000, 1000)))
            return y if training else tf.matmul(y, tf.ones((1000, 1000)))

    model = keras.Sequential([keras.layers.Input((1000,)), Heavy(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8192, 1000), "float32"), np.ones((8192, 1), "float32")
    many = tf.data.Dataset.from_tensors((np.ones((256, 1000), "float32"), np.ones((256, 1), "float32"))).repeat(120)
    return lambda: model.fit(x, y, batch_size=1024, epochs=4, validation_data=many, verbose=0)


@planted("validation", question=19, never=("Log every", ".cache()", "input-bound", "validation_freq"))
def own_loop_whose_validation_is_larger_than_training():
    return own_loop("test_step", training=10, other=60)


@planted("slowing-down", question=22)
def steps_that_slow_down_bit_by_bit():
    """Each step does a little more than the one before it, in a graph that is always the same."""
    train_step = step_of_products()
    train_step(tf.constant(2))

    def cell():
        for number in range(60):
            train_step(tf.constant(2 + number // 2)).numpy()

    return cell


@planted("slowing-down", "own-python", question=9, also=("slowing-down", "own-python"))
def a_history_that_grows_and_is_summed_each_time():
    step, history = compiled_step(200), []

    def cell():
        for _ in range(60):
            history.extend([float(step())] * 4000)
            sum(value * value for value in history)

    return cell


@planted("slowing-down", question=22)
def steps_that_are_throttled_half_way():
    train_step = step_of_products()
    train_step(tf.constant(2))

    def cell():
        for number in range(60):
            train_step(tf.constant(6 if number < 25 else 24)).numpy()

    return cell
