"""Rules on what takes longer and longer: steps, and ops that copy all that came before."""

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals, of_trace
from profnb.advice.replay import Edit
from profnb.causes import slowing
from profnb.causes.repeats import longest_line
from profnb.core.columns import flags_at
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.program_kind import PYTORCH, UNKNOWN
from profnb.subjects.advising import GUIDE
from profnb.subjects.study import Study

_GROWS = {
    slowing.INPUT: "Look for work of the input that grows from batch to batch. A generator may search, "
    "copy or concatenate all earlier batches, or read a file from the start each time.",
    slowing.PYTHON: "Look for data that grows in the loop: a list of losses, summed or drawn anew. Keep a "
    "running sum, and float(loss) instead of the tensor.",
    slowing.MORE: "Look for a cause of more ops a step: longer sequences, a loop that counts up, losses "
    "added again.",
    slowing.SAME: "If batches and sequences keep their sizes, the machine got slower. Look at clock and "
    "temperature (nvidia-smi -q -d CLOCK,PERFORMANCE), free memory and other programs.",
    "": "Trace more steps (-n STEPS) to see the growing part of a step.",
}


@of_trace
def slowing_down(model: Model, study: Study) -> Proposals:
    """Steps take longer and longer; had they stayed as they began, all would take what the early ones do."""
    slow = slowing.find_slowing(study)
    if slow is None:
        return
    rise, code = slow.rise, _GROWS[slow.cause]
    since = f"mostly from about step {count_text(rise.change or 0)} on"
    share = rise.excess * min(slow.whole_ps / model.periods_ps, 1.0)
    yield Proposal(
        "slowing-down", "Find what slows the steps down",
        f"The last quarter of {count_text(slow.count)} steps took {duration_text(rise.late)} each, the first "
        f"{duration_text(rise.early)}: {percent_text(rise.late / rise.early - 1)} longer, "
        f"{'bit by bit' if rise.change is None else since}.{slow.what}",
        code.replace("float(loss)", "its value") if study.program.is_graph else code,
        f"{GUIDE}/profiler", [model.some_of((), share, (0.0, 0.0))],
    )  # fmt: skip


@of_trace
def joined_again(model: Model, study: Study) -> Proposals:
    """A tensor grows piece by piece, and is copied whole for each."""
    joins, least_ps, most_ps = slowing.find_growing_joins(study)
    whole = float(model.tree.self_ps.sum())
    if not joins.size or not whole:
        return
    least_ps, most_ps = min(least_ps, whole), min(most_ps, whole)
    took = duration_text(float(study.trace.events.duration_ps[joins].sum()))
    is_join = flags_at(joins, len(study.trace.events))
    yield Proposal(
        "joined-again", "Collect in a list, concatenate once",
        f"Concatenating ran {count_text(joins.size)} times and took longer and longer: {took} in all. Each "
        "time it copies all that was there before.",
        f"parts.append(new) in the loop. Behind the loop, once: {study.program.text_of(_JOIN)}. If each turn "
        "needs the whole: make it in its last size before the loop, and fill it.",
        f"{GUIDE}/profiler",
        [Edit(np.arange(len(model.tree)), 0.0, most_ps - least_ps, most_ps / whole)],
        longest_line(study, is_join),
    )  # fmt: skip


_JOIN = {UNKNOWN: "tf.concat(parts, axis=0)", PYTORCH: "torch.cat(parts)"}


SLOWING_RULES = slowing_down, joined_again
