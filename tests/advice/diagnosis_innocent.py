"""Programs of the diagnosis benchmark in which nothing is planted: there is nothing to say."""

import time

import numpy as np
from diagnosis_kit import keras, own_loop, programs, step_of_products, tf, v1

PROGRAMS = []
planted = programs(of=PROGRAMS)


def large(width=1024):
    """A model whose steps are matrix products: nothing beside them counts."""
    layers = [keras.layers.Dense(width, activation="relu"), keras.layers.Dense(width, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((width,)), *layers])
    model.compile("sgd", "mse")
    return model


def data_of(rows=1024, width=1024):
    return np.ones((rows, width), "float32"), np.ones((rows, 1), "float32")


def product(size=700):
    x = tf.random.normal((size, size))

    @tf.function
    def train_step(factor):
        return tf.reduce_sum(tf.matmul(tf.matmul(x, x) * factor, x))

    one = tf.constant(1e-3)
    return lambda: train_step(one).numpy()


@planted()
def fit_on_arrays():
    model, (x, y) = large(), data_of(2048)
    return lambda: model.fit(x, y, batch_size=256, epochs=2, verbose=0)


@planted()
def fit_on_arrays_again():
    model, (x, y) = large(), data_of(2048)
    model.fit(x, y, batch_size=256, verbose=0)
    return lambda: model.fit(x, y, batch_size=256, epochs=2, verbose=0)


@planted(question=5)
def fit_from_a_pipeline_that_is_ahead():
    def load(number):
        return tf.fill((1024,), tf.cast(number, tf.float32) * 1e-6), tf.ones((1,))

    data = tf.data.Dataset.range(1024).map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(128).cache().prefetch(tf.data.AUTOTUNE)
    model = large()
    return lambda: model.fit(data, epochs=3, verbose=0)


@planted(question=17)
def fit_of_a_small_cnn():
    layers = [keras.layers.Conv2D(32, 3), keras.layers.Conv2D(32, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((48, 48, 3)), *layers])
    model.compile("sgd", "mse")
    x, y = np.ones((256, 48, 48, 3), "float32"), np.ones((256, 1), "float32")
    return lambda: model.fit(x, y, batch_size=32, verbose=0)


@planted(question=16)
def fit_of_an_lstm_on_a_cpu():
    model = keras.Sequential([keras.layers.Input((10, 64)), keras.layers.LSTM(256, recurrent_dropout=0.1), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((384, 10, 64), "float32"), np.ones((384, 1), "float32")
    return lambda: model.fit(x, y, batch_size=64, verbose=0)


@planted(question=6)
def a_first_step_that_takes_long():
    class SlowToTrace(keras.layers.Layer):
        def call(self, x):
            time.sleep(0.7)
            return tf.matmul(x, tf.ones((1024, 1024)))

    model = keras.Sequential([keras.layers.Input((1024,)), SlowToTrace(), keras.layers.Dense(1024), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = data_of(2048)
    return lambda: model.fit(x, y, batch_size=256, epochs=2, verbose=0)


@planted()
def predict_of_one_example():
    model, (x, _) = large(256), data_of(64, 256)
    return lambda: model.predict(x[:1], verbose=0)


@planted()
def predict_of_all_at_once():
    model, (x, _) = large(1536), data_of(4096, 1536)
    model.predict(x[:256], verbose=0, batch_size=256)
    return lambda: model.predict(x, batch_size=256, verbose=0)


@planted()
def evaluate_on_arrays():
    model, (x, y) = large(1536), data_of(4096, 1536)
    model.evaluate(x[:256], y[:256], batch_size=256, verbose=0)
    return lambda: model.evaluate(x, y, batch_size=256, verbose=0)


@planted(also=("python-between-steps",))  # 16 steps in one call: said to save 9 to 11 %, and 11 % were measured
def three_predicts_of_several_batches():
    model, (x, _) = large(), data_of(4096)
    return lambda: [model.predict(x, batch_size=256, verbose=0) for _ in range(3)]


@planted()
def a_small_validation():
    model, (x, y) = large(), data_of(2304)
    return lambda: model.fit(x[:2048], y[:2048], batch_size=256, epochs=2, validation_data=(x[2048:], y[2048:]), validation_batch_size=256, verbose=0)


@planted()
def own_loop_over_one_function():
    step = product()

    def cell():
        for _ in range(30):
            step()

    return cell


@planted()
def own_loop_with_a_validation():
    """The pattern of quickstart/advanced: all of both is TensorFlow's work, none is Python between steps."""
    train, x = product(), tf.random.normal((600, 600))

    @tf.function
    def test_step(x):
        return tf.reduce_sum(tf.matmul(x, x))

    def cell():
        for _ in range(3):
            for _ in range(10):
                train()
            for _ in range(10):
                test_step(x).numpy()

    return cell


@planted()
def own_loop_that_plays_more_than_it_trains():
    """As in reinforcement learning: what runs forward alone is no validation."""
    return own_loop("act", training=10, other=60)


@planted()
def own_loop_that_validates_a_little():
    return own_loop("test_step", training=60, other=10)


@planted(question=22)
def steps_that_get_faster_as_caches_warm():
    train_step = step_of_products()

    def cell():
        for number in range(60):
            train_step(tf.constant(32 if number < 15 else 10)).numpy()

    return cell


@planted(question=22)
def steps_of_uneven_length():
    """Sequences of all lengths, shuffled: the steps differ by a factor of eight, without a trend."""
    lengths = np.random.default_rng(5).permutation(np.tile([4, 8, 12, 16, 32], 12))
    train_step = step_of_products()

    def cell():
        for length in lengths.tolist():
            train_step(tf.constant(length)).numpy()

    return cell


@planted(question=22)
def a_second_fit_of_larger_batches():
    """The steps of the second fit are larger because the user wants them to be."""
    model, (x, y) = large(), data_of(4096)

    def cell():
        model.fit(x[:3072], y[:3072], batch_size=128, verbose=0)
        model.fit(x, y, batch_size=512, verbose=0)

    return cell


@planted()
def a_session_that_computes():
    with tf.Graph().as_default() as graph:
        weights = v1.get_variable("w", (1200, 1200))
        step = tf.reduce_sum(tf.matmul(tf.matmul(weights, weights), weights))
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    graph.finalize()

    def cell():
        for _ in range(20):
            session.run(step)

    return cell


@planted(question=18)
def a_cell_without_tensorflow():
    def cell():
        return sum(number * number for number in range(200_000))

    return cell


@planted()
def one_call_of_a_function():
    step = product()
    return step
