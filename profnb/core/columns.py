"""The array types that columns are made of, and the few things done with them everywhere.

Sums by row, shares and rates, flags, spans of time; and looking values up by key, which sorts as little as it
can.
"""

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Value = TypeVar("Value", bound=np.generic)
Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
_CHUNK = 1 << 15  # rows
_DENSE = 8  # numbers of which so few are missing fit a table


class RowColumns:
    """A dataclass of columns: as many rows as its first column has."""

    __slots__ = ()
    __dataclass_fields__: dict[str, Any]

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))


def sum_by(rows: Int64s | Int32s, values: Any, count: int) -> Int64s:
    """Sum up whole numbers by row, exactly, shape (count,); what is of row -1 is left out."""
    sums = np.zeros(count + 1, np.int64)
    np.add.at(sums, rows, values)
    return sums[:-1]


def fraction_of(values: Int64s) -> Floats:
    """The share of each value in their sum, shape (N,); NaN where that is nothing."""
    shares: Floats = values / (int(values.sum()) or np.nan)
    return shares


def ratio(amount: Int64s | Floats, per: Int64s | Floats) -> Floats:
    """Divide one by the other, NaN where that is nothing, shape (N,)."""
    divided: Floats = np.full(amount.size, np.nan)
    np.divide(amount, per, out=divided, where=np.asarray(per) > 0)
    return divided


def flags_at(rows: Int64s | Int32s, count: int) -> Bools:
    """Mark some of so many rows, shape (count,)."""
    flags = np.zeros(count, np.bool_)
    flags[rows] = True
    return flags


def span_at(begin: Int64s, end: Int64s, times: Int64s) -> Int64s:
    """The row of the span, from begin to end, that each of N times lies in, or -1, shape (N,).

    Args:
        begin: Begins, ascending, shape (S,).
        end: Ends of the same spans, none of which lies inside another, shape (S,).
        times: The times.
    """
    row = np.searchsorted(begin, times, side="right") - 1
    return np.where(times < np.append(end, np.iinfo(np.int64).min)[row], row, -1)


def next_begins(begin: Int64s, times: Int64s) -> Int64s:
    """When the next of some spans, one at least, begins at each of N times or later; else that time."""
    begin = np.sort(begin)
    behind = np.minimum(np.searchsorted(begin, times), begin.size - 1)
    return np.maximum(begin[behind], times)


def number_values(values: Iterable[Key]) -> tuple[list[Key], Int64s]:
    """The distinct ones of N values, in the order in which they are met, and the row of each, shape (N,)."""
    rows: dict[Key, int] = {}
    row = np.array([rows.setdefault(value, len(rows)) for value in values], np.int64)
    return list(rows), row


def group(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """The items of each key, both in the order in which they are met."""
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def distinct_rows(*columns: Int64s | Int32s | Bools) -> tuple[list[list[int]], Int64s]:
    """The distinct rows of columns of N whole numbers, ascending, and which each row is, shape (N,)."""
    order = np.lexsort(columns[::-1])  # a quarter of what np.unique takes along an axis
    rows = np.stack(columns)[:, order]
    is_new = np.append(True, (rows[:, 1:] != rows[:, :-1]).any(0))[: order.size]
    return rows[:, is_new].T.tolist(), (np.cumsum(is_new) - 1)[np.argsort(order)]


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
