"""What the machine did, as the report shows it: the strip, and a table of means and highest values."""

import math
from collections.abc import Sequence

import numpy as np

from profnb.core.units import bar_text, count_text, percent_text
from profnb.drawing.section import Section
from profnb.subjects.system.energy import Energy
from profnb.subjects.system.machine_chart import find_lanes, strip_svg
from profnb.subjects.system.machine_use import MachineUse


def system_sections(use: MachineUse | None, energy: Sequence[Energy]) -> list[Section]:
    """The machine over the whole cell; none where nobody looked, or only once."""
    if use is None or use.time_ps.size < 2:
        return []
    lanes = find_lanes(use)
    if not lanes:
        return []
    sentences = [
        f"The whole cell, traced or not, by {count_text(use.time_ps.size)} looks.",
        *(energy_sentence(one) for one in energy),
    ]
    means = [float(np.nanmean(lane.values)) / lane.top for lane in lanes]
    return [
        Section(
            title="The machine",
            sentence=" ".join(sentences),
            headings=("", "what", "mean", "highest"),
            rows=[
                (bar_text(mean, 12), lane.title, *lane.texts)
                for lane, mean in zip(lanes, means, strict=True)
            ],
            numbers=(False, False, True, True),
            colours=[lane.colour for lane in lanes],
            tab="Machine",
            strip=strip_svg(use, lanes),
        )
    ]


def energy_sentence(energy: Energy) -> str:
    """What a GPU took, with how far that may be off; or why it is not known."""
    if math.isnan(energy.joules):
        return f"Energy of {energy.source}: {energy.method}."
    whole = _joules(energy.joules)
    if math.isnan(energy.step_joules):
        return f"{energy.source} took {whole} (by {energy.method})."
    example = (
        ""
        if math.isnan(energy.example_joules)
        else f", {_joules(energy.example_joules)} an example"
    )
    return (
        f"{energy.source} took {whole}: {_joules(energy.step_joules)} a step{example} "
        f"(±{percent_text(energy.band)}, by {energy.method})."
    )


def _joules(value: float) -> str:
    for scale, unit in ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} µJ"
