"""Tables of steps, ops and events."""

import numpy as np
import pandas as pd

from profnb.core.columns import Int32s, Int64s
from profnb.core.units import PS_PER_MS, PS_PER_US
from profnb.steps.breakdown import CATEGORIES, StepBreakdown, category_column
from profnb.steps.grouping import Groups
from profnb.steps.nesting import find_parents, self_times
from profnb.steps.step_times import StepTimes
from profnb.steps.windows import Steps
from profnb.subjects.ops.op_table import OpTable
from profnb.trace.model import Trace

__all__ = ["event_frame", "op_frame", "step_frame", "step_time_frame"]


# Without a device's own lines in the trace these were not measured.
_DEVICE_CATEGORIES = (
    "device compute", "device to device", "device collectives", "kernel launch", "output",
)  # fmt: skip


def step_frame(steps: Steps, breakdown: StepBreakdown, *, has_device: bool) -> pd.DataFrame:
    """One row per step: when, how long, how long to the next, and nine categories that add up.

    Args:
        steps: The steps.
        breakdown: Their categories.
        has_device: Whether the trace has device activity; without it the device's categories are
            missing (NaN), not zero.
    """
    gap_ps = steps.gap_ps
    columns: dict[str, object] = {
        "step_num": steps.step_num,
        "phase": list(steps.phase),
        "begin_ms": steps.begin_ps / PS_PER_MS,
        "duration_ms": steps.duration_ps / PS_PER_MS,
        "gap_ms": np.where(gap_ps >= 0, gap_ps / PS_PER_MS, np.nan),
        "is_warmup": steps.is_warmup,
        "iterations": steps.iterations,
    }
    for category in CATEGORIES:
        is_missing = category in _DEVICE_CATEGORIES and not has_device
        milliseconds = breakdown.of(category) / PS_PER_MS
        columns[category_column(category)] = np.nan if is_missing else milliseconds
    return pd.DataFrame(columns)


def step_time_frame(times: StepTimes) -> pd.DataFrame:
    """One row per step the code ran, traced or not, by the wall clock."""
    return pd.DataFrame(
        {
            "step_num": times.step_num,
            "phase": list(times.phase),
            "wall_ms": times.duration_ps / PS_PER_MS,
            "was_traced": times.was_traced,
        }
    )


def op_frame(ops: OpTable) -> pd.DataFrame:
    """One row per op and side, most self time first."""
    return pd.DataFrame(
        {
            "side": np.where(ops.is_device, "device", "host"),
            "op_type": list(ops.op_type),
            "op_name": list(ops.op_name),
            "occurrences": ops.occurrences,
            "total_us": ops.total_ps / PS_PER_US,
            "self_us": ops.self_ps / PS_PER_US,
            "self_fraction": ops.self_fraction,
        }
    )


def event_frame(trace: Trace, steps: Steps, groups: Groups) -> pd.DataFrame:
    """One row per event, in the trace's order; ``step_num`` is missing outside every step."""
    events, lines = trace.events, trace.lines
    own = self_times(events.begin_ps, events.end_ps, find_parents(events.end_ps, lines.offsets))
    inside = groups.step >= 0
    step_num = pd.array(np.zeros(len(events), np.int64), dtype="Int64")
    step_num[inside] = steps.step_num[groups.step[inside]]
    step_num[~inside] = pd.NA
    return pd.DataFrame(
        {
            "plane": _categories([p.name for p in trace.planes], lines.plane[lines.of_event]),
            "line": _categories(lines.names.texts, lines.of_event),
            "name": _categories(trace.names.texts, events.name),
            "begin_us": events.begin_ps / PS_PER_US,
            "duration_us": events.duration_ps / PS_PER_US,
            "self_us": own / PS_PER_US,
            "step_num": step_num,
        }
    )


def _categories(texts: list[str], rows: Int32s | Int64s) -> "pd.Categorical[str]":
    """Texts looked up by row, each distinct text stored once."""
    distinct = list(dict.fromkeys(texts))
    code_of = {text: code for code, text in enumerate(distinct)}
    codes = np.array([code_of[text] for text in texts], np.int64)
    return pd.Categorical.from_codes(codes[rows], pd.Index(distinct))
