"""Loops inside of compiled functions: ``for`` in AutoGraph, ``tf.while_loop``, ``tf.map_fn``.

TensorFlow numbers the turns in each piece of its executor's work (``iter_num``). Ops that take little are not
recorded by name, so a loop of them shows as such pieces alone.
"""

import re
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int64s
from profnb.steps.spine import Spine
from profnb.trace.names import EXECUTOR_PROCESS, parse_op

_IN_LOOP = re.compile(r"(?:^|/)while/body/")
_RECURRENT = re.compile(r"(?:^|/)(?:\w*(?:lstm|gru|rnn)\w*)/", re.IGNORECASE)


def _is_of_loop(name: str) -> bool:
    """Whether an op is the loop itself, or stacks what it gave."""
    return "/while" in f"/{name}" or "TensorList" in name


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the steps that averages are of.

    Attributes:
        turns: Turns of a step.
        share: Share of the steps' time from its second turn to its last.
        long_share: Share of it in which its ops that compute for long run.
        is_recurrent: Whether it is one of a recurrent layer, each of whose turns needs the one before.
        others: The ops of these steps outside of it.
    """

    turns: int
    share: float
    long_share: float
    is_recurrent: bool
    others: Int64s


def find_loop(spine: Spine, long_ps: int) -> Loop | None:
    """Find what is looped over in the counted steps; None for no loop.

    Args:
        spine: The steps.
        long_ps: How long an op runs that computes, and is not mostly being started.
    """
    trace, counted = spine.trace, spine.summary.counted
    turn = trace.stats.integers("iter_num")
    is_turn = trace.are_named(turn.events, lambda name: name == EXECUTOR_PROCESS)
    is_turn &= np.isin(spine.groups.step[turn.events], counted) & (turn.values.astype(np.int64) > 0)
    events, number = turn.events[is_turn], turn.values[is_turn]
    if not events.size or spine.steps.is_window:
        return None
    steps, of_step = np.unique(spine.groups.step[events], return_inverse=True)
    first, last = np.full(steps.size, np.iinfo(np.int64).max), np.zeros(steps.size, np.int64)
    np.minimum.at(first, of_step, trace.events.begin_ps[events])
    np.maximum.at(last, of_step, trace.events.end_ps[events])
    turns = np.zeros(steps.size, np.int64)
    np.maximum.at(turns, of_step, number)
    whole = float(spine.steps.duration_ps[counted].sum())
    ops = np.flatnonzero(trace.select_names(lambda name: parse_op(name) is not None))
    ops = ops[np.isin(spine.groups.step[ops], counted)]
    is_inside = trace.are_named(ops, lambda name: _IN_LOOP.search(name) is not None)
    named = ops[is_inside]
    took = trace.events.duration_ps[named]
    recurrent = trace.are_named(named, lambda name: _RECURRENT.search(name) is not None)
    return Loop(
        round(float(turns.sum()) / counted.size),
        min(float((last - first).sum()) / whole, 1.0),
        min(float(took[took > long_ps].sum()) / whole, 1.0),
        bool(recurrent.any()),
        ops[~is_inside & ~trace.are_named(ops, _is_of_loop)],
    )
