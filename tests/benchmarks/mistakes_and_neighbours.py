"""Everyday mistakes, and healthy programs of the same kinds: views for contrastive learning, metrics, interleaved files, Ragged rows ...

After Keras' examples (contrastive pretraining, text classification, own training loops), PyTorch's and JAX's guides and what public threads
ask about (``tf.map_fn`` in a layer, `adapt` in a loop, npz files, pandas rows, a DataLoader without workers, shapes that differ). They have
the form of ``public_programs.py``; those of PyTorch and JAX are there where the framework is. Written before anything of advice was read.
"""

import os
import tempfile

from other_programs import has
from public_programs import case, tools


def crossed(keras):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def photo_net(keras, side, *convolutions):
    """A network for square photos of five kinds; each convolution by its filters, size and strides."""
    layers = keras.layers
    over = [layers.Conv2D(*one, activation="relu") for one in convolutions]
    m = keras.Sequential([keras.Input((side, side, 3)), *over, layers.Flatten(), layers.Dense(5)])
    m.compile("adam", crossed(keras))
    return m


def contrastive(augment):
    """SimCLR's train step over small images, with one's own augmentation of a batch."""
    keras, np, tf, rng = tools()
    x = rng.random((1024, 24, 24, 3), np.float32)

    class Contrastive(keras.Model):
        def __init__(self):
            super().__init__()
            layers = keras.layers
            self.encoder = keras.Sequential(
                [layers.Conv2D(8, 3, 2, activation="relu"), layers.Conv2D(16, 3, 2, activation="relu"), layers.Flatten(), layers.Dense(32)]
            )

        def train_step(self, images):
            with tf.GradientTape() as tape:
                one, two = (tf.math.l2_normalize(self.encoder(augment(tf, images), training=True), 1) for _ in range(2))
                near = tf.matmul(one, two, transpose_b=True) / 0.1
                kinds = tf.range(tf.shape(near)[0])
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(kinds, near))
            weights = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return {"loss": loss}

    m = Contrastive()
    m.compile("adam")
    data = tf.data.Dataset.from_tensor_slices(x).batch(64).cache().prefetch(2)
    m.fit(data, verbose=0)
    return lambda: m.fit(data, epochs=24, verbose=0)


def view(tf, image):
    image = tf.image.random_flip_left_right(image)
    image = tf.image.random_brightness(image, 0.2)
    return tf.clip_by_value(tf.image.random_contrast(image, 0.7, 1.3), 0.0, 1.0)


def views(tf, images):
    n = tf.shape(images)[0]
    flipped = tf.where(tf.random.uniform((n, 1, 1, 1)) < 0.5, images, images[:, :, ::-1])
    light = flipped + tf.random.uniform((n, 1, 1, 1), -0.2, 0.2)
    mean = tf.reduce_mean(light, (1, 2), keepdims=True)
    return tf.clip_by_value((light - mean) * tf.random.uniform((n, 1, 1, 1), 0.7, 1.3) + mean, 0.0, 1.0)


@case("loop-of-ops")
def contrastive_views_made_image_by_image():
    """`tf.map_fn` augments each image of the batch inside the compiled step, twice. Changed: the whole batch at once."""
    return contrastive(lambda tf, images: tf.map_fn(lambda image: view(tf, image), images)), contrastive(views)


@case("eager-ops")
def a_gru_of_ones_own_unrolled_eagerly():
    """A GRU cell by hand, over time in Python, under a GradientTape without tf.function. Changed: with it."""
    keras, np, tf, rng = tools()
    x = tf.constant(rng.random((32, 20, 8)).astype("float32"))
    wz, wr, wh = (tf.Variable(tf.random.normal((8 + 24, 24)) * 0.1) for _ in range(3))
    optimizer = keras.optimizers.SGD(0.01)

    def gru(h, x):
        both = tf.concat([x, h], 1)
        z, r = tf.sigmoid(both @ wz), tf.sigmoid(both @ wr)
        return z * h + (1 - z) * tf.tanh(tf.concat([x, r * h], 1) @ wh)

    def learn(x):
        with tf.GradientTape() as tape:
            h = tf.zeros((32, 24))
            for t in range(20):
                h = gru(h, x[:, t])
            loss = tf.reduce_mean((h - 0.5) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, [wz, wr, wh]), [wz, wr, wh]))
        return loss

    compiled = tf.function(learn)
    learn(x), compiled(x)
    return lambda: [learn(x) for _ in range(40)], lambda: [compiled(x) for _ in range(40)]


@case("eager-ops")
def metrics_updated_and_read_after_each_step():
    """The guide's own loop, but its metrics are updated op by op and read in each step. Changed: updated in a function."""
    keras, np, tf, rng = tools()
    x = rng.random((6400, 32)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, rng.integers(0, 10, 6400))).batch(32).prefetch(2)
    m = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    optimizer, loss_of = keras.optimizers.Adam(), crossed(keras)
    mean, hits, top = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseTopKCategoricalAccuracy(3)

    def learn(x, y):
        with tf.GradientTape() as tape:
            out = m(x, training=True)
            loss = loss_of(y, out)
        optimizer.apply_gradients(zip(tape.gradient(loss, m.trainable_weights), m.trainable_weights))
        return loss, out

    def note(loss, y, out):
        mean.update_state(loss)
        hits.update_state(y, out)
        top.update_state(y, out)

    plain = tf.function(learn)

    def train(note):
        seen = []
        for x, y in data:
            loss, out = plain(x, y)
            note(loss, y, out)
            seen.append((float(mean.result()), float(hits.result()), float(top.result())))

    compiled = tf.function(note)
    return lambda: [train(note) for _ in range(2)], lambda: [train(compiled) for _ in range(2)]


@case("input-bound")
def photos_augmented_one_by_one_without_threads():
    """tf.image in a map of single images, no parallel calls and no prefetch. Changed: with both."""
    keras, np, tf, rng = tools()
    x, y = rng.integers(0, 255, (800, 96, 96, 3)).astype("uint8"), rng.integers(0, 5, 800)
    m = photo_net(keras, 64, (8, 3, 2), (16, 3, 2))

    def augment(image, kind):
        image = tf.image.random_crop(tf.image.convert_image_dtype(image, tf.float32), (64, 64, 3))
        image = tf.image.random_hue(tf.image.random_flip_left_right(image), 0.1)
        return tf.image.random_saturation(image, 0.7, 1.3), kind

    base = tf.data.Dataset.from_tensor_slices((x, y))
    slow = base.map(augment).batch(32)
    fast = base.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
    m.fit(fast.take(1), verbose=0)
    return lambda: m.fit(slow, epochs=6, verbose=0), lambda: m.fit(fast, epochs=6, verbose=0)


def shards(tf, np, rng, count, rows, inputs):
    """TFRecord files, compressed, with one array in each example."""
    folder = tempfile.mkdtemp()
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    paths = [os.path.join(folder, f"part-{number}.tfrecord") for number in range(count)]
    for path in paths:
        with tf.io.TFRecordWriter(path, options) as writer:
            for values in rng.random((rows, inputs)).astype("float32"):
                feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=values))}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return paths


@case("cache-input")
def shards_interleaved_without_parallel_calls():
    """Compressed TFRecord files interleaved by one thread, each example parsed alone, again in each epoch. Changed: kept."""
    keras, np, tf, rng = tools()
    paths = shards(tf, np, rng, 8, 500, 400)
    wanted = {"x": tf.io.FixedLenFeature((400,), tf.float32)}
    m = keras.Sequential([keras.Input((400,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")

    def opened(path):
        return tf.data.TFRecordDataset(path, compression_type="GZIP")

    def parse(text):
        x = tf.io.parse_single_example(text, wanted)["x"]
        return tf.math.log1p(x), x[:1]

    files = tf.data.Dataset.from_tensor_slices(paths)
    slow = files.interleave(opened, cycle_length=4).map(parse).batch(64)
    fast = files.interleave(opened, cycle_length=4).map(parse).batch(64).cache()
    m.fit(slow.take(1), verbose=0)
    return lambda: m.fit(slow, epochs=10, verbose=0), lambda: m.fit(fast, epochs=10, verbose=0)


def accumulating(compiled):
    """Gradients of four batches are added up before one update."""
    keras, np, tf, rng = tools()
    layers = keras.layers
    m = keras.Sequential([keras.Input((40,)), *(layers.Dense(64, activation="relu") for _ in range(4)), layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(m.trainable_weights)
    batches = list(tf.data.Dataset.from_tensor_slices(rng.random((1280, 40)).astype("float32")).batch(16))

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((m(x, training=True) - x[:, :1]) ** 2)
        return tape.gradient(loss, m.trainable_weights)

    def accumulate(four):
        total = [tf.zeros_like(weight) for weight in m.trainable_weights]
        for x in four:
            total = [a + b / 4 for a, b in zip(total, gradients(x))]
        total, _ = tf.clip_by_global_norm(total, 1.0)
        optimizer.apply_gradients(zip(total, m.trainable_weights))

    step = tf.function(accumulate) if compiled else accumulate
    step(batches[:4])
    return lambda: [step(batches[at : at + 4]) for _ in range(5) for at in range(0, 80, 4)]


@case("eager-ops")
def gradients_accumulated_outside_of_the_function():
    """Only the gradients are compiled: adding up, clipping and Adam run op by op. Changed: all in one function."""
    return accumulating(False), accumulating(True)


@case("new-model-in-a-loop")
def normalization_adapted_in_each_epoch():
    """`Normalization.adapt` stands inside the loop over epochs. Changed: before it."""
    keras, np, tf, rng = tools()
    x = rng.random((12_800, 30)).astype("float32")
    norm = keras.layers.Normalization()
    m = keras.Sequential([keras.Input((30,)), norm, keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(128).cache().prefetch(2)
    plain = data.map(lambda x, y: x)
    norm.adapt(plain)
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function
    def learn(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((m(x, training=True) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, m.trainable_weights), m.trainable_weights))
        return loss

    def train(each):
        norm.adapt(plain)
        for _ in range(8):
            if each:
                norm.adapt(plain)
            for x, y in data:
                learn(x, y)

    return lambda: train(True), lambda: train(False)


@case("own-python")
def a_compressed_npz_read_for_each_batch():
    """One compressed npz file for each batch, read again in each epoch of one's own loop. Changed: read once and kept."""
    keras, np, tf, rng = tools()
    folder = tempfile.mkdtemp()
    for number in range(40):
        np.savez_compressed(f"{folder}/{number}.npz", x=rng.integers(0, 50, (64, 32, 32, 3)).astype("float32"), y=rng.integers(0, 5, 64))
    m = photo_net(keras, 32, (16, 3, 2))
    kept = {}

    def load_batch(number):
        with np.load(f"{folder}/{number}.npz") as file:
            return file["x"] / 50, file["y"]

    def load_once(number):
        if number not in kept:
            kept[number] = load_batch(number)
        return kept[number]

    def train(load):
        for _ in range(8):
            for number in range(40):
                m.train_on_batch(*load(number))

    return lambda: train(load_batch), lambda: train(load_once)


@case("python-input")
def rows_of_a_table_made_tensors_one_at_a_time():
    """`from_generator` over `DataFrame.iterrows`. Changed: the table as one array."""
    import pandas as pd

    keras, np, tf, rng = tools()
    table = pd.DataFrame(rng.random((6000, 16)).astype("float32"), columns=[f"c{n}" for n in range(16)])
    m = keras.Sequential([keras.Input((15,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")

    def rows():
        for _, row in table.iterrows():
            yield row.iloc[:15].to_numpy(), row.iloc[15:].to_numpy()

    slow = tf.data.Dataset.from_generator(rows, output_signature=(tf.TensorSpec((15,)), tf.TensorSpec((1,)))).batch(64).prefetch(2)
    values = table.to_numpy()
    fast = tf.data.Dataset.from_tensor_slices((values[:, :15], values[:, 15:])).batch(64).prefetch(2)
    m.fit(fast, verbose=0)
    return lambda: m.fit(slow, epochs=2, verbose=0), lambda: m.fit(fast, epochs=2, verbose=0)


@case("callback")
def early_stopping_beside_a_callback_that_predicts_and_draws():
    """At the end of each epoch the validation is predicted and drawn with PIL. Changed: once, when training ends."""
    from PIL import Image, ImageDraw

    keras, np, tf, rng = tools()
    x, y = rng.random((3200, 32)).astype("float32"), rng.random((3200, 1)).astype("float32")
    folder = tempfile.mkdtemp()
    m = keras.Sequential([keras.Input((32,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(1)])
    m.compile("adam", "mse")

    class Fitted(keras.callbacks.Callback):
        def draw(self):
            picture = Image.new("RGB", (900, 900), "white")
            draw = ImageDraw.Draw(picture)
            for wanted, said in zip(y[:, 0], self.model.predict(x, batch_size=32, verbose=0)[:, 0]):
                at = float(wanted) * 900, 450 - float(said) * 300
                draw.ellipse((at[0] - 2, at[1] - 2, at[0] + 2, at[1] + 2), fill="blue")
            picture.save(f"{folder}/fitted.png")

    class EachEpoch(Fitted):
        def on_epoch_end(self, epoch, logs=None):
            self.draw()

    class AtTheEnd(Fitted):
        def on_train_end(self, logs=None):
            self.draw()

    def fit(kind):
        stop = keras.callbacks.EarlyStopping("loss", patience=20)
        m.fit(x, y, epochs=8, validation_split=0.2, verbose=0, callbacks=[stop, kind()])

    return lambda: fit(EachEpoch), lambda: fit(AtTheEnd)


@case("cache-input")
def texts_vectorized_in_each_epoch():
    """TextVectorization in a map over long texts, again in each epoch. Changed: behind it the dataset is kept."""
    keras, np, tf, rng = tools()
    words = np.array([f"word{n}" for n in range(3000)])
    texts = [" ".join(row) for row in words[rng.integers(0, 3000, (2400, 150))]]
    kinds = rng.integers(0, 2, 2400)
    vectorize = keras.layers.TextVectorization(2000, output_sequence_length=100)
    vectorize.adapt(texts)
    layers = keras.layers
    m = keras.Sequential([keras.Input((100,), dtype="int64"), layers.Embedding(2000, 16), layers.GlobalAveragePooling1D(), layers.Dense(1)])
    m.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    base = tf.data.Dataset.from_tensor_slices((texts, kinds)).batch(32)
    slow = base.map(lambda text, kind: (vectorize(text), kind)).prefetch(2)
    fast = base.map(lambda text, kind: (vectorize(text), kind)).cache().prefetch(2)
    m.fit(fast.take(1), verbose=0)
    return lambda: m.fit(slow, epochs=12, verbose=0), lambda: m.fit(fast, epochs=12, verbose=0)


if has("torch"):

    def torch_net(torch, inputs, width, outputs):
        nn = torch.nn
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))

    @case("waiting-for-input")
    def a_torch_loader_draws_its_examples_in_python():
        """A DataLoader without workers over a Dataset that turns with PIL. Changed: with two workers."""
        import numpy as np
        import torch
        from PIL import Image

        rng = np.random.default_rng(0)
        photos = [Image.fromarray(rng.integers(0, 255, (96, 96, 3)).astype("uint8")) for _ in range(600)]
        model = torch_net(torch, 3 * 32 * 32, 128, 5)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)

        class Photos(torch.utils.data.Dataset):
            def __len__(self):
                return len(photos)

            def __getitem__(self, number):
                photo = photos[number].rotate(number % 20 - 10, resample=Image.BILINEAR).resize((32, 32))
                return torch.from_numpy(np.asarray(photo, np.float32) / 255).flatten(), number % 5

        def train(**workers):
            loader = torch.utils.data.DataLoader(Photos(), 32, shuffle=True, **workers)
            for _ in range(6):
                for x, y in loader:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()

        return lambda: train(num_workers=0), lambda: train(num_workers=2, persistent_workers=True)

    @case("small-ops")
    def a_torch_loss_summed_over_the_batch_in_python():
        """The loss of each example is computed alone, in a loop over the batch. Changed: of all at once."""
        import torch

        model = torch_net(torch, 32, 64, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        x, y = torch.rand(3200, 32), torch.rand(3200, 8)

        def one_by_one(out, y):
            total = torch.zeros(())
            for row, wanted in zip(out, y):
                near = (row * wanted).sum() / (row.norm() * wanted.norm() + 1e-6)
                total = total + (1 - near) + 0.1 * (row - wanted).abs().mean()
            return total / len(y)

        def at_once(out, y):
            near = (out * y).sum(1) / (out.norm(dim=1) * y.norm(dim=1) + 1e-6)
            return (1 - near).mean() + 0.1 * (out - y).abs().mean()

        def train(loss_of):
            for a, b in zip([*x.split(64)] * 4, [*y.split(64)] * 4):
                optimizer.zero_grad()
                loss_of(model(a), b).backward()
                optimizer.step()

        return lambda: train(one_by_one), lambda: train(at_once)

    @case("")
    def a_torch_convnet_fed_from_memory():
        """A TensorDataset, a convolution that takes its time, the loss read in each step: nothing to change."""
        import torch

        nn = torch.nn
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 5))
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        data = torch.utils.data.TensorDataset(torch.rand(512, 3, 40, 40), torch.arange(512) % 5)

        def train():
            losses = []
            for x, y in 3 * list(torch.utils.data.DataLoader(data, 32, shuffle=True)):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())

        return train, None


if has("jax"):

    def jax_net(jax, sizes):
        keys = jax.random.split(jax.random.key(0), len(sizes))
        return [jax.random.normal(key, (a, b)) * (2 / a) ** 0.5 for key, a, b in zip(keys, sizes, sizes[1:])]

    @case("recompiling")
    def jax_compiles_for_each_length():
        """Sentences of every length go into a jitted step as they are. Changed: padded to one of two lengths."""
        import jax
        import jax.numpy as jnp
        import numpy as np

        weights = jax_net(jax, (16, 64, 64, 1))
        lengths = np.random.default_rng(0).permutation(np.arange(20, 45))
        batches = [np.random.default_rng(n).random((8, n, 16)).astype("float32") for n in lengths]

        def padded(x):
            wanted = 32 if x.shape[1] <= 32 else 48
            return np.pad(x, ((0, 0), (0, wanted - x.shape[1]), (0, 0)))

        def train(shape):
            @jax.jit
            def learn(weights, x):
                def loss_of(weights):
                    h = x
                    for w in weights:
                        h = jnp.tanh(h @ w)
                    return (h.mean(1) ** 2).mean()

                return [w - 0.01 * g for w, g in zip(weights, jax.grad(loss_of)(weights))]

            now = weights
            for _ in range(4):
                for x in batches:
                    now = learn(now, shape(x))
            return jax.block_until_ready(now)

        return lambda: train(lambda x: x), lambda: train(padded)

    @case("")
    def jax_reads_its_loss_in_each_step():
        """One jitted step with a wide net; `device_get` of the loss each time, which on a CPU costs nothing."""
        import jax
        import jax.numpy as jnp

        weights = jax_net(jax, (256, 1024, 1024, 1))
        x = jax.random.normal(jax.random.key(1), (256, 256))

        @jax.jit
        def learn(weights, x):
            def loss_of(weights):
                h = x
                for w in weights:
                    h = jnp.tanh(h @ w)
                return (h**2).mean()

            loss, grads = jax.value_and_grad(loss_of)(weights)
            return loss, [w - 0.01 * g for w, g in zip(weights, grads)]

        def train():
            now, losses = weights, []
            for _ in range(200):
                loss, now = learn(now, x)
                losses.append(float(jax.device_get(loss)))

        return train, None


@case("")
def contrastive_views_of_a_whole_batch():
    """As `contrastive_views_made_image_by_image`, with augmentation of the batch and a larger encoder."""
    keras, np, tf, rng = tools()
    x = rng.random((768, 32, 32, 3), np.float32)
    layers = keras.layers
    encoder = keras.Sequential(
        [layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(32, 3, 2, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(64)]
    )

    class Contrastive(keras.Model):
        def train_step(self, images):
            with tf.GradientTape() as tape:
                one, two = (tf.math.l2_normalize(encoder(views(tf, images), training=True), 1) for _ in range(2))
                near = tf.matmul(one, two, transpose_b=True) / 0.1
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(near)[0]), near))
            weights = encoder.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return {"loss": loss}

    m = Contrastive()
    m.compile("adam")
    data = tf.data.Dataset.from_tensor_slices(x).shuffle(768).batch(64).prefetch(2)
    m.fit(data, verbose=0)
    return lambda: m.fit(data, epochs=5, verbose=0), None


@case("")
def early_stopping_with_the_best_weights_kept():
    """Validation, EarlyStopping that restores, ReduceLROnPlateau and a CSV log beside a convnet that takes its time."""
    keras, np, tf, rng = tools()
    x, y = rng.random((1600, 28, 28, 1), np.float32), rng.integers(0, 10, 1600)
    layers = keras.layers
    m = keras.Sequential(
        [keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(32, 3, activation="relu"), layers.Flatten()]
        + [layers.Dropout(0.3), layers.Dense(10)]
    )
    m.compile("adam", crossed(keras), metrics=["accuracy"])
    log = os.path.join(tempfile.mkdtemp(), "log.csv")

    def fit():
        stop = keras.callbacks.EarlyStopping(patience=9, restore_best_weights=True)
        slower = keras.callbacks.ReduceLROnPlateau(patience=2)
        m.fit(x, y, batch_size=64, epochs=6, validation_split=0.15, verbose=0, callbacks=[stop, slower, keras.callbacks.CSVLogger(log)])

    return fit, None


@case("")
def photos_augmented_in_batches_by_threads():
    """tf.image over whole batches in parallel calls, ahead of a convnet that takes longer than its input."""
    keras, np, tf, rng = tools()
    x, y = rng.integers(0, 255, (640, 48, 48, 3)).astype("uint8"), rng.integers(0, 5, 640)
    m = photo_net(keras, 40, (32, 3), (48, 3, 2))

    def augment(images, kinds):
        images = tf.image.random_crop(tf.cast(images, tf.float32) / 255, (tf.shape(images)[0], 40, 40, 3))
        return tf.image.random_brightness(tf.image.random_flip_left_right(images), 0.1), kinds

    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(640).batch(32, drop_remainder=True)
    data = data.map(augment, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    m.fit(data.take(1), verbose=0)
    return lambda: m.fit(data, epochs=6, verbose=0), None


@case("")
def shards_read_once_then_kept():
    """Compressed TFRecord files in parallel calls, parsed in batches, cached; a wide net learns from them."""
    keras, np, tf, rng = tools()
    paths = shards(tf, np, rng, 4, 400, 300)
    wanted = {"x": tf.io.FixedLenFeature((300,), tf.float32)}
    m = keras.Sequential([keras.Input((300,)), *(keras.layers.Dense(1024, activation="relu") for _ in range(2)), keras.layers.Dense(1)])
    m.compile("sgd", "mse")

    def parse(texts):
        x = tf.io.parse_example(texts, wanted)["x"]
        return x, x[:, :1]

    data = tf.data.Dataset.from_tensor_slices(paths).interleave(
        lambda path: tf.data.TFRecordDataset(path, compression_type="GZIP"), num_parallel_calls=tf.data.AUTOTUNE
    )
    data = data.batch(64).map(parse, tf.data.AUTOTUNE).cache().prefetch(2)
    return lambda: m.fit(data, epochs=14, verbose=0), None


@case("")
def gradients_accumulated_in_one_function():
    """Gradients of four batches in one compiled function, of a net wide enough to matter; the loss is printed now and then."""
    keras, np, tf, rng = tools()
    layers = keras.layers
    m = keras.Sequential([keras.Input((128,)), *(layers.Dense(768, activation="relu") for _ in range(3)), layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    x = tf.constant(rng.random((256, 128)).astype("float32"))

    @tf.function
    def learn(x):
        weights = m.trainable_weights
        total = [tf.zeros_like(weight) for weight in weights]
        last = 0.0
        for part in tf.split(x, 4):
            with tf.GradientTape() as tape:
                last = tf.reduce_mean((m(part, training=True) - part[:, :1]) ** 2)
            total = [a + b for a, b in zip(total, tape.gradient(last, weights))]
        optimizer.apply_gradients(zip(total, weights))
        return last

    learn(x)

    def train():
        losses = []
        for step in range(100):
            loss = learn(x)
            if step % 25 == 0:
                losses.append(float(loss))

    return train, None


@case("")
def ragged_sentences_pooled():
    """Ragged rows of words, their embeddings' mean, in an own loop with a compiled step and one signature."""
    keras, np, tf, rng = tools()
    table = tf.Variable(tf.random.normal((5000, 128)) * 0.1)
    deep = keras.Sequential([keras.Input((128,)), keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
    lengths = rng.integers(20, 120, 1600)
    words = tf.RaggedTensor.from_row_lengths(rng.integers(0, 5000, lengths.sum()), lengths)
    data = tf.data.Dataset.from_tensor_slices((words, rng.random((1600, 1)).astype("float32"))).ragged_batch(64, drop_remainder=True).cache().prefetch(2)
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function(input_signature=[tf.RaggedTensorSpec((64, None), tf.int64), tf.TensorSpec((64, 1))])
    def learn(words, wanted):
        weights = [table, *deep.trainable_weights]
        with tf.GradientTape() as tape:
            rows = tf.reduce_mean(tf.ragged.map_flat_values(lambda at: tf.gather(table, at), words), 1)
            loss = tf.reduce_mean((deep(rows, training=True) - wanted) ** 2)
        optimizer.apply_gradients(zip(map(tf.convert_to_tensor, tape.gradient(loss, weights)), weights))
        return loss

    def train():
        for _ in range(10):
            for words, wanted in data:
                learn(words, wanted)

    train()
    return train, None


@case("")
def a_normalization_adapted_once():
    """`adapt` on an array, once, then a fit of a wide net."""
    keras, np, tf, rng = tools()
    x = rng.random((3840, 64)).astype("float32")
    norm = keras.layers.Normalization()
    m = keras.Sequential([keras.Input((64,)), norm, *(keras.layers.Dense(1024, activation="relu") for _ in range(2)), keras.layers.Dense(1)])
    m.compile("sgd", "mse")

    def train():
        norm.adapt(x)
        m.fit(x, x[:, :1], batch_size=128, epochs=8, verbose=0)

    return train, None


@case("")
def strings_looked_up_ahead_of_the_model():
    """StringLookup in a parallel map ahead of an embedding and a recurrent layer that takes its time."""
    keras, np, tf, rng = tools()
    words = np.array([f"w{n}" for n in range(2000)])
    lookup = keras.layers.StringLookup(vocabulary=words.tolist())
    layers = keras.layers
    m = keras.Sequential([keras.Input((40,), dtype="int64"), layers.Embedding(2001, 64), layers.GRU(96), layers.Dense(1)])
    m.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    data = tf.data.Dataset.from_tensor_slices((words[rng.integers(0, 2000, (960, 40))], rng.integers(0, 2, 960))).shuffle(960).batch(32)
    data = data.map(lambda text, kind: (lookup(text), kind), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    m.fit(data.take(1), verbose=0)
    return lambda: m.fit(data, epochs=5, verbose=0), None
