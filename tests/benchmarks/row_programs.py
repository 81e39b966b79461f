"""Rows done one by one in Python, in each framework, and innocents beside them: loops whose turns need the one before, batches, wide nets.

Each is there where its framework is: ``/path/to/python tests/benchmarks/gains.py NAME``.
"""

from importlib.util import find_spec

import numpy as np
from public_programs import case


def of(framework, rule):
    """A case where the framework is."""
    return case(rule) if find_spec(framework) is not None else lambda make: make


def torch_net(torch, *sizes):
    """Dense layers of these sizes."""
    nn = torch.nn
    torch.manual_seed(0)
    mods = []
    for a, b in zip(sizes, sizes[1:]):
        mods += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*mods[:-1])


def torch_passes(passes, opt, loss_of, x, y, size):
    """Train on batches of a size: so many passes over all rows."""
    for _ in range(passes):
        for a, b in zip(x.split(size), y.split(size)):
            opt.zero_grad()
            loss_of(a, b).backward()
            opt.step()


@of("torch", "own-python")
def torch_overlaps_box_by_box():
    """IoU of each predicted box with its truth, after each epoch."""
    import torch

    model = torch_net(torch, 24, 96, 4)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.rand(2048, 24), torch.rand(2048, 4)

    def mean_overlap(boxes, truth):
        overlaps = []
        for a, b in zip(boxes, truth):
            low, high = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
            both = (high - low).clamp(min=0).prod()
            overlaps.append(both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both + 1e-6))
        return float(torch.stack(overlaps).mean())

    def overlap_at_once(a, b):
        low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
        both = (high - low).clamp(min=0).prod(1)
        return float(
            (
                both / ((a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - both + 1e-6)
            ).mean()
        )

    def train(score):
        for _ in range(8):
            torch_passes(1, optimizer, lambda a, b: ((model(a) - b) ** 2).mean(), x, y, 64)
            with torch.no_grad():
                score(model(x), y)

    return lambda: train(mean_overlap), lambda: train(overlap_at_once)


@of("torch", "small-ops")
def torch_margin_loss_row_by_row():
    """A hinge loss of each example's class, in the step."""
    import torch

    model = torch_net(torch, 40, 64, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.rand(2400, 40), torch.arange(2400) % 10

    def hinge(out, kinds):
        losses = []
        for i in range(len(out)):
            margin = out[i] - out[i, kinds[i]] + 1.0
            losses.append(margin.relu().sum() - 1.0)
        return torch.stack(losses).mean()

    def hinge_at_once(out, kinds):
        return ((out - out.gather(1, kinds[:, None]) + 1.0).relu().sum(1) - 1.0).mean()

    def train(loss_of):
        torch_passes(4, optimizer, lambda a, b: loss_of(model(a), b), x, y, 48)

    return lambda: train(hinge), lambda: train(hinge_at_once)


@of("torch", "small-ops")
def torch_weights_of_examples_by_item():
    """Each example's loss weighed by Python, in the step; changed: as tensors."""
    import torch

    net = torch_net(torch, 30, 64, 5)
    opt = torch.optim.Adam(net.parameters())
    x, y = torch.rand(1920, 30), torch.arange(1920) % 5
    rates = torch.tensor([1.0, 2.0, 0.5, 1.5, 3.0])

    def by_item(out, y):
        losses = []
        for row, kind in zip(out, y):
            p = torch.softmax(row, 0)[kind]
            losses.append(-rates[kind].item() * torch.log(p + 1e-9) * (1 - p) ** 2)
        return torch.stack(losses).mean()

    def at_once(out, y):
        p = torch.softmax(out, 1).gather(1, y[:, None])[:, 0]
        return (-rates[y] * torch.log(p + 1e-9) * (1 - p) ** 2).mean()

    def train(loss_of):
        torch_passes(2, opt, lambda a, b: loss_of(net(a), b), x, y, 48)

    return lambda: train(by_item), lambda: train(at_once)


@of("jax", "eager-ops")
def jax_distances_row_by_row():
    """After each pass, how far each row is from its nearest centre, by jax.numpy in a loop."""
    import jax, jax.numpy as jnp

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random((1600, 32), np.float32))
    centres = x[:24]

    @jax.jit
    def move(centres, x):
        near = ((x[:, None] - centres) ** 2).sum(-1).argmin(1)
        ones = jax.nn.one_hot(near, 24)
        return (ones.T @ x) / (ones.sum(0)[:, None] + 1)

    def spread(centres):
        total = 0.0
        for row in x:
            total += float(jnp.sqrt(((row - centres) ** 2).sum(1)).min())
        return total / len(x)

    def spread_at_once(centres):
        return float(jnp.sqrt(((x[:, None] - centres) ** 2).sum(-1)).min(1).mean())

    def train(measure):
        now = centres
        for _ in range(6):
            for _ in range(10):
                now = move(now, x)
            measure(now)

    return lambda: train(spread), lambda: train(spread_at_once)


@of("jax", "eager-ops")
def jax_gradient_of_rows_one_by_one():
    """value_and_grad of a sum over rows in Python, nothing compiled; changed: vmap, compiled."""
    import jax, jax.numpy as jnp

    rng = np.random.default_rng(0)
    w = [
        jnp.asarray(rng.random((12, 24), np.float32)),
        jnp.asarray(rng.random((24, 1), np.float32)),
    ]
    x, y = (
        jnp.asarray(rng.random((320, 12), np.float32)),
        jnp.asarray(rng.random((320,), np.float32)),
    )

    def net(w, row):
        return (jnp.tanh(row @ w[0]) @ w[1])[0]

    def loss(w, x, y):
        total = 0.0
        for row, wanted in zip(x, y):
            total += (net(w, row) - wanted) ** 2
        return total / len(y)

    @jax.jit
    def step(w, x, y):
        g = jax.grad(lambda w: jnp.mean((jax.vmap(net, (None, 0))(w, x) - y) ** 2))(w)
        return [a - 0.01 * b for a, b in zip(w, g)]

    def eager_step(w, x, y):
        g = jax.grad(loss)(w, x, y)
        return [a - 0.01 * b for a, b in zip(w, g)]

    def train(step):
        now = w
        for _ in range(2):
            for at in range(0, 320, 32):
                now = step(now, x[at : at + 32], y[at : at + 32])
        jax.block_until_ready(now)

    return lambda: train(eager_step), lambda: train(step)


@of("jax", "eager-ops")
def jax_history_kept_by_at_set():
    """Each step's numbers put into a large array by .at[].set; changed: a list, stacked once."""
    import jax, jax.numpy as jnp

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random((64, 256), np.float32))
    w0 = jnp.asarray(rng.random((256, 256), np.float32)) * 0.01

    @jax.jit
    def step(w):
        h = jnp.tanh(x @ w)
        return w - 0.001 * (x.T @ h), h.mean(0)

    def kept_by_at():
        w, kept = w0, jnp.zeros((800, 256))
        for i in range(800):
            w, mean = step(w)
            kept = kept.at[i].set(mean)
        return kept.block_until_ready()

    def in_list():
        w, kept = w0, []
        for i in range(800):
            w, mean = step(w)
            kept.append(mean)
        return jnp.stack(kept).block_until_ready()

    return kept_by_at, in_list


@of("tensorflow", "eager-ops")
def tf_accuracy_row_by_row():
    """A validation that calls the model for each row, eagerly."""
    import keras, tensorflow as tf

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((30,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(5)]
    )
    optimizer = keras.optimizers.SGD(0.01)
    rng = np.random.default_rng(0)
    x, y = tf.constant(rng.random((1280, 30), np.float32)), tf.constant(np.arange(1280) % 5)
    held, kinds = tf.constant(rng.random((150, 30), np.float32)), np.arange(150) % 5
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def learn(a, b):
        with tf.GradientTape() as tape:
            loss = loss_of(b, model(a, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        )

    def accuracy():
        hits = 0
        for row, kind in zip(held, kinds):
            hits += int(tf.argmax(model(row[None]), 1)[0]) == kind
        return hits / len(held)

    def at_once():
        return float(tf.reduce_mean(tf.cast(tf.argmax(model(held), 1) == kinds, tf.float32)))

    def train(validate):
        for _ in range(5):
            for at in range(0, 1280, 32):
                learn(x[at : at + 32], y[at : at + 32])
            validate()

    return lambda: train(accuracy), lambda: train(at_once)


@of("tensorflow", "eager-ops")
def tf_triplets_one_by_one():
    """A loss of triplets, one by one under a tape; changed: all at once, eagerly as before."""
    import keras, tensorflow as tf

    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(8)]
    )
    opt = keras.optimizers.SGD(0.01)
    x = tf.constant(np.random.default_rng(0).random((960, 3, 16), np.float32))

    def one_by_one(batch):
        total = 0.0
        for a, p, n in batch:
            a, p, n = (net(v[None])[0] for v in (a, p, n))
            total += tf.maximum(
                tf.reduce_sum((a - p) ** 2) - tf.reduce_sum((a - n) ** 2) + 0.2, 0.0
            )
        return total / len(batch)

    def at_once(batch):
        a, p, n = (net(batch[:, k]) for k in range(3))
        return tf.reduce_mean(
            tf.maximum(tf.reduce_sum((a - p) ** 2, 1) - tf.reduce_sum((a - n) ** 2, 1) + 0.2, 0.0)
        )

    def train(loss_of):
        for at in range(0, 320, 32):
            with tf.GradientTape() as tape:
                loss = loss_of(x[at : at + 32])
            opt.apply_gradients(
                zip(tape.gradient(loss, net.trainable_weights), net.trainable_weights)
            )

    return lambda: train(one_by_one), lambda: train(at_once)


@of("torch", "own-python")
def torch_rows_augmented_by_numpy():
    """In the step each row of a batch is augmented by NumPy; changed: all rows at once."""
    import torch

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    x = rng.random((6400, 64), np.float32)

    def by_row(rows):
        return np.stack(
            [
                np.roll(r * rng.uniform(0.9, 1.1), rng.integers(8)) + rng.normal(0, 0.01, 64)
                for r in rows
            ]
        ).astype(np.float32)

    def at_once(rows):
        rows = rows * rng.uniform(0.9, 1.1, (len(rows), 1))
        at = (np.arange(64)[None] - rng.integers(8, size=(len(rows), 1))) % 64
        return (np.take_along_axis(rows, at, 1) + rng.normal(0, 0.01, rows.shape)).astype(
            np.float32
        )

    def train(augment):
        for at in range(0, 6400, 64):
            opt.zero_grad()
            a = torch.from_numpy(augment(x[at : at + 64]))
            ((net(a) - a[:, :1]) ** 2).mean().backward()
            opt.step()

    return lambda: [train(by_row) for _ in range(2)], lambda: [train(at_once) for _ in range(2)]


@of("torch", "")
def torch_gradients_accumulated():
    """Eight micro-batches of a wide net a step; changed: one batch."""
    import torch

    model = torch_net(torch, 256, 768, 768, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.rand(4096, 256), torch.arange(4096) % 10

    def accumulate(a, b, parts):
        total = 0.0
        for c, d in zip(a.split(len(a) // parts), b.split(len(b) // parts)):
            loss = torch.nn.functional.cross_entropy(model(c), d) / parts
            loss.backward()
            total += loss.detach()
        return total

    def train(parts):
        for _ in range(3):
            for a, b in zip(x.split(512), y.split(512)):
                optimizer.zero_grad()
                accumulate(a, b, parts)
                optimizer.step()

    return lambda: train(8), lambda: train(1)


@of("torch", "")
def torch_validation_in_batches():
    """A validation of a wide net in batches, between epochs; changed: all at once."""
    import torch

    model = torch_net(torch, 128, 1024, 1024, 5)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.rand(1280, 128), torch.arange(1280) % 5
    held, kinds = torch.rand(5120, 128), torch.arange(5120) % 5

    def accuracy(size):
        hits = 0
        with torch.no_grad():
            for a, b in zip(held.split(size), kinds.split(size)):
                hits += int((model(a).argmax(1) == b).sum())
        return hits / len(held)

    def train(size):
        for _ in range(4):
            torch_passes(1, optimizer, lambda a, b: torch.nn.functional.cross_entropy(model(a), b), x, y, 64)
            accuracy(size)

    return lambda: train(64), lambda: train(5120)


@of("torch", "")
def torch_wide_net():
    """Innocent: a wide net, large batches."""
    import torch

    net = torch_net(torch, 512, 1024, 1024, 5)
    opt = torch.optim.SGD(net.parameters(), 0.01)
    x, y = torch.rand(4096, 512), torch.arange(4096) % 5

    def train(B):
        torch_passes(2, opt, lambda a, b: torch.nn.functional.cross_entropy(net(a), b), x, y, B)

    return lambda: train(256), lambda: train(1024)


@of("jax", "")
def jax_spectra_image_by_image():
    """Large images one by one, each taking its time; changed: all at once."""
    import jax, jax.numpy as jnp

    images = jnp.asarray(np.random.default_rng(0).random((48, 512, 512), np.float32))
    kernel = jax.jit(lambda image: jnp.abs(jnp.fft.fft2(image)))

    def energies(images):
        sums = []
        for image in images:
            sums.append((jnp.abs(jnp.fft.fft2(image)) ** 2).sum())
        return jnp.stack(sums)

    def at_once(images):
        return (jnp.abs(jnp.fft.fft2(images)) ** 2).sum((1, 2))

    def train(of):
        for _ in range(6):
            jax.block_until_ready(of(images))

    return lambda: train(energies), lambda: train(at_once)


@of("jax", "")
def jax_compiled_step_of_a_wide_net():
    """Innocent: one compiled step of a wide net."""
    import jax, jax.numpy as jnp

    rng = np.random.default_rng(0)
    w0 = [
        jnp.asarray(rng.random(s, np.float32)) * 0.05
        for s in ((256, 1024), (1024, 1024), (1024, 8))
    ]
    x, y = (
        jnp.asarray(rng.random((128, 256), np.float32)),
        jnp.asarray(rng.random((128, 8), np.float32)),
    )

    @jax.jit
    def step(w, x, y):
        def loss(w):
            h = x
            for a in w[:-1]:
                h = jax.nn.relu(h @ a)
            return jnp.mean((h @ w[-1] - y) ** 2)

        return jax.tree.map(lambda a, g: a - 0.01 * g, w, jax.grad(loss)(w))

    def train():
        w = w0
        for _ in range(80):
            w = step(w, x, y)
        jax.block_until_ready(w)

    return train, None


@of("jax", "")
def jax_scatter_that_computes():
    """Innocent: sums by segments over millions of numbers, eagerly: the scatter is the work. Changed: compiled."""
    import jax, jax.numpy as jnp

    rng = np.random.default_rng(0)
    v = jnp.asarray(rng.random(1_000_000, np.float32))
    at = jnp.asarray(rng.integers(0, 5000, 1_000_000))

    def sums(k):
        return jnp.zeros(5000).at[at].add(v * k)

    fast = jax.jit(sums)

    def run(f):
        total = 0.0
        for k in range(40):
            total += float(f(float(k)).max())
        return total

    return lambda: run(sums), lambda: run(fast)


def larger(B):
    """A case whose changed cell has a batch five times as large."""

    def add(make):
        def both():
            return make(B), make(5 * B)

        both.__name__ = make.__name__
        return of("torch", "small-ops")(both)

    return add


@larger(32)
def torch_recurrent_cell_by_hand(B):
    """A recurrent cell over time: each turn needs the one before."""
    import torch

    torch.manual_seed(0)
    w, u = (torch.nn.Parameter(torch.randn(n, 48) * 0.1) for n in (12, 48))
    out = torch.nn.Linear(48, 1)
    opt = torch.optim.SGD([w, u, *out.parameters()], 0.01)
    x, y = torch.rand(1600, 60, 12), torch.rand(1600, 1)

    def last_state(x):
        h = torch.zeros(len(x), 48)
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] @ w + h @ u)
        return h

    return lambda: torch_passes(3, opt, lambda a, b: ((out(last_state(a)) - b) ** 2).mean(), x, y, B)


@larger(32)
def torch_fifty_equal_layers(B):
    """Fifty equal layers with skips, as a list of weights."""
    import torch

    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(40, 40) * 0.05) for _ in range(50)]
    opt = torch.optim.SGD(weights, 0.01)
    x, y = torch.rand(1600, 40), torch.rand(1600, 40)

    def forward(h):
        for w in weights:
            h = h + torch.tanh(h @ w)
        return h

    return lambda: torch_passes(4, opt, lambda a, b: ((forward(a) - b) ** 2).mean(), x, y, B)


@larger(32)
def torch_small_layers_with_norms(B):
    """Six small layers with LayerNorm, AdamW."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    m = nn.Sequential(
        *[k for _ in range(6) for k in (nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU())],
        nn.Linear(64, 5),
    )
    opt = torch.optim.AdamW(m.parameters())
    x, y = torch.rand(6400, 64), torch.arange(6400) % 5

    return lambda: torch_passes(3, opt, lambda a, b: nn.functional.cross_entropy(m(a), b), x, y, B)


@larger(8)
def torch_small_transformer(B):
    """Three encoder layers of 32 numbers over 12 words."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    m = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 3, enable_nested_tensor=False
    )
    head = nn.Linear(32, 1)
    opt = torch.optim.Adam([*m.parameters(), *head.parameters()])
    x, y = torch.rand(640, 12, 32), torch.rand(640, 1)

    return lambda: torch_passes(3, opt, lambda a, b: nn.functional.mse_loss(head(m(a).mean(1)), b), x, y, B)


@larger(8)
def torch_small_convolutions(B):
    """Five convolutions with BatchNorm over small images."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    m = nn.Sequential(
        *[
            k
            for i in range(5)
            for k in (nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        ],
        nn.Flatten(),
        nn.Linear(8 * 144, 5),
    )
    opt = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)
    x, y = torch.rand(640, 3, 12, 12), torch.arange(640) % 5

    return lambda: torch_passes(3, opt, lambda a, b: nn.functional.cross_entropy(m(a), b), x, y, B)
