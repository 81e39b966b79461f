"""What each edit does to a guilty source, and that innocent ones are left alone: by text, with stand-ins for the libraries."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest
from edit_kit import advice, changed_lines, edit_of, model, names_of, stand_in

import profnb
from profnb.edits.editing import EDITS
from profnb.edits.editing import find_edits, join

MAPPED = "ds = tf.data.Dataset.from_tensor_slices(files).map(decode).batch(32)\nmodel.fit(ds, epochs=5)\n"
DECODE = "def decode(path):\n    return tf.io.decode_png(tf.io.read_file(path))\n"
PARALLEL = ".map(..., num_parallel_calls=tf.data.AUTOTUNE). Add .prefetch(tf.data.AUTOTUNE)"
STEP = """def train_step(a, b):
    with tf.GradientTape() as tape:
        loss = loss_fn(b, model(a, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss
"""
EAGER = "Put @tf.function(reduce_retracing=True) over it (model.run_eagerly must be False)"
JAX_STEP = "def step(w, a):\n    g = jax.grad(loss)(w, a)\n    return w - 0.1 * g\ndef loss(w, a):\n    return jnp.mean((a @ w) ** 2)\n"
JAX_INNER = (
    "def step(w, a):\n    def loss(w):\n        return jnp.mean((a @ w) ** 2)\n    g = jax.grad(loss)(w)\n"
    "    return jax.tree.map(lambda one, slope: one - 0.1 * slope, w, g)\n"
)

# Of each rule its words, a source, the name of what changes, what it alters, and the lines of the diff.
GUILTY = {
    "parallel": ("input-bound", PARALLEL, DECODE + MAPPED, "map(decode) in parallel and prefetch() behind batch", "nothing", [
        "-ds = tf.data.Dataset.from_tensor_slices(files).map(decode).batch(32)",
        "+ds = tf.data.Dataset.from_tensor_slices(files).map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)",
    ]),
    "prefetch of a name": ("input-bound", "Add .prefetch(tf.data.AUTOTUNE)", "model.fit(ds, epochs=5)\n", "prefetch() on ds", "nothing", [
        "-model.fit(ds, epochs=5)", "+model.fit(ds.prefetch(tf.data.AUTOTUNE), epochs=5)",
    ]),
    "prefetch in a loop": ("input-bound", "Add .prefetch(tf.data.AUTOTUNE)", "for at, (a, b) in enumerate(ds):\n\tlearn(a)", "prefetch() on ds", "nothing", [
        "-for at, (a, b) in enumerate(ds):", "+for at, (a, b) in enumerate(ds.prefetch(tf.data.AUTOTUNE)):",
    ]),
    "prefetch more": ("prefetch-more", ".prefetch(16)", "model.fit(ds.batch(8).prefetch(1))", "prefetch(16)", "nothing", [
        "-model.fit(ds.batch(8).prefetch(1))", "+model.fit(ds.batch(8).prefetch(16))",
    ]),
    "cache": ("cache-input", "map(...).cache()", DECODE + MAPPED.replace(".batch", ".shuffle(9).batch"), "cache() behind map(decode)", "nothing", [
        "-ds = tf.data.Dataset.from_tensor_slices(files).map(decode).shuffle(9).batch(32)",
        "+ds = tf.data.Dataset.from_tensor_slices(files).map(decode).cache().shuffle(9).batch(32)",
    ]),
    "cache behind a shuffle": ("cache-input", "map(...).cache()", DECODE + MAPPED.replace(".map", ".shuffle(9).map"), "cache() behind map(decode)", "order of examples", [
        "-ds = tf.data.Dataset.from_tensor_slices(files).shuffle(9).map(decode).batch(32)",
        "+ds = tf.data.Dataset.from_tensor_slices(files).shuffle(9).map(decode).cache().batch(32)",
    ]),
    "cache before what is random": ("cache-input", "map(...).cache()", DECODE + "ds = tf.data.Dataset.from_tensor_slices(files)\nds = ds.map(decode)\n"
        "ds = ds.map(lambda i: tf.image.random_flip_up_down(i))\nmodel.fit(ds.batch(3))", "cache() behind map(decode)", "nothing", [
        "-ds = ds.map(decode)", "+ds = ds.map(decode).cache()",
    ]),
    "batch first": ("input-bound", "Do less: .batch(n) before .map(f) with", "model.fit(ds.map(lambda a, b: (tf.cast(a, tf.float32) / 255, b)).batch(8))", "batch before map", "nothing", [
        "-model.fit(ds.map(lambda a, b: (tf.cast(a, tf.float32) / 255, b)).batch(8))",
        "+model.fit(ds.batch(8).map(lambda a, b: (tf.cast(a, tf.float32) / 255, b)))",
    ]),
    "arrays": ("epoch-ends", "fit(tf.data.Dataset.from_tensor_slices((x, y)))", "model.fit(x, y, batch_size=25, epochs=70, verbose=0)", "arrays as a dataset", "order of examples", [
        "-model.fit(x, y, batch_size=25, epochs=70, verbose=0)",
        "+model.fit(tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(25), epochs=70, verbose=0)",
    ]),
    "steps": ("python-between-steps", "steps_per_execution=16", 'model.compile("sgd", "mse")', "steps_per_execution=16 in model.compile()", "how often batch callbacks run", [
        '-model.compile("sgd", "mse")', '+model.compile("sgd", "mse", steps_per_execution=16)',
    ]),
    "jit": ("launch-bound", "jit_compile=True", 'model.compile("sgd", "mse",)', "jit_compile=True in model.compile()", "order of rounding", [
        '-model.compile("sgd", "mse",)', '+model.compile("sgd", "mse", jit_compile=True)',
    ]),
    "jit of a function": ("large-optimizer", "jit_compile=True", "@tf.function\ndef f(a):\n    return a", "jit_compile of tf.function", "order of rounding", [
        "-@tf.function", "+@tf.function(jit_compile=True)",
    ]),
    "shapes": ("retracing", "or @tf.function(reduce_retracing=True)", "g = tf.function(f)", "reduce_retracing of tf.function", "order of rounding", [
        "-g = tf.function(f)", "+g = tf.function(f, reduce_retracing=True)",
    ]),
    "even batches": ("recompiling", ".batch(n, drop_remainder=True)", "model.fit(ds.batch(8))", "drop_remainder=True in ds.batch()", "last batch of an epoch", [
        "-model.fit(ds.batch(8))", "+model.fit(ds.batch(8, drop_remainder=True))",
    ]),
    "validation": ("validation", "validation_freq=5", "model.fit(x, y, epochs=20, validation_data=val)", "validation_freq=5 in model.fit()", "how often it validates", [
        "-model.fit(x, y, epochs=20, validation_data=val)", "+model.fit(x, y, epochs=20, validation_data=val, validation_freq=5)",
    ]),
    "step": ("eager-ops", EAGER, STEP + "for a, b in ds:\n    train_step(a, b)\n", "@tf.function over train_step", "order of rounding", ["+@tf.function(reduce_retracing=True)"]),
    "model in a loop": ("eager-ops", EAGER, "for a in ds:\n    model(a, training=False)\n", "the model's compiled function instead of its layers", "order of rounding", [
        "-    model(a, training=False)", "+    tf.convert_to_tensor(model.predict_on_batch(a))",
    ]),
    "run_eagerly": ("eager-ops", EAGER, 'model.compile("sgd", run_eagerly=True)', "run_eagerly=False in model.compile()", "order of rounding", [
        '-model.compile("sgd", run_eagerly=True)', '+model.compile("sgd", run_eagerly=False)',
    ]),
    "predict": ("predict-in-a-loop", "model.predict_on_batch(x)", "for row in x:\n    model.predict(row[None], verbose=0)", "predict_on_batch instead of predict", "order of rounding", [
        "-    model.predict(row[None], verbose=0)", "+    model.predict_on_batch(row[None])",
    ]),
    "threads": ("idle-cores", "without set_intra_op_parallelism_threads", "tf.config.threading.set_intra_op_parallelism_threads(1)",
        "0 in tf.config.threading.set_intra_op_parallelism_threads()", "order of rounding", [
        "-tf.config.threading.set_intra_op_parallelism_threads(1)", "+tf.config.threading.set_intra_op_parallelism_threads(0)",
    ]),
    "too many threads": ("oversubscribed", "num_parallel_calls=tf.data.AUTOTUNE", "model.fit(ds.map(f, num_parallel_calls=64))", "num_parallel_calls=tf.data.AUTOTUNE in ds.map()", "nothing", [
        "-model.fit(ds.map(f, num_parallel_calls=64))", "+model.fit(ds.map(f, num_parallel_calls=tf.data.AUTOTUNE))",
    ]),
    "tf32": ("mixed-precision", "tf.config.experimental.enable_tensor_float_32_execution(True)", "import tensorflow as tf\n\nmodel.fit(ds)",
        "tf.config.experimental.enable_tensor_float_32_execution(True)", "precision", ["+tf.config.experimental.enable_tensor_float_32_execution(True)"]),
    "gpu threads": ("gpu-thread-mode", "os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'", "import tensorflow as tf\n", "threads of the GPU's own", "nothing", [
        "+import os; os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'"]),
    "pinned": ("copying-input", "DataLoader(..., pin_memory=True)", "loader = DataLoader(data, batch_size=8)", "pin_memory=True in DataLoader()", "nothing", [
        "-loader = DataLoader(data, batch_size=8)", "+loader = DataLoader(data, batch_size=8, pin_memory=True)",
    ]),
    "torch.compile": ("small-ops", "torch.compile(model)", "import torch\nfor a in data:\n    net(a)", "torch.compile(net)", "order of rounding", ["+net = torch.compile(net)"]),
    "jax.jit": ("work-outside-jit", "Put @jax.jit over", JAX_STEP + "for a in data:\n    w = step(w, a)\n", "@jax.jit over step", "order of rounding", ["+@jax.jit"]),
    "jax.jit over functions inside": ("work-outside-jit", "Put @jax.jit over", JAX_INNER + "for a in data:\n    w = step(w, a)\n", "@jax.jit over step", "order of rounding", ["+@jax.jit"]),
}  # fmt: skip


@pytest.mark.parametrize("name", GUILTY)
def test_the_edit_is_made(name):
    rule, code, source, change, alters, lines = GUILTY[name]
    edit = edit_of(rule, code, source)
    assert edit is not None
    assert (edit.rule, edit.change, edit.alters) == (rule, change, alters)
    assert changed_lines(edit) == lines
    assert list(edit.sources) == ["cell.py"] and edit.sources["cell.py"] != source


# What is like a guilty source, but for the one thing that makes the edit uncertain.
INNOCENT = {
    "nothing to do": ("input-bound", PARALLEL, "a = 1"),
    "another word": ("input-bound", "Write the function with TensorFlow ops", DECODE + MAPPED),
    "no Python": ("input-bound", PARALLEL, DECODE + MAPPED + "\nthis is (not"),
    "another language": ("input-bound", PARALLEL, "%%bash\n" + DECODE + MAPPED),
    "all is done": ("input-bound", PARALLEL, DECODE + MAPPED.replace("decode)", "decode, num_parallel_calls=2)").replace(".batch(32)", ".batch(32).prefetch(2)")),
    "several pipelines": ("cache-input", ".cache()", DECODE + MAPPED + MAPPED),
    "python in the function": ("input-bound", "num_parallel_calls", "model.fit(ds.map(lambda a: tf.py_function(g, a, int)))"),
    "already cached": ("cache-input", ".cache()", DECODE + MAPPED.replace(".batch", ".cache().batch")),
    "a generator": ("cache-input", ".cache()", DECODE + MAPPED.replace("tensor_slices(files)", "generator(files)")),
    "only random functions": ("cache-input", ".cache()", "model.fit(tf.data.TFRecordDataset(files).map(lambda a: a + tf.random.normal(())))"),
    "behind repeat": ("cache-input", ".cache()", DECODE + MAPPED.replace(".map", ".repeat().map")),
    "bound on one path": ("cache-input", ".cache()", DECODE + "if a:\n    ds = tf.data.TFRecordDataset(files).map(decode)\nmodel.fit(ds)"),
    "bound in a loop": ("cache-input", ".cache()", DECODE + "ds = tf.data.TFRecordDataset(files)\nfor _ in range(3):\n    model.fit(ds.map(decode))\n    ds = ds.take(3)"),
    "a source that is unknown": ("cache-input", ".cache()", DECODE + "model.fit(ds.map(decode))"),
    "a shape in the function": ("input-bound", ".batch(n) before .map(f)", "model.fit(ds.map(lambda a: tf.reshape(a, (3,))).batch(8))"),
    "an item in the function": ("input-bound", ".batch(n) before .map(f)", "model.fit(ds.map(lambda a: a[0]).batch(8))"),
    "an array in the function": ("input-bound", ".batch(n) before .map(f)", "model.fit(ds.map(lambda a: a * x).batch(8))"),
    "lists": ("epoch-ends", "from_tensor_slices", "model.fit(files, y)"),
    "shuffled as a name says": ("epoch-ends", "from_tensor_slices", "model.fit(x, y, shuffle=files)"),
    "a split": ("epoch-ends", "from_tensor_slices", "model.fit(x, y, validation_split=0.1)"),
    "an argument of one's own": ("python-between-steps", "steps_per_execution", 'model.compile("sgd", steps_per_execution=2)'),
    "unpacked": ("launch-bound", "jit_compile=True", "model.compile(**options)"),
    "two models": ("launch-bound", "jit_compile=True", "model.compile()\nmodel.compile('sgd')"),
    "no model": ("launch-bound", "jit_compile=True", "optimizer.compile('sgd')"),
    "a name of a function's own": ("launch-bound", "jit_compile=True", "def f(model):\n    model.compile('sgd')"),
    "few epochs": ("validation", "validation_freq=5", "model.fit(x, y, epochs=3, validation_data=val)"),
    "waits for it": ("validation", "validation_freq=5", "model.fit(x, y, epochs=30, validation_data=val, callbacks=[keras.callbacks.EarlyStopping()])"),
    "decorated": ("eager-ops", EAGER, "@other\n" + STEP),
    "prints": ("eager-ops", EAGER, STEP.replace("return", "print(loss)\n    return")),
    "reads a number": ("eager-ops", EAGER, STEP.replace("return loss", "return float(loss)")),
    "reads an array": ("eager-ops", EAGER, STEP.replace("return loss", "return loss.numpy()")),
    "keeps it": ("eager-ops", EAGER, STEP.replace("return", "losses.append(loss)\n    return")),
    "sets an item": ("eager-ops", EAGER, STEP.replace("return", "kept[0] = loss\n    return")),
    "sets a global": ("eager-ops", EAGER, STEP.replace("with", "global count\n    with", 1)),
    "reads what changes": ("eager-ops", EAGER, STEP.replace("loss_fn(b", "rate * loss_fn(b") + "rate = 1.0\nrate = 0.5\n"),
    "sets what it reads": ("eager-ops", EAGER, STEP + "model.trainable = False\n"),
    "builds a model": ("eager-ops", "tf.function", "out = model(x, training=False)\n"),
    "calls a library": ("eager-ops", EAGER, STEP.replace("model(a", "model(np.abs(a)")),
    "makes variables": ("eager-ops", EAGER, STEP.replace("return loss", "return tf.Variable(loss)")),
    "yields": ("eager-ops", EAGER, STEP.replace("return", "yield")),
    "any arguments": ("eager-ops", EAGER, STEP.replace("(a, b)", "(a, b, *more)", 1)),
    "a method": ("eager-ops", EAGER, "class A:\n" + "".join(f"    {line}\n" for line in STEP.splitlines())),
    "a function inside": ("eager-ops", EAGER, "def outer():\n" + "".join(f"    {line}\n" for line in STEP.splitlines())),
    "a new number each time": ("eager-ops", EAGER, STEP + "for at in range(9):\n    train_step(x, at)\n"),
    "many rows": ("predict-in-a-loop", "predict_on_batch", "for _ in a:\n    model.predict(many)"),
    "what predict alone can": ("predict-in-a-loop", "predict_on_batch", "model.predict(x[None], steps=3)"),
    "workers already": ("waiting-for-input", "num_workers=4", "DataLoader(data, num_workers=2)"),
    "bound later": ("small-ops", "torch.compile(model)", "import torch\nnet(a)\nnet = net.half()\n"),
    "an if": ("work-outside-jit", "Put @jax.jit over", JAX_STEP.replace("    return w", "    if a > 0: g = -g\n    return w") + "for a in data:\n    w = step(w, a)\n"),
    "an effect in a lambda": ("work-outside-jit", "Put @jax.jit over", JAX_INNER.replace("one - 0.1 * slope", "print(one)") + "for a in data:\n    w = step(w, a)\n"),
    "a decorated function inside": ("work-outside-jit", "Put @jax.jit over", JAX_INNER.replace("    def loss", "    @other\n    def loss") + "for a in data:\n    w = step(w, a)\n"),
    "an effect in a function inside": ("work-outside-jit", "Put @jax.jit over", JAX_INNER.replace("        return", "        losses.append(a)\n        return") + "for a in data:\n    w = step(w, a)\n"),
    "a last softmax": ("mixed-precision", "keras.mixed_precision.set_global_policy('mixed_float16')", "model = keras.Sequential([keras.layers.Dense(3)])\nmodel.fit(ds)"),
}  # fmt: skip


@pytest.mark.parametrize("name", INNOCENT)
def test_what_is_not_certain_to_fit_is_left_alone(name):
    rule, code, source = INNOCENT[name]
    more = {"at": 8, "rate": 0.5, "kept": {}, "losses": [], "many": np.zeros((9999, 4)), "options": {}}
    last = stand_in("keras.src.layers.dense", "Dense", activation=type("softmax", (), {}))
    assert edit_of(rule, code, source, **(more | {"model": model(layers=[last])})) is None


def test_a_rule_without_an_edit_has_none():
    assert edit_of("own-python", PARALLEL, DECODE + MAPPED) is None


def test_each_rule_and_each_word_of_the_table_is_one_of_the_advice():
    package = Path(profnb.__file__).parent
    files = [*package.glob("advice/rules/*.py"), package / "subjects/input/diagnosis.py", package / "subjects/advising.py", package / "subjects/device/precision.py"]
    texts = [node.value for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert EDITS.keys() <= set(texts)
    for word, _ in itertools.chain.from_iterable(itertools.chain.from_iterable(EDITS.values())):
        assert any(word in text for text in texts), word


def test_mixed_precision_is_set_before_the_model_is_built():
    source = "import keras\nmodel = keras.Sequential([\n    keras.layers.Dense(3),\n])\nmodel.compile('sgd')\nmodel.fit(ds)\n"
    last = stand_in("keras.src.layers.dense", "Dense")
    edit = edit_of("mixed-precision", "keras.mixed_precision.set_global_policy('mixed_float16') before", source, model=model(layers=[last]))
    assert edit.sources["cell.py"].splitlines()[1] == 'keras.mixed_precision.set_global_policy("mixed_float16")'
    assert edit.alters == "precision"


def test_models_are_saved_less_often():
    checkpoint = type("ModelCheckpoint", (), {"__module__": "keras.src.callbacks.model_checkpoint"})
    source = "keep = ModelCheckpoint('w.keras', save_freq=3)\nmodel.fit(x, y, callbacks=[keep])\n"
    edit = edit_of("callback", "if batch % 5", source, ModelCheckpoint=checkpoint)
    assert changed_lines(edit)[1] == "+keep = ModelCheckpoint('w.keras', save_freq=\"epoch\")" and edit.alters == "what is saved" and edit.is_as_advised
    edit = edit_of("callback", "if epoch % 5", source.replace(", save_freq=3", ""), ModelCheckpoint=checkpoint)
    assert changed_lines(edit)[1] == "+keep = ModelCheckpoint('w.keras', save_freq=5 * -(-len(x) // 32))"
    best = source.replace("save_freq=3", "save_best_only=True")
    assert edit_of("callback", "if epoch % 5", best, ModelCheckpoint=checkpoint) is None


def test_a_callback_calls_the_model_compiled():
    source = (
        "class Judge(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch, logs=None):\n        p = self.model(x, training=False)\n"
        "        q = self.model.predict(x[:1], verbose=0)\nmodel.fit(ds, callbacks=[Judge()])\n"
    )
    edit = edit_of("callback", "if epoch % 5 == 0", source.replace("x[:1]", "x[None]"), edit={"without": "Judge.on_epoch_end"})
    assert changed_lines(edit)[2:] == [
        "+        p = tf.convert_to_tensor(self.model.predict_on_batch(x))", "+        q = self.model.predict_on_batch(x[None])",
    ]  # fmt: skip
    assert not edit.is_as_advised  # which is to call it less often
    assert edit_of("callback", "if epoch % 5 == 0", source.replace("training=False", "training=True"), edit={"without": "Judge.on_epoch_end"}) is None
    assert edit_of("callback", "if epoch % 5 == 0", source, edit={"without": "Other.on_epoch_end"}) is None


def test_the_function_is_found_by_its_line_and_by_its_name():
    two = "def first(a):\n    return tf.square(a)\n\ndef second(a):\n    return tf.abs(a)\n\nfor a in ds:\n    first(a), second(a)\n"
    by_line = edit_of("eager-ops", EAGER, two, where="cell.py:4")
    by_name = edit_of("eager-ops", EAGER, two, edit={"compiled": "second"})
    assert by_line.sources == by_name.sources and by_line.change == "@tf.function over second"
    assert edit_of("eager-ops", EAGER, two, where="other.py:4") is None


def test_the_stage_is_found_by_the_line_of_its_function():
    source = "def a(i):\n    return i\n\ndef b(i):\n    return i\n\nmodel.fit(ds.map(a).map(b))\n"
    edit = edit_of("input-bound", "num_parallel_calls", source, where="cell.py:5")
    assert changed_lines(edit)[1] == "+model.fit(ds.map(a).map(b, num_parallel_calls=tf.data.AUTOTUNE))"
    assert edit_of("input-bound", "num_parallel_calls", source) is None


def test_a_function_of_an_earlier_cell_is_edited_there():
    edit = edit_of("eager-ops", EAGER, "for a, b in ds:\n    train_step(a, b)\n", "import tensorflow as tf\n" + STEP)
    assert list(edit.sources) == ["cell1.py"] and edit.sources["cell1.py"].splitlines()[1] == "@tf.function(reduce_retracing=True)"


def test_a_function_is_not_decorated_by_what_is_imported_below_it():
    assert edit_of("eager-ops", EAGER, STEP + "import tensorflow as tf\n") is None


ODD = {
    "tabs": "if True:\n\tmodel.compile(\n\t\t'sgd',\n\t\t'mse'  # the loss\n\t)\n",
    "carriage returns": "model.compile(\r\n    'sgd',  # it\r\n)\r\nmodel.fit(ds)\r\n",
    "no last newline": "# é ü 漢\nmodel.compile('sgd')",
    "await": "import asyncio\nawait asyncio.sleep(0)\nmodel.compile('sgd')\n",
    "magics": "%matplotlib inline\n!pip install é\nout = !ls\nlines = %sql select\nmodel.compile?\nmodel.compile('sgd')\nif True:\n    %time a = 1\n",
    "a cell's magic": "%%time\nmodel.compile('sgd')\n",
    "strings": "a = '''\n%no magic\nmodel.compile()\n'''\nmodel.compile('sgd')  \n\n\n",
    "continued": "model.compile(\\\n    'sgd')\n",
    "semicolons": "a = 1; model.compile('sgd'); b = 2\n",
    "brackets": "model.compile(('sgd'))\n",
}


@pytest.mark.parametrize("name", ODD)
def test_all_else_stays_as_it_was_typed(name):
    source = ODD[name]
    edited = edit_of("launch-bound", "jit_compile=True", source).sources["cell.py"]
    assert "jit_compile=True" in edited
    for added in ("jit_compile=True,", ", jit_compile=True", " jit_compile=True", "jit_compile=True"):
        edited = edited.replace(added, "", 1)
    kept = [line.rstrip(",\t ") for line in source.split("\n")]
    left = [line.rstrip(",\t ") for line in edited.split("\n")]
    at = 0
    for line in kept:  # each, in its order, but for a comma
        at = next(row for row in range(at, len(left)) if left[row].replace(",", "") == line.replace(",", "")) + 1


def test_a_line_of_its_own_ends_as_the_others_do():
    edited = edit_of("launch-bound", "jit_compile=True", ODD["carriage returns"]).sources["cell.py"]
    assert edited == "model.compile(\r\n    'sgd',  # it\r\n    jit_compile=True,\r\n)\r\nmodel.fit(ds)\r\n"
    edited = edit_of("launch-bound", "jit_compile=True", ODD["tabs"]).sources["cell.py"]
    assert edited == "if True:\n\tmodel.compile(\n\t\t'sgd',\n\t\t'mse',  # the loss\n\t\tjit_compile=True,\n\t)\n"


def test_a_stage_of_its_own_line_stands_behind_the_comment():
    source = DECODE + "model.fit(\n    tf.data.TFRecordDataset(files)\n    .map(decode)  # slow\n    .batch(3)\n)\n"
    assert changed_lines(edit_of("cache-input", ".cache()", source)) == ["+    .cache()"]


def test_huge_and_nested_sources_are_declined():
    assert edit_of("launch-bound", "jit_compile=True", "a = 1\n" * 200_000 + "model.compile('sgd')\n") is None
    assert edit_of("launch-bound", "jit_compile=True", "a = " + "(" * 5000 + ")" * 5000 + "\nmodel.compile('sgd')\n") is None
    assert edit_of("launch-bound", "jit_compile=True", "\ufeffmodel.compile('sgd')\n") is None
    assert edit_of("launch-bound", "jit_compile=True", "a = '\ud800'\nmodel.compile('sgd')\n") is None


def test_nothing_of_the_names_is_run():
    class Trap:
        def __getattribute__(self, name):
            raise AssertionError(name)

    assert edit_of("launch-bound", "jit_compile=True", "model.compile('sgd')", model=Trap()) is None


def test_edits_join_where_they_fit():
    source = DECODE + "model.compile('sgd')\n" + MAPPED
    given = [
        advice("input-bound", PARALLEL), advice("cache-input", ".cache()"), advice("python-between-steps", "steps_per_execution"),
        advice("launch-bound", "jit_compile=True"), advice("large-optimizer", "jit_compile=True"), advice("prefetch-more", ".prefetch(16)"),
    ]  # fmt: skip
    sources = {"cell.py": source}
    edits = find_edits(given, sources, names_of(source))
    assert [edit.rule for edit in edits] == [one.rule for one in given]
    joined = join(edits[:5], sources)
    assert joined.sources["cell.py"] == DECODE + (
        "model.compile('sgd', jit_compile=True, steps_per_execution=16)\n"
        "ds = tf.data.Dataset.from_tensor_slices(files).map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache().batch(32).prefetch(tf.data.AUTOTUNE)\n"
        "model.fit(ds, epochs=5)\n"
    )
    assert joined.alters == "how often batch callbacks run, order of rounding"
    assert join(edits, sources) is None  # prefetched in two ways
    assert join([], sources) is None


def test_what_is_in_each_other_s_place_does_not_join():
    source = "model.fit(ds.map(lambda a: a / 2).batch(8))"
    given = [advice("input-bound", ".batch(n) before .map(f)"), advice("input-bound", "num_parallel_calls")]
    edits = find_edits(given, {"cell.py": source}, names_of(source))
    assert len(edits) == 2 and join(edits, {"cell.py": source}) is None


def test_order_of_random_numbers_is_said():
    source = "model.fit(ds.map(lambda a: a + tf.random.normal(())))"
    assert edit_of("input-bound", "num_parallel_calls", source).alters == "order of random numbers"


def test_a_cell_is_found_by_its_number():
    """The sources are named as IPython compiles them, the advice as a person calls them."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    try:
        look_for_a_cell(shell)
    finally:
        type(shell).clear_instance()


def look_for_a_cell(shell):
    shell.user_ns.update(names_of())
    cells = ["def first(a):\n    return tf.square(a)\n", "def second(a):\n    return tf.abs(a)\n\ndef third(a):\n    return tf.sin(a)\n"]
    for cell in cells:
        shell.run_cell(cell, store_history=True)
    number = shell.execution_count - 1
    files = [shell.user_ns[name].__code__.co_filename for name in ("first", "second")]
    (edit,) = find_edits([advice("eager-ops", EAGER, f"Cell [{number}]:4")], dict(zip(files, cells)), shell.user_ns)
    assert list(edit.sources) == [files[1]] and edit.change == "@tf.function over third"
    assert edit.diff.startswith(f"--- Cell [{number}]\n+++ Cell [{number}] (edited)\n")


def test_of_two_fits_the_one_on_the_line_is_changed():
    source = "model.fit(x, y)\nmodel.fit(x, y, epochs=70)\n"
    edit = edit_of("epoch-ends", "from_tensor_slices", source, where="cell.py:2")
    assert changed_lines(edit)[0] == "-model.fit(x, y, epochs=70)"
    assert edit_of("epoch-ends", "from_tensor_slices", source) is None


def test_each_word_that_an_edit_asks_for_stands_in_some_advice():
    package = Path(profnb.__file__).parent
    files = [file for file in package.rglob("*.py") if "edits" not in file.parts]
    texts = [node.value for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    words = {word for alternatives in EDITS.values() for makers in alternatives for word, _ in makers}
    assert {word for word in words if not any(word in text for text in texts)} == set()
