"""Programs of the diagnosis benchmark whose graph is at fault: none, one too many, small ops, a large optimizer; and TF1's."""

import tempfile
import time

import numpy as np
from diagnosis_kit import keras, programs, tf, v1

PROGRAMS = []
planted = programs(of=PROGRAMS)


def examples(rows=640, width=64):
    x = np.random.default_rng(0).random((rows, width), "float32")
    return x, (x.sum(1) * 3).astype("int64") % 10


def classifier(width=64):
    return keras.Sequential([keras.layers.Input((width,)), *(keras.layers.Dense(32, activation="relu") for _ in range(3)), keras.layers.Dense(10)])


@planted("eager-ops", question=12, also=("small-ops-without-xla",))
def an_eager_loop_with_a_tape():
    model, optimizer = classifier(), keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    data = tf.data.Dataset.from_tensor_slices(examples(256)).batch(16)

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def cell():
        for x, y in data:
            train_step(x, y)

    return cell


@planted("eager-ops", question=12, also=("small-ops-without-xla",), says=(".train",))
def an_eager_loop_over_a_dataset_with_a_validation():
    """The loop is a function's, which calls a function for each batch of both: it is named, or the loop where the input takes no time."""
    model, optimizer, metric = classifier(), keras.optimizers.Adam(), keras.metrics.SparseCategoricalAccuracy()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    data, held = (tf.data.Dataset.from_tensor_slices(examples(count)).batch(16) for count in (128, 32))

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))

    def test_step(x, y):
        metric.update_state(y, model(x, training=False))

    def train():
        for x, y in data:
            train_step(x, y)
        for x, y in held:
            test_step(x, y)

    return lambda: train()


@planted("eager-ops", question=12, also=("small-ops-without-xla",))
def fit_that_runs_eagerly():
    model, (x, y) = classifier(), examples(224)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    return lambda: model.fit(x, y, batch_size=16, verbose=0)


@planted("larger-batch", also=("python-between-steps",), says=("model.predict(..., batch_size=512)",))
def predict_in_batches_of_32():
    model, (x, _) = classifier(), examples(12_000)
    model.predict(x[:32], verbose=0)
    return lambda: model.predict(x, verbose=0)


@planted("eager-ops", question=18)
def eager_ops_without_steps():
    x = tf.random.normal((16, 16))

    def cell():
        y = x
        for _ in range(500):
            y = tf.tanh(tf.matmul(y, x) * 0.1)
        return y

    return cell


@planted("eager-ops", also=("own-python",), says=("between the steps",), never=("every 100th",))
def a_policy_that_acts_between_its_trainings():
    """As in reinforcement learning: the model is called for each observation, and then learns from what came of it."""
    model, optimizer = classifier(width=8), keras.optimizers.SGD(0.01)
    observations, rewards = tf.random.normal((4, 8)), tf.random.normal((4, 10))

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
        return loss

    def cell():
        for _ in range(25):
            for at in range(4):
                int(tf.argmax(model(observations[at : at + 1]), axis=1)[0])
            train_step(observations, rewards)

    cell()
    return cell


@planted("python-in-the-step", says=("calls Python once",))
def a_metric_in_numpy_in_each_step():
    weight, x = tf.Variable(tf.random.normal((300, 300))), tf.random.normal((300, 300))

    def ranks(values):
        return np.float32(sum(sorted(values.ravel().tolist()[:20_000])[::2]))

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            y = tf.matmul(x, weight)
            loss = tf.reduce_mean(y**2)
        weight.assign_sub(tape.gradient(loss, weight) * 1e-6)
        return tf.numpy_function(ranks, [y], tf.float32)

    train_step()

    def cell():
        for _ in range(25):
            train_step()

    return cell


@planted("eager-ops", also=("small-ops-without-xla",))
def a_model_called_in_a_loop():
    layers = [keras.layers.Dense(32, activation="relu") for _ in range(16)]
    model, (x, _) = keras.Sequential([keras.layers.Input((64,)), *layers]), examples()
    x = tf.constant(x)
    model(x[:8])

    def cell():
        for number in range(40):
            model(x[number : number + 8], training=False)

    return cell


@planted("retracing", question=8, says=("factor",), never=("new model",))
def a_python_number_in_each_call():
    x = tf.ones((32, 32))

    @tf.function
    def scaled(x, factor):
        for _ in range(30):
            x = tf.tanh(tf.matmul(x, x) * factor)
        return tf.reduce_sum(x)

    def cell():
        for number in range(16):
            scaled(x, number)

    return cell


@planted("retracing", question=8, also=("small-ops-without-xla",), never=("new model",))
def a_new_shape_in_each_call():
    @tf.function(reduce_retracing=False)
    def total(x):
        for _ in range(30):
            x = tf.tanh(x * 1.01)
        return tf.reduce_sum(x)

    def cell():
        for number in range(16):
            total(tf.ones((number + 2, 8)))

    return cell


@planted("retracing", question=8, never=("new model", "input_signature"))
def a_function_made_anew_in_each_turn():
    x = tf.ones((32, 32))

    def cell():
        for _ in range(16):

            @tf.function
            def step(x):
                for _ in range(30):
                    x = tf.tanh(tf.matmul(x, x))
                return tf.reduce_sum(x)

            step(x)

    return cell


@planted("recompiling", question=14)
def shapes_that_xla_compiles_anew():
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec((None, 16), tf.float32)])
    def step(x):
        return tf.reduce_sum(tf.tanh(tf.matmul(x, x, transpose_a=True)))

    step(tf.ones((5, 16)))

    def cell():
        for number in range(12):
            step(tf.ones((10 + number, 16)))

    return cell


@planted("small-ops-without-xla")
def a_chain_of_small_ops():
    x = tf.ones((3072, 3072))

    @tf.function
    def train_step(x):
        for _ in range(8):
            x = tf.abs(x) * 1.01 + 0.01
        return tf.reduce_sum(x)

    train_step(x)

    def cell():
        for _ in range(12):
            train_step(x).numpy()

    return cell


@planted("large-optimizer", also=("small-ops-without-xla", "python-between-steps"))
def a_large_optimizer():
    layers = [keras.layers.Dense(1024) for _ in range(6)]
    model = keras.Sequential([keras.layers.Input((1024,)), *layers])
    model.compile("adam", "mse", jit_compile=False)
    x, y = np.ones((4, 1024), "float32"), np.ones((4, 1024), "float32")
    model.train_on_batch(x, y)

    def cell():
        for _ in range(8):
            model.train_on_batch(x, y)

    return cell


# TensorFlow 1.


def session_of(graph):
    return v1.Session(graph=graph)


SESSIONS_NEVER = ("Log every", "model.compile", "steps_per_execution", "profnb.step")


@planted("own-python", "python-between-steps", "python-input", "waiting-for-input", "feed-dict", never=(*SESSIONS_NEVER, "host compute"))
def a_feed_dict_that_python_prepares():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 64))
        weights = v1.get_variable("w", (64, 10))
        step = v1.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean((x @ weights) ** 2))
        session = session_of(graph)
        session.run(v1.global_variables_initializer())

    def preprocess():
        time.sleep(0.06)
        return np.ones((32, 64), "float32")

    def cell():
        for _ in range(16):
            session.run(step, {x: preprocess()})

    return cell


@planted("growing-graph", says=("finalize",), never=SESSIONS_NEVER)
def a_graph_that_grows_in_the_loop():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 64))
        loss = tf.reduce_sum(tf.matmul(x, tf.ones((64, 64))))
        session = session_of(graph)
    fed = {x: np.ones((8, 64), "float32")}

    def cell():
        with graph.as_default():
            for number in range(20):
                session.run(tf.reduce_sum(loss * float(number)), fed)

    return cell


@planted("input-bound", "python-input", "waiting-for-input", "queue-input", never=SESSIONS_NEVER)
def a_queue_that_is_empty():
    with tf.Graph().as_default() as graph:
        queue = v1.FIFOQueue(20, [tf.float32], shapes=[(64,)])

        def slow():
            time.sleep(0.15)
            return np.ones(64, "float32")

        enqueue = queue.enqueue(tf.ensure_shape(v1.py_func(slow, [], tf.float32), (64,)))
        runner = v1.train.QueueRunner(queue, [enqueue])
        weights = v1.get_variable("w", (64, 10))
        step = v1.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean((queue.dequeue_many(1) @ weights) ** 2))
        session = session_of(graph)
        session.run(v1.global_variables_initializer())
        close = queue.close(cancel_pending_enqueues=True)
        coordinator = v1.train.Coordinator()
        threads = runner.create_threads(session, coordinator, daemon=True, start=True)

    def cell():
        for _ in range(10):
            session.run(step)
        coordinator.request_stop()
        session.run(close)
        coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)

    return cell


@planted("python-between-steps", "checkpoints", never=("input-bound", ".cache()", *SESSIONS_NEVER))
def a_saver_in_the_loop():
    with tf.Graph().as_default() as graph:
        weights = v1.get_variable("w", (2000, 1000))
        step = weights.assign_add(weights * 1e-3).op
        saver, session = v1.train.Saver(max_to_keep=1), session_of(graph)
        session.run(v1.global_variables_initializer())
    folder = tempfile.mkdtemp()

    def cell():
        with graph.as_default():
            for number in range(16):
                session.run(step)
                saver.save(session, f"{folder}/model", global_step=number, write_meta_graph=False)

    return cell
