"""Tables of what differs between two profiles."""

from collections.abc import Sequence

import pandas as pd

from profnb.analysis.differences import OpDifference

__all__ = ["category_difference_frame", "op_difference_frame"]

_PS_PER_MS = 1e9
_PS_PER_US = 1e6


def op_difference_frame(rows: Sequence[OpDifference]) -> pd.DataFrame:
    """One row per op of either side, the largest difference first."""
    return pd.DataFrame(
        {
            "side": [row.side for row in rows],
            "op_name": [row.op_name for row in rows],
            "op_type": [row.op_type for row in rows],
            "first_us": [row.first_ps / _PS_PER_US for row in rows],
            "second_us": [row.second_ps / _PS_PER_US for row in rows],
            "difference_us": [row.difference_ps / _PS_PER_US for row in rows],
            "status": [row.status for row in rows],
        }
    )


def category_difference_frame(rows: Sequence[tuple[str, float, float]]) -> pd.DataFrame:
    """One row per category of the mean step."""
    return pd.DataFrame(
        {
            "category": [name for name, *_ in rows],
            "first_ms": [first / _PS_PER_MS for _, first, _ in rows],
            "second_ms": [second / _PS_PER_MS for _, _, second in rows],
            "difference_ms": [(second - first) / _PS_PER_MS for _, first, second in rows],
        }
    )
