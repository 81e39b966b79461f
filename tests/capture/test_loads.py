"""Models that are loaded while a cell is profiled: how often, and how many different ones."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import profnb
from profnb.capture import seams
from profnb.capture.models.load_watch import LoadWatch
from profnb.capture.parts.part_records import Loads


def loading(calls):
    """What is told of a library whose functions are called."""
    given = {}

    @contextmanager
    def watch(seam, *, before):
        given[seam.name] = before
        yield

    loads = LoadWatch()
    with loads.watch(SimpleNamespace(take=lambda seam: seam.name, watch=watch)):
        for name, *arguments in calls:
            keywords = arguments.pop() if isinstance(arguments[-1], dict) else {}
            given[name](*arguments, **keywords)
    return loads.records()


def test_a_model_is_known_by_its_bytes_and_by_what_its_file_holds(tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(b"first")
    again = [("load_model", path), ("load_model", str(path)), ("load_model", {"filepath": path})]
    assert loading(again) == [Loads("load_model", 3, 1)]
    interpreter = "Interpreter.__init__"
    both = [(interpreter, object(), {"model_content": one}) for one in (b"one", bytes(bytearray(b"one")), b"two")]
    assert loading(both) == [Loads(interpreter, 3, 2)]
    assert loading([("load_model", "gs://bucket/a"), ("load_model", "gs://bucket/b")]) == [Loads("load_model", 2, 2)]


def test_a_file_that_is_written_anew_is_another_model(tmp_path):
    path = tmp_path / "best.keras"

    def written():
        for text in ("first", "second one"):
            path.write_text(text)
            yield "load_model", path

    assert loading(written()) == [Loads("load_model", 2, 2)]


def test_what_has_no_name_is_not_counted_whatever_else_is_said_of_it():
    assert loading([("load_model", object()), ("load_model", object(), {"custom_objects": "mine"})]) == []


def test_each_function_that_loads_is_counted_by_the_name_that_is_called():
    calls = {seam.name: (seam.name, *[object()] * ("." in seam.name), "m") for seam in seams.LOADS}
    names = {name: loading([call])[0].name for name, call in calls.items()}
    assert set(names.values()) == {"load_model", "load", "Interpreter.__init__"}


@pytest.mark.tensorflow
def test_models_loaded_in_a_cell_are_counted_and_kept(tmp_path):
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    files = [str(tmp_path / name) for name in ("one.keras", "two.keras")]
    for file in files:
        model.save(file)
    exported = str(tmp_path / "saved")
    tf.saved_model.save(tf.Module(), exported)
    load = keras.models.load_model
    with profnb.profile() as p:
        for file in (*files, files[0], files[0]):
            load(file)
        for _ in range(3):
            tf.saved_model.load(exported)
    for each in (p, profnb.load(p.save(tmp_path / "kept"))):
        assert each.recording.cell.loads == [Loads("load_model", 4, 2), Loads("load", 3, 1)]


@pytest.mark.tensorflow
def test_a_function_that_two_libraries_have_is_counted_once():
    lite = pytest.importorskip("tensorflow.lite.python.interpreter")
    tf = pytest.importorskip("tensorflow")
    add = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec((2,))])
    model = tf.lite.TFLiteConverter.from_concrete_functions([add.get_concrete_function()]).convert()
    with profnb.profile() as p:
        for _ in range(3):
            lite.Interpreter(model_content=model)
    assert p.recording.cell.loads == [Loads("Interpreter.__init__", 3, 1)]
