"""The stats of a trace by key: one pass over them all, after which each key's are next to each other.

Tables ask for a stat of all events by its name, dozens of times; what they get are slices.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Bytes, Int32s, Int64s
from profnb.core.jit import compiled
from profnb.trace.chrome.stat_texts import StatCsr

__all__ = ["GroupedStats", "group_stats"]


@dataclass(frozen=True, slots=True)
class GroupedStats:
    """N entries by key, in the order of the events inside a key.

    Attributes:
        first: Key k has the entries ``first[k]:first[k + 1]``, shape (K + 1,).
        event: The event of each entry, shape (N,).
        kind: Number of the value's field in XStat, shape (N,).
        value: The bits of a number, the row of a reference, or where a text begins, shape (N,).
        size: How many bytes a text has, shape (N,).
    """

    first: Int64s
    event: Int64s
    kind: Bytes
    value: Int64s
    size: Int32s

    def of_keys(self, keys: list[int]) -> "GroupedStats":
        """The entries of some keys, in the order of the events; ``first`` stays as it is."""
        if len(keys) == 1:
            return self._take(slice(int(self.first[keys[0]]), int(self.first[keys[0] + 1])))
        parts = [np.arange(self.first[key], self.first[key + 1]) for key in keys]
        entries = np.concatenate([np.empty(0, np.int64), *parts])
        return self._take(entries[np.argsort(self.event[entries], kind="stable")])

    def of_kinds(self, kinds: tuple[int, ...]) -> "GroupedStats":
        """The entries whose values are of some kinds."""
        is_wanted = np.zeros(256, np.bool_)
        is_wanted[list(kinds)] = True
        chosen = is_wanted[self.kind]
        return self if chosen.all() else self._take(chosen)

    def _take(self, rows: slice | Int64s | Bools) -> "GroupedStats":
        return GroupedStats(
            self.first, self.event[rows], self.kind[rows], self.value[rows], self.size[rows]
        )


@compiled
def _group(
    offsets: Int64s, key: Int32s, kind: Bytes, value: Int64s, size: Int32s, at: Int64s,
    event: Int64s, by_kind: Bytes, by_value: Int64s, by_size: Int32s,
) -> None:  # fmt: skip
    """Write each event's entries behind the others of their key; the next goes to ``at[key + 1]``."""
    for owner in range(offsets.size - 1):
        for entry in range(offsets[owner], offsets[owner + 1]):
            slot = at[key[entry] + 1]
            at[key[entry] + 1] = slot + 1
            event[slot] = owner
            by_kind[slot] = kind[entry]
            by_value[slot] = value[entry]
            if size[entry] > 0:
                by_size[slot] = size[entry]


def group_stats(csr: StatCsr, keys: int) -> GroupedStats:
    """Put the stats of each key next to each other.

    Args:
        csr: The stats by event.
        keys: K, how many keys there are.
    """
    counts = np.zeros(keys + 1, np.int64)
    for begin in range(
        0, csr.key.size, 1 << 16
    ):  # piece by piece: bincount copies what is not int64
        counts += np.bincount(csr.key[begin : begin + (1 << 16)] + 1, minlength=keys + 1)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    count = csr.key.size
    grouped = GroupedStats(
        first[1:],
        np.empty(count, np.int64),
        np.empty(count, np.uint8),
        np.empty(count, np.int64),
        np.zeros(count, np.int32),
    )
    _group(
        csr.offsets, csr.key, csr.kind, csr.value, csr.size, first[:-1].copy(),
        grouped.event, grouped.kind, grouped.value, grouped.size,
    )  # fmt: skip
    return grouped
