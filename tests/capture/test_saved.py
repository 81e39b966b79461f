"""What was captured besides the trace: written beside it, read back the same, refused when it is damaged."""

import collections.abc
import copy
import dataclasses
import gzip
import json
import os
import random
import stat
import types
import typing
from array import array

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import tell_beside, told_beside

import profnb
from profnb.capture.recording import Recording
from profnb.capture.marking.trace_events import TracedFunction
from profnb.capture.models.op_order import OpFact
from profnb.capture.models.layer_facts import FitResult
from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.parts.part_records import CellPart, CellRecords
from profnb.capture.step_records import StepRecords
from profnb.capture.saved import sidecar
from profnb.capture.saved.codec import Limit
from profnb.capture.saved.sidecar import read_recordings, sidecar_of, write_recordings
from profnb.capture.source.source_records import GraphLines, LineRecords, SourceRecords, StackRecords
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.steps.step_times import wall_step_times


tensorflow = pytest.mark.tensorflow
pytestmark = tensorflow


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
    model.compile("sgd", "mse", metrics=["mae"])
    with profnb.profile(python=True) as p:
        model.fit(np.ones((64, 12, 12, 3), "float32"), np.ones((64, 3), "float32"), batch_size=8, verbose=0)
        tf.linalg.inv(tf.eye(50)) + 1.0
    return p, p.save(tmp_path_factory.mktemp("logs"))


def test_a_loaded_trace_tells_what_the_captured_one_did(saved):
    p, path = saved
    q = profnb.load(path)
    for table in ("layers", "source_lines", "python", "cell_breakdown"):
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
    (("cell", "wall_ns"), 1),
    (("cell", "wall_ns"), -1),
    (("cell", "parts"), []),
    (("cell", "parts"), [{"part": "other Python", "name": "", "occurrences": 1, "wall_ns": 0, "longest_ns": 0}] * 500),
    (("cell", "parts", 0, "part"), "<script>"),
    (("cell", "parts", 0, "wall_ns"), 1 << 61),
    (("cell", "parts", 0, "wall_ns"), 1.5),
    (("cell", "parts", 0, "longest_ns"), 1 << 59),
    (("cell", "parts", 0, "occurrences"), -1),
    (("cell", "parts", 0, "line"), -3),
    (("cell", "parts", 0, "name"), 7),
    (("cell", "cells"), {"a.py": -1}),
    (("cell", "long_part"), [10**6]),
    *[
        (("cell",), {
            "wall_ns": 9, "parts": [{"part": "callbacks", "name": "C", "occurrences": 1, "wall_ns": 9, "longest_ns": 5}],
            "long_part": [row], "long_begin_ns": [2], "long_end_ns": [end], "long_wall_ns": [wall],
        })
        for row, end, wall in ((1, 9, 3), (-1, 9, 3), (0, 4, 3), (0, 1, 0), (0, 9, 6), (0, 9, -1), (0, 1 << 61, 3))
    ],
    (("cell",), 3),
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


@pytest.mark.slow
def test_no_file_does_more_than_be_refused(saved, tmp_path):
    """Random damage: what opens can be shown in full."""
    _, path = saved
    chance = random.Random(0)
    text = json.dumps(told_beside(path))
    opened = 0
    for _ in range(30):
        told = json.loads(text)
        run = told["runs"][0]
        chosen = leaves({name: run[name] for name in chance.sample(["models", "source", "stacks", "cell"], 1)}, [])
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
        q.layers, q.source_lines, q.python, q.cell_breakdown, q.advice, q.summary()
        if opened % 10 == 1:
            q.to_html(tmp_path / "report.html")
    assert opened


def test_what_is_written_can_be_read_however_many_lines_were_not_timed(tmp_path):
    path = tmp_path / "host.xplane.pb"
    source = SourceRecords(lines=LineRecords(untimed=[("a.py", line) for line in range(25_000)]))
    write_recordings(path, CaptureOptions(), [Recording(source=source)])
    _, (read,) = read_recordings(path)
    assert read.source.lines.untimed == source.lines.untimed[:10_000]


# Without TensorFlow: a recording made by hand, with something in every part.


def whole():
    steps = StepRecords(names=["train"])
    steps.append(0, 10, 0, 0, 1, 0, 1, 0, 1)
    steps.append(20, 30, 0, 0, 0, 0, 1, 1, 1)
    layers = (
        LayerFacts("m", "m", "Sequential", True, -1, 0, (None, 2)),
        LayerFacts("m/d", "d", "Dense", True, 0, 6, (None, 2), ((None, 2),), kernels=((2, 2),), numbers={"units": 2, "data_format": "nhwc"}),
    )
    ops = {"train": [{"AddN": OpFact("backward", -1, "m/d"), "Assign": OpFact("update", 1)}]}
    model = ModelFacts("m", layers, True, ("mse",), "sgd", {"m/d": 1, "m/d_1": 1}, frozenset({"m/d_1"}), {1: 2}, ops)
    graph = GraphLines("f", ("a", "b"), ("Add", "While"), (0, -1), (True, False), {"b": ("cond", "body")})
    lines = LineRecords(array("q", [5, 7, 9]), array("i", [0, 0, -1]), array("i", [-1, 3, 0]), ["a.py"], untimed=[("a.py", 4)])
    source = SourceRecords([("a.py", 3)], lines, (graph,), {"d": 0}, {"a.py": ("x = 1", "f(x)")}, {"a.py": 7})
    stacks = StackRecords(2, array("q", [3, 8]), array("i", [0, 1]), [(0,), (0, 1)], [("f", "a.py", 1, 3), ("g", "a.py", 5, 6)])
    parts = [CellPart("imports", "json", 1, 30, 30, "a.py", 1), CellPart("other Python", "", 0, 40, 0)]
    long = array("i", [0]), array("q", [3]), array("q", [50]), array("q", [30])
    cell = CellRecords(70, parts, {"a.py": 7}, *long)
    return Recording(
        cell=cell, steps=steps, window_ns=5, wall_ns=70, overhead_ns=7, closed_by="steps", messages=["m"], devices=("GPU:0",),
        environment={"TensorFlow": "2"}, datasets=((("Range", ""), ("Map", "augment")),), cardinalities={"train": 9},
        changing_arguments={"f": (("n", ("1", "2")),)}, fits=[FitResult({"loss": 0.5}, 2, True)], graph_versions=[3, -4], models=(model,),
        source=source, stacks=stacks, functions=(TracedFunction("f", 0, True, "a.py:3", "Cell [7]:9", "train", 2),),
        dataset_lines=((("Range", ""), ("Map", "a.py:3")),), python_functions=(("cut", "a.py:3"),),
    )  # fmt: skip


def written_and_read(path, *recordings):
    write_recordings(path, CaptureOptions(), recordings)
    return read_recordings(path)[1]


def test_every_part_comes_back_equal(tmp_path):
    assert written_and_read(tmp_path / "host.xplane.pb", whole(), Recording()) == [whole(), Recording()]


def changed(value, chance):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + chance.choice([-1, 1, -(2**31), 2**31, 2**40, 2**62])
    if isinstance(value, str):
        return chance.choice([value[1:], value + "/x", "\ud800", "m/d", "x" * 5000])
    if isinstance(value, list):
        return chance.choice([value[1:], value * 2, value[::-1], value * 300])
    return {} if isinstance(value, dict) else 1


@pytest.mark.newest
def test_values_of_the_right_type_that_fit_nothing_are_refused_or_read(tmp_path):
    """Files, each with one value changed to another of its type: what opens is written and read again."""
    path, chance = tmp_path / "host.xplane.pb", random.Random(2)
    written_and_read(path, whole())
    text = json.dumps(told_beside(path))
    opened = 0
    for _ in range(150):
        contents = json.loads(text)
        container, key = chance.choice(leaves(contents, []))
        container[key] = changed(container[key], chance)
        tell_beside(path, contents)
        try:
            _, recordings = read_recordings(path)
        except TraceFormatError as error:
            assert "not what profnb writes" in str(error)
            continue
        opened += 1
        assert written_and_read(path, *recordings) == recordings
    assert 20 < opened < 150


class Small(dict):
    """Limits of three items in everything."""

    def get(self, name, default=None):
        limit = super().get(name, default)
        return dataclasses.replace(limit, items=tuple(3 for _ in limit.items))


def values_of(hint, column=None):
    """Any values of a type, of a few items, whatever they refer to."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        kept = sidecar.Codec(sidecar.LIMITS, {}).fields(hint)
        return st.builds(hint, **{field.name: values_of(kind, field) for field, kind, _ in kept})
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(values_of, arguments))
    if hint in (int, float, str, bool, type(None)):
        few = st.sampled_from([-1, 0, 1, 2, 3])
        return {int: few, float: st.floats(allow_nan=False), str: st.sampled_from(["", "a", "b"]), bool: st.booleans(), type(None): st.none()}[hint]
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values_of, arguments))
    if origin in (dict, collections.abc.Mapping):
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=5)
    if not arguments:  # a column
        code = column.default_factory().typecode
        return st.lists(st.sampled_from([0, 0, 0, 1]), max_size=5).map(lambda numbers: array(code, numbers))
    kind = {tuple: tuple, frozenset: frozenset}.get(origin, list)
    return st.lists(values_of(arguments[0]), max_size=5).map(kind)


@pytest.mark.long
@given(recording=values_of(Recording))
@settings(max_examples=60, deadline=None)
def test_whatever_is_written_is_read_at_and_beyond_each_limit(tmp_path_factory, recording):
    path = tmp_path_factory.mktemp("x") / "host.xplane.pb"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sidecar, "LIMITS", Small(sidecar.LIMITS))
        (read,) = written_and_read(path, recording)
        (again,) = written_and_read(path, copy.copy(read))
    assert again == read
    said = " ".join(read.messages[:3])
    for field, _, name in sidecar.Codec(sidecar.LIMITS, {}).fields(Recording):
        before, after = getattr(recording, field.name), getattr(read, field.name)
        if before != after and field.name != "messages":
            assert " kept beside the trace" in said


@pytest.mark.parametrize("count", [9_999, 10_000, 10_001, 25_000])
def test_ten_thousand_fits_and_function_names_are_kept(tmp_path, count):
    recording = Recording(fits=[FitResult({}, 1, False)] * count, messages=["m"] * count)
    for number in range(count):
        recording.steps.names.append(f"f{number}")
        recording.steps.append(number, number, number, 0, 0, 0, 1, number, 0)
    (read,) = written_and_read(tmp_path / "host.xplane.pb", recording)
    assert read.steps == recording.steps
    assert read.fits == recording.fits[:10_000]
    assert len(read.messages) == min(count + (count > 10_000) * 2, 10_000)
    assert ("Of Recording.fits, 10,000 are kept beside the trace." in read.messages) == (count > 10_000)


def test_of_more_steps_than_are_kept_the_first_200_000_come_back_with_their_epochs(tmp_path):
    """200,100 steps in two epochs: the second one ended behind a step that is not kept."""
    recording, count = Recording(), 200_100
    steps = recording.steps
    steps.names.append("train")
    for number in range(count):
        steps.append(number * 1000, number * 1000 + 900, 0, 0, 0, 0, 1, number, 0)
    steps.ended_at.extend([count // 2, count])
    steps.ended_epoch.extend([1, 2])
    (read,) = written_and_read(tmp_path / "host.xplane.pb", recording)
    assert "Of StepRecords.begin_ns, 200,000 are kept beside the trace." in read.messages
    assert not any("not kept" in message for message in read.messages)
    times = wall_step_times(read.steps)
    assert len(times) == 200_000
    assert np.flatnonzero(times.epoch).tolist() == [count // 2 - 1]
    assert np.flatnonzero(wall_step_times(steps).epoch).tolist() == [count // 2 - 1, count - 1]


def test_a_part_that_could_not_be_read_is_left_out_with_a_sentence(tmp_path):
    recording = whole()
    recording.source.layers["e"] = 5  # a place that is not there
    (read,) = written_and_read(tmp_path / "host.xplane.pb", recording)
    assert read.source is None
    assert read.messages == [
        "The source of this run were not kept beside the trace: SourceRecords: places of layers that are not there.", "m",
    ]  # fmt: skip
    assert read.models == recording.models


def test_where_all_is_too_large_the_largest_parts_are_left_out(tmp_path, monkeypatch):
    path = tmp_path / "host.xplane.pb"
    written_and_read(path, whole())
    monkeypatch.setattr(sidecar, "_LARGEST_SIDECAR", len(gzip.decompress(sidecar_of(path).read_bytes())) - 1)
    (read,) = written_and_read(path, whole())
    assert read.stacks is None
    assert read.fits == whole().fits
    assert "the file would be too large" in read.messages[0]


def test_the_file_is_as_readable_as_the_user_has_files_be(tmp_path):
    path = tmp_path / "host.xplane.pb"
    before = os.umask(0o027)
    try:
        written_and_read(path, whole())
    finally:
        os.umask(before)
    assert stat.S_IMODE(sidecar_of(path).stat().st_mode) == 0o640


def test_numbers_too_large_to_be_drawn_are_infinite(tmp_path):
    fit = FitResult({"a": 1e300, "b": float("-inf"), "c": float("nan"), "d": 5}, 1, False)
    (read,) = written_and_read(tmp_path / "host.xplane.pb", Recording(fits=[fit]))
    assert repr(read.fits[0].metrics) == "{'a': inf, 'b': -inf, 'c': nan, 'd': 5.0}"


def test_a_limit_without_a_name_is_ten_thousand_items():
    assert Limit().items == (10_000,)
