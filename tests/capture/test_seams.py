"""Names of TensorFlow, Keras, IPython and Python that are gone: what hangs on them is lost, with a sentence, and no more."""

import re
import subprocess
import sys
import traceback

import numpy as np
import pytest
from seam_removal import assert_told, hide, is_missed, remove

import profnb
from profnb.capture.hooks import Library, explain_missing
from profnb.capture.models.model_watch import ModelWatch
from profnb.capture.seams import (
    DEFAULT_GRAPH,
    EXECUTING_EAGERLY,
    GRAPH_OPERATIONS,
    OP_HANDLE,
    RAW_RUN,
    SEAMS,
    SESSION_RUN,
    TRACE_METADATA,
    VERSION,
    Seam,
)
from profnb.magic.cell_runs import FailedCellError
from profnb.magics import load_magics, unload_magics
from profnb.report.progress import open_slot

tensorflow = pytest.mark.tensorflow
# Of JAX and PyTorch, test_seams_backends; of IPython, below.
OF_TENSORFLOW = [seam for seam in SEAMS if seam.module.partition(".")[0] not in ("jax", "torch", "IPython")]
OF_IPYTHON = [seam for seam in SEAMS if seam.module.startswith("IPython.")]


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def stop(tf):
    return tf.profiler.experimental.stop


def make_model():
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)])
    model.compile("sgd", "mse")
    return model


@pytest.fixture(scope="module")
def traced_model():
    return make_model()


def program(tf, model=None):
    """What a user's cell may do: a fit, and a loop over a tf.function. 4 batches of 8 ones, weights of 1: the loss is known."""
    model = model or make_model()
    x = np.zeros((32, 2), "float32")
    history = model.fit(x, np.full((32, 1), 3.0, "float32"), batch_size=8, verbose=0)

    @tf.function
    def double(x):
        return 2 * x

    total = 0.0
    for number in range(4):
        total += float(double(tf.constant(float(number))))
    return history.history["loss"], total


RESULT = [9.0], 12.0  # (0 - 3)^2, and 2 * (0 + 1 + 2 + 3)


def capture(tf, model=None):
    with profnb.profile() as p:
        result = program(tf, model)
    assert result == RESULT
    return p


def assert_nothing_runs(tf, stop):
    with pytest.raises(tf.errors.UnavailableError):
        stop(save=False)


@tensorflow
@pytest.mark.long
@pytest.mark.parametrize("seam", OF_TENSORFLOW, ids=lambda seam: seam.path)
def test_a_name_that_is_gone_costs_what_hangs_on_it_and_a_sentence(tf, stop, monkeypatch, seam, traced_model):
    pytest.importorskip("keras")
    # A model is made, compiled and traced anew only for what may be called then: it takes most of the time.
    model = None if re.search(r"keras:(?!callbacks|Model\.\w+_on_batch)|Graph|GradientTape|polymorphic", seam.path) else traced_model
    missed = is_missed(seam)
    with monkeypatch.context() as removing:
        p = None
        if missed and remove(removing, seam):
            try:
                p = capture(tf, model)
            except Exception as error:  # TensorFlow or Keras cannot do without it either
                with pytest.raises(type(error)):
                    program(tf, model)
    assert_nothing_runs(tf, stop)
    if p is None:
        with monkeypatch.context() as hiding:
            hide(hiding, seam)
            p = capture(tf, model)
        assert_nothing_runs(tf, stop)
    assert_told(p.notes, seam, is_missed=missed)


@pytest.fixture
def shell():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    shell.extension_manager.unload_extension("profnb")  # which another test may have loaded
    yield shell
    unload_magics(shell)


def works_alone(shell, capsys):
    """Whether IPython itself does without what was removed."""
    from IPython.core.magic import Magics, magics_class

    try:
        shell.register_magics(magics_class(type("Theirs", (Magics,), {}))(shell))
        is_fine = shell.run_cell("%%capture\nprint('theirs')").success and shell.run_cell("print('theirs')").success
        is_fine = is_fine and shell.run_cell("display({'text/plain': ''}, raw=True)").success and not shell.run_cell("1 / 0").success
    except Exception:
        return False
    out, err = capsys.readouterr()
    return is_fine and out.startswith("theirs\n") and "ZeroDivisionError" in out and "callback" not in out + err


@pytest.mark.versions
@pytest.mark.filterwarnings("ignore:coroutine 'InteractiveShell")  # IPython's own, of what it was about to run
@pytest.mark.parametrize("seam", OF_IPYTHON, ids=lambda seam: seam.path)
def test_a_name_of_ipythons_that_is_gone_leaves_cells_as_they_are(monkeypatch, shell, capsys, seam):
    missed = is_missed(seam)
    with monkeypatch.context() as removing:
        removing.setattr(sys, "stdout", sys.stdout)  # to be put back, should IPython stop half-way in taking it
        if not (missed and remove(removing, seam) and works_alone(shell, capsys)):
            removing.undo()
            hide(removing, seam)
        load_magics(shell)
        shell.user_ns["runs"] = []
        capsys.readouterr()
        assert shell.run_cell("%%tfprofile -q --repeat 2\nprint('mine')\nruns.append(1);").success
        out, err = capsys.readouterr()
        assert (set(out.splitlines()), err) == ({"mine"}, "")
        p = shell.user_ns["_tfprofile"]
        with removing.context() as kernel:
            kernel.setattr(shell, "kernel", object(), raising=False)
            kernel.setattr(shell.display_pub, "pub_socket", object(), raising=False)
            p.report(live=False)
            slot = open_slot()
            if slot is not None:
                slot.clear()
        out, err = capsys.readouterr()
        assert ("profnb" in out, err) == (True, "")
        assert isinstance(shell.run_cell("%%tfprofile -q\n1 / 0").error_in_exec, ZeroDivisionError | FailedCellError)
        out, err = capsys.readouterr()
        assert re.sub("\x1b[^m]*m", "", out).count("ZeroDivisionError: division by zero") == 1
        assert err == ""
        unload_magics(shell)
    assert_told(p.notes, seam, is_missed=missed)


def test_what_is_displayed_while_a_block_is_captured_is_no_missing_name(monkeypatch, shell):
    """There the shell has another publisher, without a socket."""
    from IPython.utils.capture import capture_output

    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    with capture_output(), profnb.profile() as p:
        pass
    assert not [note for note in p.notes if " hides " in note]


@pytest.mark.parametrize("stands_in", [None, type(sys)("IPython")], ids=["None", "a module of the code's own"])
def test_what_stands_in_for_ipython_has_no_names_to_be_missed(monkeypatch, stands_in):
    monkeypatch.setitem(sys.modules, "IPython", stands_in)
    for is_there in (True, False):
        for name in [name for name in sys.modules if name.startswith("IPython.") and not is_there]:
            monkeypatch.delitem(sys.modules, name)
        with profnb.profile() as p:
            pass
        assert not [note for note in p.notes if "could not" in note or (" hides " in note and not is_there)]


@tensorflow
@pytest.mark.parametrize("seam", [OP_HANDLE, GRAPH_OPERATIONS, RAW_RUN], ids=lambda seam: seam.path)
def test_a_name_that_queues_are_read_by_is_gone(tf, monkeypatch, seam):
    v1 = tf.compat.v1
    hide(monkeypatch, seam)
    with tf.Graph().as_default(), v1.Session() as session:
        queue = v1.FIFOQueue(8, [tf.float32], shapes=[()])
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(1.0)]))
        taken = queue.dequeue()
        with profnb.profile() as p:
            coordinator = v1.train.Coordinator()
            threads = v1.train.start_queue_runners(session, coordinator)
            assert [float(session.run(taken)) for _ in range(3)] == [1.0] * 3
            coordinator.request_stop()
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads)
    assert_told(p.notes, seam, is_missed=True)


@tensorflow
def test_all_names_gone_at_once_leave_the_code_as_it_is(tf, stop, monkeypatch):
    find, of = Seam.find, Seam.of
    with monkeypatch.context() as hiding:  # without a version an import is one that failed half-way
        hiding.setattr(Seam, "find", lambda self, *root: find(self, *root) if self is VERSION else None)
        hiding.setattr(Seam, "of", lambda self, thing, default=None: of(self, thing, default) if self is VERSION else default)
        p = capture(tf)
    assert_nothing_runs(tf, stop)
    assert [note for note in p.notes if "A hook of" in note] == []
    assert any(" hides " in note for note in p.notes)
    assert p.notes and not p.has_trace


@tensorflow
def test_nothing_is_missing_today(tf):
    pytest.importorskip("keras")
    assert not [note for note in capture(tf).notes if "hides" in note or "has changed" in note or "hook" in note]


@tensorflow
def test_metadata_that_takes_only_certain_names_costs_steps_of_functions_and_a_sentence(tf, stop, monkeypatch):
    def set_metadata(self, *, tf_function_call=None, tracing_count=None):
        pass

    monkeypatch.setattr(tf.profiler.experimental.Trace, "set_metadata", set_metadata)
    p = capture(tf)
    monkeypatch.undo()
    assert_nothing_runs(tf, stop)
    (sentence,) = [note for note in p.notes if "has changed" in note]
    assert sentence == (
        f"TensorFlow {tf.__version__} has changed profiler.experimental.Trace.set_metadata, so calls of a tf.function are no steps."
    )
    assert set(p.step_times.phase) == {"train"}


@tensorflow
@pytest.mark.hooks_fail
@pytest.mark.parametrize("name", [
    "open_steps.OpenSteps.begin", "open_steps.OpenSteps.record", "trace_events.TraceEvents._called",
    "step_recorder.KerasBatches._batch_began", "trace_events.TraceEvents._span_ended",
])
def test_a_fault_of_ours_in_a_hook_is_a_sentence_and_not_the_users(tf, stop, monkeypatch, name):
    def broken(*_, **__):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(f"profnb.capture.marking.{name}", broken)
    p = capture(tf)
    assert_nothing_runs(tf, stop)
    assert sum("profnb failed in a part (ZeroDivisionError: ours)" in note for note in p.notes) == 1


@tensorflow
@pytest.mark.hooks_fail
def test_a_fault_of_ours_as_a_called_model_is_kept_is_a_sentence(tf, monkeypatch):
    keras = pytest.importorskip("keras")

    def broken(*_, **__):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(ModelWatch, "_keep", broken)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    call = tf.function(model)
    with profnb.profile() as p:
        assert call(tf.ones((2, 4))).shape == (2, 2)
    assert sum("profnb failed in a part (ZeroDivisionError: ours)" in note for note in p.notes) == 1


@tensorflow
@pytest.mark.hooks_fail  # given what no Trace takes
def test_no_entry_of_ours_stands_in_the_traceback_of_a_trace_event(tf):
    def entries(call):
        with pytest.raises(TypeError) as error:
            call()
        return [entry.name for entry in traceback.extract_tb(error.value.__traceback__)][1:]

    trace_type = tf.profiler.experimental.Trace
    calls = [lambda: trace_type(), lambda: trace_type("x").set_metadata(1), lambda: trace_type("x").__exit__()]  # noqa: PLW0108
    before = [entries(call) for call in calls]
    with profnb.profile():
        assert [entries(call) for call in calls] == before


@tensorflow
def test_hooks_that_somebody_wrapped_fall_silent_when_the_capture_ends(tf):
    @tf.function
    def f(x):
        return x + 1

    kind, original = type(f), vars(type(f))["__call__"]
    try:
        with profnb.profile() as p:
            f(tf.constant(1.0))
            ours = vars(kind)["__call__"]
            assert ours is not original
            kind.__call__ = lambda *a, _ours=ours, **k: _ours(*a, **k)
        for _ in range(3):
            f(tf.constant(1.0))
        assert len(p.recording.steps) == 1
    finally:
        kind.__call__ = original


def test_one_sentence_names_what_is_missing_and_what_that_costs():

    module = type(sys)("tensorflow")
    module.__version__ = "2.99.0"
    library = Library(module)
    library.missing, library.changed = [EXECUTING_EAGERLY, DEFAULT_GRAPH, SESSION_RUN], [TRACE_METADATA]
    assert explain_missing([library, Library(type(sys)("nothing"))]) == [
        "TensorFlow 2.99.0 hides executing_eagerly and compat and has changed profiler.experimental.Trace.set_metadata, so layers are "
        "told by the names of ops alone, session runs are not traced and calls of a tf.function are no steps."
    ]
    assert explain_missing([]) == []


def test_nobody_misses_what_another_version_has():
    ops, graph = Seam("keras:ops", ""), Seam("keras:Model.nodes", "layers have no order", only_with="keras:ops")
    older, newer, newest = (type(sys)("keras") for _ in range(3))
    newer.ops = newest.ops = True
    newest.Model = type("Model", (), {"nodes": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profnb.capture.hooks.SEAMS", (ops, graph))
        assert [Library(module).missing for module in (older, newer, newest)] == [[ops], [graph], []]


@tensorflow
def test_nothing_is_missing_in_tf_keras():
    assert Library(pytest.importorskip("tf_keras")).missing == []


def test_of_several_names_the_first_that_is_there_counts():
    seam = Seam("keras:Model.new|old", "nothing")
    assert seam.of(type("New", (), {"new": 1, "old": 2})) == 1
    assert seam.of(type("Old", (), {"old": 2})) == 2
    assert seam.of(object(), 3) == 3


def test_looking_names_up_imports_nothing():
    code = (
        "import sys; from profnb.capture.seams import SEAMS; [seam.find() for seam in SEAMS]; "
        "print([name for name in ('tensorflow', 'keras', 'IPython') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
