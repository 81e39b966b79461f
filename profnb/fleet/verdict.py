"""Steps of several hosts to the answer: who holds the others up, by how much, how sure, and why.

A host's excess of a step is how much longer its own work was than that of the slowest other host, negative
where another's was longer. Someone is named whose excess, in the median of the steady steps, is above zero
with 95 % confidence (by the sign test's order statistics, which asks nothing of their distribution) and who
costs the others a tenth of the step or more. Hosts that are slow alike cost nothing one by one: they are
named together.

The cause is what the slow host's own work has more of than the median of the others, by category.

Source: for the what-if (the longest own work replaced by the others') ByteDance-Seed/StragglerAnalysis.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.core.units import count_text, duration_text, percent_text
from profnb.fleet.digest import Digest
from profnb.fleet.merging import Merged
from profnb.fleet.own_work import OWN_CATEGORIES
from profnb.subjects.advising import Advice

__all__ = ["HostTimes", "Verdict", "judge", "time_hosts"]

_LEAST = 0.1  # of the step: less is nobody's fault
_FEWEST_STEPS = 6  # the sign test cannot exclude zero with fewer
_CONFIDENCE = 0.95
_WORTH = 0.2  # of the excess: an op or a line below it explains nothing
_WORDS = {
    "input": "waiting for input",
    "between steps": "Python between steps",
    "all others": "Python inside the step",
}
_REMEDIES = {
    "input": "Look at its input: a slower disk or network, more work per element, or fewer threads. "
    "fleet[{host!r}].report() shows its pipeline.",
    "between steps": "Look at what Python does between the steps on that host only: logging, checkpoints, "
    "callbacks that only the chief runs. fleet[{host!r}].report() has the lines.",
    "all others": "Look at what Python does inside the step on that host only. fleet[{host!r}].report() has "
    "the lines.",
}
_REMEDY = (
    "Look at what differs on that host: more work per step (uneven shards or batches), a slower or shared "
    "machine, another program beside it. fleet[{host!r}].report() shows its ops."
)
_LINK = "https://www.tensorflow.org/guide/distributed_training"


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Means over the steady steps, one value per host, in picoseconds.

    Attributes:
        host: What each is called.
        rank: Its number in the job; -1 where nothing tells.
        steps: How many steady steps.
        step_ps: A step; own work, waiting and exchange add up to it.
        own_ps: Own work.
        wait_ps: Waiting for others.
        exchange_ps: Exchange.
        caused_ps: What all others wait because of it: its own work beyond the second longest, where it is
            the last.
        low_ps: The median excess over the slowest other host is above this with 95 % confidence.
        high_ps: ... and below this.
        last_fraction: In which part of the collectives it was the last.
        offset_ps: What to add to its clock to have the first host's.
        offset_low_ps: The least that it may be.
        offset_high_ps: The most.
    """

    host: tuple[str, ...]
    rank: Int64s
    steps: Int64s
    step_ps: Floats
    own_ps: Floats
    wait_ps: Floats
    exchange_ps: Floats
    caused_ps: Floats
    low_ps: Floats
    high_ps: Floats
    last_fraction: Floats
    offset_ps: Floats
    offset_low_ps: Floats
    offset_high_ps: Floats


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who holds the others up.

    Attributes:
        sentence: The answer.
        hosts: Those who do; empty for nobody.
        why: What they have more of than the others, in a sentence; "" for nobody.
        gain_fraction: Share of the step that would be gained, were they like the others.
        advice: What to look at.
    """

    sentence: str
    hosts: tuple[str, ...] = ()
    why: str = ""
    gain_fraction: float = 0.0
    advice: tuple[Advice, ...] = ()


def time_hosts(digests: Sequence[Digest], merged: Merged) -> HostTimes:
    """What each host did in a mean steady step, and what the others waited because of it.

    Args:
        digests: H hosts.
        merged: Their steps.
    """
    steady = merged.steady
    excess = _excess(merged.own_ps[:, steady])
    bounds = np.array([_median_interval(row) for row in excess])
    own = merged.piece_own_ps
    is_steady = np.isin(merged.step_of, steady)
    caused = np.maximum(_excess(own), 0)[:, is_steady].sum(axis=1) / max(steady.size, 1)
    last = (own == own.max(axis=0)) & (np.sum(own == own.max(axis=0), axis=0) == 1)
    clocks = merged.clocks
    return HostTimes(
        host=tuple(one.host for one in digests),
        rank=np.array([one.rank for one in digests], np.int64),
        steps=np.full(len(digests), steady.size, np.int64),
        step_ps=_mean(merged.step_ps, steady),
        own_ps=_mean(merged.own_ps, steady),
        wait_ps=_mean(merged.wait_ps, steady),
        exchange_ps=_mean(merged.exchange_ps, steady),
        caused_ps=caused,
        low_ps=bounds[:, 0],
        high_ps=bounds[:, 1],
        last_fraction=last[:, is_steady].mean(axis=1),
        offset_ps=clocks.offset_ps.astype(np.float64),
        offset_low_ps=clocks.low_ps.astype(np.float64),
        offset_high_ps=clocks.high_ps.astype(np.float64),
    )


def _mean(times: Int64s, steady: Int64s) -> Floats:
    return np.asarray(times[:, steady].mean(axis=1))


def _excess(own: Int64s) -> Int64s:
    """Own work of H hosts beyond the longest of the others, shape (H, N)."""
    ordered = np.sort(own, axis=0)
    longest, second = ordered[-1], ordered[-2]
    is_longest = np.arange(own.shape[0])[:, None] == own.argmax(axis=0)
    return np.asarray(np.where(is_longest, own - second, own - longest))


def _median_interval(values: Int64s) -> tuple[float, float]:
    """Bounds of a median with 95 % confidence; of too few values, everything."""
    count = values.size
    if count < _FEWEST_STEPS:
        return -math.inf, math.inf
    ordered = np.sort(values)
    outside = _outside(count)
    return float(ordered[outside - 1]), float(ordered[count - outside])


@cache
def _outside(count: int) -> int:
    """How many of the smallest of so many values may be left out, and of the largest: the sign test."""
    taken = np.arange(1, count // 2)
    # Of the distribution of heads, the logarithm of each probability.
    steps = np.log((count - taken + 1) / taken)
    tail = np.cumsum(np.exp(np.append(0, np.cumsum(steps)) - count * math.log(2)))
    return int((2 * tail <= 1 - _CONFIDENCE).sum())


def judge(digests: Sequence[Digest], merged: Merged, times: HostTimes) -> Verdict:
    """Who holds the others up.

    Args:
        digests: H hosts.
        merged: Their steps.
        times: What ``time_hosts`` has of them.
    """
    steady = merged.steady
    step_ps = float(times.step_ps.mean())
    head = (
        f"{count_text(len(digests))} hosts, {count_text(steady.size)} common steps of "
        f"{duration_text(step_ps)}"
    )
    if steady.size < _FEWEST_STEPS:
        return Verdict(f"{head}: too few to say who holds the others up.")
    group = _slow_group(merged.own_ps[:, steady], times, _LEAST * step_ps)
    if not group:
        most = float(times.wait_ps.max())
        return Verdict(
            f"{head}. No host holds the others up: none costs them {percent_text(_LEAST)} of the step in "
            f"most steps (waiting is {duration_text(most)} a step at most)."
        )
    names = tuple(times.host[row] for row in group)
    rest = [row for row in range(len(digests)) if row not in group]
    gains = _gains(merged, group, steady)
    gain, (low, high) = float(np.median(gains)), _median_interval(gains)
    is_one = len(group) == 1
    who = names[0] if is_one else f"{', '.join(names[:-1])} and {names[-1]}"
    verb = "holds" if is_one else "together hold"
    sentence = (
        f"{head}. {who} {verb} the others up: {duration_text(gain)} a step ({duration_text(low)} to "
        f"{duration_text(high)}), {percent_text(gain / step_ps)} of it."
    )
    why, category = _why(digests, merged, group, rest)
    would = duration_text(step_ps - gain)
    remedy = _REMEDIES.get(category, _REMEDY).format(host=names[0])
    advice = Advice(
        "straggler", f"Find out what slows {who}",
        f"{who} {verb} the others up by {duration_text(gain)} a step; like the others, a step would take "
        f"{would}.",
        gain / step_ps, remedy, _LINK,
    )  # fmt: skip
    return Verdict(sentence, names, why, gain / step_ps, (advice,))


def _slow_group(own: Int64s, times: HostTimes, least_ps: float) -> list[int]:
    """The fewest hosts whose own work is surely longer than that of all others; none where there are none."""
    order = np.argsort(-np.median(own, axis=1), kind="stable").tolist()
    for count in range(1, len(order) // 2 + 1 if len(order) > 2 else 2):
        group = order[:count]
        low, _ = _group_interval(own, group)
        cost = float(times.caused_ps[group[0]]) if count == 1 else _between(own, group).mean()
        if low > 0 and cost >= least_ps:
            return sorted(group)
    return []


def _between(own: Int64s, group: Sequence[int]) -> Int64s:
    """How much longer the least of a group took than the longest of the others, of each step."""
    rest = [row for row in range(own.shape[0]) if row not in group]
    return np.asarray(own[list(group)].min(axis=0) - own[rest].max(axis=0))


def _group_interval(own: Int64s, group: Sequence[int]) -> tuple[float, float]:
    return _median_interval(_between(own, group))


def _gains(merged: Merged, group: Sequence[int], steady: Int64s) -> Int64s:
    """What each steady step would be shorter, were the group no slower than the slowest of the others."""
    own = merged.piece_own_ps
    rest = [row for row in range(own.shape[0]) if row not in group]
    saved = np.maximum(own.max(axis=0) - own[rest].max(axis=0), 0)
    gains = np.zeros(merged.step_num.size, np.int64)
    np.add.at(gains, merged.step_of, saved)
    return gains[steady]


def _why(
    digests: Sequence[Digest], merged: Merged, group: Sequence[int], rest: Sequence[int]
) -> tuple[str, str]:
    """What the group has more of than the median of the others, and that category."""
    mean = merged.categories_ps[:, merged.steady].mean(axis=1)
    more = mean[list(group)].mean(axis=0) - np.median(mean[list(rest)], axis=0)
    at = int(more.argmax())
    category = OWN_CATEGORIES[at]
    why = (
        f"Why: {duration_text(float(more[at]))} a step more {_WORDS.get(category, category)} than the "
        "others' median."
    )
    for what, spent in (("op", "op_ps"), ("line", "line_ps")):
        named = _most_above([getattr(one, spent) for one in digests], group, rest)
        if named and named[1] >= _WORTH * more[at]:
            why += f" By {what}, {named[0]} is {duration_text(named[1])} longer."
    return why, category


def _most_above(
    spent: Sequence[Mapping[str, float]], group: Sequence[int], rest: Sequence[int]
) -> tuple[str, float] | None:
    """What the group spends most on beyond the median of the others; None where that is not known of all."""
    if not all(spent):
        return None
    names = set().union(*(spent[row] for row in group))
    above = {
        name: float(
            np.mean([spent[row].get(name, 0.0) for row in group])
            - np.median([spent[row].get(name, 0.0) for row in rest])
        )
        for name in names
    }
    name = max(sorted(above), key=lambda one: above[one])
    return name, above[name]
