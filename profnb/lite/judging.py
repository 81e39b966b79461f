"""Outputs and labels to accuracy or error, what that of one model differs from another's, and agreement.

Source: Wilson (1927) for one share; Bonett and Price, "Adjusted Wald confidence interval for a difference of
binomial proportions based on paired data" (2012); Student's interval for means.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profnb.compare.estimates import estimate_mean
from profnb.core.columns import Floats

_Z = 1.96


@dataclass(frozen=True, slots=True)
class Price:
    """A difference of a metric and its 95 % interval; positive where it is larger."""

    difference: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Judged:
    """Outputs, judged.

    Attributes:
        metric: What scores are; "" without labels.
        figures: By model the fields of its row.
    """

    metric: str
    figures: dict[str, dict[str, Any]]


def judge_outputs(
    outputs_by_model: Mapping[str, Sequence[Any]], labels: Any, reference: str
) -> Judged:
    """Accuracy or error of models, and how far they agree with one of them.

    Args:
        outputs_by_model: By model its outputs, each with a row per example; the first is judged.
        labels: Labels of those examples; None for none.
        reference: The model that others are compared with; it may be missing.

    Raises:
        ValueError: The labels do not belong to these outputs.
    """
    expected = outputs_by_model.get(reference)
    ordered = {
        name: outputs if expected is None else _in_order(outputs, expected)
        for name, outputs in outputs_by_model.items()
    }
    first = next(iter(ordered.values()))
    metric = "" if labels is None else metric_of(labels, first[0])
    threshold = _threshold(first[0])
    figures: dict[str, dict[str, Any]] = {}
    for name, outputs in ordered.items():
        row: dict[str, Any] = {}
        figures[name] = row
        if metric:
            scores = _score_examples(labels, outputs[0], metric, threshold=threshold)
            row["scores"] = tuple(float(score) for score in scores)
        if expected is not None and name != reference:
            largest, mean = _largest_and_mean(outputs[0], expected[0])
            row["agreement_fraction"] = _agreement(outputs[0], expected[0], threshold=threshold)
            row["largest_difference"], row["mean_difference"] = largest, mean
    return Judged(metric, figures)


def _in_order(outputs: Sequence[Any], reference: Sequence[Any]) -> list[Any]:
    """A model's outputs in the order of the reference's: of the same shape, the nearest."""
    left, ordered = list(outputs), []
    for expected in reference:
        fitting = [one for one in left if one.shape == expected.shape]
        if not fitting:
            return list(outputs)
        distances = [_largest_and_mean(one, expected)[0] for one in fitting]
        nearest = fitting[distances.index(min(distances))]
        ordered.append(nearest)
        left = [one for one in left if one is not nearest]
    return ordered


def _threshold(outputs: Any) -> float:
    """From which output on a single one means class 1: 0.5 of probabilities, 0 of logits."""
    return 0.5 if outputs.size and outputs.min() >= 0 and outputs.max() <= 1 else 0.0


def metric_of(labels: Any, outputs: Any) -> str:
    """What labels can be judged by: "accuracy" for classes, else "mean absolute error".

    Raises:
        ValueError: They do not belong to these outputs.
    """
    if len(labels) != len(outputs):
        raise ValueError(f"{len(labels)} labels for {len(outputs)} examples; one each is needed.")
    classes = outputs.shape[-1] if outputs.ndim == 2 else 0
    if classes > 1 and labels.size == len(labels):
        flat = labels.reshape(-1)
        if np.all(flat == np.round(flat)) and flat.min() >= 0 and flat.max() < classes:
            return "accuracy"
    if classes > 1 and labels.shape == outputs.shape:
        is_one_hot = np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1)
        return "accuracy" if is_one_hot else "mean absolute error"
    if outputs.size == labels.size:
        is_binary = np.all((labels == 0) | (labels == 1)) and outputs.size == len(outputs)
        return "accuracy" if is_binary else "mean absolute error"
    raise ValueError(
        f"Labels of shape {tuple(labels.shape)} do not fit outputs of shape {tuple(outputs.shape)}."
    )


def _score_examples(labels: Any, outputs: Any, metric: str, *, threshold: float) -> Floats:
    """For each example 1 if its class is right, else 0; or its mean absolute error.

    Args:
        labels: Classes, one-hot rows, or values; N of them.
        outputs: N rows.
        metric: See ``metric_of``.
        threshold: From which output on a single one means class 1.
    """
    if metric != "accuracy":
        differences = np.abs(outputs.reshape(len(outputs), -1) - labels.reshape(len(labels), -1))
        return np.asarray(differences.mean(axis=1), np.float64)
    single = outputs.size == len(outputs)
    predicted_classes = outputs.reshape(-1) > threshold if single else outputs.argmax(axis=-1)
    right = labels.argmax(axis=-1) if labels.size != len(labels) else labels.reshape(-1)
    return np.asarray(predicted_classes == right, np.float64)


def _agreement(outputs: Any, reference: Any, *, threshold: float) -> float:
    """Share of examples with the class that the reference gives; NaN where outputs are no classes."""
    if outputs.size == len(outputs):
        return float(np.mean((outputs > threshold) == (reference > threshold)))
    if outputs.ndim != 2:
        return math.nan
    return float(np.mean(outputs.argmax(axis=-1) == reference.argmax(axis=-1)))


def _largest_and_mean(outputs: Any, reference: Any) -> tuple[float, float]:
    """The largest and the mean absolute difference of two sets of outputs."""
    differences = np.abs(np.asarray(outputs, np.float64) - np.asarray(reference, np.float64))
    return float(differences.max()), float(differences.mean())


def share_interval(right: Floats) -> tuple[float, float, float]:
    """A share and Wilson's 95 % interval; NaN of nothing."""
    count = len(right)
    if not count:
        return math.nan, math.nan, math.nan
    share = float(np.mean(right))
    centre = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    reach = (
        math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) * _Z / (1 + _Z**2 / count)
    )
    return share, max(centre - reach, 0.0), min(centre + reach, 1.0)


def mean_interval(values: Floats) -> tuple[float, float, float]:
    """A mean and Student's 95 % interval; NaN of nothing."""
    if not len(values):
        return math.nan, math.nan, math.nan
    estimate = estimate_mean(list(values))
    return (estimate.mean, *estimate.interval)


def paired_price(one: Floats, base: Floats, *, is_score: bool) -> Price:
    """The mean of the differences, example by example, and its 95 % interval.

    Args:
        one: Scores of one model.
        base: Of the other, for the same examples.
        is_score: Whether they are 0 and 1.
    """
    if not is_score:
        mean, low, high = mean_interval(one - base)
        return Price(mean, low, high)
    count = len(one)
    gained, lost = float(np.sum(one > base)), float(np.sum(one < base))
    more, less = (gained + 1) / (count + 2), (lost + 1) / (count + 2)
    reach = _Z * math.sqrt((more + less - (more - less) ** 2) / (count + 2))
    return Price(
        (gained - lost) / count, max(more - less - reach, -1.0), min(more - less + reach, 1.0)
    )
