"""Hosts that met in collectives to steps: own work, waiting, exchange; and what lies between their clocks.

Hosts of one group meet in collectives that all of them take part in. Parameter servers and stages of a
pipeline meet by twos only: nobody waits for all, so nobody can be said to hold all up.

Only collectives that all hosts took part in are joints. Those that overlap on any host are one joint, entered
when the last of them is entered and left when all are left:

    host a    own 10 [ 25                  ]    own 10, wait 20, exchange 5
    host b    own 30                  [ 5  ]    own 30, wait  0, exchange 5

What lies before the first joint and behind the last one counts for nobody. Clocks: nobody leaves a joint
before everybody has entered it, which bounds what lies between two clocks from both sides. Devices of
one process have one clock.

Source: definitions of waiting and its cause as in DeepSpeed#3579 and TraceLens' nccl_analyser (the latest
start less one's own), by durations of one clock each instead of time stamps of all.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.core.printable import first_of
from profnb.core.units import PS_PER_NS, count_text
from profnb.fleet.collectives import Key
from profnb.fleet.digest import DEVICE_COMPUTE, OWN_CATEGORIES, Digest, count_of, noun_of
from profnb.steps.windows import is_pause

_FEWEST_HOSTS, _MOST_HOSTS = 2, 8
_COMPUTING = [DEVICE_COMPUTE, OWN_CATEGORIES.index("host compute")]
_LONGEST_OFFSET_NS = 50 * 86_400 * 10**9  # picoseconds of more do not fit


@dataclass(frozen=True, slots=True)
class Joints:
    """K joints of H hosts, each by its own clock.

    Attributes:
        keys: The first collective of each.
        enter_ps: When each host entered the last collective of it, shape (H, K).
        leave_ps: When it had left all, shape (H, K).
    """

    keys: tuple[Key, ...]
    enter_ps: Int64s
    leave_ps: Int64s


@dataclass(frozen=True, slots=True)
class Clocks:
    """Picoseconds to add to each host's clock to have the first one's, shape (H,) each.

    Attributes:
        offset_ps: The estimate: where most joints were left at one time, inside the bounds.
        low_ps: The least that causality allows.
        high_ps: The most.
        is_possible: Whether the bounds leave anything: else these were not the same collectives.
        shift_ps: What to add to times since each trace began, to have those since the first one began.
    """

    offset_ps: Int64s
    low_ps: Int64s
    high_ps: Int64s
    is_possible: bool
    shift_ps: Int64s


@dataclass(frozen=True, slots=True)
class Merged:
    """S steps of H hosts, between joints.

    Attributes:
        joints: Where the hosts met.
        clocks: What lies between their clocks.
        step_of: The step that each joint but the first ends a piece of, shape (K - 1,).
        step_num: The steps' numbers on the first host, shape (S,).
        stride: How many of the first host's steps lie between two of these: more than 1 where hosts meet in
            some of their steps only.
        is_steady: Which are whole, no warm-up on any host and no pauses, shape (S,).
        is_telling: The same, with a first step of which only the begin is missing: it tells who was late.
        is_pause: Which took far longer than the rest: on some host a checkpoint or the like, shape (S,).
        piece_own_ps: Own work before each joint but the first, shape (H, K - 1).
        piece_wait_ps: Waiting in it, likewise.
        piece_exchange_ps: Exchange, likewise.
        own_ps: Own work of each step, shape (H, S).
        wait_ps: Waiting, likewise.
        exchange_ps: Exchange, likewise.
        categories_ps: Own work by ``own_work.OWN_CATEGORIES``, shape (H, S, number of them).
        beside_ps: What a host computed while it was in collectives, which is no own work, likewise.
    """

    joints: Joints
    clocks: Clocks
    step_of: Int64s
    step_num: Int64s
    stride: int
    is_steady: Bools
    is_telling: Bools
    is_pause: Bools
    piece_own_ps: Int64s
    piece_wait_ps: Int64s
    piece_exchange_ps: Int64s
    own_ps: Int64s
    wait_ps: Int64s
    exchange_ps: Int64s
    categories_ps: Int64s
    beside_ps: Int64s

    @property
    def step_ps(self) -> Int64s:
        """The time of each host's steps: own work, waiting and exchange, shape (H, S)."""
        return self.own_ps + self.wait_ps + self.exchange_ps

    @property
    def steady(self) -> Int64s:
        """The steps that averages are of; all where none is steady."""
        rows = np.flatnonzero(self.is_steady)
        return rows if rows.size else np.arange(self.step_num.size)

    @property
    def telling(self) -> Int64s:
        """The steps that say who is late."""
        return np.flatnonzero(self.is_telling) if self.is_telling.any() else self.steady


def merge(digests: Sequence[Digest]) -> Merged | None:
    """Merge the steps of several hosts; None where fewer than two met, or in fewer than two collectives."""
    joints = _find_joints(digests) if len(digests) >= _FEWEST_HOSTS else None
    if joints is None:
        return None
    clocks = _estimate_clocks(digests, joints)
    # By the first host's steps, from 0 on without holes.
    first = np.searchsorted(digests[0].step_begin_ps, joints.enter_ps[0], side="right") - 1
    rows, step_of = np.unique(np.maximum(first[1:], 0), return_inverse=True)

    def by_step(pieces: Int64s) -> Int64s:
        """Sum pieces of hosts by step: (H, K, ...) to (H, S, ...)."""
        sums = np.zeros((pieces.shape[0], rows.size, *pieces.shape[2:]), np.int64)
        for host, values in enumerate(pieces):
            np.add.at(sums[host], step_of, values)
        return sums

    begin, leave = joints.leave_ps[:, :-1], joints.leave_ps[:, 1:]
    end = np.maximum(joints.enter_ps[:, 1:], begin)
    by_category = np.stack(
        [one.own_work.between(*bounds) for one, *bounds in zip(digests, begin, end, strict=True)]
    )
    own_work_ps = by_category.sum(axis=2)
    beside = np.zeros_like(by_category)
    is_telling = np.ones(rows.size, np.bool_)
    for row, one in enumerate(digests):
        inside = one.own_work.between(end[row], np.maximum(leave[row], end[row]))
        beside[row][:, _COMPUTING] = inside[:, _COMPUTING]
        at = np.searchsorted(one.step_begin_ps, joints.enter_ps[row, 1:], side="right") - 1
        if one.is_warmup.size:
            is_telling[step_of[one.is_warmup[np.maximum(at, 0)] & (at >= 0)]] = False
    rest = leave - begin - own_work_ps
    wait = np.minimum(own_work_ps.max(axis=0) - own_work_ps, rest)
    times = by_step(own_work_ps + rest)[0]
    paused = np.flatnonzero(is_telling)
    paused = paused[is_pause(times[paused])]
    is_telling[paused] = False
    is_steady = is_telling.copy()
    # The first joint, behind which counting begins, may be in the first step as well: that is cut then.
    is_steady[0] &= first[0] != first[1]
    return Merged(
        joints=joints,
        clocks=clocks,
        step_of=step_of.astype(np.int64),
        step_num=digests[0].step_num[rows].astype(np.int64),
        stride=int(np.median(np.diff(rows))) if rows.size > 1 else 1,
        is_steady=is_steady,
        is_telling=is_telling,
        is_pause=np.isin(np.arange(rows.size), paused),
        piece_own_ps=own_work_ps,
        piece_wait_ps=wait,
        piece_exchange_ps=rest - wait,
        own_ps=by_step(own_work_ps),
        wait_ps=by_step(wait),
        exchange_ps=by_step(rest - wait),
        categories_ps=by_step(by_category),
        beside_ps=by_step(beside),
    )


def _find_joints(digests: Sequence[Digest]) -> Joints | None:
    """Find where all hosts met, in the first one's order; None where that is less than twice."""
    rows = [{key: at for at, key in enumerate(one.collectives.keys)} for one in digests]
    common = [key for key in digests[0].collectives.keys if all(key in row for row in rows)]
    if len(common) < _FEWEST_HOSTS:
        return None
    chosen = [np.array([row[key] for key in common], np.int64) for row in rows]
    pairs = list(zip(digests, chosen, strict=True))
    enter = np.stack([one.collectives.enter_ps[at] for one, at in pairs])
    leave = np.stack([one.collectives.leave_ps[at] for one, at in pairs])
    # A joint begins where a collective was entered by every host after it had left all before it.
    left = np.maximum.accumulate(leave, axis=1)
    # Of what comes later, the earliest to be entered: hosts may take some in another order.
    coming = np.minimum.accumulate(enter[:, ::-1], axis=1)[:, ::-1]
    is_begin = np.append(True, (coming[:, 1:] >= left[:, :-1]).all(axis=0))
    begins = np.flatnonzero(is_begin)
    if begins.size < _FEWEST_HOSTS:
        return None
    keys = tuple(common[at] for at in begins.tolist())
    last_enter, last_leave = (np.maximum.reduceat(one, begins, axis=1) for one in (enter, leave))
    return Joints(keys, last_enter, last_leave)


def _estimate_clocks(digests: Sequence[Digest], joints: Joints) -> Clocks:
    """Find what to add to each clock: bounds that hold for every joint, and the median over them."""
    since_ns = [one.time.begin_ns - digests[0].time.begin_ns for one in digests]
    is_known = all(one.time.is_known for one in digests)
    if not is_known or max(map(abs, since_ns)) > _LONGEST_OFFSET_NS:
        since_ns = [0] * len(digests)  # between the traces' own zeros, then
    starts = np.array(since_ns, np.int64) * PS_PER_NS
    enter, leave = joints.enter_ps, joints.leave_ps
    if all(one.is_device for one in digests):
        none = np.zeros(len(digests), np.int64)
        return Clocks(none, none, none, is_possible=True, shift_ps=none)
    low = (enter[0] - leave).max(axis=1)
    high = (leave[0] - enter).min(axis=1)
    offset = np.median(leave[0] - leave, axis=1).astype(np.int64)
    is_possible = bool((low <= high).all())
    offset = np.clip(offset, low, np.maximum(low, high))
    low[0] = high[0] = offset[0] = 0
    return Clocks(offset - starts, low - starts, high - starts, is_possible, offset)


@dataclass(frozen=True, slots=True)
class Meeting:
    """The hosts that are one fleet.

    Attributes:
        digests: Those that met; empty where none did, or where it cannot be told in what.
        notes: Who is left out, what is missing, and why, in sentences.
    """

    digests: tuple[Digest, ...]
    notes: tuple[str, ...]


def find_meeting(digests: Sequence[Digest]) -> Meeting:
    """Find the largest group of hosts that took part in the same collectives."""
    notes = _missing_ranks(digests)
    group, others = _largest_group(digests)
    if not group:
        return Meeting((), (*notes, _why_nobody(digests)))
    if others:
        alone = first_of([one.host for one in others], _MOST_HOSTS)
        notes.append(
            f"{alone} shared no collective with the rest, so this covers {count_text(len(group))} "
            f"of {count_of(digests)}."
        )
        apart = first_of([one.host for one in _largest_group(others)[0]], _MOST_HOSTS)
        if apart and noun_of(digests) == "host":
            opened = "profnb.load_fleet([their files]) shows them"
            notes.append(f"{apart} exchange among themselves: {opened}.")
    counts = {one.host: len(one.collectives) for one in group}
    if not all(one.collectives.is_numbered for one in group) and len(set(counts.values())) > 1:
        hosts_text = ", ".join(f"{host} {count}" for host, count in [*counts.items()][:_MOST_HOSTS])
        return Meeting((), (
            *notes,
            f"These collectives have no numbers, and hosts recorded different counts ({hosts_text}), so "
            "collectives cannot be matched. Mark steps with numbers on all hosts: profnb.step(i).",
        ))  # fmt: skip
    # Hosts that recorded more than all have in common, or fewer steps than others.
    common = set(group[0].collectives.keys).intersection(*(one.collectives.keys for one in group))
    fewest = min(group, key=lambda one: len(one.collectives))
    most = max(counts.values())
    if most >= 1.2 * len(common):
        notes.append(
            f"Only the {count_text(len(common))} collectives recorded by all hosts count, of up to "
            f"{count_text(most)}. {fewest.host} has the fewest, {count_text(len(fewest.collectives))}."
        )
    return Meeting(tuple(group), tuple(notes))


def _largest_group(digests: Sequence[Digest]) -> tuple[list[Digest], list[Digest]]:
    """The most hosts that share two collectives or more, and the others."""
    takers: dict[Key, list[int]] = {}
    for row, one in enumerate(digests):
        for key in dict.fromkeys(one.collectives.keys):
            takers.setdefault(key, []).append(row)
    groups = Counter(tuple(rows) for rows in takers.values() if len(rows) > 1)
    large = [rows for rows, count in groups.items() if count >= _FEWEST_HOSTS]
    chosen = max(large, key=lambda rows: (len(rows), groups[rows]), default=())
    others = [one for row, one in enumerate(digests) if row not in chosen]
    return [digests[row] for row in chosen], others


def _missing_ranks(digests: Sequence[Digest]) -> list[str]:
    """Ranks that left no trace, of as many as a trace tells of, else of those below the highest."""
    ranks = {one.rank for one in digests if one.rank >= 0}
    if len(ranks) < len(digests):
        return []
    count = max([*ranks, *(one.ranks - 1 for one in digests)], default=-1) + 1
    missing = first_of([str(rank) for rank in range(count) if rank not in ranks], _MOST_HOSTS)
    sentence = f"There is no trace of rank {missing}: the cause of waiting may be there."
    return [sentence] if missing else []


def _why_nobody(digests: Sequence[Digest]) -> str:
    is_device, is_one = noun_of(digests) == "device", len(digests) == 1
    is_unclear = any(one.collectives.is_unclear for one in digests)
    has_replicas = is_one and digests[0].collectives.has_replicas and not digests[0].has_device
    has_collectives = any(len(one.collectives) for one in digests)
    has_transfers = any(one.has_transfers for one in digests)
    reasons = (
        (is_device and is_unclear,
         "The same collectives ran at different times on these devices, so collectives cannot be matched."),
        (is_device, "These devices met in fewer than two collectives in the traced steps: no late device can "
         "be named."),
        (has_replicas, "Replicas of this process share CPUs (logical devices). Threads work for any replica, "
         "so no late replica can be named."),
        (is_one, "The trace of one host does not show the causes of waiting. Give load_fleet the traces of "
         "all hosts of the capture."),
        (is_unclear, "These processes exchange in several groups. Collectives do not name the group and "
         "cannot be matched."),
        (has_collectives, "No two collectives have all these hosts in common. Perhaps the captures covered "
         "different steps: bound captures by steps (-n), not by seconds."),
        (has_transfers, "These hosts meet in no collective. They send in pairs (parameter servers, stages of "
         "a pipeline) or not at all, so no late host can be named."),
        (True, "No trace has a collective in the steps, so no late host can be named."),
    )  # fmt: skip
    return next(reason for holds, reason in reasons if holds)
