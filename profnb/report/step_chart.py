"""Step values to plotly figures, as plain JSON.

A figure is a dictionary in plotly's own schema (``data``, ``layout``), built without importing plotly,
which takes up to a second; it draws in plotly.js 2 to 4 and ``plotly.graph_objects.Figure`` accepts it.
Lists and not arrays, no template, colours from the theme. Names from a trace are escaped, because
plotly reads a little HTML in labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.core.columns import Floats, Int64s
from profnb.core.units import PS_PER_MS, bar_text, duration_text
from profnb.drawing.figures import LEGEND_ABOVE, LOOK
from profnb.drawing.markup import figure_text, html_table
from profnb.drawing.theme import GRID, MUTED, TEXT_COLOUR, colour_of
from profnb.steps.breakdown import StepBreakdown
from profnb.steps.summary import GAP, GAP_WORK, periods_by_category
from profnb.steps.windows import Gaps, Steps

_SLOWEST_SHOWN = 12
_MOST_BARS = 120
_MOST_PAUSES = _MOST_NAMED = 6
_HEIGHT = 190
_ON_AXIS, _ROOM = 98, 1.12  # percentile of the bars that the axis holds, and the room above it


@dataclass(frozen=True, slots=True)
class StepChart:
    """The values of the step-time chart: at most 120 bars, each one step or the mean of several.

    Attributes:
        labels: One per bar, for instance "train 12" or "train 12 to 15 (mean of 4)".
        ticks: Short text under each bar.
        stacks: Milliseconds per bar, by category in drawing order: of the step and of what was done in the
            gap after it, where that is part of the step's period; what nothing explains in the gap is last.
        total_ms: Step time per bar, without the gap.
        slowest_ms: The slowest step of each bar; None where every bar is one step.
        is_warmup: Whether a bar is of warm-up steps.
        period_ms: The same with what the gap after it adds: how high the bar is.
        ceiling_ms: Where the axis ends; what takes longer is cut off there and marked.
        pauses: After which bar the work stopped for more than 100 ms, and for how many picoseconds.
    """

    labels: list[str]
    ticks: list[str]
    stacks: list[tuple[str, list[float]]]
    total_ms: list[float]
    slowest_ms: list[float] | None
    is_warmup: list[bool]
    period_ms: list[float]
    ceiling_ms: float
    pauses: list[tuple[int, float]]


def step_chart(
    steps: Steps, breakdown: StepBreakdown, gaps: Gaps, rows: Int64s | None = None
) -> StepChart:
    """Choose what to draw: every step, or runs of alike steps averaged when there are many.

    Args:
        steps: All steps.
        breakdown: Their categories.
        gaps: What lies between them.
        rows: Which of them; None for all.
    """
    rows = np.arange(len(steps)) if rows is None else rows
    starts = _bar_starts(steps, rows)
    size = np.diff(np.append(starts, rows.size))
    duration_ps = steps.duration_ps[rows]
    times = periods_by_category(breakdown, gaps, rows)
    last = [(name, times.pop(name)) for name in (GAP_WORK, GAP)]
    in_order = [*reversed(times.items()), *last]
    mean = {name: np.add.reduceat(one, starts) / size / PS_PER_MS for name, one in in_order}
    total = np.add.reduceat(duration_ps, starts) / size / PS_PER_MS
    slowest = np.maximum.reduceat(duration_ps, starts) / PS_PER_MS
    warm = steps.is_warmup[rows[starts]]
    period = np.sum(list(mean.values()), axis=0)
    usual = period[~warm] if (~warm).any() else period
    highest = float(np.percentile(usual, _ON_AXIS)) if usual.size else 0.0
    long = gaps.long[np.isin(gaps.long, rows)]
    bars = np.searchsorted(rows[starts], long, side="right") - 1
    return StepChart(
        labels=[
            _label(steps, int(rows[start]), int(rows[start + count - 1]), int(count))
            for start, count in zip(starts, size, strict=True)
        ],
        ticks=[str(number) for number in steps.step_num[rows[starts]].tolist()],
        stacks=[(name, _rounded(values)) for name, values in mean.items() if values.any()],
        total_ms=_rounded(total),
        slowest_ms=None if rows.size == starts.size else _rounded(slowest),
        is_warmup=warm.tolist(),
        period_ms=_rounded(period),
        ceiling_ms=highest * _ROOM,
        pauses=list(zip(bars.tolist(), gaps.duration_ps[long].astype(float).tolist(), strict=True)),
    )


def _rounded(values: Floats) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


def _bar_starts(steps: Steps, rows: Int64s) -> Int64s:
    """The first of the rows in each bar; a bar never mixes phases, nor warm-up with other steps."""
    width = max(-(-rows.size // _MOST_BARS), 1)
    at, warm, phase = np.arange(rows.size), steps.is_warmup[rows], np.array(steps.phase)[rows]
    changed = np.append(False, (phase[1:] != phase[:-1]) | (warm[1:] != warm[:-1]))[: rows.size]
    since = at - np.maximum.accumulate(np.where(changed, at, 0))
    return np.flatnonzero(since % width == 0)


def _label(steps: Steps, first: int, last: int, count: int) -> str:
    warm = ", warm-up" if steps.is_warmup[first] else ""
    several = f" to {steps.step_num[last]} (mean of {count})" if count > 1 else ""
    return f"{steps.phase[first]} {steps.step_num[first]}{warm}{several}"


def step_figure(chart: StepChart) -> dict[str, Any]:
    """The step-time chart: stacked bars in time order, the rest of the gap on top, warm-up bars faint."""
    x = list(range(len(chart.labels)))
    labels = [figure_text(label) for label in chart.labels]
    opacity = [0.4 if warm else 1.0 for warm in chart.is_warmup]
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "name": name, "x": x, "y": values, "customdata": labels,
            "marker": {"color": colour_of(name), "opacity": opacity, "line": {"width": 0}},
            "hovertemplate": f"%{{customdata}}<br>{name}: %{{y:.3g}} ms<extra></extra>",
        }
        for name, values in chart.stacks
    ]  # fmt: skip
    if chart.slowest_ms is not None:
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": "slowest step", "x": x,
                "y": chart.slowest_ms, "customdata": labels,
                "marker": {"color": TEXT_COLOUR, "size": 4, "symbol": "line-ew-open"},
                "hovertemplate": "%{customdata}<br>slowest: %{y:.3g} ms<extra></extra>",
            }
        )  # fmt: skip
    return {"data": data, "layout": _step_layout(chart), "config": {"displaylogo": False}}


def chart_figure(chart: StepChart) -> dict[str, Any]:
    """The step-time chart as the report draws it: what a bar is stands once, and not with each category."""
    figure = step_figure(chart)
    for trace in figure["data"]:
        trace.pop("customdata", None)
        trace["hovertemplate"] = trace["hovertemplate"].replace("%{customdata}<br>", "")
        if trace["type"] == "bar" and not any(chart.is_warmup):
            del trace["marker"]["opacity"]
    labels = [figure_text(label) for label in chart.labels]
    figure["layout"] |= {"height": _HEIGHT, "meta": "time of each step", "labels": labels}
    return figure


def chart_caption(chart: StepChart) -> str:
    """Say what the bars are."""
    kind = "a step" if chart.slowest_ms is None else "the mean of several steps"
    beyond = int((np.array(chart.period_ms) > chart.ceiling_ms).sum())
    longer = f"; ▲ marks {beyond} longer than the axis" if beyond else ""
    warm = "; faint ones are warm-up" if any(chart.is_warmup) else ""
    return f"Each bar is {kind}{warm}{longer}."


def _step_layout(chart: StepChart) -> dict[str, Any]:
    every = max(1, -(-len(chart.ticks) // 12))
    axis = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "fixedrange": False}
    beyond = [row for row, period in enumerate(chart.period_ms) if period > chart.ceiling_ms]
    named = sorted(sorted(beyond, key=lambda row: -chart.period_ms[row])[:_MOST_NAMED])
    pauses = sorted(chart.pauses, key=lambda pair: -pair[1])[:_MOST_PAUSES]
    marks = [
        *((row, 1, f"▲ {duration_text(chart.period_ms[row] * PS_PER_MS)}", -4) for row in named),
        *((bar, 0.9, f"‖ {duration_text(pause)} pause", 6) for bar, pause in pauses),
    ]
    return {
        "barmode": "stack",
        "bargap": 0.12,
        "height": 300,
        "margin": {"l": 56, "r": 12, "t": 44, "b": 44},
        **LOOK,
        "legend": {**LEGEND_ABOVE, "traceorder": "normal"},
        "xaxis": {
            **axis, "title": {"text": "step"}, "showgrid": False, "zeroline": False,
            "tickvals": list(range(0, len(chart.ticks), every)), "ticktext": chart.ticks[::every],
        },
        "yaxis": {**axis, "title": {"text": "ms"}, "range": [0, chart.ceiling_ms or 1]},
        "annotations": [
            {
                "x": bar, "y": height, "yref": "paper", "yanchor": "top", "showarrow": False,
                "text": text, "xanchor": "left", "xshift": shift,
                "font": {"size": 11, "color": TEXT_COLOUR},
            }
            for bar, height, text, shift in marks
        ],
    }  # fmt: skip


def step_table(chart: StepChart) -> Markup:
    """The step-time chart as a table: the slowest bars, so that nothing that matters is hidden."""
    order = sorted(range(len(chart.labels)), key=lambda row: -chart.total_ms[row])
    shown = sorted(order[:_SLOWEST_SHOWN])
    steady = [ms for ms, warm in zip(chart.total_ms, chart.is_warmup, strict=True) if not warm]
    longest = max(steady or chart.total_ms, default=0) or 1  # a warm-up bar is cut off there
    times = [(chart.labels[row], chart.total_ms[row]) for row in shown]
    rows = [(name, bar_text(ms / longest, 24), duration_text(ms * PS_PER_MS)) for name, ms in times]
    rest = len(chart.labels) - len(shown)
    table = html_table(("slowest steps", "", "step time"), rows, (False, False, True))
    more = Markup('<div style="{}">and {} faster ones</div>').format(MUTED, rest)
    return table + more if rest else table
