"""Ways to run ops: one by one by Python, in loops of compiled functions, in a session's graph that grows.

TensorFlow numbers the turns of a loop (``for`` in AutoGraph, ``tf.while_loop``, ``tf.map_fn``) in each piece
of its executor's work (``iter_num``). Ops that take little are not recorded by name, so a loop of them shows
as such pieces alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profnb.core.columns import Int32s, Int64s, flags_at
from profnb.steps.spine import Spine
from profnb.steps.streams import covered_ps
from profnb.trace.model import Trace
from profnb.trace.names import DATASET, EXECUTOR_PROCESS, parse_op

EAGER = "EagerLocalExecute: "
# Inside of an execution, in its EagerKernelExecute (TensorFlow 2.15 to 2.21); of small ops a third of it.
_KERNEL_RUN, _KERNEL_DEPTH = "KernelAndDeviceFunc::Run", 3
# An op that takes longer computes; a shorter one is mostly being started: to add two numbers takes 5 us.
LONG_OP_PS = 50_000_000
_LONGEST_PAUSE_PS = 2_000_000_000  # from an op to the next one that the same function runs
_ITERATOR_OPS = ("Iterator", "MakeIterator", "AnonymousIterator", "OneShotIterator")
# The loop itself, or what stacks what it gave.
_OF_LOOP = re.compile(r"(?:^|/)while|TensorList")
_IN_LOOP = re.compile(r"(?:^|/)while/body/")
_RECURRENT = re.compile(r"(?:^|/)(?:\w*(?:lstm|gru|rnn)\w*)/", re.IGNORECASE)
_FEWEST_VERSIONS = 3


def is_eager_op(name: str) -> bool:
    """Tell whether an event of this name is Python's execution of an op, not the call of a function."""
    op = name.removeprefix(EAGER)
    return op != name and op.isidentifier() and not op.startswith("__")


def add_eager_ops(
    trace: Trace, codes: Int32s, codes_of: dict[tuple[str, str], int], chosen: Int64s
) -> None:
    """Give the execution of an eager op the op's code, unless the op itself was recorded inside.

    Calls of functions are not ops: what they run is recorded on its own. Ops on iterators are, although the
    iterators that they call are recorded inside: making one, and asking it, takes time of its own. ``codes``
    has the op of each event, negative for none, and is filled in; ``chosen`` are the executions of eager ops
    on the host.
    """
    eager = np.full(len(trace.names), -1, np.int64)
    has_own_time = np.zeros(len(trace.names), np.bool_)
    for row in np.flatnonzero(trace.names.rows_where(is_eager_op)).tolist():
        name = trace.names[row].removeprefix(EAGER)
        eager[row] = codes_of.setdefault((name, name), len(codes_of))
        has_own_time[row] = name.startswith(_ITERATOR_OPS)
    if not chosen.size:
        return
    recorded_ops = np.flatnonzero(codes >= 0)
    inner = np.append(recorded_ops, -1)[np.searchsorted(recorded_ops, chosen, side="right")]
    line = trace.lines.of_event
    is_inside = (inner >= 0) & (line[inner] == line[chosen])
    is_inside &= trace.events.begin_ps[inner] < trace.events.end_ps[chosen]
    is_dataset = np.array([*(op_type == DATASET for _, op_type in codes_of), False, False])
    calls_iterator = is_dataset[codes[inner]] & has_own_time[trace.events.name[chosen]]
    chosen = chosen[~is_inside | calls_iterator]
    codes[chosen] = eager[trace.events.name[chosen]]


def find_innermost_ops(trace: Trace, parent: Int32s) -> Int64s:
    """Find the host's events of ops that run no other op; arguments as below."""
    ops = trace.select_names(lambda name: parse_op(name) is not None) & trace.is_host_event
    # The last flag is nobody's parent.
    return np.flatnonzero(ops & ~flags_at(parent[ops], len(trace.events) + 1)[:-1])


def find_eager_kernels(trace: Trace, parent: Int32s) -> Int64s:
    """Find the kernels of ops that Python executes one by one, where TensorFlow records no op itself.

    In older traces the op itself is recorded inside of its execution, under its own name. ``parent`` is each
    event's parent on its line, or -1, shape (E,).
    """
    is_execution = trace.names.rows_where(is_eager_op)
    runs = np.flatnonzero(trace.select_named(_KERNEL_RUN) & trace.is_host_event)
    around, is_inside = runs.copy(), np.zeros(runs.size, np.bool_)
    for _ in range(_KERNEL_DEPTH):
        around = np.where(around >= 0, parent[around], -1)
        is_inside |= (around >= 0) & is_execution[trace.events.name[around]]
    return runs[is_inside]


def shares_of_kernels(trace: Trace, parent: Int32s) -> tuple[float, float]:
    """Give the shares in which an op computes of the time in which Python runs ops one by one.

    Python's way from one op to the next counts where it takes no more than 2 ms. ``parent`` is each event's
    parent on its line, or -1, shape (E,).

    Returns:
        That of ops that compute for 50 us or longer, and that of all; (0, 1) without any.
    """
    runs = np.flatnonzero(trace.select_names(is_eager_op) & trace.is_host_event)
    if not runs.size:
        return 0.0, 1.0
    line, begin = trace.lines.of_event[runs], trace.events.begin_ps[runs]
    end = trace.events.end_ps[runs]
    pause = np.append(begin[1:] - end[:-1], 0)
    is_followed = np.append(line[1:] == line[:-1], False)
    is_followed &= (pause >= 0) & (pause <= _LONGEST_PAUSE_PS)
    whole = max(int((end - begin).sum() + pause[is_followed].sum()), 1)
    took = trace.events.duration_ps[find_eager_kernels(trace, parent)]
    long = took[took >= LONG_OP_PS]
    return min(int(long.sum()) / whole, 1.0), min(int(took.sum()) / whole, 1.0)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the steps that averages are of."""

    turns: int  # turns of a step
    share: float  # share of the steps' time from its second turn to its last, while no other op computes
    long_share: float  # share of it in which its ops that compute for long run
    # whether it is one of a recurrent layer, each of whose turns needs the one before
    is_recurrent: bool
    others: Int64s  # the ops of these steps outside of it
    traced: float = 0.0  # the share of the graph's ops that are its, where Python wrote it out
    line: str = ""  # the user's line that most of them are of


def find_loop(spine: Spine) -> Loop | None:
    """Find what is looped over in the counted steps."""
    trace, counted = spine.trace, spine.summary.counted
    turn = trace.stats.integers("iter_num")
    is_turn = trace.are_named(turn.events, lambda name: name == EXECUTOR_PROCESS)
    is_turn &= np.isin(spine.groups.step[turn.events], counted) & (turn.values.astype(np.int64) > 0)
    events, number = turn.events[is_turn], turn.values[is_turn]
    if not events.size or spine.steps.is_window:
        return None
    steps, of_step = np.unique(spine.groups.step[events], return_inverse=True)
    first = np.full(steps.size, np.iinfo(np.int64).max)
    last, turns = np.zeros((2, steps.size), np.int64)
    np.minimum.at(first, of_step, trace.events.begin_ps[events])
    np.maximum.at(last, of_step, trace.events.end_ps[events])
    np.maximum.at(turns, of_step, number)
    took_ps, cost = spine.steps.duration_ps[counted], spine.tracing_cost
    usual_ps = np.median(took_ps) if cost is None else min(np.median(took_ps), cost.untraced_ps)
    # What tracing adds that the clock leaves in; of all recorded events the loop's have their share of it.
    whole = float(took_ps.sum() * usual_ps / max(np.median(took_ps), 1))
    added = float(took_ps.sum()) - whole
    ops = np.flatnonzero(trace.select_names(lambda name: parse_op(name) is not None))
    ops = ops[np.isin(spine.groups.step[ops], counted)]
    is_inside = trace.are_named(ops, lambda name: bool(_IN_LOOP.search(name)))
    of_loop = (events.size + is_inside.sum()) / np.isin(spine.groups.step, counted).sum()
    took = trace.events.duration_ps[ops[is_inside]]
    recurrent = trace.are_named(ops[is_inside], lambda name: bool(_RECURRENT.search(name)))
    others = ops[~is_inside & ~trace.are_named(ops, lambda name: bool(_OF_LOOP.search(name)))]
    # What others compute between two loops, or beside one, stays without them.
    beside = others[np.isin(spine.groups.step[others], steps)]
    step = np.searchsorted(steps, spine.groups.step[beside])
    begin = np.maximum(trace.events.begin_ps[beside], first[step])
    end = np.clip(trace.events.end_ps[beside], begin, np.maximum(last[step], begin))
    lasted = float((last - first).sum()) - covered_ps(begin, end) - of_loop * added
    return Loop(
        round(float(turns.sum()) / counted.size),
        min(max(lasted / whole, 0.0), 1.0),
        min(float(took[took > LONG_OP_PS].sum()) / whole, 1.0),
        bool(recurrent.any()),
        others,
    )


def find_growth(versions: Sequence[int]) -> tuple[int, int] | None:
    """Count in how many session runs (TF1) the graph had changed, and by how many changes a run.

    None where that is fewer than half of the runs, or than three.

    ``versions`` is how many changes the graph had seen at each run.
    """
    grown = sum(later > earlier for earlier, later in pairwise(versions))
    if grown < _FEWEST_VERSIONS or grown * 2 < len(versions) - 1:
        return None
    return grown, round((versions[-1] - versions[0]) / (len(versions) - 1))
