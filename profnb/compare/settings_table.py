"""A sweep as a table, whose columns depend on what was swept, counted and learned."""

import math
from collections.abc import Callable

from profnb.compare.sweeps import SweepTable
from profnb.core.table import Column, Table
from profnb.core.units import MISSING, count_text, metric_text


def settings_table(sweep: SweepTable) -> Table[SweepTable]:
    """The table of a sweep, whose columns depend on what was swept, counted and learned.

    Sweeping ``batch_size`` over fits that learn an accuracy gives ``batch_size, runs, step_ms,
    examples_per_second, low, high, accuracy, accuracy_worst, peak_bytes, is_best, error``.
    """

    def metric(value: float) -> str:
        return metric_text(value, is_score=sweep.is_score)

    columns: list[Column[SweepTable]] = [
        Column(name, _setting(name), "what was set", is_scaled=True) for name in sweep.names
    ]
    columns += [
        Column("runs", lambda t: [point.runs for point in t.points], "how many runs count"),
        Column(
            "run_ms" if sweep.unit == "runs" else "step_ms",
            lambda t: t.step_ps,
            "typical time of a step, or of a run where there are no steps",
        ),
        Column(
            f"{sweep.unit}_per_second",
            lambda t: t.per_second,
            "throughput",
            f"{sweep.unit}/s",
            lambda rate: count_text(round(float(rate))) if math.isfinite(rate) else MISSING,
        ),
        Column("low", lambda t: t.low, "where the 95 % interval of the throughput begins"),
        Column("high", lambda t: t.high, "where it ends"),
    ]
    if sweep.metric is not None:
        worst = f"{sweep.metric}_worst"
        columns += [
            Column(
                sweep.metric,
                lambda t: t.quality,
                "its median",
                sweep.metric,
                metric,
                is_scaled=True,
            ),
            Column(worst, lambda t: t.worst, "... its worst run", "worst", metric, is_scaled=True),
        ]
    columns += [
        Column("peak_bytes", lambda t: t.memory, "most memory in use", "peak memory"),
        Column(
            "is_best",
            lambda t: t.is_best,
            "whether it is on the front of throughput against the metric or memory",
        ),
        Column("error", lambda t: [point.error for point in t.points], "why it has no more runs"),
    ]
    distinct = {column.name: column for column in columns}  # a setting may be called "runs"
    return Table(
        "table", "One row per setting, in the order they were given.", tuple(distinct.values())
    )


def _setting(name: str) -> Callable[[SweepTable], list[object]]:
    return lambda sweep: [point.setting.get(name) for point in sweep.points]
