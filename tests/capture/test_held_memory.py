"""Living arrays by what holds them: each block once, by the variable that leads to it; nothing is run or kept."""

import collections
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from profnb.capture.memory.held_memory import find_held, find_pools

MB = 1_000_000


def held(namespace, models=(), error=None):
    rows = find_held(namespace, models, error)
    return {(row.kind, row.holder, row.device): (row.bytes, row.blocks) for row in rows}


DATA, CPU = "input and data", "CPU"


def test_arrays_count_once_by_the_first_variable_that_leads_to_them():
    x = np.zeros(MB // 8)
    kept = [np.zeros(MB // 8) for _ in range(3)]
    found = held({"x": x, "again": x, "view": x[10:20], "kept": kept, "deep": {"a": (kept, [np.zeros(1000)])}, "_12": np.zeros(9), "n": 3, "text": "x" * 99})
    assert found == {(DATA, "x", CPU): (MB, 1), (DATA, "kept", CPU): (3 * MB, 3), (DATA, "deep", CPU): (8000, 1)}


def test_objects_of_the_notebook_lead_on_and_those_of_libraries_do_not():
    kinds = {}
    exec("class Mine: pass", {"__name__": "__main__"}, kinds)
    mine, other = kinds["Mine"](), collections.UserList([np.zeros(8)])
    mine.array = np.zeros(4)
    assert held({"mine": mine, "other": other}) == {(DATA, "mine", CPU): (32, 1)}


def test_a_long_list_that_begins_with_a_number_is_not_walked_through():
    walked = [0]

    class Number(float):
        @property
        def __class__(self):
            walked[0] += 1
            return float

    numbers = [0.5, *[Number(1) for _ in range(300)]]
    assert held({"numbers": numbers, "short": [0.5, np.zeros(1)]}) == {(DATA, "short", CPU): (8, 1)}
    assert walked == [0]


def test_the_devices_of_jax_are_not_chosen_for_the_code():
    jax = pytest.importorskip("jax")
    code = "import jax; from profnb.capture.memory.held_memory import find_held, find_pools; find_held({}, ()); find_pools();"
    code += "print(jax._src.xla_bridge.backends_are_initialized())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False", jax


def test_local_variables_of_the_function_that_failed_are_named():
    namespace = {"np": np}
    exec(compile("def step():\n    local = np.zeros(1000)\n    raise MemoryError\n", "/nowhere/mine.py", "exec"), namespace)
    with pytest.raises(MemoryError) as raised:
        namespace["step"]()
    assert held({}, error=raised.value) == {(DATA, "local", CPU): (8000, 1)}


def test_nothing_is_kept_alive():
    class Array(np.ndarray):
        pass

    array = np.zeros(8).view(Array)
    alive = weakref.ref(array)
    find_held({"array": array}, ())
    del array
    gc.collect()
    assert alive() is None


def test_hostile_objects_end_nothing():
    class Trap:
        def __getattr__(self, name):
            raise SystemError(name)

    class Endless(list):
        def __iter__(self):
            while True:
                yield 1

    circle = []
    circle.append(circle)
    namespace = {"trap": Trap(), "circle": circle, "endless": Endless(), "many": list(range(10_000)), "x": np.zeros(8), "": np.zeros(2), "a`b\x1b": np.zeros(4)}
    found = held(namespace)
    assert found[DATA, "x", CPU] == (64, 1)


def test_the_process_is_the_first_pool():
    process = find_pools()[0]
    assert process.device == CPU and 0 < process.in_use_bytes < process.limit_bytes


@pytest.mark.tensorflow
def test_a_model_of_keras_has_weights_by_layer_and_an_optimizer():
    """Of 4 times 3 and 3 numbers: 60 bytes; of the optimizer twice as much and a few numbers."""
    keras = pytest.importorskip("keras")
    tf = pytest.importorskip("tensorflow")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, name="head")], name="net")
    model.compile("adam", "mse")
    model.fit(np.zeros((8, 4)), np.zeros((8, 3)), verbose=0)
    eager, variable = tf.zeros((100,)), tf.Variable(tf.zeros(10))
    found = held({"model": model, "again": model, "eager": [eager], "variable": variable, "spec": tf.TensorSpec((99,)), "layer": keras.layers.Dense(2)})
    assert found["weights", "net/head", CPU] == (60, 2)
    state, _ = found["optimizer state", "", CPU]
    assert 120 <= state <= 160
    assert found[DATA, "eager", CPU] == (400, 1)
    assert found["weights", "variable", CPU] == (40, 1)
    assert len(found) == 4


def test_pytorchs_tensors_are_weights_gradients_optimizer_state_activations_and_data():
    """A layer of 4 by 3 and 3 numbers: 60 bytes, as much of each gradient and momentum. Five losses of a number keep a graph."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.head(x)

    net, x = Net(), torch.zeros(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    net(x).sum().backward()
    optimizer.step()
    losses = [net(x).mean() for _ in range(5)]
    found = held({"net": net, "x": x, "view": x[2:], "optimizer": optimizer, "losses": losses, "meta": torch.zeros(9, device="meta")})
    assert {key: value for key, value in found.items() if key[1]} == {
        ("weights", "Net/head", CPU): (60, 2), ("gradients", "Net/head", CPU): (60, 2), ("optimizer state", "Net/head", CPU): (60, 2),
        ("activations", "losses", CPU): (20, 5), (DATA, "x", CPU): (128, 1),
    }  # fmt: skip


def test_jaxs_arrays_stand_by_their_variable_and_optaxs_state_is_an_optimizers():
    jax = pytest.importorskip("jax")
    kinds = {}
    exec("import typing\nclass State(typing.NamedTuple):\n    mu: object", {"__name__": "optax._src.made"}, kinds)
    params = {"w": jax.numpy.zeros((4, 3)), "b": jax.numpy.zeros(3)}
    found = held({"params": params, "state": kinds["State"]({"w": jax.numpy.zeros((4, 3))}), "shape": jax.ShapeDtypeStruct((9,), "float32")})
    assert found["optimizer state", "state", CPU] == (48, 1)
    assert found[DATA, "params", CPU] == (60, 2)
    assert not [key for key in found if key[1] == "shape"]
