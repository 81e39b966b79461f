"""One-hot rows times a weight: told to be an Embedding, and nothing else that is made one-hot is."""

import numpy as np
import pytest
from advised import proposed

import profnb
from profnb.capture.source.source_records import GraphShapes
from profnb.causes.repeats import LOOKUP, _lookups

OF_GRADIENT = "gradient_tape/dense/MatMul/MatMul"
X, WEIGHT, KERNEL = ("x", "Placeholder"), ("weight", "Placeholder"), ("dense/MatMul/ReadVariableOp", "ReadVariableOp", 1)


def marked(*ops, shapes=None):
    """The names of the ops that look rows up, of a graph of (name, type, rows that it takes), each with one result."""
    names, kinds, taken = zip(*((name, kind, tuple(inputs)) for name, kind, *inputs in ops), strict=True)
    many = len(ops)
    graph = GraphShapes(names, kinds, taken, (1,) * many, shapes or (None,) * many, ("float32",) * many, {}, "__inference_step_1")
    return [name for name, level in zip(names, _lookups(graph), strict=True) if level == LOOKUP]


def test_the_one_hot_its_product_and_what_the_weight_learns_are_marked():
    layer = [X, WEIGHT, KERNEL, ("hot", "OneHot", 0), ("dense/MatMul", "MatMul", 3, 2), ("dense/BiasAdd", "BiasAdd", 4, 2), ("relu", "Relu", 5)]
    behind = [("next/read", "ReadVariableOp", 1), ("next/MatMul", "MatMul", 6, 7), (OF_GRADIENT, "MatMul", 3, 8), ("back", "MatMul", 8, 7)]
    assert marked(*layer, *behind) == ["hot", "dense/MatMul", "dense/BiasAdd", OF_GRADIENT]


def test_rows_that_are_cast_and_folded_before_are_one_hot_still():
    """A sequence, in mixed precision: as Dense multiplies three axes."""
    folded = [("half", "Cast", 3), ("tensordot/Reshape", "Reshape", 4, 0), ("weight_half", "Cast", 2), ("tensordot/MatMul", "MatMul", 5, 6)]
    assert marked(X, WEIGHT, KERNEL, ("hot", "OneHot", 0), *folded) == ["hot", "tensordot/MatMul"]


@pytest.mark.parametrize(("width", "is_row"), [(4, True), (400, False)])
def test_rows_side_by_side_are_no_row_of_a_table(width, is_row):
    """A hundred letters of four kinds, each a row, or flattened: then the product adds a hundred rows up."""
    ops = X, WEIGHT, KERNEL, ("hot", "OneHot", 0), ("flat/Reshape", "Reshape", 3), ("dense/MatMul", "MatMul", 4, 2)
    shapes = ((None, 100), (width, 8), (width, 8), (None, 100, 4), (None, width), (None, 8))
    assert marked(*ops, shapes=shapes) == (["hot", "dense/MatMul"] if is_row else [])


def test_what_is_added_to_a_row_besides_its_bias_is_not_spared():
    layer = X, WEIGHT, KERNEL, ("hot", "OneHot", 0), ("dense/MatMul", "MatMul", 3, 2), ("tanh", "Tanh", 4), ("residual", "AddV2", 4, 5)
    assert marked(*layer) == ["hot", "dense/MatMul"]


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([("loss", "SoftmaxCrossEntropyWithLogits", 2, 3)], id="targets"),
        pytest.param([("act", "Relu", 2), ("route", "BatchMatMulV2", 3, 4), ("gradient_tape/route/MatMul", "BatchMatMulV2", 3, 4)], id="routes to experts"),
        pytest.param([("mask", "Mul", 3, 2), ("dense/MatMul", "MatMul", 4, 2)], id="masks"),
        pytest.param([("sum", "Sum", 3), ("dense/MatMul", "MatMul", 4, 2)], id="counts words"),
    ],
)
def test_what_is_no_lookup_is_left_alone(ops):
    assert marked(X, WEIGHT, KERNEL, ("hot", "OneHot", 0), *ops) == []


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_one_hot", [True, False], ids=["one-hot and Dense", "Embedding, and targets made one-hot"])
def test_a_fit_that_runs_here(is_one_hot):
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")
    many, rows = 4_000, 256
    words = keras.Input((), dtype="int32")
    if is_one_hot:
        vectors = keras.layers.Dense(32, name="vectors")(keras.layers.Lambda(lambda at: tf.one_hot(at, many), output_shape=(many,))(words))
    else:
        vectors = keras.layers.Embedding(many, 32, name="vectors")(words)
    model = keras.Model(words, keras.layers.Dense(4)(vectors))
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    x, y = np.arange(rows, dtype="int32"), np.eye(4, dtype="float32")[np.zeros(rows, int)]
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x, tf.one_hot(tf.argmax(y), 4))).batch(32).prefetch(2)
    model.fit(data, verbose=0)
    with profnb.profile() as p:
        model.fit(data, epochs=3, verbose=0)
    found = proposed(p.study)
    assert ("one-hot" in found) == is_one_hot
    if is_one_hot:
        assert "Embedding" in found["one-hot"].title
        low, high = found["one-hot"].edits[0].least_ps, found["one-hot"].edits[0].most_ps
        assert low == 0 < high  # a quarter at most, and tracing it
