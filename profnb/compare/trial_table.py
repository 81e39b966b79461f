"""Trials of edits: how much faster the code became, what the advice had promised, what it cost in quality."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from profnb.compare.quality import MetricDifference
from profnb.compare.speedup import Difference, factor_text
from profnb.core.table import Table, columns_in
from profnb.core.units import MISSING, range_text

UNTRIED = Difference()


@dataclass(frozen=True, slots=True)
class Trial:
    """One edit, run beside the code as it is.

    Attributes:
        rule: The rule of the advice; of several together all of them.
        change: What was edited, in a few words.
        alters: What the edit changes in results, in a few words; "nothing" for nothing.
        diff: The edit as a unified diff.
        sources: The edited text of each source that it changes.
        difference: The time as edited against that as it is.
        promised: The least and the most of the time that the advice had left over; NaN where unknown.
        reached: What the training reached by both; None where it told nothing.
        steps: How many steps were timed as edited.
        is_cut: Whether each run was ended after its first steps, whose times are then compared.
        error: Why there is no result, or no more; "" where there is.
    """

    rule: str
    change: str
    alters: str
    diff: str
    sources: Mapping[str, str] = field(default_factory=dict)
    difference: Difference = UNTRIED
    promised: tuple[float, float] = (math.nan, math.nan)
    reached: MetricDifference | None = None
    steps: int = 0
    is_cut: bool = False
    error: str = ""

    @property
    def has_result(self) -> bool:
        """True if times were compared."""
        return not math.isnan(self.difference.ratio)

    @property
    def is_faster(self) -> bool:
        """True if the edit surely made the code faster."""
        return self.difference.is_different and self.difference.ratio < 1

    @property
    def saved_fraction(self) -> float:
        """The share of the time that the edit surely saves, about; 0 where it does not."""
        return 1 - self.difference.ratio if self.is_faster else 0.0

    @property
    def promised_low(self) -> float:
        """The least of the time that the advice had left over."""
        return self.promised[0]

    @property
    def promised_high(self) -> float:
        """The most of it."""
        return self.promised[1]

    @property
    def metric(self) -> float:
        """The median of the metric as edited; NaN where there is none."""
        return math.nan if self.reached is None else median(self.reached.second)

    @property
    def metric_before(self) -> float:
        """That of the code as it is."""
        return math.nan if self.reached is None else median(self.reached.first)

    def words(self) -> str:
        """The result: "1.90x faster (1.80 to 2.00)"; why there is none."""
        one = self.difference
        if self.error or not self.has_result:
            return self.error or MISSING
        if not one.is_different:
            ends = range_text(f"{one.low:.2f}", f"{one.high:.2f}")
            return f"no difference shown ({ends} of the time)"
        speed, interval = one.speed_words()
        return f"{speed} ({interval})"

    def promise_words(self) -> str:
        """The range that the advice had promised: "1.50 to 2.20x faster"."""
        low, high = self.promised
        if math.isnan(low) or high <= 0:
            return MISSING
        most = factor_text(1 / low) if low > 0.01 else "more"
        return f"{range_text(factor_text(1 / high), most)}x faster"

    def metric_words(self) -> str:
        """Say what the training reached: "loss 0.412 against 0.409", "loss the same", "loss not finite"."""
        if self.reached is None:
            return MISSING
        values = self.metric, self.metric_before
        texts = [self.reached.text(one) if math.isfinite(one) else "not finite" for one in values]
        if texts[0] == texts[1] and math.isfinite(self.metric):
            texts = ["the same"]
        return f"{self.reached.metric} {' against '.join(dict.fromkeys(texts))}"


def promised_ratio(
    saves_ms: tuple[float, float], wall_ms: float, once_ms: tuple[float, float] = (0.0, 0.0)
) -> tuple[float, float]:
    """Of what an advice saves, make the part of the time that is left: 2 to 5 of 10 ms is 0.5 to 0.8.

    With 1 to 2 ms that the change costs once it is 0.6 to 1.0.
    """
    if not wall_ms:
        return math.nan, math.nan
    (low, high), (first, last) = saves_ms, once_ms
    return max((wall_ms - high + first) / wall_ms, 0.0), max((wall_ms - low + last) / wall_ms, 0.0)


TRIALS = Table[Sequence[Trial]](
    "trials",
    "One row per tried edit (`%%tfprofile --try`, `p.try_advice()`); the best together come last.",
    columns_in("""
        rule: the rule of the advice; of several together all of them
        change: what was edited
        ratio = difference.ratio: the time as edited over that as it is; below 1 it is faster
        interval_low = difference.low: where its 95 % interval begins
        interval_high = difference.high: where it ends
        promised_low: the least that the advice had promised this ratio to be
        promised_high: the most that it had promised
        steps: steps that were timed as edited, in all runs
        metric: what the training reached as edited, by the metric to look at first
        metric_before: what it reached as it is
        diff: the edit, as a unified diff
        error: why there is no result; "" where there is one
        """),
)
