"""The machine as the report shows it: a strip, and a table of means and highest values.

The strip has a lane for each thing that was looked at, from begin to end of the cell. It is drawn by us as
SVG inside the HTML; where that is stripped, the table below it says the same in numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from profnb.core.columns import Bools, Floats
from profnb.core.units import bar_text, bytes_text, duration_text, percent_text, rate_text
from profnb.drawing.section import Section
from profnb.drawing.theme import COLOURS, GRID
from profnb.subjects.system.machine_use import HOST, Energy, MachineUse

_MOST_LOOKS_DRAWN, _MOST_LANES = 160, 16
_WIDTH, _LEFT, _RIGHT, _HEIGHT, _GAP, _FOOT = 760, 190, 90, 22, 5, 16
_HELD_BACK = COLOURS["input"]


def system_sections(use: MachineUse | None, energy: Sequence[Energy]) -> list[Section]:
    """The machine over the whole cell; none where nobody looked, or only once."""
    if use is None or use.time_ps.size < 2:
        return []
    lanes = find_lanes(use)
    if not lanes:
        return []
    means = [float(np.nanmean(lane.values)) / lane.top for lane in lanes]
    looks = f"From begin to end, traced or not, by {use.time_ps.size:,} samples."
    section = Section(
        title="The machine",
        sentence=" ".join([looks, *map(energy_sentence, energy)]),
        headings=("", "what", "mean", "highest"),
        rows=[
            (bar_text(mean, 12), one.title, *one.texts)
            for one, mean in zip(lanes, means, strict=True)
        ],
        numbers=(False, False, True, True),
        colours=[lane.colour for lane in lanes],
        tab="Machine",
        strip=strip_svg(use, lanes),
    )
    return [section]


def energy_sentence(energy: Energy) -> str:
    """Say what a GPU took, with how far that may be off; or why it is not known."""
    whole, step, example = map(_joules, (energy.joules, energy.step_joules, energy.example_joules))
    if not whole:
        return f"Energy of {energy.source}: {energy.method}."
    if not step:
        return f"{energy.source} took {whole} (by {energy.method})."
    return (
        f"{energy.source} took {whole}: {step} a step{f', {example} an example' if example else ''} "
        f"(±{percent_text(energy.band)}, by {energy.method})."
    )


def _joules(value: float) -> str:
    if math.isnan(value):
        return ""
    units = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (0.0, "µJ"))
    scale, unit = next(one for one in units if value >= one[0])
    return f"{value / (scale or 1e-6):.3g} {unit}"


@dataclass(frozen=True, slots=True)
class Lane:
    """One thing over the cell."""

    title: str  # what it is: "GPU 0 utilization"
    values: Floats  # at each look, in its unit; NaN where not known, shape (N,)
    top: float  # what a full lane stands for
    texts: tuple[str, str]  # its mean and its highest value
    colour: str  # of the area
    marked: Bools  # looks to mark: clocks held back, shape (N,)


def find_lanes(use: MachineUse) -> list[Lane]:
    """List what was looked at and known, the GPUs first."""
    lanes = []
    for source in sorted(use.sources, key=lambda source: source.source == HOST):
        short = source.source.partition(" (")[0]
        held = np.array([bool(reason) for reason in source.throttling], np.bool_)
        nothing = np.zeros(held.size, np.bool_)
        busy, memory = f"{short} utilization", f"{short} memory"
        if source.source == HOST:
            busy, memory = "CPU, all cores", "memory of this process"
        kinds = (
            (busy, source.utilization, 1.0, percent_text, "device compute", nothing),
            ("CPU, this process", source.process, 1.0, percent_text, "host compute", nothing),
            (f"{short} power", source.power, 0.0, "{:,.0f} W".format, "kernel launch", held),
            (memory, source.memory, source.memory_bytes, bytes_text, "device to device", nothing),
            ("disk read", source.read, 0.0, _rate, "output", nothing),
            ("disk written", source.written, 0.0, _rate, "output", nothing),
        )
        for title, values, top, text, colour, marked in kinds:
            measured = values[np.isfinite(values)]
            if not measured.size or (title.startswith("disk") and not measured.any()):
                continue
            mean, highest = float(np.nanmean(values)), float(np.nanmax(values))
            full = np.nanmax([top, highest]) or 1.0
            texts = text(mean), text(highest)
            lanes.append(Lane(title, values, float(full), texts, COLOURS[colour], marked))
    return lanes[:_MOST_LANES]


def _rate(value: float) -> str:
    return rate_text(value, "B/s")


def strip_svg(use: MachineUse, lanes: Sequence[Lane]) -> Markup:
    """The strip of two looks or more, as an element."""
    height = len(lanes) * (_HEIGHT + _GAP) + _FOOT
    parts = [_lane_svg(use, lane, row * (_HEIGHT + _GAP)) for row, lane in enumerate(lanes)]
    label = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    parts.append(label.format(_LEFT, height - 3, "start", "0 s"))
    parts.append(label.format(_WIDTH - _RIGHT, height - 3, "end", duration_text(use.whole_ps)))
    said = ", ".join(f"{lane.title} {lane.texts[0]} on average" for lane in lanes)
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" style="display:block;width:100%;max-width:{}px;'
        'margin:6px 0" font-size="11" fill="currentColor">{}</svg>'
    ).format(_WIDTH, height, said, _WIDTH, Markup("").join(parts))


def _lane_svg(use: MachineUse, lane: Lane, top: int) -> Markup:
    middle, bottom, width = top + _HEIGHT / 2 + 4, top + _HEIGHT, _WIDTH - _LEFT - _RIGHT
    x, y, held = _points(use, lane)
    x, y = _LEFT + x * width, bottom - y * _HEIGHT
    marks = Markup("").join(
        Markup('<rect x="{:.1f}" y="{}" width="{:.1f}" height="3" fill="{}"/>').format(
            at, top, min(width / x.size + 0.5, _WIDTH - _RIGHT - at), _HELD_BACK
        )
        for at in x[held]
    )
    line = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    area = f"M{x[0]:.1f} {bottom}L{line}L{x[-1]:.1f} {bottom}Z"
    return Markup(
        '<text x="{}" y="{}" text-anchor="end">{}</text>'
        '<rect x="{}" y="{}" width="{}" height="{}" fill="{}" opacity="0.35"/>'
        '<path d="{}" fill="{}" fill-opacity="0.45" stroke="{}"/>{}<text x="{}" y="{}">{}</text>'
    ).format(
        _LEFT - 8, middle, lane.title, _LEFT, top, width, _HEIGHT, GRID,
        area, lane.colour, lane.colour, marks, _WIDTH - _RIGHT + 6, middle, lane.texts[1],
    )  # fmt: skip


def _points(use: MachineUse, lane: Lane) -> tuple[Floats, Floats, Bools]:
    """Place the looks, 0 to 1 across and up, with means of neighbours where there are many."""
    is_measured = np.isfinite(lane.values)
    x = use.time_ps[is_measured] / max(use.whole_ps, 1)
    y, held = lane.values[is_measured] / lane.top, lane.marked[is_measured]
    group = np.arange(x.size) * min(_MOST_LOOKS_DRAWN, x.size) // max(x.size, 1)
    count = np.maximum(np.bincount(group), 1)
    return (
        np.clip(np.bincount(group, x) / count, 0, 1),
        np.clip(np.bincount(group, y) / count, 0, 1),
        np.bincount(group, held.astype(np.float64)) > 0,
    )
