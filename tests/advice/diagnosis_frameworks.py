"""Programs of the diagnosis benchmark over JAX and PyTorch, Keras' and loops of their own; each list needs its package.

`KERAS_BACKEND=jax python tests/advice/diagnosis.py` prints what is said of JAX's, and `torch` of PyTorch's. `test_diagnosis.py` holds them to
it as they were recorded, `test_backends.py` a run today to what no clock changes.
"""

import functools
import time

import numpy as np
from diagnosis_kit import Later, keras, programs

JAX_PROGRAMS, TORCH_PROGRAMS, KERAS_PROGRAMS = [], [], []
of_jax, of_torch, of_keras = (programs(of=into) for into in (JAX_PROGRAMS, TORCH_PROGRAMS, KERAS_PROGRAMS))
jax, jnp, torch = Later("jax"), Later("jax.numpy"), Later("torch")
OF_TENSORFLOW = ("tf.function", "tf.data", "TensorFlow")


def warm(cell):
    """The cell after it ran once: everything is compiled."""
    cell()
    return cell


# JAX


def small_update():
    @jax.jit
    def update(w, x):
        slope = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return w - 0.1 * slope, jnp.mean(slope)

    return update, jnp.ones((256, 256)), jnp.ones((64, 256))


def large_update(size=700):
    @jax.jit
    def update(w, x):
        for _ in range(4):
            w = jnp.tanh(w @ x) * 0.01
        return w, jnp.mean(w)

    return update, jnp.ones((size, size)), jnp.ones((size, size))


@of_jax("work-outside-jit", also=("eager-ops",), says=("jax.jit", "multiply"), never=OF_TENSORFLOW)
def jnp_work_outside_of_jit():
    update, start, x = small_update()

    def cell():
        w = start
        for _ in range(30):
            slope, loss = update(w, x)
            w = jnp.where(jnp.abs(slope) > 1, slope * 0.5, slope)
            w = jnp.clip(w / jnp.maximum(jnp.sqrt(jnp.sum(w * w)), 1.0), -1, 1) + 0.0 * loss
        w.block_until_ready()

    return warm(cell)


@of_jax("work-outside-jit", also=("python-between-steps",), says=("jax.jit",), never=OF_TENSORFLOW)
def a_loop_without_jit():
    start, x = jnp.ones((256, 256)), jnp.ones((64, 256))

    def cell():
        w = start
        for _ in range(30):
            h = jnp.tanh(x @ w)
            w = w - 0.01 * (x.T @ (h * (1 - h * h)))
        w.block_until_ready()

    return warm(cell)


@of_jax("recompiling", says=("outside of the loop",), never=(*OF_TENSORFLOW, "Give every batch one shape"))
def a_jit_function_made_in_each_turn():
    start, x = jnp.ones((64, 64)), jnp.ones((16, 64))

    def cell():
        w = start
        for _ in range(8):
            w = jax.jit(lambda w, x: w - 0.1 * (x.T @ jnp.tanh(x @ w)))(w, x)
        w.block_until_ready()

    return cell


@of_jax("recompiling", says=("argument x", "one shape"), never=(*OF_TENSORFLOW, "outside of the loop"))
def batches_of_many_shapes():
    update, start, _ = small_update()
    rows = np.ones((64, 256), "float32")

    def cell():
        w = start
        for number in range(8):
            w, _ = update(w, rows[: 20 + number])
        w.block_until_ready()

    return cell


@of_jax("recompiling", says=("static",), never=(*OF_TENSORFLOW, "Give every batch one shape"))
def a_static_argument_that_changes():
    @functools.partial(jax.jit, static_argnums=2)
    def update(w, x, rate):
        return w - rate * (x.T @ jnp.tanh(x @ w))

    start, x = jnp.ones((64, 64)), jnp.ones((16, 64))

    def cell():
        w = start
        for number in range(8):
            w = update(w, x, 0.1 / (number + 1))
        w.block_until_ready()

    return cell


@of_jax("own-python", never=(*OF_TENSORFLOW, "block_until_ready"))
def a_jit_loop_whose_batches_are_made_in_python():
    update, start, _ = small_update()

    def batch():
        time.sleep(0.05)
        return np.ones((64, 256), "float32")

    def cell():
        w = start
        for _ in range(12):
            w, loss = update(w, batch())
            float(loss)

    return warm(cell)


@of_jax()
def a_jit_loop_that_runs_ahead():
    update, start, x = large_update()

    def cell():
        w = start
        for _ in range(15):
            w, _ = update(w, x)
        w.block_until_ready()

    return warm(cell)


@of_jax()
def a_jit_loop_of_large_steps_that_reads_the_loss():
    update, start, x = large_update()

    def cell():
        w = start
        for _ in range(15):
            w, loss = update(w, x)
            float(loss)

    return warm(cell)


@of_jax()
def a_few_jnp_calls_beside_a_large_step():
    update, start, x = large_update()

    def cell():
        w, key = start, jax.random.PRNGKey(0)
        for _ in range(15):
            key, _ = jax.random.split(key)
            w, loss = update(w, x)
            jnp.sqrt(loss * 2 + 1)
        w.block_until_ready()

    return warm(cell)


@of_jax("work-outside-jit", says=("run_eagerly=False",), never=OF_TENSORFLOW)
def keras_told_not_to_compile():
    model, (x, y) = dense(), data_of()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(x, y, batch_size=32, verbose=0)
    return lambda: model.fit(x, y, batch_size=32, verbose=0)


# Keras, on whichever backend it runs


def data_of(rows=512, width=32):
    x = np.random.default_rng(0).random((rows, width), "float32")
    return x, x.sum(1, keepdims=True)


def dense(width=32, units=16, depth=1):
    layers = [keras.layers.Dense(units, activation="relu") for _ in range(depth)]
    model = keras.Sequential([keras.layers.Input((width,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


@of_keras("python-between-steps", "small-ops", also=("python-between-steps", "small-ops"), says=("larger batch",), never=(*OF_TENSORFLOW, "steps_per_execution", "lax.scan"))
def a_model_too_small_for_its_host():
    model, (x, y) = dense(), data_of()
    model.fit(x, y, batch_size=8, verbose=0)
    return lambda: model.fit(x, y, batch_size=8, verbose=0)


@of_keras(never=OF_TENSORFLOW)
def a_model_that_keeps_the_processor_busy():
    model, (x, y) = dense(256, 1200, 3), data_of(2048, 256)
    model.fit(x[:256], y[:256], batch_size=256, verbose=0)
    return lambda: model.fit(x, y, batch_size=256, verbose=0)


# PyTorch


def torch_loop(model, batches, compiled=None, reads=False):
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    forward = compiled or model

    def cell():
        for x in batches():
            optimizer.zero_grad()
            loss = forward(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            if reads:
                loss.item()

    return cell


def layers(width=6, units=8):
    return torch.nn.Sequential(torch.nn.Linear(width, units), torch.nn.ReLU(), torch.nn.Linear(units, 3))


def same(*shape, count=15):
    x = torch.ones(*shape)
    return lambda: (x for _ in range(count))


def rows_of(delay, count=96):
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return count

        def __getitem__(self, at):
            time.sleep(delay)
            return torch.full((6,), float(at))

    return Rows()


def loader(delay, **settings):
    return torch.utils.data.DataLoader(rows_of(delay), batch_size=8, **settings)


@of_torch("waiting-for-input", also=("small-ops",), says=("has no workers", "num_workers"), never=OF_TENSORFLOW)
def a_dataloader_without_workers():
    return torch_loop(layers(), lambda: loader(0.008))


@of_torch("waiting-for-input", also=("small-ops",), says=("workers did not have",), never=(*OF_TENSORFLOW, "has no workers", "num_workers=4"))
def a_dataloader_whose_workers_are_too_slow():
    return torch_loop(layers(), lambda: loader(0.02, num_workers=2))


@of_torch("small-ops", says=("larger batch",), never=(*OF_TENSORFLOW, "DataLoader"))
def a_small_model_in_a_loop():
    return warm(torch_loop(layers(), same(8, 6, count=60)))


def compiled_program(function, **settings):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", **settings)


@of_torch("recompiling", says=("TORCH_LOGS=recompiles",), never=OF_TENSORFLOW, also=("small-ops",))
def torch_compile_of_many_shapes():
    model = layers(256, 256)
    shapes = [torch.ones(20 + number % 6, 256) for number in range(12)]
    return torch_loop(model, lambda: iter(shapes), compiled_program(model.forward, dynamic=False))


@of_torch("graph-breaks", "small-ops", also=("small-ops", "graph-breaks"), never=(*OF_TENSORFLOW, "DataLoader"))
def torch_compile_with_graph_breaks():
    import torch  # what is compiled must see the module itself

    model = layers()

    def forward(x):
        x = torch.relu(x) + 1
        torch._dynamo.graph_break()
        x = torch.relu(x) + 2
        torch._dynamo.graph_break()
        return model(x)

    return warm(torch_loop(model, same(8, 6, count=40), compiled_program(forward)))


@of_torch("wide-numbers", also=("small-ops",), says=("64-bit", "model.double()"), never=OF_TENSORFLOW)
def torch_layers_in_double_precision():
    return warm(torch_loop(layers(600, 1500).double(), lambda: (torch.ones(512, 600, dtype=torch.float64) for _ in range(15))))


@of_torch("backward-again", also=("small-ops",), says=("retain_graph",), never=OF_TENSORFLOW)
def torch_backward_in_each_turn():
    weight = torch.full((300, 300), 0.003, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.001)

    def train():
        for _ in range(6):
            state = torch.ones(64, 300)
            optimizer.zero_grad()
            for _ in range(12):
                state = state @ weight
                state.mean().backward(retain_graph=True)
            optimizer.step()

    return warm(train)


@of_torch()
def torch_compile_of_one_piece():
    model = layers(600, 1500)
    return warm(torch_loop(model, same(512, 600), compiled_program(model.forward)))


@of_torch()
def a_large_model_that_reads_the_loss():
    return warm(torch_loop(layers(600, 1500), same(512, 600), reads=True))


@of_torch()
def a_large_model_behind_a_fast_dataloader():
    rows = torch.ones(512 * 12, 600)
    data = torch.utils.data.TensorDataset(rows)
    model = layers(600, 1500)
    return torch_loop(model, lambda: (x for (x,) in torch.utils.data.DataLoader(data, batch_size=None, sampler=[slice(at, at + 512) for at in range(0, 512 * 12, 512)])))
