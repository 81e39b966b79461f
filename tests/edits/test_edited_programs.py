"""Programs run as they are and as edited: what they compute stays, and the edit is there at work."""

import numpy as np
import pytest
from edit_kit import advice

from profnb.edits.editing import find_edits

pytestmark = pytest.mark.tensorflow
HEAD = """
import numpy as np, keras, tensorflow as tf
keras.utils.set_random_seed(3)
x = np.random.default_rng(3).random((96, 6), np.float32)
y = x[:, :1]
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
optimizer, loss_fn = keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError()
"""
# Of each rule its words, and a cell that leaves its result.
CELLS = {
    "stages": ("input-bound", "num_parallel_calls .prefetch(tf.data.AUTOTUNE)", "def scaled(a):\n    return tf.cast(a, tf.float64) / 3\n"
        "ds = tf.data.Dataset.from_tensor_slices(x).map(scaled).batch(7)\nresult = []\nfor batch in ds:\n    result.extend(batch.numpy().ravel())\n"),
    "batch first": ("input-bound", ".batch(n) before .map(f)", "result = []\nds = tf.data.Dataset.from_tensor_slices(x).map(lambda a: tf.sqrt(a) * 2 + 1).batch(7)\n"
        "for batch in ds:\n    result.extend(batch.numpy().ravel())\n"),
    "cache": ("cache-input", ".cache()", "def scaled(a, b):\n    return a / 3, b\nds = tf.data.Dataset.from_tensor_slices((x, y)).map(scaled).batch(8)\n"
        "result = model.fit(ds, epochs=3, verbose=0).history['loss']\n"),
    "steps": ("python-between-steps", "steps_per_execution", "model.compile('sgd', 'mse')\nresult = model.fit(x, y, epochs=2, shuffle=False, verbose=0).history['loss']\n"),
    "arrays": ("epoch-ends", "from_tensor_slices", "result = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history['loss']\n"),
    "train step": ("eager-ops", "tf.function", "def train_step(a, b):\n    with tf.GradientTape() as tape:\n        loss = loss_fn(b, model(a, training=True))\n"
        "    grads = tape.gradient(loss, model.trainable_variables)\n    optimizer.apply_gradients(zip(grads, model.trainable_variables))\n    return loss\n"
        "result = [float(train_step(x[i : i + 8], y[i : i + 8])) for i in range(0, 96, 8)]\n"),
    "eager": ("eager-ops", "run_eagerly tf.function", "model.compile('sgd', 'mse', run_eagerly=True)\nresult = model.fit(x, y, shuffle=False, verbose=0).history['loss']\n"),
    "predict": ("predict-in-a-loop", "predict_on_batch", "result = [model.predict(row[None], verbose=0)[0, 0] for row in x[:9]]\n"),
    "callback": ("callback", "if batch % 5", "result = []\nclass Judge(keras.callbacks.Callback):\n    def on_train_batch_end(self, batch, logs=None):\n"
        "        result.append(self.model(x[:4], training=False).numpy().sum())\nmodel.fit(x, y, shuffle=False, verbose=0, callbacks=[Judge()])\n"),
    "validation": ("validation", "validation_freq=5", "history = model.fit(x, y, epochs=5, shuffle=False, validation_data=(x, y), verbose=0).history\nresult = history['loss']\n"),
}  # fmt: skip
ALIKE = {"arrays", "stages", "batch first", "cache"}


def run(source):
    import keras

    names = {"__name__": "__main__"}
    exec(compile(HEAD, "head.py", "exec"), names)
    exec(compile(source, "cell.py", "exec"), names)
    keras.backend.clear_session()
    return names


@pytest.mark.parametrize("name", CELLS)
def test_an_edited_program_computes_the_same(name):
    rule, code, cell = CELLS[name]
    names = run(cell)
    (edit,) = find_edits([advice(rule, code, edit={"without": "Judge.on_train_batch_end"} if rule == "callback" else None)], {"cell.py": cell, "head.py": HEAD}, names)
    edited = run(edit.sources["cell.py"])
    assert len(names["result"]) > 0
    if edit.alters in ("nothing", "order of rounding"):
        np.testing.assert_allclose(edited["result"], names["result"], rtol=1e-6 if name in ALIKE else 1e-4)
    if name == "train step":
        assert hasattr(edited["train_step"], "get_concrete_function")
    if name == "steps":
        assert edited["model"].steps_per_execution == 16
    if name == "validation":
        assert len(edited["history"]["val_loss"]) == 1


def test_a_function_with_an_effect_keeps_its_effect():
    """A list that grows in a function would grow once if that were compiled."""
    cell = "seen = []\ndef step(a):\n    seen.append(a)\n    return tf.square(a)\nresult = [step(tf.constant(i)) for i in range(3)]\n"
    assert find_edits([advice("eager-ops", "tf.function")], {"cell.py": cell, "head.py": HEAD}, run(cell)) == []
