"""Layers of real Keras models, trained here: Keras 3 and 2, with and without XLA."""

import functools
import gc
import weakref

import numpy as np
import pytest

import profnb
from profnb.subjects.layers.flops import forward_flops
from profnb.capture.models.layer_facts import TracedLayer, describe_model
from profnb.capture.models.model_watch import describe_models
from profnb.capture.models.op_order import METRICS

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow
BOTH = ["keras", pytest.param("tf_keras", marks=pytest.mark.long)]

BATCH, STEPS = 32, 6


def profile():
    """A capture that stays open however long a busy machine takes to trace a model."""
    return profnb.profile(max_seconds=300)


def library(name):
    return pytest.importorskip(name)


def sequential(k):
    layers = k.layers
    return k.Sequential([
        layers.Input((12, 12, 3)), layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(),
        layers.DepthwiseConv2D(3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.2),
        layers.Dense(10, activation="relu"), layers.Dense(4),
    ])  # fmt: skip


def shared(k):
    given = k.layers.Input((16,))
    twice = k.layers.Dense(16, activation="relu", name="shared")
    return k.Model(given, k.layers.Dense(4, name="head")(k.layers.Add()([twice(twice(given)), given])))


def nested(k):
    encoder = k.Sequential([k.layers.Input((16,)), k.layers.Dense(32, activation="relu"), k.layers.Dense(8)], name="encoder")
    given = k.layers.Input((16,))
    return k.Model(given, k.layers.Dense(4)(encoder(given)), name="outer")


def transformer(k):
    layers = k.layers
    given = layers.Input((20,), dtype="int32")
    x = layers.Embedding(50, 16)(given)
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 8, name="attention")(x, x)]))
    y = layers.Dense(16, name="down")(layers.Dense(32, activation="gelu", name="up")(x))
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    return k.Model(given, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def subclassed(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.first = k.layers.Dense(16, activation="relu")
            self.last = k.layers.Dense(4)
            self.blocks = [k.layers.Dense(16) for _ in range(2)]

        def call(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.last(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                logits = self(x, training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), logits))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    return Net()


def recurrent(k):
    layers = k.layers
    given = layers.Input((4, 8))
    x = layers.LSTM(16, return_sequences=True)(given)
    x = layers.Bidirectional(layers.GRU(8))(x)
    return k.Model(given, layers.Dense(4)(x))


def recurrent_once(k):
    given = k.layers.Input((4, 8))
    layer = k.layers.GRU(8)
    return k.Model(given, k.layers.Dense(4)(k.layers.Bidirectional(layer)(given)))


MODELS = {f.__name__: f for f in (sequential, shared, nested, transformer, subclassed, recurrent)}
SHAPES = {"sequential": (12, 12, 3), "recurrent": (4, 8)}


def data_for(name):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 50, (STEPS * BATCH, 20)) if name == "transformer" else rng.normal(size=(STEPS * BATCH, *SHAPES.get(name, (16,)))).astype("float32")
    return x, rng.integers(0, 4, STEPS * BATCH)


# Adam's update is a dozen ops a variable, which take longer to make than all others of such a model: one of each kind has it.
OPTIMIZERS = {"sequential": "adam"}


def compiled(k, name, **options):
    # XLA takes seconds for each recurrent layer; what is one's is the other's.
    make = recurrent_once if name == "recurrent" and options.get("jit_compile") else MODELS[name]
    model = make(k)
    metrics = None if name == "subclassed" else ["accuracy"]
    model.compile(OPTIMIZERS.get(name, "sgd"), k.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=metrics, **options)
    return model


def fit(k, name, **options):
    model = compiled(k, name, **options)
    with profile() as p:
        model.fit(*data_for(name), batch_size=BATCH, verbose=0)
    return p, model


def fitted(which, name, jit=False):
    """A model that was profiled once for all tests that look at it."""
    return _fitted(which, name, jit)


@functools.cache  # to which an argument that is given and its default are two
def _fitted(which, name, jit):
    return fit(library(which), name, jit_compile=jit)


def rows_of(p):
    return p.layers.set_index("layer")


def sums_exactly(p):
    study = p.study
    ops = study.ops.of_steps(study.summary.counted)
    assert study.summary.counted.size, (p.notes, p.recording.closed_by)
    return int(study.layers.table.total_ps.sum()) == int(ops.self_ps[~ops.is_device].sum()) > 0


# With XLA a model of Keras 2 is what one of Keras 3 is: two of them, not those that it compiles longest.
@pytest.mark.parametrize(
    ("jit", "which", "name"),
    [(False, "keras", name) for name in MODELS]
    + [pytest.param(False, "tf_keras", name, marks=pytest.mark.long) for name in ("sequential", "subclassed", "shared")]  # all are of Keras 2 with the oldest versions
    + [pytest.param(True, "keras", "sequential", marks=pytest.mark.slow)]
    + [pytest.param(True, which, name, marks=pytest.mark.long) for which, names in (("keras", list(MODELS)[1:]), ("tf_keras", ("sequential", "shared"))) for name in names],
)  # fmt: skip
def test_every_layer_is_found_with_its_phases_and_parameters(which, name, jit):
    p, model = fitted(which, name, jit)
    if jit and p.xla.empty:
        pytest.skip(f"TensorFlow {tf.__version__} records no XLA ops on a CPU")
    table = rows_of(p)
    assert sums_exactly(p)
    assert table.parameters.sum() == model.count_params()
    summary = p.study.summary
    assert table.attrs["steps"] == len(summary.counted)
    assert len(summary.counted) + len(summary.aside) >= STEPS - 1
    by_name = {row.rpartition("/")[2]: row for row in table.index if table.layer_type[row]}
    for layer in model.layers:
        assert table.layer_type[by_name[layer.name]] == type(layer).__name__
        if not layer.weights or not hasattr(layer, "kernel"):
            continue
        row = table.loc[by_name[layer.name]]
        assert row.parameters == layer.count_params()
        assert row.forward_us > 0, layer.name
        assert row.backward_us > 0, layer.name
        assert row.update_us > 0, layer.name
        assert row.recomputation_us == 0
    others = table[table.layer_type == ""]
    assert set(others.index) <= {"loss", "metrics", "optimizer", "input", "outside the model"}
    assert not (table.layer_type == "name scope").any() or name == "subclassed"
    if name != "subclassed":
        assert table.loc["loss", ["forward_us", "backward_us"]].sum() > 0
        assert table.loc["metrics", "other_us"] > 0


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("was_traced", [False, True])
def test_gradients_that_a_function_defines_itself_are_of_its_layer(which, was_traced):
    """swish has a gradient of its own, whose ops have names without a scope: mul_3, Sigmoid_1."""
    k = library(which)
    given = k.layers.Input((64,))
    x = k.layers.Activation("swish", name="middle")(k.layers.Dense(64, name="before")(given))
    model = k.Model(given, k.layers.Dense(4, activation="swish", name="after")(x))
    model.compile("sgd", "mse", metrics=["mae"])
    data = np.ones((STEPS * BATCH, 64)), np.ones((STEPS * BATCH, 4))
    if was_traced:
        model.fit(*data, batch_size=BATCH, verbose=0)
    with profile() as p:
        model.fit(*data, batch_size=BATCH, verbose=0)
    table = rows_of(p)
    assert table.loc[f"{model.name}/middle", "backward_us"] > 0
    assert table.loc["metrics", "other_us"] > 0
    assert table.occurrences.get("outside the model", 0) < table.loc["metrics", "occurrences"]
    assert sums_exactly(p)


def test_a_loss_of_a_loop_of_ones_own_is_no_metric_of_the_compiled_model():
    """Nobody's metric runs: what has no scope behind the model is the loop's."""
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("adam", "mse")

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - 1) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    graph = gradients.get_concrete_function(tf.ones((BATCH, 8))).graph
    traced = TracedLayer(model)
    traced.called(graph, is_inside=False)
    facts = describe_model(model, {id(model): traced})
    assert not [name for name, fact in facts.ops[""][0].items() if fact.part == METRICS]


@pytest.mark.parametrize("which", BOTH)
def test_operations_equal_those_worked_out_by_hand(which):
    p, _ = fitted(which, "sequential")
    table = rows_of(p)
    kinds = {row.layer_type: row for _, row in table.iterrows()}
    assert kinds["Conv2D"].flops_forward == BATCH * 10 * 10 * 4 * 3 * 3 * 3 * 2
    assert kinds["Conv2D"].flops_backward == kinds["Conv2D"].flops_forward  # the input needs no gradient
    assert kinds["DepthwiseConv2D"].flops_forward == BATCH * 8 * 8 * 4 * 9 * 2
    assert kinds["DepthwiseConv2D"].flops_backward == 2 * kinds["DepthwiseConv2D"].flops_forward
    dense = table[table.layer_type == "Dense"]
    assert dense.flops_forward.tolist() == [BATCH * 64 * 10 * 2, BATCH * 10 * 4 * 2]
    assert dense.flops.tolist() == [3 * BATCH * 64 * 10 * 2, 3 * BATCH * 10 * 4 * 2]
    seconds = (dense.forward_us + dense.backward_us) / 1e6 / len(p.study.summary.counted)  # a step that was held up is left out
    assert dense.gigaflops_per_second.tolist() == pytest.approx((dense.flops / seconds / 1e9).tolist())
    assert np.isnan(kinds["BatchNormalization"].flops)


@pytest.mark.parametrize("which", BOTH)
def test_operations_of_attention_equal_those_worked_out_by_hand(which):
    table = rows_of(fitted(which, "transformer")[0])
    attention = next(path for path in table.index if path.endswith("/attention"))
    assert table.flops_forward[attention] == BATCH * 2 * 2 * 20 * 20 * (8 + 8)
    for part in ("query", "key", "value", "attention_output"):
        assert table.flops_forward[f"{attention}/{part}"] == BATCH * 20 * 16 * 16 * 2
        assert table.parameters[f"{attention}/{part}"] == 16 * 16 + 16
    assert table.with_parts_us[attention] > table.total_us[attention]


@pytest.mark.parametrize("which", BOTH)
def test_a_shared_layer_is_one_row_with_both_calls(which):
    p, model = fitted(which, "shared")
    table = rows_of(p)
    row = table.loc[f"{model.name}/shared"]
    assert row.is_shared
    assert row.parameters == 16 * 16 + 16
    assert row.flops_forward == 2 * BATCH * 16 * 16 * 2
    assert not table.is_shared[f"{model.name}/head"]


@pytest.mark.parametrize("which", BOTH)
def test_a_nested_model_keeps_its_place_in_the_path(which):
    p, _ = fitted(which, "nested")
    table = rows_of(p)
    inner = [path for path in table.index if path.startswith("outer/encoder/dense")]
    assert len(inner) == 2
    assert table.parameters[inner].tolist() == [16 * 32 + 32, 32 * 8 + 8]
    assert table.with_parts_us["outer/encoder"] == pytest.approx(table.total_us[[*inner, "outer/encoder"]].sum())


@pytest.mark.parametrize(
    ("which", "name", "jit"),
    [("keras", name, False) for name in ("sequential", "subclassed", "shared")]
    + [pytest.param("tf_keras", name, False, marks=pytest.mark.long) for name in ("sequential", "subclassed", "shared")]
    + [pytest.param(which, name, True, marks=pytest.mark.long) for which, name in (("keras", "transformer"), ("tf_keras", "shared"))],
)
def test_layers_are_found_though_the_model_was_traced_before(which, name, jit):
    """No call of a layer is seen then: names alone must do."""
    _, model = fitted(which, name, jit)
    with profile() as p:
        model.fit(*data_for(name), batch_size=BATCH, verbose=0)
    assert not p.recording.models[0].scopes
    if jit and p.xla.empty:
        pytest.skip(f"TensorFlow {tf.__version__} records no XLA ops on a CPU")
    table = rows_of(p)
    kinds = table[table.layer_type.isin(["Dense", "Conv2D"])]
    assert (kinds.forward_us > 0).all()
    assert (kinds.backward_us > 0).all()
    assert table.parameters.sum() == model.count_params()
    assert sums_exactly(p)


def test_a_model_in_a_loop_of_ones_own_is_known():
    model = shared(keras)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        return tape.gradient(loss, model.trainable_variables)

    with profile() as p:
        for number in range(4):
            with profnb.step(number):
                step(tf.ones((8, 16)))
    table = rows_of(p)
    row = table.loc[f"{model.name}/shared"]
    assert row.forward_us > 0
    assert row.backward_us > 0
    assert np.isnan(row.flops)  # nobody told the batch size
    assert sums_exactly(p)


def test_evaluation_has_no_way_back():
    model = compiled(keras, "nested")
    with profile() as p:
        model.evaluate(*data_for("nested"), batch_size=BATCH, verbose=0)
    table = rows_of(p)
    dense = table[table.layer_type == "Dense"]
    assert (dense.forward_us > 0).all()
    assert (dense.backward_us == 0).all()
    assert (dense.flops_backward == 0).all()
    assert "optimizer" not in table.index


@pytest.mark.newest
def test_a_trace_that_was_saved_takes_a_model_later(tmp_path):
    model = compiled(keras, "nested")
    with profnb.profile(logdir=str(tmp_path)) as p:
        model.fit(*data_for("nested"), batch_size=BATCH, verbose=0)
    again = profnb.load(tmp_path)
    assert rows_of(again).parameters.sum() == model.count_params()
    assert rows_of(again).forward_us.to_dict() == rows_of(p).forward_us.to_dict()
    for file in tmp_path.rglob("*.profnb.json.gz"):  # somebody else's trace has no such file
        file.unlink()
    without = profnb.load(tmp_path)
    assert without.layers.parameters.isna().all()
    foreign = profnb.load(tmp_path, model=model)
    assert rows_of(foreign).parameters.sum() == model.count_params()
    assert foreign.recording is None  # nothing is known of how it was captured
    assert "starting and saving" not in foreign.summary()


def test_ops_that_run_eagerly_have_no_scope_and_lose_nothing():
    model = compiled(keras, "nested", run_eagerly=True)
    with profile() as p:
        model.fit(*data_for("nested"), batch_size=BATCH, verbose=0)
    assert sums_exactly(p)
    assert p.layers.set_index("layer").total_us["outside the model"] > 0


def test_a_module_without_keras_is_told_by_its_name_scope():
    class Linear(tf.Module):
        def __init__(self, name):
            super().__init__(name=name)
            self.w = tf.Variable(tf.ones((64, 64)))

        @tf.Module.with_name_scope
        def __call__(self, x):
            return tf.matmul(x, self.w)

    first, second = Linear("first"), Linear("second")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(second(first(x)))
        return tape.gradient(loss, [first.w, second.w])

    with profile() as p:
        for number in range(4):
            with profnb.step(number):
                step(tf.ones((32, 64)))
    table = rows_of(p)
    assert table.layer_type[["first", "second"]].tolist() == ["name scope"] * 2
    assert (table.loc[["first", "second"], "forward_us"] > 0).all()
    assert (table.loc[["first", "second"], "backward_us"] > 0).all()


def test_a_layer_that_a_gradient_runs_again_shows_recomputation():
    k = library("tf_keras")

    class Block(k.layers.Layer):
        def __init__(self):
            super().__init__(name="block")
            self.up = k.layers.Dense(64, activation="gelu", name="up")

        def build(self, given):
            self.up.build(given)
            self.again = tf.recompute_grad(self.up)

        def call(self, x):
            return self.again(x)

    given = k.layers.Input((16,))
    model = k.Model(given, k.layers.Dense(4)(Block()(given)))
    model.compile("sgd", "mse")
    with profile() as p:
        model.fit(np.ones((STEPS * BATCH, 16)), np.ones((STEPS * BATCH, 4)), batch_size=BATCH, verbose=0)
    table = rows_of(p)
    row = table.loc[f"{model.name}/block/up"]
    assert row.forward_us > 0
    assert row.recomputation_us > 0
    assert row.backward_us > 0
    assert (table.recomputation_us > 0).sum() == 1


@pytest.mark.parametrize("which", BOTH)
def test_models_that_one_step_trains_in_turn_have_no_recomputation(which):
    """A GAN: after the first gradient both models run forward again, which repeats nothing."""
    k = library(which)

    class Gan(k.Model):
        def __init__(self):
            super().__init__()
            self.generator = k.Sequential([k.layers.Input((8,)), k.layers.Dense(16, name="make")], name="generator")
            self.critic = k.Sequential([k.layers.Input((16,)), k.layers.Dense(1, name="judge")], name="critic")

        def train_step(self, real):
            noise = tf.random.normal((BATCH, 8))
            for model, sign in ((self.critic, 1.0), (self.generator, -1.0)):
                with tf.GradientTape() as tape:
                    loss = sign * tf.reduce_mean(self.critic(self.generator(noise)) - self.critic(real))
                for weight, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
                    weight.assign(weight - 0.01 * gradient)
            return {"loss": loss}

    gan = Gan()
    gan.compile()
    with profile() as p:
        gan.fit(np.ones((STEPS * BATCH, 16), "float32"), batch_size=BATCH, verbose=0)
    table = rows_of(p)
    made, judged = (next(row for row in table.index if row.endswith(name)) for name in ("/make", "/judge"))
    assert (table.loc[[made, judged], "forward_us"] > 0).all()
    assert (table.loc[[made, judged], "backward_us"] > 0).all()
    assert (table.recomputation_us == 0).all()
    assert table.parameters.sum() == 8 * 16 + 16 + 16 + 1
    assert sums_exactly(p)


@pytest.mark.parametrize("which", BOTH)
def test_no_hook_and_no_model_outlives_the_capture(which):
    k = library(which)
    call, batch = k.layers.Layer.__call__, k.Model.train_on_batch
    p, model = fit(k, "shared")
    assert k.layers.Layer.__call__ is call
    assert k.Model.train_on_batch is batch
    gone = weakref.ref(model)
    del model
    k.backend.clear_session()
    gc.collect()
    assert gone() is None
    assert not p.layers.empty


def test_a_model_that_is_gone_before_the_capture_ends_is_known_all_the_same():
    def work():
        compiled(keras, "shared").fit(*data_for("shared"), batch_size=BATCH, verbose=0)

    with profile() as p:
        work()
        gc.collect()
    assert rows_of(p).parameters.sum() == 16 * 17 + 4 * 17


def test_an_error_inside_a_layer_is_the_users_own():
    class Broken(keras.layers.Layer):
        def call(self, x):
            raise KeyError("mine")

    def traceback_of(run):
        with pytest.raises(KeyError) as caught:
            run()
        return [entry.name for entry in caught.traceback][1:]

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    bare = traceback_of(lambda: Broken()(tf.ones((1, 4))))
    with profile():
        profiled = traceback_of(lambda: Broken()(tf.ones((1, 4))))
        model.fit(np.ones((8, 4)), np.ones((8, 4)), verbose=0)
    assert profiled == bare


def test_a_layer_that_cannot_be_looked_at_does_not_lose_the_others():
    class Odd(keras.layers.Layer):
        def __getattribute__(self, name):
            if name in ("output_shape", "_inbound_nodes", "_build_shapes_dict") and getattr(type(self), "is_hostile", False):
                raise RuntimeError(name)
            return super().__getattribute__(name)

        def call(self, x):
            return x * 2.0

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4), Odd(name="odd"), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    with profile() as p:
        model.fit(np.ones((64, 4)), np.ones((64, 2)), batch_size=8, verbose=0)
        Odd.is_hostile = True
    Odd.is_hostile = False
    table = rows_of(p)
    assert (table.layer_type == "Dense").sum() == 2


@pytest.mark.newest
def test_a_wider_layer_has_more_operations_and_no_other_has():
    def table_of(width):
        given = keras.layers.Input((16,))
        x = keras.layers.Dense(16, name="before")(given)
        x = keras.layers.Dense(width, name="wide")(x)
        x = keras.layers.Dense(16, name="after")(keras.layers.Lambda(lambda t: t[:, :16], name="cut")(x))
        model = keras.Model(given, x, name="net")
        model.compile("sgd", "mse")
        with profile() as p:
            model.fit(np.ones((128, 16)), np.ones((128, 16)), batch_size=32, verbose=0)
        return rows_of(p)

    narrow, wide = table_of(32), table_of(64)
    assert (wide.flops / narrow.flops)[["net/before", "net/wide", "net/after"]].tolist() == [1, 2, 1]


# Several models.


def small_model(k, name, width=16, inside="h", last=None):
    given = k.layers.Input((8,))
    model = k.Model(given, k.layers.Dense(4, name=last or f"{name}_out")(k.layers.Dense(width, name=inside)(given)), name=name)
    model.compile("sgd", "mse")
    return model


WIDE = np.ones((8 * BATCH, 8), "float32"), np.ones((8 * BATCH, 4), "float32")


@pytest.mark.parametrize("which", BOTH)
def test_a_model_that_lives_but_does_not_run_is_given_no_update(which):
    k = library(which)
    one, two = small_model(k, "first_one", inside="h1"), small_model(k, "second_one", inside="h2")
    for model in (one, two):
        model.fit(*WIDE, batch_size=BATCH, verbose=0)
    for runs, rests in ((one, two), (two, one)):
        with profnb.profile(model=[one, two], max_seconds=300) as p:
            runs.fit(*WIDE, batch_size=BATCH, verbose=0)
        table = rows_of(p)
        mine, others = (table[table.index.str.startswith(model.name)] for model in (runs, rests))
        assert mine.update_us.sum() > 0
        assert others.total_us.sum() == 0
        assert sums_exactly(p)


@pytest.mark.newest
def test_operations_of_a_model_are_those_of_the_steps_that_it_ran_in():
    one, two = small_model(keras, "first", inside="h1"), small_model(keras, "second", inside="h2")
    for model in (one, two):
        model.fit(*WIDE, batch_size=BATCH, verbose=0)
    with profile() as p:
        one.fit(*WIDE, batch_size=BATCH, verbose=0)
    alone = rows_of(p)
    with profile() as p:
        one.fit(*WIDE, batch_size=BATCH, verbose=0)
        two.fit(*WIDE, batch_size=BATCH, epochs=3, verbose=0)
    both = rows_of(p)
    assert alone.flops_forward["first/h1"] == 2 * 8 * 16 * BATCH
    steps = both.attrs["steps"]
    done = both.flops_forward[["first/h1", "second/h2"]] * steps / (2 * 8 * 16 * BATCH)
    assert done.tolist() == pytest.approx([8, 24], abs=4.01)  # iterations; the first of each pass may be warm-up, one may stand aside
    assert done.sum() == pytest.approx(steps)


@pytest.mark.newest
def test_models_that_nothing_can_tell_apart_are_said_to_be():
    small, large = small_model(keras, "net"), small_model(keras, "net", width=64)
    with profile() as p:
        small.fit(*WIDE, batch_size=BATCH, verbose=0)
        large.fit(*WIDE, batch_size=BATCH, verbose=0)
    (remark,) = p.layers.attrs["remarks"]
    assert remark.startswith("2 models named net ran")
    assert remark in p.summary().replace("\n", " ")
    assert rows_of(p).flops[["net/h", "net/net_out"]].isna().all()
    with profile() as p:
        small.fit(*WIDE, batch_size=BATCH, verbose=0)
    assert p.layers.attrs["remarks"] == []


@pytest.mark.newest
def test_a_model_that_did_not_run_is_said_not_to_be_the_one(tmp_path):
    model = small_model(keras, "ran")
    with profnb.profile(logdir=str(tmp_path), max_seconds=300):
        model.fit(*WIDE, batch_size=BATCH, verbose=0)
    renamed, stranger = small_model(keras, "ran", inside="new_name", last="also_new"), small_model(keras, "stranger")
    assert profnb.load(tmp_path, model=model).layers.attrs["remarks"] == []
    (remark,) = profnb.load(tmp_path, model=stranger).layers.attrs["remarks"]
    assert "stranger were not found" in remark
    (remark,) = profnb.load(tmp_path, model=renamed).layers.attrs["remarks"]
    assert "ran were not found" in remark


@pytest.mark.newest
def test_models_made_and_dropped_in_turn_are_all_known():
    with profile() as p:
        for number in range(4):
            small_model(keras, f"dropped_{number}").train_on_batch(WIDE[0][:8], WIDE[1][:8])
            gc.collect()
    assert {f"dropped_{number}" for number in range(4)} <= {model.name for model in p.recording.models}


def test_parts_side_by_side_need_the_gradients_that_their_layer_needs():
    layers = keras.layers
    given = layers.Input((5, 8))
    x = layers.Bidirectional(layers.GRU(6, return_sequences=True), name="both")(given)
    y = layers.MultiHeadAttention(2, 4, name="attention")(given, given)
    model = keras.Model(given, layers.Concatenate()([x, y]))
    (facts,) = describe_models([model])
    needs = {layer.name: layer.needs_input_gradient for layer in facts.layers}
    assert not any(needs[name] for name in ("forward_gru", "backward_gru", "query", "key", "value"))
    assert needs["attention_output"]


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_operations_of_a_quantized_layer_are_those_of_its_numbers_not_of_how_they_are_packed(mode):
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(128, name="d1"), keras.layers.Dense(4, name="d2")])
    try:
        model.quantize(mode)
    except (AttributeError, ValueError, NotImplementedError) as error:
        pytest.skip(f"this Keras: {error}")
    (facts,) = describe_models([model])
    flops = {layer.name: forward_flops(facts.layers, row, 1) for row, layer in enumerate(facts.layers)}
    assert (flops["d1"], flops["d2"]) == (2 * 64 * 128, 2 * 128 * 4)
