"""TensorFlow's ops under their roofline, to a plotly figure as plain JSON."""

from typing import Any

import numpy as np

from profnb.core.units import percent_text
from profnb.drawing.figures import RoofPoints, roof_figure
from profnb.drawing.theme import MEMORY_COLOUR, colour_of
from profnb.subjects.bounds.op_roofline import COMPUTE, MEMORY, NEITHER, OpRoofline
from profnb.trace.names import without_call

BOUND_COLOURS = {
    COMPUTE: colour_of("device compute"),
    MEMORY: MEMORY_COLOUR,
    NEITHER: colour_of("all others"),
}
_NAMES = {COMPUTE: "compute-bound", MEMORY: "memory-bound", NEITHER: "neither"}
_MOST_POINTS, _SMALLEST_SHARE = 60, 0.002


def op_roofline_figure(roofline: OpRoofline) -> dict[str, Any] | None:
    """What each op reached, under what its machine could do; None without limits or ops to draw.

    An op without operations (a copy) has no place in it.
    """
    peak, whole = roofline.peak, int(roofline.self_ps.sum())
    has_place = (roofline.flops > 0) & ~np.isnan(roofline.peak_flops) & ~np.isnan(roofline.bytes)
    rows = [
        row
        for row in np.flatnonzero(has_place).tolist()
        if roofline.self_ps[row] >= _SMALLEST_SHARE * whole
    ][:_MOST_POINTS]
    if peak is None or np.isnan(peak.bytes_per_second) or not rows:
        return None
    bounds = roofline.bound_by
    names: dict[float, set[str]] = {}
    for row in rows:
        names.setdefault(float(roofline.peak_flops[row]), set()).add(roofline.width[row])
    roofs = [(f"limit, {' and '.join(sorted(names[flops]))}", flops) for flops in sorted(names)]
    return roof_figure(
        "Roofline of TensorFlow's ops",
        roofs,
        peak.bytes_per_second,
        [
            _points(roofline, [row for row in rows if bounds[row] == bound], bound)
            for bound in _NAMES
        ],
    )


def _points(roofline: OpRoofline, rows: list[int], bound: str) -> RoofPoints:
    whole = int(roofline.self_ps.sum())
    shares = [float(roofline.self_ps[row] / whole) for row in rows]
    return RoofPoints(
        _NAMES[bound],
        BOUND_COLOURS[bound],
        [float(roofline.intensity[row]) for row in rows],
        [float(roofline.flops_per_second[row]) for row in rows],
        [
            f"{without_call(roofline.op_name[row])[:80]}: "
            f"{percent_text(float(roofline.flops_fraction[row]))} of the peak of operations, "
            f"{percent_text(float(roofline.bytes_fraction[row]))} of memory's, "
            f"{percent_text(share)} of the time"
            for row, share in zip(rows, shares, strict=True)
        ],
        shares,
    )
