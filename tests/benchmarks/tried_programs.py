"""Programs of ``trials.py`` as text: cells of a notebook, with one thing to change that profnb has an edit for, or with none.

Most follow programs of ``gains.py`` and of ``public_programs.py``, written as a person types them: what an edit may change stands in the
cell or in the one before it. A cell takes 0.5 to 3 s on two cores, and is a function of what it finds, so that it ends the same each time.
"""

from dataclasses import dataclass

TENSORFLOW, TORCH, JAX = "tensorflow", "torch", "jax"


@dataclass(frozen=True)
class Program:
    """A notebook of two cells.

    Attributes:
        setup: The first cell.
        cell: The one that is tried.
        rules: The rules of which one has to find a gain; empty where nothing helps.
        framework: What it imports.
    """

    setup: str
    cell: str
    rules: tuple[str, ...] = ()
    framework: str = TENSORFLOW


KERAS = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)
"""
SMALL = (
    KERAS
    + """
x = rng.random(({rows}, 20), np.float32)
y = x[:, :1]
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(48, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
"""
)
DEEP = (
    KERAS
    + """
x = tf.constant(rng.random((1024, 20), np.float32))
y = x[:, :1]
model = keras.Sequential([keras.Input((20,)), *[keras.layers.Dense(64, activation="relu") for _ in range(5)], keras.layers.Dense(1)])
optimizer, loss_fn = keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError()
"""
)
IMAGES = (
    KERAS
    + """
images = [tf.io.encode_png(rng.integers(0, 255, (96, 96, 3), np.uint8)).numpy() for _ in range({count})]
model = keras.Sequential([keras.Input((96, 96, 3)), keras.layers.Conv2D(4, 5, strides=4), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("sgd", "mse")

def decode(image):
    made = tf.cast(tf.ensure_shape(tf.io.decode_png(image), (96, 96, 3)), tf.float32) / 255
    return tf.image.resize(tf.image.resize(made, (288, 288), "bicubic"), (96, 96)), tf.constant([1.0])
"""
)

PROGRAMS = {
    "a train step that nobody compiled": Program(
        DEEP
        + """
def train_step(a, b):
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss
""",
        """
losses = []
for epoch in range(1):
    for at in range(0, 1024, 32):
        losses.append(float(train_step(x[at : at + 32], y[at : at + 32])))
""",
        ("eager-ops",),
    ),
    "two models that train against each other": Program(
        KERAS
        + """
def net(inputs, outputs):
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(64), keras.layers.LeakyReLU(), keras.layers.Dense(64), keras.layers.LeakyReLU(), keras.layers.Dense(outputs)])

maker, judge = net(32, 100), net(100, 1)
maker_optimizer, judge_optimizer = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
entropy = keras.losses.BinaryCrossentropy(from_logits=True)
real = tf.constant(rng.random((64, 100), np.float32))

def train_step(real, noise):
    with tf.GradientTape() as maker_tape, tf.GradientTape() as judge_tape:
        fake = maker(noise, training=True)
        says_real, says_fake = judge(real, training=True), judge(fake, training=True)
        maker_loss = entropy(tf.ones_like(says_fake), says_fake)
        judge_loss = entropy(tf.ones_like(says_real), says_real) + entropy(tf.zeros_like(says_fake), says_fake)
    maker_optimizer.apply_gradients(zip(maker_tape.gradient(maker_loss, maker.trainable_variables), maker.trainable_variables))
    judge_optimizer.apply_gradients(zip(judge_tape.gradient(judge_loss, judge.trainable_variables), judge.trainable_variables))
    return maker_loss, judge_loss
""",
        """
seen = []
for step in range(20):
    seen.append([float(one) for one in train_step(real, tf.random.normal((64, 32)))])
""",
        ("eager-ops",),
    ),
    "a metric that nobody compiled": Program(
        DEEP
        + """
model.compile(optimizer, loss_fn)

def errors(a, b):
    wrong = model(a, training=False) - b
    return tf.reduce_mean(wrong**2), tf.reduce_max(tf.abs(wrong)), tf.math.reduce_std(wrong)
""",
        """
found = []
for epoch in range(2):
    for at in range(0, 1024, 32):
        model.train_on_batch(x[at : at + 32], y[at : at + 32])
        found.append([float(one) for one in errors(x[at : at + 32], y[at : at + 32])])
""",
        ("eager-ops",),
    ),
    "run_eagerly left on": Program(
        SMALL.format(rows=640).replace('"mse")', '"mse", run_eagerly=True)'),
        "history = model.fit(x, y, epochs=2, verbose=0)\n",
        ("eager-ops",),
    ),
    "a model called in the cell's own loop": Program(
        DEEP,
        """
means = []
for epoch in range(5):
    for at in range(0, 1024, 32):
        means.append(float(tf.reduce_mean(model(x[at : at + 32], training=False))))
""",
        ("eager-ops",),
    ),
    "a prediction for each row": Program(
        SMALL.format(rows=20),
        "said = [float(model.predict(row[None], verbose=0)[0, 0]) for row in x]\n",
        ("predict-in-a-loop",),
    ),
    "an agent that predicts in each step": Program(
        KERAS
        + """
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(2)])
model.compile("adam", "mse")
""",
        """
memory = []
state = rng.random((1, 4), np.float32)
for step in range(20):
    value = model.predict(state, verbose=0)
    memory.append((state, value))
    state = rng.random((1, 4), np.float32)
    if step % 8 == 7:
        states, values = (np.concatenate(one) for one in zip(*memory[-8:]))
        model.train_on_batch(states, values)
""",
        ("predict-in-a-loop",),
    ),
    "a callback that predicts": Program(
        SMALL.format(rows=2400)
        + """
some, seen = x[:64], []

class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch % 8 == 0:
            seen.append(float(self.model.predict(some, verbose=0).mean()))
""",
        "history = model.fit(x, y, verbose=0, callbacks=[Watch()])\n",
        ("callback", "predict-in-a-loop"),
    ),
    "a callback that calls the model": Program(
        DEEP.replace("tf.constant(rng.random((1024, 20), np.float32))", "rng.random((2400, 20), np.float32)")
        + """
model.compile(optimizer, loss_fn)
some, seen = tf.constant(x[:64]), []

class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append(float(tf.reduce_mean(self.model(some, training=False))))
""",
        "history = model.fit(x, y, verbose=0, callbacks=[Watch()])\n",
        ("callback", "eager-ops"),
    ),
    "weights saved every few batches": Program(
        SMALL.format(rows=4800).replace("Dense(48", "Dense(700"),
        """
saving = keras.callbacks.ModelCheckpoint("w.weights.h5", save_weights_only=True, save_freq=2)
history = model.fit(x, y, verbose=0, callbacks=[saving])
""",
        ("callback", "checkpoints"),
    ),
    "a validation that is larger than the training": Program(
        SMALL.format(rows=1000) + "held_out = rng.random((6000, 20), np.float32), rng.random((6000, 1), np.float32)\n",
        "history = model.fit(x, y, epochs=5, validation_data=held_out, verbose=0)\n",
        ("validation",),
    ),
    "many epochs of few batches over arrays": Program(
        SMALL.format(rows=100),
        "history = model.fit(x, y, batch_size=25, epochs=30, verbose=0)\n",
        ("epoch-ends",),
    ),
    "small steps of a fit": Program(
        SMALL.format(rows=16_000),
        """
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
history = model.fit(data, verbose=0)
""",
        ("python-between-steps",),
    ),
    "images decoded in each epoch": Program(
        IMAGES.format(count=60),
        """
data = tf.data.Dataset.from_tensor_slices(images).map(decode).batch(20)
history = model.fit(data, epochs=6, verbose=0)
""",
        ("cache-input", "input-bound"),
    ),
    "texts split in each epoch of a loop": Program(
        DEEP
        + """
texts = [" ".join(map(str, row)) for row in rng.random((600, 60)).round(3)]
model(x[:1])
optimizer.build(model.trainable_variables)

def to_numbers(text):
    return tf.strings.to_number(tf.strings.split(text))[:20]

@tf.function
def train_step(a):
    with tf.GradientTape() as tape:
        loss = loss_fn(a[:, :1], model(a, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss

data = tf.data.Dataset.from_tensor_slices(texts).map(to_numbers).batch(50)
""",
        """
losses = []
for epoch in range(8):
    for batch in data:
        losses.append(float(train_step(batch)))
""",
        ("cache-input", "input-bound", "waiting-for-input"),
    ),
    "images decoded one after another": Program(
        IMAGES.format(count=240),
        """
data = tf.data.Dataset.from_tensor_slices(images).map(decode).batch(20)
history = model.fit(data, verbose=0)
""",
        ("input-bound", "waiting-for-input"),
    ),
    "rows scaled one by one": Program(
        SMALL.format(rows=30_000),
        """
data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (tf.cast(a, tf.float32) * 2 - 1, b)).batch(256)
history = model.fit(data, verbose=0)
""",
        ("cache-input", "input-bound", "waiting-for-input"),
    ),
    "a function traced for each length": Program(
        KERAS
        + """
x = tf.constant(rng.random((256, 20), np.float32))

@tf.function
def scaled(a):
    for _ in range(12):
        a = tf.tanh(a * 1.1)
    return tf.reduce_sum(a)
""",
        "sums = [float(scaled(x[:length])) for length in range(40, 70)]\n",
        ("retracing",),
    ),
    "a step of JAX outside of jit": Program(
        """
import jax
import jax.numpy as jnp

key = jax.random.key(3)
x = jax.random.uniform(key, (512, 32))
weights = {name: jax.random.normal(one, (32, 32)) / 6 for name, one in zip("abcd", jax.random.split(key, 4))}

def loss_of(weights, x):
    hidden = jnp.tanh(jnp.tanh(x @ weights["a"]) @ weights["b"])
    return jnp.mean((jnp.tanh(hidden @ weights["c"]) @ weights["d"] - x) ** 2)

def train_step(weights, x):
    loss, grads = jax.value_and_grad(loss_of)(weights, x)
    return jax.tree.map(lambda weight, grad: weight - 0.1 * grad, weights, grads), loss
""",
        """
losses = []
for step in range(60):
    weights, loss = train_step(weights, x)
    losses.append(float(loss))
""",
        ("work-outside-jit",),
        JAX,
    ),
    "a PyTorch loader without workers": Program(
        """
import time
import torch

torch.manual_seed(3)

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, at):
        time.sleep(0.004)  # as a disk takes
        return torch.full((20,), at / 600.0)

net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
loader = torch.utils.data.DataLoader(Rows(), batch_size=20)
""",
        """
losses = []
for batch in loader:
    optimizer.zero_grad()
    loss = ((net(batch) - batch[:, :1]) ** 2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
""",
        ("waiting-for-input", "input-bound"),
        TORCH,
    ),
    "a convolution": Program(
        KERAS
        + """
model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.Conv2D(48, 3), keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = rng.random((512, 32, 32, 3), np.float32), np.arange(512) % 10
""",
        "history = model.fit(x, y, batch_size=128, verbose=0)\n",
    ),
    "a recurrent layer": Program(
        KERAS
        + """
model = keras.Sequential([keras.Input((40, 16)), keras.layers.LSTM(128), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = rng.random((768, 40, 16), np.float32)
""",
        "history = model.fit(x, x[:, 0, :1], batch_size=128, epochs=2, verbose=0)\n",
    ),
    "a transformer block": Program(
        KERAS
        + """
inputs = keras.Input((64, 64))
attended = keras.layers.MultiHeadAttention(4, 32)(inputs, inputs)
hidden = keras.layers.LayerNormalization()(inputs + attended)
outputs = keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(keras.layers.Dense(256, activation="relu")(hidden)))
model = keras.Model(inputs, outputs)
model.compile("adam", "mse")
x = rng.random((384, 64, 64), np.float32)
""",
        "history = model.fit(x, x[:, 0, :1], batch_size=64, verbose=0)\n",
    ),
    "an own loop done right": Program(
        KERAS
        + """
x = rng.random((2560, 256), np.float32)
model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1)])
optimizer, loss_fn = keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError()
data = tf.data.Dataset.from_tensor_slices(x).batch(128).prefetch(tf.data.AUTOTUNE)

@tf.function(reduce_retracing=True)
def train_step(a):
    with tf.GradientTape() as tape:
        loss = loss_fn(a[:, :1], model(a, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
""",
        """
losses = []
for epoch in range(2):
    for batch in data:
        losses.append(float(train_step(batch)))
""",
    ),
    "a fit with usual callbacks": Program(
        KERAS
        + """
x = rng.random((4000, 400), np.float32)
model = keras.Sequential([keras.Input((400,)), keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(200).prefetch(tf.data.AUTOTUNE)
seen = []

class Note(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen.append(float(logs["loss"]))
""",
        "history = model.fit(data, epochs=2, verbose=0, callbacks=[Note(), keras.callbacks.EarlyStopping('loss', patience=3)])\n",
    ),
    "products of large matrices": Program(
        KERAS
        + """
x = tf.random.normal((1100, 1100))

@tf.function
def products(x):
    for _ in range(4):
        x = tf.linalg.matmul(x, x) / 1100
    return tf.reduce_sum(x)
""",
        "sums = [float(products(x)) for _ in range(6)]\n",
    ),
    "one prediction of many rows": Program(
        KERAS
        + """
x = rng.random((8000, 400), np.float32)
model = keras.Sequential([keras.Input((400,)), keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
""",
        "said = model.predict(x, batch_size=500, verbose=0)\n",
    ),
    "one evaluation of many rows": Program(
        KERAS
        + """
x = rng.random((600, 64, 64, 3), np.float32)
model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(24, 5, activation="relu"), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
""",
        "loss = model.evaluate(x, x[:, 0, 0, :1], batch_size=100, verbose=0)\n",
    ),
    "a step of JAX under jit": Program(
        """
import jax
import jax.numpy as jnp

key = jax.random.key(3)
x = jax.random.uniform(key, (512, 800))
weights = [jax.random.normal(one, (800, 800)) / 30 for one in jax.random.split(key, 4)]

@jax.jit
def train_step(weights, x):
    def loss_of(weights):
        a = x
        for weight in weights:
            a = jnp.tanh(a @ weight)
        return jnp.mean((a - x) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(weights)
    return [weight - 0.1 * grad for weight, grad in zip(weights, grads)], loss
""",
        """
losses = []
for step in range(20):
    weights, loss = train_step(weights, x)
    losses.append(float(loss))
""",
        framework=JAX,
    ),
    "a PyTorch loop over one large tensor": Program(
        """
import torch

torch.manual_seed(3)
x = torch.rand(3200, 256)
net = torch.nn.Sequential(torch.nn.Linear(256, 1200), torch.nn.ReLU(), torch.nn.Linear(1200, 1200), torch.nn.ReLU(), torch.nn.Linear(1200, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
""",
        """
losses = []
for epoch in range(2):
    for at in range(0, 3200, 200):
        optimizer.zero_grad()
        loss = ((net(x[at : at + 200]) - x[at : at + 200, :1]) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
""",
        framework=TORCH,
    ),
}  # fmt: skip
