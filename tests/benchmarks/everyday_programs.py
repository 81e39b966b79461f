"""Twenty more programs of everyday kinds, written without a look at profnb's rules or tests: eleven with one thing to change, nine with none.

They follow keras.io examples, TensorFlow's tutorials and GitHub issues (named in each docstring), with synthetic data and less of it. Each
stands beside those of ``public_programs.py``, whose form it has.
"""

import math
import os
import re
import statistics
import tempfile

from public_programs import case, tools


@case("callback")
def spikes_of_the_loss_watched_in_each_batch():
    """A callback that goes over all losses so far after each batch (as keras-tqdm did: github.com/bstriner/keras-tqdm/issues/29).

    Changed: the losses are kept in each batch, and looked over in every 50th.
    """
    keras, np, tf, rng = tools()
    X = rng.random((20800, 16), np.float32)
    Y = X @ rng.random((16, 1), np.float32)
    m = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse", metrics=["mae", "mape"])

    class SpikeWatch(keras.callbacks.Callback):
        def __init__(self, every=1):
            super().__init__()
            self.every, self.history, self.spikes = every, {}, []

        def on_train_batch_end(self, batch, logs=None):
            for name, value in logs.items():
                self.history.setdefault(name, []).append(float(value))
            if batch % self.every == 0 and batch > 1:
                for name, values in self.history.items():
                    usual, spread = statistics.mean(values), statistics.stdev(values)
                    if abs(values[-1] - usual) > 4 * spread:
                        self.spikes.append((batch, name, values[-1], statistics.median(values)))

    def fit(every):
        m.fit(X, Y, batch_size=32, verbose=0, callbacks=[SpikeWatch(every)])

    m.fit(X[:64], Y[:64], batch_size=32, verbose=0)
    return lambda: fit(1), lambda: fit(50)


@case("own-python")
def images_augmented_by_numpy_in_the_loop():
    """An own loop that augments image by image in NumPy before each step (github.com/keras-team/keras/issues/610).

    Changed: the same for a whole batch in TensorFlow's ops, in a tf.data map that runs beside the steps.
    """
    keras, np, tf, rng = tools()
    size, hole, batch, steps = 64, 16, 32, 60
    X = rng.random((512, size, size, 3), np.float32)
    Y = rng.integers(0, 5, 512)
    m = keras.Sequential(
        [
            keras.Input((size, size, 3)),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(5),
        ]
    )
    opt = keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(reduce_retracing=True)
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, m(x, training=True))
        opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
        return loss

    def augment(image):
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        image = image + np.random.uniform(-0.2, 0.2)
        mean = image.mean(axis=(0, 1), keepdims=True)
        image = (image - mean) * np.random.uniform(0.8, 1.2) + mean
        image = image + np.random.normal(0, 0.05, image.shape)
        image = np.clip(image, 0, 1)
        top, left = np.random.randint(0, size - hole, 2)
        image[top : top + hole, left : left + hole] = 0
        return image.astype("float32")

    def augment_batch(x, y):
        each = (tf.shape(x)[0], 1, 1, 1)
        x = tf.image.random_flip_left_right(x)
        x = x + tf.random.uniform(each, -0.2, 0.2)
        mean = tf.reduce_mean(x, (1, 2), keepdims=True)
        x = (x - mean) * tf.random.uniform(each, 0.8, 1.2) + mean
        x = tf.clip_by_value(x + tf.random.normal(tf.shape(x), stddev=0.05), 0, 1)
        top, left = (tf.random.uniform(each, 0, size - hole, tf.int32) for _ in range(2))
        down, across = tf.range(size)[None, :, None, None], tf.range(size)[None, None, :, None]
        is_hole = (down >= top) & (down < top + hole) & (across >= left) & (across < left + hole)
        return tf.where(is_hole, 0.0, x), y

    ready = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(256).batch(batch, drop_remainder=True)
    ready = ready.map(augment_batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def by_numpy():
        for _ in range(steps):
            chosen = rng.integers(0, len(X), batch)
            images = np.stack([augment(X[at]) for at in chosen])
            train_step(tf.constant(images), tf.constant(Y[chosen]))

    def by_tf_data():
        for x, y in ready.take(steps):
            train_step(x, y)

    for x, y in ready.take(1):
        train_step(x, y)
    return by_numpy, by_tf_data


@case("own-python")
def auc_of_all_so_far_after_each_batch():
    """An AUC as scikit-learn's roc_auc_score computes it, over all predictions so far, in each step of an own loop
    (neptune.ai/blog/implementing-the-macro-f1-score-in-keras tells how people come to that).

    Changed: it is computed once, when the epoch is over.
    """
    keras, np, tf, rng = tools()
    X = rng.random((12800, 32), np.float32)
    Y = rng.integers(0, 10, 12800)
    ds = tf.data.Dataset.from_tensor_slices((X, Y)).batch(64).prefetch(2)
    m = keras.Sequential([keras.Input((32,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    opt = keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            logits = m(x, training=True)
            loss = loss_of(y, logits)
        opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
        return loss, tf.nn.softmax(logits)

    def macro_auc(truth, scores):
        areas = []
        for c in range(scores.shape[1]):
            order = np.argsort(-scores[:, c], kind="stable")
            hits = truth[order] == c
            tpr = np.cumsum(hits) / max(hits.sum(), 1)
            fpr = np.cumsum(~hits) / max((~hits).sum(), 1)
            areas.append(np.sum(np.diff(fpr, prepend=0.0) * tpr))
        return float(np.mean(areas))

    def epoch(in_each_step):
        truth, scores, shown = [], [], 0.0
        for x, y in ds:
            loss, p = train_step(x, y)
            truth.append(y.numpy())
            scores.append(p.numpy())
            if in_each_step:
                shown = macro_auc(np.concatenate(truth), np.concatenate(scores))
        return shown if in_each_step else macro_auc(np.concatenate(truth), np.concatenate(scores))

    for x, y in ds.take(1):
        train_step(x, y)
    return lambda: epoch(True), lambda: epoch(False)


@case("input-bound")
def jpegs_of_a_tfrecord_decoded_one_after_another():
    """TFRecords with JPEGs, decoded and randomly cropped by a map without num_parallel_calls (tensorflow.org/guide/data_performance,
    tensorflow.org/tutorials/load_data/tfrecord). One epoch, and random, so that a cache would not help.

    Changed: num_parallel_calls and a prefetch.
    """
    keras, np, tf, rng = tools()
    path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        pictures = []
        for _ in range(20):
            smooth = tf.image.resize(rng.random((10, 10, 3), np.float32) * 255, (320, 320), "bicubic")
            pictures.append(tf.io.encode_jpeg(tf.cast(tf.clip_by_value(smooth, 0, 255), tf.uint8)).numpy())
        for at in range(800):
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[pictures[at % 20]])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[at % 10])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    described = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def load(record):
        example = tf.io.parse_single_example(record, described)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        image = tf.image.random_crop(image, (256, 256, 3))
        image = tf.image.random_flip_left_right(image)
        image = tf.image.resize(tf.cast(image, tf.float32) / 255, (64, 64))
        return tf.image.random_brightness(image, 0.1), example["label"]

    m = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    slow = tf.data.TFRecordDataset(path).map(load).batch(32)
    fast = tf.data.TFRecordDataset(path).map(load, num_parallel_calls=os.cpu_count()).batch(32).prefetch(tf.data.AUTOTUNE)
    m.fit(slow.take(1), verbose=0)
    return lambda: m.fit(slow, verbose=0), lambda: m.fit(fast, verbose=0)


@case("epoch-ends")
def datasets_are_made_anew_in_each_epoch():
    """An own loop that calls make_dataset() for each epoch, so that its maps are traced anew each time
    (github.com/tensorflow/tensorflow/issues/14868, github.com/keras-team/keras/issues/16947).

    Changed: it is made once; its shuffle differs in each epoch anyway.
    """
    keras, np, tf, rng = tools()
    X = rng.integers(0, 255, (640, 28, 28, 1)).astype("uint8")
    Y = rng.integers(0, 10, 640)
    m = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    opt = keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, m(x, training=True))
        opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
        return loss

    def normalise(x, y):
        x = tf.cast(x, tf.float32) / 255.0
        return (x - tf.reduce_mean(x, (1, 2, 3), keepdims=True)) / (tf.math.reduce_std(x, (1, 2, 3), keepdims=True) + 1e-3), y

    def augment(x, y):
        x = tf.image.random_flip_left_right(x)
        x = tf.image.random_brightness(x, 0.1)
        x = tf.image.random_contrast(x, 0.9, 1.1)
        return x, y

    def make_dataset():
        ds = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(len(X)).batch(64)
        ds = ds.map(normalise, num_parallel_calls=tf.data.AUTOTUNE).map(augment, num_parallel_calls=tf.data.AUTOTUNE)
        return ds.prefetch(tf.data.AUTOTUNE)

    def anew():
        for epoch in range(15):
            for x, y in make_dataset():
                loss = train_step(x, y)
            float(loss)

    def once():
        ds = make_dataset()
        for epoch in range(15):
            for x, y in ds:
                loss = train_step(x, y)
            float(loss)

    for x, y in make_dataset().take(1):
        train_step(x, y)
    return anew, once


@case("eager-ops")
def adversarial_train_step_left_eager():
    """keras.io/guides/custom_train_step_in_tensorflow: an own train_step (here with adversarial examples, as in
    tensorflow.org/tutorials/generative/adversarial_fgsm), and run_eagerly=True left there since it was debugged
    (github.com/USGS-R/river-dl/pull/109).

    Changed: compiled without run_eagerly.
    """
    keras, np, tf, rng = tools()
    X = rng.random((576, 40), np.float32)
    Y = rng.integers(0, 3, 576)

    class Robust(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=False))
            disturbed = tf.clip_by_value(x + 0.05 * tf.sign(tape.gradient(loss, x)), 0.0, 1.0)
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=y_pred) + self.compute_loss(x=x, y=y, y_pred=self(disturbed, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

    def compiled(is_eager):
        i = keras.Input((40,))
        h = keras.layers.Dense(64, activation="relu")(i)
        h = keras.layers.Dense(64, activation="relu")(h)
        m = Robust(i, keras.layers.Dense(3, activation="softmax")(h))
        m.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=is_eager)
        m.fit(X[:32], Y[:32], batch_size=32, verbose=0)
        return m

    eager, graph = compiled(True), compiled(False)
    return lambda: eager.fit(X, Y, batch_size=32, verbose=0), lambda: graph.fit(X, Y, batch_size=32, verbose=0)


@case("eager-ops")
def actor_critic_acts_eagerly():
    """keras.io/examples/rl/actor_critic_cartpole and tensorflow.org/tutorials/reinforcement_learning/actor_critic: model(state) in each
    step of the environment, outside of a tf.function; what is learned from an episode is compiled.

    Changed: what chooses the action is a tf.function too.
    """
    keras, np, tf, rng = tools()

    class CartPole:
        def reset(self):
            self.s = list(rng.uniform(-0.05, 0.05, 4))
            return np.array(self.s, np.float32)

        def step(self, action):
            x, v, angle, w = self.s
            force = 10.0 if action else -10.0
            sin, cos = math.sin(angle), math.cos(angle)
            pushed = (force + 0.05 * w * w * sin) / 1.1
            aa = (9.8 * sin - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
            a = pushed - 0.05 * aa * cos / 1.1
            self.s = [x + 0.02 * v, v + 0.02 * a, angle + 0.02 * w, w + 0.02 * aa]
            return np.array(self.s, np.float32), 1.0, abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21

    i = keras.Input((4,))
    h = keras.layers.Dense(128, activation="relu")(i)
    h = keras.layers.Dense(64, activation="relu")(h)
    m = keras.Model(i, [keras.layers.Dense(2)(h), keras.layers.Dense(1)(h)])
    opt = keras.optimizers.Adam(0.01)
    huber = keras.losses.Huber()
    env = CartPole()

    def act(state):
        logits, value = m(state)
        return tf.random.categorical(logits, 1)[0, 0], value[0, 0]

    act_compiled = tf.function(act)

    @tf.function
    def learn(states, actions, returns):
        with tf.GradientTape() as tape:
            logits, values = m(states, training=True)
            advantage = tf.stop_gradient(returns - values[:, 0])
            log_p = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits)
            loss = -tf.reduce_mean(log_p * advantage) + huber(returns[:, None], values)
        opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))

    def train(choose):
        for _ in range(4):
            state, states, actions, rewards, ends = env.reset(), [], [], [], []
            for _ in range(100):
                action, value = choose(tf.constant(state[None]))
                states.append(state)
                actions.append(int(action))
                state, reward, done = env.step(actions[-1])
                rewards.append(reward)
                ends.append(done)
                if done:
                    state = env.reset()
            total, returns = 0.0, []
            for reward, done in zip(rewards[::-1], ends[::-1]):
                total = reward + (0.0 if done else 0.99 * total)
                returns.append(total)
            learn(tf.constant(np.array(states)), tf.constant(actions), tf.constant(returns[::-1], tf.float32))

    train(act_compiled)
    return lambda: train(act), lambda: train(act_compiled)


@case("validation")
def own_loop_evaluates_every_fifth_batch():
    """An own loop after tensorflow.org/tutorials/quickstart/advanced that goes over the whole test set in every fifth step
    (wanted in github.com/keras-team/keras/issues/19562 and issues/5612).

    Changed: once, when the epoch is over.
    """
    keras, np, tf, rng = tools()
    X, V = rng.random((6400, 64), np.float32), rng.random((8000, 64), np.float32)
    Y, VY = rng.integers(0, 10, 6400), rng.integers(0, 10, 8000)
    train = tf.data.Dataset.from_tensor_slices((X, Y)).batch(64).prefetch(2)
    held_out = tf.data.Dataset.from_tensor_slices((V, VY)).batch(500).cache().prefetch(2)
    m = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)]
    )
    opt = keras.optimizers.SGD(0.01)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    test_loss, test_accuracy = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, m(x, training=True))
        opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
        return loss

    @tf.function
    def test_step(x, y):
        logits = m(x, training=False)
        test_loss.update_state(loss_of(y, logits))
        test_accuracy.update_state(y, logits)

    def evaluate():
        test_loss.reset_state()
        test_accuracy.reset_state()
        for x, y in held_out:
            test_step(x, y)
        return float(test_loss.result()), float(test_accuracy.result())

    def epoch(every):
        history = []
        for step, (x, y) in enumerate(train, 1):
            train_step(x, y)
            if step % every == 0:
                history.append(evaluate())
        return history

    for x, y in train.take(1):
        train_step(x, y)
    evaluate()
    return lambda: epoch(5), lambda: epoch(100)


@case("python-input")
def texts_become_numbers_in_a_generator():
    """Texts cleaned, split and looked up in Python, one at a time, in Dataset.from_generator
    (github.com/tensorflow/tensorflow/issues/56258, github.com/tensorflow/ranking/issues/147).

    Changed: keras.layers.TextVectorization with the same vocabulary in a map over batches (keras.io/examples/nlp/text_classification_from_scratch).
    """
    keras, np, tf, rng = tools()
    length, words = 200, [f"word{at}" for at in range(2000)]
    texts = []
    for row in rng.integers(0, 2000, (4000, length)):
        texts.append(", ".join(" ".join(words[w] for w in row[at : at + 10]).capitalize() for at in range(0, length, 10)) + "!")
    labels = rng.integers(0, 2, len(texts))
    index = {word: at + 2 for at, word in enumerate(words)}

    def vectorize(text):
        tokens = re.sub(r"[^\w\s]", "", text.lower()).split()
        ids = [index.get(token, 1) for token in tokens[:length]]
        return ids + [0] * (length - len(ids))

    def samples():
        for text, label in zip(texts, labels):
            yield vectorize(text), label

    kinds = (tf.TensorSpec((length,), tf.int64), tf.TensorSpec((), tf.int64))
    slow = tf.data.Dataset.from_generator(samples, output_signature=kinds).batch(32).prefetch(2)
    layer = keras.layers.TextVectorization(vocabulary=words, output_sequence_length=length)
    fast = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(32)
    fast = fast.map(lambda x, y: (layer(x), y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    m = keras.Sequential([keras.Input((length,), dtype="int64"), keras.layers.Embedding(2002, 16), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
    m.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    m.fit(slow.take(2), verbose=0)
    m.fit(fast.take(2), verbose=0)
    return lambda: m.fit(slow, verbose=0), lambda: m.fit(fast, verbose=0)


@case("checkpoints")
def model_saved_after_each_short_epoch():
    """model.save at the end of each epoch, where an epoch takes less than a save (github.com/deepchem/deepchem/issues/458).

    Changed: after every eighth epoch.
    """
    keras, np, tf, rng = tools()
    path = os.path.join(tempfile.mkdtemp(), "model.keras")
    X = rng.random((128, 300), np.float32)
    Y = rng.integers(0, 10, 128)
    ds = tf.data.Dataset.from_tensor_slices((X, Y)).batch(32).cache().prefetch(2)
    m = keras.Sequential(
        [keras.Input((300,)), keras.layers.Dense(2000, activation="relu"), keras.layers.Dense(700, activation="relu"), keras.layers.Dense(10)]
    )
    opt = keras.optimizers.SGD(0.01)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, m(x, training=True))
        opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
        return loss

    def train(save_every):
        for epoch in range(1, 17):
            for x, y in ds:
                loss = train_step(x, y)
            float(loss)
            if epoch % save_every == 0:
                m.save(path)

    for x, y in ds:
        train_step(x, y)
    m.save(path)
    return lambda: train(1), lambda: train(8)


@case("loop-of-ops")
def discounted_returns_summed_step_by_step():
    """get_expected_return of tensorflow.org/tutorials/reinforcement_learning/actor_critic: a loop over the time steps with a TensorArray in a
    tf.function (of its slowness: github.com/tensorflow/tensorflow/issues/46518, issues/40708).

    Changed: one product with the matrix of the discounts.
    """
    keras, np, tf, rng = tools()
    steps, gamma = 300, 0.97
    states = tf.constant(rng.random((steps, 4), np.float32))
    actions = tf.constant(rng.integers(0, 2, steps))
    rewards = tf.constant(rng.random(steps, np.float32))
    away = np.arange(steps)[None] - np.arange(steps)[:, None]
    discounts = tf.constant(np.where(away >= 0, gamma ** np.maximum(away, 0), 0).astype("float32"))

    def step_by_step(rewards):
        n = tf.shape(rewards)[0]
        backwards = rewards[::-1]
        returns = tf.TensorArray(tf.float32, size=n)
        total = tf.constant(0.0)
        for t in tf.range(n):
            total = backwards[t] + gamma * total
            total.set_shape(())
            returns = returns.write(t, total)
        return returns.stack()[::-1]

    def at_once(rewards):
        return tf.linalg.matvec(discounts, rewards)

    def learner(returns_of):
        m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(2)])
        opt = keras.optimizers.Adam()

        @tf.function
        def train_step(states, actions, rewards):
            returns = returns_of(rewards)
            returns = (returns - tf.reduce_mean(returns)) / (tf.math.reduce_std(returns) + 1e-6)
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=m(states, training=True))
                loss = tf.reduce_mean(losses * returns)
            opt.apply_gradients(zip(tape.gradient(loss, m.trainable_variables), m.trainable_variables))
            return loss

        train_step(states, actions, rewards)

        def run():
            for _ in range(150):
                train_step(states, actions, rewards)

        return run

    return learner(step_by_step), learner(at_once)


# Innocent


@case("")
def denoising_autoencoder():
    """keras.io/examples/vision/autoencoder, shortened."""
    keras, np, tf, rng = tools()
    X = rng.random((1280, 28, 28, 1), np.float32)
    noisy = np.clip(X + 0.4 * rng.standard_normal(X.shape, np.float32), 0, 1)
    m = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu", padding="same"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(32, 3, activation="relu", padding="same"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2DTranspose(32, 3, strides=2, activation="relu", padding="same"),
            keras.layers.Conv2DTranspose(32, 3, strides=2, activation="relu", padding="same"),
            keras.layers.Conv2D(1, 3, activation="sigmoid", padding="same"),
        ]
    )
    m.compile("adam", "binary_crossentropy")
    m.fit(noisy[:32], X[:32], batch_size=32, verbose=0)
    return lambda: m.fit(noisy, X, batch_size=32, verbose=0), None


@case("")
def variational_autoencoder_with_its_own_train_step():
    """keras.io/examples/generative/vae, with dense layers; the train_step is compiled as fit does it."""
    keras, np, tf, rng = tools()
    X = rng.random((16384, 784), np.float32)
    i = keras.Input((784,))
    h = keras.layers.Dense(512, activation="relu")(i)
    h = keras.layers.Dense(256, activation="relu")(h)
    encoder = keras.Model(i, [keras.layers.Dense(8)(h), keras.layers.Dense(8)(h)])
    decoder = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(784)]
    )

    class VAE(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = encoder, decoder
            self.tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.tracker]

        def call(self, x):
            return self.decoder(self.encoder(x)[0])

        def train_step(self, data):
            x = data[0] if isinstance(data, (tuple, list)) else data
            with tf.GradientTape() as tape:
                mean, log_var = self.encoder(x, training=True)
                z = mean + tf.exp(0.5 * log_var) * tf.random.normal(tf.shape(mean))
                made = self.decoder(z, training=True)
                rebuilt = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=made), 1)
                kl = -0.5 * tf.reduce_sum(1 + log_var - mean**2 - tf.exp(log_var), 1)
                loss = tf.reduce_mean(rebuilt + kl)
            self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    m = VAE()
    m.compile("adam")
    m.fit(X[:256], batch_size=256, verbose=0)
    return lambda: m.fit(X, batch_size=256, verbose=0), None


@case("")
def unet_segments_pets():
    """keras.io/examples/vision/oxford_pets_image_segmentation, small; a parallel map and a prefetch feed it."""
    keras, np, tf, rng = tools()
    images = rng.integers(0, 255, (64, 64, 64, 3)).astype("uint8")
    masks = rng.integers(0, 3, (64, 64, 64, 1)).astype("uint8")

    def prepare(image, mask):
        image = tf.cast(image, tf.float32) / 255.0
        if tf.random.uniform(()) > 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        return image, tf.cast(mask, tf.int32)

    ds = tf.data.Dataset.from_tensor_slices((images, masks)).shuffle(64)
    ds = ds.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).batch(8).prefetch(tf.data.AUTOTUNE)

    def twice(x, filters):
        for _ in range(2):
            x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    i = keras.Input((64, 64, 3))
    a = twice(i, 16)
    b = twice(keras.layers.MaxPooling2D(2)(a), 32)
    c = twice(keras.layers.MaxPooling2D(2)(b), 48)
    d = twice(keras.layers.Concatenate()([keras.layers.UpSampling2D(2)(c), b]), 32)
    e = keras.layers.Concatenate()([keras.layers.UpSampling2D(2)(d), a])
    e = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(e)
    m = keras.Model(i, keras.layers.Conv2D(3, 1)(e))
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    m.fit(ds.take(1), verbose=0)
    return lambda: m.fit(ds, verbose=0), None


@case("")
def dcgan_with_compiled_steps():
    """tensorflow.org/tutorials/generative/dcgan, small: train_step is a tf.function, the loss is read once an epoch."""
    keras, np, tf, rng = tools()
    X = rng.random((640, 28, 28, 1), np.float32) * 2 - 1
    ds = tf.data.Dataset.from_tensor_slices(X).shuffle(640).batch(32, drop_remainder=True).prefetch(2)
    generator = keras.Sequential(
        [
            keras.Input((100,)),
            keras.layers.Dense(7 * 7 * 64, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.LeakyReLU(),
            keras.layers.Reshape((7, 7, 64)),
            keras.layers.Conv2DTranspose(32, 5, strides=2, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.LeakyReLU(),
            keras.layers.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh"),
        ]
    )
    discriminator = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 5, strides=2, padding="same"),
            keras.layers.LeakyReLU(),
            keras.layers.Dropout(0.3),
            keras.layers.Conv2D(64, 5, strides=2, padding="same"),
            keras.layers.LeakyReLU(),
            keras.layers.Dropout(0.3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    of_generator, of_discriminator = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
    cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(images):
        noise = tf.random.normal((32, 100))
        with tf.GradientTape() as g, tf.GradientTape() as d:
            made = generator(noise, training=True)
            real, fake = discriminator(images, training=True), discriminator(made, training=True)
            g_loss = cross_entropy(tf.ones_like(fake), fake)
            d_loss = cross_entropy(tf.ones_like(real), real) + cross_entropy(tf.zeros_like(fake), fake)
        of_generator.apply_gradients(zip(g.gradient(g_loss, generator.trainable_variables), generator.trainable_variables))
        of_discriminator.apply_gradients(zip(d.gradient(d_loss, discriminator.trainable_variables), discriminator.trainable_variables))
        return g_loss, d_loss

    def epoch():
        for images in ds:
            losses = train_step(images)
        return [float(loss) for loss in losses]

    for images in ds.take(1):
        train_step(images)
    return epoch, None


@case("")
def physics_informed_network_of_the_heat_equation():
    """A PINN as in github.com/Haiyun314/intro-control-ml (src/pinns_tf.py): u_t = a u_xx by nested tapes, all points in each step."""
    keras, np, tf, rng = tools()
    net = keras.Sequential([keras.Input((2,)), *[keras.layers.Dense(64, activation="tanh") for _ in range(3)], keras.layers.Dense(1)])
    opt = keras.optimizers.Adam(1e-3)
    x, t = (tf.constant(rng.random((4096, 1), np.float32)) for _ in range(2))
    x0 = tf.constant(rng.random((1024, 1), np.float32))

    @tf.function
    def train_step(x, t, x0):
        with tf.GradientTape() as tape:
            with tf.GradientTape() as second:
                second.watch(x)
                with tf.GradientTape(persistent=True) as first:
                    first.watch(x)
                    first.watch(t)
                    u = net(tf.concat([x, t], 1), training=True)
                u_x, u_t = first.gradient(u, x), first.gradient(u, t)
            u_xx = second.gradient(u_x, x)
            at_start = net(tf.concat([x0, tf.zeros_like(x0)], 1), training=True)
            loss = tf.reduce_mean((u_t - 0.1 * u_xx) ** 2) + tf.reduce_mean((at_start - tf.sin(math.pi * x0)) ** 2)
        opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    def run():
        for _ in range(30):
            loss = train_step(x, t, x0)
        return float(loss)

    train_step(x, t, x0)
    return run, None


@case("")
def gaussian_process_fits_its_kernel():
    """The marginal likelihood of a Gaussian process by a Cholesky factor, as GPflow and TensorFlow Probability's notebooks have it."""
    keras, np, tf, rng = tools()
    n = 600
    X = rng.random((n, 3), np.float32)
    y = tf.constant((np.sin(6 * X[:, :1]) + 0.1 * rng.standard_normal((n, 1))).astype("float32"))
    apart = tf.constant(((X[:, None] - X[None]) ** 2).sum(-1))
    raw = [tf.Variable(0.0) for _ in range(3)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            variance, scale, noise = (tf.nn.softplus(v) for v in raw)
            kernel = variance * tf.exp(-0.5 * apart / scale**2) + (noise + 0.05) * tf.eye(n)
            factor = tf.linalg.cholesky(kernel)
            fit = 0.5 * tf.reduce_sum(y * tf.linalg.cholesky_solve(factor, y))
            loss = fit + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
        for v, g in zip(raw, tape.gradient(loss, raw)):
            v.assign_sub(0.01 * tf.clip_by_value(g, -1.0, 1.0))
        return loss

    def run():
        for v in raw:
            v.assign(0.0)
        for _ in range(20):
            loss = step()
        return float(loss)

    step()
    return run, None


@case("")
def mobilenet_features_of_many_images():
    """keras.io/api/applications, "extract features": one predict over all images, in batches."""
    keras, np, tf, rng = tools()
    base = keras.applications.MobileNetV2(input_shape=(96, 96, 3), include_top=False, weights=None, pooling="avg")
    images = keras.applications.mobilenet_v2.preprocess_input(rng.integers(0, 255, (192, 96, 96, 3)).astype("float32"))
    base.predict(images[:32], batch_size=32, verbose=0)
    return lambda: base.predict(images, batch_size=32, verbose=0), None


@case("")
def deep_dream_climbs_in_a_graph_loop():
    """tensorflow.org/tutorials/generative/deepdream: the loop over the steps is in the tf.function, and each step convolves a whole image."""
    keras, np, tf, rng = tools()
    base = keras.Sequential(
        [
            keras.Input((128, 128, 3)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
        ]
    )
    image = tf.constant(rng.random((128, 128, 3), np.float32) * 2 - 1)

    @tf.function(input_signature=[tf.TensorSpec((128, 128, 3), tf.float32), tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32)])
    def deepdream(img, steps, size):
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            with tf.GradientTape() as tape:
                tape.watch(img)
                loss = tf.reduce_mean(base(img[None], training=False))
            gradient = tape.gradient(loss, img)
            gradient /= tf.math.reduce_std(gradient) + 1e-8
            img = tf.clip_by_value(img + gradient * size, -1, 1)
        return loss, img

    def run():
        img = image
        for _ in range(3):
            loss, img = deepdream(img, tf.constant(10), tf.constant(0.01))
        return float(loss), img.numpy()

    deepdream(image, tf.constant(1), tf.constant(0.01))
    return run, None


@case("")
def reviews_classified_by_convolutions():
    """keras.io/examples/nlp/text_classification_from_scratch, with a validation of an ordinary size and cheap callbacks."""
    keras, np, tf, rng = tools()
    log = os.path.join(tempfile.mkdtemp(), "log.csv")
    X, V = rng.integers(0, 5000, (1536, 200)).astype("int32"), rng.integers(0, 5000, (192, 200)).astype("int32")
    Y, VY = rng.integers(0, 2, 1536).astype("float32"), rng.integers(0, 2, 192).astype("float32")
    m = keras.Sequential(
        [
            keras.Input((200,), dtype="int32"),
            keras.layers.Embedding(5000, 64),
            keras.layers.Dropout(0.5),
            keras.layers.Conv1D(64, 7, strides=3, activation="relu"),
            keras.layers.Conv1D(64, 7, strides=3, activation="relu"),
            keras.layers.GlobalMaxPooling1D(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    m.compile("adam", "binary_crossentropy", metrics=["accuracy"])

    def fit():
        callbacks = [
            keras.callbacks.EarlyStopping(patience=3),
            keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 * 0.9**epoch),
            keras.callbacks.CSVLogger(log),
        ]
        m.fit(X, Y, batch_size=64, epochs=2, validation_data=(V, VY), callbacks=callbacks, verbose=0)

    m.fit(X[:64], Y[:64], batch_size=64, validation_data=(V[:64], VY[:64]), verbose=0)
    return fit, None
