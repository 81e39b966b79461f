"""Memory as the report shows it: each allocator over time, and what was alive at the peak."""

from typing import Any

import numpy as np

from profnb.core.units import MISSING, PS_PER_MS, bar_text, bytes_text, count_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Section
from profnb.drawing.theme import COLOURS, colour_of
from profnb.subjects.input.section import step_rules
from profnb.subjects.memory.allocators import UNATTRIBUTED, step_around, tabulate_peak
from profnb.subjects.memory.use import MemoryUse
from profnb.subjects.study import Study

__all__ = ["memory_sections"]

_SHOWN_ALLOCATORS, _SHOWN_ROWS, _MOST_POINTS = 6, 10, 120
_SMALL = 1 << 20  # an allocator below this everywhere has no chart and no table of its peak
_COLOURS = (
    "device compute",
    "device collectives",
    "kernel launch",
    "host compute",
    "input",
    "output",
)


def memory_sections(study: Study) -> list[Section]:
    """The tables on memory; none where no allocator told anything."""
    uses = sorted(study.memory.use, key=lambda use: (not use.allocator.is_device, -use.peak_bytes))
    if not uses:
        return []
    sections = [_allocator_section(study, uses)]
    if uses[0].peak_bytes >= _SMALL:
        sections.append(_peak_section(study, uses[0]))
    return sections


def _allocator_section(study: Study, uses: list[MemoryUse]) -> Section:
    shown = uses[:_SHOWN_ALLOCATORS]
    largest = uses[0]
    sentence = ""
    if largest.largest_batch and largest.batch_size:
        about = count_text(_rounded(largest.largest_batch))
        sentence = (
            f"By what comes and goes in a step, a batch of about {about} would fit into "
            f"{largest.allocator.name} (now {count_text(largest.batch_size)}; if what stays does not grow "
            "with the batch)."
        )
    most = max(use.peak_bytes for use in shown) or 1

    def known(value: float) -> str:
        return bytes_text(value) if value >= 0 else MISSING

    return Section(
        title="Memory",
        sentence=sentence,
        headings=(
            "",
            "allocator",
            "peak",
            "between steps",
            "limit",
            "fragmentation",
            "growth a step",
        ),
        rows=[
            (
                bar_text(use.peak_bytes / most, 10),
                use.allocator.name,
                known(use.peak_bytes),
                known(use.base_bytes),
                known(use.allocator.limit),
                _fragmentation(use),
                bytes_text(use.growth_bytes) if use.growth_bytes else "none",
            )
            for use in shown
        ],
        numbers=(False, False, True, True, True, True, True),
        colours=[colour_of("device collectives")] * len(shown),
        tab="Memory",
        figure=_memory_figure(study, shown) if largest.allocator.is_device else None,
        is_detail=not largest.allocator.is_device,
    )


def _rounded(batch: int) -> int:
    """Two digits: it is an estimate."""
    digits = max(len(str(batch)) - 2, 0)
    return batch - batch % int(10**digits)


def _fragmentation(use: MemoryUse) -> str:
    value = float(use.allocator.fragmentation[use.allocator.peak])
    return MISSING if np.isnan(value) else percent_text(value)


def _peak_section(study: Study, use: MemoryUse) -> Section:
    rows = tabulate_peak(study.trace, use.allocator, study.steps)
    shown = rows[:_SHOWN_ROWS]
    lasting = sum(row.bytes for row in rows if row.is_persistent)
    whole = use.peak_bytes or 1
    more = sum(row.bytes for row in rows[_SHOWN_ROWS:])
    sentence = f"At its peak {use.allocator.name} held {bytes_text(use.peak_bytes)}"
    if step_around(study.trace, use.allocator, study.steps, use.allocator.peak) == (-1, -1):
        sentence += "."
    else:
        sentence += (
            f": {percent_text(lasting / whole)} stays from step to step, "
            f"{percent_text(1 - lasting / whole)} comes and goes."
        )
    if more > 0:
        sentence += (
            f" {len(rows) - len(shown)} more rows, {bytes_text(more)}, are in p.memory_peak."
        )
    return Section(
        title="What was alive at the peak",
        sentence=sentence,
        headings=("", "op", "region", "type and shape", "blocks", "bytes", "share"),
        rows=[
            (
                bar_text(row.bytes / max(shown[0].bytes, 1), 8),
                row.op_name,
                row.region or MISSING,
                f"{row.dtype} {row.shape}".strip() or MISSING,
                count_text(row.occurrences) if row.op_name != UNATTRIBUTED else MISSING,
                bytes_text(row.bytes),
                percent_text(row.bytes / whole),
            )
            for row in shown
        ],
        numbers=(False, False, False, False, True, True, True),
        colours=[colour_of("device collectives")] * len(shown),
        tab="Memory",
        is_detail=True,
    )


def _memory_figure(study: Study, uses: list[MemoryUse]) -> dict[str, Any]:
    """Bytes in use over time, thinned out by the highest so that the peak stays."""
    data: list[dict[str, Any]] = []
    for use, colour in zip(uses, _COLOURS, strict=False):
        if use.peak_bytes < _SMALL:
            continue
        allocator = use.allocator
        width = max(-(-len(allocator) // _MOST_POINTS), 1)
        starts = np.arange(0, len(allocator), width)
        highest = [
            int(start) + int(np.argmax(allocator.in_use[start : start + width])) for start in starts
        ]
        times = study.trace.events.begin_ps[allocator.events[highest]] / PS_PER_MS
        name = figure_text(allocator.name)
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": name,
                "x": [round(float(time), 4) for time in times],
                "y": allocator.in_use[highest].tolist(),
                "line": {"shape": "hv", "width": 1.5, "color": COLOURS[colour]},
                "hovertemplate": f"%{{x:.4g}} ms: %{{y:.4s}}B in {name}<extra></extra>",
            }
        )  # fmt: skip
    layout = figure_layout("Memory in use", 260)
    layout |= {
        "margin": {"l": 64, "r": 12, "t": 62, "b": 34},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "showlegend": True,
        "xaxis": {**axis(""), "ticksuffix": " ms", "showgrid": False},
        "yaxis": {**axis(""), "rangemode": "tozero", "tickformat": ".3s", "ticksuffix": "B"},
        "shapes": step_rules(study.steps),
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}
