"""Tables of what differs between two profiles."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profnb.compare.op_differences import OpDifference
from profnb.compare.quality import MetricDifference
from profnb.core.units import PS_PER_MS, PS_PER_US

__all__ = ["category_difference_frame", "op_difference_frame", "quality_frame"]


def op_difference_frame(rows: Sequence[OpDifference]) -> pd.DataFrame:
    """One row per op of either side, the largest difference first."""
    return pd.DataFrame(
        {
            "side": [row.side for row in rows],
            "op_name": [row.op_name for row in rows],
            "op_type": [row.op_type for row in rows],
            "first_us": [row.first_ps / PS_PER_US for row in rows],
            "second_us": [row.second_ps / PS_PER_US for row in rows],
            "difference_us": [row.difference_ps / PS_PER_US for row in rows],
            "status": [row.status for row in rows],
        }
    )


def category_difference_frame(rows: Sequence[tuple[str, float, float]]) -> pd.DataFrame:
    """One row per category of the mean step."""
    return pd.DataFrame(
        {
            "category": [name for name, *_ in rows],
            "first_ms": [first / PS_PER_MS for _, first, _ in rows],
            "second_ms": [second / PS_PER_MS for _, _, second in rows],
            "difference_ms": [(second - first) / PS_PER_MS for _, first, second in rows],
        }
    )


def quality_frame(rows: Sequence[MetricDifference]) -> pd.DataFrame:
    """One row per metric that both sides have."""
    columns: dict[str, list[object]] = {"metric": [row.metric for row in rows]}
    for side, chosen in (("first", [r.first for r in rows]), ("second", [r.second for r in rows])):
        columns[f"{side}_median"] = [float(np.median(values)) for values in chosen]
        columns[f"{side}_worst"] = [
            row.worst(values) for row, values in zip(rows, chosen, strict=True)
        ]
        columns[f"{side}_runs"] = [len(values) for values in chosen]
    columns["low"] = [row.low for row in rows]
    columns["high"] = [row.high for row in rows]
    columns["is_different"] = [row.is_different for row in rows]
    return pd.DataFrame(columns)
