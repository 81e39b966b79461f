"""Six of kinds that none of the others has: loops of PyTorch and JAX, feeds by hand, a generator with workers, Python behind ``batch``.

They stand beside those of ``public_programs.py``, whose form they have. Those of PyTorch and JAX are there where the framework is:
``/path/to/python tests/benchmarks/gains.py NAME``.
"""

from importlib.util import find_spec

from public_programs import case, tools


def has(framework):
    return find_spec(framework) is not None


if has("torch"):

    @case("own-python")
    def features_scaled_row_by_row_in_a_torch_loop():
        """The usual loop: rows scaled by Python, `loss.item()` after each step. Changed: scaled as one array, losses read once an epoch."""
        import numpy as np
        import torch

        torch.manual_seed(0)
        x = np.random.default_rng(0).random((6400, 40), np.float32)
        low, high = x.min(0).tolist(), x.max(0).tolist()
        model = torch.nn.Sequential(torch.nn.Linear(40, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def scale_rows(rows):
            return [[(value - least) / (most - least) for value, least, most in zip(row, low, high)] for row in rows.tolist()]

        def scale(rows):
            return (rows - x.min(0)) / (x.max(0) - x.min(0))

        def train(scaled, read):
            losses = []
            for at in range(0, 6400, 64):
                batch = torch.as_tensor(np.asarray(scaled(x[at : at + 64]), np.float32))
                optimizer.zero_grad()
                loss = ((model(batch) - batch[:, :1]) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(read(loss))
            return losses

        return lambda: [train(scale_rows, lambda loss: loss.item()) for _ in range(3)], lambda: [train(scale, torch.detach) for _ in range(3)]

    @case("")
    def a_torch_loop_that_reads_its_loss_on_a_cpu():
        """`loss.item()` in each step: on a CPU the value is there already."""
        import torch

        torch.manual_seed(0)
        x = torch.rand(12_800, 256)
        model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def train(read):
            losses = []
            for batch in x.split(256):
                optimizer.zero_grad()
                loss = ((model(batch) - batch[:, :1]) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(read(loss))

        return lambda: [train(lambda loss: loss.item()) for _ in range(2)], lambda: [train(torch.detach) for _ in range(2)]


if has("jax"):

    @case("work-outside-jit")
    def a_jax_step_whose_update_is_outside_of_jit():
        """Gradients are compiled, the update and the norms are not; each step waits. Changed: one jit, one wait at the end."""
        import jax
        import jax.numpy as jnp

        keys = jax.random.split(jax.random.key(0), 9)
        weights = [jax.random.normal(key, (64, 64)) * 0.1 for key in keys[:8]]
        x = jax.random.normal(keys[8], (64, 64))

        def loss_of(weights, x):
            for w in weights:
                x = jnp.tanh(x @ w)
            return (x**2).mean()

        grads_of = jax.jit(jax.grad(loss_of))

        def updated(weights, x):
            grads = grads_of(weights, x)
            norm = jnp.sqrt(sum((g**2).sum() for g in grads))
            return [w - 0.1 * g / jnp.maximum(norm, 1.0) for w, g in zip(weights, grads)]

        compiled = jax.jit(updated)

        def train(update, wait):
            now = weights
            for _ in range(300):
                now = update(now, x)
                if wait:
                    jax.block_until_ready(now)
            return jax.block_until_ready(now)

        return lambda: train(updated, True), lambda: train(compiled, False)


@case("python-input")
def a_generator_weighs_classes_and_cuts_windows():
    """fit with class_weight over a PyDataset with two threads that cuts windows by Python. Changed: windows by index, as arrays."""
    keras, np, tf, rng = tools()
    series, kinds = rng.normal(size=40_000).astype("float32"), rng.integers(0, 3, 40_000)
    m = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(3)])
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    weights, starts = {0: 1.0, 1: 2.0, 2: 0.5}, np.arange(64)

    class Windows(keras.utils.PyDataset):
        def __len__(self):
            return 100

        def __getitem__(self, number):
            rows, labels = [], []
            for at in range(64):
                at = (number * 64 + at + 1) * 37 % 39_000
                window = [float(value) for value in series[at : at + 64]]
                mean = sum(window) / 64
                rows.append([value - mean for value in window])
                labels.append(int(kinds[at]))
            return np.array(rows, "float32"), np.array(labels)

    def by_index():
        at = np.arange(1, 6401) * 37 % 39_000
        rows = series[at[:, None] + starts]
        return rows - rows.mean(1, keepdims=True), kinds[at]

    return (
        lambda: m.fit(Windows(workers=2), epochs=3, class_weight=weights, verbose=0),
        lambda: m.fit(*by_index(), batch_size=64, epochs=3, class_weight=weights, verbose=0),
    )


@case("python-input")
def a_session_is_fed_rows_that_python_encodes():
    """tf.compat.v1 with feed_dict: one-hot rows made for each run by Python. Changed: encoded once, before the loop."""
    keras, np, tf, rng = tools()
    v1 = tf.compat.v1
    words = rng.integers(0, 200, (200, 64))
    graph = tf.Graph()
    with graph.as_default():
        fed = v1.placeholder(tf.float32, (None, 200))
        h = v1.layers.dense(fed, 64, tf.nn.relu) if hasattr(v1.layers, "dense") else tf.nn.relu(fed @ v1.get_variable("w", (200, 64)))
        loss = tf.reduce_mean((h @ v1.get_variable("v", (64, 1)) - 1.0) ** 2)
        learn = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())

    def encode(row):
        return [[1.0 if at == word else 0.0 for at in range(200)] for word in row.tolist()]

    ready = [np.array(encode(row), "float32") for row in words]

    def train(batches):
        for batch in batches:
            session.run([learn, loss], {fed: batch})

    return lambda: train(encode(row) for row in words), lambda: train(ready)


@case("python-input")
def batches_normalised_by_a_py_function():
    """tf.data with a heavy py_function behind batch. Changed: the same in TensorFlow's ops."""
    keras, np, tf, rng = tools()
    x, y = rng.random((4096, 24, 24), np.float32), rng.integers(0, 5, 4096)
    m = keras.Sequential([keras.Input((24, 24)), keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(5)])
    m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def by_hand(images):
        made = []
        for image in images.numpy():
            for row in image:
                made.append((row - row.mean()) / (row.std() + 1e-6))
        return np.array(made, "float32").reshape(-1, 24, 24)

    def in_python(images, kinds):
        return tf.ensure_shape(tf.py_function(by_hand, [images], tf.float32), (None, 24, 24)), kinds

    def in_ops(images, kinds):
        mean, variance = tf.nn.moments(images, 2, keepdims=True)
        return (images - mean) / (tf.sqrt(variance) + 1e-6), kinds

    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
    fit = lambda mapped: m.fit(data.map(mapped, num_parallel_calls=2).prefetch(2), epochs=2, verbose=0)
    return lambda: fit(in_python), lambda: fit(in_ops)


@case("eager-ops")
def an_agent_asks_its_model_for_each_state():
    """Reinforcement learning: model(state) for one example at each step of the environment. Changed: under tf.function."""
    keras, np, tf, rng = tools()
    m = keras.Sequential([keras.Input((6,)), *(keras.layers.Dense(32, activation="relu") for _ in range(3)), keras.layers.Dense(3)])

    def act(state):
        return m(state, training=False)

    def episode(act):
        state = np.zeros((1, 6), "float32")
        for _ in range(300):
            action = int(np.argmax(act(tf.constant(state))[0]))
            state = np.clip(state + rng.normal(size=(1, 6)) * 0.1 + (action - 1) * 0.05, -1, 1).astype("float32")

    compiled = tf.function(act)
    return lambda: episode(act), lambda: episode(compiled)
