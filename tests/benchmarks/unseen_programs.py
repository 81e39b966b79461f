"""Twenty-four programs that nobody tuned to, written by somebody who had read no rule: thirteen with a mistake, eleven healthy.

Each is there where its framework is: ``/path/to/python tests/benchmarks/gains.py NAME``.
"""

import math
import os
import tempfile

from public_programs import case
from row_programs import of


@case("cache-input")
def flowers_from_jpeg_files():
    """Image classification from scratch: files read and decoded anew in each epoch; cache() after decoding."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(3)
    folder = tempfile.mkdtemp()
    paths, labels = [], rng.integers(0, 5, 360).astype("int32")
    for i in range(360):
        small = tf.image.resize(rng.random((12, 12, 3), np.float32) * 255, (256, 256))
        path = os.path.join(folder, f"{i}.jpg")
        tf.io.write_file(path, tf.io.encode_jpeg(tf.cast(small, tf.uint8)))
        paths.append(path)

    def load_image(path, label):
        img = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(img, (64, 64)) / 255.0, label

    model = keras.Sequential([
        keras.Input((64, 64, 3)), keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
        keras.layers.MaxPooling2D(), keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

    def cell():
        train_ds = (tf.data.Dataset.from_tensor_slices((paths, labels))
                    .map(load_image, num_parallel_calls=tf.data.AUTOTUNE)
                    .shuffle(200).batch(32).prefetch(tf.data.AUTOTUNE))
        model.fit(train_ds, epochs=6, verbose=0)

    def changed():
        train_ds = (tf.data.Dataset.from_tensor_slices((paths, labels))
                    .map(load_image, num_parallel_calls=tf.data.AUTOTUNE).cache()
                    .shuffle(200).batch(32).prefetch(tf.data.AUTOTUNE))
        model.fit(train_ds, epochs=6, verbose=0)
    return cell, changed


@case("input-bound")
def reviews_vectorized_line_by_line():
    """Text classification: TextVectorization mapped over single lines, before batch()."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(4)
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, rng.integers(3, 9))) for _ in range(3000)]
    path = os.path.join(tempfile.mkdtemp(), "reviews.txt")
    with open(path, "w") as f:
        for _ in range(6000):
            f.write(f"{rng.integers(0, 2)}\t" + " ".join(rng.choice(words, 40)) + "\n")
    vectorize = keras.layers.TextVectorization(max_tokens=3000, output_sequence_length=40)
    vectorize.adapt(words)

    def parse(line):
        parts = tf.strings.split(line, "\t")
        return vectorize(parts[1]), tf.strings.to_number(parts[0])

    def parse_batch(lines):
        parts = tf.strings.split(lines, "\t").to_tensor()
        return vectorize(parts[:, 1]), tf.strings.to_number(parts[:, 0])

    model = keras.Sequential([keras.Input((40,)), keras.layers.Embedding(3000, 16),
                              keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(16, activation="relu"),
                              keras.layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])

    def cell():
        ds = tf.data.TextLineDataset(path).shuffle(2000).map(parse).batch(64).prefetch(1)
        model.fit(ds, epochs=2, verbose=0)

    def changed():
        ds = tf.data.TextLineDataset(path).shuffle(2000).batch(64).map(parse_batch).prefetch(1)
        model.fit(ds, epochs=2, verbose=0)
    return cell, changed


@case("predict-in-a-loop")
def deep_q_cartpole():
    """DQN on a cart pole: model.predict for each action of one state."""
    import keras, numpy as np, random, tensorflow as tf

    class CartPole:
        def reset(self):
            self.s = np.random.uniform(-0.05, 0.05, 4)
            return self.s.astype("float32")

        def step(self, action):
            x, v, th, w = self.s
            force = 10.0 if action else -10.0
            tmp = (force + 0.05 * w * w * math.sin(th)) / 1.1
            thacc = (9.8 * math.sin(th) - math.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1))
            xacc = tmp - 0.05 * thacc * math.cos(th) / 1.1
            self.s = self.s + 0.02 * np.array([v, xacc, w, thacc])
            return self.s.astype("float32"), 1.0, bool(abs(self.s[2]) > 0.21 or abs(self.s[0]) > 2.4)

    q_net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(24, activation="relu"),
                              keras.layers.Dense(24, activation="relu"), keras.layers.Dense(2)])
    q_net.compile(keras.optimizers.Adam(1e-3), "mse")
    env, memory = CartPole(), []

    def replay():
        s, a, r, s2, d = map(np.array, zip(*random.sample(memory, min(32, len(memory)))))
        target = q_net.predict_on_batch(s)
        target[np.arange(len(a)), a] = r + 0.95 * q_net.predict_on_batch(s2).max(1) * (1 - d)
        q_net.train_on_batch(s, target)

    @tf.function
    def q_values(state):
        return q_net(state, training=False)

    def choose(state):
        return int(np.argmax(q_net.predict(state[None], verbose=0)[0]))

    def choose_fast(state):
        return int(np.argmax(q_values(state[None]).numpy()[0]))

    def play(policy):
        state = env.reset()
        for i in range(48):
            action = random.randrange(2) if random.random() < 0.1 else policy(state)
            new, reward, done = env.step(action)
            memory.append((state, action, reward, new, float(done)))
            state = env.reset() if done else new
            if i % 8 == 7:
                replay()
    return lambda: play(choose), lambda: play(choose_fast)


@case("retracing")
def river_level_with_decaying_rate():
    """Custom loop on a time series; the learning rate goes in as a Python float: traced anew at each step."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(5)
    series = np.cumsum(rng.normal(size=4000)).astype("float32") / 20
    win = np.stack([series[i:i + 48] for i in range(3000)])[..., None]
    nxt = np.stack([series[i + 48] for i in range(3000)])[:, None]

    def build():
        m = keras.Sequential([keras.Input((48, 1)), keras.layers.Conv1D(16, 5, activation="relu"),
                              keras.layers.Conv1D(16, 5, activation="relu"), keras.layers.Flatten(),
                              keras.layers.Dense(1)])
        return m
    model = build()
    batches = list(tf.data.Dataset.from_tensor_slices((win, nxt)).batch(125))

    def train(rate_of):
        @tf.function
        def train_step(x, y, lr):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            for w, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
                w.value.assign_sub(lr * g)
            return loss
        lr = 0.01
        for x, y in batches:
            loss = train_step(x, y, rate_of(lr))
            lr = lr * 0.97
        return float(loss)
    return lambda: train(float), lambda: train(tf.constant)


@case("one-hot")
def movie_ratings_one_hot():
    """Recommendation: ids one-hot encoded into Dense instead of Embedding."""
    import keras, numpy as np
    rng = np.random.default_rng(6)
    users, items = rng.integers(0, 3000, 12000), rng.integers(0, 9000, 12000)
    stars = rng.integers(1, 6, 12000).astype("float32")

    def tower_onehot(inp, n):
        x = keras.layers.CategoryEncoding(n, output_mode="one_hot")(inp)
        return keras.layers.Dense(32)(x)

    def tower_embed(inp, n):
        return keras.layers.Flatten()(keras.layers.Embedding(n, 32)(inp))

    def build(tower):
        u, i = keras.Input((1,), dtype="int32", name="user"), keras.Input((1,), dtype="int32", name="item")
        x = keras.layers.Concatenate()([tower(u, 3000), tower(i, 9000)])
        x = keras.layers.Dense(64, activation="relu")(x)
        m = keras.Model([u, i], keras.layers.Dense(1)(x))
        m.compile("adam", "mse")
        return m
    slow, fast = build(tower_onehot), build(tower_embed)

    def cell():
        slow.fit([users[:, None], items[:, None]], stars, batch_size=128, epochs=1, verbose=0)

    def changed():
        fast.fit([users[:, None], items[:, None]], stars, batch_size=128, epochs=1, verbose=0)
    return cell, changed


@case("callback")
def digits_saved_too_often():
    """ModelCheckpoint with save_freq=5 batches instead of once an epoch."""
    import keras, numpy as np
    rng = np.random.default_rng(7)
    images, labels = rng.random((2560, 28, 28), np.float32), rng.integers(0, 10, 2560)
    path = os.path.join(tempfile.mkdtemp(), "best.keras")
    net = keras.Sequential([keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(256, activation="relu"),
                            keras.layers.Dropout(0.2), keras.layers.Dense(10)])
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])

    def cell():
        keep = keras.callbacks.ModelCheckpoint(path, save_freq=5)
        net.fit(images, labels, batch_size=64, epochs=2, callbacks=[keep], verbose=0)

    def changed():
        keep = keras.callbacks.ModelCheckpoint(path, save_freq="epoch")
        net.fit(images, labels, batch_size=64, epochs=2, callbacks=[keep], verbose=0)
    return cell, changed


@case("unlearned")
def pets_head_on_frozen_backbone():
    """Transfer learning: the frozen backbone is run in every epoch; its features computed once."""
    import keras, numpy as np
    rng = np.random.default_rng(8)
    pics, kinds = rng.random((160, 96, 96, 3), np.float32), rng.integers(0, 3, 160)
    base = keras.applications.MobileNetV2((96, 96, 3), alpha=0.35, include_top=False, weights=None, pooling="avg")
    base.trainable = False
    model = keras.Sequential([keras.Input((96, 96, 3)), base, keras.layers.Dropout(0.2), keras.layers.Dense(3)])
    head = keras.Sequential([keras.Input(base.output_shape[1:]), keras.layers.Dropout(0.2), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    head.compile("adam", loss, metrics=["accuracy"])

    def cell():
        model.fit(pics, kinds, batch_size=32, epochs=6, verbose=0)

    def changed():
        features = base.predict(pics, batch_size=32, verbose=0)
        head.fit(features, kinds, batch_size=32, epochs=6, verbose=0)
    return cell, changed


@case("python-input")
def house_prices_row_by_row():
    """Kaggle tabular: a keras PyDataset that takes each row by df.iloc."""
    import keras, numpy as np, pandas as pd
    rng = np.random.default_rng(9)
    cols = [f"feature_{i}" for i in range(20)]
    df = pd.DataFrame(rng.random((4096, 20)), columns=cols)
    df["price"] = df[cols].sum(axis=1) + rng.normal(size=4096)

    class HouseRows(keras.utils.PyDataset):
        def __init__(self, frame, batch_size=64):
            super().__init__()
            self.frame, self.batch_size = frame, batch_size

        def __len__(self):
            return len(self.frame) // self.batch_size

        def __getitem__(self, idx):
            xs, ys = [], []
            for i in range(idx * self.batch_size, (idx + 1) * self.batch_size):
                row = self.frame.iloc[i]
                xs.append(row[cols].to_numpy("float32"))
                ys.append(row["price"])
            return np.array(xs), np.array(ys, "float32")

    class HouseArrays(HouseRows):
        def __init__(self, frame, batch_size=64):
            super().__init__(frame, batch_size)
            self.x, self.y = frame[cols].to_numpy("float32"), frame["price"].to_numpy("float32")

        def __getitem__(self, idx):
            s = slice(idx * self.batch_size, (idx + 1) * self.batch_size)
            return self.x[s], self.y[s]

    reg = keras.Sequential([keras.Input((20,)), keras.layers.Dense(64, activation="relu"),
                            keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    reg.compile("rmsprop", "mae")

    def cell():
        reg.fit(HouseRows(df), epochs=2, verbose=0)

    def changed():
        reg.fit(HouseArrays(df), epochs=2, verbose=0)
    return cell, changed


@case("python-in-the-step")
def fraud_auc_in_python():
    """Kaggle: AUC as a metric by tf.py_function in each step, instead of keras.metrics.AUC."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(10)
    x, y = rng.random((8192, 30), np.float32), (rng.random((8192, 1)) < 0.4).astype("float32")

    def rank_auc(y_true, y_score):
        t, s = y_true.numpy().ravel(), y_score.numpy().ravel()
        pos = [v for v, k in zip(s, t) if k > 0.5]
        neg = [v for v, k in zip(s, t) if k <= 0.5]
        if not pos or not neg:
            return np.float32(0.5)
        wins = 0.0
        for p in pos:
            for q in neg:
                if p > q:
                    wins += 1.0
        return np.float32(wins / (len(pos) * len(neg)))

    def auc(y_true, y_pred):
        value = tf.py_function(rank_auc, (y_true, y_pred), tf.float32)
        value.set_shape(())
        return value

    def build(metric):
        m = keras.Sequential([keras.Input((30,)), keras.layers.Dense(64, activation="relu"),
                              keras.layers.BatchNormalization(), keras.layers.Dense(1, activation="sigmoid")])
        m.compile("adam", "binary_crossentropy", metrics=[metric])
        return m
    slow, fast = build(auc), build(keras.metrics.AUC())

    def cell():
        slow.fit(x, y, batch_size=512, epochs=5, verbose=0)

    def changed():
        fast.fit(x, y, batch_size=512, epochs=5, verbose=0)
    return cell, changed


@of("torch", "waiting-for-input")
def sensors_from_python_lists():
    """PyTorch Dataset that makes a tensor of a Python list for each sample."""
    import numpy as np, torch
    from torch.utils.data import DataLoader, Dataset
    rng = np.random.default_rng(11)
    readings = rng.random((4000, 300)).tolist()
    state = rng.integers(0, 4, 4000).tolist()

    class Readings(Dataset):
        def __init__(self, rows, labels):
            self.rows, self.labels = rows, labels

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            return torch.tensor(self.rows[i], dtype=torch.float32), torch.tensor(self.labels[i])

    as_lists = DataLoader(Readings(readings, state), batch_size=64, shuffle=True)
    as_tensors = DataLoader(torch.utils.data.TensorDataset(torch.tensor(readings), torch.tensor(state)), batch_size=64, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Linear(300, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    opt = torch.optim.Adam(net.parameters())
    lossf = torch.nn.CrossEntropyLoss()

    def train(loader):
        for _ in range(6):
            for xb, yb in loader:
                opt.zero_grad()
                loss = lossf(net(xb), yb)
                loss.backward()
                opt.step()
    return lambda: train(as_lists), lambda: train(as_tensors)


@of("torch", "small-ops")
def sine_with_lstm_cells():
    """The PyTorch time-sequence example: nn.LSTMCell in a Python loop over time instead of nn.LSTM."""
    import numpy as np, torch
    from torch import nn
    t = np.arange(81)[None] / 6 + np.random.default_rng(12).random((64, 1)) * 6
    wave = torch.tensor(np.sin(t), dtype=torch.float32)

    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell1, self.out = nn.LSTMCell(1, 48), nn.Linear(48, 1)

        def forward(self, x):
            h = c = torch.zeros(x.size(0), 48)
            outs = []
            for step in x.split(1, dim=1):
                h, c = self.cell1(step, (h, c))
                outs.append(self.out(h))
            return torch.cat(outs, 1)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(1, 48, batch_first=True), nn.Linear(48, 1)

        def forward(self, x):
            return self.out(self.lstm(x[..., None])[0])[..., 0]

    def trainer(net):
        opt, lossf = torch.optim.Adam(net.parameters(), 1e-2), nn.MSELoss()

        def train():
            for _ in range(40):
                opt.zero_grad()
                loss = lossf(net(wave[:, :-1]), wave[:, 1:])
                loss.backward()
                opt.step()
        return train
    return trainer(Cells()), trainer(Whole())


@of("jax", "recompiling")
def spirals_jit_each_epoch():
    """JAX: the update is jitted anew in each epoch with another learning rate bound by partial."""
    import functools, jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(13)
    x, y = jnp.asarray(rng.random((512, 2)), jnp.float32), jnp.asarray(rng.integers(0, 3, 512))
    params = [(jnp.asarray(rng.normal(size=s) * 0.3, jnp.float32), jnp.zeros(s[1])) for s in [(2, 64), (64, 64), (64, 3)]]

    def logits(p, h):
        for w, b in p[:-1]:
            h = jax.nn.relu(h @ w + b)
        return h @ p[-1][0] + p[-1][1]

    def loss(p, xb, yb):
        return -jnp.mean(jax.nn.log_softmax(logits(p, xb))[jnp.arange(len(yb)), yb])

    def update(p, xb, yb, lr):
        return jax.tree.map(lambda w, g: w - lr * g, p, jax.grad(loss)(p, xb, yb))

    def cell():
        p = params
        for epoch in range(10):
            step = jax.jit(functools.partial(update, lr=0.1 * 0.9 ** epoch))
            for i in range(0, 512, 64):
                p = step(p, x[i:i + 64], y[i:i + 64])
        return jax.block_until_ready(p)
    jitted = jax.jit(update)

    def changed():
        p = params
        for epoch in range(10):
            for i in range(0, 512, 64):
                p = jitted(p, x[i:i + 64], y[i:i + 64], 0.1 * 0.9 ** epoch)
        return jax.block_until_ready(p)
    return cell, changed


@of("jax", "work-outside-jit")
def lorenz_stepped_from_python():
    """JAX: an ODE integrated by a jitted step in a Python loop, instead of lax.scan."""
    import jax, jax.numpy as jnp
    start = jnp.array([[1.0, 1.0, 1.0 + 0.01 * i] for i in range(32)])

    def field(s):
        x, y, z = s[:, 0], s[:, 1], s[:, 2]
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], 1)

    @jax.jit
    def rk4(s):
        k1 = field(s)
        k2 = field(s + 0.005 * k1)
        k3 = field(s + 0.005 * k2)
        k4 = field(s + 0.01 * k3)
        return s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def cell():
        s, path = start, []
        for _ in range(60000):
            s = rk4(s)
            path.append(s)
        return jnp.asarray(path[-1])

    @jax.jit
    def whole(s):
        return jax.lax.scan(lambda c, _: (rk4(c), rk4(c)), s, length=60000)

    def changed():
        return jax.block_until_ready(whole(start)[0])
    return cell, changed


@case("")
def dcgan_with_train_step():
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    real = np.random.default_rng(20).random((512, 28, 28, 1), np.float32)
    ds = tf.data.Dataset.from_tensor_slices(real).shuffle(512).batch(64, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    disc = keras.Sequential([keras.Input((28, 28, 1)), L.Conv2D(16, 4, strides=2, padding="same"), L.LeakyReLU(0.2),
                             L.Conv2D(32, 4, strides=2, padding="same"), L.LeakyReLU(0.2), L.Flatten(), L.Dense(1)])
    gen = keras.Sequential([keras.Input((64,)), L.Dense(7 * 7 * 32), L.Reshape((7, 7, 32)),
                            L.Conv2DTranspose(32, 4, strides=2, padding="same", activation="relu"),
                            L.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid")])

    class Gan(keras.Model):
        def compile(self, d_opt, g_opt, loss_fn):
            super().compile()
            self.d_opt, self.g_opt, self.loss_fn = d_opt, g_opt, loss_fn
            self.d_metric, self.g_metric = keras.metrics.Mean("d_loss"), keras.metrics.Mean("g_loss")

        def train_step(self, images):
            n = tf.shape(images)[0]
            both = tf.concat([gen(tf.random.normal((n, 64))), images], 0)
            labels = tf.concat([tf.ones((n, 1)), tf.zeros((n, 1))], 0)
            with tf.GradientTape() as tape:
                d_loss = self.loss_fn(labels, disc(both))
            self.d_opt.apply_gradients(zip(tape.gradient(d_loss, disc.trainable_weights), disc.trainable_weights))
            with tf.GradientTape() as tape:
                g_loss = self.loss_fn(tf.zeros((n, 1)), disc(gen(tf.random.normal((n, 64)))))
            self.g_opt.apply_gradients(zip(tape.gradient(g_loss, gen.trainable_weights), gen.trainable_weights))
            self.d_metric.update_state(d_loss)
            self.g_metric.update_state(g_loss)
            return {"d_loss": self.d_metric.result(), "g_loss": self.g_metric.result()}
    gan = Gan()
    gan.compile(keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-4), keras.losses.BinaryCrossentropy(from_logits=True))
    return lambda: gan.fit(ds, epochs=5, verbose=0), None


@case("")
def jena_weather_gru():
    import keras, numpy as np
    rng = np.random.default_rng(21)
    data = np.cumsum(rng.normal(size=(2200, 7)), 0).astype("float32") / 30
    make = lambda a, b: keras.utils.timeseries_dataset_from_array(data[a:b], data[a + 72:b, 1], 72, sampling_rate=3, batch_size=64)
    train, val = make(0, 1800).cache(), make(1800, 2200).cache()
    model = keras.Sequential([keras.Input((24, 7)), keras.layers.GRU(32), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return lambda: model.fit(train, validation_data=val, epochs=4, verbose=0), None


@case("")
def transformer_reads_imdb():
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(22)
    x, y = rng.integers(1, 5000, (640, 80)), rng.integers(0, 2, 640)

    @keras.saving.register_keras_serializable()
    class TokenAndPosition(L.Layer):
        def __init__(self, n, vocab, dim):
            super().__init__()
            self.tok, self.pos = L.Embedding(vocab, dim), L.Embedding(n, dim)

        def call(self, ids):
            return self.tok(ids) + self.pos(keras.ops.arange(keras.ops.shape(ids)[-1]))

    class Block(L.Layer):
        def __init__(self, dim, heads, ff):
            super().__init__()
            self.att, self.n1, self.n2 = L.MultiHeadAttention(heads, dim), L.LayerNormalization(), L.LayerNormalization()
            self.ffn, self.d = keras.Sequential([L.Dense(ff, activation="relu"), L.Dense(dim)]), L.Dropout(0.1)

        def call(self, h, training=None):
            h = self.n1(h + self.d(self.att(h, h), training=training))
            return self.n2(h + self.d(self.ffn(h), training=training))
    inp = keras.Input((80,), dtype="int32")
    h = L.GlobalAveragePooling1D()(Block(32, 2, 64)(TokenAndPosition(80, 5000, 32)(inp)))
    model = keras.Model(inp, L.Dense(2, activation="softmax")(L.Dropout(0.1)(h)))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return lambda: model.fit(x, y, batch_size=32, epochs=2, validation_split=0.2, verbose=0), None


@case("")
def census_with_preprocessing_layers():
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(23)
    n = 20000
    cols = {"age": rng.integers(17, 90, n).astype("float32"), "hours": rng.integers(1, 99, n).astype("float32"),
            "job": rng.choice(["clerk", "sales", "farm", "tech", "exec"], n), "state": rng.choice(["ny", "ca", "tx"], n)}
    label = rng.integers(0, 2, n)
    norm = {k: keras.layers.Normalization(axis=None) for k in ("age", "hours")}
    look = {k: keras.layers.StringLookup(output_mode="one_hot") for k in ("job", "state")}
    for k, l in norm.items():
        l.adapt(cols[k])
    for k, l in look.items():
        l.adapt(cols[k])

    def prepare(row, y):
        return tf.concat([norm[k](row[k])[:, None] for k in norm] + [tf.cast(look[k](row[k]), tf.float32) for k in look], 1), y
    ds = (tf.data.Dataset.from_tensor_slices((cols, label)).batch(256).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
          .cache().prefetch(tf.data.AUTOTUNE))
    width = ds.element_spec[0].shape[1]
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dropout(0.3),
                              keras.layers.Dense(128, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC()])
    return lambda: model.fit(ds, epochs=6, verbose=0), None


@case("")
def vae_of_fashion():
    import keras, numpy as np
    L, ops = keras.layers, keras.ops
    x = np.random.default_rng(24).random((1024, 28, 28, 1), np.float32)

    class Vae(keras.Model):
        def __init__(self):
            super().__init__()
            self.enc = keras.Sequential([keras.Input((28, 28, 1)), L.Conv2D(16, 3, 2, "same", activation="relu"),
                                         L.Conv2D(32, 3, 2, "same", activation="relu"), L.Flatten(), L.Dense(4)])
            self.dec = keras.Sequential([keras.Input((2,)), L.Dense(7 * 7 * 16, activation="relu"), L.Reshape((7, 7, 16)),
                                         L.Conv2DTranspose(16, 3, 2, "same", activation="relu"),
                                         L.Conv2DTranspose(1, 3, 2, "same", activation="sigmoid")])
            self.seed = keras.random.SeedGenerator(1)
            self.total = keras.metrics.Mean("loss")

        def train_step(self, data):
            import tensorflow as tf
            with tf.GradientTape() as tape:
                mean, logvar = ops.split(self.enc(data), 2, axis=1)
                z = mean + ops.exp(0.5 * logvar) * keras.random.normal(ops.shape(mean), seed=self.seed)
                rec = ops.mean(ops.sum(keras.losses.binary_crossentropy(data, self.dec(z)), axis=(1, 2)))
                kl = ops.mean(ops.sum(-0.5 * (1 + logvar - ops.square(mean) - ops.exp(logvar)), axis=1))
                loss = rec + kl
            self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights))
            self.total.update_state(loss)
            return {"loss": self.total.result()}
    vae = Vae()
    vae.compile(optimizer="adam")
    return lambda: vae.fit(x, batch_size=128, epochs=4, verbose=0), None


@case("")
def cifar_by_a_loop_of_ones_own():
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(25)
    data = (rng.random((960, 32, 32, 3), np.float32), rng.integers(0, 10, 960))
    train = tf.data.Dataset.from_tensor_slices(data).take(768).shuffle(768).batch(48).prefetch(tf.data.AUTOTUNE)
    val = tf.data.Dataset.from_tensor_slices(data).skip(768).batch(96).prefetch(tf.data.AUTOTUNE)
    model = keras.Sequential([keras.Input((32, 32, 3)), L.Conv2D(16, 3, activation="relu"), L.BatchNormalization(), L.MaxPooling2D(),
                              L.Conv2D(32, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dropout(0.2), L.Dense(10)])
    opt, lossf = keras.optimizers.SGD(0.01, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    t_acc, v_acc = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = lossf(y, logits)
        opt.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
        t_acc.update_state(y, logits)
        return loss

    @tf.function
    def test_step(x, y):
        v_acc.update_state(y, model(x, training=False))

    def cell():
        for epoch in range(3):
            for x, y in train:
                loss = train_step(x, y)
            for x, y in val:
                test_step(x, y)
            history = (epoch, float(loss), float(t_acc.result()), float(v_acc.result()))
            t_acc.reset_state()
            v_acc.reset_state()
        return history
    return cell, None


@case("")
def reinforce_on_many_mountains():
    """Policy gradient, 64 environments in one NumPy array, the policy and its update compiled."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(26)
    policy = keras.Sequential([keras.Input((2,)), keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(3)])
    opt = keras.optimizers.Adam(1e-3)

    @tf.function
    def act(obs):
        return tf.random.categorical(policy(obs), 1)[:, 0]

    @tf.function
    def learn(obs, actions, returns):
        with tf.GradientTape() as tape:
            logp = -tf.nn.sparse_softmax_cross_entropy_with_logits(actions, policy(obs))
            loss = -tf.reduce_mean(logp * returns)
        opt.apply_gradients(zip(tape.gradient(loss, policy.trainable_variables), policy.trainable_variables))

    def rollout():
        pos, vel = rng.uniform(-0.6, -0.4, 256), np.zeros(256)
        obs_all, act_all, rew_all = [], [], []
        for _ in range(100):
            obs = np.stack([pos, vel], 1).astype("float32")
            a = act(tf.constant(obs)).numpy()
            vel = np.clip(vel + 0.001 * (a - 1) - 0.0025 * np.cos(3 * pos), -0.07, 0.07)
            pos = np.clip(pos + vel, -1.2, 0.6)
            obs_all.append(obs)
            act_all.append(a)
            rew_all.append(np.abs(vel).astype("float32"))
        returns = np.cumsum(np.array(rew_all)[::-1], 0)[::-1]
        return np.concatenate(obs_all), np.concatenate(act_all), ((returns - returns.mean()) / returns.std()).ravel()

    def cell():
        for _ in range(12):
            obs, actions, returns = rollout()
            for i in range(0, len(obs), 1024):
                learn(tf.constant(obs[i:i + 1024]), tf.constant(actions[i:i + 1024]), tf.constant(returns[i:i + 1024]))
    return cell, None


@case("")
def two_towers_with_callbacks():
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(27)
    n = 40000
    u, m = rng.integers(0, 2000, n).astype("int32"), rng.integers(0, 1500, n).astype("int32")
    r = rng.random(n).astype("float32")

    class TwoTowers(keras.Model):
        def __init__(self):
            super().__init__()
            self.user, self.user_bias = keras.layers.Embedding(2000, 24), keras.layers.Embedding(2000, 1)
            self.movie, self.movie_bias = keras.layers.Embedding(1500, 24), keras.layers.Embedding(1500, 1)

        def call(self, pair):
            dot = keras.ops.sum(self.user(pair[:, 0]) * self.movie(pair[:, 1]), -1, keepdims=True)
            return keras.ops.sigmoid(dot + self.user_bias(pair[:, 0]) + self.movie_bias(pair[:, 1]))
    model = TwoTowers()
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    pairs = np.stack([u, m], 1)
    def cell():
        model.fit(pairs[:36000], r[:36000], batch_size=512, epochs=5, verbose=0, validation_data=(pairs[36000:], r[36000:]),
                  callbacks=[keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True), keras.callbacks.ReduceLROnPlateau()])
    return cell, None


@case("")
def unet_of_pets():
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(28)
    img, mask = rng.random((96, 64, 64, 3), np.float32), rng.integers(0, 3, (96, 64, 64, 1)).astype("int32")

    def flip(x, y):
        go = tf.random.uniform(()) > 0.5
        return tf.cond(go, lambda: tf.image.flip_left_right(x), lambda: x), tf.cond(go, lambda: tf.image.flip_left_right(y), lambda: y)
    ds = (tf.data.Dataset.from_tensor_slices((img, mask)).cache().shuffle(96).map(flip, num_parallel_calls=tf.data.AUTOTUNE)
          .batch(16).prefetch(tf.data.AUTOTUNE))
    inp = keras.Input((64, 64, 3))
    a = L.SeparableConv2D(16, 3, padding="same", activation="relu")(inp)
    b = L.SeparableConv2D(32, 3, padding="same", activation="relu")(L.MaxPooling2D()(a))
    c = L.Conv2D(32, 3, padding="same", activation="relu")(L.MaxPooling2D()(b))
    d = L.Conv2D(32, 3, padding="same", activation="relu")(L.Concatenate()([L.UpSampling2D()(c), b]))
    e = L.Conv2D(16, 3, padding="same", activation="relu")(L.Concatenate()([L.UpSampling2D()(d), a]))
    unet = keras.Model(inp, L.Conv2D(3, 3, padding="same", activation="softmax")(e))
    unet.compile("rmsprop", "sparse_categorical_crossentropy")
    return lambda: unet.fit(ds, epochs=3, verbose=0), None


@of("torch", "")
def torch_digits_convnet():
    import numpy as np, torch
    from torch import nn
    import torch.nn.functional as F
    rng = np.random.default_rng(29)
    x, y = torch.tensor(rng.random((1536, 1, 28, 28), np.float32)), torch.tensor(rng.integers(0, 10, 1536))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
            self.drop, self.f1, self.f2 = nn.Dropout(0.25), nn.Linear(16 * 144, 64), nn.Linear(64, 10)

        def forward(self, h):
            h = F.max_pool2d(F.relu(self.c2(F.relu(self.c1(h)))), 2)
            return self.f2(self.drop(F.relu(self.f1(torch.flatten(h, 1)))))
    net = Net()
    opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)

    def cell():
        for epoch in range(2):
            net.train()
            order = torch.randperm(1280)
            for i in range(0, 1280, 64):
                pick = order[i:i + 64]
                opt.zero_grad(set_to_none=True)
                F.cross_entropy(net(x[pick]), y[pick]).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                right = sum(int((net(x[i:i + 128]).argmax(1) == y[i:i + 128]).sum()) for i in range(1280, 1536, 128))
        return right
    return cell, None


@of("jax", "")
def jax_characters_mlp():
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(30)
    text = rng.integers(0, 64, 20000)
    ctx = np.stack([text[i:i + 16] for i in range(12000)])
    nxt = text[16:12016]
    params = {"emb": jnp.asarray(rng.normal(size=(64, 24)) * 0.1, jnp.float32),
              "w1": jnp.asarray(rng.normal(size=(384, 256)) * 0.05, jnp.float32),
              "w2": jnp.asarray(rng.normal(size=(256, 64)) * 0.05, jnp.float32)}

    def loss_fn(p, x, y):
        h = jnp.tanh(p["emb"][x].reshape(len(x), -1) @ p["w1"])
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(h @ p["w2"]), y[:, None], 1))

    @jax.jit
    def step(p, x, y):
        loss, g = jax.value_and_grad(loss_fn)(p, x, y)
        return jax.tree.map(lambda w, d: w - 0.1 * d, p, g), loss

    def cell():
        p = params
        for epoch in range(4):
            order = rng.permutation(len(ctx))
            for i in range(0, len(ctx) - 255, 256):
                pick = order[i:i + 256]
                p, loss = step(p, ctx[pick], nxt[pick])
        return float(loss)
    return cell, None
