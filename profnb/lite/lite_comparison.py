"""Two LiteRT results: kind by kind how much faster, how much smaller, and what it does to the outputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from profnb.core.table import TableOf
from profnb.report.result import Result

if TYPE_CHECKING:
    import pandas as pd

    from profnb.compare.speedup import Difference
    from profnb.lite.entry import LiteResult
    from profnb.lite.findings import LiteModel, Price
    from profnb.report.report import Report


@dataclass(frozen=True)
class LiteDifference:
    """One kind in both results.

    Attributes:
        name: The model's name.
        first: It in A.
        second: It in B.
        time: How the times compare.
        price: How the metric differs, example by example; None where the data are not the same.
    """

    name: str
    first: "LiteModel"
    second: "LiteModel"
    time: "Difference"
    price: "Price | None"


class LiteComparison(Result):
    """Two LiteRT results side by side; shown in a notebook, it is its report.

    Attributes:
        first: A.
        second: B.
        labels: What they are called.
    """

    kinds = TableOf("profnb.lite.lite_tables", "LITE_DIFFERENCES", "differences")

    def __init__(self, first: "LiteResult", second: "LiteResult", labels: tuple[str, str]) -> None:
        """Compare nothing yet."""
        self.first, self.second, self.labels = first, second, labels

    @cached_property
    def differences(self) -> "Sequence[LiteDifference]":
        """The kinds that both have, in the order of A."""
        import numpy as np

        from profnb.compare.speedup import RunSet, compare_runs
        from profnb.lite.findings import LiteFindings, paired_price

        one, two = self.first.findings, self.second.findings
        others = {model.name: model for model in two.models if len(model.round_ps)}
        rows = []
        for model in one.models:
            other = others.get(model.name)
            if other is None or not len(model.round_ps):
                continue
            time = compare_runs(
                RunSet(self.labels[0], (np.array(model.round_ps),)),
                RunSet(self.labels[1], (np.array(other.round_ps),)),
            )
            price = None
            assert isinstance(one, LiteFindings)
            if self._has_same_data and len(model.scores) == len(other.scores) > 0:
                scores = np.array(other.scores), np.array(model.scores)
                price = paired_price(*scores, is_score=one.is_score)
            rows.append(LiteDifference(model.name, model, other, time, price))
        return rows

    @property
    def _has_same_data(self) -> bool:
        one, two = self.first.findings, self.second.findings
        return bool(one.data_digest) and (one.data_digest, one.metric) == (
            two.data_digest,
            two.metric,
        )

    @property
    def _spoken_of(self) -> "LiteDifference | None":
        """The kind that the verdict is of: the fastest one of A for the device."""
        devices = [row for row in self.differences if row.name != "Keras"]
        return min(devices, key=lambda row: row.first.latency_ps, default=None)

    @property
    def difference(self) -> "LiteComparison":
        """The difference that the verdict speaks of, with a ratio and an interval as in other comparisons."""
        return self

    leading = difference

    @property
    def ratio(self) -> float:
        """Time of a run of B over that of A, of the kind that is fastest in A; below 1 B is faster."""
        row = self._spoken_of
        return math.nan if row is None else row.time.ratio

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the ratio."""
        row = self._spoken_of
        return (math.nan, math.nan) if row is None else (row.time.low, row.time.high)

    @property
    def is_different(self) -> bool:
        """True if the interval leaves out 1."""
        row = self._spoken_of
        return row is not None and row.time.is_different

    @property
    def table(self) -> "pd.DataFrame":
        """One row per kind that both have; see ``kinds``."""
        return self.kinds

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        from profnb.lite.section import difference_text

        row = self._spoken_of
        if row is None:
            return "The two results have no kind in common."
        return difference_text(row, self.labels, self.first.findings)

    @property
    def guards(self) -> list[str]:
        """Further differences than the one that was meant, in sentences; read them before the verdict."""
        one, two = self.first.findings, self.second.findings
        guards = [
            f"{name} differs: {one.environment.get(name, 'none')} and {two.environment.get(name, 'none')}."
            for name in dict.fromkeys([*one.environment, *two.environment])
            if one.environment.get(name) != two.environment.get(name)
        ]
        if one.batch_size != two.batch_size:
            guards.append(f"Batch size differs: {one.batch_size} and {two.batch_size}.")
        if one.data_digest != two.data_digest:
            guards.append("The two were judged on different data, so accuracy is not compared.")
        guards.append(
            "The two were timed at different times. Models of one profnb.lite call are timed by turns."
        )
        return guards

    @cached_property
    def _report(self) -> "Report":
        from profnb.lite.section import difference_section
        from profnb.report.report import Report

        title = f"{self.labels[0]} and {self.labels[1]}"
        sections = [difference_section(self.differences, self.labels)] if self.differences else []
        return Report(title, self.verdict.rstrip("."), notes=self.guards, sections=sections)

    def __repr__(self) -> str:
        return f"<LiteComparison of {self.labels[0]} and {self.labels[1]}>"
