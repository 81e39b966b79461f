"""The stats of a trace by key: sorted once, after which each key's are next to each other.

Tables ask for a stat of all events by its name, dozens of times; what they get is gathered for each.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.core.columns import Bytes, Int32s, Int64s
from profnb.trace.chrome.stat_texts import StatCsr

__all__ = ["GroupedStats", "StatEntry", "group_stats"]

_MOST_SHORT_KEYS = 65_535  # numbers of 16 bits are sorted by counting, several times faster


class StatEntry(NamedTuple):
    """Columns of N entries.

    Attributes:
        event: The event of each entry, shape (N,).
        kind: Number of the value's field in XStat, shape (N,).
        value: The bits of a number, the row of a reference, or where a text begins, shape (N,).
        value_end: Where a text ends, shape (N,).
    """

    event: Int64s
    kind: Bytes
    value: Int64s
    value_end: Int64s


@dataclass(frozen=True, slots=True)
class GroupedStats:
    """N entries by key, in the order of the events inside a key.

    Attributes:
        csr: The entries by event.
        first: Key k has ``order[first[k]:first[k + 1]]``, shape (K + 1,).
        order: Rows of ``csr`` by key, shape (N,); those without a key stand in front.
        event: The event of each row of ``csr``, shape (N,).
    """

    csr: StatCsr
    first: Int64s
    order: Int32s
    event: Int32s

    def of_keys(self, keys: list[int], kinds: tuple[int, ...]) -> StatEntry:
        """The entries of some keys whose values are of some kinds, in the order of the events."""
        parts = [self.order[self.first[key] : self.first[key + 1]] for key in keys]
        rows = np.concatenate([self.order[:0], *parts])
        if len(parts) > 1:
            rows = rows[np.argsort(self.event[rows], kind="stable")]
        is_wanted = np.zeros(256, np.bool_)
        is_wanted[list(kinds)] = True
        kind = self.csr.kind[rows]
        chosen = is_wanted[kind]
        if not chosen.all():
            rows, kind = rows[chosen], kind[chosen]
        event = self.event[rows].astype(np.int64)
        return StatEntry(event, kind, self.csr.value[rows], self.csr.value_end[rows])


def group_stats(csr: StatCsr, keys: int) -> GroupedStats:
    """Put the stats of each key next to each other.

    Args:
        csr: The stats by event.
        keys: K, how many keys there are.
    """
    key = (csr.key + 1).astype(np.uint16 if keys <= _MOST_SHORT_KEYS else np.int32)
    counts = np.bincount(key, minlength=keys + 1)  # row 0 is of those without a key
    order = np.argsort(key, kind="stable").astype(np.int32)
    event = np.repeat(np.arange(csr.offsets.size - 1, dtype=np.int32), np.diff(csr.offsets))
    return GroupedStats(csr, np.cumsum(counts), order, event)
