"""Rows of two tables by equal keys: what belongs together gets one number, without sorting, or is linked."""

import secrets
from typing import NamedTuple

import numpy as np

from profnb.core.columns import Bools, Int32s, Int64s, gather, stable_order
from profnb.core.jit import tiered

# What so many of both sides share says nothing about who caused what (kMaxGroups in group_events.cc, which
# asks for 64 on both sides; the product also bounds how many links a small file can ask for).
_TOO_COMMON = 64


class Keyed(NamedTuple):
    """Events and the key of each, which may be several numbers: (type, id), or (run, iteration).

    Attributes:
        events: Indices of events, shape (N,).
        keys: One column of shape (N,) for each number of the key.
    """

    events: Int64s
    keys: tuple[Int64s, ...]

    def where(self, chosen: Bools) -> "Keyed":
        """Those of the events that are chosen, shape (N,)."""
        return Keyed(self.events[chosen], tuple(key[chosen] for key in self.keys))


class Links(NamedTuple):
    """Causes and effects: entry i is ``producers[i]``, which set going ``consumers[first[i]:last[i]]``.

    Attributes:
        producers: Events that set others going, shape (N,); one has as many entries as it has contexts.
        first: Where the consumers of each begin, shape (N,).
        last: Where they end, shape (N,).
        consumers: Events that were set going, context by context.
    """

    producers: Int64s
    first: Int64s
    last: Int64s
    consumers: Int64s


def number_keys(keys: tuple[Int64s, ...], wanted: tuple[Int64s, ...]) -> tuple[Int32s, Int32s]:
    """Number the distinct keys in the order in which they first occur, and find other keys among them.

    Keys (1, 70), (1, 71), (1, 71) and wanted ones (1, 70), (1, 70), (2, 71) become 0, 1, 1 and 0, 0, -1.

    Args:
        keys: One column for each number of a key, or two, each of shape (N,).
        wanted: As many columns, each of shape (M,).

    Returns:
        The number of each key, shape (N,); and of each wanted one, or -1, shape (M,).
    """
    number = np.empty(keys[0].size, np.int32)
    wanted_number = np.empty(wanted[0].size, np.int32)
    table = np.full(1 << (2 * number.size).bit_length(), -1, np.int32)
    # Nobody who writes a file can know into which slots its keys will fall.
    factors = np.frombuffer(secrets.token_bytes(16), np.int64) | 1
    _number(keys[0], keys[-1], number, wanted[0], wanted[-1], wanted_number, factors, table)
    return number, wanted_number


@tiered
def _number(
    one: Int64s, two: Int64s, number: Int32s, wanted_one: Int64s, wanted_two: Int64s,
    wanted_number: Int32s, factors: Int64s, table: Int32s,
) -> None:  # fmt: skip
    """Number the keys (one, two), and look up the wanted ones.

    ``table`` has 2**n slots, comes as -1, and keeps for each distinct key the first row that has it, in the
    first free slot from the one on that its hash names.
    """
    mask = table.size - 1
    count = 0
    for index in range(one.size + wanted_number.size):
        row = index - one.size
        if row < 0:
            first, second = one[index], two[index]
        else:
            first, second = wanted_one[row], wanted_two[row]
        slot = (first * factors[0] + second * factors[1]) >> 20 & mask
        first_row = table[slot]
        while first_row >= 0 and (one[first_row] != first or two[first_row] != second):
            slot = slot + 1 & mask
            first_row = table[slot]
        if row >= 0:
            wanted_number[row] = number[first_row] if first_row >= 0 else -1
        elif first_row >= 0:
            number[index] = number[first_row]
        else:
            table[slot] = index
            number[index] = count
            count += 1


def link_by_key(producing: Keyed, consuming: Keyed) -> Links:
    """Link the events of equal keys, where these tell cause and effect.

    The keys of the smaller side are numbered, and the others looked up among them.
    """
    if consuming.events.size < producing.events.size:
        wanted, context = number_keys(consuming.keys, producing.keys)
    else:
        context, wanted = number_keys(producing.keys, consuming.keys)
    sides = []
    for events, number in ((producing.events, context), (consuming.events, wanted)):
        is_known = number >= 0
        sides.append((events, number) if is_known.all() else (events[is_known], number[is_known]))
    (producers, context), (consumers, wanted) = sides
    count = max(int(context.max(initial=-1)), int(wanted.max(initial=-1))) + 1
    produced, consumed = (np.bincount(side, minlength=count) for side in (context, wanted))
    # One producer may have any number of consumers, and one consumer any number of producers; 64 of each
    # have too much in common to be cause and effect.
    tells = (np.minimum(produced, consumed) <= 1) | (produced * consumed < _TOO_COMMON**2)
    tells &= consumed > 0
    if not tells.all():
        chosen = gather(tells, context)
        producers, context = producers[chosen], context[chosen]
    last = np.cumsum(consumed)
    first = last - consumed
    order = stable_order(wanted)
    return Links(producers, gather(first, context), gather(last, context), consumers[order])
