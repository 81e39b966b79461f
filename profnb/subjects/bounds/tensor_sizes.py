"""Types of ops by what they do to shapes; the shapes of a graph's tensors, with open sizes filled in.

A graph that takes batches of any size has None for the batch in most shapes. What ran had a size: the trace
says how many examples a step took, and of some ops what they allocated. From there sizes follow op by op:

    op              in the graph             taken from            filled in
    Placeholder     (None, 28, 28, 1)        the batch, 64         (64, 28, 28, 1)
    Conv2D          (None, 26, 26, 32)       its input's batch     (64, 26, 26, 32)
    Reshape         (None, 21632)            numbers are kept      (64, 21632)
    Transpose       (None, 20, None)         two are open          not known
    BiasAdd         (None, 10)               its larger input      (64, 10)
    BroadcastTo     unknown                  Shape of another      (64, 10)
    Where           (None, 2)                no rule               not known

A size that no rule gives stays None, and so does everything that is counted from it.

TensorFlow's allocators write of each large allocation which op asked for it, for what, and its shape.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from profnb.capture.source.source_records import GraphShapes, Shape
from profnb.trace.model import Trace
from profnb.trace.names import without_call


def types_in(text: str) -> frozenset[str]:
    """Read types of ops from a text."""
    return frozenset(text.split())


# One operation for each number they make, or none (see op_costs); of inputs the larger counts.
ELEMENTWISE = types_in("""
    Abs Add AddN AddV2 BiasAdd BiasAddV1 Ceil Cos Cosh Div DivNoNan Elu EluGrad Equal Erf
    Erfc Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Inv InvGrad IsFinite IsInf IsNan LeakyRelu
    LeakyReluGrad Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan
    Neg NotEqual Pow RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rint Round Rsqrt
    RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign
    SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv Xdivy Xlogy
    """)
# They hand on what they are given, or change its type: one shape in, the same out.
LIKE_FIRST = types_in("""
    BiasAdd BiasAddV1 Cast CheckNumerics Identity LogSoftmax MaxPoolGrad OnesLike PreventGradient Snapshot
    Softmax StopGradient ZerosLike
    """)
# What they make has the first dimension of what they are given as its own, where both are open.
BATCHED = types_in("""
    ArgMax AvgPool AvgPool3D BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv2DBackpropInput Conv3D
    Conv3DBackpropInputV2 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput FusedBatchNormGradV3
    FusedBatchNormV3 MatMul MaxPool MaxPool3D Mean Pad PadV2 SoftmaxCrossEntropyWithLogits
    SparseSoftmaxCrossEntropyWithLogits Sum
    """)
# As many numbers out as in, or as in all together; rows by their numbers.
KEEPS = types_in("ConjugateTranspose ExpandDims Reshape ReverseV2 Squeeze Transpose")
# Which of what they take is the shape of what they make.
_RANDOM = types_in(
    "RandomStandardNormal RandomUniform StatelessRandomNormalV2 StatelessRandomUniformV2"
)
SHAPED_BY = {"BroadcastTo": 1, "Reshape": 1, "Fill": 0, **dict.fromkeys(_RANDOM, 0)}
JOINS = types_in("ConcatV2 Pack")
GATHERS = types_in("GatherV2 ResourceGather")
INPUT_GRADIENTS = types_in(
    "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput"
)
PRODUCTS = types_in("MatMul")

Sizes = tuple[int, ...]
_MOST_SHAPES = 8  # of one op: it has no one shape then
_BRANCH = re.compile(r".*/(?:body|cond|then|else)/_\d+/")


def find_recorded_shapes(trace: Trace) -> dict[str, list[Sizes]]:
    """The distinct shapes of what each op allocated to give back, by its name without calls."""
    ops, shapes = trace.stats.texts("tf_op"), trace.stats.texts("shape")
    regions = trace.stats.texts("region_type")
    events, in_ops, in_shapes = np.intersect1d(ops.events, shapes.events, return_indices=True)
    is_output = np.array([text == "output" for text in (*regions.texts, "")], np.bool_)
    kept = is_output[regions.of(events)]  # the last one where there is no region
    pairs = np.stack([ops.values[in_ops][kept], shapes.values[in_shapes][kept]], axis=1)
    recorded: dict[str, list[Sizes]] = {}
    for op, shape in np.unique(pairs, axis=0).tolist():
        sizes = read_sizes(shapes.texts[shape])
        seen = recorded.setdefault(without_loops(ops.texts[op].partition(":")[0]), [])
        if sizes is not None and sizes not in seen and len(seen) <= _MOST_SHAPES:
            seen.append(sizes)
    return recorded


def without_loops(name: str) -> str:
    """An op's name without the calls of functions, loops and branches that it stands in."""
    plain = without_call(name)
    branch = _BRANCH.match(plain)  # of nested ones the innermost
    return plain[branch.end() :] if branch else plain


def read_sizes(text: str) -> Sizes | None:
    """A shape as the trace writes it, ``[64,26,26,32]``; None for anything else."""
    if text[:1] != "[" or text[-1:] != "]" or len(text) > 200:
        return None
    parts = text[1:-1].split(",") if text != "[]" else []
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else None


_ARGUMENTS = frozenset(
    {"Placeholder", "_Arg", "IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"}
)
_MOST_ELEMENTS = 1 << 62
_HANDED_ON = frozenset({"Cast", "Identity"})


def count_of(shape: Shape | None) -> int | None:
    """Count the numbers of a tensor; None where that is not known, or more than any could have."""
    if shape is None or None in shape:
        return None
    count = prod(filter(None, shape)) if 0 not in shape else 0
    return count if count <= _MOST_ELEMENTS else None


def fill_shapes(
    graph: GraphShapes, batch_size: int | None, recorded: Mapping[str, Sequence[Sizes]]
) -> list[Shape | None]:
    """Fill in the shapes of a graph's tensors as far as they can be known, in the order of ``graph.shapes``.

    ``recorded`` are the distinct shapes of what ops allocated, by the op's name.
    """
    filling = _Filling(graph, batch_size)
    first = 0
    for row, made in enumerate(graph.outputs):
        for at in range(first, first + made):
            filling.fill(row, at, recorded.get(graph.op_names[row], ()))
        first += made
    return filling.shapes


class _Filling:
    """The shapes of a graph's tensors as far as they are known, op by op."""

    def __init__(self, graph: GraphShapes, batch_size: int | None) -> None:
        self.shapes: list[Shape | None] = list(graph.shapes)
        self._graph, self._batch_size = graph, batch_size
        self._counts: dict[int, int] = {}  # numbers of tensors of which two dimensions are open
        self._held_shapes: dict[int, Shape] = {}  # tensors that hold the shape of another one

    def fill(self, row: int, at: int, recorded: Sequence[Sizes]) -> None:
        """Take in one tensor that the op of a row makes."""
        kind, taken = self._graph.op_types[row], self._graph.inputs[row]
        if count_of(self.shapes[at]) is None:
            self.shapes[at] = self._filled(row, at)
        if count_of(self.shapes[at]) is None:
            self.shapes[at] = _recorded(self.shapes[at], recorded)
        if not taken:
            return
        if kind in KEEPS and (count := self.count(taken[0])) is not None:
            self._counts[at] = count
        held_shape = self._held_shapes.get(taken[0]) if kind in _HANDED_ON else None
        held_shape = self._shape(taken[0]) if kind == "Shape" else held_shape
        if held_shape is not None:
            self._held_shapes[at] = held_shape

    def count(self, at: int) -> int | None:
        """Numbers of a tensor; None where not known."""
        count = count_of(self._shape(at))
        return self._counts.get(at) if count is None else count

    def _shape(self, at: int) -> Shape | None:
        return self.shapes[at] if at >= 0 else None

    def _filled(self, row: int, at: int) -> Shape | None:
        """The shape of an op's output, from its inputs."""
        kind, shape, taken = self._graph.op_types[row], self.shapes[at], self._graph.inputs[row]
        inputs = [self._shape(one) for one in taken]
        if kind in _ARGUMENTS:
            return _with_batch(shape, self._batch_size)
        by = SHAPED_BY.get(kind, len(taken))
        if by < len(taken) and taken[by] in self._held_shapes:
            shape = _merged(shape, self._held_shapes[taken[by]])
        if kind == "AddN" or (kind in LIKE_FIRST and inputs):
            return _merged(shape, *(inputs if kind == "AddN" else inputs[:1]))
        if kind in ELEMENTWISE:
            return _broadcast(shape, inputs)
        if kind == "Einsum":
            equation = self._graph.settings.get(row, "")
            sizes = label_sizes(equation, inputs) or {}
            made = equation.partition("->")[2]
            return _merged(shape, tuple(map(sizes.get, made)) if sizes else None)
        return self._by_size(kind, taken, shape)

    def _by_size(self, kind: str, taken: Sequence[int], shape: Shape | None) -> Shape | None:
        """The shape of an output that has the batch, the rows or the numbers of its input."""
        graph = self._graph
        if kind in BATCHED:
            source = 2 if kind in INPUT_GRADIENTS else 0
            given = taken[source] if len(taken) > source else -1
            given_shape = self._shape(given)
            opens = given >= 0 and _opens_first(graph.shapes[given]) and _opens_first(shape)
            if opens and given_shape:
                return _with_batch(shape, given_shape[0])
            return self._product(taken, shape) if kind in PRODUCTS else shape
        if kind in GATHERS:
            return _gathered(graph, taken, [self._shape(one) for one in taken], shape)
        if kind not in KEEPS | JOINS or not taken:
            return shape
        last = (
            1 if kind in KEEPS else -1 if kind == "ConcatV2" else None
        )  # its last one is the axis
        counts = [self.count(one) for one in taken[:last]]
        return shape if None in counts else _with_count(shape, sum(filter(None, counts)))

    def _product(self, taken: Sequence[int], shape: Shape | None) -> Shape | None:
        """A product of matrices of which the numbers of the left one are known, whichever is transposed."""
        left, right = (self.count(one) for one in taken[:2]) if len(taken) > 1 else (None, None)
        if not shape or not _opens_first(shape) or not left or not right or not shape[-1]:
            return shape
        summed, rest = divmod(right, shape[-1])
        if rest or left % summed:
            return shape
        rows = left // summed
        if count_of(self.shapes[taken[0]]) is None:
            self.shapes[taken[0]] = rows, summed
        return (rows, *shape[1:])


def _opens_first(shape: Shape | None) -> bool:
    return bool(shape) and shape is not None and shape[0] is None and None not in shape[1:]


def _with_batch(shape: Shape | None, batch_size: int | None) -> Shape | None:
    """A shape with its first dimension filled in, where that is open."""
    if not shape or shape[0] is not None or batch_size is None:
        return shape
    return (batch_size, *shape[1:])


def _gathered(
    graph: GraphShapes, taken: Sequence[int], inputs: Sequence[Shape | None], shape: Shape | None
) -> Shape | None:
    """Rows by their numbers: where the table's size is known, the open dimension is that of the numbers."""
    if len(taken) < 2 or min(taken[:2]) < 0 or shape is None or shape.count(None) != 1:
        return shape
    table, numbers, numbers_shape = graph.shapes[taken[0]], graph.shapes[taken[1]], inputs[1]
    if count_of(table) is None or numbers is None or numbers_shape is None:
        return shape
    if numbers.count(None) != 1:
        return shape
    size = numbers_shape[numbers.index(None)]
    return tuple(size if dimension is None else dimension for dimension in shape)


def _merged(shape: Shape | None, *others: Shape | None) -> Shape | None:
    """Several shapes of one tensor together."""
    for other in others:
        if shape is None:
            shape = other
        elif other is not None and len(shape) == len(other):
            pairs = zip(shape, other, strict=True)
            shape = tuple(theirs if size is None else size for size, theirs in pairs)
    return shape


def _broadcast(shape: Shape | None, inputs: Sequence[Shape | None]) -> Shape | None:
    """The output of an op that works element by element: the largest of its inputs in each dimension."""
    known_shapes = [taken for taken in inputs if taken is not None]
    are_all = len(known_shapes) == len(inputs) > 0
    if shape is None and not are_all:
        return None
    shape = (None,) * max(map(len, known_shapes)) if shape is None else shape
    sizes: list[int | None] = []
    for back, size in zip(range(len(shape), 0, -1), shape, strict=True):
        taken = [one[-back] for one in known_shapes if len(one) >= back]
        numbers = [one for one in taken if one is not None]
        is_sure = (are_all and len(numbers) == len(taken)) or max(numbers, default=1) > 1
        sizes.append(max(numbers, default=None) if size is None and is_sure else size)
    return tuple(sizes)


def label_sizes(equation: str, inputs: Sequence[Shape | None]) -> dict[str, int | None] | None:
    """The size of each label of an Einsum (``abc,cd->abd``); None where labels are no plain letters."""
    left, arrow, made = equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, int | None] = {}
    for term, shape in zip(terms, inputs, strict=False):
        if shape is None or len(shape) != len(term) or not term.isalpha():
            return None
        for label, size in zip(term, shape, strict=True):
            sizes[label] = sizes.get(label) or size
    return sizes if arrow and len(terms) == len(inputs) and set(made) <= set(sizes) else None


def _with_count(shape: Shape | None, numbers: int) -> Shape | None:
    """A shape of which one dimension is open, from how many numbers it holds."""
    if shape is None or shape.count(None) != 1:
        return shape
    others = prod(size for size in shape if size is not None)
    if others <= 0 or numbers % others:
        return shape
    return tuple(numbers // others if size is None else size for size in shape)


def _recorded(shape: Shape | None, seen: Sequence[Sizes]) -> Shape | None:
    """The shape that an op allocated, if exactly one fits the graph's."""
    alike = [one for one in seen if shape is None or len(one) == len(shape)]
    fitting = [
        one for one in alike if all(a in (None, b) for a, b in zip(shape or one, one, strict=True))
    ]
    return fitting[0] if len(fitting) == 1 else shape
