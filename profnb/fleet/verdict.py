"""Steps of several hosts to the answer: who holds the others up, by how much, how sure, and why.

A host's excess is how much longer its own work was than that of the slowest other host, negative where
another's was longer. Someone is named whose excess, in the median of the steady steps, is above zero with
95 % confidence and who costs the others a tenth of the step or more. How sure a median is, the sign test's
order statistics tell, which ask nothing of the values' distribution. Hosts that are slow alike cost nothing
one by one: they are named together. Where nobody is named, one who is late in some steps only, or has less to
do than all others, is told all the same.

What someone costs is counted from the slowest of the others, so it is what a step would be shorter if only
that one were faster; where the others' own work varies too, that is less than how much slower it is than they
usually are.

Source: for the what-if (the longest own work replaced by the others') ByteDance-Seed/StragglerAnalysis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Advice, Proposal, as_advice
from profnb.causes.numbers import LEFT
from profnb.core.columns import Floats, Int64s, sum_by
from profnb.core.units import count_text, counted_text, duration_text, percent_text, range_text
from profnb.fleet import digest
from profnb.fleet.merging import Merged, find_meeting, merge
from profnb.subjects.advising import Finding
from profnb.trace.runs import CaptureTime

FEWEST_STEPS = 6  # the sign test cannot exclude zero with fewer
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
    "between steps": "Look for Python between the steps on that host alone: logging, checkpoints, "
    "callbacks of the chief. fleet[{host!r}].report() has the lines.",
    "all others": "Look for Python inside the step on that host alone. fleet[{host!r}].report() has "
    "the lines.",
}
_REMEDY = (
    "Look for differences on this host: more work per step (uneven shards or batches), a slower machine, "
    "another program. fleet[{host!r}].report() shows its ops."
)
_COPYING = ("output", "device to device")
_OF_DEVICES = {
    "device compute": "Look for differences on this device: more work (uneven batches), other shapes, a "
    "lower clock (heat, power), another program (nvidia-smi).",
    "input": "Look at the input of this device: batches come later than elsewhere.",
}
_COPIES_OF_DEVICE = (
    "Look at copies to and from this device only. Place shared data on all devices once, and read results "
    "after the last step."
)
_LATE_FOR_DEVICE = (
    "One process serves all devices, and this device gets work last. Run fewer and larger ops "
    "(tf.function, XLA, jax.jit, torch.compile), or a process per device."
)
_AT_LEAST = 0.1  # of the step: less is nobody's fault
_LEAST_OF_WAITING = 0.25  # of the waiting: less is not worth a word
_MOSTLY_ONE = 0.75  # of what all cost one another: more is one's
_LINK = "https://www.tensorflow.org/guide/distributed_training"
_EXCHANGE, _UNEVEN = "exposed-collectives", "imbalance"
_MOST_COLLECTIVES = 2_000  # collectives of a device: as many as a report has time for
_ALL = " profnb.load_fleet(p), of this profile or its file, shows all devices."


def excess(own_ps: Int64s) -> Int64s:
    """Take own work of H hosts beyond the longest of the others, both of shape (H, N)."""
    return np.asarray(own_ps - _longest_other(own_ps))


def _longest_other(values: Int64s) -> Int64s:
    ordered = np.sort(values, axis=0)
    is_longest = np.arange(values.shape[0])[:, None] == values.argmax(axis=0)
    return np.asarray(np.where(is_longest, ordered[-2], ordered[-1]))


def costs_of_each(merged: Merged) -> Int64s:
    """Give ``gains`` of each host alone, of all steps, shape (H, S)."""
    late = np.maximum(excess(merged.piece_own_ps), 0)
    saved = np.stack([sum_by(merged.step_of, one, merged.step_num.size) for one in late])
    beside = merged.beside_ps.sum(axis=2)
    shortest = _longest_other(merged.own_ps + beside)
    shortest += np.maximum(merged.exchange_ps - beside, 0)
    return np.asarray(np.maximum(np.minimum(saved, merged.step_ps - shortest), 0))


def gains(merged: Merged, group: list[int]) -> Int64s:
    """Give what each step would be shorter, were a group no slower than the slowest other, shape (S,).

    What the others compute beside collectives, while they wait in them, they have to compute all the same: a
    step is never shorter than all work of one of them and the exchange that nothing hides.
    """
    piece_own_ps = merged.piece_own_ps
    rest = _rest_of(piece_own_ps, group)
    late = np.maximum(piece_own_ps.max(axis=0) - piece_own_ps[rest].max(axis=0), 0)
    saved = sum_by(merged.step_of, late, merged.step_num.size)
    beside = merged.beside_ps.sum(axis=2)
    exposed = np.maximum(merged.exchange_ps - beside, 0)[group].min(axis=0)
    shortest = (merged.own_ps + beside)[rest].max(axis=0) + exposed
    most = merged.step_ps[group].max(axis=0) - shortest
    return np.asarray(np.maximum(np.minimum(saved, most), 0))


def _rest_of(values: Int64s, group: list[int]) -> list[int]:
    return [row for row in range(values.shape[0]) if row not in group]


def median_interval(values: Int64s) -> tuple[float, float]:
    """Bound a median with 95 % confidence; of too few values, by everything."""
    count = values.size
    if count < FEWEST_STEPS:
        return -math.inf, math.inf
    ordered = np.sort(values)
    outside = _outside(count)
    return float(ordered[outside - 1]), float(ordered[count - outside])


@cache
def _outside(count: int) -> int:
    """Count the smallest of so many values that may be left out, and as many largest: the sign test."""
    taken = np.arange(1, count // 2)
    # Of the distribution of heads, the logarithm of each probability.
    steps = np.log((count - taken + 1) / taken)
    tail = np.cumsum(np.exp(np.append(0, np.cumsum(steps)) - count * math.log(2)))
    return int((2 * tail <= 1 - _CONFIDENCE).sum())


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Means over the steady steps, one value per host, in picoseconds.

    Its columns are those of ``fleet_section.FLEET_HOSTS``, each of shape (H,).

    Attributes:
        host: What each is called.
        noun: What one of them is: "host" or "device".
        caused_ps: What a step would be shorter, were it alone as fast as the slowest of the others
            (``costs.gains``).
    """

    host: tuple[str, ...]
    noun: str
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
    """The answer to who holds the others up.

    Attributes:
        sentence: The answer.
        hosts: Those who do; empty for nobody.
        why: What they have more of than the others, in a sentence; "" for nobody.
        gain_fraction: Share of the step that would be gained, were they as fast as the slowest of the others.
        step_ps: What a step takes.
        findings: What to look at.
        remark: What is to be said of some of them where nobody holds the others up; "" for nothing.
    """

    sentence: str
    hosts: tuple[str, ...] = ()
    why: str = ""
    gain_fraction: float = 0.0
    step_ps: float = 0.0
    findings: tuple[Finding, ...] = ()
    remark: str = ""

    @property
    def advice(self) -> list[Advice]:
        """Places to look at, as a user is told."""
        return [as_advice(one, self.step_ps) for one in self.findings]


def time_hosts(digests: Sequence[digest.Digest], merged: Merged) -> HostTimes:
    """Time what each host did in a mean steady step, and what the others waited because of it."""
    steady = merged.steady
    late = excess(merged.own_ps[:, merged.telling])
    bounds = np.array([median_interval(row) for row in late])
    is_longest = merged.piece_own_ps == merged.piece_own_ps.max(axis=0)
    last = is_longest & (is_longest.sum(axis=0) == 1)
    clocks = merged.clocks
    return HostTimes(
        host=tuple(one.host for one in digests),
        noun=digest.noun_of(digests),
        rank=np.array([one.rank for one in digests], np.int64),
        steps=np.full(len(digests), steady.size, np.int64),
        step_ps=_mean(merged.step_ps, steady),
        own_ps=_mean(merged.own_ps, steady),
        wait_ps=_mean(merged.wait_ps, steady),
        exchange_ps=_mean(merged.exchange_ps, steady),
        caused_ps=_mean(costs_of_each(merged), steady),
        low_ps=bounds[:, 0],
        high_ps=bounds[:, 1],
        last_fraction=last[:, np.isin(merged.step_of, steady)].mean(axis=1),
        offset_ps=clocks.offset_ps.astype(np.float64),
        offset_low_ps=clocks.low_ps.astype(np.float64),
        offset_high_ps=clocks.high_ps.astype(np.float64),
    )


def _mean(times: Int64s, steady: Int64s) -> Floats:
    return np.asarray(times[:, steady].mean(axis=1))


def judge(digests: Sequence[digest.Digest], merged: Merged, times: HostTimes) -> Verdict:
    """Name who holds the others up."""
    telling, steady, noun = merged.telling, merged.steady, times.noun
    step_ps = float(times.step_ps.mean())
    common = counted_text(steady.size, "common step" if noun == "host" else "step")
    head = f"{digest.count_of(digests)}, {common} of {duration_text(step_ps)}"
    if merged.stride > 1:
        head += f" (each spans {merged.stride} steps of the trace, from one exchange to the next)"
    if telling.size < FEWEST_STEPS:
        return Verdict(f"{head}: too few steps to name a straggler.")
    paused = _of_pauses(merged, times)
    group = _slow_group(merged.own_ps[:, telling], times, _AT_LEAST * step_ps)
    saved = gains(merged, group) if group else np.zeros_like(merged.step_num)
    gain = float(np.median(saved[steady]))
    if not group or gain < _AT_LEAST * step_ps:
        row = int(times.wait_ps.argmax())
        most = float(times.wait_ps[row])
        beside = float(_mean(merged.beside_ps.sum(axis=2), steady)[row])
        waiting_text = f"others wait {duration_text(most)} a step at most"
        waiting_text += " while they compute" if most and beside >= _LEAST_OF_WAITING * most else ""
        remark = " ".join(filter(None, (_remark(merged, times, step_ps), paused)))
        return Verdict(
            f"{head}. No {noun} holds the others up by {percent_text(_AT_LEAST)} or more in most steps "
            f"({waiting_text}).{remark and ' '}{remark}",
            remark=remark,
        )
    names = tuple(times.host[row] for row in group)
    who, verb = names[0], "holds"
    if len(names) > 1:
        who, verb = f"{', '.join(names[:-1])} and {names[-1]}", "together hold"
    interval = range_text(*map(duration_text, median_interval(saved[telling])))
    why, remedy = _find_cause(digests, merged, group)
    each = f" A step here spans {merged.stride} steps of the trace." if merged.stride > 1 else ""
    finding = Finding(
        "straggler", f"Find out what slows {who}",
        f"{who} {verb} the others up by {duration_text(gain)} a step. At the speed of the slowest other "
        f"worker, a step would take {duration_text(step_ps - gain)}.{each}",
        gain / step_ps, remedy, _LINK,
    )  # fmt: skip
    sentence = (
        f"{head}. {who} {verb} the others up: {duration_text(gain)} a step ({interval}), "
        f"{percent_text(gain / step_ps)}.{paused and ' '}{paused}"
    )
    return Verdict(sentence, names, why, gain / step_ps, step_ps, (finding,))


def _of_pauses(merged: Merged, times: HostTimes) -> str:
    """Name who holds the others up in what no average has, where that costs a tenth of all time or more."""
    costs = costs_of_each(merged)[:, merged.is_pause]
    row = int(costs.sum(axis=1).argmax())
    all_ps = merged.step_ps[:, merged.is_telling | merged.is_pause].mean(axis=0).sum()
    if not costs.size or costs[row].sum() < _AT_LEAST * all_ps:
        return ""
    late = costs[row][costs[row] > 0]
    return (
        f"Besides, {times.host[row]} causes {counted_text(late.size, 'pause')} of "
        f"{duration_text(float(late.mean()))} each. Averages leave the pauses out."
    )


def _remark(merged: Merged, times: HostTimes, step_ps: float) -> str:
    """Name who costs the others much in some steps, has less to do, or computes more; "" for nobody."""
    steady, least = merged.steady, _AT_LEAST * step_ps
    row = int(times.caused_ps.argmax())
    if times.caused_ps[row] >= max(least, _MOSTLY_ONE * float(times.caused_ps.sum())):
        costs = costs_of_each(merged)[row, steady]
        costs = costs[costs >= least]
        return (
            f"{times.host[row]} holds the others up in {count_text(costs.size)} of "
            f"{counted_text(steady.size, 'step')}, by {duration_text(float(costs.mean()))} on average."
        )

    def find_most(values: Int64s) -> tuple[str, str] | None:
        """The one that surely has more than any other, and how much; None where that is little."""
        row = int(_mean(values, steady).argmax())
        more = excess(values)[row]
        mean = float(more[steady].mean())
        is_sure = median_interval(more[merged.telling])[0] > 0 and mean >= least
        return (times.host[row], duration_text(mean)) if is_sure else None

    if least_busy := find_most(-(merged.own_ps + merged.beside_ps.sum(axis=2))):
        return f"{least_busy[0]} has {least_busy[1]} a step less work than any other."
    computed = (merged.categories_ps + merged.beside_ps)[:, :, digest.DEVICE_COMPUTE]
    if times.noun == "device" and (busiest := find_most(computed)):
        return (
            f"{busiest[0]} computes {busiest[1]} a step more than the rest. Any waiting for this work is "
            "outside of collectives."
        )
    return ""


def _slow_group(own_ps: Int64s, times: HostTimes, least_ps: float) -> list[int]:
    """The fewest hosts whose own work is surely longer than that of all others; none where there are none."""
    order = np.argsort(-np.median(own_ps, axis=1), kind="stable").tolist()
    for count in range(1, max(len(order) // 2, 1) + 1):
        group = order[:count]
        # How much longer the least of the group took than the longest of the others, of each step.
        longer = own_ps[group].min(axis=0) - own_ps[_rest_of(own_ps, group)].max(axis=0)
        cost = float(times.caused_ps[group[0]] if count == 1 else longer.mean())
        if median_interval(longer)[0] > 0 and cost >= least_ps:
            return sorted(group)
    return []


def _find_cause(
    digests: Sequence[digest.Digest], merged: Merged, group: list[int]
) -> tuple[str, str]:
    """Find what the group has more of than the median of the others, and what to look at."""
    rest = _rest_of(merged.own_ps, group)

    def above(values: Any) -> Any:
        return values[group].mean(axis=0) - np.median(values[rest], axis=0)

    more = above((merged.categories_ps + merged.beside_ps)[:, merged.steady].mean(axis=1))
    at = int(more.argmax())
    category = digest.OWN_CATEGORIES[at]
    is_device = digest.noun_of(digests) == "device"
    is_copying = is_device and category == "input"
    is_copying &= bool(above(np.array([one.copied_in_ps for one in digests])) >= more[at] / 2)
    word = "copying to the device" if is_copying else _WORDS.get(category, category)
    if category == "input" and not is_device and any(one.has_device for one in digests):
        word = "waiting for input, or copying it to the device,"
    why = f"Why: {duration_text(float(more[at]))} a step more {word} than the median elsewhere."
    ops, lines = [one.op_ps for one in digests], [one.line_ps for one in digests]
    for what, spent in (("op", ops), ("line", lines)):
        names = sorted(set().union(*(spent[row] for row in group))) if all(spent) else []
        values = (np.array([one.get(name, 0.0) for one in spent]) for name in names)
        longer = dict(zip(names, (float(above(one)) for one in values), strict=True))
        name = max(names, key=longer.__getitem__, default="")
        if name and longer[name] >= _WORTH * more[at]:
            why += f" By {what}, {name} is {duration_text(longer[name])} longer."
    if not is_device:
        return why, _REMEDIES.get(category, _REMEDY).format(host=digests[group[0]].host)
    if is_copying or category in _COPYING:
        return why, _COPIES_OF_DEVICE
    return why, _OF_DEVICES.get(category, _LATE_FOR_DEVICE)


def refine_with_devices(model: Model, proposals: list[Proposal]) -> list[Proposal]:
    """Proposals that know what the devices of a trace waited for one another."""
    if model.study is None:
        return proposals
    digests = digest.digest_devices(model.study, "", CaptureTime(), _MOST_COLLECTIVES)
    meeting = find_meeting(digests).digests
    merged = merge(meeting)
    if len(meeting) < len(digests):  # what does something else is no replica
        proposals = [one for one in proposals if one.rule != _UNEVEN]
    if merged is None or merged.telling.size < FEWEST_STEPS:
        return proposals
    times = time_hosts(meeting, merged)
    verdict = judge(meeting, merged, times)
    if verdict.findings:
        (named,) = verdict.findings
        edit = model.some_of((), verdict.gain_fraction, (0.0, LEFT), "the others wait for it")
        slow = Proposal(
            named.rule, named.title, f"{named.evidence} {verdict.why}", named.code + _ALL, named.link, [edit]
        )  # fmt: skip
        return [*(one for one in proposals if one.rule not in (_EXCHANGE, _UNEVEN)), slow]
    exchange, wait = float(times.exchange_ps.mean()), float(times.wait_ps.mean())
    share = exchange / max(float(times.step_ps.mean()), 1.0)
    more = (
        f" {duration_text(exchange)} of a step ({percent_text(share)}) is exchange, {duration_text(wait)} "
        "waiting for other devices (means of all devices). In most steps no single device is "
        f"late.{verdict.remark and ' '}{verdict.remark}"
    )
    edit = model.some_of(("device collectives",), share, (0.0, LEFT), "exchange can be hidden")
    return [
        replace(one, evidence=one.evidence + more, edits=[edit]) if one.rule == _EXCHANGE else one
        for one in proposals
    ]
