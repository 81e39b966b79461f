"""Memory as the report shows it: each allocator over time, and what was alive at the peak."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from profnb.core.units import MISSING, bytes_text, count_text, percent_text
from profnb.drawing.figures import axis
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import MEMORY_COLOUR, colour_of
from profnb.subjects.input.section import figure_over_time, line_of, thin
from profnb.subjects.layers.memory_kinds import AT_END, AT_FAILURE, AT_PEAK, MEMORY_KINDS, KindRow
from profnb.subjects.memory import peak
from profnb.subjects.memory.allocators import step_around
from profnb.subjects.study import Study

_SHOWN_ALLOCATORS, _SHOWN_ROWS, _MOST_SAMPLES_DRAWN = 6, 10, 120
_SMALL = 1 << 20  # an allocator below this everywhere has no chart and no table of its peak
_MOMENTS = {AT_PEAK: "at its peak", AT_END: "at the end", AT_FAILURE: "as memory ran out"}
_ALLOCATOR_COLOURS = (
    MEMORY_COLOUR,
    *map(colour_of, ("kernel launch", "device compute", "host compute", "output", "all others")),
)


def memory_sections(study: Study) -> list[Section]:
    """The tables on memory; none where no allocator recorded anything."""
    uses = sorted(study.memory.use, key=lambda use: (not use.allocator.is_device, -use.peak_bytes))
    if not uses:
        return [_op_section(study.memory.ops)] if study.memory.ops else []
    sections = [_allocator_section(study, uses)]
    if uses[0].peak_bytes >= _SMALL:
        sections.append(_peak_section(study, uses[0]))
    return sections


def kind_sections(rows: Sequence[KindRow]) -> list[Section]:
    """Show what filled memory, of one allocator at one moment; nothing for no rows."""
    if not rows:
        return []
    shown = sorted(rows, key=lambda row: -row.bytes)[:_SHOWN_ROWS]
    whole, when = sum(row.bytes for row in rows), _MOMENTS[rows[0].moment]
    return [
        section_of(
            MEMORY_KINDS,
            shown,
            "kind holder bytes blocks fraction",
            title="What filled the memory",
            tab="Memory",
            sentence=f"{rows[0].source} had {bytes_text(whole)} {when}. All rows are in p.memory_kinds.",
            bar=Bar.of([row.bytes for row in shown], MEMORY_COLOUR, 8),
            is_detail=rows[0].moment != AT_FAILURE,
        )
    ]


def _op_section(ops: Sequence[peak.OpMemory]) -> Section:
    return section_of(
        peak.OP_MEMORY,
        ops,
        "op_name op_type requested_bytes peak_bytes residual_bytes output_bytes",
        title="Memory by op, in a session run",
        tab="Memory",
        bar=Bar.of([op.requested_bytes for op in ops], MEMORY_COLOUR, 8),
        rows=range(min(len(ops), _SHOWN_ROWS)),
        is_detail=True,
    )


def _allocator_section(study: Study, uses: list[peak.MemoryUse]) -> Section:
    shown = uses[:_SHOWN_ALLOCATORS]
    largest = uses[0]
    sentence = ""
    if largest.largest_batch and largest.batch_size:
        unit = 10 ** max(len(str(largest.largest_batch)) - 2, 0)  # two digits: it is an estimate
        about = largest.largest_batch // unit * unit
        sentence = (
            f"A batch of about {count_text(about)} would fit into {largest.allocator.name} (now "
            f"{count_text(largest.batch_size)}), judged by the memory that changes within a step."
        )
    return section_of(
        peak.MEMORY_SUMMARY,
        shown,
        "allocator peak_bytes base_bytes limit_bytes fragmentation growth_bytes_per_step",
        title="Memory",
        tab="Memory",
        sentence=sentence,
        bar=Bar.of([use.peak_bytes for use in shown], MEMORY_COLOUR, 10),
        figure=_memory_figure(study, shown) if largest.allocator.is_device else None,
        is_detail=not largest.allocator.is_device,
    )


def _peak_section(study: Study, use: peak.MemoryUse) -> Section:
    rows = peak.tabulate_peak(study.trace, use.allocator, study.steps)
    shown, rest, whole = rows[:_SHOWN_ROWS], rows[_SHOWN_ROWS:], use.peak_bytes or 1
    lasting = sum(row.bytes for row in rows if row.is_persistent) / whole
    sentence = f"At its peak {use.allocator.name} held {bytes_text(use.peak_bytes)}"
    if step_around(study.trace, use.allocator, study.steps, use.allocator.peak) != (-1, -1):
        stays, goes = percent_text(lasting), percent_text(1 - lasting)
        sentence += f": {stays} stays from step to step, {goes} comes and goes"
    sentence += "."
    if (more := sum(row.bytes for row in rest)) > 0:
        sentence += f" {len(rest)} more rows, {bytes_text(more)}, are in p.memory_peak."
    return section_of(
        peak.MEMORY_PEAK,
        shown,
        (
            "op_name region",
            Shown(
                "type and shape",
                lambda row: f"{shown[row].dtype} {shown[row].shape}".strip() or MISSING,
                meaning="what kind of numbers it holds, and how many in each direction",
            ),
            "occurrences bytes",
            Shown(
                "share",
                lambda row: percent_text(shown[row].bytes / whole),
                is_number=True,
                meaning="share of what was alive at the peak",
            ),
        ),
        title="Memory in use at the peak",
        tab="Memory",
        sentence=sentence,
        bar=Bar.of([row.bytes for row in shown], MEMORY_COLOUR, 8),
        is_detail=True,
    )


def _memory_figure(study: Study, uses: list[peak.MemoryUse]) -> dict[str, Any]:
    """Draw bytes in use over time, thinned out by the highest so that the peak stays."""
    data: list[dict[str, Any]] = []
    for use, colour in zip(uses, _ALLOCATOR_COLOURS, strict=False):
        allocator = use.allocator
        if use.peak_bytes >= _SMALL:
            kept = thin(allocator.in_use, _MOST_SAMPLES_DRAWN, np.argmax)
            times = study.trace.events.begin_ps[allocator.events[kept]]
            hover = f"%{{y:.4s}}B in {figure_text(allocator.name)}"
            values = allocator.in_use[kept].tolist()
            data.append(line_of(allocator.name, colour, times, values, hover))
    yaxis = {**axis(""), "rangemode": "tozero", "tickformat": ".3s", "ticksuffix": "B"}
    return figure_over_time("Memory in use", data, study.steps, yaxis, (64, 62), showlegend=True)
