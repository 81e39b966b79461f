"""XLA as the report shows it: its programs, its ops, how near those come to the limits.

The roofline is of the device (``device.roofline``) and stands here, in the tab of the ops that it places.
"""

from typing import Any

import numpy as np

from profnb.core.units import count_text, counted_text, duration_text, percent_text, rate_text
from profnb.drawing.figures import RoofPoint, icicle_figure, roof_figure
from profnb.drawing.markup import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import MEMORY_COLOUR, colour_of
from profnb.subjects.device.roofline import ROOFLINE, Roofline
from profnb.subjects.layers.name_scopes import LayerNames, op_title
from profnb.subjects.study import Study
from profnb.subjects.xla.hlo_ops import HloOp
from profnb.subjects.xla.xla_ops import XLA, XLA_MODULES, XlaModules, XlaOps, grow_xla_tree

_SHOWN_MODULES, _SHOWN_OPS, _SHOWN_ROOFS = 8, 12, 10
_ABOVE = 1.05
_COLOUR = colour_of("device compute")
_COLOURS = {
    "module": colour_of("between steps"),
    "hlo op": colour_of("device compute"),
    "hlo op of no category": colour_of("all others"),
    "other hlo ops": colour_of("all others"),
    "framework op": colour_of("host compute"),
}
_MOST_MODULES_DRAWN = 60
_SMALLEST_SHARE = 0.002


def xla_sections(study: Study) -> list[Section]:
    """The tables on XLA; none where it ran nothing."""
    if not len(study.xla.ops):
        return []
    sections = [_module_section(study.xla.modules), _op_section(study)]
    if study.device.roofline is not None:
        sections.append(_roofline_section(study.device.roofline, study.xla.ops, study.layers.names))
    return sections


def _module_section(modules: XlaModules) -> Section:
    shown = [row for row in range(len(modules)) if modules.self_ps[row] or modules.compile_ps[row]]
    compiled = int(modules.compile_ps.sum())
    sentence = counted_text(len(modules), "program")
    if compiled:
        sentence += f"; compiling took {duration_text(compiled)} while this was traced"
    more = len(shown) - _SHOWN_MODULES
    sentence += f". {more} more are in p.xla_modules." if more > 0 else "."
    return section_of(
        XLA_MODULES,
        modules,
        "module occurrences self_us compile_ms argument_bytes temporary_bytes",
        title="XLA programs",
        tab="XLA",
        sentence=sentence,
        bar=Bar.of(modules.self_ps, _COLOUR, 8),
        rows=shown[:_SHOWN_MODULES],
    )


def _op_section(study: Study) -> Section:
    ops = study.xla.ops
    shares = [percent_text(share or None) for share in ops.fraction[:_SHOWN_OPS].tolist()]
    return section_of(
        XLA,
        ops,
        (
            Shown("op of the framework", lambda row: _op_cell(ops.op[row], study.layers.names)),
            "occurrences self_us",
            Shown("share", shares.__getitem__, is_number=True, meaning=XLA["fraction"].meaning),
            "gigaflops_per_second gigabytes_per_second",
        ),
        title="XLA ops",
        tab="XLA",
        sentence=f"{count_text(len(ops))} ops, {duration_text(int(ops.self_ps.sum()))} in all.",
        bar=Bar.of(ops.self_ps, _COLOUR, 8),
        rows=range(min(_SHOWN_OPS, len(ops))),
        figure=icicle_figure(
            grow_xla_tree(ops, study.xla.hlo),
            _COLOURS,
            title="Where XLA's time goes: programs, XLA ops and framework ops",
            of_what="the time of XLA's ops",
            levels=("program", "XLA op", "framework op"),
        ),
    )


def _op_cell(op: HloOp, layers: LayerNames) -> Cell:
    """The framework's op and, fainter, XLA's."""
    hlo_op = op.name if op.category in ("", op.name) else f"{op.name} ({op.category})"
    title = op_title(op.op_name, named=layers)
    return (title.name, "", hlo_op, f"{title.full}\n{hlo_op}") if op.op_name else hlo_op


def _roofline_section(roofline: Roofline, ops: XlaOps, layers: LayerNames) -> Section:
    peak = roofline.peak
    peaks = ", ".join(
        f"{rate_text(flops, 'flop/s')}{'' if width == 'any' else f' in {width}'}"
        for width, flops in peak.flops.items()
    )
    memory = rate_text(peak.bytes_per_second, "B/s")
    sentence = f"The device could do {peaks} and move {memory}. Source: {peak.source}."
    if (roofline.bytes_fraction > _ABOVE).any():
        sentence += (
            " Some ops moved more bytes than the memory could: from caches, or the trace understates the "
            "memory."
        )
    attained = roofline.attained_fraction
    bound_by = np.where(roofline.is_compute_bound, "operations", "memory").tolist()
    return section_of(
        ROOFLINE,
        roofline,
        (
            Shown("op", lambda row: _op_cell(roofline.op[row], layers)),
            Shown("bound by", bound_by.__getitem__, meaning=ROOFLINE["bound_by"].meaning),
            "flops_per_byte gigaflops_per_second gigabytes_per_second attained_fraction",
        ),
        title="Roofline",
        tab="XLA",
        sentence=sentence,
        bar=Bar(lambda row: min(float(attained[row]), 1.0), _COLOUR, 8),
        rows=range(min(_SHOWN_ROOFS, len(roofline))),
        figure=roofline_figure(roofline, ops),
    )


def roofline_figure(roofline: Roofline, ops: XlaOps) -> dict[str, Any]:
    """The roofline: what each op reached, under what its device could do."""
    shares = ops.fraction[roofline.row]
    drawn = range(min(len(roofline), _MOST_MODULES_DRAWN))
    rows = [row for row in drawn if shares[row] >= _SMALLEST_SHARE] or list(drawn)
    limits = zip(roofline.peak_flops.tolist(), roofline.width, strict=True)
    by_operations = roofline.is_compute_bound
    points = []
    for row in sorted(rows, key=lambda row: not by_operations[row]):
        colour = _COLOUR if by_operations[row] else MEMORY_COLOUR
        text = (
            f"{roofline.op[row].name[:80]}: {percent_text(float(roofline.attained_fraction[row]))} of the "
            f"reachable speed, {percent_text(float(shares[row]))} of the time"
        )
        at = float(roofline.intensity[row]), float(roofline.flops_per_second[row])
        name = f"bound by {'operations' if by_operations[row] else 'memory'}"
        points.append(RoofPoint(name, colour, *at, text, float(shares[row])))
    return roof_figure("Roofline of XLA's ops", limits, roofline.peak.bytes_per_second, points)
