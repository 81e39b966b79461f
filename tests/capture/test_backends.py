"""Capturing Keras' work on JAX and PyTorch, and loops of their own: `KERAS_BACKEND=jax pytest tests/capture/test_backends.py`, or torch.

Each backend runs in an environment that has it; elsewhere all of this skips.
"""

import collections
import contextlib
import functools
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from types import ModuleType

import numpy as np
import pytest

BACKEND = os.environ.get("KERAS_BACKEND", "")
if BACKEND not in ("jax", "torch"):
    pytest.skip("KERAS_BACKEND is neither jax nor torch", allow_module_level=True)
pytest.importorskip(BACKEND)
keras = pytest.importorskip("keras")

from advised import advised, proposed
from diagnosis import BY_BACKEND, kept_profile
from diagnosis_frameworks import large_update
from diagnosis_kit import check_run
from made_times import by_made_times, plant

import profnb
from profnb.capture.parts import cell_counters
from profnb.core.options import CaptureOptions
from profnb.causes.reads import find_reads_beside_programs
from profnb.causes.compiled_again import find_compiled_again
from profnb.sweep import Sweep

pytestmark = pytest.mark.backend
TITLE = {"jax": "JAX", "torch": "PyTorch"}[BACKEND]
rng = np.random.default_rng(0)
X, Y = rng.random((128, 6)).astype("float32"), rng.integers(0, 3, 128)


def make_model(**settings):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, name="wide"), keras.layers.Dense(3, name="narrow")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
    return model


class Counter(keras.callbacks.Callback):
    """Counts what Keras itself says it does."""

    def __init__(self):
        super().__init__()
        self.train = self.test = 0

    def on_train_batch_end(self, batch, logs=None):
        self.train += 1

    def on_test_batch_end(self, batch, logs=None):
        self.test += 1


def fit(count=None, **settings):
    model = make_model()
    callbacks = [] if count is None else [count]
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, validation_data=(X[:24], Y[:24]), callbacks=callbacks, **settings)
    return history.history, [np.asarray(weight).tolist() for weight in model.get_weights()]


def phases(table):
    return table.phase.value_counts().to_dict()


def test_steps_are_those_that_keras_counts_and_results_are_the_same():
    plain = fit(Counter())
    count = Counter()
    with profnb.profile() as p:
        captured = fit(count)
    assert captured == plain
    assert phases(p.steps) == phases(p.step_times) == {"train": count.train, "test": count.test} == {"train": 32, "test": 6}
    assert p.study.program.framework == TITLE
    assert BACKEND != "jax" or (p.study.summary.batch_size == 8 and p.study.examples.sum() == 2 * 128 + 2 * 24)
    assert p.environment["Keras backend"] == BACKEND
    if BACKEND == "torch":  # 24 examples of validation are three batches
        assert set(p.study.examples.tolist()) == {p.study.summary.batch_size} == {8}
        assert p.study.summary.examples_per_second > 0
    assert not any("Keras runs on" in note or "did not start" in note or "A hook" in note or " hides " in note for note in p.notes)


def test_categories_add_up_and_ops_are_seen():
    with profnb.profile() as p:
        fit()
    assert p.steps.host_compute_ms.sum() > 0
    assert p.ops.occurrences.sum() > 32
    parts = p.steps[[column for column in p.steps if column.endswith("_ms") and column not in ("begin_ms", "duration_ms", "gap_ms")]]
    assert np.allclose(parts.sum(axis=1), p.steps.duration_ms, atol=1e-6)


@pytest.mark.skipif(BACKEND != "torch", reason="JAX's weights are held by the model alone")
def test_weights_and_what_an_optimizer_of_pytorchs_keeps_for_them_have_keras_layers():
    """One layer of 300 by 500 and one of 500 by 200, whose modules PyTorch numbers otherwise; the model is in no variable.

    The largest 500 holders are kept: what other tests left alive is smaller.
    """
    import torch

    from profnb.capture.memory.held_memory import find_held

    model = keras.Sequential([keras.Input((300,)), keras.layers.Dense(500, name="wide"), keras.layers.Dense(200, name="narrow")], name="mine")
    optimizer = torch.optim.Adam(list(model.parameters()))
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    sizes = {(one.kind, one.holder): one.bytes for one in find_held({}, ()) if one.holder.startswith("mine/")}
    wide, narrow = 4 * (301 * 500), 4 * (501 * 200)
    assert {key: size for key, size in sizes.items() if key[0] != "optimizer state"} == {
        ("weights", "mine/wide"): wide, ("gradients", "mine/wide"): wide, ("weights", "mine/narrow"): narrow, ("gradients", "mine/narrow"): narrow,
    }  # fmt: skip
    assert sizes["optimizer state", "mine/wide"] == 2 * wide + 2 * 4  # and how many steps there were, of kernel and bias


def test_the_window_is_bounded_and_later_steps_are_timed():
    with profnb.profile(max_steps=10) as p:
        fit()
    assert phases(p.steps) == {"train": 10}
    assert phases(p.step_times) == {"train": 32, "test": 6}
    assert p.step_times.was_traced.sum() == 10
    assert p.recording.closed_by == "steps"


def test_evaluate_predict_and_single_batches_are_steps():
    model = make_model()
    with profnb.profile() as p:
        model.evaluate(X, Y, batch_size=16, verbose=0)
        model.predict(X, batch_size=32, verbose=0)
        for at in range(3):
            model.train_on_batch(X[:8], Y[:8])
    assert phases(p.step_times) == {"test": 8, "predict": 4, "train": 3}


def test_a_batch_that_ends_the_data_is_no_step():
    def batches():
        for at in range(5):
            yield X[at * 8 : at * 8 + 8], Y[at * 8 : at * 8 + 8]

    model, count = make_model(), Counter()
    with pytest.warns(UserWarning, match="ran out of data"), profnb.profile() as p:
        model.fit(batches(), steps_per_epoch=9, verbose=0, callbacks=[count])
    assert phases(p.steps) == phases(p.step_times) == {"train": count.train} == {"train": 5}


class Fails(keras.callbacks.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        if batch == 5:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()], ids=["an error", "an interrupt"])
def test_an_exception_stays_the_users_and_what_was_captured_is_there(error):
    model = make_model()
    with pytest.raises(type(error)) as raised, profnb.profile() as p:
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[Fails(error)])
    assert raised.value is error
    assert phases(p.step_times) == {"train": 6}
    assert phases(p.steps) == {"train": 6}
    with profnb.profile() as p:  # nothing was left running
        model.evaluate(X, Y, batch_size=16, verbose=0)
    assert phases(p.steps) == {"test": 8}


def mine():
    raise ValueError("mine")


def interrupt_self():
    signal.raise_signal(signal.SIGINT)


class FailsInside(keras.layers.Layer):
    """Raises in one of its calls: on JAX as the step is traced, on PyTorch some steps later."""

    def __init__(self, act):
        super().__init__()
        self.act, self.left = act, {"jax": 3, "torch": 8}[BACKEND]

    def call(self, x):
        self.left -= 1
        if not self.left:
            self.act()
        return x


def failing(act, place):
    """What a fit leaves that fails in a layer's call or as a batch is fetched: steps, error, its frames, the model."""

    def batches():
        for at in range(8):
            if at == 5:
                act()
            yield X[at * 8 : at * 8 + 8], Y[at * 8 : at * 8 + 8]

    model, count = make_model(), Counter()
    with pytest.raises((ValueError, KeyboardInterrupt)) as raised:
        if place == "a layer":
            model = keras.Sequential([FailsInside(act), *model.layers])
            model.compile("adam", "sparse_categorical_crossentropy")
            model.fit(X, Y, batch_size=8, verbose=0, callbacks=[count])
        else:
            model.fit(batches(), verbose=0, callbacks=[count])
    error = raised.value
    try:
        weights = [np.asarray(weight).tolist() for weight in model.get_weights()]
    except Exception as broken:  # a fit on JAX that fails while it is traced takes the weights with it
        weights = repr(broken)
    frames = [(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    return count.train, type(error), str(error), repr(error.__cause__), repr(error.__context__), frames, weights


@pytest.mark.parametrize("place", ["a layer", "the data"])
@pytest.mark.parametrize("act", [mine, interrupt_self], ids=["an error", "an interrupt"])
def test_what_fails_inside_of_a_step_or_of_the_data_fails_as_without_us(act, place):
    plain = failing(act, place)
    with profnb.profile() as p:
        captured = failing(act, place)
    assert captured == plain
    assert phases(p.step_times).get("train", 0) == captured[0]
    assert (captured[0] == 0) == (BACKEND == "jax" and place == "a layer")
    assert not any("A hook" in note for note in p.notes)


@pytest.mark.parametrize("place", ["a layer", "the data"])
def test_a_step_that_failed_is_in_no_later_trace(place):
    with profnb.profile() as failed:
        failing(mine, place)
    with profnb.profile() as p:
        del failed  # with all that it began
        gc.collect()
        make_model().evaluate(X, Y, batch_size=16, verbose=0)
    assert phases(p.steps) == phases(p.step_times) == {"test": 8}


@pytest.fixture
def torch_sessions(monkeypatch):
    """The events of PyTorch's profiler that ended, or were forgotten, in another session than they began in.

    Such an event writes into what the profiler has freed.
    """
    import torch

    sessions, outlived = [0], []  # odd while one runs
    enable, disable = torch.autograd.profiler._enable_profiler, torch.autograd.profiler._disable_profiler
    kinds = {torch._C._profiler: "_RecordFunctionFast", torch.profiler: "record_function"}

    def began(*arguments, **keywords):
        sessions[0] += 1
        return enable(*arguments, **keywords)

    def ended():
        sessions[0] += 1
        return disable()

    def watched(kind):
        class Watched:
            def __init__(self, name):
                self.name, self.event, self.session = name, kind(name), 0

            def __enter__(self):
                self.session = sessions[0]
                return self.event.__enter__()

            def __exit__(self, *error):
                self.check()
                return self.event.__exit__(*error)

            def check(self):
                session, self.session = self.session, 0
                if session % 2 and session != sessions[0]:
                    outlived.append(self.name)

            __del__ = check

        return Watched

    monkeypatch.setattr(torch.autograd.profiler, "_enable_profiler", began)
    monkeypatch.setattr(torch.autograd.profiler, "_disable_profiler", ended)
    for owner, name in kinds.items():
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    yield outlived
    gc.collect()
    assert not outlived
    assert sessions[0] > 1
    assert not sessions[0] % 2


def raises_in_forward(torch):
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    model = torch.nn.Sequential(torch.nn.Linear(6, 8), Fails())
    for x, _ in torch.utils.data.DataLoader(torch_data(), batch_size=8):
        model(x)


def leaves_the_loop(torch):
    for _ in torch.utils.data.DataLoader(torch_data(), batch_size=8):
        raise ValueError("mine")


def leaves_a_marked_step(torch):
    with profnb.step(phase="train", step_num=0):
        torch.ones(3).sum()
        raise ValueError("mine")


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_starting_the_profiler_imports_no_compiler_which_the_code_may(monkeypatch):
    import torch

    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    monkeypatch.delattr(torch, "_inductor", raising=False)
    compiler, give, asked = ModuleType("torch._inductor"), vars(torch)["__getattr__"], []
    monkeypatch.setattr(torch, "__getattr__", lambda name: asked.append(name) or (compiler if name == "_inductor" else give(name)))
    with profnb.profile() as p:
        torch_loop()
        assert "_inductor" not in asked
        assert torch._inductor is compiler
    assert p.has_trace
    assert not hasattr(torch, "no_such_name")


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("fails", [raises_in_forward, leaves_the_loop, leaves_a_marked_step, failing])
def test_events_of_what_fails_end_with_their_session(torch_sessions, fails):
    import torch

    if fails is failing:
        with profnb.profile() as p:
            failing(mine, "a layer")
    else:
        with pytest.raises(ValueError, match="mine"), profnb.profile() as p:
            fails(torch)
        assert set(p.steps.phase) == set(p.step_times.phase) == {"window"}
    with profnb.profile() as later:
        torch_loop()
    assert phases(later.steps) == {"train": 20}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_events_end_before_a_profiler_of_the_codes_own_begins_inside_of_a_step(torch_sessions):
    import torch

    model = torch.nn.Linear(6, 1)
    optimizer, own = torch.optim.SGD(model.parameters(), 0.1), torch.profiler.profile()
    with profnb.profile() as p:
        for at, (x, _) in enumerate(torch.utils.data.DataLoader(torch_data(), batch_size=8)):
            if at == 5:
                own.start()
            model(x).mean().backward()
            optimizer.step()
        own.stop()
    assert phases(p.step_times) == {"train": 10}
    assert phases(p.steps) == {"train": 5}
    assert len(own.events()) > 10


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
def test_an_event_that_an_interrupt_left_half_begun_or_ended_ends_with_its_session(monkeypatch, torch_sessions, name):
    import torch

    kind = torch.profiler.record_function
    original, kept, interrupts = getattr(kind, name), [], []

    def interrupted(event, *arguments):
        if name == "__enter__":
            original(event)
        if event.name == "ProfilerStep#3" and not interrupts:
            kept.append(event)
            interrupts.append(name)
            raise KeyboardInterrupt
        return event if name == "__enter__" else original(event, *arguments)

    monkeypatch.setattr(kind, name, interrupted)
    with pytest.raises(KeyboardInterrupt) as left, profnb.profile():  # the exception keeps what was interrupted
        for number in range(6):
            with profnb.step(number):
                torch.ones(3).sum()
    with profnb.profile() as later:
        assert kept[0].session == 0 and left  # it has ended
        kept.clear()
        del left
        gc.collect()
        torch_loop()
    assert phases(later.steps) == {"train": 20}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("ends", ["inside of the capture", "after it"])
def test_a_profiler_of_the_codes_own_that_runs_already_keeps_what_it_records(ends):
    import torch

    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    own.start()
    with profnb.profile() as p:
        torch_loop()
        if ends == "inside of the capture":
            own.stop()
            torch_loop()
    if ends == "after it":
        own.stop()
    assert len(own.events()) > 100
    assert phases(p.step_times)["train"] >= 20
    with pytest.raises(profnb.CaptureError, match="another PyTorch profiler is running"):
        len(p.steps)
    with profnb.profile() as p:
        torch_loop()
    assert phases(p.steps) == {"train": 20}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("ends", ["inside of the capture", "after it"])
def test_a_profiler_of_the_codes_own_on_another_thread_takes_all_and_that_is_said(ends):
    """PyTorch 2.13 would have ended the process as ours stopped, or as the code's own did afterwards."""
    import torch

    seen = []
    began, may_end = threading.Event(), threading.Event()

    def elsewhere():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            torch.ones(3).sum()
            began.set()
            may_end.wait()
        seen.append(len(own.events()))

    thread = threading.Thread(target=elsewhere)

    def end():
        may_end.set()
        thread.join()

    with profnb.profile() as p:
        torch_loop()
        thread.start()
        began.wait()
        if ends == "inside of the capture":
            end()
        torch_loop()
    end()
    assert seen[0] > 0
    with pytest.raises(profnb.CaptureError, match="on another thread"):
        len(p.steps)
    with profnb.profile() as p:
        torch_loop()
    assert phases(p.steps) == {"train": 20}


def test_a_capture_that_is_open_as_python_exits_ends_with_it():
    runs = "torch.nn.Linear(3, 2)(torch.ones(2, 3))" if BACKEND == "torch" else "keras.Sequential([keras.layers.Dense(2)])(np.ones((2, 3), 'float32'))"
    code = f"""if True:
        import {"torch" if BACKEND == "torch" else "keras, numpy as np"}, profnb
        def left_open():
            with profnb.profile():
                {runs}
                yield
        waiting = left_open()
        next(waiting)
        print("{BACKEND} worked")
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{BACKEND} worked\n"), ran.stderr[-1000:]


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_a_marked_step_inside_of_a_marked_step_is_part_of_it():
    import torch

    with profnb.profile() as p:
        for number in range(4):
            with profnb.step(number):
                for inner in range(3):
                    with profnb.step(inner):
                        torch.ones(9, 9) @ torch.ones(9, 9)
    assert phases(p.steps) == phases(p.step_times) == {"train": 4}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("how", ["as a whole", "in place", "its inner one"])
def test_a_compiled_module_is_one_layer_by_its_own_name(how):
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU()))
    inner = net[1]
    if how == "in place":
        net.compile(backend="eager")
    elif how == "as a whole":
        net = torch.compile(net, backend="eager")
    else:
        net[1] = torch.compile(inner, backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with profnb.profile() as p:
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.ones(2, 6)).sum().backward()
            optimizer.step()
    table = p.layers.set_index("layer").drop(["optimizer", "outside the model"])
    expected = {"Sequential": 84} if how != "its inner one" else {"Sequential/0": 42, "Sequential/1": 42}
    assert (table.loc[list(expected), ["forward_us", "backward_us"]] > 0).all(axis=None)
    assert table.parameters[list(expected)].to_dict() == expected
    assert set(table.index) - {"Sequential"} == set(expected) - {"Sequential"}
    assert set(table.layer_type) <= {"Sequential", "Linear"}


@pytest.mark.parametrize("when", ["starts", "stops"])
def test_an_interrupt_while_a_profiler_starts_or_stops_leaves_none_running(monkeypatch, when):
    if BACKEND == "jax":
        import jax

        owner, name = jax.profiler, {"starts": "start_trace", "stops": "stop_trace"}[when]
    else:
        import torch

        owner, name = torch.profiler.profile, when.removesuffix("s")
    original, interrupts = getattr(owner, name), []

    @functools.wraps(original)
    def interrupted(*arguments, **keywords):
        interrupts.append(when)
        interrupt_self()
        return original(*arguments, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt), profnb.profile(max_steps=3):
            make_model().evaluate(X, Y, batch_size=16, verbose=0)
    assert interrupts == [when]
    with profnb.profile() as p:
        make_model().evaluate(X, Y, batch_size=16, verbose=0)
    assert phases(p.steps) == {"test": 8}
    assert not any("did not start" in note for note in p.notes)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
@pytest.mark.parametrize("start", ["jax.profiler.start_trace", "held[0]"])
def test_a_jax_profiler_of_the_codes_own_may_be_the_first_of_jax(tmp_path, start):
    """It sets up JAX's devices inside of its lock, where ours would start."""
    script = (
        "import jax, profnb\n"
        "held = [jax.profiler.start_trace]\n"
        "with profnb.profile() as p:\n"
        f"    {start}({str(tmp_path)!r})\n"
        "    (jax.numpy.ones(3) + 1).block_until_ready()\n"
        "    jax.profiler.stop_trace()\n"
        "print(*p.notes, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert "profiler before profnb's. So JAX's steps are timed here, and not traced" in done.stdout, done.stderr
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_of_a_jax_profiler_after_jaxs_set_up_it_is_said_that_ours_ended(tmp_path):
    import jax

    jax.numpy.ones(3).block_until_ready()
    with profnb.profile() as p:
        jax.profiler.start_trace(str(tmp_path))
        jax.profiler.stop_trace()
    with profnb.profile(backend="pytorch") as q:
        jax.profiler.start_trace(str(tmp_path))
        jax.profiler.stop_trace()
    assert [note.split(" itself")[0] for note in p.recording.messages] == ["Your code ran JAX's profiler"]
    assert not any("JAX profiler" in note for note in q.recording.messages)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_a_capture_ends_though_what_jax_computes_waits_for_the_code(monkeypatch):
    import jax

    from profnb.capture.profiler import jax_door

    may_go = threading.Event()

    def wait(x):
        assert may_go.wait(120)
        return np.asarray(x) * 2

    @jax.jit
    def grow(x):
        return jax.lax.fori_loop(0, 1000, lambda _, a: a @ a / 100, x)  # a second or so

    @jax.jit
    def ask(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((300, 300), np.float32), x) + 1

    x = jax.numpy.ones((300, 300))
    may_go.set()
    ask(grow(x)).block_until_ready()
    may_go.clear()
    monkeypatch.setattr(jax_door, "_PATIENCE_S", 0.5)
    with profnb.profile() as p:
        y = ask(grow(x))  # what it needs is not there yet, so JAX computes it on a thread of its own
    may_go.set()
    assert y.block_until_ready().shape == (300, 300)
    assert p.has_trace


def test_nothing_is_printed(capfd):
    with profnb.profile():
        fit()
    assert capfd.readouterr() == ("", "")


def test_a_kept_trace_opens_again(tmp_path):
    with profnb.profile(logdir=str(tmp_path)) as p:
        fit()
    q = profnb.load(tmp_path)
    assert phases(q.steps) == phases(p.steps)
    assert phases(q.step_times) == phases(p.step_times)


def test_a_sweeps_run_in_a_fresh_process_brings_its_trace_back():
    body = (
        "import keras, numpy as np\n"
        "model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((40, 6)), np.ones((40, 1)), batch_size=8, verbose=0)"
    )
    sweep = Sweep([{"backend": BACKEND}])
    sweep.run_in_fresh_process(0, CaptureOptions(max_steps=3), body)
    assert sweep.errors == [""]
    p = sweep.profiles[0]
    assert p.study.program.framework == TITLE
    assert (phases(p.steps), phases(p.step_times)) == ({"train": 3}, {"train": 5})


def test_a_forced_backend_is_the_only_one():
    with profnb.profile(backend="tensorflow") as p:
        fit()
    assert not p.has_trace or p.study.program.framework != TITLE  # Keras itself may import TensorFlow
    assert phases(p.step_times) == {"train": 32, "test": 6}


def test_words_are_of_the_framework():
    with profnb.profile() as p:
        fit()
    for word in ("tf.function", "TensorFlow ran", "tf.profiler"):
        assert word not in p.summary()
    assert all(word not in advice.code + advice.evidence for advice in p.advice for word in ("tf.function", "lax.scan", "steps_per_execution"))


def test_hooks_are_gone_afterwards():
    own = dict(vars(keras.Model)), dict(vars(keras.callbacks.CallbackList))
    with profnb.profile():
        fit()
    assert (dict(vars(keras.Model)), dict(vars(keras.callbacks.CallbackList))) == own


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_code_may_still_choose_jaxs_devices_after_importing_it():
    code = (
        "import profnb\n"
        "with profnb.profile() as p:\n"
        "    import jax\n"
        "    jax.config.update('jax_num_cpu_devices', 3)\n"
        "    step = jax.jit(lambda x: x * 2 + 1)\n"
        "    x = 1.0\n"
        "    for _ in range(30): x = step(x)\n"
        "    x.block_until_ready()\n"
        "print(len(jax.devices()), p.has_trace, len(p.steps))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() in (["3", "True", "29"], ["3", "True", "30"])  # the first call sets the devices up


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_a_jax_trace_of_the_codes_own_takes_over_and_is_complete(tmp_path):
    import jax

    model = make_model()
    with profnb.profile() as p:
        model.evaluate(X, Y, batch_size=16, verbose=0)
        with jax.profiler.trace(str(tmp_path)):
            model.evaluate(X, Y, batch_size=16, verbose=0)
    (trace,) = tmp_path.rglob("*.xplane.pb")
    assert b"PjitFunction" in trace.read_bytes() and b"profnb_marker" not in trace.read_bytes()  # it is the code's alone
    assert p.recording.closed_by == "the code"
    assert any("JAX's profiler itself" in note for note in p.notes)
    assert phases(p.steps) == {"test": 8}
    assert phases(p.step_times) == {"test": 16}


@pytest.mark.skipif(BACKEND != "jax", reason="JAX computes behind Python")
def test_training_in_flight_as_an_epoch_ends_is_charged_to_training(clock, monkeypatch):
    """What is in flight as training ends is computed 60 ms into the validation, which takes 9 ms more and leaves nothing in flight."""
    flights, is_training = [], [True]

    class Flight:
        def __init__(self, array):
            self.ended_ns = None if is_training[0] else clock.now_ns
            flights.append(self)

    class Slow(keras.Sequential):
        def make_test_function(self, *arguments, **settings):
            super().make_test_function(*arguments, **settings)
            if not isinstance(self.test_function, functools.partial):
                self.test_function = functools.partial(validate, self.test_function)

    def validate(function, *arguments):
        is_training[0] = False
        clock.work(60)
        for flight in flights:
            flight.ended_ns = flight.ended_ns or clock.now_ns
        clock.work(9)
        return function(*arguments)

    monkeypatch.setattr(cell_counters, "InFlight", Flight)
    monkeypatch.setattr(cell_counters, "is_in_flight", lambda array: True)
    model = Slow(make_model().layers)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    trains = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: is_training.__setitem__(0, True))

    def fit():
        model.fit(X, Y, batch_size=8, epochs=3, verbose=0, validation_data=(X[:8], Y[:8]), callbacks=[trains])

    fit()
    with profnb.profile() as p:
        fit()
        model.evaluate(X[:8], Y[:8], verbose=0)
    parts = {(part.part, part.name): part for part in p.recording.cell.parts if part.part != "profnb"}
    took = {key: part.wall_ns / 1e6 for key, part in parts.items() if part.wall_ns}
    assert took == {("train steps", "fit"): 3 * 60, ("validation steps", "fit"): 3 * 9, ("evaluation steps", "evaluate"): 69}
    assert [parts[key].occurrences for key in took] == [48, 3, 1]
    assert "validation" not in {advice.rule for advice in p.advice}


def large_model():
    model = keras.Sequential([keras.layers.Input((512,)), keras.layers.Dense(1024), keras.layers.Dense(1024), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.skipif(BACKEND != "jax", reason="JAX computes behind Python")
def test_training_that_really_is_in_flight_as_epochs_end_is_in_no_sum_twice():
    model, x, y = large_model(), rng.random((16 * 64, 512)).astype("float32"), rng.integers(0, 3, 16 * 64)
    model.fit(x, y, batch_size=64, verbose=0, validation_data=(x[:64], y[:64]))
    with profnb.profile() as p:
        model.fit(x, y, batch_size=64, epochs=3, verbose=0, validation_data=(x[:64], y[:64]))
        model.evaluate(x, y, batch_size=64, verbose=0)
    cell = p.recording.cell
    assert sum(part.wall_ns for part in cell.parts) == cell.wall_ns and all(part.wall_ns >= 0 for part in cell.parts)
    steps = {"train": "train steps", "validation": "validation steps", "test": "evaluation steps"}
    counted = collections.Counter()
    for part in cell.parts:
        if part.name in ("fit", "evaluate"):
            counted[part.part] += part.occurrences
        elif part.part == "slow first steps":  # which runs have one, the clock says
            counted[steps[part.name]] += part.occurrences
    assert [counted[part] for part in steps.values()] == [48, 3, 16]
    assert not any("A hook" in note for note in p.notes)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_the_models_state_is_made_whole_as_often_as_without_us():
    """Keras does it for whoever asks callbacks for their model, which takes as long as a small step."""

    class Counting(keras.Sequential):
        times = 0

        def jax_state_sync(self):
            Counting.times += 1
            super().jax_state_sync()

    def count():
        model, Counting.times = Counting(make_model().layers), 0
        model.compile("adam", "mse")
        model.fit(X, np.ones((128, 3)), batch_size=8, epochs=2, verbose=0, validation_data=(X[:24], np.ones((24, 3))))
        return Counting.times

    plain = count()
    with profnb.profile(max_steps=10):
        captured = count()
    assert captured == plain > 0


@pytest.mark.skipif(BACKEND != "jax", reason="TensorFlow feeds JAX")
def test_tf_data_that_feeds_jax_is_recorded_by_its_own_profiler_beside_jaxs():
    tf = pytest.importorskip("tensorflow")

    def fed():
        model = make_model()  # and the seed
        data = tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x * 2, y)).shuffle(64, seed=1).batch(8).prefetch(1)
        history = model.fit(data, epochs=2, verbose=0, validation_data=data.take(3)).history
        return history, [np.asarray(weight).tolist() for weight in model.get_weights()]

    plain = fed()
    with profnb.profile() as p:
        captured = fed()
    assert captured == plain
    assert p.study.program.framework == "JAX"
    assert phases(p.steps) == phases(p.step_times) == {"train": 32, "test": 6}
    assert {"Shuffle", "Prefetch"} <= set(p.input_pipeline.kind)  # TensorFlow's
    assert "jit_train_step" in set(p.xla_modules.module)  # JAX's
    assert not any("A hook" in note for note in p.notes)


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_a_torch_profiler_of_the_codes_own_takes_over_and_is_complete():
    import torch

    model = make_model()
    with profnb.profile() as p:
        model.evaluate(X, Y, batch_size=16, verbose=0)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            model.evaluate(X, Y, batch_size=16, verbose=0)
    assert len(own.events()) > 10
    assert p.recording.closed_by == "the code"
    assert phases(p.steps) == {"test": 8}
    assert phases(p.step_times) == {"test": 16}


def three_programs():
    """A Sequential CNN, a functional model with a shared layer, a Transformer block; each with its input's shape."""
    layers = keras.layers
    cnn = [layers.Input((8, 8, 3)), layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="bn"), layers.Flatten(name="flat")]
    yield keras.Sequential([*cnn, layers.Dense(3, name="out")], name="cnn"), (8, 8, 3)
    x, twice = layers.Input((6,)), layers.Dense(6, activation="relu", name="twice")
    joined = layers.Concatenate(name="cat")([twice(twice(x)), layers.Dense(8, name="side")(x)])
    yield keras.Model(x, layers.Dense(3, name="out")(joined), name="shared"), (6,)
    x = layers.Input((5, 8))
    h = layers.LayerNormalization(name="norm")(layers.Add(name="add")([x, layers.MultiHeadAttention(2, 4, name="attn")(x, x)]))
    h = layers.GlobalAveragePooling1D(name="pool")(layers.Dense(8, name="down")(layers.Dense(16, activation="gelu", name="up")(h)))
    yield keras.Model(x, layers.Dense(3, name="out")(h), name="block"), (5, 8)


# Layers with weights; those that run forward and backward on every backend.
WITH_WEIGHTS = {
    "cnn": {"conv", "bn", "out"},
    "shared": {"twice", "side", "out"},
    "block": {"attn/query", "attn/key", "attn/value", "attn/attention_output", "norm", "up", "down", "out"},
}


@pytest.mark.parametrize("number", range(3), ids=list(WITH_WEIGHTS))
def test_layers_have_the_same_names_and_parameters_everywhere(number):
    model, shape = list(three_programs())[number]
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    data = np.random.default_rng(0).random((32, *shape)).astype("float32"), np.arange(32) % 3
    with profnb.profile() as p:
        model.fit(*data, batch_size=8, epochs=3, verbose=0)
    table = p.layers.set_index("layer")
    assert table.parameters.sum() == model.count_params()
    ran = table[(table.forward_us > 0) & (table.backward_us > 0) & (table.parameters > 0)]
    assert {f"{model.name}/{name}" for name in WITH_WEIGHTS[model.name]} == set(ran.index)
    assert {"loss", "optimizer"} <= set(table.index[table.total_us > 0])
    if number == 1:
        assert table.is_shared[f"{model.name}/twice"]
    # By what is counted, not by its time: a program of XLA's copies a lot outside of its layers, and computes next to nothing there.
    outside = table.loc[["outside the model"]].sum()
    if BACKEND == "jax":
        assert outside.flops_forward < 0.1 * (table.flops_forward + table.flops_backward).sum()
    else:
        assert outside.occurrences < 0.1 * table.occurrences.sum()


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_modules_are_layers_by_their_names_and_results_stay():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU())
            self.head = torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.body(self.body(x)))

    def train():
        torch.manual_seed(0)
        net, loss_of = Net(), torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = loss_of(net(torch.randn(8, 6)), torch.arange(8) % 3)
            loss.backward()
            optimizer.step()
        return loss.item()

    plain, call = train(), torch.nn.Module.__call__
    with profnb.profile() as p:
        captured = train()
    assert captured == plain
    assert torch.nn.Module.__call__ is call
    table = p.layers.set_index("layer")
    assert table.parameters.dropna().to_dict() == {"Net": 0, "Net/body": 0, "Net/body/0": 42, "Net/body/1": 0, "Net/head": 21}
    assert set(table.index[(table.forward_us > 0) & (table.backward_us > 0)]) >= {"Net/body/0", "Net/body/1", "Net/head", "loss"}
    assert table.update_us["optimizer"] > 0
    assert table.is_shared["Net/body/0"] and not table.is_shared["Net/head"]


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize(("learned", "is_said"), [(1, True), (64, False)], ids=["example by example", "acts on one, learns from many"])
def test_the_largest_batch_that_a_model_was_called_with_is_that_of_its_steps(learned, is_said):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with profnb.profile() as p:
        for _ in range(300):
            with torch.no_grad():
                model(torch.ones(1, 4, dtype=torch.float64))
            optimizer.zero_grad()
            model(torch.ones(learned, 4, dtype=torch.float64)).sum().backward()
            optimizer.step()
    layers = p.study.recording.models[0].layers
    assert layers[0].input_shapes == ((learned, 4),) and {layer.width for layer in layers} == {"64-bit"}
    told = [one.evidence for one in p.advice if one.rule == "larger-batch"]
    assert bool(told) == is_said, [(one.rule, one.evidence) for one in p.advice]


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("is_late", [True, False], ids=["behind the forward", "before the forward"])
def test_a_step_holds_the_forward_wherever_zero_grad_stands(is_late):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with profnb.profile(max_steps=4) as p:
        for _ in range(9):
            with torch.no_grad():
                model(torch.ones(1, 4))
            if not is_late:
                optimizer.zero_grad()
            loss = model(torch.ones(64, 4)).sum()
            if is_late:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert len(p.step_times) == (8 if is_late else 9)  # the first one began before anything told of it
    assert p.layers.set_index("layer").forward_us["Sequential/0"] > 0


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_ops_of_a_torch_loop_are_found_at_the_lines_that_run_them(tmp_path):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = torch.nn.Linear(6, 8)

        def forward(self, x):
            h = self.wide(x)
            return torch.tanh(h).sum(1)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    # PyTorch's stacks tell lines too, before Python 3.12 only they do
    with profnb.profile(python_tracer=sys.version_info < (3, 12), logdir=str(tmp_path)) as p:
        for _ in range(12):
            optimizer.zero_grad()
            out = net(torch.ones(8, 6))
            loss = torch.nn.functional.mse_loss(out, torch.zeros(8))
            loss.backward()
            optimizer.step()
    if sys.version_info < (3, 12) and not len(p.study.trace.stats.texts("CallFrom")):
        pytest.skip("stacks of this PyTorch do not tell who called: a function's first line stands for all of it")
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    for whole in (p.source_lines, profnb.load(tmp_path).source_lines):
        table = whole[whole.file.str.endswith("test_backends.py")]
        ran = {lines[row.line - 1].strip(): row for row in table.itertuples() if row.host_us > 0 or row.gradient_us > 0}
        for text in ("h = self.wide(x)", "return torch.tanh(h).sum(1)", "loss = torch.nn.functional.mse_loss(out, torch.zeros(8))"):
            assert ran[text].forward_us > 0 and ran[text].backward_us > 0, text
        assert ran["optimizer.step()"].host_us > 0 and ran["optimizer.step()"].backward_us == 0
        asked = ran["loss.backward()"].gradient_us
        assert asked == pytest.approx(table.backward_us.sum() - ran["loss.backward()"].backward_us)
        assert sum(row.op_occurrences for row in ran.values()) > 0.9 * whole.op_occurrences.sum()  # p.ops has steps that stand aside, too


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_ops_of_keras_layers_on_torch_are_found_at_the_lines_that_made_them():
    model = keras.Sequential([
        keras.layers.Input((6,)),
        keras.layers.Dense(9, name="nine"),
        keras.layers.Dense(3, name="three"),
    ])  # fmt: skip
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with profnb.profile() as p:
        model.fit(X, Y, batch_size=8, verbose=0)
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    table = p.source_lines[p.source_lines.file.str.endswith("test_backends.py")]
    ran = {lines[row.line - 1].strip(): row for row in table.itertuples()}
    for text in ('keras.layers.Dense(9, name="nine"),', 'keras.layers.Dense(3, name="three"),'):
        assert ran[text].forward_us > 0 and ran[text].backward_us > 0, text


def compiled_loop(what):
    """Something to compile, and a loop over what came of it, whose batches have three sizes."""
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU())
    optimizer = torch.optim.Adam(net.parameters(), 0.1)

    def forward(x):
        return net(x).sum()

    def forward_in_pieces(x):
        y = net(x)
        torch._dynamo.graph_break()
        return net(y).sum()

    def train(x, loss_of=forward):
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        optimizer.step()
        return loss.item()

    def step():
        optimizer.step()

    settings = {"backend": "eager", "dynamic": False}
    made = {
        "a module": lambda: torch.compile(net, **settings),
        "its method": lambda: torch.compile(net.forward, **settings),
        "a function in pieces": lambda: torch.compile(forward_in_pieces, **settings),
        "a step": lambda: torch.compile(train, **settings),
        "an optimizer": lambda: torch.compile(step, **settings),
    }[what]

    def loop(compiled):
        calls = {"a step": compiled, "an optimizer": lambda x: (train(x), compiled())[0]}
        call = calls.get(what, lambda x: train(x, lambda x: compiled(x).sum()))
        return [call(torch.full((4 + at % 3, 6), 0.1 * at)) for at in range(6)]

    return made, loop


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("when", ["in the cell", "before", "and run before"])
@pytest.mark.parametrize("what", ["a module", "its method", "a function in pieces", "a step", "an optimizer"])
def test_what_torch_compiles_is_compiled_as_without_us(what, when):
    """As often, in as many pieces, into the same graphs; behind the capture nothing is compiled anew."""
    import torch
    from torch._dynamo.utils import counters

    def train(capture):
        torch._dynamo.reset()
        counters.clear()
        made, loop = compiled_loop(what)
        compiled = None if when == "in the cell" else made()
        losses = [loop(compiled)] if when == "and run before" else []
        with capture():
            losses += [loop(compiled := compiled or made())]
        counts = [dict(counters["stats"]), dict(counters["graph_break"])]
        losses += [loop(compiled)]
        return losses, counts, dict(counters["stats"]), dict(counters["graph_break"])

    plain = train(contextlib.nullcontext)
    assert plain[2]["unique_graphs"] > 0
    assert train(profnb.profile) == plain


# One planted cause each, or none, as in diagnosis.py: what must be said, and what must not.


def wait(clock):
    """Wait 30 ms in which nothing is computed, of a clock that stands still but for that."""
    if BACKEND == "jax":
        import jax

        for array in jax.live_arrays():
            array.block_until_ready()
        annotation = jax.profiler.TraceAnnotation
    else:
        import torch

        annotation = torch.profiler.record_function
    plant(clock, annotation)


class SlowData(keras.utils.PyDataset):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def __len__(self):
        return 20

    def __getitem__(self, at):
        wait(self.clock)
        return X[:8], Y[:8]


class SlowCallback(keras.callbacks.Callback):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_batch_end(self, batch, logs=None):
        wait(self.clock)


def slow_generator(clock):
    while True:
        wait(clock)
        yield X[:8], Y[:8]


def of_many_shapes():
    for at in range(30):
        yield X[: 4 + at % 8], Y[: 4 + at % 8]


def said(run, **lasting_ms):
    """The advice on a real run by made times."""
    return advised(study_of(run, **lasting_ms))


def study_of(run, **lasting_ms):
    with profnb.profile(max_seconds=300) as p:
        run()
    assert not any("A hook" in note for note in p.notes)
    return by_made_times(p, **lasting_ms)


@pytest.mark.parametrize("source", ["a PyDataset", "a generator"])
def test_slow_input_is_blamed_first_and_in_keras_words(source, clock):
    data, settings = (SlowData(clock), {}) if source == "a PyDataset" else (slow_generator(clock), {"steps_per_epoch": 20})
    advice = said(lambda: make_model().fit(data, verbose=0, **settings))
    assert next(iter(advice)) == "waiting-for-input"
    assert advice["waiting-for-input"].bound_fraction > 0.85
    assert "PyDataset" in advice["waiting-for-input"].code
    assert "DataLoader" not in advice["waiting-for-input"].code


def test_a_slow_callback_is_blamed_by_name_and_input_is_not(clock):
    with profnb.profile(max_seconds=300) as p:
        make_model().fit(X, Y, batch_size=8, verbose=0, callbacks=[SlowCallback(clock)])
    advice = advised(by_made_times(p))
    assert next(iter(advice)) == "callback"
    assert advice["callback"].bound_fraction > 0.9
    assert "SlowCallback.on_train_batch_end" in advice["callback"].title
    assert "waiting-for-input" not in advice


@pytest.mark.skipif(BACKEND != "jax", reason="XLA compiles on JAX only")
def test_shapes_that_change_are_blamed_for_compiling_and_steady_ones_are_not():
    again = find_compiled_again(study_of(lambda: make_model().fit(of_many_shapes(), verbose=0)))
    assert "argument" in again.why and "several shapes" in again.why
    assert find_compiled_again(study_of(fit)) is None  # though Keras itself fills arrays of three shapes, op by op


def test_arrays_in_memory_are_not_blamed():
    assert "waiting-for-input" not in said(lambda: make_model().fit(X, Y, batch_size=8, verbose=0))


# The diagnosis benchmark's programs of this backend; what is said of them as they were recorded is in test_diagnosis.py.


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", BY_BACKEND[BACKEND], ids=lambda program: program.name)
def test_a_run_today_is_seen_as_the_recorded_one_was_and_nothing_is_said_that_no_clock_makes_true(program):
    check_run(program, kept_profile(BACKEND, program))


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_reading_the_loss_is_blamed_where_python_could_go_on_meanwhile(clock):
    """Reading takes 20 ms, and Python 30."""
    import jax

    update, start, x = large_update(400)

    def loop(reads):
        w = start
        for _ in range(15):
            w, loss = update(w, x)
            if reads:
                float(loss)
            plant(clock, jax.profiler.TraceAnnotation)
        w.block_until_ready()

    loop(True)
    study = study_of(lambda: loop(True), **{"np.asarray(jax.Array)": 20})
    assert find_reads_beside_programs(study)[1] == pytest.approx(20 / 50, abs=0.02)
    assert "float(loss)" in proposed(study)["synchronising-reads"].code
    assert "synchronising-reads" not in proposed(study_of(lambda: loop(False)))


# Loops of one's own.


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_a_window_that_closes_while_jax_still_computes_holds_all_that_its_steps_started():
    update, w, x = large_update(400)
    for _ in range(2):  # the second time all is compiled
        with profnb.profile() as p:
            for at in range(12):
                with profnb.step(at):
                    w, _ = update(w, x)
    products = p.ops[p.ops.op_type == "dot_general"]
    assert products.occurrences.sum() == 4 * 12


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
@pytest.mark.parametrize("reads", [False, True])
def test_calls_of_a_jit_function_are_steps_and_markers_are_better_ones(reads):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def update(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

    def loop(mark):
        w = jnp.ones((6, 3))
        for at in range(20):
            with mark(at):
                w = update(w, X)
                if reads:
                    float(w.sum())
        return w.block_until_ready()

    from contextlib import nullcontext

    plain = loop(lambda at: nullcontext())
    with profnb.profile() as p:
        unmarked = loop(lambda at: nullcontext())
    with profnb.profile() as q:
        marked = loop(profnb.step)
    assert (np.asarray(plain) == np.asarray(unmarked)).all() and (np.asarray(plain) == np.asarray(marked)).all()
    assert len(p.steps) == 20
    assert phases(q.steps) == phases(q.step_times) == {"train": 20}
    assert q.steps.step_num.tolist() == list(range(20))


def torch_data(clock=None, count=80):
    import torch

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return count

        def __getitem__(self, at):
            if clock is not None:
                wait(clock)
            return torch.full((6,), float(at)), at % 3

    return Rows()


def torch_loop(clock=None, workers=0, zero="first", validates=False):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer, loss_of = torch.optim.Adam(model.parameters()), torch.nn.CrossEntropyLoss()
    count = 0
    for _ in range(2):
        for x, y in torch.utils.data.DataLoader(torch_data(clock), batch_size=8, num_workers=workers):
            if zero == "first":
                optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            if zero == "last":
                optimizer.zero_grad()
            count += 1
        if validates:
            with torch.no_grad():
                for x, y in torch.utils.data.DataLoader(torch_data(count=24), batch_size=8):
                    model(x)
    return count, loss.item()


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("settings", [{}, {"zero": "last"}, {"validates": True}, {"workers": 2}], ids=str)
def test_a_torch_loop_has_a_step_for_each_of_the_optimizers(settings):
    plain = torch_loop(**settings)
    with profnb.profile(max_steps=15) as p:
        captured = torch_loop(**settings)
    assert captured == plain
    assert phases(p.step_times) == {"train": captured[0]} == {"train": 20}
    assert phases(p.steps) == {"train": 15}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_a_step_took_the_batches_of_its_loader_since_the_step_before():
    """Five batches of 8 and one of 4; gradients of two are summed; validation, by a loader of its own, is not training."""
    import torch

    model = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.TensorDataset(torch.ones(44, 6))
    with profnb.profile() as p:
        for _ in range(2):
            for at, (x,) in enumerate(torch.utils.data.DataLoader(data, batch_size=8)):
                model(x).mean().backward()
                if at % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            for (x,) in torch.utils.data.DataLoader(data, batch_size=11):
                model(x)
    assert p.study.examples.tolist() == [16, 16, 12, 16, 16, 12]
    assert p.study.summary.batch_size == 16


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_two_optimizers_that_take_turns_make_one_step():
    import torch

    one, two = (torch.nn.Linear(6, 1) for _ in range(2))
    first, second = (torch.optim.SGD(model.parameters(), 0.1) for model in (one, two))
    with profnb.profile() as p:
        for x, _ in torch.utils.data.DataLoader(torch_data(), batch_size=8):
            for model, optimizer in ((one, first), (two, second)):
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
    assert phases(p.steps) == phases(p.step_times) == {"train": 10}


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_a_dataloader_without_workers_is_blamed_where_it_is_slow_and_only_there(clock):
    advice = said(lambda: torch_loop(clock))
    assert next(iter(advice)) == "waiting-for-input"
    assert "has no workers" in advice["waiting-for-input"].evidence and "num_workers" in advice["waiting-for-input"].code

    import torch

    model = torch.nn.Linear(400, 400)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)

    def computes():
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.ones(2000, 400)).sum().backward()
            optimizer.step()

    assert "waiting-for-input" not in said(computes)


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
def test_steps_marked_by_hand_are_the_steps():
    import torch

    with profnb.profile() as p:
        for at in range(7):
            with profnb.step(at + 5, "turn"):
                torch.ones(50, 50) @ torch.ones(50, 50)
    assert phases(p.steps) == phases(p.step_times) == {"turn": 7}
    assert p.steps.step_num.tolist() == list(range(5, 12))


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
@pytest.mark.parametrize("is_written_out", [True, False], ids=["written out", "scanned"])
def test_a_loop_that_jax_traced_turn_by_turn_is_to_be_scanned(is_written_out):
    import jax
    import jax.numpy as jnp

    def turn(h, x):
        return jnp.tanh(h @ jnp.eye(24) * 0.5 + x), None

    def net(h, xs):
        if is_written_out:
            for x in xs:
                h, _ = turn(h, x)
            return h.sum()
        return jax.lax.scan(turn, h, xs)[0].sum()

    step = jax.jit(jax.value_and_grad(net))
    with profnb.profile() as p:
        for _ in range(6):
            step(jnp.ones((8, 24)), jnp.ones((60, 8, 24)))[0].block_until_ready()
    found = {one.rule: one for one in p.advice}
    assert ("loop-of-ops" in found) is is_written_out
    if is_written_out:
        assert found["loop-of-ops"].where.startswith("capture/test_backends.py:")
