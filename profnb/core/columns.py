"""The array types that columns are made of, and looking values up by key."""

import numpy as np
import numpy.typing as npt

__all__ = ["Bools", "Bytes", "Floats", "Int8s", "Int32s", "Int64s", "look_up"]

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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
