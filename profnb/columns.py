"""The array types that columns are made of."""

import numpy as np
import numpy.typing as npt

__all__ = ["Bools", "Bytes", "Floats", "Int8s", "Int32s", "Int64s"]

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
