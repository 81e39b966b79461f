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

from profnb.core.columns import Int64s
from profnb.core.units import PS_PER_MS, bar_text, duration_text
from profnb.drawing.drawn_tables import html_table
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import GRID, MUTED, TEXT_COLOUR, colour_of
from profnb.steps.breakdown import StepBreakdown
from profnb.steps.summary import GAP, GAP_WORK, OTHERS, periods_by_category
from profnb.steps.windows import Gaps, Steps

_SLOWEST_SHOWN = 12
_MOST_BARS = 120
_MOST_PAUSES = 6
_STRIP_HEIGHT = 66


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
        ceiling_ms: Where the axis ends; warm-up bars may be cut off there.
        pauses: After which bar the work stopped for more than 100 ms, and for how many picoseconds.
        last: The number of the last step, where the last bar is of several; else "".
        others: What the category "all others" is called.
    """

    labels: list[str]
    ticks: list[str]
    stacks: list[tuple[str, list[float]]]
    total_ms: list[float]
    slowest_ms: list[float] | None
    is_warmup: list[bool]
    ceiling_ms: float
    pauses: list[tuple[int, float]]
    last: str = ""
    others: str = OTHERS


def step_chart(steps: Steps, breakdown: StepBreakdown, gaps: Gaps) -> StepChart:
    """Choose what to draw: every step, or runs of alike steps averaged when there are many."""
    starts = _bar_starts(steps)
    size = np.diff(np.append(starts, len(steps)))
    columns = _time_by_category(breakdown, gaps)
    mean = {
        name: np.add.reduceat(values, starts) / size / PS_PER_MS if starts.size else values
        for name, values in columns
    }
    total = np.add.reduceat(steps.duration_ps, starts) / size / PS_PER_MS if starts.size else starts
    slowest = np.maximum.reduceat(steps.duration_ps, starts) / PS_PER_MS if starts.size else starts
    warm = steps.is_warmup[starts] if starts.size else np.zeros(0, np.bool_)
    period = np.sum(list(mean.values()), axis=0) if starts.size else total
    usual = period[~warm] if (~warm).any() else period
    return StepChart(
        labels=[
            _label(steps, int(start), int(count)) for start, count in zip(starts, size, strict=True)
        ],
        ticks=[str(number) for number in steps.step_num[starts].tolist()],
        stacks=[
            (name, [round(value, 4) for value in mean[name].tolist()])
            for name, _ in columns
            if mean[name].any()
        ],
        total_ms=[round(value, 4) for value in total.tolist()],
        slowest_ms=None if len(steps) == starts.size else [round(v, 4) for v in slowest.tolist()],
        is_warmup=warm.tolist(),
        ceiling_ms=float(usual.max(initial=0.0)) * 1.12,
        pauses=[
            (int(bar), float(gaps.duration_ps[row]))
            for bar, row in zip(
                np.searchsorted(starts, gaps.long, side="right") - 1, gaps.long, strict=True
            )
        ],
        last=str(steps.step_num[-1]) if size.size and size[-1] > 1 else "",
    )


def _time_by_category(breakdown: StepBreakdown, gaps: Gaps) -> list[tuple[str, Int64s]]:
    """Each step's time with the gap that belongs to it, by category in drawing order, as in the headline."""
    times = periods_by_category(breakdown, gaps, np.arange(breakdown.picoseconds.shape[0]))
    last = [(name, times.pop(name)) for name in (GAP_WORK, GAP)]
    return [*reversed(times.items()), *last]


def _bar_starts(steps: Steps) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first step of each bar; a bar never mixes phases, nor warm-up with other steps."""
    width = -(-len(steps) // _MOST_BARS)
    starts, since = [], 0
    for row in range(len(steps)):
        changed = row == 0 or (
            steps.phase[row] != steps.phase[row - 1]
            or steps.is_warmup[row] != steps.is_warmup[row - 1]
        )
        if changed or row - since >= width:
            starts.append(row)
            since = row
    return np.array(starts, np.int64)


def _label(steps: Steps, start: int, count: int) -> str:
    name = f"{steps.phase[start]} {steps.step_num[start]}"
    if steps.is_warmup[start]:
        name += ", warm-up"
    if count == 1:
        return name
    return f"{name} to {steps.step_num[start + count - 1]} (mean of {count})"


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
        for category, values in chart.stacks
        for name in [chart.others if category == OTHERS else category]
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


def strip_figure(chart: StepChart) -> dict[str, Any]:
    """The step-time chart as a strip without axes: what each bar is stands in its label under the pointer."""
    figure = step_figure(chart)
    for trace in figure["data"]:
        trace.pop("customdata", None)
        trace["hovertemplate"] = trace["hovertemplate"].replace("%{customdata}<br>", "")
        if trace["type"] == "bar" and not any(chart.is_warmup):
            del trace["marker"]["opacity"]
    layout, hidden = figure["layout"], {"visible": False, "showgrid": False}
    kept = {key: layout[key] for key in ("barmode", "bargap", "annotations")}
    return {
        "data": figure["data"],
        "layout": kept
        | {
            "height": _STRIP_HEIGHT,
            "margin": {"l": 0, "r": 0, "t": 2, "b": 0},
            "showlegend": False,
            "xaxis": hidden,
            "yaxis": {**hidden, "range": layout["yaxis"]["range"]},
            "meta": "time of each step",
            "labels": [figure_text(label) for label in chart.labels],
        },
    }


def strip_caption(chart: StepChart) -> str:
    """Say what the bars of the strip are."""
    if not chart.labels:
        return ""
    kind = "a step" if chart.slowest_ms is None else "the mean of several steps"
    first, last = chart.ticks[0], chart.last or chart.ticks[-1]
    ticks = first if first == last else f"{first} to {last}"
    top = duration_text(chart.ceiling_ms * PS_PER_MS)
    warm = "; faint: warm-up, cut off at full height" if any(chart.is_warmup) else ""
    return f"Each bar is {kind} ({ticks}), {top} at full height{warm}."


def _step_layout(chart: StepChart) -> dict[str, Any]:
    every = max(1, -(-len(chart.ticks) // 12))
    axis = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "fixedrange": False}
    cut = [
        (row, total)
        for row, total in enumerate(chart.total_ms)
        if chart.is_warmup[row] and total > chart.ceiling_ms
    ][:6]
    return {
        "barmode": "stack",
        "bargap": 0.12,
        "height": 300,
        "margin": {"l": 56, "r": 12, "t": 44, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": TEXT_COLOUR, "size": 12},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {
            **axis, "title": {"text": "step"}, "showgrid": False, "zeroline": False,
            "tickvals": list(range(0, len(chart.ticks), every)), "ticktext": chart.ticks[::every],
        },
        "yaxis": {**axis, "title": {"text": "ms"}, "range": [0, chart.ceiling_ms or 1]},
        "annotations": [
            {
                "x": row, "y": 1, "yref": "paper", "yanchor": "top", "showarrow": False,
                "text": f"↑ {duration_text(total * PS_PER_MS)}", "xanchor": "left", "xshift": 12,
                "font": {"size": 11, "color": TEXT_COLOUR},
            }
            for row, total in cut
        ]
        + [
            {
                "x": bar, "y": 0.9, "yref": "paper", "yanchor": "top", "showarrow": False,
                "text": f"‖ {duration_text(pause)} pause", "xanchor": "left", "xshift": 6,
                "font": {"size": 11, "color": TEXT_COLOUR},
            }
            for bar, pause in sorted(chart.pauses, key=lambda pair: -pair[1])[:_MOST_PAUSES]
        ],
    }  # fmt: skip


def step_table_html(chart: StepChart) -> Markup:
    """The step-time chart as a table: the slowest bars, so that nothing that matters is hidden."""
    order = sorted(range(len(chart.labels)), key=lambda row: -chart.total_ms[row])
    shown = sorted(order[:_SLOWEST_SHOWN])
    steady = [ms for ms, warm in zip(chart.total_ms, chart.is_warmup, strict=True) if not warm]
    longest = max(steady or chart.total_ms, default=0) or 1  # a warm-up bar is cut off there
    rows = [
        [
            chart.labels[row],
            bar_text(chart.total_ms[row] / longest, 24),
            duration_text(chart.total_ms[row] * PS_PER_MS),
        ]
        for row in shown
    ]
    rest = len(chart.labels) - len(shown)
    table = html_table(("slowest steps", "", "step time"), rows, (False, False, True))
    if not rest:
        return table
    return table + Markup('<div style="{}">and {} faster ones</div>').format(MUTED, rest)
