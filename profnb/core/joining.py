"""Rows of two tables by equal keys: what belongs together gets one number, without sorting."""

import secrets

import numpy as np

from profnb.core.columns import Int32s, Int64s
from profnb.core.jit import tiered

__all__ = ["number_keys"]


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
    found = np.empty(wanted[0].size, np.int32)
    table = np.full(1 << (2 * number.size).bit_length(), -1, np.int32)
    # Nobody who writes a file can know into which slots its keys will fall.
    factors = np.frombuffer(secrets.token_bytes(16), np.int64) | 1
    _number(keys[0], keys[-1], number, wanted[0], wanted[-1], found, factors, table)
    return number, found


@tiered
def _number(
    one: Int64s, two: Int64s, number: Int32s, wanted_one: Int64s, wanted_two: Int64s, found: Int32s,
    factors: Int64s, table: Int32s,
) -> None:  # fmt: skip
    """Number the keys (one, two), and look up the wanted ones.

    ``table`` has 2**n slots, comes as -1, and keeps for each distinct key the first row that has it, in the
    first free slot from the one on that its hash names.
    """
    mask = table.size - 1
    count = 0
    for index in range(one.size + found.size):
        row = index - one.size
        first, second = np.int64(0), np.int64(0)
        if row < 0:
            first, second = one[index], two[index]
        else:
            first, second = wanted_one[row], wanted_two[row]
        slot = (first * factors[0] + second * factors[1]) >> 20 & mask
        known = table[slot]
        while known >= 0 and (one[known] != first or two[known] != second):
            slot = slot + 1 & mask
            known = table[slot]
        if row >= 0:
            found[row] = number[known] if known >= 0 else -1
        elif known >= 0:
            number[index] = number[known]
        else:
            table[slot] = index
            number[index] = count
            count += 1
