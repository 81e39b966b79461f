"""Products to their floating-point operations: Keras' layers by their shapes, PyTorch's ops as they ran.

A product of matrices or a convolution does two operations for each multiplication; borders that "same"
padding adds are counted like all else, and what is done element by element (biases, activations,
normalisation) is not counted. That is the usual count of "model FLOPs", which does not depend on how a
library computes it.

Backward, a layer does as much again for the gradient of its weights, if they are trained, and as much again
for the gradient of its input, if something before it is trained: twice the forward pass in the middle of a
model, once in its first layer. (Within the first layer the gradient still reaches the state of a recurrent
layer, and what lies between the two kernels of a separable convolution.) Dot products of attention always
need both. In a model without a graph of layers (a subclassed one) the layers are taken to be called in the
order in which they were made.

PyTorch's ``record_shapes=True`` (here ``--host-level 3``) writes the shapes of what an op took as ``Input
Dims``, and settings as ``Concrete Inputs``:

    aten::addmm [[32], [8, 288], [288, 32]]              2 * 8 * 288 * 32
    aten::_convolution [[8, 3, 8, 8], [16, 3, 3, 3]]     2 * 8 * 36 places * 16 * 27
    aten::convolution_backward                           as much for each gradient it was asked for

An op inside of another that is counted (``aten::linear``, which calls ``aten::addmm``) is not counted again.
Dot products of attention count twice backward, though a library may do them a third time.

Source: aten/src/ATen/native/native_functions.yaml (PyTorch 2.15).
"""

import json
from collections.abc import Sequence
from math import nan, prod
from typing import Any

import numpy as np

from profnb.capture.models.layer_facts import LayerFacts
from profnb.capture.source.source_records import Shape
from profnb.core.columns import Floats, Int32s, Int64s, distinct_rows
from profnb.steps.nesting import outermost_of
from profnb.trace.model import Trace

_DENSE = "Dense"
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
_SEPARABLE = ("SeparableConv1D", "SeparableConv2D")
_TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
_RECURRENT = ("LSTM", "GRU", "SimpleRNN")
_ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention")
# They move numbers, or look them up.
_NO_PRODUCTS = (
    "Embedding", "InputLayer", "Flatten", "Reshape", "Permute", "RepeatVector", "Concatenate", "Identity",
    "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D", "Cropping3D",
)  # fmt: skip


def backward_factor(layer: LayerFacts) -> float:
    """Give the operations of a layer's backward pass over those of its forward pass."""
    if layer.kind in _ATTENTION:
        return 2.0
    if layer.needs_input_gradient:
        return float(layer.is_trainable) + 1.0
    inner_share = 0.0  # of operations whose input another kernel of the same layer made
    if layer.kind in (*_SEPARABLE, *_RECURRENT) and len(layer.kernels) > 1:
        sizes = [prod(length or 0 for length in kernel) for kernel in layer.kernels]
        inner_share = sizes[-1] / (sum(sizes) or 1)
    return float(layer.is_trainable) * (1.0 + inner_share)


def forward_flops(layers: Sequence[LayerFacts], row: int, calls: int) -> float:
    """Count operations of a layer's own products for one example, over all its calls; NaN where not known."""
    layer = layers[row]
    if not layer.is_library:
        return nan
    if layer.kind in _NO_PRODUCTS:
        return 0.0
    if layer.kind in _ATTENTION:
        return _attention(layer) * calls
    parent = layers[layer.parent] if layer.parent >= 0 else None
    shapes = [_completed(shape, layer, parent) for shape in layer.input_shapes]
    if not shapes and parent is not None and parent.kind == "Bidirectional":
        shapes = list(parent.input_shapes)
    each = [_of_call(layer, shape) for shape in shapes]
    if len(each) == calls:
        return float(sum(each))
    return each[0] * calls if len(set(each)) == 1 else nan


def _completed(shape: Shape, layer: LayerFacts, parent: LayerFacts | None) -> Shape:
    """The shape with the sequence's length from the attention that a layer is part of."""
    if parent is None or len(shape) < 3 or shape[1] is not None:
        return shape
    length = parent.numbers.get(f"{layer.name}_length", parent.numbers.get("query_length"))
    return (shape[0], length, *shape[2:]) if isinstance(length, int) else shape


def _of_call(layer: LayerFacts, shape: Shape) -> float:
    """Twice the numbers of a layer's kernels, at each of the positions where they are used."""
    if not layer.kernels:
        return nan
    kernels, made = layer.kernels, layer.output_shape
    if layer.kind == "EinsumDense":
        return 2.0 * _einsum(str(layer.numbers.get("equation", "")), shape, kernels[0], made)
    if layer.kind == _DENSE and shape and made and shape[-1] is not None and made[-1] is not None:
        kernels = ((shape[-1], made[-1]),)  # the kernel itself may be packed (int4)
    size = sum(prod(length or 0 for length in kernel) for kernel in kernels)
    return 2.0 * size * _product(_positions(layer, shape))


def _positions(layer: LayerFacts, shape: Shape) -> Sequence[int | None] | None:
    """Dimensions of the places where kernels are used, for each example."""
    if layer.kind == _DENSE or (layer.kind == "TimeDistributed" and len(layer.kernels[0]) == 2):
        return shape[1:-1]
    if layer.kind in (*_CONVOLUTIONS, *_SEPARABLE):
        return _spatial(layer, layer.output_shape)
    if layer.kind in _TRANSPOSED:
        return _spatial(layer, shape)
    return shape[1:2] if layer.kind in _RECURRENT and len(shape) == 3 else None


def _spatial(layer: LayerFacts, shape: Shape | None) -> Sequence[int | None] | None:
    """All dimensions of a convolution's output or input but batch and channels."""
    if shape is None or len(shape) < 3:
        return None
    is_first = layer.numbers.get("data_format") == "channels_first"
    return shape[2:] if is_first else shape[1:-1]


def _product(sizes: Sequence[int | None] | None) -> float:
    return nan if sizes is None else float(prod(nan if one is None else one for one in sizes))


def _einsum(equation: str, shape: Shape, kernel: Shape, made: Shape | None) -> float:
    """The product of all distinct dimensions of ``abc,cde->abde`` but the batch, which comes first."""
    terms = equation.replace("->", ",").split(",")
    if len(terms) != 3 or len(terms[1]) != len(kernel):
        return nan
    data, weights, result = terms
    is_open = data.startswith("...")
    rest = len(shape) - len(data) + 3 if is_open else 1
    free, named = shape[1:rest], dict(zip(data[3 if is_open else 1 :], shape[rest:], strict=False))
    # The kernel itself may be packed (int4): where input or output tell a size, that counts.
    outside = dict(zip(result[:0:-1], (made or ())[:0:-1], strict=False)) | named
    sized = {letter: size for letter, size in outside.items() if size is not None}
    sizes = {**named, **dict(zip(weights, kernel, strict=True)), **sized}
    return _product(tuple(free)) * _product(tuple(sizes.values()))


def _attention(layer: LayerFacts) -> float:
    """Queries by keys, and weights by values."""
    sizes = layer.numbers

    def size(*names: str) -> float:
        value = next((sizes[name] for name in names if name in sizes), nan)
        return nan if isinstance(value, str) else value

    keys = size("key_length", "value_length")
    key, value = size("key_dim", "head_dim"), size("value_dim", "key_dim", "head_dim")
    heads = size("num_heads", "num_query_heads")
    return 2.0 * heads * size("query_length") * keys * (key + value)


_INPUT_DIMS, _CONCRETE_INPUTS = "Input Dims", "Concrete Inputs"
# Of a product of two matrices, which of what it takes they are.
_MATRICES = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
_LINEAR, _CONVOLUTION = "aten::linear", "aten::_convolution"
_GRADIENT_CALLS = "aten::convolution_backward"
_DOT_PRODUCTS, _BACKWARD_SUFFIX = "aten::_scaled_dot_product_", "_backward"
_BY_PARTS = "math"  # attention whose products are ops of their own
_LONGEST_SHAPES = 10_000


def product_flops(trace: Trace, parent: Int32s) -> tuple[Int64s, Floats]:
    """Find the N products of PyTorch's in a trace with known shapes, and the operations of each."""
    shapes, settings = trace.stats.lists(_INPUT_DIMS), trace.stats.lists(_CONCRETE_INPUTS)
    if not len(shapes):
        return np.empty(0, np.int64), np.empty(0)
    is_product = trace.names.rows_where(_is_product)[trace.events.name]
    chosen = np.isin(shapes.events, outermost_of(is_product, parent))
    events, shape = shapes.events[chosen], shapes.values[chosen].astype(np.int64)
    setting = settings.of(events).astype(np.int64)
    kinds, kind = distinct_rows(trace.events.name[events], shape, setting)
    setting_texts = (*settings.texts, "")
    texts = ((trace.names[name], shapes.texts[at], setting_texts[row]) for name, at, row in kinds)
    done = np.array([_flops_of(*one) for one in texts], np.float64)[kind]
    return events[~np.isnan(done)], done[~np.isnan(done)]


def _is_product(name: str) -> bool:
    if name.startswith(_DOT_PRODUCTS):
        return _BY_PARTS not in name
    return name in _MATRICES or name in (_LINEAR, _CONVOLUTION, _GRADIENT_CALLS)


def _flops_of(name: str, shapes: str, settings: str) -> float:
    """Operations of one run; NaN where its shapes do not tell."""
    try:
        # None for what is no tensor; a list of tensors is none either.
        taken = [
            shape if all(isinstance(size, int) and size >= 0 for size in shape) else []
            for shape in _parsed(shapes)
        ]
        done = _done(name, taken, _parsed(settings) or [])
    except (ValueError, TypeError, IndexError, ArithmeticError, RecursionError):
        return np.nan
    return float(done) if 0 <= done < 1e30 else np.nan


def _parsed(text: str) -> Any:
    """The value of a list or a setting: ``[1, 1]``, ``True``."""
    if len(text) > _LONGEST_SHAPES:
        raise ValueError(text[:20])
    return json.loads(text.lower()) if text else None


def _done(name: str, taken: Sequence[Sequence[int]], settings: Sequence[str]) -> float:
    if name in _MATRICES:
        left, right = taken[_MATRICES[name]], taken[_MATRICES[name] + 1]
        return 2.0 * prod(left) * right[-1] if left[-1] == right[-2] else np.nan
    if name == _LINEAR:
        data, weight = taken[:2]
        return 2.0 * prod(data) * (weight[0] if len(weight) == 2 else 1)
    if name == _CONVOLUTION:
        data, weight = taken[:2]
        stride, padding, dilation, is_transposed = map(_parsed, settings[3:7])
        sides = zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
        places = prod(
            size if is_transposed else (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, gap in sides
        )
        return 2.0 * data[0] * places * prod(weight)
    if name == _GRADIENT_CALLS:
        made, data, weight = taken[:3]
        places = prod((data if _parsed(settings[7]) else made)[2:])
        return 2.0 * data[0] * places * prod(weight) * sum(map(bool, _parsed(settings[10])[:2]))
    is_backward = _BACKWARD_SUFFIX in name
    queries, keys, values = taken[1:4] if is_backward else taken[:3]
    pairs = prod(queries[:-1]) * keys[-2]
    return 2.0 * pairs * (queries[-1] + values[-1]) * (2 if is_backward else 1)
