"""Record tests/data/keras-on-jax.xplane.pb.xz: Keras 3 on its JAX backend, on a CPU, without a step marker.

    python tests/data/record_keras_on_jax.py

Needs jax and keras (0.10.2 and 3.15.1 when it was recorded), in a place of their own: no test needs them.
"""

import lzma
import os
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"], os.environ["JAX_PLATFORMS"] = "jax", "cpu"

import jax
import keras
import numpy as np

x = np.random.rand(2048, 64).astype("float32")
y = np.random.randint(0, 10, 2048)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size=32, verbose=0)
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder, profiler_options=options):
        model.fit(x, y, batch_size=32, verbose=0)
    [recorded] = Path(folder).rglob("*.xplane.pb")
    Path(__file__).with_name("keras-on-jax.xplane.pb.xz").write_bytes(lzma.compress(recorded.read_bytes(), preset=9))
