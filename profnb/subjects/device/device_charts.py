"""What devices did, to plotly figures as plain JSON."""

from typing import Any

import numpy as np

from profnb.core.units import PS_PER_MS
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import CAUSE_COLOURS, colour_of
from profnb.subjects.device.idle import IDLE_CAUSES, WORK, IdleTable

_WORK_COLOURS = ("device compute", "device collectives", "device to device")


def utilization_figure(idle: IdleTable) -> dict[str, Any]:
    """What the device did over time: work below, idle time by its cause above, 100 % together."""
    shares = idle.bins_ps / np.maximum(idle.bins_ps.sum(axis=1, keepdims=True), 1)
    x = [round(float(begin) / PS_PER_MS, 4) for begin in idle.bin_begin_ps]
    width = (idle.window_ps + idle.aside_ps) / PS_PER_MS / max(len(x), 1)
    x.append(round(x[-1] + width, 4))
    names = [*WORK, *(f"idle: {cause}" for cause in IDLE_CAUSES)]
    colours = [*map(colour_of, _WORK_COLOURS), *(CAUSE_COLOURS[cause] for cause in IDLE_CAUSES)]
    data: list[dict[str, Any]] = []
    for column, (name, colour) in enumerate(zip(names, colours, strict=True)):
        values = [round(100 * float(value), 2) for value in shares[:, column]]
        if not any(values):
            continue
        is_idle = column >= len(WORK)
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": name, "x": x, "y": [*values, values[-1]],
                "stackgroup": "one", "line": {"width": 0, "shape": "hv", "color": colour},
                "fillcolor": _faint(colour) if is_idle else colour,
                "hovertemplate": f"%{{x:.4g}} ms: %{{y:.3g}} % {name}<extra></extra>",
            }
        )  # fmt: skip
    layout = figure_layout(figure_text(f"What {idle.device} did, and why it was idle"), 300)
    layout |= {
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "margin": {"l": 56, "r": 12, "t": 84, "b": 34},
        "xaxis": {**axis(""), "showgrid": False, "ticksuffix": " ms"},
        "yaxis": {**axis("% of the time"), "range": [0, 100]},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.35)"
