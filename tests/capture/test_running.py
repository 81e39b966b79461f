"""What is shown while a cell runs: its words, who writes them, and that nothing of it stays."""

import threading

import numpy as np
import pytest

import profnb
from profnb.capture.step_records import StepRecords
from profnb.capture.step_records import KerasRun
from profnb.capture.step_records import Standing, recent_step_ns
from profnb.captured import CapturedProfile
from profnb.core.options import CaptureOptions
from profnb.report import progress
from profnb.report.progress import EMPTY, LiveLine, LiveText, Progress, Slot, about_text

S, MS = 10**9, 10**6


def fit(batches_ended, epochs_ended=0, *, epochs=4, batches=100, first_epoch=0, **more):
    return KerasRun("train", 1, epochs, batches, first_epoch, epochs_ended, batches_ended, **more)


def test_the_line_says_what_is_traced_how_long_a_step_takes_and_what_is_left():
    text = LiveText()
    assert text(Standing(3 * S, is_tracing=True, max_steps=100)) == "tracing, no step is over yet · 3 s"
    at = dict(is_tracing=True, max_steps=100, step_ns=12.1 * MS)
    assert text(Standing(4 * S, traced_steps=1, run=fit(1), **at)) == "tracing 1 of 100 steps · 12.1 ms a step"
    # 36 more in 2 s, 363 to come: 20.2 s. The end of an epoch has not been seen.
    assert text(Standing(6 * S, traced_steps=37, run=fit(37), **at)) == "tracing 37 of 100 steps · 12.1 ms a step · about 20 s of steps left in this fit"
    closed = dict(was_tracing=True, step_ns=10 * MS)
    # The speed under trace says nothing of the speed without.
    assert text(Standing(10 * S, run=fit(10, 1, loss=0.41234), **closed)) == "trace closed, timing only · step 110 of 400 · 10.0 ms a step · loss 0.412 after epoch 1"
    # 130 in 15 s, 160 to come.
    assert text(Standing(25 * S, run=fit(40, 2, loss=0.3), **closed)) == "trace closed, timing only · step 240 of 400 · 10.0 ms a step · loss 0.3 after epoch 2 · about 18 s left in this fit"


def test_what_is_not_known_is_not_said():
    text = LiveText()
    for run in (None, fit(7, batches=0), fit(7, epochs=0)):  # no Keras, no length, no epochs
        for second in (1, 5):
            line = text(Standing(second * S, was_tracing=True, step_ns=MS, run=run))
            assert "left" not in line
            assert " of " not in line
    assert LiveText()(Standing(2 * S)) == "running, nothing traced yet · 2 s"


def test_a_fit_that_goes_on_where_another_stopped_has_fewer_epochs_to_come():
    assert fit(10, 1, epochs=10, first_epoch=8).total == 200
    assert fit(10, 1, epochs=10, first_epoch=8).done == 110
    text = LiveText()
    text(Standing(0, was_tracing=True, run=fit(10, epochs=10, first_epoch=8, loss=1.0)))
    assert "loss 1 after epoch 9 · about 1 s left" in text(Standing(S, was_tracing=True, run=fit(50, 1, epochs=10, first_epoch=8, loss=1.0)))


def test_another_run_has_its_own_speed():
    text = LiveText()
    text(Standing(S, was_tracing=True, run=fit(10)))
    assert "left" in text(Standing(2 * S, was_tracing=True, run=fit(20)))
    evaluation = KerasRun("test", 2, 1, 50, 0, 0, 10)
    assert text(Standing(3 * S, was_tracing=True, run=evaluation)) == "trace closed, timing only · evaluation step 10 of 50"
    evaluation.batches_ended = 30
    assert text(Standing(5 * S, was_tracing=True, run=evaluation)).endswith("evaluation step 30 of 50 · about 2 s left in this evaluation")


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "about 1 s"), (31.4, "about 31 s"), (300, "about 5 min"), (9000, "about 2.5 h")])
def test_estimates_are_rough(seconds, text):
    assert about_text(seconds) == text


def test_the_time_of_a_step_is_of_the_last_ones_of_its_kind():
    records = StepRecords(names=["train", "test"])
    assert np.isnan(recent_step_ns(records))
    for at in range(100):
        records.append(at * 50, at * 50 + 40, 0, 0, 0, 0, 1, at, 1)
    assert recent_step_ns(records) == 50
    for at in range(4):  # an evaluation: 10 apart
        records.append(9000 + at * 10, 9000 + at * 10 + 5, 1, 0, 0, 0, 1, at, 1)
    assert recent_step_ns(records) == 10
    records.begin_ns.append(99999)  # the other columns have not got that row yet
    assert recent_step_ns(records) == 10


# Who writes it.


class Publisher:
    """Stands in for the kernel's: keeps what each output holds."""

    pub_socket = object()

    def __init__(self):
        self.outputs, self.history, self.written = {}, [], threading.Event()

    def publish(self, data, metadata=None, *, transient, update):
        assert update == (transient["display_id"] in self.outputs)
        self.outputs[transient["display_id"]] = data
        self.history.append(data["text/plain"])
        if data["text/plain"]:
            self.written.set()


@pytest.fixture
def publisher(monkeypatch):
    publisher = Publisher()
    monkeypatch.setattr(progress, "open_slot", lambda: Slot(publisher.publish))
    monkeypatch.setattr(progress, "_REWRITE_S", 0.001)
    monkeypatch.setattr(progress, "_JOIN_S", 60.0)
    return publisher


def test_a_thread_writes_the_line_until_it_is_closed_and_nothing_stays(publisher):
    counted = iter(range(10**9))
    line = LiveLine(lambda: f"<step> {next(counted)}")
    line.start()
    assert publisher.written.wait(60)
    line.end("reading")
    (shown,) = publisher.outputs.values()
    assert shown["text/plain"] == "reading"
    assert "<step>" in publisher.history[1]
    assert "<div" in shown["text/html"]
    line.close()
    assert list(publisher.outputs.values()) == [EMPTY]
    count = len(publisher.history)
    line.close()
    line.end("more")
    assert len(publisher.history) == count
    assert not line._thread.is_alive()


def test_a_cell_that_is_over_at_once_shows_no_line(publisher, monkeypatch):
    monkeypatch.setattr(progress, "_REWRITE_S", 1000)
    line = LiveLine(lambda: "never")
    line.start()
    line.end("reading")
    line.close()
    assert publisher.history == [""]


def test_a_line_that_cannot_be_written_ends_and_harms_nobody(publisher):
    failed = threading.Event()

    def fail():
        failed.set()
        raise RuntimeError("mine")

    line = LiveLine(fail)
    line.start()
    assert failed.wait(60)
    line.close()
    assert publisher.history == [""]


def test_without_a_notebook_or_where_displays_are_kept_there_is_no_line(monkeypatch):
    module = pytest.importorskip("IPython.core.getipython")

    class Shell:
        kernel, display_pub = object(), object()  # %%capture's publisher has no socket

    for shell in (None, Shell()):
        monkeypatch.setattr(module, "get_ipython", lambda shell=shell: shell)
        assert progress.open_slot() is None
    line = LiveLine(lambda: "never")
    line.start()
    line.close()
    assert line._thread is None
    Shell.display_pub = Publisher()
    assert progress.open_slot() is not None
    assert list(Shell.display_pub.outputs.values()) == [EMPTY]
    assert LiveLine(lambda: "never", is_wanted=False)._slot is None


def test_a_table_fills_row_by_row_and_goes(publisher, monkeypatch):
    now = iter([0.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    shown = Progress(4, ("run", "wall time"), done=1)
    shown.fill(0, "1, <traced>", "12 s")
    shown.show(1, "")
    shown.fill(1, "2", "10 s")
    shown.show(2, "next")
    assert publisher.history == ["", "1 of 4 runs", "2 of 4 runs · about 20 s left  next"]
    (output,) = publisher.outputs.values()
    assert "&lt;traced&gt;" in output["text/html"]
    assert output["text/html"].index("12\u00a0s") < output["text/html"].index("10\u00a0s")
    shown.close()
    assert list(publisher.outputs.values()) == [EMPTY]


# What Keras tells.


@pytest.mark.tensorflow
def test_keras_says_how_many_batches_there_will_be():
    keras = pytest.importorskip("keras")
    captured = CapturedProfile(CaptureOptions(max_steps=2, source=False))
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(("fit", captured.standing()))

        def on_test_batch_begin(self, batch, logs=None):
            seen.append(("validation", captured.standing()))

    def data():
        for _ in range(3):
            yield np.ones((4, 2), "float32"), np.ones((4, 1), "float32")

    x, y = np.ones((20, 2), "float32"), np.ones((20, 1), "float32")
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    captured.start()
    try:
        model.fit(x, y, batch_size=4, epochs=5, initial_epoch=3, verbose=0, callbacks=[Look()], validation_data=(x, y), validation_batch_size=10)
        runs = [(name, standing.run.done, standing.run.total) for name, standing in seen]
        # Which epoch it began with is told by the first that ends: until then all epochs seem to come.
        assert runs == [("fit", n, 25) for n in range(5)] + [("validation", 0, 0), ("validation", 1, 0)] + [("fit", n, 10) for n in range(5, 10)] + [("validation", 0, 0), ("validation", 1, 0)]
        assert (seen[0][1].is_tracing, seen[-1][1].is_tracing, seen[-1][1].was_tracing) == (True, False, True)
        assert seen[-1][1].traced_steps == 2
        assert np.isnan(seen[0][1].run.loss)
        assert seen[8][1].run.loss == pytest.approx(model.history.history["loss"][0])
        seen.clear()
        model.fit(data(), epochs=1, verbose=0, callbacks=[Look()])  # nobody knows how long it is
        assert [(standing.run.done, standing.run.total) for _, standing in seen][:3] == [(0, 0), (1, 0), (2, 0)]
        seen.clear()
        model.evaluate(x, y, batch_size=5, verbose=0, callbacks=[Look()])
        assert [(standing.run.done, standing.run.total) for _, standing in seen] == [(n, 4) for n in range(4)]
        assert captured.standing().run is None
    finally:
        profile = captured.finish()
    assert isinstance(profile, profnb.Profile)
