"""The metrics that two sets of runs reached, to how they differ: the cost in quality beside the gain in time.

A metric's spread over runs is what a difference has to be held against: by Welch's interval of the difference
of means where both sides have two runs or more; one run each cannot tell.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.capture.models.layer_facts import FitResult
from profnb.compare.estimates import estimate_mean
from profnb.core.table import Table, columns_in
from profnb.core.units import metric_text

_HIGHER = re.compile(
    r"(^|_)(acc|accuracy|auc|precision|recall|f1|f_?beta|iou|dice|r2|psnr|ssim|bleu)", re.IGNORECASE
)
_LOWER = re.compile(
    r"(^|_)(loss|error|mse|mae|mape|rmse|msle|perplexity|divergence|crossentropy)($|_)",
    re.IGNORECASE,
)
_LEARNING_RATES = re.compile(r"^(lr|learning_rate)$")  # what callbacks log beside metrics


def is_higher_better(metric: str) -> bool | None:
    """Tell whether larger values of a metric are better; None where its name does not tell."""
    if _HIGHER.search(metric) and not _LOWER.search(metric):
        return True
    lower = _LOWER.search(metric) or metric.lower().endswith(("_error", "loss"))
    return False if lower else None


class Both(NamedTuple):
    """A number of A's runs, and the same of B's."""

    first: float
    second: float


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """One metric of A and of B, a value per run.

    Attributes:
        metric: Its name.
        first: The last values of A's runs.
        second: Those of B's.
        is_higher_better: Whether larger is better; None where the name does not tell.
        low: Where the 95 % interval of B's mean less A's begins; NaN where too few runs tell it.
        high: Where it ends.
    """

    metric: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    is_higher_better: bool | None
    low: float
    high: float

    @property
    def is_different(self) -> bool:
        """The interval leaves out 0; False where there is none."""
        return self.low > 0 or self.high < 0

    @property
    def word(self) -> str:
        """B's values against A's, in a word; "" where too few runs tell it."""
        if math.isnan(self.low):
            return ""
        return ("higher" if self.low > 0 else "lower") if self.is_different else "none shown"

    def text(self, value: float) -> str:
        """Write a value of this metric."""
        return metric_text(value, is_score=self.is_higher_better is True)

    def _each(self, figure: Callable[[tuple[float, ...]], float]) -> "Both":
        return Both(figure(self.first), figure(self.second))

    @property
    def medians(self) -> "Both":
        """The median over the runs of A, and of B."""
        return self._each(lambda values: float(np.median(values)))

    @property
    def worsts(self) -> "Both":
        """The worst run of each; the smallest value where the name does not tell."""
        return self._each(max if self.is_higher_better is False else min)

    @property
    def runs(self) -> "Both":
        """Count the runs of each."""
        return self._each(len)

    def sentence(self, first: str, second: str) -> str:
        """Say in a sentence how the metric differs."""
        one, two = self.medians
        medians = f"{self.text(one)} for {first}, {self.text(two)} for {second}"
        broken = self._each(lambda values: sum(not math.isfinite(value) for value in values))
        if any(broken):
            return (
                f"{self.metric} is not finite in {broken[0]} of {self.runs[0]} runs of {first} and "
                f"{broken[1]} of {self.runs[1]} of {second}: these trainings diverged."
            )
        if math.isnan(self.low):
            return f"{self.metric}: {medians}. One run a side cannot rule out chance."
        worst = " and ".join(map(self.text, self.worsts))
        figures = f"median {medians}; worst {worst} ({self.runs[0]} + {self.runs[1]} runs)"
        if not self.is_different:
            return f"{self.metric} shows no difference: {figures}."
        verdict = ""
        if self.is_higher_better is not None:
            verdict = ", better" if (self.low > 0) == self.is_higher_better else ", worse"
        return f"{self.metric} is {self.word} for {second}{verdict}: {figures}."


def compare_metrics(
    first: Sequence[Sequence[FitResult]], second: Sequence[Sequence[FitResult]]
) -> list[MetricDifference]:
    """Compare the metrics that both sides have, the one to look at first in front.

    Args:
        first: For each run of A what its fits reached, in order; the last fit counts.
        second: Likewise of B.
    """
    sides = [_values(first), _values(second)]
    names = [name for name in sides[0] if name in sides[1]]
    leading = pick_metric(names)
    rows = []
    for name in names:
        one, two = (tuple(values[name]) for values in sides)
        low = high = float("nan")
        if np.isfinite([*one, *two]).all():
            low, high = estimate_mean(two).less(estimate_mean(one))
        rows.append(MetricDifference(name, one, two, is_higher_better(name), low, high))
    return sorted(rows, key=lambda row: row.metric != leading)


def _values(runs: Sequence[Sequence[FitResult]]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for fits in runs:
        for name, value in fits[-1].metrics.items() if fits else ():
            if not _LEARNING_RATES.match(name):
                values.setdefault(name, []).append(value)
    return values


def pick_metric(names: Sequence[str]) -> str | None:
    """Pick the metric that speaks for what was learned: of validation before training, a score before a loss.

    Of loss, accuracy, val_loss and val_accuracy it is val_accuracy; without it val_loss; None where no
    name says whether larger is better.
    """

    def rank(name: str) -> tuple[bool, bool]:
        return not name.startswith("val_"), is_higher_better(name) is not True

    with_direction = [name for name in names if is_higher_better(name) is not None]
    return min(with_direction, key=rank, default=None)


QUALITY = Table[Sequence[MetricDifference]](
    "quality",
    "One row per metric of Keras' fits, the most important first.",
    columns_in("""
        metric: its name; what counts is its last value in each run
        first_median = medians.first: median over the runs of A
        first_worst = worsts.first: ... the worst of them
        first_runs = runs.first: ... how many they are
        second_median = medians.second: median over the runs of B
        second_worst = worsts.second: ... the worst of them
        second_runs = runs.second: ... how many they are
        low: where the 95 % interval of the difference of means begins, NaN with one run on a side
        high: where it ends
        is_different: whether it leaves out 0
        """),
    owner="c",
)
