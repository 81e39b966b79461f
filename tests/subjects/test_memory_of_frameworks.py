"""Activations and workspace apart, by layer: of PyTorch from its allocators' records, of JAX from XLA's assignment of buffers."""

import pytest

import profnb


def of_process(p):
    rows = p.memory_kinds.query("source == 'process'")
    assert rows.fraction.sum() == pytest.approx(1)
    assert set(rows.moment) == {"peak"}
    return rows.groupby(["kind", "holder"]).bytes.sum()


def test_pytorchs_activations_stand_by_their_layer():
    """ReLU, which ``Net`` itself calls, keeps what it gives for the gradients: 8192 by 1024 numbers of 4 bytes. Its gradient is as large."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.head = torch.nn.Linear(64, 1024), torch.nn.Linear(1024, 1)

        def forward(self, x):
            return self.head(torch.relu(self.wide(x)))

    net, x = Net(), torch.ones(8192, 64)
    optimizer = torch.optim.Adam(net.parameters())
    with profnb.profile(memory=True) as p:
        for _ in range(6):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    sizes = of_process(p)
    assert sizes["activations", "Net"] == pytest.approx(8192 * 1024 * 4, rel=0.01)
    assert sizes["gradients", "Net"] == pytest.approx(8192 * 1024 * 4, rel=0.01)
    assert sizes["weights", "Net/wide"] == 65 * 1024 * 4
    assert sizes.xs("optimizer state").sum() >= 2 * 66 * 1024 * 4
    assert set(p.memory.allocator) == {"CPU"}
    assert p.memory_peak.bytes.max() == pytest.approx(8192 * 1024 * 4, rel=0.01)


def test_jaxs_activations_are_what_the_gradients_need():
    """Of two layers the outputs, 8192 by 512 numbers of 4 bytes; XLA may fuse what follows with them."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def loss(params, x):
        return jnp.mean((jnp.tanh(jnp.tanh(x @ params["a"]) @ params["b"])) ** 2)

    @jax.jit
    def step(params, x):
        value, gradients = jax.value_and_grad(loss)(params, x)
        return value, jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, params, gradients)

    params, x = {"a": jnp.ones((64, 512)), "b": jnp.ones((512, 512))}, jnp.ones((8192, 64))
    with profnb.profile() as p:
        for _ in range(6):
            value, params = step(params, x)
        value.block_until_ready()
    sizes = of_process(p)
    planned = p.xla_modules.query("module.str.contains('step')").temporary_bytes.max()
    passing = sizes.xs("activations").sum() + sizes.get(("workspace", ""), 0) + (sizes.xs("gradients").sum() if "gradients" in sizes.index.levels[0] else 0)
    assert passing == pytest.approx(planned, rel=0.01)
    assert sizes.xs("activations").sum() >= 8192 * 512 * 4
    assert sizes.xs("input and data").sum() >= 8192 * 64 * 4
