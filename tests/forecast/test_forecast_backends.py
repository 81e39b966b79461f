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
