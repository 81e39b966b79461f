"""Steps of JAX's and PyTorch's, each where it is installed: `.ci/run` has an environment for each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.backend


@pytest.mark.parametrize(("framework", "off"), [("torch", 0.1), ("jax", 0.15)])
def test_steps_are_forecast_at_eight_times_the_largest_batch(framework, off):
    """Within what the issue of these forecasts asked of an allocator, and of a process.

    Dense, convolution, recurrent and attention with embeddings: by an allocator, or as XLA plans and a process takes.

    PyTorch's weights are as before, which the program asserts.
    """
    pytest.importorskip(framework)
    settings = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    ran = subprocess.run([sys.executable, HERE / f"forecast_{framework}.py"], capture_output=True, text=True, timeout=1500, cwd=HERE.parents[1], env=settings)
    assert ran.returncode == 0, ran.stderr[-2000:]
    forecasts = [line.split() for line in ran.stdout.splitlines() if line.startswith("forecast ")]
    assert len(forecasts) == 4
    for _, name, forecast, measured in forecasts:
        assert float(forecast) == pytest.approx(float(measured), rel=off), name


KERAS = """
import keras, numpy as np, profnb
model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(4000, activation="relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
model.compile("adam", "mse")
before = [np.array(one) for one in model.get_weights()]
forecast = profnb.fits(model, np.zeros((20, 500), "f"), np.zeros((20, 1), "f"), batch_sizes=[1000, 2000, 4000])
assert all(map(np.array_equal, before, model.get_weights()))
assert int(model.optimizer.iterations) == 0
print("forecast", forecast.fixed_bytes, forecast.per_example_bytes)
"""


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_keras_model_is_forecast_in_processes_of_its_own_and_stays_as_it_was(framework):
    """Each example has 4,000 outputs of a layer in 4 bytes, twice or more; weights and Adam's two have 8 MB each."""
    pytest.importorskip(framework)
    pytest.importorskip("keras")
    settings = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "KERAS_BACKEND": framework}
    ran = subprocess.run([sys.executable, "-c", KERAS], capture_output=True, text=True, timeout=600, cwd=HERE.parents[1], env=settings)
    assert ran.returncode == 0, ran.stderr[-2000:]
    fixed, each = map(float, ran.stdout.split("forecast ")[1].split())
    assert 16_000 * 2 < each < 16_000 * 12
    assert fixed > 3 * 8e6
