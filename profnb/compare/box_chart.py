"""Runs of two sides as boxes: what their steps took, and they as a whole."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from profnb.compare.speedup import RunSet
from profnb.core.columns import Floats
from profnb.core.units import PS_PER_MS, PS_PER_S, duration_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import COLOURS

_MOST_POINTS, _MOST_RUNS = 60, 20
_FAR_OUT = 2  # of where the boxes end
_STEPS, _RUNS = "Time from step to step", "Time of whole runs"


def box_figures(runs: tuple[RunSet, RunSet]) -> dict[str, dict[str, Any]]:
    """Charts by title: step times, one box per run; run times, one per side where both have several."""
    steps = [
        (f"{side.label[:24]} {number + 1}" if len(side.step_ps) > 1 else side.label[:28], at, times)
        for at, side in enumerate(runs)
        for number, times in enumerate(side.step_ps[:_MOST_RUNS])
        if len(times)
    ]
    figures = {_STEPS: _box_figure(_STEPS, steps, PS_PER_MS, "ms")}
    if min(len(side.run_ps) for side in runs) > 1:
        whole = [(side.label[:28], at, np.array(side.run_ps)) for at, side in enumerate(runs)]
        figures[_RUNS] = _box_figure(_RUNS, whole, PS_PER_S, "s")
    return figures


def _box_figure(
    title: str, boxes: Sequence[tuple[str, int, Floats]], scale: float, unit: str
) -> dict[str, Any]:
    """A box each: quartiles, median, the whole range, and what it is made of as points.

    Where a few values lie so far out that the boxes would be dots, the axis ends before them, and the
    label says how far they go. plotly's own box plot is not in the bundle that notebooks load; bars and
    lines are.
    """
    data: list[dict[str, Any]] = []
    labels = []
    scaled = [np.asarray(values, np.float64) / scale for *_, values in boxes]
    end = _axis_end(scaled)
    for place, ((label, side, _), values) in enumerate(zip(boxes, scaled, strict=True)):
        colour = COLOURS[("device compute", "device collectives")[side]]
        data += _box(place, values, end, unit, colour)
        most = float(values.max())
        labels.append(f"{label} (to {duration_text(most * scale)} →)" if most > end else label)
    layout = figure_layout(title, 110 + 34 * len(boxes))
    layout |= {
        "barmode": "overlay",
        "showlegend": False,
        "margin": {"l": 8, "r": 12, "t": 34, "b": 34},
        "xaxis": {**axis(""), "ticksuffix": f" {unit}", "range": [0, end]},
        "yaxis": {
            **axis(""), "tickvals": list(range(len(boxes))),
            "ticktext": list(map(figure_text, labels)),
            "automargin": True, "showgrid": False, "autorange": "reversed",
        },
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _axis_end(boxes: Sequence[Floats]) -> float:
    """Where the axis ends: three heights of a box above it, or at the largest value if that is near."""
    fences = []
    for values in boxes:
        low, high = np.percentile(values, (25, 75))
        fences.append(min(float(values.max()), float(high + 3 * (high - low))))
    most, fence = max(float(values.max()) for values in boxes), max(fences)
    return 1.05 * (fence if most > _FAR_OUT * fence else most)


def _box(place: int, values: Floats, end: float, unit: str, colour: str) -> list[dict[str, Any]]:
    low, middle, high = (round(float(value), 5) for value in np.percentile(values, (25, 50, 75)))
    most = min(values.size, _MOST_POINTS)
    kept = np.sort(values)[np.linspace(0, values.size - 1, most).astype(int)]
    hover = f"median {middle:.4g} {unit}, middle half {low:.4g} to {high:.4g}"
    hover += f", all {kept[0]:.4g} to {kept[-1]:.4g}"
    shown = kept[kept <= end]
    return [
        {
            "type": "bar", "orientation": "h", "y": [place], "base": [low], "x": [round(high - low, 5)],
            "width": 0.5, "marker": {"color": colour, "opacity": 0.5, "line": {"width": 0}},
            "hovertemplate": f"{hover}<extra></extra>",
        },
        {
            "type": "scatter", "mode": "lines", "y": [place, place],
            "x": [round(float(kept[0]), 5), round(min(float(kept[-1]), end), 5)],
            "line": {"width": 1, "color": colour}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": [round(float(value), 5) for value in shown],
            "y": [round(place + 0.16 * (-1) ** at * ((at % 5) / 4), 3) for at in range(shown.size)],
            "marker": {"size": 3, "color": colour, "opacity": 0.7}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": [middle], "y": [place],
            "marker": {"size": 18, "color": colour, "symbol": "line-ns-open", "line": {"width": 3}},
            "hoverinfo": "skip",
        },
    ]  # fmt: skip
