"""Capturing real TensorFlow work in this process: steps, windows, and trouble with the profiler."""

import contextlib
import copy
import ctypes
import functools
import importlib
import inspect
import os
import pickle
import signal
import sys
import threading
import time
import types
from importlib.machinery import ModuleSpec
from unittest import mock

import numpy as np
import pytest

import profnb
from profnb.capture.profiler import doors, profiler_door, tensorflow_door
from profnb.capture import session
from profnb.capture.environment import allocated_bytes
from profnb.capture.profiler import window
from profnb.capture.marking.open_steps import OpenSteps
from profnb.capture.parts.part_records import FAILED
from profnb.capture.step_records import CALL, KERAS, USER
from profnb.capture import hooks
from profnb.capture.hooks import on_import, replace_attribute, watch, watched_call

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
start, stop = tf.profiler.experimental.start, tf.profiler.experimental.stop
pytestmark = pytest.mark.tensorflow

BATCH = 8


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(32 * BATCH, 6)).astype("float32"), rng.integers(0, 3, 32 * BATCH)


def make_model(library=keras, **compile_arguments):
    model = library.Sequential([library.layers.Input((6,)), library.layers.Dense(3)])
    model.compile("sgd", library.losses.SparseCategoricalCrossentropy(from_logits=True), **compile_arguments)
    return model


def phases(p):
    return p.steps.phase.value_counts().to_dict()


def test_a_function_that_is_traced_behind_the_window_is_seen_in_its_batch_though_calls_there_are_not(data):
    x, y = data
    model = make_model()
    with profnb.profile(max_steps=2) as p:
        for size in (8, 8, 8, 5, 8):  # the other shape is traced anew
            model.train_on_batch(x[:size], y[:size])
    assert p.recording.closed_by == "steps"
    assert p.recording.steps.retraced.tolist() == [1, 0, 0, 1, 0]
    (function,) = p.recording.functions
    assert (function.tracings, function.phase) == (2, "train")


def test_a_batch_that_fails_behind_the_window_has_ended_then(data):
    x, y = data
    model = make_model()
    with profnb.profile(max_steps=2) as p:
        for _ in range(4):
            model.train_on_batch(x[:8], y[:8])
        with pytest.raises(tf.errors.InvalidArgumentError):
            model.train_on_batch(x[:8], y[:8] + 7)  # no such class
    assert len(p.recording.steps) == 4
    assert FAILED in {part.part for part in p.recording.cell.parts}


def test_fit_gives_one_step_per_batch_with_no_marker_in_the_code(data):
    with profnb.profile() as p:
        make_model().fit(*data, batch_size=BATCH, verbose=0)
    assert phases(p) == {"train": 32}
    assert p.steps.step_num.tolist() == list(range(32))
    assert p.steps.is_warmup.tolist() == [True] + [False] * 31
    assert len(p.step_times) == 32
    assert p.step_times.was_traced.all()
    assert p.study.summary.batch_size == BATCH


def test_epochs_and_validation_give_train_and_evaluation_steps(data):
    x, y = data
    with profnb.profile() as p:
        make_model().fit(x, y, batch_size=BATCH, epochs=2, validation_data=(x[:80], y[:80]), validation_batch_size=BATCH, verbose=0)
    assert phases(p) == {"train": 64, "test": 20}
    assert p.study.summary.phase == "train"
    assert any("20 test" in note for note in p.notes)


def test_a_dataset_of_unknown_length_has_no_step_after_its_end(data):
    dataset = tf.data.Dataset.from_generator(lambda: iter(zip(*data)), output_types=("float32", "int64"), output_shapes=((6,), ())).batch(BATCH)
    with profnb.profile() as p:
        make_model().fit(dataset, epochs=2, verbose=0)
    assert phases(p) == {"train": 64}
    assert len(p.step_times) == 64


def test_evaluate_and_predict(data):
    model = make_model()
    with profnb.profile() as p:
        model.evaluate(*data, batch_size=BATCH, verbose=0)
        model.predict(data[0], batch_size=BATCH, verbose=0)
    assert phases(p) == {"test": 32, "predict": 32}


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_steps_per_execution_is_said(data, library):
    library = pytest.importorskip(library)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    with profnb.profile() as p:
        make_model(library, steps_per_execution=4).fit(dataset, shuffle=False, verbose=0)
    assert phases(p) == {"train": 8}
    assert set(p.steps.iterations) == {4}
    assert p.study.summary.batch_size == BATCH
    assert any("steps_per_execution=4" in note for note in p.notes)


def test_train_on_batch(data):
    model = make_model()
    with profnb.profile() as p:
        for _ in range(6):
            model.train_on_batch(data[0][:BATCH], data[1][:BATCH])
        model.test_on_batch(data[0][:BATCH], data[1][:BATCH])
    assert phases(p) == {"train": 6, "test": 1}


def test_keras_2_fit(data):
    tf_keras = pytest.importorskip("tf_keras")
    x, y = data
    with profnb.profile() as p:
        model = make_model(tf_keras)
        model.fit(x, y, batch_size=BATCH, epochs=2, validation_data=(x[:80], y[:80]), verbose=0)
        model.predict(x[:80], batch_size=BATCH, verbose=0)
    assert phases(p)["train"] == 64
    assert phases(p)["test"] == 20
    assert phases(p)["predict"] == 10


def test_a_jit_compiled_model_shows_compilation_apart(data):
    with profnb.profile() as p:
        make_model(jit_compile=True).fit(*data, batch_size=BATCH, verbose=0)
    assert phases(p) == {"train": 32}
    assert p.steps.is_warmup.sum() >= 1
    if tf.__version__ >= "2.20":  # 2.15 writes no event when it compiles
        assert p.steps.compilation_ms[p.steps.is_warmup].sum() > 0
    assert p.steps.compilation_ms[~p.steps.is_warmup].sum() == 0


def custom_loop(count):
    @tf.function
    def train_step(x):
        return tf.reduce_sum(tf.matmul(x, x))

    @tf.function
    def log_once(x):
        return x + 1

    for _ in range(count):
        train_step(tf.ones((50, 50)))
    log_once(tf.constant(1.0))


def test_a_custom_loop_over_a_function():
    with profnb.profile() as p:
        custom_loop(12)
    assert phases(p) == {"train_step": 12}
    assert p.steps.is_warmup.tolist() == [True] + [False] * 11
    assert len(p.step_times) == 12


def test_a_function_inside_a_function_and_inside_a_region_of_the_users():
    @tf.function
    def inner(x):
        return x * 2

    @tf.function
    def outer(x):
        return inner(x) + 1

    with profnb.profile() as p, tf.profiler.experimental.Trace("my region"):
        for _ in range(8):
            outer(tf.constant(1.0))
    assert phases(p) == {"outer": 8}
    assert set(p.step_times.phase) == {"outer"}
    assert len(p.step_times) == 8


def test_steps_marked_by_hand_take_precedence():
    with profnb.profile() as p:
        for number in range(5):
            with profnb.step(10 + number):
                custom_loop(2)
    assert p.steps.step_num.tolist() == [10, 11, 12, 13, 14]
    assert set(p.step_times.phase) == {"train"}
    assert len(p.step_times) == 5


def test_no_step_at_all():
    with profnb.profile() as p:
        tf.reduce_sum(tf.ones((100, 100))).numpy()
    assert p.steps.phase.tolist() == ["window"]
    assert any("No loop was found" in note for note in p.notes)


def test_the_window_closes_by_itself_after_enough_steps_and_every_step_is_timed(data):
    with profnb.profile(max_steps=10) as p:
        make_model().fit(*data, batch_size=BATCH, verbose=0)
    assert len(p.steps) == 10
    assert p.step_times.was_traced.tolist() == [True] * 10 + [False] * 22
    assert any("Details cover the first 10 of 32 steps" in note for note in p.notes)
    assert p._report.facts[-1].name in ("tracing cost", "steps traced")  # whether it cost anything, the clock says


class MadeTimer:
    """A timer that rings when the test says so."""

    made = []

    def __init__(self, seconds, ring):
        self.seconds, self.ring = seconds, ring
        self.made.append(self)

    def start(self):
        pass

    cancel = start


@pytest.fixture
def timers(monkeypatch):
    monkeypatch.setattr(window.threading, "Timer", MadeTimer)
    MadeTimer.made.clear()
    return MadeTimer.made


def test_the_window_closes_by_itself_after_enough_time(timers):
    @tf.function
    def f(x):
        return x + 1

    with profnb.profile(max_seconds=7) as p:
        for number in range(6):
            f(tf.constant(1.0))
            if number == 2:
                assert [timer.seconds for timer in timers] == [7, 7]  # again from the first step's end
                timers[1].ring()
    assert p.recording.closed_by == "seconds"
    assert 3 <= len(p.steps) <= 4  # the step after the third may still end
    assert len(p.step_times) == 6


def test_a_step_that_runs_when_the_time_is_up_may_end_and_a_long_one_may_not(timers):
    @tf.function
    def f(x):
        return x + 1

    with profnb.profile(max_seconds=1e6) as p:
        for number in range(6):
            f(tf.constant(1.0))
            if number == 2:
                timers[1].ring()
                assert p.recording is None or p.recording.closed_by is None
    assert timers[2].seconds == 2e5  # a fifth more, at most
    assert (len(p.steps), p.recording.closed_by) == (4, "seconds")
    timers.clear()
    with profnb.profile(max_seconds=1e6) as p:
        for number in range(6):
            f(tf.constant(1.0))
            if number == 2:
                timers[1].ring(), timers[2].ring()
    assert (len(p.steps), p.recording.closed_by) == (3, "seconds")


def first_step_that_takes_long(timers, **options):
    """A step in which the time is up; what was asked of the timers meanwhile."""
    rung = []

    @tf.function
    def train_step(x):
        if not rung:  # while it is traced
            timers[-1].ring()
            rung.append(timers[-1].seconds)
        return x + 1

    with profnb.profile(**options) as p:
        for _ in range(5):
            train_step(tf.constant(1.0))
    return p, rung


def test_the_bound_counts_from_the_end_of_the_first_step(timers):
    p, rung = first_step_that_takes_long(timers, max_seconds=1e6)
    assert rung == [2e5]  # it waits, a fifth of the bound at a time
    assert timers[-1].seconds == 1e6  # begun anew as the first step ended
    assert (len(p.steps), p.recording.closed_by) == (5, None)


def test_a_first_step_may_not_take_for_ever(timers, monkeypatch):
    monkeypatch.setattr(window, "_LONGEST_WAIT", 0)
    p, _ = first_step_that_takes_long(timers, max_seconds=1e6)
    assert p.recording.closed_by == "seconds"
    assert any("The first step had not ended" in note for note in p.notes)
    assert not p.step_times.was_traced.any()


def test_a_first_step_that_fills_the_memory_is_not_waited_for(timers, monkeypatch):
    sizes = iter([10**9, 4 * 10**9])
    monkeypatch.setattr(window, "resident_bytes", lambda: next(sizes, 0))
    p, _ = first_step_that_takes_long(timers, max_seconds=1e6)
    assert any("grew by 3.0 GB" in note for note in p.notes)


@pytest.fixture
def traced_of_40(monkeypatch, timers):
    """How many of 40 steps of 0.3 s, on two cores, are traced in a process that grows by so much in so many."""

    def trace(megabytes, step_ms=300, **options):
        ended = [0]
        clocks = {
            "perf_counter_ns": lambda: 10**9 + step_ms * 10**6 * ended[0],
            "process_time": lambda: 2e-3 * step_ms * ended[0],
        }
        monkeypatch.setattr(window, "allocated_bytes", lambda: 10**9 + int(1e6 * megabytes(ended[0])))
        monkeypatch.setattr(window, "time", types.SimpleNamespace(**clocks))
        train_step = tf.function(lambda x: x + 1)
        with profnb.profile(**options) as p:
            for _ in range(40):
                ended[0] += 1
                train_step(tf.constant(1.0))
        return int(p.step_times.was_traced.sum()), p.recording.closed_by

    return trace


def test_the_window_closes_where_its_steps_hold_much(traced_of_40):
    """5 MB of events take a quarter of a second to read, at 5 us for 100 bytes."""
    assert traced_of_40(lambda steps: 5 * steps) == (4, "events")
    assert traced_of_40(lambda steps: 300 + 0.8 * steps) == (7, "events")
    assert traced_of_40(lambda steps: 0.4 * steps, step_ms=20) == (13, "events")


def test_no_more_events_are_taken_for_recorded_than_threads_had_time_for(traced_of_40):
    """50,000 take a quarter of a second to read; two threads record them in 0.05 s at the soonest."""
    assert traced_of_40(lambda steps: 20 * steps, step_ms=5) == (10, "events")
    assert traced_of_40(lambda steps: 20 * steps, step_ms=1) == (40, None)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_what_a_profiler_holds_is_seen_however_much_was_freed_before():
    """A process keeps what was freed, so the second of two captures need not grow at all."""
    grown = []
    for _ in range(2):
        before = allocated_bytes()
        held = [bytes(1000) for _ in range(10_000)]
        grown.append(allocated_bytes() - before)
        del held
    assert all(10e6 < one < 20e6 for one in grown)


def test_who_asks_for_steps_or_seconds_gets_them(traced_of_40):
    assert traced_of_40(lambda steps: 5 * steps, max_steps=30) == (30, "steps")
    assert traced_of_40(lambda steps: 5 * steps, max_seconds=1e6) == (40, None)


@pytest.mark.parametrize(
    "megabytes",
    [
        lambda steps: 0.05 * steps,
        lambda steps: 800 * min(steps, 2),
        lambda steps: 40 * (steps > 1) + 40 * (steps > 2) + 30 * (steps > 10),
        lambda steps: 500 - 5 * steps,
    ],
    ids=["few events", "a model is allocated", "pools of threads fill", "memory is freed"],
)
def test_the_window_stays_open_where_the_process_grows_for_other_reasons(traced_of_40, megabytes):
    assert traced_of_40(megabytes) == (40, None)


def test_a_window_without_any_step_closes_too(monkeypatch):
    """By the real timer; the code waits until it has rung, however long that takes."""
    closed, stop = threading.Event(), tf.profiler.experimental.stop
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: (stop(), closed.set()))
    with profnb.profile(max_seconds=0.1) as p:
        tf.ones(3) + 1
        assert closed.wait(60)
    assert p.recording.closed_by == "seconds"
    assert p.recording.window_ns >= 0.1e9


def test_an_exception_keeps_what_was_captured_and_the_cut_step_is_no_step(data):
    class Boom(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 5:
                raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"), profnb.profile() as p:
        make_model().fit(*data, batch_size=BATCH, verbose=0, callbacks=[Boom()])
    assert phases(p) == {"train": 5}


def test_an_interrupt_in_a_step_leaves_the_steps_before_it(data):
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), profnb.profile() as p:
        make_model().fit(*data, batch_size=BATCH, verbose=0, callbacks=[Interrupt()])
    assert phases(p) == {"train": 4 if keras.__version__ > "3" else 3}  # Keras 2's markers hold the callbacks


def test_everything_patched_is_put_back(data):
    trace = tf.profiler.experimental.Trace
    watched = [
        (trace, "__init__"), (trace, "__exit__"), (trace, "set_metadata"),
        (keras.callbacks.CallbackList, "on_train_batch_end"),
        (tf.profiler.experimental, "start"), (tf.profiler.experimental, "stop"),
    ]  # fmt: skip
    before = [getattr(owner, name) for owner, name in watched]
    own = dict(vars(keras.Model))
    with profnb.profile():
        make_model().fit(*data, batch_size=BATCH, verbose=0)
    assert [getattr(owner, name) for owner, name in watched] == before
    assert dict(vars(keras.Model)) == own
    assert not any(type(f).__name__ == "_ImportFinder" for f in sys.meta_path)
    assert threading.active_count() < 50


def test_temporary_traces_are_removed_and_kept_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(doors.tempfile, "tempdir", str(tmp_path))
    with profnb.profile() as p:
        custom_loop(3)
    assert list(tmp_path.glob("*profnb-*")) == []  # AutoGraph's files may be there
    assert len(p.trace.events) > 0
    with profnb.profile(logdir=str(tmp_path / "logs")) as p:
        custom_loop(3)
    assert len(list((tmp_path / "logs").glob("plugins/profile/*/*.xplane.pb"))) == 1


def test_the_markers_give_tensorboards_tool_the_same_steps(tmp_path, data):
    raw_to_tool_data = pytest.importorskip("xprof.convert.raw_to_tool_data")
    import json

    with profnb.profile(logdir=str(tmp_path)) as p:
        make_model().fit(*data, batch_size=BATCH, verbose=0)
    answer, _ = raw_to_tool_data.xspace_to_tool_data([str(p.recording.path)], "input_pipeline_analyzer", {"use_saved_result": False})
    rows = json.loads(answer)[1]["rows"]
    assert len(rows) == 30  # 32 less the first and last, which xprof 2.24 leaves out
    assert rows[0]["c"][0]["v"] == "train 1"


class TroubledProfiler:
    """Stands in for TensorFlow's start or stop and raises."""

    def __init__(self, error):
        self.error = error

    def __call__(self, *_):
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("CUPTI said no"), OSError("disk full"), tf.errors.InternalError(None, None, "no")]
)
def test_a_profiler_that_fails_to_start_costs_nothing_but_a_sentence(monkeypatch, error):
    monkeypatch.setattr(tf.profiler.experimental, "start", TroubledProfiler(error))
    with profnb.profile() as p:
        custom_loop(6)
    assert not p.has_trace
    assert len(p.notes) == 1
    assert "did not start" in p.notes[0]
    assert len(p.step_times) == 6
    with pytest.raises(profnb.CaptureError, match="did not start"):
        p.ops
    assert "did not start" in p.summary()


def test_a_profiler_that_fails_to_stop(monkeypatch):
    stop = tf.profiler.experimental.stop
    monkeypatch.setattr(tf.profiler.experimental, "stop", TroubledProfiler(RuntimeError("no")))
    with profnb.profile() as p:
        custom_loop(3)
    monkeypatch.undo()
    stop(save=False)
    assert "did not stop cleanly" in p.notes[0]


def test_a_profiler_that_leaves_no_file(monkeypatch):
    stop = tf.profiler.experimental.stop
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: stop(save=False))
    with profnb.profile() as p:
        custom_loop(3)
    assert "left no trace" in p.notes[0]


def test_a_profiler_that_leaves_a_damaged_file(monkeypatch, tmp_path):
    stop = tf.profiler.experimental.stop

    def stop_and_damage():
        stop()
        for file in tmp_path.rglob("*.xplane.pb"):
            file.write_bytes(file.read_bytes()[:-7])

    monkeypatch.setattr(tf.profiler.experimental, "stop", stop_and_damage)
    with profnb.profile(logdir=str(tmp_path)) as p:
        custom_loop(3)
    assert "cannot be read" in p.notes[0]


def test_a_session_that_was_never_stopped_is_taken_over_with_a_sentence(tmp_path):
    tf.profiler.experimental.start(str(tmp_path / "users"))
    with profnb.profile() as p:
        custom_loop(4)
    assert "still running" in p.notes[0]
    assert phases(p) == {"train_step": 4}
    assert list((tmp_path / "users").glob("plugins/profile/*/*.xplane.pb"))  # its owner's trace


def test_the_code_may_still_stop_the_session_it_started_before(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    with profnb.profile() as p:
        custom_loop(4)
        tf.profiler.experimental.stop()
    assert len(p.steps) == 4


def test_code_that_profiles_itself_runs_as_without_us(tmp_path):
    with profnb.profile() as p:
        custom_loop(4)
        tf.profiler.experimental.start(str(tmp_path / "a"))
        custom_loop(2)
        tf.profiler.experimental.stop()
        with tf.profiler.experimental.Profile(str(tmp_path / "b")):
            custom_loop(2)
    assert len(p.steps) == 4  # more than either of the code's own traces has
    assert any("Your code started TensorFlow's profiler itself, so details end there" in note for note in p.notes)
    for name in "ab":
        assert list((tmp_path / name).glob("plugins/profile/*/*.xplane.pb"))


def test_code_that_has_imported_the_profiler_by_name(tmp_path):
    with profnb.profile() as p:
        custom_loop(3)
        start(str(tmp_path))
        stop()
    assert len(p.steps) == 3
    assert list(tmp_path.glob("**/*.xplane.pb"))


def test_keras_own_profiling_callback_still_works(tmp_path, data):
    with profnb.profile() as p:
        make_model().fit(*data, batch_size=BATCH, verbose=0, callbacks=[keras.callbacks.TensorBoard(str(tmp_path), profile_batch=(3, 6))])
    assert list(tmp_path.glob("**/*.xplane.pb"))
    assert 24 <= len(p.steps) <= 28  # those behind the callback's
    assert any("details cover the steps after that" in note for note in p.notes)
    assert len(p.step_times) == 32


def test_code_that_stops_what_it_never_started_fails_as_without_us():
    with profnb.profile() as p:
        custom_loop(2)
        with pytest.raises(tf.errors.UnavailableError):
            tf.profiler.experimental.stop()
    assert p.has_trace


def test_a_capture_inside_a_capture():
    with profnb.profile() as outer:
        custom_loop(3)
        with profnb.profile() as inner:
            custom_loop(5)
        custom_loop(4)
    assert len(inner.steps) == 5
    assert len(outer.steps) == 4  # those behind the inner one
    assert (outer.step_times.phase == "train_step").sum() == 12
    assert any("Your code ran a profnb capture itself" in note for note in outer.notes)
    assert not any("itself" in note for note in inner.notes)


def test_two_captures_in_a_row_in_one_logdir(tmp_path):
    for count in (3, 5):
        with profnb.profile(logdir=str(tmp_path)) as p:
            custom_loop(count)
        assert len(p.steps) == count


def one_second(monkeypatch, folder):
    """Let every run end in the same second, as those of two kernels may."""
    stop = tf.profiler.experimental.stop

    def stop_in_that_second():
        stop()
        for run in folder.rglob("plugins/profile/20*"):
            if ".profnb-" in str(run):
                run.rename(run.with_name("2026_01_01_00_00_00"))

    monkeypatch.setattr(tf.profiler.experimental, "stop", stop_in_that_second)


def test_captures_that_end_in_one_second_in_one_logdir_are_all_kept(tmp_path, monkeypatch):
    one_second(monkeypatch, tmp_path)
    profiles = []
    for count in (3, 5, 4):
        with profnb.profile(logdir=str(tmp_path)) as p:
            custom_loop(count)
        profiles.append(p)
    assert [len(p.steps) for p in profiles] == [3, 5, 4]
    assert [len(profnb.load(p.recording.path).steps) for p in profiles] == [3, 5, 4]
    assert sorted(run.name for run in (tmp_path / "plugins/profile").iterdir()) == [
        "2026_01_01_00_00_00", "2026_01_01_00_00_00_2", "2026_01_01_00_00_00_3",
    ]  # fmt: skip
    assert all(profnb.load(tmp_path, run=run.name).recording for run in (tmp_path / "plugins/profile").iterdir())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["plugins"]


def test_a_trace_of_others_in_that_second_is_neither_shown_nor_touched(tmp_path, monkeypatch):
    one_second(monkeypatch, tmp_path)
    with profnb.profile(logdir=str(tmp_path)) as first:
        custom_loop(3)
    theirs = first.recording.path.read_bytes()
    with profnb.profile(logdir=str(tmp_path)) as p:
        custom_loop(5)
    assert len(p.steps) == 5
    assert first.recording.path.read_bytes() == theirs


def test_a_disk_that_fills_as_the_profiler_writes_leaves_no_part_of_a_trace(tmp_path, monkeypatch):
    stop = tf.profiler.experimental.stop

    def stop_and_run_out():
        stop()
        for file in tmp_path.rglob("*.xplane.pb"):
            file.write_bytes(file.read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.profiler.experimental, "stop", stop_and_run_out)
    with profnb.profile(logdir=str(tmp_path)) as p:
        custom_loop(3)
    assert "No space left" in p.notes[0]
    assert not p.has_trace
    assert list(tmp_path.rglob("*.pb")) == []


def test_a_logdir_that_is_closed_meanwhile_costs_the_file_but_not_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr(doors, "claim_folder", no_space)
    with profnb.profile(logdir=str(tmp_path)) as p:
        custom_loop(3)
    assert len(p.steps) == 3
    assert [note for note in p.notes if "could not be kept" in note and "No space left" in note]
    assert list(tmp_path.rglob("*.*")) == []


def test_the_profilers_log_stays_out_of_a_notebook_and_other_text_stays_in(capfd, monkeypatch):
    with profnb.profile():
        custom_loop(2)
    out, err = capfd.readouterr()
    assert "profiler_session" not in err
    assert out == ""
    with profiler_door.log_held_back():
        os.write(2, b"somebody else's line\n")
    assert capfd.readouterr().err == "somebody else's line\n"


def test_an_interrupt_while_the_profiler_stops_waits_until_it_has(monkeypatch):
    import signal

    stop = tf.profiler.experimental.stop

    def stop_and_be_interrupted():
        signal.raise_signal(signal.SIGINT)
        stop()

    before = tf.profiler.experimental.Trace.__init__
    monkeypatch.setattr(tf.profiler.experimental, "stop", stop_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt), profnb.profile() as p:
        custom_loop(3)
    monkeypatch.undo()
    assert tf.profiler.experimental.Trace.__init__ is before
    with profnb.profile() as q:  # no session is left running
        custom_loop(3)
    assert q.notes == [] or "still running" not in q.notes[0]
    del p


@pytest.mark.parametrize("bad", ["file", "deep"])
def test_a_logdir_that_cannot_be_written_costs_a_sentence(tmp_path, bad):
    (tmp_path / "file").write_text("in the way")
    with profnb.profile(logdir=str(tmp_path / "file" / bad)) as p:
        custom_loop(3)
    assert not p.has_trace
    assert len(p.notes) == 1


def test_the_window_closes_by_itself_in_train_on_batch(data):
    model = make_model()
    with profnb.profile(max_steps=4) as p:
        for _ in range(9):
            model.train_on_batch(data[0][:BATCH], data[1][:BATCH])
    assert p.step_times.was_traced.tolist() == [True] * 4 + [False] * 5
    assert len(p.steps) == 4


def test_profiler_options_work_or_are_said_to_be_ignored():
    with profnb.profile(host_level=1) as p:
        custom_loop(3)
    few = len(p.events)
    with profnb.profile() as full:
        custom_loop(3)
    ignored = any("ignored the profiler options" in note for note in p.notes)
    assert ignored or few < len(full.events)
    assert not any("ignored the profiler options" in note for note in full.notes)


def no_space(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_costs_a_sentence_and_leaves_nothing_patched(monkeypatch):
    before = tf.profiler.experimental.start
    monkeypatch.setattr(doors.tempfile, "mkdtemp", no_space)
    with profnb.profile() as p:
        custom_loop(3)
    assert len(p.step_times) == 3
    assert "No space left" in p.notes[0]
    assert tf.profiler.experimental.start is before


def test_without_room_for_the_held_log_the_profiler_still_starts_and_stops(monkeypatch):
    monkeypatch.setattr(profiler_door.tempfile, "NamedTemporaryFile", no_space)
    with profnb.profile() as p:
        custom_loop(3)
    assert len(p.steps) == 3


def test_a_home_that_does_not_exist_costs_a_sentence():
    with profnb.profile(logdir="~no_such_user/logs") as p:
        custom_loop(3)
    assert "did not start" in p.notes[0]


def test_a_relative_logdir_is_where_the_code_began(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with profnb.profile(logdir="logs") as p:
        custom_loop(3)
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert p.recording.path.is_relative_to(tmp_path / "logs")


def test_what_the_code_assigns_stays_assigned():
    original = keras.Model.train_on_batch
    module = sys.modules[__name__]

    def own(*_):
        return "own"

    try:
        with profnb.profile():
            custom_loop(2)
            keras.Model.train_on_batch = own
            module.start = 123.0
        assert keras.Model.train_on_batch is own
        assert module.start == 123.0
    finally:
        keras.Model.train_on_batch = original
        module.start = tf.profiler.experimental.start


def test_the_code_may_stop_its_earlier_session_after_the_window_closed(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    with profnb.profile(max_steps=3) as p:
        custom_loop(8)
        tf.profiler.experimental.stop()
        with pytest.raises(tf.errors.UnavailableError):
            tf.profiler.experimental.stop()
    assert len(p.steps) == 3


def test_no_bound_on_seconds():
    with profnb.profile(max_seconds=float("inf")) as p:
        custom_loop(3)
    assert len(p.steps) == 3


def test_closing_by_time_without_steps_is_one_note(monkeypatch, timers):
    monkeypatch.setattr(tf.profiler.experimental, "stop", TroubledProfiler(RuntimeError("no")))
    with profnb.profile(max_seconds=0.1) as p:
        tf.ones(3) + 1
        timers[0].ring()
    monkeypatch.undo()
    tf.profiler.experimental.stop(save=False)
    assert any(note.startswith("Details cover the first ") for note in p.notes)
    assert "0 of the 0" not in p.summary()


def test_asking_too_early_spoils_nothing():
    with profnb.profile() as p:
        custom_loop(3)
        assert "Nothing was captured" in p.summary()
    assert "train_step steps" in p.summary()


def test_a_train_on_batch_that_raises_is_no_step(data):
    model = make_model()
    with profnb.profile() as p:
        for _ in range(3):
            model.train_on_batch(data[0][:BATCH], data[1][:BATCH])
        with pytest.raises(Exception, match="incompatible|shape|Matrix"):
            model.train_on_batch(np.ones((8, 5), "float32"), data[1][:BATCH])
    assert len(p.steps) == 3
    assert len(p.step_times) == 3


def test_traces_of_the_users_may_carry_any_metadata():
    with profnb.profile() as p:
        with tf.profiler.experimental.Trace("x", trace=1, arguments=2) as trace:
            trace.set_metadata(trace=2, arguments=3)
        with tf.profiler.experimental.Trace(name="y", step_num=5, _r=1):
            pass
    assert p.steps.step_num.tolist() == [5]


def test_step_times_carry_the_programs_numbers():
    with profnb.profile(max_steps=2) as p:
        for number in range(100, 104):
            with profnb.step(number):
                custom_loop(1)
    assert p.steps.step_num.tolist() == [100, 101]
    assert p.step_times.step_num.tolist() == [100, 101, 102, 103]


def test_training_and_testing_loops_one_after_the_other_are_not_one_cycle():
    @tf.function
    def train_step(x):
        return tf.reduce_sum(tf.matmul(x, x))

    @tf.function
    def test_step(x):
        return tf.reduce_sum(x)

    with profnb.profile() as p:
        for _ in range(2):
            for step in (train_step, test_step):
                for _ in range(10):
                    step(tf.ones((60, 60)))
    for table in (p.steps, p.step_times):
        assert table.groupby("phase").size().to_dict() == {"train_step": 20, "test_step": 20}
    assert p.study.summary.phase == "train_step"


# The hooks themselves.


def test_watched_calls_leave_no_frame_in_a_traceback():
    class Model:
        def fit(self):
            """Docs."""
            raise ValueError("x")

    log = []
    with watch(Model, "fit", before=lambda _: log.append("before"), after=lambda _: log.append("after"), hook_failed=log.append):
        assert Model().fit.__name__ == "fit"
        assert inspect.signature(Model().fit) == inspect.signature(Model.fit.__get__(Model()))
        try:
            Model().fit()
        except ValueError as error:
            names = []
            tb = error.__traceback__
            while tb:
                names.append(tb.tb_frame.f_code.co_name)
                tb = tb.tb_next
    assert names == ["test_watched_calls_leave_no_frame_in_a_traceback", "fit"]
    assert log == ["before", "after"]


def test_hooks_run_when_the_call_runs_not_when_the_attribute_is_read():
    class Model:
        def go(self, value):
            log.append(value)

    log = []
    with watch(Model, "go", before=lambda *_: log.append("before"), after=lambda *_: log.append("after"), hook_failed=log.append):
        model = Model()
        model.go(log.append("argument") or "call")
    assert log == ["argument", "before", "call", "after"]
    assert "go" in vars(Model)


def test_an_inherited_method_is_put_back_as_inherited():
    class Base:
        def go(self):
            return 1

    class Child(Base):
        pass

    seen = []
    with watch(Child, "go", before=seen.append, hook_failed=seen.append):
        assert (Child().go(), Base().go()) == (1, 1)
        assert "go" in vars(Child)
    assert "go" not in vars(Child)
    assert [type(it) for it in seen] == [Child]


def test_a_module_imported_later_is_noticed_once_it_is_there(tmp_path, monkeypatch):
    (tmp_path / "late_module_for_profnb.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    with on_import({"late_module_for_profnb": lambda: seen.append(sys.modules["late_module_for_profnb"].x), "sys": lambda: seen.append("sys")}):
        import importlib.util

        assert importlib.util.find_spec("late_module_for_profnb") is not None  # looking is not importing
        assert seen == ["sys"]
        import late_module_for_profnb  # noqa: F401
    assert seen == ["sys", 1]
    del sys.modules["late_module_for_profnb"]


class SealedLoader:
    """Nothing on it can be replaced."""

    __slots__ = ()

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.x = 1


class OldLoader:
    """As before Python 3.4: no ``exec_module``."""

    def load_module(self, name):
        sys.modules[name] = module = types.ModuleType(name)
        module.x = 1
        return module


@pytest.mark.parametrize("loader", [SealedLoader, OldLoader])
@pytest.mark.filterwarnings("ignore::ImportWarning", "ignore::DeprecationWarning")
def test_a_loader_of_the_codes_own_loads_although_it_cannot_be_watched(monkeypatch, loader):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return ModuleSpec(name, loader()) if name == "own_module_for_profnb" else None

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    seen = []
    with on_import({"own_module_for_profnb": lambda: seen.append("loaded")}):
        assert importlib.import_module("own_module_for_profnb").x == 1
    assert seen == []  # nobody could tell
    del sys.modules["own_module_for_profnb"]


def test_a_module_that_is_found_inside_and_loaded_later_tells_nobody(tmp_path, monkeypatch):
    (tmp_path / "found_for_profnb.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    with on_import({"found_for_profnb": lambda: seen.append("loaded")}):
        spec = importlib.util.find_spec("found_for_profnb")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    assert (module.x, seen) == (1, [])


def test_a_watched_function_passes_arguments_and_value_on():
    log = []
    calls = watched_call(
        lambda a, b=0: a + b, before=lambda *a, **k: log.append(("before", a, k)), after=lambda *a, **k: log.append(("after", a, k)), hook_failed=log.append
    )
    with calls as watched:
        assert watched(2, b=3) == 5
    assert watched(4) == 4
    assert log == [("before", (2,), {"b": 3}), ("after", (2,), {"b": 3})]


class Counted:
    def work(self, number):
        """What it does."""
        return number + 1


def test_a_watched_method_is_the_method_in_all_that_matters():
    log, it, plain = [], Counted(), Counted.work
    with watch(Counted, "work", before=lambda *given: log.append(given), hook_failed=log.append):
        kept = it.work
        assert kept(1) == 2
        assert kept == it.work
        assert hash(kept) == hash(it.work)
        assert inspect.ismethod(kept) and inspect.isfunction(Counted.work)
        assert kept.__doc__ == "What it does."
        assert inspect.signature(kept) == inspect.signature(plain.__get__(it))
        assert inspect.unwrap(Counted.work) is plain
        assert (Counted.work.__name__, Counted.work.__qualname__, Counted.work.__module__) == ("work", "Counted.work", __name__)
        assert pickle.loads(pickle.dumps(kept))(2) == 3
        assert pickle.loads(pickle.dumps(Counted.work)) is Counted.work
        assert copy.copy(kept)(3) == 4
    seen = len(log)
    assert log[0] == (it, 1)
    assert kept(1) == 2
    assert len(log) == seen == 3  # nothing runs any more, though the method was kept
    assert vars(Counted)["work"] is plain


def test_what_came_of_a_call_is_told_and_of_one_that_raised_nothing():
    def divide(number):
        return 1 // number

    module, log = types.ModuleType("m"), []
    module.divide = divide
    with watch(module, "divide", came=lambda *given: log.append(given), after=lambda *given: log.append("after"), hook_failed=log.append):
        assert module.divide(1) == 1
        with pytest.raises(ZeroDivisionError):
            module.divide(0)
    assert log == [(1, 1), "after", "after"]
    assert module.divide is divide


def test_what_stands_in_a_class_and_is_no_function_is_watched_too():
    """A wrapper of somebody's, a C function, a partial method, a class method, a static one."""

    class Wrapper:
        def __init__(self, function):
            self.function = function

        def __get__(self, it, kind=None):
            return lambda *given: ("wrapped", self.function(it, *given))

    class Many(list):
        wrapped = Wrapper(lambda it, x: x + 1)
        partly = functools.partialmethod(lambda it, x, y: x + y, 2)

    seen, many = [], Many()
    for name, call in (("wrapped", 5), ("partly", 5), ("append", 5)):
        before = vars(Many).get(name)
        plain = getattr(many, name)(call)
        with watch(Many, name, before=lambda *given: seen.append(given), hook_failed=seen.append):
            assert getattr(many, name)(call) == plain
        assert vars(Many).get(name) is before
    assert many == [5, 5]
    assert seen == [(many, 5)] * 3


def test_a_trace_that_the_analysis_cannot_open_does_not_fail_the_code(monkeypatch):
    from profnb.trace import files

    def broken(*_, **__):
        raise ImportError("Numba needs NumPy 2.2 or less")

    monkeypatch.setattr(files, "read_trace", broken)
    with pytest.raises(KeyError), profnb.profile() as p:
        tf.ones(3) + 1
        raise KeyError("the user's own")
    assert not p.has_trace
    assert any("Numba needs NumPy 2.2" in message for message in p.recording.messages)


# What is learned besides steps.


def test_what_a_fit_reached_is_kept(tmp_path):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["mae"])
    x, y = np.ones((32, 4), "float32"), np.ones((32, 2), "float32")
    with profnb.profile() as p:
        history = model.fit(x, y, validation_data=(x, y), epochs=3, verbose=0)
        model.fit(x, y, verbose=0)
        model.evaluate(x, y, verbose=0)
    first, second = p.recording.fits
    assert first.metrics == {name: pytest.approx(values[-1]) for name, values in history.history.items()}
    assert {*first.metrics} == {"loss", "mae", "val_loss", "val_mae"}
    assert (first.epochs, first.is_continued) == (3, False)
    assert (second.epochs, second.is_continued) == (1, True)


def test_why_a_function_was_traced_anew_is_kept_wherever_it_lives():
    def run():
        @tf.function
        def local(x, factor, flag=True):
            return x * factor if flag else x

        class Module(tf.Module):
            @tf.function
            def step(self, x):
                return x + 1

        module = Module()
        for number in range(4):
            local(tf.ones(3), number)
            module.step(tf.ones(number + 1))
        return local, module

    with profnb.profile() as p:
        kept = run()
    del kept
    found = p.recording.changing_arguments
    assert found["local"] == (("factor", ("0", "1", "2", "3")),)
    assert found["step"] == (("x", ("float32(1,)", "float32(2,)", "float32(3,)", "float32(4,)")),)


def test_sizes_of_datasets_threads_and_the_time_of_the_whole_code():
    module = {"profnb": profnb, "tf": tf, "time": time, "__name__": "script"}
    code = """
train = tf.data.Dataset.range(7)
endless = train.repeat()
with profnb.profile() as p:
    time.sleep(0.2)
    tf.ones(3) + 1
"""
    exec(code, module)
    p = module["p"]
    assert p.recording.cardinalities["train"] == 7
    assert "endless" not in p.recording.cardinalities
    assert int(p.environment["CPU cores"]) >= 1
    assert p.environment["Intra-op threads"] == "default"
    assert p.recording.wall_ns >= 0.2e9


def watching(owner, name, told, log):
    return watch(owner, name, before=lambda *_: log.append(f"{told} before"), after=lambda *_: log.append(f"{told} after"), hook_failed=log.append)


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_two_that_watch_a_method_share_what_stands_there_and_either_may_leave_first(first_to_leave):
    class Model:
        def run(self, x):
            return x

    plain, log = Model.run, []
    both = [contextlib.ExitStack(), contextlib.ExitStack()]
    for number, block in enumerate(both):
        block.enter_context(watching(Model, "run", number, log))
        assert inspect.unwrap(Model.run) is Model.run.__wrapped__ is plain  # once, not twice
    assert Model().run(3) == 3
    assert log == ["0 before", "1 before", "0 after", "1 after"]
    log.clear()
    both[first_to_leave].close()
    assert Model().run(4) == 4
    assert log == [f"{1 - first_to_leave} before", f"{1 - first_to_leave} after"]
    both[1 - first_to_leave].close()
    assert vars(Model)["run"] is plain
    assert Model().run(5) == 5
    assert len(log) == 2
    assert hooks._replaced == []


def test_a_watched_method_that_calls_itself_and_is_left_from_inside_its_own_call():
    class Model:
        def run(self, depth):
            if depth == 0:
                block.close()
            return depth and 1 + self.run(depth - 1)

    log, block = [], contextlib.ExitStack()
    block.enter_context(watching(Model, "run", "its", log))
    assert Model().run(3) == 3
    assert log == ["its before"] * 4  # by the time that the calls ended, nobody watched
    assert not hasattr(Model.run, "profnb_hooks")


def test_a_patch_of_the_codes_that_outlasts_a_capture_leaves_nothing_of_ours():
    """A ``mock.patch`` that one cell starts and a later one stops puts back what it found: our function."""

    class Model:
        def run(self):
            return "run"

    plain = Model.run
    patch = mock.patch.object(Model, "run", lambda it: "patched")
    with watch(Model, "run", before=log_nothing, hook_failed=log_nothing):
        patch.start()
        assert Model().run() == "patched"
    assert Model().run() == "patched"
    with watch(Model, "run", before=log_nothing, hook_failed=log_nothing):
        assert Model().run() == "patched"
    patch.stop()
    assert Model().run() == "run"
    with replace_attribute(Model, "new", 1):  # as the next capture begins
        assert vars(Model)["run"] is plain
    assert "new" not in vars(Model)


def test_a_patch_that_begins_and_ends_in_a_capture_and_one_around_it_change_nothing():
    class Model:
        def run(self):
            return "run"

    plain = Model.run
    with watch(Model, "run", before=log_nothing, hook_failed=log_nothing):
        with mock.patch.object(Model, "run", lambda it: "patched"):
            assert Model().run() == "patched"
        assert Model().run() == "run"
    assert vars(Model)["run"] is plain
    with mock.patch.object(Model, "run", lambda it: "patched"):
        with watch(Model, "run", before=log_nothing, hook_failed=log_nothing):
            assert Model().run() == "patched"
    assert vars(Model)["run"] is plain


def log_nothing(*_, **__):
    pass


def interrupt_self():
    import signal

    signal.raise_signal(signal.SIGINT)


def leftovers(folder):
    """What a capture that ended may not leave behind."""
    left = [f"folder {path.name}" for path in folder.glob("*profnb-*")]
    # A thread takes a moment to end after its timer was cancelled, which its event says at once.
    left += [f"timer {thread.name}" for thread in threading.enumerate() if isinstance(thread, threading.Timer) and not thread.finished.is_set()]
    left += ["import hook" for finder in sys.meta_path if type(finder).__name__ == "_ImportFinder"]
    monitoring = getattr(sys, "monitoring", None)
    left += [f"tool {tool}" for tool in range(6) if monitoring and monitoring.get_tool(tool) == "profnb"]
    left += [str(f) for f in (tf.profiler.experimental.start, tf.profiler.experimental.stop) if hasattr(f, "profnb_hooks")]
    left += [f"{one.owner}.{one.name}" for one in hooks._replaced]
    left += [f"thread {thread.name}" for thread in threading.enumerate() if thread.name == "profnb"]
    try:
        stop(save=False)
        left.append("profiler")
    except tf.errors.UnavailableError:
        pass
    return left


PLACES_IN_START = [
    (doors.tempfile, "mkdtemp"), (doors.Doors, "make_folder"), (tensorflow_door.TensorFlowDoor, "_start_taking_over"),
    (tensorflow_door.TensorFlowDoor, "note_ignored_options"), (window.Window, "_set_timer"), (session.SourceWatch, "begin"),
    (session.Capture, "_tensorflow_imported"), (session.Capture, "_keras_imported"),
]  # fmt: skip


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("owner", "name"), PLACES_IN_START)
def test_an_interrupt_while_the_profiler_starts_comes_once_and_leaves_nothing(tmp_path, monkeypatch, owner, name, when):
    monkeypatch.setattr(doors.tempfile, "tempdir", str(tmp_path))
    original = getattr(owner, name)
    begun = []

    def interrupted(*arguments, **keywords):
        if when == "before":
            interrupt_self()
        value = original(*arguments, **keywords)
        if when == "after":
            interrupt_self()
        return value

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt), profnb.profile():
        begun.append("the body ran")
    monkeypatch.undo()
    monkeypatch.setattr(doors.tempfile, "tempdir", str(tmp_path))
    assert begun == []
    assert leftovers(tmp_path) == []
    with profnb.profile() as p:
        custom_loop(3)
    assert len(p.steps) == 3
    assert not any("still running" in note for note in p.notes)


@pytest.mark.hooks_fail
@pytest.mark.parametrize(("owner", "name"), PLACES_IN_START[3:6])
def test_no_thread_or_memory_to_be_had_while_the_profiler_starts_leaves_no_window_without_an_end(tmp_path, monkeypatch, owner, name):
    monkeypatch.setattr(doors.tempfile, "tempdir", str(tmp_path))

    def fails(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(owner, name, fails)
    with profnb.profile() as p:
        with pytest.raises(tf.errors.UnavailableError):
            stop(save=False)  # none is running
        custom_loop(3)
    assert len(p.step_times) == 3
    assert any("can't start new thread" in note for note in p.notes)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("owner", "name"), [(window.Window, "close"), (session.Capture, "_explain_losses")])
def test_an_interrupt_while_a_capture_is_finished_waits_for_the_result(tmp_path, monkeypatch, owner, name):
    monkeypatch.setattr(doors.tempfile, "tempdir", str(tmp_path))
    original = getattr(owner, name)

    def interrupted(*arguments):
        interrupt_self()
        return original(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt), profnb.profile() as p:
        custom_loop(3)
    assert len(p.steps) == 3
    assert leftovers(tmp_path) == []


def test_an_interrupt_leaves_no_half_of_a_step():
    """At each instruction in which a step is written down; what is taken back takes whole ones, too."""

    def trace(frame, kind, _):
        frame.f_trace_opcodes = True
        if kind == "opcode" and frame.f_code is not here:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    here, before_tracing, interrupts = sys._getframe().f_code, sys.gettrace(), 0
    for at in range(1, 3000):
        opened, left = OpenSteps(lambda: False, lambda _: None), [at]
        opened.record(opened.begin(None, KERAS, "train"), 5)
        outer, inner = opened.begin(None, USER, "mine"), opened.begin(None, CALL, "f")
        opened.record(inner, 6)
        sys.settrace(trace)
        try:
            opened.record(outer, 7)
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(before_tracing)
        steps = opened.log.records()
        assert {len(getattr(steps, name)) for name in ("begin_ns", "end_ns", "name", "kind", "step_num", "run")} == {len(opened.log)}
        assert steps.end_ns.tolist() in ([5], [5, 6], [5, 7])
        if left[0] > 0:  # there were fewer
            break
    assert interrupts > 20
    assert steps.end_ns.tolist() == [5, 7]


@pytest.mark.parametrize("says", [True, False])
def test_tools_of_python_that_others_have_taken_are_said(monkeypatch, says):
    from types import SimpleNamespace

    from profnb.capture.source import line_watch

    if says:
        def in_use(tool, name):
            raise ValueError(f"tool {tool} is already in use")

        others = {"DEBUGGER_ID": 0, "COVERAGE_ID": 1, "PROFILER_ID": 2, "OPTIMIZER_ID": 5}
        monitoring = SimpleNamespace(get_tool={3: "coverage", 4: "a debugger"}.get, use_tool_id=in_use, **others)
        monkeypatch.setattr(line_watch, "MONITORING", SimpleNamespace(find=lambda: monitoring))
    with profnb.profile() as p:
        custom_loop(3)
    assert any("sys.monitoring" in note and "coverage, a debugger" in note for note in p.notes) == says
    assert len(p.steps) == 3
