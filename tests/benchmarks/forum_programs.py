"""Twenty after what forums ask: eleven with one mistake (compile in the loop over epochs, padding, one-hot words ...), nine that look like them.

Of kinds that none of the other programs has; they have the form of ``public_programs.py``. Those of PyTorch and JAX are there where the
framework is. Written before anything of advice was read.
"""

from mistakes_and_neighbours import crossed
from other_programs import has
from public_programs import case, tools


@case("new-model-in-a-loop")
def a_model_compiled_anew_to_change_its_learning_rate():
    """`model.compile` in the loop over epochs, for another learning rate each time. Changed: the optimizer's own is assigned."""
    keras, np, tf, rng = tools()
    x, y = rng.random((3200, 40), np.float32), rng.integers(0, 5, 3200)
    layers = keras.layers
    m = keras.Sequential([keras.Input((40,)), *(layers.Dense(64, activation="relu") for _ in range(4)), layers.Dense(5)])
    rates = [0.01 * 0.8**epoch for epoch in range(6)]

    def anew():
        for rate in rates:
            m.compile(keras.optimizers.Adam(rate), crossed(keras), metrics=["accuracy"])
            m.fit(x, y, batch_size=32, verbose=0)

    def assigned():
        m.compile(keras.optimizers.Adam(), crossed(keras), metrics=["accuracy"])
        for rate in rates:
            m.optimizer.learning_rate.assign(rate)
            m.fit(x, y, batch_size=32, verbose=0)

    return anew, assigned


@case("validation")
def a_validation_one_example_at_a_time():
    """`validation_batch_size=1`. Changed: as many as in training."""
    keras, np, tf, rng = tools()
    x, y = rng.random((6400, 60), np.float32), rng.integers(0, 5, 6400)
    m = keras.Sequential([keras.Input((60,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(5)])
    m.compile("adam", crossed(keras), metrics=["accuracy"])
    held_out = x[:1500], y[:1500]
    fit = lambda size: m.fit(x, y, batch_size=64, epochs=4, validation_data=held_out, validation_batch_size=size, verbose=0)
    return lambda: fit(1), lambda: fit(64)


def word_model(keras, first, *end):
    """A classifier of texts of 40 words."""
    layers = keras.layers
    m = keras.Sequential([keras.Input((40,), dtype="int32"), first, layers.Dense(48), *end, layers.GlobalAveragePooling1D(), layers.Dense(5)])
    m.compile(keras.optimizers.SGD(0.1), crossed(keras))
    return m


@case("one-hot")
def words_as_one_hot_vectors():
    """Words become one-hot vectors of a vocabulary of 5,000 ahead of a Dense layer. Changed: an Embedding."""
    keras, np, tf, rng = tools()
    words, kinds = rng.integers(0, 5000, (1920, 40)).astype("int32"), rng.integers(0, 5, 1920)
    one_hot = keras.layers.Lambda(lambda ids: keras.ops.one_hot(ids, 5000), output_shape=(40, 5000))
    wide, short = word_model(keras, one_hot), word_model(keras, keras.layers.Embedding(5000, 48))
    return lambda: wide.fit(words, kinds, epochs=5, verbose=0), lambda: short.fit(words, kinds, epochs=5, verbose=0)


@case("python-input")
def digits_turned_by_an_image_data_generator():
    """The old ImageDataGenerator turns and shifts by SciPy. Changed: layers that augment, in a map of whole batches."""
    keras, np, tf, rng = tools()
    x, y = rng.random((1600, 32, 32, 3), np.float32), rng.integers(0, 5, 1600)
    layers = keras.layers
    m = keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(16, 3, 2, activation="relu"), layers.Flatten(), layers.Dense(5)])
    m.compile("adam", crossed(keras))
    old = keras.src.legacy.preprocessing.image.ImageDataGenerator(rotation_range=15, width_shift_range=0.1, horizontal_flip=True)
    augment = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.04), layers.RandomTranslation(0.0, 0.1)])
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1600).batch(32)
    data = data.map(lambda a, b: (augment(a, training=True), b), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    return lambda: m.fit(old.flow(x, y, 32), epochs=5, verbose=0), lambda: m.fit(data, epochs=5, verbose=0)


def q_net(keras, width):
    layers = keras.layers
    return keras.Sequential([keras.Input((8,)), *(layers.Dense(width, activation="relu") for _ in range(3)), layers.Dense(4)])


def q_learner(keras, tf, model, target, also=None):
    """A compiled step of a Q-learner."""
    optimizer = keras.optimizers.Adam(1e-3)

    @tf.function
    def learn(now, then):
        wanted = 0.1 + 0.99 * tf.reduce_max(target(then), 1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.reduce_max(model(now), 1) - wanted) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
        if also:
            also()
        return loss

    return learn


def follower(model, target):
    def follow():
        for kept, new in zip(target.weights, model.weights):
            kept.assign(0.995 * kept + 0.005 * new)

    return follow


@case("eager-ops")
def a_target_network_follows_by_set_weights():
    """DDPG's soft update by `get_weights` and `set_weights` after each step. Changed: assigned inside of the compiled step."""
    keras, np, tf, rng = tools()
    model, target = q_net(keras, 64), q_net(keras, 64)
    states = tf.constant(rng.random((65, 64, 8), np.float32))
    apart, joined = q_learner(keras, tf, model, target), q_learner(keras, tf, model, target, follower(model, target))

    def update_target(tau=0.005):
        target.set_weights([tau * new + (1 - tau) * kept for new, kept in zip(model.get_weights(), target.get_weights())])

    def train(learn, after):
        for _ in range(9):
            for at in range(64):
                learn(states[at], states[at + 1])
                after()

    return lambda: train(apart, update_target), lambda: train(joined, lambda: None)


def sentences(np, rng):
    """Sentences of 5 to 200 words, few of them long, and their kinds."""
    lengths = np.minimum(5 + rng.exponential(18, 1280).astype(int), 200)
    lengths[::160] = 200
    return [rng.integers(1, 2000, length) for length in lengths], rng.integers(0, 2, 1280)


def reader(keras, width):
    layers = keras.layers
    m = keras.Sequential([keras.Input((None,), dtype="int32"), layers.Embedding(2000, 32, mask_zero=True), layers.GRU(width), layers.Dense(1)])
    m.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    return m


def in_buckets(tf, rows, kinds):
    """Sentences padded to the longest of their batch, those of about one length together."""
    data = tf.data.Dataset.from_generator(
        lambda: zip(rows, kinds), output_signature=(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
    ).cache()
    return data.shuffle(1280).bucket_by_sequence_length(lambda row, _: tf.size(row), [16, 32, 64, 128], [32] * 5).prefetch(2)


@case("padding")
def sentences_padded_to_the_longest_of_all():
    """`pad_sequences` to the longest of all sentences ahead of a GRU. Changed: batches of about one length."""
    keras, np, tf, rng = tools()
    rows, kinds = sentences(np, rng)
    m = reader(keras, 32)
    padded = keras.utils.pad_sequences(rows, padding="post")
    buckets = in_buckets(tf, rows, kinds)
    m.fit(buckets, verbose=0)
    return lambda: m.fit(padded, kinds, batch_size=32, epochs=2, verbose=0), lambda: m.fit(buckets, epochs=2, verbose=0)


def convnet(keras, side, width, dtype=None):
    layers = keras.layers
    convolutions = [layers.Conv2D(width, 3, 1 + at % 2, activation="relu", dtype=dtype) for at in range(4)]
    end = [layers.GlobalAveragePooling2D(dtype=dtype), layers.Dense(5, dtype="float32")]
    m = keras.Sequential([keras.Input((side, side, 3)), *convolutions, *end])
    m.compile("adam", crossed(keras))
    return m


@case("slow-16-bit")
def mixed_float16_kept_on_a_cpu():
    """A notebook's `mixed_float16` policy, written for a GPU, runs on a CPU. Changed: float32."""
    keras, np, tf, rng = tools()
    x, y = rng.random((160, 40, 40, 3), np.float32), rng.integers(0, 5, 160)
    half, single = convnet(keras, 40, 24, "mixed_float16"), convnet(keras, 40, 24)
    return lambda: half.fit(x, y, verbose=0), lambda: single.fit(x, y, verbose=0)


@case("")
def a_learning_rate_scheduled_by_callbacks():
    """LearningRateScheduler and a warm-up in each batch, beside a convnet that takes its time."""
    keras, np, tf, rng = tools()
    x, y = rng.random((960, 32, 32, 3), np.float32), rng.integers(0, 5, 960)
    m = convnet(keras, 32, 24)

    class WarmUp(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.optimizer.learning_rate = 1e-3 * min(1.0, (batch + 1) / 20)

    schedule = [WarmUp(), keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)]
    fit = lambda callbacks: m.fit(x, y, epochs=7, callbacks=callbacks, verbose=0)
    return lambda: fit(schedule), lambda: fit([])


@case("")
def a_validation_of_a_tenth():
    """`validation_split` of a tenth, with Keras' own batch size."""
    keras, np, tf, rng = tools()
    x, y = rng.random((8000, 256), np.float32), rng.integers(0, 5, 8000)
    m = keras.Sequential([keras.Input((256,)), *(keras.layers.Dense(768, activation="relu") for _ in range(2)), keras.layers.Dense(5)])
    m.compile("sgd", crossed(keras), metrics=["accuracy"])
    fit = lambda **how: m.fit(x, y, batch_size=128, epochs=6, verbose=0, **how)
    return lambda: fit(validation_split=0.1), None


@case("")
def words_as_embeddings_read_by_a_recurrent_layer():
    """An Embedding of 4,000 words ahead of an LSTM wide enough to matter."""
    keras, np, tf, rng = tools()
    words, kinds = rng.integers(0, 4000, (960, 40)).astype("int32"), rng.integers(0, 5, 960)
    m = word_model(keras, keras.layers.Embedding(4000, 48), keras.layers.LSTM(128, return_sequences=True))
    return lambda: m.fit(words, kinds, batch_size=64, epochs=5, verbose=0), None


@case("")
def photos_flipped_by_layers_of_the_model():
    """RandomFlip and GaussianNoise inside of a model whose convolutions take nearly all."""
    keras, np, tf, rng = tools()
    x, y = rng.random((960, 32, 32, 3), np.float32), rng.integers(0, 5, 960)
    layers = keras.layers
    m = keras.Sequential([keras.Input((32, 32, 3)), layers.RandomFlip("horizontal"), layers.GaussianNoise(0.05), convnet(keras, 32, 32)])
    m.compile("adam", crossed(keras))
    return lambda: m.fit(x, y, batch_size=64, epochs=6, verbose=0), None


@case("")
def a_target_network_follows_inside_of_the_step():
    """As `a_target_network_follows_by_set_weights`, but in the compiled step, and with networks wide enough to matter."""
    keras, np, tf, rng = tools()
    model, target = q_net(keras, 512), q_net(keras, 512)
    states = tf.constant(rng.random((65, 256, 8), np.float32))
    learn = q_learner(keras, tf, model, target, follower(model, target))
    return lambda: [learn(states[at % 64], states[at % 64 + 1]) for at in range(300)], None


@case("")
def sentences_padded_to_their_batch():
    """Batches of about one length, kept, ahead of a GRU with a mask."""
    keras, np, tf, rng = tools()
    rows, kinds = sentences(np, rng)
    m = reader(keras, 128)
    buckets = in_buckets(tf, rows, kinds)
    m.fit(buckets, verbose=0)
    return lambda: m.fit(buckets, epochs=2, verbose=0), None


if has("jax"):
    from mistakes_and_neighbours import jax_net

    def jax_step(jax, jnp, rate):
        """A step of gradient descent that nobody compiled."""

        def loss_of(weights, x):
            h = x
            for w in weights:
                h = jnp.tanh(h @ w)
            return (h**2).mean()

        return lambda weights, x: [w - rate * g for w, g in zip(weights, jax.grad(loss_of)(weights, x))]

    @case("recompiling")
    def a_jax_step_jitted_anew_in_each_epoch():
        """`jax.jit` of a new function in the loop over epochs, for its learning rate. Changed: jitted once, the rate an argument."""
        import jax
        import jax.numpy as jnp

        weights = jax_net(jax, (32, 64, 64, 64, 1))
        batches = jax.random.normal(jax.random.key(1), (40, 64, 32))
        rates = [0.01 * 0.9**epoch for epoch in range(12)]

        def train(step_of):
            now = weights
            for rate in rates:
                learn = step_of(rate)
                for x in batches:
                    now = learn(now, x)
            return jax.block_until_ready(now)

        def once():
            learn = jax.jit(lambda weights, x, rate: jax_step(jax, jnp, rate)(weights, x))
            train(lambda rate: lambda weights, x: learn(weights, x, rate))

        return lambda: train(lambda rate: jax.jit(jax_step(jax, jnp, rate))), once

    @case("eager-ops")
    def a_jax_buffer_filled_row_by_row():
        """A replay buffer as a jax.Array, filled by `.at[i].set` for each step of the environment. Changed: filled as a NumPy array."""
        import jax
        import jax.numpy as jnp
        import numpy as np

        weights = jax_net(jax, (16, 64, 64, 1))
        learn = jax.jit(jax_step(jax, jnp, 0.01))
        states = np.random.default_rng(0).random((3000, 16)).astype("float32")

        def filled_by_jax():
            memory = jnp.zeros((20_000, 16))
            for at, state in enumerate(states):
                memory = memory.at[at].set(state)
                yield memory[max(at - 63, 0) : max(at - 63, 0) + 64] if at % 8 == 7 else None

        def filled_by_numpy():
            memory = np.zeros((20_000, 16), "float32")
            for at, state in enumerate(states):
                memory[at] = state
                yield memory[max(at - 63, 0) : max(at - 63, 0) + 64] if at % 8 == 7 else None

        def train(filled):
            now = weights
            for x in filled():
                if x is not None:
                    now = learn(now, x)
            return jax.block_until_ready(now)

        return lambda: train(filled_by_jax), lambda: train(filled_by_numpy)

    @case("")
    def jax_scans_over_the_batches_of_an_epoch():
        """One jitted `lax.scan` for each epoch, of a net wide enough to matter; the loss is read at its end."""
        import jax
        import jax.numpy as jnp

        weights = jax_net(jax, (256, 1024, 1024, 1))
        batches = jax.random.normal(jax.random.key(1), (20, 256, 256))
        learn = jax_step(jax, jnp, 0.01)
        epoch = jax.jit(lambda weights: jax.lax.scan(lambda now, x: (learn(now, x), (now[0] ** 2).mean()), weights, batches))

        def train():
            now = weights
            for _ in range(14):
                now, losses = epoch(now)
                float(losses.mean())

        return train, None


if has("torch"):
    from mistakes_and_neighbours import torch_net

    def torch_reader(torch, width):
        class Reader(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(2000, 32)
                self.gru = torch.nn.GRU(32, width, batch_first=True)
                self.end = torch.nn.Linear(width, 2)

            def forward(self, words):
                return self.end(self.gru(self.embed(words))[0][:, -1])

        torch.manual_seed(0)
        return Reader()

    def torch_train(torch, model, loader, epochs):
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(epochs):
            for words, kinds in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(words), kinds).backward()
                optimizer.step()

    @case("waiting-for-input")
    def a_torch_collate_that_one_hots_in_python():
        """`collate_fn` builds bags of words by Python's lists. Changed: by `scatter_add_` of padded tensors."""
        import numpy as np
        import torch

        rng = np.random.default_rng(0)
        rows = [(rng.integers(1, 400, length).tolist(), int(length) % 2) for length in rng.integers(20, 60, 2560)]
        model = torch_net(torch, 400, 128, 2)

        def bags(batch):
            counts = [[float(row.count(word)) for word in range(400)] for row, _ in batch]
            return torch.tensor(counts), torch.tensor([kind for _, kind in batch])

        def scattered(batch):
            padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row, _ in batch], batch_first=True)
            counts = torch.zeros(len(batch), 400).scatter_add_(1, padded, (padded > 0).float())
            return counts, torch.tensor([kind for _, kind in batch])

        load = lambda collate: torch.utils.data.DataLoader(rows, 32, shuffle=True, collate_fn=collate)
        return lambda: torch_train(torch, model, load(bags), 6), lambda: torch_train(torch, model, load(scattered), 6)

    @case("own-python")
    def a_torch_validation_row_by_row():
        """After each epoch the model is asked for each row of the validation alone. Changed: for all rows at once."""
        import torch

        model = torch_net(torch, 40, 128, 5)
        x, y = torch.rand(3200, 40), torch.arange(3200) % 5
        held, kinds = torch.rand(3000, 40), torch.arange(3000) % 5
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 64, shuffle=True)

        def row_by_row():
            hits = 0
            with torch.no_grad():
                for row, kind in zip(held, kinds):
                    hits += int(model(row.unsqueeze(0)).argmax()) == int(kind)
            return hits / len(held)

        def at_once():
            with torch.no_grad():
                return float((model(held).argmax(1) == kinds).float().mean())

        def train(validate):
            for _ in range(10):
                torch_train(torch, model, loader, 1)
                validate()

        return lambda: train(row_by_row), lambda: train(at_once)

    @case("")
    def a_torch_collate_that_pads():
        """`collate_fn` pads by `pad_sequence`; a GRU takes nearly all of the time."""
        import numpy as np
        import torch

        rng = np.random.default_rng(0)
        rows = [(torch.from_numpy(rng.integers(1, 2000, length)), int(length) % 2) for length in rng.integers(30, 50, 640)]
        model = torch_reader(torch, 128)

        def pad(batch):
            return torch.nn.utils.rnn.pad_sequence([row for row, _ in batch], batch_first=True), torch.tensor([kind for _, kind in batch])

        loader = torch.utils.data.DataLoader(rows, 32, shuffle=True, collate_fn=pad)
        return lambda: torch_train(torch, model, loader, 5), None

    @case("")
    def a_torch_loop_that_clips_and_schedules():
        """Clipping, a schedule in each step and a validation in batches, beside a wide net."""
        import torch

        model = torch_net(torch, 256, 1024, 5)
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=1_000_000)
        x, y = torch.rand(6400, 256), torch.arange(6400) % 5

        def train():
            for _ in range(3):
                for a, b in zip(x.split(128), y.split(128)):
                    optimizer.zero_grad(set_to_none=True)
                    torch.nn.functional.cross_entropy(model(a), b).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    schedule.step()
                with torch.no_grad():
                    sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x[:640].split(128), y[:640].split(128)))

        return train, None
