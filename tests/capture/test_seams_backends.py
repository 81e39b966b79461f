"""Names of JAX and PyTorch that are gone: what hangs on them is lost, with a sentence, and no more.

As test_backends, `KERAS_BACKEND=jax pytest tests/capture/test_seams_backends.py`, or torch, in an environment that has it.
"""

import os

import numpy as np
import pytest

BACKEND = os.environ.get("KERAS_BACKEND", "")
if BACKEND not in ("jax", "torch"):
    pytest.skip("KERAS_BACKEND is neither jax nor torch", allow_module_level=True)
framework = pytest.importorskip(BACKEND)
keras = pytest.importorskip("keras")

from seam_removal import assert_told, hide, is_missed, remove

import profnb
from profnb.capture.seams import SEAMS, VERSION, Seam

pytestmark = pytest.mark.backend
TITLE = {"jax": "JAX", "torch": "PyTorch"}[BACKEND]
# The framework's own, and those of Keras that are read only where it runs on it.
NAMES = [seam for seam in SEAMS if seam.module.partition(".")[0] == BACKEND or (seam.module.startswith("keras") and TITLE in seam.lost)]
NAMES += [seam for seam in SEAMS if BACKEND == "jax" and seam.module.startswith("keras.src.backend.jax") and seam not in NAMES]


def make_model():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
    model.compile("sgd", "mse")
    return model


def loop_of_torch():
    layer = framework.nn.Linear(2, 1, bias=False)
    framework.nn.init.ones_(layer.weight)
    optimizer = framework.optim.SGD(layer.parameters(), 0.0)
    data = framework.utils.data.DataLoader(framework.utils.data.TensorDataset(framework.ones(12, 2)), batch_size=4)
    total = 0.0
    for (batch,) in data:
        optimizer.zero_grad()
        loss = layer(batch).sum()
        loss.backward()
        optimizer.step()
        total += float(loss)
    return total


def loop_of_jax():
    double = framework.jit(lambda x: 2 * x)
    total = 0.0
    for number in range(4):
        with framework.profiler.StepTraceAnnotation("train", step_num=number):
            total += float(double(framework.numpy.float32(number)))
    return 2 * total


def program():
    """A fit, whose first loss is known, and a loop of one's own: 12 rows of two ones, or 2 * 2 * (0 + 1 + 2 + 3)."""
    model, x = make_model(), np.zeros((32, 2), "float32")
    history = model.fit(x, np.full((32, 1), 3.0, "float32"), batch_size=8, verbose=0)
    return history.history["loss"], loop_of_torch() if BACKEND == "torch" else loop_of_jax()


RESULT = [9.0], 24.0


def capture():
    with profnb.profile() as p:
        result = program()
    assert result == RESULT
    return p


def assert_nothing_runs():
    if BACKEND == "torch":
        assert not framework._C._autograd._profiler_enabled()
    else:
        with pytest.raises(RuntimeError, match="No profile"):
            framework.profiler.stop_trace()


@pytest.mark.parametrize("seam", NAMES, ids=lambda seam: seam.path)
def test_a_name_that_is_gone_costs_what_hangs_on_it_and_a_sentence(monkeypatch, seam):
    missed = is_missed(seam)
    with monkeypatch.context() as removing:
        p = None
        if missed and remove(removing, seam):
            try:
                p = capture()
            except Exception as error:  # the framework or Keras cannot do without it either
                with pytest.raises(type(error)):
                    program()
    assert_nothing_runs()
    if p is None:
        with monkeypatch.context() as hiding:
            hide(hiding, seam)
            p = capture()
        assert_nothing_runs()
    assert_told(p.notes, seam, is_missed=missed)


def test_all_names_gone_at_once_leave_the_code_as_it_is(monkeypatch):
    find, of = Seam.find, Seam.of
    with monkeypatch.context() as hiding:  # without a version an import is one that failed half-way
        hiding.setattr(Seam, "find", lambda self, *root: find(self, *root) if self is VERSION else None)
        hiding.setattr(Seam, "of", lambda self, thing, default=None: of(self, thing, default) if self is VERSION else default)
        p = capture()
    assert_nothing_runs()
    assert [note for note in p.notes if "A hook of" in note] == []
    assert any(f"{TITLE} {framework.__version__} hides " in note for note in p.notes)
    assert not p.has_trace


def test_nothing_is_missing_today():
    assert not [note for note in capture().notes if "hides" in note or "has changed" in note or "hook" in note]
