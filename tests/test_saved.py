"""What was captured besides the trace: written beside it, read back the same, refused when it is damaged."""

import json
import random

import numpy as np
import pandas as pd
import pytest
from traces import tell_beside, told_beside

import profnb
from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import read_recordings, write_recordings
from profnb.capture.source.source_records import LineRecords, SourceRecords
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions


tensorflow = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def saved(tf, tmp_path_factory):
    """A captured profile, and the trace file that it was written to."""
    keras = pytest.importorskip("keras")
    inputs = keras.Input((12, 12, 3))
    x = keras.layers.Conv2D(4, 3, activation="relu")(inputs)
    x = keras.layers.Flatten()(x)
    inner = keras.Sequential([keras.layers.Dense(16, "swish"), keras.layers.Dense(8)], name="inner")
    x = inner(x)
    y = keras.layers.MultiHeadAttention(2, 4)(keras.layers.Reshape((2, 4))(x), keras.layers.Reshape((2, 4))(x))
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(y)), name="whole")
    model.compile("adam", "mse", metrics=["mae"])
    with profnb.profile(python=True) as p:
        model.fit(np.ones((64, 12, 12, 3), "float32"), np.ones((64, 3), "float32"), batch_size=8, verbose=0)
        tf.linalg.inv(tf.eye(50)) + 1.0
    return p, p.save(tmp_path_factory.mktemp("logs"))


def test_a_loaded_trace_tells_what_the_captured_one_did(saved):
    p, path = saved
    q = profnb.load(path)
    for table in ("layers", "source_lines", "python"):
        own, read = getattr(p, table), getattr(q, table)
        assert len(own) > 3
        pd.testing.assert_frame_equal(own, read)
        assert own.attrs == read.attrs
    assert q.layers.parameters.sum() > 0
    assert q.recording.models == p.recording.models
    assert q.recording.source == p.recording.source
    assert q.recording.stacks == p.recording.stacks


def test_a_model_that_is_given_counts_more_than_what_is_saved(saved):
    keras = pytest.importorskip("keras")
    _, path = saved
    other = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)], name="another")
    (model,) = profnb.load(path, model=other).recording.models
    assert model.name == "another"


def test_files_of_before_models_and_source_were_kept_open(saved, tmp_path):
    _, path = saved
    told = told_beside(path)
    for run in told["runs"]:
        del run["models"], run["source"], run["stacks"]
    q = profnb.load(with_sidecar(path, tmp_path, told))
    assert q.recording.models == ()
    assert q.source_lines.empty
    assert q.python.empty


def with_sidecar(path, folder, told):
    trace = folder / path.name
    if not trace.exists():
        trace.write_bytes(path.read_bytes())
    tell_beside(trace, told)
    return trace


@pytest.mark.parametrize(("place", "value"), [
    (("models", 0, "layers", 1, "parent"), 1),
    (("models", 0, "layers", 1, "parent"), -1),
    (("models", 0, "layers", 2, "parent"), 7),
    (("models", 0, "layers", 0, "parent"), 0),
    (("models", 0, "layers"), []),
    (("models", 0, "layers", 1, "parameters"), -2),
    (("models", 0, "layers", 1, "kernels"), [[1 << 60]]),
    (("models", 0, "layers", 1, "kernels"), [[1] * 40]),
    (("models", 0, "layers", 1, "output_shape"), "text"),
    (("models", 0, "layers", 1, "numbers"), {"heads": -3}),
    (("models", 0, "calls"), [[4000, 1]]),
    (("models", 0, "scopes"), [["a", -1, False]]),
    (("models", 0, "scopes"), [["a"]]),
    (("source", "places", 0), [999, 1]),
    (("source", "places", 0), [0, -1]),
    (("source", "layers"), {"dense": 10**6}),
    (("source", "lines", "code", 0), -2),
    (("source", "lines", "code", 0), 10**6),
    (("source", "lines", "line", 0), 1.5),
    (("source", "lines", "line"), []),
    (("source", "lines", "time_ns", 1), -(10**15)),
    (("source", "lines", "time_ns", 1), 1 << 61),
    (("source", "graphs", 0, "places", 0), 10**6),
    (("source", "graphs", 0, "op_names"), []),
    (("source", "texts"), {"a.py": "no list"}),
    (("stacks", "stack", 0), 10**6),
    (("stacks", "stacks", 0), [10**6]),
    (("stacks", "begin_ns"), 1 << 62),
    (("stacks", "frames", 0), ["f"]),
    (("models",), {}),
    (("source",), 3),
])  # fmt: skip
def test_damaged_files_are_refused(saved, tmp_path, place, value):
    _, path = saved
    told = told_beside(path)
    at = told["runs"][0]
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(TraceFormatError, match="profnb"):
        profnb.load(with_sidecar(path, tmp_path, told))


def leaves(value, found):
    """(container, key) of every value inside of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            leaves(inner, found)
    return found


ODD = [None, -1, 0, 1, 2, 2**31 - 1, 2**40, 2**62, 10**30, 1.5, "", "a/b", "\ud800", "x" * 5000, [], {}, [[]], [0], [[0, 0]], True]


@pytest.mark.parametrize("seed", range(3))
def test_no_file_does_more_than_be_refused(saved, tmp_path, seed):
    """Random damage: what opens can be shown in full."""
    _, path = saved
    chance = random.Random(seed)
    text = json.dumps(told_beside(path))
    opened = 0
    for _ in range(20):
        told = json.loads(text)
        run = told["runs"][0]
        chosen = leaves({name: run[name] for name in chance.sample(["models", "source", "stacks"], 1)}, [])
        container, key = chance.choice(chosen)
        container[key] = chance.choice(ODD)
        if isinstance(container, dict) and chance.random() < 0.3:
            del container[key]
        trace = with_sidecar(path, tmp_path, told)
        try:
            q = profnb.load(trace)
        except TraceFormatError:
            continue
        opened += 1
        q.layers, q.source_lines, q.python, q.advice, q.summary()
        if opened % 5 == 1:
            q.to_html(tmp_path / "report.html")
    assert opened


def test_what_is_written_can_be_read_however_many_lines_were_not_timed(tmp_path):
    path = tmp_path / "host.xplane.pb"
    source = SourceRecords(lines=LineRecords(untimed=[("a.py", line) for line in range(25_000)]))
    write_recordings(path, CaptureOptions(), [Recording(source=source)])
    _, (read,) = read_recordings(path)
    assert read.source.lines.untimed == source.lines.untimed[:10_000]
