"""XLA's time as an icicle, and its ops under their roofline, to plotly figures as plain JSON."""

from collections.abc import Sequence
from typing import Any

from profnb.core.block import Block
from profnb.core.units import percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.icicle import icicle_figure
from profnb.drawing.markup import figure_text
from profnb.drawing.theme import TEXT_COLOUR, colour_of
from profnb.subjects.device.roofline import Roofline
from profnb.subjects.xla.xla_ops import XlaOps

__all__ = ["roofline_figure", "xla_figure"]

_COLOURS = {
    "module": colour_of("between steps"),
    "hlo op": colour_of("device compute"),
    "hlo op of no category": colour_of("all others"),
    "other hlo ops": colour_of("all others"),
    "framework op": colour_of("host compute"),
}
_MOST_POINTS = 60
_SMALLEST_SHARE = 0.002


def xla_figure(blocks: Sequence[Block]) -> dict[str, Any]:
    """Where XLA's time goes, as an icicle."""
    return icicle_figure(
        blocks,
        _COLOURS,
        title="Where XLA's time goes: programs, their ops, what those came from",
        of_what="the time of XLA's ops",
        levels=("program", "XLA op", "framework op"),
    )


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
