"""Runs of a cell: --repeat, --label, --vs; what is kept beside a trace, and what a hostile file of that kind may not do."""

import gzip
import re

import numpy as np
import pytest
from conftest import PATIENT
from traces import tell_beside, told_beside
from test_comparison import profile as made

import profnb
from profnb.capture.models.layer_facts import FitResult
from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import read_recordings, sidecar_of, write_recordings
from profnb.comparison import compare
from profnb.core.options import CaptureOptions

SETUP = """
import time
import keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).random((96, 16), "float32"); y = (x.sum(1) > 8).astype("int64")
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None): time.sleep(pause)
def make():
    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model
runs = []
"""
FIT = "runs.append(1)\nmodel = make()\nmodel.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[Slow()])"

# The texts that are shown while a cell runs.
SHOWN = """
from profnb.report.progress import Slot
shown, show = [], Slot.show
Slot.show = lambda slot, html, text: (show(slot, html, text), shown.append(text))
"""

UNTIL_TOLD = "for _ in range(20_000):\n    if any(text.startswith('tracing') for text in shown): break\n    time.sleep(0.01)"


@pytest.fixture
def shell():
    module = pytest.importorskip("IPython.core.interactiveshell")
    shell = module.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "profnb")
    shell.run_cell("pause = 0.0")
    assert shell.run_cell(SETUP).success
    return shell


@pytest.mark.tensorflow
@pytest.mark.newest
def test_a_cell_runs_as_often_as_asked_and_results_are_known_by_label(shell, capsys):
    shell.run_cell("pause = 0.002\nruns.clear()")
    assert shell.run_cell(f"%%tfprofile --label slow --repeat 3 -q\n{FIT};").success
    assert shell.user_ns["runs"] == [1] * 3
    slow = shell.user_ns["_tfprofile"]
    assert len(slow.repeats) == 2
    assert [len(recording.fits) for recording in slow.recordings] == [1] * 3
    assert {*slow.recordings[0].fits[0].metrics} == {"loss", "accuracy"}
    assert not any(was_traced for _, was_traced in slow.steady_step_times)
    assert len(slow.run_ps) == 2
    shell.run_cell("pause = 0.006")
    shell.run_cell(f"%%tfprofile --label slower --repeat 3 --vs slow\n{FIT};")
    found = shell.user_ns["_tfcomparison"]
    assert found.labels == ("slow", "slower")
    assert [len(own.medians) for own in found.runs] == [2, 2]
    # A step is the model's work and the callback's pause, which is never shorter.
    assert (found.runs[0].medians >= 2e9).all()
    assert (found.runs[1].medians >= 6e9).all()
    assert "accuracy" in found.quality_verdict
    assert found.guards == []
    shown = " ".join(capsys.readouterr().out.split())
    assert " ".join(found.verdict.split()) in shown
    assert "What was learned" in shown
    shell.run_line_magic("tfcompare", "slower slow slow -q -o both")
    assert [one.labels for one in shell.user_ns["both"]] == [("slower", "slow")] * 2


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_repetition_that_fails_or_is_interrupted_keeps_those_before(shell, capsys):
    fail = FIT + "\nif len(runs) == 3: raise {error}"
    shell.run_cell("runs.clear()")
    shell.run_cell("%%tfprofile --repeat 5\n" + fail.format(error="ValueError('third')"))
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert out.count("ValueError: third") == 1
    assert "Run 3 of 5 ended with ValueError; the 2 before it count." in out
    assert len(shell.user_ns["_tfprofile"].repeats) == 1
    shell.run_cell("runs.clear()")
    shell.run_cell("%%tfprofile --repeat 5\n" + fail.format(error="KeyboardInterrupt"))
    out = capsys.readouterr().out
    assert "Run 3 of 5 ended with KeyboardInterrupt" in out
    assert "Traceback" not in out
    shell.run_cell("runs.clear()")
    assert not shell.run_cell("%%tfprofile --repeat 5 -q\n" + FIT + "\n1/0").success
    assert shell.user_ns["runs"] == [1]  # a cell that fails is not tried again


@pytest.mark.tensorflow
def test_a_model_that_was_trained_before_is_said(shell):
    shell.run_cell("model = make()")
    train = "model.fit(x, y, batch_size=16, epochs=1, verbose=0);"
    shell.run_cell(f"%%tfprofile --label once --repeat 2 -q\n{train}")
    shell.run_cell(f"%%tfprofile --label again --repeat 2 --vs once -q\n{train}")
    assert any("was trained before" in guard for guard in shell.user_ns["_tfcomparison"].guards)


@pytest.mark.parametrize("options", ["--repeat 0", "--repeat many", "--vs no_such_result", "--vs FIT"])
def test_options_that_cannot_be_meant(options, capsys):
    module = pytest.importorskip("IPython.core.interactiveshell")
    shell = module.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "profnb")
    shell.user_ns.update(FIT=3, ran=False)
    shell.run_cell(f"%%tfprofile {options}\nran = True")
    assert shell.user_ns["ran"] is False
    assert "UsageError" in capsys.readouterr().err


# What is kept beside a trace.


def recording():
    recording = Recording(
        window_ns=5, wall_ns=70, overhead_ns=7, closed_by="steps", messages=["m"], environment={"TensorFlow": "2"},
        datasets=((("Range", ""), ("Map", "augment")),), cardinalities={"train": 9}, fits=[FitResult({"loss": float("nan")}, 2, True)],
        changing_arguments={"f": (("n", ("1", "2")),)}, graph_versions=[3, 4],
    )  # fmt: skip
    recording.steps.names.append("train")
    recording.steps.append(0, 10, 0, 0, 1, 0, 1, 0, 1)
    recording.steps.append(20, 30, 0, 0, 0, 0, 1, 1, 1)
    return recording


def test_what_was_seen_comes_back_as_it_was(tmp_path):
    path = tmp_path / "host.xplane.pb"
    options = CaptureOptions(max_steps=7, label="a", warmup_steps=2)
    write_recordings(path, options, [recording(), Recording()])
    found, (first, second) = read_recordings(path)
    assert found == options
    assert repr(first) == repr(recording())
    assert repr(second) == repr(Recording())
    assert read_recordings(tmp_path / "other.xplane.pb") == (CaptureOptions(), [])


def test_a_saved_profile_has_its_label_its_runs_and_its_metrics(tmp_path):
    profile = made(batch=8)
    profile.recording, profile.options = recording(), CaptureOptions(label="mine")
    profile.repeats.append(recording())
    path = profile.save(tmp_path)
    assert sidecar_of(path).is_file()
    again = profnb.load(tmp_path)
    assert again.options.label == "mine"
    assert len(again.recordings) == 2
    assert again.environment == {"TensorFlow": "2"}
    assert profile.save(tmp_path) != path  # in the same second too


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.clear(), lambda told: told.update(profnb=3), lambda told: told.update(runs=7), lambda told: told.update(max_steps=-1),
        lambda told: told.update(label=[]), lambda told: told["runs"][0].update(steps=[]), lambda told: told["runs"][0]["steps"].update(name=[0, 5]),
        lambda told: told["runs"][0]["steps"].update(kind=[0]), lambda told: told["runs"][0]["steps"].update(begin_ns=["a", 1]),
        lambda told: told["runs"][0]["steps"].update(kind=[-1, 0]), lambda told: told["runs"][0]["steps"].update(end_ns=[1 << 80, 0]),
        lambda told: told["runs"][0].update(fits=[[1]]), lambda told: told["runs"][0].update(environment={"a": 5}),
        lambda told: told["runs"][0].update(wall_ns=-5), lambda told: told["runs"][0]["steps"].update(end_ns=[-5, 30]),
        lambda told: told["runs"][0]["steps"].update(iterations=[0, 1]), lambda told: told["runs"][0].update(window_ns=True), lambda told: told["runs"][0].update(datasets=[[["a"]]]),
    ],
)  # fmt: skip
def test_a_damaged_file_beside_a_trace_is_one_clear_error(tmp_path, change):
    path = tmp_path / "host.xplane.pb"
    write_recordings(path, CaptureOptions(), [recording()])
    told = told_beside(path)
    change(told)
    tell_beside(path, told)
    with pytest.raises(profnb.TraceFormatError, match=r"host\.profnb\.json\.gz is not what profnb writes"):
        read_recordings(path)


def test_a_label_that_is_no_text_for_a_page_is_mended(tmp_path):
    profile = made(batch=8)
    profile.recording, profile.options = recording(), CaptureOptions(label="a")
    path = profile.save(tmp_path)
    tell_beside(path, told_beside(path) | {"label": "\ud800"})
    assert profnb.load(tmp_path).to_html(tmp_path / "x.html").exists()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\xff", "null", '{"profnb": 1, "runs": [' + "9" * 5000 + "]}"])
def test_what_is_no_json_is_one_clear_error(tmp_path, text):
    path = tmp_path / "host.xplane.pb"
    raw = text.encode("latin-1")
    tell_beside(path, raw)
    with pytest.raises(profnb.TraceFormatError):
        read_recordings(path)
    sidecar_of(path).write_bytes(raw)  # not even compressed
    with pytest.raises(profnb.TraceFormatError):
        read_recordings(path)


def test_a_file_that_is_cut_or_too_large_is_one_clear_error(tmp_path):
    path = tmp_path / "host.xplane.pb"
    write_recordings(path, CaptureOptions(), [recording()])
    whole = sidecar_of(path).read_bytes()
    for damaged in (whole[:-9], whole[:40], whole[:30] + b"\0\0\0\0" + whole[34:], gzip.compress(b" " * (65 << 20), 1)):
        sidecar_of(path).write_bytes(damaged)
        with pytest.raises(profnb.TraceFormatError, match="not what profnb writes"):
            read_recordings(path)


# In a kernel.


@pytest.mark.kernel
@pytest.mark.tensorflow
@pytest.mark.long
def test_in_a_kernel_the_first_run_is_shown_then_the_verdict_then_the_report():
    nbformat, nbclient, nbconvert = (pytest.importorskip(name) for name in ("nbformat", "nbclient", "nbconvert"))
    pytest.importorskip("ipykernel")
    cells = [
        f"import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n%load_ext profnb\npause = 0\n{SHOWN}", SETUP,
        f"%%tfprofile --label one --repeat 3 --no-live\nprint('hello')\n{FIT};\nlen(runs)",
        f"%%tfprofile --label two --repeat 3 --vs one --seconds 300\nprint('hello')\n{FIT}\n{UNTIL_TOLD}",
        "%%tfprofile --repeat 2 --no-live\nimport asyncio\nawait asyncio.sleep(0.01)\n(tf.ones(3) + 1).numpy().tolist()",
        f"%%tfsweep batch=16,32 --repeat 2\nprint('hello')\nmodel = make()\nmodel.fit(x, y, batch_size=batch, verbose=0)",
        "%%tfsweep batch=16,32\nraise ValueError(batch)",
        "_tfsweep.errors",
    ]  # fmt: skip
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    shown = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, cell, index):
            if message["msg_type"] == "update_display_data":
                shown.append((index, message["content"]["data"].get("text/plain")))
            return super().process_message(message, cell, index)

    Client(notebook, **PATIENT, allow_errors=True, kernel_name="python3").execute()
    one, two, waiting, sweep, failing, errors = (cell.outputs for cell in notebook.cells[2:])

    def texts(outputs):
        return [out.get("text") or out.get("ename") or out["data"].get("text/plain", "") for out in outputs]

    assert [out.output_type for out in one].count("execute_result") == 1
    assert texts(one)[:2] == ["hello\n", "1"]  # what the first run shows; the others are quiet
    assert "from run to run" in "".join(texts(one))
    assert not any("<progress" in out.get("data", {}).get("text/html", "") for out in one + two + sweep)
    # While a cell runs a line tells of it, and then of its runs; nothing of either stays, and nothing where it is not wanted.
    lines = [text for index, text in shown if index == 3]
    assert any(text.startswith("tracing") for text in lines)
    assert [text.partition(" ·")[0] for text in lines if "runs" in text] == ["1 of 3 runs", "2 of 3 runs"]
    assert any("of 4 runs" in text for index, text in shown if index == 5)
    assert {text for index, text in shown if index in (2, 4)} == set()
    html, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    assert not any(words in html for words in (" of 3 runs", " of 4 runs", "reading what was captured", *lines) if words)
    order = [next((at for at, text in enumerate(texts(two)) if word in text), None) for word in ("hello", "What was learned", "train steps, median")]
    assert order == sorted(order)
    assert "was run once: cells that await cannot be repeated" in "".join(texts(waiting))
    assert "is fastest" in "".join(texts(sweep))
    assert "hello" not in "".join(texts(sweep))
    assert sum(out.output_type == "error" and bool(out.traceback) for out in failing) == 2  # one of each setting
    assert texts(errors) == ["['ValueError: 16', 'ValueError: 32']"]
