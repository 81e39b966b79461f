"""Rules that ask the tree and the trace's tables: what the steps, and the input beside them, do in pieces."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.cell_tree import STEADY_STEPS
from profnb.advice.numbers import LONG_OP_PS
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, with_below_of
from profnb.capture.parts import part_records as parts
from profnb.core.printable import quoted
from profnb.core.units import count_text, duration_text
from profnb.subjects.advising import GUIDE, op_events
from profnb.subjects.study import Study
from profnb.trace.op_names import parse_op

__all__ = ["STEP_RULES"]

_IN_LOOP = re.compile(r"(?:^|/)while/body/")
_RECURRENT = re.compile(r"(?:^|/)(?:\w*(?:lstm|gru|rnn)\w*)/", re.IGNORECASE)
_LONGEST = 60


def loops_of_small_ops(model: Model) -> Iterator[Proposal]:
    """A loop inside of a compiled function starts the same small ops again in each of its turns.

    Not the loop of a recurrent layer, each of whose turns needs the one before.
    """
    study = model.study
    looped = None if study is None else _looped(model, study)
    steps = [row for row in model.rows(*_STEPS) if model.is_main(row)]
    if looped is None or not steps:
        return
    assert study is not None
    turns, span, longest, least, most, ops = looped
    tree = model.tree
    rows = with_below_of(tree, steps)
    whole = float(tree.self_ps[rows].sum())
    because = f"the loop took {duration_text(span * whole)}"
    edit = Edit(rows, whole * (1 - longest + least), whole * (1 - span + most), because)
    name = next((tree.name[row] for row in steps if tree.name[row]), "")
    where = f" in {quoted(name, _LONGEST)}" if name else ""
    yield Proposal(
        "loop-of-ops", f"Do all turns of the loop{where} at once",
        f"A loop{where} (for, tf.while_loop or tf.map_fn) ran {count_text(ops)} ops in each of "
        f"{count_text(turns)} turns a step. It took "
        f"{duration_text(span * whole)}, most of it starting ops.",
        "Where a turn does not need the one before: one op over all of them, with the loop's axis as one "
        "more axis of the tensors (tf.vectorized_map does it for many functions). Else take several elements "
        "a turn, or jit_compile=True.",
        f"{GUIDE}/function#autograph_transformations", [edit], model.line_above(steps[0]),
    )  # fmt: skip


_STEPS = tuple(kind for kind in STEADY_STEPS if kind != parts.VALIDATION)


def _looped(model: Model, study: Study) -> tuple[int, float, float, float, float, int] | None:
    """What is looped over in the counted steps.

    Returns:
        (turns of a step, the loops' share of the steps' time from their first op to their last, the same with
        what no other op and no call explains, the least and the most of that time that the same work would
        take at once, ops of a turn); None for no loop.
    """
    trace, counted = study.trace, study.summary.counted

    def is_looped(name: str) -> bool:
        return (
            _IN_LOOP.search(name) is not None
            and _RECURRENT.search(name) is None
            and parse_op(name) is not None
        )

    chosen = trace.select_names(is_looped) & trace.is_host_event
    events = np.flatnonzero(chosen)
    step = study.groups.step[events]
    inside = np.isin(step, counted)
    events, step = events[inside], step[inside]
    if not events.size or study.steps.is_window:
        return None
    names, code, times = np.unique(
        trace.events.name[events], return_inverse=True, return_counts=True
    )
    turns = round(float(times.max()) / counted.size)
    if turns < 2:
        return None
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    steps, of_step = np.unique(step, return_inverse=True)
    first = np.full(steps.size, np.iinfo(np.int64).max)
    last = np.zeros(steps.size, np.int64)
    np.minimum.at(first, of_step, begin)
    np.maximum.at(last, of_step, end)
    whole = float(study.steps.duration_ps[counted].sum())
    took = end - begin
    span = min(float((last - first).sum()) / whole, 1.0)
    mean = np.bincount(code, took)[code] / times[code]
    at_once = float(np.where(mean > LONG_OP_PS, took, took / turns).sum()) / whole
    as_now = min(float(took.sum()) / whole, span)
    if at_once > span / 2:  # it is computing that takes the time
        return None
    others = op_events(study, lambda name, _: _IN_LOOP.search(name) is None)
    others = others[np.isin(study.groups.step[others], counted)]
    other_ps = float((trace.events.end_ps[others] - trace.events.begin_ps[others]).sum())
    longest = max(1 - (other_ps + model.costs.call_ps[0] * counted.size) / whole, span)
    return turns, span, longest, min(at_once, as_now), as_now, names.size


STEP_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (loops_of_small_ops,)
