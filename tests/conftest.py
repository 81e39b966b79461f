"""What tests share: where real traces are, and a shell that keeps what it displays."""

import gc
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "traces"


SLOW = {"tensorflow", "kernel", "browser", "slow"}


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="only what takes no TensorFlow, kernel, browser or patience: two minutes at most")


def pytest_collection_modifyitems(config, items):
    """Leave out what is slow, where only the fast tests are asked for."""
    if config.getoption("--fast"):
        is_slow = [not SLOW.isdisjoint(mark.name for mark in item.iter_markers()) for item in items]
        config.hook.pytest_deselected(items=[item for item, slow in zip(items, is_slow, strict=True) if slow])
        items[:] = [item for item, slow in zip(items, is_slow, strict=True) if not slow]


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_behind():
    """Let the models and graphs of a file's tests go: each later capture would look at all that live."""
    yield
    for name in ("keras", "tf_keras"):
        if name in sys.modules:
            sys.modules[name].backend.clear_session()
    gc.collect()


@pytest.fixture(scope="session")
def cpu_trace_path():
    """A real CPU trace: eight steps of a small CNN, recorded by tests/data/record.py."""
    return DATA / "cpu-cnn.xplane.pb"


@pytest.fixture(scope="session")
def shared_traces():
    """Real traces of others, by name; skipped where they are absent."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared/traces")
    return SHARED


def every_shared_trace():
    """Paths of the XPlane traces that must open, for parametrize."""
    found = sorted(p for p in SHARED.glob("*/*.xplane.pb") if p.parent.name != "corrupt")
    return [pytest.param(p, id=f"{p.parent.name}-{p.stem}") for p in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason="needs ../shared/traces"))
    ]
