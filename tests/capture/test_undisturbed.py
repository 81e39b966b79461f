"""Code that looks at itself, at its threads or at its stack does in a capture what it does without, and nothing of ours is left."""

import asyncio
import cProfile
import inspect
import os
import pstats
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import profnb
from profnb.capture import hooks
from profnb.capture.parts.part_records import OTHER
from profnb.capture.seams import SEAMS
from profnb.capture.source.user_code import is_own_file

tensorflow = pytest.mark.tensorflow
X, Y = np.ones((32, 4), "float32"), np.ones((32, 2), "float32")


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def keras(request, tf):
    return pytest.importorskip(request.param)


@pytest.fixture(autouse=True)
def _leaves_nothing():
    finders, tracer = list(sys.meta_path), sys.gettrace()
    before = hooks._replaced[:]  # of shells that other tests have left
    yield
    assert hooks._replaced == before
    assert (sys.meta_path, sys.gettrace(), sys.getprofile()) == (finders, tracer, None)
    assert not [thread for thread in threading.enumerate() if thread.name == "profnb"]


def made_model(keras):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def python_ms(p):
    """What plain Python took; all parts add up."""
    cell = p.recording.cell
    assert sum(part.wall_ns for part in cell.parts) == cell.wall_ns
    return sum(part.wall_ns for part in cell.parts if part.part == OTHER) / 1e6


# What is watched.


@tensorflow
def test_methods_of_keras_are_methods_inside_a_capture(keras):
    model = made_model(keras)
    names = ("fit", "evaluate", "predict", "compile", "train_on_batch", "predict_on_batch", "save", "__call__")
    plain = {name: str(inspect.signature(getattr(model, name))) for name in names}
    with profnb.profile():
        model.fit(X, Y, verbose=0)
        for name in names:
            method = getattr(model, name)
            assert inspect.ismethod(method)
            assert method.__self__ is model
            assert str(inspect.signature(method)) == plain[name]
        callbacks = keras.callbacks.CallbackList([], model=model)
        assert inspect.ismethod(callbacks.on_train_batch_end)


@tensorflow
def test_few_attributes_are_replaced_during_a_fit_with_validation(keras):
    """All of them hold another value than before, and each is replaced once; a function of many modules is one."""

    class Counts(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            seen.append([one for one in hooks._replaced if one not in before])

        on_train_batch_end = on_test_batch_end

    seen, before = [], hooks._replaced[:]
    with profnb.profile(max_steps=12) as p:
        made_model(keras).fit(X, Y, batch_size=4, epochs=3, validation_data=(X, Y), callbacks=[Counts()], verbose=0)
    assert len(seen) == 48 and p.recording.closed_by == "steps"
    # Which other tests may have imported.
    others = ({"keras": "tf_keras.", "tf_keras": "keras."}[keras.__name__], "tensorflow.lite.", "ai_edge_litert.")
    for replaced in (seen[0], seen[-1]):
        replaced = [one for one in replaced if not getattr(one.owner, "__module__", "").startswith(others)]
        places = {(id(one.owner), one.name): one for one in replaced}
        assert len(places) == len(replaced)
        assert all(one.value is not one.before for one in replaced)
        assert all(vars(one.owner).get(one.name) is not one.value for one in replaced)
        assert len({(one.name, one.value) for one in replaced}) <= 25, [f"{getattr(one.owner, '__qualname__', one.owner)}.{one.name}" for one in replaced]


@tensorflow
def test_each_hook_says_what_it_costs_and_none_is_of_the_kinds_that_are_not_allowed(tf):
    """Over a fit and an eager loop: its seam has a cost; nothing of importlib, Numba, finalizers, properties or TensorFlow 1."""
    keras = pytest.importorskip("keras")
    costs = {name for seam in SEAMS if seam.cost for name in seam.attributes}
    replaced, before = {}, hooks._replaced[:]

    def look(*_):
        new = [one for one in hooks._replaced if one not in before]
        replaced.update({(getattr(one.owner, "__module__", None) or one.owner.__name__, one.name): one.value for one in new})

    class Looks(keras.callbacks.Callback):
        on_train_batch_end = on_test_batch_end = lambda *_, **__: look()

    weight = tf.Variable(2.0)
    with profnb.profile():
        made_model(keras).fit(X, Y, batch_size=16, validation_data=(X, Y), callbacks=[Looks()], verbose=0)
        with tf.GradientTape() as tape:
            loss = weight * weight
        tape.gradient(loss, weight)
        look()
    names = {name for _, name in replaced}
    assert {"__call__", "gradient", "on_train_batch_end", "Trace"} <= names
    assert names <= costs, names - costs
    assert not names & {"run", "after_run", "save", "_call_tf_sessionrun"}
    assert not [place for place in replaced if place[0].startswith(("importlib", "_frozen_importlib", "numba", "sys", "os")) or place[1] == "__del__"]
    assert not [place for place, value in replaced.items() if isinstance(value, property)]


# AutoGraph, which reads the source of what it converts.


@tensorflow
@pytest.mark.parametrize("converts", ["the function", "the call", "a fit"])
def test_a_layer_that_branches_on_a_tensor_is_converted_or_not_as_without(keras, tf, converts):
    """Keras 3 calls layers as they are: then the branch is an error, and the same one."""

    def call(self, x):
        if tf.reduce_sum(x) > 0:
            x = x + 1.0
        else:
            x = x - 1.0
        for _ in tf.range(2):
            x = x * 2.0
        return x

    def outcome():
        called = tf.function(call) if converts == "the call" else call
        layer = type("Gate", (keras.layers.Layer,), {"call": called, "compute_output_shape": lambda self, shape: shape})()

        @tf.function
        def step(x):
            return layer(x)

        try:
            if converts == "a fit":
                model = keras.Sequential([keras.layers.Input((4,)), layer, keras.layers.Dense(2, kernel_initializer="ones")])
                model.compile(keras.optimizers.SGD(0.01), "mse")
                return model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history
            return [step(tf.constant([[value, value]])).numpy().tolist() for value in (1.0, -1.0)]
        except Exception as error:
            return type(error), str(error)

    plain = outcome()
    with profnb.profile() as p:
        inside = outcome()
    if isinstance(plain, dict):
        assert inside == {name: pytest.approx(values) for name, values in plain.items()}
    else:
        assert inside == plain
    if keras.__name__ == "tf_keras" and converts != "a fit":
        assert plain == [[[8.0, 8.0]], [[-8.0, -8.0]]]
    assert not [note for note in p.notes if "hook" in note]


# The stack.


@tensorflow
def test_a_callback_that_looks_at_its_stack_sees_the_codes_own(keras):
    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warnings.warn("mine", stacklevel=1)
                warnings.warn("whoever calls", stacklevel=2)
            found.append([(one.filename, one.lineno, str(one.message)) for one in caught])
            found.append([(frame.filename, frame.function) for frame in inspect.stack() if not is_own_file(frame.filename)])

    def run():
        found.clear()
        model.fit(X, Y, epochs=1, callbacks=[Looks()], verbose=0)
        return list(found)

    found, model = [], made_model(keras)
    run()
    plain = run()
    with profnb.profile():
        inside = run()
    assert inside == plain
    assert plain[0][0][0] == __file__


def deep(depth, work):
    if depth == 0:
        work(300)
        return 0
    return 1 + deep(depth - 1, work)


def test_a_stack_of_900_frames_is_seen_whole(clock):
    with profnb.profile() as p:
        assert deep(900, clock.work) == 900
    assert python_ms(p) == 300
    assert [part.line > 0 for part in p.recording.cell.parts if part.part == OTHER] == [True]  # of a stack that is too deep nothing is kept


def test_recursion_reaches_as_far_as_without():
    def reach(depth=0):
        try:
            return reach(depth + 1)
        except RecursionError:
            return depth

    plain, limit = reach(), sys.getrecursionlimit()
    with profnb.profile():
        inside = reach()
    assert (inside, sys.getrecursionlimit()) == (plain, limit)


# Who else looks on.


def work(number):
    total = 0
    for at in range(number):
        total += at
    return total


def test_a_debugger_that_traces_the_cell_sees_what_it_sees_without():
    def traced():
        def trace(frame, kind, _):
            if not is_own_file(frame.f_code.co_filename):
                events.append((frame.f_code.co_name, kind, frame.f_lineno))
            return trace

        events, before = [], sys.gettrace()
        sys.settrace(trace)
        try:
            value = work(200)
        finally:
            sys.settrace(before)
        return value, events

    plain = traced()
    with profnb.profile() as p:
        inside = traced()
    assert inside == plain
    assert len(plain[1]) > 400
    assert python_ms(p) > 0


@tensorflow
def test_a_fit_under_a_debugger_trains(keras):
    def trace(frame, kind, _):
        events.append(kind)
        return trace if frame.f_code.co_filename == __file__ else None

    class Mine(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            ended.append(epoch)

    events, ended, model = [], [], made_model(keras)
    with profnb.profile() as p:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            model.fit(X, Y, batch_size=8, epochs=2, callbacks=[Mine()], verbose=0)
        finally:
            sys.settrace(before)
    assert ended == [0, 1]
    assert events
    assert len(p.steps) == 8
    python_ms(p)


def test_a_profiler_of_the_codes_own_counts_its_calls():
    def calls():
        own = cProfile.Profile()
        value = own.runcall(lambda: [work(50) for _ in range(30)])
        stats = pstats.Stats(own).stats
        return value, {name: found[0] for (file, _, name), found in stats.items() if file == __file__}

    plain = calls()
    with profnb.profile() as p:
        assert calls() == plain
    assert plain[1]["work"] == 30
    python_ms(p)


def test_prun_in_a_cell_counts_the_cells_calls(shell, tmp_path, capsys):
    """Its profile under %%tfprofile has the same calls as without, and nothing of ours."""

    def calls(magic):
        shell.run_cell(f"{magic}%prun -q -D {tmp_path / 'out.prof'} [work(50) for _ in range(30)]")
        stats = pstats.Stats(str(tmp_path / "out.prof")).stats
        assert not [file for file, _, _ in stats if is_own_file(file)]
        return {name: found[0] for (file, _, name), found in stats.items() if file == __file__}

    shell.user_ns["work"] = work
    plain = calls("")
    assert calls("%%tfprofile -q\n") == plain == {"work": 30}
    assert python_ms(shell.user_ns["_tfprofile"]) >= 0
    capsys.readouterr()


# Threads, coroutines, processes.


def test_a_cell_on_a_thread_of_its_own(clock):
    found = []

    def cell():
        with profnb.profile() as p:
            clock.work(300)
        found.append(p)

    thread = threading.Thread(target=cell)
    thread.start()
    thread.join()
    assert python_ms(found[0]) == 300


@tensorflow
def test_a_fit_on_a_thread_of_its_own(keras):
    found, model = [], made_model(keras)

    def cell():
        with profnb.profile() as p:
            model.fit(X, Y, batch_size=8, verbose=0)
        found.append(p)

    thread = threading.Thread(target=cell)
    thread.start()
    thread.join()
    assert len(found[0].recording.steps) == 4
    python_ms(found[0])


def test_a_cell_that_awaits(clock):
    """What passes while it does passes in the loop, where no frame of the cell's is."""

    async def waits():
        asyncio.get_running_loop().call_soon(clock.work, 200)
        await asyncio.sleep(0)
        return 5

    async def cell():
        with profnb.profile() as p:
            first = await waits()
            both = await asyncio.gather(waits(), asyncio.to_thread(work, 10))
        return p, first, both

    p, first, both = asyncio.run(cell())
    assert (first, both) == (5, [5, 45])
    assert python_ms(p) == 400


FORKS = """
import os, sys, time
import profnb
{setup}
with profnb.profile() as p:
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        time.sleep(0.05)
        {inside}
    time.sleep(0.05)
if child == 0:
    os._exit(0 if p.recording.cell is None else 3)  # the capture is the parent's
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == {code}, status
print(sum(part.wall_ns for part in p.recording.cell.parts) == p.recording.cell.wall_ns)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(("inside", "code"), [("pass", 0), ("sys.exit(5)", 5), ("os._exit(6)", 6), ("raise KeyError", 1)])
def test_a_child_that_the_cell_forks_ends_by_itself_and_the_parent_goes_on(inside, code):
    """Behind the block, in it, at once, or by an error."""
    program = FORKS.format(setup="", inside=inside, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["True"]), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_workers_that_are_forked_do_their_work():
    program = """
import multiprocessing, time
import profnb
def double(x):
    return 2 * x
with profnb.profile() as p:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(double, range(5)))
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
    worker.start()
    worker.join()
    print(worker.exitcode)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["[0, 2, 4, 6, 8]", "0"]), done.stderr
