"""An op's operations and the least bytes that it must move, from its type and the shapes of its tensors.

    MatMul (64, 784) by (784, 10)      2 * 64 * 784 * 10 operations; 4 * (64*784 + 784*10 + 64*10) bytes
    Conv2D 3x3, 32 to 64 channels      2 * numbers made * 3 * 3 * 32; input, filter and output once each
    Relu of N numbers                  N operations; 8 N bytes
    Sum of N numbers                   N operations; what it reads and what it makes
    Transpose of N numbers             none; 8 N bytes
    ResourceApplyAdam of N weights     12 N operations; 28 N bytes: weight, two slots, gradient, and back

A multiplication and an addition count as two; borders that "same" padding adds are counted like all else, and
an exponential, a root or a comparison is one operation. Each distinct tensor is read or written once: caches
may spare some of that, and a library may move more, so the bytes are the least without caches. What changes
only the shape moves nothing and has no cost here; neither has an op whose type is not in ``op_kinds``.

A convolution's gradients do as many operations as its way forward. A normalisation of batches counts as 6
operations for each number forward (mean, variance, scale and shift) and 11 backward; a softmax as 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from profnb.capture.source.source_records import Shape
from profnb.subjects.bounds.op_kinds import (
    APPLIES,
    ASSIGNS,
    BATCH_PRODUCTS,
    CONVOLUTIONS,
    COPIES,
    ELEMENTWISE,
    FILTER_GRADIENTS,
    INPUT_GRADIENTS,
    NORMALIZATIONS,
    PICKS,
    POOL_GRADIENTS,
    POOLS,
    PRODUCTS,
    REDUCTIONS,
    SOFTMAXES,
)
from profnb.subjects.bounds.tensor_sizes import count_of, label_sizes

_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2,
    "int16": 2, "uint16": 2, "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
_WIDTHS = {
    "float8_e4m3fn": "8-bit", "float8_e5m2": "8-bit", "float16": "16-bit", "bfloat16": "16-bit",
    "float32": "32-bit", "float64": "64-bit",
}  # fmt: skip
_SOFTMAX = 5
_LONGEST = 60  # of a window, as text
_PRODUCTS = (
    PRODUCTS | BATCH_PRODUCTS | CONVOLUTIONS | INPUT_GRADIENTS | FILTER_GRADIENTS | {"Einsum"}
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """What an op takes or makes: which tensor, how large, of what."""

    row: int
    shape: Shape | None
    dtype: str

    @property
    def count(self) -> int | None:
        """How many numbers; None where not known."""
        return count_of(self.shape)

    @property
    def nbytes(self) -> int | None:
        """How many bytes; None where not known."""
        size = _BYTES.get(self.dtype)
        return None if size is None or self.count is None else size * self.count


@dataclass(frozen=True, slots=True)
class OpTensors:
    """An op: its type, what it takes and makes, and its setting (an equation, a window)."""

    kind: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of an op must do.

    Attributes:
        flops: Operations.
        nbytes: Bytes read and written, each tensor once.
        width: Of the numbers it computes with; "" for whole numbers and the like.
        is_product: Whether it multiplies matrices or convolves.
    """

    flops: float
    nbytes: float
    width: str
    is_product: bool


def is_product(kind: str) -> bool:
    """Whether ops of a type multiply matrices or convolve."""
    return kind in _PRODUCTS


def op_cost(op: OpTensors) -> Cost | None:
    """What one run of an op must do; None where it is not known."""
    flops, moved = op_flops(op), _moved_bytes(op)
    if flops is None or moved is None:
        return None
    return Cost(float(flops), float(moved), width_of_op(op), is_product(op.kind))


def width_of_op(op: OpTensors) -> str:
    """The width of the numbers that an op computes with: of the first floating-point ones it takes."""
    widths = (_WIDTHS.get(one.dtype, "") for one in (*op.inputs, *op.outputs))
    return next(filter(None, widths), "")


def op_flops(op: OpTensors) -> float | None:  # noqa: PLR0911 - one per kind of op
    """The operations of one run; None where they are not known."""
    kind, inputs = op.kind, [one.shape for one in op.inputs]
    made = op.outputs[0].count if op.outputs else None
    taken = op.inputs[0].count if op.inputs else None
    if kind in APPLIES or kind in ASSIGNS:
        changed = _changed(op)
        each = APPLIES[kind][0] if kind in APPLIES else 1
        return None if changed is None or changed.count is None else each * changed.count
    if kind in _PRODUCTS:
        return _product_flops(op)
    if kind in NORMALIZATIONS:
        return None if taken is None else NORMALIZATIONS[kind] * taken
    if kind in SOFTMAXES:
        return None if taken is None else _SOFTMAX * taken
    if kind in REDUCTIONS:
        return taken
    if kind in POOLS or kind in POOL_GRADIENTS:
        window = _window(op.setting)
        # Of what a gradient takes, the last one is as large as what the way forward made.
        places = made if kind in POOLS else op.inputs[-1].count if inputs else None
        return None if window is None or places is None else window * places
    if kind in COPIES or kind in PICKS:
        return 0.0
    if kind in ELEMENTWISE and made is not None:
        return made * (len(inputs) - 1 if kind == "AddN" else 1)
    return None


def _changed(op: OpTensors) -> Tensor | None:
    """The tensor as large as the weight that an op updates."""
    at = APPLIES[op.kind][2] if op.kind in APPLIES else 1
    return op.inputs[at] if len(op.inputs) > at else None


def _moved_bytes(op: OpTensors) -> float | None:
    """The bytes that an op reads and writes, each tensor once."""
    if op.kind in APPLIES or op.kind in ASSIGNS:
        changed = _changed(op)
        passes = APPLIES[op.kind][1] if op.kind in APPLIES else 3  # both read, one written
        return None if changed is None or changed.nbytes is None else passes * changed.nbytes
    if op.kind in NORMALIZATIONS:  # beside them, a few numbers for each channel
        large = [one for one in (*op.inputs, *op.outputs[:1]) if one.shape and len(one.shape) > 1]
        return _sum_bytes(large)
    if op.kind in PICKS:
        written = _sum_bytes(op.outputs)
        return None if written is None else 2 * written
    return _sum_bytes((*{one.row: one for one in op.inputs}.values(), *op.outputs))


def _sum_bytes(tensors: Sequence[Tensor]) -> float | None:
    each = [one.nbytes for one in tensors]
    return None if not each or None in each else float(sum(one for one in each if one is not None))


def _window(setting: str) -> int | None:
    sizes = setting.split(",")
    is_window = len(setting) <= _LONGEST and all(size.isdecimal() for size in sizes)
    return prod(map(int, sizes)) if is_window else None


def _product_flops(op: OpTensors) -> float | None:
    """Twice the multiplications of a product of matrices or a convolution."""
    inputs, made = [one.shape for one in op.inputs], op.outputs[0].shape if op.outputs else None
    if op.kind == "Einsum":
        sizes = label_sizes(op.setting, inputs)
        multiplications = None if sizes is None else count_of(tuple(sizes.values()))
        return None if multiplications is None else 2.0 * multiplications
    if op.kind in PRODUCTS or op.kind in BATCH_PRODUCTS:
        return _matrix_flops(inputs[0] if inputs else None, made)
    if len(inputs) < 2:
        return None
    # A kernel's shape is (..., channels in, channels out); deep ones have (..., channels, multiplier).
    if op.kind in CONVOLUTIONS:
        places, kernel = count_of(made), inputs[1]
    elif op.kind in INPUT_GRADIENTS:
        places, kernel = count_of(inputs[2]) if len(inputs) > 2 else None, inputs[1]
    else:
        places, kernel = count_of(inputs[2]) if len(inputs) > 2 else None, made
    if kernel is None or count_of(kernel) is None or len(kernel) < 3 or places is None:
        return None
    window = kernel[:-2] if op.kind.startswith("Depthwise") else kernel[:-1]
    return 2.0 * places * prod(size for size in window if size is not None)


def _matrix_flops(left: Shape | None, made: Shape | None) -> float | None:
    """Operations of a product of matrices, whichever of them is transposed.

    The left one is m by k or k by m, and what is made m by n, so k follows.
    """
    numbers = count_of(made)
    if left is None or made is None or numbers is None or min(len(left), len(made)) < 2:
        return None
    rows, plane = made[-2], count_of(left[-2:])
    if plane is None or not rows or plane % rows:
        return 0.0 if numbers == 0 else None
    return 2.0 * numbers * (plane // rows)
