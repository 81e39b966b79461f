"""What XLA did, as the report shows it: its programs, its ops, and how near they come to the limits."""

from profnb.core.units import (
    MISSING,
    bar_text,
    bytes_text,
    count_text,
    duration_text,
    percent_text,
    rate_text,
)
from profnb.drawing.html_table import Cell
from profnb.drawing.section import Section
from profnb.drawing.theme import colour_of
from profnb.subjects.device.device_charts import roofline_figure
from profnb.subjects.device.roofline import Roofline
from profnb.subjects.study import Study
from profnb.subjects.xla.programs import XlaModules, XlaOps
from profnb.subjects.xla.xla_chart import xla_figure
from profnb.subjects.xla.xla_tree import grow_xla_tree

__all__ = ["xla_sections"]

_SHOWN_MODULES, _SHOWN_OPS, _SHOWN_ROOFS = 8, 12, 10
_ABOVE = 1.05


def xla_sections(study: Study) -> list[Section]:
    """The tables on XLA; none where it ran nothing."""
    if not len(study.xla.ops):
        return []
    sections = [_module_section(study.xla.modules), _op_section(study)]
    if study.device.roofline is not None:
        sections.append(_roofline_section(study.device.roofline, study.xla.ops))
    return sections


def _module_section(modules: XlaModules) -> Section:
    shown = [row for row in range(len(modules)) if modules.self_ps[row] or modules.compile_ps[row]]
    compiled = int(modules.compile_ps.sum())
    sentence = f"{count_text(len(modules))} {'program' if len(modules) == 1 else 'programs'}"
    if compiled:
        sentence += f"; compiling took {duration_text(compiled)} while this was traced"
    more = len(shown) - _SHOWN_MODULES
    sentence += f". {more} more are in p.xla_modules." if more > 0 else "."
    shown = shown[:_SHOWN_MODULES]
    longest = int(modules.self_ps.max(initial=0)) or 1
    return Section(
        title="XLA programs",
        sentence=sentence,
        headings=("", "program", "runs", "time", "compiling", "arguments", "temporary"),
        rows=[
            (
                bar_text(float(modules.self_ps[row] / longest), 8),
                modules.module[row],
                count_text(int(modules.executions[row])) if modules.executions[row] else MISSING,
                duration_text(int(modules.self_ps[row])),
                duration_text(int(modules.compile_ps[row])) if modules.compile_ps[row] else MISSING,
                *(_bytes(modules.buffers[row], kind) for kind in ("argument", "temporary")),
            )
            for row in shown
        ],
        numbers=(False, False, True, True, True, True, True),
        colours=[colour_of("device compute")] * len(shown),
        tab="XLA",
    )


def _bytes(buffers: dict[str, int] | None, kind: str) -> str:
    return MISSING if buffers is None else bytes_text(buffers[kind])


def _op_section(study: Study) -> Section:
    ops = study.xla.ops
    fractions = ops.fraction
    shown = range(min(_SHOWN_OPS, len(ops)))
    first = float(fractions[0]) if len(ops) and ops.self_ps[0] else 1.0
    return Section(
        title="XLA ops",
        sentence=f"{count_text(len(ops))} ops, {duration_text(int(ops.self_ps.sum()))} in all.",
        headings=("", "op of the framework", "runs", "self", "share", "operations", "memory"),
        rows=[
            (
                bar_text(float(fractions[row]) / first, 8),
                _op_cell(ops, row),
                count_text(int(ops.occurrences[row])),
                duration_text(int(ops.self_ps[row])),
                percent_text(float(fractions[row])) if ops.self_ps[row] else MISSING,
                rate_text(ops.flops_per_second[row] or None, "flop/s"),
                rate_text(ops.bytes_per_second[row], "B/s"),
            )
            for row in shown
        ],
        numbers=(False, False, True, True, True, True, True),
        colours=[colour_of("device compute")] * len(shown),
        tab="XLA",
        figure=xla_figure(grow_xla_tree(ops, study.xla.hlo)),
    )


def _op_cell(ops: XlaOps, row: int) -> Cell:
    """The framework's op and, fainter, XLA's."""
    op = ops.op[row]
    own = op.name if op.category in ("", op.name) else f"{op.name} ({op.category})"
    return (op.op_name, "", own) if op.op_name else own


def _roofline_section(roofline: Roofline, ops: XlaOps) -> Section:
    shown = range(min(_SHOWN_ROOFS, len(roofline)))
    peak = roofline.peak
    peaks = ", ".join(
        f"{rate_text(flops, 'flop/s')}{'' if width == 'any' else f' in {width}'}"
        for width, flops in peak.flops.items()
    )
    memory = rate_text(peak.bytes_per_second, "B/s")
    sentence = f"The device could do {peaks} and move {memory} ({peak.source})."
    if (roofline.bytes_fraction > _ABOVE).any():
        sentence += (
            " Some ops moved more bytes than its memory could: they found them in caches, or the trace "
            "understates the memory."
        )
    attained = roofline.attained_fraction
    return Section(
        title="Roofline",
        sentence=sentence,
        headings=("", "op", "bound by", "flop/byte", "operations", "memory", "of its limit"),
        rows=[
            (
                bar_text(min(float(attained[row]), 1.0), 8),
                _op_cell(ops, int(roofline.row[row])),
                "operations" if roofline.is_compute_bound[row] else "memory",
                f"{roofline.intensity[row]:,.3g}",
                rate_text(roofline.flops_per_second[row], "flop/s"),
                rate_text(roofline.bytes_per_second[row], "B/s"),
                percent_text(float(attained[row])),
            )
            for row in shown
        ],
        numbers=(False, False, False, True, True, True, True),
        colours=[colour_of("device compute")] * len(shown),
        tab="XLA",
        figure=roofline_figure(roofline, ops),
    )
