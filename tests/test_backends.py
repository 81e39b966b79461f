"""Capturing Keras' work on JAX and PyTorch, and loops of their own: `KERAS_BACKEND=jax pytest tests/test_backends.py`, or torch.

Each backend runs in an environment that has it; elsewhere all of this skips.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

BACKEND = os.environ.get("KERAS_BACKEND", "")
if BACKEND not in ("jax", "torch"):
    pytest.skip("KERAS_BACKEND is neither jax nor torch", allow_module_level=True)
pytest.importorskip(BACKEND)
keras = pytest.importorskip("keras")

import profnb

TITLE = {"jax": "JAX", "torch": "PyTorch"}[BACKEND]
rng = np.random.default_rng(0)
X, Y = rng.random((128, 6)).astype("float32"), rng.integers(0, 3, 128)


def make_model(**settings):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, name="wide"), keras.layers.Dense(3, name="narrow")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
    return model


class Counter(keras.callbacks.Callback):
    """Counts what Keras itself says it does."""

    def __init__(self):
        super().__init__()
        self.train = self.test = 0

    def on_train_batch_end(self, batch, logs=None):
        self.train += 1

    def on_test_batch_end(self, batch, logs=None):
        self.test += 1


def fit(count=None, **settings):
    model = make_model()
    callbacks = [] if count is None else [count]
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, validation_data=(X[:24], Y[:24]), callbacks=callbacks, **settings)
    return history.history, [np.asarray(weight).tolist() for weight in model.get_weights()]


def phases(table):
    return table.phase.value_counts().to_dict()


def test_steps_are_those_that_keras_counts_and_results_are_the_same():
    plain = fit(Counter())
    count = Counter()
    with profnb.profile() as p:
        captured = fit(count)
    assert captured == plain
    assert phases(p.steps) == phases(p.step_times) == {"train": count.train, "test": count.test} == {"train": 32, "test": 6}
    assert p.study.framework == TITLE
    assert p.environment["Keras backend"] == BACKEND
    assert not any("Keras runs on" in note or "did not start" in note or "A hook" in note or " hides " in note for note in p.notes)


def test_categories_add_up_and_ops_are_seen():
    with profnb.profile() as p:
        fit()
    assert p.steps.host_compute_ms.sum() > 0
    assert p.ops.occurrences.sum() > 32
    parts = p.steps[[column for column in p.steps if column.endswith("_ms") and column not in ("begin_ms", "duration_ms", "gap_ms")]]
    assert np.allclose(parts.sum(axis=1), p.steps.duration_ms, atol=1e-6)


def test_the_window_is_bounded_and_later_steps_are_timed():
    with profnb.profile(max_steps=10) as p:
        fit()
    assert phases(p.steps) == {"train": 10}
    assert phases(p.step_times) == {"train": 32, "test": 6}
    assert p.step_times.was_traced.sum() == 10
    assert p.recording.closed_by == "steps"


def test_evaluate_predict_and_single_batches_are_steps():
    model = make_model()
    with profnb.profile() as p:
        model.evaluate(X, Y, batch_size=16, verbose=0)
        model.predict(X, batch_size=32, verbose=0)
        for at in range(3):
            model.train_on_batch(X[:8], Y[:8])
    assert phases(p.step_times) == {"test": 8, "predict": 4, "train": 3}


def test_a_batch_that_ends_the_data_is_no_step():
    def batches():
        for at in range(5):
            yield X[at * 8 : at * 8 + 8], Y[at * 8 : at * 8 + 8]

    model, count = make_model(), Counter()
    with pytest.warns(UserWarning, match="ran out of data"), profnb.profile() as p:
        model.fit(batches(), steps_per_epoch=9, verbose=0, callbacks=[count])
    assert phases(p.steps) == phases(p.step_times) == {"train": count.train} == {"train": 5}


class Fails(keras.callbacks.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        if batch == 5:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()], ids=["an error", "an interrupt"])
def test_an_exception_stays_the_users_and_what_was_captured_is_there(error):
    model = make_model()
    with pytest.raises(type(error)) as raised, profnb.profile() as p:
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[Fails(error)])
    assert raised.value is error
    assert phases(p.step_times) == {"train": 6}
    assert phases(p.steps) == {"train": 6}
    with profnb.profile() as p:  # nothing was left running
        model.evaluate(X, Y, batch_size=16, verbose=0)
    assert phases(p.steps) == {"test": 8}


def test_nothing_is_printed(capfd):
    with profnb.profile():
        fit()
    assert capfd.readouterr() == ("", "")


def test_a_kept_trace_opens_again(tmp_path):
    with profnb.profile(logdir=str(tmp_path)) as p:
        fit()
    q = profnb.load(tmp_path)
    assert phases(q.steps) == phases(p.steps)
    assert phases(q.step_times) == phases(p.step_times)


def test_a_forced_backend_is_the_only_one():
    with profnb.profile(backend="tensorflow") as p:
        fit()
    assert not p.has_trace or p.study.framework != TITLE  # Keras itself may import TensorFlow
    assert phases(p.step_times) == {"train": 32, "test": 6}


def test_words_are_of_the_framework():
    with profnb.profile() as p:
        fit()
    for word in ("tf.function", "TensorFlow ran", "tf.profiler"):
        assert word not in p.summary()
    assert all(word not in advice.code + advice.evidence for advice in p.advice for word in ("tf.function", "lax.scan", "steps_per_execution"))


def test_hooks_are_gone_afterwards():
    own = dict(vars(keras.Model)), dict(vars(keras.callbacks.CallbackList))
    with profnb.profile():
        fit()
    assert (dict(vars(keras.Model)), dict(vars(keras.callbacks.CallbackList))) == own


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_code_may_still_choose_jaxs_devices_after_importing_it():
    code = (
        "import profnb\n"
        "with profnb.profile() as p:\n"
        "    import jax\n"
        "    jax.config.update('jax_num_cpu_devices', 3)\n"
        "    step = jax.jit(lambda x: x * 2 + 1)\n"
        "    x = 1.0\n"
        "    for _ in range(30): x = step(x)\n"
        "    x.block_until_ready()\n"
        "print(len(jax.devices()), p.has_trace, len(p.steps))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() in (["3", "True", "29"], ["3", "True", "30"])  # the first call sets the devices up


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_a_jax_trace_of_the_codes_own_takes_over_and_is_complete(tmp_path):
    import jax

    model = make_model()
    with profnb.profile() as p:
        model.evaluate(X, Y, batch_size=16, verbose=0)
        with jax.profiler.trace(str(tmp_path)):
            model.evaluate(X, Y, batch_size=16, verbose=0)
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
    assert p.recording.closed_by == "the code"
    assert any("JAX profiler of its own" in note for note in p.notes)
    assert phases(p.steps) == {"test": 8}
    assert phases(p.step_times) == {"test": 16}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_a_torch_profiler_of_the_codes_own_takes_over_and_is_complete():
    import torch

    model = make_model()
    with profnb.profile() as p:
        model.evaluate(X, Y, batch_size=16, verbose=0)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            model.evaluate(X, Y, batch_size=16, verbose=0)
    assert len(own.events()) > 10
    assert p.recording.closed_by == "the code"
    assert phases(p.steps) == {"test": 8}
    assert phases(p.step_times) == {"test": 16}
