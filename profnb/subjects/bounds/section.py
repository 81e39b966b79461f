"""What bounds the ops, as the report shows it: operations, memory, or neither."""

import numpy as np

from profnb.core.units import percent_text, rate_text
from profnb.drawing.drawn_tables import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import colour_of
from profnb.subjects.bounds.measured_peak import kept_peak
from profnb.subjects.bounds.op_roofline import (
    COMPUTE,
    MEMORY,
    NEITHER,
    OP_ROOFLINE,
    OpRoofline,
)
from profnb.subjects.bounds.op_roofline_chart import BOUND_COLOURS, op_roofline_figure
from profnb.subjects.layers.op_title import op_title
from profnb.subjects.study import Study

_SHOWN, _LONGEST_NAME = 12, 300


def bounds_sections(study: Study) -> list[Section]:
    """The table of ops under their roof; none where no op's operations and bytes are known."""
    roofline = study.bounds.roofline
    if roofline is None:
        return []
    rows = np.flatnonzero(roofline.has_cost).tolist()[:_SHOWN]
    most = int(roofline.self_ps[rows[0]])
    bounds = roofline.bound_by
    has_peak = roofline.peak is not None
    return [
        section_of(
            OP_ROOFLINE,
            roofline,
            (
                Shown("op", lambda row: _op_cell(roofline, row)),
                "self_us",
                *(["bound_by"] if has_peak else []),
                "flops_per_byte",
                "gigaflops_per_second",
                "gigabytes_per_second",
                *(["flops_fraction", "bytes_fraction"] if has_peak else []),
            ),
            title="Roofline of ops",
            tab="Roofline",
            sentence=f"{share_sentence(roofline)} {_limits(roofline, study)}".strip(),
            bar=Bar(
                lambda row: float(roofline.self_ps[row] / most),
                lambda row: BOUND_COLOURS.get(bounds[row], colour_of("all others")),
                8,
            ),
            rows=rows,
            figure=op_roofline_figure(roofline),
            is_detail=not has_peak,
        )
    ]


def _op_cell(roofline: OpRoofline, row: int) -> Cell:
    name, kind = roofline.op_name[row][:_LONGEST_NAME], roofline.op_type[row][:_LONGEST_NAME]
    return op_title(name, kind).cell


def share_sentence(roofline: OpRoofline) -> str:
    """How much of the ops' time is bound by what, in a sentence; "" where no limit is known."""
    if roofline.peak is None:
        return ""
    bounds, whole = np.array(roofline.bound_by), int(roofline.self_ps.sum())
    shares = {
        bound: int(roofline.self_ps[bounds == bound].sum()) / whole
        for bound in (COMPUTE, MEMORY, NEITHER)
    }
    unknown = 1 - sum(shares.values())
    sentence = (
        f"Of the time of ops on {'the device' if roofline.is_device else 'the CPU'}, "
        f"{percent_text(shares[COMPUTE])} is compute-bound (60 % of the peak of operations or more), "
        f"{percent_text(shares[MEMORY])} memory-bound (60 to 125 % of the peak of memory: "
        "what is above was in a cache) and "
        f"{percent_text(shares[NEITHER])} neither"
    )
    return (
        f"{sentence}; of {percent_text(unknown)} it is not known."
        if unknown > 0
        else f"{sentence}."
    )


def _limits(roofline: OpRoofline, study: Study) -> str:
    """What could be done at most, and where that comes from."""
    peak = roofline.peak
    if peak is None:
        sentence = (
            "What this could have done at most is not known, so nothing is said of what bounds it"
        )
        if roofline.is_device or not study.bounds.is_of_here:
            return f"{sentence}."
        measured = kept_peak()
        if measured is None:
            return f"{sentence}: profnb.measure_peak() measures the CPU in two seconds."
        return (
            f"{sentence}: while it was measured this process had only "
            f"{percent_text(measured.cores_fraction)} of the cores' time. Run profnb.measure_peak() again "
            "while nothing else runs."
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
            f"A product of matrices reached {roofline.refuted_by:.2g} times what this CPU was measured to "
            "do, so that was too little (another program ran beside it) and nothing is called compute-bound: "
            f"run profnb.measure_peak() again while nothing else runs. At most {memory} of memory "
            f"({peak.source})."
        )
    return f"At most {flops or 'an unknown number of operations'} and {memory} of memory ({peak.source})."
