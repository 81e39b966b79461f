"""The spine as tables: one row per traced step, per step the code ran, and per event."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from profnb.core.columns import Floats, Int32s, Int64s
from profnb.core.table import Column, Table
from profnb.steps.activities import CATEGORIES
from profnb.steps.breakdown import category_column
from profnb.steps.spine import Spine
from profnb.steps.step_times import StepTimes
from profnb.steps.windows import GAP_KINDS, IN_LOOP

if TYPE_CHECKING:
    import pandas as pd

# Without a device's own lines in the trace these were not measured.
_DEVICE_CATEGORIES = (
    "device compute", "device to device", "device collectives", "kernel launch", "output",
)  # fmt: skip


def _with_device(spine: Spine, values: Int64s) -> Int64s | Floats:
    return values if spine.program.has_device else np.full(len(spine.steps), np.nan)


def _category_ps(category: str, spine: Spine) -> Int64s | Floats:
    """Take a category's time in each step; NaN where it takes a device, and neither that nor a host has any.

    A host without a device waits for others and exchanges with them too.
    """
    spent = spine.breakdown.of(category)
    is_missing = category in _DEVICE_CATEGORIES and not spine.program.has_device and not spent.any()
    return np.full(len(spine.steps), np.nan) if is_missing else spent


def _step_num(spine: Spine) -> Any:
    """Take the number of each event's step, missing outside every step."""
    import pandas as pd

    step = spine.groups.step
    numbers = np.append(spine.steps.step_num, 0)[step]  # the last one: outside every step
    return pd.arrays.IntegerArray(numbers.astype(np.int64, copy=False), step < 0)


def _categories(texts: list[str], rows: Int32s | Int64s) -> "pd.Categorical[str]":
    """Look texts up by row, each distinct text stored once."""
    import pandas as pd

    codes, distinct = pd.factorize(np.array(texts, object))
    return pd.Categorical.from_codes(codes[rows], pd.Index(distinct))


STEPS = Table[Spine](
    "steps",
    "One row per traced step.",
    (
        Column("step_num", lambda t: t.steps.step_num, "the number the program gave it"),
        Column(
            "phase",
            lambda t: t.steps.phase,
            'what it did: "train", "test", "predict", a function\'s name, or "window"',
        ),
        Column("begin_ms", lambda t: t.steps.begin_ps, "its begin"),
        Column("duration_ms", lambda t: t.steps.duration_ps, "its duration"),
        Column(
            "gap_ms",
            lambda t: np.where(t.steps.gap_ps >= 0, t.steps.gap_ps, np.nan),
            "time to the next step, NaN for the last",
        ),
        Column(
            "gap_kind",
            lambda t: [GAP_KINDS[kind] for kind in t.gaps.kind.tolist()],
            f'what that gap is: "{GAP_KINDS[IN_LOOP]}" where it is part of the step\'s period, else '
            + ", ".join(f'"{kind}"' for kind in GAP_KINDS[IN_LOOP + 1 :]),
        ),
        Column("is_warmup", lambda t: t.steps.is_warmup, "whether averages leave it out"),
        Column(
            "iterations",
            lambda t: t.steps.iterations,
            "iterations of the training loop in it (``steps_per_execution``)",
        ),
        *(
            Column(category_column(name), partial(_category_ps, name), f"time of it that is {name}")
            for name in CATEGORIES
        ),
        Column(
            "busy_gap_ms",
            lambda t: _with_device(t, t.breakdown.gap_busy_ps),
            "time of the gap in which the device ran anything",
        ),
        Column(
            "launched_work_ms",
            lambda t: _with_device(t, t.launched_ps),
            "time of the device's work that it launched, whenever that ran; streams add up",
        ),
    ),
    "The nine categories of a row sum to its duration. Without a device in the trace, categories of "
    "devices are NaN.",
)
STEP_TIMES = Table[StepTimes](
    "step_times",
    "One row per step the code ran, traced or not, by the wall clock.",
    (
        Column("step_num", lambda t: t.step_num, "the number the program gave it, or its order"),
        Column("phase", lambda t: t.phase, "what it did"),
        Column(
            "wall_ms",
            lambda t: t.duration_ps,
            "how long it took; of a turn of an eager loop, until the next one began",
        ),
        Column("was_traced", lambda t: t.was_traced, "whether all of it was under trace"),
    ),
)
EVENTS = Table[Spine](
    "events",
    "One row per event, in the trace's order.",
    (
        Column(
            "plane",
            lambda t: _categories([p.name for p in t.trace.planes], t.trace.lines.plane)[
                t.trace.lines.of_event
            ],
            "the host or device",
        ),
        Column(
            "line",
            lambda t: _categories(t.trace.lines.names.texts, t.trace.lines.of_event),
            "its thread or stream",
        ),
        Column("name", lambda t: _categories(t.trace.names.texts, t.trace.events.name), "its name"),
        Column("begin_us", lambda t: t.trace.events.begin_ps, "its begin"),
        Column("duration_us", lambda t: t.trace.events.duration_ps, "its duration"),
        Column("self_us", lambda t: t.self_ps, "less the events inside it on the same line"),
        Column("step_num", _step_num, "the step it belongs to, missing outside every step"),
    ),
)
