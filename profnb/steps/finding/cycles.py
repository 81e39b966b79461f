"""Calls of functions to the cycles that repeat: which of them make up one iteration of a loop."""

from typing import NamedTuple

import numpy as np

from profnb.core.columns import Int64s

_MOSTLY = 0.9
_LONGEST, _GLANCE = 1000, 16
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


def find_phases(codes: Int64s, begins: Int64s, ends: Int64s) -> Turns:
    """Every cycle among N calls: of what is left by one, the next is picked, until none repeats, 100 at most.

    Eight calls of ``train_step``, then four of ``test_step``, and that again: 16 turns of the one and 8 of
    the other. A turn that overlaps one of a cycle that took more time is part of it and none of its own.

    Args:
        codes: Which function each call is of, shape (N,), in time order.
        begins: When each began, shape (N,).
        ends: When each ended, shape (N,).
    """
    rest = np.arange(codes.size)
    turns: list[tuple[int, int, Int64s]] = []  # the first call, the anchor, all of its calls
    taken = np.zeros(codes.size + 1, np.bool_)  # calls inside of turns, whosever they are
    for _ in range(_MOST_PHASES):
        roots, first_root, anchor = pick_cycle(codes[rest], (ends - begins)[rest])
        if anchor < 0 or not roots.size:
            break
        cycle_calls = rest[roots]
        new_turns = [
            calls
            for first, last in zip(first_root[:-1].tolist(), first_root[1:].tolist(), strict=True)
            if not taken[(calls := cycle_calls[first:last])[0] : calls[-1] + 1].any()
        ]
        turns.extend((int(calls[0]), anchor, calls) for calls in new_turns)
        for calls in new_turns:
            taken[calls[0] : calls[-1] + 1] = True
        rest = rest[~np.isin(codes[rest], codes[cycle_calls])]
    turns.sort(key=lambda turn: turn[0])
    sizes = [calls.size for *_, calls in turns]
    none = np.empty(0, np.int64)
    return Turns(
        np.concatenate([none, *(calls for *_, calls in turns)]),
        np.append(0, np.cumsum(np.array(sizes, np.int64))),
        np.array([anchor for _, anchor, _ in turns], np.int64),
    )


def pick_cycle(codes: Int64s, durations: Int64s) -> tuple[Int64s, Int64s, int]:
    """Which of N calls make up the repeated cycle, and where each turn of it begins.

    The function that repeats and takes the most time is the anchor; functions that alternate with
    it, one call between two of its own, belong to the same cycle, which begins with whichever of
    them came first. A last turn without the anchor is left out.

    Args:
        codes: Which function each call is of, shape (N,), in time order.
        durations: How long each call took, shape (N,).

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


def find_sequence(codes: Int64s) -> tuple[int, int, int]:
    """The sequence that N calls repeat: its first call, the end of its last one, and how many make up a turn.

    It repeats from the first call to the last one, two times at least; or three times at least with other
    calls before it and behind it, a tenth of all at most: weights are made before a loop, results are looked
    at after it. The last turn may be cut off.

    Args:
        codes: Which function each call is of, shape (N,), in time order.

    Returns:
        (first, stop, length) of the shortest one (1,000 at most); zeros if there is none.
    """
    for length in range(1, min(codes.size // 2, _LONGEST) + 1):
        is_start = (
            codes[length : length + _GLANCE] == codes[:_GLANCE][: codes.size - length]
        ).all()
        if is_start and (codes[length:] == codes[:-length]).all():
            return 0, codes.size, length
    return _find_inside(codes)


def _find_inside(codes: Int64s) -> tuple[int, int, int]:
    middle, tries = codes.size // 2, 0
    for length in range(1, min(codes.size // _FEWEST_INSIDE, _LONGEST) + 1):
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


def _alternates(codes: Int64s, anchor: int, code: int) -> bool:
    """Whether nearly always exactly one call of ``code`` lies between two calls of ``anchor``."""
    turns = np.flatnonzero(codes == anchor)
    between = np.searchsorted(turns, np.flatnonzero(codes == code))
    each = np.bincount(between, minlength=turns.size + 1)[1 : turns.size]
    return each.size > 0 and bool((each == 1).mean() >= _MOSTLY)
