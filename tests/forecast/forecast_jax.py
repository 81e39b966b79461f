"""Steps of JAX's: the forecast of a batch eight times the largest that was tried, and what that takes."""

import jax
import jax.numpy as jnp

import profnb
from profnb.forecast.meters import planned_peak


def dense(p, x):
    return jnp.mean((jnp.maximum(x @ p["a"], 0) @ p["b"]) ** 2)


def convolution(p, x):
    y = jax.lax.conv_general_dilated(x, p["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.mean(jnp.maximum(y, 0) ** 2)


def recurrent(p, x):
    def cell(h, t):
        h = jnp.tanh(t @ p["i"] + h @ p["h"])
        return h, h

    return jnp.mean(jax.lax.scan(cell, jnp.zeros((x.shape[0], 64)), x.transpose(1, 0, 2))[1] ** 2)


def attention(p, x):
    q = x @ p["q"]
    return jnp.mean((jax.nn.softmax(q @ q.transpose(0, 2, 1)) @ q) ** 2)


CASES = (
    (dense, {"a": jnp.ones((512, 1024)), "b": jnp.ones((1024, 10))}, jnp.zeros((4, 512))),
    (convolution, {"k": jnp.ones((3, 3, 3, 16))}, jnp.zeros((4, 32, 32, 3))),
    (recurrent, {"i": jnp.ones((16, 64)), "h": jnp.ones((64, 64))}, jnp.zeros((4, 50, 16))),
    (attention, {"q": jnp.ones((64, 64))}, jnp.zeros((4, 64, 64))),
)
for loss, params, x in CASES:

    def step(x, params=params, loss=loss):
        _, gradients = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, params, gradients)

    forecast = profnb.fits(step, x, limit_bytes=1 << 30)
    largest = int(forecast.table.batch_size.max())  # eight times the largest that ran
    _, took = planned_peak(step, (jnp.zeros((largest, *x.shape[1:]), x.dtype),))
    print("forecast", loss.__name__, forecast.peak_bytes(largest), took)  # noqa: T201

weight = jnp.ones((1000, 500))


@jax.jit
def update(weight, x):
    return weight - jax.grad(lambda weight: jnp.mean(jnp.tanh(x @ weight) ** 2))(weight)


# A function that closes over weights is planned as it runs: they are arguments of what it calls.
x = jnp.zeros((4000, 1000))
plan = update.lower(weight, x).compile().memory_analysis()
sizes = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
planned, took = planned_peak(lambda x: update(weight, x), (x,))
assert abs(planned / sizes - 1) < 0.01, (planned, sizes)
assert took >= planned
# A batch of four terabytes is planned: that takes no memory.
planned, took = planned_peak(lambda x: update(weight, x), (jax.ShapeDtypeStruct((1 << 30, 1000), x.dtype),))
assert planned == took > 1000 * 4 * (1 << 30)
