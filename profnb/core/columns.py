"""The array types that columns are made of, and looking values up by key: each sorts as little as it can."""

import numpy as np
import numpy.typing as npt

__all__ = [
    "Bools",
    "Bytes",
    "Floats",
    "Int8s",
    "Int32s",
    "Int64s",
    "codes_of",
    "look_up",
    "match",
    "stable_order",
]

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_DENSE = 16  # a table may be this many times as long as what it saves sorting


def look_up(keys: Int64s, values: Int64s, wanted: Int64s, missing: int = -1) -> Int64s:
    """The value of each wanted key, or ``missing``.

    Args:
        keys: Ascending and distinct, shape (N,).
        values: Their values, shape (N,).
        wanted: Keys to look for, shape (M,).
        missing: What stands for a key that is not there.
    """
    if not keys.size:
        return np.full(wanted.size, missing)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, values[at], missing)


def match(one: Int64s, two: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """What stands in both of two ascending arrays: (values, rows in the first, rows in the second).

    Of a value that stands in one of them several times, the first row.
    """
    ascends = bool((np.diff(one) > 0).all() and (np.diff(two) > 0).all())
    if not ascends:
        values, in_one, in_two = np.intersect1d(one, two, return_indices=True)
        return values, in_one, in_two
    if np.array_equal(one, two):
        rows = np.arange(one.size)
        return one, rows, rows
    if two.size < one.size:
        values, in_two, in_one = match(two, one)
        return values, in_one, in_two
    in_two = look_up(two, np.arange(two.size), one)
    in_one = np.flatnonzero(in_two >= 0)
    return one[in_one], in_one, in_two[in_one]


def codes_of(*columns: Int64s) -> Int64s:
    """A number from 0 on for each distinct row of columns of the same size, ascending as the rows do."""
    codes = np.zeros(columns[0].size, np.int64)
    most = 1
    for column in columns:
        values, count = _ranks(column)
        codes, most = _ranks(codes * count + values) if most > 1 else (values, count)
    return codes


def _ranks(values: Int64s) -> tuple[Int64s, int]:
    """The rank of each value among the distinct ones, and how many those are."""
    if not values.size:
        return values, 0
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest < _DENSE * values.size:
        there = np.zeros(highest - lowest + 1, np.bool_)
        there[values - lowest] = True
        rank = np.cumsum(there) - 1
        return rank[values - lowest], int(rank[-1]) + 1
    distinct, ranks = np.unique(values, return_inverse=True)
    return ranks, distinct.size


def stable_order(keys: Int64s) -> Int64s:
    """What ``argsort(kind="stable")`` returns, of keys that are not negative, several times faster.

    NumPy sorts numbers much faster than it finds their order, so each is sorted with its row behind it.
    """
    bits = keys.size.bit_length()
    if not keys.size or int(keys.max()) >= 1 << (63 - bits):
        return np.argsort(keys, kind="stable")
    return np.sort(keys << bits | np.arange(keys.size)) & ((1 << bits) - 1)
