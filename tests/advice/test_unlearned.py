"""Layers that are not trained, before all that are: told in a fit of several epochs, and nowhere else."""

import numpy as np
import pytest
from advised import proposed

import profnb
from profnb.causes.repeats import DATA, find_unlearned

pytestmark = [pytest.mark.tensorflow]
ROWS, WIDTH = 64, 512


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def fitted(keras, parts, epochs=4, data=None):
    """A fit of a model, seen by a capture; two layers are the backbone, one the head."""
    model = keras.Sequential([keras.Input((WIDTH,)), *parts, keras.layers.Dense(3, name="head")])
    model.compile("sgd", "mse")
    x, y = np.zeros((ROWS, WIDTH), "float32"), np.zeros((ROWS, 3), "float32")
    data = ((x, y), {"batch_size": 16}) if data is None else ((data(x, y),), {})
    model.fit(*data[0], **data[1], epochs=1, verbose=0)
    with profnb.profile() as p:
        model.fit(*data[0], **data[1], epochs=epochs, verbose=0)
    return p


def backbone(keras, trainable=(False, False), extra=()):
    layers = [keras.layers.Dense(WIDTH, activation="relu", name=f"deep{at}", trainable=is_so) for at, is_so in enumerate(trainable)]
    return [*extra, *layers]


def test_a_frozen_backbone_is_named_and_what_remains_is_one_epoch_of_it(keras):
    base = keras.Sequential([keras.Input((WIDTH,)), *backbone(keras)], name="features")
    base.trainable = False
    p = fitted(keras, [base])
    told = proposed(p.study)["unlearned"]
    assert told.title == "Run `features` once for all epochs"
    assert told.evidence.startswith("`features` took ")
    assert told.evidence.endswith("4 epochs compute the same for each example. Tracing takes up to 20.0 ms once.")
    (edit,) = told.edits
    spoken_ps = p.cell_tree.self_ms[edit.rows].sum() * 1e9 * edit.share
    assert edit.least_ps == pytest.approx(spoken_ps / 4)  # one of four epochs
    assert 0 < edit.least_ps < edit.most_ps


def test_layers_without_a_model_of_their_own_are_named_by_the_first_and_the_last(keras):
    assert "`deep0 to deep1`" in proposed(fitted(keras, backbone(keras)).study)["unlearned"].title


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda keras: (backbone(keras, (True, True)), {}), id="all are trained"),
        pytest.param(lambda keras: (backbone(keras), {"epochs": 1}), id="one epoch"),
        pytest.param(lambda keras: (backbone(keras, (True, False))[:2], {}), id="gradients flow through the frozen one"),
        pytest.param(lambda keras: ([keras.layers.GaussianNoise(0.1), *backbone(keras)], {}), id="noise before them"),
        pytest.param(lambda keras: ([keras.layers.Dropout(0.1), *backbone(keras)], {}), id="drops numbers anew"),
        pytest.param(lambda keras: (backbone(keras), {"data": augmented}), id="augmented in the pipeline"),
    ],
)
def test_nothing_is_said_where_it_would_be_wrong(keras, made):
    parts, how = made(keras)
    assert "unlearned" not in proposed(fitted(keras, parts, **how).study)


def augmented(x, y):
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data.map(lambda x, y: (x + tf.random.normal(tf.shape(x)), y)).batch(16).prefetch(1)


def test_an_order_drawn_anew_is_no_other_example(keras):
    def shuffled(x, y):
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).batch(16)

    assert "unlearned" in proposed(fitted(keras, backbone(keras), data=shuffled).study)


def test_two_fits_of_two_models_in_one_cell_have_a_name_each(keras):
    x, y = np.zeros((ROWS, WIDTH), "float32"), np.zeros((ROWS, 3), "float32")
    models = []
    for at in range(2):
        models.append(keras.Sequential([keras.Input((WIDTH,)), *backbone(keras), keras.layers.Dense(3)], name=f"net{at}"))
        models[at].compile("sgd", "mse")
    with profnb.profile() as p:
        for model in models:
            model.fit(x, y, epochs=2, verbose=0)
    assert "`deep0 to deep1`" in proposed(p.study)["unlearned"].title


def test_numbers_that_are_dropped_behind_the_frozen_layers_leave_these_as_they_are(keras):
    assert "unlearned" in proposed(fitted(keras, [*backbone(keras), keras.layers.Dropout(0.1)]).study)


def test_what_a_layer_that_learns_does_with_its_input_is_nobodys_to_take_out(keras):
    recurrent = [keras.layers.Reshape((128, 4)), keras.layers.LSTM(2)]
    p = fitted(keras, recurrent)
    assert not any(True for _ in find_unlearned(p.study, (DATA,)))
    assert "unlearned" not in proposed(p.study)


def called(step, times=8):
    """What is said of calls of a step, each of which is read."""
    step()
    with profnb.profile() as p:
        for _ in range(times):
            float(step())
    return proposed(p.study)


def test_a_matrix_that_is_normalised_in_each_call_is_to_be_computed_once(tf):
    links, features = tf.ones((400, 400)), tf.ones((400, 2))
    weights = tf.Variable(tf.ones((2, 1)))

    @tf.function
    def step():
        scale = tf.linalg.diag(tf.math.rsqrt(tf.reduce_sum(links, 1)))
        return tf.reduce_sum(scale @ links @ scale @ (features @ weights))

    told = called(step)["unlearned"]
    assert told.title.startswith("Compute the ops of ") and told.title.endswith("once, before the loop")
    assert "test_unlearned.py:" in told.where


def test_what_a_variable_or_an_argument_decides_is_not_computed_once(tf):
    links = tf.Variable(tf.ones((400, 400)))

    @tf.function
    def step():
        return tf.reduce_sum(links @ links @ links)

    assert "unlearned" not in called(step)


@pytest.mark.parametrize("width", [64, 32])
def test_numbers_of_64_bits_are_told_of_the_graph_that_ran_though_another_has_its_name(tf, width):
    both = [tf.ones((300, 300), dtype) for dtype in (tf.float64, tf.float32)]

    @tf.function
    def step(x):
        return tf.reduce_sum(x @ x)

    for one in both:
        step(one)
    x = both[width == 32]
    with profnb.profile() as p:
        for _ in range(8):
            float(step(x))
    assert set(p.op_roofline["width"]) == {f"{width}-bit"}
    # How much of the cell that is, the machine decides; of ops on 32 bits it is nothing at all.
    assert ("wide-numbers" in proposed(p.study)) == (width == 64)


@pytest.mark.parametrize("width", [16, 32])
def test_convolutions_of_16_bits_are_told_where_the_cpu_does_them_in_software(tf, width):
    x, filters = (tf.ones(shape, f"float{width}") for shape in ((8, 40, 40, 16), (3, 3, 16, 16)))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(filters)
            y = tf.reduce_sum(tf.nn.conv2d(x, filters, 1, "VALID"))
        return tf.reduce_sum(tape.gradient(y, filters))

    step(x)
    with profnb.profile() as p:
        for _ in range(8):
            float(step(x))
    placed = p.op_roofline
    is_slow = (placed["width"] == "16-bit") & (placed["gigaflops_per_second"] < 1) & placed["op_type"].str.contains("Conv")
    told = proposed(p.study).get("slow-16-bit")
    assert (told is not None and told.edits[0].share > 0.1) == (placed["self_us"][is_slow].sum() > placed["self_us"].sum() / 5)
    assert width == 16 or not is_slow.any()


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")
