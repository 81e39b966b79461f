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
    "group_rows",
    "look_up",
    "match",
]

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Of a row's hash: an odd number without pattern (2**64 over the golden ratio), and half the bits.
_MIXES, _HALF, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(1)


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
    in_two = look_up(two, np.arange(two.size), one)
    in_one = np.flatnonzero(in_two >= 0)
    return one[in_one], in_one, in_two[in_one]


def group_rows(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """Put equal rows of columns of the same size next to each other.

    NumPy sorts numbers much faster than it finds their order, so the rows' hashes are sorted, each with its
    row number behind it. Should two different rows have one hash, the order of the rows themselves is found.

    Returns:
        The rows group by group, ascending inside a group, shape (N,); and where each group begins, shape
        (number of groups,). The groups are in no order.
    """
    bits = np.uint64(columns[0].size.bit_length())
    hashes = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        hashes ^= column.view(np.uint64)
        hashes *= _MIXES
        hashes ^= hashes >> _HALF
    hashes *= _MIXES
    hashes >>= bits
    hashes <<= bits
    hashes |= np.arange(hashes.size, dtype=np.uint64)
    hashes.sort()
    order = (hashes & ((_ONE << bits) - _ONE)).view(np.int64)
    hashes >>= bits
    is_new = hashes[1:] != hashes[:-1]
    if (_changes(columns, order) & ~is_new).any():
        order = np.lexsort(columns)
        is_new = _changes(columns, order)
    return order, np.flatnonzero(np.append(True, is_new)[: order.size])


def _changes(columns: tuple[Int64s, ...], order: Int64s) -> Bools:
    """Where, of rows in some order, one differs from the one before it; shape (N - 1,)."""
    changes = np.zeros(max(order.size - 1, 0), np.bool_)
    for column in columns:
        ordered = column[order]
        changes |= ordered[1:] != ordered[:-1]
    return changes
