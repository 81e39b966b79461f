"""Clocks of a GPU that were held back, in a sentence: only where that was seen often enough to matter."""

from collections import Counter

from profnb.core.units import count_text
from profnb.subjects.system.machine_use import HOST, MachineUse

_LEAST_SHARE, _FEWEST = 0.05, 3


def throttling_notes(use: MachineUse | None) -> list[str]:
    """For each GPU for how much of the cell its clocks were held back, and why."""
    notes = []
    for source in use.sources if use is not None else ():
        look_count = int(source.has_reasons.sum())
        held = [reason for reason in source.throttling if reason]
        if source.source == HOST or len(held) < max(_FEWEST, _LEAST_SHARE * look_count):
            continue
        reasons = Counter(held)
        why = " or ".join(reason for reason, _ in reasons.most_common(2))
        share = f"{100 * len(held) / look_count:.0f} %"
        notes.append(
            f"{source.source} was throttled for {share} of the cell ({why}): its clocks were held back in "
            f"{count_text(len(held))} of {count_text(look_count)} looks at it."
        )
    return notes
