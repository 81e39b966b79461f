"""Calls of functions and session runs to steps: the outermost ones that repeat."""

from dataclasses import replace

import numpy as np

from profnb.core.columns import Int64s
from profnb.steps.finding.cycles import Turns, find_phases, find_sequence, pick_cycle
from profnb.steps.windows import Steps, make_steps, outermost
from profnb.tf1.timeline_runs import find_graph_runs
from profnb.trace.model import Trace
from profnb.trace.names import FUNCTION_CALL, HLO_MODULE

_CARRIES = 0.75  # of the work: whose call has that much makes the steps
_MOST_NAMED = 4
_FAR_LONGER = 2
_CALL_PREFIXES = ("PjitFunction(", "SessionRun")


def called_steps(trace: Trace) -> Steps | None:
    """Steps by repeated calls of functions; None where none repeats."""
    calls = trace.stats.texts(FUNCTION_CALL).events
    is_named = not calls.size
    if is_named:
        named = trace.select_names(lambda name: name.startswith(_CALL_PREFIXES))
        calls = np.flatnonzero(named & trace.is_host_event)
    calls = outermost(trace, calls)
    names, codes = np.unique(trace.events.name[calls], return_inverse=True)
    if not is_named:
        return _phases_of_calls(trace, calls, names.astype(np.int64), codes.astype(np.int64))
    work = _work_of_calls(trace, names.astype(np.int64), codes)
    weights = trace.events.duration_ps[calls] if work is None else work
    roots, first_root, anchor = pick_cycle(codes, weights)
    carries = weights[codes == anchor].sum() >= _CARRIES * weights.sum()
    first, stop, length = (0, 0, 0) if carries else find_sequence(codes)
    if length:
        first += _first_of_turn(trace, calls[first:stop], length) if first else 0
        turns = np.arange(0, stop - first + 1, length)
        return make_steps(
            trace, calls[first : first + turns[-1]], turns, ("step",) * (turns.size - 1),
            f"a sequence of {length} calls that repeats",
        )  # fmt: skip
    if not roots.size:
        return None
    name = trace.names[names[anchor]]
    phase = (name,) * (first_root.size - 1)
    return make_steps(trace, calls[roots], first_root, phase, f"repeated calls of {name}")


def _first_of_turn(trace: Trace, calls: Int64s, length: int) -> int:
    """How many of N calls of a sequence belong to a turn that is not whole, or to what came before the loop.

    Where a turn begins the calls do not tell if what came before the loop ended as a turn does: it begins
    behind the longest pause, if that is twice the one before the first call.
    """
    begin, end = trace.events.begin_ps[calls], trace.events.end_ps[calls]
    pauses = np.append(0, np.maximum(begin[1:] - end[:-1], 0))[length:]
    pauses = np.median(pauses[: pauses.size // length * length].reshape(-1, length), axis=0)
    longest = int(pauses.argmax())
    return longest if pauses[longest] > _FAR_LONGER * pauses[0] else 0


def _phases_of_calls(trace: Trace, calls: Int64s, names: Int64s, codes: Int64s) -> Steps | None:
    """Steps of N outermost calls of ``tf.function``s: every function that repeats is a phase."""
    begins, ends = trace.events.begin_ps[calls], trace.events.end_ps[calls]
    turns = find_phases(codes, begins, ends)
    if not turns.roots.size:
        return None
    phase = tuple(trace.names[name] for name in names[turns.anchor])
    together = _titles(trace, codes, names, turns)
    distinct = [together.get(name, name) for name in dict.fromkeys(phase)]
    several = f" and {len(distinct) - _MOST_NAMED} more" if len(distinct) > _MOST_NAMED else ""
    origin = f"repeated calls of {', '.join(distinct[:_MOST_NAMED])}{several}"
    steps = make_steps(trace, calls[turns.roots], turns.first_root, phase, origin)
    return replace(steps, together=tuple(together.items()))


def _titles(trace: Trace, codes: Int64s, names: Int64s, turns: Turns) -> dict[str, str]:
    """The names of all functions of each cycle that has several, by the name of its phase: "d + g"."""
    titles = {}
    anchor_of_root = np.repeat(turns.anchor, np.diff(turns.first_root))
    for anchor in np.unique(turns.anchor).tolist():
        members = list(dict.fromkeys(codes[turns.roots[anchor_of_root == anchor]].tolist()))
        if len(members) > 1:
            listed = [trace.names[row] for row in names[members[:_MOST_NAMED]].tolist()]
            several = f" + {len(members) - _MOST_NAMED} more" if len(members) > _MOST_NAMED else ""
            titles[trace.names[int(names[anchor])]] = f"{' + '.join(listed)}{several}"
    return titles


def _work_of_calls(trace: Trace, names: Int64s, codes: Int64s) -> Int64s | None:
    """Time of what N calls of JAX's functions set going, shared out evenly among the calls of a function.

    A call returns before its program ran, and may wait for that of another. What the programs took is in the
    events that name them (``jit_train_step``).

    Args:
        trace: The trace.
        names: The names of the functions' calls, shape (F,).
        codes: Which of them each call is, shape (N,).

    Returns:
        Shape (N,), picoseconds; None where no event names a program of one of the functions.
    """
    modules = trace.stats.texts(HLO_MODULE)
    if not len(modules):
        return None
    spent = np.zeros(len(modules.texts), np.int64)
    np.add.at(spent, modules.values.astype(np.int64), trace.events.duration_ps[modules.events])
    of_module = dict(zip(modules.texts, spent.tolist(), strict=True))
    functions = [trace.names[name].partition("(")[2].removesuffix(")") for name in names.tolist()]
    work = np.array([of_module.get(f"jit_{function}", 0) for function in functions], np.int64)
    if not work.any():
        return None
    return (work // np.maximum(np.bincount(codes, minlength=names.size), 1))[codes]


def graph_runs(trace: Trace) -> Steps | None:
    """The session runs of a TF1 timeline."""
    runs = find_graph_runs(trace)
    if runs is None:
        return None
    count = runs.begin_ps.size
    return Steps(
        begin_ps=runs.begin_ps,
        end_ps=runs.end_ps,
        host_begin_ps=runs.begin_ps,
        host_end_ps=runs.end_ps,
        ends_epoch=np.zeros(count, np.bool_),
        step_num=np.arange(count),
        phase=runs.program,
        iterations=np.ones(count, np.int64),
        is_warmup=np.zeros(count, np.bool_),
        first_root=np.zeros(count + 1, np.int64),
        roots=np.empty(0, np.int64),
        origin="session runs, each begun by its _SOURCE node",
    )
