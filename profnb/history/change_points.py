"""A series of runs to where it changed, tested anew with each run, at a known rate of false alarms.

The mean of the latest 3, 4 or 8 runs is held against all runs since the last change, by a permutation test:
of all choices of as many of these runs, at most one in thousands may have a mean as far out. Where nothing
changed every choice is as likely, whatever the noise is: so the rate of false alarms holds with heavy tails
and far-out runs too, as long as a run doesn't depend on the one before. Among few runs no choice is so rare:
there the latest have to lie beyond all before them, and far out: the fewer choices, the further.
``tests/benchmarks/history.py`` measures the rates.

Three runs are the fewest: two that a busy machine slowed in a row are no rare thing.

Of tests that would tell a shift of known size with fewer runs (CUSUM, Page 1954) none is better than the mean
of the latest runs where the shift has to be found within three. Those that look at whole series (PELT;
E-divisive with permutations, which MongoDB uses on its nightly runs) answer when tens of runs have followed.

Source: Hawkins, Qiu and Kang, "The changepoint model for statistical process control" (2003); Pitman,
"Significance tests which may be applied to samples from any populations" (1937); Pagano and Tritchler, "On
obtaining permutation distributions in polynomial time" (1983).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats

LEAST_BEFORE = 10  # runs: with fewer nobody knows how much they vary
# Of how many choices one may be as far out, by the runs that are chosen.
_RARITY = {3: 3500, 4: 30_000, 8: 200_000}
# Normal deviates: below the one nobody need count; beyond the other few runs will do, the fewer the further.
_CLEAR, _SURE, _FURTHER, _FURTHEST = 3.3, 3.6, 0.6, 4.5
_PART_OF_WAY, _FEW_OF, _GRAIN = 0.25, 8, 400
_MOST_BEFORE = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a series.

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
    if logs.size - first > _MOST_BEFORE:
        # Behind a thousand steady runs the latest half of them is what later ones are held against.
        begin = first + _MOST_BEFORE // 2
        later = find_changes(np.exp(logs[begin:]).tolist())
        changes += [Change(begin + one.at, begin + one.found_at, one.ratio) for one in later]
    return changes


def _first_change(logs: Floats) -> Change | None:
    """The change that is seen first; of those seen at one run the clearest."""
    candidates: list[tuple[int, float, int]] = []  # seen at, less how clear, runs after it
    for width, rarity in _RARITY.items():
        deviates = _deviates(logs, width)
        for seen in np.flatnonzero(np.abs(deviates) > _CLEAR).tolist():
            if candidates and seen > min(candidates)[0]:
                break
            begin, deviate = seen - width + 1, abs(float(deviates[seen]))
            if _is_apart(logs[:begin], logs[begin : seen + 1], rarity, deviate):
                candidates.append((seen, -deviate, width))
                break
    if not candidates:
        return None
    seen, _, width = min(candidates)
    splits = range(seen - width + 1, seen + 1)
    shifts = [float(logs[at : seen + 1].mean() - logs[:at].mean()) for at in splits]
    weights = [1 / at + 1 / (seen + 1 - at) for at in splits]
    first = int(np.argmax(np.abs(shifts) / np.sqrt(weights)))  # the clearest
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


def _is_apart(before: Floats, latest: Floats, rarity: int, deviate: float) -> bool:
    """Tell whether each of the latest runs has gone a part of the way, and hardly another choice goes as far.

    So two slow runs and a usual one are no change, and a change begins with its first slow run.
    """
    shift = float(latest.mean() - before.mean())
    gone = np.sort((latest - before.mean()) / shift)
    if gone[latest.size // _FEW_OF] <= _PART_OF_WAY:
        return False
    runs = np.append(latest, before) * np.sign(shift)
    fewer = math.log(rarity / math.comb(runs.size, latest.size))
    is_far = deviate > min(_SURE + _FURTHER * fewer, _FURTHEST)
    is_beyond_all = runs[: latest.size].min() > runs[latest.size :].max()
    return bool(is_far and is_beyond_all) or _share_as_far(runs, latest.size) * rarity <= 1


def _share_as_far(runs: Floats, width: int) -> float:
    """Of all choices of so many runs, the share with a mean as large as that of the first ones.

    Of 1 2 3 9 8, two chosen, none but the 9 and 8 have a mean above 8: a tenth of the choices.
    """
    grains = np.rint((runs.max() - runs) / max(float(np.ptp(runs)), 1e-12) * _GRAIN)
    below = grains.astype(np.int64).tolist()  # how far below the largest
    most = sum(below[:width])
    choices = np.zeros((width + 1, most + 1))  # so many runs, together so far below
    choices[0, 0] = 1.0
    for grain in below:
        if grain <= most:
            choices[1:, grain:] += choices[:-1, : most + 1 - grain]
    return float(choices[width].sum()) / math.comb(runs.size, width)
