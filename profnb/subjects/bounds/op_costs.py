"""Ops of a trace to the operations and the least bytes of one run, by the shapes of the graphs that ran.

    MatMul (64, 784) by (784, 10)      2 * 64 * 784 * 10 operations; 4 * (64*784 + 784*10 + 64*10) bytes
    Conv2D 3x3, 32 to 64 channels      2 * numbers made * 3 * 3 * 32; input, filter and output once each
    Relu of N numbers                  N operations; 8 N bytes
    Sum of N numbers                   N operations; what it reads and what it makes
    Transpose of N numbers             none; 8 N bytes
    ResourceApplyAdam of N weights     12 N operations; 28 N bytes: weight, two slots, gradient, and back

A multiplication and an addition count as two; borders that "same" padding adds are counted like all else, and
an exponential, a root or a comparison is one operation. Each distinct tensor is read or written once: caches
may spare some of that, and a library may move more, so the bytes are the least without caches. What changes
only the shape moves nothing and has no cost here; neither has an op whose type is in no table below.

A convolution's gradients do as many operations as its way forward. A normalisation of batches counts as 6
operations for each number forward (mean, variance, scale and shift) and 11 backward; a softmax as 5.

An op of the trace is found in the graphs by its name, without the calls of functions that it was inlined
from. Libraries run several ops of a graph as one, under the name of the last:

    in the trace                             in the graph                           counted
    call/net/dense/MatMul:MatMul             net/dense/MatMul                       itself
    net/conv/Relu:_FusedConv2D               net/conv/Relu, BiasAdd, Conv2D         all three, as one
    net/conv/Conv2D:_MklNativeConv2D         net/conv/Conv2D                        itself
    net/scale/truediv:Mul                    RealDiv by a constant                  itself
    net/dense/MatMul:Transpose               MatMul                                 nothing: it is another op
    net/while/body/_7/net/while/add:AddV2    net/while/add, in the loop's body      itself
    net/ArithmeticOptimizer/Fold_x:MatMul    net/x, a MatMul                        itself

What stands between fused ops is neither read nor written. Where graphs that have the op differ (a function
that was traced again for other shapes), the one that knows most of the ops that ran counts; if several know
as many and disagree, the op has no cost. Neither has one of which the trace recorded what it allocated, and
nothing of that has the size that was worked out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from profnb.capture.source.source_records import GraphShapes, Shape
from profnb.subjects.bounds.tensor_sizes import (
    ELEMENTWISE,
    INPUT_GRADIENTS,
    LIKE_FIRST,
    PRODUCTS,
    Sizes,
    count_of,
    fill_shapes,
    label_sizes,
    types_in,
    without_loops,
)
from profnb.trace.names import plain_type

_BYTES_OF_TYPE = {
    "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2,
    "int16": 2, "uint16": 2, "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
_LONGEST_WINDOW = 60  # of a window, as text
# They compute nothing: what they are given is read, what they make is written.
_COPIES = types_in("""
    BatchToSpaceND BroadcastTo Cast Concat ConcatV2 ConjugateTranspose DepthToSpace Fill MirrorPad OnesLike
    Pack Pad PadV2 ReverseV2 SpaceToBatchND SpaceToDepth Tile Transpose Unpack ZerosLike
    """)
# Likewise, but of what they are given they need read no more than they make.
_PICKS = types_in("Gather GatherV2 ResourceGather Slice Split SplitV StridedSlice")
_POOLS = types_in("AvgPool AvgPool3D MaxPool MaxPool3D")
_POOL_GRADIENTS = types_in("AvgPool3DGrad AvgPoolGrad MaxPool3DGrad MaxPoolGrad")
_NORMALIZATIONS = {
    **dict.fromkeys(types_in("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"), 6),
    **dict.fromkeys(types_in("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"), 11),
}
_REDUCTIONS = types_in(
    "All Any ArgMax ArgMin BiasAddGrad Cumsum Max Mean Min Prod Sum UnsortedSegmentSum"
)
_SOFTMAXES = types_in(
    "LogSoftmax Softmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"
)
# Operations for each number of the first input.
_PER_INPUT = _NORMALIZATIONS | dict.fromkeys(_REDUCTIONS, 1) | dict.fromkeys(_SOFTMAXES, 5)
_CONVOLUTIONS = types_in("Conv2D Conv3D DepthwiseConv2dNative")
_FILTER_GRADIENTS = types_in(
    "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter"
)
_BATCH_PRODUCTS = types_in("BatchMatMul BatchMatMulV2 BatchMatMulV3")
# Updates of weights: operations for each weight, how often memory is passed over (what is read and what is
# written: the weight, its slots, its gradient), and which input is the gradient.
_UPDATES = {
    "ResourceApplyGradientDescent": (2, 3, 2),
    "ResourceApplyMomentum": (4, 5, 3),
    "ResourceApplyKerasMomentum": (4, 5, 3),
    "ResourceApplyAdagrad": (6, 5, 3),
    "ResourceApplyAdagradV2": (6, 5, 4),
    "ResourceApplyRMSProp": (11, 7, 7),
    "ResourceApplyAdam": (12, 7, 9),
    "AssignAddVariableOp": (1, 3, 1),
    "AssignSubVariableOp": (1, 3, 1),
}
_MATRICES = PRODUCTS | _BATCH_PRODUCTS
_PRODUCT_TYPES = _MATRICES | _CONVOLUTIONS | INPUT_GRADIENTS | _FILTER_GRADIENTS | {"Einsum"}
_BATCH_NORM = "FusedBatchNorm"
_REWRITTEN = re.compile(r"(?:^|/)(?:ArithmeticOptimizer|ConstantFolding)/(?:[A-Z][A-Za-z]+_(?=.))?")
_OF_CALLS = re.compile(r"(?:(?:Stateful)?PartitionedCall|while|cond|body|then|else|if)?(?:_\d+)?")
_MOST_FUSED, _FARTHEST, _MOST_OPS_COUNTED = 24, 2_000, 400_000
_HANDED_ON = frozenset({"Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that an op takes or makes: its row in the graph, how large it is, of what."""

    row: int
    shape: Shape | None
    dtype: str

    @property
    def count(self) -> int | None:
        """Its numbers; None where not known."""
        return count_of(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Its bytes; None where not known."""
        size = _BYTES_OF_TYPE.get(self.dtype)
        return None if size is None or self.count is None else size * self.count


_UNKNOWN_TENSOR = Tensor(-1, None, "")


@dataclass(frozen=True, slots=True)
class OpTensors:
    """An op: its type, the tensors it takes and makes, and its setting (an equation, a window)."""

    kind: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    setting: str = ""

    @property
    def width(self) -> str:
        """The width of the numbers it computes with: of the first floating-point ones it takes."""
        dtypes = (one.dtype for one in (*self.inputs, *self.outputs) if "float" in one.dtype)
        sizes = (_BYTES_OF_TYPE[dtype] for dtype in dtypes if dtype in _BYTES_OF_TYPE)
        return next((f"{8 * size}-bit" for size in sizes), "")


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one run of an op."""

    flops: float  # operations
    nbytes: float  # bytes read and written, each tensor once
    width: str  # of the numbers it computes with; "" for whole numbers and the like
    is_product: bool  # whether it multiplies matrices or convolves


def op_cost(op: OpTensors) -> Cost | None:
    """Work out what one run of an op must do; None where it is not known."""
    flops, moved = _op_flops(op), _moved_bytes(op)
    if flops is None or moved is None:
        return None
    return Cost(flops, moved, op.width, op.kind in _PRODUCT_TYPES)


def _op_flops(op: OpTensors) -> float | None:
    kind = op.kind
    each: int | None
    per: Sequence[Tensor]  # the tensor for each number of which so many operations are done
    if kind in _PRODUCT_TYPES:
        return _product_flops(op)
    if kind in _COPIES | _PICKS:
        return 0.0
    if kind in _UPDATES:
        each, _, at = _UPDATES[kind]
        per = op.inputs[at : at + 1]
    elif kind in _PER_INPUT:
        each, per = _PER_INPUT[kind], op.inputs[:1]
    elif kind in _POOLS or kind in _POOL_GRADIENTS:
        # Of what a gradient takes, the last one is as large as what the way forward made.
        each, per = _window(op.setting), op.outputs[:1] if kind in _POOLS else op.inputs[-1:]
    elif kind in ELEMENTWISE:
        each, per = len(op.inputs) - 1 if kind == "AddN" else 1, op.outputs[:1]
    else:
        return None
    count = per[0].count if per else None
    return None if each is None or count is None else float(each * count)


def _moved_bytes(op: OpTensors) -> float | None:
    """The bytes that an op reads and writes, each tensor once."""
    passes, tensors = 1, [*{one.row: one for one in op.inputs}.values(), *op.outputs]
    if op.kind in _UPDATES:
        _, passes, at = _UPDATES[op.kind]
        tensors = list(op.inputs[at : at + 1])
    elif op.kind in _NORMALIZATIONS:  # beside them, a few numbers for each channel
        large = (*op.inputs, *op.outputs[:1])
        tensors = [one for one in large if one.shape and len(one.shape) > 1]
    elif op.kind in _PICKS:
        passes, tensors = 2, list(op.outputs)
    moved = _sum_bytes(tensors)
    return None if moved is None else passes * moved


def _sum_bytes(tensors: Sequence[Tensor]) -> float | None:
    sizes = [one.nbytes for one in tensors]
    return None if not sizes or None in sizes else float(sum(filter(None, sizes)))


def _window(setting: str) -> int | None:
    sizes = setting.split(",")
    is_window = len(setting) <= _LONGEST_WINDOW and all(size.isdecimal() for size in sizes)
    return prod(map(int, sizes)) if is_window else None


def _product_flops(op: OpTensors) -> float | None:
    """Twice the multiplications of a product of matrices or a convolution."""
    inputs, made = [one.shape for one in op.inputs], op.outputs[0].shape if op.outputs else None
    if op.kind == "Einsum":
        sizes = label_sizes(op.setting, inputs)
        multiplications = None if sizes is None else count_of(tuple(sizes.values()))
        return None if multiplications is None else 2.0 * multiplications
    if op.kind in _MATRICES:
        return _matrix_flops(inputs[0] if inputs else None, made)
    if len(inputs) < (2 if op.kind in _CONVOLUTIONS else 3):
        return None
    # A kernel's shape is (..., channels in, channels out); deep ones have (..., channels, multiplier).
    kernel = made if op.kind in _FILTER_GRADIENTS else inputs[1]
    places = count_of(made if op.kind in _CONVOLUTIONS else inputs[2])
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


def _plain_type(op_type: str) -> tuple[str, bool]:
    """A type as the graph has it; True if the op does more than that one."""
    plain = plain_type(op_type)
    if plain.startswith(_BATCH_NORM):
        base = plain.removesuffix("Ex")
        return (base, False) if base == plain else (base + "V3", True)
    is_fused = plain.startswith("Fused") and op_type.startswith("_")
    plain = plain.removeprefix("Fused") if is_fused else plain
    return plain.removesuffix("WithBias"), is_fused


class _GraphCosts:
    """One graph's ops and what each must do."""

    def __init__(
        self, graph: GraphShapes, batch_size: int | None, recorded: Mapping[str, Sequence[Sizes]]
    ) -> None:
        self._graph, self._recorded = graph, recorded
        self._shapes = fill_shapes(graph, batch_size, recorded)
        self._first, self._maker = list(accumulate(graph.outputs, initial=0)), graph.makers

    def cost(self, row: int, op_type: str) -> Cost | None:
        """Cost of one run of the op of a row, which the trace calls a type; None where not known."""
        op = self._tensors(row)
        recorded = self._recorded.get(self._graph.op_names[row], ())
        if recorded and op.outputs and op.outputs[0].count is not None:
            made_counts = {one.count for one in op.outputs}
            if not any(prod(sizes) in made_counts for sizes in recorded):
                return None
        plain, is_fused = _plain_type(op_type)
        if is_fused:
            return self._fused(row, plain)
        is_alike = plain in ELEMENTWISE and op.kind in ELEMENTWISE and plain != "AddN"
        return op_cost(op) if plain == op.kind or is_alike else None

    def _tensors(self, row: int) -> OpTensors:
        graph, first = self._graph, self._first[row]
        taken, made = (
            [
                Tensor(at, self._shapes[at], graph.dtypes[at]) if at >= 0 else _UNKNOWN_TENSOR
                for at in rows
            ]
            for rows in (graph.inputs[row], range(first, first + graph.outputs[row]))
        )
        return OpTensors(graph.op_types[row], taken, made, graph.settings.get(row, ""))

    def _fused(self, row: int, kind: str) -> Cost | None:
        """Cost of an op that runs those from the nearest one of a kind up to the op of a row as one."""
        rows = self._rows_up_to(row, kind)
        ops = [self._tensors(at) for at in rows]
        flops = [_op_flops(op) for op in ops if op.kind not in _HANDED_ON]
        taken = {one.row: one for op in ops for one in op.inputs}
        read = [one for at, one in taken.items() if self._made_by(at) not in rows]
        moved = _sum_bytes([*read, *ops[-1].outputs[:1]]) if rows else None
        if moved is None or None in flops:
            return None
        return Cost(float(sum(filter(None, flops))), moved, ops[0].width, kind in _PRODUCT_TYPES)

    def _made_by(self, tensor: int) -> int:
        return self._maker[tensor] if tensor >= 0 else -1

    def _makers(self, row: int) -> list[int]:
        return [self._made_by(tensor) for tensor in self._graph.inputs[row]]

    def _rows_up_to(self, row: int, kind: str) -> list[int]:
        """The nearest op of a kind before one, the ops between them, and that one; none if there is none.

        Between them lies only what works element by element.
        """
        seen, level = {row}, [row]
        while level and len(seen) < _MOST_FUSED:
            rows_of_kind = [at for at in level if self._graph.op_types[at] == kind]
            if rows_of_kind:
                is_near = len(rows_of_kind) == 1 and 0 <= row - rows_of_kind[0] < _FARTHEST
                return self._between(rows_of_kind[0], row) if is_near else []
            passing = [at for at in level if self._graph.op_types[at] in ELEMENTWISE | LIKE_FIRST]
            makers = dict.fromkeys(maker for at in passing for maker in self._makers(at))
            level = [maker for maker in makers if maker >= 0 and maker not in seen]
            seen.update(level)
        return []

    def _between(self, first: int, last: int) -> list[int]:
        """The ops on every way from one to another, which were made in this order."""
        rows = {first}
        for at in range(first + 1, last + 1):
            if not rows.isdisjoint(self._makers(at)):
                rows.add(at)
        needed = {last}
        for at in sorted(rows, reverse=True):
            if at in needed:
                needed.update(self._makers(at))
        return sorted(rows & needed)


def find_costs(
    ops: Iterable[tuple[str, str]],
    graphs: Sequence[GraphShapes],
    batch_size: int | None,
    recorded: Mapping[str, Sequence[Sizes]],
) -> dict[tuple[str, str], Cost]:
    """Find what one run of each op does, of the ops of which that is known.

    ``recorded`` are the distinct shapes of what ops allocated, by the op's name without calls.
    """
    places = locate_ops(ops, graphs)
    op_counts = Counter(at for standing in places.values() for at, _ in standing)
    order = sorted(op_counts, key=lambda at: (-op_counts[at], -at))
    sizes = accumulate(len(graphs[at].op_names) for at in order)
    counted = {
        at: _GraphCosts(graphs[at], batch_size, recorded)
        for at, size in zip(order, sizes, strict=True)
        if size <= _MOST_OPS_COUNTED
    }
    costs: dict[tuple[str, str], Cost] = {}
    for key, standing in places.items():
        pairs = ((at, counted[at].cost(row, key[1])) for at, row in standing if at in counted)
        scored = [(op_counts[at], cost) for at, cost in pairs if cost is not None]
        most = max((score for score, _ in scored), default=0)
        best = {cost for score, cost in scored if score == most}
        if len(best) == 1:
            costs[key] = best.pop()
    return costs


def locate_ops(
    ops: Iterable[tuple[str, str]], graphs: Sequence[GraphShapes]
) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Find each op in the graphs: pairs of a graph and a row of it."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for at, graph in enumerate(graphs):
        for row, name in enumerate(graph.op_names):
            rows.setdefault(name, []).append((at, row))
    return {
        key: next((rows[path] for path in _paths(key[0]) if path in rows), [])
        for key in dict.fromkeys(ops)
    }


def _paths(name: str) -> Iterable[str]:
    """The name, and what is left of it without the functions and loops that it was inlined from."""
    yield name
    plain = without_loops(name)
    if plain != name:
        yield plain
    rewritten = _REWRITTEN.search(plain)
    if rewritten:
        scope, rest = plain[: rewritten.start()], plain[rewritten.end() :]
        yield f"{scope}/{rest}" if scope else rest
        return
    parts = name.split("/")
    for first in range(1, min(len(parts), _MOST_FUSED)):
        if not _OF_CALLS.fullmatch(parts[first - 1]):
            return
        yield "/".join(parts[first:])
