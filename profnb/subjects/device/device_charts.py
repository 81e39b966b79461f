"""What devices did, to plotly figures as plain JSON."""

from typing import Any

import numpy as np

from profnb.core.units import PS_PER_MS, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import CAUSE_COLOURS, TEXT_COLOUR, colour_of
from profnb.subjects.device.idle import IDLE_CAUSES, WORK, IdleTable
from profnb.subjects.device.roofline import Roofline
from profnb.subjects.xla.programs import XlaOps

__all__ = ["roofline_figure", "utilization_figure"]

_WORK_COLOURS = ("device compute", "device collectives", "device to device")
_MOST_POINTS = 60
_SMALLEST_SHARE = 0.002


def utilization_figure(idle: IdleTable) -> dict[str, Any]:
    """What the device did over time: work below, idle time by its cause above, 100 % together."""
    shares = idle.bins_ps / np.maximum(idle.bins_ps.sum(axis=1, keepdims=True), 1)
    x = [round(float(begin) / PS_PER_MS, 4) for begin in idle.bin_begin_ps]
    width = idle.window_ps / PS_PER_MS / max(len(x), 1)
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


def roofline_figure(roofline: Roofline, ops: XlaOps) -> dict[str, Any]:
    """The roofline: what each op reached, under what its device could do."""
    shares = ops.fraction
    rows = [
        row
        for row in range(min(len(roofline), _MOST_POINTS))
        if shares[roofline.row[row]] >= _SMALLEST_SHARE
    ]
    rows = rows or list(range(min(len(roofline), _MOST_POINTS)))
    intensity = roofline.intensity
    bandwidth = roofline.peak.bytes_per_second
    low, high = float(intensity[rows].min()) / 2, float(intensity[rows].max()) * 2
    data: list[dict[str, Any]] = []
    for flops in sorted(set(roofline.peak_flops.tolist())):
        widths = sorted(
            {w for w, f in zip(roofline.width, roofline.peak_flops, strict=True) if f == flops}
        )
        ridge = flops / bandwidth
        x = [low, *([ridge] if low < ridge < high else []), high]
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": f"limit, {' and '.join(widths)}",
                "x": x, "y": [min(flops, bandwidth * at) for at in x],
                "line": {"width": 1.5, "color": TEXT_COLOUR}, "hoverinfo": "skip",
            }
        )  # fmt: skip
    for is_compute, name in ((True, "bound by operations"), (False, "bound by memory")):
        chosen = [row for row in rows if bool(roofline.is_compute_bound[row]) == is_compute]
        if not chosen:
            continue
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": name,
                "x": [float(intensity[row]) for row in chosen],
                "y": [float(roofline.flops_per_second[row]) for row in chosen],
                "customdata": [
                    figure_text(
                        f"{ops.op[roofline.row[row]].name[:80]}: "
                        f"{percent_text(float(roofline.attained_fraction[row]))} of what it could reach, "
                        f"{percent_text(float(shares[roofline.row[row]]))} of the time"
                    )
                    for row in chosen
                ],
                "hovertemplate": "%{customdata}<br>%{y:.3s}flop/s at %{x:.3g} flop/byte<extra></extra>",
                "marker": {
                    "size": [6 + 26 * float(shares[roofline.row[row]]) ** 0.5 for row in chosen],
                    "color": colour_of("device compute" if is_compute else "device collectives"),
                    "opacity": 0.8, "line": {"width": 0},
                },
            }
        )  # fmt: skip
    layout = figure_layout("Roofline of XLA's ops", 320)
    layout |= {
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 12, "t": 62, "b": 44},
        "xaxis": {**axis("operations per byte"), "type": "log"},
        "yaxis": {**axis("flop/s"), "type": "log", "exponentformat": "SI"},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}
