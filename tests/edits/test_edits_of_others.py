"""Edits of JAX's and PyTorch's programs, with the objects that these make."""

import numpy as np
import pytest
from edit_kit import advice, changed_lines

from profnb.edits.editing import find_edits

JAX_CELL = """import jax, jax.numpy as jnp
def loss(w, a):
    return jnp.mean((a @ w) ** 2)
def step(w, a):
    value, g = jax.value_and_grad(loss)(w, a)
    return w - 0.1 * g, value
w, result = jnp.ones((4, 2)), []
for i in range(5):
    w, value = step(w, jnp.full((3, 4), 0.1 * i))
    result.append(float(value))
"""
TORCH_CELL = """import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
net = torch.nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.ones(12, 4)), batch_size=4, shuffle=True)
result = []
for epoch in range(2):
    for (a,) in loader:
        result.append(float(net(a).sum()))
"""


def run(source):
    names = {"__name__": "__main__"}
    exec(compile(source, "cell.py", "exec"), names)
    return names


def test_a_step_of_jax_is_compiled():
    jax = pytest.importorskip("jax")
    names = run(JAX_CELL)
    (edit,) = find_edits([advice("work-outside-jit", "Put @jax.jit over one function")], {"cell.py": JAX_CELL}, names)
    assert changed_lines(edit) == ["+@jax.jit"] and edit.change == "@jax.jit over step"
    edited = run(edit.sources["cell.py"])
    np.testing.assert_allclose(edited["result"], names["result"], rtol=1e-5)
    assert isinstance(edited["step"], type(jax.jit(abs)))


def test_a_loader_gets_workers():
    pytest.importorskip("torch")
    names = run(TORCH_CELL)
    (edit,) = find_edits([advice("waiting-for-input", "DataLoader(..., num_workers=4)")], {"cell.py": TORCH_CELL}, names)
    edited = run(edit.sources["cell.py"])
    assert edited["loader"].num_workers > 0 and edited["loader"].persistent_workers
    np.testing.assert_allclose(edited["result"], names["result"], rtol=1e-6)


def test_a_module_is_compiled_where_it_is_used():
    torch = pytest.importorskip("torch")
    names = run(TORCH_CELL)
    given = [advice("small-ops", "torch.compile(model)"), advice("copying-input", "pin_memory=True")]
    edits = find_edits(given, {"cell.py": TORCH_CELL}, names)
    assert changed_lines(edits[0]) == ["+net = torch.compile(net)"] and "pin_memory=True)" in edits[1].sources["cell.py"]
    assert edits[0].sources["cell.py"].index("torch.compile") > TORCH_CELL.index("result = []")
    names["net"] = torch.compile(names["net"])
    assert find_edits(given[:1], {"cell.py": TORCH_CELL}, names) == []
