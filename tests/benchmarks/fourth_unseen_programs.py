"""A fourth set of twenty programs that nobody tuned to: twelve with a mistake, eight healthy. The right answer was written down before they were run.

The changed cell of a healthy one is what a keen adviser might wrongly suggest; it saves little or nothing. Right means: the first advice names
the cause and its promise holds; for a healthy one, that nothing promises 10 points more than the change saves.
"""

import gc
import io

from public_programs import case
from row_programs import of


@case("input-bound")
def sunspots_by_nested_window_datasets():
    """The Coursera course's windowed_dataset: window().flat_map(batch), a small dataset for each window (tensorflow issue 43703).

    Right: the input, of which window/flat_map takes the time. Changed: windows as one array before from_tensor_slices.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(501)
    series = np.cumsum(rng.normal(size=7000)).astype("float32")
    net = keras.Sequential([keras.Input((30, 1)), L.Conv1D(16, 5, padding="causal", activation="relu"), L.Flatten(), L.Dense(16, activation="relu"), L.Dense(1)])
    net.compile(keras.optimizers.SGD(1e-6, momentum=0.9), keras.losses.Huber(), metrics=["mae"])

    def nested(s):
        ds = tf.data.Dataset.from_tensor_slices(s[:, None])
        ds = ds.window(31, shift=1, drop_remainder=True)
        ds = ds.flat_map(lambda w: w.batch(31))
        return ds.shuffle(1000).map(lambda w: (w[:-1], w[-1])).batch(32).prefetch(1)

    def sliced(s):
        w = np.lib.stride_tricks.sliding_window_view(s, 31)[..., None]
        return tf.data.Dataset.from_tensor_slices((w[:, :-1], w[:, -1])).shuffle(1000).batch(32).prefetch(1)
    return (lambda: net.fit(nested(series), epochs=5, verbose=0)), (lambda: net.fit(sliced(series), epochs=5, verbose=0))


@case("input-bound")
def two_kinds_of_ten_filtered_after_decoding():
    """All JPEGs are decoded, cropped at random and resized, then a filter keeps two classes of ten.

    Right: the map that decodes is what the input takes (first filter, then map); no cache, for its crop is random. Changed: filter before map.
    """
    import keras, numpy as np, tensorflow as tf
    from PIL import Image
    L = keras.layers
    rng = np.random.default_rng(502)

    def jpeg():
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).resize((288, 288)).save(out, "JPEG", quality=90)
        return out.getvalue()
    some = [jpeg() for _ in range(40)]
    files, kinds = tf.constant([some[i % 40] for i in range(2400)]), rng.permutation(np.arange(2400) % 10)
    raw = tf.data.Dataset.from_tensor_slices((files, kinds))
    net = keras.Sequential([keras.Input((64, 64, 3)), L.Conv2D(8, 3, 2, activation="relu"), L.Conv2D(16, 3, 2, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(1)])
    net.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))

    def decode(b, k):
        image = tf.image.random_crop(tf.io.decode_jpeg(b, channels=3), (256, 256, 3))
        return tf.image.random_flip_left_right(tf.image.resize(image, (64, 64)) / 255.0), k

    def wanted(image, k):
        return k < 2
    late = raw.map(decode, num_parallel_calls=tf.data.AUTOTUNE).filter(wanted).batch(32).prefetch(tf.data.AUTOTUNE)
    early = raw.filter(wanted).map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
    return (lambda: net.fit(late, epochs=3, verbose=0)), (lambda: net.fit(early, epochs=3, verbose=0))


@case("predict-in-a-loop")
def verses_written_after_each_epoch():
    """Keras example of character text generation: a LambdaCallback writes a sample after each epoch, one model.predict a character.

    Right: predict of one example for each character (in the callback). Changed: a compiled call instead of predict.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(503)
    text = rng.integers(0, 40, 2600)
    x, y = np.lib.stride_tricks.sliding_window_view(text[:-1], 40), text[40:]
    net = keras.Sequential([keras.Input((40,)), L.Embedding(40, 24), L.LSTM(48), L.Dense(40, activation="softmax")])
    net.compile("adam", "sparse_categorical_crossentropy")
    compiled = tf.function(lambda w: net(w, training=False))

    def sample(p, temperature=0.7):
        p = np.exp(np.log(np.asarray(p, "float64") + 1e-9) / temperature)
        return int(np.argmax(rng.multinomial(1, p / p.sum() * (1 - 1e-9))))

    def run(ask):
        def write(epoch, logs):
            window = list(text[:40])
            for i in range(24):
                window.append(sample(ask(np.array([window[-40:]]))[0]))
            return window
        net.fit(x, y, batch_size=128, epochs=2, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=write)])
    return (lambda: run(lambda w: net.predict(w, verbose=0))), (lambda: run(lambda w: compiled(tf.constant(w)).numpy()))


@case("training-metrics")
def crops_with_precision_and_recall_of_each_class():
    """compile(metrics=[Precision(class_id=i), Recall(class_id=i) for 12 classes]): 24 metrics in each step (and in its tracing).

    Right: the metrics, which take more of a step and of its tracing than the model. Changed: one metric with the counts of all classes.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(504)
    K = 12
    x, y = rng.random((6400, 40), np.float32), np.eye(K, dtype="float32")[rng.integers(0, K, 6400)]

    class PrecisionRecall(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="pr")
            self.counts = self.add_weight(shape=(3, K), initializer="zeros")

        def update_state(self, t, p, sample_weight=None):
            p = keras.ops.cast(p > 0.5, "float32")
            self.counts.assign_add(keras.ops.stack([keras.ops.sum(t * p, 0), keras.ops.sum(p, 0), keras.ops.sum(t, 0)]))

        def result(self):
            hit, said, are = keras.ops.unstack(self.counts, 3)
            return {"precision": keras.ops.mean(hit / (said + 1e-7)), "recall": keras.ops.mean(hit / (are + 1e-7))}

        def reset_state(self):
            self.counts.assign(keras.ops.zeros((3, K)))

    def run(metrics):
        net = keras.Sequential([keras.Input((40,)), L.Dense(64, activation="relu"), L.Dense(32, activation="relu"), L.Dense(K, activation="softmax")])
        net.compile("adam", "categorical_crossentropy", metrics=metrics)
        net.fit(x, y, batch_size=32, epochs=2, verbose=0)

    def each():
        run([m(class_id=i, name=f"{m.__name__}_{i}") for i in range(K) for m in (keras.metrics.Precision, keras.metrics.Recall)])
    return each, (lambda: run([PrecisionRecall()]))


@case("own-python")
def clinic_table_normalised_column_by_column():
    """TensorFlow's tutorial on preprocessing layers: for each numeric column adapt(dataset.map(lambda x, y: x[name])), an Input each.

    Right: Normalization.adapt, which passes over the whole dataset once for each column. Changed: adapt each on its array of the frame.
    """
    import keras, numpy as np, pandas as pd, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(505)
    names = [f"lab_{i}" for i in range(24)]
    frame = pd.DataFrame(rng.normal(size=(6400, 24)).astype("float32"), columns=names)
    target = rng.integers(0, 2, 6400)
    ds = tf.data.Dataset.from_tensor_slices(({k: frame[[k]].to_numpy() for k in names}, target)).shuffle(6400).batch(128).prefetch(tf.data.AUTOTUNE)

    def by_dataset(layer, name):
        layer.adapt(ds.map(lambda x, y: x[name]))

    def by_array(layer, name):
        layer.adapt(frame[[name]].to_numpy())

    def run(adapt):
        inputs, encoded = {}, []
        for name in names:
            inputs[name] = keras.Input((1,), name=name)
            layer = L.Normalization(axis=None)
            adapt(layer, name)
            encoded.append(layer(inputs[name]))
        h = L.Dropout(0.5)(L.Dense(32, activation="relu")(L.Concatenate()(encoded)))
        net = keras.Model(inputs, L.Dense(1)(h))
        net.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
        net.fit(ds, epochs=2, verbose=0)
    return (lambda: run(by_dataset)), (lambda: run(by_array))


@case("python-input")
def signatures_paired_by_np_where():
    """Siamese pairs from a Python generator which searches all labels with np.where for each row.

    Right: the generator (Python) holds the steps up. Changed: rows of each class looked up once, pairs of a batch drawn at once.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(506)
    n = 30000
    x, y = rng.random((n, 64), np.float32), rng.integers(0, 50, n)

    def searching(batch=64):
        while True:
            a, b, same = [], [], []
            for k in range(batch):
                i = rng.integers(0, n)
                pool = np.where(y == y[i])[0] if k % 2 else np.where(y != y[i])[0]
                a.append(x[i])
                b.append(x[rng.choice(pool)])
                same.append(k % 2)
            yield (np.array(a), np.array(b)), np.array(same, "float32")

    def looking_up(batch=64):
        order = np.argsort(y, kind="stable")
        start, size = np.searchsorted(y[order], np.arange(50)), np.bincount(y, minlength=50)
        same = (np.arange(batch) % 2).astype("float32")
        while True:
            i = rng.integers(0, n, batch)
            kind = np.where(same > 0, y[i], (y[i] + rng.integers(1, 50, batch)) % 50)
            j = order[start[kind] + (rng.random(batch) * size[kind]).astype(int)]
            yield (x[i], x[j]), same
    one, two = keras.Input((64,)), keras.Input((64,))
    embed = keras.Sequential([keras.Input((64,)), L.Dense(128, activation="relu"), L.Dense(32)])
    net = keras.Model([one, two], L.Dense(1, activation="sigmoid")(keras.ops.abs(embed(one) - embed(two))))
    net.compile("adam", "binary_crossentropy")

    def run(pairs):
        net.fit(pairs(), steps_per_epoch=250, epochs=2, verbose=0)
    return (lambda: run(searching)), (lambda: run(looking_up))


@case("loaded-again")
def leaflets_served_by_an_interpreter_each():
    """A service on LiteRT: classify(image) makes and allocates an Interpreter for each request.

    Right: the Interpreter (and allocate_tensors) made anew for each image. Changed: made once.
    """
    import keras, numpy as np, tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter
    L = keras.layers
    rng = np.random.default_rng(507)
    inp = keras.Input((64, 64, 3))
    h = inp
    for f in (16, 32, 64, 128, 128):
        h = L.SeparableConv2D(f, 3, 2, padding="same", activation="relu")(h)
    net = keras.Model(inp, L.Dense(1000)(L.Dense(512, activation="relu")(L.Flatten()(h))))
    flat = tf.lite.TFLiteConverter.from_keras_model(net).convert()
    images = rng.random((500, 1, 64, 64, 3), np.float32)

    def ask(interpreter, image):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
        interpreter.invoke()
        return int(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).argmax())

    def ready():
        interpreter = Interpreter(model_content=flat)
        interpreter.allocate_tensors()
        return interpreter

    def anew():
        return [ask(ready(), image) for day in range(7) for image in images]

    def once():
        interpreter = ready()
        return [ask(interpreter, image) for day in range(7) for image in images]
    return anew, once


@case("")
def birds_on_a_frozen_base_behind_random_layers():
    """Transfer learning, the base frozen, RandomFlip and RandomRotation in front: its features differ in each epoch.

    Healthy: the base's convolutions take nearly all, and cannot be computed once. Changed: cache, prefetch and steps_per_execution.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(508)
    x, y = rng.random((256, 96, 96, 3), np.float32), rng.integers(0, 20, 256)
    base = keras.applications.MobileNetV2((96, 96, 3), alpha=0.5, include_top=False, weights=None, pooling="avg")
    base.trainable = False
    inp = keras.Input((96, 96, 3))
    h = L.RandomRotation(0.1)(L.RandomFlip("horizontal")(inp))
    net = keras.Model(inp, L.Dense(20)(L.Dropout(0.2)(base(h * 2.0 - 1.0, training=False))))
    plain = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(256).batch(32)
    kept = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(256).batch(32).prefetch(tf.data.AUTOTUNE)

    def run(ds, **more):
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], **more)
        net.fit(ds, epochs=3, verbose=0)
    return (lambda: run(plain)), (lambda: run(kept, steps_per_execution=4))


@case("")
def attributions_by_integrated_gradients():
    """Integrated gradients of some images: 50 steps from black, a compiled function on batches of 25.

    Healthy: convolutions and their gradients. Changed: all 50 steps in one batch.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(509)
    images = tf.constant(rng.random((12, 80, 80, 3), np.float32))
    inp = keras.Input((80, 80, 3))
    h = inp
    for f in (32, 64, 64):
        h = L.MaxPooling2D()(L.Conv2D(f, 3, padding="same", activation="relu")(h))
    net = keras.Model(inp, L.Dense(10)(L.GlobalAveragePooling2D()(h)))

    @tf.function
    def gradients(batch, target):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            score = tf.gather(tf.nn.softmax(net(batch)), target, axis=1)
        return tape.gradient(score, batch)

    def run(size):
        alphas = tf.linspace(0.0, 1.0, 50)[:, None, None, None]
        maps = []
        for image in images:
            total = tf.zeros_like(image)
            for i in range(0, 50, size):
                total += tf.reduce_sum(gradients(alphas[i:i + size] * image, tf.constant(3)), 0)
            maps.append((image * total / 50).numpy())
        return np.stack(maps)
    return (lambda: run(25)), (lambda: run(50))


@case("")
def widths_tried_in_a_grid():
    """A search over the width of a hidden layer: each candidate is another model, trained for some epochs and evaluated.

    Healthy: matrix products; models of different widths cannot share a trace. Changed: steps_per_execution and prefetch for each.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(510)
    x, y = rng.random((2048, 512), np.float32), rng.integers(0, 10, 2048)
    xv, yv = rng.random((512, 512), np.float32), rng.integers(0, 10, 512)

    def run(more, data, held):
        scores = {}
        for width in (768, 1024, 1280):
            net = keras.Sequential([keras.Input((512,)), L.Dense(width, activation="relu"), L.Dropout(0.3), L.Dense(width, activation="relu"), L.Dense(10)])
            net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], **more)
            net.fit(*data, batch_size=None if len(data) == 1 else 128, epochs=2, verbose=0)
            scores[width] = net.evaluate(*held, batch_size=None if len(held) == 1 else 128, verbose=0)[1]
        return max(scores, key=scores.get)

    def fed(a, b):
        return (tf.data.Dataset.from_tensor_slices((a, b)).cache().shuffle(len(a)).batch(128).prefetch(tf.data.AUTOTUNE),)
    return (lambda: run({}, (x, y), (xv, yv))), (lambda: run({"steps_per_execution": 8}, fed(x, y), fed(xv, yv)))


@case("")
def jax_backend_glyphs_by_a_small_convnet():
    """Keras on JAX: fit with validation and early stopping of a convnet.

    Healthy: convolutions. Changed: steps_per_execution and a larger validation batch.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(511)
    x, y = rng.random((320, 32, 32, 1), np.float32), rng.integers(0, 26, 320)
    xv, yv = rng.random((128, 32, 32, 1), np.float32), rng.integers(0, 26, 128)

    def run(more, val):
        net = keras.Sequential([keras.Input((32, 32, 1)), L.Conv2D(16, 3, activation="relu"), L.Conv2D(16, 3, activation="relu"), L.MaxPooling2D(),
                                L.Conv2D(64, 3, activation="relu"), L.MaxPooling2D(), L.Flatten(), L.Dropout(0.4), L.Dense(26)])
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], **more)
        net.fit(x, y, batch_size=64, epochs=3, verbose=0, validation_data=(xv, yv), validation_batch_size=val,
                callbacks=[keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)])
    return (lambda: run({}, 64)), (lambda: run({"steps_per_execution": 4}, 128))


@case("eager-ops")
def jax_backend_wines_with_jit_compile_off():
    """Keras on JAX with compile(jit_compile=False), copied from an answer about TensorFlow's XLA warnings: every op runs by itself.

    Right: the train step is not compiled; leave jit_compile out. Changed: that.
    """
    import keras, numpy as np
    L = keras.layers
    rng = np.random.default_rng(512)
    x, y = rng.random((768, 13), np.float32), rng.integers(0, 3, 768)

    def run(**more):
        net = keras.Sequential([keras.Input((13,)), L.Dense(64, activation="relu"), L.BatchNormalization(), L.Dropout(0.2), L.Dense(32, activation="relu"), L.Dense(3)])
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], **more)
        net.fit(x, y, batch_size=64, epochs=2, verbose=0)
    return (lambda: run(jit_compile=False)), (lambda: run())


@of("jax", "compiling")
def jax_tides_by_a_loop_unrolled_in_jit():
    """A recurrent net by hand, jitted, its loop over the time steps in Python: the loop is unrolled and compiled for long (jax issue 2777).

    Right: compiling (an unrolled loop) takes most; lax.scan. Changed: lax.scan.
    """
    import jax, jax.numpy as jnp, numpy as np
    rng = np.random.default_rng(513)
    f = lambda *s: jnp.asarray(rng.normal(size=s) * 0.1, jnp.float32)
    start = {"wx": f(4, 96), "wh": f(32, 96), "b": jnp.zeros(96), "out": f(32, 1)}
    x, y = f(20, 128, 18, 4), f(20, 128, 1)

    def gru(p, h, xt):
        a, c = xt @ p["wx"] + p["b"], h @ p["wh"]
        z, r = jax.nn.sigmoid(a[:, :32] + c[:, :32]), jax.nn.sigmoid(a[:, 32:64] + c[:, 32:64])
        return (1 - z) * h + z * jnp.tanh(a[:, 64:] + r * c[:, 64:])

    def unrolled(p, xs):
        h = jnp.zeros((xs.shape[0], 32))
        for t in range(xs.shape[1]):
            h = gru(p, h, xs[:, t])
        return h @ p["out"]

    def scanned(p, xs):
        h, _ = jax.lax.scan(lambda h, xt: (gru(p, h, xt), None), jnp.zeros((xs.shape[0], 32)), jnp.swapaxes(xs, 0, 1))
        return h @ p["out"]

    def train(net):
        @jax.jit
        def step(p, xs, ys):
            loss, g = jax.value_and_grad(lambda p: jnp.mean((net(p, xs) - ys) ** 2))(p)
            return jax.tree.map(lambda w, d: w - 0.01 * d, p, g), loss
        p = start
        for epoch in range(3):
            for xs, ys in zip(x, y):
                p, loss = step(p, xs, ys)
        return float(loss)
    return (lambda: train(unrolled)), (lambda: train(scanned))


@of("jax", "")
def jax_posterior_by_hamiltonian_steps():
    """Hamiltonian Monte Carlo for a logistic regression: leapfrog steps in a scan, samples in a scan, all jitted.

    Healthy: matrix products. Changed: donated buffers and twice as many samples in a call.
    """
    import jax, jax.numpy as jnp, numpy as np
    from functools import partial
    rng = np.random.default_rng(514)
    X = jnp.asarray(rng.normal(size=(20000, 64)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 2, 20000), jnp.float32)

    def logp(w):
        z = X @ w
        return jnp.sum(y * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(w * w)
    grad = jax.grad(logp)

    def draw(w, key):
        k1, k2 = jax.random.split(key)
        m0 = jax.random.normal(k1, w.shape)

        def leap(s, _):
            w, m = s
            m = m + 0.0005 * grad(w)
            w = w + 0.001 * m
            return (w, m + 0.0005 * grad(w)), None
        (new, m), _ = jax.lax.scan(leap, (w, m0), None, 10)
        accept = jnp.log(jax.random.uniform(k2)) < logp(new) - logp(w) + 0.5 * (m0 @ m0 - m @ m)
        w = jnp.where(accept, new, w)
        return w, w

    def run(donate, chunk):
        sample = partial(jax.jit, donate_argnums=donate)(lambda w, keys: jax.lax.scan(draw, w, keys))
        w, key, all_w = jnp.zeros(64), jax.random.key(0), []
        for i in range(0, 120, chunk):
            key, sub = jax.random.split(key)
            w, ws = sample(w, jax.random.split(sub, chunk))
            all_w.append(np.asarray(ws))
        return np.concatenate(all_w).mean(0)
    return (lambda: run((), 20)), (lambda: run((0,), 40))


@of("torch", "own-python")
def torch_leaves_with_gc_collect_in_each_step():
    """gc.collect() (with torch.cuda.empty_cache()) after each step, against a memory leak that was somewhere else.

    Right: gc.collect() in the loop takes most of a step. Changed: without.
    """
    import torch
    from torch import nn
    torch.manual_seed(515)
    x, y = torch.rand(3200, 3, 32, 32), torch.randint(0, 8, (3200,))
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 7 * 7, 8))
    opt = torch.optim.Adam(net.parameters(), 1e-3)

    def train(tidy):
        for xb, yb in zip(x.split(256), y.split(256)):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(xb), yb)
            loss.backward()
            opt.step()
            tidy()
        return loss.item()

    def collect():
        gc.collect()
        torch.cuda.empty_cache()

    def nothing():
        pass
    return (lambda: train(collect)), (lambda: train(nothing))


@of("torch", "input-bound")
def torch_loans_read_row_by_row():
    """DataLoader(TensorDataset) over a table in memory: each row is indexed alone and collated (pytorch issue 4959).

    Right: the DataLoader (rows one by one, collated). Changed: whole batches by index.
    """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    torch.manual_seed(516)
    n = 60000
    num, cat, y = torch.randn(n, 10), torch.randint(0, 30, (n, 4)), torch.randint(0, 2, (n, 1)).float()

    class Loans(Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            return num[i], cat[i], y[i]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.ModuleList(nn.Embedding(30, 4) for _ in range(4))
            self.body = nn.Sequential(nn.Linear(26, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, a, b):
            return self.body(torch.cat([a] + [e(b[:, i]) for i, e in enumerate(self.emb)], 1))
    net = Net()
    opt = torch.optim.Adam(net.parameters(), 1e-3)

    def train(batches):
        net.train()
        for epoch in range(4):
            for a, b, t in batches():
                opt.zero_grad()
                loss = nn.functional.binary_cross_entropy_with_logits(net(a, b), t)
                loss.backward()
                opt.step()
        return loss.item()
    loader = DataLoader(Loans(), batch_size=512, shuffle=True)

    def by_index():
        for i in torch.randperm(n).split(512):
            yield num[i], cat[i], y[i]
    return (lambda: train(lambda: loader)), (lambda: train(by_index))


@of("torch", "own-python")
def torch_embeddings_gathered_by_cat():
    """Embeddings of a whole collection: bank = torch.cat([bank, new]) after each batch, which copies all that was gathered before.

    Right: torch.cat of a growing tensor (quadratic). Changed: a list, one cat at the end.
    """
    import torch
    from torch import nn
    torch.manual_seed(517)
    pages = torch.rand(16384, 64)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256)).eval()

    def growing():
        bank = torch.empty(0, 256)
        with torch.no_grad():
            for batch in pages.split(32):
                bank = torch.cat([bank, nn.functional.normalize(net(batch))], 0)
        return bank.mean().item()

    def listed():
        bank = []
        with torch.no_grad():
            for batch in pages.split(32):
                bank.append(nn.functional.normalize(net(batch)))
        return torch.cat(bank).mean().item()
    return growing, listed


@of("torch", "")
def torch_prose_by_truncated_backpropagation():
    """A word model: nn.LSTM over chunks of 32 words, its state detached between them, clipped gradients.

    Healthy: the LSTM and the layer over the vocabulary. Changed: foreach/fused Adam, the loss read once at the end.
    """
    import torch
    from torch import nn
    torch.manual_seed(518)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # its first optimizer has PyTorch import for seconds
    words = torch.randint(0, 4000, (32, 32 * 16 + 1))

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn, self.out = nn.Embedding(4000, 160), nn.LSTM(160, 256, 2, batch_first=True, dropout=0.2), nn.Linear(256, 4000)

        def forward(self, x, state):
            h, state = self.rnn(self.emb(x), state)
            return self.out(h), state

    def run(fused, each):
        net = Words()
        opt = torch.optim.Adam(net.parameters(), 1e-3, fused=fused)
        state, losses = None, []
        for i in range(0, words.shape[1] - 1, 32):
            x, y = words[:, i:i + 32], words[:, i + 1:i + 33]
            opt.zero_grad()
            logits, state = net(x, state)
            state = tuple(s.detach() for s in state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            losses.append(loss.item() if each else loss.detach())
        return float(losses[-1])
    return (lambda: run(False, True)), (lambda: run(True, False))


@of("torch", "")
def torch_lesions_segmented_from_memory():
    """Segmentation by a small U-shaped net, Dice loss, a DataLoader without workers over arrays in memory.

    Healthy: convolutions; loading costs little. Changed: num_workers=2 and persistent_workers.
    """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(519)
    scans, masks = torch.rand(128, 1, 96, 96), (torch.rand(128, 1, 96, 96) > 0.7).float()

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            two = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
            self.a, self.b, self.c = two(1, 16), two(16, 32), two(48, 16)
            self.out, self.up = nn.Conv2d(16, 1, 1), nn.Upsample(scale_factor=2)

        def forward(self, x):
            a = self.a(x)
            b = self.b(nn.functional.max_pool2d(a, 2))
            return self.out(self.c(torch.cat([a, self.up(b)], 1)))
    net = UNet()
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    data = TensorDataset(scans, masks)

    def train(loader):
        total = 0.0
        for epoch in range(2):
            for xb, yb in loader:
                p = torch.sigmoid(net(xb))
                loss = 1 - 2 * (p * yb).sum() / (p.sum() + yb.sum() + 1e-6)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
        return total
    plain = DataLoader(data, batch_size=16, shuffle=True)
    workers = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    return (lambda: train(plain)), (lambda: train(workers))


@case("")
def photos_enlarged_by_subpixel_convolutions():
    """Super-resolution (Keras example): small images made by a parallel map, cached and prefetched, PSNR as a metric.

    Healthy: convolutions. Changed: jit_compile=True and steps_per_execution.
    """
    import keras, numpy as np, tensorflow as tf
    L = keras.layers
    rng = np.random.default_rng(520)
    large = rng.random((160, 120, 120, 1), np.float32)
    ds = (tf.data.Dataset.from_tensor_slices(large).batch(16).map(lambda a: (tf.image.resize(a, (40, 40), "area"), a), num_parallel_calls=tf.data.AUTOTUNE)
          .cache().prefetch(tf.data.AUTOTUNE))

    class Psnr(keras.metrics.Mean):
        def update_state(self, a, b, sample_weight=None):
            return super().update_state(10.0 * keras.ops.log10(1.0 / keras.ops.mean(keras.ops.square(a - b), (1, 2, 3))))

    def run(**more):
        inp = keras.Input((40, 40, 1))
        h = L.Conv2D(64, 5, padding="same", activation="relu")(inp)
        h = L.Conv2D(64, 3, padding="same", activation="relu")(h)
        h = L.Conv2D(32, 3, padding="same", activation="relu")(h)
        net = keras.Model(inp, L.Lambda(lambda t: tf.nn.depth_to_space(t, 3))(L.Conv2D(9, 3, padding="same")(h)))
        net.compile(keras.optimizers.Adam(1e-3), "mse", metrics=[Psnr(name="psnr")], **more)
        net.fit(ds, epochs=3, verbose=0)
    return (lambda: run()), (lambda: run(jit_compile=True, steps_per_execution=5))
