"""Twenty more programs that nobody tuned to, the third set: twelve with a mistake, eight healthy."""

import math
import os
import tempfile

from public_programs import case
from row_programs import of


@case("eager-ops")
def digits_by_a_loop_from_scratch():
    """Keras guide "writing a training loop from scratch", before the chapter on tf.function."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(301)
    x, y = rng.random((3200, 784), np.float32), rng.integers(0, 10, 3200)
    xv, yv = rng.random((640, 784), np.float32), rng.integers(0, 10, 640)
    train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(3200).batch(64)
    val = tf.data.Dataset.from_tensor_slices((xv, yv)).batch(64)
    model = keras.Sequential([keras.Input((784,)), L.Dense(64, activation="relu"), L.Dense(64, activation="relu"), L.Dense(10)])
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    opt = keras.optimizers.Adam(1e-3)
    train_metric, val_metric = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseCategoricalAccuracy()

    def train_step(xb, yb):
        with tf.GradientTape() as tape:
            logits = model(xb, training=True)
            loss = loss_fn(yb, logits)
        opt.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
        train_metric.update_state(yb, logits)
        return loss

    def val_step(xb, yb):
        val_metric.update_state(yb, model(xb, training=False))
    fast_train, fast_val = tf.function(train_step), tf.function(val_step)

    def run(train_step, val_step):
        for epoch in range(2):
            for step, (xb, yb) in enumerate(train):
                loss = train_step(xb, yb)
                if step % 20 == 0:
                    seen = float(loss)
            acc = float(train_metric.result())
            train_metric.reset_state()
            for xb, yb in val:
                val_step(xb, yb)
            acc = float(val_metric.result())
            val_metric.reset_state()
        return acc
    return (lambda: run(train_step, val_step)), (lambda: run(fast_train, fast_val))


@case("larger-batch")
def fraud_predicted_in_batches_of_32():
    """Kaggle: model.predict(X_test) of a large table with the default batch_size."""
    import keras, numpy as np, pandas as pd
    L = keras.layers
    rng = np.random.default_rng(302)
    X = rng.normal(size=(60000, 30)).astype("float32")
    model = keras.Sequential([keras.Input((30,)), L.Dense(32, activation="relu"), L.Dropout(0.2), L.Dense(16, activation="relu"), L.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])

    def submission(p):
        return pd.DataFrame({"id": np.arange(len(p)), "Class": (p[:, 0] > 0.5).astype(int)}).to_csv(index=False)
    return (lambda: submission(model.predict(X, verbose=0))), (lambda: submission(model.predict(X, batch_size=4096, verbose=0)))


@case("python-input")
def pneumonia_by_image_data_generator():
    """ImageDataGenerator rotates, zooms and shifts one image at a time in Python. Changed: one affine transform of the batch in tf.data."""
    import keras, numpy as np, tensorflow as tf
    from keras.src.legacy.preprocessing.image import ImageDataGenerator
    L = keras.layers
    rng = np.random.default_rng(303)
    x, y = rng.integers(0, 255, (640, 64, 64, 3)).astype("float32"), rng.integers(0, 2, 640)
    model = keras.Sequential([keras.Input((64, 64, 3)), L.Conv2D(8, 3, strides=2, activation="relu"), L.MaxPooling2D(), L.Conv2D(16, 3, activation="relu"),
                              L.MaxPooling2D(), L.Flatten(), L.Dense(32, activation="relu"), L.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    datagen = ImageDataGenerator(rescale=1.0 / 255, rotation_range=30, zoom_range=0.2, width_shift_range=0.1, height_shift_range=0.1, horizontal_flip=True)

    def augment(a, b):
        n = tf.shape(a)[0]
        draw = lambda lo, hi: tf.random.uniform([n], lo, hi)
        angle, zx, zy = draw(-math.pi / 6, math.pi / 6), draw(0.8, 1.2), draw(0.8, 1.2)
        flip = tf.sign(draw(-1.0, 1.0))
        c, s = tf.cos(angle), tf.sin(angle)
        m00, m01, m10, m11 = flip * zx * c, -zy * s, flip * zx * s, zy * c
        dx, dy = 32 - (m00 + m01) * 32 + draw(-6.4, 6.4), 32 - (m10 + m11) * 32 + draw(-6.4, 6.4)
        zero = tf.zeros([n])
        a = tf.raw_ops.ImageProjectiveTransformV3(images=a / 255.0, transforms=tf.stack([m00, m01, dx, m10, m11, dy, zero, zero], 1), output_shape=[64, 64],
                                                  fill_value=0.0, interpolation="BILINEAR", fill_mode="NEAREST")
        return a, b
    ds = (tf.data.Dataset.from_tensor_slices((x, y)).shuffle(640).batch(32)
          .map(augment, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE))
    return (lambda: model.fit(datagen.flow(x, y, batch_size=32), epochs=3, verbose=0)), (lambda: model.fit(ds, epochs=3, verbose=0))


@case("input-bound")
def taxi_fares_mapped_row_by_row():
    """ds.map(...).batch(): some features computed for each row. Changed: batch first, then map."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(304)
    n = 16000
    cols = {k: rng.random(n).astype("float32") for k in ("pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat", "hour", "passengers")}
    fare = rng.random((n,)).astype("float32")

    def features(d, y):
        dx, dy = d["dropoff_lon"] - d["pickup_lon"], d["dropoff_lat"] - d["pickup_lat"]
        angle = 2 * math.pi * d["hour"]
        return tf.stack([dx, dy, tf.sqrt(dx * dx + dy * dy), tf.abs(dx) + tf.abs(dy), tf.sin(angle), tf.cos(angle), d["passengers"]], -1), y
    raw = tf.data.Dataset.from_tensor_slices((cols, fare))
    slow = raw.map(features).batch(128)
    fast = raw.batch(128).map(features)
    model = keras.Sequential([keras.Input((7,)), L.Dense(64, activation="relu"), L.Dense(32, activation="relu"), L.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return (lambda: model.fit(slow, epochs=2, verbose=0)), (lambda: model.fit(fast, epochs=2, verbose=0))


@case("slow-16-bit")
def sports_in_mixed_precision():
    """mixed_float16 set as in the notebook of somebody with a GPU; here is a CPU."""
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(305)
    x, y = rng.random((192, 32, 32, 3), np.float32), rng.integers(0, 5, 192)

    def build(policy):
        keras.mixed_precision.set_global_policy(policy)
        m = keras.Sequential([keras.Input((32, 32, 3)), L.Conv2D(16, 3, activation="relu"), L.MaxPooling2D(), L.Conv2D(32, 3, activation="relu"),
                              L.MaxPooling2D(), L.Flatten(), L.Dense(64, activation="relu"), L.Dense(5), L.Activation("softmax", dtype="float32")])
        m.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return m
    half = build("mixed_float16")
    full = build("float32")
    return (lambda: half.fit(x[:64], y[:64], batch_size=32, epochs=1, verbose=0)), (lambda: full.fit(x[:64], y[:64], batch_size=32, epochs=1, verbose=0))


@case("own-python")
def stock_windows_by_np_append():
    """60 days to predict the next; the windows gathered with np.append in a loop."""
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(306)
    close = np.cumsum(rng.normal(size=(4500, 3)), 0).astype("float32")
    model = keras.Sequential([keras.Input((60, 3)), L.LSTM(16), L.Dense(1)])
    model.compile("adam", "mse")

    def create_dataset(data, look_back=60):
        X, Y = np.empty((0, look_back, 3), np.float32), np.empty((0, 1), np.float32)
        for i in range(look_back, len(data)):
            X = np.append(X, data[None, i - look_back:i], axis=0)
            Y = np.append(Y, data[None, i, :1], axis=0)
        return X, Y

    def create_dataset_of_lists(data, look_back=60):
        X, Y = [], []
        for i in range(look_back, len(data)):
            X.append(data[i - look_back:i])
            Y.append(data[i, :1])
        return np.array(X), np.array(Y)

    def run(create):
        X, Y = create(close)
        model.fit(X, Y, batch_size=64, epochs=1, verbose=0)
    return (lambda: run(create_dataset)), (lambda: run(create_dataset_of_lists))


@case("callback")
def flowers_with_all_of_tensorboard():
    """TensorBoard(histogram_freq=1, update_freq="batch") copied from an answer. Changed: TensorBoard(log_dir)."""
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(307)
    x, y = rng.random((2560, 8, 8, 16), np.float32), rng.integers(0, 5, 2560)
    model = keras.Sequential([keras.Input((8, 8, 16)), L.Flatten(), L.Dense(512, activation="relu"), L.Dropout(0.5), L.Dense(256, activation="relu"),
                              L.Dense(5, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

    def run(**kw):
        with tempfile.TemporaryDirectory() as logs:
            board = keras.callbacks.TensorBoard(logs, **kw)
            model.fit(x, y, batch_size=64, epochs=3, verbose=0, callbacks=[board])
    return (lambda: run(histogram_freq=1, write_images=True, update_freq="batch")), (lambda: run())


@of("torch", "small-ops")
def torch_autoencoder_with_anomaly_detection():
    """torch.autograd.set_detect_anomaly(True) left on after a hunt for NaN."""
    import numpy as np, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    rng = np.random.default_rng(308)
    data = DataLoader(TensorDataset(torch.tensor(rng.random((2048, 64), np.float32))), batch_size=32, shuffle=True)
    net = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8), nn.ReLU(),
                        nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 64), nn.Sigmoid())
    opt = torch.optim.Adam(net.parameters(), 1e-3)

    def train(anomaly):
        torch.autograd.set_detect_anomaly(anomaly)
        for epoch in range(4):
            running = 0.0
            for (xb,) in data:
                opt.zero_grad()
                loss = nn.functional.mse_loss(net(xb), xb)
                loss.backward()
                opt.step()
                running += loss.item()
        torch.autograd.set_detect_anomaly(False)
        return running
    return (lambda: train(True)), (lambda: train(False))


@of("torch", "larger-batch")
def torch_surnames_one_at_a_time():
    """PyTorch tutorial on names: one sequence, one optimizer step. Changed: batches of 32, padded."""
    import numpy as np, torch
    from torch import nn
    rng = np.random.default_rng(309)
    names = [torch.tensor(rng.integers(1, 58, rng.integers(4, 12))) for _ in range(600)]
    langs = torch.tensor(rng.integers(0, 18, 600))

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.gru, self.out = nn.Embedding(58, 32, padding_idx=0), nn.GRU(32, 64, batch_first=True), nn.Linear(64, 18)

        def forward(self, x):
            return self.out(self.gru(self.emb(x))[0][:, -1])
    net = Classifier()
    opt = torch.optim.SGD(net.parameters(), 0.005)

    def train(batches):
        total = 0.0
        for x, y in batches:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            total += loss.item()
        return total

    def cell():
        return train((names[i][None], langs[i:i + 1]) for i in rng.permutation(600))

    def changed():
        return train((nn.utils.rnn.pad_sequence([names[i] for i in pick], batch_first=True), langs[pick]) for pick in np.split(rng.permutation(600), range(32, 600, 32)))
    return cell, changed


@of("torch", "own-python")
def torch_pong_tensor_of_a_list_of_arrays():
    """"Creating a tensor from a list of numpy.ndarrays is extremely slow": torch.tensor([...]). Changed: np.array first."""
    import warnings
    import numpy as np, torch
    from torch import nn
    warnings.filterwarnings("ignore")
    rng = np.random.default_rng(310)
    policy = nn.Sequential(nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.Adam(policy.parameters(), 1e-3)

    def rollout():
        states, actions, rewards = [], [], []
        s = rng.random(400)
        for t in range(150):
            states.append(s)
            actions.append(int(rng.integers(0, 2)))
            rewards.append(float(s[0]))
            s = rng.random(400)
        return states, actions, rewards

    def train(as_tensor):
        for episode in range(100):
            states, actions, rewards = rollout()
            s = as_tensor(states)
            a, r = torch.tensor(actions), torch.tensor(rewards)
            g = torch.flip(torch.cumsum(torch.flip(r, [0]), 0), [0])
            logp = torch.log_softmax(policy(s), 1).gather(1, a[:, None])[:, 0]
            loss = -(logp * (g - g.mean())).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()

    def of_list(states):
        return torch.tensor(states, dtype=torch.float32)

    def of_array(states):
        return torch.tensor(np.array(states), dtype=torch.float32)
    return (lambda: train(of_list)), (lambda: train(of_array))


@of("jax", "eager-ops")
def jax_housing_without_jit():
    """jax.value_and_grad and the update by jax.tree.map, no jit anywhere."""
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(311)
    X, y = rng.random((4096, 13), np.float32), rng.random((4096, 1), np.float32)
    sizes = (13, 64, 64, 1)
    params = [{"w": jnp.asarray(rng.normal(size=s) * 0.1, jnp.float32), "b": jnp.zeros(s[1])} for s in zip(sizes[:-1], sizes[1:])]

    def forward(params, x):
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    def loss_fn(params, x, y):
        return jnp.mean((forward(params, x) - y) ** 2)

    def update(params, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss
    compiled = jax.jit(update)

    def train(update):
        p = params
        for epoch in range(3):
            for i in range(0, 4096, 64):
                p, loss = update(p, X[i:i + 64], y[i:i + 64])
        return float(loss)
    return (lambda: train(update)), (lambda: train(compiled))


@of("jax", "recompiling")
def jax_text_of_growing_length():
    """Text generated letter by letter: the jitted function sees a longer sequence each time and is compiled anew. Changed: fixed window, masked."""
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(312)
    f = lambda *s: jnp.asarray(rng.normal(size=s) * 0.1, jnp.float32)
    params = {"emb": f(80, 64), "pos": f(64, 64), "q": f(64, 64), "k": f(64, 64), "v": f(64, 64), "up": f(64, 128), "down": f(128, 64), "out": f(64, 80)}

    def logits(params, tokens, n):
        h = params["emb"][tokens] + params["pos"][:len(tokens)]
        scores = (h @ params["q"]) @ (h @ params["k"]).T / 8.0
        scores = jnp.where(jnp.tril(jnp.ones_like(scores)) > 0, scores, -1e9)
        h = h + jax.nn.softmax(scores) @ (h @ params["v"])
        h = h + jax.nn.gelu(h @ params["up"]) @ params["down"]
        return h[n - 1] @ params["out"]
    start = jnp.asarray(rng.integers(0, 80, 8))

    def cell():
        next_logits = jax.jit(lambda p, t: logits(p, t, len(t)))
        key, tokens = jax.random.key(0), start
        for i in range(12):
            key, sub = jax.random.split(key)
            new = jax.random.categorical(sub, next_logits(params, tokens))
            tokens = jnp.concatenate([tokens, new[None]])
        return np.asarray(tokens)

    def changed():
        next_logits = jax.jit(lambda p, t, n: logits(p, t, n))
        key, tokens = jax.random.key(0), np.zeros(64, np.int32)
        tokens[:8] = start
        for i in range(12):
            key, sub = jax.random.split(key)
            tokens[8 + i] = jax.random.categorical(sub, next_logits(params, tokens, 8 + i))
        return tokens[:20]
    return cell, changed


@case("")
def faces_by_triplets():
    """Siamese network with train_step of its own, triplet loss, from Keras examples."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(401)
    a, p, n = (rng.random((384, 48, 48, 3), np.float32) for _ in range(3))
    ds = tf.data.Dataset.from_tensor_slices((a, p, n)).cache().shuffle(384).batch(32).prefetch(tf.data.AUTOTUNE)
    inp = keras.Input((48, 48, 3))
    h = inp
    for f in (16, 32, 64):
        h = L.MaxPooling2D()(L.Conv2D(f, 3, padding="same", activation="relu")(h))
    embed = keras.Model(inp, L.Dense(64)(L.Flatten()(h)))

    class Siamese(keras.Model):
        def __init__(self, embed):
            super().__init__()
            self.embed, self.tracker = embed, keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.tracker]

        def call(self, data):
            a, p, n = (self.embed(d) for d in data)
            return tf.reduce_sum((a - p) ** 2, -1), tf.reduce_sum((a - n) ** 2, -1)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                near, far = self(data, training=True)
                loss = tf.reduce_mean(tf.maximum(near - far + 0.5, 0.0))
            self.optimizer.apply_gradients(zip(tape.gradient(loss, self.embed.trainable_weights), self.embed.trainable_weights))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}
    net = Siamese(embed)
    net.compile(keras.optimizers.Adam(1e-3))
    return (lambda: net.fit(ds, epochs=2, verbose=0)), None


@case("")
def vision_transformer_of_small_images():
    """Keras example "image classification with vision transformer", small."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(402)
    x, y = rng.random((384, 32, 32, 3), np.float32), rng.integers(0, 10, 384)
    xv, yv = rng.random((64, 32, 32, 3), np.float32), rng.integers(0, 10, 64)
    inp = keras.Input((32, 32, 3))
    h = L.Reshape((64, 64))(L.Conv2D(64, 4, 4)(inp))
    h = h + L.Embedding(64, 64)(keras.ops.arange(64))
    for _ in range(3):
        n = L.LayerNormalization(epsilon=1e-6)(h)
        h = L.Add()([h, L.MultiHeadAttention(4, 16, dropout=0.1)(n, n)])
        n = L.LayerNormalization(epsilon=1e-6)(h)
        h = L.Add()([h, L.Dense(64)(L.Dropout(0.1)(L.Dense(128, activation="gelu")(n)))])
    out = L.Dense(10)(L.Dense(256, activation="gelu")(L.GlobalAveragePooling1D()(L.LayerNormalization()(h))))
    net = keras.Model(inp, out)
    net.compile(keras.optimizers.AdamW(1e-3, weight_decay=1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return (lambda: net.fit(x, y, batch_size=64, epochs=2, validation_data=(xv, yv), verbose=0)), None


@case("")
def translation_by_encoder_and_decoder():
    """Seq2seq: bidirectional LSTM encoder, LSTM decoder with attention, masked loss."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(403)
    src, tgt = rng.integers(1, 2000, (512, 20)), rng.integers(1, 2000, (512, 22))
    ds = tf.data.Dataset.from_tensor_slices(((src, tgt[:, :-1]), tgt[:, 1:])).shuffle(512).batch(64).prefetch(tf.data.AUTOTUNE)
    e, d = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    enc = L.Bidirectional(L.LSTM(64, return_sequences=True))(L.Embedding(2000, 64)(e))
    dec = L.LSTM(128, return_sequences=True)(L.Embedding(2000, 64)(d))
    ctx = L.Attention()([dec, enc])
    net = keras.Model([e, d], L.Dense(2000)(L.Concatenate()([dec, ctx])))
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0), metrics=["accuracy"])
    return (lambda: net.fit(ds, epochs=2, verbose=0)), None


@case("")
def digits_by_diffusion():
    """Denoising diffusion: noise added in the train step, a small U-shaped network, then a few sampling steps, compiled."""
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(404)
    x = (rng.random((384, 28, 28, 1), np.float32) * 2 - 1)
    ds = tf.data.Dataset.from_tensor_slices(x).cache().shuffle(384).batch(64, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    T = 200
    alpha = tf.constant(np.cumprod(1 - np.linspace(1e-4, 0.02, T)), tf.float32)
    img, time = keras.Input((28, 28, 1)), keras.Input(())
    emb = L.Dense(32, activation="swish")(keras.ops.sin(keras.ops.expand_dims(time, -1) * keras.ops.arange(1, 17, dtype="float32")))
    a = L.Conv2D(32, 3, padding="same", activation="swish")(img)
    b = L.Conv2D(32, 3, 2, padding="same", activation="swish")(a) + L.Reshape((1, 1, 32))(emb)
    c = L.Conv2D(64, 3, padding="same", activation="swish")(b)
    u = L.Conv2DTranspose(32, 3, 2, padding="same", activation="swish")(c)
    net = keras.Model([img, time], L.Conv2D(1, 3, padding="same")(L.Concatenate()([a, u])))
    opt = keras.optimizers.Adam(1e-3)

    @tf.function
    def train_step(x):
        t = tf.random.uniform((64,), 0, T, tf.int32)
        noise = tf.random.normal(tf.shape(x))
        at = tf.gather(alpha, t)[:, None, None, None]
        with tf.GradientTape() as tape:
            out = net([tf.sqrt(at) * x + tf.sqrt(1 - at) * noise, tf.cast(t, tf.float32) / T], training=True)
            loss = tf.reduce_mean((out - noise) ** 2)
        opt.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    @tf.function
    def denoise(x, t):
        tt = tf.fill((16,), tf.cast(t, tf.float32) / T)
        at = alpha[t]
        x0 = (x - tf.sqrt(1 - at) * net([x, tt])) / tf.sqrt(at)
        prev = alpha[tf.maximum(t - 20, 0)]
        return tf.sqrt(prev) * x0 + tf.sqrt(1 - prev) * (x - tf.sqrt(at) * x0) / tf.sqrt(1 - at)

    def cell():
        for epoch in range(2):
            for xb in ds:
                loss = train_step(xb)
        img = tf.random.normal((16, 28, 28, 1))
        for t in range(T - 1, 0, -20):
            img = denoise(img, tf.constant(t))
        return float(loss), img.numpy()
    return cell, None


@case("")
def heartbeats_by_autoencoder():
    """Anomaly detection: convolutional autoencoder, fit with validation_split, predict, threshold with pandas."""
    import keras, numpy as np, pandas as pd
    L = keras.layers
    rng = np.random.default_rng(405)
    x = rng.normal(size=(1536, 192, 1)).astype("float32")
    test = rng.normal(size=(1024, 192, 1)).astype("float32")
    net = keras.Sequential([keras.Input((192, 1)), L.Conv1D(32, 7, 2, padding="same", activation="relu"), L.Dropout(0.2),
                            L.Conv1D(16, 7, 2, padding="same", activation="relu"), L.Conv1DTranspose(16, 7, 2, padding="same", activation="relu"),
                            L.Dropout(0.2), L.Conv1DTranspose(32, 7, 2, padding="same", activation="relu"), L.Conv1DTranspose(1, 7, padding="same")])
    net.compile(keras.optimizers.Adam(1e-3), "mse")

    def cell():
        net.fit(x, x, batch_size=128, epochs=2, validation_split=0.1, verbose=0, callbacks=[keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)])
        train_err = np.abs(net.predict(x, batch_size=256, verbose=0) - x).mean((1, 2))
        err = np.abs(net.predict(test, batch_size=256, verbose=0) - test).mean((1, 2))
        frame = pd.DataFrame({"error": err, "anomaly": err > np.quantile(train_err, 0.99)})
        return frame.groupby("anomaly").error.describe()
    return cell, None


@of("torch", "")
def torch_demand_by_transformer_encoder():
    """nn.TransformerEncoder over windows, validation under no_grad, scheduler, best weights kept."""
    import copy
    import numpy as np, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    rng = np.random.default_rng(406)
    X, Y = torch.tensor(rng.normal(size=(640, 48, 6)).astype("float32")), torch.tensor(rng.normal(size=(640, 12)).astype("float32"))
    train, val = DataLoader(TensorDataset(X[:512], Y[:512]), batch_size=64, shuffle=True), DataLoader(TensorDataset(X[512:], Y[512:]), batch_size=128)

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.pos = nn.Linear(6, 64), nn.Parameter(torch.randn(48, 64) * 0.02)
            self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True), 2)
            self.head = nn.Linear(64, 12)

        def forward(self, x):
            return self.head(self.enc(self.up(x) + self.pos).mean(1))
    net = Forecaster()
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=3)

    def cell():
        best, weights = float("inf"), None
        for epoch in range(2):
            net.train()
            for xb, yb in train:
                opt.zero_grad()
                loss = nn.functional.l1_loss(net(xb), yb)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
            net.eval()
            with torch.no_grad():
                total = sum(nn.functional.l1_loss(net(xb), yb, reduction="sum").item() for xb, yb in val)
            sched.step(total)
            if total < best:
                best, weights = total, copy.deepcopy(net.state_dict())
        return best
    return cell, None


@of("torch", "")
def torch_landers_by_ppo():
    """PPO: 256 environments stepped at once as arrays, rollout under no_grad, GAE backwards, minibatches."""
    import numpy as np, torch
    from torch import nn
    rng = np.random.default_rng(407)
    E, T = 256, 32

    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
            self.pi, self.v = nn.Linear(256, 4), nn.Linear(256, 1)

        def forward(self, s):
            h = self.body(s)
            return torch.distributions.Categorical(logits=self.pi(h)), self.v(h)[:, 0]
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), 3e-4)
    push = torch.tensor(rng.normal(size=(4, 8)).astype("float32")) * 0.05

    def rollout():
        s = torch.randn(E, 8)
        S, A, LP, R, V = torch.zeros(T, E, 8), torch.zeros(T, E, dtype=torch.long), torch.zeros(T, E), torch.zeros(T, E), torch.zeros(T + 1, E)
        with torch.no_grad():
            for t in range(T):
                dist, v = net(s)
                a = dist.sample()
                S[t], A[t], LP[t], V[t] = s, a, dist.log_prob(a), v
                s = 0.99 * s + push[a] + 0.01 * torch.randn(E, 8)
                R[t] = -s.abs().mean(1)
            V[T] = net(s)[1]
            adv, last = torch.zeros(T, E), torch.zeros(E)
            for t in reversed(range(T)):
                last = R[t] + 0.99 * V[t + 1] - V[t] + 0.95 * 0.99 * last
                adv[t] = last
        return S.view(-1, 8), A.view(-1), LP.view(-1), adv.view(-1), (adv + V[:-1]).view(-1)

    def cell():
        for update in range(5):
            S, A, LP, adv, ret = rollout()
            for epoch in range(3):
                for i in torch.randperm(E * T).split(1024):
                    dist, v = net(S[i])
                    ratio = (dist.log_prob(A[i]) - LP[i]).exp()
                    a = (adv[i] - adv[i].mean()) / (adv[i].std() + 1e-8)
                    loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean() + 0.5 * (v - ret[i]).pow(2).mean() - 0.01 * dist.entropy().mean()
                    opt.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                    opt.step()
        return loss.item()
    return cell, None


@of("jax", "")
def jax_spirals_by_neural_ode():
    """Neural ODE: Runge-Kutta steps in lax.scan, jitted Adam step."""
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(408)
    f = lambda *s: jnp.asarray(rng.normal(size=s) * 0.1, jnp.float32)
    p0 = {"a": f(2, 64), "ab": jnp.zeros(64), "b": f(64, 64), "bb": jnp.zeros(64), "c": f(64, 2)}
    start, target = f(512, 2) * 10, f(40, 512, 2)

    def field(p, y):
        return jnp.tanh(jnp.tanh(y @ p["a"] + p["ab"]) @ p["b"] + p["bb"]) @ p["c"]

    def solve(p, y0):
        def rk4(y, _):
            k1 = field(p, y)
            k2 = field(p, y + 0.05 * k1)
            k3 = field(p, y + 0.05 * k2)
            k4 = field(p, y + 0.1 * k3)
            y = y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return y, y
        return jax.lax.scan(rk4, y0, None, 40)[1]

    @jax.jit
    def step(p, m, v, t):
        loss, g = jax.value_and_grad(lambda p: jnp.mean((solve(p, start) - target) ** 2))(p)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        p = jax.tree.map(lambda w, a, b: w - 1e-3 * (a / (1 - 0.9 ** t)) / (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8), p, m, v)
        return p, m, v, loss

    def cell():
        p = p0
        m = v = jax.tree.map(jnp.zeros_like, p)
        for t in range(1, 16):
            p, m, v, loss = step(p, m, v, float(t))
        return float(loss)
    return cell, None
