"""What a capture leaves as it was: names, processes, objects; and that nobody goes on before a profiler has stopped."""

import copy
import gc
import inspect
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
import types
import weakref

import pytest

import profnb
from profnb.capture import hooks
from profnb.capture.environment import describe_datasets, python_functions
from profnb.capture.profiler import window
from profnb.capture.hooks import replace_attribute, watched_call
from profnb.capture.machine import machine_watch
from profnb.capture.profiler import tensorflow_door

tf = pytest.importorskip("tensorflow")
from tensorflow.python.profiler import profiler_v2

from test_capture import custom_loop

pytestmark = pytest.mark.tensorflow


class Big:
    """Something that may be dear to keep."""


def test_what_a_function_held_goes_when_it_returns():
    """Without the garbage collector: arrays of a step may be all of a device's memory."""

    def work():
        big = Big()
        with profnb.profile():
            tf.ones(3) + 1
        return weakref.ref(big)

    work()
    gc.collect()
    gc.disable()
    try:
        assert work()() is None
    finally:
        gc.enable()


def test_captures_that_overlap_leave_nothing_of_theirs():
    session = next(kind for kind in tf.compat.v1.Session.__mro__ if "run" in vars(kind))
    owners = [session, tf.profiler.experimental, tf.profiler.experimental.Trace, tf.GradientTape, tf.train.Checkpoint]
    before, replaced = [dict(vars(owner)) for owner in owners], hooks._replaced[:]
    first, second = profnb.profile(), profnb.profile()
    first.__enter__()
    second.__enter__()
    custom_loop(2)
    first.__exit__(None, None, None)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.constant(1.0) + 1)
    custom_loop(2)
    second.__exit__(None, None, None)
    for owner, names in zip(owners, before, strict=True):
        assert {name for name in names if vars(owner).get(name) is not names[name]} == set()
    assert hooks._replaced == replaced
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert profiler_v2._profiler is None


def test_an_attribute_comes_back_in_whatever_order_blocks_of_it_end():
    class Owner:
        inherited = 1

    class Child(Owner):
        own = 2

    for order in itertools.permutations(range(3)):
        blocks = [replace_attribute(Child, name, value) for value in (10, 20, 30) for name in ("own", "inherited")]
        for block in blocks:
            block.__enter__()
        for at in order:
            blocks[2 * at].__exit__(None, None, None)
            blocks[2 * at + 1].__exit__(None, None, None)
        assert (Child.own, Child.inherited, "inherited" in vars(Child)) == (2, 1, False)


def test_an_object_that_does_not_let_itself_be_changed_is_not_kept():
    class Fixed:
        def __setattr__(self, name, value):
            raise AttributeError(name)

    it = Fixed()
    with pytest.raises(AttributeError), replace_attribute(it, "name", 5):
        pass
    gone = weakref.ref(it)
    del it
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_the_code_forks_ends_as_without_us_and_leaves_the_trace_to_its_parent(tmp_path):
    script = (
        "import os, sys\nimport tensorflow as tf\nimport profnb\n"
        f"with profnb.profile(logdir={str(tmp_path)!r}) as p:\n"
        "    child = os.fork()\n"
        "    if not child:\n        sys.exit(3)\n"
        "    print('child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "    tf.ones(3) + 1\n"
        "print(p.has_trace)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[:2] == ["child 3", "True"], done.stderr
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


@pytest.mark.hooks_fail
def test_a_thread_that_cannot_start_costs_the_looks_at_the_machine(monkeypatch):
    def fails(_):
        raise RuntimeError("can't start new thread")

    watch = machine_watch.MachineWatch()
    monkeypatch.setattr(threading.Thread, "start", fails)
    with watch.watch():
        pass
    assert len(watch.records) == 0


@pytest.mark.parametrize("call", [tf.numpy_function, tf.py_function])
def test_what_python_graphs_call_is_named_while_it_lives(call):
    def cut(x):
        return x

    def rows():
        yield 1

    mapped = tf.data.Dataset.range(3).map(lambda x: call(cut, [x], tf.int64))
    made = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.int32))
    for function in (cut, rows):
        lines = [line for name, line in python_functions() if name == function.__name__]
        assert any(line.endswith(f"test_leftovers.py:{function.__code__.co_firstlineno}") for line in lines)
    assert not {name for name, _ in python_functions()} & {"get_next_id", "generator_py_func", "finalize_py_func"}
    del mapped, made


class Odd:
    """A class that says of no module that it is its own."""

    __module__ = None


def test_a_namespace_may_hold_anything():
    assert describe_datasets({"odd": Odd()}) == describe_datasets({})


def test_a_profiler_that_a_notebook_starts_under_a_name_of_its_own_has_its_trace(tmp_path, monkeypatch):
    notebook = types.ModuleType("__main__")
    notebook.begin_trace, notebook.other = tf.profiler.experimental.start, 5
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    with profnb.profile() as p:
        custom_loop(2)
        notebook.begin_trace(str(tmp_path))
        custom_loop(2)
        tf.profiler.experimental.stop()
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1
    assert len(p.steps) == 2
    assert sum("TensorFlow's profiler itself" in note for note in p.notes) == 1
    assert notebook.begin_trace is tf.profiler.experimental.start
    assert vars(notebook)["other"] == 5


@pytest.fixture
def slow_stop(monkeypatch):
    """A function that closes the window as its timer does, on a thread that stops the profiler once the event says so."""
    stopping, may_stop, opened = threading.Event(), threading.Event(), []
    stop_it = tensorflow_door.TensorFlowDoor.stop

    def slow(door, folder):
        stopping.set()
        may_stop.wait(60)
        return stop_it(door, folder)

    def close():
        threading.Thread(target=opened[0].close, args=("seconds",)).start()
        assert stopping.wait(60)

    monkeypatch.setattr(tensorflow_door.TensorFlowDoor, "stop", slow)
    monkeypatch.setattr(window.Window, "_set_timer", lambda own, _: opened.append(own))
    yield close, may_stop
    may_stop.set()


def test_who_waits_for_the_profiler_waits_until_it_has_stopped(slow_stop):
    """The window closes by its time on another thread while the block ends, or the code starts a profiler itself."""
    close, may_stop = slow_stop
    with profnb.profile() as p:
        custom_loop(2)
        close()
        threading.Timer(0.2, may_stop.set).start()
    assert p.has_trace
    assert len(p.steps) > 0
    assert not any("of its own" in note for note in p.notes)


def test_a_stop_that_never_ends_on_another_thread_does_not_hold_the_code(monkeypatch, slow_stop):
    monkeypatch.setattr(window, "_LONGEST_STOP_S", 0.05)
    close, may_stop = slow_stop
    with profnb.profile() as p:
        custom_loop(2)
        close()
    assert not p.has_trace
    assert sum("had not started or stopped" in note for note in p.notes) == 1
    may_stop.set()
    until = time.monotonic() + 60
    while profiler_v2._profiler is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert profiler_v2._profiler is None


def test_a_copy_of_a_watched_function_is_the_function_by_its_name():
    plain = tf.profiler.experimental.start
    with profnb.profile():
        held = tf.profiler.experimental.start
        assert inspect.isfunction(held) and inspect.unwrap(held) is plain
        assert inspect.signature(held) == inspect.signature(plain)
        assert held is copy.copy(held) is copy.deepcopy(held) is pickle.loads(pickle.dumps(held))
        assert weakref.ref(held)() is held
        text = pickle.dumps(held)
    assert pickle.loads(text) is tf.profiler.experimental.start is plain
    with watched_call(custom_loop, hook_failed=print) as local:
        assert copy.copy(local) is copy.deepcopy(local) is local


def test_finders_of_imports_that_the_code_puts_back_are_its_own():
    before = sys.meta_path[:]
    with profnb.profile() as p:
        sys.meta_path[:] = before
        custom_loop(2)
    assert sys.meta_path == before
    assert len(p.steps) == 2
