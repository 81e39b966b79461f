"""Cells of a real shell whose edits are tried: what they leave behind is what one run leaves."""

import linecache

import numpy as np
import pytest
from test_trials import Edit

import profnb
from profnb.compare import trial_section
from profnb.forecast.kept_state import KeptState
from profnb.history.series import kept_trials

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def _two_rounds(monkeypatch):
    """However long a busy machine takes for them."""
    monkeypatch.setattr("profnb.trials.alternating._MOST_TRIAL_ROUNDS", 2)


SETUP = """
import keras, numpy as np, tensorflow as tf
%load_ext profnb
import random
keras.utils.set_random_seed(1)
x, y = np.random.rand(512, 8).astype("float32"), np.random.rand(512, 1).astype("float32")
shared = keras.layers.Dense(8, activation="relu", name="shared")
def make():
    return keras.Sequential([keras.layers.Input((8,)), shared, keras.layers.Dropout(0.5), keras.layers.Dense(1)])
model, other = make(), make()
model.compile("adam", "mse")
other.compile("adam", "mse")
seen = []
class Seen(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen.append(epoch)
"""
FIT = "history = model.fit(x, y, batch_size=64, epochs=2, verbose=2, callbacks=[Seen()])\nnumber = np.random.rand() + random.random() + float(tf.random.normal(()))"
STATE = """
state = [w.numpy() for m in (model, other) for w in m.variables], [w.numpy() for w in model.optimizer.variables], list(seen), number, history.history["loss"]
after = np.random.rand(), random.random(), float(tf.random.normal(())), model.stop_training, keras.layers.Dense(1).name
"""


def ran(shell, head, edits=()):
    """Run the setup, then the cell under a line; its state, and the profile."""
    for cell in (SETUP, f"{head}{FIT}"):
        result = shell.run_cell(cell, store_history=True)
        assert result.success, result
    profile = shell.user_ns.get("_tfprofile")
    if edits:
        profile.try_advice(edits=edits(profile), seconds=600)
    assert shell.run_cell(STATE).success
    return shell.user_ns["state"], shell.user_ns["after"], profile


def cell_file(text):
    return [name for name, entry in linecache.cache.items() if len(entry) > 2 and "".join(entry[2]).endswith(text + "\n")][-1]


def edits_of(profile):
    file = cell_file(FIT)
    lines = "".join(linecache.getlines(file)).splitlines(keepends=True)
    text = "#\n" + "".join(lines[1:])
    return [
        Edit(change="larger batches", sources={file: text.replace("batch_size=64", "batch_size=512")}),
        Edit(change="fails", sources={file: text.replace("epochs=2", "epochs=two")}),
    ]


def same(one, two):
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float | np.ndarray):
        return np.allclose(one, two, atol=1e-5)
    return one == two


def test_a_fit_leaves_what_one_run_leaves(shell, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PROFNB_HISTORY", str(tmp_path / "history.sqlite"))
    plain = ran(shell, "")
    shell.reset(new_session=False)
    state, after, profile = ran(shell, "%%tfprofile -q --no-live\n", edits_of)
    assert same(state, plain[0])
    assert same(after[:4], plain[1][:4])
    frame = profile.trials
    assert frame.change.tolist() == ["larger batches", "fails"]
    assert frame.error.tolist()[1].startswith("NameError: name 'two'")
    assert frame.error.tolist()[0] == ""
    assert frame.interval_low[0] < frame.ratio[0] < frame.interval_high[0]
    kept = kept_trials()  # of the run that was kept before it was tried
    assert kept.rule.tolist() == ["r"]
    assert kept.ratio[0] == pytest.approx(frame.ratio[0], abs=1e-4)
    assert profnb.history().trials.tolist() == [f"r {frame.ratio[0]:.2f}"]
    assert frame.metric_before[0] > 0 and frame.metric[0] > 0
    monkeypatch.setattr(trial_section, "number_cells", lambda: dict.fromkeys(profile.tried[0].sources, 2))  # only the one shell of a process knows
    assert trial_section.edited_cells(profile.tried[0]) == FIT.replace("batch_size=64", "batch_size=512")
    text = profile.summary()
    assert "larger batches" in text and "NameError" in text
    assert "Traceback" not in "".join(capsys.readouterr())
    assert profile.to_dict()["tables"]["trials"]["rows"] == 2
    assert "trials" in {section.tab.lower() for section in profile._report.sections}


def tried(shell, *cells):
    for cell in ("%load_ext profnb", *cells):
        assert shell.run_cell(cell, store_history=True).success
    profile = shell.user_ns["_tfprofile"]
    return profile.try_advice(edits=[Edit(sources={})], seconds=600).error[0]


def test_an_optimizer_that_was_not_built_is_that_again():
    """Keras keeps its variables in TensorFlow's wrapper of a list, which holds them in an attribute; Keras 2 has no `apply`."""
    keras = pytest.importorskip("keras", minversion="3")

    optimizer, weights = keras.optimizers.Adam(), [keras.Variable([1.0, 2.0])]
    start = KeptState({"optimizer": optimizer})
    optimizer.build(weights)
    optimizer.apply([np.ones(2, np.float32)])
    end, there = KeptState({}, only=start), [one.numpy() for one in optimizer.variables]
    for _ in range(2):
        start.put_back()
        assert len(optimizer.variables) == 2 and not optimizer.built
        optimizer.build(weights)
        optimizer.apply([np.full(2, 5, np.float32)])
        assert len(optimizer.variables) == len(there)
    end.put_back()
    assert same([one.numpy() for one in optimizer.variables], there)
    assert not optimizer._variables._non_append_mutation  # which would refuse to be saved


def tried_reasons(shell, *cells):
    """The reason of a trial, after a check that nothing ran."""
    reason = tried(shell, *cells)
    assert np.isnan(shell.user_ns["_tfprofile"].trials.ratio[0])
    return reason


def test_time_above_the_cell_is_no_matter(shell):
    assert tried(shell, "items = []", "%%tfprofile -q --no-live\n%%time\nitems.append(1)") == ""
    assert shell.user_ns["items"] == [1]


def test_a_cell_that_awaits_is_declined(shell):
    assert tried(shell, "%%tfprofile -q --no-live\nimport asyncio\nawait asyncio.sleep(0)").startswith("A cell with `await`")


OUTSIDE = {
    "a generator half used": ("rows = (n for n in range(9))\nnext(rows)", "found = next(rows)", "`rows` is an iterator, which may be half used.", "(found, next(rows))", (1, 2)),
    "a lock": ("import threading\nlock, items = threading.Lock(), []", "with lock:\n    items.append(1)", "`lock` is a lock.", "items", [1]),
    "a socket": ("import socket\nnear, far = socket.socketpair()", "sent = near.send(b'a')", "`near` is a socket.", "(far.recv(9), near.close(), far.close())[0]", b"a"),
    "a widget": ("import ipywidgets\nslider = ipywidgets.IntSlider()", "slider.value += 1", "The cell shows widgets (`ipywidgets`).", "slider.value", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_nobody_can_put_back_is_declined_and_happens_once(shell, name):
    setup, cell, reason, left, value = OUTSIDE[name]
    pytest.importorskip("ipywidgets")
    assert reason in tried_reasons(shell, setup, f"%%tfprofile -q --no-live\n{cell}")
    assert eval(left, shell.user_ns) == value


def test_magics_that_only_show_run_and_others_are_declined(shell):
    assert tried(shell, "%%tfprofile -q --no-live\n%config IPCompleter.use_jedi=False\nx = 1") == ""
    assert tried(shell, "%%tfprofile -q --no-live\n%alias\nx = 1") == "The cell uses the magic `%alias`."


def test_plots_of_trials_are_gone_and_those_of_the_cell_stay(shell):
    pytest.importorskip("matplotlib")
    cell = "%%tfprofile -q --no-live\nimport matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])"
    assert tried(shell, cell) == ""
    pyplot = shell.user_ns["plt"]
    assert pyplot.get_fignums() == [1] and pyplot.figure(1) is shell.user_ns["fig"]
    assert len(shell.user_ns["ax"].lines) == 1
    pyplot.close("all")


def test_a_cell_that_failed_is_not_tried(shell, capsys):
    shell.run_cell("%load_ext profnb")
    shell.run_cell("%%tfprofile -q --no-live --try\nfor step in range(40):\n    assert step < 30")
    profile = shell.user_ns["_tfprofile"]
    assert profile.try_advice(edits=[Edit(sources={})]).error.tolist() == ["The cell failed, so no edit was tried."]


def test_of_a_seeded_shuffle_trials_make_their_own(shell):
    text = "import tensorflow as tf\nimport collections\ntf.random.set_seed(3)\nds = tf.data.Dataset.range(9).shuffle(9)\nbatches = ds.batch(3)"
    cell = "%%tfprofile -q --no-live\nfirst = [int(v) for b in batches for v in b]"

    def second(*, is_tried):
        shell.run_cell(text)
        assert tried(shell, cell) == "" if is_tried else shell.run_cell(cell).success
        return shell.user_ns["first"], [int(v) for v in shell.user_ns["ds"]]

    assert second(is_tried=True) == second(is_tried=False)


def test_a_seeded_shuffle_that_no_cell_makes_is_declined(shell):
    import tensorflow as tf

    shell.user_ns["given"] = tf.data.Dataset.range(9).shuffle(9, seed=3)
    assert tried(shell, "%%tfprofile -q --no-live\nfirst = list(given)").startswith("`given` shuffles by a seed")


LAYERS = [
    ("torch", "import torch\nnet = torch.nn.Linear(3, 1)\nadam = torch.optim.Adam(net.parameters())\ndata = torch.ones(8, 3)",
     "for _ in range(3):\n    adam.zero_grad(); net(data).sum().backward(); adam.step()",
     "[p.detach().numpy().copy() for p in net.parameters()] + [s['exp_avg'].numpy().copy() for s in adam.state.values()]"),
    ("tensorflow", "import tensorflow as tf\nweight = tf.Variable([1.0, 2.0])\n@tf.function\ndef step():\n    weight.assign_add(weight)",
     "for _ in range(4):\n    step()", "[weight.numpy()]"),
    ("jax", "import jax\nkey = jax.random.key(0)\nparams = {'w': jax.numpy.ones(3)}",
     "key, inner = jax.random.split(key)\nparams['w'] = params['w'] + jax.random.normal(inner, (3,))", "[np.asarray(params['w']), np.asarray(jax.random.key_data(key))]"),
]  # fmt: skip


@pytest.mark.parametrize(("library", "setup", "cell", "state"), LAYERS, ids=[row[0] for row in LAYERS])
def test_loops_of_others_leave_what_one_run_leaves(shell, library, setup, cell, state):
    pytest.importorskip(library)
    shell.run_cell("import numpy as np")
    seed = "torch.manual_seed(1)\n" if library == "torch" else ""
    setup = setup.replace("net =", f"{seed}net =", 1)

    def left(*, is_tried):
        shell.run_cell(setup)
        assert tried(shell, f"%%tfprofile -q --no-live\n{cell}") == "" if is_tried else shell.run_cell(cell).success
        return eval(state, shell.user_ns)

    assert same(left(is_tried=True), left(is_tried=False))


def test_with_the_option_trials_begin_where_the_cell_began(shell, monkeypatch):
    """The cell divides and takes from a list: begun after it, another run would fail."""
    monkeypatch.setattr("profnb.edits.editing.find_edits", lambda *_: [Edit(sources={})])
    shell.run_cell("x, items = 8.0, [1]")
    assert tried_at_once(shell, "--try --try-seconds 600", "x = x / 2; items.pop(); assert x == 4") == [""]
    assert (shell.user_ns["x"], shell.user_ns["items"]) == (4.0, [])


def tried_at_once(shell, options, cell):
    shell.run_cell("%load_ext profnb")
    assert shell.run_cell(f"%%tfprofile -q --no-live {options}\n{cell}").success
    return shell.user_ns["_tfprofile"].trials.error.tolist()


def test_an_object_that_raises_when_it_is_looked_at_declines_the_trial_and_not_the_cell(shell):
    shell.run_cell("class Odd:\n    @property\n    def __dict__(self):\n        raise RuntimeError('odd')\n    def go(self): return 1\nodd = Odd()")
    errors = tried_at_once(shell, "--try --try-seconds 600", "value = odd.go()")
    assert "cannot be kept (RuntimeError: odd)" in errors[0]
    assert shell.user_ns["value"] == 1
