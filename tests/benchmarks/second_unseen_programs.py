"""Twenty more programs that nobody tuned to, twelve with a mistake, eight healthy: nothing was mended by them yet."""

import math

from public_programs import case
from row_programs import of


@case("new-model-in-a-loop")
def churn_cross_validated():
    """Kaggle: five folds, each builds and compiles its model anew."""
    import keras, numpy as np
    rng = np.random.default_rng(101)
    X, y = rng.random((4000, 30), np.float32), rng.integers(0, 2, 4000)

    def build():
        m = keras.Sequential([keras.Input((30,)), keras.layers.Dense(64, activation="relu"), keras.layers.BatchNormalization(),
                              keras.layers.Dropout(0.3), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
        m.compile("adam", "binary_crossentropy", metrics=["accuracy"])
        return m
    folds = np.array_split(rng.permutation(4000), 5)

    def cell():
        scores = []
        for k in range(5):
            train = np.concatenate(folds[:k] + folds[k + 1:])
            model = build()
            model.fit(X[train], y[train], batch_size=64, epochs=2, verbose=0)
            scores.append(model.evaluate(X[folds[k]], y[folds[k]], verbose=0)[1])
        return np.mean(scores)

    def changed():
        scores = []
        model = build()
        start = model.get_weights()
        for k in range(5):
            train = np.concatenate(folds[:k] + folds[k + 1:])
            model.set_weights(start)
            for v in model.optimizer.variables:
                if v is not model.optimizer._learning_rate:
                    v.assign(keras.ops.zeros_like(v))
            model.fit(X[train], y[train], batch_size=64, epochs=2, verbose=0)
            scores.append(model.evaluate(X[folds[k]], y[folds[k]], verbose=0)[1])
        return np.mean(scores)
    return cell, changed


@case("loop-of-ops")
def search_results_ranked():
    """Learning to rank: a loss of one's own with a Python loop over the samples of the batch."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(102)
    X, rel = rng.random((3840, 46), np.float32), rng.integers(0, 5, (3840, 1)).astype("float32")
    BATCH = 64

    def pairwise_loss(y_true, y_pred):
        loss = 0.0
        for i in range(BATCH):
            sign = tf.sign(y_true[i] - y_true)
            margin = 1.0 - sign * (y_pred[i] - y_pred)
            loss += tf.reduce_mean(tf.nn.relu(margin) * tf.abs(sign))
        return loss / BATCH

    def pairwise_loss_at_once(y_true, y_pred):
        sign = tf.sign(y_true - tf.transpose(y_true))
        margin = 1.0 - sign * (y_pred - tf.transpose(y_pred))
        return tf.reduce_mean(tf.nn.relu(margin) * tf.abs(sign))

    def build(loss):
        m = keras.Sequential([keras.Input((46,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(64, activation="relu"),
                              keras.layers.Dense(1)])
        m.compile(keras.optimizers.Adam(1e-3), loss)
        return m
    slow, fast = build(pairwise_loss), build(pairwise_loss_at_once)
    return lambda: slow.fit(X, rel, batch_size=BATCH, epochs=3, verbose=0), lambda: fast.fit(X, rel, batch_size=BATCH, epochs=3, verbose=0)


@case("")
def complaints_padded_to_the_longest():
    """Text classification with a transformer block: every text padded to 320 tokens, most have 20 to 60."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(103)
    lengths = np.clip(rng.lognormal(3.5, 0.4, 256), 8, 320).astype(int)
    texts = [list(rng.integers(1, 5000, n)) for n in lengths]
    labels = rng.integers(0, 4, 256)
    padded = keras.utils.pad_sequences(texts, maxlen=320)

    inp = keras.Input((None,), dtype="int32")
    x = L.Embedding(5000, 32)(inp)
    a = L.MultiHeadAttention(2, 16)(x, x)
    x = L.LayerNormalization()(x + a)
    f = L.Dense(32)(L.Dense(64, activation="relu")(x))
    x = L.LayerNormalization()(x + f)
    out = L.Dense(4, activation="softmax")(L.GlobalAveragePooling1D()(x))
    model = keras.Model(inp, out)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

    def gen():
        for t, l in zip(texts, labels):
            yield t, l
    short = (tf.data.Dataset.from_generator(gen, output_signature=(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int64)))
             .cache().bucket_by_sequence_length(lambda t, l: tf.shape(t)[0], [33, 65, 129, 321], [32] * 5, pad_to_bucket_boundary=True)
             .prefetch(tf.data.AUTOTUNE))

    def cell():
        model.fit(padded, labels, batch_size=32, epochs=2, verbose=0)

    def changed():
        model.fit(short, epochs=2, verbose=0)
    return cell, changed


@case("own-python")
def walker_with_replay_in_a_deque():
    """Actor critic with replay: random.sample of a deque of tuples; the learning step is compiled. Changed: preallocated arrays."""
    import collections, random
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(104)
    actor = keras.Sequential([keras.Input((24,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4, activation="tanh")])
    critic = keras.Sequential([keras.Input((28,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    a_opt, c_opt = keras.optimizers.Adam(1e-3), keras.optimizers.Adam(2e-3)
    N = 50000
    memory = collections.deque(maxlen=N)
    S, A, R, S2 = (np.zeros((N, 24), np.float32), np.zeros((N, 4), np.float32), np.zeros((N, 1), np.float32), np.zeros((N, 24), np.float32))
    for i in range(N):
        t = (rng.random(24, np.float32), rng.random(4, np.float32), float(rng.random()), rng.random(24, np.float32))
        memory.append(t)
        S[i], A[i], R[i], S2[i] = t

    @tf.function
    def learn(s, a, r, s2):
        target = r + 0.99 * critic(tf.concat([s2, actor(s2)], 1))
        with tf.GradientTape() as tape:
            c_loss = tf.reduce_mean((target - critic(tf.concat([s, a], 1))) ** 2)
        c_opt.apply_gradients(zip(tape.gradient(c_loss, critic.trainable_variables), critic.trainable_variables))
        with tf.GradientTape() as tape:
            a_loss = -tf.reduce_mean(critic(tf.concat([s, actor(s)], 1)))
        a_opt.apply_gradients(zip(tape.gradient(a_loss, actor.trainable_variables), actor.trainable_variables))

    def sample_batch(size):
        batch = random.sample(memory, size)
        s, a, r, s2 = zip(*batch)
        return np.array(s), np.array(a), np.array(r, np.float32)[:, None], np.array(s2)

    def sample_arrays(size):
        i = rng.integers(0, N, size)
        return S[i], A[i], R[i], S2[i]

    def train(sample):
        for _ in range(400):
            learn(*sample(256))
    return lambda: train(sample_batch), lambda: train(sample_arrays)


@case("python-input")
def energy_windows_from_generator():
    """Household energy forecast: tf.data.Dataset.from_generator yields single windows."""
    import keras, numpy as np, tensorflow as tf
    rng = np.random.default_rng(105)
    load = np.cumsum(rng.normal(size=(5100, 4)), 0).astype("float32")
    mean, std = load.mean(0), load.std(0)

    def windows():
        for i in range(len(load) - 48 - 1):
            w = (load[i:i + 48] - mean) / std
            yield w, (load[i + 48, :1] - mean[:1]) / std[:1]

    model = keras.Sequential([keras.Input((48, 4)), keras.layers.Conv1D(16, 5, strides=2, activation="relu"), keras.layers.Flatten(),
                              keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])

    def cell():
        ds = tf.data.Dataset.from_generator(windows, output_signature=(tf.TensorSpec((48, 4), tf.float32), tf.TensorSpec((1,), tf.float32)))
        model.fit(ds.batch(64).prefetch(tf.data.AUTOTUNE), epochs=2, verbose=0)

    def changed():
        norm = (load - mean) / std
        view = np.lib.stride_tricks.sliding_window_view(norm, 48, axis=0)[:-1].transpose(0, 2, 1)
        ds = tf.data.Dataset.from_tensor_slices((np.ascontiguousarray(view), norm[48:, :1]))
        model.fit(ds.batch(64).prefetch(tf.data.AUTOTUNE), epochs=2, verbose=0)
    return cell, changed


@case("large-optimizer")
def headlines_with_a_huge_vocabulary():
    """Embedding of 150 000 words of which the texts use a few thousand: Adam updates the whole table in each step."""
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(106)
    ids = np.minimum(rng.zipf(1.35, (3200, 24)), 149999).astype("int32")
    small = np.where(ids < 5000, ids, 1)
    y = rng.integers(0, 6, 3200)

    def build(vocabulary):
        m = keras.Sequential([keras.Input((24,), dtype="int32"), L.Embedding(vocabulary, 32), L.Conv1D(32, 3, activation="relu"),
                              L.GlobalMaxPooling1D(), L.Dense(6, activation="softmax")])
        m.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return m
    big, capped = build(150000), build(5000)
    return lambda: big.fit(ids, y, batch_size=64, epochs=1, verbose=0), lambda: capped.fit(small, y, batch_size=64, epochs=1, verbose=0)


@case("validation")
def leaves_scored_on_the_training_set():
    """for epoch: fit(epochs=1); evaluate(train); evaluate(val): the training set is run again for a number that fit gives."""
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(107)
    x_train, y_train = rng.random((1280, 32, 32, 3), np.float32), rng.integers(0, 8, 1280)
    x_val, y_val = rng.random((256, 32, 32, 3), np.float32), rng.integers(0, 8, 256)
    model = keras.Sequential([keras.Input((32, 32, 3)), L.Conv2D(16, 3, activation="relu"), L.MaxPooling2D(), L.Conv2D(32, 3, activation="relu"),
                              L.GlobalAveragePooling2D(), L.Dense(8, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

    def cell():
        train_curve, val_curve = [], []
        for epoch in range(4):
            model.fit(x_train, y_train, batch_size=32, epochs=1, verbose=0)
            train_curve.append(model.evaluate(x_train, y_train, verbose=0)[1])
            val_curve.append(model.evaluate(x_val, y_val, verbose=0)[1])
        return train_curve, val_curve

    def changed():
        h = model.fit(x_train, y_train, batch_size=32, epochs=4, verbose=0, validation_data=(x_val, y_val))
        return h.history["accuracy"], h.history["val_accuracy"]
    return cell, changed


@of("torch", "wide-numbers")
def torch_heart_rate_in_double():
    """model.double() because the NumPy array was float64."""
    import numpy as np, torch
    from torch import nn
    rng = np.random.default_rng(108)
    signal, rate = rng.normal(size=(960, 1, 256)), rng.normal(size=(960, 1))

    def build():
        return nn.Sequential(nn.Conv1d(1, 32, 7), nn.ReLU(), nn.Conv1d(32, 32, 7), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(256, 1))

    def make(dtype):
        net = build().to(dtype)
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        X, Y = torch.from_numpy(signal).to(dtype), torch.from_numpy(rate).to(dtype)

        def cell():
            for epoch in range(2):
                for i in range(0, 960, 64):
                    opt.zero_grad()
                    loss = nn.functional.mse_loss(net(X[i:i + 64]), Y[i:i + 64])
                    loss.backward()
                    opt.step()
            return float(loss.detach())
        return cell
    return make(torch.float64), make(torch.float32)


@of("torch", "small-ops")
def torch_tides_backward_in_every_step():
    """A GRU cell over 40 hours: loss.backward(retain_graph=True) in each hour instead of once for the sum."""
    import numpy as np, torch
    from torch import nn
    rng = np.random.default_rng(109)
    level = torch.tensor(rng.normal(size=(24, 8, 41, 6)).astype("float32"))
    gru, head = nn.GRUCell(6, 48), nn.Linear(48, 6)
    opt = torch.optim.Adam([*gru.parameters(), *head.parameters()], 1e-3)

    def train_window(x):
        h = torch.zeros(8, 48)
        opt.zero_grad()
        for t in range(40):
            h = gru(x[:, t], h)
            loss = nn.functional.mse_loss(head(h), x[:, t + 1])
            loss.backward(retain_graph=True)
        opt.step()

    def train_window_once(x):
        h = torch.zeros(8, 48)
        opt.zero_grad()
        loss = 0.0
        for t in range(40):
            h = gru(x[:, t], h)
            loss = loss + nn.functional.mse_loss(head(h), x[:, t + 1])
        loss.backward()
        opt.step()

    def run(train):
        for x in level[:8]:
            train(x)
    return lambda: run(train_window), lambda: run(train_window_once)


@of("torch", "waiting-for-input")
def torch_wine_with_workers_each_epoch():
    """DataLoader(num_workers=2) on a small table in memory: the workers are started in every epoch."""
    import numpy as np, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    rng = np.random.default_rng(110)
    data = TensorDataset(torch.tensor(rng.random((1600, 12), np.float32)), torch.tensor(rng.integers(0, 7, 1600)))
    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 7))
    opt = torch.optim.Adam(net.parameters(), 1e-3)

    def train(loader):
        for epoch in range(6):
            for xb, yb in loader:
                opt.zero_grad()
                nn.functional.cross_entropy(net(xb), yb).backward()
                opt.step()
    return lambda: train(DataLoader(data, batch_size=32, shuffle=True, num_workers=2)), lambda: train(DataLoader(data, batch_size=32, shuffle=True))


@of("jax", "eager-ops")
def jax_accuracy_one_by_one():
    """predict is jitted for one image; accuracy loops over the test set in Python. Changed: vmap."""
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(111)
    params = [(jnp.asarray(rng.normal(size=(n, m)) * 0.05, jnp.float32), jnp.zeros(n)) for m, n in ((784, 256), (256, 10))]
    images, labels = rng.random((6000, 784), np.float32), rng.integers(0, 10, 6000)

    def forward(params, image):
        h = image
        for w, b in params[:-1]:
            h = jax.nn.relu(w @ h + b)
        w, b = params[-1]
        return jax.nn.log_softmax(w @ h + b)
    predict = jax.jit(forward)
    batched = jax.jit(jax.vmap(forward, (None, 0)))

    def loss(params, x, y):
        return -jnp.mean(batched(params, x)[jnp.arange(len(y)), y])

    @jax.jit
    def update(params, x, y):
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, jax.grad(loss)(params, x, y))

    def accuracy(params, images, labels):
        right = 0
        for image, label in zip(images, labels):
            right += int(jnp.argmax(predict(params, image)) == label)
        return right / len(labels)

    def accuracy_at_once(params, images, labels):
        return float(jnp.mean(jnp.argmax(batched(params, images), 1) == labels))

    def run(acc):
        p = params
        for epoch in range(2):
            for i in range(0, 2944, 64):
                p = update(p, images[i:i + 64], labels[i:i + 64])
            score = acc(p, images[3000:], labels[3000:])
        return score
    return lambda: run(accuracy), lambda: run(accuracy_at_once)


@of("jax", "eager-ops")
def jax_returns_filled_by_at_set():
    """Discounted returns filled with .at[i].set in a Python loop, outside of jit. Changed: NumPy."""
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(112)
    obs, rewards = rng.random((4000, 16), np.float32), rng.random(4000).astype("float32")
    params = {"w": jnp.asarray(rng.normal(size=(16, 128)) * 0.1, jnp.float32), "v": jnp.asarray(rng.normal(size=(128,)) * 0.1, jnp.float32)}

    @jax.jit
    def update(p, x, g):
        def loss(p):
            return jnp.mean((jnp.tanh(x @ p["w"]) @ p["v"] - g) ** 2)
        return jax.tree.map(lambda w, d: w - 0.01 * d, p, jax.grad(loss)(p))

    def discounted(rewards):
        returns = jnp.zeros(len(rewards))
        g = 0.0
        for t in reversed(range(len(rewards))):
            g = rewards[t] + 0.99 * g
            returns = returns.at[t].set(g)
        return returns

    def discounted_numpy(rewards):
        returns = np.zeros(len(rewards), np.float32)
        g = 0.0
        for t in reversed(range(len(rewards))):
            g = rewards[t] + 0.99 * g
            returns[t] = g
        return jnp.asarray(returns)

    def run(f):
        p = params
        g = f(rewards)
        for _ in range(120):
            p = update(p, obs, g)
        return float(p["v"][0])
    return lambda: run(discounted), lambda: run(discounted_numpy)


@case("")
def resnet_of_satellites():
    """Residual network, augmentation layers mapped over batches, cosine decay."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(201)
    x, y = rng.random((512, 32, 32, 3), np.float32), rng.integers(0, 10, 512)
    augment = keras.Sequential([L.RandomFlip("horizontal"), L.RandomContrast(0.1)])
    ds = (tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(512).batch(64)
          .map(lambda a, b: (augment(a, training=True), b), num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE))

    def block(h, n, s):
        short = L.Conv2D(n, 1, s)(h) if s > 1 else h
        h = L.ReLU()(L.BatchNormalization()(L.Conv2D(n, 3, s, "same", use_bias=False)(h)))
        h = L.BatchNormalization()(L.Conv2D(n, 3, 1, "same", use_bias=False)(h))
        return L.ReLU()(L.Add()([h, short]))
    inp = keras.Input((32, 32, 3))
    h = L.Conv2D(16, 3, 1, "same")(inp)
    for n, s in ((16, 1), (32, 2), (64, 2)):
        h = block(h, n, s)
    net = keras.Model(inp, L.Dense(10)(L.GlobalAveragePooling2D()(h)))
    net.compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 100), momentum=0.9, nesterov=True),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return lambda: net.fit(ds, epochs=2, verbose=0), None


@case("")
def weather_by_dilated_convolutions():
    """timeseries_dataset_from_array, dilated convolutions, validation and early stopping."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(202)
    series = np.cumsum(rng.normal(size=(6000, 7)), 0).astype("float32")
    series = (series - series.mean(0)) / series.std(0)
    make = lambda a: keras.utils.timeseries_dataset_from_array(a[:-72], a[72:, 1], 72, sampling_rate=1, batch_size=128)
    train, val = make(series[:4800]), make(series[4800:])
    inp = keras.Input((72, 7))
    h = L.Conv1D(32, 3, padding="causal", activation="relu")(inp)
    for d in (2, 4, 8):
        h = L.Add()([h, L.Conv1D(32, 3, padding="causal", dilation_rate=d, activation="relu")(h)])
    net = keras.Model(inp, L.Dense(1)(L.GlobalAveragePooling1D()(h)))
    net.compile(keras.optimizers.Adam(1e-3), "mse")
    return lambda: net.fit(train, validation_data=val, epochs=2, verbose=0, callbacks=[keras.callbacks.EarlyStopping(patience=3)]), None


@case("")
def census_wide_and_deep():
    """Wide and deep on a table, then predict and evaluate in large batches."""
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(203)
    n = 60000
    num, job, state = rng.random((n, 12), np.float32), rng.integers(0, 40, (n, 1)), rng.integers(0, 50, (n, 1))
    y = rng.integers(0, 2, n)
    i1, i2, i3 = keras.Input((12,)), keras.Input((1,), dtype="int32"), keras.Input((1,), dtype="int32")
    deep = L.Concatenate()([i1, L.Flatten()(L.Embedding(40, 8)(i2)), L.Flatten()(L.Embedding(50, 8)(i3))])
    for u in (256, 128):
        deep = L.Dropout(0.2)(L.Dense(u, activation="relu")(deep))
    net = keras.Model([i1, i2, i3], L.Dense(1, activation="sigmoid")(L.Concatenate()([deep, i1])))
    net.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    tr, te = [num[:50000], job[:50000], state[:50000]], [num[50000:], job[50000:], state[50000:]]

    def cell():
        net.fit(tr, y[:50000], batch_size=1024, epochs=3, verbose=0)
        p = net.predict(te, batch_size=5000, verbose=0)
        net.evaluate(te, y[50000:], batch_size=5000, verbose=0)
        return float(p.mean())
    return cell, None


@case("")
def style_of_a_painting():
    """Neural style transfer: one image optimised against the features of a frozen network, the step compiled."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(204)
    inp = keras.Input((128, 128, 3))
    a = L.Conv2D(16, 3, padding="same", activation="relu")(inp)
    b = L.Conv2D(32, 3, padding="same", activation="relu")(L.AveragePooling2D(2)(a))
    c = L.Conv2D(64, 3, padding="same", activation="relu")(L.AveragePooling2D(2)(b))
    features = keras.Model(inp, [a, b, c])
    features.trainable = False
    content, style = (tf.constant(rng.random((1, 128, 128, 3), np.float32)) for _ in range(2))

    def gram(t):
        return tf.einsum("bijc,bijd->bcd", t, t) / tf.cast(tf.shape(t)[1] * tf.shape(t)[2], tf.float32)
    want_style, want_content = [gram(t) for t in features(style)], features(content)[2]
    image = tf.Variable(content)
    opt = keras.optimizers.Adam(0.02)
    opt.build([image])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outs = features(image)
            loss = tf.reduce_mean((outs[2] - want_content) ** 2) + 10 * tf.add_n([tf.reduce_mean((gram(o) - w) ** 2) for o, w in zip(outs, want_style)])
            loss += 1e-4 * tf.reduce_sum(tf.image.total_variation(image))
        opt.apply([tape.gradient(loss, image)], [image])
        image.assign(tf.clip_by_value(image, 0.0, 1.0))
        return loss

    def cell():
        image.assign(content)
        for i in range(120):
            loss = step()
            if i % 20 == 0:
                history = float(loss)
        return history
    return cell, None


@case("")
def heat_equation_by_a_network():
    """Physics-informed network: second derivatives by two tapes, the step compiled, points drawn inside."""
    import keras, numpy as np, tensorflow as tf
    net = keras.Sequential([keras.Input((2,))] + [keras.layers.Dense(64, activation="tanh") for _ in range(3)] + [keras.layers.Dense(1)])
    opt = keras.optimizers.Adam(1e-3)

    @tf.function
    def step():
        x, t = tf.random.uniform((4000, 1)), tf.random.uniform((4000, 1))
        x0 = tf.random.uniform((500, 1))
        with tf.GradientTape() as tape:
            with tf.GradientTape() as second:
                second.watch(x)
                with tf.GradientTape(persistent=True) as first:
                    first.watch(x)
                    first.watch(t)
                    u = net(tf.concat([x, t], 1))
                u_x, u_t = first.gradient(u, x), first.gradient(u, t)
            u_xx = second.gradient(u_x, x)
            start = net(tf.concat([x0, tf.zeros_like(x0)], 1)) - tf.sin(math.pi * x0)
            loss = tf.reduce_mean((u_t - 0.1 * u_xx) ** 2) + tf.reduce_mean(start ** 2)
        opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    def cell():
        for i in range(60):
            loss = step()
        return float(loss)
    return cell, None


@of("torch", "")
def torch_tagging_by_lstm():
    import numpy as np, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    rng = np.random.default_rng(206)
    words, tags = torch.tensor(rng.integers(0, 4000, (1024, 40))), torch.tensor(rng.integers(0, 12, (1024, 40)))
    train = DataLoader(TensorDataset(words[:896], tags[:896]), batch_size=64, shuffle=True)
    val = DataLoader(TensorDataset(words[896:], tags[896:]), batch_size=128)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.lstm, self.out = nn.Embedding(4000, 64), nn.LSTM(64, 64, batch_first=True, bidirectional=True), nn.Linear(128, 12)

        def forward(self, w):
            return self.out(self.lstm(self.emb(w))[0])
    net = Tagger()
    opt = torch.optim.Adam(net.parameters(), 1e-3)

    def cell():
        for epoch in range(2):
            net.train()
            for w, t in train:
                opt.zero_grad()
                loss = nn.functional.cross_entropy(net(w).flatten(0, 1), t.flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                opt.step()
            net.eval()
            with torch.no_grad():
                right = sum((net(w).argmax(-1) == t).sum().item() for w, t in val)
        return right
    return cell, None


@of("torch", "")
def torch_citations_graph():
    """Graph convolution over the whole graph, sparse adjacency."""
    import numpy as np, torch
    from torch import nn
    rng = np.random.default_rng(207)
    n = 2700
    e = torch.tensor(rng.integers(0, n, (2, 13000)))
    adj = torch.sparse_coo_tensor(e, torch.ones(13000) / 5, (n, n)).coalesce().to_sparse_csr()
    x, y = torch.tensor(rng.random((n, 500), np.float32)), torch.tensor(rng.integers(0, 7, n))
    train, test = torch.arange(0, 1500), torch.arange(1500, n)

    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(500, 64), nn.Linear(64, 7)

        def forward(self, x, adj):
            h = torch.relu(adj @ self.a(x))
            return adj @ self.b(nn.functional.dropout(h, 0.5, self.training))
    net = Gcn()
    opt = torch.optim.Adam(net.parameters(), 0.01, weight_decay=5e-4)

    def cell():
        for epoch in range(40):
            net.train()
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x, adj)[train], y[train])
            loss.backward()
            opt.step()
            if epoch % 10 == 9:
                net.eval()
                with torch.no_grad():
                    acc = (net(x, adj)[test].argmax(1) == y[test]).float().mean().item()
        return acc
    return cell, None


@of("jax", "")
def jax_convnet_of_digits():
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(208)
    x, y = rng.random((2048, 28, 28, 1), np.float32), rng.integers(0, 10, 2048)
    p0 = {"c1": jnp.asarray(rng.normal(size=(3, 3, 1, 8)) * 0.2, jnp.float32), "c2": jnp.asarray(rng.normal(size=(3, 3, 8, 16)) * 0.1, jnp.float32),
          "w": jnp.asarray(rng.normal(size=(7 * 7 * 16, 10)) * 0.05, jnp.float32)}

    def conv(h, k):
        return jax.nn.relu(jax.lax.conv_general_dilated(h, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

    def loss_fn(p, xb, yb):
        logits = conv(conv(xb, p["c1"]), p["c2"]).reshape(len(xb), -1) @ p["w"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), yb[:, None], 1))

    @jax.jit
    def step(p, m, xb, yb):
        loss, g = jax.value_and_grad(loss_fn)(p, xb, yb)
        m = jax.tree.map(lambda a, b: 0.9 * a + b, m, g)
        return jax.tree.map(lambda w, a: w - 0.02 * a, p, m), m, loss

    def cell():
        p, m = p0, jax.tree.map(jnp.zeros_like, p0)
        for epoch in range(6):
            order = rng.permutation(2048)
            total = 0.0
            for i in range(0, 2048, 128):
                pick = order[i:i + 128]
                p, m, loss = step(p, m, x[pick], y[pick])
                total += loss
            mean = float(total) / 16
        return mean
    return cell, None
