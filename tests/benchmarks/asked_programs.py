"""A third twenty, after what people asked and what Keras' examples show: ten with one thing to change, ten with none.

Each names its source, which none of the other programs has; data is made up and small. They stand beside those of ``public_programs.py``, whose
form they have, and were run once before anything was mended by them.
"""

import random
from collections import deque

from public_programs import case, tools


def learner(tf, model, loss_of, optimizer):
    """A compiled training step."""

    @tf.function(reduce_retracing=True)
    def learn(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return learn


@case("cache-input")
def spectrograms_made_anew_in_each_epoch():
    """github.com/rstudio/keras3/issues/608 and github.com/thevasudevgupta/gsoc-wav2vec2/pull/1: sound to spectrograms in a map. Changed: cache()."""
    keras, np, tf, rng = tools()
    sounds, kinds = rng.normal(size=(320, 16000)).astype("float32"), rng.integers(0, 8, 320)

    def spectrogram(sound, kind):
        return tf.math.log(tf.abs(tf.signal.stft(sound, 256, 128)) + 1e-6)[..., None], kind

    made = tf.data.Dataset.from_tensor_slices((sounds, kinds)).map(spectrogram)
    m = keras.Sequential(
        [keras.Input((124, 129, 1)), keras.layers.Conv2D(8, 5, strides=4, activation="relu"), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(8)]
    )
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit = lambda data: m.fit(data.batch(32).prefetch(2), epochs=6, verbose=0)
    return lambda: fit(made), lambda: fit(made.cache())


@case("predict-in-a-loop")
def a_series_forecast_point_by_point():
    """github.com/keras-team/keras/issues/11006: each point of the future from the points before. Changed: a compiled call."""
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((49, 1)), keras.layers.LSTM(10), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    call = tf.function(lambda x: m(x, training=False))

    def forecast(ask):
        past = list(np.sin(np.arange(49) / 5))
        for _ in range(40):
            past.append(float(ask(np.array(past[-49:], "float32")[None, :, None])[0, 0]))

    return lambda: forecast(lambda x: m.predict(x, verbose=0)), lambda: forecast(lambda x: call(tf.constant(x)).numpy())


@case("values-to-tensors")
def replayed_frames_converted_as_a_list():
    """github.com/tensorflow/tensorflow/issues/44555: tf.convert_to_tensor of a list of arrays. Changed: np.asarray first."""
    keras, np, tf, rng = tools()
    frames = list(rng.random((400, 40, 40)).astype("float32"))
    m = keras.Sequential([keras.Input((40, 40)), keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
    learn = learner(tf, m, keras.losses.MeanSquaredError(), keras.optimizers.Adam(1e-3))
    target = tf.zeros((32, 4))

    def replay(convert):
        for _ in range(60):
            batch = random.sample(frames, 32)
            learn(convert(batch), target)

    return lambda: replay(tf.convert_to_tensor), lambda: replay(lambda batch: tf.convert_to_tensor(np.asarray(batch)))


@case("wide-numbers")
def a_linear_model_in_double_precision():
    """github.com/theislab/batchglm/issues/109: float64 by default, float32 is enough. Changed: float32."""
    keras, np, tf, rng = tools()
    counts, design = rng.poisson(3.0, (3000, 400)), rng.normal(size=(3000, 40))

    def fitted(dtype):
        x, y = tf.constant(design, dtype), tf.constant(counts, dtype)
        a = tf.Variable(tf.zeros((40, 400), dtype))
        b = tf.Variable(tf.zeros((1, 400), dtype))

        @tf.function
        def ascend():
            with tf.GradientTape() as tape:
                eta = x @ a + b
                loss = tf.reduce_mean(tf.exp(eta) - y * eta)
            for v, g in zip((a, b), tape.gradient(loss, (a, b))):
                v.assign_sub(0.01 * g)
            return loss

        return lambda: [float(ascend()) for _ in range(40)]

    return fitted("float64"), fitted("float32")


@case("python-in-the-step")
def f1_of_each_batch_in_a_py_function():
    """github.com/keras-team/keras/issues/12954: a metric of scikit-learn's in tf.py_function. Changed: keras.metrics.F1Score."""
    keras, np, tf, rng = tools()
    x, y = rng.random((6000, 30), np.float32), keras.utils.to_categorical(rng.integers(0, 6, 6000), 6)

    def by_hand(truth, scores):
        truth, found = truth.argmax(1), scores.argmax(1)
        f1 = []
        for kind in range(6):
            hit = sum(1 for t, f in zip(truth, found) if t == f == kind)
            named, there = sum(1 for f in found if f == kind), sum(1 for t in truth if t == kind)
            f1.append(2 * hit / max(named + there, 1))
        return np.float32(np.mean(f1))

    def f1(truth, scores):
        return tf.ensure_shape(tf.numpy_function(by_hand, (truth, scores), tf.float32), ())

    def model(metric):
        m = keras.Sequential([keras.Input((30,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(6, activation="softmax")])
        m.compile("adam", "categorical_crossentropy", metrics=[metric])
        return m

    slow, fast = model(f1), model(keras.metrics.F1Score(average="macro"))
    return lambda: slow.fit(x, y, batch_size=100, epochs=4, verbose=0), lambda: fast.fit(x, y, batch_size=100, epochs=4, verbose=0)


@case("callback")
def f1_of_the_validation_by_a_callback():
    """github.com/keras-team/keras/issues/13034: each epoch ends with a prediction of its own. Changed: every fifth epoch."""
    keras, np, tf, rng = tools()
    x, y = rng.random((2000, 40), np.float32), rng.integers(0, 2, 2000)
    held, truth = rng.random((20000, 40), np.float32), rng.integers(0, 2, 20000)
    m = keras.Sequential([keras.Input((40,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
    m.compile("adam", "binary_crossentropy")

    class Scores(keras.callbacks.Callback):
        def __init__(self, every):
            super().__init__()
            self.every, self.f1 = every, []

        def on_epoch_end(self, epoch, logs=None):
            if epoch % self.every == self.every - 1:
                found = self.model.predict(held, verbose=0)[:, 0] > 0.5
                hit = int((found & (truth == 1)).sum())
                self.f1.append(2 * hit / max(int(found.sum() + truth.sum()), 1))

    fit = lambda every: m.fit(x, y, batch_size=64, epochs=5, verbose=0, callbacks=[Scores(every)])
    return lambda: fit(1), lambda: fit(5)


@case("own-python")
def memories_sampled_from_a_deque():
    """github.com/ageron/handson-ml/pull/204: a deque is slow to read in its middle. Changed: a list."""
    keras, np, tf, rng = tools()
    memories = [(rng.random(8).astype("float32"), int(rng.integers(4))) for _ in range(600_000)]
    m = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
    learn = learner(tf, m, keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.optimizers.Adam(1e-3))
    kept = deque(memories)

    def sampled(memory):
        rows = [memory[at] for at in rng.integers(0, len(memory), 48)]
        return np.stack([row for row, _ in rows]), np.array([kind for _, kind in rows])

    def train(memory):
        for _ in range(400):
            x, y = sampled(memory)
            learn(tf.constant(x), tf.constant(y))

    return lambda: train(kept), lambda: train(memories)


@case("callback")
def norms_of_all_weights_logged_after_each_batch():
    """github.com/wandb/wandb/pull/1497: weights go to numpy after each batch. Changed: at the end of an epoch."""
    keras, np, tf, rng = tools()
    x = rng.random((6400, 64), np.float32)
    m = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(128, activation="relu") for _ in range(6)), keras.layers.Dense(1)])
    m.compile("adam", "mse")

    class Norms(keras.callbacks.Callback):
        def note(self):
            self.seen = {w.path: (np.linalg.norm(w.numpy()), np.histogram(w.numpy(), 20)) for w in self.model.trainable_weights}

    class EachBatch(Norms):
        def on_train_batch_end(self, batch, logs=None):
            self.note()

    class EachEpoch(Norms):
        def on_epoch_end(self, epoch, logs=None):
            self.note()

    fit = lambda watch: m.fit(x, x[:, :1], batch_size=32, verbose=0, callbacks=[watch])
    return lambda: fit(EachBatch()), lambda: fit(EachEpoch())


@case("unlearned")
def a_teacher_asked_in_each_step():
    """keras.io/examples/vision/knowledge_distillation: the teacher computes the same of an image in each epoch. Changed: once before the fit."""
    keras, np, tf, rng = tools()
    x, y = rng.random((512, 28, 28, 1), np.float32), rng.integers(0, 10, 512)

    def net(width):
        return keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Conv2D(width, 3, strides=2, padding="same", activation="relu"),
                keras.layers.Conv2D(2 * width, 3, strides=2, padding="same", activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )

    class Distiller(keras.Model):
        def __init__(self, student, teacher=None):
            super().__init__()
            self.student, self.teacher = student, teacher
            self.cross = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def train_step(self, data):
            (x, soft), y = data if self.teacher is None else ((data[0], self.teacher(data[0], training=False)), data[1])
            with tf.GradientTape() as tape:
                out = self.student(x, training=True)
                loss = self.cross(y, out) + keras.losses.KLDivergence()(tf.nn.softmax(soft / 3), tf.nn.softmax(out / 3))
            grads = tape.gradient(loss, self.student.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.student.trainable_variables))
            return {"loss": loss}

    teacher = net(96)
    teacher.trainable = False
    asking, ready = Distiller(net(8), teacher), Distiller(net(8))
    asking.compile("adam")
    ready.compile("adam")

    def once():
        soft = teacher.predict(x, batch_size=64, verbose=0)
        ready.fit(tf.data.Dataset.from_tensor_slices(((x, soft), y)).batch(64), epochs=5, verbose=0)

    return lambda: asking.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(64), epochs=5, verbose=0), once


@case("input-bound")
def numbers_decoded_one_by_one_before_the_batch():
    """github.com/solivr/tf-crnn/issues/63: map before batch. Changed: batch, then the same map over whole batches."""
    keras, np, tf, rng = tools()
    x, y = rng.integers(0, 255, (24000, 32), np.uint8), rng.integers(0, 4, 24000)

    def scaled(row, kind):
        return (tf.cast(row, tf.float32) - 127.5) / 127.5, kind

    data = tf.data.Dataset.from_tensor_slices((x, y))
    m = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit = lambda data: m.fit(data, epochs=2, verbose=0)
    return lambda: fit(data.map(scaled).batch(256)), lambda: fit(data.batch(256).map(scaled))


def fits(model, x, y, loss, **how):
    model.compile("adam", loss)
    return lambda: model.fit(x, y, verbose=0, **how), None


@case("")
def siamese_networks_tell_digits_apart():
    """keras.io/examples/vision/siamese_contrastive, with fewer images."""
    keras, np, tf, rng = tools()
    embedding = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.BatchNormalization(),
            keras.layers.Conv2D(8, 5, activation="tanh"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Conv2D(16, 5, activation="tanh"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="tanh"),
        ]
    )
    one, other = keras.Input((28, 28, 1)), keras.Input((28, 28, 1))
    away = keras.layers.Lambda(lambda v: keras.ops.sqrt(keras.ops.maximum(keras.ops.sum(keras.ops.square(v[0] - v[1]), axis=1, keepdims=True), 1e-7)))
    m = keras.Model([one, other], keras.layers.Dense(1, activation="sigmoid")(away([embedding(one), embedding(other)])))
    images = rng.random((2, 2560, 28, 28, 1), np.float32)
    return fits(m, [images[0], images[1]], rng.integers(0, 2, 2560).astype("float32"), lambda t, p: (1 - t) * p**2 + t * keras.ops.maximum(1 - p, 0) ** 2, batch_size=128)


@case("")
def engine_noise_told_by_a_transformer():
    """keras.io/examples/timeseries/timeseries_classification_transformer, small."""
    keras, np, tf, rng = tools()
    start = h = keras.Input((120, 1))
    for _ in range(2):
        h = h + keras.layers.MultiHeadAttention(4, 32)(h, h)
        h = keras.layers.LayerNormalization()(h)
        h = h + keras.layers.Conv1D(1, 1)(keras.layers.Conv1D(8, 1, activation="relu")(h))
    end = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D(data_format="channels_first")(h))
    x, y = rng.normal(size=(640, 120, 1)).astype("float32"), rng.integers(0, 2, 640)
    return fits(keras.Model(start, end), x, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch_size=64, epochs=2)


@case("")
def a_wasserstein_gan_with_gradient_penalty():
    """keras.io/examples/generative/wgan_gp, with dense layers; fit compiles its train_step."""
    keras, np, tf, rng = tools()

    class WGAN(keras.Model):
        def __init__(self):
            super().__init__()
            self.critic = keras.Sequential([keras.Input((784,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
            self.maker = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(784)])
            self.of_critic, self.of_maker = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)

        def train_step(self, real):
            count = tf.shape(real)[0]
            for _ in range(3):
                with tf.GradientTape() as tape:
                    fake = self.maker(tf.random.normal((count, 64)))
                    mixed = real + tf.random.uniform((count, 1)) * (fake - real)
                    with tf.GradientTape() as inner:
                        inner.watch(mixed)
                        score = self.critic(mixed)
                    slope = tf.sqrt(tf.reduce_sum(inner.gradient(score, mixed) ** 2, 1) + 1e-8)
                    loss = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(self.critic(real)) + 10 * tf.reduce_mean((slope - 1) ** 2)
                weights = self.critic.trainable_variables
                self.of_critic.apply_gradients(zip(tape.gradient(loss, weights), weights))
            with tf.GradientTape() as tape:
                cost = -tf.reduce_mean(self.critic(self.maker(tf.random.normal((count, 64)))))
            self.of_maker.apply_gradients(zip(tape.gradient(cost, self.maker.trainable_variables), self.maker.trainable_variables))
            return {"loss": loss, "cost": cost}

    m = WGAN()
    m.compile()
    x = rng.random((3840, 784), np.float32)
    return lambda: m.fit(x, batch_size=256, verbose=0, epochs=2), None


@case("")
def a_wide_and_deep_table():
    """keras.io/examples/structured_data/wide_deep_cross_networks: crosses beside dense layers, on a large batch."""
    keras, np, tf, rng = tools()
    start = keras.Input((54,))
    cross = start
    for _ in range(3):
        cross = start * keras.layers.Dense(54)(cross) + cross
    deep = start
    for _ in range(3):
        deep = keras.layers.Dropout(0.1)(keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Dense(512)(deep))))
    end = keras.layers.Dense(7)(keras.layers.concatenate([cross, deep]))
    x, y = rng.random((16000, 54), np.float32), rng.integers(0, 7, 16000)
    return fits(keras.Model(start, end), x, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch_size=1024, epochs=2)


@case("")
def films_recommended_by_factors():
    """keras.io/examples/structured_data/collaborative_filtering_for_movielens, with large batches."""
    keras, np, tf, rng = tools()
    start = keras.Input((2,), dtype="int32")
    user, film = keras.layers.Embedding(6000, 256)(start[:, 0]), keras.layers.Embedding(4000, 256)(start[:, 1])
    joint = keras.layers.Dense(256, activation="relu")(keras.layers.concatenate([user, film]))
    m = keras.Model(start, keras.layers.Dense(1, activation="sigmoid")(joint))
    pairs = np.stack([rng.integers(0, 6000, 60000), rng.integers(0, 4000, 60000)], 1).astype("int32")
    return fits(m, pairs, rng.random(60000, np.float32), "binary_crossentropy", batch_size=2048)


@case("")
def patches_mixed_by_dense_layers():
    """keras.io/examples/vision/mlp_image_classification: an MLP-Mixer, small."""
    keras, np, tf, rng = tools()
    start = keras.Input((32, 32, 3))
    h = keras.layers.Reshape((64, 96))(keras.layers.Conv2D(96, 4, strides=4)(start))
    for _ in range(3):
        across = keras.layers.Permute((2, 1))(keras.layers.LayerNormalization()(h))
        h = h + keras.layers.Permute((2, 1))(keras.layers.Dense(64)(keras.layers.Dense(64, activation="gelu")(across)))
        h = h + keras.layers.Dense(96)(keras.layers.Dense(192, activation="gelu")(keras.layers.LayerNormalization()(h)))
    end = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling1D()(h))
    x, y = rng.random((768, 32, 32, 3), np.float32), rng.integers(0, 10, 768)
    return fits(keras.Model(start, end), x, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch_size=128, epochs=2)


@case("")
def next_frames_by_convolutional_memory():
    """keras.io/examples/vision/conv_lstm, small."""
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((8, 24, 24, 1)), keras.layers.ConvLSTM2D(16, 5, padding="same", return_sequences=True), keras.layers.Conv3D(1, 3, padding="same")])
    x = rng.random((96, 8, 24, 24, 1), np.float32)
    return fits(m, x, x, "binary_crossentropy", batch_size=16)


@case("")
def words_by_their_neighbours():
    """tensorflow.org/text/tutorials/word2vec: one true and four drawn neighbours, cached and prefetched."""
    keras, np, tf, rng = tools()

    class Word2Vec(keras.Model):
        def __init__(self):
            super().__init__()
            self.target, self.context = keras.layers.Embedding(4096, 256), keras.layers.Embedding(4096, 256)

        def call(self, pair):
            return tf.einsum("be,bce->bc", self.target(pair[0]), self.context(pair[1]))

    m = Word2Vec()
    m.compile("adam", keras.losses.CategoricalCrossentropy(from_logits=True))
    words, others = rng.integers(0, 4096, 40000), rng.integers(0, 4096, (40000, 5))
    labels = np.tile(np.eye(5, dtype="float32")[:1], (40000, 1))
    data = tf.data.Dataset.from_tensor_slices(((words, others), labels)).shuffle(1000).batch(1024, drop_remainder=True).cache().prefetch(tf.data.AUTOTUNE)
    return lambda: m.fit(data, epochs=2, verbose=0), None


@case("")
def a_picture_in_the_style_of_another():
    """tensorflow.org/tutorials/generative/style_transfer, with a small network: targets before the loop, one compiled step."""
    keras, np, tf, rng = tools()
    start = h = keras.Input((160, 160, 3))
    layers = []
    for width in (16, 32, 48):
        h = keras.layers.Conv2D(width, 3, strides=2, activation="relu")(h)
        layers.append(h)
    features = keras.Model(start, layers)
    features.trainable = False
    gram = lambda f: tf.einsum("bijc,bijd->bcd", f, f) / tf.cast(tf.size(f), tf.float32)
    style, content = (tf.constant(rng.random((1, 160, 160, 3), np.float32)) for _ in range(2))
    wanted, kept = [gram(f) for f in features(style)], features(content)[-1]
    picture, optimizer = tf.Variable(content), keras.optimizers.Adam(0.02)

    @tf.function
    def paint(picture):
        with tf.GradientTape() as tape:
            found = features(picture)
            loss = tf.add_n([tf.reduce_mean((gram(f) - w) ** 2) for f, w in zip(found, wanted)]) + tf.reduce_mean((found[-1] - kept) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, picture), picture)])
        picture.assign(tf.clip_by_value(picture, 0.0, 1.0))

    return lambda: [paint(picture) for _ in range(60)], None


@case("")
def sums_learned_digit_by_digit():
    """keras.io/examples/nlp/addition_rnn: sequence to sequence over characters."""
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((7, 12)), keras.layers.LSTM(128), keras.layers.RepeatVector(4), keras.layers.LSTM(128, return_sequences=True), keras.layers.Dense(12)])
    x = np.eye(12, dtype="float32")[rng.integers(0, 12, (3200, 7))]
    y = rng.integers(0, 12, (3200, 4))
    return fits(m, x, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch_size=128)
