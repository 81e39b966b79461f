"""Which of a run's hosts met in collectives, and why others did not, in sentences.

Hosts of one group meet in collectives that all of them take part in. Parameter servers and stages of a
pipeline meet by twos only: nobody waits for all, so nobody can be said to hold all up.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profnb.core.units import count_text
from profnb.fleet.digest import Digest, count_of, noun_of

if TYPE_CHECKING:
    from profnb.fleet.collectives import Key

_FEWEST_KEYS, _MOST_NAMES = 2, 8


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
    """The largest group of hosts that took part in the same collectives.

    Args:
        digests: All hosts of a run.
    """
    notes = _missing_ranks(digests)
    group, others = _largest_group(digests)
    if not group:
        return Meeting((), (*notes, _why_nobody(digests)))
    if others:
        notes.append(
            f"{_listed(others)} took part in no collective with the others, so this is of "
            f"{count_text(len(group))} of {count_of(digests)}."
        )
        apart, _ = _largest_group(others)
        if apart and noun_of(digests) == "host":
            notes.append(
                f"{_listed(apart)} exchange among themselves: profnb.load_fleet([their files]) shows them."
            )
    counts = {one.host: len(one.collectives) for one in group}
    if not all(one.collectives.is_numbered for one in group) and len(set(counts.values())) > 1:
        hosts_text = ", ".join(
            f"{host} {count}" for host, count in list(counts.items())[:_MOST_NAMES]
        )
        return Meeting((), (
            *notes,
            "These collectives have no numbers, and hosts recorded different counts of them "
            f"({hosts_text}), so which belong together cannot be told. Mark steps with their numbers on all "
            "hosts: profnb.step(i).",
        ))  # fmt: skip
    notes += _unmatched(group)
    return Meeting(tuple(group), tuple(notes))


def _largest_group(digests: Sequence[Digest]) -> tuple[list[Digest], list[Digest]]:
    """The most hosts that share two collectives or more, and the others."""
    takers: dict[Key, list[int]] = {}
    for row, one in enumerate(digests):
        for key in dict.fromkeys(one.collectives.keys):
            takers.setdefault(key, []).append(row)
    groups = Counter(tuple(rows) for rows in takers.values() if len(rows) > 1)
    large = [rows for rows, count in groups.items() if count >= _FEWEST_KEYS]
    chosen = max(large, key=lambda rows: (len(rows), groups[rows]), default=())
    return (
        [digests[row] for row in chosen],
        [one for row, one in enumerate(digests) if row not in chosen],
    )


def _listed(digests: Sequence[Digest]) -> str:
    names = [one.host for one in digests[:_MOST_NAMES]]
    left = len(digests) - len(names)
    return ", ".join(names) + (f" and {left} more" if left else "")


def _missing_ranks(digests: Sequence[Digest]) -> list[str]:
    """Ranks that left no trace, of as many as a trace tells of, else of those below the highest."""
    ranks = {one.rank for one in digests if one.rank >= 0}
    if len(ranks) < len(digests):
        return []
    count = max([*ranks, *(one.ranks - 1 for one in digests)], default=-1) + 1
    missing = sorted(set(range(count)) - ranks)
    if not missing:
        return []
    listed = ", ".join(map(str, missing[:_MOST_NAMES]))
    more = f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else ""
    return [f"There is no trace of rank {listed}{more}: what the hosts waited for may be there."]


def _why_nobody(digests: Sequence[Digest]) -> str:
    if noun_of(digests) == "device":
        return _why_no_device(digests)
    if len(digests) == 1:
        return _why_not_alone(digests[0])
    if any(one.collectives.is_unclear for one in digests):
        return (
            "These processes exchange in several groups, and their collectives do not say of which each is, "
            "so which belong together cannot be told."
        )
    if any(len(one.collectives) for one in digests):
        return (
            "No two collectives have all these hosts in common: their captures may not have been of the same "
            "steps. Bound them by steps (-n), not by seconds."
        )
    if any(one.has_transfers for one in digests):
        return (
            "These hosts meet in no collective: they send to one another by twos (parameter servers, stages "
            "of a pipeline) or not at all, so nobody waits for all, and no host can be said to hold the "
            "others up."
        )
    return "No trace has a collective in its steps, so what the hosts waited for one another cannot be told."


def _why_not_alone(digest: Digest) -> str:
    if digest.collectives.has_replicas and not digest.has_device:
        return (
            "Replicas of this process share its CPUs (logical devices), whose threads do not tell which "
            "replica they work for, so what one waited for another cannot be told."
        )
    return (
        "This is the trace of one host, which does not tell what it waited for: give load_fleet the traces "
        "of all that were captured with it."
    )


def _why_no_device(digests: Sequence[Digest]) -> str:
    if any(one.collectives.is_unclear for one in digests):
        return (
            "The collectives of these devices that should be the same ran at different times, so which "
            "belong together cannot be told."
        )
    return (
        "These devices met in fewer than two collectives in the steps of this trace, so nobody can be said "
        "to hold the others up."
    )


def _unmatched(group: Sequence[Digest]) -> list[str]:
    """Hosts that recorded more than all have in common, or fewer steps than others."""
    common = set(group[0].collectives.keys).intersection(*(one.collectives.keys for one in group))
    fewest = min(group, key=lambda one: len(one.collectives))
    most = max(len(one.collectives) for one in group)
    if most < 1.2 * len(common):
        return []
    return [
        f"Only the {count_text(len(common))} collectives that all hosts recorded count, of up to "
        f"{count_text(most)}; {fewest.host} has the fewest, {count_text(len(fewest.collectives))}."
    ]
