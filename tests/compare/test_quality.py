"""What was learned, beside the time: metrics of Keras' History, compared over runs; ops matched although renumbered."""

import math

import pytest

from profnb.compare.op_differences import rank_scopes
from profnb.trace.names import without_call
from profnb.compare.quality import QUALITY, MetricDifference, compare_metrics, is_higher_better, pick_metric
from profnb.capture.models.layer_facts import FitResult


def fits(name, *values, **others):
    return [[FitResult({name: value, **others}, 3, False)] for value in values]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", True), ("val_accuracy", True), ("sparse_categorical_accuracy", True), ("auc_1", True), ("f1_score", True),
        ("loss", False), ("val_loss", False), ("mean_absolute_error", False), ("mse", False), ("dense_1_loss", False), ("lr", None), ("reward", None),
    ],
)  # fmt: skip
def test_which_way_a_metric_is_better(metric, expected):
    assert is_higher_better(metric) is expected


def test_the_metric_to_look_at_first_is_of_validation_and_a_score():
    assert pick_metric(["loss", "accuracy", "val_loss", "val_accuracy"]) == "val_accuracy"
    assert pick_metric(["loss", "accuracy", "val_loss"]) == "val_loss"
    assert pick_metric(["loss", "accuracy"]) == "accuracy"
    assert pick_metric(["reward"]) is None


def test_the_metric_to_look_at_first_stands_in_front_and_the_others_as_they_came():
    runs = [[FitResult(dict.fromkeys(("loss", "accuracy", "val_loss", "val_accuracy", "lr"), 0.5), 3, False)]]
    assert [row.metric for row in compare_metrics(runs, runs)] == ["val_accuracy", "loss", "accuracy", "val_loss"]


def test_a_worst_case_that_fell_is_visible():
    [found] = compare_metrics(fits("accuracy", 0.87, 0.88, 0.86, 0.87), fits("accuracy", 0.80, 0.66, 0.78, 0.74))
    assert found.is_different
    assert found.word == "lower"
    [row] = QUALITY.frame([found]).itertuples()
    assert (row.metric, row.low, row.high, row.is_different) == ("accuracy", found.low, found.high, True)
    assert (row.first_worst, row.second_worst) == (0.86, 0.66)
    text = found.sentence("full", "mixed")
    assert text.startswith("accuracy is lower for mixed, worse: ")
    assert "worst 86.0 % and 66.0 %" in text
    assert text.endswith("(4 + 4 runs).")


@pytest.mark.parametrize(("metric", "verdict"), [("accuracy", "higher for b, better"), ("loss", "higher for b, worse"), ("reward", "higher for b")])
def test_higher_is_better_worse_or_neither(metric, verdict):
    [found] = compare_metrics(fits(metric, 0.31, 0.36, 0.30, 0.33), fits(metric, 0.47, 0.44, 0.52))
    assert found.sentence("a", "b").startswith(f"{metric} is {verdict}: ")


@pytest.mark.parametrize(("low", "high", "is_different"), [(0.0, 0.2, False), (0.01, 0.2, True), (-0.2, 0.0, False), (-0.2, -0.01, True), (-0.1, 0.1, False)])
def test_an_interval_that_ends_at_0_holds_it(low, high, is_different):
    assert MetricDifference("loss", (1.0,), (2.0,), False, low, high).is_different is is_different


def test_equal_metrics_show_no_difference_and_one_run_cannot_tell():
    [same] = compare_metrics(fits("accuracy", 0.87, 0.88, 0.86), fits("accuracy", 0.86, 0.88, 0.87))
    assert (same.is_different, same.word) == (False, "none shown")
    assert "shows no difference" in same.sentence("a", "b")
    [once] = compare_metrics(fits("accuracy", 0.9), fits("accuracy", 0.1))
    assert math.isnan(once.low)
    assert (once.is_different, once.word) == (False, "")
    assert "cannot rule out chance" in once.sentence("a", "b")


def test_the_interval_is_welchs():
    stats = pytest.importorskip("scipy.stats")
    first, second = (0.31, 0.36, 0.30, 0.33), (0.47, 0.44, 0.52)
    [found] = compare_metrics(fits("loss", *first), fits("loss", *second))
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    assert found.low + found.high == pytest.approx(expected.low + expected.high)
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.02)  # near 0 a bound itself is not
    assert found.sentence("a", "b").startswith("loss is higher for b, worse")
    assert found.word == "higher"
    assert found.worsts == (0.36, 0.52)


def test_the_last_fit_counts_settings_do_not_and_a_broken_run_has_no_interval():
    first = [[FitResult({"loss": 9.0}, 1, False), FitResult({"loss": 1.0, "learning_rate": 0.1}, 1, False)]]
    [found] = compare_metrics(first, [[FitResult({"loss": 2.0, "learning_rate": 0.2}, 1, False)]])
    assert (found.first, found.second) == ((1.0,), (2.0,))
    [broken] = compare_metrics(fits("loss", 1.0, 1.1), fits("loss", float("nan"), 1.0))
    assert math.isnan(broken.low)
    assert "not finite in 0 of 2 runs of a and 1 of 2 of b" in broken.sentence("a", "b")
    assert compare_metrics([], []) == []


@pytest.mark.filterwarnings("error")
def test_a_loss_that_grew_without_bound_has_no_interval_and_warns_nobody():
    [broken] = compare_metrics(fits("loss", float("inf"), 1.1), fits("loss", 1.2, 1.0))
    assert math.isnan(broken.low) and math.isnan(broken.high)
    assert "not finite in 1 of 2 runs of a and 0 of 2 of b" in broken.sentence("a", "b")


def test_ops_of_the_same_model_made_again_have_the_same_paths():
    one = ["sequential_1/dense_1/MatMul", "sequential_1/dense_1_2/Relu", "gradient_tape/sequential_1/dense_1/MatMul/MatMul_1", "adam/Sub_4"]
    two = ["StatefulPartitionedCall/sequential_3_1/dense_9/MatMul", "sequential_3_1/dense_10_1/Relu", "gradient_tape/sequential_3_1/dense_9/MatMul/MatMul_1", "adam_3/Sub_4"]
    assert rank_scopes(one) == rank_scopes(two)
    assert rank_scopes(one)[0] == "sequential#0/dense#0/MatMul"
    assert rank_scopes(one)[1] == "sequential#0/dense#1/Relu"
    assert rank_scopes([]) == []


def test_hostile_names_cost_no_more_than_others():
    names = ["a" + "_1" * 50_000, "/".join(["s_1"] * 5000), "x_99999999999999999999/y"]
    assert len(rank_scopes(names)) == 3
    assert without_call("PartitionedCall/" * 3) == "PartitionedCall/" * 3
    assert without_call("StatefulPartitionedCall/PartitionedCall_1/a/b") == "a/b"
