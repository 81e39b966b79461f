"""The table of a sweep."""

import pandas as pd

from profnb.compare.sweeps import SweepTable
from profnb.core.units import PS_PER_MS

__all__ = ["sweep_frame"]


def sweep_frame(table: SweepTable) -> pd.DataFrame:
    """One row per setting, in the order they were given."""
    names = list(dict.fromkeys(name for point in table.points for name in point.setting))
    columns: dict[str, object] = {
        name: [point.setting.get(name) for point in table.points] for name in names
    }
    columns["runs"] = [point.runs for point in table.points]
    columns["run_ms" if table.unit == "runs" else "step_ms"] = table.step_ps / PS_PER_MS
    columns[f"{table.unit}_per_second"] = table.per_second
    columns["low"], columns["high"] = table.low, table.high
    if table.metric is not None:
        columns[table.metric], columns[f"{table.metric}_worst"] = table.quality, table.worst
    columns["peak_bytes"] = table.memory
    columns["is_best"] = table.is_best
    columns["error"] = [point.error for point in table.points]
    return pd.DataFrame(columns)
