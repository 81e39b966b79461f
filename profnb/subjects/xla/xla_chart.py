"""XLA's time as an icicle, and its ops under their roofline, to plotly figures as plain JSON."""

from collections.abc import Sequence
from typing import Any

from profnb.core.block import Block
from profnb.core.units import percent_text
from profnb.drawing.figures import RoofPoints, icicle_figure, roof_figure
from profnb.drawing.theme import MEMORY_COLOUR, colour_of
from profnb.subjects.device.roofline import Roofline
from profnb.subjects.xla.xla_ops import XlaOps

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
    roofs = []
    for flops in sorted(set(roofline.peak_flops.tolist())):
        widths = sorted(
            {w for w, f in zip(roofline.width, roofline.peak_flops, strict=True) if f == flops}
        )
        roofs.append((f"limit, {' and '.join(widths)}", flops))
    groups = [
        _points(
            roofline,
            ops,
            [row for row in rows if bool(roofline.is_compute_bound[row]) == is_compute],
            name,
            colour_of("device compute") if is_compute else MEMORY_COLOUR,
        )
        for is_compute, name in ((True, "bound by operations"), (False, "bound by memory"))
    ]
    return roof_figure("Roofline of XLA's ops", roofs, roofline.peak.bytes_per_second, groups)


def _points(
    roofline: Roofline, ops: XlaOps, rows: Sequence[int], name: str, colour: str
) -> RoofPoints:
    shares = [float(ops.fraction[roofline.row[row]]) for row in rows]
    return RoofPoints(
        name,
        colour,
        [float(roofline.intensity[row]) for row in rows],
        [float(roofline.flops_per_second[row]) for row in rows],
        [
            f"{ops.op[roofline.row[row]].name[:80]}: "
            f"{percent_text(float(roofline.attained_fraction[row]))} of what it could reach, "
            f"{percent_text(share)} of the time"
            for row, share in zip(rows, shares, strict=True)
        ],
        shares,
    )
