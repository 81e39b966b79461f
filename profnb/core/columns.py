"""The array types that columns are made of, and looking values up by key: each sorts as little as it can."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


Value = TypeVar("Value", bound=np.generic)
_CHUNK = 1 << 15  # rows
_DENSE = 8  # numbers of which so few are missing fit a table


def gather(values: npt.NDArray[Value], rows: Int32s) -> npt.NDArray[Value]:
    """Give ``values[rows]``, -1 for the last one, in less than half the time.

    NumPy wants wide indices and looks whether each is there. Widened by the piece they stay in the cache.

    Args:
        values: At least one value where there are rows.
        rows: Rows of it, which nothing checks, shape (N,).
    """
    gathered = np.empty(rows.size, values.dtype)
    for first in range(0, rows.size, _CHUNK):
        part = slice(first, first + _CHUNK)
        values.take(rows[part], mode="wrap", out=gathered[part])
    return gathered


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
    """Find what stands in both of two ascending arrays: (values, rows in the first, rows in the second).

    Of a value that stands in one of them several times, the first row.
    """
    is_same = np.array_equal(one, two)
    ascends = bool((one[1:] > one[:-1]).all() and (is_same or (two[1:] > two[:-1]).all()))
    if not ascends:
        values, in_one, in_two = np.intersect1d(one, two, return_indices=True)
        return values, in_one, in_two
    if is_same:
        rows = np.arange(one.size)
        return one, rows, rows
    if two.size < one.size:
        values, in_two, in_one = match(two, one)
        return values, in_one, in_two
    # A table is faster than searching.
    if one.size and min(one[0], two[0]) >= 0 and two[-1] < _DENSE * two.size:
        table = np.full(int(two[-1]) + 2, -1, np.int32)  # the last: of what is larger than all
        table[two] = np.arange(two.size)
        in_two = table[np.minimum(one, two[-1] + 1)]
    else:
        in_two = look_up(two, np.arange(two.size), one)
    in_one = np.flatnonzero(in_two >= 0)
    return one[in_one], in_one, in_two[in_one].astype(np.int64, copy=False)


def stable_order(keys: Int64s | Int32s) -> Int64s:
    """Give what ``argsort(kind="stable")`` returns, of keys that are not negative, several times faster.

    NumPy sorts numbers much faster than it finds their order, so each is sorted with its row behind it.
    """
    bits = keys.size.bit_length()
    if not keys.size or int(keys.max()) >= 1 << (63 - bits):
        return np.argsort(keys, kind="stable")
    rows = keys.astype(np.int64)
    rows <<= bits
    rows |= np.arange(keys.size)
    rows.sort()
    rows &= (1 << bits) - 1
    return rows
