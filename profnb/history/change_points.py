"""A series of runs to where it changed, tested anew with each run, at a known rate of false alarms.

The mean of the latest 3, 4 or 8 runs is held against all runs since the last change, by Student's t of their
logarithms; as a normal deviate it has to pass 3.75, 3.75 or 4.1. Those bounds were found by simulation: of
1,000 steady series of 50 runs fewer than 5 raise an alarm (``tests/benchmarks/history.py``). Three runs are
the fewest: two that a busy machine slowed in a row are no rare thing. So that a few far-out runs aren't taken
for a change either, at most one in 20 pairs of an earlier and a latest run may be in the other order.

Of tests that would tell a shift of known size with fewer runs (CUSUM, Page 1954) none is better than the mean
of the latest runs where the shift has to be found within three. Those that look at whole series (PELT;
E-divisive with permutations, which MongoDB uses on its nightly runs) answer when tens of runs have followed.

Source: Hawkins, Qiu and Kang, "The changepoint model for statistical process control" (2003); Wallace,
"Bounds on normal approximations to Student's and the chi-square distributions" (1959).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats

LEAST_BEFORE = 10  # runs: with fewer nobody knows how much they vary
_BOUNDS = {3: 3.75, 4: 3.75, 8: 4.1}
_MOST_REVERSED, _PART_OF_WAY, _FEW_OF = 0.05, 0.25, 8
_MOST_BEFORE = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """Where a series changed.

    Attributes:
        at: The first run after it.
        found_at: The run with which it was seen.
        ratio: Typical time after it, as far as seen then, over that before it.
    """

    at: int
    found_at: int
    ratio: float


def find_changes(times: Sequence[float]) -> list[Change]:
    """Find where a series changed, as each of its runs could tell when it came.

    Args:
        times: A time per run, in order, all positive.
    """
    logs = np.log(np.asarray(times, np.float64))
    changes: list[Change] = []
    first = 0
    while change := _first_change(logs[first : first + _MOST_BEFORE]):
        changes.append(Change(first + change.at, first + change.found_at, change.ratio))
        first = changes[-1].at
    return changes if logs.size - first <= _MOST_BEFORE else changes + _later(logs, first)


def _later(logs: Floats, first: int) -> list[Change]:
    """Go on behind a thousand steady runs: the latest half of them is what later ones are held against."""
    begin = first + _MOST_BEFORE // 2
    later = find_changes(np.exp(logs[begin:]).tolist())
    return [Change(begin + one.at, begin + one.found_at, one.ratio) for one in later]


def _first_change(logs: Floats) -> Change | None:
    """The change that is seen first; of those seen at one run the clearest."""
    best: tuple[int, float, int] | None = None  # seen at, less how clear, runs after it
    for width, bound in _BOUNDS.items():
        deviates = _deviates(logs, width)
        for seen in np.flatnonzero(np.abs(deviates) > bound).tolist():
            if best is not None and seen > best[0]:
                break
            begin = seen - width + 1
            if _is_apart(logs[:begin], logs[begin : seen + 1]):
                candidate = seen, bound - abs(float(deviates[seen])), width
                best = candidate if best is None else min(best, candidate)
                break
    if best is None:
        return None
    seen, _, width = best
    splits = range(seen - width + 1, seen + 1)
    shifts = [float(logs[at : seen + 1].mean() - logs[:at].mean()) for at in splits]
    weights = [1 / at + 1 / (seen + 1 - at) for at in splits]
    clarity = np.abs(shifts) / np.sqrt(weights)
    first = int(np.argmax(clarity))
    return Change(splits[first], seen, float(np.exp(shifts[first])))


def _deviates(logs: Floats, width: int) -> Floats:
    """The latest runs' mean against that of all before, as a normal deviate, for each run; else 0."""
    count = logs.size
    deviates = np.zeros(count)
    before = np.arange(LEAST_BEFORE, count - width + 1)  # runs before the latest
    if not before.size:
        return deviates
    centred = logs - logs[0]
    sums, squares = (np.append(0, np.cumsum(values)) for values in (centred, centred**2))
    after = before + width
    earlier = sums[before] / before
    latest = (sums[after] - sums[before]) / width
    scatter = squares[after] - before * earlier**2 - width * latest**2
    freedom = after - 2.0
    error = np.sqrt(np.maximum(scatter, 1e-12) / freedom * (1 / width + 1 / before))
    student = (latest - earlier) / error
    spread = np.sqrt(freedom * np.log1p(student**2 / freedom))
    deviates[after - 1] = np.sign(student) * spread * (8 * freedom + 1) / (8 * freedom + 3)
    return deviates


def _is_apart(before: Floats, latest: Floats) -> bool:
    """Whether each of the latest runs has gone a part of the way, and nearly all are beyond those before.

    So two slow runs and a usual one are no change, and a change begins with its first slow run.
    """
    shift = float(latest.mean() - before.mean())
    gone = (latest - before.mean()) / shift
    reversed_pairs = (latest[:, None] - before[None, :]) * shift <= 0
    is_each = np.sort(gone)[latest.size // _FEW_OF] > _PART_OF_WAY
    return bool(is_each and np.mean(reversed_pairs) <= _MOST_REVERSED)
