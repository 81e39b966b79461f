"""A series of runs to where it changed, tested anew with each run, at a known rate of false alarms.

The mean of the latest 3, 4, 6 or 8 runs is held against all runs since the last change, by Student's t of
their logarithms. Real machines have far-out runs, and runs that follow each other are alike. So a latest run
counts as at most 1.75 times as far out as the nearest one: one or two far-out runs raise nothing. And the
error of both means is that of runs that depend on the one before, by the correlation of neighbours seen so
far. Few runs tell that badly, so it is drawn to 0.3, as if 30 more runs had shown it.

As a normal deviate the difference has to pass 3.95 to 4.25. Those bounds were found by simulation: at most
about 1 of 200 steady series of 50 runs raises an alarm, with each kind of noise
(``tests/benchmarks/history.py``). Three runs are the fewest: two that a busy machine slowed in a row are no
rare thing. At most one in 20 pairs of an earlier and a latest run may be in the other order.

Of tests that would tell a shift of known size with fewer runs (CUSUM, Page 1954) none is better than the mean
of the latest runs where the shift has to be found within three. Those that look at whole series (PELT;
E-divisive with permutations, which MongoDB uses on its nightly runs) answer when tens of runs have followed.

Source: Hawkins, Qiu and Kang, "The changepoint model for statistical process control" (2003); Wallace,
"Bounds on normal approximations to Student's and the chi-square distributions" (1959); Marriott and Pope,
"Bias in the estimation of autocorrelations" (1954).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s

LEAST_BEFORE = 10  # runs: with fewer nobody knows how much they vary
_BOUNDS = {3: 3.95, 4: 3.95, 6: 4.05, 8: 4.25}
_MOST_REVERSED, _PART_OF_WAY, _FEW_OF, _FARTHEST = 0.05, 0.25, 8, 1.75
_USUAL_CORRELATION, _RUNS_THAT_SAY_SO, _MOST_CORRELATION = 0.3, 30, 0.7
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
    lagged = centred[1:] * centred[:-1]
    sums, squares, products = (
        np.append(0, np.cumsum(values)) for values in (centred, centred**2, lagged)
    )
    mean = sums[before] / before
    apart = np.maximum(squares[before] - before * mean**2, 1e-12)
    ends = 2 * sums[before] - centred[0] - centred[before - 1]
    together = products[before - 1] - mean * ends + (before - 1) * mean**2
    rho = _correlation(together / apart, before)
    windows = np.lib.stride_tricks.sliding_window_view(centred, width)[LEAST_BEFORE:]
    ahead = windows - mean[:, None]
    sign = np.sign(ahead.mean(axis=1))
    ahead = ahead * sign[:, None]
    nearest = np.sort(ahead, axis=1)[:, width // _FEW_OF]
    ahead = np.minimum(ahead, _FARTHEST * np.maximum(nearest, 0)[:, None])
    shift = ahead.mean(axis=1)
    scatter = apart + ((ahead - shift[:, None]) ** 2).sum(axis=1)
    freedom = before + width - 2.0
    lags = np.arange(1, width)
    of_latest = (1 + 2 * ((1 - lags / width) * rho[:, None] ** lags).sum(axis=1)) / width
    of_before = (1 + rho) / (1 - rho) / before
    student = np.maximum(shift, 0) / np.sqrt(scatter / freedom * (of_latest + of_before))
    spread = np.sqrt(freedom * np.log1p(student**2 / freedom))
    deviates[before + width - 1] = sign * spread * (8 * freedom + 1) / (8 * freedom + 3)
    return deviates


def _correlation(seen: Floats, runs: Int64s) -> Floats:
    """How much a run depends on the one before, from so many runs; what is seen is too low by its bias."""
    unbiased = seen + (1 + 3 * seen) / runs
    usual = _RUNS_THAT_SAY_SO * _USUAL_CORRELATION
    drawn = (runs * unbiased + usual) / (runs + _RUNS_THAT_SAY_SO)
    return np.clip(drawn, 0, _MOST_CORRELATION)


def _is_apart(before: Floats, latest: Floats) -> bool:
    """Whether each of the latest runs has gone a part of the way, and nearly all are beyond those before.

    So two slow runs and a usual one are no change, and a change begins with its first slow run.
    """
    shift = float(latest.mean() - before.mean())
    gone = (latest - before.mean()) / shift
    reversed_pairs = (latest[:, None] - before[None, :]) * shift <= 0
    is_each = np.sort(gone)[latest.size // _FEW_OF] > _PART_OF_WAY
    return bool(is_each and np.mean(reversed_pairs) <= _MOST_REVERSED)
