"""A rule of advice on validation that is larger than training, in a loop of one's own."""

import re
from collections import Counter

import numpy as np

from profnb.capture.parts.part_records import (
    CALLS,
    INPUT,
    OTHER,
    CellPart,
)
from profnb.core.units import PS_PER_NS, counted_text, duration_text
from profnb.subjects.advising import GUIDE, Finding, cell_share_text
from profnb.subjects.cell.spent_advice import line_of, own_parts, took_ns
from profnb.subjects.study import Study
from profnb.trace.op_names import parse_op

__all__ = ["own_validation"]

_VALIDATION, _LEAST_OF_CELL, _FEWEST_BETWEEN = "validation", 0.2, 5
_VALIDATES = re.compile(
    r"(?:^|_)(?:test|val|valid|validate|validation|eval|evaluate|evaluation)(?:_|$)", re.IGNORECASE
)
_LEARNS = re.compile(r"(?:^|/)gradient_tape/|:Resource(?:Sparse)?Apply")


def own_validation(study: Study) -> Finding | None:
    """In a loop of one's own, calls of a tf.function that validates are a fifth of the cell or more.

    They are its largest part, too, but for Python and waiting for data, much of which is the validation's:
    that goes with it, so nothing bounds what is saved.

    One that validates is called so (``test_step``, ``val_loss``) and has no gradients and no optimizer among
    its traced ops; it is compared with one that has them, and comes now and then. A function that only runs
    forward may be anything else, as what plays in reinforcement learning.
    """
    parts = own_parts(study)
    called = [part for part in parts if part.part == CALLS]
    learns = {part.name: _learns(study, part.name) for part in called}
    training = [part for part in called if learns[part.name]]
    validating = [p for p in called if learns[p.name] is False and _VALIDATES.search(p.name)]
    spent_ns, whole_ns = took_ns(validating), took_ns(parts)
    others = [part for part in parts if part.part not in (OTHER, INPUT)]
    if not _is_now_and_then(study, training, validating) or spent_ns <= max(
        _LEAST_OF_CELL * whole_ns, _largest_other_ns(others, validating)
    ):
        return None
    names = " and ".join(f"`{part.name}`" for part in validating)
    calls = sum(part.occurrences for part in validating)
    return Finding(
        "validation", "Validate less",
        f"{names}, which {'has' if len(validating) == 1 else 'have'} no gradients, took "
        f"{duration_text(spent_ns * PS_PER_NS)}, {cell_share_text(study, spent_ns / whole_ns)} "
        f"({counted_text(calls, 'call')}); training took {duration_text(took_ns(training) * PS_PER_NS)}.",
        None,
        "Validate after every few epochs, or on a part of the data: for batch in validation.take(n). Larger "
        "batches make fewer calls; nothing is kept for gradients, so they fit.",
        f"{GUIDE}/keras/writing_a_training_loop_from_scratch",
        spent_ns / whole_ns,
        where=line_of(study, validating),
        is_of_cell=True,
    )  # fmt: skip


def _is_now_and_then(study: Study, training: list[CellPart], validating: list[CellPart]) -> bool:
    """Whether some calls come twice or more, and five of others or more lie between, as a rule.

    What is called before each step teaches or acts; what comes once, at the end, is the result.
    """
    of_training, others = ({part.name for part in parts} for parts in (training, validating))
    between = [0]
    for phase in study.step_times.phase:
        if phase in of_training:
            between[-1] += 1
        elif phase in others and (between[-1] or len(between) == 1):
            between.append(0)
    runs = between[1:-1]  # before the first one, and behind the last, is anything
    return bool(runs) and float(np.median(runs)) >= _FEWEST_BETWEEN


def _largest_other_ns(parts: list[CellPart], validating: list[CellPart]) -> int:
    """Wall time of the largest kind of part, without what validates."""
    others: Counter[str] = Counter()
    for part in parts:
        others[part.part] += part.wall_ns if part not in validating else 0
    return max(others.values(), default=0)


def _learns(study: Study, function: str) -> bool | None:
    """Whether the traced calls of a function have gradients or an optimizer; None where none has ops."""
    rows = study.steps.rows_of(function, warm_up=True)
    codes = set(study.trace.events.name[study.events_of(rows)].tolist())
    ops = [name for name in map(study.trace.names.__getitem__, codes) if parse_op(name)]
    return any(map(_LEARNS.search, ops)) if ops else None
