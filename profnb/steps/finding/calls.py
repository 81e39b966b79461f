"""Calls of functions and session runs to steps: those that repeat, which of them make up one iteration."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from profnb.core.columns import Int32s, Int64s, sum_by
from profnb.core.printable import first_of
from profnb.steps.windows import Steps, outermost
from profnb.tf1.run_metadata import name_programs
from profnb.trace.model import Trace
from profnb.trace.names import (
    FUNCTION_CALL,
    HLO_MODULE,
    JIT_CALL,
    called_function,
    compiled_program,
)

_CARRIES = 0.75  # of the work: whose call has that much makes the steps
_MOST_NAMED = 4
_BREAK_FACTOR = 2
_CALL_PREFIXES = (JIT_CALL, "SessionRun")
_FIRST_NODE = "_SOURCE:NoOp"
_MOSTLY = 0.9
_LONGEST_PERIOD, _GLANCE = 1000, 16
_FEWEST_INSIDE, _MOST_TRIES = 3, 64
_MOST_PHASES = 100


class Turns(NamedTuple):
    """The turns of all cycles among N calls, in time order, not overlapping.

    Attributes:
        roots: Indices of the calls in them, turn by turn, shape (R,).
        first_root: Turn s owns calls ``first_root[s]:first_root[s + 1]``, shape (S + 1,).
        anchor: The function that each turn is named after, shape (S,).
    """

    roots: Int64s
    first_root: Int64s
    anchor: Int64s

    @property
    def first(self) -> Int64s:
        """The first call of each turn, shape (S,)."""
        return self.roots[self.first_root[:-1]]

    @property
    def last(self) -> Int64s:
        """The last call of each turn, shape (S,)."""
        return self.roots[self.first_root[1:] - 1]


def find_phases(
    codes: Int64s | Int32s, begins: Int64s | None = None, ends: Int64s | None = None
) -> Turns:
    """Find every cycle among N calls: of what one leaves, the next is picked, until none repeats.

    Eight calls of ``train_step``, then four of ``test_step``, and that again: 16 turns of the one and 8 of
    the other. A turn that overlaps one of a cycle that took more time is part of it and none of its own.

    Args:
        codes: The function that each call is of, as a number, shape (N,), in time order.
        begins: When each began, shape (N,); all take the same time by default.
        ends: When each ended, shape (N,).
    """
    functions, codes = np.unique(codes, return_inverse=True)
    durations = np.ones_like(codes) if begins is None or ends is None else ends - begins
    rest = np.arange(codes.size)
    turns: list[tuple[int, Int64s]] = []  # the anchor, all of its calls
    taken = np.zeros(codes.size + 1, np.bool_)  # calls inside of turns, whosever they are
    for _ in range(_MOST_PHASES):
        roots, first_root, anchor = pick_cycle(codes[rest], durations[rest])
        if anchor < 0 or not roots.size:
            break
        cycle_calls = rest[roots]
        new_turns = [
            calls
            for first, last in zip(first_root[:-1].tolist(), first_root[1:].tolist(), strict=True)
            if not taken[(calls := cycle_calls[first:last])[0] : calls[-1] + 1].any()
        ]
        for calls in new_turns:
            taken[calls[0] : calls[-1] + 1] = True
            turns.append((anchor, calls))
        rest = rest[~np.isin(codes[rest], codes[cycle_calls])]
    turns.sort(key=lambda turn: int(turn[1][0]))
    none = np.empty(0, np.int64)
    return Turns(
        np.concatenate([none, *(calls for _, calls in turns)]),
        np.cumsum([0, *(calls.size for _, calls in turns)]),
        functions.astype(np.int64)[np.array([anchor for anchor, _ in turns], np.int64)],
    )


def pick_cycle(codes: Int64s, durations: Int64s) -> tuple[Int64s, Int64s, int]:
    """Pick those of N calls that make up the repeated cycle, and tell where each turn of it begins.

    The function that repeats and takes the most time is the anchor; functions that alternate with
    it, one call between two of its own, belong to the same cycle, which begins with whichever of
    them came first. A last turn without the anchor is left out.

    Returns:
        Indices of the R calls in the cycle; ``first_root`` of shape (S + 1,): turn s owns calls
        ``first_root[s]:first_root[s + 1]``; and the anchor's code (-1 with no call repeated).
    """
    count = np.bincount(codes, minlength=1)
    totals = np.bincount(codes, durations.astype(np.float64), minlength=1)
    totals = np.where(count >= 2, totals, -1.0)
    if totals.max() < 0:
        return np.empty(0, np.int64), np.zeros(1, np.int64), -1
    anchor = int(totals.argmax())
    members = np.zeros(count.size, np.bool_)
    for code in np.flatnonzero(np.abs(count - count[anchor]) <= 1).tolist():
        members[code] = code == anchor or _alternates(codes, anchor, code)
    roots = np.flatnonzero(members[codes])
    kept = codes[roots]
    turns = np.flatnonzero(kept == kept[0])
    if not (kept[turns[-1] :] == anchor).any():  # cut off before its main call
        roots, turns = roots[: turns[-1]], turns[:-1]
    return roots, np.append(turns, roots.size), anchor


def _alternates(codes: Int64s, anchor: int, code: int) -> bool:
    """Tell whether nearly always exactly one call of ``code`` lies between two calls of ``anchor``."""
    turns = np.flatnonzero(codes == anchor)
    between = np.searchsorted(turns, np.flatnonzero(codes == code))
    each = np.bincount(between, minlength=turns.size + 1)[1 : turns.size]
    return each.size > 0 and bool((each == 1).mean() >= _MOSTLY)


def find_sequence(codes: Int64s) -> tuple[int, int, int]:
    """The sequence that N calls repeat: its first call, the end of its last one, and how many make up a turn.

    It repeats from the first call to the last one, two times at least; or three times at least with other
    calls before it and behind it, a tenth of all at most: weights are made before a loop, results are looked
    at after it. The last turn may be cut off.

    Returns:
        (first, stop, length) of the shortest one (1,000 at most); zeros if there is none.
    """
    for length in range(1, min(codes.size // 2, _LONGEST_PERIOD) + 1):
        glance = codes[length : length + _GLANCE]
        is_start = (glance == codes[: glance.size]).all()
        if is_start and (codes[length:] == codes[:-length]).all():
            return 0, codes.size, length
    return _find_inside(codes)


def _find_inside(codes: Int64s) -> tuple[int, int, int]:
    middle, tries = codes.size // 2, 0
    for length in range(1, min(codes.size // _FEWEST_INSIDE, _LONGEST_PERIOD) + 1):
        glance = codes[middle : middle + _GLANCE]
        if (glance != codes[middle - length : middle - length + glance.size]).any():
            continue
        tries += 1
        if tries > _MOST_TRIES:
            break
        differs = np.flatnonzero(codes[length:] != codes[:-length])
        at = int(np.searchsorted(differs, middle - length))
        first = int(differs[at - 1]) + 1 if at else 0
        stop = int(differs[at]) + length if at < differs.size else codes.size
        if stop - first >= max(_MOSTLY * codes.size, _FEWEST_INSIDE * length):
            return first, stop, length
    return 0, 0, 0


def called_steps(trace: Trace) -> Steps | None:
    """Find steps by repeated calls of functions; None where none repeats."""
    calls = trace.stats.texts(FUNCTION_CALL).events
    is_named = not calls.size
    if is_named:
        named = trace.select_names(lambda name: name.startswith(_CALL_PREFIXES))
        calls = np.flatnonzero(named & trace.is_host_event)
    calls = outermost(trace, calls)
    if not is_named:
        return _phases_of_calls(trace, calls)
    names, codes = np.unique(trace.events.name[calls], return_inverse=True)
    work = _work_of_calls(trace, names.astype(np.int64), codes)
    weights = trace.events.duration_ps[calls] if work is None else work
    roots, first_root, anchor = pick_cycle(codes, weights)
    carries = weights[codes == anchor].sum() >= _CARRIES * weights.sum()
    first, stop, length = (0, 0, 0) if carries else find_sequence(codes)
    if length:
        first += _first_of_turn(trace, calls[first:stop], length) if first else 0
        turns = np.arange(0, stop - first + 1, length)
        phase = ("step",) * (turns.size - 1)
        origin = f"a sequence of {length} calls that repeats"
        return Steps.of_roots(trace, calls[first : first + turns[-1]], phase, origin, turns)
    if not roots.size:
        return None
    name = called_function(trace.names[names[anchor]])
    phase = (name,) * (first_root.size - 1)
    return Steps.of_roots(trace, calls[roots], phase, f"repeated calls of {name}", first_root)


def _first_of_turn(trace: Trace, calls: Int64s, length: int) -> int:
    """Count those of N calls of a sequence that belong to no whole turn, or to what came before the loop.

    Where a turn begins the calls do not tell if what came before the loop ended as a turn does: it begins
    behind the longest pause, if that is twice the one before the first call.
    """
    begin, end = trace.events.begin_ps[calls], trace.events.end_ps[calls]
    pauses = np.append(0, np.maximum(begin[1:] - end[:-1], 0))[length:]
    pauses = np.median(pauses[: pauses.size // length * length].reshape(-1, length), axis=0)
    longest = int(pauses.argmax())
    return longest if pauses[longest] > _BREAK_FACTOR * pauses[0] else 0


def _phases_of_calls(trace: Trace, calls: Int64s) -> Steps | None:
    """Find steps of N outermost calls of ``tf.function``s: every function that repeats is a phase."""
    names = trace.events.name[calls]
    turns = find_phases(names, trace.events.begin_ps[calls], trace.events.end_ps[calls])
    if not turns.roots.size:
        return None
    titles = {}  # of cycles that have several functions, by the name of the phase: "d + g"
    anchor_of_root = np.repeat(turns.anchor, np.diff(turns.first_root))
    for anchor in np.unique(turns.anchor).tolist():
        members = dict.fromkeys(names[turns.roots[anchor_of_root == anchor]].tolist())
        if len(members) > 1:
            member_names = [trace.names[row] for row in members]
            titles[trace.names[anchor]] = first_of(member_names, _MOST_NAMED, " + ", " + {} more")
    phase = tuple(trace.names[name] for name in turns.anchor.tolist())
    distinct = [titles.get(name, name) for name in dict.fromkeys(phase)]
    origin = f"repeated calls of {first_of(distinct, _MOST_NAMED)}"
    steps = Steps.of_roots(trace, calls[turns.roots], phase, origin, turns.first_root)
    return replace(steps, together=tuple(titles.items()))


def _work_of_calls(trace: Trace, names: Int64s, codes: Int64s) -> Int64s | None:
    """Time of what N calls of JAX's functions set going, shared out evenly among the calls of a function.

    A call returns before its program ran, and may wait for that of another. What the programs took is in the
    events that name them (``jit_train_step``).

    Returns:
        Shape (N,), picoseconds; None where no event names a program of one of the functions.
    """
    modules = trace.stats.texts(HLO_MODULE)
    if not len(modules):
        return None
    took = trace.events.duration_ps[modules.events]
    spent = sum_by(modules.values.astype(np.int64), took, len(modules.texts))
    programs = [text.rstrip("_") for text in modules.texts]
    of_program = dict(zip(programs, spent.tolist(), strict=True))
    called = [compiled_program(called_function(trace.names[name])) for name in names.tolist()]
    work = np.array([of_program.get(program, 0) for program in called], np.int64)
    if not work.any():
        return None
    return (work // np.maximum(np.bincount(codes, minlength=names.size), 1))[codes]


def graph_runs(trace: Trace) -> Steps | None:
    """Find the session runs of a TF1 timeline.

    A timeline of several ``Session.run`` calls has no marker between them, but the executor of each device
    begins every run with the node ``_SOURCE``. A run lasts from its first ``_SOURCE`` to the end of the last
    event that begins before the next run's.
    """
    first = np.flatnonzero(trace.select_named(_FIRST_NODE))
    first = first[trace.is_host_event[first]]
    if not first.size:
        return None
    plane = trace.lines.plane[trace.lines.of_event[first]]
    times = trace.events.begin_ps[first]
    # One device has a first node in every run; those of the others belong to the nearest of its.
    most = np.bincount(plane).argmax()
    centre = np.sort(times[plane == most])
    nearest = np.searchsorted((centre[1:] + centre[:-1]) // 2, times)
    begin = centre.copy()
    np.minimum.at(begin, nearest, times)
    owner = np.searchsorted(begin, trace.events.begin_ps, side="right") - 1
    inside = np.flatnonzero(owner >= 0)
    end = begin.copy()
    np.maximum.at(end, owner[inside], trace.events.end_ps[inside])
    end = np.minimum(end, np.append(begin[1:], np.iinfo(np.int64).max))
    order = inside[np.argsort(owner[inside], kind="stable")]
    bounds = np.searchsorted(owner[order], np.arange(1, begin.size))
    program, names = name_programs(np.split(trace.events.name[order], bounds))
    phase = tuple(names[row] for row in program.tolist())
    return Steps.between(begin, end, phase, "session runs, each begun by its _SOURCE node")
