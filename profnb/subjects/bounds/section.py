"""The roofline of TensorFlow's ops as the report shows it: bound by operations, by memory, or by neither."""

from typing import Any

import numpy as np

from profnb.core.units import percent_text, rate_text
from profnb.drawing.figures import RoofPoint, roof_figure
from profnb.drawing.markup import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import MEMORY_COLOUR, colour_of
from profnb.subjects.bounds.measured_peak import kept_peak
from profnb.subjects.bounds.op_roofline import COMPUTE, MEMORY, NEITHER, OP_ROOFLINE, OpRoofline
from profnb.subjects.layers.name_scopes import op_title
from profnb.subjects.study import Study
from profnb.trace.names import without_call

_LISTED_OPS, _LONGEST_HOVER = 12, 300
_BOUND_COLOURS = {
    COMPUTE: colour_of("device compute"),
    MEMORY: MEMORY_COLOUR,
    NEITHER: colour_of("all others"),
}
_BOUND_NAMES = {COMPUTE: "compute-bound", MEMORY: "memory-bound", NEITHER: "neither"}
_MOST_OPS_DRAWN, _SMALLEST_SHARE = 60, 0.002


def bounds_sections(study: Study) -> list[Section]:
    """Show ops under their roof; none where no op's operations and bytes are known."""
    roofline = study.bounds.roofline
    if roofline is None:
        return []
    rows = np.flatnonzero(roofline.has_cost).tolist()[:_LISTED_OPS]
    bounds = roofline.bound_by
    has_peak = roofline.peak is not None

    def op_cell(row: int) -> Cell:
        kind = roofline.op_type[row][:_LONGEST_HOVER]
        return op_title(roofline.op_name[row][:_LONGEST_HOVER], kind, study.layers.names).cell

    return [
        section_of(
            OP_ROOFLINE,
            roofline,
            (
                Shown("op", op_cell),
                "self_us",
                *(["bound_by"] if has_peak else []),
                "flops_per_byte gigaflops_per_second gigabytes_per_second",
                *(["flops_fraction", "bytes_fraction"] if has_peak else []),
            ),
            title="Roofline of ops",
            tab="Roofline",
            sentence=f"{_share_sentence(roofline)} {_limits(roofline, study)}".strip(),
            bar=Bar.of(
                roofline.self_ps,
                lambda row: _BOUND_COLOURS.get(bounds[row], colour_of("all others")),
                8,
                full=int(roofline.self_ps[rows[0]]),
            ),
            rows=rows,
            figure=op_roofline_figure(roofline),
            is_detail=not has_peak,
        )
    ]


def _share_sentence(roofline: OpRoofline) -> str:
    """Shares of the ops' time by what bounds them, in a sentence; "" where no limit is known."""
    if roofline.peak is None:
        return ""
    bounds, whole = np.array(roofline.bound_by), int(roofline.self_ps.sum())
    shares = {
        bound: int(roofline.self_ps[bounds == bound].sum()) / whole for bound in _BOUND_COLOURS
    }
    unknown = 1 - sum(shares.values())
    rest = f", {percent_text(unknown)} unknown" if unknown > 0 else ""
    return (
        f"Time of ops on {'the device' if roofline.is_device else 'the CPU'}: "
        f"{percent_text(shares[COMPUTE])} compute-bound (60 % of peak operations or more), "
        f"{percent_text(shares[MEMORY])} memory-bound (60 to 125 % of peak memory), "
        f"{percent_text(shares[NEITHER])} neither{rest}."
    )


def _limits(roofline: OpRoofline, study: Study) -> str:
    peak = roofline.peak
    if peak is None:
        sentence = "The limits of this machine are unknown, so no bounds are shown"
        if roofline.is_device or not study.bounds.is_of_here:
            return f"{sentence}."
        measured = kept_peak()
        if measured is None:
            return f"{sentence}: profnb.measure_peak() measures the CPU in two seconds."
        return (
            f"{sentence}: the measurement had only {percent_text(measured.cores_fraction)} of the cores' "
            "time. Run profnb.measure_peak() again on an idle machine."
        )
    used = dict(zip(roofline.peak_flops.tolist(), roofline.width, strict=True))
    flops = ", ".join(
        f"{rate_text(value, 'flop/s')} in {width}"
        for value, width in sorted(used.items())
        if value == value  # noqa: PLR0124  # NaN is not itself
    )
    memory = rate_text(peak.bytes_per_second, "B/s")
    if roofline.refuted_by:
        return (
            f"A product of matrices reached {roofline.refuted_by:.2g} times the measured limit of this CPU, "
            "so the limit was measured too low. Nothing is called compute-bound. Run profnb.measure_peak() "
            f"again on an idle machine. At most {memory} of memory. Source: {peak.source}."
        )
    return (
        f"At most {flops or 'an unknown number of operations'} and {memory} of memory. Source: "
        f"{peak.source}."
    )


def op_roofline_figure(roofline: OpRoofline) -> dict[str, Any] | None:
    """Draw what each op reached, under what its machine could do; None without limits or ops to draw.

    An op without operations (a copy) has no place in it.
    """
    peak, shares = roofline.peak, roofline.self_ps / int(roofline.self_ps.sum())
    has_place = (roofline.flops > 0) & ~np.isnan(roofline.peak_flops) & ~np.isnan(roofline.bytes)
    rows = np.flatnonzero(has_place & (shares >= _SMALLEST_SHARE))[:_MOST_OPS_DRAWN]
    if peak is None or np.isnan(peak.bytes_per_second) or not rows.size:
        return None
    limits = [(float(roofline.peak_flops[row]), roofline.width[row]) for row in rows.tolist()]
    bounds, intensity, reached = roofline.bound_by, roofline.intensity, roofline.flops_per_second
    points = []
    for bound, name in _BOUND_NAMES.items():
        for row in (row for row in rows.tolist() if bounds[row] == bound):
            text = (
                f"{without_call(roofline.op_name[row])[:80]}: "
                f"{percent_text(float(roofline.flops_fraction[row]))} of the peak of operations, "
                f"{percent_text(float(roofline.bytes_fraction[row]))} of memory's, "
                f"{percent_text(float(shares[row]))} of the time"
            )
            at = float(intensity[row]), float(reached[row])
            points.append(RoofPoint(name, _BOUND_COLOURS[bound], *at, text, float(shares[row])))
    return roof_figure("Roofline of TensorFlow's ops", limits, peak.bytes_per_second, points)
