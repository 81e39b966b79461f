"""Shapes of an XLA program's instructions: element types, dimensions, sizes.

Source of the field numbers: openxla/xla xla/xla_data.proto (5a3e9fa3), message ShapeProto.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s
from profnb.core.errors import TraceFormatError
from profnb.trace.wire import VARINT, read_fields, split_field, split_numbers

_ELEMENT_TYPE, _DIMENSIONS, _PARTS = 2, 3, 4
_MOST_SHAPES = 16_000_000
_DEEPEST_TUPLE = 8

# Bits of an element by PrimitiveType (xla_data.proto).
_BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16,
    18: 128, 19: 8, 20: 8, 21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 26: 2, 27: 2, 28: 8, 29: 8, 30: 1, 31: 1,
    32: 4, 33: 8,
}  # fmt: skip

_NAMES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16",
    11: "f32", 12: "f64", 13: "tuple", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn",
}  # fmt: skip


@dataclass(frozen=True)
class Shapes:
    """N shapes.

    Attributes:
        element_type: ``PrimitiveType``; 13 for a tuple, shape (N,).
        offsets: Shape i has the dimensions ``dimensions[offsets[i]:offsets[i + 1]]``, shape (N + 1,).
        dimensions: Sizes.
        bytes: Size in memory without padding; a tuple's is that of its parts, shape (N,).
        elements: How many elements, 1 for a scalar; a tuple's are those of its first part, shape (N,).
    """

    element_type: Int64s
    offsets: Int64s
    dimensions: Int64s
    bytes: Floats
    elements: Floats

    def of(self, row: int) -> list[int]:
        """The dimensions of one shape."""
        sizes: list[int] = self.dimensions[self.offsets[row] : self.offsets[row + 1]].tolist()
        return sizes

    def text(self, row: int) -> str:
        """A shape as XLA writes it: ``f32[32,10]``."""
        kind = _NAMES.get(int(self.element_type[row]), "?")
        return f"{kind}[{','.join(map(str, self.of(row)))}]"


def _products(offsets: Int64s, values: Int64s) -> Floats:
    """The product of each row's values, as floats because hostile sizes would wrap."""
    result = np.ones(offsets.size - 1)
    some = np.flatnonzero(np.diff(offsets))
    if some.size:
        sizes = np.maximum(values.astype(np.float64), 0)
        with np.errstate(over="ignore"):
            result[some] = np.multiply.reduceat(sizes, offsets[some])
    return result


def read_shapes(buffer: Bytes, begins: Int64s, ends: Int64s, depth: int = 0) -> Shapes:
    """Read N shapes; tuples deeper than 8 levels count as empty."""
    if begins.size > _MOST_SHAPES:
        raise TraceFormatError(f"It claims {begins.size:,} shapes, more than any real program has.")
    kinds = read_fields(buffer, begins, ends, {_ELEMENT_TYPE: VARINT}, "Shape")[
        :, 2 * _ELEMENT_TYPE
    ]
    offsets, dimensions = split_numbers(buffer, begins, ends, _DIMENSIONS, "Shape")
    bits = np.zeros(256)
    bits[list(_BITS)] = list(_BITS.values())
    width = bits[np.clip(kinds, 0, 255)] / 8
    elements = _products(offsets, dimensions)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.nan_to_num(elements * width, posinf=np.inf)
    parts, *inner = split_field(buffer, begins, ends, _PARTS, "Shape")
    if inner[0].size and depth < _DEEPEST_TUPLE:
        part = read_shapes(buffer, inner[0], inner[1], depth + 1)
        np.add.at(size, np.repeat(np.arange(begins.size), np.diff(parts)), part.bytes)
        tuples = np.flatnonzero(np.diff(parts))
        elements[tuples] = part.elements[parts[tuples]]
    return Shapes(kinds.copy(), offsets, dimensions, size, elements)
