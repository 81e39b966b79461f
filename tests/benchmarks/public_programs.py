"""Programs after public examples and questions, as they are written there and with their remedy; none was looked at while rules were made.

Sources: keras.io examples (MNIST convnet, text transformer, weather LSTM, DCGAN), TensorFlow's guides (custom training, tf.data, confusion
matrix in TensorBoard, checkpoints) and what is asked again and again (predict in a loop of reinforcement learning, py_function, a
Sequence in Python, shapes that change). ``gains.py`` runs them with its own.
"""

import tempfile

PROGRAMS = {}


def case(rule):
    """A function that gives the cell and the changed cell, None where nothing is to be changed; the rule that should come first."""

    def add(make):
        PROGRAMS[make.__name__] = make, rule, {}
        return make

    return add


def tools():
    import keras
    import numpy as np
    import tensorflow as tf

    return keras, np, tf, np.random.default_rng(0)


@case("predict-in-a-loop")
def dqn_predicts_each_step():
    """keras-rl style: model.predict(state) in each environment step, train_on_batch now and then."""
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(2)])
    m.compile("adam", "mse")
    f = tf.function(lambda x: m(x, training=False), reduce_retracing=True)

    def episode(act):
        s = rng.random((1, 4)).astype("float32")
        mem = []
        for t in range(60):
            q = act(s)
            mem.append((s, q))
            s = rng.random((1, 4)).astype("float32")
            if len(mem) % 20 == 0:
                m.train_on_batch(np.concatenate([a for a, _ in mem[-16:]]), np.concatenate([b for _, b in mem[-16:]]))

    return lambda: episode(lambda s: m.predict(s, verbose=0)), lambda: episode(lambda s: f(s).numpy())


@case("eager-ops")
def gan_train_step_without_function():
    """DCGAN tutorial with the decorator forgotten."""
    keras, np, tf, rng = tools()
    g = keras.Sequential(
        [keras.Input((32,)), keras.layers.Dense(64), keras.layers.LeakyReLU(), keras.layers.Dense(64), keras.layers.LeakyReLU(), keras.layers.Dense(100)]
    )
    d = keras.Sequential([keras.Input((100,)), keras.layers.Dense(64), keras.layers.LeakyReLU(), keras.layers.Dense(1)])
    go, do = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
    ce = keras.losses.BinaryCrossentropy(from_logits=True)
    X = tf.constant(rng.random((64, 100)).astype("float32"))

    def train_step(x):
        z = tf.random.normal((64, 32))
        with tf.GradientTape() as gt, tf.GradientTape() as dt:
            f = g(z, training=True)
            r, o = d(x, training=True), d(f, training=True)
            gl = ce(tf.ones_like(o), o)
            dl = ce(tf.ones_like(r), r) + ce(tf.zeros_like(o), o)
        go.apply_gradients(zip(gt.gradient(gl, g.trainable_variables), g.trainable_variables))
        do.apply_gradients(zip(dt.gradient(dl, d.trainable_variables), d.trainable_variables))
        return gl

    train_step(X)
    fast = tf.function(train_step)
    fast(X)

    def run(step):
        for _ in range(60):
            step(X)

    return lambda: run(train_step), lambda: run(fast)


@case("input-bound")
def csv_parsed_without_parallel_map():
    keras, np, tf, rng = tools()
    rows = [",".join(f"{v:.5f}" for v in r) for r in rng.random((6000, 40))]

    def parse(l):
        v = tf.stack(tf.io.decode_csv(l, [[0.0]] * 40))
        return v[:39], v[39:]

    m = keras.Sequential([keras.Input((39,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    ds = tf.data.Dataset.from_tensor_slices(rows)
    slow = ds.map(parse).batch(32)
    fast = ds.batch(32).map(parse_b(tf), num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    m.fit(slow.take(2), verbose=0)
    return lambda: m.fit(slow, verbose=0), lambda: m.fit(fast, verbose=0)


def parse_b(tf):
    def parse(l):
        v = tf.stack(tf.io.decode_csv(l, [[0.0]] * 40), 1)
        return v[:, :39], v[:, 39:]

    return parse


@case("python-input")
def py_function_augments():
    """tf.py_function/numpy_function augmentation, as in many questions."""
    keras, np, tf, rng = tools()
    X = rng.random((1500, 32, 32, 3)).astype("float32")
    Y = rng.integers(0, 10, 1500)

    def aug(x):
        for _ in range(3):
            x = np.clip((x - x.mean()) / (x.std() + 1e-3) * 0.2 + 0.5, 0, 1).astype("float32")
        return x[:, ::-1]

    def m1(x, y):
        z = tf.numpy_function(aug, [x], tf.float32)
        z.set_shape((32, 32, 3))
        return z, y

    def m2(x, y):
        for _ in range(3):
            x = tf.clip_by_value((x - tf.reduce_mean(x)) / (tf.math.reduce_std(x) + 1e-3) * 0.2 + 0.5, 0, 1)
        return x[:, ::-1], y

    m = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    m.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ds = tf.data.Dataset.from_tensor_slices((X, Y))
    slow = ds.map(m1).batch(32)
    fast = ds.map(m2, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(2)
    m.fit(slow.take(1), verbose=0)
    m.fit(fast.take(1), verbose=0)
    return lambda: m.fit(slow, epochs=3, verbose=0), lambda: m.fit(fast, epochs=3, verbose=0)


@case("callback")
def confusion_matrix_callback():
    """Keras: log a confusion matrix each epoch with model.predict in on_epoch_end (TensorBoard tutorial)."""
    keras, np, tf, rng = tools()
    X = rng.random((2000, 28, 28)).astype("float32")
    Y = rng.integers(0, 10, 2000)
    T = rng.random((6000, 28, 28)).astype("float32")
    TY = rng.integers(0, 10, 6000)
    m = keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def log_confusion(epoch, logs):
        p = np.argmax(m.predict(T, verbose=0), 1)
        c = np.zeros((10, 10), int)
        for a, b in zip(TY, p):
            c[a, b] += 1

    m.fit(X[:64], Y[:64], verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=log_confusion)])
    return lambda: m.fit(X, Y, epochs=6, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=log_confusion)]), lambda: m.fit(
        X, Y, epochs=6, verbose=0
    )


@case("retracing")
def shapes_differ_in_each_batch():
    """Variable-length sequences given to a tf.function as they come."""
    keras, np, tf, rng = tools()
    w = tf.Variable(tf.random.normal((16, 16)))

    def make():
        @tf.function
        def step(x):
            return tf.reduce_sum(tf.tanh(x @ w))

        return step

    def run(pad):
        step = make()
        for n in list(range(10, 70)):
            step(tf.constant(rng.random((80 if pad else n, 16)).astype("float32")))

    run(True)
    return lambda: run(False), lambda: run(True)


@case("eager-ops")
def run_eagerly_left_on():
    keras, np, tf, rng = tools()
    X = rng.random((1200, 20)).astype("float32")
    Y = rng.random((1200, 1)).astype("float32")

    def model(e):
        m = keras.Sequential([keras.Input((20,)), *[keras.layers.Dense(32, "relu") for _ in range(4)], keras.layers.Dense(1)])
        m.compile("adam", "mse", run_eagerly=e)
        m.fit(X[:32], Y[:32], verbose=0)
        return m

    a, b = model(True), model(False)
    return lambda: a.fit(X, Y, epochs=2, verbose=0), lambda: b.fit(X, Y, epochs=2, verbose=0)


@case("own-python")
def progress_plotted_each_step():
    """A loop that redraws a plot of the losses after each step (here: sorts and formats them)."""
    keras, np, tf, rng = tools()
    w = tf.Variable(tf.random.normal((64, 64)))
    losses = []

    @tf.function
    def step(x):
        return tf.reduce_mean(tf.tanh(x @ w))

    x = tf.constant(rng.random((32, 64)).astype("float32"))
    step(x)

    def plot():
        s = " ".join(f"{v:.3f}" for v in sorted(losses[-1500:]))
        return len(s)

    def run(draw):
        losses.clear()
        losses.extend(rng.random(1500))
        for _ in range(250):
            losses.append(float(step(x)))
            if draw:
                plot()

    return lambda: run(True), lambda: run(False)


@case("checkpoints")
def checkpoint_saved_each_step():
    keras, np, tf, rng = tools()
    d = tempfile.mkdtemp()
    w = [tf.Variable(tf.random.normal((200, 200))) for _ in range(6)]
    ck = tf.train.Checkpoint(w=w)
    man = tf.train.CheckpointManager(ck, d, max_to_keep=2)

    @tf.function
    def step(x):
        for v in w:
            x = tf.tanh(x @ v)
        return x

    x = tf.constant(rng.random((16, 200)).astype("float32"))
    step(x)
    man.save()

    def run(every):
        for i in range(60):
            step(x)
            if i % every == 0:
                man.save()

    return lambda: run(1), lambda: run(30)


@case("")
def mnist_convnet():
    """keras.io: Simple MNIST convnet, shortened."""
    keras, np, tf, rng = tools()
    X = rng.random((1500, 28, 28, 1)).astype("float32")
    Y = rng.integers(0, 10, 1500)
    m = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    m.compile("adam", "sparse_categorical_crossentropy")
    m.fit(X[:128], Y[:128], batch_size=128, verbose=0)
    return lambda: m.fit(X, Y, batch_size=128, epochs=2, validation_split=0.1, verbose=0), None


@case("")
def transformer_block_text():
    keras, np, tf, rng = tools()
    i = keras.Input((40,))
    e = keras.layers.Embedding(2000, 32)(i)
    a = keras.layers.MultiHeadAttention(2, 32)(e, e)
    h = keras.layers.LayerNormalization()(a + e)
    f = keras.layers.Dense(64, "relu")(h)
    f = keras.layers.Dense(32)(f)
    o = keras.layers.Dense(2, "softmax")(keras.layers.GlobalAveragePooling1D()(h + f))
    m = keras.Model(i, o)
    m.compile("adam", "sparse_categorical_crossentropy")
    X = rng.integers(0, 2000, (3000, 40))
    Y = rng.integers(0, 2, 3000)
    m.fit(X[:64], Y[:64], verbose=0)
    return lambda: m.fit(X, Y, batch_size=64, epochs=2, verbose=0), None


@case("")
def custom_loop_done_right():
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((100,)), keras.layers.Dense(400, "relu"), keras.layers.Dense(400, "relu"), keras.layers.Dense(10)])
    opt = keras.optimizers.Adam()
    L = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    X = rng.random((6000, 100)).astype("float32")
    Y = rng.integers(0, 10, 6000)
    ds = tf.data.Dataset.from_tensor_slices((X, Y)).cache().shuffle(6000).batch(100).prefetch(tf.data.AUTOTUNE)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as t:
            l = L(y, m(x, training=True))
        opt.apply_gradients(zip(t.gradient(l, m.trainable_variables), m.trainable_variables))
        return l

    for x, y in ds.take(1):
        train_step(x, y)

    def run():
        for epoch in range(3):
            for x, y in ds:
                l = train_step(x, y)
            float(l)

    return run, None


@case("")
def lstm_weather():
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((24, 7)), keras.layers.LSTM(32), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    X = rng.random((2000, 24, 7)).astype("float32")
    Y = rng.random((2000, 1)).astype("float32")
    m.fit(X[:64], Y[:64], verbose=0, batch_size=64)
    return lambda: m.fit(X, Y, batch_size=64, epochs=2, verbose=0), None


@case("")
def fit_with_usual_callbacks():
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((100,)), keras.layers.Dense(500, "relu"), keras.layers.Dense(500, "relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    X = rng.random((8000, 100)).astype("float32")
    Y = rng.random((8000, 1)).astype("float32")
    m.fit(X[:128], Y[:128], verbose=0, batch_size=128)
    return lambda: m.fit(
        X,
        Y,
        batch_size=128,
        epochs=3,
        validation_split=0.1,
        verbose=0,
        callbacks=[keras.callbacks.EarlyStopping(patience=5), keras.callbacks.ReduceLROnPlateau()],
    ), None


@case("")
def big_matmul_function():
    keras, np, tf, rng = tools()
    a = tf.constant(rng.random((700, 700)).astype("float32"))

    @tf.function
    def f(x):
        for _ in range(3):
            x = tf.tanh(x @ a * 0.001)
        return x

    f(a)
    return lambda: [f(a) for _ in range(60)], None


@case("predict-in-a-loop")
def evaluate_each_class():
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    X = rng.random((1000, 16)).astype("float32")
    Y = rng.integers(0, 10, 1000)
    parts = [(X[i::40], Y[i::40]) for i in range(40)]
    m.evaluate(*parts[0], verbose=0)
    m.evaluate(X, Y, verbose=0)
    return lambda: [m.evaluate(*p, verbose=0) for p in parts], lambda: m.evaluate(X, Y, verbose=0)


@case("epoch-ends")
def one_batch_epochs():
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    X = rng.random((64, 8)).astype("float32")
    Y = rng.random((64, 1)).astype("float32")
    m.fit(X, Y, batch_size=64, verbose=0)
    ds = tf.data.Dataset.from_tensors((X, Y)).repeat()
    m.fit(ds, steps_per_epoch=2, epochs=1, verbose=0)
    return lambda: m.fit(X, Y, batch_size=64, epochs=60, verbose=0), lambda: m.fit(ds, steps_per_epoch=60, epochs=1, verbose=0)


@case("eager-ops")
def metrics_by_hand_between_steps():
    keras, np, tf, rng = tools()
    w = tf.Variable(tf.random.normal((64, 10)))
    X = tf.constant(rng.random((128, 64)).astype("float32"))
    Y = tf.constant(rng.integers(0, 10, 128))

    @tf.function
    def train(x):
        return tf.nn.softmax(x @ w)

    def f1(p, y):
        out = []
        h = tf.argmax(p, 1)
        for c in range(10):
            tp = tf.reduce_sum(tf.cast((h == c) & (y == c), tf.float32))
            fp = tf.reduce_sum(tf.cast((h == c) & (y != c), tf.float32))
            fn = tf.reduce_sum(tf.cast((h != c) & (y == c), tf.float32))
            out.append(2 * tp / (2 * tp + fp + fn + 1e-6))
        return tf.reduce_mean(tf.stack(out))

    ff = tf.function(f1)
    p = train(X)
    f1(p, Y)
    ff(p, Y)

    def run(m):
        for _ in range(60):
            m(train(X), Y)

    return lambda: run(f1), lambda: run(ff)


@case("python-input")
def pydataset_makes_batches():
    """keras.utils.PyDataset whose __getitem__ does slow Python."""
    keras, np, tf, rng = tools()
    X = rng.random((1600, 20)).astype("float32")
    txt = [[str(v) for v in r] for r in X]
    Y = rng.random((1600, 1)).astype("float32")

    class D(keras.utils.PyDataset):
        def __init__(s, slow):
            super().__init__()
            s.slow = slow

        def __len__(s):
            return 50

        def __getitem__(s, i):
            k = slice(i * 32, i * 32 + 32)
            return (np.array([[float(v) for v in r] for r in txt[k] for _ in range(10)], "float32")[::10] if s.slow else X[k]), Y[k]

    m = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    m.fit(D(False), verbose=0)
    return lambda: m.fit(D(True), epochs=3, verbose=0), lambda: m.fit(D(False), epochs=3, verbose=0)


@case("validation")
def validates_on_far_more_than_it_trains():
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((20,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")
    X = rng.random((1000, 20)).astype("float32")
    Y = rng.random((1000, 1)).astype("float32")
    V = rng.random((20000, 20)).astype("float32")
    VY = rng.random((20000, 1)).astype("float32")
    m.fit(X[:64], Y[:64], validation_data=(V[:64], VY[:64]), verbose=0)
    return lambda: m.fit(X, Y, epochs=5, validation_data=(V, VY), verbose=0), lambda: m.fit(
        X, Y, epochs=5, validation_data=(V, VY), validation_freq=5, verbose=0
    )
